"""What is read ahead of a batch changes nothing: not its bounds, not its rows, not what fails."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakes import (
    KIND,
    append,
    batches,
    drain,
    expect_contiguous,
    expect_exact,
    frontier,
    lake_writer,
    outbox_max,
    prepare,
    rows,
    value,
    wait_until,
)
from oml.dev.cluster import SUPERUSER
from oml.errors import DatabaseError
from oml.lake import ahead as ahead_module
from oml.lake.ahead import Ahead
from oml.lake.schema import BRONZE_EVENTS
from oml.lake.source import Reader, Source, rows_of
from oml.lake.table import Bounds, LakeUnavailable, OpenTable
from systems import System

SEED = 17
BLOCK = "select pg_sleep(3600)"


@pytest.fixture(autouse=True)
def pieces_of_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in pieces so small that a few events make a batch of several."""
    monkeypatch.setattr(ahead_module, "_PIECE_ROWS", 2)


@pytest.fixture
def sessions(system: System) -> Iterator[None]:
    """Insist that no reader's thread and no session is left behind."""
    query = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and backend_type = 'client backend' and usename = session_user"
    )
    prepare(system)
    before = value(system.superuser, query)
    yield
    wait_until(system, f"select 1 where ({query}) <= %s", before)
    assert [t.name for t in threading.enumerate() if t.name.startswith("oml-lake-reader")] == []


def fail_from(monkeypatch: pytest.MonkeyPatch, seq: int, query: str) -> None:
    """Have the server run ``query`` in place of each read that goes beyond this outbox seq."""
    read = Reader.batch

    def fail(self: Reader, after: int, upto: int, max_rows: int, max_bytes: int) -> pa.Table:
        return self.fetch(query) if upto > seq else read(self, after, upto, max_rows, max_bytes)

    monkeypatch.setattr(Reader, "batch", fail)


def of_sizes(system: System, sizes: list[int]) -> None:
    """Append events with payloads of about these sizes; some numbers of the outbox stay unused."""
    app = system.connect("app")
    for number, size in enumerate(sizes):
        if number % 7 == 3:
            with app.transaction(force_rollback=True):
                append(app, 1 + number % 5)
        app.execute(
            "select oml_append(%s, jsonb_build_object('text', %s::text))", (KIND, "x" * size)
        )


def test_whatever_the_limits_the_batches_are_the_outbox_in_order(system: System) -> None:
    prepare(system)
    choose = random.Random(SEED)
    of_sizes(system, [choose.choice((1, 200, 3000)) for _ in range(40)])
    last = outbox_max(system)
    with Source(system.dsn(SUPERUSER)) as source:
        want = source.rows(BRONZE_EVENTS, 0, last)
        largest = max(want["bytes"].to_pylist())
        for max_rows in (1, 2, 3, 5, 8, 1000):
            for max_bytes in (1, 1000, 9000, 2**30):
                with Ahead(source, 0, last, max_rows, max_bytes) as ahead:
                    found = list(ahead)
                expect_contiguous([batch.bounds for batch in found])
                assert pa.concat_tables([rows_of(BRONZE_EVENTS, b.rows) for b in found]).equals(
                    want
                )
                for batch in found:
                    seqs = batch.rows["outbox_seq"].to_pylist()
                    assert batch.bounds.frontier < seqs[0] <= seqs[-1] == batch.bounds.end
                    assert len(seqs) <= max_rows
                    sizes = batch.rows["bytes"].to_pylist()
                    assert len(sizes) == 1 or sum(sizes) <= max_bytes + largest
        with Ahead(source, 0, last, 1000, 2**30) as ahead:
            assert [batch.bounds for batch in ahead] == [Bounds(0, last)]
        with Ahead(source, last, last, 1000, 2**30) as ahead:
            assert list(ahead) == []


def test_a_gap_of_any_size_is_one_step(system: System) -> None:
    app = prepare(system)
    append(app, 3)
    before = outbox_max(system)
    system.superuser.execute("select setval('oml.outbox_seq', %s)", (before + 10**9,))
    append(app, 3)
    report = drain(system, batch_rows=4)
    assert report.frontier == before + 10**9 + 3
    expect_exact(system)
    expect_contiguous(batches(system))


