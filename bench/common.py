"""What the benchmarks share: a private server, pgbench, pairs of runs and one way to report.

Every benchmark compares two ways of doing one thing, A and B, on this machine at this time; its
figure is a ratio. METHOD.md says why.
"""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from oml.dev import programs, up
from oml.dev.cluster import Cluster, Setting

RESULTS = Path(__file__).parent / "results"
PAIRS = 5
_LOOK_S = 3

_TPS = re.compile(
    r"^tps = ([0-9.]+) \((?:without initial connection time|including reconnection times)\)$",
    re.MULTILINE,
)
_PROGRESS = re.compile(r"^progress: ([0-9.]+) s, ([0-9.]+) tps,", re.MULTILINE)
_FAILED = re.compile(r"^number of failed transactions: (\d+)", re.MULTILINE)


class Pair(NamedTuple):
    """What A and B reached in one pair of runs, each in its own unit a second."""

    a: float
    b: float

    @property
    def ratio(self) -> float:
        """How many times as fast A was."""
        return self.a / self.b


@contextmanager
def server(options: Mapping[str, Setting] | None = None) -> Iterator[tuple[up.DevSystem, Cluster]]:
    """Run a whole system of its own, with fsync on, and remove it at the end.

    ``options`` goes into postgresql.conf. The system has tenant acme and login ``dev``, who may
    append to it; its key is a file that the server's OS user reads.
    """
    with tempfile.TemporaryDirectory(prefix="oml-bench-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # the server's user must enter it
        try:
            system = up.up(directory / "system", options=options)
            yield system, Cluster(directory / "system")
        finally:
            if (directory / "system" / "dev.json").exists():
                up.down(directory / "system", destroy=True)


def pgbench(
    dsn: str,
    script: str,
    clients: int,
    seconds: int,
    variables: Mapping[str, object] | None = None,
    *,
    warm_up: int = 0,
    reconnect: bool = False,
    protocol: str = "prepared",
) -> float:
    """Run a pgbench script with prepared statements; return transactions a second.

    The time to connect does not count, nor do the first ``warm_up`` seconds, which come before
    ``seconds``. With ``reconnect`` each transaction has a connection of its own, whose time does
    count. Raises RuntimeError if pgbench fails or any transaction did.
    """
    defined = [f"--define={name}={value}" for name, value in (variables or {}).items()]
    done = subprocess.run(
        [
            *(programs.find().path("pgbench"), "--no-vacuum", f"--protocol={protocol}"),
            *(f"--client={clients}", f"--jobs={min(clients, os.cpu_count() or 1)}"),
            *(f"--time={warm_up + seconds}", "--progress=1", *(["--connect"] if reconnect else [])),
            *("--file=/dev/stdin", *defined, dsn),
        ],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    tps, failed = _TPS.search(done.stdout), _FAILED.search(done.stdout)
    if done.returncode != 0 or tps is None or failed is None or failed[1] != "0":
        raise RuntimeError(f"pgbench failed: {done.stderr.strip()}\n{done.stdout}")
    return _rate_after(warm_up, done.stderr) if warm_up else float(tps[1])


def _rate_after(warm_up: int, progress: str) -> float:
    """Return the transactions a second after ``warm_up`` seconds, from pgbench's progress."""
    before, seconds, transactions = 0.0, 0.0, 0.0
    for at, tps in _PROGRESS.findall(progress):
        if before >= warm_up:
            seconds += float(at) - before
            transactions += float(tps) * (float(at) - before)
        before = float(at)
    if seconds == 0:
        raise RuntimeError(f"pgbench told of nothing after {warm_up} s:\n{progress}")
    return transactions / seconds


def pairs(a: Callable[[], float], b: Callable[[], float], n: int = PAIRS) -> list[Pair]:
    """Run A and B by turns, ``n`` times each, and return what each pair reached.

    Both are run once before, uncounted, so that caches are filled. Which one goes first alternates:
    what a run leaves behind then weighs on both.
    """
    a()
    b()
    found = []
    for number in range(n):
        if number % 2 == 0:
            first = a()
            pair = Pair(first, b())
        else:
            second = b()
            pair = Pair(a(), second)
        found.append(pair)
        print(
            f"pair {number + 1} of {n}: A {pair.a:.1f}/s, B {pair.b:.1f}/s, ratio {pair.ratio:.3f}",
            file=sys.stderr,
        )
    return found


def rounds(ways: Mapping[str, Callable[[], float]], n: int = PAIRS) -> dict[str, list[float]]:
    """Run several ways by turns, ``n`` times each, every other round in reverse order.

    Return what each reached, round by round. This is ``pairs`` for more than two ways, and as there
    each is run once before, uncounted.
    """
    for way in ways.values():
        way()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(n):
        for name in list(ways) if number % 2 == 0 else reversed(list(ways)):
            found[name].append(ways[name]())
        told = ", ".join(f"{name} {rates[-1]:.1f}/s" for name, rates in found.items())
        print(f"round {number + 1} of {n}: {told}", file=sys.stderr)
    return found


def against(a: list[float], b: list[float]) -> list[Pair]:
    """Return the pairs of two ways that ran in the same rounds."""
    return [Pair(*rates) for rates in zip(a, b, strict=True)]


def ratio(found: list[Pair]) -> float:
    """Return the figure of a benchmark: the median of the pairs' ratios."""
    return statistics.median(pair.ratio for pair in found)


class Figure(NamedTuple):
    """One key of a benchmark's result.

    ``required`` is the least the value may be, or the most if ``at_most``; None if nothing is
    required. ``details`` is kept with it, such as every pair's ratio under ``ratios``.
    """

    key: str
    value: float
    required: float | None
    details: Mapping[str, Any]
    at_most: bool = False

    @property
    def is_short(self) -> bool:
        """Whether the value misses what is required."""
        if self.required is None:
            return False
        return self.value > self.required if self.at_most else self.value < self.required


def figure(key: str, found: list[Pair], required: float | None = None) -> Figure:
    """Make the figure of pairs of runs: the median of their ratios."""
    details = {
        "ratios": [round(pair.ratio, 3) for pair in found],
        "a_per_s": [round(pair.a, 1) for pair in found],
        "b_per_s": [round(pair.b, 1) for pair in found],
    }
    return Figure(key, round(ratio(found), 3), required, details)


def finish(
    name: str,
    figures: Sequence[Figure],
    more: Mapping[str, Any] | None = None,
    *,
    keep: bool = True,
) -> int:
    """Write a benchmark's result; return the exit status: 1 if a figure misses what is required.

    The result has each key with its value, then what explains them. It goes into
    ``results/NAME.json``, unless ``keep`` is False as for a trial, and is printed as one JSON line,
    the last of the output. ``more`` is added to it, such as the number of clients.
    """
    result = {
        **{one.key: one.value for one in figures},
        "figures": {
            one.key: {"at_most" if one.at_most else "at_least": one.required, **one.details}
            for one in figures
        },
        **(more or {}),
        "machine": machine(),
    }
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))
    short = [one for one in figures if one.is_short]
    for one in short:
        print(f"{one.key} is {one.value}, required is {one.required}", file=sys.stderr)
    return 1 if short else 0


def machine() -> dict[str, Any]:
    """Describe the machine, how busy it was when the benchmark began, and is now."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "busy_before": BUSY_BEFORE,
        "commit": _commit(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "cpu": _cpu(),
        "python": platform.python_version(),
    }


def _busy(seconds: float) -> float:
    """Return how many processors were busy on average, with others' work, for so long."""

    def spent() -> float:
        # proc(5): user, nice, system, idle, iowait, irq, softirq, in ticks of all processors
        ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")

    before = spent()
    time.sleep(seconds)
    return round((spent() - before) / seconds, 2)


def _commit() -> str | None:
    """Return the commit that is measured, with a + where files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=8", "--exclude=*"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or None


BUSY_BEFORE = _busy(_LOOK_S)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
