"""Proof files: what they prove, and everything that proves nothing."""

import json
import tracemalloc
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oml.core import envelope, keys, merkle, note, proof
from oml.core.proof import MalformedError, Proof, ProvesNothingError
from tlogs import Grown

# Derandomized: the same examples in every run, and none kept between runs.
BOUNDED = settings(max_examples=300, deadline=None, derandomize=True, database=None)

DEPLOYMENT = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057")
TENANT = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8058")
ROOT, SECOND, THIRD, STRANGER = (keys.from_seed(bytes((n,)) * 32) for n in range(4))
SIZE = 10


def event(key: keys.SigningKey, seq: int, tenant: uuid.UUID = TENANT, **fields: Any) -> bytes:
    """Return the envelope of an event that this key signed."""
    values = {
        "deployment_id": DEPLOYMENT.bytes, "seq": seq, "prev_hash": bytes(32),
        "tenant_id": tenant.bytes, "version": envelope.VERSION, "authorization": "member",
        "occurred_at": 1_700_000_000_000_000 + seq, "event_id": seq.to_bytes(16, "big"),
        "pii_class": "none", "payload": b"{}", "principal": "app", "schema_version": 1,
        "type": "job.done", "writer": "app", "synchronous_commit": "on",
    }  # fmt: skip
    return envelope.encode(values | fields, key.kid, key.secret_key)


def provide(by: keys.SigningKey, kind: str, seq: int, said: object, **fields: Any) -> bytes:
    """Return the envelope of an event of the provider chain."""
    payload = said if isinstance(said, bytes) else json.dumps(said).encode()
    return event(by, seq, DEPLOYMENT, **({"type": kind, "payload": payload} | fields))


def issue(by: keys.SigningKey, key: keys.SigningKey, seq: int, **said: Any) -> bytes:
    """Return the envelope of a key.issued event."""
    own = {
        "kid": key.kid.hex(), "public_key": key.public_key.hex(), "purpose": "signing",
        "algorithm": "Ed25519",
    }  # fmt: skip
    return provide(by, "key.issued", seq, own | said)


def retire(by: keys.SigningKey, to: keys.SigningKey, seq: int, **said: Any) -> bytes:
    """Return the envelope of the only page of a key.retired event of a rotation."""
    own = {
        "kid": by.kid.hex(), "purpose": "signing", "successor": to.kid.hex(),
        "page": 1, "pages": 1, "last": {},
    }  # fmt: skip
    return provide(by, "key.retired", seq, own | said)


def rotate(by: keys.SigningKey, behind: bytes, **said: Any) -> bytes:
    """Return the envelope of the key.rotated event behind a key.retired."""
    before = envelope.decode(behind)
    own = {"kid": by.kid.hex(), "predecessor": before.kid.hex()}
    seq, prev = before.fields["seq"] + 1, before.hash
    return provide(by, "key.rotated", seq, own | said, prev_hash=prev)


def handover(by: keys.SigningKey, to: keys.SigningKey, seq: int) -> tuple[bytes, bytes, bytes]:
    """Return the three events that show that a key took over."""
    retired = retire(by, to, seq + 1)
    return issue(by, to, seq), retired, rotate(to, retired)


def changed_field(data: bytes, key: keys.SigningKey, **fields: Any) -> bytes:
    """Return an envelope with other fields, signed by a key."""
    return envelope.encode(envelope.decode(data).fields | fields, key.kid, key.secret_key)


@dataclass(frozen=True)
class Log:
    """A tenant's chain in which one key signed all, and its log."""

    key: keys.SigningKey
    origin: str = note.origin(DEPLOYMENT, TENANT, 1)

    @property
    def events(self) -> list[bytes]:
        """The envelopes."""
        return [event(self.key, seq) for seq in range(1, SIZE + 1)]

    def tree(self) -> Grown:
        """Return the tiles."""
        tree = Grown()
        tree.add([merkle.leaf_hash(envelope.digest(data)) for data in self.events])
        return tree

    def checkpoint(self, key: keys.SigningKey | None = None) -> bytes:
        """Return the checkpoint, signed by a key."""
        by = key or self.key
        text = note.checkpoint_text(self.origin, SIZE, merkle.root(self.tree(), SIZE))
        line = note.log_signature(
            note.log_verifier(self.origin, by.public_key), note.signed(text, by.secret_key)
        )
        return note.Note(text, (line,)).encode()

    def prove(self, seq: int = 6, *issues: bytes) -> Proof:
        """Return the proof of an event."""
        path = merkle.inclusion_proof(self.tree(), seq - 1, SIZE)
        return Proof(seq - 1, tuple(path), self.events[seq - 1], issues, self.checkpoint())


