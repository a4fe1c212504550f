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
)
from systems import System

QUICK = {"OML_POLL_INTERVAL_S": "0.05"}


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
