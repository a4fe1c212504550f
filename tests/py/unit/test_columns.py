"""Proving a page by comparison says exactly what going through its rows says."""

import itertools
import json
import uuid
from copy import deepcopy
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge import OPTIONAL, UUID_COLUMNS, Row, Scribe, flip, resign, row_of, sign
from oml.core import chain, envelope, keys
from oml.driver import columns
from oml.driver.pages import Pages, prove_rows
from oml.driver.segments import Plan, Stretch

BOUNDED = settings(max_examples=400, deadline=None, derandomize=True, database=None)

ROOT, SECOND, OTHER = (keys.from_seed(bytes(31) + bytes((n,))) for n in (1, 2, 3))
ACME = uuid.UUID(int=0xACE).bytes
KINDS = {
    "seq": pa.int64(),
    "occurred_at": pa.timestamp("us", "UTC"),
    "schema_version": pa.int32(),
    "artifact_version": pa.int64(),
    **dict.fromkeys(UUID_COLUMNS, pa.uuid()),
    **dict.fromkeys(
        ("prev_hash", "hash", "kid", "plaintext_digest", "ciphertext_digest", "envelope"),
        pa.binary(),
    ),
}
PLAIN: dict[str, Any] = {"operation": "export"}


def table(rows: list[Row]) -> pa.Table:
    """Return rows as the driver gets them from oml.chain_rows()."""
    arrays = {}
    for name in rows[0]:
        kind = KINDS.get(name, pa.string())
        values = [row[name] for row in rows]
        if kind == pa.uuid():
            raw = [None if v is None else uuid.UUID(v).bytes for v in values]
            arrays[name] = pa.ExtensionArray.from_storage(kind, pa.array(raw, pa.binary(16)))
        elif name == "occurred_at":
            arrays[name] = pa.array(values, pa.int64()).cast(kind)
        else:
            arrays[name] = pa.array(values, kind)
    return pa.table(arrays)


def new_chain() -> tuple[Scribe, list[Row]]:
    """Return a chain with rows of every shape, of two keys, and its author."""
    scribe = Scribe(ROOT)
    scribe.issue(ROOT)
    rows = scribe.create("acme", ACME)
    for fields in (PLAIN, OPTIONAL, {}, OPTIONAL):
        scribe.append(rows, ACME, "x.y", {"n": len(rows), "sum": 1.5}, **fields)
    scribe.issue(SECOND)
    scribe.rotate(SECOND)
    for fields in (PLAIN, OPTIONAL):
        scribe.append(rows, ACME, "x.y", {"n": len(rows), "name": "Łódź"}, **fields)
    return scribe, rows


SCRIBE, ROWS = new_chain()


def verifier(scribe: Scribe = SCRIBE) -> chain.Tenant:
    """Return a verifier of the tenant's chain, at its start."""
    provider = chain.Provider(scribe.deployment_id)
    chain.verify_rows(provider, scribe.provider)
    assert provider.verdict().ok
    return chain.Tenant(provider.tenants[0], scribe.deployment_id, provider.key_ring)


def both(rows: list[Row], after: int = 0, known: bytes | None = None) -> chain.Tenant:
    """Prove rows in both ways, insist that they agree, and return the verifier."""
    one, other = verifier(), verifier()
    for subject in (one, other):
        if after:
            subject.resume(after, known)
    page = table(rows)
    chain.verify_rows(one, [columns.row(page, index) for index in range(len(rows))])
    prove_rows(other, page)
    assert (one.events, one.head, one.first_prev, one.finding) == (
        *(other.events, other.head, other.first_prev, other.finding),
    )
    return other


def compared(rows: list[Row]) -> list[bool]:
    """Tell of each row whether its envelope is what its columns call for."""
    found = columns.expect(table(rows), ACME, SCRIBE.deployment_id)
    return [message is not None for message in found.messages]


def test_a_sound_chain_is_proved_by_comparison_alone() -> None:
    assert compared(ROWS) == [True] * len(ROWS)
    proved = both(ROWS)
    assert (proved.events, proved.head) == (len(ROWS), ROWS[-1]["hash"])


def test_a_message_is_what_the_signature_covers() -> None:
    found = columns.expect(table(ROWS), ACME, SCRIBE.deployment_id)
    for row, message in zip(ROWS, found.messages, strict=True):
        signed = envelope.decode(row["envelope"]).sign1
        assert message is not None
        assert message[:64] == signed.signature
        assert signed.payload in message


