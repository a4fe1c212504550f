"""A commit counts once standbys confirmed it, and no cancelled wait or lost connection does."""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from clusters import STANDBYS, Quorum, until
from oml.driver.commit import acknowledged, append
from oml.driver.events import Receipt
from oml.errors import DatabaseError, NotAcknowledged, UsageError
from systems import Connection, System

WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep' and pid = %s"


def prepare(system: Quorum) -> Quorum:
    """Make a tenant to which login app may append."""
    connection = system.connect()
    connection.execute("select oml_create_tenant('acme')")
    connection.execute("select oml_grant('app', 'acme')")
    connection.execute("select oml_register_event_type('note.added')")
    return system


def silence(system: Quorum) -> Quorum:
    """Stop both standbys: no commit is confirmed."""
    for name in STANDBYS:
        system.freeze(name)
    return system


@pytest.fixture
def ready(shared_trio: Quorum) -> Quorum:
    """A primary with two standbys, a tenant, and login app that may append to it."""
    return prepare(shared_trio)


@pytest.fixture
def silent(ready: Quorum) -> Quorum:
    """The same, with both standbys stopped."""
    return silence(ready)


class Running:
    """A call in a thread of its own: what it returned or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None

        def run() -> None:
            try:
                self.result = call()
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def end(self) -> "Running":
        """Wait until it has ended."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self


def waits(system: Quorum, connection: Connection) -> int:
    """Wait until a connection's backend waits for standbys; return its pid."""
    pid = connection.info.backend_pid
    assert until(lambda: system.value(None, WAITING, pid)) == pid
    return pid


def expect_lost(running: Running) -> None:
    """Insist that a call ended with a connection lost during COMMIT."""
    error = running.end().error
    assert isinstance(error, NotAcknowledged), error
    assert "lost during COMMIT" in error.message and error.disconnected


def events(system: Quorum) -> int:
    """Return how many events the tenant's chain has after its genesis, as the primary sees them."""
    query = "select count(*) from oml.journal where type = 'note.added'"
    row = system.connect().execute(query).fetchone()
    assert row is not None
    return int(row[0])


def test_an_append_returns_its_receipt_once_a_standby_has_it(ready: Quorum) -> None:
    connection = ready.connect(user="app")
    receipt = append(connection, "note.added", {"n": 1}, idempotency_key="1", operation="test")
    assert isinstance(receipt, Receipt) and receipt.seq == 2
    again = append(connection, "note.added", {"n": 1}, idempotency_key="1", operation="test")
    assert again == receipt


@pytest.mark.parametrize("shown", ["notice", "error"])
@pytest.mark.parametrize("autocommit", [True, False])
def test_a_cancelled_wait_is_no_acknowledgement(
    silent: Quorum, shown: str, autocommit: bool
) -> None:
    # The server answers COMMIT all the same, with a warning that a session may hide.
    connection = silent.connect(user="app", autocommit=autocommit)
    connection.execute(f"set client_min_messages = {shown}".encode())
    if not autocommit:
        connection.commit()
    running = Running(lambda: append(connection, "note.added", {}, idempotency_key="1"))
    pid = waits(silent, connection)
    assert silent.value(None, "select pg_cancel_backend(%s)", pid)
    error = running.end().error
    assert isinstance(error, NotAcknowledged) and isinstance(error, DatabaseError)
    assert error.sqlstate == "01000" and "synchronous replication" in error.message
    assert error.hint is not None and "same idempotency key" in error.hint
    assert events(silent) == 1, "it is there, on this server alone"

    # The retry waits too: what it returns is the first event, and its standbys have it.
    retry = Running(lambda: append(connection, "note.added", {}, idempotency_key="1"))
    waits(silent, connection)
    silent.thaw("s1")
    assert retry.end().error is None
    assert retry.result.seq == 2 and events(silent) == 1


def test_a_cancellation_by_the_client_itself_is_no_acknowledgement(silent: Quorum) -> None:
    connection = silent.connect(user="app")
    running = Running(lambda: append(connection, "note.added", {}, idempotency_key="1"))
    waits(silent, connection)
    connection.cancel_safe()
    assert isinstance(running.end().error, NotAcknowledged)


def test_a_connection_that_ends_during_the_wait_leaves_the_outcome_open(silent: Quorum) -> None:
    connection = silent.connect(user="app")
    running = Running(lambda: append(connection, "note.added", {}, idempotency_key="1"))
    assert silent.value(None, "select pg_terminate_backend(%s)", waits(silent, connection))
    expect_lost(running)


