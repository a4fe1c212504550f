"""``oml lake``: the derived Delta tables."""

from typing import Annotated

import typer

from oml.cli.output import DsnOption, JsonOption, print_json, print_record, progress
from oml.errors import EXIT_FINDINGS

app = typer.Typer(no_args_is_help=True, help="The derived Delta tables.")


@app.command()
def drain(
    once: Annotated[
        bool, typer.Option("--once", help="Drain to a fresh cut and stop; oml serve keeps going.")
    ] = False,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> int:
    """Bring the lake up to what is committed now. Exit 1 if open transactions held it back."""
    from oml import gate, settings
    from oml.errors import UsageError
    from oml.lake.mover import Mover
    from oml.lake.source import Source
    from oml.lake.writer import LakeWriter

    if not once:
        raise UsageError("oml lake drain needs --once", "To keep draining, run oml serve.")
    configured = settings.load()
    gate.ensure_open(configured, dsn)
    start: int | None = None
    with Source(dsn or configured.dsn) as source, progress("draining", quiet=json) as show:

        def reached(seq: int, limit: int) -> None:
            nonlocal start
            start = seq if start is None else min(start, seq)
            show(seq - start, limit - start)

        report = LakeWriter(source, configured).drain(reached).as_dict()
        report["moved"] = Mover(source, configured).move(report["frontier"]).as_dict()
    print_json(report) if json else print_record(report)
    return EXIT_FINDINGS if report["held_back"] else 0


@app.command()
def status(dsn: DsnOption = None, json: JsonOption = False) -> None:
    """Tell where the lake stands: frontier, outbox, what holds the cut, each table's version."""
    from oml import settings
    from oml.lake.mover import Mover
    from oml.lake.source import Source
    from oml.lake.writer import LakeWriter

    configured = settings.load()
    with Source(dsn or configured.dsn) as source:
        found = LakeWriter(source, configured).status()
        found["bodies"] = Mover(source, configured).status()
    print_json(found) if json else print_record(found)
