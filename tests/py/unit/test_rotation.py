"""Keys by chain and seq: what a rotation says, and what holders of other keys can make of it."""

import uuid
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from forge import Row, Scribe, resign, row_of, sign
from oml.core import chain, keys
from oml.core.chain import Fault

ROOT, SECOND, THIRD, OTHER = (keys.from_seed(bytes(31) + bytes((n,))) for n in (1, 2, 3, 4))
ACME, GLOBEX, LATER = (uuid.UUID(int=n).bytes for n in (0xACE, 0xBEEF, 0xF00))
PROVIDER_ID = str(uuid.UUID(bytes=bytes(range(16))))
ACME_ID, GLOBEX_ID = str(uuid.UUID(bytes=ACME)), str(uuid.UUID(bytes=GLOBEX))


class World:
    """A deployment in memory, with the chains of acme, of globex and of later."""

    def __init__(self) -> None:
        self.scribe = Scribe(ROOT)
        self.scribe.issue(ROOT)
        self.acme = self.scribe.create("acme", ACME)
        self.globex = self.scribe.create("globex", GLOBEX)
        self.later: list[Row] = []
        self.write()

    @property
    def provider(self) -> list[Row]:
        """The provider chain's rows."""
        return self.scribe.provider

    def write(self, events: int = 2) -> None:
        """Write some events on each tenant's chain, with the key in force."""
        chains = ((self.acme, ACME), (self.globex, GLOBEX), (self.later, LATER))
        for rows, tenant_id in chains:
            for number in range(events if rows else 0):
                self.scribe.append(rows, tenant_id, "x.y", {"n": number})

    def rotate(self, key: keys.SigningKey, tenants_a_page: int = 99) -> None:
        """Issue a key and rotate to it."""
        self.scribe.issue(key)
        self.scribe.rotate(key, tenants_a_page)

    def judge(self) -> dict[str, chain.Verdict]:
        """Verify the provider chain and, if it is sound, those of its tenants."""
        provider = chain.Provider(self.scribe.deployment_id, ROOT.public_key)
        chain.verify_rows(provider, self.provider)
        verdicts = {"provider": provider.verdict()}
        if verdicts["provider"].ok:
            for created in provider.tenants:
                subject = chain.Tenant(created, provider.deployment_id, provider.key_ring)
                chain.verify_rows(subject, self.scribe.chains[created.tenant_id])
                assert subject.key_ring is not None
                subject.expect_head(subject.key_ring.reached(created.tenant_id), "a rotation")
                verdicts[created.name] = subject.verdict()
        return verdicts

    def findings(self) -> list[chain.Finding]:
        """Return the faults of all chains."""
        return [v.finding for v in self.judge().values() if v.finding is not None]

    def finds(self, tenant: str, seq: int, fault: Fault, *words: str) -> None:
        """Insist on this one fault, whose reason has these words."""
        (finding,) = self.findings()
        assert (finding.tenant, finding.seq, finding.fault) == (tenant, seq, fault), finding
        for word in words:
            assert word in finding.reason


@pytest.fixture
def world() -> World:
    """A deployment before its first rotation: provider at seq 3, tenants at seq 3."""
    return World()


@pytest.fixture
def rotated(world: World) -> World:
    """After a rotation at provider seq 5, with tenants at seq 5 of which 4 and 5 are new."""
    world.rotate(SECOND)
    world.write()
    return world


# --- sound rotations -------------------------------------------------------------------------


@pytest.mark.parametrize("tenants_a_page", [1, 2, 99])
def test_events_before_and_after_rotations_are_proved(world: World, tenants_a_page: int) -> None:
    world.rotate(SECOND, tenants_a_page)
    world.write()
    world.later = world.scribe.create("later", LATER)
    world.write()
    world.rotate(THIRD, tenants_a_page)
    world.write()
    assert world.findings() == []
    counts = {name: v.events for name, v in world.judge().items() if name != "provider"}
    assert counts == {"acme": 9, "globex": 9, "later": 5}


def test_a_rotation_with_no_event_since_the_last_one_is_proved(world: World) -> None:
    world.rotate(SECOND)
    world.rotate(THIRD)
    world.write()
    assert world.findings() == []


