"""verify_vs_libsodium: oml verify of 200,000 events against libsodium's bare verification of them.

A is all that oml verify does, from reading the heads to the verdicts: rows, columns, hashes, links,
signatures, keys in force. B opens the same signed messages, prepared in memory beforehand, and does
nothing else; its processes are up and wait. Both use one process a core. A's run includes starting
its processes and whatever the server spends on it on the same cores.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

from nacl import bindings

import chains
import common
from oml.core import cose, envelope
from oml.driver.connection import connect
from oml.driver.verify import verify

EVENTS = 200_000
FIRST = 50_000  # the smaller size at which memory is measured
REQUIRED = 0.8
MOST_GROWTH = 1.25  # of memory, from the smaller size to the larger

_PEAK = """
import resource, sys
from oml.driver.verify import verify
assert verify(sys.argv[1]).ok
both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
print(max(resource.getrusage(who).ru_maxrss for who in both))
"""


def peak(dsn: str) -> float:
    """Verify in a process of its own; return the most memory of it or a worker, in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, dsn], capture_output=True, text=True, check=True
    )
    kib = int(done.stdout)
    return round(kib / 1024, 1)


def spent(postmaster: int) -> float:
    """Return the CPU seconds spent so far by this process, its workers and ended backends."""
    time.sleep(0.3)  # the postmaster has then seen its backends end
    own = os.times()
    fields = Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()
    ended = sum(int(ticks) for ticks in fields[13:15]) / os.sysconf("SC_CLK_TCK")
    return own.user + own.system + own.children_user + own.children_system + ended


class Bare:
    """Processes that hold the journal's signed messages and verify them when told."""

    def __init__(self, dsn: str, public_key: bytes, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.cpu_us: list[float] = []
        self.pipes: list[Connection] = []
        self.processes = []
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_verify_bare, args=(theirs, dsn, public_key, number, processes), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        sizes = [pipe.recv() for pipe in self.pipes]
        self.events: int = sum(count for count, _ in sizes)
        self.bytes_each = round(sum(total for _, total in sizes) / self.events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes:
            process.terminate()
            process.join()

    def run(self) -> float:
        """Verify every message once; return how many a second."""
        start = time.perf_counter()
        for pipe in self.pipes:
            pipe.send(None)
        spent = [pipe.recv() for pipe in self.pipes]
        took = time.perf_counter() - start
        self.cpu_us.append(sum(spent) / self.events * 1e6)
        return self.events / took


def _verify_bare(
    pipe: Connection, dsn: str, public_key: bytes, number: int, processes: int
) -> None:
    messages = []
    with connect(dsn) as connection:
        rows = connection.execute(
            "select envelope from oml.journal where seq %% %s = %s",
            (processes, number),
            binary=True,
        )
        for (data,) in rows:
            signed = cose.decode(data, envelope.CONTENT_TYPE)
            content = cose.to_be_signed(signed.protected, signed.payload)
            messages.append(signed.signature + content)
    pipe.send((len(messages), sum(map(len, messages))))
    verify_one = bindings.crypto_sign_open
    while True:
        pipe.recv()
        start = time.process_time()
        for message in messages:
            verify_one(message, public_key)
        pipe.send(time.process_time() - start)


def main() -> int:
    """Run the benchmark and return its exit status."""
    cores = os.cpu_count() or 1
    cpu_us: list[float] = []
    with common.server() as (system, cluster):
        postmaster = int((cluster.data / "postmaster.pid").read_text().split()[0])
        key = chains.read_key(Path(system.key_file))
        with connect(system.superuser_dsn, autocommit=True) as connection:
            chains.write(connection, key, ["alpha", "beta"], FIRST)
            small = peak(system.superuser_dsn)
            chains.write(connection, key, ["gamma", "delta", "epsilon"], EVENTS - FIRST)
            row = connection.execute("select count(*) from oml.journal").fetchone()
        assert row is not None
        events = int(row[0])
        large = peak(system.superuser_dsn)
        with Bare(system.superuser_dsn, key.public_key, cores) as bare:

            def verified() -> float:
                before = spent(postmaster)
                start = time.perf_counter()
                result = verify(system.superuser_dsn, root_key=key.public_key)
                took = time.perf_counter() - start
                assert result.ok and sum(v.events for v in result.verdicts) == events
                cpu_us.append((spent(postmaster) - before) / events * 1e6)
                return events / took

            found = common.pairs(verified, bare.run)
    status = common.finish(
        "verify",
        [common.figure("verify_vs_libsodium", found, REQUIRED)],
        {
            "events": events,
            "signed_bytes_each": bare.bytes_each,
            # Of all processors together, the server's backends included; quieter than the clock.
            "a_cpu_us_each": round(statistics.median(cpu_us), 1),
            "b_cpu_us_each": round(statistics.median(bare.cpu_us), 1),
            "processes": cores,
            "peak_mib_of_largest_process": {str(FIRST): small, str(EVENTS): large},
            "most_growth": MOST_GROWTH,
        },
    )
    if large > small * MOST_GROWTH:
        print(f"memory grew from {small} to {large} MiB: it is not constant", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
