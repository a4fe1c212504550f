"""The signer role: hold the signing keys, and sign for the database over a Unix socket.

The protocol is oml.core.wire's. Who connects is asked of the kernel (SO_PEERCRED); a user that is
not listed gets a refusal and nothing else. What is to be signed is decoded first, strictly, and
refused unless it is one well-formed event of this deployment, or the checkpoint of a log of this
deployment, whose text is made here: so nobody, not even a superuser of the database, can have it
sign another thing. One thread a connection: signing releases the interpreter.
"""

import contextlib
import errno
import fcntl
import logging
import os
import pwd
import resource
import socket
import stat
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from oml.core import body, cbor, envelope, keys, note, wire
from oml.core.signer import FileSigner, Signer, other_key
from oml.errors import SetupError, UsageError
from oml.settings import Settings

log = logging.getLogger("oml.signer")

DATABASE_USER = "postgres"
MESSAGE_TIMEOUT_S = 2.0
"""Seconds in which a message that has begun must end, and an answer must be taken."""

_LOOK_S = 0.2
_STOP_TIMEOUT_S = 2.0
_REPEAT_S = 60.0
_AWAY_S = 1.0
_LONGEST_REASON = 200
_BACKLOG = 128
_SOCKET_MODE = 0o666
_LONGEST_SOCKET_PATH = 107  # bytes: sun_path without its NUL
_PEER = struct.Struct("iII")  # struct ucred: pid, uid, gid


@dataclass
class SignerRole:
    """Runs until ``stop`` is set."""

    settings: Settings
    stop: threading.Event

    def run(self) -> None:
        """Serve until stopped.

        Raises UsageError for settings that are missing or wrong and for a socket that another omld
        serves, SetupError for a key that cannot be used.
        """
        deployment = _deployment(self.settings)
        users = allowed_users(self.settings.signer_users)
        harden()
        keyring = Keyring(self.settings.signer_keys)
        keyring.look()
        with Listener(self.settings.signer_socket) as listener:
            log.info(
                "signing for deployment %s at %s, for uids %s",
                deployment, self.settings.signer_socket, ", ".join(map(str, sorted(users))),
            )  # fmt: skip
            Server(
                listener.socket, keyring, deployment, users, self.settings.signer_connections
            ).serve(self.stop)


def harden() -> None:
    """Keep the keys out of core dumps and away from debuggers of the same user (prctl(2))."""
    body.keep_out_of_core_dumps()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _deployment(settings: Settings) -> uuid.UUID:
    if not settings.signer_keys:
        raise UsageError(
            "the signer role has no key",
            'Set signer_keys to a list such as ["file:/etc/omld/signing.key"].',
        )
    if settings.deployment_id is None or settings.deployment_id.int == 0:
        raise UsageError(
            "the signer role needs deployment_id",
            "Before genesis choose one, for example with uuidgen: genesis takes it from the "
            "signer. Afterwards it is what select oml.deployment_id() says.",
        )
    return settings.deployment_id


def allowed_users(named: Sequence[str | int] | None) -> frozenset[int]:
    """Return the uids that may ask: those named, else our own and that of ``postgres`` if there.

    Raises UsageError for a name that is no user.
    """
    if named is None:
        try:
            return frozenset((os.geteuid(), pwd.getpwnam(DATABASE_USER).pw_uid))
        except KeyError:
            return frozenset((os.geteuid(),))
    uids = set()
    for user in named:
        try:
            text = str(user)
            uids.add(int(text) if text.isdecimal() else pwd.getpwnam(text).pw_uid)
        except KeyError:
            raise UsageError(
                f"signer_users names {user}, who is no user here", "Give a user's name or uid."
            ) from None
    return frozenset(uids)


