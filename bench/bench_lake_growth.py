"""A batch of the lake writer after 5,000 commits (A) against one after 50 (B).

Two systems, each with a server and a lake of its own. The first one's lake has taken 5,000
batches, the second one's 50; then batches of the same events go into both by turns. The cost of a
batch is that of a whole drain with the upkeep that falls due between batches, so a figure is the
mean of 100 drains: each such hundred has its compactions.

OML_BENCH_COMMITS is how many the first one takes; with fewer than 5,000 it is a trial.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from deltalake import DeltaTable
from psycopg.rows import TupleRow

import common
from oml.dev.up import DevSystem
from oml.driver.connection import connect
from oml.lake.schema import BRONZE_EVENTS
from oml.lake.source import Source
from oml.lake.upkeep import Upkeep
from oml.lake.writer import LakeWriter
from oml.settings import Settings

FULL = 5000
COMMITS = int(os.environ.get("OML_BENCH_COMMITS", FULL))
YOUNG = 50
ROUNDS = 5
DRAINS = 100
EVENTS = 20
MOST = 1.3


class Lake:
    """A system's lake and the writer of it."""

    def __init__(
        self, system: DevSystem, app: psycopg.Connection[TupleRow], source: Source
    ) -> None:
        configured = Settings(lake_url=system.lake_url)
        self.app = app
        self.location = f"{system.lake_url}/{BRONZE_EVENTS.location}"
        self.writer = LakeWriter(source, configured, upkeep=Upkeep(configured))

    def batch(self) -> float:
        """Append events and drain them as one batch; return the seconds of the drain."""
        self.app.execute(
            "select count(*) from oml_append_batch((select jsonb_agg(jsonb_build_object("
            " 'type', 'note.added', 'payload', jsonb_build_object('n', n)))"
            f" from generate_series(1, {EVENTS}) n))".encode()
        )
        began = time.perf_counter()
        report = self.writer.drain()
        seconds = time.perf_counter() - began
        if report.batches != 1 or report.rows[BRONZE_EVENTS.name] != EVENTS:
            raise RuntimeError(f"that was no batch of {EVENTS}: {report}")
        return seconds

    def rate(self) -> float:
        """Return drains a second over a round."""
        return 1 / statistics.fmean(self.batch() for _ in range(DRAINS))

    def files(self) -> int:
        """Return how many files its bronze has."""
        return len(DeltaTable(self.location).file_uris())


@contextmanager
def lake() -> Iterator[Lake]:
    """Run a system with a writer beside it."""
    with common.server() as (system, cluster):
        with connect(cluster.dsn(dbname="oml"), autocommit=True) as superuser:
            superuser.execute("select oml_register_event_type('note.added')")
        with (
            connect(system.dsn, autocommit=True) as app,
            Source(system.superuser_dsn) as source,
        ):
            made = Lake(system, app, source)
            made.writer.drain()
            yield made


def main() -> int:
    """Run it; return the exit status."""
    with lake() as old, lake() as young:
        for _ in range(COMMITS):
            old.batch()
        for _ in range(YOUNG):
            young.batch()
        # The young one must not grow old beside the old one: few rounds, and no uncounted one.
        pairs = []
        for number in range(ROUNDS):
            if number % 2 == 0:
                a, b = old.rate(), young.rate()
            else:
                b, a = young.rate(), old.rate()
            pairs.append(common.Pair(b, a))  # cost against cost
        files = {"old": old.files(), "young": young.files()}
        size = sum(f.stat().st_size for f in Path(old.location.removeprefix("file://")).rglob("*"))
    figure = common.figure("batch_cost_5000_vs_50", pairs)
    figure = figure._replace(required=MOST, at_most=True)
    more = {
        "commits": COMMITS, "events_a_batch": EVENTS, "files_of_bronze": files,
        "bronze_mb": round(size / 1e6, 1),
        "a_is": "drains a second of the young lake", "b_is": "of the old one",
    }  # fmt: skip
    return common.finish("lake_growth", [figure], more, keep=COMMITS >= FULL)


if __name__ == "__main__":
    sys.exit(main())
