"""The crash matrix: each fail point in each table, random deaths, and what lies below dying.

After each: bronze is the journal, once each; silver is the fold; gold is the aggregate of bronze.
OML_CRASH_RUNS is how many random runs there are; the seed is printed, and OML_CRASH_SEED sets it.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from uuid import UUID

import pytest

from judge import expect_gold, expect_silver
from lakes import (
    PATIENCE_S,
    append,
    await_stop,
    drain,
    expect_exact,
    frontier,
    lake_writer,
    prepare,
    wait_for_restart,
    wait_until,
)
from oml.failpoint import LAKE
from oml.lake.schema import TABLES, LakeTable
from seaweed import on_stores
from submissions import Office, submit
from systems import System

RUNS = int(os.environ.get("OML_CRASH_RUNS", "20"))
SEED = int(os.environ.get("OML_CRASH_SEED", "0")) or random.randrange(1, 10**6)
IN_A_TABLE = ("table.rows-read", "table.checked", "table.committed")
IN_A_BATCH = ("batch.chosen", "batch.committed", "batch.advanced")
MADE = ("table.created", "table.recorded")
assert set(LAKE) >= {*IN_A_TABLE, *IN_A_BATCH, *MADE}


class Work:
    """An office whose artifacts come and go, as a seeded choice says."""

    def __init__(self, system: System, choose: random.Random) -> None:
        prepare(system, "globex")
        self.office = Office(system)
        self.office.chief.execute("select oml_create_workarea('archive')")
        self.choose = choose
        self.released: list[UUID] = []

    def do(self) -> None:
        """Touch every table: release one with an attachment, withdraw or move an older one."""
        office, choose = self.office, self.choose
        append(office.system.connect("app"), choose.randrange(1, 4))
        if self.released and choose.random() < 0.7:
            self._change(self.released.pop(choose.randrange(len(self.released))))
        if self.released and choose.random() < 0.3:
            older = choose.choice(self.released)
            submit(office.author, b"next", b"more", artifact=older, provenance="simulated")
        made = office.submit(choose.randbytes(20).hex().encode(), b"note", provenance="simulated")
        office.promote(made)
        self.released.append(made)

    def start_anew(self) -> None:
        """Start the server that was killed, and connect to it anew."""
        office, system = self.office, self.office.system
        system.cluster.start()
        wait_for_restart(system)
        opened = system.oml("gate", "open")
        assert opened.returncode == 0, opened.stderr
        office.author, office.colleague = system.connect("author"), system.connect("colleague")
        office.reviewer, office.chief = system.connect("reviewer"), system.connect("chief")

    def _change(self, artifact: UUID) -> None:
        where, verb = self.choose.choice(
            [("", "demote"), (", 'archive'", "reassign"), ("", "end_simulation")]
        )
        self.office.chief.execute(
            f"select oml_{verb}(%s{where}, 'x', version => 1)".encode(), (artifact,)
        )


def expect_all(system: System) -> None:
    """Insist that all tables are what they must be."""
    expect_exact(system)
    expect_silver(system)
    expect_gold(system)


def kill_at(system: System, place: str, **settings: str) -> None:
    """Drain in a process that is killed at a place."""
    killed = system.oml("lake", "drain", "--once", env={"OML_FAILPOINT": place} | settings)
    assert killed.returncode == -signal.SIGKILL, f"it never came to {place}: {killed.stderr}"


@on_stores
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_kill_at_each_step_in_each_table_leaves_all_to_be_completed(
    system: System, table: LakeTable
) -> None:
    """A batch touches all tables in their order: the n-th pass of a step is in the n-th table."""
    work = Work(system, random.Random(table.name))
    drain(system)
    for place in IN_A_TABLE:
        work.do()
        work.do()
        kill_at(system, f"{place}:{TABLES.index(table) + 1}")
        work.do()
        drain(system, batch_rows=5)
        expect_all(system)


@pytest.mark.parametrize("place", MADE)
def test_a_kill_as_each_table_is_made_leaves_all_to_be_completed(
    system: System, place: str
) -> None:
    Work(system, random.Random(place)).do()
    for _ in TABLES:
        kill_at(system, place)  # each time one more is there
    drain(system)
    expect_all(system)


def _kill_at_random(work: Work) -> None:
    system, choose = work.office.system, work.choose
    place = choose.choice([*IN_A_TABLE * 3, *IN_A_BATCH])
    nth = choose.randrange(1, 9)
    batch_rows = choose.choice([2, 5, 1000])
    system.oml(
        "lake", "drain", "--once",
        env={"OML_FAILPOINT": f"{place}:{nth}", "OML_BATCH_ROWS": str(batch_rows)},
    )  # fmt: skip  # it may never come there: then it was drained


def _kill_in_a_while(work: Work) -> None:
    system, choose = work.office.system, work.choose
    draining = system.start_oml("lake", "drain", "--once", env={"OML_BATCH_ROWS": "3"})
    before = frontier(system)
    deadline = time.monotonic() + PATIENCE_S
    while frontier(system) == before and draining.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(choose.random() * 0.2)
    draining.kill()
    draining.communicate(timeout=PATIENCE_S)


def _kill_the_server(work: Work) -> None:
    system, choose = work.office.system, work.choose
    place = f"{choose.choice(IN_A_TABLE)}:{choose.randrange(1, 6)}"
    stopped = system.start_oml("lake", "drain", "--once", env={"OML_FAILPOINT": f"{place}:stop"})
    await_stop(stopped, or_end=True)
    system.cluster.kill()
    if stopped.poll() is None:
        stopped.send_signal(signal.SIGCONT)
    stopped.communicate(timeout=PATIENCE_S)
    work.start_anew()


def _roll_a_table_back(work: Work) -> None:
    system, choose = work.office.system, work.choose
    drain(system)
    table = system.lake / choose.choice(TABLES).location
    kept = system.lake.parent / "kept"
    shutil.copytree(table, kept)
    append(system.connect("app"), 3)
    drain(system, batch_rows=choose.choice([1, 100]))
    shutil.rmtree(table)
    shutil.move(kept, table)


Death = Callable[[Work], None]
DEATHS: tuple[Death, ...] = (
    *(_kill_at_random,) * 6, *(_kill_in_a_while,) * 2, _kill_the_server, _roll_a_table_back,
)  # fmt: skip


@pytest.mark.timeout(180 + 20 * RUNS)
def test_random_deaths_one_after_another_lose_and_double_nothing(private_system: System) -> None:
    choose = random.Random(SEED)
    print(f"OML_CRASH_SEED={SEED}")
    work = Work(private_system, choose)
    for run in range(RUNS):
        work.do()
        death = choose.choice(DEATHS)
        death(work)
        if choose.random() < 0.5:
            work.do()
        drain(private_system, batch_rows=choose.choice([1, 4, 1000]))
        try:
            expect_all(private_system)
        except AssertionError as error:
            error.add_note(f"seed {SEED}, run {run}: {death.__name__}")
            raise


def test_the_database_server_is_killed_in_the_middle_of_a_batch(private_system: System) -> None:
    work = Work(private_system, random.Random(3))
    drain(private_system)
    for nth in range(1, len(TABLES) + 1):
        work.do()
        work.do()
        stopped = private_system.start_oml(
            "lake", "drain", "--once", env={"OML_FAILPOINT": f"table.committed:{nth}:stop"}
        )
        await_stop(stopped)
        private_system.cluster.kill()
        stopped.send_signal(signal.SIGCONT)
        assert stopped.wait(PATIENCE_S) == 2, "the server is away"
        stopped.communicate()
        work.start_anew()
        drain(private_system)
        expect_all(private_system)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_is_rolled_back_underneath_a_running_writer(
    system: System, table: LakeTable
) -> None:
    work = Work(system, random.Random(table.name))
    work.do()
    with lake_writer(system) as writer:
        writer.drain()
        shutil.copytree(system.lake / table.location, system.lake.parent / "kept")
        for _ in range(3):
            work.do()
            writer.drain()
        shutil.rmtree(system.lake / table.location)
        shutil.move(system.lake.parent / "kept", system.lake / table.location)
        work.do()
        writer.drain()
    expect_all(system)


def test_the_daemon_goes_on_through_a_kill_of_the_server(private_system: System) -> None:
    work = Work(private_system, random.Random(5))
    serving = private_system.start_oml(
        "serve", "--role", "lake-writer", env={"OML_POLL_INTERVAL_S": "0.02", "OML_BATCH_ROWS": "2"}
    )
    try:
        wait_until(private_system, "select 1 from oml.frontier where name = 'lake' and seq > 0")
        for _ in range(2):
            work.do()
            private_system.cluster.kill()
            work.start_anew()
            wait_until(
                private_system,
                "select 1 from oml.frontier where name = 'lake'"
                " and seq = (select max(seq) from oml.outbox)",
            )
    finally:
        serving.terminate()
        serving.communicate(timeout=PATIENCE_S)
    drain(private_system)
    expect_all(private_system)


def test_a_whole_lake_that_comes_back_older_and_a_crash_after_that_is_no_fork(
    system: System,
) -> None:
    app = prepare(system)
    append(app, 3)
    drain(system)
    kept = system.lake.parent / "kept"
    shutil.copytree(system.lake, kept)
    append(app, 3)
    drain(system)
    for table in TABLES:
        shutil.rmtree(system.lake / table.location)
        shutil.copytree(kept / table.location, system.lake / table.location)
    append(app, 3)
    killed = system.oml("lake", "drain", "--once", env={"OML_FAILPOINT": "table.committed"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    drain(system)
    expect_exact(system)
    expect_gold(system)
