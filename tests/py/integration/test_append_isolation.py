"""Writers of every isolation level on one chain: 40001 or success, never a fork."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.types.json import Jsonb

from systems import Connection, System

THREADS = 8
EVENTS_EACH = 6
ATTEMPTS = 1000  # far more than any run needs: a writer that never gets through must end

RC, RR, SER = (
    IsolationLevel.READ_COMMITTED,
    IsolationLevel.REPEATABLE_READ,
    IsolationLevel.SERIALIZABLE,
)
LEVELS = [
    pytest.param([RC], id="read committed"),
    pytest.param([RR], id="repeatable read"),
    pytest.param([SER], id="serializable"),
    pytest.param([RC, RR, SER], id="all mixed"),
]
SNAPSHOTS = [pytest.param(RR, id="repeatable read"), pytest.param(SER, id="serializable")]

Receipt = tuple[uuid.UUID, int, uuid.UUID, bytes]


@pytest.fixture
def acme(system: System) -> System:
    """A system with tenants acme and globex and an app bound to both."""
    system.superuser.execute("select oml_register_event_type('job.done')")
    for tenant in ("acme", "globex"):
        system.make(tenant)
        system.bind("app", tenant)
    return system


def append(
    connection: Connection, number: int, key: str | None = None, tenant: str = "acme"
) -> Receipt:
    """Append one event in the connection's transaction."""
    row = connection.execute(
        "select r.tenant_id, r.seq, r.event_id, r.hash from oml_append("
        "'job.done', %s, tenant => %s, idempotency_key => %s) r",
        (Jsonb({"number": number}), tenant, key),
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2], row[3]


def append_batch(
    connection: Connection, number: int, key: str | None = None, tenant: str = "acme"
) -> Receipt:
    """Append one event as a batch, with the same outcome."""
    event = {"type": "job.done", "payload": {"number": number}, "tenant": tenant}
    row = connection.execute(
        "select r.tenant_id, r.seq, r.event_id, r.hash from oml_append_batch(%s) r",
        (Jsonb([event | {"idempotency_key": key}]),),
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2], row[3]


Verb = Callable[..., Receipt]
VERBS = [pytest.param(append, id="single"), pytest.param(append_batch, id="batch")]


def take_snapshot(connection: Connection) -> None:
    """Run a query, so that the transaction has its snapshot."""
    connection.execute("select count(*) from pg_catalog.pg_class")


def open_at(system: System, level: IsolationLevel) -> Connection:
    """Connect as the app at this isolation level, with explicit transactions."""
    connection = system.connect("app", autocommit=False)
    connection.isolation_level = level
    return connection


def expect_chain(system: System, tenant: str, numbers: list[int]) -> None:
    """Insist that the chain is whole and holds just these events behind its genesis event."""
    superuser = system.superuser
    rows = superuser.execute(
        "select j.seq, j.payload->'number' from oml.journal j join oml.tenant t using (tenant_id)"
        " where t.name = %s order by j.seq",
        (tenant,),
    ).fetchall()
    assert [seq for seq, _ in rows] == list(range(1, len(numbers) + 2))
    assert sorted(number for _, number in rows[1:]) == sorted(numbers)
    verdict = superuser.execute(
        "select ok, events, reason from oml_verify_chain(%s)", (tenant,)
    ).fetchone()
    assert verdict == (True, len(numbers) + 1, None)
    outbox = superuser.execute(
        "select array_agg(o.chain_seq order by o.seq) from oml.outbox o join oml.tenant t"
        " using (tenant_id) where t.name = %s",
        (tenant,),
    ).fetchone()
    assert outbox == (list(range(1, len(numbers) + 2)),)


@dataclass
class Outcome:
    """What one writer got: its receipts, and the SQLSTATEs of the attempts that failed."""

    receipts: list[Receipt]
    failures: list[str | None]


def write(
    connection: Connection,
    start: threading.Barrier,
    numbers: list[int],
    key: str | None,
    verb: Verb,
) -> Outcome:
    """Append each number in a transaction of its own, again and again until it is in.

    All writers take their first snapshot before any of them appends.
    """
    outcome = Outcome([], [])
    for place, number in enumerate(numbers):
        for attempt in range(ATTEMPTS):
            try:
                take_snapshot(connection)
                if place == 0 and attempt == 0:
                    start.wait()
                receipt = verb(connection, number, key)
                connection.commit()
                outcome.receipts.append(receipt)
                break
            except psycopg.Error as error:
                outcome.failures.append(error.sqlstate)
                connection.rollback()
        else:
            pytest.fail(f"event {number} did not get in within {ATTEMPTS} attempts")
    return outcome


def write_all(
    system: System,
    levels: list[IsolationLevel],
    numbers: list[list[int]],
    verb: Verb,
    key: str | None = None,
) -> list[Outcome]:
    """Run one writer a list of numbers, their isolation levels in turn."""
    start = threading.Barrier(len(numbers))
    connections = [open_at(system, level) for level in islice(cycle(levels), len(numbers))]
    with ThreadPoolExecutor(len(numbers)) as pool:
        running = [
            pool.submit(write, connection, start, own, key, verb)
            for connection, own in zip(connections, numbers, strict=True)
        ]
        return [future.result() for future in running]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("levels", LEVELS)
