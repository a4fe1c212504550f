"""Events as the client gives them, and what an append returns."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID


class Event(NamedTuple):
    """An event of a batch. The fields are the arguments of oml_append(); payload is an object."""

    type: str
    payload: Mapping[str, Any]
    tenant: str | None = None
    idempotency_key: str | None = None
    operation: str | None = None
    app_version: str | None = None
    caused_by: UUID | None = None
    invocation_id: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    subject_id: str | None = None
    schema_version: int | None = None


class Receipt(NamedTuple):
    """What an append returns: where the event stands, and the SHA-256 of its envelope."""

    tenant_id: UUID
    seq: int
    event_id: UUID
    hash: bytes