LOG, LATER = Log(ROOT), Log(THIRD)
FIRST_STEP, SECOND_STEP = handover(ROOT, SECOND, 2), handover(SECOND, THIRD, 9)
STEPS = FIRST_STEP + SECOND_STEP
GOOD = LATER.prove(6, *STEPS)


def proves_nothing(made: Proof, words: str, *pinned: bytes) -> None:
    """Insist that a proof is refused for this reason, also once it was in a file."""
    with pytest.raises(ProvesNothingError, match=words):
        proof.verify(proof.parse(proof.encode(made)), pinned or [ROOT.public_key])


@pytest.mark.parametrize("seq", range(1, SIZE + 1))
def test_an_event_of_the_root_key_is_proved_under_it(seq: int) -> None:
    proved = proof.verify(LOG.prove(seq), [ROOT.public_key])
    assert proved.event.fields["seq"] == seq
    assert (proved.deployment_id, proved.tenant_id, proved.generation) == (DEPLOYMENT, TENANT, 1)
    assert (proved.checkpoint.size, proved.key) == (SIZE, ROOT.public_key)


def test_a_proof_comes_back_as_it_was_written() -> None:
    data = proof.encode(GOOD)
    assert proof.parse(data) == GOOD
    assert proof.encode(proof.parse(data)) == data


def test_a_proof_is_written_as_the_specification_says() -> None:
    lines = proof.encode(GOOD).decode().split("\n")
    assert lines[0] == "c2sp.org/tlog-proof@v1"
    extra = note.decode_base64(lines[1].removeprefix("extra "))
    held = {"envelope": GOOD.envelope, "keys": list(STEPS)}
    assert cbor2.loads(extra) == held
    assert cbor2.dumps(held, canonical=True) == extra
    assert lines[2] == "index 5"
    assert [note.decode_base64(line) for line in lines[3:7]] == list(GOOD.path)
    assert lines[7] == ""
    assert "\n".join(lines[8:]).encode() == GOOD.checkpoint


def test_keys_lead_from_the_root_key_to_those_that_signed() -> None:
    assert proof.verify(GOOD, [ROOT.public_key]).key == THIRD.public_key
    assert proof.verify(GOOD, [STRANGER.public_key, SECOND.public_key]).key == THIRD.public_key


def test_a_key_that_signed_is_enough_without_the_others() -> None:
    proof.verify(replace(GOOD, keys=()), [THIRD.public_key])
    proof.verify(GOOD, [THIRD.public_key])


def not_shown(*ways: bytes) -> None:
    proves_nothing(replace(GOOD, keys=ways), "signed by no key that was given")


@pytest.mark.parametrize("gone", range(len(STEPS)))
def test_without_the_whole_way_to_it_a_key_does_not_count(gone: int) -> None:
    not_shown(*STEPS[:gone], *STEPS[gone + 1 :])
    not_shown(*STEPS[:gone])
    not_shown(*STEPS[::-1])


def test_a_key_that_was_issued_alone_does_not_count() -> None:
    """It is on standby, was withdrawn, or its issue was rolled back: nobody handed over to it."""
    stolen = issue(SECOND, THIRD, 9)
    not_shown(*FIRST_STEP, stolen)
    withdrawn = {"kid": THIRD.kid.hex(), "purpose": "signing"}
    by_another = provide(SECOND, "key.retired", 10, withdrawn)
    taken = rotate(THIRD, by_another)
    not_shown(*FIRST_STEP, stolen, by_another, taken)
    paged = provide(SECOND, "key.retired", 10, withdrawn | {"page": 1, "pages": 1})
    not_shown(*FIRST_STEP, stolen, paged, rotate(THIRD, paged))
    # Another key took over, and the stolen issue stands beside it.
    other = handover(SECOND, STRANGER, 9)
    not_shown(*FIRST_STEP, stolen, *other)
    not_shown(*FIRST_STEP, stolen, other[1], rotate(THIRD, other[1]))


