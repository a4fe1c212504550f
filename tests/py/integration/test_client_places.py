"""Where a client may be: in its caller's transaction, behind a pooler, shared, closed, refused."""

import logging
from typing import Any

import pytest

import oml
from clients import AREA, BODY, Running, Stage, refused
from oml.driver.client import Client
from oml.errors import DatabaseError, UsageError
from pooler import Pooler


def test_threads_share_a_client_one_call_at_a_time(plain: Stage) -> None:
    client = plain.client()
    running = [Running(lambda: client.append("note.added", {})) for _ in range(8)]
    assert len({r.end().seq for r in running}) == 8


def test_in_a_transaction_of_the_callers_own_the_caller_commits(plain: Stage) -> None:
    connection = plain.system.connect("app")
    with Client.on(connection) as mine:
        with connection.transaction():
            appended = mine.append("note.added", {"n": 1})
            made = mine.submit(AREA, BODY, "text/plain", "observed", encrypt="client")
            assert plain.count("note.added") == 0 == plain.count("submission.submit")
        assert plain.count("note.added") == 1 == plain.count("submission.submit")
        keyless = (
            "select count(*) from oml.journal where idempotency_key is null and event_id = any(%s)"
        )
        assert plain.value(keyless, [appended.event_id, made.event_id]) == 2
        with pytest.raises(ZeroDivisionError), connection.transaction():
            mine.append("note.added", {"n": 2})
            raise ZeroDivisionError
        assert plain.count("note.added") == 1
        with pytest.raises(UsageError, match="no transaction"):
            mine.append("note.added", {"n": 3})
        with connection.transaction():
            assert [o.artifact_id for o in mine.my_submissions()] == [made.artifact_id]
    assert not connection.closed, "it is the caller's"
    other = plain.system.connect("app", autocommit=False)
    Client.on(other).append("note.added", {"n": 4})
    other.rollback()
    assert plain.count("note.added") == 1


def test_in_a_transaction_of_the_callers_own_nothing_is_tried_again(plain: Stage) -> None:
    connection = plain.system.connect("app")
    mine = Client.on(connection)
    made = plain.client().submit(AREA, BODY, "text/plain", "observed")
    holder = plain.hold()

    def again(client: Any) -> Any:
        return client.submit(AREA, BODY, "text/plain", "observed", artifact=made.artifact_id)

    def in_mine() -> Any:
        with connection.transaction():
            return again(mine)

    other = Running(lambda: again(plain.client()))
    plain.waiting(1)  # it is the first in the lock's queue
    late = Running(in_mine)
    plain.waiting(2)
    holder.rollback()
    assert other.end().version == 2
    assert refused(late.end) == "40001"
    with pytest.raises(DatabaseError), connection.transaction():
        plain.value("select pg_terminate_backend(%s, 10000)", connection.info.backend_pid)
        mine.append("note.added", {})
    assert plain.count("note.added") == 0


def test_a_principal_is_chosen_in_the_callers_transaction(plain: Stage) -> None:
    plain.system.superuser.execute("select oml_grant('app', 'acme', '{append}', 'robot')")
    connection = plain.system.connect("app")
    with connection.transaction():
        receipt = Client.on(connection, tenant="acme", principal="robot").append("note.added", {})
    who = "select principal from oml.journal where event_id = %s"
    assert plain.value(who, receipt.event_id) == "robot"


def test_a_closed_client_says_so(plain: Stage) -> None:
    author = plain.client()
    author.close()
    with pytest.raises(UsageError, match="closed"):
        author.append("note.added", {})


def test_a_server_that_refuses_a_login_is_not_asked_again(
    plain: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "oml.driver")
    with pytest.raises(DatabaseError, match="does not exist"):
        plain.client("nobody_of_this_name")
    with pytest.raises(UsageError):
        oml.connect("")
    author = plain.client()
    ended = (
        "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity where usename = 'app'"
    )
    plain.system.superuser.execute("alter role app nologin")
    try:
        assert plain.value(ended) == 1
        with pytest.raises(DatabaseError, match=r"not permitted to log in|terminating"):
            author.append("note.added", {})
    finally:
        plain.system.superuser.execute("alter role app login")
    assert len(caplog.records) <= 1, "the loss itself was looked into once"


def test_clients_of_one_login_share_a_poolers_connection(stage: Stage) -> None:
    # The second one's statements would meet those that the first had prepared.
    system = stage.system
    other = system.make("globex")
    system.superuser.execute("select oml_grant('app', 'globex', '{append}', 'robot')")
    system.superuser.execute("select oml_grant('app', 'globex', '{append}', 'clerk')")
    with Pooler(system.cluster, ["app"]) as pooler:
        dsn = pooler.dsn("app", system.database)
        ann = stage.client(dsn=dsn, tenant="acme")
        bob = stage.client(dsn=dsn, tenant="globex", principal="robot")
        for n in range(8):
            assert ann.append("note.added", {"n": n}).tenant_id == stage.tenant_id
            receipt = bob.append("note.added", {"n": n})
            assert receipt.tenant_id == other
        made = ann.submit(AREA, BODY, "text/plain", "observed", encrypt="client")
        assert ann.fetch(made.artifact_id).content == BODY
        who = "select principal from oml.journal where event_id = %s"
        assert stage.value(who, receipt.event_id) == "robot"
        servers = (
            "select count(*) from pg_stat_activity"
            " where usename = 'app' and datname = current_database()"
        )
        assert stage.value(servers) == 1
