"""Processes that race for an object of a store, for tests: each starts anew, none is a fork."""

import multiprocessing
import sys
from multiprocessing.synchronize import Barrier
from typing import Any

from oml.store import open_store

_CONTEXT = multiprocessing.get_context("spawn")
_PATIENCE_S = 120


def race(
    url: str, options: dict[str, str], rounds: int, racers: int
) -> list[tuple[list[int], list[int]]]:
    """Have racers create and then replace an object in each round.

    Returns for each round who says that it created, and who says that it replaced.
    """
    barrier = _CONTEXT.Barrier(racers)
    queue: Any = _CONTEXT.Queue()
    processes = [
        _CONTEXT.Process(target=_run, args=(url, options, rounds, number, barrier, queue))
        for number in range(racers)
    ]
    for process in processes:
        process.start()
    claims = dict(queue.get(timeout=_PATIENCE_S) for _ in processes)
    for process in processes:
        process.join(_PATIENCE_S)
        assert process.exitcode == 0
    return [
        (
            [number for number in range(racers) if claims[number][at][0]],
            [number for number in range(racers) if claims[number][at][1]],
        )
        for at in range(rounds)
    ]


def _run(
    url: str, options: dict[str, str], rounds: int, number: int, barrier: Barrier, queue: Any
) -> None:
    store = open_store(url, options)
    claims = []
    for at in range(rounds):
        path = f"race/{at}"
        barrier.wait(_PATIENCE_S)
        created = store.create(path, b"created by %d" % number)
        barrier.wait(_PATIENCE_S)
        before = store.get(path)
        barrier.wait(_PATIENCE_S)
        claims.append((created, store.replace(path, b"replaced by %d" % number, before)))
    queue.put((number, claims))


def churn(url: str) -> None:
    """Create and replace objects of a directory until killed. Each line tells what is done."""
    store = open_store(url)
    at = 0
    while True:
        store.create(f"kept/{at % 7}/{at}", whole(at))
        current = store.get("changing")
        store.replace("changing", whole(at), current)
        print(at, flush=True)
        at += 1


def whole(number: int) -> bytes:
    """Return content that tells whether it is whole."""
    return b"%08d" % number * 2000


if __name__ == "__main__":
    churn(sys.argv[1])
