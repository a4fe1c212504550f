"""Judge bronze.events against the journal, without keys and in constant memory.

Both sides are read in the same ranges of outbox seqs; equal ranges cost one comparison of Arrow
columns, and only a range that differs is looked at row by row.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oml.lake.schema import BRONZE_EVENTS
from oml.lake.source import AcceptedLoss, Source
from oml.lake.table import OpenTable

_NAMES = [column.name for column in BRONZE_EVENTS.columns]
_RANGE_ROWS = 20_000
_RANGE_BYTES = 64 * 1024 * 1024


class Difference(StrEnum):
    """How lake and journal can differ."""

    MISSING_IN_LAKE = "missing-in-lake"
    """The journal has the event, bronze should have it by now and has not."""
    EXTRA_IN_LAKE = "extra-in-lake"
    """Bronze has a row that no outbox row and event stand behind."""
    DUPLICATE_IN_LAKE = "duplicate-in-lake"
    """Bronze has an event more than once."""
    DIGEST_MISMATCH = "digest-mismatch"
    """Bronze has the event with another hash or another content of any column."""
    ORDER_INVERSION = "order-inversion"
    """By outbox seq, bronze has a tenant's event before an earlier one of that tenant."""


@dataclass(frozen=True)
class Finding:
    """One difference, and where it is."""

    difference: Difference
    outbox_seq: int | None
    tenant_id: str | None
    seq: int | None
    event_id: str | None
    detail: str

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return {**asdict(self), "difference": str(self.difference)}


class Losses:
    """The accepted losses, and how many rows of each were met."""

    def __init__(self, losses: list[AcceptedLoss]) -> None:
        self._by_tenant: dict[str, list[AcceptedLoss]] = {}
        for loss in losses:
            self._by_tenant.setdefault(loss.tenant_id, []).append(loss)
        self._bounds = {(loss.outbox_after, loss.outbox_upto) for loss in losses}
        self._met: Counter[AcceptedLoss] = Counter()

    def overlap(self, after: int, end: int) -> bool:
        """Tell whether the lake may have lost events under outbox seqs in (after, end]."""
        return any(low < end and high > after for low, high in self._bounds)

    def take(self, row: dict[str, Any]) -> bool:
        """Tell whether a row without an outbox row is a lost event's, and count it."""
        outbox_seq, seq = row["outbox_seq"], row["seq"]
        if outbox_seq is None or seq is None:
            return False
        for loss in self._by_tenant.get(row["tenant_id"], []):
            if (
                loss.lost_from is not None and loss.lost_to is not None
                and loss.outbox_after < outbox_seq <= loss.outbox_upto
                and loss.lost_from <= seq <= loss.lost_to
            ):  # fmt: skip
                self._met[loss] += 1
                return True
        return False

    def uneven(self) -> Iterator[tuple[str, int, int]]:
        """Yield (tenant id, rows met, rows recorded) where those differ."""
        for losses in self._by_tenant.values():
            for loss in losses:
                if self._met[loss] != loss.lake_events:
                    yield loss.tenant_id, self._met[loss], loss.lake_events


