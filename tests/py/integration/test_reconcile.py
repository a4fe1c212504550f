"""The judge names every difference between bronze and the journal, and nothing else."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakes import (
    PATIENCE_S,
    append,
    batches,
    delta,
    drain,
    expect_exact,
    findings,
    lake_writer,
    outbox_max,
    prepare,
    value,
)
from oml.lake.schema import BRONZE_EVENTS, TABLES, Column
from oml.reconcile import bronze
from oml.reconcile.bronze import BronzeJudge, Difference, Finding
from systems import System

COLUMNS = [column.name for column in BRONZE_EVENTS.columns]


def drained(system: System, events: int = 9) -> int:
    """Append and drain; return the outbox seq of one of acme's events in the middle."""
    append(prepare(system), events)
    drain(system, batch_rows=4)
    return outbox_max(system) - 3


def unguarded(system: System, statement: str, *parameters: object) -> None:
    """Change a table behind its guards, as a superuser can."""
    for table in ("journal", "outbox"):
        system.superuser.execute(f"alter table oml.{table} disable trigger guard_rows".encode())
    system.superuser.execute(statement.encode(), parameters)
    for table in ("journal", "outbox"):
        guard = f"alter table oml.{table} enable always trigger guard_rows"
        system.superuser.execute(guard.encode())


def lake_row(system: System, seq: int) -> pa.Table:
    """Return one row of bronze."""
    stream = delta(system).scan(columns=COLUMNS, predicate=f"outbox_seq = {seq}")
    return pa.RecordBatchReader.from_stream(stream).read_all()


def with_value(row: pa.Table, column: str, content: Any) -> pa.Table:
    """Return the row with another value in one column."""
    values = row.to_pylist()[0] | {column: content}
    return pa.Table.from_pylist([values], schema=BRONZE_EVENTS.arrow_schema())


def put_instead(system: System, seq: int, row: pa.Table) -> None:
    """Put another row in the place of one."""
    delta(system).delete(f"outbox_seq = {seq}")
    write_deltalake(delta(system), row, mode="append")


def missing(system: System, seq: int) -> None:
    delta(system).delete(f"outbox_seq = {seq}")


def extra(system: System, seq: int) -> None:
    unguarded(
        system,
        "delete from oml.journal j using oml.outbox o where o.seq = %s"
        " and j.tenant_id = o.tenant_id and j.seq = o.chain_seq",
        seq,
    )


def duplicate(system: System, seq: int) -> None:
    write_deltalake(delta(system), lake_row(system, seq), mode="append")


def mismatch(system: System, seq: int) -> None:
    put_instead(system, seq, with_value(lake_row(system, seq), "payload", '{"n": 99}'))


def inversion(system: System, seq: int) -> None:
    """Let an event and the one before it in its chain change places, in the outbox and the lake."""
    (before,) = system.superuser.execute(
        "select e.seq from oml.outbox o join oml.outbox e on e.tenant_id = o.tenant_id"
        " and e.chain_seq = o.chain_seq - 1 where o.seq = %s",
        (seq,),
    ).fetchone() or (0,)
    first, second = lake_row(system, before), lake_row(system, seq)
    unguarded(
        system,
        "update oml.outbox o set chain_seq = o.chain_seq + case o.seq when %s then 1 else -1 end"
        " where o.seq in (%s, %s)",
        before,
        before,
        seq,
    )
    put_instead(system, before, with_value(second, "outbox_seq", before))
    put_instead(system, seq, with_value(first, "outbox_seq", seq))


PLANTED: dict[Difference, Callable[[System, int], None]] = {
    Difference.MISSING_IN_LAKE: missing,
    Difference.EXTRA_IN_LAKE: extra,
    Difference.DUPLICATE_IN_LAKE: duplicate,
    Difference.DIGEST_MISMATCH: mismatch,
    Difference.ORDER_INVERSION: inversion,
}