def open_key(url: str) -> Signer:
    """Return the provider that a ``file:`` or ``vault:`` URL names.

    Raises UsageError for another URL, SetupError where hvac is not installed.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "file" and os.path.isabs(rest):
        return FileSigner(rest)
    if scheme == "vault":
        try:
            from oml.daemon.vault import VaultSigner
        except ImportError:
            raise SetupError(
                "keys in Vault need the package hvac", "Install it beside oml: pip install hvac."
            ) from None
        return VaultSigner(url)
    raise UsageError(
        f"signer_keys names {url!r}, which is not understood",
        "Use file: and an absolute path, or vault:, a transit engine's mount, / and a key's name.",
    )


class Keyring:
    """All the keys of signer_keys. The first provider also keeps the KEKs.

    What is away is not asked again for a second, so that a client's deadline suffices for the
    others. ``clock`` says the time in seconds.
    """

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._providers = [open_key(url) for url in urls]
        # Files answer at once.
        self._in_turn = sorted(self._providers, key=lambda p: not isinstance(p, FileSigner))
        self._holders: dict[bytes, Signer] = {}
        self._away: dict[Signer, tuple[float, keys.SignerError]] = {}
        self._clock = clock

    def look(self) -> None:
        """Name the keys in the log. Raises SetupError for a file; Vault may come back."""
        for provider in self._providers:
            try:
                for kid in provider.public_keys():
                    log.info("holding key %s", kid.hex())
            except keys.SignerError as error:
                if isinstance(provider, FileSigner):
                    raise SetupError(error.message, error.hint) from None
                log.warning("%s (%s)", error.message, error.hint)

    def public_keys(self) -> dict[bytes, bytes]:
        """Return {kid: public key} of all providers that answer.

        Raises keys.SignerError if none does.
        """
        found: dict[bytes, bytes] = {}
        trouble = None
        for provider in self._in_turn:
            try:
                with self._asking(provider):
                    found |= provider.public_keys()
            except keys.SignerError as error:
                trouble = error
        if trouble is not None and not found:
            raise trouble
        return found

    def sign(self, kid: bytes, payload: bytes) -> bytes:
        """Sign with the provider that holds the key. Raises keys.SignerError."""
        holder = self._holders.get(kid) or self._find(kid)
        with self._asking(holder):
            return holder.sign(kid, payload)

    def sign_checkpoint(self, kid: bytes, head: note.TreeHead) -> bytes:
        """Sign with the provider that holds the key. Raises keys.SignerError."""
        holder = self._holders.get(kid) or self._find(kid)
        with self._asking(holder):
            return holder.sign_checkpoint(kid, head)

    def _find(self, kid: bytes) -> Signer:
        """Find who holds a key, and remember it: a key does not change hands while we run."""
        held: list[bytes] = []
        trouble = None
        for provider in self._in_turn:
            try:
                with self._asking(provider):
                    kids = provider.public_keys()
            except keys.SignerError as error:  # another may hold it all the same
                trouble = trouble or error
                continue
            if kid in kids:
                self._holders[kid] = provider
                return provider
            held += kids
        raise trouble or other_key("omld", held, kid)

    @contextlib.contextmanager
    def _asking(self, provider: Signer) -> Iterator[None]:
        """Ask a provider, unless it failed within the last second: then fail as it did.

        A file is always asked: it costs nothing, and counts again as soon as it is put back.
        """
        until, failure = self._away.get(provider, (0.0, None))
        if failure is not None and self._clock() < until:
            raise keys.SignerError(failure.sqlstate, failure.message, failure.hint)
        try:
            yield
        except keys.SignerError as error:
            if not isinstance(provider, FileSigner):
                self._away[provider] = self._clock() + _AWAY_S, error
            raise

    @property
    def wrapper(self) -> Signer:
        """The provider that wraps and unwraps."""
        return self._providers[0]


class Listener:
    """The socket at a path, and a lock beside it, so that two servers never share one path."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.socket: socket.socket
        self._lock = -1

    def __enter__(self) -> "Listener":
        path = self._path
        if not os.path.isabs(path) or len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
            raise UsageError(
                f"signer_socket {path!r} is no path for a socket",
                f"Give an absolute path of at most {_LONGEST_SOCKET_PATH} bytes.",
            )
        try:
            self._lock = os.open(
                f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise SetupError(
                f"{path}.lock cannot be made: {error.strerror}",
                "Make the socket's directory and give it to omld's user, or set signer_socket.",
            ) from None
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"another omld serves {path}", "Stop it first, or set another signer_socket."
                ) from None
            self._remove_stale()
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            self.socket.bind(path)
            # Anybody may connect; who is served is decided by the peer's uid, for which no file's
            # group needs to be arranged. Nobody can connect before listen().
            os.chmod(path, _SOCKET_MODE)
            self.socket.listen(_BACKLOG)
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        os.close(self._lock)  # its file stays: whoever waits for it must find the same one

    def _remove_stale(self) -> None:
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(status.st_mode):
            raise UsageError(
                f"{self._path} is not a socket", "Move it away, or set another signer_socket."
            )
        os.unlink(self._path)


