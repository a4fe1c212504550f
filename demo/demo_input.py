"""The demo's input: a package log, or any other file, read as events of two tenants."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oml.errors import UsageError

DEFAULT = Path("/var/log/dpkg.log")
FALLBACK = Path("/var/lib/dpkg/status")
MOST_LINES = 20_000
MOST_CHARACTERS = 600
"""Of one line. Escaped as JSON they stay under the 4 KiB that an event type allows."""
CUT = " …[cut]"
_CHUNK = 64 * 1024

_DPKG = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:(?P<action>status) (?P<state>[a-z-]+)|"
    r"(?P<change>install|upgrade|configure|trigproc|disappear|remove|purge)) "
    r"(?P<package>[a-z0-9][a-z0-9+.-]*)(?::(?P<architecture>[a-z0-9-]+))? (?P<version>\S+)"
    r"(?: (?P<to_version>\S+))?"
)


@dataclass(frozen=True)
class EventType:
    """An event type to register: its name and the keys a payload must have."""

    name: str
    required_keys: tuple[str, ...]


@dataclass(frozen=True)
class Event:
    """One event to append, in the arguments of oml_append."""

    tenant: str
    type: str
    payload: dict[str, Any]
    operation: str | None = None
    entity_id: str | None = None


@dataclass(frozen=True)
class Input:
    """The events of one file. ``entities`` is what its entity ids are, None if it names none."""

    path: Path
    tenants: tuple[str, str]
    types: tuple[EventType, ...]
    events: list[Event]
    entities: str | None
    truncated: bool
    """Whether the file goes on after the last event."""


def choose(named: str) -> tuple[Path, str | None]:
    """Return the file to read and, if it is not the one asked for or the default, why.

    Raises UsageError if a named file is absent or is not a regular file.
    """
    if named:
        path = Path(named)
        try:
            regular = path.is_file()
        except OSError as error:
            raise UsageError(
                f"INPUT={named}: {error.strerror}", "Name a file you may read."
            ) from None
        if regular and not os.access(path, os.R_OK):
            raise UsageError(f"INPUT={named} cannot be read", "Name a file you may read.")
        if not regular:
            raise UsageError(f"INPUT={named} is not a file", "Name a text file: make demo INPUT=…")
        return path, None
    if _readable(DEFAULT):
        return DEFAULT, None
    for path in (FALLBACK, Path(__file__)):
        if _readable(path):
            return path, f"{DEFAULT} is missing, empty or unreadable here"
    raise UsageError("there is no file to read", "Name one: make demo INPUT=…")


def _readable(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0 and os.access(path, os.R_OK)


def read(path: Path) -> Input:
    """Read a file as events: a package log by its columns, any other file line by line.

    Raises UsageError when there are fewer than two lines, of which the demo could make no two
    parts, or when the file cannot be read.
    """
    lines: list[str] = []
    truncated = False
    for line in _lines(path):
        if len(lines) == MOST_LINES:
            truncated = True
            break
        lines.append(line)
    if len(lines) < 2:
        raise UsageError(f"{path} has fewer than two lines", "Name another: make demo INPUT=…")
    matches = [_DPKG.fullmatch(line) for line in lines]
    if sum(match is not None for match in matches) > len(lines) // 2:
        events = [
            _package_event(number, line, match)
            for number, (line, match) in enumerate(zip(lines, matches, strict=True), 1)
        ]
        types: tuple[EventType, ...] = (
            EventType("package.state", ("time", "state", "package", "version")),
            EventType("package.action", ("time", "action", "package", "version")),
            EventType("log.line", ("line", "text")),
        )
        return Input(path, ("states", "actions"), types, events, "packages", truncated)
    names = ("odd-lines", "even-lines")
    events = [
        Event(names[(number - 1) % 2], "file.line", {"line": number, "text": line})
        for number, line in enumerate(lines, 1)
    ]
    types = (EventType("file.line", ("line", "text")),)
    return Input(path, names, types, events, None, truncated)


def _lines(path: Path) -> Iterator[str]:
    """Yield each line as text PostgreSQL can hold: no invalid UTF-8, no NUL, bounded in length."""
    with path.open("rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"{path} is not a regular file")
        while raw := file.readline(_CHUNK):
            whole = raw
            while whole and not whole.endswith(b"\n"):
                whole = file.readline(_CHUNK)
            text = raw.decode("utf-8", "replace").replace("\0", "").rstrip("\r\n")
            yield text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + CUT


def _package_event(number: int, line: str, match: re.Match[str] | None) -> Event:
    if match is None:  # such as startup and conffile lines, which name no package
        return Event("actions", "log.line", {"line": number, "text": line})
    found = {name: value for name, value in match.groupdict().items() if value is not None}
    change = found.pop("change", None)
    found["action"] = change or "status"
    return Event(
        tenant="actions" if change else "states",
        type="package.action" if change else "package.state",
        payload={"line": number, **found},
        operation=change or found["state"],
        entity_id=found["package"],
    )
