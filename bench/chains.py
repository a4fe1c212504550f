"""Long chains for benchmarks: sealed by oml.core as an append would, stored by COPY.

An append costs many times what its verification does, and is not what is measured here. Every row
passes the journal's own triggers; only oml_append and its checks are left out.
"""

import json
import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from psycopg.rows import TupleRow

from oml.core import cose, envelope, keys

_COLUMNS = [f.column for f in envelope.FIELDS if f.column not in ("version", "deployment_id")]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UUIDS = frozenset(("tenant_id", "event_id", "caused_by", "artifact_id", "dek_id"))


def read_key(path: Path) -> keys.SigningKey:
    """Read a key file as root can: whoever owns it."""
    private = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(private, Ed25519PrivateKey)
    return keys.from_seed(private.private_bytes_raw())


def write(
    connection: psycopg.Connection[TupleRow], key: keys.SigningKey, tenants: list[str], events: int
) -> None:
    """Create the tenants and fill their chains by turns until there are ``events`` of them.

    ``connection`` is a superuser's, in autocommit.
    """
    deployment = _value(connection, "select oml.deployment_id()::uuid").bytes
    for tenant in tenants:
        connection.execute("select oml_create_tenant(%s)", (tenant,))
    each = -(-events // len(tenants))
    for number, tenant in enumerate(tenants):
        tenant_id = _value(connection, "select tenant_id from oml.tenant where name = %s", tenant)
        _fill(connection, key, deployment, tenant_id, min(each, events - number * each))
    connection.execute("vacuum (analyze) oml.journal, oml.outbox")


def _value(connection: psycopg.Connection[TupleRow], query: str, *arguments: str) -> uuid.UUID:
    row = connection.execute(query.encode(), arguments).fetchone()
    assert row is not None
    found = row[0]
    assert isinstance(found, uuid.UUID)
    return found


def _fill(
    connection: psycopg.Connection[TupleRow],
    key: keys.SigningKey,
    deployment: bytes,
    tenant_id: uuid.UUID,
    events: int,
) -> None:
    row = connection.execute(
        "select hash from oml.journal where tenant_id = %s and seq = 1", (tenant_id,)
    ).fetchone()
    assert row is not None
    head = row[0]
    protected = cose.protected_header(envelope.CONTENT_TYPE, key.kid)
    chance = random.Random(tenant_id.int)
    columns = ", ".join(f'"{c}"' for c in [*_COLUMNS, "hash", "kid", "envelope"])
    with (
        connection.cursor() as cursor,
        cursor.copy(f"copy oml.journal ({columns}) from stdin".encode()) as copy,
    ):
        for seq in range(2, events + 1):
            fields = _event(chance, deployment, tenant_id.bytes, seq, head)
            values = tuple(fields.get(f.column) for f in envelope.FIELDS)
            data = cose.sign(protected, envelope.encode_map(values), key.secret_key)
            head = envelope.digest(data)
            copy.write_row([*(_stored(c, fields.get(c)) for c in _COLUMNS), head, key.kid, data])


def _event(
    chance: random.Random, deployment: bytes, tenant_id: bytes, seq: int, head: bytes
) -> dict[str, object]:
    number = chance.randrange(10**6)
    payload = {
        "note": chance.choice(("Łódź", "paid in part", "")), "lines": chance.randrange(40),
        "total": chance.randrange(10**7) / 100, "number": f"INV-{number:06}", "currency": "EUR",
    }  # fmt: skip
    now = envelope.now_us()
    fields: dict[str, object] = {
        "version": envelope.VERSION, "deployment_id": deployment, "tenant_id": tenant_id,
        "seq": seq, "prev_hash": head, "event_id": envelope.uuid7(now // 1000), "occurred_at": now,
        "type": "invoice.exported", "schema_version": 1, "authorization": "membership:append",
        "pii_class": "none", "synchronous_commit": "on", "principal": "ada", "writer": "app",
        "operation": "export", "app_version": "2.4.1",
        "entity_type": "invoice", "entity_id": f"{number:06}",
        "payload": json.dumps(payload, ensure_ascii=False).encode(),
    }  # fmt: skip
    if seq % 3 == 0:
        fields["invocation_id"] = f"req-{chance.randrange(10**9)}"
        fields["caused_by"] = chance.randbytes(16)
    return fields


def _stored(column: str, value: object) -> object:
    if isinstance(value, bytes) and column in _UUIDS:
        return uuid.UUID(bytes=value)
    if column == "payload":
        assert isinstance(value, bytes)
        return value.decode()
    if column == "occurred_at":
        assert isinstance(value, int)
        return _EPOCH + timedelta(microseconds=value)
    return value
