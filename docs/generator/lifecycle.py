"""``lifecycle.md``: the states of a version, drawn from oml.lifecycle()."""

from psycopg import Connection
from psycopg.rows import TupleRow

from .markdown import code, page, table


def build(connection: Connection[TupleRow]) -> str:
    """Return the page. ``connection`` is a superuser's, to a database after its genesis."""
    steps = connection.execute(
        "select verb, from_state, to_state, permission, event_type, simulated_only, description"
        " from oml.lifecycle()"
    ).fetchall()
    drawn = [f"  {state(start)} --> {state(end)}: {verb}" for verb, start, end, *_ in steps]
    return page(
        "Lifecycle of a version",
        "The states that a version of an artifact can be in, and every way from one to another. Any"
        " other change is refused. [Admission](../explanation/admission.md) says what they mean.",
        "```mermaid\nstateDiagram-v2\n" + "\n".join(drawn) + "\n```",
        table(
            ("verb", "from", "to", "permission", "event", "provenance", "meaning"),
            [
                (
                    code(verb), code(start), code(end), code(permission), code(event),
                    "simulated" if simulated else "any", description,
                )
                for verb, start, end, permission, event, simulated, description in steps
            ],
        ),
    )  # fmt: skip


def state(name: str | None) -> str:
    """Return a state as Mermaid names it; before the first there is none."""
    return "[*]" if name is None else name.replace("-", "_")
