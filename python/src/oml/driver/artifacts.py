"""What the database returns about submissions, typed. Times are aware; digests are SHA-256."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

Digest = bytes


class Attachment(NamedTuple):
    """A file that rides with a submission. ``name`` is a file name without a directory."""

    name: str
    media_type: str
    content: bytes

    def __repr__(self) -> str:
        """Return what may be shown or logged: not the content."""
        return f"Attachment({self.name!r}, {self.media_type!r}, {len(self.content)} bytes)"


class Submission(NamedTuple):
    """The receipt of a submission: where its event stands, and both digests of its body."""

    tenant_id: UUID
    artifact_id: UUID
    version: int
    seq: int
    event_id: UUID
    hash: bytes
    plaintext_digest: bytes
    ciphertext_digest: bytes


class Part(NamedTuple):
    """One part of a version in the clear: 0 is the body, whose name is empty."""

    part: int
    name: str
    media_type: str
    content: bytes
    plaintext_digest: bytes

    def __repr__(self) -> str:
        """Return what may be shown or logged: not the content."""
        return f"Part({self.part}, {self.name!r}, {self.media_type!r}, {len(self.content)} bytes)"


class Served(NamedTuple):
    """A version as it was served to its reviewer; ``report`` is what a scan of it found."""

    artifact_id: UUID
    version: int
    provenance: str
    parts: tuple[Part, ...]
    report: "Report | None" = None


class Fetched(NamedTuple):
    """What oml_fetch() returns: the body, or one attachment."""

    version: int
    state: str
    provenance: str
    name: str
    media_type: str
    content: bytes
    plaintext_digest: bytes

    def __repr__(self) -> str:
        """Return what may be shown or logged: not the content."""
        what = f"{self.version}, {self.state!r}, {self.media_type!r}"
        return f"Fetched({what}, {len(self.content)} bytes)"


class OwnSubmission(NamedTuple):
    """A submission of one's own, and where it stands."""

    submitted_seq: int
    submitted_at: datetime
    artifact_id: UUID
    version: int
    workarea_id: UUID
    path: str
    provenance: str
    media_type: str
    bytes: int
    attachments: int
    plaintext_digest: Digest
    ciphertext_digest: Digest
    state: str
    reviewer: str | None
    reason: str | None


class Queued(NamedTuple):
    """A version that waits for a verdict."""

    submitted_seq: int
    submitted_at: datetime
    artifact_id: UUID
    version: int
    workarea_id: UUID
    path: str
    author: str
    provenance: str
    media_type: str
    bytes: int
    attachments: int
    is_served: bool


class ArtifactEvent(NamedTuple):
    """An event about an artifact."""

    seq: int
    event_id: UUID
    occurred_at: datetime
    type: str
    version: int
    principal: str
    from_state: str | None
    to_state: str | None
    reason: str | None


Report = list[dict[str, Any]]
"""What a reviewer's client found, an entry a part in order: part, plaintext_digest in hex, basis
(text or opaque), media_type, extractor (of a text), scanner, findings."""
