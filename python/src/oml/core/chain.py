"""Verify a chain: every envelope's shape, key, signature, hash, link and column projection.

The envelope is what is trusted; the columns beside it are projections that must agree. A verifier
stops at the first fault of a chain, because nothing after a broken link is proved by what follows.
"""

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple, TypeGuard

from . import cbor, cose, envelope, keys


class Fault(StrEnum):
    """What a verifier can find wrong."""

    MISSING_EVENT = "missing-event"
    """A seq is absent and a later one follows it."""
    MALFORMED_ENVELOPE = "malformed-envelope"
    """The envelope is not the one accepted encoding, or lacks a field."""
    UNKNOWN_KEY = "unknown-key"
    """The envelope names a key that was never issued for signing, or is not in force yet."""
    RETIRED_KEY = "retired-key"
    """The envelope names a signing key that was in force earlier, but not for this seq any more."""
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
    INVALID_ROTATION = "invalid-rotation"
    """A rotation of the signing key is incomplete, or contradicts the keys and seqs before it."""
    ROOT_MISMATCH = "root-mismatch"
    """The provider chain's root key is not the pinned one."""
    TAIL_MISSING = "tail-missing"
    """The outbox knows later events of the chain than the journal holds."""
    CHAIN_MISSING = "chain-missing"
    """The chain has no events, not even its genesis, or its row in oml.tenant is gone."""
    HEAD_MISSING = "head-missing"
    """The chain has no row in oml.chain_head, so nothing can be appended to it."""


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


class Era(NamedTuple):
    """The time one signing key is in force. ``starts`` maps tenant id to the chain's first seq.

    A chain that ``starts`` does not name begins with this key or a later one. ``heads`` maps tenant
    id to the hash of the event before that first seq, as the new key's holder found it.
    """

    kid: bytes
    public_key: bytes
    starts: dict[str, int]
    heads: dict[str, bytes]


class KeyRing:
    """Which signing key is in force for each seq of each chain, as the provider chain says.

    Tenant ids are UUIDs as text, kids 8 bytes. At any seq of any chain one key is in force: the
    root's until the first rotation, then its successor's, and so on.
    """

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.eras = [Era(keys.kid(root), root, {}, {})]
        self.standby: dict[bytes, bytes] = {}
        self.withdrawn: set[bytes] = set()

    def issue(self, public_key: bytes) -> bool:
        """Take in a key issued for signing; False if another key has its kid."""
        kid = keys.kid(public_key)
        for era in self.eras:
            if era.kid == kid:
                return era.public_key == public_key
        return self.standby.setdefault(kid, public_key) == public_key

    def era_at(self, tenant_id: str, seq: int) -> int:
        """Return the index of the era in force at this seq."""
        index = len(self.eras) - 1
        while index and self.eras[index].starts.get(tenant_id, 1) > seq:
            index -= 1
        return index

    def last_seq(self, tenant_id: str, index: int) -> int | None:
        """Return the last seq of a chain for which an era's key is in force; None: no end yet."""
        later = self.eras[index + 1 :]
        return later[0].starts.get(tenant_id, 1) - 1 if later else None

    def reached(self, tenant_id: str) -> int:
        """Return the seq that a chain had reached at the last rotation; 0 before the first."""
        return self.eras[-1].starts.get(tenant_id, 1) - 1

    def anchors(self, tenant_id: str) -> dict[int, bytes]:
        """Return {seq: hash} of the events that a chain ended with when its key was retired."""
        return {
            era.starts[tenant_id] - 1: head
            for era in self.eras
            for head in (era.heads.get(tenant_id),)
            if head is not None
        }

    def key(self, tenant_id: str, seq: int, kid: bytes) -> bytes | tuple[Fault, str]:
        """Return the public key of ``kid`` if it is in force at this seq, else what is wrong."""
        now = self.era_at(tenant_id, seq)
        if self.eras[now].kid == kid:
            return self.eras[now].public_key
        for index, era in enumerate(self.eras):
            if era.kid == kid and index < now:
                last = self.last_seq(tenant_id, index)
                return (
                    Fault.RETIRED_KEY,
                    f"key {kid.hex()} was retired: here its last seq is {last}",
                )
            if era.kid == kid:
                return (
                    Fault.UNKNOWN_KEY,
                    f"key {kid.hex()} is not in force before seq {era.starts.get(tenant_id, 1)}",
                )
        if kid in self.withdrawn:
            reason = f"key {kid.hex()} was withdrawn before it was ever in force"
        elif kid in self.standby:
            reason = f"key {kid.hex()} was issued, but never came into force"
        else:
            reason = f"key {kid.hex()} was never issued here for signing"
        return Fault.UNKNOWN_KEY, reason


