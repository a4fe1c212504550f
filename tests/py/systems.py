"""Systems under test: a fresh database each, and what tests do to it from outside."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from oml import gate
from oml.core import keys
from oml.dev.cluster import SUPERUSER, Cluster, Setting
from oml.driver.connection import connect
from oml.settings import Settings
from seaweed import Bucket

Connection = psycopg.Connection[TupleRow]

TEMPLATE = "oml_template"
SETTINGS: dict[str, Setting] = {
    "fsync": False,
    "max_prepared_transactions": 32,
    "max_connections": 200,
}
# Ordinary logins of every cluster under test: in group roles, but bound to no tenant.
LOGINS = {
    "app": ("oml_writer", "oml_auditor"),
    "operator": ("oml_operator", "oml_auditor"),
    "auditor": ("oml_auditor",),
    "daemon_login": ("oml_daemon",),
    "stranger": (),
}


def make_template(cluster: Cluster) -> None:
    """Make the database that systems are copied from, which awaits its genesis, and the logins."""
    owner = cluster.account
    key_file = cluster.directory / "keys" / "signing.key"
    owner.make_directory(key_file.parent)
    keys.generate(str(key_file), owner.uid, owner.gid)
    with connect(cluster.dsn(), autocommit=True) as connection:
        connection.execute(f"create database {TEMPLATE}".encode())
    with connect(cluster.dsn(dbname=TEMPLATE), autocommit=True) as connection:
        connection.execute("create extension oml cascade")
    for login, groups in LOGINS.items():
        make_login(cluster, login, groups)


def make_login(cluster: Cluster, login: str, groups: Sequence[str]) -> None:
    """Make a login role of the cluster, a member of the group roles."""
    with connect(cluster.dsn(), autocommit=True) as connection:
        name = sql.Identifier(login)
        connection.execute(sql.SQL("create role {} login nosuperuser").format(name))
        for group in groups:
            connection.execute(sql.SQL("grant {} to {}").format(sql.Identifier(group), name))


class System:
    """One database with OML after its genesis, directories for lake and tlog, and the command line.

    With a bucket the lake is there, and its directory is empty.

    As a context manager it makes the database and drops it with all that depends on it.
    """

    def __init__(
        self, cluster: Cluster, database: str, lake: Path, bucket: Bucket | None = None
    ) -> None:
        self.cluster = cluster
        self.database = database
        self.lake = lake
        self.lake_url = lake.as_uri() if bucket is None else bucket.url
        self.lake_options = {} if bucket is None else bucket.options
        self.tlog = lake.parent / f"{lake.name}-tlog"
        self.tlog_url = self.tlog.as_uri()
        self.key_file = cluster.directory / "keys" / "signing.key"
        self._superuser: Connection | None = None
        self._open = ExitStack()
        self._logins: list[str] = []

    def __enter__(self) -> Self:
        self.lake.mkdir(parents=True, exist_ok=True)
        self._maintain(sql.SQL("create database {} template {}"), self.database, TEMPLATE)
        self.tlog.mkdir(parents=True, exist_ok=True)
        self.superuser.execute(
            "select oml_genesis('test', signer => %s, lake_url => %s, tlog_url => %s)",
            (f"file:{self.key_file}", self.lake_url, self.tlog_url),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        self.cluster.start()
        self._release()
        self._maintain(sql.SQL("drop database if exists {} with (force)"), self.database)
        for login in self._logins:
            self._maintain(sql.SQL("drop role {}"), login)

    def close(self) -> None:
        """Close the connections and end the processes that the test has opened."""
        self._open.close()

    @property
    def superuser(self) -> Connection:
        """One autocommit connection as superuser; a new one once it is known to be lost."""
        if self._superuser is None or self._superuser.closed:
            self._superuser = self.connect(SUPERUSER)
        return self._superuser

    def dsn(self, user: str = "app") -> str:
        """Return the connection string of a login."""
        return self.cluster.dsn(user, self.database)

    def connect(self, user: str = "app", *, autocommit: bool = True) -> Connection:
        """Open a connection that the end of the test closes."""
        connection = connect(self.dsn(user), autocommit=autocommit)
        self._open.callback(connection.close)
        return connection

    def make(self, tenant: str) -> UUID:
        """Create a tenant and return its id."""
        row = self.superuser.execute("select oml_create_tenant(%s)", (tenant,)).fetchone()
        assert row is not None
        tenant_id = row[0]
        assert isinstance(tenant_id, UUID)
        return tenant_id

    def bind(self, login: str, tenant: str, permissions: Sequence[str] = ("append",)) -> None:
        """Bind a login to a tenant with these permissions."""
        self.superuser.execute(
            "select oml_grant(login => %s, tenant => %s, permissions => %s)",
            (login, tenant, list(permissions)),
        )

    def make_login(self, login: str, *groups: str) -> str:
        """Make a further login role, which the end of the test drops."""
        make_login(self.cluster, login, groups)
        self._logins.append(login)
        return login

    def forget_places(self) -> None:
        """Make it a system without lake and logs, as after a genesis that names none.

        Its first append after a restart opens the gate.
        """
        self.superuser.execute("alter table oml.setting disable trigger guard_rows")
        self.superuser.execute("delete from oml.setting where name in ('lake_url', 'tlog_url')")
        self.superuser.execute("alter table oml.setting enable always trigger guard_rows")

    def open_gate(self) -> None:
        """Check and open the write gate, as omld does when its session begins."""
        here = Settings(lake_url=self.lake_url, lake_storage_options=self.lake_options)
        gate.ensure_open(here, self.dsn(SUPERUSER))

    def environment(
        self, user: str = SUPERUSER, env: dict[str, str] | None = None
    ) -> dict[str, str]:
        """Return the environment in which the command line works on this system."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OML_", "PG"))}
        places = {"OML_LAKE_URL": self.lake_url, "OML_TLOG_URL": self.tlog_url}
        places["OML_LAKE_LOG_MINUTES"] = "60"  # tests read the log from its beginning
        if self.lake_options:
            places["OML_LAKE_STORAGE_OPTIONS"] = json.dumps(self.lake_options)
        return inherited | {"OML_DSN": self.dsn(user)} | places | (env or {})

    def oml(
        self,
        *arguments: str,
        user: str = SUPERUSER,
        env: dict[str, str] | None = None,
        timeout_s: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end, as a login of this system."""
        return subprocess.run(
            [sys.executable, "-m", "oml", *arguments],
            env=self.environment(user, env),
            cwd=self.lake,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start_oml(
        self, *arguments: str, user: str = SUPERUSER, env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start the command line as a process of its own, killed at the end if still there."""
        process = subprocess.Popen(
            [sys.executable, "-m", "oml", *arguments],
            env=self.environment(user, env),
            cwd=self.lake,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        def end() -> None:
            process.kill()
            process.communicate()

        self._open.callback(end)
        return process

    def _release(self) -> None:
        """Give up what would keep the database from being dropped."""
        with connect(self.dsn(SUPERUSER), autocommit=True) as connection:
            prepared = "select gid from pg_prepared_xacts where database = current_database()"
            for (gid,) in connection.execute(prepared).fetchall():
                connection.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))
            connection.execute(
                "select pg_terminate_backend(active_pid, 10000) from pg_replication_slots"
                " where database = current_database() and active"
            )
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
                " where database = current_database()"
            )

    def _maintain(self, statement: sql.SQL, *names: str) -> None:
        with connect(self.cluster.dsn(), autocommit=True) as connection:
            connection.execute(statement.format(*map(sql.Identifier, names)))
