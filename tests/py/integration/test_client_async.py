"""The asynchronous client where it is not used as the other one is."""

import asyncio
from collections.abc import Sequence

import pytest

import oml
from clients import AREA, BODY, QUICK, Stage, looked_at
from oml.driver import connection as connections
from oml.driver.artifacts import Part, Report
from oml.driver.client_async import AsyncClient
from oml.errors import UsageError


def test_tasks_share_a_client_one_call_at_a_time(plain: Stage) -> None:
    async def run() -> list[int]:
        async with await oml.connect_async(plain.system.dsn()) as client:
            receipts = await asyncio.gather(*(client.append("note.added", {}) for _ in range(8)))
        with pytest.raises(UsageError, match="closed"):
            await client.append("note.added", {})
        return [r.seq for r in receipts]

    assert len(set(asyncio.run(run()))) == 8 == plain.count("note.added")


def test_a_list_may_be_left_half_read(plain: Stage) -> None:
    async def run() -> list[int]:
        async with await oml.connect_async(plain.system.dsn()) as client:
            for _ in range(4):
                await client.submit(AREA, BODY, "text/plain", "observed")
            read = []
            async for own in client.my_submissions(page_rows=2):
                # Another call in between: a page is read whole.
                read.append((await client.fetch(own.artifact_id)).version)
                if len(read) == 3:
                    break
            return read

    assert asyncio.run(run()) == [1, 1, 1]


def test_a_task_that_is_cancelled_leaves_a_client_that_works(plain: Stage) -> None:
    holder = plain.hold()

    async def run() -> None:
        async with await oml.connect_async(plain.system.dsn(), retry=QUICK) as client:
            task = asyncio.create_task(client.append("note.added", {"n": 1}))
            await asyncio.to_thread(plain.waiting, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            holder.rollback()
            await client.append("note.added", {"n": 2})

    asyncio.run(run())
    assert plain.count("note.added") == 1


def test_in_a_transaction_of_the_callers_own_the_caller_commits(plain: Stage) -> None:
    async def run() -> None:
        connection = await connections.connect_async(plain.system.dsn(), autocommit=True)
        async with connection, AsyncClient.on(connection) as mine:
            async with connection.transaction():
                await mine.append("note.added", {"n": 1})
                made = await mine.submit(AREA, BODY, "text/plain", "observed", encrypt="client")
                assert plain.count("note.added") == 0
            with pytest.raises(ZeroDivisionError):
                async with connection.transaction():
                    await mine.append("note.added", {"n": 2})
                    raise ZeroDivisionError
            with pytest.raises(UsageError, match="no transaction"):
                await mine.append("note.added", {"n": 3})
            async with connection.transaction():
                assert [o.artifact_id async for o in mine.my_submissions()] == [made.artifact_id]

    asyncio.run(run())
    assert plain.count("note.added") == 1 == plain.count("submission.submit")


def test_what_is_scanned_is_scanned_beside_the_loop(plain: Stage) -> None:
    made = plain.client().submit(AREA, BODY, "text/plain", "observed")

    async def run() -> list[dict[str, object]] | None:
        beats = asyncio.Event()
        loop = asyncio.get_running_loop()

        def examine(parts: Sequence[Part]) -> Report:
            loop.call_soon_threadsafe(beats.set)
            assert asyncio.run_coroutine_threadsafe(beats.wait(), loop).result(60)
            return looked_at(parts)

        async with await oml.connect_async(plain.system.dsn(plain.rita)) as client:
            served = await client.review(made.artifact_id, examine=examine)
            await client.verdict(made.artifact_id, "approve", report=served.report)
            return served.report

    assert asyncio.run(run())
    assert plain.count("review.verdict") == 1
