"""The lake writer: recover, cut, then apply batch after batch to every table, exactly once.

Each table's Delta transaction version is its cursor and the sole recovery authority; the frontier
in PostgreSQL is a cache. A batch (frontier, end] is a fixed set of rows, because the cut is fenced:
whoever repeats it writes the same rows or finds that they are there.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import tenacity

from oml import owner
from oml.errors import GateClosedError, UsageError
from oml.failpoint import failpoint
from oml.fence import Cut, cut
from oml.lake import lease, silver
from oml.lake.ahead import Ahead, Batch
from oml.lake.lease import Lease
from oml.lake.places import require_apart
from oml.lake.schema import TABLES, LakeTable
from oml.lake.source import Source, State, rows_of
from oml.lake.table import (
    Bounds,
    LakeError,
    LakeUnavailable,
    OpenTable,
    Overtaken,
    Place,
    hint_for,
)
from oml.lake.upkeep import Upkeep
from oml.settings import Settings
from oml.store import (
    Store,
    StoreError,
    open_store,
    require_put_if_absent,
    require_url,
    with_timeouts,
)

Progress = Callable[[int, int], None]

_FAR = 100_000
"""A table that no batch has touched over so many outbox seqs gets a commit all the same: what lies
between its cursor and the frontier is looked through when a writer starts."""
_LOOK_AGAIN_S = 60.0
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0
_FORK_HINT = (
    "The database was restored to an earlier state, or the lake is another's. "
    "Nothing was written. Run oml reconcile before going on."
)


@dataclass
class Drained:
    """What one drain did: batches and rows applied, and the outbox seqs it lies between."""

    frontier_before: int
    frontier: int
    outbox_max: int
    batches: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    recovered_rows: int = 0
    held_back: str | None = None
    holders: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {**vars(self), "holders": list(self.holders)}


class Gap(NamedTuple):
    """Outbox seqs (after, upto] that the lake has used for events which the journal lost."""

    after: int
    upto: int


class _Unknown(Exception):
    """A commit raised: whether it landed is for the next look at the table to find."""


def _require_gate(state: State) -> None:
    if state.gate != "open":
        raise GateClosedError(
            f"the write gate is closed ({state.gate}): nothing is drained",
            "oml gate status says why. oml serve and oml gate open open it after their check.",
        )


class LakeWriter:
    """Drains the outbox into the lake. One object serves one thread; rivals may run beside it."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        tables: tuple[LakeTable, ...] = TABLES,
        upkeep: Upkeep | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.source = source
        self.settings = settings
        self.tables = tables
        self._upkeep = upkeep
        self._lease = lease
        self._places: dict[str, Place] = {}
        self._gaps: set[Gap] = set()
        self._unmade: dict[str, Place] = {}
        self._checked = False
        self._lake: tuple[Store, owner.Identity] | None = None
        self._reached: int | None = None
        self._recovered: float | None = None
        self._loaded: dict[str, OpenTable] = {}
        self._stands: dict[str, int] = {}
        self._empty_upto: dict[str, tuple[int, int]] = {}

    def drain(
        self,
        progress: Progress = lambda _reached, _limit: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Drained:
        """Bring the lake up to a fresh cut.

        ``progress`` is told (outbox seq reached, outbox seq to reach) before the first batch and
        after each; after one for which ``stop`` says so, the rest is left to the next drain.
        Raises LakeError when lake and outbox contradict each other or the lake is another
        database's, GateClosedError while the write gate is closed, DatabaseError when the database
        refuses.
        """
        state = self.source.state()
        _require_gate(state)
        report = Drained(state.frontier, state.frontier, state.outbox_max)
        if state.outbox_max == state.frontier == self._reached:
            return report
        stood: list[int] | None = None
        while True:
            try:
                self._drain(report, progress, stop)
                return report
            except Overtaken:
                self._recovered = None
                stands = [self._open(table).cursor for table in self.tables]
                if stands == stood:
                    raise LakeError(
                        f"the tables stand at {stands}, where no batch begins, and nobody moves on",
                        "A fault of the lake writer: keep its tables and outbox, and report it.",
                    ) from None
                stood = stands
            except BaseException:
                self._recovered = None
                raise

    def _drain(
        self,
        report: Drained,
        progress: Progress,
        stop: Callable[[], bool],
    ) -> None:
        state = self.source.state()
        _require_gate(state)
        url = self._find_tables(state)
        require_apart(self.source.stores(), self.settings)
        self._require_owner(url, state)
        self._make_tables()
        reached = state.frontier
        if self._looks_again(reached):
            reached = self._recover(report, progress)
            self._recovered = time.monotonic()
        if self._lease is not None:
            self._lease.take()  # for as long as the cut may wait
        made: Cut = cut(
            self.source, reached, state.fence_synchronous_commit, self.settings.cut_timeout_s
        )
        self._reached = report.frontier = reached
        report.outbox_max = max(state.outbox_max, made.limit or 0)
        report.held_back, report.holders = made.reason, tuple(map(str, made.holders))
        if made.limit is None:
            return
        progress(reached, made.limit)
        most = self.settings.batch_rows, self._batch_bytes
        with Ahead(self.source, reached, made.limit, *most) as batches:
            for batch in batches:
                failpoint("batch.chosen")
                for table in self.tables:
                    feeds = table.reader is not None and _feeds(table, batch)
                    rows = self._rows(table, batch, feeds=feeds)
                    recut = batch.bounds.frontier < state.frontier  # a lake that came back older
                    applied = self._step(table, batch.bounds, rows, feeds=feeds, recut=recut)
                    report.rows[table.name] = report.rows.get(table.name, 0) + applied
                failpoint("batch.committed")
                self.source.advance(batch.bounds.end)
                failpoint("batch.advanced")
                self._keep_up()
                self._reached = report.frontier = batch.bounds.end
                report.batches += 1
                progress(batch.bounds.end, made.limit)
                if stop():
                    return

    def _looks_again(self, frontier: int) -> bool:
        """Tell whether all tables must be looked at before the next batch.

        Not while all went well and the frontier is where we left it: then each batch looks at the
        tables that it touches. The others are looked at once in a while.
        """
        known = self._recovered is not None and frontier == self._reached
        return not known or time.monotonic() - (self._recovered or 0) > _LOOK_AGAIN_S

    def _keep_up(self) -> None:
        """Between two batches, see to the tables that are due, if it is ours to."""
        for table in self.tables if self._upkeep is not None else ():
            assert self._upkeep is not None
            if self._upkeep.due(table.name):
                if self._lease is not None:
                    self._lease.keep()
                self._upkeep.run(self._open(table))

    @property
    def _batch_bytes(self) -> int:
        """Most bytes in one batch: what is read ahead of it may have as many."""
        return max(1, self.settings.batch_bytes // 2)

    def _batch_end(self, after: int, limit: int) -> int | None:
        return self.source.batch_end(after, limit, self.settings.batch_rows, self._batch_bytes)

    def open(self, table: LakeTable) -> OpenTable:
        """Load a table for reading. Raises LakeError when it is not made or not where recorded."""
        self._find_tables(self.source.state())
        if table.name in self._unmade:
            raise LakeError(
                f"{table.name} is not made yet: nothing was drained",
                "The first drain makes it: oml lake drain --once, or oml serve.",
            )
        return self._open(table)

    def status(self) -> dict[str, Any]:
        """Return where frontier, outbox and each table stand, and who holds the cut back now."""
        state = self.source.state()
        self._find_tables(state)
        return {
            "frontier": state.frontier,
            "outbox_max": state.outbox_max,
            "behind": state.outbox_max - state.frontier,
            "tables": {
                table.name: None if table.name in self._unmade else self._open(table).cursor
                for table in self.tables
            },
            "holders": [str(h) for h in self.source.described(self.source.cut_holders())],
            "lease": {
                each["name"]: {k: each[k] for k in ("term", "holder", "seconds_left")}
                for each in self.source.leases()
            }.get(lease.NAME),
        }

    # -- tables ------------------------------------------------------------------------------

    def standing(self) -> list[OpenTable]:
        """Load every table that is there, recorded or not, for one who looks for evidence.

        None where no lake is configured. Raises LakeError when one cannot be read, or is recorded
        and not there.
        """
        state = self.source.state()
        if (self.settings.lake_url or state.lake_url) is None:
            return []
        self._find_tables(state)
        found = [
            self._places[table.name].open() if table.name in self._unmade else self._open(table)
            for table in self.tables
        ]
        return [opened for opened in found if opened is not None]

    def _require_owner(self, url: str, state: State) -> None:
        """Insist, before each drain, that the lake is this database's; the first one claims it."""
        with _lake_errors():
            store = open_store(url, self.settings.lake_storage_options, make=True)
            (owner.claim if self._lake is None else owner.require)(store, state.identity)
        self._lake = store, state.identity

    def _still_ours(self) -> None:
        """Insist on it once more, after a table was loaded and before it is written.

        ``oml adopt`` marks the lake first and then commits to each table. So whoever loaded a table
        before that commit conflicts with it, and whoever loads it later finds the mark here.
        A lease is renewed here too, so that however long a drain takes it is not lost.
        """
        if self._lease is not None:
            self._lease.keep()
        if self._lake is not None:
            with _lake_errors():
                owner.require(*self._lake)

    def _find_tables(self, state: State) -> str:
        url = self.settings.lake_url or state.lake_url
        if url is None:
            raise UsageError(
                "no lake is configured",
                "Set it as a superuser: select oml_configure('lake_url', 'file:///var/lib/oml/lake')"
                ", or OML_LAKE_URL.",
            )
        require_url(url, "lake")
        if url.startswith("s3:"):
            require_put_if_absent(self.settings.lake_storage_options)
        recorded = self.source.tables()
        for table in self.tables:
            generation, location = recorded.get(table.name, (1, table.location))
            place = Place(
                table,
                f"{url.rstrip('/')}/{location}",
                generation,
                state.deployment_id,
                with_timeouts(self.settings.lake_storage_options) if url.startswith("s3:") else {},
                table.file_bytes(self.settings.lake_file_bytes),
                self.settings.lake_retention_hours,
                self.settings.lake_log_minutes,
            )
            self._places[table.name] = place
        self._unmade = {name: self._places[name] for name in self._places if name not in recorded}
        return url

    def _make_tables(self) -> None:
        """Make what oml.lake_table does not name yet. Only a drain does: readers write nothing."""
        for place in self._unmade.values():
            place.open() or place.create()
            self.source.record_table(place.table.name, place.generation, place.table.location)
            failpoint("table.recorded")
        self._unmade = {}

    def _open(self, table: LakeTable) -> OpenTable:
        place = self._places[table.name]
        opened = place.open()
        if opened is None:
            raise LakeError(
                f"oml.lake_table says {table.name} exists, but nothing is at {place.url}",
                "The writer never makes a recorded table anew: restore it or correct the URL.",
            )
        return opened

    # -- recovery ----------------------------------------------------------------------------

    def _recover(self, report: Drained, progress: Progress) -> int:
        """Complete what a crash, a rival or a rolled-back table left; return the seq reached.

        A table ahead of the frontier holds a batch whose bounds it records: the others get that
        same batch, which was fenced when it was cut. Rows beyond every table are not recovered but
        cut anew, wherever the frontier stands: it proves no fence. The tables are loaded
        before the database is asked, so that a rival's progress cannot look like a fork.
        """
        opened = {table.name: self._open(table) for table in self.tables}
        self._loaded = dict(opened)
        state = self.source.state()
        self._gaps = {Gap(a.outbox_after, a.outbox_upto) for a in self.source.accepted_losses()}
        cursors = {name: table.cursor for name, table in opened.items()}
        reached = max(cursors.values())
        self._check_against_outbox(opened, state, max(state.frontier, reached))
        recorded = [b for b in (table.bounds for table in opened.values()) if b is not None]
        for table in self.tables:
            at = self._stands[table.name] = cursors[table.name]
            before, upto = self._empty_upto.get(table.name, (at, at))
            if before == at:
                at = max(at, upto)
            if at < reached and self._untouched(table, at, reached):
                self._empty_upto[table.name] = self._stands[table.name], reached
                continue
            while at < reached:
                progress(at, reached)
                end = self._recovery_end(at, reached, state.frontier, recorded)
                if end is None:
                    raise LakeError(
                        f"{table.name} stands at {at}, the lake at {reached}, and the outbox "
                        "has lost the rows between",
                        _FORK_HINT,
                    )
                batch = Bounds(at, end)
                feeds = table.reader is not None and self.source.queued(table, at, end) > 0
                rows = self._readable(table, batch)
                recut = batch not in recorded
                report.recovered_rows += self._step(table, batch, rows, feeds=feeds, recut=recut)
                at = end
        if reached > state.frontier:
            self.source.advance(reached)
        return reached

    def _untouched(self, table: LakeTable, after: int, upto: int) -> bool:
        """Tell whether surely nothing in (after, upto] feeds a table that need not commit it."""
        if table is self.tables[0] or table.derive is not None or upto - after >= _FAR:
            return False
        return self.source.queued(table, after, upto) == 0

    def _recovery_end(
        self, cursor: int, reached: int, frontier: int, recorded: list[Bounds]
    ) -> int | None:
        """Return where the batch that starts at ``cursor`` ended, or may end, in a recovery."""
        for bounds in recorded:
            if bounds.frontier == cursor:
                return bounds.end
        limits = (reached, frontier, *(b.frontier for b in recorded))
        limit = min(limit for limit in limits if limit > cursor)
        end = self._batch_end(cursor, limit)
        if end is None:
            lost = [gap.upto for gap in self._gaps if gap.after <= cursor < gap.upto]
            end = min(limit, *lost) if lost else None
        return end

    def _check_against_outbox(
        self, opened: dict[str, OpenTable], state: State, reached: int
    ) -> None:
        """Refuse a lake that knows what the outbox does not: that is a fork, not a retry."""
        for name, table in opened.items():
            cursor, bounds = table.cursor, table.bounds
            if cursor == 0:
                continue
            if bounds is None or bounds.end != cursor or bounds.frontier >= cursor:
                raise LakeError(f"{name} stands at {cursor} but records {bounds}", _FORK_HINT)
            if bounds.frontier < state.frontier < cursor and not table.is_recut:
                raise LakeError(
                    f"{name} records the batch ({bounds.frontier}, {bounds.end}], "
                    f"which straddles the frontier {state.frontier}",
                    _FORK_HINT,
                )
            if not self._checked:
                self._check_last_row(name, table, cursor, state.outbox_max)
        if reached > state.outbox_max:
            raise LakeError(
                f"the lake stands at outbox seq {reached}, the outbox ends at {state.outbox_max}",
                _FORK_HINT,
            )
        self._checked = True

    def _check_last_row(self, name: str, table: OpenTable, cursor: int, outbox_max: int) -> None:
        held = self.source.outbox_row(cursor)
        if held is None and any(gap.after < cursor <= gap.upto for gap in self._gaps):
            return
        if held is None:
            raise LakeError(
                f"{name} has applied outbox seq {cursor}, which the outbox lacks; "
                f"it ends at {outbox_max}",
                _FORK_HINT,
            )
        if "event_id" not in table.place.table.arrow_schema().names:
            return  # its rows are no events
        assert table.bounds is not None
        batch = f"outbox_seq > {table.bounds.frontier} and outbox_seq <= {cursor}"
        found = table.scan(["outbox_seq", "event_id"], batch).to_pylist()
        last = max((row["outbox_seq"] for row in found), default=None)
        if last is not None and not any(gap.after < last <= gap.upto for gap in self._gaps):
            event_id = next(row["event_id"] for row in found if row["outbox_seq"] == last)
            there = self.source.outbox_row(last)
            if there is None or there[:2] != (name, event_id):
                instead = "nothing" if there is None else f"{there[1]}"
                instead += f" for {there[0]}" if there is not None and there[0] != name else ""
                raise LakeError(
                    f"{name} holds event {event_id} under outbox seq {last}, "
                    f"the outbox holds {instead}",
                    _FORK_HINT,
                )
        if held[0] == name and last != cursor:
            raise LakeError(
                f"{name} stands at outbox seq {cursor} and lacks the row that is queued there",
                _FORK_HINT,
            )

    # -- apply -------------------------------------------------------------------------------

    def _rows(self, table: LakeTable, batch: Batch, *, feeds: bool) -> pa.Table:
        """Return what a batch makes of a table's rows."""
        if table.reader is None:
            return rows_of(table, batch.rows)
        if not feeds:
            return table.arrow_schema().empty_table()
        return self._readable(table, batch.bounds)

    def _readable(self, table: LakeTable, batch: Bounds) -> pa.Table:
        """Read a table's rows from the database; those that stay faulty become dead letters.

        The event and the dead letter of such a row are committed before the batch is, which is
        built again without it: a crash in between leaves the row passed over, and no other.
        """
        if table.reader is None:
            return self.source.rows(table, batch.frontier, batch.end)
        given_up: set[tuple[int, ...]] = set()
        while True:
            tries = tenacity.Retrying(
                stop=tenacity.stop_after_attempt(self.settings.lake_attempts),
                wait=tenacity.wait_random_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S),
                retry=tenacity.retry_if_result(lambda found: found[1]),
                retry_error_callback=lambda state: state.outcome and state.outcome.result(),
            )
            rows, faulty = tries(self._read, table, batch, given_up)
            if not faulty:
                return rows
            failpoint("row.given-up")
            self._require_stand(table)
            for fault in faulty:
                for seq in fault.outbox_seqs:
                    self.source.skip(seq, fault.reason, self.settings.lake_attempts)
                    failpoint("row.skipped")
                given_up.add(fault.outbox_seqs)

    def _read(
        self, table: LakeTable, batch: Bounds, given_up: set[tuple[int, ...]]
    ) -> tuple[pa.Table, list[silver.Fault]]:
        """Return what can be applied but for the faulty rows, and those of them not given up."""
        rows = self.source.rows(table, batch.frontier, batch.end)
        faulty = silver.faults(table, rows)
        left_out = {fault.outbox_seqs for fault in faulty} & given_up
        if left_out:
            seqs = map(tuple, rows["outbox_seqs"].to_pylist())
            rows = rows.filter(pa.array([each not in left_out for each in seqs]))
        return rows, [fault for fault in faulty if fault.outbox_seqs not in given_up]

    def _require_stand(self, table: LakeTable) -> None:
        """Insist that a table stands where we left it, before a row of it is passed over.

        Or a rival has applied the row meanwhile. Raises Overtaken.
        """
        if self._open(table).cursor != self._stands[table.name]:
            raise Overtaken

    def _step(
        self, table: LakeTable, batch: Bounds, rows: pa.Table, *, feeds: bool, recut: bool = False
    ) -> int:
        """Apply a batch to a table if it has rows for it, and return how many were applied.

        The first table has a commit for each batch, and with it conflicts whoever writes beside
        us: so a batch has the same bounds wherever it is applied. ``feeds``: outbox rows were read
        for the table alone. Its batch is committed though no row came of them, or a
        rival could still apply what was passed over here. A table that is left behind is
        moved on now and then.
        """
        if table is self.tables[0]:
            self._stands[table.name] = batch.frontier
        elif rows.num_rows == 0 and not feeds and batch.end - self._stands[table.name] < _FAR:
            self._empty_upto[table.name] = self._stands[table.name], batch.end
            return 0
        applied = self._apply(table, batch, rows, recut=recut)
        if self._upkeep is not None:
            self._upkeep.committed(table.name)
        self._stands[table.name] = batch.end
        return applied

    def _apply(self, table: LakeTable, batch: Bounds, rows: pa.Table, *, recut: bool) -> int:
        """Apply one batch to one table and return its rows; 0 when the table had it already.

        Raises Overtaken when the table no longer stands where we left it.
        """
        failpoint("table.rows-read")
        tries = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self.settings.lake_attempts),
            wait=tenacity.wait_random_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S),
            retry=tenacity.retry_if_exception_type(_Unknown),
            reraise=True,
        )
        try:
            return int(tries(self._attempt, table, batch, rows, recut=recut))
        except _Unknown as error:
            failure = error.__cause__
        opened = self._open(table)
        if opened.bounds == batch:
            return 0
        if opened.cursor != self._stands[table.name]:
            raise Overtaken
        raise LakeUnavailable(
            f"batch ({batch.frontier}, {batch.end}] could not be committed to {table.name}: "
            f"{failure}",
            hint_for(
                failure or LakeError(""),
                "Nothing is lost: the next drain tries the same batch again.",
            ),
        ) from failure

    def _attempt(self, table: LakeTable, batch: Bounds, rows: pa.Table, *, recut: bool) -> int:
        """Look where the table stands and commit through the same object.

        It may be the one that was loaded when the drain began: a rival's commit since then fails
        ours all the same. Raises _Unknown when the outcome is.
        """
        opened = self._loaded.pop(table.name, None) or self._open(table)
        if opened.cursor == batch.end and opened.bounds == batch:
            return 0
        added, behind = opened.behind(rows)
        while behind.num_rows:
            self._commit(opened, partial(OpenTable.change, rows=behind))
            failpoint("table.changed")
            # What the table is behind is asked of the very object that the batch goes through.
            opened = self._open(table)
            added, behind = opened.behind(rows)
        self._commit(opened, partial(OpenTable.commit, rows=added, bounds=batch, recut=recut))
        failpoint("table.committed")
        return int(rows.num_rows)

    def _commit(self, opened: OpenTable, write: Callable[[OpenTable], object]) -> None:
        """Write through a table that was just loaded, if it stands where we left it."""
        if opened.cursor != self._stands[opened.place.table.name]:
            raise Overtaken
        failpoint("table.checked")
        self._still_ours()
        try:
            write(opened)
        except Exception as error:
            raise _Unknown from error


def _feeds(table: LakeTable, batch: Batch) -> bool:
    """Tell whether a batch has outbox rows for a table."""
    return bool(pc.any(pc.equal(batch.rows["target"], table.target), min_count=0).as_py())


@contextmanager
def _lake_errors() -> Iterator[None]:
    """Raise what the owner's mark and its store say as the lake's own errors."""
    try:
        yield
    except owner.OwnedError as error:
        raise LakeError(error.message, error.hint) from error
    except StoreError as error:
        kind = LakeUnavailable if error.retryable else LakeError
        raise kind(error.message, error.hint) from error