def test_a_key_may_be_issued_long_before_it_comes_into_force(world: World) -> None:
    world.scribe.issue(SECOND)
    world.scribe.issue(THIRD)
    world.write()
    world.scribe.rotate(THIRD)
    world.write()
    world.scribe.rotate(SECOND)
    world.write()
    assert world.findings() == []


def test_the_ring_tells_the_key_of_every_seq(rotated: World) -> None:
    provider = chain.Provider(rotated.scribe.deployment_id)
    chain.verify_rows(provider, rotated.provider)
    ring = provider.key_ring
    assert ring is not None
    assert [ring.eras[ring.era_at(ACME_ID, seq)].kid for seq in (1, 3, 4, 99)] == [
        *(ROOT.kid, ROOT.kid),
        *(SECOND.kid, SECOND.kid),
    ]
    assert [ring.eras[ring.era_at(PROVIDER_ID, s)].kid for s in (5, 6)] == [ROOT.kid, SECOND.kid]
    assert (ring.last_seq(ACME_ID, 0), ring.last_seq(ACME_ID, 1)) == (3, None)
    assert ring.era_at(str(uuid.UUID(int=7)), 1) == 1
    assert ring.root == ROOT.public_key


# --- keys that are not in force --------------------------------------------------------------


def test_an_event_of_the_old_key_after_its_retirement_is_named(rotated: World) -> None:
    rotated.scribe.key = ROOT
    rotated.scribe.append(rotated.acme, ACME, "x.y", {})
    rotated.finds("acme", 6, Fault.RETIRED_KEY, ROOT.kid.hex(), "last seq is 3")


def test_the_first_event_after_a_rotation_is_not_the_old_keys_either(rotated: World) -> None:
    del rotated.acme[4:]
    rotated.acme[3] = resign(rotated.acme[3], ROOT)
    rotated.finds("acme", 4, Fault.RETIRED_KEY, "last seq is 3")


def test_the_last_event_before_a_rotation_is_not_the_new_keys(rotated: World) -> None:
    rotated.acme[2] = resign(rotated.acme[2], SECOND)
    rotated.finds("acme", 3, Fault.UNKNOWN_KEY, SECOND.kid.hex(), "before seq 4")


def test_a_provider_event_of_the_old_key_after_its_retirement_is_named(rotated: World) -> None:
    rotated.scribe.key = ROOT
    rotated.scribe.provide("membership.granted", {})
    rotated.finds("provider", 7, Fault.RETIRED_KEY, ROOT.kid.hex(), "last seq is 5")


def test_a_tenant_created_after_a_rotation_has_no_event_of_the_old_key(rotated: World) -> None:
    rotated.later = rotated.scribe.create("later", LATER)
    rotated.later[0] = resign(rotated.later[0], ROOT)
    rotated.finds("later", 1, Fault.RETIRED_KEY, "last seq is 0")


def test_a_key_retired_twice_over_is_named_with_its_own_last_seq(rotated: World) -> None:
    rotated.rotate(THIRD)
    rotated.write(1)
    rotated.acme[5] = resign(rotated.acme[5], ROOT)
    rotated.finds("acme", 6, Fault.RETIRED_KEY, ROOT.kid.hex(), "last seq is 3")


def test_a_key_on_standby_signs_nothing(world: World) -> None:
    world.scribe.issue(SECOND)
    world.scribe.key = SECOND
    world.scribe.append(world.acme, ACME, "x.y", {})
    world.finds("acme", 4, Fault.UNKNOWN_KEY, SECOND.kid.hex(), "never came into force")


def test_a_key_on_standby_signs_nothing_on_the_provider_chain(world: World) -> None:
    world.scribe.issue(SECOND)
    world.scribe.key = SECOND
    world.scribe.provide("membership.granted", {})
    world.finds("provider", 5, Fault.UNKNOWN_KEY, SECOND.kid.hex())


@pytest.mark.parametrize("purpose", ["writer", "checkpoint", "SIGNING", ""])
def test_a_key_issued_for_something_else_signs_nothing(world: World, purpose: str) -> None:
    payload = {
        "kid": OTHER.kid.hex(),
        "public_key": OTHER.public_key.hex(),
        "purpose": purpose,
    }
    world.scribe.provide("key.issued", payload)
    world.scribe.key = OTHER
    world.scribe.append(world.acme, ACME, "x.y", {})
    world.finds("acme", 4, Fault.UNKNOWN_KEY, OTHER.kid.hex(), "never issued")


