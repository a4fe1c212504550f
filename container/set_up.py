"""Set OML up in a new cluster: the extension, genesis, logins, a tenant.

Run by the entry point, as the server's OS user, against a private server. Each step looks first
whether it is done. What there is to set comes from OML_GENESIS_* and counts once; passwords come
from files, LOGIN_password in the directory of secrets, and reach the server only as SCRAM
verifiers.
"""

import os
import sys
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from oml.core import keys

DATABASE = "oml"
LOGINS = {
    "app": ("oml_writer",),
    "auditor": ("oml_auditor",),
    "lake": ("oml_daemon",),
    "tlog": ("oml_daemon",),
}
"""The logins that are made, and their groups. None is a superuser or owns anything."""
ON_PROVIDER = {"auditor": "audit", "lake": "operate", "tlog": "operate"}

Connection = psycopg.Connection[TupleRow]


class SetUpError(Exception):
    """What stops the container, and what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def main(socket_directory: str, secrets: Path) -> None:
    """Bring the server behind a socket directory to where a container of this image serves."""
    with connect(socket_directory, "postgres") as connection:
        if not one(connection, "select count(*) from pg_database where datname = %s", DATABASE):
            connection.execute(f"create database {DATABASE} encoding 'UTF8' template template0")
        password(connection, "postgres", os.environ.get("POSTGRES_PASSWORD_FILE"))
        login(connection, "replicator", secrets, "replication")
    with connect(socket_directory, DATABASE) as connection:
        connection.execute("create extension if not exists oml cascade")
        genesis(connection)
        for name, groups in LOGINS.items():
            login(connection, name, secrets)
            for group in groups:
                connection.execute(f"grant {group} to {name}")
        for name, permission in ON_PROVIDER.items():
            bind(connection, name, "provider", permission)
        tenant = os.environ.get("OML_GENESIS_TENANT")
        if tenant:
            if not one(connection, "select count(*) from oml.tenant where name = %s", tenant):
                connection.execute("select oml_create_tenant(%s)", (tenant,))
            bind(connection, "app", tenant, "append")


def connect(socket_directory: str, database: str) -> Connection:
    """Open a connection as the superuser; notices of what is there already are left out."""
    connection = psycopg.connect(
        host=socket_directory, dbname=database, user="postgres", autocommit=True
    )
    connection.execute("set client_min_messages = error")
    return connection


def one(connection: Connection, query: str, *arguments: str) -> object:
    """Return the first value of the first row."""
    row = connection.execute(query.encode(), arguments).fetchone()
    return row[0] if row else None


def genesis(connection: Connection) -> None:
    """Have the genesis unless it was; make the key file for it where the signer is one."""
    if one(connection, "select to_regclass('oml.journal')") is not None:
        return
    deployment = os.environ.get("OML_GENESIS_DEPLOYMENT")
    if not deployment:
        raise SetUpError(
            "the deployment has no name", "Set OML_GENESIS_DEPLOYMENT. It stays for good."
        )
    signer = os.environ.get("OML_GENESIS_SIGNER") or "file:/etc/oml/signing.key"
    if signer.startswith("file:"):
        make_key(Path(signer.removeprefix("file:")))
    connection.execute(
        "select oml_genesis(%s, signer => %s, lake_url => %s)",
        (deployment, signer, os.environ.get("OML_GENESIS_LAKE_URL") or None),
    )
    root = one(connection, "select encode(public_key, 'hex') from oml.key where purpose = 'root'")
    say(f"genesis of {deployment}; root key {root}")
    say("note the root key elsewhere: a verifier is given it, and believes no database")


def make_key(path: Path) -> None:
    """Make the signing key, on a volume: one in the container's own layer would go with it."""
    if path.exists():
        return
    if not on_volume(path.parent):
        raise SetUpError(
            f"there is no signing key {path}, and {path.parent} is no volume",
            f"Mount a volume on {path.parent}: a key is made there, or put yours into it, "
            "mode 0600 and of this user.",
        )
    keys.generate(str(path))
    say(f"made the signing key {path}; copy it to a safe place, no backup of the database has it")


def on_volume(directory: Path) -> bool:
    """Whether something is mounted on a directory or one above it, short of the root."""
    mounts = {line.split()[4] for line in open("/proc/self/mountinfo", encoding="utf-8")}
    real = directory.resolve()
    return any(str(place) in mounts for place in (real, *real.parents) if place != Path("/"))


def login(connection: Connection, name: str, secrets: Path, attribute: str = "") -> None:
    """Make a login unless it is there. Without a password it can be used inside alone."""
    if one(connection, "select count(*) from pg_roles where rolname = %s", name):
        return
    file = secrets / f"{name}_password"
    with connection.transaction():
        connection.execute(f"create role {name} login nosuperuser {attribute}")
        password(connection, name, str(file) if file.exists() else None)


def password(connection: Connection, name: str, file: str | None) -> None:
    """Set a login's password to the first line of a file, as a verifier; without a file, none."""
    if file is None:
        return
    try:
        secret = Path(file).read_bytes().partition(b"\n")[0]
    except OSError as error:
        raise SetUpError(
            f"the password of {name} cannot be read: {error}",
            "The file must be readable by the server's user in the container.",
        ) from None
    if not secret:
        raise SetUpError(f"the password of {name} is empty", f"Its first line counts: {file}.")
    verifier = connection.pgconn.encrypt_password(secret, name.encode(), b"scram-sha-256")
    connection.execute(
        sql.SQL("alter role {} password {}").format(
            sql.Identifier(name), sql.Literal(verifier.decode())
        )
    )


def bind(connection: Connection, name: str, tenant: str, permission: str) -> None:
    """Give a login a permission, unless somebody gave it any there."""
    bound = "select count(*) from oml.membership where login = %s and tenant = %s"
    if not one(connection, bound, name, tenant):
        connection.execute("select oml_grant(%s, %s, array[%s])", (name, tenant, permission))


def say(message: str) -> None:
    """Write a line to the container's log."""
    print(f"oml: {message}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except SetUpError as error:
        say(str(error))
        say(f"hint: {error.hint}")
        sys.exit(2)
    except psycopg.Error as error:
        say(str(error).strip())
        sys.exit(2)
