"""The fixtures keep their promises: tests stand alone and leave nothing behind."""

from oml.dev.cluster import Cluster
from oml.driver.connection import connect
from systems import System


def test_systems_start_alike_and_apart(system: System) -> None:
    assert system.superuser.execute("select name from oml.tenant").fetchall() == [("provider",)]
    system.make("acme")
    system.bind("app", "acme")


def test_systems_start_alike_and_apart_again(system: System) -> None:
    test_systems_start_alike_and_apart(system)


def test_a_system_is_dropped_with_prepared_transactions_slots_and_sessions(
    cluster: Cluster, system: System
) -> None:
    with System(cluster, "oml_left", system.lake / "left") as left:
        session = left.connect("app")
        left.superuser.execute("select pg_create_logical_replication_slot('left', 'pgoutput')")
        left.superuser.execute("begin; create table public.t (); prepare transaction 'left'")
        login = left.make_login("visitor", "oml_writer")
        assert login == "visitor"
    assert session.closed
    with connect(cluster.dsn(), autocommit=True) as connection:
        query = """select
            exists (select from pg_database where datname = 'oml_left'),
            exists (select from pg_roles where rolname = 'visitor'),
            exists (select from pg_prepared_xacts), exists (select from pg_replication_slots)"""
        assert connection.execute(query.encode()).fetchone() == (False,) * 4


def test_the_command_line_runs_on_the_system(system: System) -> None:
    done = system.oml("version")
    assert done.returncode == 0, done.stderr
    environment = system.environment("app", {"OML_BATCH_ROWS": "7"})
    assert environment["OML_DSN"] == system.dsn("app")
    assert environment["OML_LAKE_URL"] == system.lake_url
    assert environment["OML_BATCH_ROWS"] == "7"
    process = system.start_oml("version")
    assert process.wait(timeout=60) == 0


def test_a_private_system_survives_a_kill_of_its_server(private_system: System) -> None:
    private_system.make("acme")
    private_system.cluster.kill()
    private_system.cluster.start()
    tenants = private_system.connect("postgres").execute("select name from oml.tenant")
    assert sorted(tenants.fetchall()) == [("acme",), ("provider",)]
