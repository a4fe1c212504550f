"""What the lake writer asks of the database: state, fence, batches and rows.

Small questions go through psycopg; rows come as Arrow through ADBC, without a Python object each.
Both connections act as one login that holds ``operate`` on the provider.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from oml.driver.commit import doubts
from oml.driver.connection import connect
from oml.errors import DatabaseError, from_postgres
from oml.lake.schema import LakeTable

_CANCEL_AGAIN_S = 0.1
_CANCEL_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class State:
    """Where the database says the lake stands. Sequences are outbox seqs."""

    deployment_id: str
    lake_url: str | None
    fence_synchronous_commit: str
    frontier: int
    fenced_seq: int
    outbox_max: int


@dataclass(frozen=True)
class Holder:
    """A transaction that holds the cut back: its xid and its backend pid or prepared gid."""

    xid: int
    pid: int | None
    gid: str | None

    def __str__(self) -> str:
        who = f"prepared transaction {self.gid!r}" if self.gid else f"backend pid {self.pid}"
        return f"{who} (xid {self.xid})"


def by_transaction(holders: Iterable[Holder]) -> list[Holder]:
    """Return one holder a transaction, under its lowest xid: subtransactions have their own."""
    first: dict[tuple[int | None, str | None], Holder] = {}
    for holder in sorted(holders, key=lambda h: h.xid):
        first.setdefault((holder.pid, holder.gid), holder)
    return list(first.values())


class Source:
    """The database side of the lake. Use as a context manager; raises DatabaseError throughout."""

    def __init__(self, dsn: str | None) -> None:
        self.connection = connect(dsn, autocommit=True, application_name="oml lake writer")
        self.warnings: list[str] = []
        try:
            self._arrow = adbc.connect(dsn or "postgresql://", autocommit=True)
        except adbc.Error as error:
            self.connection.close()
            raise _from_adbc(error) from None

    def __enter__(self) -> "Source":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close both connections."""
        self._arrow.close()
        self.connection.close()

    def _rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(query, parameters).fetchall()
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

    def state(self) -> State:
        """Read the frontier, the outbox's end and the lake's settings."""
        found = self._rows("select * from oml.lake_state()")
        if not found:
            raise DatabaseError(
                "OM065",
                "oml.frontier lacks its row",
                "It was removed: insert into oml.frontier (name) values ('lake') as a superuser.",
            )
        return State(*found[0])

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

    def batch_end(self, after: int, limit: int, max_rows: int, max_bytes: int) -> int | None:
        """Return the last seq of the batch that starts after ``after``; None when there is none."""
        end = self._value(
            "select oml.lake_batch_end(%s::bigint, %s::bigint, %s::int, %s::bigint)",
            after,
            limit,
            max_rows,
            max_bytes,
        )
        return None if end is None else int(end)

    def advance(self, upto: int) -> None:
        """Move the frontier forward; a lower value changes nothing."""
        self._write_cache("oml.lake_advance(%s)", upto)

    def tables(self) -> dict[str, tuple[int, str]]:
        """Return {name: (generation, location)} of the tables that exist."""
        return {row[0]: (row[1], row[2]) for row in self._rows("select * from oml.lake_tables()")}

    def record_table(self, name: str, generation: int, location: str) -> None:
        """Record that a table exists."""
        self._write_cache("oml.lake_record_table(%s, %s, %s)", name, generation, location)

    def outbox_row(self, seq: int) -> tuple[str, str | None, bytes | None] | None:
        """Return (target, event id, hash) under one outbox seq, or None."""
        rows = self._rows("select * from oml.lake_outbox_row(%s)", seq)
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    def unqueued(self) -> list[tuple[str, int]]:
        """List events (tenant id, chain seq) that have no outbox row for bronze."""
        return [(row[0], row[1]) for row in self._rows("select * from oml.lake_unqueued()")]

    def read(self, table: LakeTable, after: int, upto: int) -> pa.Table:
        """Read the outbox rows of ``table`` in (after, upto], in order, in the table's schema.

        A row whose event is gone from the journal comes with nulls.
        """
        names = table.arrow_schema().names
        try:
            with self._arrow.cursor() as cursor:
                cursor.execute(
                    "select * from oml.lake_rows($1, $2, $3)", (table.name, int(after), int(upto))
                )
                found = cursor.fetch_arrow_table()
        except adbc.Error as error:
            raise _from_adbc(error) from None
        nullable = pa.schema([f.with_nullable(True) for f in table.arrow_schema()])
        return found.select(names).cast(nullable)

    def rows(self, table: LakeTable, after: int, upto: int) -> pa.Table:
        """Read the rows to write, as ``read`` does.

        Raises DatabaseError OM063 when an outbox row's event is gone from the journal.
        """
        found = self.read(table, after, upto)
        gone = found.filter(pc.is_null(found["event_id"]))
        if gone.num_rows:
            seqs = ", ".join(map(str, gone["outbox_seq"].to_pylist()[:5]))
            raise DatabaseError(
                "OM063",
                f"the journal lacks the events of {gone.num_rows} outbox rows: {seqs}",
                "Events were removed. Run oml verify; the lake writer stops until they are back.",
            )
        return found.cast(table.arrow_schema())


def _from_adbc(error: adbc.Error) -> DatabaseError:
    sqlstate = getattr(error, "sqlstate", None)
    return DatabaseError(sqlstate, str(error).strip())
