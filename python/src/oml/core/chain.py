"""Verify a chain: every envelope's shape, key, signature, hash, link and column projection.

The envelope is what is trusted; the columns beside it are projections that must agree. A verifier
stops at the first fault of a chain, because nothing after a broken link is proved by what follows.
"""

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple

from . import cbor, cose, envelope, keys


class Fault(StrEnum):
    """What a verifier can find wrong."""

    MISSING_EVENT = "missing-event"
    """A seq is absent and a later one follows it."""
    MALFORMED_ENVELOPE = "malformed-envelope"
    """The envelope is not the one accepted encoding, or lacks a field."""
    UNKNOWN_KEY = "unknown-key"
    """The envelope names a key that the provider chain never issued."""
    SIGNATURE_INVALID = "signature-invalid"
    """The signature is not that of the key it names."""
    HASH_MISMATCH = "hash-mismatch"
    """Column hash is not the SHA-256 of the envelope's bytes."""
    BROKEN_LINK = "broken-link"
    """The envelope does not carry the hash of the event before it."""
    COLUMN_MISMATCH = "column-mismatch"
    """A column differs from the envelope, or the envelope is another chain's."""
    GENESIS_MISMATCH = "genesis-mismatch"
    """The chain does not begin, or was not created, as the provider chain says."""
    ROOT_MISMATCH = "root-mismatch"
    """The provider chain's root key is not the pinned one."""
    TAIL_MISSING = "tail-missing"
    """The outbox knows later events of the chain than the journal holds."""
    CHAIN_MISSING = "chain-missing"
    """The chain has no events, not even its genesis, or its row in oml.tenant is gone."""


class Finding(NamedTuple):
    """One fault: the tenant, the first bad chain seq, its class and a sentence."""

    tenant: str
    seq: int
    fault: Fault
    reason: str


class Verdict(NamedTuple):
    """What a verifier says of one chain: events proved, the last proved hash, the first fault."""

    tenant: str
    events: int
    head: bytes
    finding: Finding | None

    @property
    def ok(self) -> bool:
        """True when every event was proved."""
        return self.finding is None


class Chain:
    """Verify one tenant's chain, fed row by row in seq order.

    ``key_ring`` maps kid to public key; for the provider chain it starts with the root key and
    grows by the ``key.issued`` events met on the way. ``deployment_id`` and ``tenant_id`` are 16
    bytes, ``tenant`` the name to report.
    """

    def __init__(
        self, tenant: str, tenant_id: bytes, deployment_id: bytes, key_ring: dict[bytes, bytes]
    ) -> None:
        self.tenant = tenant
        self.tenant_id = tenant_id
        self.deployment_id = deployment_id
        self.key_ring = key_ring
        self.events = 0
        self.head = envelope.GENESIS_PREV
        self.finding: Finding | None = None

    def fail(self, seq: int, fault: Fault, reason: str) -> None:
        """Record the chain's first fault; later ones are not recorded."""
        if self.finding is None:
            self.finding = Finding(self.tenant, seq, fault, reason)

    def feed(self, row: Mapping[str, Any]) -> envelope.Envelope | None:
        """Check the next row; return its envelope, or None once the chain is faulty."""
        if self.finding is not None:
            return None
        expected = self.events + 1
        if row["seq"] != expected:
            self.fail(
                expected, Fault.MISSING_EVENT, f"seq {expected} is absent, {row['seq']} follows"
            )
            return None
        decoded = self._open(expected, row)
        if decoded is None:
            return None
        if decoded.fields["prev_hash"] != self.head:
            self.fail(expected, Fault.BROKEN_LINK, "prev is not the hash of the event before it")
            return None
        if not self._accept(expected, decoded):
            return None
        self.events = expected
        self.head = decoded.hash
        return decoded

    def _accept(self, seq: int, decoded: envelope.Envelope) -> bool:
        """Judge what the event says, once it is proved to be this chain's; fail if it is wrong."""
        return True

    def _open(self, seq: int, row: Mapping[str, Any]) -> envelope.Envelope | None:
        data = _raw(row["envelope"])
        try:
            decoded = envelope.decode(data)
        except cbor.MalformedError as error:
            self.fail(seq, Fault.MALFORMED_ENVELOPE, str(error))
            return None
        public_key = self.key_ring.get(decoded.kid)
        if public_key is None:
            self.fail(seq, Fault.UNKNOWN_KEY, f"key {decoded.kid.hex()} was never issued here")
            return None
        if not cose.verify(decoded.sign1, public_key):
            self.fail(
                seq, Fault.SIGNATURE_INVALID, f"the signature is not that of {decoded.kid.hex()}"
            )
            return None
        if decoded.hash != _raw(row["hash"]):
            self.fail(seq, Fault.HASH_MISMATCH, "column hash is not the envelope's SHA-256")
            return None
        if decoded.fields["tenant_id"] != self.tenant_id:
            self.fail(seq, Fault.COLUMN_MISMATCH, "the envelope belongs to another tenant")
            return None
        if decoded.fields["deployment_id"] != self.deployment_id:
            self.fail(seq, Fault.COLUMN_MISMATCH, "the envelope belongs to another deployment")
            return None
        wrong = mismatched_column(decoded, row)
        if wrong is not None:
            self.fail(seq, Fault.COLUMN_MISMATCH, f"column {wrong} differs from the envelope")
            return None
        return decoded

    def expect_head(self, seq: int, source: str) -> None:
        """Insist that the chain reaches ``seq``, which ``source`` says was written."""
        if self.events < seq:
            fault = Fault.TAIL_MISSING if self.events else Fault.CHAIN_MISSING
            self.fail(self.events + 1, fault, f"{source} knows seq {seq}, the journal does not")

    def verdict(self) -> Verdict:
        """Return what was proved; every chain has a first event, so an empty one is a fault."""
        if self.events == 0:
            self.fail(1, Fault.CHAIN_MISSING, "the chain is empty")
        return Verdict(self.tenant, self.events, self.head, self.finding)