def test_a_key_issued_for_no_purpose_signs_nothing_and_succeeds_nobody(world: World) -> None:
    payload = {"kid": OTHER.kid.hex(), "public_key": OTHER.public_key.hex()}
    world.scribe.provide("key.issued", payload)
    world.scribe.rotate(OTHER)
    world.finds("provider", 5, Fault.INVALID_ROTATION, "standby")


def test_a_second_root_is_found(world: World) -> None:
    world.scribe.issue(OTHER, purpose="root")
    world.finds("provider", 4, Fault.UNKNOWN_KEY, "second root")


def test_the_first_event_must_be_of_a_root(world: World) -> None:
    payload = world.provider[0]["payload"].replace('"root"', '"signing"').encode()
    world.provider[0] = resign(world.provider[0], ROOT, payload=payload)
    world.finds("provider", 1, Fault.GENESIS_MISMATCH)


def test_a_writers_key_may_come_and_go(rotated: World) -> None:
    rotated.scribe.issue(OTHER, purpose="writer")
    rotated.scribe.provide("key.retired", {"kid": OTHER.kid.hex(), "purpose": "writer"})
    rotated.scribe.provide("key.retired", {"kid": "no such key", "purpose": "writer"})
    assert rotated.findings() == []


def test_two_keys_of_one_kid_are_found(world: World) -> None:
    ring = chain.KeyRing(ROOT.public_key)
    assert ring.issue(SECOND.public_key)
    assert ring.issue(SECOND.public_key)
    ring.standby[SECOND.kid] = OTHER.public_key  # as if the hash had met another key
    assert not ring.issue(SECOND.public_key)
    ring.eras[0] = ring.eras[0]._replace(public_key=OTHER.public_key)
    assert not ring.issue(ROOT.public_key)


# --- withdrawn keys --------------------------------------------------------------------------


def withdraw(world: World, kid: str) -> None:
    """Write the withdrawal of a key on standby."""
    world.scribe.provide("key.retired", {"kid": kid, "purpose": "signing"})


def test_a_key_withdrawn_from_standby_succeeds_nobody(world: World) -> None:
    world.scribe.issue(SECOND)
    withdraw(world, SECOND.kid.hex())
    assert world.findings() == []
    world.scribe.rotate(SECOND)
    world.finds("provider", 6, Fault.INVALID_ROTATION, "standby")


def test_a_withdrawn_key_that_is_issued_again_still_succeeds_nobody(world: World) -> None:
    world.scribe.issue(SECOND)
    withdraw(world, SECOND.kid.hex())
    world.scribe.issue(SECOND)
    world.scribe.rotate(SECOND)
    world.finds("provider", 7, Fault.INVALID_ROTATION, "standby")


@pytest.mark.parametrize("kid", [ROOT.kid.hex(), SECOND.kid.hex(), OTHER.kid.hex(), "", None, 7])
def test_only_a_key_on_standby_can_be_withdrawn(rotated: World, kid: Any) -> None:
    withdraw(rotated, kid)
    rotated.finds("provider", 7, Fault.INVALID_ROTATION, "standby")


# --- rotations that contradict themselves ----------------------------------------------------

Spoil = Callable[[list[dict[str, Any]]], None]


def spoiled(world: World, spoil: Spoil, tenants_a_page: int = 1) -> None:
    """Write a rotation as a holder of both keys could spoil it: pages at seqs 5 and 6, end at 7."""
    world.scribe.issue(SECOND)
    pages = world.scribe.rotation(SECOND, tenants_a_page)
    spoil(pages)
    for page in pages:
        world.scribe.provide("key.retired", page)
    world.scribe.take_over(SECOND)


def set_in(at: int, **fields: Any) -> Spoil:
    """Return what changes fields of one page."""
    return lambda pages: pages[at].update(fields)


def ends(at: int, tenant_id: str, seq: object, digest: object = None) -> Spoil:
    """Return what lets a chain end at this seq on one page, with its true hash or another."""

    def spoil(pages: list[dict[str, Any]]) -> None:
        true = [end[1] for page in pages for t, end in page["last"].items() if t == tenant_id]
        pages[at]["last"][tenant_id] = [seq, digest or (true or ["cd" * 32])[0]]

    return spoil


