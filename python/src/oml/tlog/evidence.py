"""What the published logs say against the journal: the tlog's part of a fork check.

A checkpoint was signed by the deployment and published, so its events were committed and durable.
A journal that lacks one, or holds another in its place, has lost what was acknowledged.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from oml.core import merkle
from oml.store import Store, StoreError
from oml.tlog.log import Log, LogError, Published
from oml.tlog.source import TlogSource

MOST_HASHES = 10
_READERS = 8


@dataclass(frozen=True)
class Contradiction:
    """How a published log and the journal contradict each other.

    ``missing``: the journal lacks the events first_seq to last_seq. ``fork``: another event stands
    at first_seq, and what follows up to last_seq is lost. ``generation``: the store holds a later
    generation of the log than the database knows. ``tree``: what lies in the store does not hold
    together, so it is no evidence. Where no seqs can be named they are 0. ``hashes`` are those of
    lost events, in hex, the first ten.
    """

    tenant_id: UUID
    tenant: str
    kind: Literal["missing", "fork", "generation", "tree"]
    first_seq: int
    last_seq: int
    journal_head: int
    checkpoint_size: int
    generation: int
    hashes: tuple[str, ...]
    reason: str


def check(source: TlogSource, store: Store) -> list[Contradiction]:
    """Hold the newest checkpoint of every chain against the journal.

    Raises StoreError when the store cannot be reached, and when it is empty although the database
    has published to it; DatabaseError when the database cannot be read.
    """
    deployment_id = source.state().deployment_id
    keys = source.keys()
    heads = source.heads()
    present = set(store.children())
    if not any(str(head.tenant_id) in present for head in heads):
        if any(head.size > 0 for head in heads):
            raise StoreError(
                f"{store.url} holds none of the logs that the database has published",
                "Check tlog_url and that it is mounted. If the logs are lost, the next publication"
                " writes them anew.",
            )
        return []

    def judged(tenant_id: UUID, tenant: str, generation: int, head: int) -> Contradiction | None:
        newest = max(map(int, filter(str.isdecimal, store.children(str(tenant_id)))), default=0)
        log = Log(store, deployment_id, tenant_id, max(newest, generation))
        if newest > generation:
            return _newer(log, tenant, head, generation, keys)
        return judge(source, log, tenant, head, keys)[1]

    with ThreadPoolExecutor(_READERS) as pool:
        found = pool.map(
            lambda h: judged(h.tenant_id, h.tenant, h.generation, h.head),
            [head for head in heads if str(head.tenant_id) in present],
        )
        return [each for each in found if each is not None]


def judge(
    source: TlogSource, log: Log, tenant: str, head: int, keys: Sequence[bytes]
) -> tuple[Published | None, Contradiction | None]:
    """Hold a log's newest checkpoint against the journal.

    The signature and the tiles at the tree's right edge are verified, and the events of its last
    bundle compared; each event names the one before it, so these stand for all. Returns the
    checkpoint, if there is one, and how it contradicts the journal, if it does. ``head`` is the
    journal's last chain seq, for the report alone.
    """
    published = None
    try:
        published = log.published(keys)
        if published is None:
            return None, None
        log.require_root(published)
        first = (published.size - 1) // merkle.TILE_WIDTH * merkle.TILE_WIDTH
        width = published.size - first
        leaves = log.tile(0, first // merkle.TILE_WIDTH, width)
        have = _leaves(source.entries(log.tenant_id, first, width), first, width)
        if have == leaves:
            return published, None
        return published, _diagnose(source, log, tenant, head, published, have)
    except LogError as error:
        size = published.size if published else 0
        return published, Contradiction(
            log.tenant_id, tenant, "tree", 0, 0, head, size, log.generation, (), str(error)
        )


def _leaves(rows: Iterable[tuple[int, bytes]], first: int, width: int) -> bytes:
    """Return the leaves of consecutive events after ``first``, as far as they are consecutive."""
    found: list[bytes] = []
    for seq, entry in rows:
        if seq != first + len(found) + 1 or len(found) == width:
            break
        found.append(merkle.leaf_hash(entry))
    return b"".join(found)


def _diagnose(
    source: TlogSource, log: Log, tenant: str, head: int, published: Published, have: bytes
) -> Contradiction:
    """Name the first event that differs, and what became of it."""
    first = (published.size - 1) // merkle.TILE_WIDTH * merkle.TILE_WIDTH
    leaves = log.tile(0, first // merkle.TILE_WIDTH, published.size - first)
    here = [leaves[at : at + 32] == have[at : at + 32] for at in range(0, len(leaves), 32)]
    common = first + here.index(False)
    if common == first:
        common = _common(source, log, published, first)
    after = source.entries(log.tenant_id, common, 1)
    kind: Literal["missing", "fork"]
    if after and after[0][0] == common + 1:
        kind, last = "fork", published.size
        reason = f"another event stands at {common + 1}"
    else:
        kind, last = "missing", min(published.size, after[0][0] - 1) if after else published.size
        reason = f"the journal lacks events {common + 1} to {last}"
    return Contradiction(
        log.tenant_id, tenant, kind, common + 1, last, head, published.size, log.generation,
        _lost(log, published, common, last), reason,
    )  # fmt: skip


def _common(source: TlogSource, log: Log, published: Published, differs: int) -> int:
    """Return how many events the journal shares with the log; that at index ``differs`` is not.

    An event that is the same has the same ones before it, so the first that differs is found by
    halving. Each leaf that is looked at is proved against the checkpoint.
    """
    same, other = 0, differs  # of the first ``same`` it is known, ``other`` differs
    while same < other:
        middle = (same + other) // 2
        rows = source.entries(log.tenant_id, middle, 1)
        if _leaves(rows, middle, 1) == log.leaf(middle, published):
            same = middle + 1
        else:
            other = middle
    return same


def _lost(log: Log, published: Published, common: int, last: int) -> tuple[str, ...]:
    """Return the hashes of the log's events ``common`` + 1 to ``last``, in hex, the first ten."""
    found: list[str] = []
    for index in range(common, min(common + MOST_HASHES, last)):
        number, at = divmod(index, merkle.TILE_WIDTH)
        try:
            entries = log.entries(number, merkle.tile_width(0, number, published.size))
            if merkle.leaf_hash(entries[at]) != log.leaf(index, published):
                break
        except LogError:
            break  # what is lost is known all the same
        found.append(entries[at].hex())
    return tuple(found)


def _newer(
    log: Log, tenant: str, head: int, generation: int, keys: Sequence[bytes]
) -> Contradiction:
    try:
        published = log.published(keys)
        size = published.size if published else 0
    except LogError:
        size = 0
    return Contradiction(
        log.tenant_id, tenant, "generation", 0, 0, head, size, log.generation, (),
        f"the store holds generation {log.generation}, the database knows {generation}",
    )  # fmt: skip
