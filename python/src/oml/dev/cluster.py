"""A private PostgreSQL cluster under one directory, reached through a Unix socket alone.

Layout of the directory: ``pg`` (data), ``run`` (socket), ``log``, ``dev.json``.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from oml.dev import account, programs, record
from oml.dev.account import Account
from oml.dev.record import Record
from oml.errors import SetupError, UsageError

Setting = str | int | float | bool

SUPERUSER = "postgres"
PORT = 5432  # only names the socket: every cluster has a socket directory of its own
_SOCKET = f".s.PGSQL.{PORT}"
_SOCKET_DIR_PREFIX = "oml-dev-"
_LONGEST_SOCKET_PATH = 107  # bytes: sun_path without its NUL
_START_TIMEOUT_S = 120  # crash recovery is part of a start
_EXIT_TIMEOUT_S = 60
_ORPHANS_TIMEOUT_S = 5
_POLL_S = 0.005
_LOG_LINES = 8
_READY = ("ready", "standby")  # line 8 of postmaster.pid
_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
# A session of its own: no Ctrl-C or hang-up of ours reaches the server.
_DETACHED = 'setsid "$@" </dev/null >>"$0" 2>&1 & echo $!'

_DEFAULTS: Mapping[str, Setting] = {
    "listen_addresses": "",
    "port": PORT,
    "fsync": True,
    "wal_level": "logical",
    "max_prepared_transactions": 16,
    "log_line_prefix": "%m [%p] %q%u@%d ",
}


class Cluster:
    """The cluster in ``directory``, whether or not it exists yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    @property
    def data(self) -> Path:
        """The data directory (PGDATA)."""
        return self.directory / "pg"

    @property
    def log_file(self) -> Path:
        """The server's log."""
        return self.directory / "log" / "postgres.log"

    @property
    def account(self) -> Account:
        """The OS user the server runs as. Raises SetupError or UsageError if there is none."""
        if self.exists():
            return account.of_existing_cluster(self.data)
        return account.of_new_cluster()

    def exists(self) -> bool:
        """Whether ``create`` has completed."""
        return self.data.is_dir()

    def create(self, settings: Mapping[str, Setting] | None = None) -> None:
        """Make the cluster; superuser ``postgres``, trust authentication on the socket.

        ``settings`` goes into postgresql.conf, over our defaults. An interrupted call can be
        repeated. Raises UsageError if the directory is another's or the cluster exists, SetupError
        if the server's programs are missing or their user cannot enter the directory.
        """
        conf = "".join(_conf_line(*s) for s in {**_DEFAULTS, **(settings or {})}.items())
        self._make_data(
            [
                *(programs.find().path("initdb"), "--no-sync", "--username", SUPERUSER),
                *("--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8"),
            ],
            conf,
        )

    def standby(self, directory: Path) -> "Cluster":
        """Copy this running cluster into ``directory`` as a streaming standby, not yet started.

        Raises as ``create`` does, and SetupError if the base backup fails.
        """
        copy = Cluster(directory)
        copy._make_data(
            [
                *(programs.find().path("pg_basebackup"), "--no-sync", "--write-recovery-conf"),
                *("--wal-method", "stream", "--checkpoint", "fast", "--dbname", self.dsn()),
            ]
        )
        return copy

    def start(self) -> None:
        """Start the server if it is stopped and wait until it accepts connections.

        Raises SetupError, with the end of the server's log, if it does not start.
        """
        logged = self.log_file.stat().st_size if self.log_file.exists() else 0
        pid = self.pid() or self._launch()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._ready(pid):
            if not _alive(pid):
                tail = self._log_since(logged)[-_LOG_LINES:]
                raise SetupError("\n  ".join(["the server did not start:", *tail]), self._see_log())
            if time.monotonic() > deadline:
                raise SetupError(
                    f"the server is not ready after {_START_TIMEOUT_S} s", self._see_log()
                )
            time.sleep(_POLL_S)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server if it runs and wait; ``mode`` is smart, fast or immediate as in pg_ctl.

        Raises SetupError if it has not stopped after a minute.
        """
        postmaster = self.pid()
        if postmaster is not None:
            os.kill(postmaster, _STOP_SIGNALS[mode])
            self._wait_for_exit([postmaster])

    def kill(self) -> None:
        """SIGKILL the postmaster and its processes at once, and wait until they are gone.

        A backend may outlive its postmaster long enough to commit; here nothing does.
        """
        postmaster = self.pid()
        if postmaster is None:
            return
        os.kill(postmaster, signal.SIGSTOP)  # so that it forks no more while we list
        processes = [postmaster, *children(postmaster)]
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._wait_for_exit(processes)

    def destroy(self) -> None:
        """Stop the server and remove the directory. Raises UsageError if it is not ours."""
        kept = record.require(self.directory)
        self.stop("immediate")
        if kept.socket_dir is not None and _is_private(Path(kept.socket_dir), self.account):
            shutil.rmtree(kept.socket_dir)
        shutil.rmtree(self.directory)

    def running(self) -> bool:
        """Whether the server's postmaster is alive."""
        return self.pid() is not None

    def pid(self) -> int | None:
        """Return the postmaster's process id, or None. A stale or reused pid file is not it."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            # A postmaster's working directory is its data directory.
            return pid if Path(f"/proc/{pid}/cwd").samefile(self.data) else None
        except (OSError, ValueError):
            return None

    def dsn(self, user: str = SUPERUSER, dbname: str = "postgres") -> str:
        """Return the libpq conninfo string of a login and database of this cluster."""
        parts = {"host": self._socket_dir(), "port": PORT, "dbname": dbname, "user": user}
        return " ".join(f"{key}={_conninfo_value(str(value))}" for key, value in parts.items())

    def _prepare(self) -> Account:
        """Make or adopt the directory, write its record, and return who the server runs as."""
        make_directory(self.directory)
        self._require_new()
        owner = account.of_new_cluster()
        kept = record.load(self.directory)
        if kept is None and not record.is_free(self.directory):
            raise UsageError(
                f"{self.directory} is not empty and was not made by oml dev",
                "Choose a new or empty directory.",
            )
        owner.require_access(self.directory)
        if kept is None:
            Record().save(self.directory)
        owner.make_directory(self.directory / "log")
        return owner

    def _make_data(self, command: list[str], conf: str = "") -> None:
        """Fill a partial data directory with ``command`` and ``conf``; its rename completes it.

        The command holds a lock too, even past our own death: whoever repeats an interrupted call
        waits until nothing writes to what it left, and removes that.
        """
        owner = self._prepare()
        partial = self.directory / "pg.new"
        with locked(self.directory / "log") as lock:
            self._require_new()
            if partial.exists():
                shutil.rmtree(partial)
            owner.make_directory(partial)
            owner.run([*command, "--pgdata", str(partial)], inherits=lock)
            with (partial / "postgresql.conf").open("a") as file:
                file.write(conf)
            partial.rename(self.data)

    def _require_new(self) -> None:
        if self.exists():
            raise UsageError(f"{self.directory} already holds a cluster")

    def _launch(self) -> int:
        """Start a postmaster and return its process id at once."""
        owner = self.account
        owner.require_access(self.data)
        socket_dir = self._make_socket_dir(owner)
        self._remove_stale_locks(socket_dir)
        postgres = [programs.find().path("postgres"), "-D", str(self.data)]
        postgres += ["-c", f"unix_socket_directories={_list_item(str(socket_dir))}"]
        return int(owner.run(["/bin/sh", "-c", _DETACHED, str(self.log_file), *postgres]))

    def _socket_dir(self) -> Path:
        kept = record.load(self.directory)
        return Path(kept.socket_dir) if kept and kept.socket_dir else self.directory / "run"

    def _make_socket_dir(self, owner: Account) -> Path:
        inside = self.directory / "run"
        if _fit_for_socket(inside):
            owner.make_directory(inside)
            return inside
        kept = record.require(self.directory)
        if kept.socket_dir is None or not _is_private(Path(kept.socket_dir), owner):
            elsewhere = tempfile.mkdtemp(prefix=_SOCKET_DIR_PREFIX, dir="/tmp")
            Record(socket_dir=elsewhere).save(self.directory)
        else:
            elsewhere = kept.socket_dir
        owner.make_directory(Path(elsewhere))
        return Path(elsewhere)

    def _remove_stale_locks(self, socket_dir: Path) -> None:
        """Remove lock files of a dead postmaster, which PostgreSQL takes for a live one.

        So it does if the pid was used again, or is a zombie whose parent has yet to reap it.
        Waits a little for orphaned processes of the cluster; while one lives the files stay.
        """
        locks = [self.data / "postmaster.pid", socket_dir / f"{_SOCKET}.lock"]
        if not any(lock.exists() for lock in locks):
            return
        deadline = time.monotonic() + _ORPHANS_TIMEOUT_S
        while _working_in(self.data):
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)
        for lock in locks:
            lock.unlink(missing_ok=True)

    def _ready(self, pid: int) -> bool:
        """Whether the postmaster ``pid`` has written that it accepts connections."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() in _READY

    def _wait_for_exit(self, pids: list[int]) -> None:
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        while any(_alive(pid) for pid in pids):
            if time.monotonic() > deadline:
                message = f"the server is still there after {_EXIT_TIMEOUT_S} s"
                raise SetupError(message, self._see_log())
            time.sleep(_POLL_S)

    def _see_log(self) -> str:
        return f"See {self.log_file}."

    def _log_since(self, offset: int) -> list[str]:
        try:
            with self.log_file.open("rb") as file:
                file.seek(offset)
                return file.read().decode(errors="replace").splitlines()
        except OSError:
            return []


