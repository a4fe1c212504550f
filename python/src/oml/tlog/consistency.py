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
_KEEP = "keep both: they show that it was rewritten."
_IF = f"Where its tiles are whole and the log's key signed both checkpoints, {_KEEP}"
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
        raise UsageError("the proof is no consistency proof", "oml tlog consistency makes one.")
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
    UsageError for what is no checkpoint and for two that cannot be compared, and OmlError for tiles
    that are missing.
    """
    growth = _growth(read(old, "the old one")[0], read(new, "the new one")[0])
    try:
        log = Log(store, *note.parse_origin(growth.new.origin))
        if growth.new.size and merkle.root(log, growth.new.size) != growth.new.root:
            raise _refused(
                f"the tiles at {store.url} do not lead to the new one", f"Check the tlog URL. {_IF}"
            )
        path = merkle.consistency_proof(log, growth.old.size, growth.new.size)
        _verify(growth, path)
    except merkle.ProofError as error:
        raise _refused(str(error), _IF) from None
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

    Raises OmlError with exit status 1, UsageError for what is malformed and for checkpoints that
    cannot be compared.
    """
    old_size, path, offered = parse(proof)
    before, after = read(old, "the old one"), read(new, "the new one")
    growth = _growth(before[0], after[0])
    for which, (checkpoint, signed) in (("old", before), ("new", after)):
        try:
            if not any(
                note.is_signed(signed, note.log_verifier(checkpoint.origin, key)) for key in pinned
            ):
                raise OmlError(
                    f"this proves nothing: the {which} checkpoint is signed by none of the keys"
                    " given",
                    "Repeat --key for each key that the log had: after a rotation of the signing"
                    " key the old one and the new one.",
                    EXIT_FINDINGS,
                )
        except note.NoteError as error:
            raise OmlError(
                f"this proves nothing: the {which} checkpoint: {error}",
                "It was changed after it was signed: get it again from where it came.",
                EXIT_FINDINGS,
            ) from None
    if growth.old.size == growth.new.size and growth.old.root != growth.new.root:
        raise _refused(
            f"they have two roots for the same {growth.old.size} entries",
            f"Both are signed by keys that you gave, so {_KEEP}",
        )
    made_by = "oml tlog consistency makes one of the published tiles."
    if old_size != growth.old.size or read(offered, "the proof's")[0] != growth.new:
        raise _refused("the proof is of other checkpoints", f"Ask for that of these: {made_by}")
    try:
        _verify(growth, path)
    except merkle.ProofError as error:
        raise _refused(
            str(error),
            f"The proof may be at fault, and nobody signs it. Ask for another: {made_by} Where"
            f" none can be made, {_KEEP}",
        ) from None
    return growth


def _growth(old: note.Checkpoint, new: note.Checkpoint) -> Growth:
    if old.origin != new.origin:
        raise UsageError(
            f"the checkpoints are of two logs, {old.origin} and {new.origin}",
            "Give two of one log. One that ends in another number is of another generation, which"
            " begins where a loss was accepted, and goes on from nothing.",
        )
    if old.size > new.size:
        raise UsageError(
            f"the old checkpoint has {old.size} entries, more than the {new.size} of the new one",
            "The arguments are swapped: the one with fewer entries comes first. If it is indeed the"
            " one that was published later, the log was set back: keep both.",
        )
    return Growth(old, new)


def _verify(growth: Growth, path: list[bytes]) -> None:
    old, new = growth
    merkle.verify_consistency(old.size, new.size, old.root, new.root, path)


def _refused(reason: str, hint: str) -> OmlError:
    return OmlError(
        f"the new checkpoint is not shown to go on from the old one: {reason}", hint, EXIT_FINDINGS
    )
