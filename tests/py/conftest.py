"""Fixtures: clusters and systems that tests may break."""

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clients import KINDS, Kind, Stage
from clusters import Quorum, quorum, template
from oml.dev.cluster import Cluster
from oml.store import open_store
from seaweed import Bucket, serving
from systems import SETTINGS, System, make_template

_numbers = itertools.count(1)


@contextmanager
def _open_dir() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="oml-test-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _cluster() -> Iterator[Cluster]:
    with _open_dir() as directory:
        cluster = Cluster(directory / "cluster")
        cluster.create(SETTINGS)
        try:
            cluster.start()
            make_template(cluster)
            yield cluster
        finally:
            cluster.destroy()


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that the server's user can enter, unlike tmp_path when root runs the tests."""
    with _open_dir() as directory:
        yield directory


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The session's cluster. Tests must leave it running."""
    with _cluster() as cluster:
        yield cluster


@pytest.fixture
def system(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[System]:
    """A fresh database of the session's cluster. Its lake is in files, or ``s3``: see on_stores."""
    kind = getattr(request, "param", "file")
    bucket = request.getfixturevalue("bucket") if kind == "s3" else None
    with System(cluster, f"oml_{next(_numbers)}", tmp_path / "lake", bucket) as system:
        yield system


@pytest.fixture
def private_system(tmp_path: Path) -> Iterator[System]:
    """A system with a cluster of its own, for tests that stop or kill the server."""
    with _cluster() as cluster, System(cluster, "oml", tmp_path / "lake") as system:
        yield system


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """The session's S3 server; what it gives are a client's storage options."""
    with _open_dir() as directory, serving(directory) as options:
        open_store("s3://oml-tests/made", options).create("here", b"")  # and with it the bucket
        yield options


@pytest.fixture
def bucket(s3: dict[str, str]) -> Bucket:
    """A fresh place in a bucket of the session's S3 server."""
    return Bucket(f"s3://oml-tests/place-{next(_numbers)}", s3)


@pytest.fixture(scope="session")
def quorum_template() -> Iterator[Path]:
    """A stopped primary with two standbys, to be copied."""
    with _open_dir() as directory, template(directory) as made:
        yield made


@pytest.fixture(scope="session")
def _lasting_trio(quorum_template: Path) -> Iterator[Quorum]:
    with _open_dir() as directory, quorum(quorum_template, directory) as running:
        yield running


@pytest.fixture
def shared_trio(_lasting_trio: Quorum) -> Iterator[Quorum]:
    """The session's primary and two standbys, with a fresh database. The primary must live on."""
    _lasting_trio.fresh_database()
    yield _lasting_trio
    _lasting_trio.restore()


@pytest.fixture
def trio(quorum_template: Path) -> Iterator[Quorum]:
    """A primary and two standbys of the test's own, one of which confirms each commit."""
    with _open_dir() as directory, quorum(quorum_template, directory) as running:
        running.fresh_database()
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Which client."""
    found: Kind = request.param
    return found


@pytest.fixture
def stage(system: System, kind: Kind) -> Iterator[Stage]:
    """A tenant, for clients of one kind."""
    made = Stage(system, kind)
    yield made
    made.close()


@pytest.fixture
def plain(system: System) -> Iterator[Stage]:
    """A tenant, for clients that are not asynchronous."""
    made = Stage(system, "sync")
    yield made
    made.close()
