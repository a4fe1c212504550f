"""Where the server's programs and extension files are."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from oml.errors import SetupError

_DEBIAN = Path("/usr/lib/postgresql/15/bin/pg_config")


@dataclass(frozen=True)
class Programs:
    """The directories of one PostgreSQL installation."""

    bindir: Path
    sharedir: Path

    def path(self, name: str) -> str:
        """Return the full path of a server program such as ``initdb``."""
        return str(self.bindir / name)

    def require_extension(self) -> None:
        """Raise SetupError unless the extension's files are installed in this server."""
        if not (self.sharedir / "extension" / "oml.control").is_file():
            raise SetupError(
                "the extension oml is not installed in this PostgreSQL",
                "Run make install as root.",
            )


@cache
def find() -> Programs:
    """Find PostgreSQL 15 through PG_CONFIG, Debian's directory, or pg_config on the PATH.

    Raises SetupError when none of them has the server's programs.
    """
    named = os.environ.get("PG_CONFIG")
    for candidate in [named] if named else [str(_DEBIAN), shutil.which("pg_config")]:
        if candidate and shutil.which(candidate):
            bindir, sharedir = (Path(_ask(candidate, o)) for o in ("--bindir", "--sharedir"))
            if all((bindir / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
                return Programs(bindir, sharedir)
    raise SetupError(
        "the server programs of PostgreSQL 15 were not found",
        "apt-get install postgresql-15 postgresql-plpython3-15, or set PG_CONFIG to a pg_config.",
    )


def _ask(pg_config: str, option: str) -> str:
    return subprocess.run(
        [pg_config, option], check=True, capture_output=True, text=True
    ).stdout.strip()
