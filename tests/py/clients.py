"""Both clients of the driver behind one face, and a tenant with people who use them."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest

import oml
from clusters import until
from oml.core import keys
from oml.driver import connection as connections
from oml.driver.artifacts import Attachment, Part, Report
from oml.driver.client import Client
from oml.driver.client_async import AsyncClient
from oml.driver.retrying import Retry
from oml.driver.sealing import Writer
from oml.driver.session import Session
from oml.errors import DatabaseError
from systems import Connection, System

AREA = "research/2026"
BODY = b"The canary sings at dawn."
NOTES = Attachment("notes.md", "text/markdown", b"# Heard by the pond")
QUICK = Retry(attempts=6, total_s=30, first_wait_s=0.01, longest_wait_s=0.05)
_LOCKED = (
    "select array_agg(pid order by pid) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock'"
)

Kind = Literal["sync", "async"]
KINDS: tuple[Kind, ...] = ("sync", "async")


def looked_at(parts: Sequence[Part]) -> Report:
    """Scan as a reviewer of few words does."""
    return [
        {
            "part": p.part,
            "plaintext_digest": p.plaintext_digest.hex(),
            "basis": "text",
            "media_type": p.media_type,
            "extractor": "eyes 1.0",
            "scanner": "eyes 1.0",
            "findings": [],
        }
        for p in parts
    ]


class Blocking:
    """An AsyncClient whose calls are waited for."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient) -> None:
        self._runner: asyncio.Runner | None = runner
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **named: Any) -> Any:
            assert self._runner is not None
            result = method(*arguments, **named)
            if isinstance(result, AsyncIterator):
                return iter(self._runner.run(_listed(result)))
            return self._runner.run(result)

        return call

    def __repr__(self) -> str:
        return repr(self._client)

    def close(self) -> None:
        """Close the client and its loop."""
        if self._runner is not None:
            self._runner.run(self._client.close())
            self._runner.close()
            self._runner = None


def open_client(kind: Kind, dsn: str, **options: Any) -> Any:
    """Open a client of either kind, as oml.connect() and oml.connect_async() do."""
    if kind == "sync":
        return oml.connect(dsn, **options)
    with contextlib.ExitStack() as failed:
        runner = failed.enter_context(asyncio.Runner())
        opened = Blocking(runner, runner.run(oml.connect_async(dsn, **options)))
        failed.pop_all()
        return opened


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


class Stage:
    """A tenant with its people: app and ben submit, rita reviews, operator operates."""

    def __init__(self, system: System, kind: Kind) -> None:
        self.system = system
        self.kind = kind
        self._open: list[Any] = []
        self.ben = system.make_login(f"ben_{uuid4().hex}", "oml_writer")
        self.rita = system.make_login(f"rita_{uuid4().hex}", "oml_reviewer")
        self.tenant_id = system.make("acme")
        system.superuser.execute("select oml_register_event_type('note.added')")
        system.bind("app", "acme", ("append", "submit", "audit"))
        system.bind(self.ben, "acme", ("submit",))
        system.bind(self.rita, "acme", ("review",))
        system.bind("operator", "acme", ("operate", "audit"))
        self.operator = self.client("operator")
        self.area = self.operator.create_workarea(AREA)
        self.operator.add_member(AREA, "app")
        self.operator.add_member(self.area, self.ben)

    def client(self, login: str = "app", dsn: str | None = None, **options: Any) -> Any:
        """Open a client of this stage's kind, which the end of the test closes."""
        opened = open_client(
            self.kind, dsn or self.system.dsn(login), **{"retry": QUICK, **options}
        )
        self._open.append(opened)
        return opened

    def client_as(self, writer: Writer) -> Any:
        """Open a client that has its submissions signed by this writer."""
        session = Session(None, None, writer, Retry(attempts=1), False)
        opened = open_as(self.kind, self.system.dsn(), session)
        self._open.append(opened)
        return opened

    def issue(self, directory: Path, principal: str = "app") -> tuple[str, str]:
        """Make a writer key and have it issued; return its file and its kid."""
        file = str(directory / f"{uuid4()}.key")
        row = self.system.superuser.execute(
            "select oml_issue_key(%s, 'writer', 'acme', %s)", (keys.generate(file), principal)
        ).fetchone()
        assert row is not None
        return file, row[0]

    def value(self, query: str, *parameters: Any) -> Any:
        """Return the one value of a superuser's query."""
        row = self.system.superuser.execute(query.encode(), parameters).fetchone()
        assert row is not None
        return row[0]

    def count(self, type: str) -> int:
        """Return how many events of a type the tenant's chain has."""
        query = "select count(*) from oml.journal where tenant_id = %s and type = %s"
        return int(self.value(query, self.tenant_id, type))

    def sound(self) -> bool:
        """Tell whether the chain verifies and the state is what its events imply."""
        faults = "select count(*) from oml_verify_chain('acme') where fault is not null"
        differences = "select count(*) from oml_fold_check('acme')"
        return bool(self.value(faults) == 0 and self.value(differences) == 0)

    def hold(self) -> Connection:
        """Hold the tenant's chain in a transaction, on a connection that is returned."""
        holder = self.system.connect("postgres", autocommit=False)
        holder.execute("select oml.lock_chain(%s)", (self.tenant_id,))
        return holder

    def waiting(self, count: int) -> list[int]:
        """Wait until so many backends wait for a lock; return their pids."""

        def pids() -> list[int]:
            found = self.value(_LOCKED) or []
            return found if len(found) == count else []

        found: list[int] = until(pids)
        return found

    def close(self) -> None:
        """Close every client."""
        for client in self._open:
            client.close()


class Running:
    """A call in a thread of its own: what it returned or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None

        def run() -> None:
            try:
                self.result = call()
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._thread.join(60)
        assert not self._thread.is_alive()

    def end(self) -> Any:
        """Wait until it has ended; return its result or raise its error."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self.result


def refused(call: Callable[[], Any]) -> str | None:
    """Insist that the database refuses a call; return the SQLSTATE."""
    with pytest.raises(DatabaseError) as caught:
        call()
    return caught.value.sqlstate


async def _listed(rows: AsyncIterator[Any]) -> list[Any]:
    return [row async for row in rows]
