"""A place has one owner: who came first, or who took it as a copy of the same deployment."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from oml import owner
from oml.owner import Identity, OwnedError
from oml.store import Store, StoreError, open_store

OURS = Identity("8f14e45f-0000-4000-8000-000000000001", "7713961274712056822", 16384, 2)
COPY = replace(OURS, database_oid=16385)
MOVED = replace(OURS, system_identifier="7713961274712056823")
FOREIGN = replace(OURS, deployment_id="8f14e45f-0000-4000-8000-000000000002")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path.as_uri())


def test_who_comes_first_owns_it_and_may_come_again(store: Store) -> None:
    assert owner.read(store) is None
    owner.claim(store, OURS)
    owner.claim(store, OURS)
    owner.require(store, OURS)
    assert owner.read(store) == OURS


@pytest.mark.parametrize("other", [COPY, MOVED, FOREIGN])
def test_another_is_refused_and_changes_nothing(store: Store, other: Identity) -> None:
    owner.claim(store, OURS)
    for refused in (owner.claim, owner.require):
        with pytest.raises(OwnedError, match="belongs to"):
            refused(store, other)
    assert owner.read(store) == OURS


@pytest.mark.parametrize("copy", [COPY, MOVED])
def test_a_copy_takes_it_and_the_original_is_refused_from_then_on(
    store: Store, copy: Identity
) -> None:
    owner.claim(store, OURS)
    owner.claim(store, copy, take=True)
    owner.require(store, copy)
    with pytest.raises(OwnedError, match=r"was adopted|belongs to") as refused:
        owner.require(store, OURS)
    assert "adopted" in str(refused.value.hint)


def test_a_later_timeline_takes_over_and_the_superseded_server_is_refused(store: Store) -> None:
    owner.claim(store, OURS)
    promoted = replace(OURS, timeline=3)
    with pytest.raises(OwnedError, match=r"timeline 2, and this is .* timeline 3"):
        owner.require(store, promoted)
    owner.claim(store, promoted)
    owner.require(store, promoted)
    for refused in (owner.claim, owner.require):
        with pytest.raises(OwnedError, match=r"timeline 3, and this is .* timeline 2") as error:
            refused(store, OURS)
        assert "promoted" in str(error.value.hint)
    with pytest.raises(OwnedError):
        owner.claim(store, replace(COPY, timeline=9))


def test_another_deployment_never_takes_it(store: Store) -> None:
    owner.claim(store, OURS)
    with pytest.raises(OwnedError, match=f"belongs to deployment {OURS.deployment_id}"):
        owner.claim(store, FOREIGN, take=True)


def test_a_mark_that_was_removed_under_us_is_no_leave_to_go_on(store: Store) -> None:
    with pytest.raises(OwnedError, match="is gone"):
        owner.require(store, OURS)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"deployment_id": "x"}'])
def test_what_oml_did_not_write_is_refused(store: Store, content: bytes) -> None:
    store.create(owner.PATH, content)
    for refused in (owner.claim, owner.require):
        with pytest.raises(StoreError, match="is not what OML wrote") as error:
            refused(store, OURS)
        assert not error.value.retryable


def test_of_several_that_claim_at_once_one_gets_it(store: Store) -> None:
    several = [replace(OURS, database_oid=number) for number in range(8)]

    def claim(identity: Identity) -> bool:
        try:
            owner.claim(store, identity)
        except OwnedError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = [i for i, got in zip(several, threads.map(claim, several), strict=True) if got]
    assert [owner.read(store)] == won