def test_both_batches_together_keep_to_the_bytes(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(system)
    of_sizes(system, [3000] * 60)
    lock, held, most = threading.Lock(), dict[int, int](), 0
    read = Reader.batch

    def count(self: Reader, *arguments: int) -> pa.Table:
        nonlocal most
        found = read(self, *arguments)
        with lock:
            held.update(
                zip(found["outbox_seq"].to_pylist(), found["bytes"].to_pylist(), strict=True)
            )
            most = max(most, sum(held.values()))
        return found

    monkeypatch.setattr(Reader, "batch", count)
    monkeypatch.setattr(ahead_module, "_PIECE_ROWS", 1000)
    limit = 60_000
    with lake_writer(system, batch_bytes=limit) as writer:
        applied = 0

        def forget(reached: int, _: int) -> None:
            """Count a batch no more once it is applied."""
            nonlocal applied
            with lock:
                for seq in [seq for seq in held if seq <= reached]:
                    del held[seq]
                applied += 1

        writer.drain(forget)
    expect_exact(system)
    assert applied > 5, "it was one batch: the test proved nothing"
    assert 0 < most <= limit


@pytest.mark.usefixtures("sessions")
def test_a_reader_that_fails_stops_the_drain_behind_the_batches_before(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(system.connect("app"), 12)
    with monkeypatch.context() as patch:
        fail_from(patch, 6, "select 1 / 0")
        with pytest.raises(DatabaseError) as failed:
            drain(system, batch_rows=3)
    assert failed.value.sqlstate == "22012"
    expect_contiguous(batches(system))
    assert [row[0] for row in rows(system)] == list(range(1, frontier(system) + 1))
    assert frontier(system) == 6
    drain(system, batch_rows=3)
    expect_exact(system)
    expect_contiguous(batches(system))


@pytest.mark.usefixtures("sessions")
def test_a_session_that_is_ended_while_it_reads_is_a_lost_database(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(system.connect("app"), 12)
    with monkeypatch.context() as patch:
        fail_from(patch, 6, "select pg_terminate_backend(pg_backend_pid())")
        with pytest.raises(DatabaseError) as failed:
            drain(system, batch_rows=3)
    assert failed.value.passing
    assert frontier(system) == 6
    drain(system, batch_rows=3)
    expect_exact(system)


@pytest.mark.usefixtures("sessions")
def test_an_event_that_is_gone_stops_the_drain_at_its_batch(system: System) -> None:
    append(system.connect("app"), 12)
    gone = value(system.superuser, "select chain_seq from oml.outbox where seq = 8")
    system.superuser.execute("alter table oml.journal disable trigger user")
    system.superuser.execute(
        "delete from oml.journal j using oml.outbox o where o.seq = 8"
        " and j.tenant_id = o.tenant_id and j.seq = %s",
        (gone,),
    )
    with pytest.raises(DatabaseError) as failed:
        drain(system, batch_rows=3)
    assert failed.value.sqlstate == "OM063"
    assert [row[0] for row in rows(system)] == list(range(1, 7))


@pytest.mark.usefixtures("sessions")
@pytest.mark.parametrize("at", [1, 2])
def test_nothing_is_written_behind_a_batch_whose_commit_failed(
    system: System, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    append(system.connect("app"), 12)
    append_to_delta = OpenTable.append
    tried: list[Bounds] = []

    def fail(self: OpenTable, found: pa.Table, bounds: Bounds, **others: Any) -> None:
        tried.append(bounds)
        if len(set(tried)) == at:
            raise OSError("the store is away")
        append_to_delta(self, found, bounds, **others)

    with monkeypatch.context() as patch:
        patch.setattr(OpenTable, "append", fail)
        with pytest.raises(LakeUnavailable, match="the store is away"):
            drain(system, batch_rows=3)
    assert len(set(tried)) == at
    assert frontier(system) == 3 * (at - 1)
    drain(system, batch_rows=3)
    expect_exact(system)
    expect_contiguous(batches(system))


@pytest.mark.usefixtures("sessions")
def test_a_drain_that_is_overtaken_forgets_what_it_read(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(system.connect("app"), 12)
    append_to_delta = OpenTable.append
    rival: list[Any] = []

    def after_a_rival(self: OpenTable, found: pa.Table, bounds: Bounds, **others: Any) -> None:
        if not rival:
            rival.append(bounds)
            rival.append(drain(system, batch_rows=5))
        append_to_delta(self, found, bounds, **others)

    monkeypatch.setattr(OpenTable, "append", after_a_rival)
    report = drain(system, batch_rows=3)
    assert rival[1].batches > 1
    assert sum(report.rows.values()) == 0
    expect_exact(system)
    expect_contiguous(batches(system))


@pytest.mark.usefixtures("sessions")
def test_a_stop_does_not_wait_for_what_is_being_read(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(system.connect("app"), 12)
    with monkeypatch.context() as patch:
        fail_from(patch, 3, BLOCK)
        with lake_writer(system, batch_rows=3) as writer:
            reads = f"select 1 from pg_stat_activity where position('{BLOCK}' in query) > 0"
            others = f"{reads} and pid <> pg_backend_pid()"
            report = writer.drain(stop=lambda: bool(wait_until(system, others)))
            assert (report.batches, report.frontier) == (1, 3)
            patch.undo()
            writer.drain()  # with readers that were not cancelled
    expect_exact(system)
    expect_contiguous(batches(system))
