"""Forge events and rows: what somebody with a key, or with superuser rights, could write."""

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from oml.core import cose, envelope, keys

Row = dict[str, Any]

UUID_COLUMNS = frozenset(("tenant_id", "event_id", "caused_by", "artifact_id", "dek_id"))
NOT_COLUMNS = frozenset(("version", "deployment_id"))  # signed, but no columns of the journal
OPTIONAL: dict[str, Any] = {
    "artifact_id": bytes(range(16)),
    "app_version": "2.4.1",
    "caused_by": bytes(range(16, 32)),
    "ciphertext_digest": bytes(range(32)),
    "dek_id": bytes(range(32, 48)),
    "entity_id": "4711",
    "entity_type": "invoice",
    "impersonation": "session 7",
    "invocation_id": "req-1",
    "operation": "export",
    "plaintext_digest": bytes(range(64, 96)),
    "subject_id": "Łucja",
    "artifact_version": 3,
}
"""A value for every field that may be absent."""


def read_key(path: Path) -> keys.SigningKey:
    """Read a key file as root can: whoever owns it."""
    private = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(private, Ed25519PrivateKey)
    return keys.from_seed(private.private_bytes_raw())


def sign(fields: dict[str, Any], key: keys.SigningKey, kid: bytes | None = None) -> bytes:
    """Return the envelope of these fields, under the key's own kid or under another one."""
    return envelope.encode(fields, key.kid if kid is None else kid, key.secret_key)


def sign_unknown_version(fields: dict[str, Any], key: keys.SigningKey, version: int) -> bytes:
    """Return a well-signed envelope of another envelope version."""
    values = tuple((fields | {"version": version}).get(f.column) for f in envelope.FIELDS)
    header = cose.protected_header(envelope.CONTENT_TYPE, key.kid)
    return cose.sign(header, envelope.encode_map(values), key.secret_key)


def row_of(data: bytes) -> Row:
    """Return the journal row that agrees with an envelope, as oml.chain_rows() has it."""
    decoded = envelope.decode(data)
    row: Row = {f.column: decoded.fields.get(f.column) for f in envelope.FIELDS}
    for column in NOT_COLUMNS:
        del row[column]
    for column in UUID_COLUMNS:
        if row[column] is not None:
            row[column] = str(uuid.UUID(bytes=row[column]))
    row["payload"] = row["payload"].decode()
    return row | {"hash": decoded.hash, "kid": decoded.kid, "envelope": data}


