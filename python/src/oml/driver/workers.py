"""Prove a plan's segments in several processes; the one that asks takes part.

Each process has a connection of its own and takes the next segment from a shared counter. One that
ends before it has said so fails the whole: what is missing is never taken for proved.
"""

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from oml.driver.pages import Pages
from oml.driver.segments import Plan, Proof
from oml.errors import DatabaseError, OmlError

_EXIT_TIMEOUT_S = 5.0


class Workers:
    """Processes that wait for a plan. Use as a context manager: none of them outlives it.

    ``count`` is how many there are beside the caller's own; they start up while the caller does
    something else. They have a process group of their own, so an interrupt reaches the caller only.
    """

    def __init__(self, dsn: str | None, count: int) -> None:
        self._stack = ExitStack()
        with tempfile.TemporaryFile() as counter:
            self._counter = os.dup(counter.fileno())
        self._stack.callback(os.close, self._counter)
        self._pipes: dict[Connection, subprocess.Popen[bytes]] = {}
        with ExitStack() as failed:
            failed.enter_context(self)
            for _ in range(count):
                self._start(dsn)
            failed.pop_all()

    def _start(self, dsn: str | None) -> None:
        ours, theirs = socket.socketpair()
        pipe = Connection(ours.detach())
        # Without what lies in the current directory; the DSN may hold a password and is sent.
        command = [sys.executable, "-P", "-m", "oml.driver.workers"]
        with theirs:
            handles = (theirs.fileno(), self._counter)
            self._pipes[pipe] = subprocess.Popen(
                [*command, *map(str, handles)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=handles,
                process_group=0,
            )
        with suppress(OSError):
            pipe.send(dsn)

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """The processes beside the caller's own."""
        return list(self._pipes.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe, process in self._pipes.items():
            pipe.close()
            process.kill()  # it has nothing to finish
        for process in self.processes:
            process.wait()
        self._stack.close()

    def prove(self, plan: Plan, pages: Pages, page_read: Callable[[int], None]) -> dict[int, Proof]:
        """Prove all segments of a plan, once; return {number: proof}.

        ``pages`` is the caller's connection; ``page_read`` is told the rows of each page that any
        process read. Raises OmlError when a process fails or is gone.
        """
        proofs: dict[int, Proof] = {}
        busy = set(self._pipes)
        for pipe in busy:
            with suppress(OSError):  # it is gone: what it said before, or that, is heard below
                pipe.send(plan)

        def listen(timeout: float | None) -> None:
            for pipe in wait(list(busy), timeout):
                assert isinstance(pipe, Connection)
                kind, content = self._hear(pipe)
                if kind == "read":
                    page_read(content)
                elif kind == "proof":
                    proofs[content[0]] = content[1]
                elif kind == "done":
                    busy.remove(pipe)
                else:
                    raise DatabaseError(*content)

        def own_page(rows: int) -> None:
            page_read(rows)
            if busy:
                listen(0)

        while (number := _claim(self._counter)) < len(plan):
            proofs[number] = plan.prove(number, pages, own_page)
        while busy:
            listen(None)
        return proofs

    def _hear(self, pipe: Connection) -> Any:
        try:
            return pipe.recv()
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                self._pipes[pipe].wait(_EXIT_TIMEOUT_S)
            raise OmlError(
                f"a verifying process ended before its work: status {self._pipes[pipe].poll()}",
                "Nothing was decided. Run it again, with fewer --jobs if memory was short.",
            ) from None


def _claim(counter: int) -> int:
    """Return the number of the next segment, which no other process gets.

    ``counter`` is a file descriptor. Its lock ends with whoever holds it.
    """
    fcntl.lockf(counter, fcntl.LOCK_EX)
    try:
        number = int.from_bytes(os.pread(counter, 8, 0), "little")
        os.pwrite(counter, (number + 1).to_bytes(8, "little"), 0)
        return number
    finally:
        fcntl.lockf(counter, fcntl.LOCK_UN)


def _work(pipe: Connection, counter: int) -> None:
    """Be a worker: get a plan, prove segments until there are no more, say so."""
    try:
        try:
            with Pages(pipe.recv()) as pages:
                plan = pipe.recv()
                while (number := _claim(counter)) < len(plan):
                    proof = plan.prove(number, pages, lambda rows: pipe.send(("read", rows)))
                    pipe.send(("proof", (number, proof)))
            pipe.send(("done", None))
        except DatabaseError as error:
            pipe.send(("error", (error.sqlstate, error.message, error.hint)))
    except (EOFError, OSError):
        return  # whoever asked is gone


if __name__ == "__main__":
    _work(Connection(int(sys.argv[1])), int(sys.argv[2]))
