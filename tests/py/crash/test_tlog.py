"""SIGKILL of the publisher at every step: no published checkpoint is ever contradicted."""

import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakes import PATIENCE_S, append, prepare, value, wait_for_restart, wait_until
from oml.core import note
from oml.failpoint import TLOG
from published import (
    Watch,
    checkpoint,
    directory,
    entries,
    expect_published,
    fill,
    publish,
    tenant_id,
)
from systems import Connection, System
from tlogs import WitnessServer

SEED = 17
WITH_A_WITNESS = "tlog.cosigned"
EACH_LOG = [
    "tlog.checked",
    "tlog.entries-read",
    "tlog.tile-written",
    "tlog.tiles-written",
    "tlog.signed",
    "tlog.checkpoint-written",
    "tlog.recorded",
]
ROUNDS = 4
KILLS = 6


def killed_at(system: System, place: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Publish in a process that is killed at this place."""
    done = system.oml("tlog", "publish", "--once", env={"OML_FAILPOINT": place, **env})
    assert done.returncode == -signal.SIGKILL, f"it never came to {place}: {done.stderr}"
    return done


def expect_recovery(system: System, watch: Watch) -> None:
    """Insist that the next publication completes the logs, and that they grow from there."""
    watch.look()
    assert publish(system).refused == []
    expect_published(system)
    watch.look()
    append(system.connect("app"), 2)
    publish(system)
    watch.look()
    expect_published(system)
    watch.expect_one_history()


def test_every_place_named_is_one_of_the_code() -> None:
    assert len(set(TLOG)) == len(TLOG)
    assert set(TLOG) >= {WITH_A_WITNESS, *EACH_LOG}


@pytest.mark.parametrize("place", [name for name in TLOG if name != WITH_A_WITNESS])
def test_a_kill_at_the_first_publication_of_all(system: System, place: str) -> None:
    prepare(system)
    fill(system, 300)
    watch = Watch(system)
    killed_at(system, place)
    expect_recovery(system, watch)


@pytest.mark.parametrize("place", [name for name in TLOG if name != WITH_A_WITNESS])
def test_a_kill_while_a_log_is_extended_over_the_border_of_a_tile(
    system: System, place: str
) -> None:
    app = prepare(system)
    fill(system, 250)
    watch = Watch(system)
    publish(system)
    watch.look()
    append(app, 10)
    killed_at(system, place)
    watch.look()
    append(app, 5)
    expect_recovery(system, watch)


@pytest.mark.parametrize("place", EACH_LOG)
def test_a_kill_in_the_second_log_leaves_the_first_published(system: System, place: str) -> None:
    append(prepare(system), 3)
    watch = Watch(system)
    killed_at(system, f"{place}:{4 if place == 'tlog.tile-written' else 2}")
    assert checkpoint(system, "provider")[0] == len(entries(system, "provider"))
    expect_recovery(system, watch)


@pytest.mark.parametrize("place", ["tlog.tile-written", "tlog.signed", "tlog.checkpoint-written"])
def test_kills_each_in_the_recovery_from_the_one_before(system: System, place: str) -> None:
    app = prepare(system)
    fill(system, 250)
    watch = Watch(system)
    for kill in ("tlog.tiles-written", place, place):
        append(app, 4)
        killed_at(system, kill)
        watch.look()
    expect_recovery(system, watch)


def test_a_kill_after_the_cosignatures_are_published(system: System, tmp_path: Path) -> None:
    append(prepare(system), 2)
    witness = WitnessServer("witness.example/1", bytes(range(32)))
    public = system.superuser.execute("select public_key from oml.key").fetchall()[0][0]
    for tenant in ("provider", "acme"):
        ids = tenant_id(system, "provider"), tenant_id(system, tenant)
        witness.logs[note.origin(*ids, 1)] = public
    policy = tmp_path / "policy"
    watch = Watch(system)
    with witness.serve() as url:
        policy.write_text(f"witness w {witness.verifier.vkey} {url}\nquorum w\n")
        killed_at(system, f"{WITH_A_WITNESS}:2", OML_TLOG_POLICY=str(policy))
    data = (directory(system) / "checkpoint").read_bytes()
    assert note.cosigned_at(note.parse(data), witness.verifier)
    publish(system)
    expect_published(system)
    assert (directory(system) / "checkpoint").read_bytes() == data
    expect_recovery(system, watch)


def test_kills_of_the_daemon_while_a_writer_appends(system: System) -> None:
    app, beside = prepare(system), system.connect("app")
    choose = random.Random(SEED)
    watch = Watch(system)
    env = {"OML_TLOG_INTERVAL_S": "0.01"}
    acme = tenant_id(system, "acme")
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(append, app, 600)
        for _ in range(KILLS):
            append(beside, 10)
            serving = system.start_oml("serve", "--role", "tlog", env=env)
            rival = system.start_oml("serve", "--role", "tlog", env=env)
            try:
                query = "select 1 from oml.tlog where tenant_id = %s and size > %s"
                wait_until(system, query, acme, watch.look())
                time.sleep(choose.random() * 0.2)
            finally:
                for process in (serving, rival):
                    process.kill()
                    process.communicate(timeout=PATIENCE_S)
            assert serving.returncode == -signal.SIGKILL
            watch.look()
        writing.result()
    expect_recovery(system, watch)
    assert len(watch.seen) > 2


# -- a crash of the server -------------------------------------------------------------------------


@pytest.fixture
def lazy(private_system: System) -> System:
    """A system in which nothing but a synchronous commit flushes WAL within a test."""
    prepare(private_system)
    for setting in ("wal_writer_delay = '10s'", "autovacuum = off"):
        private_system.superuser.execute(f"alter system set {setting}".encode())
    private_system.superuser.execute("select pg_reload_conf()")
    private_system.superuser.execute("checkpoint")
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


def test_what_no_fence_covers_can_be_lost_and_is_in_no_checkpoint(lazy: System) -> None:
    publish(lazy)
    watch = Watch(lazy)
    lost = 0
    for _ in range(ROUNDS):
        watch.look()
        append(careless(lazy), 1)
        before = len(entries(lazy))
        # It has read what is visible, and dies before the fence.
        killed_at(lazy, "cut.holders-ended")
        assert watch.look() < before
        crash(lazy)
        lost += len(entries(lazy)) < before
        append(lazy.connect("app"), 1)  # another event under the lost one's number
        assert publish(lazy).refused == []
        expect_published(lazy)
        watch.look()
    assert lost > 0, "without such losses this shows nothing"
    watch.expect_one_history()


def test_no_published_event_is_lost_by_a_crash(lazy: System) -> None:
    publish(lazy)
    watch = Watch(lazy)
    for _ in range(ROUNDS):
        append(careless(lazy), 1)
        # It dies before it records anything, whose commit would flush the WAL as the fence does.
        killed_at(lazy, "tlog.checkpoint-written")
        size = watch.look()
        assert size == len(entries(lazy))
        crash(lazy)
        assert len(entries(lazy)) == size, "a checkpoint holds what the journal lost"
        expect_recovery(lazy, watch)
    assert value(lazy.superuser, "select ok from oml_verify_chain('acme')")
