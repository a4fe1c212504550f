"""That a later checkpoint goes on from an earlier one: proofs as witnesses are given them.

The text is the body of add-checkpoint (c2sp.org/tlog-witness): the old size, the consistency proof,
an empty line, and the new checkpoint.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from oml.core import merkle, note
from oml.errors import EXIT_FINDINGS, OmlError, UsageError
from oml.store import Store
from oml.tlog.log import Log, LogError

_MAX_PATH = 63
_OLD = re.compile("old (0|[1-9][0-9]{0,18})")


class Growth(NamedTuple):
    """Two checkpoints of one log, the earlier first."""

    old: note.Checkpoint
    new: note.Checkpoint


def encode(old_size: int, path: Iterable[bytes], checkpoint: bytes) -> bytes:
    """Return the text that offers a checkpoint to whoever has seen the log at ``old_size``."""
    lines = [f"old {old_size}", *map(note.encode_base64, path), "", ""]
    return "\n".join(lines).encode() + checkpoint


def parse(data: bytes) -> tuple[int, list[bytes], bytes]:
    """Return the old size, the consistency proof and the checkpoint. Raises UsageError."""
    head, blank, checkpoint = data.partition(b"\n\n")
    lines = head.decode("ascii", "replace").split("\n")
    old = _OLD.fullmatch(lines[0])
    if not blank or old is None or len(lines) - 1 > _MAX_PATH:
        raise UsageError("that is no consistency proof", "oml tlog consistency makes one.")
    try:
        path = [note.decode_base64(line) for line in lines[1:]]
    except note.NoteError as error:
        raise UsageError(f"the consistency proof is malformed: {error}") from None
    return int(old[1]), path, checkpoint


def read(data: bytes, what: str) -> tuple[note.Checkpoint, note.Note]:
    """Read a checkpoint. Raises UsageError that says which, in the caller's words."""
    try:
        return note.parse_checkpoint(data)
    except note.NoteError as error:
        raise UsageError(f"{what} is not a checkpoint: {error}") from None


def prove(old: bytes, new: bytes, store: Store) -> bytes:
    """Return the proof that checkpoint ``new`` goes on from ``old``, from tiles and verified.

    ``store`` is where the logs are published. Raises OmlError with exit status 1 when it does not,
    UsageError for what is no checkpoint, and OmlError for tiles that are missing.
    """
    growth = _growth(read(old, "the old one")[0], read(new, "the new one")[0])
    try:
        log = Log(store, *note.parse_origin(growth.new.origin))
        path = merkle.consistency_proof(log, growth.old.size, growth.new.size)
        _verify(growth, path)
    except merkle.ProofError as error:
        raise _refused(str(error)) from None
    except note.NoteError as error:
        raise UsageError(str(error)) from None
    except LogError as error:
        raise OmlError(
            f"the log at {store.url} is not whole: {error}",
            "Check the tlog URL. Tiles of a published log are never removed.",
        ) from None
    return encode(growth.old.size, path, new)


def verify(old: bytes, new: bytes, proof: bytes, pinned: Iterable[bytes]) -> Growth:
    """Insist that ``new`` goes on from ``old``, both signed by one of the 32-byte public keys.

    Raises OmlError with exit status 1, UsageError for what is malformed.
    """
    old_size, path, offered = parse(proof)
    before, after = read(old, "the old one"), read(new, "the new one")
    growth = _growth(before[0], after[0])
    for which, (checkpoint, signed) in (("old", before), ("new", after)):
        try:
            if not any(
                note.is_signed(signed, note.log_verifier(checkpoint.origin, key)) for key in pinned
            ):
                raise _refused(f"the {which} checkpoint is signed by none of the keys")
        except note.NoteError as error:
            raise _refused(f"the {which} checkpoint: {error}") from None
    if old_size != growth.old.size or read(offered, "the proof's")[0] != growth.new:
        raise _refused("it is the proof of other checkpoints")
    try:
        _verify(growth, path)
    except merkle.ProofError as error:
        raise _refused(str(error)) from None
    return growth


def _growth(old: note.Checkpoint, new: note.Checkpoint) -> Growth:
    if old.origin != new.origin:
        raise _refused(f"they are of two logs, {old.origin} and {new.origin}")
    if old.size > new.size:
        raise _refused(f"the old one has {old.size} entries, more than the {new.size} of the new")
    return Growth(old, new)


def _verify(growth: Growth, path: list[bytes]) -> None:
    old, new = growth
    merkle.verify_consistency(old.size, new.size, old.root, new.root, path)


def _refused(reason: str) -> OmlError:
    return OmlError(
        f"the new checkpoint is not shown to go on from the old one: {reason}",
        "If both are signed by the log's key, keep them: they show that it was rewritten.",
        EXIT_FINDINGS,
    )
