"""``make demo``: the whole way of an event, on real input, through a crash of the lake writer.

Usage: .venv/bin/python demo/demo.py      with INPUT=FILE in the environment for another file

Appends the input as events of two tenants in plain SQL, verifies both chains, drains them to
Delta, kills the lake writer between its Delta commit and its frontier, drains again, and compares
every row. Exits 0 if all of it held. The server stays up to be explored, unless CI is set.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pyarrow as pa
from deltalake import DeltaTable
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from demo_input import Event, Input, choose, read
from oml.cli.output import print_table, progress
from oml.dev import account, record
from oml.dev import up as dev
from oml.dev.up import DevSystem
from oml.errors import EXIT_FINDINGS, OmlError, SetupError, from_postgres

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "demo-data"
ELSEWHERE = Path("/var/lib/oml-demo")  # for root, if the server's user cannot enter the checkout
APPENDS_A_COMMIT = 200
KILL_AT = "batch.committed"
_OML = [sys.executable, "-m", "oml"]
_STARTED = time.monotonic()

Connection = psycopg.Connection[TupleRow]


class DemoError(OmlError):
    """Something that OML promises did not hold."""


def main() -> int:
    """Run the demo and return the exit status."""
    try:
        path, why = choose(os.environ.get("INPUT", ""))
        say(f"reading {path}" + (f" ({why})" if why else ""))
        source = read(path)
        directory = free_directory()
        say(f"starting a private PostgreSQL in {directory}")
        system = dev.up(directory, tenant=source.tenants[0])
        try:
            demonstrate(source, system)
        finally:
            leave(system)
        return 0
    except KeyboardInterrupt:
        return 130
    except OmlError as error:
        return complain(error)
    except psycopg.Error as error:
        return complain(from_postgres(error))


def complain(error: OmlError) -> int:
    """Print the error and return its exit status."""
    print(f"demo: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code


def demonstrate(source: Input, system: DevSystem) -> None:
    """Do the main job on the input. Raises DemoError at the first thing that does not hold."""
    split = max(1, len(source.events) * 4 // 5)
    first, rest = source.events[:split], source.events[split:]
    with (
        psycopg.connect(system.dsn, autocommit=True) as application,
        psycopg.connect(system.superuser_dsn, autocommit=True) as superuser,
    ):
        prepare(application, source)
        say(f"appending {len(first)} events, {APPENDS_A_COMMIT} a commit")
        append(application, first)

        say("verifying both chains, in SQL and from outside with the root key pinned")
        root_key = public_key(superuser)
        verified = verify(application, source, system.dsn, root_key)

        say("draining to Delta")
        drained = run_json(system.dsn, "lake", "drain", "--once")
        expect(drained["held_back"] is None, f"the drain was held back: {drained['holders']}")

        say(f"appending {len(rest)} more, then killing the lake writer at {KILL_AT}")
        append(application, rest)
        killed = kill_the_lake_writer(system.dsn, rows=max(1, len(rest) // 2))

        say("draining again")
        recovered = run_json(system.dsn, "lake", "drain", "--once")
        expect(recovered["held_back"] is None, f"the drain was held back: {recovered['holders']}")
        expect(
            recovered["frontier"] == recovered["outbox_max"],
            f"the drain stopped at {recovered['frontier']} of {recovered['outbox_max']}",
        )

        say("comparing every row of Delta with the journal")
        verified = verify(application, source, system.dsn, root_key)
        delta = read_delta(f"{system.lake_url}/bronze/events/g1")
        counts = compare(superuser, delta)
        judged = run_json(system.dsn, "reconcile")
        expect(judged["ok"], f"oml reconcile found {judged['findings']}")
    query(source, delta)
    report(source, counts, verified, killed, recovered)


def prepare(application: Connection, source: Input) -> None:
    """Create the second tenant (``dev up`` made the first) and register the event types."""
    second = source.tenants[1]
    application.execute("select oml_create_tenant(%s)", (second,))
    application.execute(
        "select oml_grant(login => 'dev', tenant => %s, permissions => '{append,audit}')", (second,)
    )
    for kind in source.types:
        application.execute(
            "select oml_register_event_type(%s, required_keys => %s)",
            (kind.name, list(kind.required_keys)),
        )


def append(application: Connection, events: Sequence[Event]) -> None:
    """Append the events in order, many in one transaction."""
    statement = (
        "select oml_append(%s, %s, tenant => %s, operation => %s,"
        " entity_type => %s, entity_id => %s)"
    )
    left = iter(events)
    done = 0
    with progress("appending", quiet=False) as show:
        while batch := list(islice(left, APPENDS_A_COMMIT)):
            with application.transaction(), application.cursor() as cursor:
                cursor.executemany(
                    statement,
                    [
                        (
                            event.type, Jsonb(event.payload), event.tenant, event.operation,
                            event.entity_id and "package", event.entity_id,
                        )
                        for event in batch
                    ],
                )  # fmt: skip
            done += len(batch)
            show(done, len(events))


def public_key(superuser: Connection) -> str:
    """Return the signing key's public half in hex, read from the key file and not the chain."""
    row = superuser.execute(
        "select encode(oml.signer_public_key(value), 'hex') from oml.setting where name = 'signer'"
    ).fetchone()
    assert row is not None
    return str(row[0])


