"""Signed notes (c2sp.org/signed-note), and of them checkpoints (c2sp.org/tlog-checkpoint).

A checkpoint says how large a log is and what its root is. The log signs the note's text with
Ed25519, signature type 0x01. A witness that saw the log grow cosigns it
(c2sp.org/tlog-cosignature): signature type 0x04, over another text, which begins with a line of its
own and has the time in it.

Whatever parses is written back as the same bytes, so nobody is shown another note than was signed.
"""

import base64
import binascii
import hashlib
import re
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from nacl import bindings
from nacl.exceptions import BadSignatureError

ED25519 = 0x01
COSIGNATURE = 0x04
"""Types of signature: a log's of the text itself, a witness' with the time (cosignature/v1)."""

MAX_NOTE_BYTES = 1024 * 1024
MAX_SIGNATURES = 64
MAX_SIGNATURE_BYTES = 8 * 1024
"""A post-quantum signature has up to 5 kB."""
MAX_NAME_CHARACTERS = 512
MAX_EXTENSIONS = 16
MAX_GENERATION = 2**31 - 1

_DASH = "\N{EM DASH} "
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64
_ID_BYTES = 4
_TIME_BYTES = 8
_MAX_UINT = 2**63 - 1
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_ID = re.compile(r"[0-9a-f]{8}")
_ORIGIN = re.compile(r"oml/([0-9a-f-]{36})/([0-9a-f-]{36})/([1-9][0-9]{0,9})")

# Bound when the module loads: see cose.
_sha256 = hashlib.sha256
_b64encode = base64.b64encode
_b64decode = base64.b64decode
_sign = bindings.crypto_sign
_open = bindings.crypto_sign_open


class NoteError(ValueError):
    """The bytes are no such note, checkpoint or key."""


class SignatureError(NoteError):
    """A note bears a signature under a known key's name and id which that key did not make."""


class Signature(NamedTuple):
    """A signature line: the key's name, its 4-byte id, and what follows the id."""

    name: str
    key_id: bytes
    value: bytes

    def line(self) -> str:
        """Return the line, with its newline."""
        return f"{_DASH}{self.name} {encode_base64(self.key_id + self.value)}\n"


class Note(NamedTuple):
    """A text, which ends in a newline, and its signatures. Nothing is verified."""

    text: str
    signatures: tuple[Signature, ...]

    def encode(self) -> bytes:
        """Return the note's bytes."""
        return "".join((self.text, "\n", *(s.line() for s in self.signatures))).encode()


class Checkpoint(NamedTuple):
    """What a checkpoint's text says: ``size`` leaves, ``root`` of 32 bytes."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()


class TreeHead(NamedTuple):
    """What a signer is given to sign of a tenant's log: ``root`` has 32 bytes."""

    deployment_id: uuid.UUID
    tenant_id: uuid.UUID
    generation: int
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The text of its checkpoint. Raises NoteError where there is no such log or size."""
        return checkpoint_text(
            origin(self.deployment_id, self.tenant_id, self.generation), self.size, self.root
        )


class Verifier(NamedTuple):
    """A key that is known: ``kind`` is ED25519 or COSIGNATURE, ``public_key`` has 32 bytes."""

    name: str
    kind: int
    public_key: bytes

    @property
    def key_id(self) -> bytes:
        """The 4-byte id that signatures name it by."""
        seed = self.name.encode() + b"\n" + bytes((self.kind,)) + self.public_key
        return _sha256(seed).digest()[:_ID_BYTES]

    @property
    def vkey(self) -> str:
        """The key as text, as parse_vkey reads it."""
        material = encode_base64(bytes((self.kind,)) + self.public_key)
        return f"{self.name}+{self.key_id.hex()}+{material}"


def log_verifier(origin: str, public_key: bytes) -> Verifier:
    """Return the key of the log of this origin, which is also the key's name."""
    return _verifier(origin, ED25519, public_key)


def witness_verifier(name: str, public_key: bytes) -> Verifier:
    """Return the key of a witness."""
    return _verifier(name, COSIGNATURE, public_key)


def _verifier(name: str, kind: int, public_key: bytes) -> Verifier:
    _require_name(name)
    if kind not in (ED25519, COSIGNATURE):
        raise NoteError(f"keys of type 0x{kind:02x} are not understood")
    if len(public_key) != _KEY_BYTES:
        raise NoteError(f"a public key has {_KEY_BYTES} bytes, not {len(public_key)}")
    return Verifier(name, kind, public_key)


