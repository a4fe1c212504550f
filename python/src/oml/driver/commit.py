"""Commits that count only once the server has acknowledged them.

PostgreSQL ends a cancelled wait for synchronous standbys with a warning and a successful COMMIT,
and a lost connection leaves it open whether a COMMIT took place. Neither is an acknowledgement.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from oml.errors import NotAcknowledged, UsageError, from_postgres

Connection = psycopg.Connection[TupleRow]

# Warnings that the server sends are let through, whatever the session has set.
_PREPARE = "select set_config('client_min_messages', 'warning', true)"
_RAISED_BY_A_FUNCTION = "exec_stmt_raise"  # a deferred trigger's own words


class Receipt(NamedTuple):
    """What an append returns: where the event stands, and the SHA-256 of its envelope."""

    tenant_id: UUID
    seq: int
    event_id: UUID
    hash: bytes


@contextmanager
def acknowledged(
    connection: Connection, *, synchronous_commit: str | None = None
) -> Iterator[Connection]:
    """Run a transaction; the block is left normally only if its commit was acknowledged.

    That is said of what the transaction wrote: the server waits for nothing where it only read.
    ``synchronous_commit`` holds for this transaction (None: what the session has). An exception
    inside rolls back and passes. Raises NotAcknowledged when the commit's outcome is not known, or
    it is known on this server alone; DatabaseError when it was refused, and nothing is committed;
    UsageError inside another transaction, whose commit this would not be.

        with acknowledged(connection):
            connection.execute("insert into …")
            connection.execute("select oml_append(…)")
    """
    if connection.info.transaction_status not in (
        TransactionStatus.IDLE,
        TransactionStatus.UNKNOWN,
    ):
        raise UsageError(
            "the connection is in a transaction already",
            "Commit or roll it back first: only the outermost transaction is acknowledged.",
        )
    transaction = connection.transaction()
    try:
        transaction.__enter__()
    except psycopg.Error as error:
        raise from_postgres(error) from None
    try:
        if synchronous_commit is not None:
            set_level(connection, synchronous_commit)
        yield connection
    except BaseException as error:
        # A lost connection cannot be rolled back, nor need it be: what was lost is the cause.
        with suppress(psycopg.Error):
            if transaction.__exit__(type(error), error, error.__traceback__):
                return
        raise
    _commit(connection, transaction)


def append(
    connection: Connection,
    type: str,
    payload: Mapping[str, Any] | str,
    *,
    idempotency_key: str,
    tenant: str | None = None,
    synchronous_commit: str | None = None,
    **claims: str | int | UUID | None,
) -> Receipt:
    """Append one event in a transaction of its own; return its receipt once that is acknowledged.

    ``payload`` is a JSON object or its text. ``claims`` are the further arguments of oml_append().
    Raises as ``acknowledged`` does. After NotAcknowledged, or a lost connection, call it again with
    the same key until it returns: the event is appended once.
    """
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    arguments = {"tenant": tenant, "idempotency_key": idempotency_key} | claims
    query = sql.SQL("select r.* from oml_append({}, {}::jsonb, {}) r").format(
        sql.Placeholder(),
        sql.Placeholder(),
        sql.SQL(", ").join(
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder())
            for name in arguments
        ),
    )
    with acknowledged(connection, synchronous_commit=synchronous_commit):
        try:
            row = connection.execute(query, (type, text, *arguments.values())).fetchone()
        except psycopg.Error as error:
            raise from_postgres(error) from None
        assert row is not None
    return Receipt(*row)


def set_level(connection: Connection, synchronous_commit: str) -> None:
    """Set synchronous_commit for the transaction under way. Raises DatabaseError."""
    try:
        connection.execute(
            "select set_config('synchronous_commit', %s, true)", (synchronous_commit,)
        )
    except psycopg.Error as error:
        raise from_postgres(error) from None


@contextmanager
def doubts(connection: Connection) -> Iterator[list[str]]:
    """Collect what the server says against a commit that is made inside; empty if nothing.

    The transaction must let warnings through (client_min_messages). Whatever warning we do not know
    counts: the one for a cancelled wait has no SQLSTATE of its own.
    """
    found: list[str] = []

    def take(diagnostic: psycopg.errors.Diagnostic) -> None:
        warns = diagnostic.severity_nonlocalized == "WARNING"
        if warns and diagnostic.source_function != _RAISED_BY_A_FUNCTION:
            found.append(diagnostic.message_primary or "")

    connection.add_notice_handler(take)
    try:
        yield found
    finally:
        connection.remove_notice_handler(take)


def _commit(connection: Connection, transaction: AbstractContextManager[Any]) -> None:
    try:
        connection.execute(_PREPARE)
    except psycopg.Error as error:
        with suppress(psycopg.Error):
            transaction.__exit__(type(error), error, error.__traceback__)
        raise from_postgres(error) from None
    with doubts(connection) as said:
        try:
            transaction.__exit__(None, None, None)
        except psycopg.Error as error:
            refused = from_postgres(error)
            if connection.broken or refused.disconnected:
                raise NotAcknowledged(
                    refused.sqlstate, f"the connection was lost during COMMIT: {refused.message}"
                ) from None
            raise refused from None
    if said:
        raise NotAcknowledged("01000", f"committed on this server alone: {'; '.join(said)}")
