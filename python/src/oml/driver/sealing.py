"""Submissions that the client encrypts, and signs if its writer has a key."""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from oml.core import body as bodies
from oml.core import keys, submission
from oml.driver.artifacts import Attachment, Submission
from oml.errors import DatabaseError, UsageError

if TYPE_CHECKING:
    from oml.driver.calls import Call


class Content(bytes):
    """A body on its way: bytes that are not shown, neither here nor in a debugger's trace."""

    def __repr__(self) -> str:
        return f"Content({len(self)} bytes)"

    __str__ = __repr__

    @classmethod
    def of(cls, given: object) -> "Content | None":
        """Return what was given as content; None if it is no bytes."""
        return cls(given) if isinstance(given, bytes | bytearray | memoryview) else None


def attached(given: Iterable[object]) -> list[Attachment | None]:
    """Return what was given as attachments; None in the place of what is none, to be refused."""
    return [a if isinstance(a, Attachment) else None for a in given]


class Writer:
    """A writer's own key."""

    def __init__(self, key: keys.SigningKey) -> None:
        self._key = key

    @classmethod
    def load(cls, path: str) -> "Writer":
        """Read a key file as ``oml keys generate`` makes it. Raises UsageError."""
        wrong = None
        try:
            return cls(keys.load(path)[0])
        except keys.KeyFileError as error:
            wrong = error.message.replace("signing key", "writer key")
        raise UsageError(
            wrong,
            f"oml keys generate --out {path} makes one, which its owner alone can read;"
            " an operator issues its public key.",
        )

    def __repr__(self) -> str:
        """Return what may be shown: not the key."""
        return f"Writer({self._key.kid.hex()})"

    def sign(self, place: bodies.Place, parts: Sequence[submission.Signed]) -> bytes:
        """Return the envelope over a submission."""
        return submission.sign(self._key.kid, self._key.secret_key, place, parts)


class DataKey(NamedTuple):
    """What oml_data_key() gives out: a key for one version of one artifact."""

    tenant_id: UUID
    artifact_id: UUID
    version: int
    dek_id: UUID
    dek: bytes
    wrapped_dek: bytes
    kek_epoch: int

    def __repr__(self) -> str:
        """Return what may be shown: not the key."""
        return f"DataKey({self.dek_id} of {self.artifact_id}/{self.version})"


class Sealed(NamedTuple):
    """An encrypted submission: the arguments of oml_submit_sealed() that come of it."""

    arguments: dict[str, Any]

    def __repr__(self) -> str:
        """Return what may be shown: not the content, encrypted or not."""
        return "Sealed()"


class Sealing:
    """A submission that the client encrypts: a data key first, then what it encrypted.

    Tried again, it sends the same bytes, for the first ones may have arrived. Where they were
    refused because the version is taken (40001), nothing is stored, and it takes a new key for the
    version after it. It has one idempotency key throughout, which stands for the plaintext: so even
    if both arrived, one would count.
    """

    name = "oml_submit_sealed"
    repeatable = True
    writes = True

    def __init__(
        self,
        key: "Call[DataKey]",
        submit: "Callable[[Sealed], Call[Submission]]",
        body: Content,
        media_type: str,
        attachments: Sequence[Attachment],
        writer: Writer | None,
    ) -> None:
        self._key = key
        self._submit = submit
        self._body = body
        self._media_type = media_type
        self._attachments = attachments
        self._writer = writer
        self._sealed: Call[Submission] | None = None

    def steps(self) -> "Generator[Call[Any], Any, Submission]":
        """See oml.driver.calls.Task."""
        if self._sealed is None:
            key = yield self._key
            self._sealed = self._submit(self._seal(key))
        try:
            receipt: Submission = yield self._sealed
        except DatabaseError as error:
            if error.retryable:
                self._sealed = None
            raise
        return receipt

    def _seal(self, key: DataKey) -> Sealed:
        place = bodies.Place(key.tenant_id.bytes, key.artifact_id.bytes, key.version)
        first, *others = (
            bodies.seal(key.dek, place, part, content)
            for part, content in enumerate((self._body, *(a.content for a in self._attachments)))
        )
        sealed: dict[str, Any] = {
            "artifact": key.artifact_id,
            "version": key.version,
            "dek_id": key.dek_id,
            "wrapped_dek": key.wrapped_dek,
            "kek_epoch": key.kek_epoch,
            "ciphertext": first.ciphertext,
            "plaintext_digest": first.plaintext_digest,
            "ciphertext_digest": first.ciphertext_digest,
        }
        if others:
            sealed["attachments"] = [p.ciphertext for p in others]
            sealed["attachment_plaintext_digests"] = [p.plaintext_digest for p in others]
            sealed["attachment_ciphertext_digests"] = [p.ciphertext_digest for p in others]
        if self._writer is not None:
            signed = [
                submission.Signed(first.plaintext_digest, first.ciphertext_digest, self._media_type)
            ]
            signed += [
                submission.Signed(p.plaintext_digest, p.ciphertext_digest, a.media_type, a.name)
                for p, a in zip(others, self._attachments, strict=True)
            ]
            sealed["writer_envelope"] = self._writer.sign(place, signed)
        return Sealed(sealed)