class Chain:
    """Verify one tenant's chain, fed row by row in seq order.

    ``key_ring`` says which key must have signed each seq. ``deployment_id`` and ``tenant_id`` are
    16 bytes, ``tenant`` the name to report. ``proved_before`` is a (seq, SHA-256) that an earlier
    verification found; set before any row is fed, the event there must still be that one.
    """

    def __init__(
        self, tenant: str, tenant_id: bytes, deployment_id: bytes, key_ring: KeyRing | None
    ) -> None:
        self.tenant = tenant
        self.tenant_id = tenant_id
        self.tenant_uuid = str(uuid.UUID(bytes=tenant_id))
        self.deployment_id = deployment_id
        self.key_ring = key_ring
        self.events = 0
        self.head: bytes | None = envelope.GENESIS_PREV
        self.first_prev: bytes | None = None
        self.finding: Finding | None = None
        self.proved_before: tuple[int, bytes] | None = None
        self.anchors: dict[int, bytes] = {}

    def resume(self, events: int, head: bytes | None) -> None:
        """Begin behind ``events`` events that are proved elsewhere, the last of hash ``head``.

        With None for ``head`` the first event's link is taken as it is, and ``first_prev`` says
        what must be proved of the events before.
        """
        self.events = events
        self.head = head

    def declares(self, kind: bytes) -> bool:
        """Tell whether feed() must see the next event, of this type, for what it says.

        What any other says bears on none that follow, so proving it is enough.
        """
        return False

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
        prev = decoded.fields["prev_hash"]
        if self.head is None:
            self.first_prev = prev
        elif prev != self.head:
            self.fail(expected, *BROKEN_LINK)
            return None
        known = self.proved_before
        if known is not None and known[0] == expected and known[1] != decoded.hash:
            self.fail(expected, Fault.BROKEN_LINK, "another event was proved here earlier")
            return None
        if self.anchors.get(expected, decoded.hash) != decoded.hash:
            self.fail(
                expected, Fault.BROKEN_LINK, "another event was here when its key was retired"
            )
            return None
        if not self._accept(expected, decoded):
            return None
        self.events = expected
        self.head = decoded.hash
        return decoded

    def _accept(self, seq: int, decoded: envelope.Envelope) -> bool:
        """Judge what the event says, once it is proved to be this chain's; fail if it is wrong."""
        return True

    def _key(self, seq: int, decoded: envelope.Envelope) -> bytes | tuple[Fault, str]:
        """Return the public key that must have signed this event, or what is wrong with its kid."""
        assert self.key_ring is not None
        return self.key_ring.key(self.tenant_uuid, seq, decoded.kid)

    def _open(self, seq: int, row: Mapping[str, Any]) -> envelope.Envelope | None:
        data = _raw(row["envelope"])
        try:
            decoded = envelope.decode(data)
        except cbor.MalformedError as error:
            self.fail(seq, Fault.MALFORMED_ENVELOPE, str(error))
            return None
        public_key = self._key(seq, decoded)
        if isinstance(public_key, tuple):
            self.fail(seq, *public_key)
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
        return Verdict(self.tenant, self.events, self.head or b"", self.finding)


BROKEN_LINK = (Fault.BROKEN_LINK, "prev is not the hash of the event before it")


_UUID_COLUMNS = frozenset(
    ("deployment_id", "tenant_id", "event_id", "caused_by", "artifact_id", "dek_id")
)
PROJECTED = tuple(
    f.column for f in envelope.FIELDS if f.column not in ("version", "deployment_id", "payload")
)
"""The columns that hold a signed field as it is; ``payload`` holds the same JSON value."""


def _select_list() -> str:
    """Return the columns of oml.journal j as PL/Python reads them.

    It does not survive a text that is not UTF-8, which a superuser can store. So texts come as
    their bytes: convert_to() would refuse such ones, and textsend() follows client_encoding.
    """
    raw = r"decode(replace({}, E'\\', E'\\\\'), 'escape') as {}"
    texts = [f.column for f in envelope.FIELDS if f.kind == "text"]
    others = [
        column
        for column in (*PROJECTED, "hash", "kid", "envelope")
        if column not in (*texts, "occurred_at")
    ]
    return ", ".join(
        [
            *(f'j."{column}"' for column in others),
            *(raw.format(f'j."{column}"', f'"{column}"') for column in texts),
            raw.format("j.payload::text", "payload"),
            "case when j.occurred_at >= 'epoch' and j.occurred_at < '290000-01-01'"
            " then (extract(epoch from j.occurred_at) * 1000000)::bigint end as occurred_at",
        ]
    )