def summary(found: list[Finding]) -> list[tuple[Difference, int | None, int | None]]:
    return [(f.difference, f.outbox_seq, f.seq) for f in found]


@pytest.mark.parametrize("difference", Difference)  # A new one fails until it can be planted.
def test_a_difference_is_named_with_tenant_seq_and_event_and_nothing_else_is(
    system: System, difference: Difference
) -> None:
    app = prepare(system, "acme", "globex")
    for _ in range(5):
        append(app, 1, "acme")
        append(app, 1, "globex")
    drain(system, batch_rows=4)
    seq = outbox_max(system) - 3
    before = lake_row(system, seq)
    PLANTED[difference](system, seq)
    (found,) = findings(system)
    after = lake_row(system, seq)
    row = (after if after.num_rows else before).to_pylist()[0]
    assert (found.difference, found.outbox_seq) == (difference, seq)
    assert (found.tenant_id, found.seq, found.event_id) == (
        row["tenant_id"],
        row["seq"],
        row["event_id"],
    )
    assert found.detail


@pytest.mark.parametrize("difference", PLANTED)
@pytest.mark.parametrize("back", [0, 1, 2, 8])
def test_a_difference_is_found_wherever_the_ranges_are_cut(
    system: System, monkeypatch: pytest.MonkeyPatch, difference: Difference, back: int
) -> None:
    monkeypatch.setattr(bronze, "_RANGE_ROWS", 3)
    drained(system)
    seq = outbox_max(system) - back
    PLANTED[difference](system, seq)
    assert [(f.difference, f.outbox_seq) for f in findings(system)] == [(difference, seq)]


def another(row: pa.Table, column: Column) -> Any:
    """Return another value than the row's for a column."""
    kinds = {pa.string(): "another", pa.binary(): b"another", pa.int64(): 10**6, pa.int32(): 10**6}
    if column.type in kinds:
        return kinds[column.type]
    return row[column.name].to_pylist()[0].replace(year=1999)


def test_an_edit_of_any_column_is_noticed(system: System) -> None:
    columns = [column for column in BRONZE_EVENTS.columns if column.name != "outbox_seq"]
    append(prepare(system), len(columns))
    drain(system)
    first = outbox_max(system) - len(columns) + 1
    for seq, column in enumerate(columns, first):
        row = lake_row(system, seq)
        put_instead(system, seq, with_value(row, column.name, another(row, column)))
    edits = [f for f in findings(system) if f.difference == Difference.DIGEST_MISMATCH]
    found = {f.outbox_seq: f for f in edits}
    assert list(found) == list(range(first, outbox_max(system) + 1))
    for seq, column in enumerate(columns, first):
        assert found[seq].detail.endswith(f": {column.name}")


def rewrite(system: System, content: list[dict[str, Any]]) -> None:
    """Put other content in the place of all of bronze, past every rule about nulls."""
    nullable = pa.schema([f.with_nullable(True) for f in BRONZE_EVENTS.arrow_schema()])
    table = pa.Table.from_pylist(content, schema=nullable)
    write_deltalake(delta(system), table, mode="overwrite", schema_mode="overwrite")


def everything(system: System) -> list[dict[str, Any]]:
    """Return all of bronze, in the order of outbox seqs."""
    found: list[dict[str, Any]] = (
        pa.RecordBatchReader.from_stream(delta(system).scan(columns=COLUMNS)).read_all().to_pylist()
    )
    return sorted(found, key=lambda row: row["outbox_seq"])


