"""``oml lake``: the derived Delta tables."""

from typing import Annotated

import typer

from oml.cli.output import DsnOption, JsonOption, print_json, print_record, print_rows, progress
from oml.errors import EXIT_FINDINGS

app = typer.Typer(no_args_is_help=True, help="The derived Delta tables.")

_LETTER = ("outbox_seq", "target", "tenant", "artifact_id", "version", "reason", "skipped_at")
_COLUMN = ("table", "column", "type", "nullable")


@app.command()
def drain(
    once: Annotated[
        bool, typer.Option("--once", help="Drain to a fresh cut and stop; oml serve keeps going.")
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for another writer to give up its lease.")
    ] = 10.0,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> int:
    """Bring the lake up to what is committed now. Exit 1 if open transactions held it back.

    One writer at a time works: where oml serve does, this one is not needed and gives up.
    """
    from oml import gate, settings
    from oml.errors import UsageError
    from oml.lake.lease import Lease
    from oml.lake.mover import Mover
    from oml.lake.source import Source
    from oml.lake.upkeep import Upkeep
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

        lease = Lease(source, configured.lease_s)
        lease.take_within(wait)
        try:
            writer = LakeWriter(source, configured, upkeep=Upkeep(configured), lease=lease)
            report = writer.drain(reached).as_dict()
        finally:
            lease.release()
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


@app.command("dead-letters")
def dead_letters(
    everything: Annotated[
        bool, typer.Option("--all", help="Those too that were queued again.")
    ] = False,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> int:
    """List what the lake writer passed over and nobody has queued again. Exit 1 if there is any."""
    from oml import settings
    from oml.lake.source import Source

    with Source(dsn or settings.load().dsn) as source:
        found = [d for d in source.dead_letters() if everything or d["requeued_as"] is None]
    print_json({"dead_letters": found}) if json else print_rows(_LETTER, found)
    return EXIT_FINDINGS if any(d["requeued_as"] is None for d in found) else 0


@app.command()
def requeue(
    reason: Annotated[str, typer.Option(help="Why, for the journal: what was mended.")],
    outbox_seqs: Annotated[
        list[int] | None, typer.Argument(help="Outbox seqs of dead letters.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are open.")] = False,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> None:
    """Queue dead letters again, journalled. What is still damaged is passed over again."""
    from oml import settings
    from oml.errors import UsageError
    from oml.lake.source import Source

    if bool(outbox_seqs) == everything:
        raise UsageError("name outbox seqs, or --all", "oml lake dead-letters lists what there is.")
    with Source(dsn or settings.load().dsn) as source:
        wanted = outbox_seqs or [
            d["outbox_seq"] for d in source.dead_letters() if d["requeued_as"] is None
        ]
        done = [{"outbox_seq": seq, "requeued_as": source.requeue(seq, reason)} for seq in wanted]
    print_json({"requeued": done}) if json else print_rows(("outbox_seq", "requeued_as"), done)


@app.command()
def schema(
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the database and the lake's tables.")
    ] = False,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> int:
    """Print the columns of the lake's tables, or check that they are whole. Exit 1 if they drifted.

    A column of the journal must be one of bronze.events or be known to stay out; what the writer
    reads must have the declared columns and types; and so must each table that was made.
    """
    from oml import settings
    from oml.lake.schema import TABLES

    if not check:
        columns = [
            {"table": t.name, "column": c.name, "type": str(c.type), "nullable": c.nullable}
            for t in TABLES
            for c in t.columns
        ]
        print_json({"columns": columns}) if json else print_rows(_COLUMN, columns)
        return 0

    from oml.lake.drift import drifts
    from oml.lake.source import Source

    configured = settings.load()
    with Source(dsn or configured.dsn) as source:
        found = [drift.as_dict() for drift in drifts(source, configured)]
    print_json({"drifts": found}) if json else print_rows(("where", "column", "problem"), found)
    return EXIT_FINDINGS if found else 0