@pytest.mark.parametrize("after", range(1, len(ROWS)))
def test_a_chain_may_be_begun_anywhere(after: int) -> None:
    rows = ROWS[after:]
    known = both(rows, after, ROWS[after - 1]["hash"])
    assert known.finding is None
    unknown = both(rows, after, None)
    assert unknown.finding is None
    assert unknown.first_prev == ROWS[after - 1]["hash"]
    assert both(rows, after, bytes(32)).finding is not None


@pytest.mark.parametrize("digest", [ROWS[3]["hash"], bytes(32)])
def test_an_event_proved_earlier_must_be_there(digest: bytes) -> None:
    one, other = verifier(), verifier()
    one.proved_before = other.proved_before = (4, digest)
    chain.verify_rows(one, ROWS)
    prove_rows(other, table(ROWS))
    assert one.finding == other.finding
    assert (one.finding is None) == (digest == ROWS[3]["hash"])


LENGTHS = [0, 1, 23, 24, 255, 256, 257, 5000, 65535, 65536, 70000]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("column", ["operation", "writer", "payload"])
def test_values_of_any_length_are_proved(length: int, column: str) -> None:
    scribe, rows = new_chain()
    if column == "payload":
        scribe.append(rows, ACME, "x.y", "x" * length)
    else:
        scribe.append(rows, ACME, "x.y", {}, **{column: "ł" * (length // 2) + "x" * (length % 2)})
    assert both(rows).finding is None
    assert compared(rows)[-1] == (length < 60000)


@pytest.mark.parametrize("value", [0, 1, 23, 24, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**62])
@pytest.mark.parametrize("column", ["schema_version", "artifact_version", "occurred_at"])
def test_numbers_of_any_size_are_proved(value: int, column: str) -> None:
    scribe, rows = new_chain()
    if column == "schema_version" and value >= 2**31:
        value = 2**31 - 2
    scribe.append(rows, ACME, "x.y", {}, **{column: value})
    assert both(rows).finding is None


def test_a_long_chain_is_proved() -> None:
    scribe, rows = Scribe(ROOT), []
    scribe.issue(ROOT)
    rows = scribe.create("acme", ACME)
    for _ in range(299):
        scribe.append(rows, ACME, "x.y", {})
    subject = verifier(scribe)
    prove_rows(subject, table(rows))
    assert (subject.events, subject.finding) == (300, None)


def test_json_printed_in_another_way_is_left_to_the_slow_path_and_proved() -> None:
    rows = deepcopy(ROWS)
    rows[2]["payload"] = json.dumps(json.loads(rows[2]["payload"]), indent=1)
    assert compared(rows) == [index != 2 for index in range(len(rows))]
    assert both(rows).finding is None


TEXTS = [f.column for f in envelope.FIELDS if f.kind == "text"] + ["payload"]


@pytest.mark.parametrize("column", TEXTS)
@pytest.mark.parametrize("at", [0, 2, 6])
def test_a_text_that_is_not_utf8_is_a_finding_at_its_seq(column: str, at: int) -> None:
    page = table(ROWS)
    raw = [None if v is None else v.encode() for v in page[column].to_pylist()]
    raw[at] = b"\xff"
    spoiled = pa.array(raw, pa.binary()).view(pa.string())
    page = page.set_column(page.schema.get_field_index(column), column, spoiled)
    one, other = verifier(), verifier()
    chain.verify_rows(one, [columns.row(page, index) for index in range(len(ROWS))])
    prove_rows(other, page)
    assert other.finding is not None
    assert one.finding == other.finding
    assert (other.finding.seq, other.finding.fault) == (at + 1, chain.Fault.COLUMN_MISMATCH)
    assert f" {column} " in other.finding.reason


# --- whatever comes --------------------------------------------------------------------------

BYTES = st.none() | st.binary(max_size=40)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "seq": st.integers(-(2**63), 2**63 - 1),
    "occurred_at": st.none() | st.integers(-(2**60), 2**60) | st.integers(-5, 2**33),
    "schema_version": st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 300),
    "artifact_version": st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300),
    "payload": st.none() | st.text(max_size=30) | st.sampled_from(['{"n":1,"sum":1.50}', "{}"]),
    **dict.fromkeys(UUID_COLUMNS, st.none() | st.uuids().map(str)),
    **dict.fromkeys(("prev_hash", "hash", "kid", "plaintext_digest", "ciphertext_digest"), BYTES),
}