@dataclass
class Repeats:
    """Says of each thing that recurs when to log it: at once, then once a minute with a count."""

    _seen: dict[object, tuple[float, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: object) -> str | None:
        """Return what to add to the line, or None to log nothing now."""
        now = time.monotonic()
        with self._lock:
            last, more = self._seen.get(what, (None, 0))
            if last is not None and now - last < _REPEAT_S:
                self._seen[what] = (last, more + 1)
                return None
            self._seen[what] = (now, 0)
        return f" ({more} more times since it was last said)" if more else ""


@dataclass
class Server:
    """Serves connections until it is stopped."""

    listener: socket.socket
    keyring: Keyring
    deployment: uuid.UUID
    users: frozenset[int]
    most_connections: int
    _connections: dict[socket.socket, threading.Thread] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _repeats: Repeats = field(default_factory=Repeats)

    def serve(self, stop: threading.Event) -> None:
        """Accept until ``stop`` is set, then finish the requests in hand."""
        self.listener.settimeout(_LOOK_S)
        while not stop.is_set():
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                    raise
                self.say("cannot accept", f"a connection cannot be accepted: {error.strerror}")
                stop.wait(_LOOK_S)
                continue
            self._receive(connection)
        with self._lock:
            left = list(self._connections.items())
        for connection, _ in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        until = time.monotonic() + _STOP_TIMEOUT_S
        for _, thread in left:
            thread.join(max(0.0, until - time.monotonic()))

    def say(self, key: object, message: str) -> None:
        """Log a warning, unless one under this key was logged within the minute."""
        more = self._repeats.note(key)
        if more is not None:
            log.warning("%s%s", message, more)

    def _receive(self, connection: socket.socket) -> None:
        """Start to serve a connection, or refuse it."""
        try:
            pid, uid, _ = _PEER.unpack(
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            )
            if uid not in self.users:
                self.say(("uid", uid), f"refused uid {uid} (pid {pid})")
                error = keys.SignerError(
                    "OM091",
                    f"omld does not serve uid {uid}",
                    "Add the OS user of the database server to signer_users of omld.",
                )
                refuse(connection, error)
                return
            with self._lock:
                full = len(self._connections) >= self.most_connections
            if full:
                self.say("full", f"refused a connection: there are {self.most_connections}")
                error = keys.SignerError(
                    "OM101",
                    f"omld serves {self.most_connections} connections already",
                    "Raise signer_connections of omld above max_connections of the database.",
                )
                refuse(connection, error)
                return
            thread = threading.Thread(
                target=self._converse, args=(connection, uid), name=f"uid {uid}", daemon=True
            )
            with self._lock:
                self._connections[connection] = thread
            thread.start()
        except (OSError, RuntimeError) as error:  # it went away, or there can be no more threads
            self.say("receive", f"a connection cannot be served: {error}")
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()

    def _converse(self, connection: socket.socket, uid: int) -> None:
        """Answer one connection's requests until it ends."""
        try:
            with contextlib.suppress(OSError):  # it went away
                Conversation(connection, self, uid).run()
        except Exception:
            log.exception("a connection of uid %s ends with a fault of omld", uid)
        finally:
            with self._lock:
                del self._connections[connection]
            connection.close()

    def answer(self, body: bytes, uid: int) -> bytes:
        """Return the frame that answers a request."""
        try:
            operation, content = wire.read_request(body)
            if operation == wire.SIGN:
                return wire.answer(self._sign(content))
            if operation == wire.CHECKPOINT:
                return wire.answer(self._sign_checkpoint(content))
            if operation == wire.KEYS:
                public = self.keyring.public_keys().values()
                return wire.answer(b"".join((self.deployment.bytes, *public)))
            kek, aad, secret = wire.read_wrapping(content)
            wrapper = self.keyring.wrapper
            if operation in (wire.WRAP, wire.FIRST_WRAP):
                create = operation == wire.FIRST_WRAP
                return wire.answer(wrapper.wrap(kek, secret, aad, create=create))
            return wire.answer(wrapper.unwrap(kek, secret, aad))
        except (wire.ProtocolError, cbor.MalformedError, note.NoteError) as error:
            return wire.refusal(self.malformed(str(error), uid))
        except keys.SignerError as error:
            self.say((error.sqlstate, uid), f"refused uid {uid}: {error.message}")
            return wire.refusal(error)

    def malformed(self, reason: str, uid: int) -> keys.SignerError:
        """Log a message that is refused, and return the refusal."""
        reason = reason[:_LONGEST_REASON]  # it may quote the message
        self.say(("message", uid), f"refused a message of uid {uid}: {reason}")
        return keys.SignerError(
            "OM093",
            f"omld refuses the message: {reason}",
            "It signs well-formed events and checkpoints of its own deployment and nothing else. "
            "Compare its deployment_id with select oml.deployment_id(), and the versions of both "
            "sides.",
        )

    def _sign(self, content: bytes) -> bytes:
        """Sign an event. Raises cbor.MalformedError for anything that is none of ours."""
        kid, payload = content[:8], content[8:]
        if len(kid) != 8:
            raise wire.ProtocolError("a request to sign that is cut short")
        event = envelope.decode_map(payload)
        self._require_ours("event", uuid.UUID(bytes=event["deployment_id"]))
        return self.keyring.sign(kid, payload)

    def _sign_checkpoint(self, content: bytes) -> bytes:
        """Sign a checkpoint. Raises note.NoteError for one that cannot be."""
        kid, head = wire.read_tree_head(content)
        self._require_ours("checkpoint", head.deployment_id)
        return self.keyring.sign_checkpoint(kid, head)

    def _require_ours(self, what: str, deployment: uuid.UUID) -> None:
        if deployment != self.deployment:
            raise wire.ProtocolError(
                f"the {what} is of deployment {deployment}, this signer serves {self.deployment}"
            )


@dataclass
class Conversation:
    """One connection: request, answer, request, answer."""

    connection: socket.socket
    server: Server
    uid: int

    def run(self) -> None:
        """Serve until the other side hangs up or breaks the protocol. Idle ones may stay."""
        received = bytearray()
        while True:
            body = self._next(received)
            if body is None:
                return
            self.connection.settimeout(MESSAGE_TIMEOUT_S)
            self.connection.sendall(self.server.answer(body, self.uid), socket.MSG_NOSIGNAL)

    def _next(self, received: bytearray) -> bytes | None:
        """Return the next frame without its length, None at the end. Leaves in what follows it."""
        until = None
        while True:
            if received and until is None:
                until = time.monotonic() + MESSAGE_TIMEOUT_S
            if len(received) >= wire.LENGTH_BYTES:
                length = wire.frame_length(received)
                if length > wire.MAX_REQUEST_BYTES:
                    self._refuse(f"a frame of {length} bytes, {wire.MAX_REQUEST_BYTES} at most")
                    return None
                end = wire.LENGTH_BYTES + length
                if len(received) >= end:
                    body = bytes(received[wire.LENGTH_BYTES : end])
                    del received[:end]
                    return body
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                self._refuse(f"a message that does not end within {MESSAGE_TIMEOUT_S} s")
                return None
            self.connection.settimeout(left)
            try:
                part = self.connection.recv(65536)
            except TimeoutError:
                continue
            if not part:
                return None
            received += part

    def _refuse(self, reason: str) -> None:
        refuse(self.connection, self.server.malformed(reason, self.uid))


def refuse(connection: socket.socket, error: keys.SignerError) -> None:
    """Send a refusal unasked, if the other side takes it at once, and close."""
    with connection, contextlib.suppress(OSError):
        connection.settimeout(0)
        connection.send(wire.refusal(error), socket.MSG_NOSIGNAL)
