"""What tests do with a system's lake: fill it, judge it, and read it without our own code."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import DeltaTable

from oml import owner
from oml.dev.cluster import SUPERUSER
from oml.errors import DatabaseError
from oml.lake.schema import BRONZE_EVENTS, TABLES, LakeTable
from oml.lake.source import Source
from oml.lake.table import APP_ID, Bounds
from oml.lake.writer import Drained, LakeWriter
from oml.reconcile.bronze import BronzeJudge, Finding
from oml.settings import Settings
from systems import Connection, System

KIND = "note.added"
PATIENCE_S = 60
"""How long a test waits for what must come, before it fails. No test rests on how soon it comes."""
NOBODY = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "nowhere",
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "max_retries": "0",
}
"""Storage options of an object store at a port where nobody listens."""


def prepare(system: System, *tenants: str) -> Connection:
    """Make the tenants (default: acme), bind ``app`` to them, and connect as it."""
    system.superuser.execute("select oml_register_event_type(%s)", (KIND,))
    for tenant in tenants or ("acme",):
        system.make(tenant)
        system.bind("app", tenant)
    return system.connect("app")


def append(connection: Connection, count: int = 1, tenant: str | None = None) -> None:
    """Append events one by one, in the connection's transaction or each in its own."""
    for number in range(count):
        connection.execute(
            "select oml_append(%s, jsonb_build_object('n', %s::int), tenant => %s)",
            (KIND, number, tenant),
        )


def value(connection: Connection, query: str, *parameters: object) -> Any:
    """Return the one value of a query."""
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None, query
    return row[0]


def outbox_max(system: System) -> int:
    """Return the highest outbox seq that is committed."""
    return int(value(system.superuser, "select coalesce(max(seq), 0) from oml.outbox"))


def disown(system: System) -> None:
    """Remove the mark of the lake's owner, as somebody does who decides whose it is."""
    (system.lake / owner.PATH).unlink()


def frontier(system: System) -> int:
    """Return the frontier."""
    return int(value(system.superuser, "select seq from oml.frontier where name = 'lake'"))


def settings(system: System, **others: Any) -> Settings:
    """Return the settings of a lake writer of this system."""
    here = {"lake_url": system.lake_url, "lake_storage_options": system.lake_options}
    # Tests read the log from its beginning.
    return Settings(**{**here, "cut_timeout_s": PATIENCE_S, "lake_log_minutes": 60, **others})


@contextmanager
def lake_writer(
    system: System, tables: tuple[LakeTable, ...] = TABLES, **others: Any
) -> Iterator[LakeWriter]:
    """A lake writer in this process, with connections of its own."""
    with Source(system.dsn(SUPERUSER)) as source:
        yield LakeWriter(source, settings(system, **others), tables)


def drain(system: System, tables: tuple[LakeTable, ...] = TABLES, **others: Any) -> Drained:
    """Drain once in this process, as a writer that has just started."""
    with lake_writer(system, tables, **others) as writer:
        return writer.drain()


def findings(system: System) -> list[Finding]:
    """Return what the judge finds."""
    with lake_writer(system) as writer:
        return list(BronzeJudge(writer.source, writer.open(BRONZE_EVENTS)).findings())


def delta(
    system: System, table: LakeTable = BRONZE_EVENTS, version: int | None = None
) -> DeltaTable:
    """Load the Delta table from its first place, past the writer and its checks."""
    url = f"{system.lake_url}/{table.location}"
    return DeltaTable(url, version=version, storage_options=system.lake_options)


def file_sizes(system: System, table: LakeTable = BRONZE_EVENTS) -> list[int]:
    """Return the bytes of each file of the table's newest version."""
    files = pa.table(delta(system, table).get_add_actions())
    return [int(size) for size in files["size_bytes"].to_pylist()]


def rows(system: System, table: LakeTable = BRONZE_EVENTS) -> list[tuple[Any, ...]]:
    """Return (outbox seq, tenant id, chain seq, event id, hash) of the table, by outbox seq."""
    columns = ["outbox_seq", "tenant_id", "seq", "event_id", "hash"]
    scan = delta(system, table).scan(columns=columns)
    found = pa.RecordBatchReader.from_stream(scan).read_all().to_pylist()
    return sorted(tuple(row[c] for c in columns) for row in found)


def queued(system: System, table: LakeTable = BRONZE_EVENTS) -> list[tuple[Any, ...]]:
    """Return what ``rows`` must be once everything is drained, from journal and outbox."""
    return system.superuser.execute(
        """
        select o.seq, o.tenant_id::text, o.chain_seq, j.event_id::text, j.hash
        from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id and j.seq = o.chain_seq
        where o.target = %s
        order by o.seq
        """,
        (table.name,),
    ).fetchall()


def batches(system: System, table: LakeTable = BRONZE_EVENTS) -> list[Bounds]:
    """Return the bounds recorded with each commit of the table, in the order of its commits."""
    found = []
    for version in range(1, delta(system, table).version() + 1):
        at = delta(system, table, version)
        bounds = [at.transaction_version(f"{APP_ID}/{name}") for name in ("frontier", "batch_end")]
        assert bounds[0] is not None and bounds[1] is not None
        assert at.transaction_version(APP_ID) == bounds[1]
        found.append(Bounds(bounds[0], bounds[1]))
    return found


def expect_exact(system: System) -> None:
    """Insist that bronze holds every event of the journal once, whole, and in its chain's order."""
    have = rows(system)
    assert have == queued(system)
    assert len(have) == value(system.superuser, "select count(*) from oml.journal")
    chains: dict[str, list[int]] = {}
    for _, tenant_id, seq, *_ in have:
        chains.setdefault(tenant_id, []).append(seq)
    for tenant_id, seqs in chains.items():
        assert seqs == list(range(1, len(seqs) + 1)), f"chain {tenant_id} by outbox seq: {seqs}"
    assert findings(system) == []
    assert frontier(system) == outbox_max(system)


def expect_contiguous(found: list[Bounds]) -> None:
    """Insist that batches follow each other without a gap or an overlap."""
    assert found[0].frontier == 0
    assert [b.frontier for b in found[1:]] == [b.end for b in found[:-1]]
    assert all(b.frontier < b.end for b in found)


def await_stop(process: subprocess.Popen[str], *, or_end: bool = False) -> None:
    """Wait until a process is stopped (SIGSTOP), or is over if that will do too."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return
        assert time.monotonic() < deadline, "it never stopped"
        time.sleep(0.02)
    assert or_end, f"it ended: {process.communicate()}"


def wait_for_restart(system: System) -> None:
    """Wait until the server has dropped our connection and accepts a new one."""
    lost = system.superuser
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            system.superuser.execute("select")
            if system.superuser is not lost:
                return
        except (psycopg.OperationalError, DatabaseError):
            pass  # it goes down, is down, or comes up
        assert time.monotonic() < deadline, "the server has not restarted"
        time.sleep(0.02)


def wait_until_open(system: System) -> None:
    """Wait until omld has opened the write gate, or a first append has."""
    wait_until(system, "select from oml_gate_status() where is_open")


def wait_until(system: System, query: str, *parameters: object) -> Any:
    """Ask again and again until the query returns a row, and return its first value."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        row = system.superuser.execute(query.encode(), parameters).fetchone()
        if row is not None:
            return row[0] if row else None
        assert time.monotonic() < deadline, f"this never came: {query} {parameters}"
        time.sleep(0.01)