_UUID_COLUMNS = frozenset(
    ("deployment_id", "tenant_id", "event_id", "caused_by", "artifact_id", "dek_id")
)
_PROJECTED = tuple(
    f.column for f in envelope.FIELDS if f.column not in ("version", "deployment_id", "payload")
)


def mismatched_column(decoded: envelope.Envelope, row: Mapping[str, Any]) -> str | None:
    """Name the first column that differs from the envelope, or None.

    UUIDs come as their text, ``occurred_at`` as microseconds, ``payload`` as JSON text.
    """
    for column in _PROJECTED:
        signed, stored = decoded.fields.get(column), row[column]
        if signed is not None and column in _UUID_COLUMNS:
            signed = str(uuid.UUID(bytes=signed))
        elif isinstance(stored, (bytearray, memoryview)):
            stored = bytes(stored)
        if signed != stored:
            return column
    if _raw(row["kid"]) != decoded.kid:
        return "kid"
    return None if _same_json(decoded.fields["payload"], row["payload"]) else "payload"


def _raw(value: bytes | bytearray | memoryview | None) -> bytes:
    """Return a column's bytes; none where a superuser has emptied it."""
    return b"" if value is None else bytes(value)


def _same_json(signed: bytes, stored: str | None) -> bool:
    """Compare as JSON values: PostgreSQL may print the same jsonb differently one day."""
    if stored is None:
        return False
    if signed == stored.encode("utf-8"):
        return True
    try:
        return bool(_json(signed.decode("utf-8")) == _json(stored))
    except (ValueError, ArithmeticError, RecursionError):
        return False


def _json(text: str) -> Any:
    return json.loads(text, parse_float=_number, parse_int=_number)


def _number(text: str) -> tuple[str, Decimal]:
    # Tagged, because Python takes true for equal to 1.
    return "number", Decimal(text)


def _object(payload: bytes) -> dict[str, Any]:
    """Return the JSON object a payload holds; an empty one if it holds anything else."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class Created(NamedTuple):
    """A tenant as the provider chain's ``tenant.created`` event declares it."""

    tenant_id: str
    name: str
    seq: int
    event_id: str
    hash: bytes


