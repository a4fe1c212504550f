"""What the published logs say against the journal: the tlog's part of a fork check.

A checkpoint was signed by the deployment and published, so its events were committed and durable.
A journal that lacks one, or holds another in its place, has lost what was acknowledged.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from oml.core import merkle
from oml.store import Store, StoreError
from oml.tlog.log import Log, LogError, Published
from oml.tlog.source import Head, TlogSource

MOST_HASHES = 10
_READERS = 8
_TENANT = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GENERATION = re.compile("[1-9][0-9]{0,9}")
_LAST_GENERATION = 2**31 - 2  # an accepted loss begins the next, which is an int of PostgreSQL


@dataclass(frozen=True)
class Contradiction:
    """How a published log and the journal contradict each other.

    ``missing``: the journal lacks the events first_seq to last_seq. ``fork``: another event stands
    at first_seq, and what follows up to last_seq is lost. ``generation``: the store holds a later
    generation of the log than the database knows, and the journal lacks first_seq to last_seq of
    it, or none. ``tree``: what lies in the store does not hold
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


def check(
    source: TlogSource, store: Store, accepted: Mapping[UUID, int] | None = None
) -> list[Contradiction]:
    """Hold the newest checkpoint of every chain against the journal.

    A log of a tenant that the database does not know is all missing; its name is not known, so its
    id stands for it. ``accepted`` says up to which chain seq a tenant's events were accepted as
    lost: a log of an unknown tenant that ends there is no news.

    Raises StoreError when the store cannot be reached, and when it is empty although the database
    has published to it; DatabaseError when the database cannot be read.
    """
    deployment_id = source.state().deployment_id
    with ThreadPoolExecutor(_READERS) as pool:
        # The store is listed first: what is published by then is in the database as it is read.
        names = [name for name in store.children() if _TENANT.fullmatch(name)]
        listed = pool.map(lambda name: _generations(store, name), names)
        generations = {UUID(name): found for name, found in zip(names, listed, strict=True)}
        keys = source.keys()
        heads = {head.tenant_id: head for head in source.heads()}
        if not heads.keys() & generations.keys() and any(h.size > 0 for h in heads.values()):
            raise StoreError(
                f"{store.url} holds none of the logs that the database has published",
                "Check tlog_url and that it is mounted. If the logs are lost, the next publication"
                " writes them anew.",
            )

        def judged(tenant_id: UUID) -> list[Contradiction]:
            numbers = generations[tenant_id]
            head = heads.get(tenant_id)
            if head is not None:
                newer = [number for number in numbers if number > head.generation]
                numbers = [*newer, head.generation]
            logs = [Log(store, deployment_id, tenant_id, number) for number in numbers]
            if head is not None:
                return _of_known(source, logs, head, keys)
            return _of_unknown(logs, keys, (accepted or {}).get(tenant_id, 0))

        return [each for found in pool.map(judged, generations) for each in found]


def _generations(store: Store, tenant: str) -> list[int]:
    """List the generations of a tenant's log in the store, the newest first."""
    names = filter(_GENERATION.fullmatch, store.children(tenant))
    return sorted((n for n in map(int, names) if n <= _LAST_GENERATION), reverse=True)


def _of_known(
    source: TlogSource, logs: Sequence[Log], head: Head, keys: Sequence[bytes]
) -> list[Contradiction]:
    """Judge the newest log that was published, down to that of the generation in force.

    One with nothing in it never was.
    """
    *newer, own = logs
    found: list[Contradiction] = []
    for log in newer:
        if next(iter(log.store.list(f"{log.tenant_id}/{log.generation}")), None) is None:
            continue
        published, contradiction = judge(source, log, head.tenant, head.head, keys)
        if published is not None:
            return [*found, _newer(log, head, published, contradiction)]
        found.append(
            contradiction
            or Contradiction(
                log.tenant_id, head.tenant, "tree", 0, 0, head.head, 0, log.generation, (),
                f"generation {log.generation} has no checkpoint",
            )
        )  # fmt: skip
    contradiction = judge(source, own, head.tenant, head.head, keys)[1]
    return found if contradiction is None else [*found, contradiction]


def _newer(
    log: Log, head: Head, published: Published, contradiction: Contradiction | None
) -> Contradiction:
    """Say that a later generation was published, and which events are lost with it, if any."""
    reason = f"the store holds generation {log.generation}, the database knows {head.generation}"
    if contradiction is not None:
        return replace(contradiction, kind="generation", reason=f"{reason}; {contradiction.reason}")
    return Contradiction(
        log.tenant_id, head.tenant, "generation", 0, 0, head.head, published.size, log.generation,
        (), reason,
    )  # fmt: skip


def _of_unknown(logs: Sequence[Log], keys: Sequence[bytes], accepted: int) -> list[Contradiction]:
    """Judge the log of a tenant that the database lacks: all that was published of it is lost.

    What is not signed by the deployment is none of ours, and so no evidence.
    """
    for log in logs:
        try:
            published = log.published(keys)
        except LogError:
            continue
        if published is None:
            continue
        if published.size <= accepted:
            return []
        return [
            Contradiction(
                log.tenant_id, str(log.tenant_id), "missing", 1, published.size, 0, published.size,
                log.generation, _lost(log, published, 0, published.size),
                "the database does not know the tenant",
            )
        ]  # fmt: skip
    return []


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
