"""``oml dev up`` and ``oml dev down``."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oml.dev import record, up
from oml.dev.cluster import Cluster
from oml.dev.up import DevSystem
from oml.driver.connection import connect
from oml.errors import SetupError, UsageError

FAST = {"fsync": False}


@pytest.fixture
def directory(open_dir: Path) -> Iterator[Path]:
    """Where a test makes its system; destroyed at the end."""
    path = open_dir / "system"
    yield path
    if record.load(path) is not None:
        up.down(path, destroy=True)


def oml(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oml", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rows(dsn: str, query: str) -> list[tuple[object, ...]]:
    with connect(dsn, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def facts(system: DevSystem) -> list[tuple[object, ...]]:
    """All that ``up`` makes in the database, in order."""
    return rows(
        system.superuser_dsn,
        "select tenant_id, seq, event_id, hash from oml.journal order by tenant_id, seq",
    )


def test_up_makes_a_system_to_append_to(directory: Path) -> None:
    system = up.up(directory, options=FAST)
    with connect(system.dsn, autocommit=True) as connection:
        connection.execute("select oml_register_event_type('note.made', required_keys => '{text}')")
        receipt = connection.execute(
            """select seq from oml_append('note.made', '{"text": "a"}')"""
        ).fetchone()
    assert receipt == (2,)
    assert system.lake_url == (directory / "lake").as_uri()
    assert system.tlog_url == (directory / "tlog").as_uri()
    assert Path(system.objects_dir).stat().st_uid == os.geteuid()
    assert (directory / "lake").stat().st_uid == os.geteuid()


def test_the_key_belongs_to_the_server_alone_and_lies_outside_its_data(directory: Path) -> None:
    system = up.up(directory, options=FAST)
    cluster = Cluster(directory)
    key_file = Path(system.key_file)
    assert key_file == directory / "keys" / "signing.key"
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert key_file.stat().st_uid == cluster.account.uid
    assert key_file.parent.stat().st_mode & 0o777 == 0o700
    assert cluster.data not in key_file.parents


def test_the_login_dev_has_no_powers_but_its_groups_and_bindings(directory: Path) -> None:
    system = up.up(directory, options=FAST)
    powers = rows(
        system.superuser_dsn,
        "select rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication"
        " from pg_roles where rolname = 'dev'",
    )
    assert powers == [(False, False, False, False, False)]
    bindings = rows(
        system.superuser_dsn,
        "select tenant, permissions from oml.membership where login = 'dev' order by tenant",
    )
    assert bindings == [("acme", ["append", "audit"]), ("provider", ["operate", "audit"])]


def test_up_again_changes_nothing(directory: Path) -> None:
    first = up.up(directory, options=FAST)
    before = facts(first)
    pid = up.status(directory).pid
    assert up.up(directory) == first
    assert up.status(directory).pid == pid
    assert facts(first) == before


def test_down_keeps_the_data_for_the_next_up(directory: Path) -> None:
    first = up.up(directory, options=FAST)
    before = facts(first)
    up.down(directory)
    assert not up.status(directory).running
    up.down(directory)
    assert up.up(directory) == first
    assert facts(first) == before


def test_up_with_another_tenant_adds_it(directory: Path) -> None:
    up.up(directory, options=FAST)
    system = up.up(directory, tenant="globex")
    tenants = rows(system.superuser_dsn, "select name from oml.tenant order by name")
    assert tenants == [("acme",), ("globex",), ("provider",)]


STEPS = [
    "Cluster.create",
    "Cluster.start",
    "_make_database",
    "keys.generate",
    "_url",
    "_make_login",
    "_make_tenant",
]


class Crash(BaseException):
    """Nothing in the code under test catches this."""


def test_up_resumes_after_a_crash_before_or_after_each_step(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in STEPS:
        path = f"oml.dev.up.{step}"
        real = _resolve(step)

        def crash_before(*_: object, **__: object) -> None:
            raise Crash

        def crash_after(*args: object, real: Callable[..., object] = real, **kw: object) -> None:
            real(*args, **kw)
            raise Crash

        for crash in (crash_before, crash_after):
            with monkeypatch.context() as patch:
                patch.setattr(path, crash)
                # The first crash after a step completes it for good: then it is not called again.
                try:
                    up.up(directory, options=FAST)
                except Crash:
                    continue
                assert step in ("Cluster.create", "_make_database", "keys.generate")
    system = up.up(directory)
    events = rows(
        system.superuser_dsn,
        "select t.name, j.type, count(*) from oml.journal j join oml.tenant t using (tenant_id)"
        " where j.type in ('key.issued', 'tenant.created', 'tenant.genesis')"
        " group by 1, 2 order by 1, 2",
    )
    assert events == [
        ("acme", "tenant.genesis", 1),
        ("provider", "key.issued", 1),
        ("provider", "tenant.created", 1),
    ]


def _resolve(step: str) -> Callable[..., object]:
    found: object = up
    for name in step.split("."):
        found = getattr(found, name)
    assert callable(found)
    return found


def test_up_completes_after_being_killed_at_any_moment(directory: Path) -> None:
    moments = random.Random(2)
    command = [sys.executable, "-m", "oml", "dev", "up", "--dir", str(directory)]
    for _ in range(8):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.15, 1.2))
        process.kill()
        process.wait()
    done = oml("dev", "up", "--dir", directory, "--json")
    assert done.returncode == 0, done.stderr
    dsn = json.loads(done.stdout)["superuser_dsn"]
    assert rows(dsn, "select count(*) from oml.tenant") == [(2,)]
    assert [p.name for p in directory.glob("pg*")] == ["pg"]


AS_NOBODY = """
import os, pwd, sys
from pathlib import Path
import oml.cli.dev, psycopg, nacl.signing
from oml.dev import up
from oml.driver.connection import connect
directory = Path(sys.argv[1])
if os.geteuid() == 0:  # only now: the interpreter may lie where nobody else may read
    nobody = pwd.getpwnam("nobody")
    os.chown(directory.parent, nobody.pw_uid, nobody.pw_gid)
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
system = up.up(directory)
try:
    with connect(system.dsn, autocommit=True) as connection:
        connection.execute("select oml_register_event_type('note.made')")
        connection.execute("select oml_append('note.made', '{}')")
    assert (directory / "pg").stat().st_uid == os.geteuid() != 0
