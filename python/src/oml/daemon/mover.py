"""The object mover beside the lake writer: its own thread and session, at its own pace.

A bodies' store that is slow or away holds back no batch of the lake.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from oml.daemon.sessions import run_sessions
from oml.errors import DatabaseError
from oml.lake.bodies import BodiesSource
from oml.lake.mover import Moved, Mover
from oml.lake.table import LakeError
from oml.settings import Settings

log = logging.getLogger("oml.mover")


@contextmanager
def moving(dsn: str | None, settings: Settings, stop: threading.Event) -> Iterator[None]:
    """Move bodies while the block runs, until ``stop`` is set.

    What ends the mover for good sets ``stop``, and is raised at the block's end.
    """
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run_sessions(
                lambda: _session(dsn, settings, stop),
                passing=_passing,
                tell=_tell_away,
                pause_s=settings.poll_interval_s,
                stop=stop,
            )
        except BaseException as error:
            failures.append(error)
            stop.set()

    thread = threading.Thread(target=work, name="mover")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def _session(dsn: str | None, settings: Settings, stop: threading.Event) -> None:
    """Serve one connection. Only one that never worked counts as a failed attempt."""

    def pause(seconds: float) -> None:
        stop.wait(seconds)

    if stop.is_set():
        return
    worked = False
    try:
        with BodiesSource(dsn) as source:
            mover = Mover(source, settings, pause)
            while not stop.is_set():
                _tell(mover.move(stop=stop.is_set))
                worked = True
                stop.wait(settings.poll_interval_s)
    except (DatabaseError, LakeError) as error:
        if not (worked and _passing(error)):
            raise
        _tell_away(error)


def _tell(report: Moved) -> None:
    if report.objects:
        log.info("moved %d bodies and attachments, frontier %d", report.objects, report.frontier)
    for outbox_seq in report.dead_letters:
        log.error("outbox row %d is a dead letter: its content was not moved", outbox_seq)


def _passing(error: BaseException) -> bool:
    if isinstance(error, LakeError):
        return error.retryable
    return isinstance(error, DatabaseError) and error.passing


def _tell_away(error: BaseException | None) -> None:
    """Say that the store is away; of the database the lake writer says it."""
    if isinstance(error, LakeError):
        log.warning("bodies' store away: %s (%s)", error, error.hint)
