"""``cli.md``: the command line, from the commands themselves."""

from collections.abc import Iterator
from typing import Any

import typer.main

from oml.cli import app

from .markdown import code, page, table


def build() -> str:
    """Return the page."""
    group = typer.main.get_command(app)
    return page(
        "Command line",
        f"{group.help} Every command takes `--json`, which prints one JSON document and nothing"
        " else, and `--help`. Where a command takes `--dsn`, settings come from"
        " [variables and a file](settings.md).",
        "Exit status: 0 all is well, 1 something was found or is incomplete, 2 the command could"
        " not run, 130 it was interrupted. Errors go to stderr with a hint.",
        *_commands(group, ("oml",)),
    )


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        here = (*path, name)
        if hasattr(command, "commands"):
            yield from _commands(command, here)
            continue
        yield f"## `{' '.join(here)}`"
        yield str(command.help).strip()
        context = typer.Context(command, info_name=" ".join(here))
        records = [option.get_help_record(context) for option in command.params]
        yield table(("option", "meaning"), [(code(option), text) for option, text in records])
