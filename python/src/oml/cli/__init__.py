"""The command line: one module a command group, no logic."""

import sys
import traceback

import typer

from oml import __version__
from oml.cli import dev, doctor, gate, keys, lake, proofs, reconcile, review, serve, tlog, verify
from oml.cli.output import JsonOption, print_json
from oml.errors import EXIT_COULD_NOT_RUN, DatabaseError, OmlError, from_postgres

app = typer.Typer(
    name="oml", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.add_typer(dev.app, name="dev")
app.add_typer(gate.app, name="gate")
app.add_typer(keys.app, name="keys")
app.add_typer(lake.app, name="lake")
app.add_typer(review.app, name="review")
app.add_typer(tlog.app, name="tlog")
app.command()(gate.adopt)
app.command()(serve.serve)
app.command()(doctor.doctor)
app.command()(verify.verify)
app.command()(proofs.prove)
app.command("verify-proof")(proofs.verify_proof)
app.command("verify-consistency")(proofs.verify_consistency)
app.command()(reconcile.reconcile)


@app.callback()
def oml() -> None:
    """An append-only, signed, hash-chained journal per tenant inside PostgreSQL."""


@app.command()
def version(json: JsonOption = False) -> None:
    """Print the version of this package."""
    print_json({"version": __version__}) if json else print(__version__)


def main() -> None:
    """Run the command of ``sys.argv`` and exit with its status. Expected errors go to stderr."""
    arguments = sys.argv[1:]
    try:
        result = app(args=arguments, prog_name="oml", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(EXIT_COULD_NOT_RUN)
    except BaseException as error:  # a panic of a Rust library is no Exception
        if isinstance(error, SystemExit):
            raise
        expected = _expected(error)
        if expected is None:
            traceback.print_exception(error)
            sys.exit(EXIT_COULD_NOT_RUN)  # 1 would mean that something was found
        _report(expected, as_json="--json" in arguments)
        sys.exit(expected.exit_code)
    sys.exit(result if isinstance(result, int) else 0)


def _expected(error: BaseException) -> OmlError | None:
    """Return the error as one of ours, or None if it is a fault of the program."""
    if isinstance(error, OmlError):
        return error
    if isinstance(error, typer.TyperException):
        return OmlError(error.format_message(), "See oml --help, or --help after the command.")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return OmlError(f"{where}{error.strerror or error}")
    if type(error).__name__ == "PanicException":
        return OmlError(f"a library failed: {error}", "Check the lake's URL and what lies there.")
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(error, psycopg.Error):
        return from_postgres(error)
    return None


def _report(error: OmlError, *, as_json: bool) -> None:
    if not error.message:  # a group without a command: its help was shown instead
        return
    if as_json:
        import json

        sqlstate = error.sqlstate if isinstance(error, DatabaseError) else None
        content = {"error": error.message, "hint": error.hint, "sqlstate": sqlstate}
        print(json.dumps(content, ensure_ascii=False), file=sys.stderr)
        return
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
