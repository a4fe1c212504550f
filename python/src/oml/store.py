"""Where tlog and owner marks lie outside the database: a directory, or a bucket of an S3 store.

Small objects under paths, and two conditional writes: ``create`` puts an object only where there is
none, ``replace`` only over the content that the caller has read. Either happens whole or not at
all, and has reached the disk, or the store, when it returns.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote
from urllib.request import url2pathname

from oml.errors import OmlError, UsageError
from oml.failpoint import failpoint

if TYPE_CHECKING:
    from obstore.store import S3Store as S3Client

MAX_OBJECT_BYTES = 16 * 1024 * 1024
"""Longest object that is read: what is larger is none of ours."""

_URL = re.compile("(file:///|s3://)[^/]")
# What an object store's client refuses in a path, or reads as another path.
_UNUSABLE = re.compile(r"[\\^|\[\]\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644
_METADATA = ".meta.json"
_TEMPORARY = ".tmp"
_LOCK = ".lock"
_MOST_DIRECTORIES = 100_000
_LONGEST_REASON = 300
_TRIES_AT_A_NAME = 100
# Settings of the client, of its retries and of the bucket come in one mapping, as Delta's do.
_CLIENT_OPTIONS = frozenset(
    (
        *("allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only"),
        *("http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url"),
        *("proxy_ca_certificate", "proxy_excludes", "read_timeout", "root_certificate"),
        *("timeout", "user_agent"),
    )
)
_MAX_RETRIES = 3
_RETRY_TIMEOUT_S = 30
_TIMEOUTS = {"connect_timeout": "5s", "timeout": "30s"}


class StoreError(OmlError):
    """The store cannot be used. ``retryable`` tells whether waiting may mend it."""

    def __init__(self, message: str, hint: str | None = None, *, retryable: bool = True) -> None:
        super().__init__(message, hint)
        self.retryable = retryable


class Store(Protocol):
    """Objects under paths such as ``a/b.1/c``. May be used by several threads. Raises StoreError.

    No part of a path begins with a dot.
    """

    url: str

    def get(self, path: str) -> bytes | None:
        """Return an object's content, None when there is none."""
        ...

    def create(self, path: str, data: bytes, metadata: Mapping[str, str] | None = None) -> bool:
        """Put an object where there is none. False when one is there, whatever it holds.

        Names of ``metadata`` are in lower case. They are seen with the object or before it: a put
        that was broken off is completed by one with the same data and metadata.
        """
        ...

    def get_with_metadata(self, path: str) -> tuple[bytes, dict[str, str]] | None:
        """Return an object's content and the metadata it was created with, or None."""
        ...

    def replace(self, path: str, data: bytes, expected: bytes | None) -> bool:
        """Put an object over one that holds ``expected``; None: where there is none.

        False when something else is there, or nothing; also if the answer to a put that succeeded
        was lost and the repeated one met it: read again before you call that a rival.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        ...

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the paths of all objects under a directory, in no order."""
        ...

    def children(self, directory: str = "") -> Sequence[str]:
        """Return the names directly under a directory, sorted; none where it does not exist."""
        ...


def open_store(url: str, options: Mapping[str, str] | None = None, *, make: bool = False) -> Store:
    """Open the store at a ``file:///`` or ``s3://`` URL; nothing is read yet.

    ``options`` are those of an S3 client, such as AWS_ENDPOINT_URL. ``make`` makes the directory of
    a ``file:///`` URL; without it, one that is not there is a store that cannot be reached.
    Raises UsageError for a URL or options that are not understood.
    """
    require_url(url, "store")
    if url.startswith("s3:"):
        require_put_if_absent(options or {})
        return BucketStore(url, options or {})
    return DirectoryStore(url, make=make)


def require_url(url: str, what: str) -> None:
    """Insist on a URL that a store, or a lake, can be at. Raises UsageError."""
    if not _URL.match(url) or _UNUSABLE.search(unquote(url)):
        raise UsageError(
            f"{url!r} is no place for a {what}",
            f"A {what}'s URL is file:/// and a path, or s3:// and a place, without \\ ^ | [ ], "
            "control characters, or a path that itself looks percent-encoded.",
        )


