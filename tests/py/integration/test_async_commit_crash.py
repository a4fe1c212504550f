"""What a crash takes from the journal is never in the lake, whatever durability writers chose."""

import os
import signal

import pytest

from lakes import (
    append,
    drain,
    expect_exact,
    findings,
    prepare,
    queued,
    rows,
    value,
    wait_for_restart,
)
from systems import Connection, System

ROUNDS = 4


@pytest.fixture
def lazy(private_system: System) -> System:
    """A system in which nothing but a synchronous commit flushes WAL within a test."""
    prepare(private_system)
    for setting in ("wal_writer_delay = '10s'", "autovacuum = off", "full_page_writes = off"):
        private_system.superuser.execute(f"alter system set {setting}".encode())
    private_system.superuser.execute("select pg_reload_conf()")
    return private_system


def careless(system: System) -> Connection:
    """Connect a writer whose commits wait for nothing."""
    writer = system.connect("app")
    writer.execute("set synchronous_commit = off")
    return writer


def crash(system: System) -> None:
    """SIGKILL a backend, upon which the server drops what it had only in memory."""
    victim = system.connect("app")
    started = value(system.superuser, "select pg_postmaster_start_time()")
    os.kill(victim.info.backend_pid, signal.SIGKILL)
    wait_for_restart(system)
    assert value(system.superuser, "select pg_postmaster_start_time()") == started
    system.open_gate()


def test_an_event_that_no_fence_covers_can_be_lost_and_its_number_given_to_another(
    lazy: System,
) -> None:
    lost = reused = 0
    for _ in range(ROUNDS):
        # So that the number's WAL comes with the append that draws it, and is lost with it.
        lazy.superuser.execute("checkpoint")
        append(careless(lazy))
        before = queued(lazy)
        crash(lazy)
        assert queued(lazy) in (before, before[:-1])
        if queued(lazy) == before:
            continue  # the WAL writer woke just then
        lost += 1
        append(lazy.connect("app"))
        newest = queued(lazy)[-1]
        assert newest[4] != before[-1][4]
        reused += newest[0] == before[-1][0]
    assert lost > 0, "without such losses the test below shows nothing"
    assert reused > 0, "a writer that trusts numbers takes the new event for the old one"


def test_no_event_of_the_lake_is_lost_from_the_journal_by_a_crash(lazy: System) -> None:
    drain(lazy)
    for _ in range(ROUNDS):
        append(careless(lazy))  # one: the WAL writer is woken for each page that becomes full
        # It dies before it moves the frontier, whose commit would flush the WAL as the fence does.
        killed = lazy.oml("lake", "drain", "--once", env={"OML_FAILPOINT": "table.committed"})
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        in_lake = rows(lazy)
        assert in_lake == queued(lazy)
        crash(lazy)
        assert queued(lazy) == in_lake, "the lake holds what the journal lost"
        assert findings(lazy) == []
        append(lazy.connect("app"), 3)
        drain(lazy)
        expect_exact(lazy)
    assert value(lazy.superuser, "select ok from oml_verify_chain('acme')")
