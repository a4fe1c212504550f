"""What gold is made of: pure functions of rows of bronze.events, for whoever writes or checks it.

They take the columns of ``bronze.events`` and leave out what they cannot read: a row of bronze is
never the reason that a batch stops here.
"""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_DAILY = ["tenant_id", "day", "type"]
_EDGE = pa.schema(
    [
        ("outbox_seq", pa.int64()),
        ("tenant_id", pa.string()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("from_node", pa.string()),
        ("to_node", pa.string()),
    ]
)


def tenant_daily(events: pa.Table) -> pa.Table:
    """Count events and sum their bytes by tenant, UTC day and type."""
    rows = events.select(["tenant_id", "type", "bytes"]).append_column(
        "day", pc.cast(events["occurred_at"], pa.date32())
    )
    sums = rows.group_by(_DAILY).aggregate([([], "count_all"), ("bytes", "sum")])
    return sums.rename_columns({"count_all": "events", "bytes_sum": "bytes"}).select(
        [*_DAILY, "events", "bytes"]
    )


def lineage(events: pa.Table) -> pa.Table:
    """List the edges that events tell.

    caused_by: from an event to the one it names. supersedes: from a version to the one before it.
    derived_from: from a version to those that its author names. attachment_of: from an attachment
    to its version. In the order of the events.
    """
    caused = events.filter(pc.is_valid(events["caused_by"]))
    found = [
        pa.table(
            [
                caused["outbox_seq"],
                caused["tenant_id"],
                caused["seq"],
                pa.array(["caused_by"] * caused.num_rows, pa.string()),
                caused["event_id"],
                caused["caused_by"],
            ],
            schema=_EDGE,
        )
    ]
    told = events.filter(pc.starts_with(events["type"], "submission."))
    if told.num_rows:
        columns = ["outbox_seq", "tenant_id", "seq", "type", "artifact_id", "artifact_version"]
        rows = [
            dict(
                zip(
                    _EDGE.names,
                    (row["outbox_seq"], row["tenant_id"], row["seq"], *edge),
                    strict=True,
                )
            )
            for row in told.select([*columns, "payload"]).to_pylist()
            for edge in _edges(row)
        ]
        found.append(pa.Table.from_pylist(rows, schema=_EDGE))
    return pa.concat_tables(found).sort_by(
        [("outbox_seq", "ascending"), ("kind", "ascending"), ("to_node", "ascending")]
    )


def _edges(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, from, to) of an event of a submission."""
    artifact, version = row["artifact_id"], row["artifact_version"]
    if artifact is None or version is None:
        return
    here = f"{artifact}/{version}"
    try:
        said = json.loads(row["payload"] or "{}")
        sources = {f"{s['artifact_id']}/{s['version']}" for s in said.get("derived_from") or ()}
        part = said.get("part")
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    if row["type"] == "submission.submit":
        if version > 1:
            yield "supersedes", here, f"{artifact}/{version - 1}"
        for source in sorted(sources):
            yield "derived_from", here, source
    elif row["type"] == "submission.attach" and part is not None:
        yield "attachment_of", f"{here}/{part}", here