def parse_vkey(text: str) -> Verifier:
    """Read a verifier key: its name, its id in hex and its type and bytes in base64, with +."""
    parts = text.split("+", 2)
    if len(parts) != 3 or not _ID.fullmatch(parts[1]):
        raise NoteError("a verifier key is a name, 8 hex digits and base64, joined by +")
    material = decode_base64(parts[2])
    if not material:
        raise NoteError("a verifier key without a key")
    verifier = _verifier(parts[0], material[0], material[1:])
    if verifier.key_id.hex() != parts[1]:
        raise NoteError(f"the key's id is {verifier.key_id.hex()}, not {parts[1]}")
    return verifier


def origin(deployment_id: uuid.UUID, tenant_id: uuid.UUID, generation: int) -> str:
    """Return the origin of a tenant's log in one of its generations, from 1."""
    if not 0 < generation <= MAX_GENERATION:
        raise NoteError(f"there is no generation {generation}")
    return f"oml/{deployment_id}/{tenant_id}/{generation}"


def parse_origin(text: str) -> tuple[uuid.UUID, uuid.UUID, int]:
    """Return the deployment, the tenant and the generation that an origin names."""
    found = _ORIGIN.fullmatch(text)
    try:
        if found is not None:
            named = uuid.UUID(found[1]), uuid.UUID(found[2]), int(found[3])
            if origin(*named) == text:
                return named
    except ValueError:
        pass
    raise NoteError(f"{text[:200]!r} is not the origin of a tenant's log")


def checkpoint_text(origin: str, size: int, root: bytes) -> str:
    """Return the text of a checkpoint, which is what the log signs."""
    _require_line(origin)
    if not 0 <= size <= _MAX_UINT:
        raise NoteError(f"no log has {size} entries")
    if len(root) != 32:
        raise NoteError(f"a root has 32 bytes, not {len(root)}")
    return f"{origin}\n{size}\n{encode_base64(root)}\n"


def parse(data: bytes) -> Note:
    """Take a note apart. Raises NoteError for anything malformed; verifies nothing."""
    if len(data) > MAX_NOTE_BYTES:
        raise NoteError(f"a note of {len(data)} bytes")
    try:
        whole = data.decode("utf-8")
    except UnicodeDecodeError:
        raise NoteError("the note is not UTF-8") from None
    if _CONTROL.search(whole):
        raise NoteError("the note has a control character")
    text, blank, lines = whole.rpartition("\n\n")
    if not blank or not lines.endswith("\n"):
        raise NoteError("no signature lines follow the note's text")
    return Note(text + "\n", parse_signatures(lines))


def parse_signatures(lines: str) -> tuple[Signature, ...]:
    """Read signature lines, each with its newline. Raises NoteError."""
    *listed, rest = lines.split("\n")
    if rest or not listed:
        raise NoteError("a signature line does not end in a newline")
    if len(listed) > MAX_SIGNATURES:
        raise NoteError(f"{len(listed)} signatures, and {MAX_SIGNATURES} is the limit")
    return tuple(_parse_signature(line) for line in listed)


def _parse_signature(line: str) -> Signature:
    parts = line.split(" ")
    if len(parts) != 3 or parts[0] + " " != _DASH:
        raise NoteError(f"{line[:80]!r} is not a signature line")
    _require_name(parts[1])
    value = decode_base64(parts[2])
    if not _ID_BYTES < len(value) <= _ID_BYTES + MAX_SIGNATURE_BYTES:
        raise NoteError(f"a signature line with {len(value)} bytes")
    return Signature(parts[1], value[:_ID_BYTES], value[_ID_BYTES:])


def parse_checkpoint(data: bytes) -> tuple[Checkpoint, Note]:
    """Read a checkpoint. Raises NoteError for anything malformed; verifies nothing."""
    note = parse(data)
    return read_checkpoint(note.text), note


def read_checkpoint(text: str) -> Checkpoint:
    """Read a checkpoint's text. Raises NoteError."""
    *lines, rest = text.split("\n")
    if rest or len(lines) < 3 or not all(lines) or len(lines) > 3 + MAX_EXTENSIONS:
        raise NoteError("a checkpoint has an origin, a size and a root, one a line")
    for line in lines:
        _require_line(line)
    size, root = lines[1], decode_base64(lines[2])
    if not _DECIMAL.fullmatch(size) or int(size) > _MAX_UINT:
        raise NoteError(f"{size[:80]!r} is not the size of a log")
    if len(root) != 32:
        raise NoteError(f"a root has 32 bytes, not {len(root)}")
    return Checkpoint(lines[0], int(size), root, tuple(lines[3:]))


