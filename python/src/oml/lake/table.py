"""One Delta table under the exactly-once protocol.

Check and commit go through one freshly loaded object that nobody else holds: delta-rs refuses a
commit whose snapshot lacks a rival's commit with the same application id, so a rival's commit
fails ours. A fresh load between check and commit would take that away.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
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
from oml.lake.schema import TIMESTAMP, LakeTable

APP_ID = "oml-lakewriter"
"""Delta application id of the lake writer; its version is the last outbox seq applied."""
_FRONTIER_ID = f"{APP_ID}/frontier"
_END_ID = f"{APP_ID}/batch_end"
_RECUT_ID = f"{APP_ID}/recut"
_CHECKPOINT_EVERY = "50"
_MOST_RANGES = 16
_TICK = timedelta(milliseconds=1)
_MARKS = ("is_new", "is_whole")
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
        return self.delta.transaction_version(APP_ID) or 0

    @property
    def bounds(self) -> Bounds | None:
        """The bounds recorded with the last batch."""
        frontier = self.delta.transaction_version(_FRONTIER_ID)
        end = self.delta.transaction_version(_END_ID)
        return None if frontier is None or end is None else Bounds(frontier, end)

    @property
    def is_recut(self) -> bool:
        """Whether the last batch had bounds of its own, that no frontier need have stopped at."""
        return self.delta.transaction_version(_RECUT_ID) == self.cursor

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

    def portions(self, rows: pa.Table, most_bytes: int) -> list[pa.Table]:
        """Divide a batch's rows into what is committed one after the other.

        A merge holds in memory several times what it writes anew: each file that may have one of
        its rows. All portions but the last are for ``change``, rows of a few files with
        ``most_bytes`` of them, or of one that is larger; the last is for ``commit``. New rows are
        never merged beside a file that is larger already: so no file grows without end.
        """
        table = self.place.table
        if not table.prune or "is_new" not in rows.column_names:
            return [rows]
        older = rows.filter(pc.invert(rows["is_new"])).sort_by(table.prune)
        if older.num_rows == 0:
            return [rows]
        files = self._files(table.prune)
        found: list[pa.Table] = []
        while older.num_rows:
            count = _longest(older[table.prune], files, most_bytes)
            found.append(older.slice(0, count))
            older = older.slice(count)
        new = rows.filter(rows["is_new"])
        if new.num_rows == 0:
            return found
        if _touched(files, found[-1][table.prune]) > most_bytes:
            return [*found, new]
        return [*found[:-1], pa.concat_tables([found[-1], new])]

    def _files(self, column: str) -> pa.Table:
        """Return the table's files: ``low`` and ``high`` of a column of times, and ``bytes``."""
        found = pa.table(self.delta.get_add_actions(flatten=True))
        low, high = (found[f"{end}.{column}"].cast(TIMESTAMP) for end in ("min", "max"))
        return pa.table({"low": low, "high": high, "bytes": found["size_bytes"]})

    def change(self, rows: pa.Table) -> None:
        """Change rows that are there as a batch that begins here will have them; the cursor stays.

        The batch is not applied by it: whoever applies it does all of this again, to the same end.
        Committed is what ``fence`` commits: a commit through an older object conflicts. Any
        exception leaves the outcome unknown.
        """
        marks = [name for name in _MARKS if name in rows.column_names]
        self._merge(rows.select([*self.place.table.arrow_schema().names, *marks]), self.bounds)

    def commit(self, rows: pa.Table, bounds: Bounds, *, recut: bool = False) -> None:
        """Commit one batch through this very object. Any exception leaves the outcome unknown.

        ``rows`` has the table's columns, each key once, and where rows are not all new ``is_new``
        and ``is_whole`` as well. What replaces or changes older rows is one MERGE; all else is an
        append, which reads nothing. ``recut``: the bounds are those of no batch that was recorded.
        """
        table = self.place.table
        schema = table.arrow_schema()
        marks = [name for name in _MARKS if name in rows.column_names]
        is_new = not marks or pc.all(rows["is_new"], min_count=0).as_py()
        if rows.num_rows == 0 or (table.writes != "add" and is_new):
            self.append(rows.select(schema.names).cast(schema), bounds, recut=recut)
            return
        done = self._merge(rows.select([*schema.names, *marks]), bounds, recut=recut)
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
            older = (
                rows.filter(pc.invert(rows["is_new"])) if "is_new" in rows.column_names else rows
            )
            ranges = (
                f"(t.{table.prune} >= {low} and t.{table.prune} <= {high})"
                for low, high in _ranges(older[table.prune])
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
            merger = merger.when_matched_update(sums).when_not_matched_insert(every)
        else:
            whole = "s.is_whole"
            merger = merger.when_matched_update(every, whole)
            if table.changes:
                changed = {name: every[name] for name in table.changes}
                merger = merger.when_matched_update(changed, f"not {whole}")
            merger = merger.when_not_matched_insert(every, whole)
        return merger.execute()

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


def _longest(times: pa.ChunkedArray, files: pa.Table, most_bytes: int) -> int:
    """Return how many of the times, from the first on, touch few enough bytes; 1 at least."""
    least, most = 1, len(times)
    while least < most:
        middle = (least + most + 1) // 2
        fits = _touched(files, times[:middle]) <= most_bytes
        least, most = (middle, most) if fits else (least, middle - 1)
    return least


def _touched(files: pa.Table, times: pa.ChunkedArray) -> int:
    """Return the bytes of the files that a merge of rows with these times reads.

    ``files`` has ``low``, ``high`` (null where unknown; to the millisecond) and ``bytes``.
    """
    hit = pc.is_null(files["low"])
    for low, high in _spans(times):
        after = pc.greater_equal(files["high"], pa.scalar(low - _TICK, TIMESTAMP))
        before = pc.less_equal(files["low"], pa.scalar(high + _TICK, TIMESTAMP))
        hit = pc.or_(hit, pc.and_(pc.fill_null(after, True), before))
    return int(pc.sum(files.filter(pc.fill_null(hit, True))["bytes"]).as_py() or 0)


def _ranges(values: pa.ChunkedArray) -> list[tuple[str, str]]:
    """Cover days or times with a few ranges, as SQL literals."""
    return [(f"'{low.isoformat()}'", f"'{high.isoformat()}'") for low, high in _spans(values)]


def _spans(values: pa.ChunkedArray) -> list[tuple[Any, Any]]:
    """Cover days or times with a few ranges, parted where the gaps are widest."""
    found = sorted(set(values.to_pylist()))
    gaps = sorted(range(1, len(found)), key=lambda n: found[n] - found[n - 1])
    parts = [0, *sorted(gaps[1 - _MOST_RANGES :]), len(found)]
    return [(found[first], found[end - 1]) for first, end in pairwise(parts)]


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
