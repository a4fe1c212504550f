"""The Merkle tree of a transparency log (RFC 6962, 2.1; RFC 9162, 2.1), read through its tiles.

A leaf is the hash of an entry, and what goes by ``leaf`` here is always that: ``leaf_hash(entry)``.
A tile (c2sp.org/tlog-tiles) is up to 256 hashes side by side at one height: those of level 0 are
leaves, and each of level L + 1 is the hash of a full tile of level L. Only perfect subtrees are
ever stored, so nothing in a tile changes when the tree grows.

Whoever keeps tiles is not trusted: what is computed from them proves something only once it was
held against a root that somebody signed.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

TILE_WIDTH = 256
TILE_HEIGHT = 8
HASH_BYTES = 32
MAX_SIZE = 2**63 - 1

# Bound when the module loads: see cose.
_sha256 = hashlib.sha256

EMPTY_ROOT = _sha256(b"").digest()
"""Root of the tree without leaves."""


class ProofError(ValueError):
    """A proof does not show what it should, or tiles do not make up a tree."""


@dataclass(frozen=True, slots=True)
class Tile:
    """``hashes`` has 32 bytes for each of the ``width`` hashes from 1 to 256."""

    level: int
    index: int
    width: int
    hashes: bytes


class Tiles(Protocol):
    """Where tiles come from."""

    def tile(self, level: int, index: int, width: int) -> bytes:
        """Return the 32-byte hashes at height 8 * level, from position 256 * index, in a row.

        Asked for is the width that the tile has in the tree of the size in question.
        """
        ...


def leaf_hash(entry: bytes) -> bytes:
    """Return the leaf of an entry."""
    return _sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return _sha256(b"\1" + left + right).digest()


def root(tiles: Tiles, size: int) -> bytes:
    """Return the root of the tree's first ``size`` leaves. Raises ProofError for a bad tile."""
    _require_size(size)
    return _Tree(tiles, size).range_hash(0, size)


def inclusion_proof(tiles: Tiles, index: int, size: int) -> list[bytes]:
    """Return the proof that leaf ``index``, from 0, is in the tree of ``size``, sibling first.

    Raises ProofError for a bad tile, and for an index that is not in the tree.
    """
    _require_size(size)
    if not 0 <= index < size:
        raise ProofError(f"index {index} is not in a tree of {size}")
    tree = _Tree(tiles, size)
    begin, end = 0, size
    path = []
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            path.append(tree.range_hash(middle, end))
            end = middle
        else:
            path.append(tree.range_hash(begin, middle))
            begin = middle
    return path[::-1]


def consistency_proof(tiles: Tiles, old: int, new: int) -> list[bytes]:
    """Return the proof that the tree of size ``old`` is a prefix of that of size ``new``.

    It is empty from an empty tree and between equal sizes. Raises ProofError for a bad tile, and
    for sizes in the wrong order.
    """
    _require_size(new)
    if not 0 <= old <= new:
        raise ProofError(f"a tree of {old} is no prefix of one of {new}")
    if old in (0, new):
        return []
    tree = _Tree(tiles, new)
    begin, end = 0, new
    path = []
    while old != end:
        middle = begin + _split(end - begin)
        if old <= middle:
            path.append(tree.range_hash(middle, end))
            end = middle
        else:
            path.append(tree.range_hash(begin, middle))
            begin = middle
    if begin > 0:  # else it is the old root itself, which the verifier has
        path.append(tree.range_hash(begin, end))
    return path[::-1]


def verify_inclusion(
    index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes
) -> None:
    """Insist that ``leaf`` stands at ``index`` in the tree of this size and root.

    Raises ProofError. The algorithm of RFC 9162, 2.1.3.2.
    """
    _require_size(size)
    if not 0 <= index < size:
        raise ProofError(f"index {index} is not in a tree of {size}")
    _require_hashes((leaf, root, *proof))
    node, last = index, size - 1
    computed = leaf
    for sibling in proof:
        if last == 0:
            raise ProofError("the inclusion proof is too long")
        if node & 1 or node == last:
            computed = node_hash(sibling, computed)
            while not node & 1 and node != 0:
                node >>= 1
                last >>= 1
        else:
            computed = node_hash(computed, sibling)
        node >>= 1
        last >>= 1
    if last != 0:
        raise ProofError("the inclusion proof is too short")
    if computed != root:
        raise ProofError("the inclusion proof does not lead to the root")