OTHER = uuid.UUID(int=7).bytes
ISSUED, RETIRED, ROTATED = SECOND_STEP
ELSEWHERE: list[dict[str, Any]] = [
    {"tenant_id": TENANT.bytes}, {"deployment_id": OTHER},
    {"tenant_id": OTHER, "deployment_id": OTHER}, {"type": "key.offered"},
    {"payload": b"[]"},
]  # fmt: skip


def of_second(retired: bytes) -> tuple[bytes, ...]:
    """Return the second step with another key.retired, and a key.rotated that goes with it."""
    return ISSUED, retired, rotate(THIRD, retired)


@pytest.mark.parametrize(
    "step",
    [
        *((changed_field(ISSUED, SECOND, **fields), RETIRED, ROTATED) for fields in ELSEWHERE),
        *(of_second(changed_field(RETIRED, SECOND, **fields)) for fields in ELSEWHERE),
        *((ISSUED, RETIRED, changed_field(ROTATED, THIRD, **fields)) for fields in ELSEWHERE),
        (issue(SECOND, THIRD, 9, purpose="writer"), RETIRED, ROTATED),
        (issue(SECOND, THIRD, 9, purpose="root"), RETIRED, ROTATED),
        (issue(STRANGER, THIRD, 9), RETIRED, ROTATED),
        (issue(SECOND, STRANGER, 9), RETIRED, ROTATED),
        (ISSUED[:-64] + bytes(64), RETIRED, ROTATED),
        of_second(retire(SECOND, THIRD, 10, purpose="writer")),
        of_second(retire(SECOND, THIRD, 10, kid=ROOT.kid.hex())),
        of_second(retire(SECOND, THIRD, 10, successor=STRANGER.kid.hex())),
        of_second(retire(SECOND, THIRD, 10, successor=None)),
        of_second(retire(SECOND, THIRD, 10, page=1, pages=2)),
        of_second(retire(SECOND, THIRD, 10, page="1", pages="1")),
        of_second(retire(STRANGER, THIRD, 10)),
        of_second(retire(THIRD, THIRD, 10)),
        of_second(RETIRED[:-64] + bytes(64)),
        (ISSUED, RETIRED, rotate(SECOND, RETIRED)),
        (ISSUED, RETIRED, rotate(STRANGER, RETIRED)),
        (ISSUED, RETIRED, rotate(THIRD, RETIRED, kid=SECOND.kid.hex())),
        (ISSUED, RETIRED, rotate(THIRD, RETIRED, predecessor=ROOT.kid.hex())),
        (ISSUED, RETIRED, changed_field(ROTATED, THIRD, seq=12)),
        (ISSUED, RETIRED, changed_field(ROTATED, THIRD, prev_hash=bytes(32))),
        (ISSUED, RETIRED, ROTATED[:-64] + bytes(64)),
        (ISSUED, RETIRED, retire(SECOND, THIRD, 11, page=1, pages=2), ROTATED),
    ],
)
def test_what_does_not_put_a_key_of_the_deployment_in_force_makes_none_count(
    step: tuple[bytes, ...],
) -> None:
    not_shown(*FIRST_STEP, *step)


def test_a_payload_with_a_name_twice_says_nothing() -> None:
    def twice(data: bytes, more: str) -> bytes:
        said = envelope.decode(data).fields["payload"].decode()
        return changed_field(data, THIRD if data is ROTATED else SECOND,
                             payload=f"{{{more}, {said[1:]}".encode())  # fmt: skip

    alike = twice(RETIRED, '"more": 1')
    proof.verify(replace(GOOD, keys=(*FIRST_STEP, *of_second(alike))), [ROOT.public_key])
    not_shown(*FIRST_STEP, twice(ISSUED, '"purpose": "writer"'), RETIRED, ROTATED)
    not_shown(*FIRST_STEP, *of_second(twice(RETIRED, f'"successor": "{ROOT.kid.hex()}"')))
    not_shown(*FIRST_STEP, *of_second(twice(RETIRED, '"last": {"a": 1, "a": 2}, "last": {}')))
    not_shown(*FIRST_STEP, ISSUED, RETIRED, twice(ROTATED, f'"kid": "{ROOT.kid.hex()}"'))


