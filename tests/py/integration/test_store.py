"""The store of tlog and owner marks: a directory, and a bucket of a real S3 server."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

import racing
from lakes import NOBODY
from oml.errors import UsageError
from oml.store import MAX_OBJECT_BYTES, BucketStore, Store, StoreError, open_store
from seaweed import Bucket

KILLS = 12


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    """A fresh place for a store, of each kind."""
    if request.param == "directory":
        return Bucket((tmp_path / "store").as_uri(), {})
    bucket: Bucket = request.getfixturevalue("bucket")
    return bucket


@pytest.fixture
def store(place: Bucket) -> Store:
    """A fresh store of each kind."""
    return open_store(place.url, place.options, make=True)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a store."""
    path = tmp_path / "store"
    open_store(path.as_uri(), make=True)
    return path


def test_an_object_is_created_once(store: Store) -> None:
    assert store.get("a/b/c") is None
    assert store.create("a/b/c", b"first") is True
    assert store.create("a/b/c", b"second") is False
    assert store.create("a/b/c", b"first") is False
    assert store.get("a/b/c") == b"first"


def test_metadata_come_with_their_object(store: Store) -> None:
    assert store.get_with_metadata("a/b") is None
    assert store.create("a/b", b"first", {"oml-one": "1", "oml-two": "2"}) is True
    assert store.create("a/b", b"second", {"oml-one": "3"}) is False
    assert store.get_with_metadata("a/b") == (b"first", {"oml-one": "1", "oml-two": "2"})
    store.create("plain", b"x")
    assert store.get_with_metadata("plain") == (b"x", {})


def test_a_put_that_was_broken_off_is_completed(directory: Path) -> None:
    store = open_store(directory.as_uri())
    for name, leftover in (("a", "a.meta.json"), ("b", "b")):
        store.create(name, b"data", {"oml-one": "1"})
        left = (directory / leftover).read_bytes()
        store.delete(name)
        store.delete(f"{name}.meta.json")
        (directory / leftover).write_bytes(left)
        store.create(name, b"data", {"oml-one": "1"})
        assert store.get_with_metadata(name) == (b"data", {"oml-one": "1"})


def test_an_object_is_replaced_only_over_what_was_expected(store: Store) -> None:
    assert store.replace("a", b"1", b"0") is False
    assert store.get("a") is None
    assert store.replace("a", b"1", None) is True
    assert store.replace("a", b"2", None) is False
    assert store.replace("a", b"2", b"0") is False
    assert store.get("a") == b"1"
    assert store.replace("a", b"2", b"1") is True
    assert store.replace("a", b"3", b"1") is False
    assert store.get("a") == b"2"


def test_objects_are_listed_under_directories(store: Store) -> None:
    paths = {"x/1", "x/2.p/3", "xy/1", "top"}
    for path in paths:
        store.create(path, b"")
    assert set(store.list()) == paths
    assert set(store.list("x")) == {"x/1", "x/2.p/3"}
    assert list(store.list("nothing")) == []
    assert store.children() == ["top", "x", "xy"]
    assert store.children("x") == ["1", "2.p"]
    assert store.children("nothing") == []


def test_an_object_is_deleted_whether_it_is_there_or_not(store: Store) -> None:
    store.create("a/b", b"1")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("no/such")
    assert store.get("a/b") is None
    assert store.create("a/b", b"2") is True


def test_many_children_are_all_listed(store: Store) -> None:
    names = {f"{n:04}" for n in range(120)}
    for name in names:
        store.create(f"d/{name}/leaf", b"1")
    assert set(store.children("d")) == names


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/", "a//b", "..", "a/../b", ".", ".tmp/x", ".lock", "a\0b", "a\\b", "é", "a b"],
)
def test_a_path_that_leads_elsewhere_is_no_path(store: Store, path: str) -> None:
    for attempt in (
        lambda: store.get(path),
        lambda: store.create(path, b"x"),
        lambda: store.replace(path, b"x", b"y"),
        lambda: store.delete(path),
    ):
        with pytest.raises(StoreError, match="is no path of an object") as caught:
            attempt()
        assert not caught.value.retryable


