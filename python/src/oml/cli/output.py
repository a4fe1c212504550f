"""How commands print: shared options, records, tables, JSON and progress."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from oml.errors import UsageError

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import TupleRow


def _not_empty(dsn: str | None) -> str | None:
    if dsn == "":
        raise UsageError("--dsn is empty", "Leave it out to use OML_DSN or the PG* variables.")
    return dsn


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
DsnOption = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        callback=_not_empty,
        help="libpq connection string (default: OML_DSN or the PG* variables).",
    ),
]

_PIPE_WIDTH = 200  # columns of a table that is not shown on a terminal


def print_json(value: object) -> None:
    """Print one JSON document to stdout; times as in RFC 3339, paths and the like as their text."""
    json.dump(value, sys.stdout, default=_text, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def _text(value: object) -> str:
    """Return a value as text; tables and lists as JSON."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=_text, ensure_ascii=False)
    return str(value)


def print_record(record: Mapping[str, object]) -> None:
    """Print names and values, one a line."""
    width = max(map(len, record), default=0)
    for name, value in record.items():
        print(f"{name:<{width}}  {_text(value)}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print a table to stdout; numbers are right-aligned."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None)
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else _text(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Print these columns of records as a table."""
    print_table(columns, [[row[name] for name in columns] for row in rows])


@contextmanager
def connected(dsn: str | None) -> Iterator["psycopg.Connection[TupleRow]"]:
    """Open an autocommit connection to ``dsn``, else to the configured one."""
    from oml import settings
    from oml.driver.connection import connect

    with connect(dsn or settings.load().dsn, autocommit=True) as connection:
        yield connection


@contextmanager
def progress(what: str, *, quiet: bool) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar on stderr if that is a terminal and not ``quiet``.

    Yields a function to call with how much is done and how much there is, in the caller's unit;
    None if that is not known.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
