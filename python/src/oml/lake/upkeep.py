"""Keeps a table's files and log few while batches go on: compaction, vacuum, and a sweep.

It runs between batches, by whoever holds the lease. None of it changes what a table holds or its
application transactions, and none of it is needed for correctness: a compaction that meets a
rival's commit fails and is tried again later. Delta checkpoints need no care: the library writes
one each fiftieth commit and then removes what of the log is older than the retention.
"""

import logging
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties
from deltalake.exceptions import DeltaError

from oml.failpoint import failpoint
from oml.lake.table import OpenTable, writer_properties
from oml.settings import Settings

log = logging.getLogger("oml.lake")

COMMITS = 50
"""A table is looked at after so many commits; so many small files are compacted at once."""
_STEP = 8
"""Small files become files of this part of a file's size first, and 2 * _STEP of those become whole
ones: nothing is copied into one large file over and over."""
_SPILL_BYTES = 64 * 1024 * 1024
_VACUUM_EVERY_S = 3600.0
_LEFT_BEHIND_S = 3600.0
_TEMPORARY = re.compile(r"#\d+$")


@dataclass
class _Record:
    """What is known of one table since this process began."""

    commits: int = 0
    has_looked: bool = False
    rolled: float = field(default_factory=time.monotonic)
    vacuumed: float | None = None


class Upkeep:
    """The upkeep of one lake's tables, as ``settings`` say. One thread uses it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._records: dict[str, _Record] = {}

    def committed(self, name: str) -> None:
        """Take note that a batch was committed to a table."""
        self._records.setdefault(name, _Record()).commits += 1

    def due(self, name: str) -> bool:
        """Tell whether a table should be looked at: by its commits, or by time if it had any.

        And after its first: how many files there are is not known before.
        """
        record = self._records.setdefault(name, _Record())
        if record.commits >= COMMITS:
            return True
        return record.commits > 0 and (not record.has_looked or self._has_waited(record))

    def _has_waited(self, record: _Record) -> bool:
        return time.monotonic() - record.rolled >= self._settings.lake_roll_s

    def run(self, opened: OpenTable) -> None:
        """Compact and vacuum a table as far as it is due. What fails is logged and comes again.

        ``opened`` is used up: load the table anew afterwards.
        """
        record = self._records.setdefault(opened.place.table.name, _Record())
        waited = self._has_waited(record)
        record.commits, record.has_looked = 0, True
        if waited:
            record.rolled = time.monotonic()
        try:
            compacted = self._compact(opened, waited=waited)
            if compacted:
                failpoint("upkeep.compacted")
            last = record.vacuumed
            if compacted if last is None else time.monotonic() - last >= _VACUUM_EVERY_S:
                record.vacuumed = time.monotonic()
                self._vacuum(opened)
                failpoint("upkeep.vacuumed")
        except (DeltaError, OSError, pa.ArrowException) as error:
            said = " ".join(str(error).split())[:300]
            log.warning("upkeep of %s: %s", opened.place.table.name, said)

    def _compact(self, opened: OpenTable, *, waited: bool) -> bool:
        """Compact what is small, if there is enough of it or the time has come."""
        whole = opened.place.file_bytes
        step = max(1, whole // _STEP)
        sizes = pa.table(opened.delta.get_add_actions())["size_bytes"]
        small = sizes.filter(pc.less(sizes, step / 2))
        parts = sizes.filter(pc.less(sizes, whole / 2))
        steps = len(parts) - len(small) + (pc.sum(small).as_py() or 0) // step
        many = len(small) >= COMMITS
        if (many or len(parts) - len(small) >= 2 * _STEP) and steps >= 2 * _STEP:
            target = whole
        elif many or (waited and len(small) >= 2):
            target = whole if waited and pc.sum(parts).as_py() >= whole / 2 else step
        else:
            return False
        done = opened.delta.optimize.compact(
            target_size=target,
            max_concurrent_tasks=1,
            max_spill_size=_SPILL_BYTES,
            writer_properties=writer_properties(opened.place.table),
            commit_properties=CommitProperties(max_commit_retries=0),
        )
        log.info(
            "compacted %s: %s files into %s",
            opened.place.table.name, done["numFilesRemoved"], done["numFilesAdded"],
        )  # fmt: skip
        return True

    def _vacuum(self, opened: OpenTable) -> None:
        """Remove files that no version within the retention names, and what crashes left behind."""
        opened.refresh()
        opened.delta.vacuum(
            retention_hours=self._settings.lake_retention_hours,
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
            commit_properties=CommitProperties(max_commit_retries=0),
        )
        if opened.place.url.startswith("file://"):
            for path in _left_behind(Path(url2pathname(opened.place.url.removeprefix("file://")))):
                path.unlink(missing_ok=True)


def _left_behind(root: Path) -> Iterator[Path]:
    """Yield the library's temporary files whose writer has died: no vacuum knows of them."""
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            if _TEMPORARY.search(name) and time.time() - path.stat().st_mtime > _LEFT_BEHIND_S:
                yield path
