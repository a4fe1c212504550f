"""The tlog role: publish, pause, publish again, through restarts of everything else."""

import logging
import threading
from dataclasses import dataclass, field
from uuid import UUID

from oml import gate
from oml.daemon.sessions import run_sessions
from oml.errors import DatabaseError, GateClosedError, OmlError
from oml.settings import Settings
from oml.store import StoreError
from oml.tlog.publisher import Publisher, Report, TlogUnavailable, tlog_store
from oml.tlog.source import TlogSource

log = logging.getLogger("oml.tlog")


@dataclass
class TlogRole:
    """Runs until ``stop`` is set. What is away is waited for, also a tlog_url if none is set."""

    dsn: str | None
    settings: Settings
    stop: threading.Event
    _told: dict[UUID, str] = field(default_factory=dict)
    _waiting: bool = False

    def run(self) -> None:
        """Publish until stopped.

        Raises DatabaseError when the database refuses us for good (a missing permission, a missing
        extension), UsageError for a tlog_url that is no place, StoreError when a person must look.
        """
        run_sessions(
            self._session,
            passing=_passing,
            tell=lambda error: log.warning("%s", _away(error)),
            pause_s=self.settings.tlog_interval_s,
            stop=self.stop,
        )

    def _session(self) -> None:
        """Serve one connection. Only one that never worked counts as a failed attempt."""
        if self.stop.is_set():
            return
        worked = False
        try:
            gate.ensure_open(self.settings, self.dsn)
            with TlogSource(self.dsn, "oml tlog publisher") as source:
                log.info("connected")
                publisher = self._publisher(source)
                if publisher is None:
                    return
                with publisher.cosigning():
                    while not self.stop.is_set():
                        self._tell(publisher.publish(stop=self.stop.is_set))
                        worked = True
                        self.stop.wait(self.settings.tlog_interval_s)
        except (DatabaseError, GateClosedError, StoreError, TlogUnavailable) as error:
            if not (worked and _passing(error)):
                raise
            log.warning("%s", _away(error, "connection lost"))

    def _publisher(self, source: TlogSource) -> Publisher | None:
        """Wait until a tlog_url is configured; None when stopped before."""
        while not self.stop.is_set():
            state = source.state()
            if self.settings.tlog_url or state.tlog_url:
                self._waiting = False
                store = tlog_store(self.settings, state, make=True)
                return Publisher(source, store, self.settings)
            if not self._waiting:
                log.info("waiting: no tlog_url is configured, so nothing is published")
                self._waiting = True
            self.stop.wait(self.settings.tlog_interval_s)
        return None

    def _tell(self, report: Report) -> None:
        if report.checkpoints:
            log.info(
                "published %d checkpoints, %d events, frontier %d",
                report.checkpoints, report.events, report.frontier,
            )  # fmt: skip
        if report.held_back:
            log.warning("held back: %s: %s", report.held_back, ", ".join(report.holders))
        for each in report.refused:
            if self._told.get(each.tenant_id) != each.reason:
                log.error("not published: %s: %s (%s)", each.tenant, each.reason, each.kind)
        self._told = {each.tenant_id: each.reason for each in report.refused}


def _passing(error: BaseException) -> bool:
    if isinstance(error, TlogUnavailable | GateClosedError):
        return True
    if isinstance(error, StoreError):
        return error.retryable
    return isinstance(error, DatabaseError) and error.passing


def _away(error: BaseException | None, of_database: str = "database away") -> str:
    what = of_database
    if isinstance(error, StoreError):
        what = "tlog store away"
    elif isinstance(error, TlogUnavailable):
        what = "signer away"
    elif isinstance(error, GateClosedError):
        what = "waiting"
    hint = error.hint if isinstance(error, OmlError) else None
    return f"{what}: {error}{f' ({hint})' if hint else ''}"