def log_signature(verifier: Verifier, signature: bytes) -> Signature:
    """Return the signature line of a log's 64-byte Ed25519 signature of a note's text."""
    if verifier.kind != ED25519 or len(signature) != _SIGNATURE_BYTES:
        raise NoteError("not a log's key and signature")
    return Signature(verifier.name, verifier.key_id, signature)


def signed(text: str, secret_key: bytes) -> bytes:
    """Return libsodium's 64-byte signature of a text, by its 64-byte secret key."""
    return _sign(text.encode(), secret_key)[:_SIGNATURE_BYTES]


def is_signed(note: Note, log: Verifier) -> bool:
    """Tell whether a log's key signed the note.

    False: no signature is under its name and id. Raises SignatureError for one that is, and wrong.
    """
    found = _signatures_of(note, log, ED25519)
    for signature in found:
        if not _is_by(log.public_key, signature.value, note.text):
            raise SignatureError(f"the signature of {log.name} is not that of its key")
    return bool(found)


def cosigned_text(text: str, seconds: int) -> str:
    """Return what a witness signs of a checkpoint's text at a time, in seconds since 1970."""
    if not 0 <= seconds <= _MAX_UINT:
        raise NoteError(f"{seconds} is no time of a cosignature")
    return f"cosignature/v1\ntime {seconds}\n{text}"


def cosign(text: str, name: str, secret_key: bytes, seconds: int) -> Signature:
    """Return a witness' cosignature of a checkpoint's text.

    ``secret_key`` is libsodium's 64 bytes (seed and public key), ``seconds`` those since 1970.
    """
    read_checkpoint(text)
    verifier = witness_verifier(name, secret_key[32:])
    value = seconds.to_bytes(_TIME_BYTES, "big") + signed(cosigned_text(text, seconds), secret_key)
    return Signature(name, verifier.key_id, value)


def cosigned_at(note: Note, witness: Verifier) -> int | None:
    """Return the newest time at which a witness cosigned the note, in seconds since 1970.

    None: no cosignature is under its name and id. Raises SignatureError for one that is, and wrong.
    """
    newest = None
    for signature in _signatures_of(note, witness, COSIGNATURE):
        seconds = int.from_bytes(signature.value[:_TIME_BYTES], "big")
        if (
            len(signature.value) != _TIME_BYTES + _SIGNATURE_BYTES
            or seconds > _MAX_UINT
            or not _is_by(
                witness.public_key,
                signature.value[_TIME_BYTES:],
                cosigned_text(note.text, seconds),
            )
        ):
            raise SignatureError(f"the cosignature of {witness.name} is not that of its key")
        newest = seconds if newest is None else max(newest, seconds)
    return newest


def _signatures_of(note: Note, verifier: Verifier, kind: int) -> list[Signature]:
    if verifier.kind != kind:
        raise NoteError(f"the key of {verifier.name} is not of type 0x{kind:02x}")
    known = verifier.name, verifier.key_id
    return [s for s in note.signatures if (s.name, s.key_id) == known]


def _is_by(public_key: bytes, signature: bytes, text: str) -> bool:
    if len(signature) != _SIGNATURE_BYTES:
        return False
    try:
        _open(signature + text.encode(), public_key)
    except BadSignatureError:
        return False
    return True


def encode_base64(content: bytes) -> str:
    """Return standard base64 with padding (RFC 4648, 4)."""
    return _b64encode(content).decode("ascii")


def decode_base64(text: str) -> bytes:
    """Decode what encode_base64 writes, and nothing else. Raises NoteError."""
    try:
        content = _b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        content = None
    if content is None or encode_base64(content) != text:
        raise NoteError(f"{text[:80]!r} is not base64")
    return content


def _require_line(line: str) -> None:
    if not line or "\n" in line or _CONTROL.search(line):
        raise NoteError(f"{line[:80]!r} is not a line of a checkpoint")


def _require_name(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or any(c.isspace() or c == "+" for c in name):
        raise NoteError(f"{name[:80]!r} is not the name of a key")


def with_signatures(note: Note, more: Sequence[Signature]) -> Note:
    """Return the note with further signatures, each once."""
    added = tuple(s for s in dict.fromkeys(more) if s not in note.signatures)
    if len(note.signatures) + len(added) > MAX_SIGNATURES:
        raise NoteError(f"more than {MAX_SIGNATURES} signatures")
    return Note(note.text, note.signatures + added)
