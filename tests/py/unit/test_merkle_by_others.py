"""The tree, its proofs and its notes against pymerkle and sigstore, which others wrote."""

import base64
import hashlib
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pymerkle import InmemoryTree
from pymerkle.core import _inclusion_path_layout
from pymerkle.proof import InclusionProof, InvalidProof
from sigstore._internal.merkle import verify_merkle_inclusion
from sigstore._internal.rekor.checkpoint import LogCheckpoint, SignedNote
from sigstore.errors import VerificationError

from oml.core import keys, merkle, note
from tlogs import Grown

SIZES = [1, 2, 3, 5, 8, 100, 255, 256, 257, 300]
ENTRIES = [hashlib.sha256(bytes((n % 256, n // 256))).digest() for n in range(max(SIZES))]
LEAVES = [merkle.leaf_hash(entry) for entry in ENTRIES]
OURS = Grown()
for _size in SIZES:
    OURS.add(LEAVES[OURS.size : _size])
THEIRS = InmemoryTree(algorithm="sha256")
for _entry in ENTRIES:
    THEIRS.append_entry(_entry)


def their_root(size: int) -> bytes:
    """Return pymerkle's root."""
    root: bytes = THEIRS.get_root(size)
    return root


def indices(size: int) -> set[int]:
    """Return places of a tree of this size that are worth a look."""
    return {0, size // 3, size // 2, size - 1, *range(max(0, size - 3), size)}


def test_the_roots_are_pymerkles() -> None:
    for size in SIZES:
        assert merkle.root(OURS, size) == their_root(size)


def test_an_inclusion_proof_of_either_satisfies_the_other() -> None:
    for size in SIZES:
        for index in indices(size):
            root, ours = their_root(size), merkle.inclusion_proof(OURS, index, size)
            theirs = THEIRS.prove_inclusion(index + 1, size)
            assert theirs.path[0] == LEAVES[index]
            merkle.verify_inclusion(index, size, LEAVES[index], theirs.path[1:], root)
            rule, _ = _inclusion_path_layout(index + 1, size)
            InclusionProof("sha256", True, size, index + 1, rule, [LEAVES[index], *ours]).verify(
                LEAVES[index], root, index=index + 1, size=size
            )


def test_pymerkle_and_we_agree_which_tree_goes_on_from_which() -> None:
    """Its consistency proofs have another form, so each proves to itself, of the same roots."""
    for new in SIZES:
        for old in {*SIZES, new // 3 or 1, new - 1 or 1} & set(range(1, new)):
            before, after = their_root(old), their_root(new)
            THEIRS.prove_consistency(old, new).verify(before, after, prior_size=old, later_size=new)
            proof = merkle.consistency_proof(OURS, old, new)
            merkle.verify_consistency(old, new, before, after, proof)
            other = their_root(old + 1 if old + 1 < new else old - 1) if new > 2 else bytes(32)
            with pytest.raises(merkle.ProofError):
                merkle.verify_consistency(old, new, other, after, proof)


def entry(index: int, size: int, path: list[bytes], root: bytes) -> Any:
    """Return what sigstore calls an entry of a log."""
    proof = SimpleNamespace(log_index=index, tree_size=size, hashes=path, root_hash=root)
    return SimpleNamespace(
        _inner=SimpleNamespace(inclusion_proof=proof, canonicalized_body=ENTRIES[index])
    )


def test_an_inclusion_proof_satisfies_sigstore_and_a_wrong_one_does_not() -> None:
    for size in SIZES:
        root = merkle.root(OURS, size)
        for index in indices(size):
            path = merkle.inclusion_proof(OURS, index, size)
            verify_merkle_inclusion(entry(index, size, path, root))
            for wrong in (
                entry(index, size, path, bytes(32)),
                entry(index, size, [*path, root], root),
            ):
                with pytest.raises(VerificationError):
                    verify_merkle_inclusion(wrong)


class Keyring:
    """The one key that sigstore's note is verified with."""

    def __init__(self, public_key: bytes) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(public_key)

    def verify(self, *, key_id: bytes, signature: bytes, data: bytes) -> None:
        """Raise unless this is the signature."""
        self._key.verify(signature, data)


def test_a_checkpoint_is_read_and_verified_by_sigstore_as_by_us() -> None:
    key = keys.from_seed(bytes(range(32)))
    origin = "oml/01890a5d-ac96-774b-bcce-b302099a8057/01890a5d-ac96-774b-bcce-b302099a8058/1"
    text = note.checkpoint_text(origin, 300, merkle.root(OURS, 300))
    verifier = note.log_verifier(origin, key.public_key)
    line = note.log_signature(verifier, note.signed(text, key.secret_key))
    ours = note.Note(text, (line, note.cosign(text, "w.example", key.secret_key, 7)))
    theirs = SignedNote.from_text(ours.encode().decode())
    assert theirs.note == text
    assert [(s.name, s.sig_hash, base64.b64decode(s.signature)) for s in theirs.signatures] == list(
        ours.signatures
    )
    read = LogCheckpoint.from_text(theirs.note)
    assert (read.origin, read.log_size) == (origin, 300)
    assert bytes.fromhex(read.log_hash) == merkle.root(OURS, 300)
    keyring: Any = Keyring(key.public_key)
    theirs.verify(keyring, verifier.key_id)  # type: ignore[arg-type]
    with pytest.raises(VerificationError):
        theirs.verify(keyring, bytes(4))  # type: ignore[arg-type]


def test_pymerkle_refuses_what_we_refuse() -> None:
    path = merkle.inclusion_proof(OURS, 5, 8)
    rule, _ = _inclusion_path_layout(6, 8)
    for wrong in ([*path[:-1], bytes(32)], path[:-1], [*path, bytes(32)]):
        with pytest.raises(merkle.ProofError):
            merkle.verify_inclusion(5, 8, LEAVES[5], wrong, their_root(8))
        with pytest.raises(InvalidProof):
            InclusionProof("sha256", True, 8, 6, rule, [LEAVES[5], *wrong]).verify(
                LEAVES[5], their_root(8)
            )