def with_timeouts(options: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options of a Delta table, with our time limits where none are given.

    As for our own requests: a store that stalls is an error within minutes, and not silence.
    """
    given = {_plain(name) for name in options}
    limits = {
        **_TIMEOUTS,
        "max_retries": str(_MAX_RETRIES),
        "retry_timeout": f"{_RETRY_TIMEOUT_S}s",
    }
    return {**{k: v for k, v in limits.items() if k not in given}, **options}


def require_put_if_absent(options: Mapping[str, str]) -> None:
    """Refuse options, or variables of the environment, that let one write overwrite another.

    Exactly once, and one history a tenant, rest on conditional puts. Raises UsageError.
    """
    for name, value in {**os.environ, **options}.items():
        match name.lower().removeprefix("aws_"), value.lower():
            case "s3_allow_unsafe_rename", "true" | "1" | "yes" | "on" | "y" | "t":
                pass
            case "conditional_put", "disabled":
                pass
            case _:
                continue
        raise UsageError(
            f"{name} is set: one writer's commit could overwrite another's",
            "Remove it; it needs a store that knows conditional writes.",
        )


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if not all(_PART.fullmatch(part) for part in parts):
        raise StoreError(f"{path!r} is no path of an object", retryable=False)
    return parts


# -- a directory -----------------------------------------------------------------------------------


class DirectoryStore:
    """Files under a directory. Racing processes on one machine, or over NFS, are kept apart.

    A file is written under a temporary name, synced, and only then linked or renamed to its own;
    then the directory is synced. Directories are opened one below the other without following
    symbolic links, so that nothing outside can be reached; the root itself may be one.
    """

    def __init__(self, url: str, *, make: bool = False) -> None:
        self.url = url
        self.root = Path(url2pathname(url.removeprefix("file://")))
        self._durable: set[tuple[str, ...]] = set()
        self._swept = False
        if make:
            with self._errors(""):
                self._make_root()

    def get(self, path: str) -> bytes | None:
        """See Store."""
        *above, name = _parts(path)
        with self._errors(path), self._directory(above) as directory:
            return None if directory is None else self._read(directory, name, path)

    def get_with_metadata(self, path: str) -> tuple[bytes, dict[str, str]] | None:
        """See Store. The metadata lie in a JSON file beside the object."""
        found = self.get(path)
        return None if found is None else (found, _metadata(self.get(path + _METADATA)))

    def create(self, path: str, data: bytes, metadata: Mapping[str, str] | None = None) -> bool:
        """See Store."""
        if metadata is not None:
            self.create(path + _METADATA, json.dumps(metadata, sort_keys=True).encode())
            failpoint("store.metadata-written")
        *above, name = _parts(path)
        with self._errors(path), self._made(above) as directory:
            created = not _is_there(directory, name)
            if created:
                with self._written(data) as (temporaries, temporary):
                    try:
                        os.link(
                            temporary, name,
                            src_dir_fd=temporaries, dst_dir_fd=directory, follow_symlinks=False,
                        )  # fmt: skip
                    except FileExistsError:
                        created = False
            # Also where a rival, or one that died, made it: the caller builds on its being there.
            os.fsync(directory)
            return created

    def replace(self, path: str, data: bytes, expected: bytes | None) -> bool:
        """See Store."""
        if expected is None:
            return self.create(path, data)
        *above, name = _parts(path)
        with self._errors(path), self._locked(), self._directory(above) as directory:
            if directory is None or self._read(directory, name, path) != expected:
                return False
            with self._written(data) as (temporaries, temporary):
                os.rename(temporary, name, src_dir_fd=temporaries, dst_dir_fd=directory)
            os.fsync(directory)
            return True

    def delete(self, path: str) -> None:
        """See Store."""
        *above, name = _parts(path)
        with self._errors(path), self._directory(above) as directory:
            if directory is not None:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=directory)

    def list(self, prefix: str = "") -> Iterator[str]:
        """See Store."""
        for name in self.children(prefix):
            path = f"{prefix}/{name}" if prefix else name
            with self._errors(path), self._directory(path.split("/")[:-1]) as directory:
                kind = 0 if directory is None else _kind(directory, name)
            if stat.S_ISDIR(kind):
                yield from self.list(path)
            elif stat.S_ISREG(kind):
                yield path

    def children(self, directory: str = "") -> Sequence[str]:
        """See Store."""
        above = _parts(directory) if directory else []
        with self._errors(directory), self._directory(above) as opened:
            names = [] if opened is None else os.listdir(opened)
        return sorted(name for name in names if _PART.fullmatch(name))

    # -- directories and files ---------------------------------------------------------------

    def _make_root(self) -> None:
        missing = [p for p in (self.root, *self.root.parents) if not p.exists()]
        for path in reversed(missing):
            with suppress(FileExistsError):
                path.mkdir(_DIRECTORY_MODE)
            _sync(path.parent)

    @contextmanager
    def _directory(self, parts: Sequence[str]) -> Iterator[int | None]:
        """Open a directory of ours; None when it does not exist. The root must."""
        with ExitStack() as opened:
            directory = _open_directory(opened, self.root)
            for part in parts:
                try:
                    directory = _open_directory(opened, part, directory)
                except FileNotFoundError:
                    yield None
                    return
            yield directory

    @contextmanager
    def _made(self, parts: Sequence[str]) -> Iterator[int]:
        """Open a directory of ours, making what is missing, so that its names survive a crash."""
        with ExitStack() as opened:
            directory = _open_directory(opened, self.root)
            for depth, part in enumerate(parts, 1):
                with suppress(FileExistsError):
                    os.mkdir(part, _DIRECTORY_MODE, dir_fd=directory)
                if tuple(parts[:depth]) not in self._durable:
                    os.fsync(directory)
                    if len(self._durable) > _MOST_DIRECTORIES:
                        self._durable.clear()
                    self._durable.add(tuple(parts[:depth]))
                directory = _open_directory(opened, part, directory)
            yield directory

    def _read(self, directory: int, name: str, path: str) -> bytes | None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=directory)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._in_the_way(path)
            content = file.read(MAX_OBJECT_BYTES + 1)
        return _bounded(content, f"{self.url}/{path}")

    @contextmanager
    def _written(self, data: bytes) -> Iterator[tuple[int, str]]:
        """Write and sync a temporary file; what is not renamed is removed at the end.

        Its writer holds a lock on it. So one without is a dead process's and may be swept.
        """
        with self._made_temporaries() as temporaries:
            if not self._swept:
                _sweep(temporaries)
                self._swept = True
            for _ in range(_TRIES_AT_A_NAME):
                name = secrets.token_hex(16)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with open(os.open(name, flags, _FILE_MODE, dir_fd=temporaries), "wb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    if os.fstat(file.fileno()).st_nlink == 0:
                        continue  # swept between its making and its locking
                    try:
                        file.write(data)
                        file.flush()
                        os.fsync(file.fileno())
                        yield temporaries, name
                    finally:
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=temporaries)
                    return
        raise StoreError(f"temporary files vanish from {self.root}")

    @contextmanager
    def _made_temporaries(self) -> Iterator[int]:
        with ExitStack() as opened:
            root = _open_directory(opened, self.root)
            with suppress(FileExistsError):
                os.mkdir(_TEMPORARY, _DIRECTORY_MODE, dir_fd=root)
            yield _open_directory(opened, _TEMPORARY, root)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Be the only one that replaces anything. A dead process holds no lock."""
        with ExitStack() as opened:
            root = _open_directory(opened, self.root)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(_LOCK, flags, _FILE_MODE, dir_fd=root), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield

    def _in_the_way(self, path: str) -> StoreError:
        return StoreError(
            f"{self.root / path} is a symbolic link, or not what should be there",
            "Nobody but OML writes there: look who made it, and remove it.",
            retryable=False,
        )

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except NotADirectoryError:
            raise self._in_the_way(path) from None
        except IsADirectoryError:
            raise self._in_the_way(path) from None
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.root} cannot be reached: {error.strerror}",
                "Mount it, or make the directory as the user that writes there.",
            ) from error
        except PermissionError as error:
            raise StoreError(
                f"{self.root / path} cannot be reached: {error.strerror}",
                "Run as a user who may enter and, to publish, write the directory.",
            ) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._in_the_way(path) from None
            raise StoreError(
                f"{self.root / path} cannot be used: {error.strerror or error}",
                "Check that the file system is there and has room.",
            ) from error


