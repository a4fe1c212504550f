"""What the command line does with proof files and checkpoint files."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from oml.core import keys, note, proof
from oml.errors import EXIT_FINDINGS, OmlError, UsageError
from oml.tlog.policy import Policy, printable

_HINT = "Whoever gave it to you must give another: oml prove makes one from the newest checkpoint."
_UNKNOWN_KEY_HINT = (
    "That says nothing against the file, nor for it. The root key verifies every proof of the"
    " deployment; without it repeat --key: after a rotation of the signing key for the old one and"
    " the new one."
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(path: Path, most_bytes: int) -> bytes:
    """Return a file's content. Raises UsageError."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > most_bytes:
        raise UsageError(f"{path} is too large to be what it should be")
    return data


def write(path: Path, data: bytes) -> None:
    """Put a file there, whole or not at all; into a pipe or device, as it is.

    Raises UsageError that names ``path``, BrokenPipeError where nobody reads the pipe.
    """
    try:
        _write(Path(os.path.realpath(path)), data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            "Name a file in a directory that exists and that you may write to.",
        ) from None


def _write(path: Path, data: bytes) -> None:
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(partial)
        raise


@dataclass(frozen=True)
class Verified:
    """What a proof file proved. ``witnesses`` are {name: when it cosigned}, of the policy's."""

    proved: proof.Proved
    witnesses: dict[str, datetime]

    def as_dict(self) -> dict[str, Any]:
        """Return it for printing."""
        fields = self.proved.event.fields
        checkpoint = self.proved.checkpoint
        return {
            "proved": True,
            "deployment_id": str(self.proved.deployment_id),
            "tenant_id": str(self.proved.tenant_id),
            "seq": fields["seq"],
            "type": fields["type"],
            "event_id": str(UUID(bytes=fields["event_id"])),
            "occurred_at": _time(fields["occurred_at"]),
            "hash": self.proved.event.hash.hex(),
            "tree_size": checkpoint.size,
            "root": checkpoint.root.hex(),
            "generation": self.proved.generation,
            "key": keys.kid(self.proved.key).hex(),
            "witnesses": {printable(name): when for name, when in self.witnesses.items()},
        }


def _time(microseconds: int) -> str:
    """Return a time as text, or its number where it is beyond all calendars."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        return f"{microseconds} us"


def _moment(seconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise OmlError(
            f"a witness says it cosigned at {seconds} s, which is no time", _HINT, EXIT_FINDINGS
        ) from None


def verify(path: Path, pinned: Sequence[bytes], policy: Policy | None) -> Verified:
    """Verify a proof file under 32-byte public keys, and under a policy if there is one.

    Raises UsageError for what is no proof file, OmlError with exit status 1 for one that proves
    nothing.
    """
    try:
        proved = proof.verify(proof.parse(read(path, proof.MAX_PROOF_BYTES)), pinned)
    except proof.MalformedError as error:
        raise UsageError(f"{path} is not a proof file: {error}", _HINT) from None
    except proof.UnknownKeyError as error:
        raise OmlError(
            f"{path} proves nothing under the keys given: {error}", _UNKNOWN_KEY_HINT, EXIT_FINDINGS
        ) from None
    except proof.ProvesNothingError as error:
        raise OmlError(f"{path} proves nothing: {error}", _HINT, EXIT_FINDINGS) from None
    times = {} if policy is None else policy.require(proved.checkpoint, proved.note)
    return Verified(proved, {name: _moment(seconds) for name, seconds in times.items()})


def attach(file: Path, collected: Sequence[Path], policy: Policy) -> tuple[bytes, list[str]]:
    """Return what a checkpoint or proof file is with cosignatures added, and who made them.

    Each of ``collected`` holds signature lines, or a cosigned checkpoint. All must be of witnesses
    of the policy and verify. Raises UsageError that names the file, OmlError with exit status 1.
    """
    data = read(file, proof.MAX_PROOF_BYTES)
    try:
        whole = proof.parse(data) if data.startswith(b"c2sp.org/tlog-proof") else None
        _, signed = note.parse_checkpoint(data if whole is None else whole.checkpoint)
    except (proof.MalformedError, note.NoteError) as error:
        raise UsageError(f"{file} is neither a checkpoint nor a proof file: {error}") from None
    added: list[note.Signature] = []
    for each in collected:
        added += _cosignatures(each, signed)
    known = {(w.verifier.name, w.verifier.key_id): w for w in policy.witnesses}
    names = []
    try:
        for signature in added:
            witness = known.get((signature.name, signature.key_id))
            if witness is None:
                raise _refused(f"{signature.name} is no witness of the policy")
            note.cosigned_at(note.Note(signed.text, (signature,)), witness.verifier)
            names.append(printable(witness.name))
        cosigned = note.with_signatures(signed, added).encode()
    except note.NoteError as error:
        raise _refused(str(error)) from None
    return (
        cosigned if whole is None else proof.encode(replace(whole, checkpoint=cosigned)),
        list(dict.fromkeys(names)),
    )


def _cosignatures(path: Path, signed: note.Note) -> list[note.Signature]:
    data = read(path, note.MAX_NOTE_BYTES)
    try:
        if b"\n\n" not in data:
            return list(note.parse_signatures(data.decode()))
        other = note.parse(data)
    except ValueError as error:
        raise UsageError(f"{path} holds no signature lines: {error}") from None
    if other.text != signed.text:
        raise _refused(f"the cosigned checkpoint in {path} is another one")
    return [s for s in other.signatures if s not in signed.signatures]


def _refused(reason: str) -> OmlError:
    return OmlError(
        f"nothing was attached: {reason}",
        "A cosignature is of one checkpoint alone, and counts under a key that the policy lists.",
        EXIT_FINDINGS,
    )
