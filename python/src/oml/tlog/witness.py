"""Ask witnesses for their cosignatures of a checkpoint (c2sp.org/tlog-witness, add-checkpoint).

A witness remembers the newest checkpoint of a log that it saw, and cosigns another only when it is
shown that this goes on from it. So a log cannot show one history here and another there.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

import urllib3

from oml.core import merkle, note
from oml.failpoint import failpoint
from oml.store import Store, StoreError
from oml.tlog.consistency import encode
from oml.tlog.log import Log, LogError, Published
from oml.tlog.policy import Policy, Witness, printable

log = logging.getLogger("oml.witness")

TIMEOUT_S = 5.0
"""Seconds to connect, seconds to wait for a part of an answer, and seconds that it may take."""
MAX_ANSWER_BYTES = 256 * 1024
FIRST_WAIT_S = 1.0
LONGEST_AWAY_S = 60.0
LONGEST_REFUSED_S = 600.0
"""A failure is followed by the first wait, and each after it by one twice as long, up to these."""

_AT_ONCE = 8
_PAUSE_S = 0.25
_TRIES = 3
_SIZE = re.compile(rb"(0|[1-9][0-9]{0,18})\n")

_pool = urllib3.PoolManager(
    maxsize=_AT_ONCE, timeout=urllib3.Timeout(TIMEOUT_S), retries=False, headers={"Accept": "*/*"}
)


class WitnessError(Exception):
    """A witness did not cosign, and why."""


class WitnessAway(WitnessError):
    """A witness cannot be asked at all, or does not answer in time."""


@dataclass(frozen=True)
class Collected:
    """Cosignature lines, each with its newline, and why the others failed, by text of the key."""

    lines: list[bytes]
    failed: dict[str, Exception]


def collect(
    witnesses: Iterable[Witness],
    checkpoint: bytes,
    tiles: merkle.Tiles,
    old_size_of: MutableMapping[str, int],
) -> Collected:
    """Ask those witnesses that have a URL to cosign a checkpoint, all at the same time.

    ``tiles`` are those of the log that the checkpoint is of. ``old_size_of`` says up to which size
    a witness saw that log, under the text of its key; what is missing is asked of the witness, and
    what it says is put in. One that fails is logged and left out. Raises note.NoteError for a
    checkpoint that is none.
    """
    head, signed = note.parse_checkpoint(checkpoint)
    asked = [witness for witness in witnesses if witness.url is not None]
    found = Collected([], {})
    if not asked:
        return found

    def ask(witness: Witness) -> list[note.Signature]:
        try:
            return _ask(witness, head, signed, checkpoint, tiles, old_size_of)
        except (WitnessError, merkle.ProofError, LogError) as error:
            log.warning(
                "witness %s did not cosign %s: %s", printable(witness.name), head.origin, error
            )
            found.failed[witness.verifier.vkey] = error
            return []

    with ThreadPoolExecutor(min(len(asked), _AT_ONCE), "witness") as pool:
        for made in pool.map(ask, asked):
            found.lines.extend(signature.line().encode() for signature in made)
    return found


@dataclass(frozen=True)
class Offer:
    """A published checkpoint, and the witnesses that did not cosign it yet."""

    log: Log
    made: Published
    lacks: tuple[Witness, ...] = ()


@dataclass
class _Wait:
    """Until when something is left alone, on the monotonic clock, and how long it was."""

    until: float = 0.0
    seconds: float = 0.0

    def again(self, longest_s: float) -> None:
        self.seconds = min(longest_s, 2 * self.seconds or FIRST_WAIT_S)
        self.until = time.monotonic() + self.seconds


class Cosigner:
    """Has published checkpoints cosigned, in a thread of its own or when it is told to.

    It only ever replaces a checkpoint by itself with more signatures, by compare-and-swap; who
    publishes takes what it ``made`` and records it. A log that a witness refuses waits longer and
    longer for that witness, and a witness that is away for all logs.
    """

    def __init__(self, store: Store, policy: Policy) -> None:
        self._store = store
        self._witnesses = tuple(w for w in policy.witnesses if w.url is not None)
        self._lock = threading.Lock()
        self._offers: dict[UUID, Offer] = {}
        self._made: list[Offer] = []
        self._waits: dict[tuple[str, UUID | None], _Wait] = {}
        self._seen: dict[str, dict[str, int]] = {}

    def offer(self, log: Log, made: Published) -> None:
        """Have a checkpoint cosigned by those that did not yet, in the place of an earlier one."""
        lacks = self._lacking(made.data)
        with self._lock:
            if lacks:
                self._offers[log.tenant_id] = Offer(log, made, lacks)
            else:
                self._offers.pop(log.tenant_id, None)

    def made(self) -> list[Offer]:
        """Take the checkpoints that were published with cosignatures since the last call."""
        with self._lock:
            made, self._made = self._made, []
        return made

    def run(self, stop: Callable[[], bool], pause: Callable[[float], object]) -> None:
        """Ask, round after round, until ``stop`` says so; ``pause`` waits so many seconds."""
        while not stop():
            try:
                self.round(stop)
            except StoreError as error:
                log.warning("not cosigned, tlog store away: %s", error)
            pause(_PAUSE_S)

    def round(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Ask for every log whose time has come. Raises StoreError."""
        away: set[str] = set()
        with self._lock:
            offers = list(self._offers.values())
        for offer in offers:
            asked = [w for w in offer.lacks if self._is_due(w, offer.log.tenant_id, away)]
            if stop():
                return
            if asked:
                self._ask_for(offer, asked, away, stop)

    def _lacking(self, checkpoint: bytes) -> tuple[Witness, ...]:
        signed = note.parse(checkpoint)
        lacks = []
        for witness in self._witnesses:
            with suppress(note.SignatureError):  # one more signature would not mend it
                if not note.cosigned_at(signed, witness.verifier):
                    lacks.append(witness)
        return tuple(lacks)

    def _is_due(self, witness: Witness, tenant_id: UUID, away: set[str]) -> bool:
        vkey = witness.verifier.vkey
        waits = (self._waits.get((vkey, of)) for of in (None, tenant_id))
        now = time.monotonic()
        return vkey not in away and all(wait is None or wait.until <= now for wait in waits)

    def _ask_for(
        self, offer: Offer, asked: list[Witness], away: set[str], stop: Callable[[], bool]
    ) -> None:
        origin, path = offer.log.origin, offer.log.checkpoint_path
        if self._store.get(path) != offer.made.data:
            return self._settle(offer, None)  # by a newer one, which is offered in its turn
        found = collect(asked, offer.made.data, offer.log, self._seen.setdefault(origin, {}))
        for witness in asked:
            self._note(witness.verifier.vkey, offer.log.tenant_id, found.failed, away)
        if not found.lines or stop():
            return None
        try:
            more = note.parse_signatures(b"".join(found.lines).decode())
            data = note.with_signatures(note.parse(offer.made.data), more).encode()
        except note.NoteError as error:
            log.warning("not cosigned: %s: %s", origin, error)
            return self._settle(offer, None)
        if not self._store.replace(path, data, offer.made.data):
            return self._settle(offer, None)
        failpoint("tlog.cosigned")
        made = replace(offer.made, data=data)
        return self._settle(offer, Offer(offer.log, made, self._lacking(data)))

    def _note(
        self, vkey: str, tenant_id: UUID, failed: Mapping[str, Exception], away: set[str]
    ) -> None:
        error = failed.get(vkey)
        if isinstance(error, WitnessAway):
            away.add(vkey)
            self._waits.setdefault((vkey, None), _Wait()).again(LONGEST_AWAY_S)
            return
        self._waits.pop((vkey, None), None)
        if error is None:
            self._waits.pop((vkey, tenant_id), None)
        else:
            self._waits.setdefault((vkey, tenant_id), _Wait()).again(LONGEST_REFUSED_S)

    def _settle(self, offer: Offer, made: Offer | None) -> None:
        """Put what was made in the place of what was offered, unless something else was since."""
        tenant_id = offer.log.tenant_id
        with self._lock:
            if made is not None:
                self._made.append(made)
            if self._offers.get(tenant_id) is not offer:
                return
            if made is not None and made.lacks:
                self._offers[tenant_id] = made
            else:
                del self._offers[tenant_id]


