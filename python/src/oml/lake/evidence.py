"""What the lake knows of the journal: the events it holds, and whether the journal has them still.

Only a lake's end can contradict a journal that was set back: rows up to the frontier were decided
before the frontier said so, and so they are in every state of the database that says it. Looked at
are the rows above it, and in any case the last one. Memory: one page, and a line a tenant.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from oml.lake.schema import BRONZE_EVENTS
from oml.lake.source import Source
from oml.lake.table import OpenTable
from oml.lake.writer import LakeWriter
from oml.settings import Settings

_PAGE = 20_000
_MOST_HASHES = 10
_COLUMNS = ["outbox_seq", "tenant_id", "seq", "hash"]
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class LostEvents:
    """Events of one tenant that the lake holds and the journal lacks, by chain seq.

    ``journal_head`` is the journal's last chain seq; ``hashes`` are those of the first lost.
    """

    tenant_id: str
    tenant: str | None
    journal_head: int
    first_seq: int
    last_seq: int
    events: int = 0
    hashes: list[str] = field(default_factory=list)


@dataclass
class LakeEvidence:
    """Where bronze stands (an outbox seq; None: there is no table), and how it contradicts."""

    cursor: int | None = None
    outbox_max: int = 0
    lost: dict[str, LostEvents] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    """Contradictions that no accepted loss settles: numbers used for two things."""


def examine(source: Source, settings: Settings) -> LakeEvidence:
    """Compare bronze with journal and outbox.

    The table is loaded before the database is asked, so that a writer's progress meanwhile cannot
    look like a loss. Raises LakeError when the lake cannot be read, DatabaseError.
    """
    opened = LakeWriter(source, settings, (BRONZE_EVENTS,)).standing()
    if not opened:
        return LakeEvidence()
    table = opened[0]
    state = source.state()
    found = LakeEvidence(table.cursor, state.outbox_max)
    if table.cursor == 0:
        return found
    after = min(state.frontier, table.cursor - 1)
    matched = 0
    for rows in _pages(table, after, table.cursor):
        matched += _compare(source, table, rows, found)
    if state.frontier < table.cursor:
        queued = source.queued(BRONZE_EVENTS, after, table.cursor)
        if queued != matched:
            found.conflicts.append(
                f"{table.place.table.name} stands at outbox seq {table.cursor} and lacks "
                f"{queued - matched} of the outbox's rows above {after}"
            )
    if table.cursor > state.outbox_max and not found.lost and not found.conflicts:
        found.conflicts.append(
            f"{table.place.table.name} stands at outbox seq {table.cursor}, "
            f"the outbox ends at {state.outbox_max}, and no row says what lies between"
        )
    return found


def _pages(table: OpenTable, after: int, upto: int) -> Iterator[pa.Table]:
    """Yield the rows with outbox seqs in (after, upto], in ranges of about a page of rows.

    The ranges grow where there are few rows and shrink where there are many: an accepted loss
    leaves a gap in the numbers that no walk by number would see the end of.
    """
    width = _PAGE
    while after < upto:
        end = min(after + width, upto)
        rows = table.scan(_COLUMNS, f"outbox_seq > {after} and outbox_seq <= {end}", _PAGE)
        if rows.num_rows > _PAGE and end - after > 1:
            width = (end - after) // 2
            continue
        yield rows
        after = end
        if rows.num_rows <= _PAGE // 2:
            width *= 2


def _compare(source: Source, table: OpenTable, rows: pa.Table, found: LakeEvidence) -> int:
    """Compare one page of rows, note what contradicts, and count those that agree."""
    columns: dict[str, list[Any]] = rows.to_pydict()
    if any(value is None for name in _COLUMNS for value in columns[name]) or not all(
        _UUID.fullmatch(tenant) for tenant in columns["tenant_id"]
    ):
        found.conflicts.append(f"{table.place.table.name} holds rows that OML did not write")
        return 0
    lost = source.lost(*(columns[name] for name in _COLUMNS))
    for row in lost:
        if row.accepted:
            continue
        if row.conflict:
            found.conflicts.append(
                f"{table.place.table.name} holds seq {row.seq} of tenant "
                f"{row.tenant or row.tenant_id} under outbox seq {row.outbox_seq}, "
                "which the outbox has for another event"
            )
            continue
        entry = found.lost.setdefault(
            row.tenant_id,
            LostEvents(row.tenant_id, row.tenant, row.journal_head, row.seq, row.seq),
        )
        entry.first_seq = min(entry.first_seq, row.seq)
        entry.last_seq = max(entry.last_seq, row.seq)
        entry.events += 1
        if len(entry.hashes) < _MOST_HASHES:
            entry.hashes.append(row.hash.hex())
    del found.conflicts[_MOST_HASHES:]
    return len(set(columns["outbox_seq"]) - {row.outbox_seq for row in lost})