def test_an_object_too_large_to_be_ours_is_not_read(store: Store) -> None:
    store.create("large", bytes(MAX_OBJECT_BYTES + 1))
    with pytest.raises(StoreError, match="none of ours"):
        store.get("large")


def test_racing_processes_have_one_winner_each(place: Bucket, store: Store) -> None:
    rounds = 5
    for at, (created, replaced) in enumerate(racing.race(place.url, place.options, rounds, 4)):
        assert len(created) == 1, f"round {at}: {created} created the same object"
        assert len(replaced) == 1, f"round {at}: {replaced} replaced the same content"
        assert store.get(f"race/{at}") == b"replaced by %d" % replaced[0]


# -- a directory -----------------------------------------------------------------------------------


def test_a_directory_that_is_not_there_cannot_be_reached(tmp_path: Path) -> None:
    store = open_store((tmp_path / "away").as_uri())
    for attempt in (
        lambda: store.get("a"),
        lambda: store.create("a", b""),
        lambda: store.children(),
    ):
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            attempt()
        assert caught.value.retryable
    assert not (tmp_path / "away").exists()
    open_store((tmp_path / "away/down/here").as_uri(), make=True).create("a", b"1")
    assert (tmp_path / "away/down/here/a").read_bytes() == b"1"


def test_files_can_be_served_and_written_by_the_owner_alone(directory: Path) -> None:
    umask = os.umask(0)
    try:
        store = open_store(directory.as_uri())
        store.create("a/b", b"1")
        store.replace("a/b", b"2", b"1")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((directory / "a/b").stat().st_mode) == 0o644
    assert stat.S_IMODE((directory / "a").stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "é", "50%"])
def test_any_name_of_a_directory_will_do(tmp_path: Path, name: str) -> None:
    open_store((tmp_path / name).as_uri(), make=True).create("x", b"1")
    assert (tmp_path / name / "x").read_bytes() == b"1"


