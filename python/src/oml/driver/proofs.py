"""Proofs of inclusion, through SQL. Errors of the database come as DatabaseError."""

from uuid import UUID

import psycopg
from psycopg.rows import TupleRow

from oml.errors import UsageError, from_postgres


def prove(connection: psycopg.Connection[TupleRow], event_id: str) -> bytes:
    """Return the proof file of an event. Needs audit on its tenant or on the provider."""
    try:
        wanted = UUID(event_id)
    except ValueError:
        raise UsageError(
            f"{event_id!r} is not an event id", "Give the UUID that oml_append returned."
        ) from None
    try:
        row = connection.execute("select oml_prove_inclusion(%s)", (wanted,)).fetchone()
    except psycopg.Error as error:
        raise from_postgres(error) from None
    assert row is not None
    return str(row[0]).encode()
