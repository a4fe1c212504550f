"""The OS user a private server runs as: never root."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oml.errors import SetupError, UsageError

DEFAULT_ACCOUNT = "postgres"


@dataclass(frozen=True)
class Account:
    """An OS user, and how to run programs as it."""

    name: str
    uid: int
    gid: int
    home: str

    def run(self, argv: list[str], *, cwd: Path | None = None, inherits: int | None = None) -> str:
        """Run a program as this user and return its stdout; it ``inherits`` a file descriptor.

        The environment is reset: PYTHONPATH, PGOPTIONS and the like of the caller must not reach
        the server or the Python inside it. Raises SetupError with the program's stderr.
        """
        switch = self.uid != os.geteuid()
        done = subprocess.run(
            argv,
            cwd=cwd or Path("/"),
            env=self._environment(),
            user=self.uid if switch else None,
            group=self.gid if switch else None,
            extra_groups=os.getgrouplist(self.name, self.gid) if switch else None,
            pass_fds=() if inherits is None else (inherits,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            program = Path(argv[0]).name
            detail = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
            raise SetupError(f"{program} failed: {detail}")
        return done.stdout

    def make_directory(self, path: Path) -> None:
        """Make a directory that only this user (and root) can enter; an existing one is kept."""
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def require_access(self, directory: Path) -> None:
        """Raise SetupError, naming the directory, if this user cannot traverse down to it."""
        script = 'for d; do [ -x "$d" ] || { echo "$d"; break; }; done'
        steps = [str(p) for p in _from_root(directory)]
        blocked = self.run(["/bin/sh", "-c", script, "sh", *steps]).strip()
        if blocked:
            raise SetupError(
                f"the server's user {self.name} cannot enter {blocked}",
                f"chmod a+x {blocked}, or choose a directory elsewhere, such as under /tmp.",
            )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": self.home,
            "USER": self.name,
            "LOGNAME": self.name,
            "LANG": "C.UTF-8",
            # PL/Python must not import from the user's own site directory.
            "PYTHONNOUSERSITE": "1",
        }


def of_new_cluster() -> Account:
    """Return the current user, or ``postgres`` when that is root. Raises SetupError if absent."""
    if os.geteuid() != 0:
        return _by_uid(os.geteuid())
    try:
        return _account(pwd.getpwnam(DEFAULT_ACCOUNT))
    except KeyError:
        raise SetupError(
            f"root cannot run PostgreSQL, and there is no user {DEFAULT_ACCOUNT} to run it as",
            f"useradd --system {DEFAULT_ACCOUNT}, or run this as an ordinary user.",
        ) from None


def of_existing_cluster(data: Path) -> Account:
    """Return the owner of a data directory. Raises UsageError if we may not act as that user."""
    uid = data.stat().st_uid
    if os.geteuid() not in (0, uid):
        raise UsageError(
            f"{data} belongs to user {_by_uid(uid).name}", "Run this as that user or as root."
        )
    if uid == 0:
        raise UsageError(f"{data} belongs to root, who cannot run PostgreSQL")
    return _by_uid(uid)


def _by_uid(uid: int) -> Account:
    try:
        return _account(pwd.getpwuid(uid))
    except KeyError:
        # A container may run as a uid that has no name; PostgreSQL accepts only named users.
        raise SetupError(f"uid {uid} has no entry in the user database") from None


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir)


def _from_root(directory: Path) -> Iterator[Path]:
    resolved = directory.resolve()
    yield from reversed(resolved.parents)
    yield resolved
