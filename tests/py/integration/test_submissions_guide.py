"""The guide to submissions, carried out from its first statement to its last."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from systems import System

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "submissions.md"


def blocks(language: str) -> list[str]:
    """Return the code blocks of the guide in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def statements(block: str) -> list[str]:
    """Return the statements of a block of SQL."""
    return [s for s in (re.sub(r"--.*", "", x).strip() for x in block.split(";")) if s]


@pytest.fixture
def guided(private_system: System) -> System:
    """A system with the tenant of the guide."""
    private_system.make("acme")
    return private_system


def test_the_guide_can_be_followed(guided: System) -> None:
    roles, area, again, review, release, read = map(statements, blocks("sql"))
    submit, scan = blocks("python")
    for statement in roles:
        guided.superuser.execute(statement.encode())
    olga, ann, rita = map(guided.connect, ("olga", "ann", "rita"))
    for statement in area[:3]:
        olga.execute(statement.encode())
    olga.execute("select oml_move_workarea('archive/research-2026', 'research/2026')")
    olga.execute("select oml_create_workarea('archive')")
    # The programs use a connection and an artifact that they are given.
    dsn = '"host=primary dbname=journal user=ann"'
    assert dsn in submit
    exec(compile(submit.replace(dsn, repr(guided.dsn("ann"))), "guide", "exec"), {})
    (first,) = ann.execute("select artifact_id from oml_my_submissions()").fetchone() or ()
    (statement,) = again
    query = statement.replace("$1", "%b").replace("$2", "%s")
    row = ann.execute(query.encode(), (b"# Findings, again", first)).fetchone()
    assert row is not None and row[2] == 2
    names: dict[str, Any] = {"connection": rita, "artifact": first}
    exec(compile(scan, "guide", "exec"), names)
    queue, serve, reject, approve = review
    assert len(rita.execute(queue.encode()).fetchall()) == 2
    assert len(rita.execute(serve.replace("$1", "%s").encode(), (first,)).fetchall()) == 1
    query = approve.replace("$1", "%s").replace("$2", "%s::jsonb")
    rita.execute(query.encode(), (first, json.dumps(names["report"])))
    rita.execute("select oml_review_serve(%s, version => 1)", (first,))
    rita.execute((reject.replace("$1", "%s")[:-1] + ", version => 1)").encode(), (first,))
    promote, reassign, demote, end = release
    olga.execute(promote.replace("$1", "%s").encode(), (first,))
    fetch, attachment, history = read
    assert ann.execute(fetch.replace("$1", "%s").encode(), (first,)).fetchone() == (
        b"# Findings, again",
    )
    named = attachment.replace("$1", "%s, version => 1")
    assert ann.execute(named.encode(), (first,)).fetchone() == (b"a,b\n1,2\n",)
    events = ann.execute(history.replace("$1", "%s").encode(), (first,)).fetchall()
    assert [event[3] for event in events] == [
        "submission.submit", "submission.attach", "submission.submit", "review.serve",
        "review.serve", "review.verdict", "review.serve", "review.verdict", "artifact.promoted",
    ]  # fmt: skip
    for statement in (reassign, demote):
        olga.execute(statement.replace("$1", "%s").encode(), (first,))
    simulated = ann.execute(
        "select artifact_id from oml_submit('research/2026', %b, 'text/plain', 'simulated')",
        (b"a",),
    ).fetchone()
    olga.execute(end.replace("$1", "%s").encode(), simulated)
    assert guided.superuser.execute("select * from oml_fold_check('acme')").fetchall() == []
