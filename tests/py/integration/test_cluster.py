import contextlib
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from oml.dev.cluster import Cluster, make_directory
from oml.dev.record import Record
from oml.driver.connection import connect
from oml.errors import SetupError, UsageError


@pytest.fixture
def make(open_dir: Path, request: pytest.FixtureRequest) -> Callable[[str], Cluster]:
    """Make clusters that the end of the test removes."""

    def create(name: str) -> Cluster:
        cluster = Cluster(open_dir / name)
        cluster.create({"fsync": False})
        request.addfinalizer(lambda: cluster.destroy() if cluster.exists() else None)
        return cluster

    return create


def ask(cluster: Cluster, query: str) -> object:
    with connect(cluster.dsn(), autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def count(cluster: Cluster) -> object:
    return ask(cluster, "select count(*) from t")


def write(cluster: Cluster) -> None:
    with connect(cluster.dsn()) as connection:
        connection.execute("create table if not exists t (n int)")
        connection.execute("insert into t values (1)")


def test_a_cluster_starts_stops_and_keeps_its_data(
    make: Callable[[str], Cluster],
) -> None:
    cluster = make("c")
    assert not cluster.running()
    cluster.start()
    cluster.start()
    assert cluster.running()
    write(cluster)
    cluster.stop()
    cluster.stop()
    assert not cluster.running()
    cluster.start()
    assert count(cluster) == 1


@pytest.mark.parametrize("mode", ["smart", "fast", "immediate"])
def test_every_way_to_stop_leaves_a_cluster_that_starts(
    make: Callable[[str], Cluster], mode: str
) -> None:
    cluster = make("c")
    cluster.start()
    write(cluster)
    cluster.stop(mode)
    assert not cluster.running()
    cluster.start()
    assert count(cluster) == 1


def test_a_killed_cluster_leaves_no_process_and_recovers(
    make: Callable[[str], Cluster],
) -> None:
    cluster = make("c")
    cluster.start()
    write(cluster)
    with connect(cluster.dsn()) as connection:
        backend = connection.info.backend_pid
        cluster.kill()
    assert not cluster.running()
    assert not Path(f"/proc/{backend}/cwd").exists()
    cluster.kill()
    cluster.start()
    assert count(cluster) == 1


def test_a_pid_file_of_an_unrelated_process_is_not_a_running_server(
    make: Callable[[str], Cluster],
) -> None:
    cluster = make("c")
    cluster.start()
    pid_file = cluster.data / "postmaster.pid"
    content = pid_file.read_text()
    cluster.stop()
    pid_file.write_text(content.replace(content.split()[0], str(os.getpid()), 1))
    assert not cluster.running()
    cluster.start()
    assert cluster.pid() not in (None, os.getpid())


def test_the_server_is_private_and_durable_by_default(open_dir: Path) -> None:
    cluster = Cluster(open_dir / "c")
    cluster.create()
    try:
        cluster.start()
        assert ask(cluster, "show listen_addresses") == ""
        assert ask(cluster, "show fsync") == "on"
        assert ask(cluster, "show wal_level") == "logical"
        assert ask(cluster, "show max_prepared_transactions") == "16"
        assert ask(cluster, "show server_encoding") == "UTF8"
        assert ask(cluster, "select datcollate from pg_database limit 1") == "C.UTF-8"
        pid = cluster.pid()
        assert pid is not None
        assert Path(f"/proc/{pid}").stat().st_uid == cluster.account.uid != 0
        assert (cluster.directory / "run").stat().st_mode & 0o777 == 0o700
    finally:
        cluster.destroy()
    assert not cluster.directory.exists()


def test_the_server_runs_in_a_session_of_its_own(
    make: Callable[[str], Cluster],
) -> None:
    cluster = make("c")
    cluster.start()
    pid = cluster.pid()
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0)


