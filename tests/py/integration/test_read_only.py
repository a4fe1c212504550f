"""Where nothing can be written an append says so, with its own SQLSTATE, and stores nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from catalog import contents
from oml.dev.cluster import Cluster
from oml.driver.connection import connect
from systems import Connection, System

APPEND = "select seq from oml_append('job.done', '{}')"


@pytest.fixture
def acme(system: System) -> System:
    """A system with tenant acme and an app bound to it."""
    system.superuser.execute("select oml_register_event_type('job.done')")
    system.make("acme")
    system.bind("app", "acme", ("append", "audit"))
    return system


@pytest.fixture
def standby(acme: System, open_dir: Path) -> Iterator[Cluster]:
    """A hot standby of the system's cluster that has replayed all there is."""
    copy = acme.cluster.standby(open_dir / "standby")
    try:
        copy.start()
        row = acme.superuser.execute("select pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        with connect(copy.dsn("postgres", acme.database), autocommit=True) as connection:
            replayed = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
            while connection.execute(replayed, row).fetchone() != (True,):
                pass
        yield copy
    finally:
        copy.destroy()


def refused(connection: Connection, statement: str, sqlstate: str) -> None:
    """Insist that the statement is refused with this SQLSTATE and a hint."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    assert caught.value.sqlstate == sqlstate
    assert caught.value.diag.message_hint


def test_an_append_on_a_standby_is_om050_and_stores_nothing(acme: System, standby: Cluster) -> None:
    acme.connect("app").execute(APPEND)
    before = contents(acme.superuser)
    with connect(standby.dsn("app", acme.database), autocommit=True) as app:
        for _ in range(2):
            refused(app, APPEND, "OM050")
        refused(app, "select oml_append('job.done', '{}', idempotency_key => 'k')", "OM050")
    with connect(standby.dsn("postgres", acme.database), autocommit=True) as superuser:
        refused(superuser, "select oml_genesis('again')", "OM050")
    assert contents(acme.superuser) == before
    assert acme.connect("app").execute(APPEND).fetchone() == (3,)


def test_a_standby_verifies(acme: System, standby: Cluster) -> None:
    with connect(standby.dsn("app", acme.database), autocommit=True) as app:
        verdict = app.execute("select ok, events from oml_verify_chain('acme')").fetchone()
    assert verdict == (True, 1)
    dsn = standby.dsn("postgres", acme.database)
    done = acme.oml("verify", "--json", "--dsn", dsn)
    assert done.returncode == 0, done.stderr
    assert [chain["tenant"] for chain in json.loads(done.stdout)["chains"]] == ["provider", "acme"]


def test_an_append_in_a_read_only_transaction_is_om051_and_stores_nothing(acme: System) -> None:
    before = contents(acme.superuser)
    app = acme.connect("app", autocommit=False)
    app.read_only = True
    refused(app, APPEND, "OM051")
    app.rollback()

    app.read_only = None
    app.execute("select 1")
    app.execute("set transaction read only")
    refused(app, APPEND, "OM051")
    app.rollback()

    app.execute("set default_transaction_read_only = on")
    app.commit()
    refused(app, APPEND, "OM051")
    app.rollback()
    assert contents(acme.superuser) == before


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_a_read_only_transaction_is_refused_at_every_isolation_level(
    acme: System, level: str
) -> None:
    app = acme.connect("app")
    app.execute(f"begin isolation level {level} read only".encode())
    refused(app, APPEND, "OM051")
    app.execute("rollback")
    assert app.execute(APPEND).fetchone() == (2,)


def test_a_genesis_in_a_read_only_transaction_is_om051(acme: System) -> None:
    superuser = acme.connect("postgres", autocommit=False)
    superuser.read_only = True
    refused(superuser, "select oml_genesis('again')", "OM051")


def test_a_session_that_was_read_only_appends_when_it_no_longer_is(acme: System) -> None:
    app = acme.connect("app")
    app.execute("set default_transaction_read_only = on")
    refused(app, APPEND, "OM051")
    app.execute("set default_transaction_read_only = off")
    assert app.execute(APPEND).fetchone() == (2,)
    verdict = acme.superuser.execute("select ok, events from oml_verify_chain('acme')").fetchone()
    assert verdict == (True, 2)