def test_a_value_of_any_column_that_became_null_is_noticed(system: System) -> None:
    names = [name for name in COLUMNS if name != "outbox_seq"]
    append(prepare(system), len(names))
    drain(system)
    first = outbox_max(system) - len(names) + 1
    content = everything(system)
    edited = {}
    for seq, name in enumerate(names, first):
        row = content[seq - 1]
        assert row["outbox_seq"] == seq
        if row[name] is not None:
            row[name], edited[seq] = None, name
    assert set(edited.values()) >= {c.name for c in BRONZE_EVENTS.columns if not c.nullable} - {
        "outbox_seq"
    }
    rewrite(system, content)
    found = findings(system)
    assert {f.difference for f in found} == {Difference.DIGEST_MISMATCH}
    assert {f.outbox_seq: f.detail.split(": ")[1] for f in found} == edited
    assert all(f.tenant_id and f.seq and f.event_id for f in found), "named as the journal does"


def test_an_outbox_seq_that_was_edited_is_a_row_too_many_and_one_that_is_missing(
    system: System,
) -> None:
    seq = drained(system)
    delta(system).update(updates={"outbox_seq": "1000000"}, predicate=f"outbox_seq = {seq}")
    assert [(f.difference, f.outbox_seq) for f in findings(system)] == [
        (Difference.MISSING_IN_LAKE, seq),
        (Difference.EXTRA_IN_LAKE, 1_000_000),
    ]


def test_a_row_without_an_outbox_seq_is_extra(system: System) -> None:
    seq = drained(system)
    content = everything(system)
    stray = content[seq - 1] | {"outbox_seq": None}
    rewrite(system, [*content, stray])
    (found,) = findings(system)
    assert (found.difference, found.outbox_seq) == (Difference.EXTRA_IN_LAKE, None)
    assert (found.tenant_id, found.seq, found.event_id) == (
        stray["tenant_id"],
        stray["seq"],
        stray["event_id"],
    )


def test_every_event_of_a_table_that_was_overwritten_with_less_is_missing(system: System) -> None:
    drained(system)
    rewrite(system, everything(system)[:3])
    assert [(f.difference, f.outbox_seq) for f in findings(system)] == [
        (Difference.MISSING_IN_LAKE, seq) for seq in range(4, outbox_max(system) + 1)
    ]
    rewrite(system, [])
    assert [f.outbox_seq for f in findings(system)] == list(range(1, outbox_max(system) + 1))


@pytest.mark.parametrize(
    ("column", "content"),
    [
        ("payload", "'{\"n\": 99}'"),
        ("principal", "'somebody else'"),
        ("occurred_at", "occurred_at - interval '1 day'"),
        ("hash", "sha256('another')"),
        ("entity_id", "'4711'"),
    ],
)
def test_an_event_that_a_superuser_edited_in_the_journal_is_noticed(
    system: System, column: str, content: str
) -> None:
    seq = drained(system)
    row = lake_row(system, seq).to_pylist()[0]
    unguarded(
        system,
        f"update oml.journal set {column} = {content} where event_id = %s",
        row["event_id"],
    )
    (found,) = findings(system)
    assert (found.difference, found.outbox_seq) == (Difference.DIGEST_MISMATCH, seq)
    assert found.event_id == row["event_id"]
    assert found.detail.endswith(f": {column}")


def test_events_that_swapped_their_outbox_seqs_are_out_of_order(system: System) -> None:
    seq = drained(system)
    first, second = lake_row(system, seq), lake_row(system, seq + 1)
    put_instead(system, seq, with_value(second, "outbox_seq", seq))
    put_instead(system, seq + 1, with_value(first, "outbox_seq", seq + 1))
    found = findings(system)
    assert (Difference.ORDER_INVERSION, seq + 1) in [(f.difference, f.outbox_seq) for f in found]
    mismatched = {f.outbox_seq for f in found if f.difference == Difference.DIGEST_MISMATCH}
    assert mismatched == {seq, seq + 1}


def test_events_that_were_queued_out_of_order_are_an_inversion_and_nothing_else(
    system: System,
) -> None:
    append(prepare(system), 6)
    seq = outbox_max(system) - 2
    unguarded(
        system,
        "update oml.outbox o set chain_seq = o.chain_seq + case o.seq when %s then 1 else -1 end"
        " where o.seq in (%s, %s)",
        seq,
        seq,
        seq + 1,
    )
    drain(system)
    (found,) = findings(system)
    assert (found.difference, found.outbox_seq) == (Difference.ORDER_INVERSION, seq + 1)


