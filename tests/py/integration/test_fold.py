"""Entities under many writers: folded once an event, whoever comes first and whoever gives up."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.types.json import Jsonb

from systems import Connection, System

WRITERS = 8
APPENDS = 120
APPEND = (
    "select seq from oml_append('job.done', %s, tenant => %s,"
    " entity_type => 'job', entity_id => %s)"
)


@pytest.fixture
def two(system: System) -> System:
    """A system with two tenants to which the app may append."""
    system.superuser.execute("select oml_register_event_type('job.done', state_keys => '{n,by}')")
    for tenant in ("acme", "globex"):
        system.make(tenant)
        system.bind("app", tenant)
    return system


def differences(connection: Connection) -> list[tuple[object, ...]]:
    """Return what oml_fold_check finds."""
    return connection.execute("select * from oml_fold_check()").fetchall()


def test_eight_writers_on_few_entities_fold_to_what_the_journal_says(two: System) -> None:
    over = threading.Event()
    isolations = ("read committed", "repeatable read", "serializable")

    def write(number: int) -> int:
        chance, stored = random.Random(number), 0
        connection = two.connect("app", autocommit=False)
        for n in range(APPENDS):
            connection.execute(f"begin isolation level {isolations[number % 3]}".encode())
            # One tenant a transaction: two would lock their chains in any order.
            tenant, events = chance.choice(("acme", "globex")), chance.randint(1, 3)
            try:
                for _ in range(events):
                    job = str(chance.randint(1, 3))
                    connection.execute(APPEND, (Jsonb({"n": n, "by": number}), tenant, job))
                if chance.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    stored += events
            except psycopg.errors.SerializationFailure:
                connection.rollback()
        return stored

    def check() -> int:
        connection, checks = two.connect("postgres"), 0
        while not over.is_set():
            assert differences(connection) == []
            checks += 1
        return checks

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        checking = pool.submit(check)
        try:
            stored = sum(pool.map(write, range(WRITERS)))
        finally:
            over.set()
        assert checking.result() > 0

    assert stored > APPENDS
    assert differences(two.superuser) == []
    counted = "select sum(event_count)::int, count(*)::int from oml.entity"
    assert two.superuser.execute(counted).fetchone() == (stored, 6)
    events = "select count(*)::int from oml.journal where entity_id is not null"
    assert two.superuser.execute(events).fetchone() == (stored,)


def test_a_transaction_prepared_and_rolled_back_leaves_no_trace(two: System) -> None:
    session = two.connect("app", autocommit=False)
    session.execute(APPEND, (Jsonb({"n": 1}), "acme", "1"))
    session.commit()
    transaction = session.xid(1, "fold", "test")
    session.tpc_begin(transaction)
    session.execute(APPEND, (Jsonb({"n": 2}), "acme", "1"))
    session.execute(APPEND, (Jsonb({"n": 2}), "acme", "2"))
    session.tpc_prepare()
    assert differences(two.superuser) == []
    session.tpc_rollback()
    session.execute(APPEND, (Jsonb({"n": 3}), "acme", "1"))
    session.commit()
    assert differences(two.superuser) == []
    state = "select entity_id, event_count, state from oml.entity"
    assert two.superuser.execute(state).fetchall() == [("1", 2, {"n": 3})]
