"""The verifier on chains in memory: every fault is found, named, and placed at its first seq."""

import json
import uuid
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge import (
    NOT_COLUMNS,
    OPTIONAL,
    UUID_COLUMNS,
    Row,
    Scribe,
    flip,
    resign,
    row_of,
    sign,
    sign_unknown_version,
    unsigned,
)
from oml.core import chain, cose, envelope, keys
from oml.core.chain import Fault

BOUNDED = settings(max_examples=300, deadline=None, derandomize=True, database=None)

ROOT = keys.from_seed(bytes(31) + b"\x01")
OTHER = keys.from_seed(bytes(31) + b"\x02")
ACME = uuid.UUID("00000000-0000-4000-8000-00000000acce").bytes
GLOBEX = uuid.UUID("00000000-0000-4000-8000-00000000beef").bytes
PROJECTED = [f for f in envelope.FIELDS if f.column not in NOT_COLUMNS]
EVENTS = 6


@dataclass
class World:
    """A deployment in memory: its provider chain, the chain of acme, and their author."""

    scribe: Scribe
    acme: list[Row]

    @property
    def provider(self) -> list[Row]:
        """The provider chain's rows."""
        return self.scribe.provider


def new_world(key: keys.SigningKey = ROOT) -> World:
    """Return a deployment with two tenants, whose acme has EVENTS events with every field set."""
    scribe = Scribe(key)
    scribe.issue(key)
    acme = scribe.create("acme", ACME)
    scribe.create("globex", GLOBEX)
    for number in range(2, EVENTS + 1):
        scribe.append(acme, ACME, "invoice.exported", {"n": number, "sum": 1.50}, **OPTIONAL)
    return World(scribe, acme)


GOOD = new_world()


@pytest.fixture
def world() -> World:
    """A deployment that a test may spoil."""
    return deepcopy(GOOD)


def prove_provider(
    world: World, root_key: bytes | None = None, known: int = 0
) -> tuple[chain.Provider, chain.Verdict]:
    """Verify the provider chain."""
    provider = chain.Provider(world.scribe.deployment_id, root_key)
    chain.verify_rows(provider, world.provider)
    provider.expect_head(known, "the outbox")
    return provider, provider.verdict()


def tenant_of(provider: chain.Provider, name: str = "acme") -> chain.Tenant:
    """Return the verifier of a tenant's chain under this provider chain."""
    created = next(t for t in provider.tenants if t.name == name)
    return chain.Tenant(created, provider.deployment_id, provider.key_ring)


def prove(world: World, known: int = 0) -> chain.Verdict:
    """Verify the chain of acme under a sound provider chain."""
    provider, verdict = prove_provider(world)
    assert verdict.ok, verdict
    acme = tenant_of(provider)
    chain.verify_rows(acme, world.acme)
    acme.expect_head(known, "the outbox")
    return acme.verdict()


def found(verdict: chain.Verdict, seq: int, fault: Fault) -> chain.Finding:
    """Insist on this finding: its fault, its seq, and that all before it was proved."""
    assert verdict.finding is not None
    assert (verdict.finding.seq, verdict.finding.fault) == (seq, fault), verdict.finding
    assert not verdict.ok
    assert verdict.finding.tenant == verdict.tenant
    assert verdict.finding.reason
    return verdict.finding


def replace_row(world: World, seq: int, row: Row) -> None:
    """Put another row in the place of acme's row ``seq``, under that seq."""
    world.acme[seq - 1] = row | {"seq": seq}


# --- sound chains ----------------------------------------------------------------------------


def test_a_sound_chain_is_proved_to_its_head(world: World) -> None:
    verdict = prove(world, known=EVENTS)
    assert verdict.ok
    assert verdict.events == EVENTS
    assert verdict.head == world.acme[-1]["hash"]
    assert verdict.tenant == "acme"


def test_a_sound_provider_chain_names_its_keys_and_tenants(world: World) -> None:
    provider, verdict = prove_provider(world, known=3)
    assert verdict.ok
    assert (verdict.events, verdict.head) == (3, world.provider[-1]["hash"])
    assert provider.key_ring is not None
    assert provider.key_ring.root == ROOT.public_key
    assert [(t.name, t.seq) for t in provider.tenants] == [("acme", 2), ("globex", 3)]
    assert provider.tenants[0].hash == world.provider[1]["hash"]


