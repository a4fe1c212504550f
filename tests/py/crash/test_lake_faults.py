"""A lake on S3 behind a proxy that loses, delays and refuses: nothing is lost, nothing comes twice.

OML_FAULT_RUNS is how many random runs there are; the seed is printed, OML_FAULT_SEED sets it.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from faultproxy import KINDS, Fault, FaultProxy, Kind
from judge import expect_gold, expect_silver
from lakes import (
    PATIENCE_S,
    append,
    batches,
    drain,
    expect_contiguous,
    expect_exact,
    frontier,
    lake_writer,
    prepare,
)
from oml.dev.cluster import Cluster
from oml.lake.schema import BRONZE_EVENTS, GOLD_TENANT_DAILY, TABLES
from oml.lake.table import LakeError, LakeUnavailable
from seaweed import Bucket, Seaweed
from submissions import Office
from systems import System

RUNS = int(os.environ.get("OML_FAULT_RUNS", "3"))
SEED = int(os.environ.get("OML_FAULT_SEED", "0")) or random.randrange(1, 10**6)
HASTY = {"timeout": "3s", "connect_timeout": "3s", "max_retries": "1", "retry_timeout": "9s"}
COMMIT = r"/_delta_log/\d{20}\.json"
REQUESTS = {
    "commit": ("PUT", COMMIT),
    "file": ("PUT", r"\.parquet"),
    "log": ("GET", r"_delta_log"),
    "list": ("GET", r"list-type"),
}
CASES = [(kind, "commit") for kind in KINDS] + [
    ("unacknowledged", "file"), ("cut-short", "file"), ("stalled", "log"), ("slow-down", "log"),
    ("stalled-and-lost", "list"), ("slow-down", "list"),
]  # fmt: skip


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[FaultProxy]:
    """A proxy before the session's S3 server."""
    with FaultProxy(bucket.options["AWS_ENDPOINT_URL"]).running() as proxy:
        yield proxy


@pytest.fixture
def lake(cluster: Cluster, tmp_path: Path, bucket: Bucket, proxy: FaultProxy) -> Iterator[System]:
    """A system whose lake is in a bucket behind the proxy."""
    options = bucket.options | {"AWS_ENDPOINT_URL": proxy.endpoint} | HASTY
    name = f"oml_{tmp_path.name.replace('-', '_').lower()}"[:60]
    with System(cluster, name, tmp_path / "lake", Bucket(bucket.url, options)) as system:
        yield system


def drain_until_done(system: System, proxy: FaultProxy) -> None:
    """Drain as omld does, again and again, however it fails; then once with all mended."""
    for _ in range(4):
        try:
            drain(system, batch_rows=4)
            break
        except LakeError as error:
            assert error.retryable, error
    proxy.heal()
    drain_until_up(system, batch_rows=4)


def expect_all(system: System) -> None:
    expect_exact(system)
    expect_gold(system)
    expect_contiguous(batches(system))


@pytest.mark.parametrize(("kind", "request_"), CASES)
def test_a_fault_at_any_request_loses_and_doubles_nothing(
    lake: System, proxy: FaultProxy, kind: Kind, request_: str
) -> None:
    append(prepare(lake), 2)
    drain_until_up(lake)
    append(lake.connect("app"), 9)
    method, path = REQUESTS[request_]
    proxy.faults = [Fault(kind, method, path, times=2, after=1)]
    drain_until_done(lake, proxy)
    assert proxy.met[kind] > 0, "no such request was made"
    expect_all(lake)


def test_a_commit_that_landed_unacknowledged_is_found_and_not_repeated(
    lake: System, proxy: FaultProxy
) -> None:
    append(prepare(lake), 3)
    drain_until_up(lake)
    before = len(batches(lake)), len(batches(lake, GOLD_TENANT_DAILY))
    append(lake.connect("app"), 3)
    proxy.faults = [Fault("unacknowledged", "PUT", COMMIT, times=99)]
    drain_until_up(lake)
    assert proxy.met["unacknowledged"] >= 2
    proxy.heal()
    assert len(batches(lake)) == before[0] + 1
    assert len(batches(lake, GOLD_TENANT_DAILY)) == before[1] + 1
    drain_until_up(lake)
    expect_all(lake)


