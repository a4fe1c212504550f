"""``oml tlog``: the published transparency logs."""

from typing import Annotated

import typer

from oml.cli.output import DsnOption, JsonOption, print_json, print_record, print_table, progress
from oml.errors import EXIT_FINDINGS

app = typer.Typer(no_args_is_help=True, help="The published transparency logs.")


COLUMNS = ("tenant", "generation", "size", "head", "behind", "published_at", "problem")


@app.command()
def publish(
    once: Annotated[
        bool,
        typer.Option("--once", help="Publish what is committed now and stop; oml serve keeps on."),
    ] = False,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> int:
    """Bring every log up to its chain. Exit 1 if one was refused or open transactions held it."""
    from oml import settings
    from oml.errors import UsageError
    from oml.tlog.publisher import Publisher, tlog_store
    from oml.tlog.source import TlogSource

    if not once:
        raise UsageError("oml tlog publish needs --once", "To keep publishing, run oml serve.")
    configured = settings.load()
    with (
        TlogSource(dsn or configured.dsn, "oml tlog publisher") as source,
        progress("publishing", quiet=json) as show,
    ):
        store = tlog_store(configured, source.state(), make=True)
        report = Publisher(source, store, configured).publish(show).as_dict()
    print_json(report) if json else print_record(report)
    return EXIT_FINDINGS if report["held_back"] or report["refused"] else 0


@app.command()
def status(dsn: DsnOption = None, json: JsonOption = False) -> int:
    """Tell of each tenant what is published and how far its chain has come."""
    from oml import settings
    from oml.tlog.publisher import Publisher, tlog_store
    from oml.tlog.source import TlogSource

    configured = settings.load()
    with TlogSource(dsn or configured.dsn) as source:
        store = tlog_store(configured, source.state())
        found = Publisher(source, store, configured).status()
    print_json(found) if json else print_table(
        COLUMNS, [[row[c] for c in COLUMNS] for row in found]
    )
    return EXIT_FINDINGS if any(each["problem"] for each in found) else 0