def drop(page: int) -> Spoil:
    """Return what leaves out a page."""

    def spoil(pages: list[dict[str, Any]]) -> None:
        del pages[page]

    return spoil


def without(page: int, name: str) -> Spoil:
    """Return what leaves out a field of a page."""

    def spoil(pages: list[dict[str, Any]]) -> None:
        del pages[page][name]

    return spoil


@pytest.mark.parametrize(
    ("seq", "spoil"),
    [
        (5, set_in(0, kid=OTHER.kid.hex())),
        (5, set_in(0, successor=OTHER.kid.hex())),
        (5, set_in(0, successor=ROOT.kid.hex())),
        (5, set_in(0, successor=7)),
        (5, set_in(0, page=2)),
        (5, set_in(0, page=0)),
        (5, set_in(0, page=True)),
        (5, set_in(0, page="1")),
        (5, set_in(0, pages=0)),
        (5, set_in(0, pages=2**63)),
        (5, set_in(0, pages=None)),
        (5, without(0, "last")),
        (5, set_in(0, last=[])),
        (5, ends(0, PROVIDER_ID, 4)),
        (5, ends(0, ACME_ID, True)),
        (5, ends(0, ACME_ID, -1)),
        (5, ends(0, "acme", 3)),
        (5, ends(0, ACME_ID.upper(), 3)),
        (5, ends(0, ACME_ID, "3")),
        (5, ends(0, ACME_ID, 2**63)),
        (5, ends(0, ACME_ID, 3, 7)),
        (5, ends(0, ACME_ID, 3, "AB" * 32)),
        (5, ends(0, ACME_ID, 3, "ab" * 31)),
        (5, lambda pages: pages[0]["last"].update({ACME_ID: 3})),
        (5, lambda pages: pages[0]["last"].update({ACME_ID: [3]})),
        (5, lambda pages: pages.reverse()),
        (5, drop(0)),
        (6, set_in(1, kid=OTHER.kid.hex())),
        (6, set_in(1, successor=THIRD.kid.hex())),
        (6, without(1, "successor")),
        (6, set_in(1, purpose="writer")),
        (6, set_in(1, page=3)),
        (6, set_in(1, pages=4)),
        (6, ends(1, ACME_ID, 3)),
        (6, drop(1)),
    ],
    ids=range(35),
)
def test_a_rotation_that_contradicts_itself_is_found(world: World, seq: int, spoil: Spoil) -> None:
    spoiled(world, spoil)
    world.finds("provider", seq, Fault.INVALID_ROTATION)


def test_something_between_the_pages_is_found(world: World) -> None:
    world.scribe.issue(SECOND)
    pages = world.scribe.rotation(SECOND, 1)
    world.scribe.provide("key.retired", pages[0])
    world.scribe.provide("membership.granted", {})
    world.finds("provider", 6, Fault.INVALID_ROTATION, "key.retired belongs")


def test_something_between_the_pages_and_the_end_is_found(world: World) -> None:
    world.scribe.issue(SECOND)
    (page,) = world.scribe.rotation(SECOND)
    world.scribe.provide("key.retired", page)
    world.scribe.provide("membership.granted", {})
    world.finds("provider", 6, Fault.INVALID_ROTATION, "key.rotated belongs")


def test_a_rotation_that_is_not_ended_is_found(world: World) -> None:
    world.scribe.issue(SECOND)
    (page,) = world.scribe.rotation(SECOND)
    world.scribe.provide("key.retired", page)
    world.finds("provider", 6, Fault.INVALID_ROTATION, "key.rotated")


@pytest.mark.parametrize("tenants_a_page", [1, 99])
def test_a_key_on_standby_alone_cannot_take_over(world: World, tenants_a_page: int) -> None:
    """Whoever may issue keys, and write the tables, has none of the power of the key in force."""
    world.scribe.issue(SECOND)
    pages = world.scribe.rotation(SECOND, tenants_a_page)
    world.scribe.key = SECOND
    for page in pages:
        world.scribe.provide("key.retired", page)
    world.finds("provider", 5, Fault.UNKNOWN_KEY, SECOND.kid.hex())


