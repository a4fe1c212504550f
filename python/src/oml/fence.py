"""The fence: up to which outbox seq the lake and the tlog may read.

Invariant: when a cut ends at E, every outbox seq <= E is committed or aborted, and the committed
ones are durable at the deployment's level. Why an xid horizon or "the rows I see" will not do is
in docs/explanation/exactly-once.md.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.rows import dict_row

from oml.driver.commit import doubts
from oml.driver.connection import connect
from oml.errors import from_postgres
from oml.failpoint import failpoint

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.25
_CANCEL_AGAIN_S = 0.1
_CANCEL_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Holder:
    """A transaction that holds the cut back: its xid and its backend pid or prepared gid.

    ``login``, ``state`` and ``age_s``, the seconds since it began or was prepared, are None where
    they are not known: another login's sessions show them to members of pg_read_all_stats alone.
    """

    xid: int
    pid: int | None
    gid: str | None
    login: str | None = None
    state: str | None = None
    age_s: float | None = None

    def __str__(self) -> str:
        who = f"prepared transaction {self.gid!r}" if self.gid else f"backend pid {self.pid}"
        since = None if self.age_s is None else f"{self.state or 'open'} for {self.age_s:.0f} s"
        known = [self.login, since, f"xid {self.xid}"]
        return f"{who} ({', '.join(part for part in known if part)})"


def by_transaction(holders: Iterable[Holder]) -> list[Holder]:
    """Return one holder a transaction, under its lowest xid: subtransactions have their own."""
    first: dict[tuple[int | None, str | None], Holder] = {}
    for holder in sorted(holders, key=lambda h: h.xid):
        first.setdefault((holder.pid, holder.gid), holder)
    return list(first.values())


class Outbox:
    """A consumer's session, as a login that holds ``operate`` on the provider.

    Use as a context manager; raises DatabaseError throughout.
    """

    def __init__(self, dsn: str | None, application_name: str) -> None:
        self.dsn = dsn
        self.connection = connect(dsn, autocommit=True, application_name=application_name)
        self.warnings: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session."""
        self.connection.close()

    def _rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(query, parameters).fetchall()
        except psycopg.Error as error:
            raise from_postgres(error) from None

    def _records(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        try:
            with self.connection.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(query, parameters).fetchall()
        except psycopg.Error as error:
            raise from_postgres(error) from None

    def _value(self, query: str, *parameters: Any) -> Any:
        return self._rows(query, *parameters)[0][0]

    def _write(self, synchronous_commit: str, query: str, *parameters: Any) -> None:
        """Commit ``select query`` at this level, with its warnings, whatever the session is set to.

        One statement outside a transaction block: cancelled or not, no transaction stays open.
        """
        self.connection.execute(
            "select set_config('synchronous_commit', %s, true),"
            f" set_config('client_min_messages', 'warning', true), {query}",
            (synchronous_commit, *parameters),
        )

    def _write_cache(self, query: str, *parameters: Any) -> None:
        """Commit what recovery could find again: it waits for no standby."""
        try:
            self._write("local", query, *parameters)
        except psycopg.Error as error:
            raise from_postgres(error) from None

    def cut_limit(self) -> int:
        """Return the highest outbox seq visible now (fence, step 1)."""
        return int(self._value("select oml.lake_cut_limit()"))

    def cut_holders(self, xids: Iterable[int] | None = None) -> list[Holder]:
        """List the transactions that may hold an outbox seq, or which of ``xids`` still run."""
        wanted = None if xids is None else list(xids)
        return [
            Holder(*row)
            for row in self._rows("select * from oml.lake_cut_holders(%s::bigint[])", wanted)
        ]

    def described(self, holders: Iterable[Holder]) -> list[Holder]:
        """Return one holder a transaction, with what this session may see of it."""
        found = by_transaction(holders)
        rows = self._rows(
            "select a.pid, null, a.usename::text, a.state,"
            " extract(epoch from clock_timestamp() - a.xact_start)::float8"
            " from pg_stat_activity a where a.pid = any (%s)"
            " union all select null, p.gid, p.owner::text, 'prepared',"
            " extract(epoch from clock_timestamp() - p.prepared)::float8"
            " from pg_prepared_xacts p where p.gid = any (%s)",
            [h.pid for h in found if h.pid is not None],
            [h.gid for h in found if h.gid is not None],
        )
        known = {(pid, gid): (login, state, age) for pid, gid, login, state, age in rows}
        return [
            replace(h, login=login, state=state, age_s=age)
            for h in found
            for login, state, age in [known.get((h.pid, h.gid), (None, None, None))]
        ]

    def take_lease(
        self, name: str, holder: str, term: int | None, ttl_s: float
    ) -> tuple[bool, int, str | None, float | None]:
        """Take a lease for ``ttl_s`` seconds, or renew the one of ``term``.

        Returns whether ``holder`` has it then, its term, who has it, and for how many seconds.
        """
        query = (
            "select l.is_held, l.term, l.holder, l.seconds_left"
            " from set_config('synchronous_commit', 'local', true),"
            " oml.lease_take(%s, %s, %s::bigint, %s::float8) l"
        )
        return self._rows(query, name, holder, term, ttl_s)[0]

    def release_lease(self, name: str, holder: str, term: int) -> None:
        """Give a lease back."""
        self._write_cache("oml.lease_release(%s, %s, %s::bigint)", name, holder, term)

    def leases(self) -> list[dict[str, Any]]:
        """List the leases: who holds them, since when, and for how many seconds still."""
        return self._records("select * from oml.leases()")

    def fence(self, limit: int, synchronous_commit: str, timeout_s: float) -> bool:
        """Commit a row behind everything up to ``limit`` (fence, step 3).

        False when it is not known to be durable: the wait for that was cut short, by others or by
        us after ``timeout_s`` seconds. ``warnings`` then says what the server said.
        """
        self.warnings.clear()
        try:
            with doubts(self.connection) as said, self._cancelled_after(timeout_s) as cancelled:
                self._write(synchronous_commit, "oml.lake_fence(%s)", limit)
            self.warnings += said
            if cancelled():
                self.warnings.append(f"the wait was cancelled after {timeout_s:.0f} s")
        except psycopg.errors.QueryCanceled as error:
            self.warnings.append(error.diag.message_primary or "")
        except psycopg.Error as error:
            raise from_postgres(error) from None
        return not self.warnings

    @contextmanager
    def _cancelled_after(self, seconds: float) -> Iterator[Callable[[], bool]]:
        """Cancel what the connection does inside, once the time is up; nothing that follows.

        It cancels until the inside is left: the server ignores a cancellation that reaches it
        before the statement does. Yields a function that tells whether the time was up.
        """
        inside = threading.Lock()
        left = threading.Event()
        cancelled = False

        def cancel() -> None:
            nonlocal cancelled
            pause = max(seconds, 0)
            while not left.wait(pause):
                with inside:
                    if not left.is_set():
                        cancelled = True
                        with suppress(psycopg.Error):
                            self.connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
                pause = _CANCEL_AGAIN_S

        threading.Thread(target=cancel, daemon=True).start()
        try:
            yield lambda: cancelled
        finally:
            with inside:
                left.set()


@dataclass(frozen=True)
class Cut:
    """A fenced limit, or None with who held it back. ``limit`` is an outbox seq."""

    limit: int | None
    holders: tuple[Holder, ...] = ()
    reason: str | None = None


def cut(source: Outbox, frontier: int, synchronous_commit: str, timeout_s: float) -> Cut:
    """Find a limit E and make it safe, waiting at most ``timeout_s`` seconds in steps 2 and 3 each.

    1. Read E, the highest seq visible, in a transaction of its own.
    2. Whoever drew a seq up to E holds the outbox's lock and an xid, or has ended. Wait for those.
    3. Commit a fence row at the deployment's level: its WAL lies behind all of theirs.
    """
    deadline = time.monotonic() + timeout_s
    limit = source.cut_limit()
    failpoint("cut.limit-read")
    if limit <= frontier:
        return Cut(frontier)
    holders = source.cut_holders()
    pause = _FIRST_PAUSE_S
    while holders:
        if time.monotonic() >= deadline:
            reason = "open transactions have drawn outbox numbers"
            return Cut(None, tuple(source.described(holders)), reason)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
        holders = source.cut_holders(h.xid for h in holders)
    failpoint("cut.holders-ended")
    deadline = time.monotonic() + timeout_s
    while not source.fence(limit, synchronous_commit, deadline - time.monotonic()):
        if time.monotonic() >= deadline:
            return Cut(None, (), f"the fence was not made durable: {'; '.join(source.warnings)}")
    failpoint("cut.fenced")
    return Cut(limit)
