"""A primary and two standbys on one machine, sockets only, that tests may break.

Layout of a directory: one cluster each in ``p``, ``s1`` and ``s2``. Every commit of the primary
waits for one of the two standbys. A template is made once and copied, stopped, for each test.
Nothing here waits longer than PATIENCE_S.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from psycopg import sql

from oml.dev.cluster import SUPERUSER, Cluster, children
from oml.driver.connection import connect
from systems import SETTINGS, TEMPLATE, Connection, make_template

PATIENCE_S = 60
STANDBYS = ("s1", "s2")
NAMES = "ANY 1 (s1, s2)"
_POLL_S = 0.02
_numbers = itertools.count(1)


class Quorum:
    """The clusters of one directory. ``primary`` is whoever was promoted last."""

    def __init__(self, directory: Path, key_file: Path) -> None:
        self.directory = directory
        self.key_file = key_file
        self.clusters = {name: Cluster(directory / name) for name in ("p", *STANDBYS)}
        self.primary = "p"
        self.database = TEMPLATE
        self._open = contextlib.ExitStack()
        self._frozen: dict[str, list[int]] = {}

    @property
    def standbys(self) -> tuple[str, ...]:
        """The names of all but the primary."""
        return tuple(name for name in self.clusters if name != self.primary)

    def start(self) -> None:
        """Start the primary and its standbys and wait until both stream."""
        for cluster in self.clusters.values():
            cluster.start()
        for name in STANDBYS:
            self.wait_for_standby(name)

    def fresh_database(self) -> None:
        """Go on in a new database after its genesis, with a lake and logs of its own."""
        self.database = f"oml_{next(_numbers)}"
        with connect(self.dsn(dbname="postgres"), autocommit=True) as connection:
            connection.execute(
                sql.SQL("create database {} template {}").format(
                    sql.Identifier(self.database), sql.Identifier(TEMPLATE)
                )
            )
        for place in (self.lake, self.tlog):
            place.mkdir(parents=True)
        self.connect().execute(
            "select oml_genesis('test', signer => %s, lake_url => %s, tlog_url => %s)",
            (f"file:{self.key_file}", self.lake.as_uri(), self.tlog.as_uri()),
        )

    @property
    def lake(self) -> Path:
        """The directory of the database's lake."""
        return self.directory / "places" / self.database / "lake"

    @property
    def tlog(self) -> Path:
        """The directory of the database's logs."""
        return self.directory / "places" / self.database / "tlog"

    def restore(self) -> None:
        """Undo what a test did that did not harm the primary, and drop its database."""
        self._open.close()
        for name in list(self._frozen):
            self.thaw(name)
        with connect(self.dsn("p", dbname="postgres"), autocommit=True) as connection:
            connection.execute("alter system reset all")
            connection.execute("select pg_reload_conf()")
        self.start()
        with connect(self.dsn(dbname="postgres"), autocommit=True) as connection:
            connection.execute(
                sql.SQL("drop database {} with (force)").format(sql.Identifier(self.database))
            )

    def close(self) -> None:
        """Thaw, stop and remove everything."""
        for name in list(self._frozen):
            self.thaw(name)
        self._open.close()
        for cluster in self.clusters.values():
            cluster.destroy()
        shutil.rmtree(self.directory / "places", ignore_errors=True)

    def dsn(self, name: str | None = None, user: str = SUPERUSER, dbname: str | None = None) -> str:
        """Return the connection string of a cluster; None is the primary, and the database."""
        return self.clusters[name or self.primary].dsn(user, dbname or self.database)

    def connect(
        self, name: str | None = None, user: str = SUPERUSER, *, autocommit: bool = True
    ) -> Connection:
        """Open a connection that the end of the test closes; None is the primary."""
        connection = connect(self.dsn(name, user), autocommit=autocommit)
        self._open.callback(connection.close)
        return connection

    def value(self, name: str | None, query: str, *parameters: Any) -> Any:
        """Return the one value of a query on a cluster, through a connection of its own."""
        with connect(self.dsn(name, dbname="postgres"), autocommit=True) as connection:
            row = connection.execute(query.encode(), parameters).fetchone()
            return None if row is None else row[0]

    def configure(self, name: str | None, setting: str, value: str | None) -> None:
        """Change a setting of a cluster (None: the primary) and wait until new sessions have it."""
        with connect(self.dsn(name, dbname="postgres"), autocommit=True) as connection:
            change = (
                sql.SQL("alter system reset {}").format(sql.Identifier(setting))
                if value is None
                else sql.SQL("alter system set {} = {}").format(
                    sql.Identifier(setting), sql.Literal(value)
                )
            )
            before = connection.execute("select pg_conf_load_time()").fetchone()
            connection.execute(change)
            connection.execute("select pg_reload_conf()")
        assert before is not None
        until(lambda: self.value(name, "select pg_conf_load_time() > %s", before[0]))

    def wait_for_standby(self, name: str) -> None:
        """Wait until the primary streams to this standby and counts on it."""
        until(
            lambda: self.value(
                None,
                "select count(*) from pg_stat_replication where application_name = %s"
                " and state = 'streaming' and sync_state in ('quorum', 'sync')",
                name,
            )
        )

    def cut_off(self, name: str) -> None:
        """Stop a standby's WAL receiver for good: it lags from now on, in what it has on disk."""
        self.configure(name, "primary_conninfo", "")
        self._wait_for_no_receiver(name)

    def _wait_for_no_receiver(self, name: str) -> None:
        until(lambda: self.value(name, "select count(*) = 0 from pg_stat_wal_receiver"))

    def reconnect(self, name: str) -> None:
        """Let a standby stream from whoever is the primary now, and wait until it does."""
        self.configure(name, "primary_conninfo", self.dsn(dbname="postgres"))
        self.wait_for_standby(name)

    def freeze(self, name: str) -> None:
        """SIGSTOP a cluster's postmaster and all its processes: it is there, and says nothing."""
        postmaster = self.clusters[name].pid()
        assert postmaster is not None
        os.kill(postmaster, signal.SIGSTOP)
        pids = [postmaster, *children(postmaster)]
        for pid in pids[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self._frozen[name] = pids

    def thaw(self, name: str) -> None:
        """Let a frozen cluster go on."""
        for pid in reversed(self._frozen.pop(name)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def frozen(self, name: str) -> bool:
        """Whether a cluster is frozen."""
        return name in self._frozen

    def kill_primary(self) -> None:
        """SIGKILL the primary's postmaster and all its processes."""
        self.clusters[self.primary].kill()

    def received(self, name: str) -> int:
        """Return the WAL position, in bytes, that a standby has on disk."""
        return int(self.value(name, "select pg_last_wal_receive_lsn() - '0/0'::pg_lsn"))

    def most_advanced(self) -> str:
        """Return the running standby with the most WAL, once no receiver adds to it."""
        running = [name for name in self.standbys if self.clusters[name].running()]
        for name in running:
            self._wait_for_no_receiver(name)
        return max(running, key=self.received)

    def promote(self, name: str) -> None:
        """Make a standby the primary and wait until it takes writes."""
        assert self.value(name, "select pg_promote(true, %s)", PATIENCE_S)
        until(lambda: not self.value(name, "select pg_is_in_recovery()"))
        self.primary = name


def until(condition: Callable[[], Any]) -> Any:
    """Wait until the condition holds and return what it returned."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(_POLL_S)
    return found


@contextlib.contextmanager
def template(directory: Path) -> Iterator[Path]:
    """Make what tests copy: a database that awaits its genesis, and its standbys, stopped."""
    primary = Cluster(directory / "p")
    primary.create({**SETTINGS, "wal_keep_size": "512MB", "wal_retrieve_retry_interval": "100ms"})
    try:
        primary.start()
        make_template(primary)
        for name in STANDBYS:
            primary.standby(directory / name)
            _add(directory / name, f"cluster_name = '{name}'\n")
        primary.stop()
        for name in ("p", *STANDBYS):
            _add(directory / name, f"synchronous_standby_names = '{NAMES}'\n")
        yield directory
    finally:
        for name in ("p", *STANDBYS):
            if (directory / name / "dev.json").exists():
                Cluster(directory / name).destroy()


@contextlib.contextmanager
def quorum(made: Path, directory: Path) -> Iterator[Quorum]:
    """Run a copy of the template in ``directory``; remove it at the end.

    Its signing key stays the template's file.
    """
    for name in ("p", *STANDBYS):
        subprocess.run(
            ["cp", "-a", "--reflink=auto", str(made / name), str(directory / name)], check=True
        )
        shutil.rmtree(directory / name / "run", ignore_errors=True)
    running = Quorum(directory, made / "p" / "keys" / "signing.key")
    try:
        for name in STANDBYS:
            # It may say where the template was; the last line of a file counts.
            with (running.clusters[name].data / "postgresql.auto.conf").open("a") as file:
                file.write("primary_conninfo = '" + running.dsn("p", dbname="postgres") + "'\n")
        running.start()
        yield running
    finally:
        running.close()


def _add(directory: Path, line: str) -> None:
    with (directory / "pg" / "postgresql.conf").open("a") as file:
        file.write(line)
