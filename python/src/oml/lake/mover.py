"""The object mover: released ciphertext goes to the bodies' store, one object a part.

It consumes the outbox behind the lake, with a frontier of its own. An object's name is the digest
of its bytes, it is put only where there is none, and it counts only when it was read back and
hashes to the digest that was signed. So whoever repeats a step, after a crash or beside another,
finds what is there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from oml.errors import DatabaseError
from oml.failpoint import failpoint
from oml.lake.bodies import BodiesSource, Part, Stores
from oml.lake.places import require_apart
from oml.lake.table import LakeUnavailable
from oml.settings import Settings
from oml.store import Store, StoreError, open_store

PLAINTEXT_DIGEST = "oml-plaintext-digest"
"""Metadata of an object: SHA-256 of what it decrypts to, in hex."""
CIPHERTEXT_DIGEST = "oml-ciphertext-digest"
"""Metadata of an object: SHA-256 of its bytes, in hex."""

_RANGE = 1_000_000
"""Outbox seqs that one query looks through."""
_STEP_ROWS = 500
"""Outbox rows whose parts are listed at a time; after them the frontier moves."""
_STEP_BYTES = 64 * 1024 * 1024
"""The frontier also moves when this much was moved."""
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_LONGEST_REASON = 400


@dataclass
class Moved:
    """What one call moved: outbox rows, objects and bytes, between two frontiers (outbox seqs).

    ``dead_letters`` are the outbox seqs that were passed over.
    """

    frontier_before: int
    frontier: int
    rows: int = 0
    objects: int = 0
    bytes: int = 0
    dead_letters: list[int] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return vars(self)


class _BadRow(Exception):
    """A row that no repetition mends: why."""


class Mover:
    """Moves what is queued for the object store. Rivals may run beside it."""

    def __init__(
        self,
        source: BodiesSource,
        settings: Settings,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.source = source
        self.settings = settings
        self._sleep = sleep
        self._store: Store | None = None

    def move(self, upto: int | None = None, stop: Callable[[], bool] = lambda: False) -> Moved:
        """Move what outbox rows up to ``upto`` queue, as far as the lake has come; None: so far.

        Without a bodies_url, or while the write gate is closed, the frontier stays. ``stop`` is
        asked after each outbox row. Raises UsageError when a store lies in another,
        LakeUnavailable when the store does not answer, DatabaseError when the database refuses or
        has lost an event.
        """
        stores = self.source.stores()
        report = Moved(stores.frontier, stores.frontier)
        require_apart(stores, self.settings)
        store = self._open(stores) if stores.gate == "open" else None
        upto = stores.movable if upto is None else min(upto, stores.movable)
        while store is not None and report.frontier < upto and not stop():
            self._step(store, min(upto, report.frontier + _RANGE), report, stop)
        return report

    def status(self) -> dict[str, Any]:
        """Return where bodies go, how far they were moved, and how many outbox rows wait."""
        stores = self.source.stores()
        return {
            "url": self._url(stores),
            "frontier": stores.frontier,
            "behind": max(0, stores.movable - stores.frontier),
            "waiting": self.source.bodies_waiting(stores.frontier, stores.movable),
        }

    def _url(self, stores: Stores) -> str | None:
        return self.settings.bodies_url or stores.bodies_url

    def _open(self, stores: Stores) -> Store | None:
        url = self._url(stores)
        if url is None:
            return None
        if self._store is None or self._store.url.rstrip("/") != url.rstrip("/"):
            try:
                self._store = open_store(url, self.settings.bodies_storage_options, make=True)
            except StoreError as error:
                raise LakeUnavailable(error.message, error.hint) from error
        return self._store

    def _step(self, store: Store, end: int, report: Moved, stop: Callable[[], bool]) -> None:
        """Move some of the rows up to ``end``, and then the frontier behind them."""
        parts = self.source.parts(report.frontier, end, _STEP_ROWS)
        failpoint("mover.read")
        size = 0
        queued = groupby(parts, lambda part: part.outbox_seq)
        for rows, (outbox_seq, each) in enumerate(queued, 1):
            size += self._move_row(store, list(each), report)
            failpoint("mover.moved")
            if rows == _STEP_ROWS or size >= _STEP_BYTES or stop():
                end = outbox_seq
                break
        self.source.bodies_advance(end)
        failpoint("mover.advanced")
        report.frontier = end

    def _move_row(self, store: Store, parts: list[Part], report: Moved) -> int:
        """Move the parts of one outbox row, or make it a dead letter; return their bytes."""
        if parts[0].artifact_id is None:
            raise DatabaseError(
                "OM232",
                f"the journal lacks the event of outbox row {parts[0].outbox_seq} for bodies",
                "Events were removed. Run oml verify; the object mover stops until they are back.",
            )
        moved = 0
        try:
            for part in parts:
                if part.fault is not None:
                    raise _BadRow(part.fault)
            for part in parts:
                moved += self._move_part(store, part)
                report.objects += 1
        except _BadRow as bad:
            self.source.skip(parts[0].outbox_seq, str(bad)[:_LONGEST_REASON], 1)
            report.dead_letters.append(parts[0].outbox_seq)
        else:
            report.rows += 1
        report.bytes += moved
        return moved

    def _move_part(self, store: Store, part: Part) -> int:
        """Put one part and read it back; return its bytes.

        Raises _BadRow, and LakeUnavailable when the store does not answer time and again.
        """
        assert part.plaintext_digest is not None and part.ciphertext_digest is not None
        digest = part.ciphertext_digest.hex()
        path = f"{part.tenant_id}/{digest}"
        metadata = {PLAINTEXT_DIGEST: part.plaintext_digest.hex(), CIPHERTEXT_DIGEST: digest}
        size = self._put(store, part, path, metadata)  # one object is in memory at a time
        failpoint("mover.put")
        self._retried(lambda: _require(store, path, metadata))
        failpoint("mover.verified")
        return size

    def _put(self, store: Store, part: Part, path: str, metadata: dict[str, str]) -> int:
        assert part.part is not None
        data = self.source.stored(part.outbox_seq, part.part)
        if data is None:
            raise _BadRow(f"part {part.part} is not stored")
        if sha256(data).hexdigest() != metadata[CIPHERTEXT_DIGEST]:
            raise _BadRow(f"the stored bytes of part {part.part} are not those that were signed")
        self._retried(lambda: store.create(path, data, metadata))
        return len(data)

    def _retried(self, work: Callable[[], object]) -> None:
        """Do it, again after a pause when the store does not answer."""
        attempts = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, StoreError) and e.retryable),
            wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
            stop=stop_after_attempt(_ATTEMPTS),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            attempts(work)
        except StoreError as error:
            if error.retryable:
                raise LakeUnavailable(error.message, error.hint) from error
            raise _BadRow(error.message) from error


def _require(store: Store, path: str, metadata: dict[str, str]) -> None:
    """Insist that the object is there, whole and with its metadata.

    Raises _BadRow when something else is.
    """
    found = store.get_with_metadata(path)
    if found is None:
        raise StoreError(
            f"{store.url}/{path} was put and is not there",
            "Look whether something removes objects there, and whether the store keeps its word.",
        )
    if sha256(found[0]).hexdigest() != metadata[CIPHERTEXT_DIGEST]:
        raise _BadRow(f"other bytes are in the way at {path}")
    if {name: found[1].get(name) for name in metadata} != metadata:
        raise _BadRow(f"an object with other metadata is in the way at {path}")