def test_writers_on_one_tenant_fail_with_40001_alone_and_all_get_through_by_retrying(
    acme: System, levels: list[IsolationLevel], verb: Verb
) -> None:
    numbers = [list(range(t * EVENTS_EACH, (t + 1) * EVENTS_EACH)) for t in range(THREADS)]
    outcomes = write_all(acme, levels, numbers, verb)
    failures = [state for outcome in outcomes for state in outcome.failures]
    assert set(failures) <= {"40001"}
    if levels == [RC]:
        assert failures == []
    elif RC not in levels:
        # All had the snapshot in which the chain holds one event: of those one alone can append.
        assert len(failures) >= THREADS - 1
    receipts = [receipt for outcome in outcomes for receipt in outcome.receipts]
    assert len({seq for _, seq, _, _ in receipts}) == THREADS * EVENTS_EACH
    expect_chain(acme, "acme", [number for own in numbers for number in own])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("levels", LEVELS)
def test_writers_with_one_idempotency_key_make_one_event_and_all_get_its_receipt(
    acme: System, levels: list[IsolationLevel], verb: Verb
) -> None:
    outcomes = write_all(acme, levels, [[7] for _ in range(THREADS)], verb, key="the one")
    failures = [state for outcome in outcomes for state in outcome.failures]
    assert set(failures) <= {"40001"}
    if RC not in levels:
        assert len(failures) >= THREADS - 1
    assert len({receipt for outcome in outcomes for receipt in outcome.receipts}) == 1
    expect_chain(acme, "acme", [7])