@pytest.mark.parametrize("seq", [0, -5, 10**12])
def test_a_row_outside_the_outbox_is_extra(system: System, seq: int) -> None:
    row = lake_row(system, drained(system))
    write_deltalake(delta(system), with_value(row, "outbox_seq", seq), mode="append")
    assert [(f.difference, f.outbox_seq) for f in findings(system)] == [
        (Difference.EXTRA_IN_LAKE, seq)
    ]


def test_a_copy_with_other_content_is_a_duplicate_and_a_mismatch(system: System) -> None:
    seq = drained(system)
    other = with_value(lake_row(system, seq), "principal", "somebody else")
    write_deltalake(delta(system), other, mode="append")
    assert {(f.difference, f.outbox_seq) for f in findings(system)} == {
        (Difference.DUPLICATE_IN_LAKE, seq),
        (Difference.DIGEST_MISMATCH, seq),
    }


def test_an_event_that_was_never_queued_is_missing(system: System) -> None:
    append(prepare(system), 5)
    seq = outbox_max(system) - 1
    chain_seq = value(system.superuser, "select chain_seq from oml.outbox where seq = %s", seq)
    unguarded(system, "delete from oml.outbox where seq = %s", seq)
    drain(system)
    assert summary(findings(system)) == [(Difference.MISSING_IN_LAKE, None, chain_seq)]


def test_an_event_whose_outbox_row_went_after_the_drain_is_extra_and_unqueued(
    system: System,
) -> None:
    seq = drained(system)
    unguarded(system, "delete from oml.outbox where seq = %s", seq)
    assert {f.difference for f in findings(system)} == {
        Difference.EXTRA_IN_LAKE,
        Difference.MISSING_IN_LAKE,
    }


def test_what_is_not_drained_yet_is_not_missing(system: System) -> None:
    drained(system)
    append(system.connect("app"), 4)
    assert findings(system) == []


def test_what_is_drained_while_the_judge_looks_is_not_missing(system: System) -> None:
    drained(system)
    with lake_writer(system) as writer:
        judge = BronzeJudge(writer.source, writer.open(BRONZE_EVENTS))
        append(system.connect("app"), 4)
        drain(system)
        assert list(judge.findings()) == []
        assert judge.compared == outbox_max(system)


def test_appends_and_drains_while_the_judge_looks_make_no_finding(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bronze, "_RANGE_ROWS", 7)
    tenants = ("acme", "globex")
    append(prepare(system, *tenants), 5, "acme")
    drain(system)
    reached: list[int] = []

    def write(tenant: str) -> None:
        with system.connect("app") as connection:
            append(connection, 150, tenant)

    with ThreadPoolExecutor(len(tenants)) as pool:
        writing = [pool.submit(write, tenant) for tenant in tenants]
        serving = system.start_oml("serve", env={"OML_POLL_INTERVAL_S": "0.01"})
        while not all(task.done() for task in writing) or len(reached) < 10:
            with lake_writer(system) as writer:
                judge = BronzeJudge(writer.source, writer.open(BRONZE_EVENTS))
                assert list(judge.findings()) == []
                reached.append(judge.compared)
            assert serving.poll() is None, serving.communicate()
        for task in writing:
            task.result()
    serving.terminate()
    assert serving.wait(timeout=PATIENCE_S) == 0
    assert reached[0] < reached[-1], "the lake grew meanwhile"
    drain(system)
    expect_exact(system)


