"""What a writer signs of a submission with a key of its own.

A COSE_Sign1 (RFC 9052) with Ed25519, content type ``application/oml-submission+cbor`` and the
writer key's kid. Its payload is a deterministic CBOR map with short text keys, in encoded order:
t tenant, v this format's version, aa an array of one [plaintext digest, ciphertext digest, name,
media type] an attachment, ar artifact, cd the body's ciphertext digest, mt its media type, pd its
plaintext digest, vn version of the artifact. There is one encoding of each submission, so a
signature is verified by making the payload again, and nothing is decoded.
"""

from collections.abc import Sequence
from typing import NamedTuple

from . import body, cbor, cose

CONTENT_TYPE = "application/oml-submission+cbor"
VERSION = 1
MAX_ENVELOPE_BYTES = 16 * 1024


class Signed(NamedTuple):
    """A part as a writer signs it. Digests are of 32 bytes; the body has no name."""

    plaintext_digest: bytes
    ciphertext_digest: bytes
    media_type: str
    name: str = ""


def payload(place: body.Place, parts: Sequence[Signed]) -> bytes:
    """Return what is signed of a submission: its body, and its attachments in order."""
    first, *attachments = parts
    text, data = cbor.text_string, cbor.byte_string
    fields = (
        text("t"), data(place.tenant_id),
        text("v"), cbor.uint(VERSION),
        text("aa"), cbor.array(*(
            cbor.array(
                data(a.plaintext_digest), data(a.ciphertext_digest),
                text(a.name), text(a.media_type),
            )
            for a in attachments
        )),
        text("ar"), data(place.artifact_id),
        text("cd"), data(first.ciphertext_digest),
        text("mt"), text(first.media_type),
        text("pd"), data(first.plaintext_digest),
        text("vn"), cbor.uint(place.version),
    )  # fmt: skip
    return cbor.head(cbor.MAP, len(fields) // 2) + b"".join(fields)


def sign(kid: bytes, secret_key: bytes, place: body.Place, parts: Sequence[Signed]) -> bytes:
    """Return the COSE_Sign1 bytes, signed with libsodium's 64-byte secret key."""
    return cose.sign(cose.protected_header(CONTENT_TYPE, kid), payload(place, parts), secret_key)


def kid(envelope: bytes) -> bytes | None:
    """Return the kid that an envelope names; None if it is no such envelope."""
    if len(envelope) > MAX_ENVELOPE_BYTES:
        return None
    try:
        return cose.decode(envelope, CONTENT_TYPE).kid
    except cbor.MalformedError:
        return None


def is_signed(
    envelope: bytes, public_key: bytes, place: body.Place, parts: Sequence[Signed]
) -> bool:
    """Tell whether an envelope is this key's signature of just this submission.

    ``public_key`` has 32 bytes. The kid is the caller's to compare.
    """
    try:
        sign1 = cose.decode(envelope, CONTENT_TYPE)
    except cbor.MalformedError:
        return False
    return sign1.payload == payload(place, parts) and cose.verify(sign1, public_key)
