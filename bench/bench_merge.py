"""A batch of 1,000 rows of silver.claims with 100 retracts, against the same as a plain append.

Each way has a table of its own, alike at the beginning: 1,000,000 versions with a ciphertext of
512 bytes each, written in batches of 1,000 and compacted as the upkeep does. A: 900 new versions
and 100 changes of state, updated first and then appended, as the writer does; B: 1,000 new
versions, as one append.

``merge_vs_append``: the retracts are among the newest 1 % of the versions: what is withdrawn was
released not long ago, and files of other times are left out by their statistics.
``merge_of_any_age_vs_append``: they are anywhere. Each file with one of them is rewritten.

OML_BENCH_ROWS is how many; with fewer than 1,000,000 it is a trial, whose result is not kept.
"""

import os
import random
import shutil
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import common
from oml.lake.schema import SILVER_CLAIMS
from oml.lake.table import Bounds, Place
from oml.lake.upkeep import Upkeep
from oml.settings import Settings

FULL = 1_000_000
ROWS = int(os.environ.get("OML_BENCH_ROWS", FULL))
BATCH = 1000
RETRACTS = 100
CIPHERTEXT = 512
PAIRS = 7
MOST = 10.0
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
APART = timedelta(seconds=20)


class Silver:
    """A table of claims that grows batch by batch."""

    def __init__(self, directory: Path) -> None:
        configured = Settings()
        self.upkeep = Upkeep(configured)
        self.place = Place(
            SILVER_CLAIMS, directory.as_uri(), 1, "bench", {},
            SILVER_CLAIMS.file_bytes(configured.lake_file_bytes),
        )  # fmt: skip
        self.place.create()
        self.ids: list[uuid.UUID] = []
        self.chance = random.Random(7)
        self.end = 0

    def copy(self, directory: Path) -> "Silver":
        """Copy it as it is, to go on otherwise."""
        shutil.copytree(self.place.url.removeprefix("file://"), directory)
        other = Silver(directory)
        other.ids, other.end = list(self.ids), self.end
        return other

    def fill(self, rows: int) -> None:
        """Append batches until there are so many rows."""
        while len(self.ids) < rows:
            self.commit(self.new(BATCH))
            self.upkeep.committed(SILVER_CLAIMS.name)
            if self.upkeep.due(SILVER_CLAIMS.name):
                opened = self.place.open()
                assert opened is not None
                self.upkeep.run(opened)

    def commit(self, rows: list[dict[str, Any]]) -> float:
        """Commit a batch; return batches a second."""
        marks = [("is_whole", pa.bool_()), ("is_new", pa.bool_())]
        schema = pa.schema([*SILVER_CLAIMS.arrow_schema(), *(pa.field(*mark) for mark in marks)])
        data = pa.Table.from_pylist(rows, schema=schema)
        began = time.perf_counter()
        opened = self.place.open()
        assert opened is not None
        added, behind = opened.behind(data)
        while behind.num_rows:
            opened.change(behind)
            opened = self.place.open()
            assert opened is not None
            added, behind = opened.behind(data)
        opened.commit(added, Bounds(self.end, self.end + BATCH))
        seconds = time.perf_counter() - began
        self.end += BATCH
        return 1 / seconds

    def new(self, count: int) -> list[dict[str, Any]]:
        """Make new versions."""
        first = len(self.ids)
        self.ids += [uuid.UUID(int=self.chance.getrandbits(128)) for _ in range(count)]
        return [self._row(n, "promoted", is_new=True) for n in range(first, first + count)]

    def retracts(self, count: int, among: float) -> list[dict[str, Any]]:
        """Make changes of state of versions among the newest part."""
        chosen = self.chance.sample(range(int(len(self.ids) * (1 - among)), len(self.ids)), count)
        return [self._row(n, "demoted", is_new=False) for n in chosen]

    def _row(self, number: int, state: str, *, is_new: bool) -> dict[str, Any]:
        at = EPOCH + number * APART
        return {
            "outbox_seq": self.end + 1, "tenant_id": str(uuid.UUID(int=number % 100)),
            "artifact_id": str(self.ids[number]), "version": 1,
            "workarea_id": str(uuid.UUID(int=7)), "path": "research/2026", "writer": "app",
            "principal": "ada", "provenance": "observed", "media_type": "text/plain",
            "bytes": CIPHERTEXT - 41, "attachments": 0,
            "plaintext_digest": self.chance.randbytes(32),
            "ciphertext_digest": self.chance.randbytes(32),
            "dek_id": str(uuid.UUID(int=number)), "submitted_seq": number, "submitted_at": at,
            "promoted_seq": number + 2, "promoted_at": at, "state": state, "state_seq": number + 2,
            "state_at": at, "ciphertext": self.chance.randbytes(CIPHERTEXT) if is_new else None,
            "is_whole": is_new, "is_new": is_new,
        }  # fmt: skip


def main() -> int:
    """Run the pairs; return the exit status."""
    directory = Path(tempfile.mkdtemp(prefix="oml-bench-"))
    try:
        silver = Silver(directory / "claims")
        silver.fill(ROWS)
        opened = silver.place.open()
        assert opened is not None
        files = len(opened.delta.file_uris())

        recent, old = silver.copy(directory / "recent"), silver.copy(directory / "old")

        def merge(into: Silver, among: float) -> float:
            return into.commit(into.retracts(RETRACTS, among) + into.new(BATCH - RETRACTS))

        found = common.rounds(
            {
                "append": lambda: silver.commit(silver.new(BATCH)),
                "recent": lambda: merge(recent, 0.01),
                "any": lambda: merge(old, 1.0),
            },
            PAIRS,
        )
        for each in (silver, recent, old):
            left = each.place.open()
            assert left is not None and left.delta.count() == len(each.ids)
    finally:
        shutil.rmtree(directory)
    keys = {"merge_vs_append": "recent", "merge_of_any_age_vs_append": "any"}
    figures = [
        common.figure(key, common.against(found["append"], found[way]))._replace(
            required=MOST if way == "recent" else None, at_most=True
        )
        for key, way in keys.items()
    ]
    more = {"rows": ROWS, "files": files, "ciphertext_bytes": CIPHERTEXT}
    return common.finish("merge", figures, more, keep=ROWS >= FULL)


if __name__ == "__main__":
    sys.exit(main())
