"""One lake writer works and others stand by; a leader that was paused does no batch twice."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from judge import expect_gold
from lakes import (
    PATIENCE_S,
    append,
    await_stop,
    batches,
    drain,
    expect_contiguous,
    expect_exact,
    frontier,
    outbox_max,
    prepare,
    value,
    wait_until,
)
from oml.dev.cluster import SUPERUSER
from oml.lake.lease import Lease, LeaseHeld, LeaseLost
from oml.lake.source import Source
from systems import System

SHORT = {"OML_LEASE_S": "1", "OML_POLL_INTERVAL_S": "0.02", "OML_BATCH_ROWS": "3"}
HOLDER = "select holder from oml.lease where name = 'lake'"
Daemon = subprocess.Popen[str]


@pytest.fixture
def serve(system: System) -> Callable[..., Daemon]:
    """Start omld as a lake writer with a short lease."""
    return lambda **env: system.start_oml("serve", "--role", "lake-writer", env=SHORT | env)


def holds(daemon: Daemon, system: System) -> None:
    """Wait until a daemon has the lease."""
    wait_until(system, f"{HOLDER} and holder like %s", f"%/{daemon.pid}/%")


def wait_drained(system: System) -> None:
    wait_until(
        system, "select 1 from oml.frontier where name = 'lake' and seq >= %s", outbox_max(system)
    )


def term(lease: Lease) -> int | None:
    return lease.term


def test_a_lease_passes_on_when_it_is_given_back_lost_or_expired(system: System) -> None:
    prepare(system)
    with Source(system.dsn(SUPERUSER)) as one, Source(system.dsn(SUPERUSER)) as other:
        first, second = Lease(one, 60), Lease(other, 0.3)
        first.take()
        first.take()
        assert term(first) == 1
        with pytest.raises(LeaseHeld, match=f"{first.holder}.*term 1") as held:
            second.take()
        assert type(held.value) is LeaseHeld
        first.release()
        second.take()
        assert term(second) == 2
        with pytest.raises(LeaseHeld):
            first.take()
        first.take_within(PATIENCE_S)
        assert term(first) == 3, "the second one's expired"
        with pytest.raises(LeaseLost):
            second.take()
        assert term(second) is None
        one.close()  # as a kill does
        second.take_within(PATIENCE_S)
        assert term(second) == 4


def test_an_expired_lease_that_nobody_took_is_still_its_holders(system: System) -> None:
    prepare(system)
    with Source(system.dsn(SUPERUSER)) as source:
        lease = Lease(source, 0.2)
        lease.take()
        time.sleep(0.4)
        lease.take()
        assert term(lease) == 1


def test_it_is_renewed_during_a_long_drain(system: System) -> None:
    app = prepare(system)
    drain(system)
    append(app, 60)
    done = system.oml("lake", "drain", "--once", env=SHORT | {"OML_BATCH_ROWS": "1"})
    assert done.returncode == 0, done.stderr
    taken, renewed, holder, term = system.superuser.execute(
        "select taken_at, renewed_at, holder, term from oml.lease"
    ).fetchall()[0]
    assert holder is None and term == 1
    assert renewed - taken > timedelta(seconds=0.3), "later than where the drain began"
    expect_exact(system)


def test_of_two_daemons_one_works_and_the_other_takes_over_when_it_dies(
    system: System, serve: Callable[..., Daemon]
) -> None:
    app = prepare(system)
    first = serve(OML_LEASE_S="60")
    holds(first, system)
    second = serve(OML_LEASE_S="60")
    append(app, 9)
    wait_drained(system)
    tried = system.oml("lake", "drain", "--once", "--wait", "0")
    assert tried.returncode == 2
    assert f"/{first.pid}/" in tried.stderr and "--wait" in tried.stderr
    status = json.loads(system.oml("lake", "status", "--json").stdout)
    assert f"/{first.pid}/" in status["lease"]["holder"]
    assert status["lease"]["term"] == 1 and 0 < status["lease"]["seconds_left"] <= 60
    first.kill()
    holds(second, system)
    assert value(system.superuser, "select term from oml.lease") == 2
    append(app, 9)
    wait_drained(system)
    second.terminate()
    told = second.communicate(timeout=PATIENCE_S)[1]
    assert told.count("standing by") == 1
    assert value(system.superuser, HOLDER) is None, "it was given back"
    expect_exact(system)


@pytest.mark.parametrize("place", ["table.checked:4", "table.rows-read:4", "table.committed:4"])
def test_a_leader_paused_around_a_commit_cannot_commit_a_second_time(
    system: System, serve: Callable[..., Daemon], place: str
) -> None:
    app = prepare(system)
    append(app, 30)
    paused = serve(OML_FAILPOINT=f"{place}:stop")
    wait_until(system, "select 1 from oml.frontier where name = 'lake' and seq > 0")
    await_stop(paused)
    other = serve()
    try:
        holds(other, system)
        append(app, 30)
        wait_drained(system)
        before = batches(system)
        paused.send_signal(signal.SIGCONT)
        append(app, 30)
        wait_drained(system)
        assert batches(system)[: len(before)] == before
        assert value(system.superuser, HOLDER).split("/")[1] == str(other.pid)
        await_line(paused, "lost the lease")
        paused.terminate()
        paused.communicate(timeout=PATIENCE_S)
    finally:
        other.kill()
    drain(system)
    expect_exact(system)
    expect_gold(system)
    expect_contiguous(batches(system))
    assert frontier(system) == outbox_max(system)


def await_line(daemon: Daemon, words: str) -> None:
    """Wait until a daemon has said so."""
    assert daemon.stderr is not None
    told = ""
    while words not in told:
        line = daemon.stderr.readline()
        assert line, f"it ended and never said {words!r}: {told}"
        told += line


def test_an_idle_transaction_that_holds_the_cut_is_named_with_its_pid_and_age(
    system: System,
) -> None:
    app = prepare(system)
    idle = system.connect("app", autocommit=False)
    append(idle, 1)
    time.sleep(1.1)
    status = json.loads(system.oml("lake", "status", "--json").stdout)
    (holder,) = status["holders"]
    pid = idle.info.backend_pid
    assert holder.startswith(f"backend pid {pid} (app, idle in transaction for ")
    assert float(holder.partition(" for ")[2].split()[0]) >= 1
    done = system.oml("lake", "drain", "--once", "--json", env={"OML_CUT_TIMEOUT_S": "0.2"})
    assert done.returncode == 1
    assert json.loads(done.stdout)["holders"][0].startswith(f"backend pid {pid} (app, idle in ")
    idle.execute("prepare transaction 'left'")
    (holder,) = json.loads(system.oml("lake", "status", "--json").stdout)["holders"]
    assert holder.startswith("prepared transaction 'left' (app, prepared for ")
    idle.rollback()
    idle.autocommit = True
    idle.execute("commit prepared 'left'")
    append(app, 1)
    drain(system)
    expect_exact(system)


def test_a_login_that_may_not_see_others_sessions_names_the_pid_all_the_same(
    system: System,
) -> None:
    prepare(system)
    system.bind("daemon_login", "provider", ("operate",))
    idle = system.connect("app", autocommit=False)
    append(idle, 1)
    done = system.oml("lake", "status", "--json", user="daemon_login")
    (holder,) = json.loads(done.stdout)["holders"]
    assert holder.startswith(f"backend pid {idle.info.backend_pid} (")
    assert "idle" not in holder
    idle.rollback()
