"""The event envelope: what is signed, field by field.

The payload of the COSE_Sign1 is a deterministic CBOR map (RFC 8949, 4.2.1) with short text keys.
An absent field is left out, never encoded as null. ``FIELDS`` is the one declaration: the encoder,
the decoder, the verifier's column check and the reference docs all follow it.
"""

import hashlib
import os
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from . import cbor, cose

CONTENT_TYPE = "application/oml-event+cbor"
VERSION = 1
GENESIS_PREV = bytes(32)
MAX_ENVELOPE_BYTES = 16 * 1024 * 1024

_sha256 = hashlib.sha256
_KIND = Literal["uint", "bytes", "text"]


class Field(NamedTuple):
    """One entry of the map: its key, the journal column it is projected to, and its shape."""

    key: str
    column: str
    kind: _KIND
    size: int | None
    required: bool
    doc: str


# In encoded order: shorter keys first, then bytewise. A test holds this against cbor2.
FIELDS: tuple[Field, ...] = (
    Field("d", "deployment_id", "bytes", 16, True, "deployment, as the UUID of its provider chain"),
    Field("n", "seq", "uint", None, True, "chain seq, from 1 without gaps"),
    Field("p", "prev_hash", "bytes", 32, True, "hash of the previous envelope; zeros at genesis"),
    Field("t", "tenant_id", "bytes", 16, True, "tenant UUID"),
    Field("v", "version", "uint", None, True, "envelope version"),
    Field("ar", "artifact_id", "bytes", 16, False, "artifact UUID"),
    Field("at", "occurred_at", "uint", None, True, "microseconds since 1970-01-01T00:00:00Z"),
    Field("au", "authorization", "text", None, True, "what allowed the act, proved by the session"),
    Field("av", "app_version", "text", None, False, "the application's version, as it claims"),
    Field("cb", "caused_by", "bytes", 16, False, "event id of the cause, as the caller claims"),
    Field("cd", "ciphertext_digest", "bytes", 32, False, "SHA-256 of the stored ciphertext"),
    Field("dk", "dek_id", "bytes", 16, False, "data key that seals the payload, if sealed"),
    Field("ei", "entity_id", "text", None, False, "entity the event is about, as claimed"),
    Field("et", "entity_type", "text", None, False, "type of that entity, as claimed"),
    Field("id", "event_id", "bytes", 16, True, "event id, a UUIDv7"),
    Field("im", "impersonation", "text", None, False, "impersonation session and its reason"),
    Field("iv", "invocation_id", "text", None, False, "call the event belonged to, as claimed"),
    Field("op", "operation", "text", None, False, "operation that made the event, as claimed"),
    Field("pc", "pii_class", "text", None, True, "class of personal data, from the catalogue"),
    Field("pd", "plaintext_digest", "bytes", 32, False, "SHA-256 of the plaintext body"),
    Field(
        "pl", "payload", "bytes", None, True, "the payload's exact bytes: UTF-8 JSON or ciphertext"
    ),
    Field("pr", "principal", "text", None, True, "who acts, proved by the session"),
    Field("sc", "synchronous_commit", "text", None, True, "synchronous_commit at the append"),
    Field("su", "subject_id", "text", None, False, "data subject, as claimed"),
    Field("sv", "schema_version", "uint", None, True, "schema version of the type"),
    Field("ty", "type", "text", None, True, "event type"),
    Field("vn", "artifact_version", "uint", None, False, "version of that artifact"),
    Field("wr", "writer", "text", None, True, "login or key that wrote, proved by the session"),
)

_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "uint": cbor.uint,
    "bytes": cbor.byte_string,
    "text": cbor.text_string,
}
_PLAN = tuple((cbor.text_string(f.key), _ENCODERS[f.kind], f.required) for f in FIELDS)
_ITEMS = {f.column: plan[:2] for f, plan in zip(FIELDS, _PLAN, strict=True)}
_BY_KEY = {f.key: f for f in FIELDS}
_REQUIRED = frozenset(f.key for f in FIELDS if f.required)


