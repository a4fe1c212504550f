"""The few Markdown forms that the generated pages use, and what they take from Python sources."""

import ast
import inspect
from collections.abc import Iterable, Sequence
from enum import StrEnum

NOTICE = "<!-- Made by `make docs`. Do not edit. -->"


def page(title: str, *parts: str) -> str:
    """Return a whole page: notice, title, parts with a blank line between."""
    return "\n\n".join((NOTICE, f"# {title}", *(part for part in parts if part))) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; None is an empty cell."""
    lines = [_row(columns), _row(["---"] * len(columns))]
    lines += [_row(["" if cell is None else str(cell) for cell in row]) for row in rows]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def code(text: str | None) -> str:
    """Return text as inline code; empty text stays empty."""
    return f"`{text}`" if text else ""


def names(values: Iterable[str] | None) -> str:
    """Return names as a list of inline code."""
    return ", ".join(code(value) for value in values or ())


def members(enum: type[StrEnum]) -> list[tuple[str, str]]:
    """Return (value, docstring) of each member, from the class's source.

    Raises ValueError for a member without one.
    """
    body = ast.parse(inspect.getsource(enum)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, following in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        text = following.value if isinstance(following, ast.Expr) else None
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            raise ValueError(f"{enum.__name__}.{statement.targets[0].id} has no docstring")
        found[statement.targets[0].id] = " ".join(text.value.split())
    return [(str(member), found[member.name]) for member in enum]
