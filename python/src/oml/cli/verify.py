"""``oml verify``: prove the chains."""

from typing import Annotated

import typer

from oml.cli.output import DsnOption, JsonOption, print_json, print_table, progress
from oml.errors import EXIT_FINDINGS, UsageError

COLUMNS = ("tenant", "ok", "events", "first bad seq", "fault", "reason")


def verify(
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant (and the provider chain it rests on).")
    ] = None,
    root_key: Annotated[
        str | None,
        typer.Option(help="Root public key in hex, kept out of band. Default: trust the chain's."),
    ] = None,
    dsn: DsnOption = None,
    json: JsonOption = False,
) -> int:
    """Check every signature, hash, link and column. Exit 0 proved, 1 a fault, 2 could not run."""
    from oml import settings
    from oml.driver.connection import connect
    from oml.driver.verify import verify as prove

    pinned = _public_key(root_key)
    with (
        connect(dsn or settings.load().dsn, autocommit=True) as connection,
        progress("verifying", quiet=json) as show,
    ):
        result = prove(connection, tenant, pinned, show)
    rows = [
        {
            "tenant": v.tenant, "ok": v.ok, "events": v.events, "head": v.head.hex(),
            "first_bad_seq": v.finding.seq if v.finding else None,
            "fault": str(v.finding.fault) if v.finding else None,
            "reason": v.finding.reason if v.finding else None,
        }
        for v in result.verdicts
    ]  # fmt: skip
    root = result.root_key.hex() if result.root_key else None
    if json:
        print_json(
            {"ok": result.ok, "root_key": root, "pinned": pinned is not None,
             "deployment_id": result.deployment_id, "chains": rows}
        )  # fmt: skip
    else:
        shown = ("tenant", "ok", "events", "first_bad_seq", "fault", "reason")
        print_table(COLUMNS, [[row[name] for name in shown] for row in rows])
        if root is not None:
            pin = "" if pinned else " (not pinned: pass --root-key to prove it)"
            print(f"root key {root}{pin}")
    return 0 if result.ok else EXIT_FINDINGS


def _public_key(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise UsageError("--root-key is not a public key", "Give its 32 bytes as 64 hex digits.")
    return key
