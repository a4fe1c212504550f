"""Whose word is needed for a checkpoint to count: a policy file (c2sp.org/tlog-policy).

Names are octets that mean nothing outside the file. They are kept as text in which each octet that
is not UTF-8 stands for itself, so two names are equal when their octets are.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oml.core import note
from oml.errors import EXIT_FINDINGS, OmlError, UsageError

MAX_POLICY_BYTES = 1024 * 1024
NONE = "none"

_ALLOWED = re.compile(rb"[\t\n\x20-\x7e\x80-\xff]*")
_SPACES = re.compile("[ \t]+")
_THRESHOLD = re.compile("[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class Witness:
    """A witness: its name in the file, its key, and where it is asked, if that is said."""

    name: str
    verifier: note.Verifier
    url: str | None


@dataclass(frozen=True)
class Policy:
    """What a policy file says. ``groups`` are {name: (threshold, members)}.

    A group comes after the groups that are its members.
    """

    logs: tuple[note.Verifier, ...]
    witnesses: tuple[Witness, ...]
    groups: Mapping[str, tuple[int, tuple[str, ...]]]
    quorum: str

    def cosigned_at(self, signed: note.Note) -> dict[str, int]:
        """Return which of the witnesses cosigned, and when: {name: seconds since 1970}.

        Raises note.SignatureError for a cosignature under the key of one that it did not make, and
        for one without a time (0).
        """
        times = {w.name: note.cosigned_at(signed, w.verifier) for w in self.witnesses}
        for name, seconds in times.items():
            if seconds == 0:
                raise note.SignatureError(f"the cosignature of {printable(name)} has no time")
        return {name: seconds for name, seconds in times.items() if seconds is not None}

    def is_met_by(self, witnesses: Collection[str]) -> bool:
        """Tell whether the word of these witnesses, by name, is a quorum."""
        met = {name for name in witnesses if name not in self.groups}
        for name, (threshold, members) in self.groups.items():
            # Its members were defined before it, so whether they are met is known by now.
            if sum(member in met for member in members) >= threshold:
                met.add(name)
        return self.quorum == NONE or self.quorum in met

    def require(self, checkpoint: note.Checkpoint, signed: note.Note) -> dict[str, int]:
        """Insist that a log of the policy, if it names any, and a quorum signed a checkpoint.

        Returns who cosigned, as cosigned_at does. Raises OmlError with exit status 1.
        """
        try:
            logs = [log for log in self.logs if log.name == checkpoint.origin]
            if self.logs and not any(note.is_signed(signed, log) for log in logs):
                raise _refused("no log of the policy signed the checkpoint")
            times = self.cosigned_at(signed)
        except note.SignatureError as error:
            raise _refused(str(error)) from None
        if not self.is_met_by(times):
            names = ", ".join(map(printable, sorted(times)))
            who = f"only {names} cosigned" if names else "no witness of the policy cosigned"
            raise _refused(f"{who} the checkpoint, which is not its quorum")
        return times


def _refused(reason: str) -> OmlError:
    return OmlError(
        f"the policy is not met: {reason}",
        "Collect more cosignatures (oml tlog attach), or ask for a newer proof.",
        EXIT_FINDINGS,
    )


def printable(name: str) -> str:
    """Return a name of a policy as it can be printed."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def read(path: Path) -> Policy:
    """Read a policy file. Raises UsageError that names the line, or says why it cannot be read."""
    try:
        if path.stat().st_size > MAX_POLICY_BYTES:
            raise UsageError(f"{path} is no policy: it is too large")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the policy {path} cannot be read: {error.strerror}", "Name a c2sp.org/tlog-policy."
        ) from None
    try:
        return parse(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from None


def parse(data: bytes) -> Policy:
    """Read a policy. Raises UsageError that names the line."""
    if not _ALLOWED.fullmatch(data):
        raise UsageError("a policy has no control characters but tabs and newlines")
    *lines, rest = data.decode("utf-8", "surrogateescape").split("\n")
    if rest:
        raise UsageError("the last line does not end in a newline", "The file may have been cut.")
    made = _Reader()
    for number, line in enumerate(lines, 1):
        words = _SPACES.split(line.strip(" \t"))
        if words == [""] or words[0].startswith("#"):
            continue
        try:
            made.take(words)
        except ValueError as error:
            raise UsageError(
                f"line {number}: {error}", "The format is that of c2sp.org/tlog-policy."
            ) from None
    if made.quorum is None:
        raise UsageError("a policy has a quorum line", "Without witnesses it is: quorum none")
    return Policy(tuple(made.logs), tuple(made.witnesses), made.groups, made.quorum)


@dataclass
class _Reader:
    """What the lines so far have defined."""

    logs: list[note.Verifier] = field(default_factory=list)
    witnesses: list[Witness] = field(default_factory=list)
    groups: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    quorum: str | None = None
    _names: set[str] = field(default_factory=set)
    _members: set[str] = field(default_factory=set)

    def take(self, words: list[str]) -> None:
        """Take in a line. Raises ValueError."""
        kinds: dict[str, Callable[[list[str]], None]] = {
            "log": self._log, "witness": self._witness, "group": self._group, "quorum": self._quorum
        }  # fmt: skip
        if words[0] not in kinds:
            raise ValueError(f"{printable(words[0])!r} is none of {', '.join(kinds)}")
        kinds[words[0]](words[1:])

    def _log(self, words: list[str]) -> None:
        if not 1 <= len(words) <= 2:
            raise ValueError("a log has a key and perhaps a URL")
        key = _key(words[0], note.ED25519, self.logs)
        self.logs.append(key)

    def _witness(self, words: list[str]) -> None:
        if not 2 <= len(words) <= 3:
            raise ValueError("a witness has a name, a key and perhaps a URL")
        self._define(words[0])
        key = _key(words[1], note.COSIGNATURE, [w.verifier for w in self.witnesses])
        self.witnesses.append(Witness(words[0], key, words[2] if len(words) == 3 else None))

    def _group(self, words: list[str]) -> None:
        if len(words) < 3:
            raise ValueError("a group has a name, all, any or a number, and members")
        name, rule, *members = words
        for member in members:
            if member not in self._names:
                raise ValueError(f"{printable(member)} is not defined above")
            if member in self._members:
                raise ValueError(f"{printable(member)} is a member already")
            self._members.add(member)
        numbers = {"all": len(members), "any": 1}
        threshold = numbers.get(rule) or (int(rule) if _THRESHOLD.fullmatch(rule) else 0)
        if not 1 <= threshold <= len(members):
            raise ValueError(f"{printable(rule)} of {len(members)} members cannot be")
        self._define(name)
        self.groups[name] = threshold, tuple(members)

    def _quorum(self, words: list[str]) -> None:
        if len(words) != 1 or self.quorum is not None:
            raise ValueError("a policy has one quorum line, with one name")
        if words[0] != NONE and words[0] not in self._names:
            raise ValueError(f"{printable(words[0])} is not defined above")
        self.quorum = words[0]

    def _define(self, name: str) -> None:
        if name == NONE or name in self._names:
            raise ValueError(f"the name {printable(name)} is taken")
        self._names.add(name)


def _key(text: str, kind: int, known: list[note.Verifier]) -> note.Verifier:
    key = note.parse_vkey(text)
    if key.kind != kind:
        raise ValueError(f"a key of type 0x{key.kind:02x} where 0x{kind:02x} belongs")
    if any(other.public_key == key.public_key for other in known):
        raise ValueError("the key is listed already")
    return key
