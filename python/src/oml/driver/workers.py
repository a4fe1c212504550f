"""Prove a plan's segments in several processes; the one that asks takes part.

Each process has a connection of its own and takes the next segment from a shared counter. One that
ends before it has said so fails the whole: what is missing is never taken for proved.
"""

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from oml.driver.pages import Pages
from oml.driver.segments import Plan, Proof
from oml.errors import DatabaseError, OmlError

_CLAIM_TIMEOUT_S = 30.0
_EXIT_TIMEOUT_S = 5.0


class Workers:
    """Processes that wait for a plan. Use as a context manager: none of them outlives it.

    ``processes`` is how many there are beside the caller's own; they start up while the caller does
    something else.
    """

    def __init__(self, dsn: str | None, processes: int) -> None:
        # Spawned: a fork would share the caller's connections and Arrow's threads.
        context = multiprocessing.get_context("spawn")
        self._counter: Any = context.Value("q", 0)
        self._pipes: dict[Connection, Any] = {}
        # They inherit the mask: an interrupt is the caller's, who ends them.
        unmasked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(processes):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_work, args=(theirs, self._counter, dsn), daemon=True
                )
                process.start()
                theirs.close()
                self._pipes[ours] = process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)

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
            process.terminate()  # it has nothing to finish
            process.join(_EXIT_TIMEOUT_S)
            if process.is_alive():
                process.kill()
                process.join()

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
            process = self._pipes[pipe]
            process.join(_EXIT_TIMEOUT_S)
            raise OmlError(
                f"a verifying process ended before its work: exit status {process.exitcode}",
                "Nothing was decided. Run it again, with fewer --jobs if memory was short.",
            ) from None


def _claim(counter: Any) -> int:
    """Return the number of the next segment, which no other process gets."""
    lock = counter.get_lock()
    if not lock.acquire(timeout=_CLAIM_TIMEOUT_S):
        raise OmlError(
            "a verifying process ended before its work: it held the counter",
            "Nothing was decided. Run it again.",
        )
    try:
        number = int(counter.value)
        counter.value = number + 1
        return number
    finally:
        lock.release()


def _work(pipe: Connection, counter: Any, dsn: str | None) -> None:
    """Be a worker: get a plan, prove segments until there are no more, say so."""
    try:
        try:
            with Pages(dsn) as pages:
                plan = pipe.recv()
                while (number := _claim(counter)) < len(plan):
                    proof = plan.prove(number, pages, lambda rows: pipe.send(("read", rows)))
                    pipe.send(("proof", (number, proof)))
            pipe.send(("done", None))
        except DatabaseError as error:
            pipe.send(("error", (error.sqlstate, error.message, error.hint)))
    except (EOFError, OSError):
        return  # whoever asked is gone
