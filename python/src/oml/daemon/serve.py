"""Run the roles of omld in one process, until a signal."""

import json
import logging
import signal
import sys
import threading

from oml.daemon.lake_writer import LakeWriterRole
from oml.errors import UsageError
from oml.settings import Settings


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "at": self.formatTime(record),
                "level": record.levelname.lower(),
                "role": record.name.removeprefix("oml."),
                "message": record.getMessage(),
            }
        )


def run(dsn: str | None, settings: Settings, roles: list[str], *, json_logs: bool) -> None:
    """Run ``roles`` until SIGTERM or SIGINT, then end after the batch in hand.

    Raises UsageError for a role that is not known, and what ends a role for good.
    """
    unknown = [role for role in roles if role != "lake-writer"]
    if unknown:
        raise UsageError(f"there is no role {unknown[0]!r}", "Roles: lake-writer.")
    log_to_stderr = logging.StreamHandler(sys.stderr)
    log_to_stderr.setFormatter(
        _JsonLines() if json_logs else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[log_to_stderr])
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    LakeWriterRole(dsn, settings, stop).run()
    logging.getLogger("oml.serve").info("stopped")