def test_python_variables_of_the_caller_do_not_reach_the_server(
    make: Callable[[str], Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")
    monkeypatch.setenv("PGOPTIONS", "-c nonsense=1")
    cluster = make("c")
    cluster.start()
    environment = Path(f"/proc/{cluster.pid()}/environ").read_bytes()
    assert b"PYTHONPATH" not in environment
    assert b"PGOPTIONS" not in environment


@pytest.mark.parametrize("name", ["x" * 100, "a, b", 'it\'s \\ "quoted" $HOME'])
def test_any_directory_name_will_do(make: Callable[[str], Cluster], name: str) -> None:
    cluster = make(name)
    cluster.start()
    assert ask(cluster, "select 1") == 1
    cluster.stop()
    cluster.start()
    assert ask(cluster, "select 1") == 1


def test_a_private_socket_directory_goes_with_the_cluster(open_dir: Path) -> None:
    cluster = Cluster(open_dir / ("x" * 100))
    cluster.create()
    cluster.start()
    socket_dir = Path(cluster.dsn().split()[0].removeprefix("host="))
    assert socket_dir.parent == Path("/tmp")
    assert socket_dir.stat().st_mode & 0o777 == 0o700
    assert socket_dir.stat().st_uid == cluster.account.uid
    cluster.destroy()
    assert not socket_dir.exists()


def test_a_recorded_socket_directory_that_is_not_ours_is_neither_used_nor_removed(
    make: Callable[[str], Cluster], tmp_path: Path
) -> None:
    cluster = make("x" * 100)
    cluster.start()
    cluster.stop()
    recorded = Path(cluster.dsn().split()[0].removeprefix("host="))
    recorded.rmdir()
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o700)
    recorded.symlink_to(foreign)
    cluster.start()
    assert list(foreign.iterdir()) == []
    assert foreign.stat().st_uid == os.geteuid()
    used = Path(cluster.dsn().split()[0].removeprefix("host="))
    assert used != recorded
    cluster.stop()
    used.rmdir()
    Record(socket_dir=str(foreign)).save(cluster.directory)
    cluster.destroy()
    assert foreign.exists()
    recorded.unlink()


def test_a_setting_the_server_refuses_is_shown_from_its_log(open_dir: Path) -> None:
    cluster = Cluster(open_dir / "c")
    cluster.create({"no_such_setting": "it's"})
    with pytest.raises(SetupError, match="no_such_setting") as caught:
        cluster.start()
    assert str(cluster.log_file) in (caught.value.hint or "")
    assert not cluster.running()


def test_an_interrupted_creation_is_done_again(make: Callable[[str], Cluster]) -> None:
    cluster = make("c")
    cluster.data.rename(cluster.directory / "pg.new")
    assert not cluster.exists()
    cluster.create()
    assert [p.name for p in cluster.directory.glob("pg*")] == ["pg"]


def test_a_creation_waits_for_what_an_interrupted_one_left_running(
    open_dir: Path,
) -> None:
    cluster = Cluster(open_dir / "c")
    creation = (
        "from pathlib import Path; from oml.dev.cluster import Cluster;"
        f" Cluster(Path({str(cluster.directory)!r})).create()"
    )
    process = subprocess.Popen([sys.executable, "-c", creation])
    partial = cluster.directory / "pg.new"
    while not (orphans := working_on(partial)):
        assert process.poll() is None
        time.sleep(0.001)
    for pid in orphans:
        os.kill(pid, signal.SIGSTOP)
    process.kill()
    process.wait()
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(cluster.create)
        with pytest.raises(TimeoutError):
            again.result(timeout=1)
        for pid in orphans:
            os.kill(pid, signal.SIGCONT)
        again.result(timeout=120)
    assert not working_on(partial)
    assert [p.name for p in cluster.directory.glob("pg*")] == ["pg"]
    cluster.start()
    cluster.destroy()


def working_on(data: Path) -> list[int]:
    """Return the processes whose command line names a data directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(data) in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def test_a_cluster_is_not_created_over_another(make: Callable[[str], Cluster]) -> None:
    cluster = make("c")
    with pytest.raises(UsageError, match="already"):
        cluster.create()


def test_a_directory_with_other_files_is_refused(open_dir: Path) -> None:
    (open_dir / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="not empty"):
        Cluster(open_dir).create()
    with pytest.raises(UsageError, match="was not made by"):
        Cluster(open_dir).destroy()
    assert [p.name for p in open_dir.iterdir()] == ["letter.txt"]


def test_a_directory_that_is_a_file_is_refused(open_dir: Path) -> None:
    (open_dir / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        Cluster(open_dir / "file").create()


def test_a_directory_the_server_cannot_enter_is_named_with_a_hint(
    open_dir: Path,
) -> None:
    closed = open_dir / "closed"
    closed.mkdir()
    closed.chmod(0o600)
    with pytest.raises(SetupError, match=f"enter .*{closed}") as caught:
        Cluster(closed / "c").create()
    assert caught.value.hint is not None
    closed.chmod(0o700)


def test_a_standby_follows_and_refuses_writes(
    make: Callable[[str], Cluster], open_dir: Path
) -> None:
    primary = make("primary")
    primary.start()
    write(primary)
    standby = primary.standby(open_dir / "standby")
    try:
        assert not standby.running()
        standby.start()
        assert ask(standby, "select pg_is_in_recovery()") is True
        assert count(standby) == 1
        assert primary.running()
        assert primary.dsn() != standby.dsn()
    finally:
        standby.destroy()


def test_a_server_killed_from_outside_is_started_again_at_once(
    make: Callable[[str], Cluster],
) -> None:
    cluster = make("c")
    cluster.start()
    write(cluster)
    pid = cluster.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while cluster.running():
        time.sleep(0.001)
    cluster.start()
    assert cluster.pid() not in (None, pid)
    assert count(cluster) == 1


def test_the_account_has_a_name() -> None:
    uid = os.geteuid()
    expected = "postgres" if uid == 0 else pwd.getpwuid(uid).pw_name
    assert Cluster(Path("/nonexistent")).account.name == expected


def test_a_directory_that_two_make_at_once_is_made_by_both(tmp_path: Path) -> None:
    start = Barrier(2)

    def make(directory: Path) -> None:
        start.wait()
        make_directory(directory)

    with ThreadPoolExecutor(2) as pool:
        for number in range(200):
            directory = tmp_path / str(number) / "system"
            for made in [pool.submit(make, directory) for _ in range(2)]:
                made.result()
            assert directory.is_dir()