def test_a_key_on_standby_cannot_take_over_without_any_pages(world: World) -> None:
    world.scribe.issue(SECOND)
    world.scribe.take_over(SECOND)
    world.finds("provider", 5, Fault.UNKNOWN_KEY, SECOND.kid.hex())


def test_the_key_in_force_cannot_end_a_rotation_for_its_successor(world: World) -> None:
    world.scribe.issue(SECOND)
    (page,) = world.scribe.rotation(SECOND)
    world.scribe.provide("key.retired", page)
    rotated = {"kid": SECOND.kid.hex(), "predecessor": ROOT.kid.hex()}
    world.scribe.provide("key.rotated", rotated)
    world.finds("provider", 6, Fault.INVALID_ROTATION, "signed by the successor")


def test_the_key_in_force_cannot_end_a_rotation_that_never_began(world: World) -> None:
    rotated = {"kid": SECOND.kid.hex(), "predecessor": ROOT.kid.hex()}
    world.scribe.provide("key.rotated", rotated)
    world.finds("provider", 4, Fault.INVALID_ROTATION, "no key.retired")


@pytest.mark.parametrize("field", ["kid", "predecessor"])
def test_the_end_of_a_rotation_names_both_keys(world: World, field: str) -> None:
    world.scribe.issue(SECOND)
    (page,) = world.scribe.rotation(SECOND)
    world.scribe.provide("key.retired", page)
    rotated = {"kid": SECOND.kid.hex(), "predecessor": ROOT.kid.hex()} | {field: OTHER.kid.hex()}
    world.scribe.key = SECOND
    world.scribe.provide("key.rotated", rotated)
    world.finds("provider", 6, Fault.INVALID_ROTATION, "name both keys")


def test_another_keys_end_of_a_rotation_is_found(world: World) -> None:
    world.scribe.issue(SECOND)
    world.scribe.issue(THIRD)
    (page,) = world.scribe.rotation(SECOND)
    world.scribe.provide("key.retired", page)
    world.scribe.take_over(THIRD)
    world.finds("provider", 7, Fault.UNKNOWN_KEY, THIRD.kid.hex())


def test_an_end_that_the_successor_did_not_sign_is_found(world: World) -> None:
    world.rotate(SECOND)
    world.provider[5] = resign(world.provider[5], OTHER, SECOND.kid)
    world.finds("provider", 6, Fault.SIGNATURE_INVALID)


def test_pages_of_a_holder_of_the_new_key_are_found(world: World) -> None:
    world.rotate(SECOND)
    world.provider[4] = resign(world.provider[4], SECOND)
    world.finds("provider", 5, Fault.UNKNOWN_KEY, SECOND.kid.hex())


def test_a_successor_that_was_never_issued_is_found(world: World) -> None:
    world.scribe.rotate(SECOND)
    world.finds("provider", 4, Fault.INVALID_ROTATION, "standby")


def test_a_key_that_succeeds_itself_is_found(world: World) -> None:
    world.scribe.rotate(ROOT)
    world.finds("provider", 4, Fault.INVALID_ROTATION, "standby")


def test_a_deployment_without_tenants_rotates_too() -> None:
    scribe = Scribe(ROOT)
    scribe.issue(ROOT)
    scribe.issue(SECOND)
    scribe.rotate(SECOND)
    provider = chain.Provider(scribe.deployment_id, ROOT.public_key)
    chain.verify_rows(provider, scribe.provider)
    assert provider.verdict().ok and provider.events == 4


def test_a_retired_key_does_not_come_back(rotated: World) -> None:
    rotated.scribe.issue(ROOT, purpose="signing")
    rotated.scribe.rotate(ROOT)
    rotated.finds("provider", 8, Fault.INVALID_ROTATION, "standby")


@pytest.mark.parametrize("last", [{}, {ACME_ID: 2}, {ACME_ID: 2, GLOBEX_ID: 5}, {ACME_ID: 0}])
def test_a_seq_below_that_of_an_earlier_rotation_is_found(
    rotated: World, last: dict[str, int]
) -> None:
    rotated.scribe.issue(THIRD)
    (page,) = rotated.scribe.rotation(THIRD)
    known = {t: end for t, end in page["last"].items() if t in (PROVIDER_ID, *last)}
    page["last"] = known | {t: [seq, page["last"][t][1]] for t, seq in last.items()}
    rotated.scribe.provide("key.retired", page)
    rotated.finds("provider", 8, Fault.INVALID_ROTATION, "further")


