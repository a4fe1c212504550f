"""Two tables, one protocol: other byte limits, a frontier set back, and forks either table shows.

Kills at each step and tables that come back older are in crash/test_two_tables.py.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import two_tables
from lakes import (
    append,
    batches,
    delta,
    disown,
    drain,
    expect_contiguous,
    expect_exact,
    frontier,
    outbox_max,
    prepare,
    queued,
    rows,
    settings,
    value,
)
from oml.dev.cluster import SUPERUSER
from oml.lake.schema import BRONZE_EVENTS, LakeTable
from oml.lake.source import Source
from oml.lake.table import Bounds, LakeError
from oml.lake.writer import LakeWriter
from systems import Connection, System
from two_tables import BOTH, COPY, feed, feed_again, stop_feeding


@pytest.fixture
def app(system: System) -> Connection:
    """A writer of a system whose events go into two tables, which are up to date."""
    connection = prepare(system)
    feed(system)
    drain(system, BOTH)
    return connection


def kill_between_tables(system: System, **limits: int) -> None:
    """Drain in a process that is killed when the first table has its batch and the second not."""
    env = {f"OML_{name.upper()}": str(limit) for name, limit in limits.items()}
    killed = subprocess.run(
        [sys.executable, two_tables.__file__],
        env=system.environment(env={"OML_FAILPOINT": "table.committed", **env}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(batches(system)) == len(batches(system, COPY)) + 1


def set_frontier(system: System, seq: int) -> None:
    """Put the frontier's row where an older copy of it has it, past its guard."""
    guard = "alter table oml.frontier {} trigger guard_forward"
    system.superuser.execute(guard.format("disable").encode())
    system.superuser.execute("update oml.frontier set seq = %s", (seq,))
    system.superuser.execute(guard.format("enable always").encode())


def versions(system: System) -> tuple[int, int]:
    return delta(system).version(), delta(system, COPY).version()


def expect_both_exact(system: System) -> None:
    """Insist that both tables hold every row queued for them, in batches of the same bounds."""
    expect_exact(system)
    assert rows(system, COPY) == queued(system, COPY)
    assert set(batches(system, COPY)) <= set(batches(system))
    expect_contiguous(batches(system))


def expect_completed(system: System, half_done: Bounds) -> None:
    """Insist that the second table has the batch too, with its bounds, if there are rows in it."""
    due = any(half_done.frontier < row[0] <= half_done.end for row in queued(system, COPY))
    assert (half_done in batches(system, COPY)) == due


@pytest.mark.parametrize(("before", "after"), [(2000, 1), (1, 2**30), (2000, 2**30)])
def test_another_limit_of_bytes_does_not_change_the_bounds_of_a_batch_half_done(
    system: System, app: Connection, before: int, after: int
) -> None:
    append(app, 6)
    kill_between_tables(system, batch_bytes=before)
    half_done = batches(system)[-1]
    assert frontier(system) == half_done.frontier < half_done.end < outbox_max(system)
    append(app, 2)
    drain(system, BOTH, batch_bytes=after)
    assert batches(system, COPY)[-1].end == outbox_max(system)
    expect_completed(system, half_done)
    expect_both_exact(system)


def test_batches_without_rows_for_the_first_table_move_its_cursor_too(
    system: System, app: Connection
) -> None:
    before = rows(system)
    for _ in range(3):
        system.superuser.execute(
            "insert into oml.outbox (tenant_id, chain_seq, target)"
            " select tenant_id, seq, 'bronze.copy' from oml.journal order by seq limit 1"
        )
    report = drain(system, BOTH, batch_rows=2)
    assert (report.batches, report.rows) == (2, {"bronze.events": 0, "bronze.copy": 3})
    assert rows(system) == before
    assert rows(system, COPY) == queued(system, COPY)
    assert batches(system) == batches(system, COPY)
    assert batches(system)[-1].end == outbox_max(system) == frontier(system)


# -- only the frontier's row comes back older ----------------------------------------------------


@pytest.mark.parametrize("back_to", [0, 1, 2])
def test_a_frontier_set_back_is_caught_up_from_the_tables(
    system: System, app: Connection, back_to: int
) -> None:
    append(app, 6)
    drain(system, BOTH, batch_rows=4)
    ends = [0, *(batch.end for batch in batches(system))]
    reached, before = frontier(system), versions(system)
    set_frontier(system, ends[back_to])
    report = drain(system, BOTH)
    assert (report.batches, report.recovered_rows) == (0, 0), "the tables have it all"
    assert frontier(system) == reached
    assert versions(system) == before
    append(app, 2)
    drain(system, BOTH)
    expect_both_exact(system)


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
def test_a_frontier_set_back_under_a_batch_half_done_is_caught_up_too(
    system: System, app: Connection, batch_rows: int
) -> None:
    first = frontier(system)
    append(app, 6)
    drain(system, BOTH, batch_rows=4)
    append(app, 4)
    kill_between_tables(system, batch_rows=5)
    half_done = batches(system)[-1]
    set_frontier(system, first)
    drain(system, BOTH, batch_rows=batch_rows)
    expect_completed(system, half_done)
    expect_both_exact(system)