def verify(application: Connection, source: Input, dsn: str, root_key: str) -> dict[str, int]:
    """Verify both chains in the database and outside it; return {tenant: events proved}."""
    verified = {}
    for tenant in source.tenants:
        row = application.execute(
            "select ok, events, fault, reason from oml_verify_chain(%s)", (tenant,)
        ).fetchone()
        assert row is not None
        expect(row[0], f"oml_verify_chain({tenant!r}) found {row[2]}: {row[3]}")
        verified[tenant] = int(row[1])
    outside = run_json(dsn, "verify", "--root-key", root_key)
    expect(outside["ok"], f"oml verify found a fault: {outside['chains']}")
    found = {chain["tenant"]: chain["events"] for chain in outside["chains"]}
    expect(verified.items() <= found.items(), f"SQL proved {verified}, oml verify {found}")
    return found


def kill_the_lake_writer(dsn: str, rows: int) -> dict[str, Any]:
    """Have a drain die by SIGKILL after its first Delta commit; return the lake's status then."""
    command = [*_OML, "lake", "drain", "--once", "--dsn", dsn]
    done = subprocess.run(
        command,
        env=environment() | {"OML_FAILPOINT": KILL_AT, "OML_BATCH_ROWS": str(rows)},
        capture_output=True,
        text=True,
        check=False,
    )
    expect(
        done.returncode == -signal.SIGKILL,
        f"the lake writer was to die by SIGKILL but ended with {done.returncode}: {done.stderr}",
    )
    status: dict[str, Any] = run_json(dsn, "lake", "status")
    expect(
        status["tables"]["bronze.events"] > status["frontier"],
        f"Delta should be ahead of the frontier: {status}",
    )
    return status


def read_delta(url: str) -> pl.LazyFrame:
    """Read the Delta table into Polars, whose own scan_delta takes no path with spaces in it."""
    rows = pa.RecordBatchReader.from_stream(DeltaTable(url).scan()).read_all()
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame.lazy()


def compare(superuser: Connection, delta: pl.LazyFrame) -> dict[str, tuple[int, int]]:
    """Compare every row by its hash; return {tenant: (events in the journal, rows in Delta)}."""
    journal = superuser.execute(
        "select t.name, j.tenant_id::text, j.seq, j.hash from oml.journal j"
        " join oml.tenant t using (tenant_id) order by t.chain_no, j.seq"
    ).fetchall()
    lake = delta.select("tenant_id", "seq", "hash").collect()
    expect(
        sorted(lake.rows()) == sorted(row[1:] for row in journal),
        "the rows of Delta are not the events of the journal",
    )
    in_delta = dict(lake.group_by("tenant_id").len().rows())
    names = dict.fromkeys((name, tenant_id) for name, tenant_id, *_ in journal)
    return {
        name: (sum(row[0] == name for row in journal), in_delta[tenant_id])
        for name, tenant_id in names
    }


