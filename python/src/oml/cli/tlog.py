"""``oml tlog``: the published transparency log of each chain."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from oml.cli.output import DsnOption, JsonOption, print_json, print_record, print_table, progress
from oml.errors import EXIT_FINDINGS

app = typer.Typer(no_args_is_help=True, help="The published transparency log of each chain.")


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
    from oml import gate, settings
    from oml.errors import UsageError
    from oml.tlog.publisher import Publisher, tlog_store
    from oml.tlog.source import TlogSource

    if not once:
        raise UsageError("oml tlog publish needs --once", "To keep publishing, run oml serve.")
    configured = settings.load()
    gate.ensure_open(configured, dsn)
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


@app.command()
def consistency(
    old: Annotated[Path, typer.Argument(help="The earlier checkpoint.")],
    new: Annotated[Path, typer.Argument(help="The later checkpoint.")],
    tlog_url: Annotated[
        str | None, typer.Option(help="Where the log is published (default: setting tlog_url).")
    ] = None,
    dsn: DsnOption = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write (default: print the proof).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Prove from the published tiles that a checkpoint goes on from an earlier one.

    Exit 0 it does, 1 it does not, 2 could not run, also for checkpoints that cannot be compared.
    """
    from oml import settings
    from oml.core import note
    from oml.tlog import consistency as proofs
    from oml.tlog import files
    from oml.tlog.publisher import find_store

    configured = settings.load()
    if tlog_url is not None:
        configured = configured.model_copy(update={"tlog_url": tlog_url})
    before, after = (files.read(path, note.MAX_NOTE_BYTES) for path in (old, new))
    origin = proofs.read(after, str(new))[0].origin
    proof = proofs.prove(before, after, find_store(configured, dsn))
    if out is not None:
        files.write(out, proof)
    if json:
        print_json({"consistent": True, "origin": origin, "out": out, "proof": proof.decode()})
    elif out is None:
        sys.stdout.write(proof.decode())
    else:
        print_record({"consistent": True, "origin": origin, "out": out})


@app.command()
def attach(
    file: Annotated[Path, typer.Argument(help="Checkpoint or proof file, which is rewritten.")],
    cosignature: Annotated[
        list[Path], typer.Argument(help="Files with signature lines, or cosigned checkpoints.")
    ],
    policy: Annotated[
        Path, typer.Option(metavar="FILE", help="Policy that lists the witnesses (tlog-policy).")
    ],
    out: Annotated[Path | None, typer.Option(help="Another file to write instead.")] = None,
    json: JsonOption = False,
) -> None:
    """Attach cosignatures to a checkpoint or proof file, once each of them is verified.

    Exit 0 done, 1 one of them does not count, 2 could not run.
    """
    from oml.tlog import files
    from oml.tlog import policy as policies

    data, names = files.attach(file, cosignature, policies.read(policy))
    files.write(out or file, data)
    done = {"out": out or file, "witnesses": names}
    print_json(done) if json else print_record(done)
