"""What an accepted loss leaves behind: a gap in the outbox, and rows of bronze that are excused."""

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from psycopg.types.json import Jsonb

from lakes import (
    append,
    delta,
    drain,
    expect_exact,
    findings,
    frontier,
    lake_writer,
    outbox_max,
    prepare,
    settings,
    value,
)
from oml.dev.cluster import SUPERUSER
from oml.lake import evidence
from oml.lake.schema import BRONZE_EVENTS
from oml.lake.source import Source
from oml.lake.table import OpenTable
from oml.reconcile.bronze import Difference
from systems import System

MOST_SCANS = 500


def loss(system: System, tenant: str, **said: Any) -> dict[str, Any]:
    """Return what is said of a tenant whose next three events are lost."""
    tenant_id, head = system.superuser.execute(
        "select t.tenant_id::text, max(j.seq) from oml.tenant t join oml.journal j"
        " using (tenant_id) where t.name = %s group by 1",
        (tenant,),
    ).fetchone() or (None, 0)
    range_ = {"last_seq": head, "lost_from": head + 1, "lost_to": head + 3}
    return {"tenant_id": tenant_id, **range_, **said}


def accept(system: System, lake_version: int | None, *losses: dict[str, Any]) -> None:
    """Close the gate and accept these losses."""
    system.superuser.execute("delete from oml.gate")
    system.superuser.execute(
        "select oml_gate_accept_loss('disk', %s, %s)", (Jsonb(list(losses)), lake_version)
    )


def unguarded(system: System, table: str, statement: str, *parameters: object) -> None:
    """Change a table behind its guards, as a superuser can."""
    system.superuser.execute(f"alter table oml.{table} disable trigger user".encode())
    system.superuser.execute(statement.encode(), parameters)


def forge(system: System, places: list[tuple[int, str, int]]) -> None:
    """Append rows to bronze at (outbox seq, tenant id, chain seq), like the last one there."""
    names = [column.name for column in BRONZE_EVENTS.columns]
    stream = delta(system).scan(columns=names, predicate=f"outbox_seq = {outbox_max(system)}")
    (row,) = pa.RecordBatchReader.from_stream(stream).read_all().to_pylist()
    forged = [
        row | {"outbox_seq": outbox_seq, "tenant_id": tenant_id, "seq": seq}
        for outbox_seq, tenant_id, seq in places
    ]
    schema = BRONZE_EVENTS.arrow_schema()
    write_deltalake(delta(system), pa.Table.from_pylist(forged, schema=schema), mode="append")