def query(source: Input, delta: pl.LazyFrame) -> None:
    """Ask the Delta table something, from Polars alone."""
    if source.entities is None:
        longest = (
            delta.filter(pl.col("type") == "file.line")
            .select("bytes", line=pl.col("payload").str.json_path_match("$.line"))
            .sort("bytes", descending=True)
            .head(5)
            .collect()
        )
        print_table(("line", "bytes signed"), [(n, b) for b, n in longest.rows()], "Largest events")
        return
    busiest = (
        delta.filter(pl.col("entity_id").is_not_null())
        .group_by("entity_id")
        .agg(
            pl.len().alias("events"),
            pl.col("operation").filter(pl.col("type") == "package.action").unique().sort(),
        )
        .sort(["events", "entity_id"], descending=[True, False])
        .head(5)
        .collect()
    )
    rows = [(name, events, ", ".join(operations)) for name, events, operations in busiest.rows()]
    print_table(("package", "events", "actions"), rows, "Busiest packages, asked of Delta")


def report(
    source: Input,
    counts: dict[str, tuple[int, int]],
    verified: dict[str, int],
    killed: dict[str, Any],
    recovered: dict[str, Any],
) -> None:
    """Print what happened."""
    rows = [
        (tenant, in_journal, verified[tenant], in_delta)
        for tenant, (in_journal, in_delta) in counts.items()
    ]
    print_table(("tenant", "events", "verified", "rows in Delta"), rows, "What happened")
    ahead = killed["tables"]["bronze.events"]
    written = sum(recovered["rows"].values())
    lines = [f"lake writer killed with Delta at {ahead} and the frontier at {killed['frontier']}"]
    lines += [f"recovered: the frontier caught up, the other {written} rows went in, each once"]
    lines += [f"all rows equal by hash; {time.monotonic() - _STARTED:.0f} s"]
    if source.truncated:
        lines += [f"only the first {len(source.events)} lines of {source.path} were read"]
    print("\n".join(lines))


def leave(system: DevSystem) -> None:
    """Say how to explore the system and to stop it; in CI, stop it."""
    directory = Path(system.dir)
    if os.environ.get("CI"):
        dev.down(directory)
        print("stopped the server, because CI is set")
        return
    shown = directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory
    print(f'\nexplore:  psql "{system.dsn}"')
    print("          select * from oml_verify_chain('provider');")
    print(f'tables:   psql "{system.superuser_dsn}" -c "select * from oml.journal limit 5"')
    print(f'          .venv/bin/oml verify --dsn "{system.dsn}"')
    print(f"stop:     .venv/bin/oml dev down --dir {shown}")


def free_directory() -> Path:
    """Return where the system goes; what an earlier demo left there is stopped and removed.

    Raises UsageError if the directory holds anything else.
    """
    directory = HERE
    owner = account.of_new_cluster()
    try:
        owner.require_access(ROOT)
    except SetupError:
        directory = ELSEWHERE
        say(f"the server's user {owner.name} cannot enter {ROOT}, so {directory} is used instead")
    if directory.exists() and record.load(directory) is not None:
        say("removing the system of an earlier demo")
        dev.down(directory, destroy=True)
    return directory


def run_json(dsn: str, *arguments: str) -> Any:
    """Run an oml command and return its JSON; exit 1 is a result too, and is judged by it."""
    command = [*_OML, *arguments, "--json", "--dsn", dsn]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise DemoError(f"oml {' '.join(arguments)} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def environment() -> dict[str, str]:
    """Return the environment for our commands: nobody's OML_ or PG settings reach the demo."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("OML_", "PG"))}


def expect(holds: bool, otherwise: str) -> None:
    """Raise DemoError unless it holds."""
    if not holds:
        raise DemoError(otherwise, "This is a fault of OML: please report it.", EXIT_FINDINGS)


def say(text: str) -> None:
    """Print one step, with the seconds since the start."""
    print(f"[{time.monotonic() - _STARTED:4.1f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
