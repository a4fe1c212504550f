"""Signers: who signs an event and wraps a data key, and how they are reached.

One interface, ``Signer``. Here are the two that a database process may use: a key file of its own
(``file:``) and omld behind a Unix socket (``unix:``). Nobody is ever given the bytes to be signed
as such: a signer makes them itself, so that a signature of its keys is never anything but that of
an event or of a checkpoint. Of an event it signs the Sig_structure around the payload, under the
protected header of an OML event; of a checkpoint the text of that tree head. Neither can be taken
for the other: a Sig_structure begins with 0x84, and no text in UTF-8 begins with that byte.
"""

import contextlib
import hashlib
import operator
import os
import re
import socket
import stat
import threading
import time
import uuid
from typing import Protocol

from nacl import bindings
from nacl.exceptions import CryptoError

from . import cose, envelope, keys, note, wire

DEADLINE_S = 1.5
"""Seconds that a call to omld may take, with everything it does. PostgreSQL's statement_timeout
does not interrupt Python that waits, so nothing else would end it."""
BATCH_DEADLINE_S = 60.0
"""Seconds that signing a batch's events of one chain may take, all together."""

# Bound when the module loads: see cose.
_encrypt = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt
_decrypt = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt
_urandom = os.urandom
_clock = time.monotonic
_sha256 = hashlib.sha256

_NONCE_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
_TAG_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_ABYTES
_KEK_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_KEYBYTES
_WRAP_VERSION = b"\x01"
_WRAP_DOMAIN = b"oml-kek-1"
_KEK = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[.](0|[1-9][0-9]{0,8})")
_MOST_KEKS = 64  # that are kept in memory
_BUSY_PAUSE_S = 0.005
_LOOK_S = 0.1


class Signer(Protocol):
    """What every provider does. All raise keys.SignerError."""

    def sign(self, kid: bytes, payload: bytes) -> bytes:
        """Return the 64-byte Ed25519 signature of an event by the key of this 8-byte kid.

        ``payload`` is the event's CBOR map. Signed is the Sig_structure (RFC 9052, 4.4) with OML's
        protected header.
        """
        ...

    def sign_checkpoint(self, kid: bytes, head: note.TreeHead) -> bytes:
        """Return the 64-byte Ed25519 signature of a log's checkpoint by the key of this kid.

        Signed is ``head.text``. Raises note.NoteError too, for a head that has none.
        """
        ...

    def wrap(self, kek: str, plaintext: bytes, aad: bytes, *, create: bool) -> bytes:
        """Encrypt a data key under a key-encryption key.

        ``kek`` is a tenant's UUID, a dot and the number of an epoch. ``aad`` is authenticated with
        it, and unwrap must be given the same. Both have at most wire.MAX_SECRET_BYTES.

        With ``create`` a KEK that is not there is made: for whoever knows that nothing is wrapped
        under it. Without, that raises OM098: it is lost, and a new one of its name would be taken
        for it.
        """
        ...

    def unwrap(self, kek: str, wrapped: bytes, aad: bytes) -> bytes:
        """Return what was wrapped under this KEK with this additional data."""
        ...

    def public_keys(self) -> dict[bytes, bytes]:
        """Return {kid: 32-byte public key} of the signing keys it holds."""
        ...


def require_kek(kek: str, content: bytes, aad: bytes) -> None:
    """Insist on the name of a KEK, and on sizes. Raises keys.SignerError."""
    if not _KEK.fullmatch(kek):
        raise keys.SignerError(
            "OM096",
            f"{kek[:80]!r} names no key-encryption key",
            "A name is a tenant's UUID in lower case, a dot and the number of an epoch.",
        )
    longest = wire.MAX_SECRET_BYTES
    if len(content) > longest or len(aad) > longest:
        raise keys.SignerError(
            "OM097",
            f"{len(content)} bytes with {len(aad)} of additional data cannot be wrapped",
            f"At most {longest} each: wrap a key, and encrypt the rest with it.",
        )


def kek_missing(kek: str) -> keys.SignerError:
    """Return the error of a signer that does not hold a KEK under which something is wrapped."""
    return keys.SignerError(
        "OM098",
        f"the signer holds no key-encryption key {kek}",
        "Put it back from a copy; no other is made in its place. If its epoch was destroyed, what "
        "it wrapped is gone for good.",
    )


