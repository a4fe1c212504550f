"""``oml prove``, ``oml verify-proof``, ``oml verify-consistency``: proofs for those outside."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from oml.cli.output import DsnOption, JsonOption, connected, print_json, print_record

KeysOption = Annotated[
    list[str],
    typer.Option("--key", metavar="HEX", help="A public key you know, 64 hex digits. Repeatable."),
]


def prove(
    event_id: Annotated[str, typer.Argument(help="The event's id, as oml_append returned it.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write (default: print the proof).")
    ] = None,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> None:
    """Prove that an event is in the newest published checkpoint of its chain. Needs audit."""
    from oml.driver import proofs
    from oml.tlog import files

    with connected(dsn) as connection:
        proof = proofs.prove(connection, event_id)
    if out is not None:
        files.write(out, proof)
    if json:
        print_json({"event_id": event_id, "out": out, "proof": proof.decode()})
    elif out is None:
        sys.stdout.write(proof.decode())
    else:
        print_record({"event_id": event_id, "out": out})


def verify_proof(
    file: Annotated[Path, typer.Argument(help="Proof file, as oml prove writes it.")],
    key: KeysOption,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Policy whose quorum must have cosigned (tlog-policy)."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Verify a proof file, without a database or a network.

    Exit 0 proved, 1 it proves nothing, 2 it is no proof file.
    """
    from oml.driver.keys import parse_public_key
    from oml.tlog import files
    from oml.tlog import policy as policies

    pinned = [parse_public_key(text, "--key") for text in key]
    found = files.verify(file, pinned, None if policy is None else policies.read(policy)).as_dict()
    print_json(found) if json else print_record(found)


def verify_consistency(
    old: Annotated[Path, typer.Argument(help="The earlier checkpoint.")],
    new: Annotated[Path, typer.Argument(help="The later checkpoint.")],
    proof: Annotated[Path, typer.Argument(help="What oml tlog consistency wrote of them.")],
    key: KeysOption,
    json: JsonOption = False,
) -> None:
    """Verify that a checkpoint goes on from an earlier one, without a database or a network.

    Exit 0 it does, 1 it is not shown to, 2 the files are not such or cannot be compared.
    """
    from oml.core import note
    from oml.driver.keys import parse_public_key
    from oml.tlog import consistency, files

    pinned = [parse_public_key(text, "--key") for text in key]
    contents = [files.read(path, note.MAX_NOTE_BYTES) for path in (old, new, proof)]
    growth = consistency.verify(contents[0], contents[1], contents[2], pinned)
    found = {
        "consistent": True, "origin": growth.new.origin,
        "old_size": growth.old.size, "new_size": growth.new.size,
    }  # fmt: skip
    print_json(found) if json else print_record(found)