def make_directory(directory: Path) -> None:
    """Make a system's directory if it is absent; others may enter it, whatever the umask.

    Raises SetupError if it cannot be entered or made, UsageError if it is a file.
    """
    try:
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    except PermissionError as error:
        raise SetupError(
            f"cannot enter or make {error.filename}",
            "Choose a directory that you can enter and write.",
        ) from None
    except (FileExistsError, NotADirectoryError):
        # Looked at only now: another may have made it a moment ago.
        if not directory.is_dir():
            raise UsageError(
                f"{directory} is not a directory", "Choose a directory that is absent or OML's."
            ) from None


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[int]:
    """Hold a directory against other holders; waits for them. Yields the lock's descriptor."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _fit_for_socket(directory: Path) -> bool:
    """Whether libpq and the server both take the path: short, and no list of several hosts."""
    path = str(directory / _SOCKET)
    return len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH and "," not in path


def _is_private(socket_dir: Path, owner: Account) -> bool:
    """Whether a recorded socket directory in /tmp is still ours: others may make names there."""
    with contextlib.suppress(OSError):
        status = socket_dir.lstat()
        ours = status.st_uid == owner.uid and stat.S_IMODE(status.st_mode) == 0o700
        named = socket_dir.name.startswith(_SOCKET_DIR_PREFIX) and socket_dir.parent == Path("/tmp")
        return ours and named and stat.S_ISDIR(status.st_mode)
    return False


def _list_item(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _conninfo_value(value: str) -> str:
    if value and not set(value) & set(" '\\\t\n"):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _conf_line(name: str, value: Setting) -> str:
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return f"{name} = '" + text.replace("'", "''") + "'\n"


def children(pid: int) -> list[int]:
    """Return the child processes of ``pid``, from the parent field of each /proc/N/stat."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state_and_parent = entry.read_text().rpartition(")")[2].split()
            if int(state_and_parent[1]) == pid:
                found.append(int(entry.parent.name))
    return found


def _working_in(directory: Path) -> list[int]:
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if cwd.samefile(directory):
                found.append(int(cwd.parent.name))
    return found


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
