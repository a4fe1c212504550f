"""``oml keys``: signing keys."""

from pathlib import Path
from typing import Annotated

import typer

from oml.cli.output import JsonOption, print_json, print_record
from oml.errors import UsageError

app = typer.Typer(no_args_is_help=True, help="Signing keys.")


@app.command()
def generate(
    out: Annotated[Path, typer.Option("--out", help="Key file to make; never overwritten.")],
    json: JsonOption = False,
) -> None:
    """Make an Ed25519 key file (PKCS#8 PEM, mode 0600) and print its public key and kid in hex.

    Run it as the server's OS user: nobody else may own the file.
    """
    from oml.core import keys

    try:
        public_key = keys.generate(str(out))
    except FileExistsError:
        raise UsageError(
            f"{out} exists", "A key is never overwritten: choose another path."
        ) from None
    made = {"out": str(out), "public_key": public_key.hex(), "kid": keys.kid(public_key).hex()}
    print_json(made) if json else print_record(made)