@st.composite
def mutated_chains(draw: st.DrawFn) -> list[Row]:
    """Draw the chain with some rows changed, as a superuser or a holder of a key could."""
    rows = deepcopy(ROWS)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(rows) - 1))
        row = rows[at]
        what = draw(st.sampled_from(["column", "bit", "cut", "signed", "swap", "gone", "moved"]))
        if what == "column":
            column = draw(st.sampled_from(sorted(set(row) - {"envelope"})))
            row[column] = draw(VALUES.get(column, st.none() | st.text(max_size=30)))
        elif what == "bit" and row["envelope"]:
            data = flip(row["envelope"], draw(st.integers(0, len(row["envelope"]) - 1)))
            row["envelope"] = data
            if draw(st.booleans()):
                row["hash"] = envelope.digest(data)
        elif what == "cut":
            end = draw(st.binary(max_size=3))
            data = (row["envelope"] or b"")[: draw(st.sampled_from([-1, -64, -66, 0, 1000]))] + end
            row["envelope"] = draw(st.sampled_from([data, None]))
            row["hash"] = envelope.digest(data)
        elif what == "signed":
            field = draw(st.sampled_from([f for f in envelope.FIELDS if f.column != "version"]))
            value = draw(
                {
                    "uint": st.integers(0, 2**63 - 1),
                    "bytes": st.binary(min_size=field.size or 0, max_size=field.size or 30),
                    "text": st.text(max_size=300),
                }[field.kind]
            )
            key = draw(st.sampled_from([ROOT, SECOND, OTHER]))
            fields = envelope.decode(ROWS[at]["envelope"]).fields | {field.column: value}
            data = sign(fields, key, draw(st.sampled_from([None, ROOT.kid])))
            row["envelope"], row["hash"] = data, envelope.digest(data)
            fits = field.column not in ("payload", "schema_version") and draw(st.booleans())
            if fits:
                rows[at] = row_of(data) | {"seq": row["seq"]}
        elif what == "swap":
            other = draw(st.integers(0, len(rows) - 1))
            rows[at], rows[other] = rows[other], rows[at]
        elif what == "moved":
            rows[at] = resign(ROWS[at], SECOND, seq=at + 2)
        elif what == "gone" and len(rows) > 1:
            del rows[at]
    return rows


@BOUNDED
@given(mutated_chains(), st.booleans())
def test_both_ways_say_the_same_whatever_the_rows_hold(rows: list[Row], whole: bool) -> None:
    if whole:
        both(rows)
    else:
        both(rows[1:] or rows, 1, None)


