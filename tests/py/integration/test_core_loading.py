"""Code that the server's environment could slip in never runs beside the signing key."""

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from catalog import contents
from oml.dev import programs
from oml.dev.cluster import Cluster
from systems import System

APPEND = "select seq from oml_append('job.done', '{}')"
# What the core and PyNaCl import, directly or in turn; none of it is loaded when Python starts.
IMPORTED = (
    *("base64", "binascii", "decimal", "hashlib", "json", "random", "secrets", "uuid"),
    *("selectors", "signal", "socket", "struct", "threading"),
    *("_cffi_backend", "cffi", "six"),
)


@contextmanager
def served_with(cluster: Cluster, environment: dict[str, str]) -> Iterator[None]:
    """Run the cluster's server with additions to its environment, as an init script could."""
    socket_dir = psycopg.conninfo.conninfo_to_dict(cluster.dsn())["host"]
    owner = cluster.account
    cluster.stop()
    switch = owner.uid != os.geteuid()
    with cluster.log_file.open("ab") as log:
        server = subprocess.Popen(
            [
                *(programs.find().path("postgres"), "-D", str(cluster.data)),
                *("-c", f"unix_socket_directories={socket_dir}"),
            ],
            env={"PATH": "/usr/bin:/bin", "HOME": owner.home, "LANG": "C.UTF-8"} | environment,
            user=owner.uid if switch else None,
            group=owner.gid if switch else None,
            extra_groups=[] if switch else None,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        while cluster.pid() is None:
            assert server.poll() is None, cluster.log_file.read_text()
        cluster.start()  # waits until it is ready
        assert cluster.pid() == server.pid
        yield
    finally:
        cluster.stop()
        server.wait()


# What jsonschema imports beside that.
IMPORTED_BY_JSONSCHEMA = (
    *("attr", "attrs", "pyrsistent", "fractions", "numbers", "urllib", "http", "ssl", "requests"),
    *("idna", "fqdn", "rfc3987", "webcolors", "jsonpointer", "uri_template", "isoduration"),
)
REGISTER = """select oml_register_event_type('job.checked', json_schema => '{"required": ["n"]}')"""
CHECKED = "select seq from oml_append('job.checked', %s)"


@pytest.fixture
def acme(private_system: System) -> System:
    """A system of its own with tenant acme and an app bound to it."""
    private_system.superuser.execute("select oml_register_event_type('job.done')")
    private_system.make("acme")
    private_system.bind("app", "acme")
    private_system.forget_places()
    return private_system


class Trap:
    """A directory of modules that leave a mark when their code runs."""

    def __init__(self, system: System, directory: Path) -> None:
        self.directory = directory
        self.marks = directory / "marks"
        owner = system.cluster.account
        self.marks.mkdir(parents=True)
        os.chown(self.marks, owner.uid, owner.gid)

    def package(self, name: str, under: str = "modules") -> Path:
        """Make a package that marks its import; return the directory to search."""
        path = self.directory / under / name
        path.mkdir(parents=True)
        code = f"open({str(self.marks / name)!r}, 'w').close()\n"
        (path / "__init__.py").write_text(code)
        (path / "bindings.py").write_text(code)
        return path.parent

    def sprung(self) -> list[str]:
        """Name the modules whose code ran."""
        return sorted(mark.name for mark in self.marks.iterdir())


def by_pythonpath(trap: Trap, name: str) -> dict[str, str]:
    """Lay the trap in PYTHONPATH."""
    return {"PYTHONPATH": str(trap.package(name))}


def by_home(trap: Trap, name: str) -> dict[str, str]:
    """Lay the trap in the user's own site directory."""
    trap.package(name, "home/.local/lib/python3.11/site-packages")
    return {"HOME": str(trap.directory / "home")}


WAYS: list[Callable[[Trap, str], dict[str, str]]] = [by_pythonpath, by_home]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_shadowed_nacl_is_om037_and_its_code_does_not_run(
    acme: System, open_dir: Path, way: Callable[[Trap, str], dict[str, str]]
) -> None:
    trap = Trap(acme, open_dir / "trap")
    before = contents(acme.superuser)
    with served_with(acme.cluster, way(trap, "nacl")):
        for statement, user in (
            (APPEND, "app"),
            (APPEND, "app"),
            ("select oml_create_tenant('globex')", "postgres"),
            ("select * from oml_verify_chain('acme')", "postgres"),
        ):
            with (
                psycopg.connect(acme.dsn(user), autocommit=True) as connection,
                pytest.raises(psycopg.Error) as caught,
            ):
                connection.execute(statement.encode())
            assert caught.value.sqlstate == "OM037", caught.value
            assert str(trap.directory) in str(caught.value)
        assert trap.sprung() == []
    acme.cluster.start()
    with psycopg.connect(acme.dsn("postgres")) as connection:
        after = contents(connection)
        del before["chain_no"], after["chain_no"]  # a sequence does not roll back
        assert after == before
    with psycopg.connect(acme.dsn("app")) as connection:
        assert connection.execute(APPEND).fetchone() == (2,)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_session_that_was_refused_stays_refused(
    acme: System, open_dir: Path, way: Callable[[Trap, str], dict[str, str]]
) -> None:
    trap = Trap(acme, open_dir / "trap")
    with (
        served_with(acme.cluster, way(trap, "nacl")),
        psycopg.connect(acme.dsn("app"), autocommit=True) as connection,
    ):
        for _ in range(3):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(APPEND)
            assert caught.value.sqlstate == "OM037"
        assert trap.sprung() == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_modules_named_as_ours_are_never_imported(
    acme: System, open_dir: Path, way: Callable[[Trap, str], dict[str, str]]
) -> None:
    trap = Trap(acme, open_dir / "trap")
    names = (
        "oml",
        "_oml_core",
        "core",
        "cbor",
        "cose",
        "envelope",
        "keys",
        "wire",
        "signer",
        "seal",
        "chain",
        "schema",
    )
    environment: dict[str, str] = {}
    for name in names:
        environment |= way(trap, name)
    with (
        served_with(acme.cluster, environment),
        psycopg.connect(acme.dsn("app"), autocommit=True) as app,
        psycopg.connect(acme.dsn("postgres"), autocommit=True) as superuser,
    ):
        assert app.execute(APPEND).fetchone() == (2,)
        verdict = superuser.execute("select ok, events from oml_verify_chain('acme')").fetchone()
        assert verdict == (True, 2)
        assert trap.sprung() == []


def test_modules_that_the_core_imports_come_from_the_system(acme: System, open_dir: Path) -> None:
    trap = Trap(acme, open_dir / "trap")
    environment: dict[str, str] = {}
    for name in IMPORTED:
        environment |= by_pythonpath(trap, name)
    with (
        served_with(acme.cluster, environment),
        psycopg.connect(acme.dsn("app"), autocommit=True) as app,
        psycopg.connect(acme.dsn("postgres"), autocommit=True) as superuser,
    ):
        assert app.execute(APPEND).fetchone() == (2,)
        verdict = superuser.execute("select ok, events from oml_verify_chain('acme')").fetchone()
        assert verdict == (True, 2)
        assert trap.sprung() == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_shadowed_jsonschema_is_om037_where_a_type_has_a_schema_and_its_code_does_not_run(
    acme: System, open_dir: Path, way: Callable[[Trap, str], dict[str, str]]
) -> None:
    acme.superuser.execute(REGISTER.encode())
    trap = Trap(acme, open_dir / "trap")
    with (
        served_with(acme.cluster, way(trap, "jsonschema")),
        psycopg.connect(acme.dsn("app"), autocommit=True) as app,
        psycopg.connect(acme.dsn("postgres"), autocommit=True) as superuser,
    ):
        again = REGISTER.replace("job.checked", "job.asked")
        for _ in range(2):
            for connection, statement in ((app, CHECKED.replace("%s", "'{}'")), (superuser, again)):
                with pytest.raises(psycopg.Error) as caught:
                    connection.execute(statement.encode())
                assert caught.value.sqlstate == "OM037", caught.value
                assert str(trap.directory) in str(caught.value)
        assert app.execute(APPEND).fetchone() == (2,), "a type without a schema does not need it"
        assert trap.sprung() == []


def test_modules_that_jsonschema_imports_come_from_the_system(acme: System, open_dir: Path) -> None:
    trap = Trap(acme, open_dir / "trap")
    environment: dict[str, str] = {}
    for name in (*IMPORTED, *IMPORTED_BY_JSONSCHEMA):
        environment |= by_pythonpath(trap, name)
    with (
        served_with(acme.cluster, environment),
        psycopg.connect(acme.dsn("app"), autocommit=True) as app,
        psycopg.connect(acme.dsn("postgres"), autocommit=True) as superuser,
    ):
        superuser.execute(REGISTER.encode())
        with pytest.raises(psycopg.Error) as caught:
            app.execute(CHECKED, ("{}",))
        assert caught.value.sqlstate == "OM080"
        assert app.execute(CHECKED, ('{"n": 1}',)).fetchone() == (2,)
        assert trap.sprung() == []


def test_jsonschema_is_imported_with_the_first_type_that_has_a_schema(acme: System) -> None:
    loaded = (
        "create function loaded() returns boolean language plpython3u"
        " as $$ import sys; return 'jsonschema' in sys.modules $$"
    )
    acme.bind("postgres", "acme")
    superuser = acme.superuser
    superuser.execute(loaded)
    superuser.execute(APPEND)
    superuser.execute("select oml_create_tenant('globex')")
    assert superuser.execute("select loaded()").fetchone() == (False,)
    superuser.execute(REGISTER.encode())
    assert superuser.execute("select loaded()").fetchone() == (True,)


def test_without_jsonschema_a_schema_is_refused_by_name(system: System) -> None:
    with pytest.raises(psycopg.Error) as caught:
        system.superuser.execute("select oml.load_core('{schema}', 'no_such_library')")
    assert caught.value.sqlstate == "OM085"
    assert "no_such_library is not installed" in str(caught.value)


def test_loading_the_core_leaves_the_search_path_as_it_was(acme: System, open_dir: Path) -> None:
    trap = Trap(acme, open_dir / "trap")
    with (
        served_with(acme.cluster, by_pythonpath(trap, "harmless")),
        psycopg.connect(acme.dsn("postgres"), autocommit=True) as superuser,
    ):
        superuser.execute(
            "create function search_path() returns text language plpython3u"
            " as $$ import sys; return '|'.join(sys.path) $$"
        )
        before = superuser.execute("select search_path()").fetchone()
        assert before is not None
        assert str(trap.directory) in before[0]
        superuser.execute("select oml_create_tenant('globex')")
        assert superuser.execute("select search_path()").fetchone() == before


def test_what_another_function_replaces_in_the_same_backend_does_not_reach_the_signature(
    system: System,
) -> None:
    system.superuser.execute("select oml_register_event_type('job.done')")
    system.make("acme")
    system.bind("postgres", "acme")
    superuser = system.connect("postgres")
    superuser.execute(APPEND)
    superuser.execute(
        "do language plpython3u $$\n"
        "import hashlib, nacl.bindings\n"
        "hashlib.sha256 = nacl.bindings.crypto_sign = nacl.bindings.crypto_sign_open = None\n"
        "$$"
    )
    assert superuser.execute(APPEND).fetchone() == (3,)
    for connection in (superuser, system.connect("postgres")):
        verdict = connection.execute("select ok, events from oml_verify_chain('acme')").fetchone()
        assert verdict == (True, 3)


def test_a_fresh_backend_loads_python_before_it_waits_for_its_chain(acme: System) -> None:
    """Whoever waits behind it waits for its append, and not for its imports."""
    holder = acme.connect("postgres", autocommit=False)
    holder.execute("select from oml.chain_head for update")
    with (
        acme.connect("app") as app,
        psycopg.connect(acme.dsn("postgres"), autocommit=True) as superuser,
        ThreadPoolExecutor(1) as other,
    ):
        pid = app.info.backend_pid
        appended = other.submit(app.execute, APPEND)
        try:
            while not superuser.execute(
                "select true from pg_locks where pid = %s and not granted", (pid,)
            ).fetchone():
                assert not appended.done(), appended.result()
            assert "_sodium" in Path(f"/proc/{pid}/maps").read_text()
        finally:
            holder.rollback()
        assert appended.result().fetchone() is not None


@pytest.mark.parametrize("name", ["oml.core_dir", "oml.signer", "oml.key", "plpython3u.path"])
def test_no_setting_of_a_session_says_where_code_or_key_come_from(
    system: System, open_dir: Path, name: str
) -> None:
    trap = Trap(system, open_dir / "trap")
    directory = trap.package("nacl")
    system.superuser.execute("select oml_register_event_type('job.done')")
    system.make("acme")
    system.bind("app", "acme")
    app = system.connect("app")
    app.execute("select set_config(%s, %s, false)", (name, str(directory)))
    assert app.execute(APPEND).fetchone() == (2,)
    assert trap.sprung() == []
