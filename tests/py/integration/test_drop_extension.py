"""DROP EXTENSION takes code, never data, and no session writes an event past the outbox."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from catalog import contents, shape
from systems import Connection, System

APPEND = "select seq from oml_append('job.done', '{}')"
DROP = "drop extension oml cascade"
CREATE = "create extension oml"
ROUNDS = 5
GONE = {"42883", "42704", "42P01", "3F000"}  # a function, type or table that is not there


@pytest.fixture
def acme(system: System) -> System:
    """A system with tenant acme, an app bound to it, and three events."""
    system.superuser.execute("select oml_register_event_type('job.done')")
    system.make("acme")
    system.bind("app", "acme")
    system.connect("app").execute(APPEND)
    system.connect("app").execute(APPEND)
    system.superuser.execute("set client_min_messages = error")  # CASCADE lists what it takes
    return system


def unqueued(system: System) -> int:
    """Count the events that have no outbox row."""
    row = system.superuser.execute(
        "select count(*) from oml.journal j where not exists (select from oml.outbox o"
        " where (o.tenant_id, o.chain_seq) = (j.tenant_id, j.seq))"
    ).fetchone()
    assert row is not None
    count = row[0]
    assert isinstance(count, int)
    return count


def expect_chain(system: System, events: int) -> None:
    """Insist that the chain of acme is proved, has so many events, and all are queued."""
    verdict = system.superuser.execute(
        "select ok, events, reason from oml_verify_chain('acme')"
    ).fetchone()
    assert verdict == (True, events, None)
    assert unqueued(system) == 0


def says_gone(error: psycopg.Error) -> bool:
    """Whether the error says that something was dropped; PostgreSQL has several ways to say so."""
    return error.sqlstate in GONE or (
        error.sqlstate == "XX000"
        and str(error).startswith(("cache lookup failed for", "could not open relation with OID"))
    )


def refused(connection: Connection, statement: str = APPEND) -> None:
    """Insist that an append fails because there is nothing to append with."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    assert caught.value.sqlstate in GONE, caught.value


def test_dropping_and_making_the_extension_again_restores_everything_exactly(acme: System) -> None:
    superuser = acme.superuser
    before, rows = shape(superuser), contents(superuser)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        superuser.execute("drop extension oml")

    superuser.execute(DROP)
    assert contents(superuser) == rows
    without = shape(superuser)
    assert without["triggers"] == []
    assert without["functions"] == []
    assert without["policies"] == before["policies"]
    assert without["relations"] == before["relations"]

    superuser.execute(CREATE)
    assert shape(superuser) == before
    superuser.execute("select oml_attach()")
    assert shape(superuser) == before
    assert contents(superuser) == rows


def test_the_first_append_after_create_extension_writes_its_outbox_row(acme: System) -> None:
    acme.superuser.execute(DROP)
    acme.superuser.execute(CREATE)
    assert acme.connect("app").execute(APPEND).fetchone() == (4,)
    expect_chain(acme, 4)


def test_a_session_from_before_fails_while_the_extension_is_gone_and_then_goes_on(
    acme: System,
) -> None:
    connected = acme.connect("app")
    assert connected.execute(APPEND).fetchone() == (4,)
    connected.execute("prepare again as select seq from oml_append('job.done', '{}')")
    connected.execute("execute again")
    rows = contents(acme.superuser)

    acme.superuser.execute(DROP)
    for _ in range(2):
        refused(connected)
        refused(connected, "execute again")
    assert contents(acme.superuser) == rows

    acme.superuser.execute(CREATE)
    assert connected.execute(APPEND).fetchone() == (6,)
    assert connected.execute("execute again").fetchone() == (7,)
    assert acme.superuser.execute("select oml_create_tenant('globex') is null").fetchone() == (
        False,
    )
    expect_chain(acme, 7)


def test_the_extension_is_not_dropped_under_an_open_append(acme: System) -> None:
    writer = acme.connect("app", autocommit=False)
    writer.execute(APPEND)
    superuser = acme.superuser
    superuser.execute("set lock_timeout = '100ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        superuser.execute(DROP)
    superuser.execute("reset lock_timeout")
    writer.execute(APPEND)
    writer.commit()
    superuser.execute(DROP)
    superuser.execute(CREATE)
    expect_chain(acme, 5)


@contextmanager
def behind_the_drop(acme: System, dropper: Connection) -> Iterator[Future[None]]:
    """Append in a thread of a session from before, which waits for the drop when this yields."""
    writer = acme.connect("app")
    writer.execute(APPEND)
    dropper.execute(DROP)

    def append() -> None:
        writer.execute(APPEND)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(append)
        blocked = "select %s = any (pg_blocking_pids(%s))"
        pids = (dropper.info.backend_pid, writer.info.backend_pid)
        while acme.superuser.execute(blocked, pids).fetchone() != (True,):
            assert not future.done(), future.exception()
        yield future


def test_an_append_that_waited_for_the_drop_fails_and_stores_nothing(acme: System) -> None:
    dropper = acme.connect("postgres", autocommit=False)
    dropper.execute("set client_min_messages = error")
    with behind_the_drop(acme, dropper) as waiting:
        dropper.commit()
        with pytest.raises(psycopg.Error) as caught:
            waiting.result()
    assert says_gone(caught.value)
    acme.superuser.execute(CREATE)
    expect_chain(acme, 4)


def test_an_append_that_waited_for_a_drop_rolled_back_succeeds(acme: System) -> None:
    dropper = acme.connect("postgres", autocommit=False)
    dropper.execute("set client_min_messages = error")
    with behind_the_drop(acme, dropper) as waiting:
        dropper.rollback()
        waiting.result()
    expect_chain(acme, 5)


def test_an_append_that_waited_for_drop_and_create_in_one_transaction_is_queued_or_fails(
    acme: System,
) -> None:
    dropper = acme.connect("postgres", autocommit=False)
    dropper.execute("set client_min_messages = error")
    with behind_the_drop(acme, dropper) as waiting:
        dropper.execute(CREATE)
        dropper.commit()
        try:
            waiting.result()
            events = 5
        except psycopg.Error as error:
            assert says_gone(error), error
            events = 4
    expect_chain(acme, events)


def make(connection: Connection) -> None:
    """Make the extension if it is gone, though sessions hold locks it needs."""
    while True:
        with contextlib.suppress(psycopg.errors.DeadlockDetected):
            connection.execute("create extension if not exists oml")
            return


def test_writers_never_append_past_the_outbox_while_the_extension_comes_and_goes(
    acme: System,
) -> None:
    over = threading.Event()

    def write(connection: Connection) -> int:
        stored = 0
        while not over.is_set():
            try:
                connection.execute(APPEND)
                stored += 1
            except psycopg.errors.DeadlockDetected:
                continue
            except psycopg.Error as error:
                assert says_gone(error), error
        return stored

    writers = [acme.connect("app") for _ in range(3)]
    dropper = acme.superuser
    dropper.execute("set deadlock_timeout = '50ms'")
    with ThreadPoolExecutor(len(writers)) as pool:
        running = [pool.submit(write, writer) for writer in writers]
        try:
            for _ in range(ROUNDS):
                with contextlib.suppress(psycopg.errors.DeadlockDetected):
                    dropper.execute(DROP)
                make(dropper)
                with dropper.transaction():
                    # What every append reads first: behind this lock a drop meets no deadlock.
                    dropper.execute("lock table oml.membership")
                    dropper.execute(DROP)
                make(dropper)
        finally:
            over.set()
        stored = sum(future.result() for future in running)
    expect_chain(acme, 3 + stored)
