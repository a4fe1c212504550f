"""Connections to the journal's database."""

from typing import Any

import psycopg
from psycopg.rows import TupleRow

from oml.errors import UsageError, from_postgres


def connect(
    dsn: str | None = None, *, autocommit: bool = False, application_name: str = "oml"
) -> psycopg.Connection[TupleRow]:
    """Open a connection from a libpq conninfo string or URI, else from the PG* variables.

    ``application_name`` is what pg_stat_activity shows unless the DSN or PGAPPNAME says other.
    Raises UsageError for an empty DSN, DatabaseError if the server cannot be reached, refuses, or
    the DSN does not parse.
    """
    try:
        return psycopg.connect(_given(dsn), autocommit=autocommit, **_options(application_name))
    except psycopg.Error as error:
        raise from_postgres(error) from None


async def connect_async(
    dsn: str | None = None, *, autocommit: bool = False, application_name: str = "oml"
) -> psycopg.AsyncConnection[TupleRow]:
    """Open a connection as ``connect`` does, for asyncio."""
    try:
        return await psycopg.AsyncConnection.connect(
            _given(dsn), autocommit=autocommit, **_options(application_name)
        )
    except psycopg.Error as error:
        raise from_postgres(error) from None


def _given(dsn: str | None) -> str:
    if dsn == "":
        raise UsageError("the DSN is empty", "Leave --dsn out to use OML_DSN or the PG* variables.")
    return dsn or ""


def _options(application_name: str) -> dict[str, Any]:
    return {"fallback_application_name": application_name, "client_encoding": "UTF8"}
