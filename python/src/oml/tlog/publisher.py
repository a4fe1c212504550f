"""Publish the chains as transparency logs: tiles first, then the checkpoint, then the records.

Invariant: any two checkpoints of a log that were ever published are consistent, and none covers an
event that is not committed and durable. Tiles are immutable, and an object that is there must be
what would be written. A checkpoint takes the place of the one that was read, verified and held
against the journal, by compare-and-swap. The store is the authority; what the database records is
a cache, and is repaired from it.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from oml import owner
from oml.core import merkle
from oml.errors import DatabaseError, GateClosedError, OmlError, UsageError
from oml.failpoint import failpoint
from oml.fence import cut
from oml.settings import Settings
from oml.store import Store, open_store
from oml.tlog import policy
from oml.tlog.evidence import Contradiction, judge
from oml.tlog.log import Log, LogError, Published, bundle
from oml.tlog.source import Chain, Head, State, TlogSource

if TYPE_CHECKING:
    from oml.tlog.witness import Cosigner

_logger = logging.getLogger("oml.tlog")

Progress = Callable[[int, int], None]

STEP_ENTRIES = 2**20
"""Most events between two checkpoints of one log, so that a long backlog shows its progress."""
_PAGE_ENTRIES = 2**16  # a multiple of a bundle, so that only the last page has a partial one
_WRITERS = 8
_ATTEMPTS = 5
_SWEEP_EVERY_S = 3600.0
_OTHER_GENERATION = {"OM141", "OM151"}
_OTHER_ROOT = {"OM143", "OM150", "OM155"}


class TlogUnavailable(OmlError):
    """A checkpoint was not signed: the next publication tries again."""


class Refused(Exception):
    """This log is not extended: it contradicts the journal, or itself."""

    def __init__(self, contradiction: Contradiction) -> None:
        super().__init__(contradiction.reason)
        self.contradiction = contradiction


class _Overtaken(Exception):
    """Another publisher, or an accepted loss, was faster: look again."""


@dataclass
class Report:
    """What one publication did. ``frontier`` and ``outbox_max`` are outbox seqs."""

    frontier: int
    outbox_max: int
    checkpoints: int = 0
    events: int = 0
    held_back: str | None = None
    holders: tuple[str, ...] = ()
    refused: list[Contradiction] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        refused = [
            {**asdict(each), "tenant_id": str(each.tenant_id), "hashes": list(each.hashes)}
            for each in self.refused
        ]
        return {**vars(self), "holders": list(self.holders), "refused": refused}


def tlog_store(settings: Settings, state: State, *, make: bool = False) -> Store:
    """Open the store that the settings, or else the database, name. Raises UsageError for none."""
    url = settings.tlog_url or state.tlog_url
    if url is None:
        raise UsageError(
            "no tlog is configured",
            "Set it as a superuser: select oml_configure('tlog_url', 'file:///var/lib/oml/tlog')"
            ", or OML_TLOG_URL.",
        )
    return open_store(url, settings.tlog_storage_options, make=make)


def find_store(settings: Settings, dsn: str | None = None) -> Store:
    """Open the store that the settings name, or else the one that the database at a DSN names."""
    if settings.tlog_url is not None:
        return open_store(settings.tlog_url, settings.tlog_storage_options)
    with TlogSource(dsn or settings.dsn) as source:
        return tlog_store(settings, source.state())


def _cosigner(store: Store, settings: Settings) -> "Cosigner | None":
    """Return who asks the witnesses of the policy that the settings name, if any has a URL."""
    found = policy.read(Path(settings.tlog_policy)) if settings.tlog_policy else None
    if found is None or not any(witness.url for witness in found.witnesses):
        return None
    # Here, because the witnesses' HTTP client is needed by nobody else.
    from oml.tlog.witness import Cosigner

    return Cosigner(store, found)


class Publisher:
    """Publishes every chain. One object serves one thread; rivals may run beside it.

    The first publication of an object looks at every log, and so does each after an accepted loss
    and one an hour; the others look at those whose chains have grown.
    """

    def __init__(self, source: TlogSource, store: Store, settings: Settings) -> None:
        self.source = source
        self.store = store
        self.settings = settings
        self._deployment_id: UUID | None = None
        self._cursor: int | None = None
        self._losses: int | None = None
        self._identity: owner.Identity | None = None
        self._swept_at = time.monotonic()
        self._refused: dict[UUID, Contradiction] = {}
        self._cosigner = _cosigner(store, settings)
        self._cosigns_aside = False

    def publish(
        self,
        progress: Progress = lambda _done, _all: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Report:
        """Publish what a fresh cut finds durable.

        ``progress`` is told (logs done, logs to do). A log that contradicts the journal or itself
        is left as it is and reported; the others go on. After one for which ``stop`` says so, the
        rest is left to the next publication. Raises DatabaseError and StoreError,
        TlogUnavailable when nothing is signed, GateClosedError while the write gate is closed, and
        owner.OwnedError when the store is another database's.
        """
        state = self.source.state()
        if state.gate != "open":
            raise GateClosedError(
                f"the write gate is closed ({state.gate}): nothing is published",
                "oml gate status says why. oml serve and oml gate open open it after their check.",
            )
        self._deployment_id = state.deployment_id
        report = Report(state.frontier, state.outbox_max, refused=list(self._refused.values()))
        if state.losses != self._losses or time.monotonic() - self._swept_at > _SWEEP_EVERY_S:
            self._cursor = None
        self._record_cosigned()
        if self._cursor == state.outbox_max:
            self._cosign_all(stop)
            return report
        (owner.claim if self._identity is None else owner.require)(self.store, state.identity)
        self._identity = state.identity
        # Read before the cut: whatever is visible now has outbox seqs below it.
        heads = self.source.heads() if self._cursor is None else None
        after = -1 if self._cursor is None else self._cursor
        made = cut(self.source, after, state.fence_synchronous_commit, self.settings.cut_timeout_s)
        report.outbox_max = max(state.outbox_max, made.limit or 0)
        report.held_back, report.holders = made.reason, tuple(map(str, made.holders))
        if made.limit is None:
            return report
        if heads is None:
            chains = self.source.changes(after, made.limit)
        else:
            self._swept_at = time.monotonic()
            chains = self._behind(heads)
        complete = self._publish_all(chains, report, progress, stop)
        self._cosign_all(stop)
        report.refused = list(self._refused.values())
        if complete:
            failpoint("tlog.published")
            self._cursor, self._losses = made.limit, state.losses
            if not report.refused and made.limit > state.frontier:
                self.source.advance(made.limit)
                failpoint("tlog.advanced")
                report.frontier = made.limit
        return report

    def _publish_all(
        self,
        chains: list[Chain],
        report: Report,
        progress: Progress,
        stop: Callable[[], bool],
    ) -> bool:
        """Publish each chain; False when stopped before the last."""
        keys = self.source.keys() if chains else []
        complete = True
        for done, chain in enumerate(chains):
            progress(done, len(chains))
            if stop():
                return False
            try:
                rest: Chain | None = chain
                while rest is not None:
                    rest = self._step(rest, keys, report)
                    if rest is not None and stop():
                        return False
                self._refused.pop(chain.tenant_id, None)
            except Refused as refusal:
                self._refused[chain.tenant_id] = refusal.contradiction
            except _Overtaken:
                complete = False
            except DatabaseError as error:
                if error.sqlstate in _OTHER_ROOT:
                    refused = self._broken(chain, chain.size, error.message)
                    self._refused[chain.tenant_id] = refused
                elif error.sqlstate in _OTHER_GENERATION:
                    complete = False
                else:
                    raise
        progress(len(chains), len(chains))
        return complete

    def _behind(self, heads: list[Head]) -> list[Chain]:
        """Return the chains whose log, or its record, is not what it should be."""

        def chain(head: Head) -> Chain | None:
            if head.head == 0 and head.size == 0:
                return None
            log = self._log(head.tenant_id, head.generation)
            stored = self.store.get(log.checkpoint_path)
            whole = head.nodes >= _nodes_below(head.size)
            if (
                stored is not None
                and head.root is not None
                and hashlib.sha256(stored).digest() == head.checkpoint_hash
                and head.size == head.head
                and whole
            ):
                made = Published(stored, head.size, head.root)
                with suppress(LogError):
                    log.require_root(made)
                    self._offer(log, made)
                    return None
            return Chain(head.tenant_id, head.tenant, head.generation, head.head, head.size)

        with ThreadPoolExecutor(_WRITERS) as pool:
            return [each for each in pool.map(chain, heads) if each is not None]

    def _log(self, tenant_id: UUID, generation: int) -> Log:
        assert self._deployment_id is not None
        return Log(self.store, self._deployment_id, tenant_id, generation)

    # -- one log -----------------------------------------------------------------------------

    def _step(self, chain: Chain, keys: list[bytes], report: Report) -> Chain | None:
        """Publish one checkpoint of a chain, if it has grown; return it while more is to come.

        Raises Refused, and _Overtaken when rivals were faster time after time.
        """
        log = self._log(chain.tenant_id, chain.generation)
        for _ in range(_ATTEMPTS):
            have, contradiction = judge(self.source, log, chain.tenant, chain.last_seq, keys)
            if contradiction is not None and have is not None and contradiction.kind == "tree":
                self._mend(log, have, chain)
                have, contradiction = judge(self.source, log, chain.tenant, chain.last_seq, keys)
            if contradiction is not None:
                raise Refused(contradiction)
            failpoint("tlog.checked")
            size = have.size if have else 0
            if size >= chain.last_seq:
                if have is not None:
                    self._record(log, have)
                    self._offer(log, have)
                return None
            # Not less than was recorded: where the store has lost its last writes, no smaller
            # checkpoint would be signed.
            upto = min(chain.last_seq, max(size + STEP_ENTRIES, chain.size))
            made = self._extend(log, have, upto, chain, keys)
            if made is None:
                continue
            report.checkpoints += 1
            report.events += made.size - size
            self._record(log, made)
            self._offer(log, made)
            self._tidy(log, size, made.size)
            if made.size == chain.last_seq:
                return None
            return replace(chain, size=max(chain.size, made.size))
        raise _Overtaken

    def _extend(
        self, log: Log, have: Published | None, upto: int, chain: Chain, keys: list[bytes]
    ) -> Published | None:
        """Write tiles, then the checkpoint; None if another checkpoint is there by now."""
        size = have.size if have else 0
        try:
            root = self._write_tiles(log, size, upto, chain)
        except (LogError, merkle.ProofError) as error:
            raise Refused(self._broken(chain, size, str(error))) from None
        failpoint("tlog.tiles-written")
        signed = self._sign(chain, upto, root)
        failpoint("tlog.signed")
        try:
            made = log.verified(signed, keys or self.source.keys())
        except LogError:  # signed with a key issued since
            made = log.verified(signed, self.source.keys())
        if (made.size, made.root) != (upto, root):
            raise Refused(self._broken(chain, size, "another checkpoint was signed than asked for"))
        assert self._identity is not None
        owner.require(self.store, self._identity)  # a copy may have been adopted meanwhile
        if not self.store.replace(log.checkpoint_path, signed, have.data if have else None):
            return None
        failpoint("tlog.checkpoint-written")
        return made

    def _sign(self, chain: Chain, size: int, root: bytes) -> bytes:
        try:
            return self.source.sign(chain.tenant_id, chain.generation, size, root)
        except DatabaseError as error:
            if error.passing or error.sqlstate in _OTHER_GENERATION | _OTHER_ROOT:
                raise
            raise TlogUnavailable(
                f"the checkpoint of {chain.tenant} was not signed: {error.message}", error.hint
            ) from error

    def _mend(self, log: Log, have: Published, chain: Chain) -> None:
        """Write the missing tiles of a checkpoint, if the journal makes up its root.

        A copy of the store can have a checkpoint that is newer than its tiles. The whole journal of
        the chain is read twice, so that nothing is written that is not in the checkpoint's tree;
        where that was in vain, it is tried again in a sweep alone.
        """
        again = self._cursor is not None and chain.tenant_id in self._refused
        if again or have.size > chain.last_seq:
            return
        # What goes wrong here, the log was refused for already.
        with suppress(LogError, merkle.ProofError, Refused):
            if self._write_tiles(log, 0, have.size, chain, dry=True) == have.root:
                self._write_tiles(log, 0, have.size, chain)
                _logger.warning("mended: tiles of %s were missing", log.origin)

    def _write_tiles(
        self, log: Log, size: int, upto: int, chain: Chain, *, dry: bool = False
    ) -> bytes:
        """Write the tiles and bundles that the tree of ``upto`` has beyond that of ``size``.

        Memory holds a page of entries and the tiles at the tree's right edge. Returns the root;
        ``dry`` does nothing else.
        """
        edge = _Edge(log)
        partial: dict[int, merkle.Tile] = {}  # of each level, until it is known to be the last
        with ThreadPoolExecutor(_WRITERS) as pool:
            at = size
            while at < upto:
                end = min(upto, (at // _PAGE_ENTRIES + 1) * _PAGE_ENTRIES)
                begin = at - at % merkle.TILE_WIDTH
                entries = self._entries(log, begin, end, chain)
                failpoint("tlog.entries-read")
                leaves = [merkle.leaf_hash(entry) for entry in entries[at - begin :]]
                full = []
                for tile in merkle.new_tiles(edge, at, leaves):
                    edge.keep(tile)
                    if tile.width == merkle.TILE_WIDTH:
                        full.append(tile)
                        partial.pop(tile.level, None)
                    else:
                        partial[tile.level] = tile
                tiles = [*full, *partial.values()] if end == upto else full
                objects = [
                    (merkle.tile_path(tile.level, tile.index, tile.width), tile.hashes)
                    for tile in tiles
                ]
                objects += _bundles(begin, entries)
                for _ in pool.map(lambda item: self._put(log, *item), [] if dry else objects):
                    pass
                at = end
        return merkle.root(edge, upto)

    def _entries(self, log: Log, begin: int, end: int, chain: Chain) -> list[bytes]:
        rows = self.source.entries(log.tenant_id, begin, end - begin)
        if [seq for seq, _ in rows] != list(range(begin + 1, end + 1)):
            raise Refused(
                Contradiction(
                    log.tenant_id, chain.tenant, "missing", begin + 1, end, chain.last_seq, 0,
                    log.generation, (), f"the journal has gaps between {begin + 1} and {end}",
                )
            )  # fmt: skip
        return [entry for _, entry in rows]

    def _put(self, log: Log, name: str, data: bytes) -> None:
        """Write an immutable object; one that is there must be the same. Raises LogError."""
        path = log.path(name)
        if not self.store.create(path, data) and self.store.get(path) != data:
            raise LogError(f"{name} is there, and not what the journal makes it")
        failpoint("tlog.tile-written")

    def _broken(self, chain: Chain, size: int, reason: str) -> Contradiction:
        return Contradiction(
            chain.tenant_id, chain.tenant, "tree", 0, 0, chain.last_seq, size, chain.generation, (),
            reason,
        )  # fmt: skip

    # -- after it ----------------------------------------------------------------------------

    def _record(self, log: Log, made: Published) -> None:
        """Record the checkpoint in the database, which records the full subtrees with it."""
        self.source.record(log.tenant_id, log.generation, made.size, made.root, made.data)
        failpoint("tlog.recorded")

    @contextmanager
    def cosigning(self) -> Iterator[None]:
        """Have witnesses asked in a thread meanwhile, so that none of them delays a publication.

        At the end nothing more is put into the store; an answer that is still awaited is not.
        """
        if self._cosigner is None:
            yield
            return
        end = threading.Event()
        arguments = (end.is_set, end.wait)
        thread = threading.Thread(
            target=self._cosigner.run, args=arguments, name="cosigner", daemon=True
        )
        self._cosigns_aside = True
        thread.start()
        try:
            yield
        finally:
            end.set()

    def _offer(self, log: Log, made: Published) -> None:
        if self._cosigner is not None:
            self._cosigner.offer(log, made)

    def _cosign_all(self, stop: Callable[[], bool]) -> None:
        """Ask the witnesses here and now, unless a thread does."""
        if self._cosigner is not None and not self._cosigns_aside:
            self._cosigner.round(stop)
            self._record_cosigned()

    def _record_cosigned(self) -> None:
        """Record the checkpoints that were cosigned; their subtrees were recorded before."""
        for each in self._cosigner.made() if self._cosigner else ():
            log, made = each.log, each.made
            try:
                self.source.record(log.tenant_id, log.generation, made.size, made.root, made.data)
            except DatabaseError as error:
                if error.sqlstate not in _OTHER_GENERATION | _OTHER_ROOT:
                    raise  # the next sweep records it

    def _tidy(self, log: Log, old: int, new: int) -> None:
        """Remove the partial tiles of which the published tree has the full one by now."""
        for level in range(64 // merkle.TILE_HEIGHT):
            index, width = divmod(old >> merkle.TILE_HEIGHT * level, merkle.TILE_WIDTH)
            if width == 0 or merkle.tile_width(level, index, new) < merkle.TILE_WIDTH:
                continue
            names = [merkle.tile_path(level, index, merkle.TILE_WIDTH)]
            if level == 0:
                names.append(merkle.entries_path(index, merkle.TILE_WIDTH))
            for name in names:
                directory = log.path(f"{name}.p")
                for each in self.store.children(directory):
                    self.store.delete(f"{directory}/{each}")

    def status(self) -> list[dict[str, Any]]:
        """Return what is published of each tenant, and how far its chain has come."""
        state = self.source.state()
        self._deployment_id = state.deployment_id
        keys = self.source.keys()
        found = []
        for head in self.source.heads():
            problem = None
            size = 0
            try:
                published = self._log(head.tenant_id, head.generation).published(keys)
                size = published.size if published else 0
                if size > head.head:
                    problem = f"the journal lacks events {head.head + 1} to {size}"
            except LogError as error:
                problem = str(error)
            found.append(
                {
                    "tenant": head.tenant,
                    "generation": head.generation,
                    "size": size,
                    "head": head.head,
                    "behind": max(0, head.head - size),
                    "published_at": head.published_at.isoformat() if head.published_at else None,
                    "problem": problem,
                }
            )
        return found


class _Edge:
    """The tiles at the right edge of a tree that grows: kept in memory, before it from the log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._last: dict[int, merkle.Tile] = {}

    def keep(self, tile: merkle.Tile) -> None:
        self._last[tile.level] = tile

    def tile(self, level: int, index: int, width: int) -> bytes:
        kept = self._last.get(level)
        if kept is not None and kept.index == index and kept.width >= width:
            return kept.hashes[: width * merkle.HASH_BYTES]
        return self._log.tile(level, index, width)


def _bundles(begin: int, entries: list[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield (path, content) of the bundles of entries from ``begin`` on, a multiple of a width."""
    for at in range(0, len(entries), merkle.TILE_WIDTH):
        part = entries[at : at + merkle.TILE_WIDTH]
        yield merkle.entries_path((begin + at) // merkle.TILE_WIDTH, len(part)), bundle(part)


def _nodes_below(size: int) -> int:
    """Return how many full subtrees of 256, 65536, … leaves a tree has."""
    return sum(size >> merkle.TILE_HEIGHT * level for level in range(1, 8))