def test_a_key_that_is_not_pinned_is_told_from_a_file_at_fault() -> None:
    for made in (LOG.prove(), replace(Log(STRANGER).prove(), checkpoint=LOG.checkpoint(ROOT))):
        with pytest.raises(proof.UnknownKeyError):
            proof.verify(made, [(STRANGER if made == LOG.prove() else ROOT).public_key])
    with pytest.raises(proof.ProvesNothingError) as caught:
        proof.verify(replace(GOOD, index=GOOD.index + 1), [ROOT.public_key])
    assert not isinstance(caught.value, proof.UnknownKeyError)


def test_a_key_that_is_not_pinned_signs_nothing_that_counts() -> None:
    proves_nothing(LOG.prove(), "signed by no key that was given", STRANGER.public_key)
    proves_nothing(Log(STRANGER).prove(), "signed by no key that was given")
    other = replace(LOG.prove(), checkpoint=LOG.checkpoint(STRANGER))
    proves_nothing(other, "signed by no key that was given")
    with pytest.raises(ProvesNothingError):
        proof.verify(LOG.prove(), [])


def test_without_a_signed_checkpoint_nothing_is_proved() -> None:
    made = LOG.prove()
    text = note.parse(made.checkpoint).text.encode()
    proves_nothing(replace(made, checkpoint=b""), "no checkpoint")
    proves_nothing(replace(made, checkpoint=b"\n"), "no checkpoint")
    for unsigned in (text, text + b"\n", text[:-1]):
        proves_nothing(replace(made, checkpoint=unsigned), "not signed")
    cut = proof.encode(made).partition(b"\n\n")[0]
    for end in (b"", b"\n"):
        with pytest.raises(ProvesNothingError, match="no checkpoint"):
            proof.verify(proof.parse(cut + end), [ROOT.public_key])


def test_a_checkpoint_whose_signature_is_wrong_proves_nothing() -> None:
    made = LOG.prove()
    other = made.checkpoint.replace(b"\n10\n", b"\n11\n")
    assert other != made.checkpoint
    proves_nothing(replace(made, checkpoint=other), "not that of its key")


def test_an_event_that_was_rolled_back_is_not_proved_by_its_signature() -> None:
    """It is well signed, and another stands at its place in the log."""
    lost = event(ROOT, 6, payload=b'{"paid": true}')
    proves_nothing(replace(LOG.prove(), envelope=lost), "does not lead to the root")


def test_an_event_is_proved_at_its_own_place_alone() -> None:
    made = LOG.prove(6)
    proves_nothing(replace(made, index=6), "is not entry 6")
    proves_nothing(replace(made, envelope=LOG.events[6]), "is not entry 5")
    proves_nothing(replace(made, path=made.path[:-1]), "too short")
    proves_nothing(replace(made, path=(*made.path, bytes(32))), "too long")
    proves_nothing(replace(made, path=()), "too short")


def test_an_event_of_another_chain_is_not_proved() -> None:
    other = uuid.UUID(int=7)
    for origin in (note.origin(DEPLOYMENT, other, 1), note.origin(other, TENANT, 1)):
        proves_nothing(Log(ROOT, origin).prove(), "of another chain")
    proves_nothing(Log(ROOT, "example.com/log").prove(), "not the origin of a tenant's log")


def test_an_event_that_another_key_signed_is_not_proved() -> None:
    """It is in the log, and the log's key counts; the event's does not."""
    made = replace(Log(STRANGER).prove(), checkpoint=Log(STRANGER).checkpoint(ROOT))
    proves_nothing(made, "not signed by a key that counts")
    spoiled = event(ROOT, 1)[:-64] + bytes(64)
    tree = Grown()
    tree.add([merkle.leaf_hash(envelope.digest(spoiled))])
    text = note.checkpoint_text(LOG.origin, 1, merkle.root(tree, 1))
    line = note.log_signature(
        note.log_verifier(LOG.origin, ROOT.public_key), note.signed(text, ROOT.secret_key)
    )
    checkpoint = note.Note(text, (line,)).encode()
    proves_nothing(Proof(0, (), spoiled, (), checkpoint), "signature is not that of its key")


def test_cosignatures_may_be_added() -> None:
    signed = note.parse(GOOD.checkpoint)
    line = note.cosign(signed.text, "w.example", STRANGER.secret_key, 5)
    cosigned = note.with_signatures(signed, [line]).encode()
    made = proof.parse(proof.encode(replace(GOOD, checkpoint=cosigned)))
    proved = proof.verify(made, [ROOT.public_key])
    assert proved.note.signatures == (*signed.signatures, line)