def test_a_frontier_set_back_into_the_batch_of_either_table_is_refused(
    system: System, app: Connection
) -> None:
    append(app, 3)
    kill_between_tables(system)
    before = versions(system)
    for table in BOTH:
        batch = batches(system, table)[-1]
        set_frontier(system, batch.end - 1)
        with pytest.raises(LakeError, match=f"^{table.name} records .*straddles the frontier"):
            drain(system, BOTH)
        assert frontier(system) == batch.end - 1
    assert versions(system) == before
    set_frontier(system, 0)
    drain(system, BOTH)
    expect_both_exact(system)


def test_a_frontier_set_back_into_a_batch_that_a_table_caught_up_with_is_no_fork(
    system: System, app: Connection
) -> None:
    ends = []
    for _ in range(3):
        append(app, 2)
        drain(system, (BRONZE_EVENTS,))
        ends.append(frontier(system))
    stop_feeding(system)
    append(app, 2)
    drain(system, (BRONZE_EVENTS,))
    drain(system, BOTH)
    caught_up = batches(system, COPY)[-1]
    assert caught_up.frontier < ends[0] < ends[2] == caught_up.end, "a batch of bounds of its own"
    set_frontier(system, ends[1])
    feed_again(system)
    append(app, 3)
    drain(system, BOTH)
    expect_exact(system)
    assert rows(system, COPY) == queued(system, COPY)
    set_frontier(system, outbox_max(system) - 1)
    with pytest.raises(LakeError, match="straddles the frontier"):
        drain(system, BOTH)


# -- forks that only one of the tables shows -----------------------------------------------------


@pytest.fixture
def older(system: System, app: Connection, tmp_path: Path) -> Iterator[System]:
    """The database as it was before the lake got more: a database of its own, the same lake."""
    dump = tmp_path / "dump"
    subprocess.run(["pg_dump", "-Fc", "-f", dump, "-d", system.dsn(SUPERUSER)], check=True)
    append(app, 3)
    drain(system, BOTH)
    with restored(system, dump) as older:
        yield older


@contextmanager
def restored(system: System, dump: Path) -> Iterator[System]:
    """A database of its own as it was dumped, with the same lake."""
    with System(system.cluster, f"{system.database}_older", system.lake) as older:
        older.superuser.close()
        at = system.cluster.dsn(SUPERUSER, "postgres")
        for statement in ("drop database {}", "create database {}"):
            named = statement.format(f'"{older.database}"')
            subprocess.run(["psql", "-qX", "-d", at, "-c", named], check=True)
        subprocess.run(["pg_restore", "-d", older.dsn(SUPERUSER), str(dump)], check=True)
        older.superuser.execute("select oml_adopt('past what oml adopt would have said')")
        disown(system)
        yield older


@pytest.mark.parametrize("now", BOTH, ids=[table.name for table in BOTH])
def test_a_number_that_stands_for_another_row_now_is_refused_whatever_table_it_is_for(
    system: System, older: System, now: LakeTable
) -> None:
    lake_end = frontier(system)
    assert queued(system, COPY)[-1][0] == lake_end, "the copy holds the lake's last number"
    if now is BRONZE_EVENTS:
        stop_feeding(older)
    append(older.connect("app"), 9)
    target = value(older.superuser, "select target from oml.outbox where seq = %s", lake_end)
    assert target == now.name
    before, stands = versions(system), frontier(older)
    expected = r"^bronze\.events holds event .* under outbox seq \d+, the outbox holds"
    with Source(older.dsn(SUPERUSER)) as source, pytest.raises(LakeError, match=expected):
        LakeWriter(source, settings(system), BOTH).drain()
    assert versions(system) == before
    assert frontier(older) == stands
    disown(system)
    append(system.connect("app"), 2)
    drain(system, BOTH)
    expect_both_exact(system)


def test_a_fork_behind_a_last_number_of_another_table_is_refused_too(
    system: System, app: Connection, tmp_path: Path
) -> None:
    stop_feeding(system)
    append(app, 2)
    drain(system)
    dump = tmp_path / "dump"
    subprocess.run(["pg_dump", "-Fc", "-f", dump, "-d", system.dsn(SUPERUSER)], check=True)
    append(app, 1)
    system.superuser.execute(
        "insert into oml.outbox (tenant_id, chain_seq, target)"
        " select tenant_id, seq, 'bodies' from oml.journal order by seq limit 2"
    )
    drain(system)
    lake_end = frontier(system)
    with restored(system, dump) as older:
        append(older.connect("app"), 9)
        assert outbox_max(older) > lake_end
        with (
            Source(older.dsn(SUPERUSER)) as source,
            pytest.raises(LakeError, match=r"bronze\.events holds event"),
        ):
            LakeWriter(source, settings(system)).drain()
