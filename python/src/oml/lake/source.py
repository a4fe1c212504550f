"""What the lake writer asks of the database: state, fence, batches and rows.

Small questions go through psycopg; rows come as Arrow through ADBC, without a Python object each.
All connections act as one login that holds ``operate`` on the provider.
"""

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oml.errors import DatabaseError
from oml.lake.bodies import BodiesSource
from oml.lake.schema import BRONZE_EVENTS, LakeTable
from oml.owner import Identity


@dataclass(frozen=True)
class State:
    """Where the database says the lake stands. Sequences are outbox seqs."""

    deployment_id: str
    lake_url: str | None
    fence_synchronous_commit: str
    frontier: int
    fenced_seq: int
    outbox_max: int
    gate: str
    """State of the write gate; ``open`` is the only one in which anything is written."""
    instance: dict[str, Any] | None
    """Which database of which server this is; None on a standby."""

    @property
    def identity(self) -> Identity:
        """Who writes, for the mark of ownership at the lake."""
        return Identity.of(self.deployment_id, self.instance)


class LostRow(NamedTuple):
    """A row of bronze that the journal lacks. ``accepted``: as lost; ``conflict``: the outbox has
    its number for another event."""

    outbox_seq: int
    tenant_id: str
    tenant: str | None
    seq: int
    hash: bytes
    journal_head: int
    conflict: bool
    accepted: bool


class AcceptedLoss(NamedTuple):
    """Events of one tenant, by chain seq, that were accepted as lost.

    The lake has ``lake_events`` of them, under outbox seqs in (outbox_after, outbox_upto].
    """

    tenant_id: str
    lost_from: int | None
    lost_to: int | None
    lake_events: int
    outbox_after: int
    outbox_upto: int


