"""Which rows of silver cannot be written: a fault of their own is no reason to stop the others."""

import hashlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oml.lake.schema import LakeTable


@dataclass(frozen=True)
class Fault:
    """A row that cannot be written: the outbox seqs that it stands for, and why."""

    outbox_seqs: tuple[int, ...]
    reason: str


def faults(table: LakeTable, rows: pa.Table) -> list[Fault]:
    """List the faulty rows of what the database returned for ``table``, each outbox seq once.

    It has said itself what it knows, in ``fault``. Looked at here are the columns that must have a
    value, and the SHA-256 of the ciphertext as it would be written against the signed digest.
    """
    needed = [column.name for column in table.columns if not column.nullable]
    suspect = pc.is_valid(rows["fault"])
    for name in needed:
        suspect = pc.or_(suspect, pc.is_null(rows[name]))
    if "ciphertext" in rows.column_names:
        suspect = pc.or_(suspect, pc.is_valid(rows["ciphertext"]))
    found: dict[tuple[int, ...], Fault] = {}
    for row in rows.filter(suspect).to_pylist():
        reason = row["fault"] or _fault(row, needed)
        if reason is not None:
            seqs = tuple(row["outbox_seqs"])
            found.setdefault(seqs, Fault(seqs, reason))
    return list(found.values())


def _fault(row: dict[str, Any], needed: list[str]) -> str | None:
    lacking = [name for name in needed if row[name] is None]
    if lacking:
        return f"it has no {', '.join(lacking)}"
    ciphertext = row.get("ciphertext")
    if ciphertext is not None and hashlib.sha256(ciphertext).digest() != row["ciphertext_digest"]:
        return "the SHA-256 of its stored body is not the one that was signed"
    return None