class Provider(Chain):
    """Verify the provider chain and learn from it the keys issued and the tenants created.

    The first event must be the root's ``key.issued``, signed by the key it carries. ``root_key``
    pins that key (32 bytes, obtained out of band); None trusts the first one found.
    """

    def __init__(self, provider_id: bytes, root_key: bytes | None = None) -> None:
        super().__init__("provider", provider_id, provider_id, {})
        self.root_key = root_key
        self.tenants: list[Created] = []

    def feed(self, row: Mapping[str, Any]) -> envelope.Envelope | None:
        """Check the next row and take in what it declares."""
        if self.events == 0 and self.finding is None and not self._adopt_root(row):
            return None
        return super().feed(row)

    def _accept(self, seq: int, decoded: envelope.Envelope) -> bool:
        kind = decoded.fields["type"]
        if kind == "key.issued":
            issued = issued_key(decoded.fields["payload"])
            if issued is None:
                self.fail(seq, Fault.UNKNOWN_KEY, "key.issued carries no valid key")
                return False
            self.key_ring[keys.kid(issued)] = issued
        elif kind == "tenant.created":
            created = _created_tenant(seq, decoded)
            if created is None:
                self.fail(seq, Fault.GENESIS_MISMATCH, "tenant.created names no tenant")
                return False
            self.tenants.append(created)
        return True

    def _adopt_root(self, row: Mapping[str, Any]) -> bool:
        try:
            decoded = envelope.decode(_raw(row["envelope"]))
        except cbor.MalformedError as error:
            self.fail(1, Fault.MALFORMED_ENVELOPE, str(error))
            return False
        root = issued_key(decoded.fields["payload"])
        if decoded.fields["type"] != "key.issued" or root is None:
            self.fail(1, Fault.GENESIS_MISMATCH, "the first event does not issue the root key")
            return False
        if self.root_key is not None and root != self.root_key:
            self.fail(
                1, Fault.ROOT_MISMATCH, f"the chain's root key is {root.hex()}, not the pinned one"
            )
            return False
        self.key_ring[keys.kid(root)] = root
        return True


def _created_tenant(seq: int, decoded: envelope.Envelope) -> Created | None:
    payload = _object(decoded.fields["payload"])
    tenant_id, name = payload.get("tenant_id"), payload.get("name")
    if not isinstance(tenant_id, str) or not isinstance(name, str):
        return None
    try:
        tenant_id = str(uuid.UUID(tenant_id))
    except ValueError:
        return None
    event_id = str(uuid.UUID(bytes=decoded.fields["event_id"]))
    return Created(tenant_id, name, seq, event_id, decoded.hash)


def issued_key(payload: bytes) -> bytes | None:
    """Return the 32-byte public key a ``key.issued`` payload carries, or None."""
    text = _object(payload).get("public_key")
    if not isinstance(text, str) or re.fullmatch(r"[0-9a-f]{64}", text) is None:
        return None
    return bytes.fromhex(text)


class Tenant(Chain):
    """Verify a tenant's chain, whose genesis must refer to its ``tenant.created``."""

    def __init__(self, created: Created, provider: Provider) -> None:
        super().__init__(
            created.name,
            uuid.UUID(created.tenant_id).bytes,
            provider.deployment_id,
            provider.key_ring,
        )
        self.created = created

    def _accept(self, seq: int, decoded: envelope.Envelope) -> bool:
        if seq == 1 and not self._is_genesis(decoded):
            self.fail(
                1,
                Fault.GENESIS_MISMATCH,
                "the first event does not refer to this tenant's creation",
            )
            return False
        return True

    def _is_genesis(self, decoded: envelope.Envelope) -> bool:
        if decoded.fields["type"] != "tenant.genesis":
            return False
        created = _object(decoded.fields["payload"]).get("created_by")
        return bool(
            created
            == {
                "tenant_id": str(uuid.UUID(bytes=self.deployment_id)),
                "seq": self.created.seq,
                "event_id": self.created.event_id,
                "hash": self.created.hash.hex(),
            }
        )


def verify_rows(chain: Chain, rows: Iterable[Mapping[str, Any]]) -> None:
    """Feed rows until they end or the chain is faulty."""
    for row in rows:
        if chain.feed(row) is None:
            return


def never_created(tenant: str) -> Verdict:
    """Return the verdict on a tenant that the provider chain never created."""
    return _unproved(tenant, Fault.GENESIS_MISMATCH, "the provider chain never created it")


def unlisted(tenant: str) -> Verdict:
    """Return the verdict on a tenant that was created, but that oml.tenant no longer names."""
    return _unproved(
        tenant, Fault.CHAIN_MISSING, "it was created, but oml.tenant no longer names it"
    )


def _unproved(tenant: str, fault: Fault, reason: str) -> Verdict:
    return Verdict(tenant, 0, envelope.GENESIS_PREV, Finding(tenant, 1, fault, reason))
