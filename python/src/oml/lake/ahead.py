"""Reads the next batches while one is applied: the database and the lake work at the same time.

Only reading goes ahead. Batches come in order, each beginning where the one before it ended, and
whoever stops asking (after a failed commit, a rival's, a stop) leaves no trace of what was read
beyond. All of it lies within a fenced cut, so it is the same whenever it is read.
"""

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from oml.lake.source import Reader, Source
from oml.lake.table import Bounds

AHEAD = 2
"""How many batches are read while one is applied. So one more than these are in memory."""
_CANCEL_AGAIN_S = 0.1


@dataclass(frozen=True)
class Batch:
    """A batch and its outbox rows of all targets, in order, with a column ``target``."""

    bounds: Bounds
    rows: pa.Table


class Ahead:
    """The batches of (after, limit], for one thread to iterate over once.

    Use as a context manager: leaving it cancels what is being read and waits for its end. A batch
    has at most ``max_rows`` rows, and its rows but the last fewer than ``max_bytes`` bytes of
    envelopes. Iterating raises DatabaseError when the batch that is due could not be read.

    Where a batch ends is known for sure only when it is read. Until then the next one is taken to
    begin ``max_rows`` numbers further on. A batch that was full before makes that guess wrong: what
    was read by it is dropped, and one batch alone is read ahead until one is no longer full.
    """

    def __init__(
        self, source: Source, after: int, limit: int, max_rows: int, max_bytes: int
    ) -> None:
        self._source = source
        self._reached = self._next = after
        self._limit = limit
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._ahead = AHEAD
        self._begun: deque[_Read] = deque()
        self._pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="oml-lake-reader")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drop()
        self._pool.shutdown()

    def __iter__(self) -> Iterator[Batch]:
        while (batch := self._take()) is not None:
            yield batch
            del batch  # or it would be in memory beside those that are read next

    def _take(self) -> Batch | None:
        self._begin()
        while self._begun:
            read = self._begun.popleft()
            rows = read.future.result()
            if rows.num_rows:
                end = int(rows["outbox_seq"][-1].as_py())
                if self._is_full(read, rows):
                    self._go_on_from(end)
                else:
                    self._ahead = AHEAD
                batch = Batch(Bounds(self._reached, end), rows)
                self._reached = end
                self._begin()
                return batch
            if read.upto < self._limit:  # a gap of any size: look for its end
                self._go_on_from(read.upto)
                self._begin_one(self._limit)
        return None

    def _is_full(self, read: "_Read", rows: pa.Table) -> bool:
        """Whether there may be rows of the numbers asked for that had no place in the batch."""
        if rows.num_rows >= self._max_rows and read.upto - read.after > self._max_rows:
            return True
        return (pc.sum(rows["bytes"]).as_py() or 0) >= self._max_bytes

    def _begin(self) -> None:
        while len(self._begun) < self._ahead and self._next < self._limit:
            self._begin_one(min(self._next + self._max_rows, self._limit))

    def _begin_one(self, upto: int) -> None:
        read = _Read(self._source, self._next, upto, self._max_rows, self._max_bytes)
        read.future = self._pool.submit(read.run)
        self._begun.append(read)
        self._next = upto

    def _go_on_from(self, seq: int) -> None:
        self._drop()
        self._next = seq
        self._ahead = 1

    def _drop(self) -> None:
        futures = [read.future for read in self._begun]
        while wait(futures, timeout=0).not_done:
            for read in self._begun:
                read.cancel()
            wait(futures, timeout=_CANCEL_AGAIN_S)
        self._begun.clear()


class _Read:
    """One batch that is being read. Its reader is given back only if it was never cancelled."""

    future: "Future[pa.Table]"

    def __init__(
        self, source: Source, after: int, upto: int, max_rows: int, max_bytes: int
    ) -> None:
        self.after = after
        self.upto = upto
        self._source = source
        self._limits = max_rows, max_bytes
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._cancelled = False

    def run(self) -> pa.Table:
        """Read it, in a thread of the pool. Raises DatabaseError."""
        reader = self._source.lend()
        with self._lock:
            self._reader = reader
        fit = False
        try:
            rows = reader.batch(self.after, self.upto, *self._limits)
            fit = True
            return rows
        finally:
            with self._lock:
                self._reader = None
                fit = fit and not self._cancelled
            if fit:
                self._source.give_back(reader)
            else:
                reader.close()

    def cancel(self) -> None:
        """Cancel it if it is being read; called again and again until it has ended."""
        with self._lock:
            if self._reader is not None:
                self._cancelled = True
                self._reader.cancel()
