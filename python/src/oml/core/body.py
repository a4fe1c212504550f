"""Bodies: how a submission's parts are encrypted, and what their keys are bound to.

A submission has a fresh data key (DEK) of 32 bytes. Its parts are numbered: 0 is the body, 1, 2, …
are the attachments in order. Each part is encrypted with XChaCha20-Poly1305
(draft-irtf-cfrg-xchacha-03) under that key and a random nonce of 24 bytes, which at that length may
be drawn for any number of parts. The additional data names tenant, artifact, version, part and the
plaintext's digest, so a ciphertext opens nowhere but where it belongs.

The stored bytes are a version byte, the nonce, and the ciphertext with its tag; the ciphertext
digest is the SHA-256 of all of them. The same files serve the database and the driver.
"""

import ctypes
import hashlib
import os
import resource
import uuid
from typing import NamedTuple

from nacl import bindings
from nacl.exceptions import CryptoError

from . import cbor, keys, signer

DEK_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_KEYBYTES
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_ATTACHMENT_BYTES = 1024 * 1024
MAX_ATTACHMENTS = 16
BODY = 0
"""The number of the body among the parts of a submission."""

_VERSION = b"\x01"
_PR_SET_DUMPABLE = 4
_NONCE_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
_TAG_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_ABYTES
OVERHEAD_BYTES = len(_VERSION) + _NONCE_BYTES + _TAG_BYTES
"""By how much the stored bytes of a part are longer than its plaintext."""

# Bound when the module loads: see cose.
_encrypt = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt
_decrypt = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt
_urandom = os.urandom
_sha256 = hashlib.sha256


class Place(NamedTuple):
    """The version of an artifact that a part belongs to. Ids are of 16 bytes."""

    tenant_id: bytes
    artifact_id: bytes
    version: int


class Part(NamedTuple):
    """An encrypted part: SHA-256 of its plaintext, the bytes to store, and their SHA-256."""

    plaintext_digest: bytes
    ciphertext: bytes
    ciphertext_digest: bytes


def kek(tenant_id: bytes, epoch: int) -> str:
    """Return the name of a tenant's key-encryption key of an epoch."""
    return f"{uuid.UUID(bytes=tenant_id)}.{epoch}"


def new_dek() -> tuple[bytes, bytes]:
    """Return a fresh data key's id of 16 bytes, and the key of DEK_BYTES."""
    return uuid.uuid4().bytes, _urandom(DEK_BYTES)


def dek_binding(tenant_id: bytes, artifact_id: bytes, dek_id: bytes) -> bytes:
    """Return the additional data under which a data key is wrapped: it serves one artifact."""
    return cbor.array(
        cbor.text_string("oml-dek-1"),
        *map(cbor.byte_string, (tenant_id, artifact_id, dek_id)),
    )


def seal(dek: bytes, place: Place, part: int, plaintext: bytes) -> Part:
    """Encrypt one part of a version under its data key."""
    known_as = _sha256(plaintext).digest()
    nonce = _urandom(_NONCE_BYTES)
    sealed = _encrypt(plaintext, _binding(place, part, known_as), nonce, dek)
    stored = b"".join((_VERSION, nonce, sealed))
    return Part(known_as, stored, _sha256(stored).digest())


def open_part(
    dek: bytes, place: Place, part: int, plaintext_digest: bytes, ciphertext: bytes
) -> bytes | None:
    """Return the plaintext of one part; None if these bytes are not it.

    They are not if they were changed, belong elsewhere, or hold a plaintext of another digest.
    """
    nonce = ciphertext[len(_VERSION) : len(_VERSION) + _NONCE_BYTES]
    sealed = ciphertext[len(_VERSION) + _NONCE_BYTES :]
    if ciphertext[: len(_VERSION)] != _VERSION or len(sealed) < _TAG_BYTES:
        return None
    try:
        plaintext: bytes = _decrypt(sealed, _binding(place, part, plaintext_digest), nonce, dek)
    except CryptoError:
        return None
    return plaintext if _sha256(plaintext).digest() == plaintext_digest else None


def keep_out_of_core_dumps() -> None:
    """See to it that this process leaves no core dump from now on: it handles plaintext.

    Where dumps go to a program (core(5)), the limit alone does not do: so it is not dumpable either
    (prctl(2)), and no debugger of its own user reads it.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_DUMPABLE): {os.strerror(number)}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def unwrap(
    provider: signer.Signer, place: Place, epoch: int, dek_id: bytes, wrapped: bytes
) -> bytes:
    """Have a data key of this artifact unwrapped, and return it.

    ``epoch`` is that of the tenant's key it is wrapped under, ``dek_id`` has 16 bytes. Raises
    keys.SignerError: the signer's own, and OM099 for what is no data key.
    """
    binding = dek_binding(place.tenant_id, place.artifact_id, dek_id)
    dek = provider.unwrap(kek(place.tenant_id, epoch), wrapped, binding)
    require_dek(dek)
    return dek


def require_dek(dek: bytes) -> None:
    """Insist on a data key's length. Raises keys.SignerError OM099."""
    if len(dek) != DEK_BYTES:
        raise keys.SignerError(
            "OM099", f"what was wrapped is no data key: it has {len(dek)} bytes",
            "Take the wrapped key as oml_data_key() gave it out.",
        )  # fmt: skip


def _binding(place: Place, part: int, plaintext_digest: bytes) -> bytes:
    return cbor.array(
        cbor.text_string("oml-body-1"),
        cbor.byte_string(place.tenant_id),
        cbor.byte_string(place.artifact_id),
        cbor.uint(place.version),
        cbor.uint(part),
        cbor.byte_string(plaintext_digest),
    )
