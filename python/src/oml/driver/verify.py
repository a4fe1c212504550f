"""Verify chains from a client: rows come through SQL, every proof is made here.

The server is not trusted: signatures, hashes and links are checked on this side, against a root
key that the caller may pin. What a chain cannot show is in docs/explanation/chain.md.

All is judged as it stood when the verification began. The heads of all chains are read first, in
one statement, and each chain up to its head. A rotation of the signing key appends to the provider
chain only, under locks on the others: so whatever key signed an event below a head was in force by
then, and its rotation is below the provider's head.
"""

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import TupleRow, dict_row

from oml.core.cbor import MalformedError
from oml.core.chain import Chain, Created, KeyRing, Provider, Verdict, never_created, unlisted
from oml.core.envelope import GENESIS_PREV, decode, digest
from oml.driver.connection import connect
from oml.driver.pages import Pages
from oml.driver.segments import SEGMENT_ROWS, Plan, Stretch
from oml.driver.workers import Workers
from oml.errors import OmlError, UsageError, from_postgres

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Verified:
    """All verdicts, the provider's first, and the root key (32 bytes) they rest on."""

    verdicts: tuple[Verdict, ...]
    root_key: bytes | None
    deployment_id: str

    @property
    def ok(self) -> bool:
        """True when every chain was proved whole."""
        return all(verdict.ok for verdict in self.verdicts)


@dataclass(frozen=True)
class Earlier:
    """What an earlier verification proved: {tenant name: (events, head)} under a root key."""

    deployment_id: str
    root_key: bytes
    chains: Mapping[str, tuple[int, bytes]]
    pinned: bool = False
    """Whether that root key was given to it, or taken from the chain."""


class KnownHead(NamedTuple):
    """A tenant's name in oml.tenant (None: no row there), its last seq in outbox and journal."""

    name: str | None
    outbox: int
    journal: int


_UNKNOWN = KnownHead(None, 0, 0)


def verify(
    dsn: str | None,
    tenant: str | None = None,
    root_key: bytes | None = None,
    progress: Progress = lambda _read, _total: None,
    jobs: int | None = None,
    since: Earlier | None = None,
    segment_rows: int = SEGMENT_ROWS,
) -> Verified:
    """Verify the provider chain and then one tenant's chain or all of them.

    ``root_key`` is the 32-byte root public key obtained out of band; without it ``since`` gives it,
    and without that the chain's own first key is trusted. ``progress`` is told (events read, events
    there are or None) after each page. ``jobs`` is how many processes prove (None: one a core), in
    segments of ``segment_rows`` events. With ``since``, tenants' chains are gone through from where
    it ends. Tenants are those the provider chain created, so one that was removed whole is still
    named. Raises UsageError for a tenant that was never created or another deployment's ``since``,
    DatabaseError when rows cannot be read.
    """
    with connect(dsn, autocommit=True) as connection:
        deployment_id, heads = _begin(connection)
    root_key = _pin(root_key, since, deployment_id)
    earlier = {} if since is None else since.chains
    read = 0
    total = _total(heads, earlier) if tenant is None else None

    def page_read(rows: int) -> None:
        nonlocal read
        read += rows
        progress(read, total)

    provider = Provider(uuid.UUID(deployment_id).bytes, root_key)
    provider.proved_before = earlier.get(provider.tenant)
    processes = _processes(jobs, heads, tenant, segment_rows)
    with Pages(dsn) as pages, Workers(dsn, processes) as workers:
        head = heads.get(deployment_id, _UNKNOWN)
        pages.prove(provider, head.journal, page_read)
        verdicts = [_verdict(provider, head)]
        if verdicts[0].ok and tenant != provider.tenant:
            plan = _plan(pages, provider, _chosen(provider, tenant), heads, earlier, segment_rows)
            proofs = workers.prove(plan, pages, page_read)
            verdicts += [
                _verdict(plan.joined(index, proofs), heads.get(s.created.tenant_id, _UNKNOWN))
                for index, s in enumerate(plan.stretches)
            ]
            if tenant is None:
                declared = {deployment_id, *(t.tenant_id for t in provider.tenants)}
                verdicts += [never_created(t) for t in sorted(heads) if t not in declared]
    root = None if provider.key_ring is None else provider.key_ring.root
    return Verified(tuple(verdicts), root, deployment_id)


def _pin(root_key: bytes | None, since: Earlier | None, deployment_id: str) -> bytes | None:
    """Return the root key to insist on; refuse a ``since`` that proves nothing here."""
    if since is None:
        return root_key
    if since.deployment_id != deployment_id:
        raise UsageError(
            f"the earlier verification was of deployment {since.deployment_id}",
            f"This one is {deployment_id}. Leave --since out.",
        )
    if root_key not in (None, since.root_key):
        raise UsageError(
            "the earlier verification rests on another root key",
            "It proves nothing under this one. Leave --since out.",
        )
    return since.root_key