class Reader:
    """A session that reads rows as Arrow. One thread at a time uses it; any other may cancel it.

    Queries have their values written into them: with parameters ADBC would not stream the rows by
    COPY. All of them are numbers, and names of ours.
    """

    def __init__(self, dsn: str | None) -> None:
        try:
            self._connection = adbc.connect(_silent(dsn), autocommit=True)
        except adbc.Error as error:
            raise _from_adbc(error) from None

    def fetch(self, query: str) -> pa.Table:
        """Return all rows of a query."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetch_arrow_table()
        except adbc.Error as error:
            raise _from_adbc(error) from None

    def batch(self, after: int, upto: int, max_rows: int, max_bytes: int) -> pa.Table:
        """Read the batch that starts after ``after``: the outbox rows of all targets, in order."""
        bounds = f"{int(after)}, {int(upto)}, {int(max_rows)}, {int(max_bytes)}"
        return self.fetch(f"select * from oml.lake_batch({bounds})")

    def cancel(self) -> None:
        """Cancel what it reads now. It may hit what is read next instead: close it afterwards."""
        with suppress(adbc.Error):
            self._connection.adbc_cancel()

    def close(self) -> None:
        """End the session."""
        with suppress(adbc.Error):
            self._connection.close()


class Source(BodiesSource):
    """The database side of the lake. Use as a context manager; raises DatabaseError throughout.

    One thread uses it; others may lend and give back readers.
    """

    def __init__(self, dsn: str | None) -> None:
        super().__init__(dsn, "oml lake writer")
        self._idle: deque[Reader] = deque()
        try:
            self._idle.append(Reader(dsn))
        except DatabaseError:
            self.connection.close()
            raise

    def close(self) -> None:
        """Close all connections but those of readers that are lent."""
        while self._idle:
            self._idle.pop().close()
        super().close()

    def lend(self) -> Reader:
        """Return a reader that nobody else uses, connecting if none is idle."""
        try:
            return self._idle.pop()
        except IndexError:
            return Reader(self.dsn)

    def give_back(self, reader: Reader) -> None:
        """Keep a reader for whoever needs one next. One that failed is closed instead."""
        self._idle.append(reader)

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

    def lost(
        self,
        outbox_seqs: list[int],
        tenant_ids: list[str],
        seqs: list[int],
        hashes: list[bytes],
    ) -> list[LostRow]:
        """Return those of the given rows of bronze that the journal lacks."""
        query = (
            "select outbox_seq, tenant_id::text, tenant, seq, hash, journal_head, conflict,"
            " accepted from oml.lake_lost(%s::bigint[], %s::uuid[], %s::bigint[], %s::bytea[])"
        )
        found = self._rows(query, outbox_seqs, tenant_ids, seqs, hashes)
        return [LostRow(*row) for row in found]

    def queued(self, table: LakeTable, after: int, upto: int) -> int:
        """Count the outbox rows that feed ``table`` in (after, upto]."""
        query = "select oml.lake_queued(%s, %s::bigint, %s::bigint)"
        return int(self._value(query, table.target, after, upto))

    def dead_letters(self) -> list[dict[str, Any]]:
        """List what was passed over, and what was queued again for it, in outbox order."""
        return self._records("select * from oml.lake_dead_letters()")

    def requeue(self, outbox_seq: int, reason: str) -> int:
        """Queue again what was passed over, journalled, and return the new outbox seq."""
        query = "select oml_requeue(%s::bigint, %s)"
        return int(self._value(query, outbox_seq, reason))

    def columns(self, relation: str) -> list[tuple[str, str]]:
        """List the columns (name, type) of a table of the database."""
        query = (
            "select attname::text, format_type(atttypid, null) from pg_attribute"
            " where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum"
        )
        return [(row[0], row[1]) for row in self._rows(query, relation)]

    def returned(self, function: str) -> list[tuple[str, str]]:
        """List the columns (name, type) of the rows that a function returns."""
        query = (
            "select n.name, format_type(n.kind, null) from pg_proc p"
            " cross join unnest(p.proargnames, p.proallargtypes, p.proargmodes)"
            " with ordinality n (name, kind, mode, nth)"
            " where p.oid = %s::regproc and n.mode = 't' order by n.nth"
        )
        return [(row[0], row[1]) for row in self._rows(query, function)]

    def accepted_losses(self) -> list[AcceptedLoss]:
        """List the events that were accepted as lost."""
        return [AcceptedLoss(*row) for row in self._rows("select * from oml.accepted_losses()")]

    def unqueued(self) -> list[tuple[str, int]]:
        """List events (tenant id, chain seq) that have no outbox row for bronze."""
        return [(row[0], row[1]) for row in self._rows("select * from oml.lake_unqueued()")]

    def read(self, table: LakeTable, after: int, upto: int) -> pa.Table:
        """Read the events that feed ``table`` in (after, upto], in outbox order.

        They come in the table's schema, for one that is derived in that of bronze.events. A row
        whose event is gone from the journal comes with nulls.
        """
        query = f"select * from oml.lake_rows('{table.target}', {int(after)}, {int(upto)})"
        return _shaped(self._fetch(query), _events(table))

    def rows(self, table: LakeTable, after: int, upto: int) -> pa.Table:
        """Return the rows of ``table`` that (after, upto] of the outbox makes.

        One that has a reader of its own comes with that reader's further columns, and with rows
        that cannot be written. Raises DatabaseError OM063 when an outbox row's event is gone from
        the journal.
        """
        if table.reader is None:
            return _made(table, self.read(table, after, upto))
        found = self._fetch(f"select * from {table.reader}({int(after)}, {int(upto)})")
        _require_events(found, "artifact_id")
        nullable = [field.with_nullable(True) for field in table.arrow_schema()]
        have = {field.name for field in nullable}
        return found.cast(pa.schema([*nullable, *(f for f in found.schema if f.name not in have)]))

    def _fetch(self, query: str) -> pa.Table:
        reader = self.lend()
        try:
            found = reader.fetch(query)
        except BaseException:
            reader.close()
            raise
        self.give_back(reader)
        return found


def rows_of(table: LakeTable, batch: pa.Table) -> pa.Table:
    """Return the rows of ``table`` that a batch makes, for one without a reader of its own.

    Raises DatabaseError OM063 when one's event is gone from the journal.
    """
    mine = pc.equal(batch["target"], table.target)
    found = batch if pc.all(mine, min_count=0).as_py() else batch.filter(mine)
    return _made(table, _shaped(found, _events(table)))


def _events(table: LakeTable) -> LakeTable:
    """Return the table in whose schema come the events that feed ``table``."""
    return table if table.derive is None else BRONZE_EVENTS


def _made(table: LakeTable, events: pa.Table) -> pa.Table:
    _require_events(events, "event_id")
    made = events if table.derive is None else table.derive(events)
    return made.cast(table.arrow_schema())


def _shaped(found: pa.Table, table: LakeTable) -> pa.Table:
    nullable = pa.schema([f.with_nullable(True) for f in table.arrow_schema()])
    return found.select(nullable.names).cast(nullable)


def _require_events(found: pa.Table, column: str) -> None:
    """Insist that behind each row stands its event, which has a value in ``column``."""
    gone = found.filter(pc.is_null(found[column]))
    if gone.num_rows:
        seqs = ", ".join(map(str, gone["outbox_seq"].to_pylist()[:5]))
        raise DatabaseError(
            "OM063",
            f"the journal lacks the events of {gone.num_rows} outbox rows: {seqs}",
            "Events were removed. Run oml verify; the lake writer stops until they are back.",
        )


def _silent(dsn: str | None) -> str:
    """Return the DSN of a session that is told of nothing but errors, from its first message on.

    libpq writes what else there is to stderr, in among our own lines, and ADBC has no hook for it.
    """
    given = conninfo_to_dict(dsn or "").get("options") or os.environ.get("PGOPTIONS", "")
    return make_conninfo(dsn or "", options=f"{given} -c client_min_messages=error".strip())


def _from_adbc(error: adbc.Error) -> DatabaseError:
    sqlstate = getattr(error, "sqlstate", None)
    return DatabaseError(sqlstate, str(error).strip())
