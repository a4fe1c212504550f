"""Both clients of the driver behind one face, so that a test is of both."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import oml
from oml.driver import connection as connections
from oml.driver.client import Client
from oml.driver.client_async import AsyncClient
from oml.driver.session import Session

Kind = Literal["sync", "async"]
KINDS: tuple[Kind, ...] = ("sync", "async")


class Blocking:
    """An AsyncClient whose calls are waited for."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient) -> None:
        self._runner = runner
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            if isinstance(result, AsyncIterator):
                return iter(self._runner.run(_listed(result)))
            return self._runner.run(result)

        return call

    def __repr__(self) -> str:
        return repr(self._client)

    def close(self) -> None:
        """Close the client and its loop."""
        self._runner.run(self._client.close())
        self._runner.close()


def open_client(kind: Kind, dsn: str, **options: Any) -> Any:
    """Open a client of either kind, as oml.connect() and oml.connect_async() do."""
    if kind == "sync":
        return oml.connect(dsn, **options)
    runner = asyncio.Runner()
    return Blocking(runner, runner.run(oml.connect_async(dsn, **options)))


def open_as(kind: Kind, dsn: str, session: Session) -> Any:
    """Open a client of either kind that was asked to act in a way of the test's own."""
    if kind == "sync":

        def again() -> Any:
            return connections.connect(dsn, autocommit=True)

        return Client(session, again(), again)

    async def again_async() -> Any:
        return await connections.connect_async(dsn, autocommit=True)

    runner = asyncio.Runner()
    return Blocking(runner, AsyncClient(session, runner.run(again_async()), again_async))


async def _listed(rows: AsyncIterator[Any]) -> list[Any]:
    return [row async for row in rows]