def test_a_tenant_that_a_rotation_left_out_is_found_on_its_own_chain(world: World) -> None:
    spoiled(world, lambda pages: pages[0]["last"].pop(ACME_ID), tenants_a_page=99)
    world.finds("acme", 1, Fault.RETIRED_KEY, ROOT.kid.hex(), "last seq is 0")


def test_a_chain_shorter_than_a_rotation_says_has_lost_its_tail(world: World) -> None:
    world.rotate(SECOND)
    del world.acme[2]
    world.finds("acme", 3, Fault.TAIL_MISSING, "rotation")


# --- a holder of the old key -----------------------------------------------------------------


def rewrite(rows: list[Row], seq: int, upto: int, key: keys.SigningKey) -> None:
    """Sign a chain's events from ``seq`` to ``upto`` again, with other contents."""
    for at in range(seq - 1, upto):
        prev = rows[at - 1]["hash"]
        rows[at] = resign(rows[at], key, prev_hash=prev, principal="mallory")


def test_what_lies_before_a_retirement_is_held_by_what_follows(rotated: World) -> None:
    rewrite(rotated.acme, 2, 3, ROOT)
    rotated.finds("acme", 3, Fault.BROKEN_LINK, "retired")


def test_the_provider_chain_is_held_by_its_rotation(rotated: World) -> None:
    rewrite(rotated.provider, 4, 4, ROOT)
    rotated.finds("provider", 5, Fault.BROKEN_LINK)


def test_the_old_key_cannot_rotate_once_more(rotated: World) -> None:
    rotated.scribe.issue(OTHER)
    (page,) = rotated.scribe.rotation(OTHER)
    page["kid"] = ROOT.kid.hex()
    fields = rotated.scribe.fields(
        rotated.provider, rotated.scribe.deployment_id, "key.retired", page
    )
    for key, fault in ((ROOT, Fault.RETIRED_KEY), (OTHER, Fault.UNKNOWN_KEY)):
        forged = deepcopy(rotated)
        forged.provider.append(row_of(sign(fields, key)))
        forged.finds("provider", 8, fault)


def test_the_old_key_cannot_issue_another(rotated: World) -> None:
    rotated.scribe.key = ROOT
    rotated.scribe.issue(OTHER)
    rotated.finds("provider", 7, Fault.RETIRED_KEY)


def test_a_holder_of_the_old_key_can_take_another_way_from_before_its_retirement(
    rotated: World,
) -> None:
    """Only a checkpoint shows it: under the root, this history is as good as the true one."""
    del rotated.provider[3:], rotated.acme[3:], rotated.globex[3:]
    rotated.scribe.key = ROOT
    rewrite(rotated.acme, 2, 3, ROOT)
    rotated.rotate(OTHER)
    rotated.write()
    assert rotated.findings() == []


def test_a_tail_before_a_retirement_with_nothing_after_it_is_held_by_the_rotation(
    world: World,
) -> None:
    world.rotate(SECOND)
    rewrite(world.acme, 3, 3, ROOT)
    world.finds("acme", 3, Fault.BROKEN_LINK, "retired")


def test_every_rotation_holds_what_lay_before_it(rotated: World) -> None:
    rotated.rotate(THIRD)
    rotated.write()
    tampered = deepcopy(rotated)
    rewrite(tampered.acme, 3, 3, ROOT)
    tampered.finds("acme", 3, Fault.BROKEN_LINK, "retired")
    rewrite(rotated.acme, 5, 5, SECOND)
    rotated.finds("acme", 5, Fault.BROKEN_LINK, "retired")


def test_a_rotation_that_knows_another_event_than_the_one_before_is_found(world: World) -> None:
    world.rotate(SECOND)
    world.scribe.issue(THIRD)
    (page,) = world.scribe.rotation(THIRD)
    page["last"][ACME_ID][1] = "ab" * 32
    world.scribe.provide("key.retired", page)
    world.finds("provider", 8, Fault.INVALID_ROTATION, "another event")