def test_rows_may_come_in_pages(world: World) -> None:
    provider, _ = prove_provider(world)
    acme = tenant_of(provider)
    for row in world.acme:
        chain.verify_rows(acme, [row])
    chain.verify_rows(acme, [])
    assert acme.verdict().ok


def test_bytes_may_come_as_bytearrays_and_memoryviews(world: World) -> None:
    for kind in (bytearray, memoryview):
        rows = [
            {k: kind(v) if isinstance(v, bytes) else v for k, v in row.items()}
            for row in world.acme
        ]
        assert prove(World(world.scribe, rows)).ok


def test_a_pinned_root_key_that_is_the_chains_is_accepted(world: World) -> None:
    assert prove_provider(world, root_key=ROOT.public_key)[1].ok


@pytest.mark.parametrize(
    ("signed", "stored"),
    [
        (b'{"a":1,"b":2}', '{"b": 2, "a": 1}'),
        (b'{"a":1.50}', '{"a": 1.5}'),
        (b'{"a":1e2}', '{"a": 100}'),
        (b'{"a":12345678901234567890.123456789}', '{"a": 12345678901234567890.1234567890}'),
        (b'{"a":"\\u00e9"}', '{"a": "é"}'),
        (b"[1, 2]", "[1,2]"),
        (b"null", " null"),
    ],
)
def test_the_payload_column_may_be_printed_in_another_way(
    world: World, signed: bytes, stored: str
) -> None:
    world.scribe.append(world.acme, ACME, "x.y", signed)["payload"] = stored
    assert prove(world).events == EVENTS + 1


# --- each fault, planted ---------------------------------------------------------------------


def missing_event(world: World) -> chain.Verdict:
    del world.acme[2]
    return prove(world)


def malformed_envelope(world: World) -> chain.Verdict:
    world.acme[2]["envelope"] += b"\x00"
    return prove(world)


def unknown_key(world: World) -> chain.Verdict:
    replace_row(world, 3, resign(world.acme[2], OTHER))
    return prove(world)


def signature_invalid(world: World) -> chain.Verdict:
    replace_row(world, 3, resign(world.acme[2], OTHER, kid=ROOT.kid))
    return prove(world)


def hash_mismatch(world: World) -> chain.Verdict:
    world.acme[2]["hash"] = flip(world.acme[2]["hash"], 0)
    return prove(world)


def broken_link(world: World) -> chain.Verdict:
    replace_row(world, 3, resign(world.acme[2], ROOT, prev_hash=bytes(32)))
    return prove(world)


def column_mismatch(world: World) -> chain.Verdict:
    world.acme[2]["principal"] = "mallory"
    return prove(world)


def genesis_mismatch(world: World) -> chain.Verdict:
    replace_row(world, 1, resign(world.acme[0], ROOT, type="tenant.other"))
    return prove(world)


def retired_key(world: World) -> chain.Verdict:
    world.scribe.issue(OTHER)
    world.scribe.rotate(OTHER)
    world.scribe.append(world.acme, ACME, "x.y", {})
    world.acme[-1] = resign(world.acme[-1], ROOT)
    return prove(world)


def invalid_rotation(world: World) -> chain.Verdict:
    world.scribe.issue(OTHER)
    world.scribe.rotate(OTHER, tenants_a_page=1)
    del world.provider[-1]
    return prove_provider(world)[1]


def root_mismatch(world: World) -> chain.Verdict:
    return prove_provider(world, root_key=OTHER.public_key)[1]


def tail_missing(world: World) -> chain.Verdict:
    del world.acme[2:]
    return prove(world, known=EVENTS)


def chain_missing(world: World) -> chain.Verdict:
    world.acme.clear()
    return prove(world)


