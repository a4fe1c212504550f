"""One Delta table under the exactly-once protocol.

Check and commit go through one freshly loaded object that nobody else holds: delta-rs refuses a
commit whose snapshot lacks a rival's commit with the same application id, so a rival's commit
fails ours. A fresh load between check and commit would take that away.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError, TableNotFoundError

from oml.errors import OmlError
from oml.failpoint import failpoint
from oml.lake.schema import LakeTable

APP_ID = "oml-lakewriter"
"""Delta application id of the lake writer; its version is the last outbox seq applied."""
_FRONTIER_ID = f"{APP_ID}/frontier"
_END_ID = f"{APP_ID}/batch_end"
_RECUT_ID = f"{APP_ID}/recut"
_CHECKPOINT_EVERY = "50"
_MOST_RANGES = 16
_SCANNED_AT_A_TIME = 10_000
_CHANGED_AT_A_TIME = 128
"""Rows that one commit changes: each is a branch of an expression, and may have its own file."""
_LONGEST_REASON = 400
_PERMISSION_HINT = "Run as a user who may enter and write the lake's directory."


class LakeError(OmlError):
    """The lake cannot be written. Unless ``retryable``, a person must look before it goes on."""

    retryable = False


class LakeUnavailable(LakeError):
    """The object store does not answer or took no commit: the next drain tries the same again."""

    retryable = True


class Overtaken(Exception):
    """Another writer moved the table since the batch was planned: plan anew."""


@dataclass(frozen=True)
class Bounds:
    """A batch (frontier, end] of outbox seqs."""

    frontier: int
    end: int


@dataclass(frozen=True)
class Place:
    """Where a table's current generation is: its URL and the object store's options."""

    table: LakeTable
    url: str
    generation: int
    deployment_id: str
    storage_options: dict[str, str]
    file_bytes: int = 100 * 1024 * 1024
    """About the size at which a file ends and the next one begins."""
    retention_hours: int = 24
    """How long a table that is made keeps files that its newest version lacks."""
    log_minutes: int = 1
    """How long it keeps log entries that a checkpoint has made superfluous. Each commit lists them,
    so the more there are, the longer it takes."""

    @property
    def identity(self) -> str:
        """The description a table carries for good, by which another deployment's is known."""
        return (
            f"OML {self.table.name}, generation {self.generation}, deployment {self.deployment_id}"
        )

    def open(self) -> "OpenTable | None":
        """Load the table's newest version; None if no table is there.

        Raises LakeError when it belongs to another deployment, its schema has drifted or its log
        cannot be read, LakeUnavailable when the store does not answer.
        """
        try:
            delta = DeltaTable(self.url, storage_options=self.storage_options)
        except TableNotFoundError:
            self._require_entry()
            return None
        except DeltaError as error:
            raise LakeError(
                f"{self.table.name} cannot be read at {self.url}: {_said(error)}",
                "Its log is damaged: restore it from a copy.",
            ) from error
        except OSError as error:
            raise LakeUnavailable(
                f"{self.table.name} cannot be reached at {self.url}: {_said(error)}",
                "Check the lake's URL, its storage options and that its store runs.",
            ) from error
        opened = OpenTable(self, delta)
        opened.check_identity()
        return opened

    def _require_entry(self) -> None:
        """Tell a table that is not there from one in a directory this user may not enter."""
        if not self.url.startswith("file://"):
            return
        try:
            os.stat(url2pathname(self.url.removeprefix("file://")) + "/_delta_log")
        except PermissionError as error:
            raise LakeUnavailable(
                f"{self.table.name} cannot be reached at {self.url}: {error.strerror}",
                _PERMISSION_HINT,
            ) from None
        except OSError:
            return

    def create(self) -> "OpenTable":
        """Make the table, or open it if another creator was first.

        Retries are off: with them two creators both succeed.
        """
        try:
            DeltaTable.create(
                self.url,
                self.table.arrow_schema(),
                name=self.table.name,
                description=self.identity,
                configuration={
                    "delta.checkpointInterval": _CHECKPOINT_EVERY,
                    "delta.dataSkippingStatsColumns": ",".join(self.table.statistics),
                    "delta.targetFileSize": str(self.file_bytes),
                    "delta.deletedFileRetentionDuration": f"interval {self.retention_hours} hours",
                    "delta.logRetentionDuration": f"interval {self.log_minutes} minutes",
                },
                storage_options=self.storage_options,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except Exception as error:
            opened = self.open()
            if opened is None:
                raise LakeUnavailable(
                    f"{self.table.name} cannot be created at {self.url}: {_said(error)}",
                    hint_for(error, "Check the lake's URL and that its store can be written to."),
                ) from error
            return opened
        failpoint("table.created")
        opened = self.open()
        if opened is None:
            raise LakeError(f"{self.table.name} vanished from {self.url} as it was created")
        return opened


def hint_for(error: BaseException, otherwise: str) -> str:
    """Return what to do about a failed write; a missing permission is no passing fault."""
    return _PERMISSION_HINT if "Permission denied" in str(error) else otherwise


class OpenTable:
    """A table loaded at one version, for one check and at most one commit."""

    def __init__(self, place: Place, delta: DeltaTable) -> None:
        self.place = place
        self.delta = delta

    def check_identity(self) -> None:
        """Insist that the table is this deployment's and has the declared columns."""
        found = self.delta.metadata().description
        if found != self.place.identity:
            raise LakeError(
                f"the table at {self.place.url} is not ours: it says {found!r}",
                f"Expected {self.place.identity!r}. Two deployments may not share a lake.",
            )
        have = pa.schema(self.delta.schema().to_arrow())
        want = self.place.table.arrow_schema()
        if have.names != want.names or have.types != want.types:
            drift = set(zip(have.names, map(str, have.types), strict=True)) ^ set(
                zip(want.names, map(str, want.types), strict=True)
            )
            raise LakeError(
                f"the columns of {self.place.table.name} differ from those declared: "
                f"{', '.join(sorted(f'{n} {t}' for n, t in drift)) or 'another order'}",
                "The table was changed outside OML, or by another version of it.",
            )

    @property
    def cursor(self) -> int:
        """The last outbox seq applied, 0 for none: the table's own transaction version."""
        return self._transaction(APP_ID) or 0

    @property
    def bounds(self) -> Bounds | None:
        """The bounds recorded with the last batch."""
        frontier, end = self._transaction(_FRONTIER_ID), self._transaction(_END_ID)
        return None if frontier is None or end is None else Bounds(frontier, end)

    @property
    def is_recut(self) -> bool:
        """Whether the last batch had bounds of its own, that no frontier need have stopped at."""
        return self._transaction(_RECUT_ID) == self.cursor

    def _transaction(self, app_id: str) -> int | None:
        """Return the version of an application transaction, None if it has none.

        The library reads the log for it, if the table's store answers: else LakeUnavailable.
        """
        try:
            return self.delta.transaction_version(app_id)
        except (DeltaError, OSError) as error:
            raise self._unreachable(error) from error

    def refresh(self) -> None:
        """Load what was committed since, for one who only reads."""
        try:
            self.delta.update_incremental()
        except (DeltaError, OSError) as error:
            raise self._unreachable(error) from error

    def scan(
        self, columns: list[str], predicate: str | None = None, most: int | None = None
    ) -> pa.Table:
        """Read these columns of the rows that match a DataFusion SQL predicate, in no order.

        Reading ends once more than ``most`` rows are read. A predicate is made of numbers and
        names of ours alone: it is not quoted here. Raises
        LakeUnavailable when a file of the table is damaged, gone or out of reach.
        """
        try:
            stream = self.delta.scan(columns=columns, predicate=predicate)
            reader = pa.RecordBatchReader.from_stream(stream)
            if most is None:
                return reader.read_all()
            found: list[pa.RecordBatch] = []
            while sum(batch.num_rows for batch in found) <= most:
                try:
                    found.append(reader.read_next_batch())
                except StopIteration:
                    break
            return pa.Table.from_batches(found, reader.schema)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> LakeUnavailable:
        return LakeUnavailable(
            f"{self.place.table.name} cannot be read at {self.place.url}: {_said(error)}",
            "The store does not answer, or files of the table are damaged or gone.",
        )

    def count(self) -> int:
        """Count the rows by reading them, and not by what the log says of its files.

        Raises LakeUnavailable as ``scan`` does.
        """
        try:
            stream = pa.RecordBatchReader.from_stream(self.delta.scan(columns=["outbox_seq"]))
            return sum(batch.num_rows for batch in stream)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise self._unreachable(error) from error

    def behind(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Divide a batch's rows into those that are to be appended, and those the table is behind.

        Appended are new rows, and whole ones whose key is not there. The others are in the table,
        as an older outbox seq left them; what it has already, and what changes a row that is not
        there, is in neither. Read are the key columns of files that the older rows' times allow.
        """
        table = self.place.table
        if "is_new" not in rows.column_names:
            return rows, rows.slice(0, 0)
        older = rows.filter(pc.invert(rows["is_new"]))
        if older.num_rows == 0:
            return rows, older
        there = dict[tuple[Any, ...], int]()
        for start in range(0, older.num_rows, _SCANNED_AT_A_TIME):
            some = older.slice(start, _SCANNED_AT_A_TIME)
            within = f"{self._within(some)} and artifact_id in ({_list(some, 'artifact_id')})"
            found = self.scan([*table.key, "outbox_seq"], within)
            there |= dict(zip(_keys(found, table.key), _values(found, "outbox_seq"), strict=True))
        have = [there.get(key) for key in _keys(rows, table.key)]
        is_added = [
            new or (whole and at is None)
            for new, whole, at in zip(
                _values(rows, "is_new"), _values(rows, "is_whole"), have, strict=True
            )
        ]
        is_behind = [
            not added and at is not None and at < seq
            for added, at, seq in zip(is_added, have, _values(rows, "outbox_seq"), strict=True)
        ]
        return rows.filter(pa.array(is_added)), rows.filter(pa.array(is_behind))

    def change(self, rows: pa.Table) -> int:
        """Change rows that the table is behind, as many as one commit takes; return how many.

        ``rows`` are those that ``behind`` found by this very object: so no row is taken back, and a
        rival's commit since then fails ours. The cursor stays: no batch is applied by it, and
        whoever applies one finds the rows changed. Only files that hold such rows are written
        anew, a few batches of their rows in memory at a time; but a row that is written whole
        takes a MERGE, and that holds each file its time allows. Any exception leaves the outcome
        unknown.
        """
        table = self.place.table
        whole = rows.filter(rows["is_whole"])
        if whole.num_rows:
            names = table.arrow_schema().names
            self._merge(whole.select(names).slice(0, 1), self.bounds)
            return 1
        some = rows.sort_by(table.prune).slice(0, _CHANGED_AT_A_TIME)
        each = some.select(["outbox_seq", *table.key, *table.changes]).to_pylist()
        keys = [_literal("/".join(str(row[name]) for name in table.key)) for row in each]
        # The long expressions are evaluated for what may be meant, and not for each row of a file.
        meant = " and ".join(f"{name} in ({_list(some, name)})" for name in table.key)
        cases = {
            name: _case(table, name, keys, [row[name] for row in each]) for name in table.changes
        }
        self.delta.update(
            updates={n: f"CASE WHEN {meant} THEN {case} ELSE {n} END" for n, case in cases.items()},
            predicate=f"{self._within(some)} and {meant}",
            writer_properties=writer_properties(table),
            commit_properties=_transactions(self.bounds),
        )
        return len(each)

    def _within(self, rows: pa.Table) -> str:
        """Return a condition on the column that files are left out by, which these rows meet."""
        column = self.place.table.prune
        spans = (
            f"({column} >= {low} and {column} <= {high})" for low, high in _ranges(rows[column])
        )
        return f"({' or '.join(spans)})"

    def commit(self, rows: pa.Table, bounds: Bounds, *, recut: bool = False) -> None:
        """Commit one batch through this very object. Any exception leaves the outcome unknown.

        ``rows`` has the table's columns, each key once; of a table that upserts, only what
        ``behind`` says is to be appended. What is added to older rows is one MERGE; all else is an
        append, which reads nothing. ``recut``: the bounds are those of no batch that was recorded.
        """
        table = self.place.table
        schema = table.arrow_schema()
        rows = rows.select(schema.names).cast(schema)
        if rows.num_rows == 0 or table.writes != "add":
            self.append(rows, bounds, recut=recut)
            return
        done = self._merge(rows, bounds, recut=recut)
        if not done.get("num_target_rows_updated") and not done.get("num_target_rows_inserted"):
            # A merge without a match makes no commit. The object saw none since it was loaded.
            self.append(schema.empty_table(), bounds, recut=recut)

    def append(self, rows: pa.Table, bounds: Bounds, *, recut: bool = False) -> None:
        """Commit rows beside those that are there. Any exception leaves the outcome unknown."""
        write_deltalake(
            self.delta,
            rows,
            mode="append",
            writer_properties=writer_properties(self.place.table),
            target_file_size=self.place.file_bytes,
            commit_properties=_transactions(bounds, recut=recut),
        )

    def _merge(
        self, rows: pa.Table, bounds: Bounds | None, *, recut: bool = False
    ) -> Mapping[str, Any]:
        """Fold rows into those of their keys, as the table declares; what was done comes back.

        Files whose statistics exclude every key are not read. For that the predicate names ranges
        of one column: times or days are all of the rows that the log gets to see.
        """
        table = self.place.table
        same = [f"t.{name} = s.{name}" for name in table.key]
        if table.prune:
            ranges = (
                f"(t.{table.prune} >= {low} and t.{table.prune} <= {high})"
                for low, high in _ranges(rows[table.prune])
            )
            same.append(f"({' or '.join(ranges)})")
        merger = self.delta.merge(
            rows,
            " and ".join(same),
            source_alias="s",
            target_alias="t",
            writer_properties=writer_properties(table),
            commit_properties=_transactions(bounds, recut=recut),
        )
        every = {name: f"s.{name}" for name in table.arrow_schema().names}
        if table.writes == "add":
            sums = {name: f"t.{name} + s.{name}" for name in table.changes}
            return merger.when_matched_update(sums).when_not_matched_insert(every).execute()
        return merger.when_matched_update(every, "t.outbox_seq < s.outbox_seq").execute()

    def fence(self) -> None:
        """Commit nothing, at the same bounds: so a commit through an older object conflicts."""
        assert self.bounds is not None
        self.append(self.place.table.arrow_schema().empty_table(), self.bounds)


def _transactions(bounds: Bounds | None, *, recut: bool = False) -> CommitProperties:
    """Return what a commit records of its batch: the cursor, and the bounds behind it.

    None, before the first batch: a cursor of 0.
    """
    recorded = [Transaction(APP_ID, bounds.end if bounds else 0)]
    if bounds is not None:
        recorded += [Transaction(_FRONTIER_ID, bounds.frontier), Transaction(_END_ID, bounds.end)]
        recorded += [Transaction(_RECUT_ID, bounds.end)] if recut else []
    return CommitProperties(app_transactions=recorded)


def _values(rows: pa.Table, name: str) -> list[Any]:
    values: list[Any] = rows[name].to_pylist()
    return values


def _keys(rows: pa.Table, key: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(_values(rows, name) for name in key), strict=True))


def _list(rows: pa.Table, name: str) -> str:
    """Return the values of a column as a list of SQL literals, each once."""
    return ", ".join(sorted({_literal(value) for value in _values(rows, name)}))


def _case(table: LakeTable, name: str, keys: list[str], values: list[Any]) -> str:
    """Return the SQL of a column's value: by the row's key, else as it was."""
    parts = ", '/', ".join(table.key)
    cases = (f"WHEN {key} THEN {_literal(each)}" for key, each in zip(keys, values, strict=True))
    return f"CASE concat({parts}) {' '.join(cases)} ELSE {name} END"


def _literal(value: object) -> str:
    """Return a value as a DataFusion SQL literal."""
    if isinstance(value, datetime):
        return f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if isinstance(value, int):
        return str(value)
    assert isinstance(value, str)
    return "'" + value.replace("'", "''") + "'"


def _ranges(values: pa.ChunkedArray) -> list[tuple[str, str]]:
    """Cover days or times with a few ranges, parted where the gaps are widest; as SQL literals."""
    found = sorted(set(values.to_pylist()))
    gaps = sorted(range(1, len(found)), key=lambda n: found[n] - found[n - 1])
    parts = [0, *sorted(gaps[1 - _MOST_RANGES :]), len(found)]
    return [
        (f"'{found[first].isoformat()}'", f"'{found[end - 1].isoformat()}'")
        for first, end in pairwise(parts)
    ]


def writer_properties(table: LakeTable) -> WriterProperties:
    """Return how files are written: what a reader cannot use takes a third of the time."""
    return WriterProperties(
        compression="ZSTD",
        column_properties={
            name: ColumnProperties(
                dictionary_enabled=name not in table.unique,
                statistics_enabled="CHUNK" if name in table.statistics else "NONE",
            )
            for name in table.arrow_schema().names
        },
    )


def _said(error: Exception) -> str:
    """Return what a library said, on one line: without its colours, arrows and backtrace."""
    text = re.sub(r"\x1b\[\d*m|↳", "", str(error)).split("   0: ")[0]
    return " ".join(text.split())[:_LONGEST_REASON]