@pytest.mark.timeout(180 + 30 * RUNS)
def test_random_faults_lose_and_double_nothing(lake: System, proxy: FaultProxy) -> None:
    choose = random.Random(SEED)
    print(f"OML_FAULT_SEED={SEED}")
    globex = prepare(lake, "globex")
    office = Office(lake)
    for _ in range(RUNS):
        made = office.submit(choose.randbytes(8).hex().encode(), b"note")
        office.promote(made)
        append(globex, choose.randrange(1, 9))
        if choose.random() < 0.5:
            office.chief.execute("select oml_demote(%s, 'x')", (made,))
        proxy.chance = choose, choose.choice([0.02, 0.05, 0.15])
        drain_until_done(lake, proxy)
        expect_all(lake)
        expect_silver(lake)
    assert sum(proxy.met.values()) > 0


def test_a_store_that_stalls_is_an_error_soon_and_is_written_to_later(
    lake: System, proxy: FaultProxy
) -> None:
    append(prepare(lake), 3)
    drain_until_up(lake)
    append(lake.connect("app"), 3)
    proxy.faults = [Fault("stalled-and-lost", ".*", ".*", times=10**6)]
    with pytest.raises(LakeError) as caught:
        drain(lake)
    assert caught.value.retryable and caught.value.hint
    proxy.heal()
    drain_until_up(lake)
    expect_all(lake)


def test_a_store_that_fails_as_a_table_is_asked_where_it_stands_is_away_and_no_fault_of_ours(
    lake: System, proxy: FaultProxy
) -> None:
    append(prepare(lake), 3)
    drain_until_up(lake)
    with lake_writer(lake) as writer:
        opened = writer.open(BRONZE_EVENTS)
        proxy.faults = [Fault("slow-down", ".*", ".*", times=10**6)]
        for asked in ("cursor", "bounds", "is_recut"):
            with pytest.raises(LakeUnavailable):
                getattr(opened, asked)
        assert proxy.met["slow-down"] > 0
        proxy.heal()
        assert opened.cursor == frontier(lake)


@pytest.mark.parametrize("kind", ["cut-short", "unacknowledged"])
def test_the_store_is_killed_in_the_middle_of_a_commit_or_just_after(
    cluster: Cluster, tmp_path: Path, open_dir: Path, kind: Kind
) -> None:
    server = Seaweed(open_dir)
    server.start()
    try:
        with FaultProxy(server.options["AWS_ENDPOINT_URL"]).running() as proxy:
            options = server.options | {"AWS_ENDPOINT_URL": proxy.endpoint} | HASTY
            bucket = Bucket("s3://oml-tests/killed", options)
            name = f"oml_store_killed_{kind.replace('-', '_')}"
            with System(cluster, name, tmp_path / "lake", bucket) as system:
                append(prepare(system), 3)
                drain_until_up(system)
                append(system.connect("app"), 6)
                proxy.faults = [Fault(kind, "PUT", COMMIT)]
                proxy.meanwhile = server.kill
                with pytest.raises(LakeError) as caught:
                    drain(system, lake_attempts=2)
                assert caught.value.retryable and proxy.met[kind] == 1
                proxy.heal()
                proxy.meanwhile = lambda: None
                server.start()
                drain_until_up(system)
                expect_all(system)
    finally:
        server.kill()


def drain_until_up(system: System, **others: Any) -> None:
    """Drain once the store answers in time again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            drain(system, **others)
            return
        except LakeError as error:
            assert error.retryable and time.monotonic() < deadline, error


@pytest.mark.parametrize("gone", [*(table.location for table in TABLES), ""])
def test_a_bucket_that_was_emptied_is_not_filled_anew(
    lake: System, bucket: Bucket, proxy: FaultProxy, gone: str
) -> None:
    append(prepare(lake), 3)
    drain_until_up(lake)
    store = opened(bucket)

    def paths() -> list[str]:
        found = [meta["path"] for page in obstore.list(store) for meta in page]
        return [path for path in found if gone in path and any(t.location in path for t in TABLES)]

    assert paths()
    obstore.delete(store, paths())
    append(lake.connect("app"), 3)
    with pytest.raises(LakeError, match=r"oml\.lake_table says \S+ exists"):
        drain(lake)
    assert paths() == []


def opened(bucket: Bucket) -> S3Store:
    """Open a bucket past our own code and past the proxy."""
    options = bucket.options
    return S3Store.from_url(
        bucket.url,
        endpoint=options["AWS_ENDPOINT_URL"],
        access_key_id=options["AWS_ACCESS_KEY_ID"],
        secret_access_key=options["AWS_SECRET_ACCESS_KEY"],
        region=options["AWS_REGION"],
        client_options={"allow_http": True},
    )
