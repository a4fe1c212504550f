"""``oml dev``: a private system under one directory."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from oml.cli.output import JsonOption, print_json, print_record

app = typer.Typer(no_args_is_help=True, help="A private PostgreSQL with OML under a directory.")

DirOption = Annotated[Path, typer.Option("--dir", help="The system's directory.")]


@app.command()
def up(
    directory: DirOption,
    tenant: Annotated[
        str, typer.Option(help="Tenant to create and to bind login dev to.")
    ] = "acme",
    lake_url: Annotated[
        str | None, typer.Option(help="Where the lake is (default: lake under the directory).")
    ] = None,
    tlog_url: Annotated[
        str | None,
        typer.Option(help="Where the transparency logs are (default: tlog under the directory)."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make what is missing, start the server, and print the DSN on the last line."""
    from oml.dev import up as dev

    system = asdict(dev.up(directory, tenant=tenant, lake_url=lake_url, tlog_url=tlog_url))
    if json:
        print_json(system)
    else:
        dsn = system.pop("dsn")
        print_record(system)
        print(dsn)


@app.command()
def down(
    directory: DirOption,
    destroy: Annotated[bool, typer.Option("--destroy", help="Also remove the directory.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop the server; the data stays unless --destroy is given."""
    from oml.dev import up as dev

    dev.down(directory, destroy=destroy)
    done = {"dir": str(directory.absolute()), "running": False, "destroyed": destroy}
    print_json(done) if json else print_record(done)


@app.command()
def status(directory: DirOption, json: JsonOption = False) -> None:
    """Tell whether the server runs, and its DSNs."""
    from oml.dev import up as dev

    found = asdict(dev.status(directory))
    print_json(found) if json else print_record(found)