def test_symbolic_links_are_not_followed(directory: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (directory / "link").symlink_to(outside)
    (directory / "file").symlink_to(outside / "secret")
    (directory / "dangling").symlink_to(outside / "new")
    store = open_store(directory.as_uri())
    for attempt in (
        lambda: store.get("link/secret"),
        lambda: store.create("link/new", b"x"),
        lambda: store.replace("link/secret", b"x", b"secret"),
        lambda: store.delete("link/secret"),
        lambda: store.get("file"),
        lambda: store.replace("file", b"x", b"secret"),
    ):
        with pytest.raises(StoreError, match="symbolic link") as caught:
            attempt()
        assert not caught.value.retryable
    assert store.create("file", b"x") is False
    assert store.create("dangling", b"x") is False
    assert list(store.list()) == []
    assert {p.name: p.read_bytes() for p in outside.iterdir()} == {"secret": b"secret"}


def test_the_root_itself_may_be_a_link(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(directory)
    open_store((tmp_path / "alias").as_uri()).create("a", b"1")
    assert (directory / "a").read_bytes() == b"1"


def test_a_name_appears_only_once_its_content_has_reached_the_disk(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is returned only once the directory, and each one made above it, has."""
    done: list[tuple[str, object]] = []
    fsync, link, rename = os.fsync, os.link, os.rename

    def synced(descriptor: int) -> None:
        done.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def linked(source: str, name: str, **places: Any) -> None:
        done.append(("name", name))
        link(source, name, **places)

    def renamed(source: str, name: str, **places: Any) -> None:
        done.append(("name", name))
        rename(source, name, **places)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(os, "rename", renamed)
    store = open_store(directory.as_uri())
    root = str(directory)

    def written(above: list[str]) -> None:
        *made, content, named, last = done
        assert made == [("sync", path) for path in above]
        assert content[0] == "sync" and str(content[1]).startswith(f"{root}/.tmp/")
        assert (named, last) == (("name", "c"), ("sync", f"{root}/a/b"))
        done.clear()

    store.create("a/b/c", b"1")
    written(above=[root, f"{root}/a"])
    store.replace("a/b/c", b"2", b"1")
    written(above=[])
    store.create("a/b/c", b"3")
    assert done == [("sync", f"{root}/a/b")], "what a rival made is durable too"


@pytest.fixture
def churning(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes to the directory without end."""
    process = subprocess.Popen(
        [sys.executable, racing.__file__, directory.as_uri()], stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_process_that_is_killed_leaves_whole_objects_and_nothing_else(
    directory: Path, churning: subprocess.Popen[str], kill: int
) -> None:
    assert churning.stdout is not None
    done = -1
    for _ in range(5 + kill):
        done = int(churning.stdout.readline())
    churning.send_signal(signal.SIGKILL)
    rest, _ = churning.communicate()
    done = max([done, *map(int, rest.split())])
    store = open_store(directory.as_uri())
    for path in store.list():
        content = store.get(path)
        assert content is not None
        number = int(content[:8])
        assert content == racing.whole(number)
        assert path in (f"kept/{number % 7}/{number}", "changing")
        assert number <= done + 1
    for number in range(done + 1):
        assert store.get(f"kept/{number % 7}/{number}") == racing.whole(number)
    changing = store.get("changing")
    assert changing in (racing.whole(done), racing.whole(done + 1))
    assert store.replace("changing", b"on", changing), "its lock died with it"
    assert list((directory / ".tmp").iterdir()) == [], "its leftovers are swept"


def test_the_temporary_file_of_a_living_process_is_not_swept(directory: Path) -> None:
    slow = open_store(directory.as_uri())
    slow.create("a", b"1")
    with slow._written(b"in hand") as (_, name):  # type: ignore[attr-defined]
        open_store(directory.as_uri()).create("b", b"1")
        assert (directory / ".tmp" / name).read_bytes() == b"in hand"
    assert list((directory / ".tmp").iterdir()) == []


# -- a bucket --------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_may_answer_later() -> None:
    store = open_store("s3://bucket/place", NOBODY)
    for attempt in (
        lambda: store.get("a"),
        lambda: store.create("a", b"1"),
        lambda: store.replace("a", b"1", b"0"),
        lambda: list(store.list()),
        lambda: store.children(),
    ):
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            attempt()
        assert caught.value.retryable


def test_a_wrong_key_is_refused_and_not_told(bucket: Bucket) -> None:
    wrong = bucket.options | {"AWS_SECRET_ACCESS_KEY": "not the secret"}
    with pytest.raises(StoreError, match="is refused") as caught:
        open_store(bucket.url, wrong).get("a")
    assert "not the secret" not in f"{caught.value} {caught.value.hint}"


def test_objects_of_a_bucket_are_served_as_what_they_are(bucket: Bucket) -> None:
    store = BucketStore(bucket.url, bucket.options)
    want = {
        "t/1/checkpoint": "text/plain; charset=utf-8",
        "t/1/tile/0/000.p/3": "application/octet-stream",
        "t/1/tile/entries/x001/234": "application/octet-stream",
        "owner.json": "application/json",
    }
    for path in want:
        assert store.create(path, b"one")
        assert store.replace(path, b"two", b"one")
    served = {path: obstore.get(store._client, path).attributes for path in want}
    assert {path: each["Content-Type"] for path, each in served.items()} == want


@pytest.mark.parametrize(
    "url",
    ["", "/var/lib/tlog", "file://host/x", "http://x/y", "s3://", "file:///a%2541", "s3://a[b"],
)
def test_a_url_that_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is no place for a store"):
        open_store(url)


@pytest.mark.parametrize(
    "options",
    [{"AWS_CONDITIONAL_PUT": "disabled"}, {"aws_s3_allow_unsafe_rename": "true"}],
)
def test_options_that_let_one_write_overwrite_another_are_refused(
    options: dict[str, str],
) -> None:
    with pytest.raises(UsageError, match="could overwrite another's"):
        open_store("s3://bucket/place", options)


@pytest.mark.parametrize("options", [{"colour": "red"}, {"max_retries": "many"}])
def test_an_option_that_is_not_known_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        open_store("s3://bucket/place", options)
