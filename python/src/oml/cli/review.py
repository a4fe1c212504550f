"""``oml review``: what a reviewer's scan finds."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from oml.cli.output import JsonOption, print_json, print_table
from oml.errors import EXIT_FINDINGS, UsageError

app = typer.Typer(help="What a reviewer's scan finds.", no_args_is_help=True)

COLUMNS = ("kind", "line", "count")


@app.callback()
def review() -> None:
    """Scan what is to be reviewed."""


@app.command()
def scan(
    file: Annotated[Path, typer.Argument(help="The content.")],
    media_type: Annotated[
        str, typer.Option(metavar="TYPE", help="Of which type it is submitted: text/plain.")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATTERN", help="A pattern to look for as well; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Report on a file as on the body of a submission. Exit 0 nothing found, 1 something was.

    Needs the extra review: pip install 'oml[review]'.
    """
    from oml.core import media
    from oml.driver.artifacts import Part
    from oml.driver.scan import examine

    if media.parse(media_type) is None:
        raise UsageError(f"{media_type} is no media type", "One is text/plain; charset=utf-8.")
    content = file.read_bytes()
    part = Part(0, "", media_type, content, hashlib.sha256(content).digest())
    report = examine([part], _policies(policy or []))
    findings = report[0]["findings"]
    if as_json:
        print_json(report)
    else:
        rows = [[finding.get(column) for column in COLUMNS] for finding in findings]
        print_table(COLUMNS, rows, str(report[0].get("extractor", "opaque")))
    return EXIT_FINDINGS if findings else 0


def _policies(given: list[str]) -> dict[str, str]:
    policies = {}
    for item in given:
        name, equals, pattern = item.partition("=")
        if not equals:
            raise UsageError(f"{item} is no policy", "Give a name, = and a pattern.")
        policies[name] = pattern
    return policies
