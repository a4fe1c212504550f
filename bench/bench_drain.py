"""The drain of 500,000 events to Delta, against dlt and against a plain write_deltalake.

``drain_vs_dlt``: A is ``oml lake drain --once``; B is dlt, from the same rows of the same server.
``drain_of_bronze_vs_dlt``: A writes bronze.events alone, which is what the peers write.
``drain_vs_write_deltalake``: B is one write_deltalake of the same rows, already in Arrow.
``drain_peak_rss_mb``: the most memory of the process that drains 5,000,000 events.

drain_ways.py has the ways; METHOD.md says what counts. After each run the whole Delta table is
compared with the journal's rows. dlt is installed into an environment of its own under build/.

OML_BENCH_EVENTS is how many events the pairs drain, ten times as many the run for memory. With
fewer than 500,000 it is a trial, whose result is not kept.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from psycopg.conninfo import conninfo_to_dict

import bench_growth as growth
import common
from oml.dev.cluster import Cluster
from oml.dev.up import DevSystem
from oml.driver.connection import connect
from oml.lake.schema import BRONZE_EVENTS
from oml.lake.source import Source
from oml.settings import Settings

FULL = 500_000
EVENTS = int(os.environ.get("OML_BENCH_EVENTS", FULL))
BACKLOG = 10 * EVENTS
ROUNDS = 5
LEAST = {"drain_vs_dlt": 5.0, "drain_vs_write_deltalake": 0.5}
MOST_MB = 400
AGAINST = {
    "drain_vs_dlt": "dlt",
    "drain_vs_write_deltalake": "plain",
    "drain_vs_dlt_with_connectorx": "dlt_connectorx",
    "drain_vs_dlt_with_adbc": "dlt_adbc",
    "drain_vs_write_deltalake_by_batches": "plain_batches",
}
OURS = "oml"
BRONZE = "oml_bronze"
BRONZE_AGAINST = {
    "drain_of_bronze_vs_dlt": "dlt",
    "drain_of_bronze_vs_write_deltalake": "plain",
    "drain_of_bronze_vs_of_all": OURS,
}
DLT = [
    "dlt[deltalake,sql-database]==1.31.0",
    "SQLAlchemy==2.1.9",
    "psycopg2-binary==2.9.13",
    "connectorx==0.4.5",
    *(f"{name}=={version(name)}" for name in ("deltalake", "pyarrow", "adbc-driver-postgresql")),
]
VIEW = "bronze_rows"
_BYTES_AN_EVENT = 1_700
_BYTES_BESIDE = 4 * 1024**3
_BUILD = Path(__file__).parent.parent / "build"

Run = dict[str, float]


def python_with_dlt() -> str:
    """Return the interpreter of the environment that has dlt, making it the first time."""
    directory = _BUILD / "bench-dlt"
    mark = directory / "installed.json"
    if not mark.exists() or json.loads(mark.read_text()) != DLT:
        growth.say(f"installing {DLT[0]} into {directory}")
        shutil.rmtree(directory, ignore_errors=True)
        venv.create(directory, with_pip=True)
        done = subprocess.run(
            [directory / "bin" / "pip", "install", "--quiet", *DLT],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(
                f"dlt could not be installed, and without it there is nothing to compare with.\n"
                f"{done.stderr.strip()}\nNeeded from PyPI: {', '.join(DLT)}"
            )
        mark.write_text(json.dumps(DLT))
    return str(directory / "bin" / "python")


class Bench:
    """The loaded system, what its rows are, and runs of the ways that take them to a lake."""

    def __init__(self, system: DevSystem, cluster: Cluster, work: Path, dlt: str) -> None:
        self.system = system
        self.work = work
        self.pythons = {name: dlt if name.startswith("dlt") else sys.executable for name in WAYS}
        self.postmaster = int((cluster.data / "postmaster.pid").read_text().split()[0])
        self.expected = pa.table({})
        self.runs: dict[str, list[Run]] = {name: [] for name in WAYS}

    def load(self, events: int, after: int = 0) -> None:
        """Load events; make the view that dlt reads."""
        columns = ", ".join(f'"{name}"' for name in BRONZE_EVENTS.arrow_schema().names)
        with connect(self.system.superuser_dsn, autocommit=True) as superuser:
            superuser.execute("select oml_grant('postgres', 'tenant-0')")
            growth.load(superuser, events, max(events // growth.EVENTS_AN_ENTITY, 1), after)
            body = superuser.execute(
                "select prosrc from pg_proc where oid = to_regproc('oml.lake_rows')"
            ).fetchone()
            assert body is not None
            query = str(body[0]).partition("return query")[2].partition("where")[0]
            superuser.execute(
                f"create or replace view public.{VIEW} ({columns}) as {query}"
                " where o.target = 'bronze.events'".encode()
            )
        growth.settle(self.system.superuser_dsn)

    def keep_rows(self) -> None:
        """Read the rows that must come to the lake, and keep them for the plain writes."""
        with connect(self.system.superuser_dsn, autocommit=True) as superuser:
            row = superuser.execute("select max(seq) from oml.outbox").fetchone()
        assert row is not None
        with Source(self.system.superuser_dsn) as source:
            parts = [
                source.rows(BRONZE_EVENTS, after, after + growth.TENANTS * 10)
                for after in range(0, row[0], growth.TENANTS * 10)
            ]
        self.expected = pa.concat_tables(parts)
        with (
            pa.OSFile(str(self.work / "rows.arrow"), "wb") as file,
            pa.ipc.new_file(file, self.expected.schema) as writer,
        ):
            writer.write_table(self.expected)

    def forget_lake(self) -> None:
        """Put back what the database knows of the lake: nothing has been drained."""
        with connect(self.system.superuser_dsn, autocommit=True) as superuser:
            for table, change in (
                ("oml.frontier", "update oml.frontier set seq = 0, fenced_seq = 0"),
                ("oml.lake_table", "delete from oml.lake_table"),
            ):
                with growth.past_guards(superuser, table):
                    superuser.execute(change.encode())
            superuser.execute("checkpoint")

    def run(self, way: str) -> Run:
        """Run a way once into a fresh directory, which holds its table until the next run."""
        place = self.work / "lake"
        for directory in (place, self.work / "dlt"):
            shutil.rmtree(directory, ignore_errors=True)
        place.mkdir()
        if way in (OURS, BRONZE):
            self.forget_lake()
        socket = conninfo_to_dict(self.system.superuser_dsn)["host"]
        facts = {
            "url": place.as_uri(), "dsn": self.system.dsn, "dsn_of_view": self.system.superuser_dsn,
            "socket": socket, "user": "postgres", "view": VIEW,
            "arrow": str(self.work / "rows.arrow"), "work": str(self.work / "dlt"),
            "statistics": ",".join(BRONZE_EVENTS.statistics), "batch_rows": Settings().batch_rows,
        }  # fmt: skip
        process = subprocess.Popen(
            [self.pythons[way], Path(__file__).with_name("drain_ways.py"), way, json.dumps(facts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={n: v for n, v in os.environ.items() if way in (OURS, BRONZE) or n != "PYTHONPATH"},
        )
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{way} did not start: exit {process.wait()}")
        before = self.server_cpu()
        output, _ = process.communicate("go\n")
        if process.returncode != 0:
            raise RuntimeError(f"{way} failed with exit {process.returncode}")
        result: Run = json.loads(output.splitlines()[-1])
        result["cpu_s"] += self.server_cpu() - before
        return result

    def server_cpu(self) -> float:
        """Return the CPU seconds that the server has spent, in processes that ended or run."""
        time.sleep(0.3)  # the postmaster has then seen its backends end
        ticks = sum(_ticks(self.postmaster)[11:15])
        children = Path(f"/proc/{self.postmaster}/task/{self.postmaster}/children").read_text()
        for child in children.split():
            ticks += sum(_ticks(int(child))[11:13])
        return float(ticks / os.sysconf("SC_CLK_TCK"))

    def measured(self, way: str) -> float:
        """Run a way, insist that the lake has every row whole, and return rows a second."""
        result = self.run(way)
        self.require_rows(way)
        self.runs[way].append(result)
        rate = float(self.expected.num_rows / result["seconds"])
        growth.say(f"  {way}: {rate:,.0f} rows/s, {result['peak_mb']:.0f} MB")
        return rate

    def table(self) -> DeltaTable:
        """Open the one table of events that the last run has made."""
        ours = self.work / "lake" / BRONZE_EVENTS.location
        if ours.exists():
            return DeltaTable(ours)
        logs = (self.work / "lake").rglob("_delta_log")
        (found,) = (log.parent for log in logs if not log.parent.name.startswith("_dlt"))
        return DeltaTable(found)

    def require_rows(self, way: str) -> None:
        """Insist that the last run's table holds the rows of the journal, and no others."""
        schema = pa.schema([field.with_nullable(True) for field in self.expected.schema])
        rows = pa.RecordBatchReader.from_stream(self.table().scan(columns=schema.names)).read_all()
        rows = rows.select(schema.names).cast(schema).sort_by("outbox_seq")
        if not rows.equals(self.expected.cast(schema)):
            raise RuntimeError(f"{way} wrote {rows.num_rows} rows, and not those of the journal")

    def backlog(self) -> Run:
        """Load the backlog, drain it and insist that it is in the lake."""
        self.load(BACKLOG, EVENTS)
        result = self.run(OURS)
        with connect(self.system.superuser_dsn, autocommit=True) as superuser:
            want = superuser.execute(
                "select count(*), count(*), sum(o.seq)::bigint, sum(j.seq)::bigint,"
                " sum(octet_length(j.envelope))::bigint from oml.outbox o join oml.journal j"
                " on j.tenant_id = o.tenant_id and j.seq = o.chain_seq"
            ).fetchone()
        stream = self.table().scan(columns=["outbox_seq", "seq", "bytes"])
        rows = pa.RecordBatchReader.from_stream(stream).read_all()
        sums = (pc.sum(rows[name]).as_py() for name in ("outbox_seq", "seq", "bytes"))
        have = (rows.num_rows, len(pc.unique(rows["outbox_seq"])), *sums)
        if have != want:
            raise RuntimeError(f"the lake has {have}, the journal {want}")
        result["rows"] = rows.num_rows
        growth.say(f"drained {rows.num_rows:,} in {result['seconds']:.0f} s")
        return result


