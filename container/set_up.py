"""Set OML up in a new cluster: the extension, genesis, logins, a tenant.

Run by the entry point, as the server's OS user, against a private server, until it has come to its
end once. What there is to set comes from OML_GENESIS_* and counts once; passwords come from files,
LOGIN_password in the directory of secrets, and reach the server only as SCRAM verifiers.
"""

import json
import os
import sys
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from oml.core import keys

DATABASE = "oml"
LOGINS = {
    "app": "oml_writer",
    "auditor": "oml_auditor",
    "lake": "oml_daemon",
    "tlog": "oml_daemon",
}
"""The logins that are made, and the group of each. None is a superuser or owns anything."""
ON_PROVIDER = {"auditor": "audit", "lake": "operate", "tlog": "operate"}

Connection = psycopg.Connection[TupleRow]


class SetUpError(Exception):
    """What stops the container, and what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def main(socket_directory: str, secrets: Path) -> None:
    """Bring the server behind a socket directory to where a container of this image serves.

    All but the database is made in one transaction, so there is no half of it, and what is appended
    meets a write gate that this very transaction has opened.
    """
    with connect(socket_directory, "postgres") as connection:
        if not one(connection, "select count(*) from pg_database where datname = %s", DATABASE):
            connection.execute(f"create database {DATABASE} encoding 'UTF8' template template0")
    with connect(socket_directory, DATABASE) as connection:
        if one(connection, "select to_regclass('oml.journal')") is None:
            with connection.transaction():
                password(connection, "postgres", os.environ.get("POSTGRES_PASSWORD_FILE"))
                login(connection, "replicator", secrets, "replication")
                connection.execute("create extension oml cascade")
                genesis(connection)
                for name, group in LOGINS.items():
                    login(connection, name, secrets)
                    connection.execute(f"grant {group} to {name}")
                for name, permission in ON_PROVIDER.items():
                    grant(connection, name, "provider", permission)
                tenant = os.environ.get("OML_GENESIS_TENANT")
                if tenant:
                    connection.execute("select oml_create_tenant(%s)", (tenant,))
                    grant(connection, "app", tenant, "append")
            report(connection)
        configure(connection)


def connect(socket_directory: str, database: str) -> Connection:
    """Open a connection as the superuser.

    Its commits wait for no standby: there are none yet, and they begin as copies of all this.
    """
    connection = psycopg.connect(
        host=socket_directory,
        dbname=database,
        user="postgres",
        autocommit=True,
        options="-c synchronous_commit=local -c client_min_messages=error",
    )
    return connection


def one(connection: Connection, query: str, *arguments: str) -> object:
    """Return the first value of the first row."""
    row = connection.execute(query.encode(), arguments).fetchone()
    return row[0] if row else None


def genesis(connection: Connection) -> None:
    """Have the genesis; make the key file for it where the signer is one."""
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


def report(connection: Connection) -> None:
    """Say what a person must note."""
    root = one(connection, "select encode(public_key, 'hex') from oml.key where purpose = 'root'")
    say(f"genesis is done; root key {root}")
    say("note the root key elsewhere: a verifier is given it, and believes no database")


def configure(connection: Connection) -> None:
    """Make the settings of OML_GENESIS_SETTINGS, a JSON object of text.

    The production profile is refused to a session that waits for no standby. So this one is of the
    other kind, and waits for none at the commit, at which alone it would.
    """
    text = os.environ.get("OML_GENESIS_SETTINGS") or "{}"
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise SetUpError(
            "OML_GENESIS_SETTINGS is no JSON object", 'For example {"profile": "production"}.'
        )
    with connection.transaction():
        connection.execute("set local synchronous_commit = 'on'")
        for name, value in settings.items():
            connection.execute("select oml_configure(%s, %s)", (name, value))
        connection.execute("set local synchronous_commit = 'local'")


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
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    real = directory.resolve()
    return any(str(place) in mounts for place in (real, *real.parents) if place != Path("/"))


def login(connection: Connection, name: str, secrets: Path, attribute: str = "") -> None:
    """Make a login. Without a password it can be used inside alone."""
    file = secrets / f"{name}_password"
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


def grant(connection: Connection, name: str, tenant: str, permission: str) -> None:
    """Give a login one permission in a tenant."""
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