PLANTED: dict[Fault, tuple[int, Callable[[World], chain.Verdict]]] = {
    Fault.MISSING_EVENT: (3, missing_event),
    Fault.MALFORMED_ENVELOPE: (3, malformed_envelope),
    Fault.UNKNOWN_KEY: (3, unknown_key),
    Fault.RETIRED_KEY: (EVENTS + 1, retired_key),
    Fault.INVALID_ROTATION: (7, invalid_rotation),
    Fault.SIGNATURE_INVALID: (3, signature_invalid),
    Fault.HASH_MISMATCH: (3, hash_mismatch),
    Fault.BROKEN_LINK: (3, broken_link),
    Fault.COLUMN_MISMATCH: (3, column_mismatch),
    Fault.GENESIS_MISMATCH: (1, genesis_mismatch),
    Fault.ROOT_MISMATCH: (1, root_mismatch),
    Fault.TAIL_MISSING: (3, tail_missing),
    Fault.CHAIN_MISSING: (1, chain_missing),
}


# Of oml.chain_head only the write gate's check knows: tests/sql/gate.sql.
@pytest.mark.parametrize("fault", sorted({*Fault} - {Fault.HEAD_MISSING}))
def test_every_class_of_fault_is_found_and_named(world: World, fault: Fault) -> None:
    seq, plant = PLANTED[fault]
    verdict = plant(world)
    found(verdict, seq, fault)
    assert verdict.events == seq - 1


# --- rows that are gone, doubled or moved ----------------------------------------------------


@pytest.mark.parametrize("seq", range(1, EVENTS + 1))
def test_a_deleted_row_is_missing_wherever_it_was(world: World, seq: int) -> None:
    del world.acme[seq - 1]
    fault = Fault.TAIL_MISSING if seq == EVENTS else Fault.MISSING_EVENT
    found(prove(world, known=EVENTS), seq, fault)


@pytest.mark.parametrize("seq", range(1, EVENTS))
def test_a_row_given_twice_is_found(world: World, seq: int) -> None:
    world.acme.insert(seq, world.acme[seq - 1])
    found(prove(world), seq + 1, Fault.MISSING_EVENT)


@pytest.mark.parametrize("seq", [0, -1])
def test_a_row_before_the_first_is_found(world: World, seq: int) -> None:
    world.acme.insert(0, world.acme[0] | {"seq": seq})
    found(prove(world), 1, Fault.MISSING_EVENT)


@pytest.mark.parametrize("seq", range(1, EVENTS))
def test_a_swapped_pair_is_found(world: World, seq: int) -> None:
    one, two = world.acme[seq - 1], world.acme[seq]
    replace_row(world, seq, two)
    replace_row(world, seq + 1, one)
    found(prove(world), seq, Fault.COLUMN_MISMATCH)


@pytest.mark.parametrize("seq", range(1, EVENTS))
def test_a_pair_swapped_and_signed_again_is_a_broken_link(world: World, seq: int) -> None:
    one, two = world.acme[seq - 1], world.acme[seq]
    replace_row(world, seq, resign(two, ROOT, seq=seq))
    replace_row(world, seq + 1, resign(one, ROOT, seq=seq + 1))
    found(prove(world), seq, Fault.BROKEN_LINK)


@pytest.mark.parametrize("seq", range(2, EVENTS))
def test_a_gap_closed_by_renumbering_is_found(world: World, seq: int) -> None:
    del world.acme[seq - 1]
    for place, row in enumerate(world.acme, 1):
        row["seq"] = place
    found(prove(world), seq, Fault.COLUMN_MISMATCH)


def test_a_row_of_another_tenant_is_found(world: World) -> None:
    foreign = world.scribe.create("initech", bytes(16))
    world.scribe.append(foreign, bytes(16), "x.y", {})
    replace_row(world, 2, foreign[1])
    found(prove(world), 2, Fault.COLUMN_MISMATCH)


def test_a_row_of_another_deployment_is_found(world: World) -> None:
    replace_row(world, 2, resign(world.acme[1], ROOT, deployment_id=bytes(16)))
    finding = found(prove(world), 2, Fault.COLUMN_MISMATCH)
    assert "deployment" in finding.reason


def test_nothing_is_said_of_what_follows_the_first_fault(world: World) -> None:
    world.acme[1]["principal"] = "mallory"
    world.acme[3]["envelope"] = b""
    verdict = prove(world, known=99)
    found(verdict, 2, Fault.COLUMN_MISMATCH)
    assert verdict.head == world.acme[0]["hash"]