WAYS = (OURS, BRONZE, *AGAINST.values())


def _ticks(pid: int) -> list[int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) if field.lstrip("-").isdecimal() else 0 for field in fields]


@contextmanager
def loaded(dlt: str) -> Iterator[Bench]:
    """Run a system whose outbox has the events, none of them drained."""
    with (
        common.server() as (system, cluster),
        tempfile.TemporaryDirectory(prefix="oml-bench-") as work,
    ):
        growth.make_tenants(system)
        bench = Bench(system, cluster, Path(work), dlt)
        bench.load(EVENTS)
        bench.keep_rows()
        yield bench


def rounds(bench: Bench) -> dict[str, list[common.Pair]]:
    """Run all ways by turns, once uncounted and then ROUNDS times; return A's pairs by key.

    The order turns around from round to round. A of a round is in a pair with each B of it.
    """
    found: dict[str, list[common.Pair]] = {key: [] for key in (*AGAINST, *BRONZE_AGAINST)}
    for number in range(ROUNDS + 1):
        order = WAYS if number % 2 == 0 else tuple(reversed(WAYS))
        growth.say(f"round {number} of {ROUNDS}" + (", not counted" if number == 0 else ""))
        rates = {way: bench.measured(way) for way in order}
        if number == 0:
            for runs in bench.runs.values():
                runs.clear()
            continue
        for key, way in AGAINST.items():
            found[key].append(common.Pair(rates[OURS], rates[way]))
        for key, way in BRONZE_AGAINST.items():
            found[key].append(common.Pair(rates[BRONZE], rates[way]))
    return found


