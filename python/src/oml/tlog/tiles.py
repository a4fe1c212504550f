"""The tiles of a published log, read from where they lie."""

from typing import Protocol

from oml.core import merkle, note
from oml.errors import OmlError


class Objects(Protocol):
    """What has objects under paths: a store."""

    def get(self, path: str) -> bytes | None:
        """Return an object's content, None when there is none."""
        ...


def place(origin: str) -> str:
    """Return where the log of an origin lies under the tlog URL. Raises note.NoteError."""
    _, tenant_id, generation = note.parse_origin(origin)
    return f"{tenant_id}/{generation}"


class StoredTiles:
    """A log's tiles in a store, for merkle's proofs. See merkle.Tiles."""

    def __init__(self, store: Objects, origin: str) -> None:
        self._store = store
        self._place = place(origin)

    def tile(self, level: int, index: int, width: int) -> bytes:
        """See merkle.Tiles. A partial tile may be gone once it is full: then it begins that one.

        Raises OmlError for a tile that is not there, or not whole.
        """
        path = merkle.tile_path(level, index, width)
        hashes = self._store.get(f"{self._place}/{path}")
        if hashes is None and width < merkle.TILE_WIDTH:
            path = merkle.tile_path(level, index, merkle.TILE_WIDTH)
            hashes = self._store.get(f"{self._place}/{path}")
        if hashes is None or len(hashes) < width * merkle.HASH_BYTES:
            raise OmlError(
                f"{self._place}/{path} is missing or cut short",
                "Check the tlog URL. Tiles of a published log are never removed.",
            )
        return hashes[: width * merkle.HASH_BYTES]
