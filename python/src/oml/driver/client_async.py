"""oml.driver.client for asyncio: the same calls, made of the same parts."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, Unpack
from uuid import UUID

import tenacity

from oml.driver import connection as connections
from oml.driver.artifacts import (
    ArtifactEvent,
    Attachment,
    Fetched,
    OwnSubmission,
    Queued,
    Report,
    Served,
    Submission,
)
from oml.driver.calls import Call, Claims, ContentClaims, EventClaims, Paged, Source, T, Task
from oml.driver.commit_async import Connection, acknowledged, answer
from oml.driver.events import Event, Receipt
from oml.driver.retrying import Retry, judged
from oml.driver.sealing import Content, attached
from oml.driver.session import (
    Examine,
    Session,
    default_examine,
    require_open,
    require_transaction,
    usable,
)
from oml.errors import DatabaseError, NotAcknowledged, OmlError


async def connect_async(
    dsn: str | None = None,
    *,
    tenant: str | None = None,
    principal: str | None = None,
    writer_key: str | PathLike[str] | None = None,
    retry: Retry | None = None,
    application_name: str = "oml",
) -> "AsyncClient":
    """Open a client with a connection of its own.

    ``dsn`` is a libpq conninfo string or URI (None: the PG* variables). ``tenant`` and
    ``principal`` say where and as whom it acts, for a login that could act as several.
    ``writer_key`` is the file of the writer's own key, which then signs each submission. ``retry``
    says how often a call is tried (None: the defaults). Raises UsageError and DatabaseError.
    """
    session = Session.of(tenant, principal, writer_key, retry or Retry())

    async def open_() -> Connection:
        made = await connections.connect_async(
            dsn, autocommit=True, application_name=application_name
        )
        made.prepare_threshold = None  # a pooler may not keep what is prepared
        return made

    return AsyncClient(session, await open_(), open_)


class AsyncClient:
    """Calls of the SQL interface. Use as a context manager; made by ``connect`` or ``on``.

    Several tasks may use it: their calls follow each other. One that is cancelled leaves open
    whether its call was committed.
    """

    def __init__(
        self,
        session: Session,
        connection: Connection,
        reopen: Callable[[], Awaitable[Connection]] | None,
    ) -> None:
        self._session = session
        self._calls = session.calls()
        self._connection = connection
        self._reopen = reopen
        self._closed = False
        self._turn = asyncio.Lock()

    @classmethod
    def on(
        cls,
        connection: Connection,
        *,
        tenant: str | None = None,
        principal: str | None = None,
        writer_key: str | PathLike[str] | None = None,
    ) -> Self:
        """Make a client that takes part in the caller's transactions on this connection.

        Then nothing is retried, no idempotency key is made, and nothing is committed: what a call
        returns counts once the caller's own commit was acknowledged. A ``principal`` is chosen for
        the rest of the transaction, as oml_use() does.
        """
        session = Session.of(tenant, principal, writer_key, Retry(), joined=True)
        return cls(session, connection, None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client, and the connection if it is its own."""
        self._closed = True
        if self._reopen is not None:
            await self._connection.close()

    async def append(
        self, type: str, payload: Mapping[str, Any] | str, **claims: Unpack[EventClaims]
    ) -> Receipt:
        """Append one event; ``payload`` is a JSON object or its text."""
        return await self._run(self._calls.append(type, payload, claims))

    async def append_batch(self, events: Iterable[Event]) -> list[Receipt]:
        """Append events, all or none; receipts come in their order. Each has a key of its own."""
        return await self._run(self._calls.append_batch(events))

    async def submit(
        self,
        workarea: str | UUID,
        body: bytes,
        media_type: str,
        provenance: str,
        *,
        attachments: Sequence[Attachment] = (),
        derived_from: Sequence[Source] = (),
        artifact: UUID | None = None,
        encrypt: Literal["server", "client"] | None = None,
        **claims: Unpack[ContentClaims],
    ) -> Submission:
        """Submit a body and small attachments to a workarea, by its path or id.

        ``artifact`` names one's own whose next version this is (None: a new one). ``encrypt`` says
        who encrypts: the server, or the client here, which signs as well if it has a writer key
        (None: the client if it has one, else the server).
        """
        content, files = Content.of(body), attached(attachments)
        del body, attachments
        return await self._run(
            self._calls.submit(
                workarea, content, media_type, provenance, files, derived_from, artifact,
                encrypt, claims,
            )
        )  # fmt: skip

    async def fetch(
        self, artifact: UUID, *, version: int | None = None, attachment: str | None = None
    ) -> Fetched:
        """Read the body of a version, or one attachment. None: the newest that one may read."""
        return await self._run(self._calls.fetch(artifact, version, attachment))

    def review_queue(self, *, page_rows: int = 100) -> AsyncIterator[Queued]:
        """Yield what waits for a verdict that one may give, oldest first."""
        return self._pages(self._calls.review_queue(page_rows))

    async def review(
        self,
        artifact: UUID,
        *,
        version: int | None = None,
        scan: bool = True,
        examine: Examine | None = None,
    ) -> Served:
        """Be served a version, body and attachments, to judge it, and scan it here.

        That it was served is an event; where a first answer was lost there are two. ``examine``
        scans in place of the driver's own scan. Without a scan the report is None.
        """
        look = (examine or default_examine()) if scan else None
        served = await self._run(self._calls.review(artifact, version))
        if look is None:
            return served
        return served._replace(report=await asyncio.to_thread(look, served.parts))

    async def verdict(
        self,
        artifact: UUID,
        verdict: Literal["approve", "reject"],
        reason: str | None = None,
        *,
        version: int | None = None,
        report: Report | None = None,
        accept_findings: bool = False,
        **claims: Unpack[Claims],
    ) -> Receipt:
        """Judge a version that was served in full; ``report`` is the one that came with it."""
        return await self._run(
            self._calls.verdict(artifact, verdict, reason, version, report, accept_findings, claims)
        )

    async def promote(
        self,
        artifact: UUID,
        reason: str | None = None,
        *,
        version: int | None = None,
        **claims: Unpack[Claims],
    ) -> Receipt:
        """Release an approved version to the members of its workarea."""
        return await self._run(self._calls.decide("promote", artifact, reason, version, claims))

    async def demote(
        self, artifact: UUID, reason: str, *, version: int | None = None, **claims: Unpack[Claims]
    ) -> Receipt:
        """Withdraw a released version."""
        return await self._run(self._calls.decide("demote", artifact, reason, version, claims))

    async def reassign(
        self,
        artifact: UUID,
        workarea: str | UUID,
        reason: str,
        *,
        version: int | None = None,
        **claims: Unpack[Claims],
    ) -> Receipt:
        """Move a released version to another workarea, by its path or id."""
        return await self._run(
            self._calls.decide("reassign", artifact, reason, version, claims, workarea)
        )

    async def end_simulation(
        self, artifact: UUID, reason: str, *, version: int | None = None, **claims: Unpack[Claims]
    ) -> Receipt:
        """Withdraw a simulated version, or see to it that it is not released."""
        return await self._run(
            self._calls.decide("end_simulation", artifact, reason, version, claims)
        )

    def my_submissions(
        self, artifact: UUID | None = None, *, page_rows: int = 100
    ) -> AsyncIterator[OwnSubmission]:
        """Yield one's own submissions and where they stand, newest first."""
        return self._pages(self._calls.my_submissions(artifact, page_rows))

    def history(self, artifact: UUID, *, page_rows: int = 100) -> AsyncIterator[ArtifactEvent]:
        """Yield the events about an artifact, in the order of the chain."""
        return self._pages(self._calls.history(artifact, page_rows))

    async def create_workarea(self, path: str) -> UUID:
        """Make a workarea and return its id.

        This and the three that follow take no idempotency key: they are not tried again where they
        may have been done.
        """
        made: UUID = await self._run(self._calls.workarea("create", path=path))
        return made

    async def move_workarea(self, workarea: str | UUID, path: str) -> None:
        """Give a workarea another path."""
        await self._run(self._calls.workarea("move", workarea=workarea, path=path))

    async def add_member(self, workarea: str | UUID, principal: str) -> None:
        """Let a principal submit to a workarea, and read what is released in it."""
        await self._run(self._calls.workarea("add", workarea=workarea, principal=principal))

    async def remove_member(self, workarea: str | UUID, principal: str) -> None:
        """End a principal's membership of a workarea."""
        await self._run(self._calls.workarea("remove", workarea=workarea, principal=principal))

    async def _run(self, task: Task[T]) -> T:
        require_open(self._closed)
        if self._session.joined:
            return await self._attempt(task)
        lost: list[NotAcknowledged] = []
        retrying = tenacity.AsyncRetrying(**self._session.retry.options(task, lost))
        try:
            return await retrying(self._attempt, task)
        except DatabaseError as error:
            failure = judged(error, lost, task)
        raise failure

    async def _attempt(self, task: Task[T]) -> T:
        """Make the task's calls, one after another; what one raises is the task's to see."""
        steps: Generator[Call[Any], Any, T] = task.steps()
        given: Any = None
        failed: OmlError | None = None
        while True:
            try:
                call = steps.send(given) if failed is None else steps.throw(failed)
            except StopIteration as end:
                result: T = end.value
                return result
            given = failed = None
            try:
                given = await self._transact(call)
            except OmlError as error:
                failed = error

    async def _transact(self, call: Call[T]) -> T:
        async with self._turn:
            first = self._session.first()
            if self._session.joined:
                require_transaction(self._connection)
                return await answer(self._connection, first, call)
            if self._reopen is not None and not usable(self._connection):
                await self._connection.close()
                self._connection = await self._reopen()
            async with acknowledged(self._connection):
                return await answer(self._connection, first, call)

    async def _pages(self, paged: Paged[T]) -> AsyncIterator[T]:
        call = paged.after(None)
        while call is not None:
            page: list[T] = await self._run(call)
            for row in page:
                yield row
            call = paged.after(page)
