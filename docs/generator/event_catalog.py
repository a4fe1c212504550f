"""``event-catalog.md``: the deployment's own events, the envelope's fields, a verifier's faults."""

from psycopg import Connection
from psycopg.rows import TupleRow

from oml.core.chain import Fault
from oml.core.envelope import CONTENT_TYPE, FIELDS, VERSION, Field

from .markdown import code, members, names, page, table


def build(connection: Connection[TupleRow]) -> str:
    """Return the page. ``connection`` is a superuser's, to a database after its genesis."""
    reserved = connection.execute(
        "select type, schema_version, required_keys, max_bytes, description"
        " from oml.event_type where reserved order by type, schema_version"
    ).fetchall()
    return page(
        "Event catalogue",
        "## Reserved event types",
        "The deployment writes these itself. `oml_append` refuses them, and"
        " `oml_register_event_type` refuses their namespaces. All other types are yours to"
        " [register](../guides/event-types.md).",
        table(
            ("type", "version", "required keys", "most bytes", "meaning"),
            [
                (code(kind), version, names(keys), size, doc)
                for kind, version, keys, size, doc in reserved
            ],
        ),
        "## Envelope fields",
        f"The signed map of every event, envelope version {VERSION}, content type "
        f"{code(CONTENT_TYPE)}, in the order in which it is encoded. How the bytes are laid out is "
        "in [the envelope](envelope.md).",
        table(
            ("key", "journal column", "CBOR", "", "meaning"),
            [
                (code(f.key), code(f.column), _shape(f), "" if f.required else "optional", f.doc)
                for f in FIELDS
            ],
        ),
        "## Faults",
        "What `oml_verify_chain` and `oml verify` name, at the first bad seq of a chain.",
        table(("fault", "meaning"), [(code(value), doc) for value, doc in members(Fault)]),
    )


def _shape(field: Field) -> str:
    return field.kind if field.size is None else f"{field.size} {field.kind}"
