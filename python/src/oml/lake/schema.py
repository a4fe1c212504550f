"""Every lake table, declared once: the creation, the check on opening and the docs follow it."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Column:
    """One column: its name, Arrow type, whether it may be null, and what it holds."""

    name: str
    type: Any
    doc: str
    nullable: bool = True


@dataclass(frozen=True)
class LakeTable:
    """One Delta table. ``name`` is the outbox target that feeds it."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    statistics: tuple[str, ...]
    """Columns with min/max in the log; kept few, because the log outlives erased rows."""
    unique: tuple[str, ...] = ()
    """Columns whose values hardly repeat: a dictionary of them costs time and saves no room."""

    @property
    def location(self) -> str:
        """Place of the first generation, relative to the lake's URL."""
        return self.name.replace(".", "/") + "/g1"

    def arrow_schema(self) -> pa.Schema:
        """Return the table's Arrow schema."""
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])


BRONZE_EVENTS = LakeTable(
    name="bronze.events",
    doc="One row an event of every tenant, in outbox order. Payloads refer to bodies by digest.",
    statistics=("outbox_seq", "tenant_id", "seq", "occurred_at"),
    unique=("outbox_seq", "event_id", "occurred_at", "payload", "prev_hash", "hash"),
    columns=(
        Column("outbox_seq", pa.int64(), "Outbox seq: the order of delivery.", False),
        Column("tenant_id", pa.string(), "Tenant.", False),
        Column("scope_id", pa.string(), "Scope; one scope a tenant, so the same id.", False),
        Column("seq", pa.int64(), "Chain seq within the tenant.", False),
        Column("event_id", pa.string(), "Event id, a UUIDv7.", False),
        Column("type", pa.string(), "Event type.", False),
        Column("schema_version", pa.int32(), "Schema version of that type.", False),
        Column("occurred_at", TIMESTAMP, "Server's clock when the event was sealed.", False),
        Column("principal", pa.string(), "Who acted (the audit trail's actor).", False),
        Column("writer", pa.string(), "Login or key that wrote.", False),
        Column("authorization", pa.string(), "What allowed the act.", False),
        Column("impersonation", pa.string(), "Impersonation session and reason, if any."),
        Column("operation", pa.string(), "Claimed: operation that made the event."),
        Column("app_version", pa.string(), "Claimed: version of the calling application."),
        Column("caused_by", pa.string(), "Claimed: event id of the cause."),
        Column("invocation_id", pa.string(), "Claimed: call the event belonged to."),
        Column("entity_type", pa.string(), "Claimed: type of the entity."),
        Column("entity_id", pa.string(), "Claimed: id of the entity."),
        Column("subject_id", pa.string(), "Claimed: data subject."),
        Column("pii_class", pa.string(), "Class of personal data.", False),
        Column("synchronous_commit", pa.string(), "That setting at the append.", False),
        Column("artifact_id", pa.string(), "Artifact the event is about."),
        Column("artifact_version", pa.int64(), "Version of that artifact."),
        Column("plaintext_digest", pa.binary(), "SHA-256 of the plaintext body."),
        Column("ciphertext_digest", pa.binary(), "SHA-256 of the stored ciphertext."),
        Column("dek_id", pa.string(), "Data key that seals the payload, if sealed."),
        Column("payload", pa.string(), "Payload as JSON text."),
        Column("prev_hash", pa.binary(), "Hash of the tenant's previous event.", False),
        Column("hash", pa.binary(), "SHA-256 of the signed envelope.", False),
        Column("kid", pa.binary(), "Id of the signing key.", False),
        Column("bytes", pa.int64(), "Size of the signed envelope, for metering.", False),
    ),
)

TABLES: tuple[LakeTable, ...] = (BRONZE_EVENTS,)
