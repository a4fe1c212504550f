"""oml.driver.commit for asyncio: the same steps, and the same judgement of what comes of them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg.rows import TupleRow, tuple_row

from oml.driver.calls import Call, T
from oml.driver.commit import (
    LET_WARNINGS_THROUGH,
    doubts,
    refuse_doubts,
    require_no_transaction,
    unanswered,
)
from oml.driver.retrying import refusal
from oml.errors import from_postgres

Connection = psycopg.AsyncConnection[TupleRow]


@asynccontextmanager
async def acknowledged(connection: Connection) -> AsyncIterator[Connection]:
    """Run a transaction; the block is left normally only if its commit was acknowledged."""
    require_no_transaction(connection)
    transaction = connection.transaction()
    try:
        await transaction.__aenter__()
    except psycopg.Error as error:
        raise from_postgres(error) from None
    try:
        yield connection
    except BaseException as error:
        with suppress(psycopg.Error):
            if await transaction.__aexit__(type(error), error, error.__traceback__):
                return
        raise
    await _commit(connection, transaction)


async def answer(connection: Connection, first: Sequence[Call[Any]], call: Call[T]) -> T:
    """Make calls in the transaction under way, the last one for its answer."""
    failure = None
    try:
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            for before in first:
                await cursor.execute(before.query, before.parameters)
            await cursor.execute(call.query, call.parameters, binary=True)
            rows = await cursor.fetchall()
    except psycopg.Error as error:
        failure = refusal(error)
    if failure is not None:
        raise failure
    return call.read(rows)


async def _commit(connection: Connection, transaction: AbstractAsyncContextManager[Any]) -> None:
    try:
        await connection.execute(LET_WARNINGS_THROUGH)
    except psycopg.Error as error:
        with suppress(psycopg.Error):
            await transaction.__aexit__(type(error), error, error.__traceback__)
        raise from_postgres(error) from None
    with doubts(connection) as said:
        try:
            await transaction.__aexit__(None, None, None)
        except psycopg.Error as error:
            raise unanswered(connection, error) from None
    refuse_doubts(said)
