"""``delta-tables.md``: the lake's tables, as oml.lake.schema declares them."""

from oml.lake.schema import TABLES, LakeTable
from oml.lake.table import APP_ID
from oml.reconcile.bronze import Difference

from .markdown import code, members, names, page, table

_WRITES = {
    "append": "Each batch appends.",
    "upsert": "What is new is appended; a batch that changes older rows is one MERGE.",
    "add": "Each batch is one MERGE that adds to the rows of its keys.",
}


def build() -> str:
    """Return the page."""
    return page(
        "Delta tables",
        "What the lake writer makes under the lake's URL. The lake is derived: where it and the"
        " journal differ, the journal is right.",
        *map(_table, TABLES),
        "## Application transactions",
        f"Every batch is one commit a table and records three Delta application transactions: "
        f"{code(APP_ID)} and {code(APP_ID + '/batch_end')}, the batch's last outbox seq, and "
        f"{code(APP_ID + '/frontier')}, the seq it starts after. They are the table's cursor; see "
        "[exactly once](../explanation/exactly-once.md).",
        "## Differences that `oml reconcile` names",
        table(("difference", "meaning"), [(code(v), doc) for v, doc in members(Difference)]),
    )


def _table(declared: LakeTable) -> str:
    columns = [
        (code(c.name), code(str(c.type)), "" if c.nullable else "not null", c.doc)
        for c in declared.columns
    ]
    return "\n\n".join(
        (
            f"## `{declared.name}`",
            declared.doc,
            table(("column", "type", "", "meaning"), columns),
            f"Key: {names(declared.key)}. Fed by outbox rows for {code(declared.target)}."
            f" {_WRITES[declared.writes]}",
            f"Location under the lake's URL: {code(declared.location)}. Not partitioned."
            f" Min and max in the Delta log: {names(declared.statistics)}.",
        )
    )