def test_a_gap_in_the_outbox_is_no_walk(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    app = prepare(system, "acme", "globex")
    append(app, 3, "acme")
    drain(system)
    accept(system, outbox_max(system) + 10**9, loss(system, "acme"))
    system.superuser.execute("select setval('oml.outbox_seq', %s)", (10**15,))
    append(app, 30, "acme")
    drain(system)
    assert outbox_max(system) == 10**15 + 30
    unguarded(system, "frontier", "update oml.frontier set seq = 0 where name = 'lake'")
    assert frontier(system) == 0, "as in a state of the database from before the drains"

    scans = 0
    scan = OpenTable.scan

    def counted(self: OpenTable, *arguments: Any) -> pa.Table:
        nonlocal scans
        scans += 1
        assert scans <= MOST_SCANS
        return scan(self, *arguments)

    monkeypatch.setattr(OpenTable, "scan", counted)
    monkeypatch.setattr(evidence, "_PAGE", 4)
    with Source(system.dsn(SUPERUSER)) as source:
        found = evidence.examine(source, settings(system))
        assert (found.cursor, found.lost, found.conflicts) == (10**15 + 30, {}, [])
        with lake_writer(system) as writer:
            pages = list(evidence._pages(writer.open(BRONZE_EVENTS), 0, 10**15 + 30))
    have = [seq for page in pages for seq in sorted(page["outbox_seq"].to_pylist())]
    expected = system.superuser.execute("select seq from oml.outbox order by 1").fetchall()
    assert have == [seq for (seq,) in expected], "each row once, in order"
    beyond = loss(system, "globex")
    forge(system, [(10**15 - 7, beyond["tenant_id"], beyond["lost_from"])])
    with Source(system.dsn(SUPERUSER)) as source:
        (lost,) = evidence.examine(source, settings(system)).lost.values()
    assert (lost.tenant, lost.events) == ("globex", 1), "a row within the gap is met"


def test_an_accepted_loss_excuses_no_row_beyond_what_it_names(system: System) -> None:
    append(prepare(system, "acme", "globex"), 3, "acme")
    drain(system)
    end = outbox_max(system)
    named = loss(system, "acme", lake_events=2)
    first, other = named["lost_from"], loss(system, "globex")
    forge(system, [(end + 1, named["tenant_id"], first), (end + 20, named["tenant_id"], first + 2)])
    accept(system, end + 20, named)
    append(system.connect("app"), 2, "acme")
    drain(system)
    assert findings(system) == []
    beyond = [
        (end + 5, named["tenant_id"], first - 1),
        (end + 6, named["tenant_id"], first + 3),
        (end + 7, other["tenant_id"], other["lost_from"]),
        (-1, named["tenant_id"], first + 1),
        (outbox_max(system) + 1, named["tenant_id"], first + 1),
    ]
    forge(system, beyond)
    extra = {
        (found.outbox_seq, found.tenant_id, found.seq)
        for found in findings(system)
        if found.difference is Difference.EXTRA_IN_LAKE
    }
    assert extra == set(beyond)
    forge(system, [(end + 8, named["tenant_id"], first + 1)])
    uneven = [found for found in findings(system) if found.outbox_seq is None]
    assert [found.tenant_id for found in uneven] == [named["tenant_id"]]
    assert "bronze has 3 events that were accepted as lost; it had 2" in uneven[0].detail


def test_a_version_out_of_reach_stops_no_append(system: System) -> None:
    app = prepare(system)
    append(app, 3)
    for version in (2**63 - 1, 10**13):
        with pytest.raises(psycopg.Error) as caught:
            accept(system, version, loss(system, "acme"))
        assert caught.value.sqlstate == "OM169", caught.value
    system.open_gate()
    append(app, 2)
    drain(system)
    expect_exact(system)


def test_all_chains_are_waited_for(system: System) -> None:
    prepare(system, "acme", "globex")
    app = system.connect("app", autocommit=False)
    append(app, 1, "globex")
    with pytest.raises(psycopg.Error) as caught:
        accept(system, None, loss(system, "acme"))
    assert caught.value.sqlstate == "OM119", caught.value
    app.rollback()
    accept(system, None, loss(system, "acme"))


def test_a_damaged_journal_is_named_and_stays_closed(system: System) -> None:
    append(prepare(system), 3)
    unguarded(
        system,
        "journal",
        "update oml.journal j set envelope = set_byte(envelope, 40, get_byte(envelope, 40) # 1)"
        " from oml.tenant t where t.tenant_id = j.tenant_id and t.name = %s and j.seq = 4",
        "acme",
    )
    system.superuser.execute("delete from oml.gate")
    for command in (("gate", "open"), ("gate", "status")):
        done = system.oml(*command)
        assert done.returncode == 1
        assert "the journal is damaged: acme at seq 4: " in done.stdout + done.stderr
    assert '"verdict": "damaged"' in system.oml("gate", "status", "--json").stdout
    assert value(system.superuser, "select is_open from oml_gate_status()") is False


def test_production_counts_on_no_standby_without_wal_senders(private_system: System) -> None:
    private_system.superuser.execute("alter system set max_wal_senders = 0")
    private_system.superuser.execute("alter system set synchronous_standby_names = 's1'")
    private_system.superuser.close()
    private_system.cluster.stop()
    private_system.cluster.start()
    with pytest.raises(psycopg.Error) as caught:
        private_system.superuser.execute("select oml_configure('profile', 'production')")
    assert caught.value.sqlstate == "OM181", caught.value
    assert str(caught.value.diag.message_primary).startswith("max_wal_senders is 0: ")
