"""Proof files: that an event is in a published log, for whoever has nothing but a key (tlog-proof).

The text form is c2sp.org/tlog-proof@v1. Its ``extra`` is a deterministic CBOR map with the event's
envelope, and with those of the provider chain that lead from a key the verifier knows to the keys
that signed. None of it is believed because it is there: each is verified before it counts.

A key counts once it came into force. That a key was issued shows nothing: an operator may issue
one, and roll it back with the envelope in hand. So three events show each step: the ``key.issued``
that names the successor's public key, the last ``key.retired`` in which the key before hands over
to it, and the ``key.rotated`` right behind, in which it takes over.

An event's own signature does not show that it was ever committed: it is signed before that, and
the transaction may be rolled back. What shows it is the checkpoint that it is in.
"""

import json
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import cbor, chain, cose, envelope, keys, merkle, note

MAX_PROOF_BYTES = 16 * 1024 * 1024
"""An event has little more than 1 MiB, a handing over of 400 chains 60 kB."""
MAX_KEYS = 4096

_MAGIC = "c2sp.org/tlog-proof@v1"
_MAX_PATH = 63
_EXTRA = "extra "
_INDEX = re.compile(r"index (0|[1-9][0-9]{0,18})")


class MalformedError(ValueError):
    """The bytes are not a proof file of ours."""


class ProvesNothingError(ValueError):
    """The file is well formed, and does not prove that the event is in a log that counts."""


class UnknownKeyError(ProvesNothingError):
    """It may prove something to whoever knows other keys: none of those given counts for it."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a proof file holds.

    ``path`` is the inclusion proof of entry ``index``, ``keys`` three envelopes for each key that
    took over, in order, ``checkpoint`` the note's bytes, none where there is no checkpoint.
    """

    index: int
    path: tuple[bytes, ...]
    envelope: bytes
    keys: tuple[bytes, ...]
    checkpoint: bytes


class Proved(NamedTuple):
    """What was proved: the event, and the checkpoint of the log that it is in."""

    event: envelope.Envelope
    checkpoint: note.Checkpoint
    note: note.Note
    deployment_id: uuid.UUID
    tenant_id: uuid.UUID
    generation: int
    key: bytes
    """The 32-byte public key that signed the checkpoint."""


def encode(proof: Proof) -> bytes:
    """Return the proof as a file."""
    lines = [
        _MAGIC,
        _EXTRA + note.encode_base64(_extra(proof.envelope, proof.keys)),
        f"index {proof.index}",
        *map(note.encode_base64, proof.path),
        "",
        "",
    ]
    return "\n".join(lines).encode() + proof.checkpoint


def _extra(data: bytes, handovers: Sequence[bytes]) -> bytes:
    # Encoded keys in bytewise order (RFC 8949, 4.2.1): the shorter comes first.
    return b"".join(
        (
            cbor.head(cbor.MAP, 2),
            cbor.text_string("keys"),
            cbor.head(cbor.ARRAY, len(handovers)),
            *map(cbor.byte_string, handovers),
            cbor.text_string("envelope"),
            cbor.byte_string(data),
        )
    )


def parse(data: bytes) -> Proof:
    """Take a proof file apart. Raises MalformedError; verifies nothing."""
    if len(data) > MAX_PROOF_BYTES:
        raise MalformedError(f"a proof of {len(data)} bytes")
    head, _, checkpoint = data.partition(b"\n\n")
    if len(checkpoint) > note.MAX_NOTE_BYTES:
        raise MalformedError(f"a checkpoint of {len(checkpoint)} bytes")
    try:
        lines = head.decode("ascii").removesuffix("\n").split("\n", _MAX_PATH + 3)
    except UnicodeDecodeError:
        raise MalformedError("the proof is not text") from None
    if lines[0] != _MAGIC:
        raise MalformedError(f"its first line is not {_MAGIC}")
    if len(lines) < 2 or not lines[1].startswith(_EXTRA):
        raise MalformedError("no extra line with the event follows the first")
    index = _INDEX.fullmatch(lines[2]) if len(lines) > 2 else None
    if index is None or int(index[1]) > merkle.MAX_SIZE:
        raise MalformedError("no index line follows the extra line")
    if len(lines) - 3 > _MAX_PATH:
        raise MalformedError(f"an inclusion proof of more than {_MAX_PATH} hashes")
    try:
        extra = note.decode_base64(lines[1][len(_EXTRA) :])
        path = tuple(note.decode_base64(line) for line in lines[3:])
    except note.NoteError as error:
        raise MalformedError(str(error)) from None
    if any(len(one) != merkle.HASH_BYTES for one in path):
        raise MalformedError(f"a hash of the proof does not have {merkle.HASH_BYTES} bytes")
    try:
        event, handovers = _read_extra(extra)
    except cbor.MalformedError as error:
        raise MalformedError(f"the extra line does not hold an event: {error}") from None
    return Proof(int(index[1]), path, event, handovers, checkpoint)


