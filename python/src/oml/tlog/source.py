"""What the tlog asks of the database. See sql/tlog."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from oml.errors import DatabaseError
from oml.fence import Outbox
from oml.owner import Identity


@dataclass(frozen=True)
class State:
    """Where the database says the tlog stands. ``frontier`` and ``outbox_max`` are outbox seqs.

    ``losses`` counts the generations that an accepted loss began.
    """

    deployment_id: UUID
    tlog_url: str | None
    fence_synchronous_commit: str
    frontier: int
    outbox_max: int
    losses: int
    gate: str
    """State of the write gate; ``open`` is the only one in which anything is published."""
    instance: dict[str, Any] | None
    """Which database of which server this is; None on a standby."""

    @property
    def identity(self) -> Identity:
        """Who publishes, for the mark of ownership at the store."""
        return Identity.of(str(self.deployment_id), self.instance)


@dataclass(frozen=True)
class Chain:
    """A chain whose log may have to be extended: to ``last_seq``, from ``size`` as recorded."""

    tenant_id: UUID
    tenant: str
    generation: int
    last_seq: int
    size: int


@dataclass(frozen=True)
class Head:
    """A tenant's last chain seq, 0 for none, and its log as the database recorded it."""

    tenant_id: UUID
    tenant: str
    generation: int
    head: int
    size: int
    root: bytes | None
    published_at: datetime | None
    checkpoint_hash: bytes | None
    nodes: int


class TlogSource(Outbox):
    """The database side of the tlog. Use as a context manager; raises DatabaseError throughout."""

    def __init__(self, dsn: str | None, application_name: str = "oml tlog") -> None:
        super().__init__(dsn, application_name)

    def state(self) -> State:
        """Read settings and frontier."""
        found = self._rows("select * from oml.tlog_state()")
        if not found:
            raise DatabaseError(
                "OM153",
                "oml.frontier lacks the row of the tlog",
                "It was removed: select oml_attach() as a superuser makes it anew.",
            )
        return State(*found[0])

    def heads(self) -> list[Head]:
        """List every tenant, the provider first."""
        return [Head(*row) for row in self._rows("select * from oml.tlog_heads()")]

    def keys(self) -> list[bytes]:
        """List the public keys of 32 bytes that may sign a checkpoint, or might before."""
        return [bytes(row[0]) for row in self._rows("select oml.tlog_keys()")]

    def changes(self, after: int, upto: int) -> list[Chain]:
        """List the chains with events in a range of outbox seqs, each with the last of them."""
        query = "select * from oml.tlog_changes(%s::bigint, %s::bigint)"
        return [Chain(*row) for row in self._rows(query, after, upto)]

    def entries(self, tenant_id: UUID, after_seq: int, most: int) -> list[tuple[int, bytes]]:
        """List (chain seq, 32-byte entry) of at most ``most`` events after a chain seq."""
        query = "select * from oml.tlog_entries(%s, %s::bigint, %s::int)"
        return [(row[0], bytes(row[1])) for row in self._rows(query, tenant_id, after_seq, most)]

    def sign(self, tenant_id: UUID, generation: int, size: int, root: bytes) -> bytes:
        """Have a checkpoint signed inside the database; return the note."""
        query = "select oml.tlog_sign(%s, %s::int, %s::bigint, %s)"
        return str(self._value(query, tenant_id, generation, size, root)).encode()

    def record(
        self, tenant_id: UUID, generation: int, size: int, root: bytes, checkpoint: bytes
    ) -> None:
        """Record a published checkpoint; the database verifies it, and its subtrees with it."""
        query = "oml.tlog_record(%s, %s::int, %s::bigint, %s, %s)"
        self._write_cache(query, tenant_id, generation, size, root, checkpoint.decode())

    def advance(self, upto: int) -> None:
        """Move the tlog's frontier forward; a lower value changes nothing."""
        self._write_cache("oml.tlog_advance(%s)", upto)
