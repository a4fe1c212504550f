"""``oml dev up``: a whole OML system under one directory, made step by step.

Each step first looks whether it is done, so a call that was interrupted anywhere is completed by
calling again. Layout beside the cluster's own: ``keys/signing.key``, ``lake``, ``tlog``,
``objects``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from oml.core import keys
from oml.dev import programs, record
from oml.dev.account import Account
from oml.dev.cluster import Cluster, Setting, locked, make_directory
from oml.driver.connection import connect
from oml.errors import SetupError, UsageError, from_postgres

DATABASE = "oml"
DEPLOYMENT = "dev"
LOGIN = "dev"
_GROUPS = ("oml_writer", "oml_reviewer", "oml_operator", "oml_auditor", "oml_daemon")

Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True)
class DevSystem:
    """A running system: where it is and how to reach it."""

    dir: str
    tenant: str
    dsn: str
    """As login ``dev``, who may append to and audit the tenant and operate the deployment."""
    superuser_dsn: str
    lake_url: str
    tlog_url: str
    objects_dir: str
    key_file: str


@dataclass(frozen=True)
class Status:
    """Whether the server of a directory runs, and its DSNs if it did."""

    dir: str
    running: bool
    pid: int | None
    dsn: str
    superuser_dsn: str


def up(
    directory: Path,
    *,
    tenant: str = "acme",
    lake_url: str | None = None,
    tlog_url: str | None = None,
    options: Mapping[str, Setting] | None = None,
) -> DevSystem:
    """Make what is missing of the system under ``directory`` and start it. Never removes data.

    ``tenant`` is created if absent and ``dev`` bound to it. ``lake_url`` and ``tlog_url``
    (default: ``lake`` and ``tlog`` under the directory) count at genesis, ``options``
    (postgresql.conf) when the cluster is created.

    Raises SetupError if the server or the extension is not installed, the server's user cannot
    enter the directory or the signing key has gone; UsageError if the directory is another's or
    has another lake; GateClosedError if the write gate may not be opened; DatabaseError if
    PostgreSQL refuses a step.
    """
    programs.find().require_extension()
    cluster = Cluster(directory)
    directory = cluster.directory
    make_directory(directory)
    with locked(directory):
        if not cluster.exists():
            cluster.create(options)
        cluster.start()
        _make_database(cluster)
        for name in ("lake", "tlog", "objects"):
            (directory / name).mkdir(exist_ok=True)
        key_file = directory / "keys" / "signing.key"
        try:
            with connect(cluster.dsn(dbname=DATABASE), autocommit=True) as connection:
                lake, tlog = (
                    _place(directory, "lake", lake_url),
                    _place(directory, "tlog", tlog_url),
                )
                _genesis(connection, cluster.account, key_file, lake, tlog)
                _open_gate(connection, cluster.dsn(dbname=DATABASE))
                lake = _url(connection, "lake", lake_url)
                tlog = _url(connection, "tlog", tlog_url)
                _make_login(connection)
                _make_tenant(connection, tenant)
        except psycopg.Error as error:
            raise from_postgres(error) from error
    return DevSystem(
        dir=str(directory),
        tenant=tenant,
        dsn=cluster.dsn(LOGIN, DATABASE),
        superuser_dsn=cluster.dsn(dbname=DATABASE),
        lake_url=lake,
        tlog_url=tlog,
        objects_dir=str(directory / "objects"),
        key_file=str(key_file),
    )


def down(directory: Path, *, destroy: bool = False) -> None:
    """Stop the server; with ``destroy`` also remove the directory and everything in it.

    Raises UsageError if the directory was not made by ``up``.
    """
    cluster = Cluster(directory)
    record.require(cluster.directory)
    with locked(cluster.directory):
        if destroy:
            cluster.destroy()
        else:
            cluster.stop()


def status(directory: Path) -> Status:
    """Tell whether the server runs. Raises UsageError if the directory was not made by ``up``."""
    cluster = Cluster(directory)
    record.require(cluster.directory)
    pid = cluster.pid()
    return Status(
        dir=str(cluster.directory),
        running=pid is not None,
        pid=pid,
        dsn=cluster.dsn(LOGIN, DATABASE),
        superuser_dsn=cluster.dsn(dbname=DATABASE),
    )


def _make_database(cluster: Cluster) -> None:
    with connect(cluster.dsn(), autocommit=True) as connection:
        if not _is_true(
            connection, "select exists (select from pg_database where datname = %s)", DATABASE
        ):
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))


def _genesis(
    connection: Connection, owner: Account, key_file: Path, lake_url: str, tlog_url: str
) -> None:
    connection.execute("create extension if not exists oml cascade")
    done = _is_true(connection, "select to_regclass('oml.journal') is not null")
    if not key_file.exists():
        if done:
            raise SetupError(
                f"the signing key {key_file} is gone",
                "Put it back from a copy; a new key would not continue these chains.",
            )
        owner.make_directory(key_file.parent)
        keys.generate(str(key_file), owner.uid, owner.gid)
    if not done:
        connection.execute(
            "select oml_genesis(%s, signer => %s, lake_url => %s, tlog_url => %s)",
            (DEPLOYMENT, f"file:{key_file}", lake_url, tlog_url),
        )


def _open_gate(connection: Connection, dsn: str) -> None:
    """Open the write gate, or say why not; the server stays up, for reads."""
    if _is_true(connection, "select gate = 'open' from oml.lake_state()"):
        return
    from oml import gate, settings  # only now: it loads the lake's libraries

    gate.open_gate(settings.load(), dsn)


def _make_login(connection: Connection) -> None:
    login = sql.Identifier(LOGIN)
    if not _is_true(connection, "select exists (select from pg_roles where rolname = %s)", LOGIN):
        connection.execute(sql.SQL("create role {} login nosuperuser").format(login))
    groups = sql.SQL(", ").join(map(sql.Identifier, _GROUPS))
    connection.execute("set client_min_messages = error")  # a repeated grant is a NOTICE
    connection.execute(sql.SQL("grant {} to {}").format(groups, login))
    _bind(connection, "provider", ["operate", "audit"])


def _make_tenant(connection: Connection, tenant: str) -> None:
    if not _is_true(connection, "select exists (select from oml.tenant where name = %s)", tenant):
        connection.execute("select oml_create_tenant(%s)", (tenant,))
    if tenant != "provider":
        _bind(connection, tenant, ["append", "audit"])


def _bind(connection: Connection, tenant: str, permissions: list[str]) -> None:
    """Bind ``dev`` to the tenant. A binding that is there stays as it is."""
    if not _is_true(
        connection,
        "select exists (select from oml.membership where login = %s and tenant = %s)",
        LOGIN,
        tenant,
    ):
        connection.execute(
            "select oml_grant(login => %s, tenant => %s, permissions => %s)",
            (LOGIN, tenant, permissions),
        )


def _place(directory: Path, name: str, url: str | None) -> str:
    return url or (directory / name).as_uri()


def _url(connection: Connection, name: str, wanted: str | None) -> str:
    """Return where the database says that lake or tlog are, which must be where is wanted."""
    found = connection.execute("select value from oml.setting where name = %s", (f"{name}_url",))
    row = found.fetchone()
    if row is None:
        raise SetupError(
            f"the database names no {name}",
            f"As a superuser: select oml_configure('{name}_url', …).",
        )
    if wanted is not None and wanted != row[0]:
        raise UsageError(f"the database has its {name} at {row[0]}, not at {wanted}")
    return str(row[0])


def _is_true(connection: Connection, query: str, *arguments: str) -> bool:
    row = connection.execute(query.encode(), arguments).fetchone()
    return row is not None and bool(row[0])
