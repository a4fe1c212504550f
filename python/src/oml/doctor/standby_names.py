"""``synchronous_standby_names`` as the server understands it (PostgreSQL 15, section 20.6.2)."""

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<word>[A-Za-z\u0080-\U0010ffff_][A-Za-z\u0080-\U0010ffff_0-9$]*)'
    r"|(?P<number>[0-9]+)|(?P<sign>[*,()]))"
)


class StandbyNames(NamedTuple):
    """Whom a commit waits for: ``needed`` of ``names``, any of them or the first that are there."""

    needed: int
    names: tuple[str, ...]
    is_any: bool

    def __str__(self) -> str:
        listed = ", ".join(self.names)
        if "*" in self.names:
            listed = "whatever standbys there are"
        return f"{'any' if self.is_any else 'the first'} {self.needed} of {listed}"


def parse(text: str) -> StandbyNames | None:
    """Return what the setting means; None when it is empty. Raises ValueError for no such list.

    The forms are ``ANY n (list)``, ``FIRST n (list)``, ``n (list)`` and a list, of which the first
    is waited for. Names are compared without regard to case; ``*`` is any name.
    """
    tokens = _tokens(text)
    if not tokens:
        return None
    kind, word = tokens[0]
    keyword = word.upper() if kind == "word" else ""
    if keyword in ("ANY", "FIRST"):
        tokens = tokens[1:]
    counted = len(tokens) > 1 and tokens[0][0] == "number" and tokens[1] == ("sign", "(")
    if not counted:
        if keyword in ("ANY", "FIRST"):
            raise ValueError(text)
        return StandbyNames(1, _names(tokens, text), False)
    if tokens[-1] != ("sign", ")"):
        raise ValueError(text)
    count = int(tokens[0][1])
    if count < 1:
        raise ValueError(text)
    return StandbyNames(count, _names(tokens[2:-1], text), keyword == "ANY")


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at, end)
        if match is None or match.lastgroup is None:
            raise ValueError(text)
        value = match[match.lastgroup]
        if match.lastgroup == "quoted":
            value = value.replace('""', '"')
        found.append((match.lastgroup, value))
        at = match.end()
    return found


def _names(tokens: list[tuple[str, str]], text: str) -> tuple[str, ...]:
    names, commas = tokens[::2], tokens[1::2]
    fits = len(tokens) % 2 == 1 and all(token == ("sign", ",") for token in commas)
    if not fits or any(kind == "sign" and value != "*" for kind, value in names):
        raise ValueError(text)
    return tuple(value for _, value in names)
