"""``oml gate`` and ``oml adopt``: the write gate."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from oml.cli.output import DsnOption, JsonOption, print_json, print_record, print_table
from oml.errors import EXIT_FINDINGS, UsageError

if TYPE_CHECKING:
    from oml.gate import GateReport

app = typer.Typer(no_args_is_help=True, help="The write gate: whether events may be appended here.")

ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is journalled.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_LOST = ("tenant", "last_seq", "lost_from", "lost_to", "lake_events")


@app.command()
def status(dsn: DsnOption = None, json: JsonOption = False) -> int:
    """Tell whether the gate is open, and what speaks against it. Exit 1 if it is not open."""
    from oml import gate, settings

    report = gate.check(settings.load(), dsn)
    _print(report, json)
    return 0 if report.ok else EXIT_FINDINGS


@app.command(name="open")
def open_(dsn: DsnOption = None, json: JsonOption = False) -> int:
    """Open the gate if nothing speaks against it; exit 1 and say what does if something does."""
    from oml import gate, settings

    report = gate.open_gate(settings.load(), dsn)
    _print(report, json)
    for each in report.unreachable:
        print(f"warning: opened without looking: {each}", file=sys.stderr)
    return 0


@app.command()
def accept_loss(
    reason: ReasonOption,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="This is a logical copy: adopt it by the way.")
    ] = False,
    yes: YesOption = False,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> int:
    """Go on without events that are lost for good: name them, ask, journal it, open the gate."""
    from oml import gate, settings
    from oml.lake.source import Source

    configured = settings.load()
    with Source(dsn or configured.dsn) as source:
        report = gate.find_loss(source, configured, adopting=adopt)
        if not json:
            _print_losses(report)
        if not yes:
            if report.state == "copy":
                _ask(_taking(gate.places(source, configured)))
            _ask("Go on without these events?")
        seq = gate.accept_loss(source, configured, report, reason)
    losses = [vars(loss) for loss in report.losses]
    done = {"accepted_seq": seq, "reason": reason, "lake_version": report.lake["cursor"]}
    print_json({**done, "losses": losses}) if json else print_record(done)
    return 0


def adopt(
    reason: ReasonOption,
    yes: YesOption = False,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> int:
    """Let a logical copy (a restored dump, a copied database) take the original's place."""
    from oml import gate, settings
    from oml.lake.source import Source

    configured = settings.load()
    if not yes:
        with Source(dsn or configured.dsn) as source:
            _ask(_taking(gate.places(source, configured)))
    _print(gate.adopt(configured, reason, dsn), json)
    return 0


def _taking(places: list[str]) -> str:
    what = " and ".join(places) or "no lake and no logs"
    return f"Take {what} from the original, which writes there no more?"


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            f"nobody is there to answer: {question}", "Run it again with --yes, if the answer is."
        )
    typer.confirm(question, abort=True, err=True)


def _print(report: "GateReport", as_json: bool) -> None:
    if as_json:
        print_json(report.as_dict())
        return
    print_record(
        {
            "gate": "open" if report.state == "open" else "closed",
            "verdict": report.verdict,
            "because": report.message(),
            "opened_at": report.opened_at,
            "opened_by": report.opened_by,
            "evidence": report.evidence,
            "instance": report.instance,
            "opened_last": report.opened_last,
        }
    )
    if report.losses:
        _print_losses(report)
    hint = report.hint()
    if hint:
        print(f"hint: {hint}")


def _print_losses(report: "GateReport") -> None:
    rows = [
        [loss.tenant or loss.tenant_id, *(getattr(loss, name) for name in _LOST[1:])]
        for loss in report.losses
    ]
    print_table(_LOST, rows, title="lost events")