SELECT_LIST = _select_list()
"""SQL: the columns that feed() takes, of table oml.journal under the name j."""


def mismatched_column(decoded: envelope.Envelope, row: Mapping[str, Any]) -> str | None:
    """Name the first column that differs from the envelope, or None.

    UUIDs come as UUID or as their text, ``occurred_at`` as microseconds, ``payload`` as JSON text.
    Any text may come as its bytes, in UTF-8 if a superuser has not stored others there.
    """
    for column in PROJECTED:
        signed, stored = decoded.fields.get(column), row[column]
        if column in _UUID_COLUMNS:
            signed = None if signed is None else str(uuid.UUID(bytes=signed))
            stored = None if stored is None else str(stored)
        elif isinstance(stored, (bytearray, memoryview)):
            stored = bytes(stored)
        if isinstance(signed, str) and isinstance(stored, bytes):
            signed = signed.encode("utf-8")
        if signed != stored:
            return column
    if _raw(row["kid"]) != decoded.kid:
        return "kid"
    return None if _same_json(decoded.fields["payload"], row["payload"]) else "payload"


def _raw(value: bytes | bytearray | memoryview | None) -> bytes:
    """Return a column's bytes; none where a superuser has emptied it."""
    return b"" if value is None else bytes(value)


def _same_json(signed: bytes, stored: str | bytes | bytearray | memoryview | None) -> bool:
    """Compare as JSON values: PostgreSQL may print the same jsonb differently one day."""
    if stored is None:
        return False
    raw = stored.encode("utf-8") if isinstance(stored, str) else bytes(stored)
    if signed == raw:
        return True
    try:
        return bool(_json(signed.decode("utf-8")) == _json(raw.decode("utf-8")))
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


class _Rotation(NamedTuple):
    """A rotation under way: the pages so far, and the successor's era, which is still to begin."""

    era: Era
    page: int
    pages: int

    @property
    def awaits(self) -> str:
        """The type of the event that must come next."""
        return "key.retired" if self.page < self.pages else "key.rotated"


_DECLARING = frozenset((b"key.issued", b"key.retired", b"key.rotated", b"tenant.created"))


