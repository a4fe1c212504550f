"""The lake writer is killed at every named place; after a drain nothing is lost or twice."""

import random
import signal
import threading
import time

import pytest

from lakes import (
    append,
    batches,
    drain,
    expect_contiguous,
    expect_exact,
    frontier,
    outbox_max,
    prepare,
)
from oml.lake.failpoint import FAILPOINTS
from systems import System

KILLED = -signal.SIGKILL
SMALL = {"OML_BATCH_ROWS": "4"}
EVENTS = 14
# Places that only a first drain passes, while it makes the table.
FIRST_DRAIN = ("table.created", "table.recorded")
# Places that a drain of several batches passes once for each.
EACH_BATCH = (
    "batch.chosen",
    "table.rows-read",
    "table.checked",
    "table.committed",
    "batch.committed",
    "batch.advanced",
)
SEED = 11
KILLS = 12


def kill_at(system: System, place: str) -> None:
    """Drain in a process of its own that is killed at this place."""
    done = system.oml("lake", "drain", "--once", env={"OML_FAILPOINT": place, **SMALL})
    assert done.returncode == KILLED, (place, done.returncode, done.stderr)


def test_every_place_is_one_that_a_first_or_a_later_drain_passes() -> None:
    fence = {"cut.limit-read", "cut.holders-ended", "cut.fenced"}
    assert fence | set(FIRST_DRAIN) | set(EACH_BATCH) == set(FAILPOINTS)


@pytest.mark.parametrize("place", FAILPOINTS)
def test_a_first_drain_killed_at(system: System, place: str) -> None:
    append(prepare(system), EVENTS)
    kill_at(system, place)
    append(system.connect("app"), 3)
    drain(system, batch_rows=4)
    expect_exact(system)
    expect_contiguous(batches(system))


@pytest.mark.parametrize("place", [p for p in FAILPOINTS if p not in FIRST_DRAIN])
def test_a_later_drain_killed_at(system: System, place: str) -> None:
    app = prepare(system)
    append(app, 3)
    drain(system)
    append(app, EVENTS)
    kill_at(system, place)
    drain(system, batch_rows=4)
    expect_exact(system)
    expect_contiguous(batches(system))


@pytest.mark.parametrize("place", EACH_BATCH)
def test_a_drain_killed_in_its_third_batch_at(system: System, place: str) -> None:
    append(prepare(system), EVENTS)
    kill_at(system, f"{place}:3")
    assert 0 < frontier(system) < outbox_max(system)
    drain(system, batch_rows=1000)  # Another size: a batch that was begun keeps its bounds.
    expect_exact(system)
    expect_contiguous(batches(system))


def test_a_batch_that_was_committed_keeps_its_bounds_whatever_the_settings_are(
    system: System,
) -> None:
    append(prepare(system), EVENTS)
    kill_at(system, "batch.committed")
    (first,) = batches(system)
    assert frontier(system) == 0
    drain(system, batch_rows=1, batch_bytes=1)
    assert batches(system)[0] == first
    expect_exact(system)


def test_kill_after_kill_at_places_drawn_by_lot(system: System) -> None:
    choose = random.Random(SEED)
    app = prepare(system)
    append(app, 1)
    drain(system)
    for _ in range(KILLS):
        append(app, choose.randint(1, 9))
        place = choose.choice([p for p in FAILPOINTS if p not in FIRST_DRAIN])
        kill_at(system, place)
        if choose.random() < 0.5:
            drain(system, batch_rows=choose.randint(1, 9))
    append(app, 1)
    drain(system, batch_rows=3)
    expect_exact(system)
    expect_contiguous(batches(system))


def test_a_serving_writer_killed_again_and_again_while_events_come(system: System) -> None:
    app = prepare(system)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            append(app)
            time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(6):
            place = EACH_BATCH[number % len(EACH_BATCH)]
            env = {"OML_FAILPOINT": f"{place}:4", "OML_POLL_INTERVAL_S": "0.01", **SMALL}
            serving = system.start_oml("serve", env=env)
            serving.communicate(timeout=120)
            assert serving.returncode == KILLED
    finally:
        stop.set()
        writer.join()
    drain(system)
    expect_exact(system)
    expect_contiguous(batches(system))