def not_unwrapped(kek: str) -> keys.SignerError:
    """Return the error of bytes that are not what this KEK made with this additional data."""
    return keys.SignerError(
        "OM099",
        f"what was given is not wrapped under {kek} with this additional data",
        "Either of the three is another than when it was wrapped, or the bytes are damaged.",
    )


class FileSigner:
    """A signing key in a file, with KEKs in the directory ``kek`` beside it.

    A key is read once and again whenever the file behind it changes, so replacing or removing a
    key, or opening it to others, takes effect at the next event. ``forbidden_directory`` is a tree
    that the files must not lie in.
    """

    def __init__(self, path: str, forbidden_directory: str | None = None) -> None:
        self._path = path
        self._forbidden = forbidden_directory
        self._known: tuple[tuple[int, ...], keys.SigningKey, bytes] | None = None
        self._keks: dict[str, _Kek] = {}
        self._making = threading.Lock()

    def _key(self) -> tuple[keys.SigningKey, bytes]:
        """Return the key, and what the Sig_structures begin with that it signs."""
        known = self._known
        if known is not None:
            try:
                if _identity(os.stat(self._path)) == known[0]:
                    return known[1], known[2]
            except OSError:
                pass
            self._known = None
        key, status = keys.load(self._path, self._forbidden)
        start = cose.signed_start(cose.protected_header(envelope.CONTENT_TYPE, key.kid))
        self._known = (_identity(status), key, start)
        return key, start

    def sign(self, kid: bytes, payload: bytes) -> bytes:
        """See Signer. Raises keys.KeyFileError (see keys.load), OM034 for another key."""
        key, start = self._asked_for(kid)
        return cose.detached(cose.signed(start, payload), key.secret_key)

    def sign_checkpoint(self, kid: bytes, head: note.TreeHead) -> bytes:
        """See Signer. Raises as sign does."""
        return note.signed(head.text, self._asked_for(kid)[0].secret_key)

    def _asked_for(self, kid: bytes) -> tuple[keys.SigningKey, bytes]:
        known = self._key()
        if known[0].kid != kid:
            raise other_key(f"file:{self._path}", [known[0].kid], kid)
        return known

    def public_keys(self) -> dict[bytes, bytes]:
        """See Signer. Raises keys.KeyFileError (see keys.load)."""
        key, _ = self._key()
        return {key.kid: key.public_key}

    def wrap(self, kek: str, plaintext: bytes, aad: bytes, *, create: bool) -> bytes:
        """See Signer. XChaCha20-Poly1305: a version byte, the nonce, the ciphertext and its tag."""
        require_kek(kek, plaintext, aad)
        try:
            secret = self._kek(kek)
        except FileNotFoundError:
            if not create:
                raise kek_missing(kek) from None
            secret = self._make_kek(kek)
        nonce = _urandom(_NONCE_BYTES)
        return _WRAP_VERSION + nonce + _encrypt(plaintext, _bound(kek, aad), nonce, secret)

    def unwrap(self, kek: str, wrapped: bytes, aad: bytes) -> bytes:
        """See Signer. Raises OM098 for a KEK that is not there, OM099 for other bytes."""
        require_kek(kek, b"", aad)
        try:
            secret = self._kek(kek)
        except FileNotFoundError:
            raise kek_missing(kek) from None
        nonce, sealed = wrapped[1 : 1 + _NONCE_BYTES], wrapped[1 + _NONCE_BYTES :]
        if wrapped[:1] != _WRAP_VERSION or len(sealed) < _TAG_BYTES:
            raise not_unwrapped(kek)
        try:
            return _decrypt(sealed, _bound(kek, aad), nonce, secret)
        except CryptoError:
            raise not_unwrapped(kek) from None

    def _kek_path(self, kek: str) -> str:
        return os.path.join(os.path.dirname(self._path), "kek", kek)

    def _kek(self, kek: str) -> bytes:
        """Read a KEK. Raises FileNotFoundError, and OM095 for a file that is not to be trusted."""
        known = self._keks.get(kek)
        if known is not None and known.is_unchanged():
            return known.secret
        path = self._kek_path(kek)
        directory = os.path.dirname(path)
        try:
            directory_status = self._require_kek_directory(directory)
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _bad_kek(path, error.strerror or str(error)) from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _bad_kek(path, "it is not a regular file")
            _require_private(path, status, self._forbidden)
            secret = os.read(descriptor, _KEK_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(secret) != _KEK_BYTES:
            raise _bad_kek(path, f"it does not have {_KEK_BYTES} bytes")
        if len(self._keks) >= _MOST_KEKS:
            self._keks.clear()
        self._keks[kek] = _Kek(path, directory, status, directory_status, secret)
        return secret

    def _make_kek(self, kek: str) -> bytes:
        path = self._kek_path(kek)
        directory = os.path.dirname(path)
        with self._making:
            try:
                if not os.path.isdir(directory):
                    with contextlib.suppress(FileExistsError):  # another was faster
                        os.mkdir(directory, 0o700)
                    keys.sync_directory(os.path.dirname(directory))
                self._require_kek_directory(directory)
                keys.write_new(path, _urandom(_KEK_BYTES))
            except FileExistsError:
                pass  # another made it meanwhile: theirs counts
            except OSError as error:
                raise _bad_kek(path, error.strerror or str(error)) from None
        try:
            return self._kek(kek)
        except FileNotFoundError:
            raise _bad_kek(path, "it is gone") from None

    def _require_kek_directory(self, path: str) -> os.stat_result:
        status = os.stat(path, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise _bad_kek(path, "it is not a directory")
        _require_private(path, status, self._forbidden)
        return status


def _bound(kek: str, aad: bytes) -> bytes:
    """Return the additional data with the KEK's name in it. A name has no NUL."""
    return b"\0".join((_WRAP_DOMAIN, kek.encode(), aad))


def _require_private(path: str, status: os.stat_result, forbidden: str | None) -> None:
    """Insist on a file or directory that is this user's alone, and outside ``forbidden``."""
    if status.st_mode & 0o077 or status.st_uid != os.geteuid():
        mode = f"mode {stat.S_IMODE(status.st_mode):04o}, owner uid {status.st_uid}"
        raise _bad_kek(path, f"it is open to others: {mode}")
    if forbidden is not None and keys.inside(path, forbidden):
        raise _bad_kek(path, "it lies inside the data directory")


def _bad_kek(path: str, reason: str) -> keys.SignerError:
    return keys.SignerError(
        "OM095",
        f"key-encryption key {path} cannot be used: {reason}",
        "KEKs are files of 32 bytes and mode 0600 in a directory of mode 0700 beside the signing "
        "key, and all of it is the signer's user's.",
    )


_identity = operator.attrgetter(
    *("st_dev", "st_ino", "st_mode", "st_uid", "st_size", "st_mtime_ns", "st_ctime_ns")
)


class _Kek:
    """A key-encryption key that was read, and the file and directory that it was read from."""

    def __init__(
        self,
        path: str,
        directory: str,
        status: os.stat_result,
        directory_status: os.stat_result,
        secret: bytes,
    ) -> None:
        self.secret = secret
        self._paths = (path, directory)
        self._found = (_identity(status), _identity(directory_status))

    def is_unchanged(self) -> bool:
        """Tell whether file and directory are still those that were judged and read."""
        path, directory = self._paths
        try:
            return self._found == (_identity(os.lstat(path)), _identity(os.lstat(directory)))
        except OSError:
            return False


def other_key(signer: str, held: list[bytes], wanted: bytes) -> keys.SignerError:
    """Return the error of a signer that does not hold the key that is asked for."""
    names = ", ".join(sorted(kid.hex() for kid in held)) or "none"
    return keys.SignerError(
        "OM034",
        f"signer {signer} holds key {names}, the deployment signs with {wanted.hex()}",
        "Put the deployment's key back: an event signed by another key could never be verified.",
    )


class UnixSigner:
    """omld, behind a Unix socket. Not for several threads at once: one a database backend.

    The connection is kept. A call has DEADLINE_S for everything: to connect, to send, to receive,
    and to do all of it once more when the kept connection turns out to be dead. A connection on
    which anything went wrong is closed, so that a late answer is never taken for the next one.
    """

    def __init__(self, path: str, deadline_s: float = DEADLINE_S) -> None:
        self._path = path
        self._deadline_s = deadline_s
        self._socket: socket.socket | None = None
        self._public: dict[bytes, bytes] = {}

    def sign(self, kid: bytes, payload: bytes) -> bytes:
        """See Signer. The signature was verified: one that is wrong could never be mended.

        Raises OM034 for a key that omld does not hold, OM090 when it is not there, OM092 when it
        does not answer in time, OM094 for an answer that is none, and what omld refuses with.
        """
        protected = cose.protected_header(envelope.CONTENT_TYPE, kid)
        signed = cose.to_be_signed(protected, payload)
        return self._signature(wire.request(wire.SIGN, kid, payload), kid, signed)

    def sign_checkpoint(self, kid: bytes, head: note.TreeHead) -> bytes:
        """See Signer. The signature was verified. Raises as sign does."""
        return self._signature(wire.checkpointing(kid, head), kid, head.text.encode())

    def _signature(self, frame: bytes, kid: bytes, signed: bytes) -> bytes:
        """Ask for the signature of ``signed`` and insist that it is that of the key."""
        until = _clock() + self._deadline_s
        public_key = self._public.get(kid)
        if public_key is None:
            # A kid is the start of its key's digest, so the answer need not be believed.
            self._public = self._keys(until)[1]
            public_key = self._public.get(kid)
            if public_key is None:
                raise other_key(f"unix:{self._path}", list(self._public), kid)
        signature = self._call(frame, until)
        if len(signature) != cose.SIGNATURE_BYTES or not cose.opens(signature + signed, public_key):
            self.close()
            raise self._nonsense("its signature is not that of the key it was asked for")
        return signature

    def wrap(self, kek: str, plaintext: bytes, aad: bytes, *, create: bool) -> bytes:
        """See Signer."""
        require_kek(kek, plaintext, aad)
        until = _clock() + self._deadline_s
        operation = wire.FIRST_WRAP if create else wire.WRAP
        return self._call(wire.wrapping(operation, kek, plaintext, aad), until)

    def unwrap(self, kek: str, wrapped: bytes, aad: bytes) -> bytes:
        """See Signer."""
        require_kek(kek, b"", aad)
        until = _clock() + self._deadline_s
        return self._call(wire.wrapping(wire.UNWRAP, kek, wrapped, aad), until)

    def public_keys(self) -> dict[bytes, bytes]:
        """See Signer."""
        return self.holding()[1]

    def holding(self) -> tuple[uuid.UUID, dict[bytes, bytes]]:
        """Return the deployment that omld signs for, and its public keys."""
        return self._keys(_clock() + self._deadline_s)

    def _keys(self, until: float) -> tuple[uuid.UUID, dict[bytes, bytes]]:
        content = self._call(wire.request(wire.KEYS), until)
        if len(content) < 16 or len(content) % 32 != 16:
            raise self._nonsense("it names no deployment and keys")
        public = [content[at : at + 32] for at in range(16, len(content), 32)]
        return uuid.UUID(bytes=content[:16]), {keys.kid(key): key for key in public}

    def _call(self, frame: bytes, until: float) -> bytes:
        """Send a request and return the content of its answer."""
        if len(frame) - wire.LENGTH_BYTES > wire.MAX_REQUEST_BYTES:
            raise keys.SignerError(
                "OM093",
                f"a message of {len(frame)} bytes is too long for the signer",
                f"It takes {wire.MAX_REQUEST_BYTES} bytes, twice the largest payload there is.",
            )
        try:
            kept = self._socket is not None
            body = self._exchange(frame, until)
            if body is None and kept:
                body = self._exchange(frame, until)  # omld was restarted since
            if body is None:
                raise keys.SignerError(
                    "OM090",
                    f"the signer at {self._path} closed the connection without an answer",
                    _GONE_HINT,
                )
            return wire.read_answer(body)
        except wire.ProtocolError as error:
            self.close()
            raise self._nonsense(str(error)) from None
        except TimeoutError:
            self.close()
            raise keys.SignerError(
                "OM092",
                f"the signer at {self._path} did not answer within {self._deadline_s} s",
                "Nothing was stored. Look at omld's log and load; the next append asks it again.",
            ) from None
        except OSError as error:
            self.close()
            raise keys.SignerError(
                "OM090",
                f"the signer at {self._path} cannot be reached: {error.strerror or error}",
                _GONE_HINT,
            ) from None

    def _exchange(self, frame: bytes, until: float) -> bytes | None:
        """Send a frame and receive one, without its length; None if the other side hung up.

        Raises TimeoutError, OSError of the connect, ProtocolError.
        """
        done = False
        try:
            if self._socket is None:
                self._socket = self._connect(until)
            connection = self._socket
            try:
                connection.settimeout(_left(until))
                connection.sendall(frame, socket.MSG_NOSIGNAL)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it may have said why before it closed
            received = b""
            wanted = wire.LENGTH_BYTES
            while len(received) < wanted:
                connection.settimeout(_left(until))
                try:
                    part = connection.recv(65536)
                except ConnectionResetError:
                    return None
                if not part:
                    return None
                received += part
                if wanted == wire.LENGTH_BYTES and len(received) >= wanted:
                    wanted += wire.frame_length(received)
                    if wanted > wire.LENGTH_BYTES + wire.MAX_ANSWER_BYTES:
                        raise wire.ProtocolError(f"an answer of {wanted} bytes")
            if len(received) != wanted:
                raise wire.ProtocolError("more than one answer")
            done = True
            return received[wire.LENGTH_BYTES :]
        finally:
            if not done:
                self.close()

    def _connect(self, until: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            while True:
                connection.settimeout(_left(until))
                try:
                    connection.connect(self._path)
                    return connection
                except BlockingIOError:  # its queue is full: it hangs, or many come at once
                    time.sleep(min(_BUSY_PAUSE_S, _left(until)))
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the connection, if there is one. The next call makes another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _nonsense(self, reason: str) -> keys.SignerError:
        return keys.SignerError(
            "OM094",
            f"what listens at {self._path} does not answer as omld does: {reason}",
            "Nothing was stored. Find out which process serves that socket, and stop it.",
        )


_GONE_HINT = (
    "Start omld on this machine: oml serve --role signer. "
    "Nothing was stored; appends work again as soon as it is there."
)


def _left(until: float) -> float:
    left = until - _clock()
    if left <= 0:
        raise TimeoutError
    return left


class BatchTime:
    """The time for signing so many events of a batch, which begins now: BATCH_DEADLINE_S."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._until = _clock() + BATCH_DEADLINE_S
        self._look = 0.0

    def is_due(self, signed: int) -> bool:
        """Whether to look for a cancel or a timeout now: ten times a second, between two events.

        Raises keys.SignerError OM092 when the batch's time is up.
        """
        now = _clock()
        if now >= self._until:
            raise keys.SignerError(
                "OM092",
                f"{signed} of {self._events} events were signed within {BATCH_DEADLINE_S:g} s",
                "Nothing was stored. Append smaller batches, and look at the signer's load.",
            )
        if now < self._look:
            return False
        self._look = now + _LOOK_S
        return True


_providers: dict[tuple[str, str | None], FileSigner | UnixSigner] = {}


def provider(signer: str, data_directory: str | None) -> FileSigner | UnixSigner:
    """Return the provider a ``file:`` or ``unix:`` signer names: the same one at every call.

    A key file must lie outside ``data_directory``. Raises OM036 for what is not understood.
    """
    known = _providers.get((signer, data_directory))
    if known is not None:
        return known
    scheme, _, path = signer.partition(":")
    made: FileSigner | UnixSigner
    if scheme == "file" and os.path.isabs(path):
        made = FileSigner(path, data_directory)
    elif scheme == "unix" and os.path.isabs(path):
        made = UnixSigner(path)
    else:
        raise keys.SignerError(
            "OM036",
            f"signer {signer!r} is not understood",
            "Use file: and an absolute path, for example file:/etc/oml/signing.key, or unix: and "
            "that of omld's socket, unix:/run/oml/omld.sock.",
        )
    _providers[(signer, data_directory)] = made
    return made


def inspect(asked: FileSigner | UnixSigner) -> tuple[uuid.UUID | None, dict[bytes, bytes]]:
    """Return the deployment a signer was told to sign for, None for a file, and its public keys."""
    if isinstance(asked, UnixSigner):
        return asked.holding()
    return None, asked.public_keys()