@pytest.mark.parametrize("levels", LEVELS)
def test_writers_with_one_key_and_different_requests_store_one_of_them(
    acme: System, levels: list[IsolationLevel]
) -> None:
    start = threading.Barrier(THREADS)

    def attempt(connection: Connection, number: int) -> int | str | None:
        start.wait()
        for _ in range(ATTEMPTS):
            try:
                append(connection, number, "the one")
                connection.commit()
                return number
            except psycopg.Error as error:
                connection.rollback()
                if error.sqlstate != "40001":
                    return error.sqlstate
        return None

    connections = [open_at(acme, level) for level in islice(cycle(levels), THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(attempt, connections, range(THREADS)))
    stored = [result for result in results if isinstance(result, int)]
    assert len(stored) == 1
    assert results.count("OM014") == THREADS - 1
    expect_chain(acme, "acme", stored)


# --- stale snapshots, one by one -------------------------------------------------------------


def refused(
    connection: Connection, number: int, key: str | None = None, verb: Verb = append
) -> None:
    """Insist that an append fails with 40001 and a hint to retry, and roll back."""
    with pytest.raises(psycopg.errors.SerializationFailure) as caught:
        verb(connection, number, key)
    assert caught.value.sqlstate == "40001"
    connection.rollback()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("level", SNAPSHOTS)
def test_an_append_on_a_stale_snapshot_is_40001_and_succeeds_when_run_again(
    acme: System, level: IsolationLevel, verb: Verb
) -> None:
    stale = open_at(acme, level)
    take_snapshot(stale)
    append(acme.connect("app"), 1)
    refused(stale, 2, verb=verb)
    verb(stale, 2)
    stale.commit()
    expect_chain(acme, "acme", [1, 2])


@pytest.mark.parametrize("level", SNAPSHOTS)
def test_a_stale_snapshot_stays_stale_behind_a_savepoint(
    acme: System, level: IsolationLevel
) -> None:
    stale = open_at(acme, level)
    take_snapshot(stale)
    append(acme.connect("app"), 1)
    for _ in range(2):
        with pytest.raises(psycopg.errors.SerializationFailure), stale.transaction():
            append(stale, 2)
    stale.rollback()
    expect_chain(acme, "acme", [1])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("level", SNAPSHOTS)
def test_a_key_that_a_stale_snapshot_cannot_see_is_40001_and_found_when_run_again(
    acme: System, level: IsolationLevel, verb: Verb
) -> None:
    stale = open_at(acme, level)
    take_snapshot(stale)
    first = append(acme.connect("app"), 1, "the one")
    refused(stale, 1, "the one", verb)
    assert verb(stale, 1, "the one") == first
    stale.commit()
    expect_chain(acme, "acme", [1])


@pytest.mark.parametrize("level", SNAPSHOTS)
def test_a_key_used_before_the_snapshot_is_found_though_the_chain_has_grown(
    acme: System, level: IsolationLevel
) -> None:
    app = acme.connect("app")
    first = append(app, 1, "the one")
    stale = open_at(acme, level)
    take_snapshot(stale)
    append(app, 2)
    assert append(stale, 1, "the one") == first
    stale.commit()
    expect_chain(acme, "acme", [1, 2])


def test_a_snapshot_is_stale_for_the_chain_that_grew_alone(acme: System) -> None:
    stale = open_at(acme, RR)
    take_snapshot(stale)
    append(acme.connect("app"), 1)
    append(stale, 2, tenant="globex")
    stale.commit()
    expect_chain(acme, "acme", [1])
    expect_chain(acme, "globex", [2])


@pytest.mark.parametrize("level", SNAPSHOTS)
def test_a_transaction_sees_its_own_appends(acme: System, level: IsolationLevel) -> None:
    own = open_at(acme, level)
    take_snapshot(own)
    seqs = [append(own, number)[1] for number in range(3)]
    own.commit()
    assert seqs == [2, 3, 4]
    expect_chain(acme, "acme", [0, 1, 2])


@pytest.mark.parametrize(
    ("table", "which"),
    [
        ("journal", "new.type = 'job.done' and new.payload->>'number' = '2'"),
        ("outbox", "new.chain_seq % 2 = 1"),
        ("outbox", "new.target = 'gold.jobs'"),
        ("entity", "new.entity_id = '2'"),
    ],
)
def test_an_event_that_was_not_stored_whole_has_no_receipt(
    acme: System, table: str, which: str
) -> None:
    acme.superuser.execute(
        "create function skip() returns trigger language plpgsql as 'begin return null; end';"
        f" create trigger skip before insert on oml.{table} for each row"
        f" when ({which}) execute function skip();"
        "insert into oml.event_type (type, targets)"
        " values ('job.sold', '{bronze.events,gold.jobs}')".encode()
    )
    app = acme.connect("app")
    about = "tenant => 'acme', entity_type => 'job', entity_id"
    lost = "job.sold" if "gold" in which else "job.done"
    if "chain_seq" in which:
        append(app, 1)  # event 2: the next one's row in the outbox is swallowed
    with pytest.raises(psycopg.Error, match="was not stored whole"):
        app.execute(f"select oml_append(%s, '{{\"number\": 2}}', {about} => '2')".encode(), (lost,))
    events = [
        {
            "type": lost, "payload": {"number": n}, "tenant": "acme", "entity_type": "job",
            "entity_id": str(n),
        }
        for n in (1, 2, 3)
    ]  # fmt: skip
    with pytest.raises(psycopg.Error, match="was not stored whole"):
        app.execute("select oml_append_batch(%s)", (Jsonb(events),))
    expect_chain(acme, "acme", [1] if "chain_seq" in which else [])
    assert acme.superuser.execute("select * from oml_fold_check()").fetchall() == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_key_whose_row_has_no_digest_is_refused(acme: System, verb: Verb) -> None:
    """A superuser alone can leave such a row: it is nobody's request."""
    app = acme.connect("app")
    append(app, 1, "k")
    acme.superuser.execute(
        "alter table oml.journal disable trigger guard_rows;"
        "update oml.journal set request_digest = null where idempotency_key = 'k';"
        "alter table oml.journal enable always trigger guard_rows"
    )
    with pytest.raises(psycopg.Error) as caught:
        verb(app, 2, "k")
    assert caught.value.sqlstate == "OM014"


# --- behind the lock -------------------------------------------------------------------------


@contextmanager
def behind_the_lock(
    system: System, holder: Connection, level: IsolationLevel
) -> Iterator[Future[Any]]:
    """Append 2 at this level in a thread, which waits for the holder's lock when this yields."""
    waiter = open_at(system, level)

    def append_and_commit() -> Receipt:
        receipt = append(waiter, 2)
        waiter.commit()
        return receipt

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(append_and_commit)
        blocked = "select %s = any (pg_blocking_pids(%s))"
        pids = (holder.info.backend_pid, waiter.info.backend_pid)
        while system.superuser.execute(blocked, pids).fetchone() != (True,):
            assert not future.done(), future.exception()
        yield future


@pytest.mark.parametrize("level", [pytest.param(RC, id="read committed"), *SNAPSHOTS])
def test_a_writer_behind_the_lock_goes_on_when_the_holder_rolls_back(
    acme: System, level: IsolationLevel
) -> None:
    holder = open_at(acme, RC)
    append(holder, 1)
    with behind_the_lock(acme, holder, level) as waiting:
        holder.rollback()
        assert waiting.result()[1] == 2
    expect_chain(acme, "acme", [2])


def test_a_read_committed_writer_behind_the_lock_follows_the_holders_event(acme: System) -> None:
    holder = open_at(acme, RC)
    append(holder, 1)
    with behind_the_lock(acme, holder, RC) as waiting:
        holder.commit()
        assert waiting.result()[1] == 3
    expect_chain(acme, "acme", [1, 2])


@pytest.mark.parametrize("level", SNAPSHOTS)
def test_a_writer_whose_snapshot_is_older_than_the_lock_is_40001(
    acme: System, level: IsolationLevel
) -> None:
    holder = open_at(acme, RC)
    append(holder, 1)
    with behind_the_lock(acme, holder, level) as waiting:
        holder.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            waiting.result()
    expect_chain(acme, "acme", [1])
