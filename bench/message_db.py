"""The peer of bench_append.py: message-db, a message store of SQL functions in PostgreSQL.

Its SQL comes from the npm package ``@eventide/message-db``, fetched once into ``build`` with npm
and checked against the digest below.
"""

import hashlib
import subprocess
import tarfile
from pathlib import Path

import psycopg

from oml.dev.cluster import Cluster

VERSION = "1.3.1"
DATABASE = "message_store"
_PACKAGE = "@eventide/message-db"
_SHA512 = (
    "9f785d13960064d5d3af61caf601b4189e9dbac81d139e382d3bd2fb6d7fc8e1"
    "0706f36e5333665d7c39bd2d39be97ba452ba1cd3472e56834abb73555f260f8"
)
_BUILD = Path(__file__).resolve().parent.parent / "build" / "message-db"
# In the order of its own install.sh; views and privileges are not needed to write.
_FILES = (
    *("schema/message-store", "extensions/pgcrypto", "tables/messages", "types/message"),
    *("functions/message-store-version", "functions/hash-64", "functions/acquire-lock"),
    *("functions/category", "functions/is-category", "functions/id", "functions/cardinal-id"),
    *("functions/stream-version", "functions/write-message"),
    *("indexes/messages-id", "indexes/messages-stream", "indexes/messages-category"),
)


def fetch() -> Path:
    """Return the directory of message-db's SQL. RuntimeError if it is not to be had."""
    archive = _BUILD / f"eventide-message-db-{VERSION}.tgz"
    if not archive.exists():
        _BUILD.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", f"{_PACKAGE}@{VERSION}"]
        try:
            subprocess.run(command, cwd=_BUILD, check=True, capture_output=True)
        except FileNotFoundError:
            raise RuntimeError("npm is needed to fetch message-db (Debian 12: npm)") from None
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"{' '.join(command)} failed: {error.stderr.decode()}") from None
    digest = hashlib.sha512(archive.read_bytes()).hexdigest()
    if digest != _SHA512:
        archive.unlink()
        raise RuntimeError(f"{_PACKAGE} {VERSION} has another content than is pinned: {digest}")
    with tarfile.open(archive) as packed:
        packed.extractall(_BUILD, filter="data")
    return _BUILD / "package" / "database"


def install(cluster: Cluster) -> str:
    """Install message-db into a database of its own; return the DSN of a superuser there.

    message-db's functions look tables up by the search path, so the database's includes its schema.
    """
    directory = fetch()
    with psycopg.connect(cluster.dsn(), autocommit=True) as superuser:
        superuser.execute(f"create database {DATABASE}".encode())
        superuser.execute(
            f"alter database {DATABASE} set search_path = message_store, public".encode()
        )
    dsn = cluster.dsn(dbname=DATABASE)
    with psycopg.connect(dsn, autocommit=True) as superuser:
        for name in _FILES:
            superuser.execute((directory / f"{name}.sql").read_text().encode())
    return dsn