class Envelope(NamedTuple):
    """A decoded envelope. ``fields`` maps column names to values; absent fields are missing."""

    kid: bytes
    hash: bytes
    fields: dict[str, Any]
    sign1: cose.Sign1


def encode_map(values: tuple[Any, ...]) -> bytes:
    """Encode one value a field, in the order of FIELDS; None leaves the field out.

    Byte fields take bytes, text fields str, unsigned fields int. Raises OverflowError or
    UnicodeEncodeError on a value CBOR cannot hold, ValueError where a required one is missing.
    """
    parts = [b""]
    count = 0
    for (key, encode, required), value in zip(_PLAN, values, strict=True):
        if value is not None:
            parts += (key, encode(value))
            count += 1
        elif required:
            raise ValueError(f"the required field {key[1:].decode()} has no value")
    parts[0] = cbor.head(cbor.MAP, count)
    return b"".join(parts)


def item(column: str, value: Any) -> bytes:
    """Encode one field of the map, key and value; nothing for None. Raises as encode_map does."""
    if value is None:
        return b""
    key, encode = _ITEMS[column]
    return key + encode(value)


def decode_map(data: bytes) -> dict[str, Any]:
    """Decode the payload map into {column: value}.

    Accepts known keys in strictly ascending encoded order, fixed sizes where FIELDS names one,
    every required field and this envelope version. Raises cbor.MalformedError otherwise.
    """
    reader = cbor.Reader(data)
    values: dict[str, Any] = {}
    seen = []
    last = b""
    for _ in range(reader.head(cbor.MAP)):
        start = reader.at
        key = reader.text_string()
        encoded = data[start : reader.at]
        if encoded <= last:
            raise cbor.MalformedError(f"key {key!r} is repeated or out of order")
        last = encoded
        field = _BY_KEY.get(key)
        if field is None:
            raise cbor.MalformedError(f"unknown key {key!r}")
        value: Any
        if field.kind == "uint":
            value = reader.head(cbor.UINT)
        elif field.kind == "bytes":
            value = reader.byte_string()
            if field.size is not None and len(value) != field.size:
                raise cbor.MalformedError(f"{field.column} has {len(value)} bytes")
        else:
            value = reader.text_string()
        values[field.column] = value
        seen.append(key)
    reader.end()
    missing = _REQUIRED.difference(seen)
    if missing:
        raise cbor.MalformedError(f"required keys are missing: {', '.join(sorted(missing))}")
    if values["version"] != VERSION:
        raise cbor.MalformedError(f"envelope version {values['version']} is not known here")
    return values


def decode(data: bytes) -> Envelope:
    """Decode the exact bytes of an envelope, without verifying its signature.

    Raises cbor.MalformedError for anything that would not re-encode to the same bytes.
    """
    if len(data) > MAX_ENVELOPE_BYTES:
        raise cbor.MalformedError(f"an envelope of {len(data)} bytes")
    sign1 = cose.decode(data, CONTENT_TYPE)
    return Envelope(sign1.kid, _sha256(data).digest(), decode_map(sign1.payload), sign1)


def encode(fields: dict[str, Any], kid: bytes, secret_key: bytes) -> bytes:
    """Sign a {column: value} mapping and return the exact envelope bytes."""
    values = tuple(fields.get(f.column) for f in FIELDS)
    return cose.sign(cose.protected_header(CONTENT_TYPE, kid), encode_map(values), secret_key)


def digest(data: bytes) -> bytes:
    """Return the hash that links envelopes: SHA-256 of the exact COSE_Sign1 bytes."""
    return _sha256(data).digest()


def uuid7(unix_ms: int) -> bytes:
    """Return a fresh time-ordered event id (RFC 9562, 5.7) as 16 bytes."""
    raw = bytearray(unix_ms.to_bytes(6, "big") + os.urandom(10))
    raw[6] = (raw[6] & 0x0F) | 0x70
    raw[8] = (raw[8] & 0x3F) | 0x80
    return bytes(raw)


def now_us() -> int:
    """Return the wall clock in whole microseconds, which is what timestamptz can store."""
    return time.time_ns() // 1000
