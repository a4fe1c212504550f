"""Batches beside others: the order of their locks, and a catalogue that changes while they wait."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from oml.dev.cluster import SUPERUSER
from systems import Connection, System

BATCH = "select r.tenant_id, r.seq from oml_append_batch(%s) r"
LOCK = "select from oml.chain_head where tenant_id = %s for update"
Event = dict[str, Any]


def event(tenant: str, number: int, kind: str = "job.done", key: str | None = None) -> Event:
    """Return an event of a batch."""
    claims = {} if key is None else {"idempotency_key": key}
    return {"type": kind, "tenant": tenant, "payload": {"number": number}, **claims}


def batch(connection: Connection, *events: Event) -> list[int]:
    """Append a batch and return the seqs of its receipts."""
    rows = connection.execute(BATCH, (Jsonb(list(events)),)).fetchall()
    return [seq for _, seq in rows]


@pytest.fixture
def tenants(system: System) -> tuple[str, str]:
    """Two tenants of which the first has the lower chain_no and the higher id; app is in both."""
    system.superuser.execute("select oml_register_event_type('job.done')")
    made: list[UUID] = []
    while len(made) < 2 or made[-2] < made[-1]:
        made.append(system.make(f"tenant{len(made)}"))
    names = (f"tenant{len(made) - 2}", f"tenant{len(made) - 1}")
    for name in names:
        system.bind("app", name)
    return names


def tenant_id(system: System, name: str) -> UUID:
    """Return a tenant's id."""
    row = system.superuser.execute(
        "select tenant_id from oml.tenant where name = %s", (name,)
    ).fetchone()
    assert row is not None
    return UUID(str(row[0]))


def numbers(system: System, tenant: str) -> list[int]:
    """Return the numbers of the events of a chain, which must be whole, in its order."""
    verdict = system.superuser.execute(
        "select ok, reason from oml_verify_chain(%s)", (tenant,)
    ).fetchone()
    assert verdict == (True, None)
    rows = system.superuser.execute(
        "select (payload->>'number')::int from oml.journal where tenant_id = %s and seq > 1"
        " order by seq",
        (tenant_id(system, tenant),),
    ).fetchall()
    return [number for (number,) in rows]


@contextmanager
def waiting(system: System, tenant: str, *events: Event) -> Iterator[Future[list[int]]]:
    """Run a batch that waits for a chain, which is freed when the block ends."""
    holder = system.connect(SUPERUSER, autocommit=False)
    holder.execute(LOCK, (tenant_id(system, tenant),))
    app = system.connect("app")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(batch, app, *events)
        try:
            blocked = "select %s = any (pg_blocking_pids(%s))"
            pids = (holder.info.backend_pid, app.info.backend_pid)
            while system.superuser.execute(blocked, pids).fetchone() != (True,):
                assert not running.done(), running.exception()
            yield running
        finally:
            holder.rollback()


# --- the order of locks ----------------------------------------------------------------------


def test_chains_are_locked_by_chain_no_whatever_the_batch_names_first(
    system: System, tenants: tuple[str, str]
) -> None:
    first, second = tenants
    with waiting(system, first, event(second, 1), event(first, 2)) as running:
        system.superuser.execute(f"{LOCK} nowait".encode(), (tenant_id(system, second),))
    assert running.result() == [2, 2]


def test_crosswise_batches_never_wait_for_each_other_in_a_circle(
    system: System, tenants: tuple[str, str]
) -> None:
    def write(order: tuple[str, str]) -> None:
        with system.connect("app") as app:
            for number in range(25):
                batch(app, *(event(tenant, number) for tenant in order))

    orders = [tenants, (tenants[1], tenants[0])] * 3
    with ThreadPoolExecutor(len(orders)) as pool:
        for done in [pool.submit(write, order) for order in orders]:
            done.result()
    for tenant in tenants:
        assert sorted(numbers(system, tenant)) == sorted([*range(25)] * len(orders))


# --- a catalogue that changes meanwhile ------------------------------------------------------


def test_a_type_that_is_registered_while_the_batch_waits_changes_no_order(
    system: System, tenants: tuple[str, str]
) -> None:
    first, second = tenants
    events = event(first, 1), event(second, 2), event(second, 3, "job.late"), event(second, 4)
    with waiting(system, first, *events) as running:
        system.superuser.execute("select oml_register_event_type('job.late')")
    with pytest.raises(
        errors.SerializationFailure, match=r"event 3 .* catalogue changed"
    ) as caught:
        running.result()
    assert caught.value.diag.message_hint == "Run the transaction again."
    assert numbers(system, first) == numbers(system, second) == []
    assert batch(system.connect("app"), *events) == [2, 2, 3, 4]
    assert (numbers(system, first), numbers(system, second)) == ([1], [2, 3, 4])


def test_a_type_that_stays_unknown_while_the_batch_waits_is_refused_for_that(
    system: System, tenants: tuple[str, str]
) -> None:
    first, second = tenants
    with waiting(system, first, event(first, 1), event(second, 2, "job.late")) as running:
        pass
    with pytest.raises(psycopg.Error, match=r"event 2 .* 'job.late' is not reg"):
        running.result()
    assert numbers(system, first) == numbers(system, second) == []


def test_a_request_that_another_made_while_the_batch_waited_is_answered(
    system: System, tenants: tuple[str, str]
) -> None:
    first, second = tenants
    late = event(second, 2, "job.late", key="late")
    with waiting(system, first, event(first, 1), late, event(second, 3)) as running:
        system.superuser.execute("select oml_register_event_type('job.late')")
        assert batch(system.connect("app"), late) == [2]
    assert running.result() == [2, 2, 3]
    assert (numbers(system, first), numbers(system, second)) == ([1], [2, 3])


def test_a_key_of_one_of_several_principals_answers_nobody_who_chose_none(
    system: System, tenants: tuple[str, str]
) -> None:
    first, _ = tenants
    known = event(first, 1, key="known")
    app = system.connect("app")
    assert batch(app, known) == [2]
    system.superuser.execute("select oml_grant('app', %s, principal => 'eve')", (first,))
    with app.transaction():
        app.execute("select oml_use(principal => 'eve')")
        assert batch(app, known) == [3]
    with pytest.raises(psycopg.Error) as caught:
        batch(app, known)
    assert caught.value.sqlstate == "OM136"
    with app.transaction():
        app.execute("select oml_use(principal => 'app')")
        assert batch(app, known) == [2]