def test_a_chain_fed_on_after_a_fault_proves_no_more(world: World) -> None:
    provider, _ = prove_provider(world)
    acme = tenant_of(provider)
    assert acme.feed(world.acme[1]) is None
    assert acme.feed(world.acme[0]) is None
    assert acme.events == 0


# --- columns ---------------------------------------------------------------------------------


def another(field: envelope.Field, value: Any) -> Any:
    """Return a value that the column could hold but does not, in the form of a row."""
    if field.column in UUID_COLUMNS:
        return str(uuid.uuid4())
    if field.column == "payload":
        return json.dumps({"other": True})
    if field.kind == "uint":
        return value + 1
    return flip(value, 0) if field.kind == "bytes" else value + "x"


COLUMNS_BUT_SEQ = [f for f in PROJECTED if f.column != "seq"]


@pytest.mark.parametrize("field", COLUMNS_BUT_SEQ, ids=lambda f: f.column)
def test_a_changed_column_is_found_and_named(world: World, field: envelope.Field) -> None:
    row = world.acme[2]
    assert row[field.column] is not None
    row[field.column] = another(field, row[field.column])
    assert f" {field.column} " in found(prove(world), 3, Fault.COLUMN_MISMATCH).reason


@pytest.mark.parametrize("field", COLUMNS_BUT_SEQ, ids=lambda f: f.column)
def test_an_emptied_column_is_found_and_named(world: World, field: envelope.Field) -> None:
    world.acme[2][field.column] = None
    assert f" {field.column} " in found(prove(world), 3, Fault.COLUMN_MISMATCH).reason


@pytest.mark.parametrize("field", [f for f in PROJECTED if not f.required], ids=lambda f: f.column)
def test_a_column_filled_where_the_envelope_has_none_is_found(
    world: World, field: envelope.Field
) -> None:
    filled = world.acme[2][field.column]
    world.scribe.append(world.acme, ACME, "x.y", {})[field.column] = filled
    finding = found(prove(world), EVENTS + 1, Fault.COLUMN_MISMATCH)
    assert f" {field.column} " in finding.reason


@pytest.mark.parametrize(
    "field", [f for f in PROJECTED if not f.required and f.kind != "uint"], ids=lambda f: f.column
)
def test_an_empty_value_is_not_an_absent_one(world: World, field: envelope.Field) -> None:
    if field.size is None:
        assert field.kind == "text"
        signed = world.scribe.append(world.acme, ACME, "x.y", {}, **{field.column: ""})
        signed[field.column] = None
    else:
        world.scribe.append(world.acme, ACME, "x.y", {})[field.column] = b""
    found(prove(world), EVENTS + 1, Fault.COLUMN_MISMATCH)


@pytest.mark.parametrize("field", envelope.FIELDS, ids=lambda f: f.column)
def test_a_signed_field_that_the_columns_do_not_show_is_found(
    world: World, field: envelope.Field
) -> None:
    row = world.acme[2]
    fields = envelope.decode(row["envelope"]).fields
    if field.column == "version":
        data = sign_unknown_version(fields, ROOT, envelope.VERSION + 1)
        expected = Fault.MALFORMED_ENVELOPE
    else:
        value = fields[field.column]
        if field.kind == "uint":
            changed: Any = value + 1
        elif field.column == "payload":
            changed = b'{"other": true}'
        else:
            changed = flip(value, 0) if field.kind == "bytes" else value + "x"
        data = sign(fields | {field.column: changed}, ROOT)
        expected = Fault.COLUMN_MISMATCH
    world.acme[2] = row | {"envelope": data, "hash": envelope.digest(data)}
    found(prove(world), 3, expected)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_texts_may_come_as_their_bytes(world: World, kind: Callable[[bytes], Any]) -> None:
    texts = [f.column for f in envelope.FIELDS if f.kind == "text"] + ["payload"]
    for row in world.acme:
        row |= {c: kind(row[c].encode()) for c in texts if row[c] is not None}
    assert prove(world).ok
    for column in texts:
        spoiled = [dict(row) for row in world.acme]
        spoiled[2][column] = kind(bytes(spoiled[2][column])[:-1] + b"\xff")
        finding = found(prove(World(world.scribe, spoiled)), 3, Fault.COLUMN_MISMATCH)
        assert f" {column} " in finding.reason


