"""The deployment's keys, through SQL: issue, retire, rotate and list.

Each act is an event of the provider chain, which is what a verifier believes. Errors of the
database come as DatabaseError.
"""

from typing import Any

import psycopg
from psycopg.rows import TupleRow, dict_row

from oml.errors import UsageError, from_postgres

Connection = psycopg.Connection[TupleRow]

PUBLIC_KEY_BYTES = 32


def parse_public_key(text: str, option: str) -> bytes:
    """Return the 32 bytes of an Ed25519 public key given as 64 hex digits.

    ``option`` is how the caller named it. Raises UsageError.
    """
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != PUBLIC_KEY_BYTES:
        raise UsageError(f"{option} is not a public key", "Give its 32 bytes as 64 hex digits.")
    return key


def issue(
    connection: Connection,
    public_key: bytes,
    *,
    purpose: str,
    tenant: str | None = None,
    principal: str | None = None,
) -> str:
    """Issue a 32-byte Ed25519 public key and return its kid in hex.

    ``purpose`` is ``writer`` (then ``tenant`` and ``principal`` say whose) or ``signing``.
    """
    query = "select oml_issue_key(%s, %s, %s, %s)"
    return str(_value(connection, query, public_key, purpose, tenant, principal))


def retire(connection: Connection, kid: str) -> bool:
    """Retire a writer key or a standby signing key; False if it was retired before."""
    return bool(_value(connection, "select oml_retire_key(%s)", kid))


def rotate_signing(
    connection: Connection, *, signer: str | None = None, kid: str | None = None
) -> str:
    """Put another signing key in force on every chain and return its kid in hex.

    ``signer`` is the signer that holds it (None: the present one), ``kid`` says which of its keys
    (None: it holds one). Needs a superuser.
    """
    return str(_value(connection, "select oml_rotate_signing_key(%s, %s)", signer, kid))


def listed(connection: Connection) -> list[dict[str, Any]]:
    """Return every key that was ever issued, in the order of issue, as oml_keys() has it."""
    try:
        with connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute("select * from oml_keys()").fetchall()
    except psycopg.Error as error:
        raise from_postgres(error) from None


def _value(connection: Connection, query: str, *parameters: object) -> object:
    try:
        row = connection.execute(query.encode(), parameters).fetchone()
    except psycopg.Error as error:
        raise from_postgres(error) from None
    assert row is not None
    return row[0]
