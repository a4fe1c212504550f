"""Long work shows how far it is on a terminal, and nowhere else."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from lakes import PATIENCE_S, append, drain, lake_writer, outbox_max, prepare
from systems import System

COMMANDS = {
    "draining": ("lake", "drain", "--once"),
    "verifying": ("verify",),
    "comparing": ("reconcile",),
}


def shown_on_a_terminal(system: System, *arguments: str) -> str:
    """Run the command line with a terminal as its stderr and return what appears there."""
    terminal, end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "oml", *arguments],
        env=system.environment(env={"TERM": "xterm"}),
        cwd=system.lake,
        stdout=subprocess.DEVNULL,
        stderr=end,
    )
    os.close(end)
    shown = b""
    with suppress(OSError):  # EIO: the other end is closed
        while read := os.read(terminal, 4096):
            shown += read
    os.close(terminal)
    assert process.wait(timeout=PATIENCE_S) == 0, shown
    return shown.decode()


@pytest.mark.parametrize("shown", COMMANDS)
def test_a_terminal_shows_how_far_it_is(system: System, shown: str) -> None:
    append(prepare(system), 3)
    if shown != "draining":
        drain(system)
    assert shown in shown_on_a_terminal(system, *COMMANDS[shown])
    assert shown_on_a_terminal(system, *COMMANDS[shown], "--json") == ""


def test_a_drain_tells_where_it_begins_and_each_batch(system: System) -> None:
    append(prepare(system), 5)
    told: list[tuple[int, int]] = []
    with lake_writer(system, batch_rows=3) as writer:
        writer.drain(lambda reached, limit: told.append((reached, limit)))
    last = outbox_max(system)
    assert told == [(n, last) for n in [*range(0, last, 3), last]]
