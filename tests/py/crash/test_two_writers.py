"""Two lake writers at once: the Delta commit lets one of them through, and no batch comes twice."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

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
from oml.lake.schema import BRONZE_EVENTS
from oml.lake.table import LakeError, OpenTable, Place
from oml.lake.writer import Drained, LakeWriter
from seaweed import on_stores
from systems import System

ROUNDS = 200
CREATIONS = 60
MOST_EVENTS_A_ROUND = 4
SEED = 13
LONGEST_PAUSE_S = 0.01


@contextmanager
def rivals(system: System, count: int, batch_rows: int) -> Iterator[Callable[[], list[Drained]]]:
    """Open lake writers; each call lets all of them drain at the same moment, or nearly."""
    with ExitStack() as stack:
        writers = [
            stack.enter_context(lake_writer(system, batch_rows=batch_rows)) for _ in range(count)
        ]
        chooses = [random.Random(f"{SEED}-{number}") for number in range(count)]
        start = threading.Barrier(count)
        pool = stack.enter_context(ThreadPoolExecutor(count))

        def one(writer: LakeWriter, choose: random.Random) -> Drained:
            start.wait()
            time.sleep(choose.uniform(0, LONGEST_PAUSE_S))
            return writer.drain()

        yield lambda: list(pool.map(one, writers, chooses))


@on_stores
def test_in_200_rounds_of_two_racing_writers_no_batch_is_applied_twice(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = random.Random(SEED)
    append_to_delta = OpenTable.append
    refused = 0

    def append_after_a_pause(self: OpenTable, *batch: Any, recut: bool = False) -> None:
        """Widen the window between check and commit, and count the commits that were refused."""
        nonlocal refused
        time.sleep(between.uniform(0, LONGEST_PAUSE_S))
        try:
            append_to_delta(self, *batch, recut=recut)
        except Exception:
            refused += 1
            raise

    monkeypatch.setattr(OpenTable, "append", append_after_a_pause)
    app = prepare(system)
    with rivals(system, 2, batch_rows=3) as race:
        for _ in range(ROUNDS):
            append(app, between.randint(1, MOST_EVENTS_A_ROUND))
            race()
    expect_exact(system)
    expect_contiguous(batches(system))
    assert refused > 0, "the writers never met: the test proved nothing"


@on_stores
def test_two_writers_that_both_find_no_table_make_one(system: System) -> None:
    append(prepare(system), 10)
    with rivals(system, 2, batch_rows=4) as race:
        race()
    expect_exact(system)
    assert delta(system).metadata().name == "bronze.events"


def test_two_creators_at_once_make_one_table_and_both_may_use_it(tmp_path: Path) -> None:
    start = threading.Barrier(2)

    def create(place: Place) -> int:
        start.wait()
        return place.create().delta.version()

    with ThreadPoolExecutor(2) as pool:
        for number in range(CREATIONS):
            url = (tmp_path / str(number)).as_uri()
            place = Place(BRONZE_EVENTS, url, 1, "deployment", {})
            assert list(pool.map(create, (place, place))) == [0, 0], "it was made twice"
            assert DeltaTable(url).version() == 0


def test_many_writers_of_different_batch_sizes_leave_one_sequence_of_batches(
    system: System,
) -> None:
    append(prepare(system), 60)
    with rivals(system, 4, batch_rows=7) as race:
        race()
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

    def sleep_first(self: OpenTable, *batch: Any, recut: bool = False) -> None:
        if threading.current_thread().name.startswith("sleeper"):
            asleep.set()
            assert wake.wait(120)
        append_to_delta(self, *batch, recut=recut)

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


def test_a_plan_that_fits_no_table_is_given_up_and_not_made_again_for_ever(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(prepare(system), 3)
    drain(system)
    before = batches(system)
    monkeypatch.setattr(LakeWriter, "_recover", lambda *_: 1)
    with pytest.raises(LakeError, match="where no batch begins"):
        drain(system)
    assert batches(system) == before
