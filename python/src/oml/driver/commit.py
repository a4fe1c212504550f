"""Commits that count only once the server has acknowledged them.

PostgreSQL ends a cancelled wait for synchronous standbys with a warning and a successful COMMIT,
and a lost connection leaves it open whether a COMMIT took place. Neither is an acknowledgement.
oml.driver.commit_async has the same for asyncio.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row

from oml.driver.calls import Call, T, appending
from oml.driver.events import Receipt
from oml.driver.retrying import refusal
from oml.errors import DatabaseError, NotAcknowledged, UsageError, from_postgres

Connection = psycopg.Connection[TupleRow]

# Warnings that the server sends are let through, whatever the session has set.
LET_WARNINGS_THROUGH = "select set_config('client_min_messages', 'warning', true)"
_RAISED_BY_A_FUNCTION = "exec_stmt_raise"  # a deferred trigger's own words


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
    require_no_transaction(connection)
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
    call = appending(type, payload, {"tenant": tenant, "idempotency_key": idempotency_key} | claims)
    with acknowledged(connection, synchronous_commit=synchronous_commit):
        return answer(connection, (), call)


def answer(connection: Connection, first: Sequence[Call[Any]], call: Call[T]) -> T:
    """Make calls in the transaction under way, the last one for its answer.

    Parameters are bound on the server, also where the connection's own cursors would not.

    Raises DatabaseError, or UsageError for what cannot be sent. Neither holds what was sent.
    """
    failure = None
    try:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            for before in first:
                cursor.execute(before.query, before.parameters)
            rows = cursor.execute(call.query, call.parameters, binary=True).fetchall()
    except psycopg.Error as error:
        failure = refusal(error)
    if failure is not None:
        raise failure
    return call.read(rows)


def set_level(connection: Connection, synchronous_commit: str) -> None:
    """Set synchronous_commit for the transaction under way. Raises DatabaseError."""
    try:
        connection.execute(
            "select set_config('synchronous_commit', %s, true)", (synchronous_commit,)
        )
    except psycopg.Error as error:
        raise from_postgres(error) from None


def require_no_transaction(connection: psycopg.BaseConnection[Any]) -> None:
    """Insist that the next transaction is an outermost one."""
    if connection.info.transaction_status not in (
        TransactionStatus.IDLE,
        TransactionStatus.UNKNOWN,
    ):
        raise UsageError(
            "the connection is in a transaction already",
            "Commit or roll it back first: only the outermost transaction is acknowledged.",
        )


@contextmanager
def doubts(connection: psycopg.BaseConnection[Any]) -> Iterator[list[str]]:
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


def unanswered(connection: psycopg.BaseConnection[Any], error: psycopg.Error) -> DatabaseError:
    """Return what an error during COMMIT means: it was refused, or nobody knows."""
    refused = from_postgres(error)
    if connection.broken or refused.disconnected:
        return NotAcknowledged(
            refused.sqlstate, f"the connection was lost during COMMIT: {refused.message}"
        )
    return refused


def refuse_doubts(said: list[str]) -> None:
    """Insist that the server said nothing against a commit. Raises NotAcknowledged."""
    if said:
        raise NotAcknowledged("01000", f"committed on this server alone: {'; '.join(said)}")


def _commit(connection: Connection, transaction: AbstractContextManager[Any]) -> None:
    try:
        connection.execute(LET_WARNINGS_THROUGH)
    except psycopg.Error as error:
        with suppress(psycopg.Error):
            transaction.__exit__(type(error), error, error.__traceback__)
        raise from_postgres(error) from None
    with doubts(connection) as said:
        try:
            transaction.__exit__(None, None, None)
        except psycopg.Error as error:
            raise unanswered(connection, error) from None
    refuse_doubts(said)
