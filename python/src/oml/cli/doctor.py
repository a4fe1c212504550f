"""``oml doctor``: whether the server is as durable as the deployment needs it."""

from typing import Annotated

import typer

from oml.cli.output import DsnOption, JsonOption, connected, print_json, print_table
from oml.errors import EXIT_FINDINGS

COLUMNS = ("check", "status", "found", "should be", "hint")


def doctor(
    profile: Annotated[
        str | None,
        typer.Option(help="local or production: whose requirements. Default: the database's own."),
    ] = None,
    dsn: DsnOption = None,
    as_json: JsonOption = False,
) -> int:
    """Examine durability, guards and settings. Exit 0 nothing failed, 1 something did.

    Needs audit or operate on the provider, and pg_monitor to see the standbys.
    """
    from oml.doctor.examine import examine

    with connected(dsn) as connection:
        report = examine(connection, profile)
    if as_json:
        checks = [
            {
                "name": c.name,
                "status": c.status,
                "found": c.found,
                "wanted": c.wanted,
                "hint": c.hint,
            }
            for c in report.checks
        ]
        print_json({"ok": report.ok, "profile": report.profile, "checks": checks})
    else:
        rows = [(c.name, c.status, c.found, c.wanted, c.hint) for c in report.checks]
        print_table(COLUMNS, rows, f"profile {report.profile}")
    return 0 if report.ok else EXIT_FINDINGS