def verify_consistency(
    old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Insist that the tree of the old size and root is a prefix of that of the new ones.

    Raises ProofError. The algorithm of RFC 9162, 2.1.4.2.
    """
    _require_size(new)
    if not 0 <= old <= new:
        raise ProofError(f"a tree of {old} is no prefix of one of {new}")
    _require_hashes((old_root, new_root, *proof))
    if old in (0, new):
        if proof:
            raise ProofError("the consistency proof is too long")
        if old_root != (new_root if old else EMPTY_ROOT) or (new == 0 and new_root != EMPTY_ROOT):
            raise ProofError("the roots are not those of such trees")
        return
    path = list(proof)
    if old & (old - 1) == 0:
        path.insert(0, old_root)
    if not path:
        raise ProofError("the consistency proof is too short")
    node, last = old - 1, new - 1
    while node & 1:
        node >>= 1
        last >>= 1
    first = second = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise ProofError("the consistency proof is too long")
        if node & 1 or node == last:
            first = node_hash(sibling, first)
            second = node_hash(sibling, second)
            while not node & 1 and node != 0:
                node >>= 1
                last >>= 1
        else:
            second = node_hash(second, sibling)
        node >>= 1
        last >>= 1
    if last != 0:
        raise ProofError("the consistency proof is too short")
    if first != old_root:
        raise ProofError("the consistency proof does not lead to the old root")
    if second != new_root:
        raise ProofError("the consistency proof does not lead to the new root")


def new_tiles(tiles: Tiles, old_size: int, leaves: Sequence[bytes]) -> Iterator[Tile]:
    """Yield each tile that the tree has once ``leaves`` are added, and had not at ``old_size``.

    A partial tile comes in its last width only. Lower levels come first, and in a level lower
    positions. Read are the partial tiles that the tree of ``old_size`` ends in.
    Raises ProofError for a bad tile or leaf.
    """
    _require_size(old_size + len(leaves))
    _require_hashes(leaves)
    have, added = old_size, leaves
    level = 0
    while added:
        index, width = divmod(have, TILE_WIDTH)
        start = _read(tiles, level, index, width) if width else b""
        full = []
        at = 0
        while at < len(added):
            part = added[at : at + TILE_WIDTH - width]
            tile = Tile(level, index, width + len(part), start + b"".join(part))
            yield tile
            if tile.width == TILE_WIDTH:
                full.append(_perfect_hash(tile.hashes))
            at += len(part)
            index, width, start = index + 1, 0, b""
        have, added = have // TILE_WIDTH, full
        level += 1


def tile_width(level: int, index: int, size: int) -> int:
    """Return how wide a tile is in the tree of ``size``: 0 where there is none, 256 at most."""
    return max(0, min(TILE_WIDTH, (size >> TILE_HEIGHT * level) - TILE_WIDTH * index))


def tile_path(level: int, index: int, width: int) -> str:
    """Return a tile's path under the log's URL."""
    return f"tile/{level}/{_numbered(index, width)}"


def entries_path(index: int, width: int) -> str:
    """Return the path of an entry bundle under the log's URL."""
    return f"tile/entries/{_numbered(index, width)}"


def _numbered(index: int, width: int) -> str:
    if index < 0 or not 0 < width <= TILE_WIDTH:
        raise ValueError(f"no tile has index {index} and width {width}")
    digits = str(index)
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    path = "/".join([f"x{group}" for group in groups[:-1]] + groups[-1:])
    return path if width == TILE_WIDTH else f"{path}.p/{width}"


class _Tree:
    """The tree of a size, with the tiles that were read of it."""

    def __init__(self, tiles: Tiles, size: int) -> None:
        self._tiles = tiles
        self._size = size
        self._read: dict[tuple[int, int], bytes] = {}

    def range_hash(self, begin: int, end: int) -> bytes:
        """Return the hash of leaves begin..end, where begin is a multiple of the split of both."""
        if begin == end:
            return EMPTY_ROOT
        parts = []
        while begin < end:
            # The largest perfect subtree that is left: at most what begin is a multiple of.
            height = (end - begin).bit_length() - 1
            parts.append(self._subtree(begin, height))
            begin += 1 << height
        computed = parts.pop()
        while parts:
            computed = node_hash(parts.pop(), computed)
        return computed

    def _subtree(self, begin: int, height: int) -> bytes:
        """Return the hash of the perfect subtree of 2**height leaves that starts at ``begin``."""
        level, rest = divmod(height, TILE_HEIGHT)
        index, at = divmod(begin >> TILE_HEIGHT * level, TILE_WIDTH)
        hashes = self._read.get((level, index))
        if hashes is None:
            width = tile_width(level, index, self._size)
            hashes = self._read[level, index] = _read(self._tiles, level, index, width)
        return _perfect_hash(hashes[at * HASH_BYTES : (at + (1 << rest)) * HASH_BYTES])


def _split(size: int) -> int:
    """Return the largest power of two below ``size``, which is above 1."""
    return 1 << (size - 1).bit_length() - 1


def _perfect_hash(hashes: bytes) -> bytes:
    """Return the hash above a power of two of hashes in a row."""
    while len(hashes) > HASH_BYTES:
        pairs = range(0, len(hashes), 2 * HASH_BYTES)
        hashes = b"".join([_sha256(b"\1" + hashes[at : at + 64]).digest() for at in pairs])
    return hashes


def _read(tiles: Tiles, level: int, index: int, width: int) -> bytes:
    hashes = tiles.tile(level, index, width)
    if len(hashes) != width * HASH_BYTES:
        raise ProofError(
            f"{tile_path(level, index, width)} has {len(hashes)} bytes, not {width * HASH_BYTES}"
        )
    return hashes


def _require_size(size: int) -> None:
    if not 0 <= size <= MAX_SIZE:
        raise ProofError(f"there is no tree of {size}")


def _require_hashes(hashes: Iterable[bytes]) -> None:
    if any(len(one) != HASH_BYTES for one in hashes):
        raise ProofError(f"a hash has {HASH_BYTES} bytes")