def test_rows_of_a_commit_that_a_loss_of_power_left_empty_are_missing(system: System) -> None:
    append(prepare(system), 9)
    drain(system, batch_rows=4)
    lost = batches(system)[1]
    log = system.lake / BRONZE_EVENTS.location / "_delta_log"
    (log / f"{2:020}.json").write_bytes(b"")
    assert [(f.difference, f.outbox_seq) for f in findings(system)] == [
        (Difference.MISSING_IN_LAKE, seq) for seq in range(lost.frontier + 1, lost.end + 1)
    ]


def test_rows_that_a_crash_left_past_the_frontier_are_judged(system: System) -> None:
    drained(system)
    append(system.connect("app"), 4)
    killed = system.oml("lake", "drain", "--once", env={"OML_FAILPOINT": "batch.committed"})
    assert killed.returncode < 0
    assert findings(system) == []
    seq = outbox_max(system) - 1
    missing(system, seq)
    assert [(f.difference, f.outbox_seq) for f in findings(system)] == [
        (Difference.MISSING_IN_LAKE, seq)
    ]


def test_the_command_exits_0_when_all_is_equal_and_1_when_not(system: System) -> None:
    seq = drained(system)
    clean = system.oml("reconcile", "--json")
    assert clean.returncode == 0, clean.stderr
    report = json.loads(clean.stdout)
    assert report == {
        "ok": True,
        "compared": outbox_max(system),
        "accepted_lost": 0,
        "findings": [],
    }
    duplicate(system, seq)
    dirty = system.oml("reconcile", "--json")
    assert dirty.returncode == 1, dirty.stderr
    report = json.loads(dirty.stdout)
    assert (report["ok"], report["compared"]) == (False, outbox_max(system))
    (found,) = report["findings"]
    row = lake_row(system, seq).to_pylist()[0]
    assert found == {
        "difference": "duplicate-in-lake",
        "detail": "it is there 2 times",
        **{name: row[name] for name in ("outbox_seq", "tenant_id", "seq", "event_id")},
    }
    assert list(found) == [field.name for field in fields(Finding)]
    plain = system.oml("reconcile")
    assert plain.returncode == 1
    assert "duplicate-in-lake" in plain.stdout


def test_the_command_exits_2_when_it_cannot_compare(system: System) -> None:
    nothing = system.oml("reconcile", "--json")
    assert nothing.returncode == 2
    assert "not made yet" in json.loads(nothing.stderr)["error"]
    away = system.oml("reconcile", "--json", env={"OML_DSN": "host=/nonexistent"})
    assert away.returncode == 2
    assert json.loads(away.stderr)["hint"]


def test_the_command_exits_2_when_a_file_of_the_table_is_damaged_or_gone(system: System) -> None:
    drained(system)
    data = sorted((system.lake / BRONZE_EVENTS.location).glob("*.parquet"))
    data[0].write_bytes(b"no Parquet")
    data[1].unlink()
    done = system.oml("reconcile", "--json")
    assert done.returncode == 2, done.stdout
    assert "bronze.events cannot be read" in json.loads(done.stderr)["error"]
    assert json.loads(done.stderr)["hint"]


def test_who_only_looks_makes_no_table(system: System) -> None:
    append(prepare(system))
    assert system.oml("reconcile").returncode == 2
    status = system.oml("lake", "status", "--json")
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["tables"] == {table.name: None for table in TABLES}
    assert list(system.lake.iterdir()) == []
    assert value(system.superuser, "select count(*) from oml.lake_table") == 0


def test_an_auditor_may_look_and_not_drain(system: System) -> None:
    system.bind("auditor", "provider", ["audit"])
    seq = drained(system)
    assert system.oml("reconcile", user="auditor").returncode == 0
    status = system.oml("lake", "status", "--json", user="auditor")
    assert json.loads(status.stdout)["tables"]["bronze.events"] == outbox_max(system)
    missing(system, seq)
    assert system.oml("reconcile", user="auditor").returncode == 1
    append(system.connect("app"))
    before = delta(system).version()
    assert system.oml("lake", "drain", "--once", user="auditor").returncode == 2
    assert delta(system).version() == before