def test_a_changed_kid_column_is_found(world: World) -> None:
    world.acme[2]["kid"] = OTHER.kid
    assert " kid " in found(prove(world), 3, Fault.COLUMN_MISMATCH).reason


@pytest.mark.parametrize("column", ["envelope", "hash", "kid"])
def test_emptied_proof_columns_are_found(world: World, column: str) -> None:
    world.acme[2][column] = None
    assert not prove(world).ok


@pytest.mark.parametrize(
    ("signed", "stored"),
    [
        (b'{"a": true}', '{"a": 1}'),
        (b'{"a": 0}', '{"a": false}'),
        (b'{"a": [1.0]}', '{"a": [true]}'),
        (b'{"a": null}', "{}"),
        (b'{"a": 1}', '{"a": "1"}'),
        (b'{"a": 0.1}', '{"a": 0.10000000000000001}'),
        (b'{"a": 9007199254740993}', '{"a": 9007199254740992}'),
        (b'{"a": 1e400}', '{"a": 2e400}'),
        (b'{"a": [1, 2]}', '{"a": [2, 1]}'),
        (b"{}", "[]"),
        (b"{}", ""),
        (b"\xff", '"\ufffd"'),
        (b"[" * 100_000, "{}"),
        (b'{"a": 1e99999999999999999999}', '{"a": 1}'),
    ],
    ids=range(14),
)
def test_another_json_value_in_the_payload_column_is_found(
    world: World, signed: bytes, stored: str
) -> None:
    row = row_of(sign(world.scribe.fields(world.acme, ACME, "x.y", b"{}"), ROOT))
    fields = envelope.decode(row["envelope"]).fields | {"payload": signed}
    data = sign(fields, ROOT)
    row |= {"envelope": data, "hash": envelope.digest(data), "payload": stored}
    world.acme.append(row)
    assert " payload " in found(prove(world), EVENTS + 1, Fault.COLUMN_MISMATCH).reason


# --- envelopes and keys ----------------------------------------------------------------------


def test_every_bit_flip_in_an_envelope_is_found(world: World) -> None:
    data = world.acme[2]["envelope"]
    faults = set()
    for at in range(len(data)):
        world.acme[2]["envelope"] = flip(data, at)
        verdict = prove(world)
        assert verdict.finding is not None, at
        assert verdict.finding.seq == 3
        faults.add(verdict.finding.fault)
    assert faults == {Fault.MALFORMED_ENVELOPE, Fault.UNKNOWN_KEY, Fault.SIGNATURE_INVALID}


def test_an_envelope_with_no_signature_is_found(world: World) -> None:
    data = unsigned(world.acme[2]["envelope"])
    world.acme[2] |= {"envelope": data, "hash": envelope.digest(data)}
    found(prove(world), 3, Fault.SIGNATURE_INVALID)


def test_an_event_rewritten_with_its_hash_but_not_signed_is_found(world: World) -> None:
    fields = envelope.decode(world.acme[2]["envelope"]).fields | {"principal": "mallory"}
    data = sign(fields, ROOT)[: -cose.SIGNATURE_BYTES]
    data += envelope.decode(world.acme[2]["envelope"]).sign1.signature
    replace_row(world, 3, row_of(data))
    found(prove(world), 3, Fault.SIGNATURE_INVALID)


def test_an_event_rewritten_by_the_right_key_breaks_the_link_behind_it(world: World) -> None:
    replace_row(world, 3, resign(world.acme[2], ROOT, principal="mallory"))
    verdict = prove(world)
    found(verdict, 4, Fault.BROKEN_LINK)
    assert verdict.events == 3


def test_a_key_issued_to_nobody_signs_nothing(world: World) -> None:
    world.scribe.key = OTHER
    world.scribe.append(world.acme, ACME, "x.y", {})
    finding = found(prove(world), EVENTS + 1, Fault.UNKNOWN_KEY)
    assert OTHER.kid.hex() in finding.reason


