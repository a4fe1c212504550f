"""Event types where sessions matter: what one backend remembers, and who comes first."""

import psycopg
import pytest

from systems import Connection, System

APPEND = "select seq from oml_append('job.done', %s)"
NEVER = '{"required": ["never"]}'


def register(connection: Connection, schema: str, version: int = 1) -> None:
    """Register a version of job.done with this JSON Schema."""
    connection.execute(
        "select oml_register_event_type('job.done', %s, %s::jsonb)", (version, schema)
    )


def refused(connection: Connection, payload: str = "{}") -> str:
    """Insist that an append is refused for its schema or its type, and return the SQLSTATE."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(APPEND, (payload,))
    return caught.value.sqlstate or ""


@pytest.fixture
def acme(system: System) -> System:
    """A system with tenant acme, to which the app and the superuser may append."""
    system.make("acme")
    system.bind("app", "acme")
    system.bind("postgres", "acme")
    return system


def test_a_schema_whose_registration_was_rolled_back_is_forgotten(acme: System) -> None:
    session = acme.connect("postgres", autocommit=False)
    register(session, NEVER)
    with session.transaction(force_rollback=True):
        assert refused(session) == "OM080"
    session.rollback()
    register(session, '{"required": ["other"]}')
    session.execute("savepoint registered")
    assert refused(session, '{"never": 1}') == "OM080"
    session.execute("rollback to registered")
    assert session.execute(APPEND, ('{"other": 1}',)).fetchone() == (2,)
    session.commit()
    app = acme.connect("app")
    assert refused(app) == "OM080"
    assert app.execute(APPEND, ('{"other": 1}',)).fetchone() == (3,)


def test_a_version_registered_by_another_session_counts_at_once(acme: System) -> None:
    app = acme.connect("app")
    register(acme.superuser, "{}")
    assert app.execute(APPEND, ("{}",)).fetchone() == (2,)
    register(acme.superuser, NEVER, 2)
    assert refused(app) == "OM080"
    acme.superuser.execute("select oml_retire_event_type('job.done', 2)")
    assert app.execute(APPEND, ("{}",)).fetchone() == (3,)
    acme.superuser.execute("select oml_retire_event_type('job.done')")
    assert refused(app) == "OM081"
    verdict = acme.superuser.execute("select ok, events from oml_verify_chain('acme')").fetchone()
    assert verdict == (True, 3)


def test_more_schemas_than_a_backend_keeps_are_applied_each_as_its_own(acme: System) -> None:
    app, versions = acme.connect("app"), range(1, 101)
    for version in versions:
        register(acme.superuser, f'{{"properties": {{"n": {{"const": {version}}}}}}}', version)
    append = "select seq from oml_append('job.done', %s, schema_version => %s)"
    for _ in range(2):
        for version in versions:
            app.execute(append, (f'{{"n": {version}}}', version))
            with pytest.raises(psycopg.Error) as caught:
                app.execute(append, (f'{{"n": {version - 1}}}', version))
            assert caught.value.sqlstate == "OM080"
    appended = "select array_agg(schema_version order by seq) from oml.journal where type = %s"
    assert acme.superuser.execute(appended, ("job.done",)).fetchone() == ([*versions] * 2,)


def test_of_two_sessions_that_register_one_version_one_is_refused(acme: System) -> None:
    first, second = (acme.connect("postgres", autocommit=False) for _ in range(2))
    second.execute("set lock_timeout = '100ms'")
    register(first, "{}")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        register(second, NEVER)
    second.rollback()
    first.commit()
    with pytest.raises(psycopg.Error) as caught:
        register(second, NEVER)
    assert caught.value.sqlstate == "OM018"


def test_a_type_retired_by_two_sessions_at_once_is_retired_once(acme: System) -> None:
    register(acme.superuser, "{}")
    first, second = (acme.connect("postgres", autocommit=False) for _ in range(2))
    retire = "select oml_retire_event_type('job.done')"
    second.execute("set lock_timeout = '100ms'")
    assert first.execute(retire).fetchone() == (True,)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        second.execute(retire)
    second.rollback()
    first.commit()
    assert second.execute(retire).fetchone() == (False,)
    second.commit()
    told = "select count(*) from oml.journal where type = 'event-type.retired'"
    assert acme.superuser.execute(told).fetchone() == (1,)