def test_a_server_that_dies_during_the_wait_leaves_the_outcome_open(trio: Quorum) -> None:
    silent = silence(prepare(trio))
    connection = silent.connect(user="app")
    running = Running(lambda: append(connection, "note.added", {}, idempotency_key="1"))
    waits(silent, connection)
    silent.kill_primary()
    expect_lost(running)


def test_a_connection_that_ends_before_the_commit_has_committed_nothing(ready: Quorum) -> None:
    connection = ready.connect(user="app")
    with pytest.raises(psycopg.OperationalError), acknowledged(connection):
        connection.execute("select oml_append('note.added', '{}')")
        ready.value(None, "select pg_terminate_backend(%s, 10000)", connection.info.backend_pid)
        connection.execute("select")
    assert events(ready) == 0


def test_a_commit_that_is_refused_is_refused_and_not_in_doubt(ready: Quorum) -> None:
    owner = ready.connect()
    owner.execute("create table twice (n int primary key deferrable initially deferred)")
    owner.execute("grant all on twice to app")
    connection = ready.connect(user="app")
    with pytest.raises(DatabaseError) as caught, acknowledged(connection):
        connection.execute("select oml_append('note.added', '{}')")
        connection.execute("insert into twice values (1), (1)")
    assert caught.value.sqlstate == "23505" and not isinstance(caught.value, NotAcknowledged)
    assert events(ready) == 0


def test_a_failed_transaction_whose_error_was_swallowed_is_no_commit(ready: Quorum) -> None:
    connection = ready.connect(user="app")
    with pytest.raises(DatabaseError) as caught, acknowledged(connection):
        connection.execute("select oml_append('note.added', '{}')")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 1/0")
    assert caught.value.sqlstate == "25P02" and not isinstance(caught.value, NotAcknowledged)
    assert events(ready) == 0


def test_an_exception_inside_rolls_back_and_passes(ready: Quorum) -> None:
    connection = ready.connect(user="app")
    with pytest.raises(KeyError), acknowledged(connection):
        connection.execute("select oml_append('note.added', '{}')")
        raise KeyError
    assert events(ready) == 0


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_transaction_within_a_transaction_cannot_be_acknowledged(
    ready: Quorum, autocommit: bool
) -> None:
    connection = ready.connect(user="app", autocommit=autocommit)
    with acknowledged(connection), pytest.raises(UsageError), acknowledged(connection):
        pass


def test_a_warning_of_a_deferred_trigger_is_no_doubt(ready: Quorum) -> None:
    owner = ready.connect()
    owner.execute(
        "create table odd (n int);"
        "create function warn() returns trigger language plpgsql"
        " as $$ begin raise warning 'odd'; return null; end $$;"
        "create constraint trigger warn after insert on odd deferrable initially deferred"
        " for each row execute function warn(); grant all on odd to app"
    )
    connection = ready.connect(user="app")
    with acknowledged(connection):
        connection.execute("insert into odd values (1)")


def test_a_refused_retry_that_gets_its_first_receipt_waits_for_standbys(silent: Quorum) -> None:
    # The type was retired after the first commit, whose wait was cut short. The retry writes no
    # event; its commit must not count before the first one's does.
    connection, owner = silent.connect(user="app"), silent.connect()
    running = Running(lambda: append(connection, "note.added", {}, idempotency_key="1"))
    silent.value(None, "select pg_cancel_backend(%s)", waits(silent, connection))
    assert isinstance(running.end().error, NotAcknowledged)
    owner.execute("set synchronous_commit = local")
    owner.execute("select oml_retire_event_type('note.added', 1)")

    def bare() -> Any:
        row = connection.execute(
            "select (oml_append('note.added', '{}', idempotency_key => '1')).seq"
        ).fetchone()
        assert row is not None
        return row[0]

    retry = Running(bare)
    waits(silent, connection)
    silent.thaw("s2")
    assert retry.end().error is None and retry.result == 2


def test_a_level_given_holds_for_the_transaction_and_is_what_the_event_states(
    silent: Quorum,
) -> None:
    connection = silent.connect(user="app")
    receipt = append(connection, "note.added", {}, idempotency_key="1", synchronous_commit="local")
    stated = silent.connect().execute(
        "select synchronous_commit from oml.journal where event_id = %s", (receipt.event_id,)
    )
    assert stated.fetchone() == ("local",)
    row = connection.execute("show synchronous_commit").fetchone()
    assert row == ("on",), "of that transaction alone"


def test_one_server_without_standbys_acknowledges_its_own_disk(system: System) -> None:
    system.superuser.execute("select oml_register_event_type('note.added')")
    system.make("acme")
    system.bind("app", "acme")
    receipt = append(system.connect("app"), "note.added", '{"n": 1}', idempotency_key="1")
    assert receipt.seq == 2
