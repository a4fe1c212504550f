"""Reads the next batch while one is applied: the database and the lake work at the same time.

Only reading goes ahead. Batches come in order, each beginning where the one before it ended, and
whoever stops asking (after a failed commit, a rival's, a stop) leaves no trace of what was read
beyond. All of it lies within a fenced cut, so it is the same whenever it is read.
"""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from oml.lake.source import Reader, Source
from oml.lake.table import Bounds

READERS = 2
"""How many pieces of a batch are read at a time, each by a session of its own."""
_PIECE_ROWS = 10000
_SHARE = 4
"""A piece has this part of a batch's bytes at most: so much is set aside before it is read."""
_CANCEL_AGAIN_S = 0.1


@dataclass(frozen=True)
class Batch:
    """A batch and its outbox rows of all targets, in order, with a column ``target``."""

    bounds: Bounds
    rows: pa.Table


class Ahead:
    """The batches of (after, limit], for one thread to iterate over once.

    Use as a context manager: leaving it cancels what is being read and waits for its end. A batch
    has at most ``max_rows`` rows and about ``max_bytes`` bytes of envelopes, one row at least; as
    much again is read ahead and no more. Iterating raises DatabaseError when what is due could not
    be read.

    Batches are read in pieces. Where a piece ends is known for sure only when it is read; until
    then the next one is taken to begin a fixed count of numbers further on. A piece that was full
    before makes that guess wrong: what was read by it is dropped, and one piece at a time is read
    until one is no longer full.
    """

    def __init__(
        self, source: Source, after: int, limit: int, max_rows: int, max_bytes: int
    ) -> None:
        self._source = source
        self._limit = limit
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._pieces_each = -(-max_rows // _PIECE_ROWS)
        self._piece_rows = max_rows // self._pieces_each
        self._piece_bytes = max(1, max_bytes // _SHARE)
        self._reached = after
        # What follows is the readers' too, under the lock of _changed.
        self._changed = threading.Condition()
        self._next = after
        self._begun: deque[_Piece] = deque()
        self._reading: set[_Piece] = set()
        self._guessing = True
        self._wide = False
        self._ended = False
        self._threads = [
            threading.Thread(target=self._read, name=f"oml-lake-reader-{number}", daemon=True)
            for number in range(READERS)
        ]

    def __enter__(self) -> Self:
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:  # the system has no thread left
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._ended = True
            self._begun.clear()
            self._changed.notify_all()
        for thread in self._threads:
            while thread.is_alive():
                with self._changed:
                    for piece in self._reading:
                        piece.cancel()
                thread.join(_CANCEL_AGAIN_S)

    def __iter__(self) -> Iterator[Batch]:
        while (batch := self._batch()) is not None:
            yield batch
            del batch  # or it would be in memory beside those that are read next

    # -- the caller's side -------------------------------------------------------------------

    def _batch(self) -> Batch | None:
        """Wait for the pieces of the next batch and put them together; None if there are none."""
        taken: list[_Piece] = []
        rows = size = 0
        with self._changed:
            while (piece := self._await(len(taken), rows)) is not None:
                rows, size = rows + piece.rows.num_rows, size + piece.size
                if taken and (rows > self._max_rows or size > self._max_bytes):
                    break
                taken.append(piece)
            for _ in taken:
                self._begun.popleft()
            self._changed.notify_all()
        if not taken:
            return None
        bounds = Bounds(self._reached, taken[-1].end)
        self._reached = bounds.end
        return Batch(bounds, pa.concat_tables([piece.rows for piece in taken]))

    def _await(self, place: int, rows: int) -> "_Piece | None":
        """Wait for the piece in this place of the queue, behind so many rows of its batch.

        None if there is none left, none that is sure to fit, or what is before it comes first.
        """
        while True:
            begun = len(self._begun) > place
            after, upto = self._next, self._limit
            if begun:
                piece = self._begun[place]
                after, upto = piece.after, piece.upto
            if after >= upto or (
                place and rows + min(upto - after, self._piece_rows) > self._max_rows
            ):
                return None
            if begun and piece.settled:
                return piece
            if begun and piece.error is not None:
                if place:
                    return None
                raise piece.error
            if not begun and place and not self._reading and not self._may_begin():
                return None  # no room before this batch is gone
            self._changed.wait()

    # -- the readers' side -------------------------------------------------------------------

    def _read(self) -> None:
        while (piece := self._begin()) is not None:
            piece.read(self._source, self._piece_rows, self._piece_bytes)
            with self._changed:
                self._reading.remove(piece)
                piece.done = True
                self._settle()
                self._changed.notify_all()
            del piece  # a batch that is applied must not be kept by us

    def _settle(self) -> None:
        """Go through what is read, in order, and correct what was guessed of the pieces behind."""
        for piece in list(self._begun):
            if not piece.done or piece.error is not None:
                return
            if piece.settled:
                continue
            piece.settled = True
            empty = piece.rows.num_rows == 0
            wrong = piece.upto < self._limit if empty else piece.full
            self._guessing = not wrong
            if wrong:
                self._drop_behind(piece)
                self._next = piece.upto if empty else piece.end
                self._wide = empty  # a gap of any size: look for its end
            if empty:
                self._begun.remove(piece)
            if wrong:
                return

    def _drop_behind(self, piece: "_Piece") -> None:
        while self._begun[-1] is not piece:
            self._begun.pop().cancel()

    def _begin(self) -> "_Piece | None":
        """Wait until there is something to read and room for it; None at the end."""
        with self._changed:
            while not self._ended and not self._may_begin():
                self._changed.wait()
            if self._ended:
                return None
            upto = self._limit if self._wide else self._next + self._piece_rows
            piece = _Piece(self._next, min(upto, self._limit))
            self._next, self._wide = piece.upto, False
            self._begun.append(piece)
            self._reading.add(piece)
            return piece

    def _may_begin(self) -> bool:
        if self._next >= self._limit:
            return False
        if not self._begun:
            return True
        if not self._guessing and not self._begun[-1].settled:
            return False
        size = sum(piece.size for piece in self._begun)
        size += (len(self._reading) + 1) * self._piece_bytes
        return size <= self._max_bytes and len(self._begun) < max(self._pieces_each, _SHARE)


class _Piece:
    """A piece of the outbox, (after, upto], that is being read or was."""

    def __init__(self, after: int, upto: int) -> None:
        self.after = after
        self.upto = upto
        self.rows = pa.table({})
        self.size = 0
        self.full = False
        self.done = False
        self.settled = False
        self.error: Exception | None = None
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._cancelled = False

    @property
    def end(self) -> int:
        """The outbox seq of its last row."""
        return int(self.rows["outbox_seq"][-1].as_py())

    def read(self, source: Source, max_rows: int, max_bytes: int) -> None:
        """Read it, or keep what went wrong."""
        try:
            reader = source.lend()
        except Exception as error:
            self.error = error
            return
        with self._lock:
            self._reader = reader
        try:
            self.rows = reader.batch(self.after, self.upto, max_rows, max_bytes)
            self.size = pc.sum(self.rows["size"]).as_py() or 0
            # There may be rows among the numbers asked for that had no place.
            many = self.rows.num_rows >= max_rows and self.upto - self.after > max_rows
            self.full = many or self.size >= max_bytes
        except Exception as error:
            self.error = error
        with self._lock:
            self._reader = None
            fit = self.error is None and not self._cancelled
        if fit:
            source.give_back(reader)
        else:
            reader.close()

    def cancel(self) -> None:
        """Cancel it if it is being read. Its reader is closed then: the next read may be hit."""
        with self._lock:
            if self._reader is not None:
                self._cancelled = True
                self._reader.cancel()
