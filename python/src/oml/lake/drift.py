"""Whether what the journal has reaches the lake: declaration, database and tables side by side."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from oml.lake.schema import BRONZE_EVENTS, TABLES, TIMESTAMP, LakeTable
from oml.lake.source import Source
from oml.lake.table import LakeError
from oml.lake.writer import LakeWriter
from oml.settings import Settings

NOT_IN_LAKE = {
    "envelope": "the signed bytes; the lake has their hash, their length and all that they say",
    "idempotency_key": "of the request and not of the event: it is not signed",
    "request_digest": "of the request and not of the event: it is not signed",
}
"""Columns of the journal that bronze.events does not have, and why."""

_TYPES = {
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "timestamp with time zone": TIMESTAMP,
}


@dataclass(frozen=True)
class Drift:
    """One disagreement: the lake table or SQL relation, the column if it is about one, and what."""

    where: str
    column: str | None
    problem: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def drifts(source: Source, settings: Settings) -> Iterator[Drift]:
    """Compare the journal, the functions that the writer reads and the lake with the declaration.

    Raises DatabaseError when the database cannot be asked, LakeUnavailable when a store cannot.
    """
    columns = {name for name, _ in source.columns("oml.journal")}
    declared = {column.name for column in BRONZE_EVENTS.columns}
    for name in sorted(columns - declared - set(NOT_IN_LAKE)):
        yield Drift(BRONZE_EVENTS.name, name, "the journal has this column and bronze has not")
    for name in sorted(set(NOT_IN_LAKE) - columns):
        yield Drift("oml.journal", name, "it is said to stay out of the lake and is not there")
    for reader, table in _readers():
        yield from _reads(source, reader, table)
    yield from _made(source, settings)


def _readers() -> Iterator[tuple[str, LakeTable]]:
    yield "oml.lake_rows", BRONZE_EVENTS
    yield "oml.lake_batch", BRONZE_EVENTS
    for table in TABLES:
        if table.reader is not None:
            yield table.reader, table


def _reads(source: Source, reader: str, table: LakeTable) -> Iterator[Drift]:
    """Compare what a function returns with the columns of the table it is read for."""
    returned = dict(source.returned(reader))
    for column in table.columns:
        kind = returned.get(column.name)
        if kind is None:
            yield Drift(table.name, column.name, f"{reader}() does not return it")
        elif _TYPES.get(kind) != column.type:
            yield Drift(table.name, column.name, f"{reader}() returns {kind}, not {column.type}")


def _made(source: Source, settings: Settings) -> Iterator[Drift]:
    """Open each table that was made: opening it is the check."""
    for table in TABLES:
        writer = LakeWriter(source, settings, (table,))
        try:
            writer.standing()
        except LakeError as error:
            if error.retryable:
                raise
            yield Drift(table.name, None, error.message)
