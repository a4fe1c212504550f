"""``oml serve``: omld, in the foreground."""

from typing import Annotated

import typer

from oml.cli.output import DsnOption, JsonOption


def serve(
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="lake-writer, tlog or signer; repeat for several. Default: lake-writer and tlog, "
            "and signer too where signer_keys is set."
        ),
    ] = None,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> None:
    """Run omld's roles until SIGTERM or SIGINT. Logs go to stderr, one line an entry."""
    from oml import settings
    from oml.daemon.serve import run

    configured = settings.load()
    run(dsn or configured.dsn, configured, role, json_logs=json)
