"""Make envelope.json with cbor2 and cryptography alone: no code of ours takes part.

Usage: .venv/bin/python tests/vectors/make_envelope.py > tests/vectors/envelope.json

The file is fixed: it changes only together with the envelope's version.
"""

import hashlib
import json
import sys

import cbor2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED = bytes(range(32))
# Key of the map, and the name of the journal column that it is projected to.
KEYS = {
    "deployment_id": "d",
    "seq": "n",
    "prev_hash": "p",
    "tenant_id": "t",
    "version": "v",
    "artifact_id": "ar",
    "occurred_at": "at",
    "authorization": "au",
    "app_version": "av",
    "caused_by": "cb",
    "ciphertext_digest": "cd",
    "dek_id": "dk",
    "entity_id": "ei",
    "entity_type": "et",
    "event_id": "id",
    "impersonation": "im",
    "invocation_id": "iv",
    "operation": "op",
    "pii_class": "pc",
    "plaintext_digest": "pd",
    "payload": "pl",
    "principal": "pr",
    "synchronous_commit": "sc",
    "subject_id": "su",
    "schema_version": "sv",
    "type": "ty",
    "artifact_version": "vn",
    "writer": "wr",
}
GENESIS = {
    "deployment_id": bytes.fromhex("6f6d6c00000040008000000000000001"),
    "seq": 1,
    "prev_hash": bytes(32),
    "tenant_id": bytes.fromhex("6f6d6c00000040008000000000000002"),
    "version": 1,
    "occurred_at": 1_700_000_000_000_000,
    "authorization": "tenant.created",
    "event_id": bytes.fromhex("018bcfe568007000800000000000002a"),
    "pii_class": "none",
    "payload": b"{}",
    "principal": "postgres",
    "synchronous_commit": "on",
    "schema_version": 1,
    "type": "tenant.genesis",
    "writer": "postgres",
}
FULL = GENESIS | {
    "seq": 2**32,
    "prev_hash": bytes(range(32)),
    "artifact_id": bytes(range(16)),
    "occurred_at": 2**53 + 1,
    "authorization": "membership:append",
    "app_version": "2.4.1",
    "caused_by": bytes.fromhex("018bcfe568007000800000000000002b"),
    "ciphertext_digest": bytes(range(32, 64)),
    "dek_id": bytes(range(16, 32)),
    "entity_id": "4711",
    "entity_type": "invoice",
    "impersonation": "session 7: support case 12",
    "invocation_id": "req-1f",
    "operation": "POST /invoices/4711/export",
    "pii_class": "contact",
    "plaintext_digest": bytes(range(64, 96)),
    "payload": '{"name": "Zoë 🜁", "n": 1.0}'.encode(),
    "principal": "a" * 24,
    "synchronous_commit": "remote_apply",
    "subject_id": "Łucja",
    "schema_version": 24,
    "type": "invoice.exported",
    "artifact_version": 256,
    "writer": "w" * 256,
}


def sign(fields: dict[str, object]) -> bytes:
    """Return the COSE_Sign1 over the fields (RFC 9052, 4.4), as cbor2 and cryptography make it."""
    key = Ed25519PrivateKey.from_private_bytes(SEED)
    kid = hashlib.sha256(key.public_key().public_bytes_raw()).digest()[:8]
    protected = cbor2.dumps({1: -8, 3: "application/oml-event+cbor", 4: kid}, canonical=True)
    payload = cbor2.dumps({KEYS[column]: v for column, v in fields.items()}, canonical=True)
    signature = key.sign(cbor2.dumps(["Signature1", protected, b"", payload]))
    return cbor2.dumps(cbor2.CBORTag(18, [protected, {}, payload, signature]))


def main() -> None:
    """Print the vectors; byte strings as {"hex": ...}."""
    public_key = Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()
    vectors = []
    for name, fields in (("genesis", GENESIS), ("every field", FULL)):
        data = sign(fields)
        shown = {k: {"hex": v.hex()} if isinstance(v, bytes) else v for k, v in fields.items()}
        vectors.append(
            {
                "name": name,
                "fields": shown,
                "envelope": data.hex(),
                "hash": hashlib.sha256(data).hexdigest(),
            }
        )
    document = {"seed": SEED.hex(), "public_key": public_key.hex(), "vectors": vectors}
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
