"""The cut is a fence: no row is lost, whatever transactions drew numbers and when they end."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus

from lakes import (
    PATIENCE_S,
    append,
    drain,
    expect_exact,
    frontier,
    outbox_max,
    prepare,
    rows,
    value,
    wait_until,
)
from oml.dev.cluster import SUPERUSER
from oml.driver.connection import connect
from oml.lake.source import Source
from systems import Connection, System

SOON = {"OML_CUT_TIMEOUT_S": "1"}
PATIENT = {"OML_CUT_TIMEOUT_S": str(PATIENCE_S)}
DRAIN = ("lake", "drain", "--once", "--json")
GID = "held"


@pytest.fixture
def ready(system: System) -> System:
    """A system with two tenants whose lake is up to date."""
    prepare(system, "acme", "globex")
    drain(system)
    return system


def early(system: System) -> Connection:
    """Open transaction A, which takes an xid before anybody draws."""
    a = system.connect("app", autocommit=False)
    a.execute("select pg_current_xact_id()")
    return a


def newest(system: System) -> list[tuple[int, str]]:
    """Return (outbox seq, tenant) of the two newest outbox rows."""
    return system.superuser.execute(
        "select o.seq, t.name from oml.outbox o join oml.tenant t using (tenant_id)"
        " order by o.seq desc limit 2"
    ).fetchall()


def expect_held_back(system: System, holder: str) -> None:
    """Insist that a drain takes nothing and names who holds it back."""
    before = frontier(system), rows(system)
    report = drain(system, cut_timeout_s=0.2)
    assert report.held_back == "open transactions have drawn outbox numbers"
    assert [name.partition(" (")[0] for name in report.holders] == [holder]
    assert report.batches == 0
    assert (frontier(system), rows(system)) == before


def expect_drained(system: System) -> None:
    """Insist that a drain takes everything and that it is there once and in order."""
    assert drain(system).held_back is None
    expect_exact(system)


def in_the_transaction(b: Connection) -> None:
    append(b, 1, "globex")


def in_a_savepoint(b: Connection) -> None:
    b.execute("savepoint here")
    append(b, 1, "globex")


def in_a_released_savepoint(b: Connection) -> None:
    b.execute("savepoint here")
    append(b, 1, "globex")
    b.execute("release savepoint here")


def beside_a_savepoint_rolled_back(b: Connection) -> None:
    append(b, 1, "globex")
    b.execute("savepoint here")
    append(b, 1, "globex")
    b.execute("rollback to savepoint here")


def in_an_exception_block(b: Connection) -> None:
    b.execute(
        "do $$ begin perform oml_append('note.added', '{}', tenant => 'globex');"
        " exception when others then raise; end $$"
    )


@pytest.mark.parametrize(
    "draw",
    [
        in_the_transaction,
        in_a_savepoint,
        in_a_released_savepoint,
        beside_a_savepoint_rolled_back,
        in_an_exception_block,
    ],
)
def test_a_row_that_commits_after_a_higher_one_was_seen_is_not_lost(
    ready: System, draw: Callable[[Connection], None]
) -> None:
    a, b = early(ready), ready.connect("app", autocommit=False)
    draw(b)
    append(a, 1, "acme")
    a.commit()
    expect_held_back(ready, f"backend pid {b.info.backend_pid}")
    b.commit()
    (high, acme), (low, globex) = newest(ready)
    assert (acme, globex) == ("acme", "globex") and low < high, "the case is the one we mean"
    expect_drained(ready)


def test_a_drain_that_is_held_back_says_so_and_exits_with_1(ready: System) -> None:
    a, b = early(ready), ready.connect("app", autocommit=False)
    append(b, 1, "globex")
    append(a, 1, "acme")
    a.commit()
    done = ready.oml(*DRAIN, env=SOON)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["held_back"] == "open transactions have drawn outbox numbers"
    assert report["holders"][0].startswith(f"backend pid {b.info.backend_pid} (app, ")
    status = json.loads(ready.oml("lake", "status", "--json").stdout)
    who = [name.partition(" (")[0] for name in report["holders"]]
    assert [name.partition(" (")[0] for name in status["holders"]] == who
    assert (status["behind"], status["frontier"]) == (2, frontier(ready))
    b.commit()
    done = ready.oml(*DRAIN, env=PATIENT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["held_back"] is None
    expect_exact(ready)


def test_a_number_whose_transaction_rolls_back_is_passed_over(ready: System) -> None:
    a, b = early(ready), ready.connect("app", autocommit=False)
    append(b, 1, "globex")
    append(a, 1, "acme")
    a.commit()
    expect_held_back(ready, f"backend pid {b.info.backend_pid}")
    b.rollback()
    expect_drained(ready)
    assert len(rows(ready)) < outbox_max(ready), "the number that was rolled back left a gap"


def test_a_savepoint_rolled_back_holds_nothing_back(ready: System) -> None:
    a, b = early(ready), ready.connect("app", autocommit=False)
    b.execute("select pg_current_xact_id()")
    b.execute("savepoint here")
    append(b, 1, "globex")
    b.execute("rollback to savepoint here")
    append(a, 1, "acme")
    a.commit()
    expect_drained(ready)
    append(b, 1, "globex")
    b.commit()
    expect_drained(ready)


def prepare_transaction(b: Connection) -> None:
    b.execute(sql.SQL("prepare transaction {}").format(sql.Literal(GID)))
    b.autocommit = True


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_prepared_transaction_holds_the_cut_back_by_its_gid(ready: System, end: str) -> None:
    a, b = early(ready), ready.connect("app", autocommit=False)
    append(b, 1, "globex")
    append(a, 1, "acme")
    a.commit()
    b.execute("savepoint here")
    append(b, 1, "globex")
    prepare_transaction(b)
    expect_held_back(ready, f"prepared transaction '{GID}'")
    ready.superuser.execute(f"{end} prepared '{GID}'".encode())
    expect_drained(ready)


def test_a_prepared_transaction_holds_the_cut_back_after_a_restart(
    private_system: System,
) -> None:
    prepare(private_system, "acme", "globex")
    drain(private_system)
    a, b = early(private_system), private_system.connect("app", autocommit=False)
    append(b, 1, "globex")
    append(a, 1, "acme")
    a.commit()
    prepare_transaction(b)
    private_system.cluster.stop()
    private_system.cluster.start()
    private_system.superuser.close()
    private_system.open_gate()
    expect_held_back(private_system, f"prepared transaction '{GID}'")
    private_system.superuser.execute(f"commit prepared '{GID}'".encode())
    expect_drained(private_system)


def looked_again(system: System, times: int) -> None:
    """Wait until the running drain has asked for its holders so many more times."""
    asked = "select query_start from pg_stat_activity where application_name = 'oml lake writer'"
    asked += " and query like %s and query_start > %s"
    since = value(system.superuser, "select clock_timestamp()")
    for _ in range(times):
        since = wait_until(system, asked, "%lake_cut_holders%", since)


def test_a_transaction_that_is_prepared_while_a_drain_waits_for_it_is_still_waited_for(
    ready: System,
) -> None:
    a, b = early(ready), ready.connect("app", autocommit=False)
    append(b, 1, "globex")
    append(a, 1, "acme")
    a.commit()
    waiting = ready.start_oml(*DRAIN, env=PATIENT)
    looked_again(ready, 2)
    prepare_transaction(b)
    looked_again(ready, 2)
    assert waiting.poll() is None, "it waits for the prepared transaction"
    ready.superuser.execute(f"commit prepared '{GID}'".encode())
    output, errors = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 0, output + errors
    expect_exact(ready)


def test_transactions_that_begin_while_a_drain_waits_are_not_waited_for(ready: System) -> None:
    b = ready.connect("app", autocommit=False)
    append(b, 1, "globex")
    append(ready.connect("app"), 1, "acme")
    waiting = ready.start_oml(*DRAIN, env=PATIENT)
    looked_again(ready, 2)
    late = ready.connect("app", autocommit=False)
    append(late, 1, "acme")
    b.commit()
    output, errors = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 0, output + errors
    late.commit()
    expect_drained(ready)


def test_transactions_that_do_not_write_to_the_outbox_hold_nothing_back(ready: System) -> None:
    idle = early(ready)
    writer = ready.connect("postgres", autocommit=False)
    writer.execute("create table public.elsewhere (n int)")
    writer.execute("insert into public.elsewhere values (1)")
    reader = ready.connect("postgres", autocommit=False)
    reader.execute("select pg_current_xact_id(), (select max(seq) from oml.outbox)")
    elsewhere = ready.connect("postgres", autocommit=False)
    with elsewhere.cursor() as cursor:
        cursor.execute("select pg_current_xact_id()")
    append(ready.connect("app"), 3, "acme")
    expect_drained(ready)
    for connection in (idle, writer, reader, elsewhere):
        assert connection.info.transaction_status.name == "INTRANS", "it was open all the while"


def test_an_open_append_of_another_database_holds_nothing_back(
    ready: System, tmp_path: Any
) -> None:
    with System(ready.cluster, f"{ready.database}_other", tmp_path / "other") as other:
        other.superuser.close()
        ready.superuser.close()
        with connect(ready.cluster.dsn(SUPERUSER), autocommit=True) as maintenance:
            maintenance.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s",
                (ready.database,),
            )
            maintenance.execute(f'drop database "{other.database}"'.encode())
            copy = f'create database "{other.database}" template "{ready.database}"'
            maintenance.execute(copy.encode())
        other.superuser.execute("select oml_adopt('a test')")
        open_there = other.connect("app", autocommit=False)
        append(open_there, 1, "acme")
        oids = [value(s.superuser, "select 'oml.outbox'::regclass::oid") for s in (ready, other)]
        assert oids[0] == oids[1], "a copy: only the database tells them apart"
        append(ready.connect("app"), 3, "acme")
        expect_drained(ready)
        open_there.commit()
        other.superuser.execute("select")


@pytest.mark.parametrize("change", ["cache 10", "increment 2", "cycle"])
def test_a_sequence_that_may_number_out_of_order_is_refused(ready: System, change: str) -> None:
    before = frontier(ready), rows(ready)
    append(ready.connect("app"), 1, "acme")
    ready.superuser.execute(f"alter sequence oml.outbox_seq {change}".encode())
    done = ready.oml(*DRAIN)
    assert done.returncode == 2
    assert json.loads(done.stderr)["sqlstate"] == "OM062"
    assert "cache 1 increment 1 no cycle" in json.loads(done.stderr)["hint"]
    assert (frontier(ready), rows(ready)) == before
    ready.superuser.execute("alter sequence oml.outbox_seq cache 1 increment 1 no cycle")
    expect_drained(ready)


# -- durability ----------------------------------------------------------------------------------


def set_standby(system: System, name: str | None) -> None:
    """Require a synchronous standby of this name, which is not there; or none."""
    change = (
        "reset synchronous_standby_names"
        if name is None
        else (f"set synchronous_standby_names = '{name}'")
    )
    system.superuser.execute(f"alter system {change}".encode())
    system.superuser.execute("select pg_reload_conf()")
    wait_until(
        system, "select 1 where current_setting('synchronous_standby_names') = %s", name or ""
    )


@pytest.fixture
def unreplicated(private_system: System) -> Iterator[System]:
    """A system whose commits wait for a standby that never comes, with events to drain."""
    app = prepare(private_system)
    drain(private_system)
    append(app, 2)
    private_system.superuser.execute("set synchronous_commit = local")
    set_standby(private_system, "ghost")
    try:
        yield private_system
    finally:
        set_standby(private_system, None)


WAITING = """select pid from pg_stat_activity where application_name = 'oml lake writer'
  and wait_event = 'SyncRep' and query_start > %s"""


def cancel_fence(system: System, since: Any) -> Any:
    """Wait for a fence begun after ``since`` that waits for the standby, and cancel that wait."""
    pid = wait_until(system, WAITING, since)
    now = value(system.superuser, "select clock_timestamp()")
    assert value(system.superuser, "select pg_cancel_backend(%s)", pid)
    return now


def finish(waiting: "subprocess.Popen[str]") -> None:
    output, errors = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 0, output + errors


@pytest.mark.parametrize("shown", ["notice", "error"])
def test_a_fence_whose_wait_for_the_standby_was_cancelled_is_not_taken_for_durable(
    unreplicated: System, shown: str
) -> None:
    # Only a warning tells of it, and a session may hide warnings.
    before = frontier(unreplicated), rows(unreplicated)
    unreplicated.superuser.execute(
        sql.SQL("alter database {} set client_min_messages = {}").format(
            sql.Identifier(unreplicated.database), shown
        )
    )
    waiting = unreplicated.start_oml(*DRAIN, env=PATIENT)
    since = value(unreplicated.superuser, "select clock_timestamp()")
    for _ in range(3):
        since = cancel_fence(unreplicated, since)
    wait_until(unreplicated, WAITING, since)
    assert waiting.poll() is None, "each time it writes the fence again"
    assert (frontier(unreplicated), rows(unreplicated)) == before
    set_standby(unreplicated, None)
    finish(waiting)
    expect_exact(unreplicated)


def test_nothing_but_the_fence_waits_for_a_standby(private_system: System) -> None:
    append(prepare(private_system), 2)
    private_system.superuser.execute("select oml_configure('fence_synchronous_commit', 'local')")
    private_system.superuser.execute("set synchronous_commit = local")
    set_standby(private_system, "ghost")
    try:
        finish(private_system.start_oml(*DRAIN, env=SOON))
        expect_exact(private_system)
    finally:
        set_standby(private_system, None)


def test_drains_give_up_on_a_fence_that_does_not_become_durable(unreplicated: System) -> None:
    # The second waits for the row lock of the first, whose commit waits for the standby.
    before = frontier(unreplicated), rows(unreplicated)
    first, second = (unreplicated.start_oml(*DRAIN, env=SOON) for _ in range(2))
    for waiting in (first, second):
        output, errors = waiting.communicate(timeout=PATIENCE_S)
        assert waiting.returncode == 1, output + errors
        assert json.loads(output)["held_back"].startswith("the fence was not made durable: ")
    assert (frontier(unreplicated), rows(unreplicated)) == before
    set_standby(unreplicated, None)
    expect_drained(unreplicated)


def test_the_fence_takes_the_deployments_level_and_not_the_sessions(unreplicated: System) -> None:
    unreplicated.superuser.execute(
        sql.SQL("alter database {} set synchronous_commit = off").format(
            sql.Identifier(unreplicated.database)
        )
    )
    held_back = drain(unreplicated, cut_timeout_s=1).held_back
    assert held_back is not None and held_back.startswith("the fence was not made durable: ")
    unreplicated.superuser.execute("select oml_configure('fence_synchronous_commit', 'local')")
    expect_drained(unreplicated)


@pytest.mark.parametrize("timeout_s", [0.0, 0.0005, 0.001, 0.002, 0.005])
def test_a_cancellation_that_reaches_the_server_before_the_fence_is_not_lost(
    unreplicated: System, timeout_s: float
) -> None:
    with Source(unreplicated.dsn(SUPERUSER)) as source:
        limit = source.cut_limit()
        for _ in range(20):
            assert not source.fence(limit, "on", timeout_s)
            assert source.connection.info.transaction_status == TransactionStatus.IDLE
            assert source.cut_limit() == limit, "what follows is not cancelled"