def _chosen(provider: Provider, tenant: str | None) -> list[Created]:
    """Return the tenants to verify: those created under this name, or all."""
    chosen = [t for t in provider.tenants if tenant in (None, t.name)]
    if tenant is not None and not chosen:
        raise UsageError(
            f"the provider chain never created a tenant {tenant!r}",
            f"It created: {', '.join(t.name for t in provider.tenants) or 'none'}.",
        )
    return chosen


def _plan(
    pages: Pages,
    provider: Provider,
    chosen: Sequence[Created],
    heads: Mapping[str, KnownHead],
    earlier: Mapping[str, tuple[int, bytes]],
    segment_rows: int,
) -> Plan:
    """Plan what is to be proved of the chosen tenants' chains."""
    assert provider.key_ring is not None
    stretches = [
        _stretch(
            pages,
            provider.key_ring,
            created,
            heads.get(created.tenant_id, _UNKNOWN),
            earlier.get(created.name),
        )
        for created in chosen
    ]
    return Plan(stretches, provider.deployment_id, provider.key_ring, segment_rows)


class _AnyText(Loader):
    """Loads text that a superuser may have made no UTF-8: then it equals no name and no id."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode("utf-8", "replace")


def _begin(connection: psycopg.Connection[TupleRow]) -> tuple[str, dict[str, KnownHead]]:
    """Return the deployment's id and {tenant id: what is known of its chain's end}."""

    def rows(query: str, *parameters: Any) -> list[dict[str, Any]]:
        try:
            with connection.cursor(row_factory=dict_row) as cursor:
                cursor.adapters.register_loader("text", _AnyText)
                return cursor.execute(query.encode(), parameters).fetchall()
        except psycopg.Error as error:
            raise from_postgres(error) from None

    text = str(rows("select oml.deployment_id()")[0]["deployment_id"])
    try:
        deployment_id = str(uuid.UUID(text))
    except ValueError:
        raise OmlError(
            f"oml.setting names the deployment {text!r}, which is no id",
            "It was changed behind OML's back: nothing can be verified until it is put back.",
        ) from None
    # Who may know heads may still not read rows: ask here, where the server's hint is not lost.
    rows("select from oml.chain_rows(%s, 0, 0)", deployment_id)
    return deployment_id, {
        row["tenant_id"]: KnownHead(row["name"], row["chain_seq"], row["journal_seq"])
        for row in rows("select * from oml.known_heads()")
    }


def _total(heads: Mapping[str, KnownHead], earlier: Mapping[str, tuple[int, bytes]]) -> int:
    proved = {name: events for name, (events, _) in earlier.items() if name != "provider"}
    return sum(max(0, head.journal - proved.get(head.name or "", 0)) for head in heads.values())


def _processes(
    jobs: int | None, heads: Mapping[str, KnownHead], tenant: str | None, segment_rows: int
) -> int:
    """Return how many processes are worth starting beside this one."""
    if jobs is None:
        jobs = len(os.sched_getaffinity(0))
    chosen = [h for h in heads.values() if h.name != "provider" and tenant in (None, h.name)]
    segments = -(-sum(max(0, h.journal) for h in chosen) // segment_rows)
    return max(0, min(jobs, segments) - 1)


def _stretch(
    pages: Pages,
    key_ring: KeyRing,
    created: Created,
    known: KnownHead,
    earlier: tuple[int, bytes] | None,
) -> Stretch:
    """Say what to prove: all, or what follows an earlier proof that still stands."""
    if earlier is not None and _stands(pages, key_ring, created.tenant_id, *earlier):
        seq, head = earlier
        return Stretch(created, seq, head, max(seq, known.journal))
    return Stretch(created, 0, GENESIS_PREV, known.journal, earlier)


def _stands(pages: Pages, key_ring: KeyRing, tenant_id: str, seq: int, head: bytes) -> bool:
    """Tell whether the last event proved earlier is there and no rotation since contradicts it.

    One could say that its key signed another event there, or had signed its last one before.
    """
    data = pages.envelope(tenant_id, seq)
    if data is None or digest(data) != head or key_ring.anchors(tenant_id).get(seq, head) != head:
        return False
    try:
        return isinstance(key_ring.key(tenant_id, seq, decode(data).kid), bytes)
    except MalformedError:
        return False


def _verdict(chain: Chain, known: KnownHead) -> Verdict:
    chain.expect_head(known.outbox, "the outbox")
    if isinstance(chain.key_ring, KeyRing):
        chain.expect_head(chain.key_ring.reached(chain.tenant_uuid), "a rotation of the key")
    if chain.proved_before is not None:
        chain.expect_head(chain.proved_before[0], "an earlier verification")
    verdict = chain.verdict()
    if verdict.ok and known.name != chain.tenant:
        return unlisted(chain.tenant)
    return verdict
