"""A dump is a whole copy: it restores without an error, verifies, is guarded, and goes on."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from catalog import contents, shape
from forge import read_key
from oml.dev.cluster import Cluster
from oml.driver.connection import connect
from restores import WAYS, custom, drop_database, make_database, run
from systems import LOGINS, SETTINGS, Connection, System, make_login

RESTORED = "restored"


@pytest.fixture
def bare_cluster(open_dir: Path) -> Iterator[Cluster]:
    """A cluster that has never heard of OML: no roles, no extension, no keys of its own."""
    cluster = Cluster(open_dir / "second")
    cluster.create(SETTINGS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.destroy()


@pytest.fixture
def used(system: System) -> System:
    """A system with some history: two tenants, keys, a rolled-back number, a moved frontier."""
    superuser = system.superuser
    superuser.execute(
        "select oml_register_event_type('invoice.exported', required_keys => '{number}',"
        ' json_schema => \'{"properties": {"price": {"minimum": 0, "multipleOf": 0.05}}}\','
        " state_keys => '{price,text}')"
    )
    for tenant in ("acme", "globex"):
        system.make(tenant)
        system.bind("app", tenant, ("append", "audit"))
    app = system.connect("app", autocommit=False)
    for number in range(20):
        append(app, number, ("acme", "globex")[number % 2], f"key-{number}")
        app.rollback() if number % 5 == 4 else app.commit()
    superuser.execute("update oml.frontier set seq = 3 where name = 'lake'")
    return system


def append(
    connection: Connection, number: int, tenant: str = "acme", key: str | None = None
) -> tuple[int, bytes]:
    """Append one event; return its seq and hash."""
    row = connection.execute(
        "select seq, hash from oml_append("
        "'invoice.exported', %s, tenant => %s, idempotency_key => %s,"
        " entity_type => 'article', entity_id => 'ä')",
        (Jsonb({"number": number, "price": 1.50, "text": "Zoë"}), tenant, key),
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def last_number(connection: Connection) -> int:
    """Return the highest outbox seq that was ever drawn here."""
    row = connection.execute("select last_value from oml.outbox_seq").fetchone()
    assert row is not None
    number = row[0]
    assert isinstance(number, int)
    return number


def expect_proved(connection: Connection) -> None:
    """Insist that all chains verify."""
    verdicts = connection.execute(
        "select t.name, v.ok, v.reason from oml.tenant t, oml_verify_chain(t.name) v"
    ).fetchall()
    assert sorted(verdicts) == [(n, True, None) for n in ("acme", "globex", "provider")]


def expect_folded(connection: Connection) -> None:
    """Insist that entities are there and are what the journal makes of them."""
    counts = connection.execute("select count(*) from oml.entity").fetchone()
    assert counts == (2,)
    assert connection.execute("select * from oml_fold_check()").fetchall() == []


def expect_a_working_copy(used: System, copy: Cluster, database: str) -> None:
    """Insist that the copy is the same, proved and guarded, and that appends go on in it."""
    original = used.superuser
    with (
        connect(copy.dsn(dbname=database), autocommit=True) as superuser,
        connect(copy.dsn("app", database), autocommit=True) as app,
    ):
        assert shape(superuser) == shape(original)
        assert contents(superuser) == contents(original)
        expect_proved(superuser)
        expect_folded(superuser)
        expect_guarded(superuser)

        expect_closed(superuser, app)
        superuser.execute("select oml_adopt('the original is given up')")
        numbers, (seq, _) = last_number(original), append(used.connect("app"), 98)
        assert append(app, 98)[0] == seq
        assert append(app, 99)[0] == seq + 1
        first = append(app, 3, "globex", "key-3")
        assert first == append(used.connect("app"), 3, "globex", "key-3")
        queued = superuser.execute(
            "select array_agg(o.seq order by o.seq) from oml.outbox o where o.seq > %s", (numbers,)
        ).fetchone()
        assert queued == ([numbers + 1, numbers + 2, numbers + 3],)
        assert superuser.execute("select * from oml_fold_check()").fetchall() == []
        superuser.execute("select oml_create_tenant('hooli')")
        verdict = superuser.execute("select ok from oml_verify_chain('hooli')").fetchone()
        assert verdict == (True,)
        verdict = superuser.execute("select ok from oml_verify_chain('acme')").fetchone()
        assert verdict == (True,)

    root_key = read_key(used.key_file).public_key.hex()
    dsn = copy.dsn(dbname=database)
    done = used.oml("verify", "--dsn", dsn, "--root-key", root_key)
    assert done.returncode == 0, done.stdout + done.stderr


def expect_closed(superuser: Connection, app: Connection) -> None:
    """Insist that nothing can be appended to the copy as it is, and that it says what it is."""
    with pytest.raises(psycopg.Error) as caught:
        append(app, 97)
    assert caught.value.sqlstate == "OM160"
    assert "logical copy" in str(caught.value)
    state = superuser.execute("select is_open, state from oml_gate_status()").fetchone()
    assert state == (False, "copy")


def expect_guarded(superuser: Connection) -> None:
    """Insist that every trigger is on, always, and that a superuser's edit is refused.

    All but the guard of commits, which is production's.
    """
    states = superuser.execute(
        "select distinct t.tgname = 'guard_commit', t.tgenabled::text"
        " from pg_trigger t join pg_class c on c.oid = t.tgrelid"
        " where c.relnamespace = 'oml'::regnamespace and not t.tgisinternal order by 1"
    ).fetchall()
    assert states == [(False, "A"), (True, "D")]
    for role in ("origin", "replica"):
        superuser.execute(f"set session_replication_role = {role}".encode())
        for statement in (
            "update oml.journal set principal = 'mallory'",
            "delete from oml.journal",
            "truncate oml.journal cascade",
            "delete from oml.outbox",
        ):
            with pytest.raises(psycopg.Error) as caught:
                superuser.execute(statement.encode())
            assert caught.value.sqlstate == "OM060"
    superuser.execute("reset session_replication_role")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_dump_restores_into_another_database_of_its_cluster(
    used: System, tmp_path: Path, way: Callable[[str, str, Path], None]
) -> None:
    database = f"{used.database}_copy"
    make_database(used.cluster, database)
    try:
        way(used.dsn("postgres"), used.cluster.dsn(dbname=database), tmp_path)
        expect_a_working_copy(used, used.cluster, database)
    finally:
        drop_database(used.cluster, database)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_dump_restores_into_a_cluster_without_our_roles(
    used: System, bare_cluster: Cluster, tmp_path: Path, way: Callable[[str, str, Path], None]
) -> None:
    make_database(bare_cluster, RESTORED)
    way(used.dsn("postgres"), bare_cluster.dsn(dbname=RESTORED), tmp_path)
    make_login(bare_cluster, "app", LOGINS["app"])
    expect_a_working_copy(used, bare_cluster, RESTORED)


def test_a_restore_leaves_no_table_and_no_schema_to_the_extension(
    used: System, tmp_path: Path
) -> None:
    database = f"{used.database}_copy"
    make_database(used.cluster, database)
    try:
        custom(used.dsn("postgres"), used.cluster.dsn(dbname=database), tmp_path)
        with connect(used.cluster.dsn(dbname=database), autocommit=True) as superuser:
            before = contents(superuser)
            superuser.execute("drop extension oml cascade")
            assert contents(superuser) == before
    finally:
        drop_database(used.cluster, database)


def test_a_dump_of_a_system_whose_extension_was_made_again_is_as_whole(
    used: System, bare_cluster: Cluster, tmp_path: Path
) -> None:
    used.superuser.execute("drop extension oml cascade")
    used.superuser.execute("create extension oml")
    make_database(bare_cluster, RESTORED)
    custom(used.dsn("postgres"), bare_cluster.dsn(dbname=RESTORED), tmp_path)
    make_login(bare_cluster, "app", LOGINS["app"])
    expect_a_working_copy(used, bare_cluster, RESTORED)


def test_a_dump_taken_while_events_are_appended_restores_whole_chains(
    used: System, tmp_path: Path
) -> None:
    database = f"{used.database}_copy"
    make_database(used.cluster, database)
    writer, dumped = used.connect("app"), threading.Event()
    written: list[tuple[int, bytes]] = []

    def write() -> None:
        while not dumped.is_set():
            for tenant in ("acme", "globex"):
                written.append(append(writer, len(written), tenant))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        run("pg_dump", "-Fc", "-f", tmp_path / "dump", "-d", used.dsn("postgres"))
    finally:
        dumped.set()
        thread.join()
    try:
        run("pg_restore", "-d", used.cluster.dsn(dbname=database), tmp_path / "dump")
        with (
            connect(used.cluster.dsn(dbname=database), autocommit=True) as superuser,
            connect(used.cluster.dsn("app", database), autocommit=True) as app,
        ):
            expect_proved(superuser)
            superuser.execute("select oml_adopt('the original is given up')")
            append(app, 0)
            expect_proved(superuser)
    finally:
        drop_database(used.cluster, database)


def test_a_restored_copy_without_the_key_verifies_and_appends_nothing(
    used: System, bare_cluster: Cluster, tmp_path: Path
) -> None:
    make_database(bare_cluster, RESTORED)
    custom(used.dsn("postgres"), bare_cluster.dsn(dbname=RESTORED), tmp_path)
    make_login(bare_cluster, "app", LOGINS["app"])
    with (
        connect(bare_cluster.dsn(dbname=RESTORED), autocommit=True) as superuser,
        connect(bare_cluster.dsn("app", RESTORED), autocommit=True) as app,
    ):
        gone = bare_cluster.directory / "gone.key"
        superuser.execute(
            "update oml.setting set value = %s where name = 'signer'", (f"file:{gone}",)
        )
        before = contents(superuser)
        expect_closed(superuser, app)
        with pytest.raises(psycopg.Error) as caught:
            superuser.execute("select oml_adopt('the original is given up')")
        assert caught.value.sqlstate == "OM030"
        assert contents(superuser) == before
        expect_proved(superuser)