@dataclass
class Scribe:
    """Writes chains in memory as the database would: the provider's and those of its tenants."""

    key: keys.SigningKey
    deployment_id: bytes = bytes(range(16))
    provider: list[Row] = field(default_factory=list)
    chains: dict[str, list[Row]] = field(default_factory=dict)

    def issue(self, key: keys.SigningKey, purpose: str | None = None, **fields: Any) -> Row:
        """Write ``key.issued`` on the provider chain; the first one issues the root."""
        payload = {
            "kid": key.kid.hex(),
            "public_key": key.public_key.hex(),
            "algorithm": "Ed25519",
            "purpose": purpose or ("signing" if self.provider else "root"),
        }
        return self.provide("key.issued", payload, **fields)

    def ends(self) -> dict[str, list[Any]]:
        """Return seq and hash of each tenant's last event, as a rotation has them."""
        return {t: [len(c), c[-1]["hash"].hex()] for t, c in self.chains.items()}

    def rotation(
        self, successor: keys.SigningKey, tenants_a_page: int = 99
    ) -> list[dict[str, Any]]:
        """Return the payloads of a rotation to ``successor``, one a page."""
        last = list(self.ends().items())
        starts = range(0, len(last) or 1, tenants_a_page)
        cut = [last[at : at + tenants_a_page] for at in starts]
        return [
            {
                "kid": self.key.kid.hex(),
                "purpose": "signing",
                "successor": successor.kid.hex(),
                "page": number,
                "pages": len(cut),
                "last": dict(page),
            }
            for number, page in enumerate(cut, 1)
        ]

    def rotate(self, successor: keys.SigningKey, tenants_a_page: int = 99) -> None:
        """Write a rotation to a successor, who signs from its end on."""
        for page in self.rotation(successor, tenants_a_page):
            self.provide("key.retired", page)
        self.take_over(successor)

    def take_over(self, successor: keys.SigningKey) -> None:
        """Write the end of a rotation, signed by the successor, who signs from now on."""
        rotated = {"kid": successor.kid.hex(), "predecessor": self.key.kid.hex()}
        self.key = successor
        self.provide("key.rotated", rotated)

    def provide(self, kind: str, payload: Any, **fields: Any) -> Row:
        """Write an event on the provider chain."""
        return self.append(self.provider, self.deployment_id, kind, payload, **fields)

    def create(self, name: str, tenant_id: bytes) -> list[Row]:
        """Create a tenant and return its chain, which holds the genesis event."""
        created = self.provide(
            "tenant.created", {"tenant_id": str(uuid.UUID(bytes=tenant_id)), "name": name}
        )
        reference = {
            "tenant_id": str(uuid.UUID(bytes=self.deployment_id)),
            "seq": created["seq"],
            "event_id": created["event_id"],
            "hash": created["hash"].hex(),
        }
        chain = self.chains[str(uuid.UUID(bytes=tenant_id))] = []
        self.append(chain, tenant_id, "tenant.genesis", {"created_by": reference})
        return chain

    def append(
        self, chain: list[Row], tenant_id: bytes, kind: str, payload: Any, **fields: Any
    ) -> Row:
        """Write an event at the end of a chain; ``fields`` override what would be signed.

        ``payload`` is a JSON value, or the exact bytes.
        """
        data = sign(self.fields(chain, tenant_id, kind, payload) | fields, self.key)
        chain.append(row_of(data))
        return chain[-1]

    def fields(self, chain: list[Row], tenant_id: bytes, kind: str, payload: Any) -> dict[str, Any]:
        """Return the fields of the event that belongs at the end of a chain."""
        seq = len(chain) + 1
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return {
            "version": envelope.VERSION,
            "deployment_id": self.deployment_id,
            "tenant_id": tenant_id,
            "seq": seq,
            "prev_hash": chain[-1]["hash"] if chain else envelope.GENESIS_PREV,
            "event_id": _event_id(tenant_id, seq),
            "occurred_at": 1_700_000_000_000_000 + seq * 1000,
            "type": kind,
            "schema_version": 1,
            "authorization": "membership:append",
            "pii_class": "none",
            "payload": raw,
            "principal": "ada",
            "synchronous_commit": "on",
            "writer": "app",
        }


def _event_id(tenant_id: bytes, seq: int) -> bytes:
    tail = hashlib.sha256(tenant_id + seq.to_bytes(8)).digest()
    version, variant = 0x70 | tail[0] & 0x0F, 0x80 | tail[2] & 0x3F
    return (1_700_000_000_000 + seq).to_bytes(6) + bytes((version, tail[1], variant)) + tail[3:10]


def resign(row: Row, key: keys.SigningKey, kid: bytes | None = None, **fields: Any) -> Row:
    """Return a row's event signed again, with other fields, by another key, or under its kid."""
    decoded = envelope.decode(row["envelope"])
    return row_of(sign(decoded.fields | fields, key, kid))


def flip(data: bytes, at: int) -> bytes:
    """Return the bytes with the lowest bit of one of them flipped; ``at`` may be negative."""
    spoiled = bytearray(data)
    spoiled[at] ^= 1
    return bytes(spoiled)


def unsigned(data: bytes) -> bytes:
    """Return an envelope with a signature of zeros."""
    return data[: -cose.SIGNATURE_BYTES] + bytes(cose.SIGNATURE_BYTES)
