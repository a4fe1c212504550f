"""``oml keys``: the keys that sign, and whose they are."""

from pathlib import Path
from typing import Annotated

import typer

from oml.cli.output import DsnOption, JsonOption, connected, print_json, print_record, print_table
from oml.errors import UsageError

app = typer.Typer(no_args_is_help=True, help="The keys that sign, and whose they are.")

COLUMNS = ("kid", "purpose", "state", "tenant", "principal", "issued_seq", "retired_seq")


@app.command()
def generate(
    out: Annotated[Path, typer.Option("--out", help="Key file to make; never overwritten.")],
    json: JsonOption = False,
) -> None:
    """Make an Ed25519 key file (PKCS#8 PEM, mode 0600) and print its public key and kid in hex.

    Run it as the OS user who will sign: nobody else may own the file.
    """
    from oml.core import keys

    try:
        public_key = keys.generate(str(out))
    except FileExistsError:
        raise UsageError(
            f"{out} exists", "A key is never overwritten: choose another path."
        ) from None
    except FileNotFoundError:
        raise UsageError(
            f"{out.parent} is not a directory", "Make it first, mode 0700 and yours."
        ) from None
    made = {"out": str(out), "public_key": public_key.hex(), "kid": keys.kid(public_key).hex()}
    print_json(made) if json else print_record(made)


@app.command()
def issue(
    public_key: Annotated[str, typer.Argument(help="Ed25519 public key, 64 hex digits.")],
    purpose: Annotated[
        str, typer.Option(help="writer: a principal's own key. signing: one to rotate to.")
    ] = "writer",
    tenant: Annotated[str | None, typer.Option(help="Tenant of a writer key.")] = None,
    principal: Annotated[str | None, typer.Option(help="Principal of a writer key.")] = None,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> None:
    """Issue a key: a key.issued event on the provider chain. Needs operate on the provider."""
    from oml.driver import keys

    key = keys.parse_public_key(public_key, "the argument")
    with connected(dsn) as connection:
        kid = keys.issue(connection, key, purpose=purpose, tenant=tenant, principal=principal)
    done = {"kid": kid, "purpose": purpose, "tenant": tenant, "principal": principal}
    print_json(done) if json else print_record(done)


@app.command()
def retire(
    kid: Annotated[str, typer.Argument(help="Key id, 16 hex digits.")],
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> None:
    """Retire a writer key, or a signing key that never signed. Needs operate on the provider."""
    from oml.driver import keys

    with connected(dsn) as connection:
        retired = keys.retire(connection, kid)
    done = {"kid": kid, "retired": retired, "retired_before": not retired}
    print_json(done) if json else print_record(done)


@app.command("rotate-signing")
def rotate_signing(
    signer: Annotated[
        str | None,
        typer.Option(help="Signer that holds the new key (default: the present signer)."),
    ] = None,
    kid: Annotated[
        str | None, typer.Option(help="Which of the signer's keys, if it holds several.")
    ] = None,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> None:
    """Let another key sign from the next event on, in every chain at once. Superuser only.

    It waits for appends under way, and they for it. Old events go on verifying.
    """
    from oml.driver import keys

    with connected(dsn) as connection:
        done = {"kid": keys.rotate_signing(connection, signer=signer, kid=kid), "in_force": True}
    print_json(done) if json else print_record(done)


@app.command("list")
def listed(dsn: DsnOption = None, json: JsonOption = False) -> None:
    """List every key ever issued. Needs audit or operate on the provider."""
    from oml.driver import keys

    with connected(dsn) as connection:
        found = keys.listed(connection)
    if json:
        print_json({"keys": found})
    else:
        print_table(COLUMNS, [[key[name] for name in COLUMNS] for key in found])
