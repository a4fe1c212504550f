"""Signing keys: Ed25519 in a PKCS#8 PEM file (RFC 8410), as ``openssl genpkey`` writes it."""

import base64
import binascii
import hashlib
import os
import stat
from typing import NamedTuple

from nacl import bindings

_PKCS8_PREFIX = bytes.fromhex("302e020100300506032b657004220420")
_SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")
_BEGIN = "-----BEGIN PRIVATE KEY-----"
_END = "-----END PRIVATE KEY-----"
_MAX_FILE_BYTES = 4096

# Bound when the module loads: see cose.
_sha256 = hashlib.sha256
_seed_keypair = bindings.crypto_sign_seed_keypair


class SignerError(Exception):
    """A signer does not do what was asked. Carries an SQLSTATE of class OM and a hint."""

    def __init__(self, sqlstate: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.hint = hint


class KeyFileError(SignerError):
    """A signing key's file cannot be used."""


class SigningKey(NamedTuple):
    """A key pair: libsodium's 64-byte secret key, the 32-byte public key and its 8-byte kid."""

    secret_key: bytes
    public_key: bytes
    kid: bytes


def kid(public_key: bytes) -> bytes:
    """Return the key id: the first 8 bytes of the public key's SHA-256."""
    return _sha256(public_key).digest()[:8]


def from_seed(seed: bytes) -> SigningKey:
    """Derive the key pair from its 32-byte seed (RFC 8032, 5.1.5)."""
    public_key, secret_key = _seed_keypair(seed)
    return SigningKey(secret_key, public_key, kid(public_key))


def to_pem(seed: bytes) -> str:
    """Return the PKCS#8 PEM text of a 32-byte seed (RFC 8410, 7)."""
    return f"{_BEGIN}\n{base64.b64encode(_PKCS8_PREFIX + seed).decode()}\n{_END}\n"


def public_pem(public_key: bytes) -> str:
    """Return the SubjectPublicKeyInfo PEM text of a public key (RFC 8410, 4)."""
    body = base64.b64encode(_SPKI_PREFIX + public_key).decode()
    return f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"


def generate(path: str, owner_uid: int | None = None, owner_gid: int | None = None) -> bytes:
    """Make a new key file, mode 0600, and return its 32-byte public key.

    The file appears whole or not at all and is never overwritten. ``owner_uid`` and ``owner_gid``
    hand it to another user (root only). Raises FileExistsError, or OSError from the file system.
    """
    seed = os.urandom(32)
    write_new(path, to_pem(seed).encode(), owner_uid, owner_gid)
    return from_seed(seed).public_key


def write_new(
    path: str, content: bytes, owner_uid: int | None = None, owner_gid: int | None = None
) -> None:
    """Make a file of mode 0600, whole or not at all and on disk before it returns.

    Raises FileExistsError, or OSError from the file system.
    """
    partial = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.new"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            if owner_uid is not None:
                os.fchown(file.fileno(), owner_uid, -1 if owner_gid is None else owner_gid)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)
    finally:
        os.unlink(partial)
    sync_directory(os.path.dirname(os.path.abspath(path)))


def sync_directory(path: str) -> None:
    """Write a directory's entries to disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(path: str, forbidden_directory: str | None = None) -> tuple[SigningKey, os.stat_result]:
    """Read a key file that only its owner, this process's user, can read.

    ``forbidden_directory`` is a tree the key must not lie in (the data directory, which base
    backups copy). Returns the key and the file's status, by which a cached key can be checked.
    Raises KeyFileError: OM030 missing, OM031 unreadable, OM032 open to others, OM033 not a key,
    OM035 inside the forbidden directory.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise KeyFileError(
            "OM030",
            f"signing key {path} does not exist",
            "Put the deployment's key back. Before genesis, create one as the server's OS user: "
            f"oml keys generate --out {path}",
        ) from None
    except OSError as error:
        raise KeyFileError(
            "OM031",
            f"signing key {path} cannot be read: {error.strerror}",
            "The file and its directories must be readable by the server's OS user.",
        ) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise KeyFileError("OM033", f"signing key {path} is not a regular file", _FORMAT_HINT)
    with os.fdopen(descriptor, "rb") as file:
        if status.st_mode & 0o077 or status.st_uid != os.geteuid():
            raise KeyFileError(
                "OM032",
                f"signing key {path} is open to others: "
                f"mode {stat.S_IMODE(status.st_mode):04o}, owner uid {status.st_uid}",
                "chmod 600, and run as its owner, or chown it to "
                f"uid {os.geteuid()}, who reads it now.",
            )
        if forbidden_directory is not None and inside(path, forbidden_directory):
            raise KeyFileError(
                "OM035",
                f"signing key {path} lies inside the data directory",
                "Base backups copy the data directory: keep the key elsewhere.",
            )
        text = file.read(_MAX_FILE_BYTES)
    return _parse(path, text), status


_FORMAT_HINT = (
    "An Ed25519 private key in PKCS#8 PEM belongs there, "
    "as oml keys generate or openssl genpkey -algorithm ed25519 writes it."
)


def inside(path: str, directory: str) -> bool:
    """Whether a path leads into a directory, by whatever way."""
    real, root = os.path.realpath(path), os.path.realpath(directory)
    return os.path.commonpath((real, root)) == root


def _parse(path: str, text: bytes) -> SigningKey:
    lines = [line.strip() for line in text.decode("ascii", "replace").splitlines()]
    lines = [line for line in lines if line]
    if len(lines) >= 3 and lines[0] == _BEGIN and lines[-1] == _END:
        try:
            der = base64.b64decode("".join(lines[1:-1]), validate=True)
        except binascii.Error:
            der = b""
        if der.startswith(_PKCS8_PREFIX) and len(der) == len(_PKCS8_PREFIX) + 32:
            return from_seed(der[len(_PKCS8_PREFIX) :])
    raise KeyFileError("OM033", f"{path} does not hold an Ed25519 private key", _FORMAT_HINT)