def main() -> int:
    """Run the benchmark and return its exit status."""
    needed = BACKLOG * _BYTES_AN_EVENT + _BYTES_BESIDE
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        growth.say(f"{BACKLOG:,} events need {needed / 1e9:.0f} GB: {free / 1e9:.0f} are free")
        return 2
    with loaded(python_with_dlt()) as bench:
        found = rounds(bench)
        backlog = bench.backlog()
    return report(bench, found, backlog)


def report(bench: Bench, found: dict[str, list[common.Pair]], backlog: Run) -> int:
    """Write the result; return the exit status, 1 if a figure is short of what is required."""
    peak = common.Figure(
        "drain_peak_rss_mb", round(backlog["peak_mb"], 1), MOST_MB, {}, at_most=True
    )
    rows = bench.expected.num_rows
    more = {
        "rows": rows,
        "backlog_rows": round(backlog["rows"]),
        "backlog_per_s": round(backlog["rows"] / backlog["seconds"]),
        # Of all processors together, the server's included; quieter than the clock.
        "cpu_us_each": {
            way: round(statistics.median(run["cpu_s"] for run in runs) / rows * 1e6, 2)
            for way, runs in bench.runs.items()
        },
        "peak_mb": {
            way: round(max(run["peak_mb"] for run in runs)) for way, runs in bench.runs.items()
        },
        "batch_rows": Settings().batch_rows,
        "dlt": DLT,
    }
    figures = [common.figure(key, pairs, LEAST.get(key)) for key, pairs in found.items()]
    return common.finish("drain", [*figures, peak], more, keep=EVENTS >= FULL)


if __name__ == "__main__":
    sys.exit(main())
