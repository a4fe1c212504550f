"""SIGKILL of the lake writer at every step of its protocol: each event is in the lake once."""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakes import (
    PATIENCE_S,
    append,
    batches,
    drain,
    expect_contiguous,
    expect_exact,
    frontier,
    outbox_max,
    prepare,
    rows,
    wait_until,
)
from oml.failpoint import LAKE as FAILPOINTS
from seaweed import on_stores
from systems import System

SEED = 11
ONCE_A_TABLE = {"table.created", "table.recorded"}
ONCE_A_DRAIN = {"cut.limit-read", "cut.holders-ended", "cut.fenced"}
ONCE_A_BATCH = [name for name in FAILPOINTS if name not in ONCE_A_TABLE | ONCE_A_DRAIN]
SMALL = {"OML_BATCH_ROWS": "3", "OML_POLL_INTERVAL_S": "0.01"}
KILLS = 6
EVENTS_EACH = 20


def test_every_place_named_is_one_of_the_code() -> None:
    assert len(set(FAILPOINTS)) == len(FAILPOINTS)
    assert set(FAILPOINTS) >= ONCE_A_TABLE | ONCE_A_DRAIN
    assert ONCE_A_BATCH


def expect_recovery(system: System) -> None:
    """Insist that the next drain leaves the lake exact, and that it goes on from there."""
    drain(system)
    expect_exact(system)
    expect_contiguous(batches(system))
    append(system.connect("app"), 2)
    drain(system)
    expect_exact(system)


@on_stores
@pytest.mark.parametrize("place", FAILPOINTS)
def test_a_kill_at_the_first_pass_of_a_step_loses_and_doubles_nothing(
    system: System, place: str
) -> None:
    append(prepare(system), 7)
    killed = system.oml("lake", "drain", "--once", env=SMALL | {"OML_FAILPOINT": place})
    assert killed.returncode == -signal.SIGKILL, f"it never came to {place}: {killed.stderr}"
    expect_recovery(system)


@pytest.mark.parametrize("place", ONCE_A_BATCH)
def test_a_kill_at_the_second_pass_of_a_step_loses_and_doubles_nothing(
    system: System, place: str
) -> None:
    append(prepare(system), 7)
    killed = system.oml("lake", "drain", "--once", env=SMALL | {"OML_FAILPOINT": f"{place}:2"})
    assert killed.returncode == -signal.SIGKILL, f"it never came to {place} twice: {killed.stderr}"
    assert 0 < len(rows(system)) < outbox_max(system), "it died among its batches"
    expect_recovery(system)


@pytest.mark.parametrize("place", sorted(ONCE_A_DRAIN))
def test_a_kill_in_a_later_drain_of_the_daemon_loses_and_doubles_nothing(
    system: System, place: str
) -> None:
    app = prepare(system)
    serving = system.start_oml(
        "serve", "--role", "lake-writer", env=SMALL | {"OML_FAILPOINT": f"{place}:2"}
    )
    wait_until(system, "select 1 from oml.frontier where seq = %s", outbox_max(system))
    append(app, 7)
    serving.communicate(timeout=PATIENCE_S)
    assert serving.returncode == -signal.SIGKILL
    expect_recovery(system)


@on_stores
@pytest.mark.parametrize("place", ["table.checked", "table.committed", "batch.advanced"])
def test_kills_each_in_the_recovery_from_the_one_before_lose_and_double_nothing(
    system: System, place: str
) -> None:
    append(prepare(system), 9)
    for kill in ("table.committed", place, place):
        killed = system.oml("lake", "drain", "--once", env=SMALL | {"OML_FAILPOINT": kill})
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    expect_recovery(system)


@on_stores
def test_kills_at_random_moments_over_many_batches_lose_and_double_nothing(
    system: System,
) -> None:
    app = prepare(system)
    choose = random.Random(SEED)
    deaths = 0
    for _ in range(KILLS):
        append(app, EVENTS_EACH)
        draining = system.start_oml("lake", "drain", "--once", env={"OML_BATCH_ROWS": "1"})
        # From its first batch on, about as long as it may need for the rest.
        wait_until(system, "select 1 from oml.frontier where seq > %s", frontier(system))
        time.sleep(choose.random() * 0.02 * EVENTS_EACH)
        draining.kill()
        draining.communicate(timeout=PATIENCE_S)
        deaths += draining.returncode == -signal.SIGKILL
    assert deaths > 0, f"seed {SEED}: every drain was over before its kill"
    expect_recovery(system)


def test_kills_of_the_daemon_while_a_writer_appends_lose_and_double_nothing(
    system: System,
) -> None:
    app, beside = prepare(system), system.connect("app")
    choose = random.Random(SEED)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(append, app, 600)
        for _ in range(5):
            append(beside, 10)  # so that each daemon finds work, wherever the writer is
            serving = system.start_oml("serve", "--role", "lake-writer", env=SMALL)
            before = frontier(system)
            try:
                wait_until(system, "select 1 from oml.frontier where seq > %s", before)
                time.sleep(choose.random() * 0.2)
            finally:
                serving.kill()
                serving.communicate(timeout=PATIENCE_S)
            assert serving.returncode == -signal.SIGKILL
        writing.result()
    expect_recovery(system)
