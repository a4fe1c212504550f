"""Stores that lie in one another, as far as URLs can tell."""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from oml.errors import UsageError
from oml.lake.bodies import Stores
from oml.lake.places import require_apart
from oml.settings import Settings

NAMES = ("lake_url", "bodies_url", "quarantine_url", "tlog_url")
HERE, THERE = ({"AWS_ENDPOINT_URL": f"http://{host}:1"} for host in ("here", "there"))


def check(
    one: str, other: str, names: tuple[str, str] = ("lake_url", "bodies_url"), **more: Any
) -> None:
    """Check two stores, the first by the database's settings and the second by our own."""
    urls = dict.fromkeys(NAMES) | {names[0]: one, names[1]: "file:///overruled"}
    require_apart(
        Stores(**urls, frontier=0, movable=0, gate="open"), Settings(**{names[1]: other, **more})
    )


@pytest.mark.parametrize("names", list(permutations(NAMES, 2)))
def test_each_two_stores_are_compared(names: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=f"{names[1]} file:///srv/a/b lies inside {names[0]}"):
        check("file:///srv/a", "file:///srv/a/b", names)
    with pytest.raises(UsageError, match=f"{names[0]} file:///srv/a/b lies inside {names[1]}"):
        check("file:///srv/a/b", "file:///srv/a", names)
    check("file:///srv/a", "file:///srv/b", names)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///srv/a", "file:///srv/a/"),
        ("file:///srv/a", "file:///srv//a"),
        ("file:///srv/a", "file:///srv/b/../a/c"),
        ("file:///srv/a b", "file:///srv/a%20b"),
        ("s3://bucket", "s3://bucket/bodies"),
        ("s3://bucket/a", "s3://bucket/a/"),
        ("s3://bucket/a", "s3://bucket//a/b"),
        ("s3://bucket/a", "s3://bucket/x/../a"),
        ("s3://bucket/a", "s3://bucket/x/%2e%2e/%61"),
    ],
)
def test_stores_in_one_another_are_refused(one: str, other: str) -> None:
    with pytest.raises(UsageError, match="lies inside"):
        check(one, other)
    with pytest.raises(UsageError, match="lies inside"):
        check(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///srv/a", "file:///srv/ab"),
        ("s3://bucket/a", "s3://bucket/ab"),
        ("s3://bucket/a", "s3://other/a"),
        ("s3://srv/a", "file:///srv/a"),
    ],
)
def test_stores_beside_each_other_are_not(one: str, other: str) -> None:
    check(one, other)
    check(other, one)


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with pytest.raises(UsageError, match="lies inside"):
        check((tmp_path / "lake").as_uri(), (tmp_path / "link" / "not-yet").as_uri())


def test_a_bucket_of_another_server_is_another_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    url = "s3://bucket/a"
    check(url, url, lake_storage_options=HERE, bodies_storage_options=THERE)
    check(url, url, lake_storage_options=HERE)
    with pytest.raises(UsageError, match="lies inside"):
        check(
            url,
            url,
            lake_storage_options=HERE,
            bodies_storage_options={"endpoint": "HTTP://here:1/"},
        )
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here:1")
    with pytest.raises(UsageError, match="lies inside"):
        check(url, url, lake_storage_options=HERE)
    # Nothing says on which server the quarantine's bucket is.
    with pytest.raises(UsageError, match="lies inside"):
        check(url, url, ("lake_url", "quarantine_url"), lake_storage_options=THERE)


@pytest.mark.parametrize("url", ["s3://bucket/a?b", "file:///srv/a#b", "/srv/a"])
def test_a_url_that_may_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is no place for a store"):
        check("file:///srv/lake", url)
