"""Several tables, one batch: whatever a crash leaves half done ends with the same bounds."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import two_tables
from lakes import (
    append,
    batches,
    delta,
    drain,
    expect_contiguous,
    expect_exact,
    frontier,
    lake_writer,
    outbox_max,
    prepare,
    queued,
    rows,
)
from oml.failpoint import LAKE as FAILPOINTS
from oml.lake import writer as writer_module
from oml.lake.schema import BRONZE_EVENTS, LakeTable
from oml.lake.table import LakeError
from systems import Connection, System
from two_tables import BOTH, COPY, feed, feed_again, stop_feeding

TWICE_A_BATCH = ["table.rows-read", "table.checked", "table.committed"]
TWICE_A_START = ["table.created", "table.recorded"]


@pytest.fixture
def app(system: System) -> Connection:
    """A writer of a system whose events go into two tables."""
    connection = prepare(system)
    feed(system)
    return connection


def kill_at(system: System, place: str, batch_rows: int) -> None:
    """Drain both tables in a process that is killed at this place."""
    killed = subprocess.run(
        [sys.executable, two_tables.__file__],
        env=system.environment(env={"OML_FAILPOINT": place, "OML_BATCH_ROWS": str(batch_rows)}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, f"it never came to {place}: {killed.stderr}"


def expect_both_exact(system: System) -> None:
    """Insist that both tables hold every row queued for them, in batches of the same bounds.

    The second one has no commit of a batch that had no rows for it.
    """
    expect_exact(system)
    assert rows(system, COPY) == queued(system, COPY)
    assert set(batches(system, COPY)) <= set(batches(system))
    assert len(set(batches(system, COPY))) == len(batches(system, COPY))
    expect_contiguous(batches(system))


@pytest.mark.parametrize(
    "place", [*FAILPOINTS, *(f"{name}:2" for name in TWICE_A_BATCH + TWICE_A_START)]
)
def test_a_kill_at_any_step_leaves_both_tables_to_be_completed_alike(
    system: System, app: Connection, place: str
) -> None:
    append(app, 5)
    kill_at(system, place, batch_rows=100)
    append(app, 5)
    # With other limits: a batch that was begun keeps its bounds all the same.
    drain(system, BOTH, batch_rows=3)
    expect_both_exact(system)


@pytest.mark.parametrize("later_rows", [1, 1000])
def test_the_second_table_gets_the_bounds_that_the_first_has_recorded(
    system: System, app: Connection, later_rows: int
) -> None:
    append(app, 5)
    drain(system, BOTH)
    append(app, 5)
    kill_at(system, "table.committed", batch_rows=7)
    (half_done,) = batches(system)[1:]
    assert len(batches(system, COPY)) == 1
    assert half_done.frontier == frontier(system) < half_done.end
    append(app, 5)
    drain(system, BOTH, batch_rows=later_rows)
    assert batches(system, COPY)[1] == half_done, batches(system, COPY)
    expect_both_exact(system)


def test_a_batch_without_rows_for_a_table_leaves_it_alone(system: System, app: Connection) -> None:
    drain(system, BOTH)
    stop_feeding(system)
    append(app, 3)
    before = rows(system, COPY), batches(system, COPY)
    report = drain(system, BOTH)
    assert report.rows == {"bronze.events": 3, "bronze.copy": 0}
    assert (rows(system, COPY), batches(system, COPY)) == before
    expect_both_exact(system)
    feed_again(system)
    append(app, 3)
    assert drain(system, BOTH).rows == {"bronze.events": 3, "bronze.copy": 3}
    expect_both_exact(system)


def test_a_table_that_was_left_far_behind_gets_a_commit_without_rows(
    system: System, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain(system, BOTH)
    stop_feeding(system)
    monkeypatch.setattr(writer_module, "_FAR", 5)
    append(app, 4)
    drain(system, BOTH)
    assert len(batches(system, COPY)) == 1
    append(app, 4)
    drain(system, BOTH)
    assert len(batches(system, COPY)) == 2
    assert batches(system, COPY)[1].end == batches(system)[-1].end == frontier(system)
    expect_both_exact(system)


def test_a_table_that_is_new_gets_everything_from_the_beginning(
    system: System, app: Connection
) -> None:
    append(app, 5)
    drain(system, batch_rows=3)
    report = drain(system, BOTH, batch_rows=4)
    assert report.recovered_rows == len(queued(system, COPY)) > 0
    assert rows(system, COPY) == queued(system, COPY)
    expect_exact(system)
    append(app, 5)
    drain(system, BOTH)
    assert rows(system, COPY) == queued(system, COPY)
    expect_exact(system)


# -- a table that comes back older, as after a loss of power ---------------------------------------


def directory(system: System, table: LakeTable) -> Path:
    return system.lake / table.location


def keep(system: System, table: LakeTable) -> Path:
    """Keep a copy of the table as it is now."""
    kept = system.lake / f"kept-{table.name}"
    shutil.copytree(directory(system, table), kept)
    return kept


def put_back(system: System, table: LakeTable, kept: Path) -> None:
    """Put the table back to what was kept."""
    shutil.rmtree(directory(system, table))
    shutil.move(kept, directory(system, table))


@pytest.mark.parametrize("older", [(BRONZE_EVENTS,), (COPY,), BOTH])
@pytest.mark.parametrize("more", [0, 2])
def test_a_table_that_comes_back_older_gets_its_rows_again_from_the_outbox(
    system: System, app: Connection, older: tuple[LakeTable, ...], more: int
) -> None:
    append(app, 3)
    drain(system, BOTH, batch_rows=5)
    kept = {table: keep(system, table) for table in older}
    for _ in range(3):
        append(app, 3)
        drain(system, BOTH, batch_rows=5)
    reached = frontier(system)
    for table, copy in kept.items():
        put_back(system, table, copy)
    append(app, more)
    report = drain(system, BOTH, batch_rows=4)
    again = report.recovered_rows + sum(report.rows.values())
    assert again == 9 * len(older) + more * len(BOTH), "the rows since then, and no others"
    assert frontier(system) >= reached
    for table in BOTH:
        assert rows(system, table) == queued(system, table)
    expect_exact(system)


def test_a_table_that_comes_back_empty_gets_everything_again(
    system: System, app: Connection
) -> None:
    kill_at(system, "batch.chosen", batch_rows=100)
    assert delta(system, COPY).version() == 0
    kept = keep(system, COPY)
    append(app, 3)
    drain(system, BOTH, batch_rows=5)
    put_back(system, COPY, kept)
    told: list[tuple[int, int]] = []
    with lake_writer(system, BOTH, batch_rows=5) as writer:
        writer.drain(lambda reached, limit: told.append((reached, limit)))
    expect_both_exact(system)
    last = outbox_max(system)
    assert told[0] == (0, last)
    assert told == sorted(told) and told[-1] == (last, last) and len(told) > 3


def test_a_table_that_comes_back_older_beside_one_half_ahead_is_completed(
    system: System, app: Connection
) -> None:
    append(app, 3)
    drain(system, BOTH, batch_rows=5)
    kept = keep(system, COPY)
    append(app, 3)
    drain(system, BOTH, batch_rows=5)
    append(app, 3)
    kill_at(system, "table.committed", batch_rows=100)
    put_back(system, COPY, kept)
    append(app, 3)
    drain(system, BOTH, batch_rows=4)
    for table in BOTH:
        assert rows(system, table) == queued(system, table)
    expect_exact(system)


def test_a_kill_while_an_older_table_is_brought_up_again_loses_and_doubles_nothing(
    system: System, app: Connection
) -> None:
    append(app, 3)
    drain(system, BOTH)
    kept = keep(system, COPY)
    append(app, 6)
    drain(system, BOTH, batch_rows=5)
    put_back(system, COPY, kept)
    for place in ("table.committed", "table.checked:2", "table.rows-read:2"):
        kill_at(system, place, batch_rows=3)
    drain(system, BOTH)
    for table in BOTH:
        assert rows(system, table) == queued(system, table)
    expect_exact(system)


def test_rows_that_the_outbox_has_lost_below_an_older_table_are_refused(
    system: System, app: Connection
) -> None:
    drain(system, BOTH)
    kept, first = keep(system, COPY), frontier(system)
    append(app, 3)
    drain(system, BOTH)
    second = frontier(system)
    append(app, 3)
    drain(system, BOTH)
    put_back(system, COPY, kept)
    before = rows(system, COPY)
    system.superuser.execute("alter table oml.outbox disable trigger guard_rows")
    system.superuser.execute("delete from oml.outbox where seq > %s and seq <= %s", (first, second))
    with pytest.raises(LakeError, match=f"bronze.copy stands at {first}.* has lost the rows"):
        drain(system, BOTH)
    assert rows(system, COPY) == before
