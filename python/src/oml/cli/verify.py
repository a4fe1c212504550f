"""``oml verify``: prove the chains."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oml.cli.output import DsnOption, JsonOption, print_json, print_table, progress
from oml.errors import EXIT_FINDINGS, UsageError

if TYPE_CHECKING:
    from oml.driver.verify import Earlier

COLUMNS = ("tenant", "ok", "events", "seq", "class", "reason")

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX_32 = re.compile(r"[0-9a-f]{64}")


def verify(
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant (and the provider chain it rests on).")
    ] = None,
    root_key: Annotated[
        str | None,
        typer.Option(
            help="Root public key in hex, kept out of band. Default: --since's, or the chain's."
        ),
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What an earlier --json printed: go on from where it ended."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many processes (default: one a core).")
    ] = None,
    dsn: DsnOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check every signature, hash, link and column. Exit 0 proved, 1 a fault, 2 could not run."""
    from oml import settings
    from oml.driver.keys import parse_public_key
    from oml.driver.verify import verify as prove

    pinned = None if root_key is None else parse_public_key(root_key, "--root-key")
    earlier = None if since is None else _read(since)
    with progress("verifying", quiet=as_json) as show:
        result = prove(dsn or settings.load().dsn, tenant, pinned, show, jobs, earlier)
    rows = [
        {
            "tenant": v.tenant, "ok": v.ok, "events": v.events, "head": v.head.hex(),
            "seq": v.finding.seq if v.finding else None,
            "class": str(v.finding.fault) if v.finding else None,
            "reason": v.finding.reason if v.finding else None,
        }
        for v in result.verdicts
    ]  # fmt: skip
    root = result.root_key.hex() if result.root_key else None
    known = pinned is not None or (earlier is not None and earlier.pinned)
    if as_json:
        print_json(
            {"ok": result.ok, "root_key": root, "pinned": known,
             "deployment_id": result.deployment_id, "since": since, "chains": rows}
        )  # fmt: skip
    else:
        print_table(COLUMNS, [[row[name] for name in COLUMNS] for row in rows])
        if root is not None:
            pin = "" if known else " (not pinned: pass --root-key to prove it)"
            print(f"root key {root}{pin}")
    return 0 if result.ok else EXIT_FINDINGS


def _read(path: Path) -> "Earlier":
    """Read what an earlier run printed. Raises UsageError when it is no such thing."""
    from oml.driver.verify import Earlier

    hint = "Give what oml verify --json printed, whole and unchanged."
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is not JSON", hint) from None
    chains: dict[str, tuple[int, bytes]] = {}
    try:
        for chain in document["chains"]:
            name, events = chain["tenant"], chain["events"]
            if type(name) is not str or type(events) is not int or not 0 <= events < 2**63:
                raise ValueError(events)
            if name in chains:
                raise ValueError(name)
            chains[name] = (events, bytes.fromhex(_matched(_HEX_32, chain["head"])))
        return Earlier(
            _matched(_UUID, document["deployment_id"]),
            bytes.fromhex(_matched(_HEX_32, document["root_key"])),
            {name: proved for name, proved in chains.items() if proved[0] > 0},
            document["pinned"] is True,
        )
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{path} does not say what was verified", hint) from None


def _matched(pattern: re.Pattern[str], value: Any) -> str:
    if type(value) is not str or pattern.fullmatch(value) is None:
        raise ValueError(value)
    return value
