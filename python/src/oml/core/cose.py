"""COSE_Sign1 with Ed25519 (RFC 9052, 4.2 and 4.4; RFC 9053, 2.2), in the one shape OML uses.

Tag 18, protected header {alg: EdDSA, content type, kid of 8 bytes}, an empty unprotected header,
an attached payload and a 64-byte signature. No other shape is accepted: no other header, no
detached payload, no untagged or re-ordered form. Whatever decodes is exactly what was signed.
"""

from typing import NamedTuple

from nacl import bindings
from nacl.exceptions import BadSignatureError

from . import cbor

KID_BYTES = 8
SIGNATURE_BYTES = 64
_TAGGED_ARRAY = b"\xd2\x84"
_EMPTY_MAP = b"\xa0"
_SIGNATURE1 = cbor.head(cbor.ARRAY, 4) + cbor.text_string("Signature1")

# Bound when the module loads: code that replaces them later in the same backend does not reach us.
_sign = bindings.crypto_sign
_open = bindings.crypto_sign_open


class Sign1(NamedTuple):
    """The parts of a decoded COSE_Sign1."""

    kid: bytes
    protected: bytes
    payload: bytes
    signature: bytes


def protected_header(content_type: str, kid: bytes) -> bytes:
    """Return the encoded protected header: {1: -8, 3: content_type, 4: kid}."""
    if len(kid) != KID_BYTES:
        raise ValueError(f"a kid has {KID_BYTES} bytes, not {len(kid)}")
    return _header_start(content_type) + cbor.byte_string(kid)


def _header_start(content_type: str) -> bytes:
    return b"\xa3\x01\x27\x03" + cbor.text_string(content_type) + b"\x04"


def to_be_signed(protected: bytes, payload: bytes) -> bytes:
    """Return the Sig_structure (RFC 9052, 4.4) with an empty external_aad."""
    return signed(signed_start(protected), payload)


def signed_start(protected: bytes) -> bytes:
    """Return what all Sig_structures under one protected header begin with."""
    return b"".join((_SIGNATURE1, cbor.byte_string(protected), b"\x40"))


def signed(start: bytes, payload: bytes) -> bytes:
    """Return the Sig_structure of what ``signed_start`` returned and a payload."""
    return b"".join((start, cbor.head(cbor.BYTES, len(payload)), payload))


def signature(protected: bytes, payload: bytes, secret_key: bytes) -> bytes:
    """Sign and return the 64-byte signature alone.

    ``secret_key`` is libsodium's 64 bytes (seed and public key).
    """
    return detached(to_be_signed(protected, payload), secret_key)


def detached(signed: bytes, secret_key: bytes) -> bytes:
    """Sign a Sig_structure and return the 64-byte signature alone."""
    return _sign(signed, secret_key)[:SIGNATURE_BYTES]


def start(protected: bytes) -> bytes:
    """Return what all COSE_Sign1 under one protected header begin with."""
    return b"".join((_TAGGED_ARRAY, cbor.byte_string(protected), _EMPTY_MAP))


def finish(start: bytes, payload: bytes, signature: bytes) -> bytes:
    """Return the COSE_Sign1 bytes of what ``start`` returned, a payload and its signature."""
    return b"".join((start, cbor.head(cbor.BYTES, len(payload)), payload, b"\x58\x40", signature))


def assemble(protected: bytes, payload: bytes, signature: bytes) -> bytes:
    """Return the COSE_Sign1 bytes of these parts."""
    return finish(start(protected), payload, signature)


def sign(protected: bytes, payload: bytes, secret_key: bytes) -> bytes:
    """Return the COSE_Sign1 bytes, signed with libsodium's 64-byte secret key."""
    return assemble(protected, payload, signature(protected, payload, secret_key))


def decode(data: bytes, content_type: str) -> Sign1:
    """Take a COSE_Sign1 apart without verifying it.

    Raises cbor.MalformedError when the bytes are anything but the one accepted shape.
    """
    outer = cbor.Reader(data)
    outer.expect(_TAGGED_ARRAY)
    protected = outer.byte_string()
    outer.expect(_EMPTY_MAP)
    payload = outer.byte_string()
    signature = outer.byte_string()
    outer.end()
    if len(signature) != SIGNATURE_BYTES:
        raise cbor.MalformedError(f"a signature of {len(signature)} bytes")
    header = cbor.Reader(protected)
    header.expect(_header_start(content_type))
    kid = header.byte_string()
    header.end()
    if len(kid) != KID_BYTES:
        raise cbor.MalformedError(f"a kid of {len(kid)} bytes")
    return Sign1(kid, protected, payload, signature)


def verify(message: Sign1, public_key: bytes) -> bool:
    """Tell whether the signature is this key's. ``public_key`` has 32 bytes."""
    return opens(message.signature + to_be_signed(message.protected, message.payload), public_key)


def opens(signed: bytes, public_key: bytes) -> bool:
    """Tell whether 64 bytes of signature, before the Sig_structure they sign, are this key's."""
    try:
        _open(signed, public_key)
    except BadSignatureError:
        return False
    return True
