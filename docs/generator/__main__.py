"""Write the generated pages of docs/reference, or check that they are up to date.

Usage, from the top of the repository:

    .venv/bin/python -m docs.generator            write them
    .venv/bin/python -m docs.generator --check    exit 1, with the difference, if one is out of date

Starts a private PostgreSQL for the pages that come from a database, and removes it.
"""

import argparse
import difflib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from oml.dev import up as dev
from oml.errors import OmlError

from . import benchmarks, cli, delta_tables, errors, event_catalog, lifecycle, postgres_schema

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
_SHOWN_LINES = 60


def main() -> int:
    """Write or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(description="Make the generated pages of docs/reference.")
    parser.add_argument("--check", action="store_true", help="only tell what is out of date")
    check = parser.parse_args().check
    try:
        pages = build()
    except (OmlError, errors.AmbiguousCodeError) as error:
        print(f"docs: {error}", file=sys.stderr)
        return 2
    stale = False
    for name, text in pages.items():
        path = REFERENCE / name
        old = path.read_text() if path.exists() else ""
        if old == text:
            continue
        stale = True
        if check:
            show(path.relative_to(ROOT), old, text)
        else:
            path.write_text(text)
            print(f"docs: wrote {path.relative_to(ROOT)}")
    if check and stale:
        print("docs: run make docs and commit the result", file=sys.stderr)
    return int(check and stale)


def build() -> dict[str, str]:
    """Return {file name: text} of every page."""
    with database() as connection:
        return {
            "benchmarks.md": benchmarks.build(ROOT),
            "cli.md": cli.build(),
            "delta-tables.md": delta_tables.build(),
            "errors.md": errors.build(ROOT),
            "event-catalog.md": event_catalog.build(connection),
            "lifecycle.md": lifecycle.build(connection),
            "postgres-schema.md": postgres_schema.build(connection),
        }


@contextmanager
def database() -> Iterator[psycopg.Connection[TupleRow]]:
    """Give a superuser's connection to a database after its genesis."""
    work = Path(tempfile.mkdtemp(prefix="oml-docs-"))
    work.chmod(0o755)
    directory = work / "system"
    try:
        system = dev.up(directory, options={"fsync": False})
        try:
            with psycopg.connect(system.superuser_dsn) as connection:
                yield connection
        finally:
            dev.down(directory, destroy=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def show(path: Path, old: str, new: str) -> None:
    """Print the start of the difference."""
    lines = list(
        difflib.unified_diff(
            old.splitlines(), new.splitlines(), f"{path} (committed)", str(path), lineterm="", n=1
        )
    )
    print("\n".join(lines[:_SHOWN_LINES]), file=sys.stderr)
    if len(lines) > _SHOWN_LINES:
        print(f"... {len(lines) - _SHOWN_LINES} lines more", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