finally:
    up.down(directory)
"""


def test_an_ordinary_user_has_a_system_too(directory: Path) -> None:
    command = [sys.executable, "-c", AS_NOBODY, str(directory)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_two_ups_at_once_make_one_system(directory: Path) -> None:
    command = [sys.executable, "-m", "oml", "dev", "up", "--dir", str(directory), "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert printed[0] == printed[1]
    dsn = json.loads(printed[0])["superuser_dsn"]
    assert rows(dsn, "select count(*) from oml.journal where type = 'key.issued'") == [(1,)]


def test_a_lost_key_is_an_error_and_no_new_one_is_made(directory: Path) -> None:
    key_file = Path(up.up(directory, options=FAST).key_file)
    key_file.rename(key_file.with_suffix(".away"))
    with pytest.raises(SetupError, match=r"signing\.key is gone"):
        up.up(directory)
    assert not key_file.exists()


def test_another_lake_than_that_of_the_genesis_is_an_error(directory: Path) -> None:
    lake = "s3://somewhere/lake"
    assert up.up(directory, lake_url=lake, options=FAST).lake_url == lake
    assert up.up(directory, lake_url=lake).lake_url == lake
    assert up.up(directory).lake_url == lake
    with pytest.raises(UsageError, match="has its lake at s3://somewhere/lake"):
        up.up(directory, lake_url="s3://elsewhere/lake")
    with pytest.raises(UsageError, match="has its tlog at file:///"):
        up.up(directory, tlog_url="s3://elsewhere/tlog")


def test_up_and_down_leave_a_foreign_directory_alone(open_dir: Path) -> None:
    letter = open_dir / "letter.txt"
    letter.write_text("dear")
    refused = [
        oml("dev", "up", "--dir", open_dir),
        oml("dev", "down", "--dir", open_dir),
        oml("dev", "down", "--dir", open_dir, "--destroy"),
        oml("dev", "status", "--dir", open_dir),
    ]
    assert [done.returncode for done in refused] == [2, 2, 2, 2]
    (open_dir / "dev.json").write_text('{"name": "somebody else\'s"}')
    assert oml("dev", "down", "--dir", open_dir, "--destroy").returncode == 2
    assert letter.read_text() == "dear"


def test_the_last_line_of_up_is_the_dsn(directory: Path) -> None:
    done = oml("dev", "up", "--dir", directory)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    dsn = done.stdout.splitlines()[-1]
    assert rows(dsn, "select session_user::text") == [("dev",)]


def test_json_of_up_status_and_down(directory: Path) -> None:
    made = json.loads(oml("dev", "up", "--dir", directory, "--json").stdout)
    assert made["dir"] == str(directory)
    assert made["tenant"] == "acme"
    found = json.loads(oml("dev", "status", "--dir", directory, "--json").stdout)
    assert found["running"] is True
    assert (found["dsn"], found["superuser_dsn"]) == (made["dsn"], made["superuser_dsn"])
    down = json.loads(oml("dev", "down", "--dir", directory, "--destroy", "--json").stdout)
    assert down == {"dir": str(directory), "running": False, "destroyed": True}
    assert not directory.exists()


def test_a_refusal_by_the_database_is_json_with_its_sqlstate(directory: Path) -> None:
    done = oml("dev", "up", "--dir", directory, "--tenant", "No Such Name", "--json")
    assert done.returncode == 2
    error = json.loads(done.stderr)
    assert error["sqlstate"] == "OM005"
    assert error["hint"]
    assert "Traceback" not in done.stderr


def test_up_opens_the_write_gate_unless_the_lake_knows_more(directory: Path) -> None:
    """An older copy of the data directory, put back by hand, looks like a restart from inside."""
    system = up.up(directory, options=FAST)
    data = directory / "pg"

    def append() -> None:
        with connect(system.dsn, autocommit=True) as connection:
            connection.execute("select oml_append('note.made', '{}', tenant => 'acme')")
        assert oml("lake", "drain", "--once", "--dsn", system.superuser_dsn).returncode == 0

    rows(system.superuser_dsn, "select oml_register_event_type('note.made')")
    append()
    up.down(directory)
    subprocess.run(["cp", "-a", data, directory / "old"], check=True)
    up.up(directory)
    append()
    up.down(directory)
    shutil.rmtree(data)
    (directory / "old").rename(data)
    refused = oml("dev", "up", "--dir", directory)
    assert refused.returncode == 1
    assert "acme: seq 3 to 3 are lost, the journal ends at 2" in refused.stderr
    assert up.status(directory).running, "for reads, and for whoever accepts the loss"
    assert rows(system.dsn, "select events from oml_verify_chain('acme')") == [(2,)]
    accept = ("gate", "accept-loss", "--reason", "x", "--yes", "--dsn", system.superuser_dsn)
    assert oml(*accept).returncode == 0
    append()
    assert oml("dev", "up", "--dir", directory).returncode == 0
