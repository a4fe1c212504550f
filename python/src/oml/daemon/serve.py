"""Run the roles of omld in one process, each in a thread, until a signal."""

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from oml.errors import UsageError
from oml.settings import Settings

_LOOK_S = 0.2


class Role(Protocol):
    """What serve runs."""

    def run(self) -> None:
        """Work until told to stop. What it raises ends the program."""
        ...


# A role is imported when it runs: a signer alone does not load the lake's libraries beside its key.
def _lake_writer(dsn: str | None, settings: Settings, stop: threading.Event) -> Role:
    from oml.daemon.lake_writer import LakeWriterRole

    return LakeWriterRole(dsn, settings, stop)


def _signer(_dsn: str | None, settings: Settings, stop: threading.Event) -> Role:
    from oml.daemon.signer import SignerRole

    return SignerRole(settings, stop)


def _tlog(dsn: str | None, settings: Settings, stop: threading.Event) -> Role:
    from oml.daemon.tlog import TlogRole

    return TlogRole(dsn, settings, stop)


ROLES: dict[str, Callable[[str | None, Settings, threading.Event], Role]] = {
    "lake-writer": _lake_writer,
    "tlog": _tlog,
    "signer": _signer,
}


class Lines(logging.Formatter):
    """One line an entry: when (RFC 3339, UTC), level, role and message, as text or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry. Lines of a message, and of a traceback, are joined by `` / ``."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        role = record.name.removeprefix("oml.")
        lines = super().format(record).splitlines()
        message = " / ".join(line.strip() for line in lines if line.strip())
        if not self.as_json:
            return f"{at} {record.levelname} {role}: {message}"
        entry = {"at": at, "level": record.levelname.lower(), "role": role, "message": message}
        return json.dumps(entry, ensure_ascii=False)


def run(
    dsn: str | None, settings: Settings, roles: Sequence[str] | None, *, json_logs: bool
) -> None:
    """Run ``roles`` until SIGTERM or SIGINT, then end after the work in hand.

    None means the lake writer and the tlog, and the signer too where signer_keys is set. Raises
    UsageError for a role that is not known, and what ended a role for good, which ends the others
    too.
    """
    if not roles:
        roles = ["lake-writer", "tlog", *(["signer"] if settings.signer_keys else [])]
    unknown = [role for role in roles if role not in ROLES]
    if unknown:
        raise UsageError(f"there is no role {unknown[0]!r}", f"Roles: {', '.join(ROLES)}.")
    log_to_stderr = logging.StreamHandler(sys.stderr)
    log_to_stderr.setFormatter(Lines(as_json=json_logs))
    logging.basicConfig(level=logging.INFO, handlers=[log_to_stderr])
    stop = threading.Event()
    failures: list[BaseException] = []

    def work(role: Role) -> None:
        try:
            role.run()
        except BaseException as error:  # a panic of a Rust library is no Exception
            failures.append(error)
        finally:
            stop.set()

    # Handlers run in this thread. It never waits on ``stop`` itself, whose lock they would want,
    # and never without a limit: a library that chains SIGINT lets a wait go on as if none came.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threads = [
        threading.Thread(target=work, args=(ROLES[role](dsn, settings, stop),), name=role)
        for role in dict.fromkeys(roles)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK_S)
    if failures:
        raise failures[0]
    logging.getLogger("oml.serve").info("stopped")