@BOUNDED
@given(st.integers(0, len(proof.encode(GOOD)) * 8 - 1))
def test_a_proof_with_one_bit_flipped_proves_nothing_or_the_same(bit: int) -> None:
    data = bytearray(proof.encode(GOOD))
    data[bit // 8] ^= 1 << bit % 8
    try:
        proved = proof.verify(proof.parse(bytes(data)), [ROOT.public_key])
    except (MalformedError, ProvesNothingError):
        return
    # There is nothing in it that could change and still count.
    raise AssertionError(f"bit {bit} changed, and {proved.event.hash.hex()} was proved")


def changed(change: Callable[[list[str]], object]) -> bytes:
    """Return the proof with its lines changed."""
    lines = proof.encode(GOOD).decode().split("\n")
    change(lines)
    return "\n".join(lines).encode()


def extra(content: bytes) -> str:
    return f"extra {note.encode_base64(content)}"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"c2sp.org/tlog-proof@v1\n", proof.encode(GOOD)[1:], b"\xff" * 80,
        proof.encode(GOOD).replace(b"\n", b"\r\n"),
        changed(lambda lines: lines.__setitem__(0, "c2sp.org/tlog-proof@v2")),
        changed(lambda lines: lines.pop(1)),
        changed(lambda lines: lines.insert(1, lines[1])),
        changed(lambda lines: lines.__setitem__(1, "extra ")),
        changed(lambda lines: lines.__setitem__(1, lines[1] + "=")),
        changed(lambda lines: lines.__setitem__(1, extra(b"\xa0"))),
        changed(lambda lines: lines.__setitem__(1, extra(cbor2.dumps({"keys": []})))),
        changed(lambda lines: lines.__setitem__(1, extra(cbor2.dumps(
            {"envelope": GOOD.envelope, "keys": []})))),
        changed(lambda lines: lines.__setitem__(1, extra(cbor2.dumps(
            {"keys": [], "envelope": GOOD.envelope, "more": 1})))),
        changed(lambda lines: lines.__setitem__(1, extra(cbor2.dumps(
            {"keys": [], "envelope": GOOD.envelope}) + b"\0"))),
        changed(lambda lines: lines.__setitem__(1, extra(b"\xa2\x64keys\x9b" + b"\xff" * 8))),
        changed(lambda lines: lines.pop(2)),
        changed(lambda lines: lines.__setitem__(2, "index 05")),
        changed(lambda lines: lines.__setitem__(2, "index -5")),
        changed(lambda lines: lines.__setitem__(2, "index 5 ")),
        changed(lambda lines: lines.__setitem__(2, f"index {2**63}")),
        changed(lambda lines: lines.__setitem__(3, lines[3][:-1])),
        changed(lambda lines: lines.__setitem__(3, note.encode_base64(bytes(31)))),
        changed(lambda lines: lines.__setitem__(slice(3, 3), [lines[3]] * 63)),
    ],
)  # fmt: skip
def test_what_is_no_proof_file_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        proof.parse(data)


def test_a_file_past_its_limit_is_malformed_before_it_is_taken_apart() -> None:
    start = proof.encode(GOOD).partition(b"\nindex ")[0]
    for data in (
        start + b"\nindex 5\n" + b"x\n" * (4 * 2**20),
        proof.encode(GOOD) + bytes(note.MAX_NOTE_BYTES),
        bytes(proof.MAX_PROOF_BYTES + 1),
    ):
        tracemalloc.start()
        try:
            with pytest.raises(MalformedError):
                proof.parse(data)
            assert tracemalloc.get_traced_memory()[1] < 4 * len(data)
        finally:
            tracemalloc.stop()


def test_contents_that_are_no_event_or_no_checkpoint_are_malformed() -> None:
    for made in (
        replace(GOOD, envelope=b"{}"), replace(GOOD, keys=(b"{}",)),
        replace(GOOD, checkpoint=b"no note\n\n\xe2\x80\x94 x AAAAAAA=\n"),
        replace(GOOD, checkpoint=GOOD.checkpoint[:-5]),
    ):  # fmt: skip
        with pytest.raises(MalformedError):
            proof.verify(proof.parse(proof.encode(made)), [ROOT.public_key])