def _ask(
    witness: Witness,
    head: note.Checkpoint,
    signed: note.Note,
    checkpoint: bytes,
    tiles: merkle.Tiles,
    old_size_of: MutableMapping[str, int],
) -> list[note.Signature]:
    """Return a witness' own cosignatures. Raises WitnessError, merkle.ProofError."""
    key = witness.verifier.vkey
    old = min(old_size_of.get(key, 0), head.size)
    for _ in range(_TRIES):
        path = merkle.consistency_proof(tiles, old, head.size)
        status, answer = _post(f"{witness.url}", encode(old, path, checkpoint))
        if status == 200:
            made = _cosignatures(witness, signed, answer)
            old_size_of[key] = head.size
            return made
        if status != 409:
            raise WitnessError(f"it answered with status {status}")
        size = _SIZE.fullmatch(answer)
        if size is None:
            raise WitnessError("it answered with a conflict and no size")
        seen = old_size_of[key] = int(size[1])
        if seen > head.size:
            raise WitnessError(
                f"it has seen the log at {seen} entries, and this checkpoint has {head.size}"
            )
        old = seen
    raise WitnessError("the size it has seen keeps changing")


def _cosignatures(witness: Witness, signed: note.Note, answer: bytes) -> list[note.Signature]:
    try:
        listed = note.parse_signatures(answer.decode())
        of_it = (witness.verifier.name, witness.verifier.key_id)
        made = [s for s in listed if (s.name, s.key_id) == of_it]
        seconds = note.cosigned_at(note.Note(signed.text, tuple(made)), witness.verifier)
    except ValueError as error:
        raise WitnessError(f"its answer is no cosignature: {error}") from None
    if not seconds:
        raise WitnessError("its answer has no cosignature of its key with a time")
    return made


def _post(url: str, body: bytes) -> tuple[int, bytes]:
    """Return the status and the content of the answer. Raises WitnessError."""
    until = time.monotonic() + TIMEOUT_S
    try:
        answer = _pool.request(
            "POST", f"{url.rstrip('/')}/add-checkpoint", body=body, preload_content=False,
            redirect=False, headers={"Content-Type": "text/plain; charset=utf-8"},
        )  # fmt: skip
        content = b""
        try:
            for part in answer.stream(16 * 1024):
                content += part
                if len(content) > MAX_ANSWER_BYTES:
                    answer.close()
                    raise WitnessError("its answer is too long")
                if time.monotonic() > until:
                    answer.close()
                    raise WitnessAway("its answer takes too long")
        finally:
            answer.release_conn()
        return answer.status, content
    except urllib3.exceptions.HTTPError as error:
        raise WitnessAway(f"it cannot be asked: {error}") from None
