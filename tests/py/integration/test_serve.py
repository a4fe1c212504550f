"""oml serve drains on and on, outlives the database's restarts, and ends when it is told to."""

import json
import signal
import subprocess
import time

import pytest

from lakes import (
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
    wait_until,
)
from systems import System

QUICK = {"OML_POLL_INTERVAL_S": "0.05"}
NOBODY = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "nowhere",
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "max_retries": "0",
}
"""Storage options of an object store at a port where nobody listens."""


def serve(system: System, **env: str) -> subprocess.Popen[str]:
    return system.start_oml("serve", "--json", env=QUICK | env)


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
    return [json.loads(line)["message"] for line in log.splitlines()]


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
    append(system.connect("app"), 5)
    wait_until_drained(system, serving)
    system.superuser.close()
    system.cluster.kill()
    system.cluster.start()
    append(system.connect("app"), 5)
    wait_until_drained(system, serving)
    assert any(message.startswith("database away") for message in end(serving))
    expect_exact(system)


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
    serving = serve(system)
    _, log = serving.communicate(timeout=PATIENCE_S)
    assert serving.returncode == 2, log
    assert "is not ours" in log
    assert frontier(system) < outbox_max(system)


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
        assert ended == 1
    append(app, 3)
    wait_until_drained(system, serving)
    messages = end(serving)
    assert messages.count("connected") == 3
    assert sum(message.startswith("connection lost") for message in messages) == 2
    expect_exact(system)


def test_it_waits_for_an_object_store_that_is_away(system: System) -> None:
    append(prepare(system), 3)
    serving = serve(
        system, OML_LAKE_URL="s3://lake/here", OML_LAKE_STORAGE_OPTIONS=json.dumps(NOBODY)
    )
    assert serving.stderr is not None
    seen = [json.loads(serving.stderr.readline())["message"] for _ in range(4)]
    assert seen[0] == "connected"
    assert all(message.startswith("bronze.events cannot be reached") for message in seen[1:])
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
