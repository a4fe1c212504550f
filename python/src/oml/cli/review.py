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
    """Report on a file as on the body of a submission.

    Exit 0 nothing found, 1 something was, 2 it cannot be submitted as that. What a reviewer looks
    for beside secrets are the reviewer's policies: give the same.

    Needs the extra review, in a checkout: pip install -c python/constraints.txt './python[review]'.
    """
    from oml.driver.artifacts import Part
    from oml.driver.scan import examine

    content = _submittable(file, media_type)
    part = Part(0, "", media_type, content, hashlib.sha256(content).digest())
    report = examine([part], _policies(policy or []))
    findings = report[0]["findings"]
    examined = ", ".join(report[0][k] for k in ("basis", "extractor") if k in report[0])
    if as_json:
        print_json(report)
    elif findings:
        rows = [[finding.get(column) for column in COLUMNS] for finding in findings]
        print_table(COLUMNS, rows, examined)
    else:
        print(f"{examined}: nothing found")
    return EXIT_FINDINGS if findings else 0


def _submittable(file: Path, media_type: str) -> bytes:
    """Return the content; raise UsageError where oml_submit() would refuse it as a body."""
    from oml.core import body, keys, media

    try:
        with file.open("rb") as opened:
            content = opened.read(body.MAX_BODY_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "Name a file that can be read.") from None
    if not content:
        raise UsageError(f"{file} is empty", "A submission has a body of at least one byte.")
    if len(content) > body.MAX_BODY_BYTES:
        raise UsageError(
            f"{file} is longer than a body may be", f"One has at most {body.MAX_BODY_BYTES} bytes."
        )
    try:
        media.require(0, media_type, content)
    except keys.SignerError as error:
        raise UsageError(f"{file}: {error.message}", error.hint) from None
    return content


def _policies(given: list[str]) -> dict[str, str]:
    policies = {}
    for item in given:
        name, equals, pattern = item.partition("=")
        if not equals:
            raise UsageError(f"{item} is no policy", "Give a name, = and a pattern.")
        policies[name] = pattern
    return policies