def _open_directory(opened: ExitStack, path: Path | str, above: int | None = None) -> int:
    """Open a directory until ``opened`` ends; below another one, not through a symbolic link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if above is None else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=above)
    opened.callback(os.close, descriptor)
    return descriptor


def _is_there(directory: int, name: str) -> bool:
    return _kind(directory, name) != 0


def _kind(directory: int, name: str) -> int:
    """Return the mode of what is there under a name, 0 for nothing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _sync(path: Path) -> None:
    with ExitStack() as opened:
        os.fsync(_open_directory(opened, path))


def _sweep(temporaries: int) -> None:
    """Remove the temporary files of processes that died."""
    for name in os.listdir(temporaries):
        with suppress(OSError):
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(name, flags, dir_fd=temporaries), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=temporaries)


# -- a bucket --------------------------------------------------------------------------------------


class BucketStore:
    """Objects of an S3 bucket under a prefix: conditional puts by If-None-Match and If-Match."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url.rstrip("/")
        self._client = _client(self.url, options)

    def get(self, path: str) -> bytes | None:
        """See Store."""
        found = self._get("/".join(_parts(path)))
        return None if found is None else found[0]

    def get_with_metadata(self, path: str) -> tuple[bytes, dict[str, str]] | None:
        """See Store."""
        found = self._get("/".join(_parts(path)))
        return None if found is None else (found[0], found[2])

    def create(self, path: str, data: bytes, metadata: Mapping[str, str] | None = None) -> bool:
        """See Store."""
        return self._put(path, data, "create", metadata or {})

    def replace(self, path: str, data: bytes, expected: bytes | None) -> bool:
        """See Store."""
        if expected is None:
            return self.create(path, data)
        found = self._get("/".join(_parts(path)))
        if found is None or found[0] != expected:
            return False
        if found[1] is None:
            raise StoreError(
                f"{self.url} gives no ETag, so nothing can be replaced safely",
                "It needs a store that knows conditional writes.",
                retryable=False,
            )
        return self._put(path, data, {"e_tag": found[1]})

    def delete(self, path: str) -> None:
        """See Store."""
        import obstore

        key = "/".join(_parts(path))
        with self._errors(path), suppress(FileNotFoundError):
            obstore.delete(self._client, key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """See Store."""
        import obstore

        key = "/".join(_parts(prefix)) if prefix else None
        stream = obstore.list(self._client, key, chunk_size=1000)
        while True:
            with self._errors(prefix):
                page = next(stream, None)
            if page is None:
                return
            yield from (found["path"] for found in page)

    def children(self, directory: str = "") -> Sequence[str]:
        """See Store."""
        import obstore

        key = "/".join(_parts(directory)) if directory else None
        with self._errors(directory):
            found = obstore.list_with_delimiter(self._client, key)
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted({path.rstrip("/").rpartition("/")[2] for path in paths})

    def _get(self, key: str) -> tuple[bytes, str | None, dict[str, str]] | None:
        import obstore

        with self._errors(key):
            try:
                found = obstore.get(self._client, key)
                if found.meta["size"] > MAX_OBJECT_BYTES:
                    raise _too_large(f"{self.url}/{key}")
                metadata = {k.lower(): v for k, v in found.attributes.items()}
                metadata.pop("content-type", None)
                return bytes(found.bytes()), found.meta["e_tag"], metadata
            except FileNotFoundError:
                return None

    def _put(
        self, path: str, data: bytes, mode: Any, metadata: Mapping[str, str] | None = None
    ) -> bool:
        import obstore
        from obstore import exceptions

        key = "/".join(_parts(path))
        with self._errors(path):
            try:
                attributes = {"Content-Type": _content_type(key), **(metadata or {})}
                obstore.put(
                    self._client, key, data,
                    attributes=attributes, mode=mode, use_multipart=False,
                )  # fmt: skip
                return True
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        from obstore import exceptions

        where = f"{self.url}/{path}".rstrip("/")
        try:
            yield
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise StoreError(
                f"{where} is refused: {_said(error)}",
                "Check the access key and what it may do in the bucket.",
            ) from None
        except (exceptions.BaseError, OSError) as error:
            raise StoreError(
                f"{where} cannot be reached: {_said(error)}",
                "Check the URL, the storage options and that the store runs.",
            ) from None


def _content_type(path: str) -> str:
    """Return as what an object is to be served (c2sp.org/tlog-tiles, for those of a log)."""
    if path.rpartition("/")[2] == "checkpoint":
        return "text/plain; charset=utf-8"
    return "application/json" if path.endswith(".json") else "application/octet-stream"


def _client(url: str, options: Mapping[str, str]) -> "S3Client":
    from obstore import exceptions
    from obstore.store import S3Store

    bucket: dict[str, Any] = {}
    client: dict[str, Any] = dict(_TIMEOUTS)
    retry: dict[str, Any] = {
        "max_retries": _MAX_RETRIES,
        "retry_timeout": timedelta(seconds=_RETRY_TIMEOUT_S),
    }
    inherited = {k: v for k, v in os.environ.items() if _plain(k) in _CLIENT_OPTIONS and _aws(k)}
    for name, value in {**inherited, **options}.items():
        if _plain(name) in _CLIENT_OPTIONS:
            client[_plain(name)] = value
        elif _plain(name) == "max_retries":
            if not value.isdecimal():
                raise UsageError(f"storage option {name} is no number")
            retry["max_retries"] = int(value)
        elif _plain(name) == "retry_timeout":
            seconds = re.fullmatch(r"(\d+)s", value)
            if seconds is None:
                raise UsageError(f"storage option {name} is no number of seconds, such as 30s")
            retry["retry_timeout"] = timedelta(seconds=int(seconds[1]))
        else:
            bucket[f"aws_{_plain(name)}"] = value
    try:
        return S3Store.from_url(
            url,
            config=bucket,  # type: ignore[arg-type]
            client_options=client,  # type: ignore[arg-type]
            retry_config=retry,  # type: ignore[arg-type]
        )
    except (exceptions.BaseError, ValueError, TypeError) as error:
        raise UsageError(
            f"a bucket at {url} cannot be used: {_said(error)}",
            "Check the URL and the storage options.",
        ) from None


def _plain(name: str) -> str:
    return name.lower().removeprefix("aws_")


def _aws(name: str) -> bool:
    return name.lower().startswith("aws_")


def _metadata(content: bytes | None) -> dict[str, str]:
    """Return what a file of metadata holds; nothing when there is none, or another file."""
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return {k: str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _bounded(content: bytes, where: str) -> bytes:
    if len(content) > MAX_OBJECT_BYTES:
        raise _too_large(where)
    return content


def _too_large(where: str) -> StoreError:
    return StoreError(
        f"{where} has more than {MAX_OBJECT_BYTES} bytes, so it is none of ours",
        "Nobody but OML writes there: look who made it.",
        retryable=False,
    )


def _said(error: Exception) -> str:
    """Return what the library said, on one line and without its backtrace."""
    return " ".join(str(error).split("Debug source:")[0].split())[:_LONGEST_REASON]