class Memory(Pages):
    """Pages of a chain that lies in memory, cut as oml.chain_rows() cuts them."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: int(row["seq"]))

    def page(self, tenant_id: str, after: int, rows: int) -> pa.Table:
        """Return the rows above ``after``; from below seq 1 on at the start."""
        above = [row for row in self.rows if after <= 0 or row["seq"] > after]
        return table(above[:rows]) if above else table(ROWS).slice(0, 0)


def in_segments(rows: list[Row], segment_rows: int, earlier: tuple[int, bytes] | None) -> Any:
    """Prove a chain in segments, from the last to the first, and return the verdict."""
    known = verifier()
    last = max((row["seq"] for row in rows), default=0)
    stretch = Stretch(known.created, 0, envelope.GENESIS_PREV, last, earlier)
    assert known.key_ring is not None
    plan = Plan([stretch], SCRIBE.deployment_id, known.key_ring, segment_rows)
    pages = Memory(rows)
    numbers = reversed(range(len(plan)))
    joined = plan.joined(0, {n: plan.prove(n, pages, lambda _rows: None) for n in numbers})
    joined.expect_head(len(ROWS), "the outbox")
    return joined.verdict()


@BOUNDED
@given(
    mutated_chains(),
    st.integers(1, 8),
    st.none() | st.tuples(st.integers(1, 9), st.sampled_from([r["hash"] for r in ROWS])),
)
def test_segments_put_together_say_what_one_verifier_says(
    rows: list[Row], segment_rows: int, earlier: tuple[int, bytes] | None
) -> None:
    alone = verifier()
    alone.proved_before = earlier
    chain.verify_rows(alone, sorted(rows, key=lambda row: int(row["seq"])))
    alone.expect_head(len(ROWS), "the outbox")
    assert in_segments(rows, segment_rows, earlier) == alone.verdict()


@pytest.mark.parametrize("segment_rows", range(1, 9))
def test_a_sound_chain_is_proved_in_segments_of_any_size(segment_rows: int) -> None:
    verdict = in_segments(ROWS, segment_rows, (3, ROWS[2]["hash"]))
    assert (verdict.finding, verdict.events, verdict.head) == (None, 7, ROWS[-1]["hash"])


def test_a_seq_far_beyond_all_others_makes_no_more_segments() -> None:
    known = verifier()
    assert known.key_ring is not None
    stretch = Stretch(known.created, 0, envelope.GENESIS_PREV, 2**63 - 1)
    assert len(Plan([stretch], SCRIBE.deployment_id, known.key_ring)) <= 1024


@pytest.mark.parametrize("at", range(len(ROWS)))
def test_both_ways_say_the_same_of_every_bit(at: int) -> None:
    for place in range(0, len(ROWS[at]["envelope"]), 7):
        rows = deepcopy(ROWS)
        rows[at]["envelope"] = flip(rows[at]["envelope"], place)
        finding = both(rows).finding
        assert finding is not None
        assert finding.seq == at + 1


# --- the provider chain ----------------------------------------------------------------------

KEYS = [keys.from_seed(bytes(30) + bytes((1, n))) for n in range(8)]
SIGNERS = {"seize": OTHER, "relapse": ROOT}
PLAIN_TYPES = ["membership.granted", "event-type.registered", "impersonation.started"]


def provider_rows(steps: list[str], tenants_a_page: int) -> list[Row]:
    """Return a provider chain on which these things happened after its root key was issued."""
    scribe = Scribe(ROOT)
    scribe.issue(ROOT)
    fresh = iter(KEYS)
    for number, step in enumerate(steps):
        if step == "tenant":
            scribe.create(f"t{number}", uuid.UUID(int=number).bytes)
        elif step == "standby":
            scribe.issue(next(fresh, OTHER))
        elif step == "withdraw":
            key = next(fresh, OTHER)
            scribe.issue(key)
            scribe.provide(
                "key.retired", {"kid": key.kid.hex(), "purpose": "signing", "successor": None}
            )
        elif step == "rotate":
            for key in itertools.islice(fresh, 1):
                scribe.issue(key)
                scribe.rotate(key, tenants_a_page)
        elif step in SIGNERS:
            scribe.key = SIGNERS[step]
        else:
            scribe.provide(step, {"login": f"l{number}"}, **(PLAIN if number % 2 else OPTIONAL))
    return scribe.provider


def state(subject: chain.Provider) -> Any:
    """Return everything that a verifier has learnt."""
    ring = subject.key_ring
    learnt = ring and (ring.root, ring.eras, ring.standby, ring.withdrawn)
    return subject.verdict(), subject.tenants, learnt


def both_of_provider(rows: list[Row], page_rows: int, earlier: tuple[int, bytes] | None) -> Any:
    """Prove a provider chain in both ways, insist that they agree, and return its state."""
    one, other = (chain.Provider(SCRIBE.deployment_id) for _ in range(2))
    one.proved_before = other.proved_before = earlier
    page = table(rows)
    chain.verify_rows(one, [columns.row(page, index) for index in range(len(rows))])
    for at in range(0, len(rows), page_rows):
        if other.finding is None:
            prove_rows(other, page.slice(at, page_rows))
    found = state(other)
    assert state(one) == found
    return found


STEPS = st.lists(
    st.sampled_from([*PLAIN_TYPES, *PLAIN_TYPES, "tenant", "standby", "withdraw", "rotate"]),
    max_size=12,
)


@BOUNDED
@given(STEPS, st.integers(1, 3), st.integers(1, 9))
def test_both_ways_learn_the_same_of_a_sound_provider_chain(
    steps: list[str], tenants_a_page: int, page_rows: int
) -> None:
    rows = provider_rows(steps, tenants_a_page)
    verdict, tenants, _ = both_of_provider(rows, page_rows, None)
    assert verdict.ok
    assert verdict.events == len(rows)
    assert len(tenants) == steps.count("tenant")


@BOUNDED
@given(st.data(), STEPS, st.integers(1, 2), st.integers(1, 9))
def test_both_ways_say_the_same_of_any_provider_chain(
    data: st.DataObject, steps: list[str], tenants_a_page: int, page_rows: int
) -> None:
    if data.draw(st.booleans()):
        steps.insert(data.draw(st.integers(0, len(steps))), data.draw(st.sampled_from([*SIGNERS])))
    rows = provider_rows(steps, tenants_a_page)
    original = deepcopy(rows)
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(rows) - 1))
        row = rows[at]
        what = data.draw(st.sampled_from(["column", "type", "signed", "swap", "gone", "bit"]))
        kinds = [*PLAIN_TYPES, "key.issued", "key.retired", "tenant.created"]
        if what == "column":
            column = data.draw(st.sampled_from(sorted(set(row) - {"envelope"})))
            row[column] = data.draw(VALUES.get(column, st.none() | st.text(max_size=30)))
        elif what == "type":
            row["type"] = data.draw(st.sampled_from(kinds))
        elif what == "signed":
            # What follows is linked to it, so that its own fault is the first.
            kind = data.draw(st.sampled_from(kinds))
            key = data.draw(st.sampled_from([ROOT, OTHER, *KEYS[:3]]))
            rows[at] = resign(original[min(at, len(original) - 1)], key, type=kind, seq=at + 1)
            for next_at in range(at + 1, len(rows)):
                kid = rows[next_at]["kid"]
                signer = next((k for k in (ROOT, OTHER, *KEYS) if k.kid == kid), ROOT)
                prev = rows[next_at - 1]["hash"]
                if rows[next_at]["envelope"] and isinstance(prev, bytes) and len(prev) == 32:
                    source = original[min(next_at, len(original) - 1)]
                    rows[next_at] = resign(source, signer, prev_hash=prev, seq=next_at + 1)
        elif what == "swap":
            other = data.draw(st.integers(0, len(rows) - 1))
            rows[at], rows[other] = rows[other], rows[at]
        elif what == "gone" and len(rows) > 1:
            del rows[at]
        elif what == "bit" and row["envelope"]:
            row["envelope"] = flip(row["envelope"], data.draw(st.integers(0, 10_000)) % 64)
    earlier = data.draw(
        st.none() | st.tuples(st.integers(1, 9), st.sampled_from([r["hash"] for r in original]))
    )
    both_of_provider(rows, page_rows, earlier)


def test_only_what_declares_something_is_gone_through_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = provider_rows(["tenant", *PLAIN_TYPES, "rotate", *PLAIN_TYPES, *PLAIN_TYPES], 1)
    fed: list[str] = []
    feed = chain.Provider.feed

    def spy(self: chain.Provider, row: Row) -> envelope.Envelope | None:
        fed.append(row["type"])
        return feed(self, row)

    monkeypatch.setattr(chain.Provider, "feed", spy)
    subject = chain.Provider(SCRIBE.deployment_id)
    prove_rows(subject, table(rows))
    assert subject.verdict().ok
    assert fed == [row["type"] for row in rows if row["type"] not in PLAIN_TYPES]


def test_what_stands_between_the_pages_of_a_rotation_is_found_in_both_ways() -> None:
    rows = provider_rows(["tenant", "rotate"], 1)
    pages = [at for at, row in enumerate(rows) if row["type"] == "key.retired"]
    assert len(pages) == 2
    between = pages[-1]
    rows[between] = resign(rows[between], KEYS[0], type=PLAIN_TYPES[0])
    for page_rows in (1, 2, 9):
        verdict, _, _ = both_of_provider(rows, page_rows, None)
        assert verdict.finding is not None
        assert (verdict.finding.seq, verdict.finding.fault) == (
            *(between + 1, chain.Fault.INVALID_ROTATION),
        )


def test_a_retired_key_signs_nothing_more_on_the_provider_chain_in_both_ways() -> None:
    rows = provider_rows([PLAIN_TYPES[0], "rotate", "relapse", *PLAIN_TYPES], 99)
    for page_rows in (1, 2, 9):
        verdict, _, _ = both_of_provider(rows, page_rows, None)
        assert verdict.finding is not None
        assert (verdict.finding.seq, verdict.finding.fault) == (
            *(len(rows) - 2, chain.Fault.RETIRED_KEY),
        )
