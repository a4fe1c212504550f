"""oml serve drains on and on, outlives the database's restarts, and ends when it is told to."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from psycopg.conninfo import conninfo_to_dict

from lakes import (
    NOBODY,
    PATIENCE_S,
    append,
    delta,
    drain,
    expect_exact,
    frontier,
    outbox_max,
    prepare,
    rows,
    value,
    wait_for_restart,
    wait_until,
    wait_until_open,
)
from systems import System

LIBPQ = re.compile(
    "(WARNING:  terminating connection because of crash|DETAIL:  The postmaster|HINT:  In a moment)"
)
ENTRY = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 [A-Z]+ [a-z-]+: \S")
QUICK = {"OML_POLL_INTERVAL_S": "0.05"}


def serve(system: System, **env: str) -> subprocess.Popen[str]:
    return system.start_oml("serve", "--role", "lake-writer", "--json", env=QUICK | env)


def wait_until_drained(system: System, serving: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while frontier(system) < outbox_max(system):
        assert serving.poll() is None, serving.communicate()
        assert time.monotonic() < deadline, "it does not drain"
        time.sleep(0.02)


def end(serving: subprocess.Popen[str], by: signal.Signals = signal.SIGTERM) -> list[str]:
    """End it, insist on status 0 and return the messages it logged."""
    serving.send_signal(by)
    _, log = serving.communicate(timeout=PATIENCE_S)
    assert serving.returncode == 0, log
    # libpq itself writes what a server that dies tells a session that is just being made.
    ours = [line for line in log.splitlines() if not LIBPQ.match(line)]
    return [json.loads(line)["message"] for line in ours]


def refusal(serving: subprocess.Popen[str]) -> str:
    """Wait until it ends of itself; insist on status 2 and return the error it names."""
    _, log = serving.communicate(timeout=PATIENCE_S)
    assert serving.returncode == 2, log
    *entries, last = [json.loads(line) for line in log.splitlines()]
    assert all(set(entry) == {"at", "level", "role", "message"} for entry in entries)
    assert last["hint"]
    return str(last["error"])


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_what_comes_until_a_signal_ends_it(system: System, by: signal.Signals) -> None:
    app = prepare(system)
    serving = serve(system)
    for _ in range(3):
        append(app, 5)
        wait_until_drained(system, serving)
    assert "stopped" in end(serving, by)
    expect_exact(system)


def test_it_outlives_a_restart_and_a_crash_of_the_server(private_system: System) -> None:
    system = private_system
    append(prepare(system), 5)
    serving = serve(system)
    wait_until_drained(system, serving)
    system.superuser.close()
    system.cluster.stop()
    system.cluster.start()
    wait_until_open(system)
    append(system.connect("app"), 5)
    wait_until_drained(system, serving)
    system.superuser.close()
    system.cluster.kill()
    system.cluster.start()
    wait_until_open(system)
    append(system.connect("app"), 5)
    wait_until_drained(system, serving)
    assert any(message.startswith("database away") for message in end(serving))
    expect_exact(system)


def test_it_outlives_crash_restarts_in_the_midst_of_appends(private_system: System) -> None:
    system = private_system
    prepare(system).close()
    serving = serve(system, OML_BATCH_ROWS="3")
    for _ in range(4):
        append(system.connect("app"), 20)
        victim = system.connect("app")
        os.kill(victim.info.backend_pid, signal.SIGKILL)  # the server drops every session
        wait_for_restart(system)
        wait_until_open(system)
        assert serving.poll() is None, serving.communicate()
    append(system.connect("app"), 5)
    wait_until_drained(system, serving)
    end(serving)
    expect_exact(system)


def test_it_outlives_an_immediate_shutdown(private_system: System) -> None:
    system = private_system
    append(prepare(system), 5)
    serving = serve(system)
    wait_until_drained(system, serving)
    append(system.connect("app"), 20)
    system.superuser.close()
    system.cluster.stop("immediate")
    system.cluster.start()
    wait_until_open(system)
    append(system.connect("app"), 5)
    wait_until_drained(system, serving)
    end(serving)
    expect_exact(system)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_the_server_is_away(
    private_system: System, by: signal.Signals
) -> None:
    private_system.superuser.close()
    private_system.cluster.stop()
    for role in ("lake-writer", "tlog"):
        serving = private_system.start_oml("serve", "--role", role, "--json", env=QUICK)
        assert serving.stderr is not None
        assert "database away" in serving.stderr.readline()
        assert end(serving, by)[-1] == "stopped"
        # What libpq says of it has two lines; an entry has one, which names the role.
        serving = private_system.start_oml("serve", "--role", role, env=QUICK)
        assert serving.stderr is not None
        assert f" WARNING {role}: database away: " in serving.stderr.readline()
        serving.send_signal(by)
        _, log = serving.communicate(timeout=PATIENCE_S)
        assert all(ENTRY.match(line) for line in log.splitlines()), log
        assert log.splitlines()[-1].endswith(" INFO serve: stopped")


def test_it_waits_for_a_server_that_is_not_there_yet(private_system: System) -> None:
    system = private_system
    append(prepare(system), 5)
    system.superuser.close()
    system.cluster.stop()
    serving = serve(system)
    assert serving.stderr is not None
    assert "database away" in serving.stderr.readline()
    system.cluster.start()
    wait_until_drained(system, serving)
    end(serving)
    expect_exact(system)


def test_a_lake_that_is_not_ours_ends_it_with_status_2(system: System) -> None:
    append(prepare(system), 3)
    drain(system)
    delta(system).alter.set_table_description("somebody else's")
    append(system.connect("app"), 3)
    assert "is not ours" in refusal(serve(system))
    assert frontier(system) < outbox_max(system)


def put_back(system: System, seq: int) -> None:
    """Let the database know nothing of what came after an outbox seq, as an older copy would."""
    with system.superuser.transaction():
        system.superuser.execute("set local session_replication_role = replica")
        for guard in ("journal", "outbox"):
            system.superuser.execute(f"alter table oml.{guard} disable trigger all".encode())
        system.superuser.execute("alter table oml.frontier disable trigger all")
        system.superuser.execute(
            "delete from oml.journal j using oml.outbox o where o.seq > %s"
            " and j.tenant_id = o.tenant_id and j.seq = o.chain_seq",
            (seq,),
        )
        system.superuser.execute("delete from oml.outbox where seq > %s", (seq,))
        system.superuser.execute("update oml.frontier set seq = %s", (seq,))


def test_a_database_that_is_behind_its_lake_ends_it_with_status_2(system: System) -> None:
    append(prepare(system), 3)
    drain(system)
    older = outbox_max(system)
    append(system.connect("app"), 3)
    drain(system)
    newer, version = outbox_max(system), delta(system).version()
    put_back(system, older)
    said = refusal(serve(system))
    assert str(older) in said and str(newer) in said
    assert (frontier(system), delta(system).version()) == (older, version)


def test_a_database_that_is_put_back_under_it_ends_it_with_status_2(system: System) -> None:
    append(prepare(system), 3)
    serving = serve(system)
    wait_until_drained(system, serving)
    older = outbox_max(system)
    append(system.connect("app"), 3)
    wait_until_drained(system, serving)
    newer = outbox_max(system)
    put_back(system, older)
    said = refusal(serving)
    assert str(older) in said and str(newer) in said


def test_a_held_back_cut_is_logged_with_the_pid_and_does_not_end_it(system: System) -> None:
    app = prepare(system)
    holder = system.connect("app", autocommit=False)
    append(holder)
    pid = holder.info.backend_pid
    system.make("globex")
    system.bind("app", "globex")
    append(app, 2, tenant="globex")
    serving = serve(system, OML_CUT_TIMEOUT_S="0.1")
    assert serving.stderr is not None
    line = ""
    while "held back" not in line:
        line = serving.stderr.readline()
        assert line, serving.communicate()
    assert f"pid {pid} " in json.loads(line)["message"]
    holder.commit()
    wait_until_drained(system, serving)
    end(serving)
    expect_exact(system)


def test_an_unknown_role_is_refused(system: System) -> None:
    refused = system.oml("serve", "--role", "baker", "--json")
    assert refused.returncode == 2
    assert "baker" in json.loads(refused.stderr)["error"]


def test_it_ends_after_the_batch_in_hand_and_leaves_the_rest(system: System) -> None:
    append(prepare(system), 400)
    serving = serve(system, OML_BATCH_ROWS="1")
    wait_until(system, "select 1 from oml.frontier where seq > 0")
    end(serving)
    assert frontier(system) < outbox_max(system), "hundreds of batches were still to come"
    assert rows(system)[-1][0] == frontier(system)
    drain(system)
    expect_exact(system)


def test_it_connects_again_when_either_of_its_connections_is_lost(system: System) -> None:
    app = prepare(system)
    serving = serve(system)
    for name in ("oml lake writer", ""):  # the second is the one that reads rows as Arrow
        append(app, 3)
        wait_until_drained(system, serving)
        ended = value(
            system.superuser,
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where datname = current_database() and application_name = %s",
            name,
        )
        assert ended >= 1  # one that is just being closed may be among them
    append(app, 3)
    wait_until_drained(system, serving)
    messages = end(serving)
    assert messages.count("connected") == 3
    # A session that is lost in its very first drain has not worked yet, and is said to be away.
    assert sum(m.startswith(("connection lost", "database away")) for m in messages) == 2
    expect_exact(system)


def test_it_waits_for_an_object_store_that_is_away(system: System) -> None:
    append(prepare(system), 3)
    serving = serve(
        system, OML_LAKE_URL="s3://lake/here", OML_LAKE_STORAGE_OPTIONS=json.dumps(NOBODY)
    )
    assert serving.stderr is not None
    seen = [json.loads(serving.stderr.readline())["message"] for _ in range(4)]
    assert seen[0::2] == ["connected", "connected"]
    assert all(
        m.startswith("lake away: s3://lake/here/owner.json cannot be reached") for m in seen[1::2]
    )
    end(serving)
    assert frontier(system) == 0


def test_its_sessions_are_not_idle_in_a_transaction_between_drains(system: System) -> None:
    app = prepare(system)
    serving = serve(system)
    for _ in range(3):
        append(app, 3)
        wait_until_drained(system, serving)
        idle = "select count(*) from pg_stat_activity where datname = current_database()"
        assert value(system.superuser, f"{idle} and state like 'idle in transaction%%'") == 0
    end(serving)


@pytest.mark.parametrize(
    "dsn",
    ["garbage", "foo=bar", "host={host} port=abc", "{dsn} dbname=nodb", "{dsn} user=nobody-at-all"],
)
def test_a_dsn_that_waiting_cannot_mend_ends_it_with_status_2(system: System, dsn: str) -> None:
    host = conninfo_to_dict(system.dsn())["host"]
    done = system.oml("serve", "--json", "--dsn", dsn.format(dsn=system.dsn(), host=host))
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["error"]


def test_an_empty_dsn_is_refused_and_does_not_fall_back_to_another(system: System) -> None:
    for command in (["serve"], ["verify"], ["reconcile"], ["lake", "status"]):
        done = system.oml(*command, "--json", "--dsn", "")
        assert done.returncode == 2, done.stderr
        assert json.loads(done.stderr)["error"] == "--dsn is empty"
