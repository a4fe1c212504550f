"""What the reviewer's client found goes into the event of the verdict, and counts there."""

import json
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import oml
from oml.driver.artifacts import Part, Report
from oml.driver.scan import examine
from oml.errors import DatabaseError
from systems import Connection, System

TOKEN = "ghp_" + "zQ8xkLm2Vn4pRt6wYb0cJd1eHf3gSi5uAo7q"


@pytest.fixture
def reviewed(system: System) -> tuple[System, Connection]:
    """A system with a workarea, and a connection of a reviewer."""
    system.make("acme")
    system.bind("app", "acme", ["submit", "audit"])
    system.bind("operator", "acme", ["operate"])
    reviewer = system.make_login(f"rita_{system.database}", "oml_reviewer")
    system.bind(reviewer, "acme", ["review"])
    operator = system.connect("operator")
    operator.execute("select oml_create_workarea('area')")
    operator.execute("select oml_add_member('area', 'app')")
    return system, system.connect(reviewer)


def submit(system: System, body: bytes, attachments: dict[str, tuple[str, bytes]]) -> Any:
    """Submit a text with attachments, by name their types and contents; return the artifact."""
    row = (
        system.connect("app")
        .execute(
            "select artifact_id from oml_submit('area', %b, 'text/markdown', 'observed',"
            " attachment_names => %s, attachment_types => %s, attachments => %b)",
            (
                body,
                list(attachments),
                [kind for kind, _ in attachments.values()],
                [content for _, content in attachments.values()],
            ),
        )
        .fetchone()
    )
    assert row is not None
    return row[0]


def served(reviewer: Connection, artifact: Any) -> list[Part]:
    """Have it served."""
    rows = reviewer.execute(
        "select part, name, media_type, content, plaintext_digest from oml_review_serve(%s)",
        (artifact,),
    ).fetchall()
    return [Part(*row) for row in rows]


def approve(reviewer: Connection, artifact: Any, report: Report, accept: bool = False) -> None:
    """Approve it."""
    reviewer.execute(
        "select oml_verdict(%s, 'approve', 'read', report => %s, accept_findings => %s)",
        (artifact, Jsonb(report), accept),
    )


def verdict(system: System, artifact: Any) -> dict[str, Any]:
    """Return what the event of the verdict says."""
    row = system.superuser.execute(
        "select payload from oml.journal where artifact_id = %s and type = 'review.verdict'",
        (artifact,),
    ).fetchone()
    assert row is not None
    payload = row[0]
    assert isinstance(payload, dict)
    return payload


def test_the_event_says_how_each_part_was_examined(reviewed: tuple[System, Connection]) -> None:
    system, reviewer = reviewed
    attachments = {"a.html": ("text/html", b"<p>fine"), "b": ("application/octet-stream", b"\x00")}
    artifact = submit(system, b"# Clean", attachments)
    report = examine(served(reviewer, artifact))
    approve(reviewer, artifact, report)
    said = verdict(system, artifact)
    assert said["review"] == report and said["findings_accepted"] is False
    assert [
        (e["part"], e["basis"], e.get("extractor", "").split(" ")[0]) for e in said["review"]
    ] == [
        (0, "text", "markdown-it-py"),
        (1, "text", "html.parser"),
        (2, "opaque", ""),
    ]
    assert {e["scanner"] for e in said["review"]} == {"kingfisher-secret-scanner 1.5.0"}
    assert system.superuser.execute("select * from oml_fold_check('acme')").fetchall() == []


def test_findings_must_be_accepted_by_name(reviewed: tuple[System, Connection]) -> None:
    system, reviewer = reviewed
    artifact = submit(system, b"# Clean", {"a.txt": ("text/plain", f"one\n{TOKEN}".encode())})
    report = examine(served(reviewer, artifact))
    with pytest.raises(psycopg.Error) as caught:
        approve(reviewer, artifact, report)
    assert caught.value.sqlstate == "OM222"
    approve(reviewer, artifact, report, accept=True)
    said = verdict(system, artifact)
    assert said["findings_accepted"] is True
    assert said["review"][1]["findings"] == [{"kind": "betterleaks.github-pat", "line": 2}]
    assert TOKEN not in json.dumps(said)


def test_the_longest_report_is_taken(reviewed: tuple[System, Connection]) -> None:
    system, reviewer = reviewed
    text = f"{TOKEN} password: hunter2hunter2\n".encode() * 500
    attachments = {f"{n}.txt": ("text/plain; charset=iso-8859-1", text) for n in range(16)}
    artifact = submit(system, text, attachments)
    report = examine(served(reviewer, artifact), {"x" * 64: "hunter"})
    approve(reviewer, artifact, report, accept=True)
    assert verdict(system, artifact)["review"] == report
    assert all(entry["findings"][-1]["kind"] == "more" for entry in report)


def test_the_driver_scans_what_it_is_served(reviewed: tuple[System, Connection]) -> None:
    system, _ = reviewed
    artifact = submit(system, f"# Notes\n\n{TOKEN}".encode(), {})
    with oml.connect(system.dsn(f"rita_{system.database}")) as client:
        served = client.review(artifact)
        assert served.report == examine(served.parts)
        with pytest.raises(DatabaseError) as caught:
            client.verdict(artifact, "approve", report=served.report)
        assert caught.value.sqlstate == "OM222"
        client.verdict(artifact, "reject", "it has a token", report=served.report)
    said = verdict(system, artifact)
    assert said["review"] == served.report
    assert said["review"][0]["findings"] == [{"kind": "betterleaks.github-pat", "line": 3}]