def _read_extra(extra: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    reader = cbor.Reader(extra)
    reader.expect(cbor.head(cbor.MAP, 2) + cbor.text_string("keys"))
    count = reader.head(cbor.ARRAY)
    if count > MAX_KEYS:
        raise cbor.MalformedError(f"{count} keys")
    handovers = tuple(reader.byte_string() for _ in range(count))
    reader.expect(cbor.text_string("envelope"))
    data = reader.byte_string()
    reader.end()
    return data, handovers


def verify(proof: Proof, pinned: Iterable[bytes]) -> Proved:
    """Insist that the event is in a log whose checkpoint was signed by a key that counts.

    ``pinned`` are 32-byte public keys that the caller knows from elsewhere; a key counts too that
    took over from one that counts, as the envelopes in ``keys`` show.
    Raises ProvesNothingError, of which UnknownKeyError where other keys might count, and
    MalformedError for contents that are no such thing.
    """
    checkpoint, signed = _checkpoint(proof.checkpoint)
    try:
        deployment, tenant, generation = note.parse_origin(checkpoint.origin)
    except note.NoteError as error:
        raise ProvesNothingError(str(error)) from None
    ring = _Keys(pinned, deployment)
    trusted = ring.trusted
    try:
        for data in proof.keys:
            ring.take(envelope.decode(data))
        event = envelope.decode(proof.envelope)
    except cbor.MalformedError as error:
        raise MalformedError(f"the extra line holds what is no event: {error}") from None
    key = _signer(signed, checkpoint.origin, trusted)
    place = (event.fields["deployment_id"], event.fields["tenant_id"])
    if place != (deployment.bytes, tenant.bytes):
        raise ProvesNothingError("the event is of another chain than the checkpoint")
    if event.fields["seq"] != proof.index + 1:
        raise ProvesNothingError(
            f"event number {event.fields['seq']} of a chain is not entry {proof.index} of its log"
        )
    signer = trusted.get(event.kid)
    if signer is None:
        raise UnknownKeyError(f"the event is not signed by a key that counts: {event.kid.hex()}")
    if not cose.verify(event.sign1, signer):
        raise ProvesNothingError(f"the event's signature is not that of its key {event.kid.hex()}")
    leaf = merkle.leaf_hash(event.hash)
    try:
        merkle.verify_inclusion(proof.index, checkpoint.size, leaf, proof.path, checkpoint.root)
    except merkle.ProofError as error:
        raise ProvesNothingError(str(error)) from None
    return Proved(event, checkpoint, signed, deployment, tenant, generation, key)


def _checkpoint(data: bytes) -> tuple[note.Checkpoint, note.Note]:
    if not data.strip():
        raise ProvesNothingError(
            "it has no checkpoint, and nothing else shows that it was committed"
        )
    try:
        return note.parse_checkpoint(data)
    except note.NoteError as error:
        try:
            note.read_checkpoint(data.decode().removesuffix("\n\n").removesuffix("\n") + "\n")
        except ValueError:
            raise MalformedError(f"its checkpoint is malformed: {error}") from None
    raise ProvesNothingError("its checkpoint is not signed")


def _signer(signed: note.Note, origin: str, trusted: dict[bytes, bytes]) -> bytes:
    try:
        for key in trusted.values():
            if note.is_signed(signed, note.log_verifier(origin, key)):
                return key
    except note.NoteError as error:
        raise ProvesNothingError(str(error)) from None
    raise UnknownKeyError(
        "its checkpoint is signed by no key that was given, nor by one that took over from it"
    )


class _Keys:
    """The keys that count: pinned, or in force after one that counts."""

    def __init__(self, pinned: Iterable[bytes], deployment: uuid.UUID) -> None:
        self.trusted = {keys.kid(key): key for key in pinned}
        self._provider = (deployment.bytes, deployment.bytes)
        self._issued: dict[bytes, bytes] = {}
        self._retired: envelope.Envelope | None = None  # the last page, signed by one that counts

    def take(self, event: envelope.Envelope) -> None:
        """Take in what the next event of the provider chain shows. Another is passed over."""
        fields = event.fields
        signers = self._issued if fields["type"] == "key.rotated" else self.trusted
        signer = signers.get(event.kid)
        if (
            signer is None
            or (fields["deployment_id"], fields["tenant_id"]) != self._provider
            or not cose.verify(event.sign1, signer)
        ):
            return
        said = _object(fields["payload"])
        if fields["type"] == "key.issued" and said.get("purpose") == "signing":
            key = chain.issued_key(fields["payload"])
            if key is not None:
                self._issued.setdefault(keys.kid(key), key)
        elif fields["type"] == "key.retired":
            own = (said.get("kid"), said.get("purpose")) == (event.kid.hex(), "signing")
            last = type(said.get("page")) is int and said["page"] == said.get("pages")
            self._retired = event if own and last else None
        elif fields["type"] == "key.rotated" and self._follows(event, said):
            self.trusted.setdefault(event.kid, signer)

    def _follows(self, rotated: envelope.Envelope, said: dict[str, Any]) -> bool:
        """Tell whether a key.rotated stands right behind the key.retired that names its signer."""
        retired = self._retired
        if retired is None:
            return False
        successor = _object(retired.fields["payload"]).get("successor")
        taken = (said.get("kid"), said.get("predecessor"))
        return (
            successor == rotated.kid.hex()
            and taken == (rotated.kid.hex(), retired.kid.hex())
            and rotated.fields["seq"] == retired.fields["seq"] + 1
            and rotated.fields["prev_hash"] == retired.hash
        )


def _object(payload: bytes) -> dict[str, Any]:
    """Return the JSON object of a payload, empty for anything else and for one with a name twice.

    Of a name given twice every reader takes the one it likes.
    """
    try:
        value = json.loads(payload, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found
