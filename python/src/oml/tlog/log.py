"""One chain's log as it lies in the store (c2sp.org/tlog-tiles).

``TENANT/GENERATION/`` holds ``checkpoint``, ``tile/L/N`` and ``tile/entries/N``. An entry is the
SHA-256 of an event's envelope; entry i is that of the event with chain seq i + 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from oml.core import merkle, note
from oml.store import Store

ENTRY_BYTES = 32
_PREFIX = ENTRY_BYTES.to_bytes(2, "big")
_RECORD_BYTES = len(_PREFIX) + ENTRY_BYTES


class LogError(Exception):
    """What lies in the store does not hold together; the message says what."""


@dataclass(frozen=True)
class Published:
    """A checkpoint as it lies in the store, its signature and origin verified."""

    data: bytes
    size: int
    root: bytes


@dataclass(frozen=True)
class Log:
    """The log of one chain in one generation. A reader of its own tiles: see merkle.Tiles."""

    store: Store
    deployment_id: UUID
    tenant_id: UUID
    generation: int

    @property
    def origin(self) -> str:
        """The log's origin, which is also its key's name."""
        return note.origin(self.deployment_id, self.tenant_id, self.generation)

    def path(self, name: str) -> str:
        """Return the store's path of an object of this log."""
        return f"{self.tenant_id}/{self.generation}/{name}"

    @property
    def checkpoint_path(self) -> str:
        """The path of the checkpoint, the one object that changes."""
        return self.path("checkpoint")

    def verified(self, data: bytes, keys: Iterable[bytes]) -> Published:
        """Read a checkpoint that must be this log's and signed by one of these public keys.

        Raises LogError.
        """
        try:
            checkpoint, signed = note.parse_checkpoint(data)
            if checkpoint.origin != self.origin:
                raise LogError(f"its checkpoint is that of {checkpoint.origin}")
            if checkpoint.size == 0:
                raise LogError("its checkpoint is that of an empty log")
            if not any(note.is_signed(signed, note.log_verifier(self.origin, k)) for k in keys):
                raise LogError("its checkpoint is signed by none of the deployment's keys")
        except note.NoteError as error:
            raise LogError(f"its checkpoint: {error}") from None
        return Published(data, checkpoint.size, checkpoint.root)

    def published(self, keys: Iterable[bytes]) -> Published | None:
        """Read the newest checkpoint, as ``verified`` does; None when there is none."""
        data = self.store.get(self.checkpoint_path)
        return None if data is None else self.verified(data, keys)

    def tile(self, level: int, index: int, width: int) -> bytes:
        """See merkle.Tiles. A partial tile may have been removed once it was full."""
        return self._object(
            merkle.tile_path(level, index, width),
            merkle.tile_path(level, index, merkle.TILE_WIDTH),
            width * merkle.HASH_BYTES,
        )

    def entries(self, index: int, width: int) -> list[bytes]:
        """Read the first ``width`` entries of a bundle, each of 32 bytes. Raises LogError."""
        data = self._object(
            merkle.entries_path(index, width),
            merkle.entries_path(index, merkle.TILE_WIDTH),
            width * _RECORD_BYTES,
        )
        records = [data[at : at + _RECORD_BYTES] for at in range(0, len(data), _RECORD_BYTES)]
        if any(record[: len(_PREFIX)] != _PREFIX for record in records):
            raise LogError(f"{merkle.entries_path(index, width)} does not hold entries of 32 bytes")
        return [record[len(_PREFIX) :] for record in records]

    def _object(self, path: str, full: str, length: int) -> bytes:
        data = self.store.get(self.path(path))
        if data is None and full != path:
            data = self.store.get(self.path(full))
            data = None if data is None else data[:length]
        if data is None:
            raise LogError(f"{path} is missing")
        if len(data) != length:
            raise LogError(f"{path} has {len(data)} bytes, not {length}")
        return data

    def leaf(self, index: int, published: Published) -> bytes:
        """Return a leaf, proved to be in the published tree. Raises LogError."""
        tile, at = divmod(index, merkle.TILE_WIDTH)
        hashes = self.tile(0, tile, merkle.tile_width(0, tile, published.size))
        found = hashes[at * merkle.HASH_BYTES : (at + 1) * merkle.HASH_BYTES]
        try:
            proof = merkle.inclusion_proof(self, index, published.size)
            merkle.verify_inclusion(index, published.size, found, proof, published.root)
        except merkle.ProofError as error:
            raise LogError(f"leaf {index}: {error}") from None
        return found

    def require_root(self, published: Published) -> None:
        """Insist that the tiles at the tree's right edge make up its root. Raises LogError."""
        try:
            root = merkle.root(self, published.size)
        except merkle.ProofError as error:
            raise LogError(str(error)) from None
        if root != published.root:
            raise LogError(f"its tiles do not make up the root of its checkpoint, {published.size}")


def bundle(entries: Sequence[bytes]) -> bytes:
    """Return the bytes of an entry bundle."""
    return b"".join([_PREFIX + entry for entry in entries])