class BronzeJudge:
    """One pass over bronze and journal. ``compared`` counts the journal's rows seen so far.

    ``accepted`` counts the rows of events that were accepted as lost: they are no differences.
    """

    def __init__(self, source: Source, opened: OpenTable) -> None:
        self.source = source
        self.opened = opened
        self.compared = 0
        self.accepted = 0
        self._losses = Losses(source.accepted_losses())
        self._seen = 0
        self._last: dict[str, tuple[int, int]] = {}

    def findings(
        self, progress: Callable[[int, int], None] = lambda _reached, _upto: None
    ) -> Iterator[Finding]:
        """Yield every difference up to where the lake stands.

        ``progress`` is told (outbox seq reached, outbox seq to reach). Rows past the frontier and
        the table's own version are not due yet. Raises DatabaseError when the journal cannot be
        read, LakeError when the table cannot.
        """
        frontier = self.source.state().frontier
        self.opened.refresh()  # Only now: what is due must not be newer than what is looked at.
        upto = max(frontier, self.opened.cursor)
        after = 0
        while (end := self.source.batch_end(after, upto, _RANGE_ROWS, _RANGE_BYTES)) is not None:
            yield from self._compare(after, end)
            after = end
            progress(end, upto)
        yield from self._outside(after)
        yield from self._unseen()
        for tenant_id, seq in self.source.unqueued():
            yield Finding(
                Difference.MISSING_IN_LAKE, None, tenant_id, seq, None,
                "the event has no outbox row, so it was never queued",
            )  # fmt: skip

    def _compare(self, after: int, end: int) -> Iterator[Finding]:
        want = self.source.read(BRONZE_EVENTS, after, end)
        want = want.filter(pc.is_valid(want["event_id"]))
        have = self._lake(f"outbox_seq > {after} and outbox_seq <= {end}")
        if self._losses.overlap(after, end):
            have = self._without_lost(have, set(want["outbox_seq"].to_pylist()))
        self.compared += want.num_rows
        yield from self._inversions(have)
        if want.combine_chunks().equals(have.combine_chunks()):
            return
        yield from _differences(want.to_pylist(), have.to_pylist())

    def _outside(self, last: int) -> Iterator[Finding]:
        rows = self._lake(f"outbox_seq is null or outbox_seq < 1 or outbox_seq > {last}")
        for row in self._without_lost(rows, set()).to_pylist():
            yield _finding(Difference.EXTRA_IN_LAKE, row, "no outbox row stands behind it")
        for tenant_id, counted, recorded in self._losses.uneven():
            yield Finding(
                Difference.MISSING_IN_LAKE if counted < recorded else Difference.EXTRA_IN_LAKE,
                None, tenant_id, None, None,
                f"bronze has {counted} events that were accepted as lost; it had {recorded}",
            )  # fmt: skip

    def _without_lost(self, have: pa.Table, queued: set[int]) -> pa.Table:
        """Take out, and count, the rows of events that were accepted as lost."""
        kept = [
            row["outbox_seq"] in queued or not self._losses.take(row)
            for row in have.select(["outbox_seq", "tenant_id", "seq"]).to_pylist()
        ]
        self.accepted += kept.count(False)
        return have.filter(pa.array(kept, pa.bool_()))

    def _unseen(self) -> Iterator[Finding]:
        """Compare with a scan that no statistics can prune: forged ones would hide whole files."""
        hidden = self.opened.count() - self._seen
        if hidden:
            yield Finding(
                Difference.EXTRA_IN_LAKE, None, None, None, None,
                f"{hidden} rows are in files whose statistics deny them",
            )  # fmt: skip

    def _lake(self, predicate: str) -> pa.Table:
        nullable = pa.schema([f.with_nullable(True) for f in BRONZE_EVENTS.arrow_schema()])
        rows = self.opened.scan(_NAMES, predicate).cast(nullable)
        self._seen += rows.num_rows
        return rows.sort_by([("outbox_seq", "ascending"), ("event_id", "ascending")])

    def _inversions(self, have: pa.Table) -> Iterator[Finding]:
        columns = have.select(["outbox_seq", "tenant_id", "seq", "event_id"])
        for row in columns.to_pylist():
            if row["tenant_id"] is None or row["seq"] is None:
                continue  # It stands in no chain: the comparison with the journal names it.
            at, last = self._last.get(row["tenant_id"], (0, 0))
            if row["seq"] < last:
                yield _finding(
                    Difference.ORDER_INVERSION, row, f"chain seq {last} was delivered before it"
                )
            elif row["seq"] == last and row["outbox_seq"] != at:
                yield _finding(
                    Difference.DUPLICATE_IN_LAKE, row, f"it is there under outbox seq {at} too"
                )
            self._last[row["tenant_id"]] = (row["outbox_seq"], row["seq"])


def _differences(want: list[dict[str, Any]], have: list[dict[str, Any]]) -> Iterator[Finding]:
    expected = {row["outbox_seq"]: row for row in want}
    found: dict[int, dict[str, Any]] = {}
    for row in have:
        found.setdefault(row["outbox_seq"], row)
    for seq, times in sorted(Counter(row["outbox_seq"] for row in have).items()):
        if times > 1 and seq in expected:
            yield _finding(
                Difference.DUPLICATE_IN_LAKE, expected[seq], f"it is there {times} times"
            )
    for seq, row in expected.items():
        if seq not in found:
            yield _finding(Difference.MISSING_IN_LAKE, row, "bronze lacks it")
    for row in have:
        wanted = expected.get(row["outbox_seq"])
        if wanted is None:
            yield _finding(
                Difference.EXTRA_IN_LAKE, row, "no event of the journal stands behind it"
            )
        elif row != wanted:
            names = ", ".join(name for name in _NAMES if row[name] != wanted[name])
            yield _finding(Difference.DIGEST_MISMATCH, wanted, f"columns differ: {names}")


def _finding(difference: Difference, row: dict[str, Any], detail: str) -> Finding:
    return Finding(
        difference, row["outbox_seq"], row["tenant_id"], row["seq"], row["event_id"], detail
    )
