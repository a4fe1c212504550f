"""The ways of a dump into another database."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from psycopg import sql

from oml.dev import programs
from oml.dev.cluster import Cluster
from oml.driver.connection import connect


def run(program: str, *arguments: str | Path) -> None:
    """Run a client program of PostgreSQL; it must succeed and have nothing to complain of."""
    command = [programs.find().path(program), *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def custom(source: str, target: str, directory: Path) -> None:
    """pg_dump -Fc, pg_restore."""
    run("pg_dump", "-Fc", "-f", directory / "dump", "-d", source)
    run("pg_restore", "-d", target, directory / "dump")


def custom_in_parallel(source: str, target: str, directory: Path) -> None:
    """pg_dump -Fc, pg_restore -j2."""
    run("pg_dump", "-Fc", "-f", directory / "dump", "-d", source)
    run("pg_restore", "-j2", "-d", target, directory / "dump")


def directory_in_parallel(source: str, target: str, directory: Path) -> None:
    """pg_dump -Fd -j2, pg_restore -j2."""
    run("pg_dump", "-Fd", "-j2", "-f", directory / "dump", "-d", source)
    run("pg_restore", "-j2", "-d", target, directory / "dump")


def plain(source: str, target: str, directory: Path) -> None:
    """pg_dump, psql that stops at the first error."""
    run("pg_dump", "-f", directory / "dump", "-d", source)
    run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", "-f", directory / "dump", target)


WAYS: list[Callable[[str, str, Path], None]] = [
    custom,
    custom_in_parallel,
    directory_in_parallel,
    plain,
]


def make_database(cluster: Cluster, name: str) -> None:
    """Make an empty database."""
    with connect(cluster.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))


def drop_database(cluster: Cluster, name: str) -> None:
    """Drop a database and whoever is in it."""
    with connect(cluster.dsn(), autocommit=True) as connection:
        statement = "drop database if exists {} with (force)"
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
