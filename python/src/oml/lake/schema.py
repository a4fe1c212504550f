"""Every lake table, declared once: creation, the check on opening, reading and docs follow it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from oml.lake import gold

TIMESTAMP = pa.timestamp("us", tz="UTC")

Writes = Literal["append", "upsert", "add"]


@dataclass(frozen=True)
class Column:
    """One column: its name, Arrow type, whether it may be null, and what it holds."""

    name: str
    type: Any
    doc: str
    nullable: bool = True


@dataclass(frozen=True)
class LakeTable:
    """One Delta table."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    statistics: tuple[str, ...]
    """Columns with min/max in the log; kept few, because the log outlives erased rows."""
    unique: tuple[str, ...] = ()
    """Columns whose values hardly repeat: a dictionary of them costs time and saves no room."""
    key: tuple[str, ...] = ("outbox_seq",)
    """What a row is known by."""
    fed_by: str = ""
    """The outbox target whose rows feed it; its own name if none is given."""
    reader: str | None = None
    """The SQL function that reads its rows for a range of the outbox; None: oml.lake_rows."""
    derive: Callable[[pa.Table], pa.Table] | None = None
    """What makes its rows of those of bronze.events, where it is fed by them."""
    writes: Writes = "append"
    """append: every row is new. upsert: rows replace those of their key. add: what is no key and
    is counted is added to the row of that key."""
    changes: tuple[str, ...] = ()
    """upsert: the columns that change with a row that is not written whole. add: those added to."""
    prune: str = ""
    """A column that never changes, of days or times: files outside its values are left out of a
    merge. It is of the key, or given by it."""

    def file_bytes(self, most: int) -> int:
        """Return about how large its files are to be, where ``most`` bytes are asked for.

        A merge writes each file anew that has one of its rows: files of such a table are smaller.
        """
        return most if self.writes == "append" else max(1, most // 8)

    @property
    def target(self) -> str:
        """The outbox target whose rows feed it."""
        return self.fed_by or self.name

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

SILVER_CLAIMS = LakeTable(
    name="silver.claims",
    doc="One row a released version of an artifact: what it is, where it stands, its ciphertext.",
    key=("tenant_id", "artifact_id", "version"),
    reader="oml.lake_claims",
    writes="upsert",
    changes=("outbox_seq", "workarea_id", "state", "state_seq", "state_at"),
    prune="submitted_at",
    statistics=("outbox_seq", "tenant_id", "submitted_at"),
    unique=(
        "outbox_seq",
        "artifact_id",
        "plaintext_digest",
        "ciphertext_digest",
        "dek_id",
        "submitted_at",
        "promoted_at",
        "state_at",
        "ciphertext",
    ),
    columns=(
        Column("outbox_seq", pa.int64(), "Outbox seq of the last change of the row.", False),
        Column("tenant_id", pa.string(), "Tenant.", False),
        Column("artifact_id", pa.string(), "Artifact.", False),
        Column("version", pa.int64(), "Version of the artifact.", False),
        Column("workarea_id", pa.string(), "Workarea it is released to: the stable key.", False),
        Column("path", pa.string(), "Path of the workarea at the submission; history.", False),
        Column("writer", pa.string(), "Login or key that submitted it.", False),
        Column("principal", pa.string(), "Principal that submitted it.", False),
        Column("provenance", pa.string(), "observed, derived, imported or simulated.", False),
        Column("media_type", pa.string(), "Media type of the body.", False),
        Column("bytes", pa.int64(), "Length of the body's plaintext in bytes.", False),
        Column("attachments", pa.int32(), "Number of attachments.", False),
        Column("plaintext_digest", pa.binary(), "SHA-256 of the body's plaintext.", False),
        Column("ciphertext_digest", pa.binary(), "SHA-256 of the ciphertext.", False),
        Column("dek_id", pa.string(), "Data key of body and attachments.", False),
        Column("submitted_seq", pa.int64(), "Chain seq of its submission.", False),
        Column("submitted_at", TIMESTAMP, "Time of its submission.", False),
        Column("promoted_seq", pa.int64(), "Chain seq of its release.", False),
        Column("promoted_at", TIMESTAMP, "Time of its release.", False),
        Column("state", pa.string(), "State of the lifecycle.", False),
        Column("state_seq", pa.int64(), "Chain seq of the event that brought it there.", False),
        Column("state_at", TIMESTAMP, "Time of that event.", False),
        Column("ciphertext", pa.binary(), "The body as stored, encrypted; null once erased."),
    ),
)

SILVER_ATTACHMENTS = LakeTable(
    name="silver.attachments",
    doc="One row an attachment of a released version. Its bytes are in the store of bodies.",
    key=("tenant_id", "artifact_id", "version", "part"),
    reader="oml.lake_attachments",
    writes="upsert",
    prune="submitted_at",
    statistics=("outbox_seq", "tenant_id", "submitted_at"),
    unique=("outbox_seq", "artifact_id", "plaintext_digest", "ciphertext_digest"),
    columns=(
        Column("outbox_seq", pa.int64(), "Outbox seq of the release.", False),
        Column("tenant_id", pa.string(), "Tenant.", False),
        Column("artifact_id", pa.string(), "Artifact.", False),
        Column("version", pa.int64(), "Version of the artifact.", False),
        Column("part", pa.int32(), "Place among the parts: 1, 2, … (0 is the body).", False),
        Column("name", pa.string(), "File name, unique in the version.", False),
        Column("media_type", pa.string(), "Media type.", False),
        Column("bytes", pa.int64(), "Length of the plaintext in bytes.", False),
        Column("plaintext_digest", pa.binary(), "SHA-256 of the plaintext.", False),
        Column("ciphertext_digest", pa.binary(), "SHA-256 of the stored bytes.", False),
        Column("submitted_at", TIMESTAMP, "Time of its submission.", False),
        Column("attached_seq", pa.int64(), "Chain seq of its submission.attach.", False),
    ),
)

GOLD_TENANT_DAILY = LakeTable(
    name="gold.tenant_daily",
    doc="Events and bytes by tenant, day (UTC) and event type: exactly what bronze.events sums to.",
    key=("tenant_id", "day", "type"),
    fed_by="bronze.events",
    derive=gold.tenant_daily,
    writes="add",
    changes=("events", "bytes"),
    prune="day",
    statistics=("day", "tenant_id"),
    columns=(
        Column("tenant_id", pa.string(), "Tenant.", False),
        Column("day", pa.date32(), "UTC day of occurred_at.", False),
        Column("type", pa.string(), "Event type.", False),
        Column("events", pa.int64(), "Number of events.", False),
        Column("bytes", pa.int64(), "Bytes of their signed envelopes.", False),
    ),
)

GOLD_LINEAGE = LakeTable(
    name="gold.lineage",
    doc=(
        "Edges between events, versions (artifact/version) and attachments (artifact/version/part),"
        " as bronze.events tells them."
    ),
    key=("outbox_seq", "kind", "to_node"),
    fed_by="bronze.events",
    derive=gold.lineage,
    statistics=("outbox_seq", "tenant_id"),
    unique=("outbox_seq", "from_node", "to_node"),
    columns=(
        Column("outbox_seq", pa.int64(), "Outbox seq of the event that tells the edge.", False),
        Column("tenant_id", pa.string(), "Tenant.", False),
        Column("seq", pa.int64(), "Chain seq of that event.", False),
        Column("kind", pa.string(), "caused_by, derived_from, attachment_of, supersedes.", False),
        Column("from_node", pa.string(), "The event, version or attachment.", False),
        Column("to_node", pa.string(), "What it comes from, belongs to or supersedes.", False),
    ),
)

TABLES: tuple[LakeTable, ...] = (
    BRONZE_EVENTS,
    SILVER_CLAIMS,
    SILVER_ATTACHMENTS,
    GOLD_TENANT_DAILY,
    GOLD_LINEAGE,
)
"""In the order in which a batch is applied. The first one has a commit for every batch."""
