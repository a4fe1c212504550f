"""The tree of core/merkle.py against RFC 6962, its published test vectors, and lies."""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oml.core import merkle
from oml.core.merkle import EMPTY_ROOT, ProofError, leaf_hash, node_hash

# Derandomized: the same examples in every run, and none kept between runs.
BOUNDED = settings(max_examples=150, deadline=None, derandomize=True, database=None)

ENTRIES = [
    bytes.fromhex(entry)
    for entry in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
INCLUSION = [
    (0, 1, []),
    (
        0, 8,
        [
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ],
    ),
    (
        5, 8,
        [
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ],
    ),
    (2, 3, ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
    (
        1, 5,
        [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ],
    ),
]  # fmt: skip
CONSISTENCY = [
    (1, 1, []),
    (
        1, 8,
        [
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ],
    ),
    (
        6, 8,
        [
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ],
    ),
    (
        2, 5,
        [
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ],
    ),
]  # fmt: skip

EDGES = [1, 2, 3, 255, 256, 257, 511, 512, 513, 65535, 65536, 65537]


@dataclass
class Kept:
    """Tiles as a publisher keeps them: each under its own width."""

    tiles: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    size: int = 0

    def tile(self, level: int, index: int, width: int) -> bytes:
        """Return a tile that was kept."""
        return self.tiles[level, index, width]

    def add(self, leaves: Sequence[bytes]) -> list[merkle.Tile]:
        """Grow by these leaves, and return the tiles that this made."""
        made = list(merkle.new_tiles(self, self.size, leaves))
        for tile in made:
            assert (tile.level, tile.index, tile.width) not in self.tiles
            self.tiles[tile.level, tile.index, tile.width] = tile.hashes
        self.size += len(leaves)
        return made


def leaves(count: int) -> list[bytes]:
    """Return the leaves of entries that are the numbers from 0."""
    return [leaf_hash(hashlib.sha256(n.to_bytes(8, "big")).digest()) for n in range(count)]


def kept(count: int, step: int = 1000) -> Kept:
    """Return the tiles of a tree that grew by so many at a time."""
    tree = Kept()
    every = leaves(count)
    for at in range(0, count, step):
        tree.add(every[at : at + step])
    return tree


MANY = leaves(65537 + 300)
GROWN = Kept()
for _edge in [*EDGES, len(MANY)]:
    GROWN.add(MANY[GROWN.size : _edge])


def mth(hashes: Sequence[bytes]) -> bytes:
    """RFC 6962, 2.1, word for word."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    k = split(len(hashes))
    return node_hash(mth(hashes[:k]), mth(hashes[k:]))


def split(size: int) -> int:
    """Return the largest power of two below a size."""
    k = 1
    while k * 2 < size:
        k *= 2
    return k


def path_of(index: int, hashes: Sequence[bytes]) -> list[bytes]:
    """PATH(m, D[n]) of RFC 6962, 2.1.1, word for word."""
    if len(hashes) == 1:
        return []
    k = split(len(hashes))
    if index < k:
        return [*path_of(index, hashes[:k]), mth(hashes[k:])]
    return [*path_of(index - k, hashes[k:]), mth(hashes[:k])]


def subproof(old: int, hashes: Sequence[bytes], known: bool) -> list[bytes]:
    """SUBPROOF(m, D[n], b) of RFC 6962, 2.1.2, word for word."""
    if old == len(hashes):
        return [] if known else [mth(hashes)]
    k = split(len(hashes))
    if old <= k:
        return [*subproof(old, hashes[:k], known), mth(hashes[k:])]
    return [*subproof(old - k, hashes[k:], False), mth(hashes[:k])]


@dataclass(frozen=True)
class AnyWidth:
    """Tiles computed from leaves, in whatever width is asked for."""

    leaves: Sequence[bytes]

    def tile(self, level: int, index: int, width: int) -> bytes:
        """Compute a tile."""
        span = 256**level
        starts = range(256 * index * span, (256 * index + width) * span, span)
        return b"".join(mth(self.leaves[at : at + span]) for at in starts)


def known_tree() -> AnyWidth:
    """Return the tree of the published vectors."""
    return AnyWidth([leaf_hash(entry) for entry in ENTRIES])


@pytest.mark.parametrize("size", range(1, 9))
def test_the_root_is_the_published_one(size: int) -> None:
    assert merkle.root(known_tree(), size).hex() == ROOTS[size - 1]


def test_the_root_of_nothing_is_the_hash_of_nothing() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert merkle.root(Kept(), 0).hex() == EMPTY_ROOT.hex() == empty


@pytest.mark.parametrize(("index", "size", "path"), INCLUSION)
def test_the_inclusion_proof_is_the_published_one(index: int, size: int, path: list[str]) -> None:
    assert [h.hex() for h in merkle.inclusion_proof(known_tree(), index, size)] == path
    merkle.verify_inclusion(
        index, size, leaf_hash(ENTRIES[index]), [bytes.fromhex(h) for h in path],
        bytes.fromhex(ROOTS[size - 1]),
    )  # fmt: skip


@pytest.mark.parametrize(("old", "new", "path"), CONSISTENCY)
def test_the_consistency_proof_is_the_published_one(old: int, new: int, path: list[str]) -> None:
    assert [h.hex() for h in merkle.consistency_proof(known_tree(), old, new)] == path
    merkle.verify_consistency(
        old, new, bytes.fromhex(ROOTS[old - 1]), bytes.fromhex(ROOTS[new - 1]),
        [bytes.fromhex(h) for h in path],
    )  # fmt: skip


def test_every_proof_of_small_trees_is_that_of_the_definition_and_verifies() -> None:
    tree = AnyWidth(leaves(40))
    roots = [mth(tree.leaves[:size]) for size in range(41)]
    for size in range(41):
        assert merkle.root(tree, size) == roots[size]
        for index in range(size):
            proof = merkle.inclusion_proof(tree, index, size)
            assert proof == path_of(index, tree.leaves[:size])
            merkle.verify_inclusion(index, size, tree.leaves[index], proof, roots[size])
        for old in range(size + 1):
            proof = merkle.consistency_proof(tree, old, size)
            assert old == 0 or proof == subproof(old, tree.leaves[:size], True)
            merkle.verify_consistency(old, size, roots[old], roots[size], proof)


@pytest.mark.parametrize("size", EDGES)
def test_the_root_from_tiles_is_that_of_the_definition(size: int) -> None:
    assert merkle.root(GROWN, size) == mth(MANY[:size])


@BOUNDED
@given(st.sampled_from(EDGES), st.data())
def test_an_inclusion_proof_from_tiles_verifies(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    proof = merkle.inclusion_proof(GROWN, index, size)
    merkle.verify_inclusion(index, size, MANY[index], proof, merkle.root(GROWN, size))


@BOUNDED
@given(st.integers(0, len(MANY)), st.sampled_from(EDGES))
def test_a_consistency_proof_from_tiles_verifies(old: int, new: int) -> None:
    old = min(old, new)
    proof = merkle.consistency_proof(GROWN, old, new)
    merkle.verify_consistency(old, new, mth(MANY[:old]), merkle.root(GROWN, new), proof)


@BOUNDED
@given(st.integers(1, 600), st.data())
def test_a_proof_with_one_bit_flipped_fails(size: int, data: st.DataObject) -> None:
    tree = AnyWidth(MANY)
    index = data.draw(st.integers(0, size - 1))
    root = mth(MANY[:size])
    proof = merkle.inclusion_proof(tree, index, size)
    parts = [MANY[index], root, *proof]
    at = data.draw(st.integers(0, len(parts) * 256 - 1))
    parts[at // 256] = flipped(parts[at // 256], at % 256)
    with pytest.raises(ProofError):
        merkle.verify_inclusion(index, size, parts[0], parts[2:], parts[1])
    old = index + 1
    proof = merkle.consistency_proof(tree, old, size)
    parts = [mth(MANY[:old]), root, *proof]
    at = data.draw(st.integers(0, len(parts) * 256 - 1))
    parts[at // 256] = flipped(parts[at // 256], at % 256)
    with pytest.raises(ProofError):
        merkle.verify_consistency(old, size, parts[0], parts[1], parts[2:])


def flipped(content: bytes, bit: int) -> bytes:
    """Return the content with one bit flipped."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_proof_holds_for_its_own_index_alone() -> None:
    tree = AnyWidth(leaves(20))
    for size, index in itertools.product(range(1, 21), range(20)):
        if index >= size:
            continue
        root, leaf = mth(tree.leaves[:size]), tree.leaves[index]
        proof = merkle.inclusion_proof(tree, index, size)
        for other in (*range(-1, 22), 2**63):
            if other != index:
                with pytest.raises(ProofError):
                    merkle.verify_inclusion(other, size, leaf, proof, root)


def test_a_proof_of_another_size_fails_under_that_sizes_root() -> None:
    tree = AnyWidth(leaves(20))
    for size, other in itertools.permutations(range(1, 21), 2):
        for index in range(min(size, other)):
            proof = merkle.inclusion_proof(tree, index, size)
            with pytest.raises(ProofError):
                merkle.verify_inclusion(
                    index, other, tree.leaves[index], proof, mth(tree.leaves[:other])
                )


def test_a_consistency_proof_of_other_sizes_fails() -> None:
    tree = AnyWidth(leaves(14))
    roots = [mth(tree.leaves[:size]) for size in range(15)]
    for old, new in itertools.combinations_with_replacement(range(15), 2):
        proof = merkle.consistency_proof(tree, old, new)
        for wrong, size in itertools.product(range(15), range(15)):
            if (wrong, size) != (old, new) and merkle_proof(tree, wrong, size) != proof:
                with pytest.raises(ProofError):
                    merkle.verify_consistency(wrong, size, roots[wrong], roots[size], proof)


def merkle_proof(tree: AnyWidth, old: int, new: int) -> list[bytes] | None:
    """Return the right consistency proof, None for sizes in the wrong order."""
    return merkle.consistency_proof(tree, old, new) if old <= new else None


def test_a_proof_with_a_hash_more_or_less_fails() -> None:
    tree = AnyWidth(leaves(20))
    for size, index in itertools.product(range(1, 21), range(20)):
        if index >= size:
            continue
        root, old = mth(tree.leaves[:size]), index + 1
        path = merkle.inclusion_proof(tree, index, size)
        for wrong in changed_lengths(path):
            with pytest.raises(ProofError):
                merkle.verify_inclusion(index, size, tree.leaves[index], wrong, root)
        path = merkle.consistency_proof(tree, old, size)
        for wrong in changed_lengths(path):
            with pytest.raises(ProofError):
                merkle.verify_consistency(old, size, mth(tree.leaves[:old]), root, wrong)


def changed_lengths(path: list[bytes]) -> list[list[bytes]]:
    """Return the path with one hash more or less at each end, and with one cut."""
    longer = [[*path, bytes(32)], [bytes(32), *path]]
    return longer + ([path[1:], path[:-1], [path[0][:31], *path[1:]]] if path else [])


def test_a_leaf_cannot_be_passed_off_as_a_node() -> None:
    left, right = leaves(2)
    assert leaf_hash(left + right) != node_hash(left, right)


def test_growing_makes_each_tile_once_and_the_last_ones_partial() -> None:
    tree = Kept()
    made = tree.add(MANY[:70])
    assert [(t.level, t.index, t.width) for t in made] == [(0, 0, 70)]
    made = tree.add(MANY[70:600])
    assert [(t.level, t.index, t.width) for t in made] == [
        (0, 0, 256), (0, 1, 256), (0, 2, 88), (1, 0, 2),
    ]  # fmt: skip
    assert tree.add([]) == []
    made = tree.add(MANY[600:65536])
    assert [(t.level, t.index, t.width) for t in made if t.level] == [(1, 0, 256), (2, 0, 1)]
    assert [(t.index, t.width) for t in made if not t.level] == [(n, 256) for n in range(2, 256)]
    assert all(len(t.hashes) == 32 * t.width for t in made)


@pytest.mark.parametrize("step", [1, 7, 255, 256, 257, 1000])
def test_a_tree_has_the_same_tiles_however_it_grew(step: int) -> None:
    size = 1100
    tree, at_once = kept(size, step), kept(size, size)
    for level, index, width in at_once.tiles:
        assert tree.tiles[level, index, width] == at_once.tiles[level, index, width]
    assert merkle.root(tree, size) == mth(leaves(size))
    for level, index, width in tree.tiles:
        assert tree.tiles[level, index, width] == AnyWidth(MANY).tile(level, index, width)


def test_the_widths_of_tiles_are_those_of_the_specifications_example() -> None:
    widths = [
        [merkle.tile_width(level, index, 70000) for index in range(275)] for level in range(4)
    ]
    assert widths[0] == [256] * 273 + [112, 0]
    assert widths[1][:3] == [256, 17, 0]
    assert widths[2][:2] == [1, 0]
    assert widths[3][0] == 0


def test_a_proof_reads_the_tiles_it_touches_and_no_other() -> None:
    asked: list[tuple[int, int, int]] = []

    class Watched:
        def tile(self, level: int, index: int, width: int) -> bytes:
            asked.append((level, index, width))
            return GROWN.tile(level, index, width)

    merkle.inclusion_proof(Watched(), 1000, 65537)
    assert sorted(asked) == [(0, 3, 256), (0, 256, 1), (1, 0, 256)]


@pytest.mark.parametrize(
    ("index", "width", "path"),
    [
        (0, 256, "000"), (5, 112, "005.p/112"), (999, 256, "999"), (1000, 256, "x001/000"),
        (1234067, 1, "x001/x234/067.p/1"), (10**9, 256, "x001/x000/x000/000"),
    ],
)  # fmt: skip
def test_a_path_is_written_in_groups_of_three(index: int, width: int, path: str) -> None:
    assert merkle.tile_path(3, index, width) == f"tile/3/{path}"
    assert merkle.entries_path(index, width) == f"tile/entries/{path}"


@pytest.mark.parametrize(("index", "width"), [(-1, 256), (0, 0), (0, 257)])
def test_there_is_no_path_of_a_tile_that_cannot_be(index: int, width: int) -> None:
    with pytest.raises(ValueError):
        merkle.tile_path(0, index, width)


def test_a_tile_of_another_length_is_refused() -> None:
    class Short:
        def tile(self, level: int, index: int, width: int) -> bytes:
            return bytes(32 * width - 1)

    for call in (
        lambda: merkle.root(Short(), 300),
        lambda: merkle.inclusion_proof(Short(), 0, 300),
        lambda: merkle.consistency_proof(Short(), 7, 300),
        lambda: list(merkle.new_tiles(Short(), 300, leaves(1))),
    ):
        with pytest.raises(ProofError):
            call()


def test_sizes_that_cannot_be_are_refused() -> None:
    for index, size in ((0, 0), (5, 5), (-1, 5), (0, -1), (0, 2**63)):
        with pytest.raises(ProofError):
            merkle.inclusion_proof(Kept(), index, size)
        with pytest.raises(ProofError):
            merkle.verify_inclusion(index, size, bytes(32), [], bytes(32))
    for old, new in ((-1, 5), (6, 5), (0, 2**63)):
        with pytest.raises(ProofError):
            merkle.consistency_proof(Kept(), old, new)
        with pytest.raises(ProofError):
            merkle.verify_consistency(old, new, EMPTY_ROOT, EMPTY_ROOT, [])


def test_the_empty_tree_is_a_prefix_of_every_tree_under_its_own_root_alone() -> None:
    merkle.verify_consistency(0, 5, EMPTY_ROOT, bytes(32), [])
    for old_root, proof in ((bytes(32), []), (EMPTY_ROOT, [bytes(32)])):
        with pytest.raises(ProofError):
            merkle.verify_consistency(0, 5, old_root, bytes(32), proof)
    with pytest.raises(ProofError):
        merkle.verify_consistency(0, 0, bytes(32), bytes(32), [])
    merkle.verify_consistency(0, 0, EMPTY_ROOT, EMPTY_ROOT, [])
    with pytest.raises(ProofError):
        merkle.verify_consistency(0, 0, EMPTY_ROOT, bytes(32), [])
