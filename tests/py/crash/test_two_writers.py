"""Two lake writers at once: the Delta commit lets one of them through, and no batch comes twice."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lakes import (
    append,
    batches,
    delta,
    drain,
    expect_contiguous,
    expect_exact,
    lake_writer,
    prepare,
)
from oml.lake import table as table_module
from oml.lake.table import Bounds, OpenTable
from oml.lake.writer import Drained
from systems import System

ROUNDS = 200
EVENTS_A_ROUND = 4
SEED = 13
LONGEST_PAUSE_S = 0.01


def race(system: System, pauses: list[random.Random], batch_rows: int) -> list[Drained]:
    """Let one writer a random source drain at the same moment."""
    start = threading.Barrier(len(pauses))

    def one(choose: random.Random) -> Drained:
        with lake_writer(system, batch_rows=batch_rows) as writer:
            start.wait()
            time.sleep(choose.uniform(0, LONGEST_PAUSE_S))
            return writer.drain()

    with ThreadPoolExecutor(len(pauses)) as pool:
        return list(pool.map(one, pauses))


def test_in_200_rounds_of_two_racing_writers_no_batch_is_applied_twice(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooses = [random.Random(f"{SEED}-{number}") for number in range(2)]
    between = random.Random(SEED)
    append_to_delta = OpenTable.append
    refused = 0

    def append_after_a_pause(self: OpenTable, rows: pa.Table, bounds: Bounds) -> None:
        """Widen the window between check and commit, and count the commits that were refused."""
        nonlocal refused
        time.sleep(between.uniform(0, LONGEST_PAUSE_S))
        try:
            append_to_delta(self, rows, bounds)
        except Exception:
            refused += 1
            raise

    monkeypatch.setattr(OpenTable, "append", append_after_a_pause)
    app = prepare(system)
    for _ in range(ROUNDS):
        append(app, EVENTS_A_ROUND)
        race(system, chooses, batch_rows=3)
    expect_exact(system)
    expect_contiguous(batches(system))
    assert refused > 0, "the writers never met: the test proved nothing"


def test_two_writers_that_both_find_no_table_make_one(system: System) -> None:
    append(prepare(system), 10)
    race(system, [random.Random(1), random.Random(1)], batch_rows=4)
    expect_exact(system)
    assert delta(system).metadata().name == "bronze.events"


def test_many_writers_of_different_batch_sizes_leave_one_sequence_of_batches(
    system: System,
) -> None:
    append(prepare(system), 60)
    race(system, [random.Random(n) for n in range(4)], batch_rows=7)
    append(system.connect("app"), 60)
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(drain, system, batch_rows=n) for n in (2, 5, 11)]:
            done.result()
    expect_exact(system)
    expect_contiguous(batches(system))


def test_a_writer_that_slept_between_check_and_commit_is_refused(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(prepare(system), 8)
    drain(system, batch_rows=4)
    append(system.connect("app"), 8)
    append_to_delta = OpenTable.append
    asleep, wake = threading.Event(), threading.Event()

    def sleep_first(self: OpenTable, rows: pa.Table, bounds: Bounds) -> None:
        if threading.current_thread().name.startswith("sleeper"):
            asleep.set()
            assert wake.wait(120)
        append_to_delta(self, rows, bounds)

    monkeypatch.setattr(OpenTable, "append", sleep_first)
    with ThreadPoolExecutor(1, thread_name_prefix="sleeper") as pool:
        sleeper = pool.submit(drain, system, batch_rows=1000)
        assert asleep.wait(120)
        drain(system, batch_rows=3)
        before = delta(system).version()
        wake.set()
        report = sleeper.result()
    assert report.rows == {"bronze.events": 0} or report.batches == 0
    assert delta(system).version() == before
    expect_exact(system)


def test_the_application_id_is_the_one_that_the_fence_rests_on() -> None:
    assert table_module.APP_ID == "oml-lakewriter"
