"""Verify chains from a client: rows come through SQL, every proof is made here.

The server is not trusted: signatures, hashes and links are checked on this side, against a root
key that the caller may pin. What a chain cannot show is in docs/explanation/chain.md.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import TupleRow, dict_row

from oml.core.chain import (
    Chain,
    Provider,
    Tenant,
    Verdict,
    never_created,
    unlisted,
    verify_rows,
)
from oml.errors import OmlError, UsageError, from_postgres

_PAGE_ROWS = 2000


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


class KnownHead(NamedTuple):
    """A tenant's name in oml.tenant (None: no row there) and its last seq in the outbox."""

    name: str | None
    seq: int


class ChainReader:
    """Reads chains page by page. The login needs ``audit`` on the provider."""

    def __init__(self, connection: psycopg.Connection[TupleRow]) -> None:
        self.connection = connection

    def deployment_id(self) -> str:
        """Return the deployment's id, which is the provider tenant's."""
        text = str(self._rows("select oml.deployment_id()")[0]["deployment_id"])
        try:
            return str(uuid.UUID(text))
        except ValueError:
            raise OmlError(
                f"oml.setting names the deployment {text!r}, which is no id",
                "It was changed behind OML's back: nothing can be verified until it is put back.",
            ) from None

    def known_heads(self) -> dict[str, KnownHead]:
        """Return {tenant id: what oml.tenant and the outbox know of it}."""
        return {
            row["tenant_id"]: KnownHead(row["name"], row["chain_seq"])
            for row in self._rows("select * from oml.known_heads()")
        }

    def chain(self, tenant_id: str, page_read: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        """Yield one chain's rows in seq order; ``page_read`` is told the rows of each page."""
        after = 0
        while True:
            page = self._rows(
                "select * from oml.chain_rows(%s, %s, %s)", tenant_id, after, _PAGE_ROWS
            )
            if not page:
                return
            yield from page
            after = page[-1]["seq"]
            page_read(len(page))

    def _rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        try:
            with self.connection.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(query, parameters, binary=True).fetchall()
        except psycopg.Error as error:
            raise from_postgres(error) from None


def verify(
    connection: psycopg.Connection[TupleRow],
    tenant: str | None = None,
    root_key: bytes | None = None,
    progress: Callable[[int, int | None], None] = lambda _read, _total: None,
) -> Verified:
    """Verify the provider chain and then one tenant's chain or all of them.

    ``root_key`` is the 32-byte root public key obtained out of band; without it the chain's own
    first key is trusted. ``progress`` is told (events read, events there are or None) after each
    page. Tenants are those the provider chain created, so one that was removed whole is still
    named. Raises UsageError for a tenant that was never created, DatabaseError when rows cannot
    be read.
    """
    reader = ChainReader(connection)
    deployment_id = reader.deployment_id()
    heads = reader.known_heads()
    provider = Provider(uuid.UUID(deployment_id).bytes, root_key)
    read = 0
    total = sum(head.seq for head in heads.values()) if tenant is None else None

    def page_read(rows: int) -> None:
        nonlocal read
        read += rows
        progress(read, total)

    verdicts = [_prove(provider, deployment_id, reader, heads, page_read)]
    if verdicts[0].ok and tenant != provider.tenant:
        chosen = [t for t in provider.tenants if tenant in (None, t.name)]
        if tenant is not None and not chosen:
            raise UsageError(
                f"the provider chain never created a tenant {tenant!r}",
                f"It created: {', '.join(t.name for t in provider.tenants) or 'none'}.",
            )
        for created in chosen:
            subject = Tenant(created, provider)
            verdicts.append(_prove(subject, created.tenant_id, reader, heads, page_read))
        if tenant is None:
            declared = {deployment_id, *(t.tenant_id for t in provider.tenants)}
            verdicts += [never_created(t) for t in sorted(heads) if t not in declared]
    root = next(iter(provider.key_ring.values()), None)
    return Verified(tuple(verdicts), root, deployment_id)


def _prove(
    chain: Chain,
    tenant_id: str,
    reader: ChainReader,
    heads: dict[str, KnownHead],
    page_read: Callable[[int], None],
) -> Verdict:
    # Before the rows: the chain may grow meanwhile. A tenant not known yet is new or is gone.
    known = heads.get(tenant_id) or reader.known_heads().get(tenant_id)
    verify_rows(chain, reader.chain(tenant_id, page_read))
    chain.expect_head(known.seq if known else 0, "the outbox")
    verdict = chain.verdict()
    if verdict.ok and (known is None or known.name != chain.tenant):
        return unlisted(chain.tenant)
    return verdict