# --- the genesis event -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference",
    [
        {"tenant_id": str(uuid.UUID(bytes=GLOBEX))},
        {"seq": 3},
        {"seq": "2"},
        {"event_id": str(uuid.UUID(int=0))},
        {"hash": "00" * 32},
        {"extra": 1},
    ],
)
def test_a_genesis_event_that_refers_to_another_creation_is_found(
    world: World, reference: dict[str, Any]
) -> None:
    created_by = json.loads(world.acme[0]["payload"])["created_by"] | reference
    payload = json.dumps({"created_by": created_by}).encode()
    replace_row(world, 1, resign(world.acme[0], ROOT, payload=payload))
    found(prove(world), 1, Fault.GENESIS_MISMATCH)


@pytest.mark.parametrize(
    "payload", [b"{}", b"[]", b"1", b"null", b'"x"', b'{"created_by": null}', b'{"created_by": 1}']
)
def test_a_genesis_event_that_refers_to_nothing_is_found(world: World, payload: bytes) -> None:
    replace_row(world, 1, resign(world.acme[0], ROOT, payload=payload))
    found(prove(world), 1, Fault.GENESIS_MISMATCH)


def test_the_genesis_event_of_one_tenant_does_not_serve_another(world: World) -> None:
    globex_created = world.provider[2]
    reference = {
        "tenant_id": str(uuid.UUID(bytes=world.scribe.deployment_id)),
        "seq": 3,
        "event_id": globex_created["event_id"],
        "hash": globex_created["hash"].hex(),
    }
    payload = json.dumps({"created_by": reference}).encode()
    replace_row(world, 1, resign(world.acme[0], ROOT, payload=payload))
    found(prove(world), 1, Fault.GENESIS_MISMATCH)


def test_a_genesis_event_that_links_to_something_is_a_broken_link(world: World) -> None:
    replace_row(world, 1, resign(world.acme[0], ROOT, prev_hash=b"\x01" * 32))
    found(prove(world), 1, Fault.BROKEN_LINK)


def test_a_tenant_that_was_never_created_is_named() -> None:
    found(chain.never_created("hooli"), 1, Fault.GENESIS_MISMATCH)


# --- the provider chain ----------------------------------------------------------------------


def test_a_provider_chain_signed_anew_under_another_root_shows_only_against_the_pin() -> None:
    forged = new_world(OTHER)
    assert prove_provider(forged)[1].ok
    found(prove_provider(forged, root_key=ROOT.public_key)[1], 1, Fault.ROOT_MISMATCH)


def test_a_provider_chain_that_starts_otherwise_is_found(world: World) -> None:
    del world.provider[0]
    found(prove_provider(world)[1], 1, Fault.GENESIS_MISMATCH)


def test_an_empty_provider_chain_is_missing(world: World) -> None:
    world.provider.clear()
    found(prove_provider(world)[1], 1, Fault.CHAIN_MISSING)


def test_a_provider_chain_that_the_outbox_knows_better_has_lost_its_tail(world: World) -> None:
    found(prove_provider(world, known=4)[1], 4, Fault.TAIL_MISSING)


def test_a_root_that_did_not_sign_its_own_issue_is_unknown(world: World) -> None:
    world.provider[0] = resign(world.provider[0], OTHER)
    found(prove_provider(world)[1], 1, Fault.UNKNOWN_KEY)
    world.provider[0] = resign(GOOD.provider[0], OTHER, kid=ROOT.kid)
    found(prove_provider(world)[1], 1, Fault.SIGNATURE_INVALID)


def test_a_spoiled_root_event_is_malformed(world: World) -> None:
    world.provider[0]["envelope"] = b"\xd2"
    found(prove_provider(world)[1], 1, Fault.MALFORMED_ENVELOPE)


def with_purpose(payload: bytes, purpose: str) -> bytes:
    """Return the payload, if it is an object, with that purpose."""
    value = json.loads(payload)
    return json.dumps(value | {"purpose": purpose}).encode() if isinstance(value, dict) else payload


