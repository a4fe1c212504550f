"""Seal an event inside the database process: the one Python step of an append.

The key is read once a backend and again whenever the file behind it changes, so replacing or
removing a key, or opening it to others, takes effect at the next append.
"""

import os
from typing import Any

from . import cose, envelope, keys

_loaded: dict[str, tuple[tuple[int, ...], keys.SigningKey, bytes]] = {}


def signing_key(signer: str, data_directory: str | None) -> tuple[keys.SigningKey, bytes]:
    """Return the key a ``file:`` signer names and its encoded protected header.

    Raises keys.KeyFileError (see keys.load), OM036 for a provider that is not known.
    """
    provider, _, path = signer.partition(":")
    if provider != "file" or not os.path.isabs(path):
        raise keys.KeyFileError(
            "OM036",
            f"signer {signer!r} is not understood",
            "Use file: and an absolute path, for example file:/etc/oml/signing.key.",
        )
    known = _loaded.get(path)
    if known is not None:
        try:
            if _identity(os.stat(path)) == known[0]:
                return known[1], known[2]
        except OSError:
            pass
        del _loaded[path]
    key, status = keys.load(path, data_directory)
    protected = cose.protected_header(envelope.CONTENT_TYPE, key.kid)
    _loaded[path] = (_identity(status), key, protected)
    return key, protected


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev, status.st_ino, status.st_mode, status.st_uid,
        status.st_size, status.st_mtime_ns, status.st_ctime_ns,
    )  # fmt: skip


def seal(key: keys.SigningKey, protected: bytes, values: tuple[Any, ...]) -> tuple[bytes, bytes]:
    """Encode, sign and hash one event. ``values`` follow envelope.FIELDS.

    Returns the exact envelope bytes and their SHA-256.
    """
    data = cose.sign(protected, envelope.encode_map(values), key.secret_key)
    return data, envelope.digest(data)
