"""The lake-writer role: drain, pause, drain again, through restarts of everything else."""

import logging
import threading
from dataclasses import dataclass

from oml import gate
from oml.daemon.mover import moving
from oml.daemon.sessions import run_sessions
from oml.errors import DatabaseError, GateClosedError, OmlError
from oml.lake.lease import Lease, LeaseHeld, LeaseLost
from oml.lake.source import Source
from oml.lake.table import LakeError
from oml.lake.upkeep import Upkeep
from oml.lake.writer import LakeWriter
from oml.settings import Settings

log = logging.getLogger("oml.lake-writer")


@dataclass
class LakeWriterRole:
    """Runs until ``stop`` is set. A lost database or store is waited for; a fork ends it.

    A closed write gate is opened at a session's beginning. Where it may not be, we say why and wait
    too: the signer, which may run beside us, is needed by whoever accepts the loss.
    """

    dsn: str | None
    settings: Settings
    stop: threading.Event
    _standing_by: str | None = None

    def run(self) -> None:
        """Drain until stopped.

        Raises LakeError when a person must look, DatabaseError when the database refuses us for
        good (a missing permission, a missing extension).
        """
        with moving(self.dsn, self.settings, self.stop):
            run_sessions(
                self._session,
                passing=_passing,
                tell=lambda error: log.warning("%s", _away(error)),
                pause_s=self.settings.poll_interval_s,
                stop=self.stop,
            )

    def _session(self) -> None:
        """Serve one connection. Only one that never worked counts as a failed attempt."""
        if self.stop.is_set():
            return
        worked = False
        try:
            self._open_gate()
            with Source(self.dsn) as source:
                log.info("connected")
                lease = Lease(source, self.settings.lease_s)
                upkeep = Upkeep(self.settings)
                writer = LakeWriter(source, self.settings, upkeep=upkeep, lease=lease)
                try:
                    while not self.stop.is_set():
                        self._turn(writer, lease)
                        worked = True
                        self.stop.wait(self.settings.poll_interval_s)
                finally:
                    lease.release()
        except (DatabaseError, GateClosedError, LakeError) as error:
            if not (worked and _passing(error)):
                raise
            log.warning("%s", _away(error, "connection lost"))

    def _turn(self, writer: LakeWriter, lease: Lease) -> None:
        """Drain if the lease is ours, else stand by. It may be lost at any time."""
        try:
            lease.keep()
            self._standing_by = None
            self._drain(writer)
        except LeaseLost as lost:
            log.warning("lost the lease: %s", lost)
        except LeaseHeld as held:
            if held.holder != self._standing_by:
                log.info("standing by: %s", held)
                self._standing_by = held.holder

    def _open_gate(self) -> None:
        report = gate.ensure_open(self.settings, self.dsn)
        if report is not None:
            log.info("the write gate is open")
            for unknown in report.unreachable:
                log.warning("the write gate was opened without evidence: %s", unknown)

    def _drain(self, writer: LakeWriter) -> None:
        report = writer.drain(stop=self.stop.is_set)
        if report.batches or report.recovered_rows:
            log.info(
                "drained %d batches, %s rows, frontier %d",
                report.batches, sum(report.rows.values()) + report.recovered_rows, report.frontier,
            )  # fmt: skip
        if report.held_back:
            log.warning("held back: %s: %s", report.held_back, ", ".join(report.holders))


def _passing(error: BaseException) -> bool:
    if isinstance(error, LakeError):
        return error.retryable
    if isinstance(error, GateClosedError):
        return True
    return isinstance(error, DatabaseError) and error.passing


def _away(error: BaseException | None, of_database: str = "database away") -> str:
    what = "lake away" if isinstance(error, LakeError) else of_database
    if isinstance(error, GateClosedError):
        what = "waiting"
    hint = error.hint if isinstance(error, OmlError) else None
    return f"{what}: {error}{f' ({hint})' if hint else ''}"