BAD_KEYS = [
    b"{}",
    b"[]",
    b"1",
    b'{"public_key": null}',
    b'{"public_key": 7}',
    b'{"public_key": "00"}',
    b'{"public_key": "' + b"0g" * 32 + b'"}',
    b'{"public_key": "' + b"AB" * 32 + b'"}',
    b'{"public_key": "' + b"00" * 32 + b'\\n"}',
    b'{"public_key": "' + "\u0660".encode() * 64 + b'"}',
    json.dumps({"public_key": OTHER.public_key.hex()}).encode(),
    json.dumps({"public_key": OTHER.public_key.hex(), "kid": ROOT.kid.hex()}).encode(),
    json.dumps({"public_key": OTHER.public_key.hex(), "kid": OTHER.kid.hex().upper()}).encode(),
]


@pytest.mark.parametrize("payload", BAD_KEYS)
def test_a_root_event_without_a_key_is_found(world: World, payload: bytes) -> None:
    payload = with_purpose(payload, "root")
    world.provider[0] = resign(world.provider[0], ROOT, payload=payload)
    found(prove_provider(world)[1], 1, Fault.GENESIS_MISMATCH)


@pytest.mark.parametrize("purpose", ["signing", "writer"])
@pytest.mark.parametrize("payload", [key for key in BAD_KEYS if key.startswith(b"{")])
def test_a_later_key_event_without_a_key_is_found(
    world: World, payload: bytes, purpose: str
) -> None:
    world.scribe.provide("key.issued", with_purpose(payload, purpose))
    found(prove_provider(world)[1], 4, Fault.UNKNOWN_KEY)


def test_a_key_is_not_known_before_it_is_issued(world: World) -> None:
    world.scribe.key = OTHER
    world.scribe.issue(OTHER)
    found(prove_provider(world)[1], 4, Fault.UNKNOWN_KEY)


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b"[]",
        b"null",
        b'{"name": "x"}',
        b'{"tenant_id": "x", "name": "x"}',
        b'{"tenant_id": 5, "name": "x"}',
        b'{"tenant_id": null, "name": "x"}',
        b'{"tenant_id": "00000000-0000-4000-8000-00000000acce"}',
        b'{"tenant_id": "00000000-0000-4000-8000-00000000acce", "name": 5}',
    ],
)
def test_a_creation_that_names_no_tenant_is_found(world: World, payload: bytes) -> None:
    world.scribe.provide("tenant.created", payload)
    found(prove_provider(world)[1], 4, Fault.GENESIS_MISMATCH)


# --- whatever comes --------------------------------------------------------------------------


@BOUNDED
@given(st.data())
def test_a_verifier_answers_whatever_the_rows_hold(data: st.DataObject) -> None:
    world = deepcopy(GOOD)
    rows = data.draw(st.sampled_from([world.provider, world.acme]))
    row = data.draw(st.sampled_from(rows))
    column = data.draw(st.sampled_from(sorted(row)))
    value = data.draw(
        {
            "seq": st.integers(-5, 2**63),
            "payload": st.none() | st.text(max_size=40),
            "envelope": st.none() | st.binary(max_size=80),
            "hash": st.none() | st.binary(max_size=40),
            "kid": st.none() | st.binary(max_size=10),
        }.get(column, st.none() | st.integers() | st.binary(max_size=40) | st.text(max_size=40))
    )
    unchanged = row[column] == value
    row[column] = value
    provider, verdict = prove_provider(world)
    if verdict.ok:
        acme = tenant_of(provider)
        chain.verify_rows(acme, world.acme)
        verdict = acme.verdict()
    if unchanged:
        assert verdict.ok
    elif column == "payload" and isinstance(value, str):
        return  # the same JSON value in another form would be no fault
    else:
        assert verdict.finding is not None


@BOUNDED
@given(st.binary(max_size=60), st.sampled_from(["key.issued", "tenant.created", "x.y"]))
def test_a_verifier_answers_whatever_a_signed_payload_holds(payload: bytes, kind: str) -> None:
    world = deepcopy(GOOD)
    fields = world.scribe.fields(world.provider, world.scribe.deployment_id, kind, payload)
    row = row_of(sign(fields | {"payload": b"{}"}, ROOT))
    data = sign(fields, ROOT)
    row |= {"envelope": data, "hash": envelope.digest(data)}
    row["payload"] = payload.decode("utf-8", "replace")
    world.provider.append(row)
    prove_provider(world)