class Provider(Chain):
    """Verify the provider chain and learn from it the keys issued and the tenants created.

    The first event must be the root's ``key.issued``, signed by the key it carries. ``root_key``
    pins that key (32 bytes, obtained out of band); None trusts the first one found.
    """

    def __init__(self, provider_id: bytes, root_key: bytes | None = None) -> None:
        super().__init__("provider", provider_id, provider_id, None)
        self.root_key = root_key
        self.tenants: list[Created] = []
        self._rotation: _Rotation | None = None

    def declares(self, kind: bytes) -> bool:
        """Tell whether the next event is one that _declare() has anything to say of."""
        return self._rotation is not None or kind in _DECLARING

    def feed(self, row: Mapping[str, Any]) -> envelope.Envelope | None:
        """Check the next row and take in what it declares."""
        if self.events == 0 and self.finding is None and not self._adopt_root(row):
            return None
        return super().feed(row)

    def verdict(self) -> Verdict:
        """Return what was proved; a rotation that was begun must be complete."""
        if self._rotation is not None:
            missing = f"a rotation lacks its {self._rotation.awaits}"
            self.fail(self.events + 1, Fault.INVALID_ROTATION, missing)
        return super().verdict()

    def _accept(self, seq: int, decoded: envelope.Envelope) -> bool:
        wrong = self._declare(seq, decoded)
        if wrong is not None:
            self.fail(seq, *wrong)
        return wrong is None

    def _declare(self, seq: int, decoded: envelope.Envelope) -> tuple[Fault, str] | None:
        """Take in what the event declares, or return what is wrong with it."""
        kind, payload = decoded.fields["type"], decoded.fields["payload"]
        if self._rotation is not None and kind != self._rotation.awaits:
            return (
                Fault.INVALID_ROTATION,
                f"{kind} stands where a rotation's {self._rotation.awaits} belongs",
            )
        if kind == "key.issued":
            return self._issue(seq, payload)
        if kind in ("key.retired", "key.rotated"):
            declare = self._retire if kind == "key.retired" else self._rotate
            reason = declare(seq, decoded.kid, _object(payload))
            return None if reason is None else (Fault.INVALID_ROTATION, reason)
        if kind == "tenant.created":
            created = _created_tenant(seq, decoded)
            if created is None:
                return Fault.GENESIS_MISMATCH, "tenant.created names no tenant"
            self.tenants.append(created)
        return None

    def _issue(self, seq: int, payload: bytes) -> tuple[Fault, str] | None:
        purpose = _object(payload).get("purpose")
        if purpose not in ("root", "signing", "writer"):
            return None
        public_key = issued_key(payload)
        if public_key is None:
            return Fault.UNKNOWN_KEY, "key.issued carries no valid key, or not under its own kid"
        if purpose == "root" and seq > 1:
            return Fault.UNKNOWN_KEY, "key.issued names a second root key"
        assert self.key_ring is not None
        if purpose == "signing" and not self.key_ring.issue(public_key):
            return Fault.UNKNOWN_KEY, f"kid {keys.kid(public_key).hex()} is another key's already"
        return None

    def _key(self, seq: int, decoded: envelope.Envelope) -> bytes | tuple[Fault, str]:
        rotation = self._rotation
        if (
            rotation is not None
            and decoded.fields["type"] == "key.rotated"
            and decoded.kid == rotation.era.kid
        ):
            return rotation.era.public_key
        return super()._key(seq, decoded)

    def _retire(self, seq: int, _signer: bytes, retired: dict[str, Any]) -> str | None:
        """Take in a ``key.retired``, or say what is wrong with it.

        The key in force signs it: it names its successor, and where it leaves each tenant's chain.
        """
        assert self.key_ring is not None
        purpose, kid, successor = (retired.get(n) for n in ("purpose", "kid", "successor"))
        rotation = self._rotation
        if rotation is None and purpose != "signing":
            return None
        if rotation is None and successor is None:
            return self._withdraw(kid)
        page, pages, last = (retired.get(n) for n in ("page", "pages", "last"))
        if not (_is_count(page) and _is_count(pages) and 0 < page <= pages):
            return "the rotation's page and pages are no such numbers"
        ends = _ends(last)
        if ends is None or self.tenant_uuid in ends:
            return "the rotation's last does not name tenants with seqs and hashes"
        if rotation is None:
            found = [k for k in self.key_ring.standby if k.hex() == successor]
            if not found or found[0] in self.key_ring.withdrawn:
                return "the successor that it names is not on standby"
            rotation = _Rotation(Era(found[0], self.key_ring.standby[found[0]], {}, {}), 0, pages)
        expected = (
            "signing", self.key_ring.eras[-1].kid.hex(), rotation.era.kid.hex(),
            rotation.page + 1, rotation.pages,
        )  # fmt: skip
        if (purpose, kid, successor, page, pages) != expected:
            return f"page {rotation.page + 1} of {rotation.pages} of a rotation belongs here"
        return self._take_page(rotation._replace(page=page), ends)

    def _take_page(self, rotation: _Rotation, ends: dict[str, tuple[int, bytes]]) -> str | None:
        assert self.key_ring is not None
        now, next_era = self.key_ring.eras[-1], rotation.era
        for tenant_id, (last, head) in ends.items():
            if tenant_id in next_era.starts:
                return f"tenant {tenant_id} is in two pages of the rotation"
            if last + 1 == now.starts.get(tenant_id) and head != now.heads[tenant_id]:
                return f"tenant {tenant_id} had another event at the rotation before"
            next_era.starts[tenant_id] = last + 1
            next_era.heads[tenant_id] = head
        self._rotation = rotation
        if rotation.page == rotation.pages:
            for tenant_id, start in now.starts.items():
                if tenant_id != self.tenant_uuid and start > next_era.starts.get(tenant_id, 1):
                    return f"tenant {tenant_id} had come further at the rotation before"
        return None

    def _rotate(self, seq: int, signer: bytes, rotated: dict[str, Any]) -> str | None:
        """Take in a ``key.rotated``: the successor takes over and vouches for the pages."""
        assert self.key_ring is not None
        rotation, now = self._rotation, self.key_ring.eras[-1]
        if rotation is None:
            return "no key.retired with the ends of all chains comes before it"
        era = rotation.era
        if (signer, rotated.get("kid"), rotated.get("predecessor")) != (
            era.kid, era.kid.hex(), now.kid.hex(),
        ):  # fmt: skip
            return f"it must be signed by the successor {era.kid.hex()}, and name both keys"
        assert self.head is not None
        era.starts[self.tenant_uuid] = seq
        era.heads[self.tenant_uuid] = self.head
        self.key_ring.eras.append(era)
        del self.key_ring.standby[era.kid]
        self._rotation = None
        return None

    def _withdraw(self, kid: Any) -> str | None:
        assert self.key_ring is not None
        for known in self.key_ring.standby:
            if known.hex() == kid:
                self.key_ring.withdrawn.add(known)
                return None
        return "only a key on standby can be withdrawn: this one is in force, was, or is unknown"

    def _adopt_root(self, row: Mapping[str, Any]) -> bool:
        try:
            decoded = envelope.decode(_raw(row["envelope"]))
        except cbor.MalformedError as error:
            self.fail(1, Fault.MALFORMED_ENVELOPE, str(error))
            return False
        payload = decoded.fields["payload"]
        root = issued_key(payload)
        purpose = _object(payload).get("purpose")
        if decoded.fields["type"] != "key.issued" or root is None or purpose != "root":
            self.fail(1, Fault.GENESIS_MISMATCH, "the first event does not issue the root key")
            return False
        if self.root_key is not None and root != self.root_key:
            self.fail(
                1, Fault.ROOT_MISMATCH, f"the chain's root key is {root.hex()}, not the pinned one"
            )
            return False
        self.key_ring = KeyRing(root)
        return True


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**63


_UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


_HASH_TEXT = re.compile(r"[0-9a-f]{64}")


def _ends(last: Any) -> dict[str, tuple[int, bytes]] | None:
    """Return {tenant id: (seq, hash)} of the last events under the old key; None if it is not."""
    if not isinstance(last, dict):
        return None
    ends = {}
    for tenant_id, end in last.items():
        if _UUID_TEXT.fullmatch(tenant_id) is None or not isinstance(end, list) or len(end) != 2:
            return None
        seq, digest = end
        if not _is_count(seq) or not isinstance(digest, str) or not _HASH_TEXT.fullmatch(digest):
            return None
        ends[tenant_id] = (seq, bytes.fromhex(digest))
    return ends


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
    """Return the 32-byte public key a ``key.issued`` payload carries under its kid, or None."""
    issued = _object(payload)
    text = issued.get("public_key")
    if not isinstance(text, str) or re.fullmatch(r"[0-9a-f]{64}", text) is None:
        return None
    public_key = bytes.fromhex(text)
    return public_key if issued.get("kid") == keys.kid(public_key).hex() else None


class Tenant(Chain):
    """Verify a tenant's chain, whose genesis must refer to its ``tenant.created``."""

    def __init__(self, created: Created, deployment_id: bytes, key_ring: KeyRing | None) -> None:
        super().__init__(created.name, uuid.UUID(created.tenant_id).bytes, deployment_id, key_ring)
        self.created = created
        self.anchors = {} if key_ring is None else key_ring.anchors(self.tenant_uuid)

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


class Tail(Chain):
    """Verify where a chain ends: its last event, and its link to the one before.

    ``public_keys`` maps each kid that was ever issued for the deployment's signatures to its
    public key. That is less than a KeyRing: whether the key was in force there is not asked.
    """

    def __init__(
        self,
        tenant: str,
        tenant_id: bytes,
        deployment_id: bytes,
        public_keys: Mapping[bytes, bytes],
    ) -> None:
        super().__init__(tenant, tenant_id, deployment_id, None)
        self.public_keys = public_keys

    def read(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Check the last rows of the chain: two in seq order, one of a chain that has one."""
        if len(rows) > 1:
            data = _raw(rows[-2]["envelope"])
            seq, head = rows[-2]["seq"], envelope.digest(data)
            if head != _raw(rows[-2]["hash"]):
                self.fail(seq, Fault.HASH_MISMATCH, "column hash is not the envelope's SHA-256")
            self.resume(seq, head)
        verify_rows(self, rows[-1:])

    def _key(self, seq: int, decoded: envelope.Envelope) -> bytes | tuple[Fault, str]:
        public_key = self.public_keys.get(decoded.kid)
        if public_key is None:
            reason = f"key {decoded.kid.hex()} was never issued here for signing"
            return Fault.UNKNOWN_KEY, reason
        return public_key


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
