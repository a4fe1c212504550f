"""Seal events inside the database process: the one Python step of an append.

Written for speed: few steps over little memory, for a backend has little of the processor's cache
to itself. ``envelope.encode_map`` says what must come out, and a test with made-up events holds the
two against each other.
"""

from typing import Any, NamedTuple

from . import cbor, cose, envelope, signer

_now_us, _uuid7, _digest = envelope.now_us, envelope.uuid7, envelope.digest
_item, _head, _uint = envelope.item, cbor.head, cbor.uint
_MOST_KINDS = 64  # of events whose constant parts are kept


class _Kind(NamedTuple):
    """The encoded parts that all events have in common that differ in no claim but their ids."""

    fields: int
    deployment: bytes
    version: bytes
    authorization: bytes  # and the application's version
    entity_type: bytes
    operation: bytes  # and the class of personal data
    principal: bytes  # and synchronous_commit
    type: bytes  # and its version
    writer: bytes


def _kind(
    deployment_id: bytes,
    authorization: str,
    app_version: str | None,
    entity_type: str | None,
    operation: str | None,
    pii_class: str,
    principal: str,
    synchronous_commit: str,
    schema_version: int,
    name: str,
    writer: str,
) -> _Kind:
    if None in (
        deployment_id, authorization, pii_class, principal, synchronous_commit, schema_version,
        name, writer,
    ):  # fmt: skip
        raise ValueError("a required claim has no value")
    given = (app_version, entity_type, operation)
    return _Kind(
        _REQUIRED + sum(value is not None for value in given),
        _item("deployment_id", deployment_id),
        _item("version", envelope.VERSION),
        _item("authorization", authorization) + _item("app_version", app_version),
        _item("entity_type", entity_type),
        _item("operation", operation) + _item("pii_class", pii_class),
        _item("principal", principal) + _item("synchronous_commit", synchronous_commit),
        _item("schema_version", schema_version) + _item("type", name),
        _item("writer", writer),
    )


_REQUIRED = sum(field.required for field in envelope.FIELDS)
_SEQ, _TIME = (cbor.text_string(key) for key in ("n", "at"))
_PREV = cbor.text_string("p") + _head(cbor.BYTES, 32)
_TENANT, _ID = (cbor.text_string(key) + _head(cbor.BYTES, 16) for key in ("t", "id"))
_PAYLOAD = cbor.text_string("pl")
_NONE_OF_THEM = (None, None, None, None)


class Artifact(NamedTuple):
    """What an event about a version of an artifact says of it; digests are of 32 bytes, or None."""

    artifact_id: bytes
    version: int
    plaintext_digest: bytes | None
    ciphertext_digest: bytes | None


class Sealer:
    """Seals events with one key of one signer."""

    def __init__(self, provider: signer.Signer, kid: bytes) -> None:
        self._sign = provider.sign
        self._kid = kid
        self._start = cose.start(cose.protected_header(envelope.CONTENT_TYPE, kid))
        self._kinds: dict[tuple[Any, ...], _Kind] = {}

    def seal(
        self,
        deployment_id: bytes,
        tenant_id: bytes,
        seq: int,
        prev_hash: bytes,
        name: str,
        schema_version: int,
        payload: str,
        writer: str,
        principal: str,
        authorization: str,
        impersonation: str | None,
        operation: str | None,
        app_version: str | None,
        caused_by: bytes | None,
        invocation_id: str | None,
        entity_type: str | None,
        entity_id: str | None,
        subject_id: str | None,
        pii_class: str,
        synchronous_commit: str,
        artifact: Artifact | None = None,
    ) -> tuple[str, int, bytes, bytes]:
        """Encode, sign and hash one event of type ``name``, under a fresh id and the clock's time.

        Returns the event id in hex, the time in microseconds, the SHA-256 of the envelope and its
        exact bytes. Raises keys.SignerError, and OverflowError or ValueError for what CBOR cannot
        hold.
        """
        if len(prev_hash) != 32:
            raise ValueError(f"the previous event's hash has {len(prev_hash)} bytes")
        key = (
            deployment_id, authorization, app_version, entity_type, operation, pii_class,
            principal, synchronous_commit, schema_version, name, writer,
        )  # fmt: skip
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[key] = _kind(*key)
        fields, deployment, version, may, about, does, who, what, by = kind
        now = _now_us()
        event_id = _uuid7(now // 1000)
        cause = entity = under = call = subject = b""
        if entity_id is not None:
            entity = _item("entity_id", entity_id)
            fields += 1
        if (caused_by, impersonation, invocation_id, subject_id) != _NONE_OF_THEM:
            cause, under = _item("caused_by", caused_by), _item("impersonation", impersonation)
            call, subject = _item("invocation_id", invocation_id), _item("subject_id", subject_id)
            fields += sum(value != b"" for value in (cause, under, call, subject))
        which = sealed_as = known_as = numbered = b""
        if artifact is not None:
            which = _item("artifact_id", artifact.artifact_id)
            numbered = _item("artifact_version", artifact.version)
            known_as = _item("plaintext_digest", artifact.plaintext_digest)
            sealed_as = _item("ciphertext_digest", artifact.ciphertext_digest)
            fields += sum(value != b"" for value in (which, numbered, known_as, sealed_as))
        body = payload.encode()
        encoded = b"".join(
            (
                _head(cbor.MAP, fields), deployment, _SEQ, _uint(seq), _PREV, prev_hash,
                _TENANT, tenant_id, version, which, _TIME, _uint(now), may, cause, sealed_as,
                entity, about, _ID, event_id, under, call, does, known_as,
                _PAYLOAD, _head(cbor.BYTES, len(body)), body, who, subject, what, numbered, by,
            )
        )  # fmt: skip
        data = cose.finish(self._start, encoded, self._sign(self._kid, encoded))
        return event_id.hex(), now, _digest(data), data


_last: tuple[tuple[str, str | None, bytes], Sealer] | None = None


def sealer(signer_url: str, data_directory: str | None, kid: bytes) -> Sealer:
    """Return what seals with this signer's key of this kid. Cheap to call for every event.

    ``data_directory`` is where a key file must not lie. Raises keys.SignerError OM036 for a signer
    that is not understood; whether it holds the key, and may use it, shows when it signs.
    """
    global _last
    asked = (signer_url, data_directory, kid)
    if _last is not None and _last[0] == asked:
        return _last[1]
    made = Sealer(signer.provider(signer_url, data_directory), kid)
    _last = (asked, made)
    return made
