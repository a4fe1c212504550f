import psycopg
import pytest

from oml.driver.connection import connect
from oml.errors import DatabaseError, from_postgres
from systems import System

RAISE = """do $$ begin
  raise exception using errcode = '{}', message = 'no such thing', hint = {};
end $$"""


def refusal(system: System, statement: str) -> DatabaseError:
    with pytest.raises(psycopg.Error) as caught:
        system.superuser.execute(statement.encode())
    return from_postgres(caught.value)


def test_an_error_of_ours_keeps_sqlstate_message_and_hint(system: System) -> None:
    error = refusal(system, RAISE.format("OM003", "'make it'"))
    assert (error.sqlstate, error.message, error.hint) == ("OM003", "no such thing", "make it")
    assert not error.retryable
    assert not error.disconnected
    assert error.exit_code == 2


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_lost_race_is_retryable(system: System, sqlstate: str) -> None:
    error = refusal(system, RAISE.format(sqlstate, "''"))
    assert error.retryable
    assert "again" in (error.hint or "")


def test_a_database_without_oml_hints_at_its_installation(system: System) -> None:
    with (
        connect(system.cluster.dsn(), autocommit=True) as connection,
        pytest.raises(psycopg.Error) as caught,
    ):
        connection.execute("select oml_verify_chain('acme')")
    assert "CREATE EXTENSION oml" in (from_postgres(caught.value).hint or "")


def test_a_session_that_was_ended_is_disconnected(system: System) -> None:
    connection = system.connect("app")
    system.superuser.execute("select pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.Error) as caught:
        connection.execute("select 1")
    assert from_postgres(caught.value).disconnected


def test_a_server_that_is_not_there_is_an_error_with_a_hint() -> None:
    with pytest.raises(DatabaseError, match="No such file") as caught:
        connect("host=/nonexistent dbname=oml")
    assert caught.value.disconnected
    assert "--dsn" in (caught.value.hint or "")


def test_a_dsn_that_does_not_parse_is_an_error() -> None:
    with pytest.raises(DatabaseError, match="missing"):
        connect("nonsense")


def test_a_login_that_does_not_exist_is_an_error(system: System) -> None:
    with pytest.raises(DatabaseError, match="nobody_here"):
        connect(system.dsn("nobody_here"))


def test_the_libpq_variables_are_used_without_a_dsn(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(system.dsn("app"))
    for key, name in {"host": "PGHOST", "port": "PGPORT", "dbname": "PGDATABASE"}.items():
        monkeypatch.setenv(name, str(parts[key]))
    monkeypatch.setenv("PGUSER", "app")
    with connect() as connection:
        assert connection.info.user == "app"
        assert connection.info.dbname == system.database
        assert connection.info.get_parameters()["fallback_application_name"] == "oml"
