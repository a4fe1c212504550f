"""The guide to submissions, and the driver's, carried out as they stand there.

That is by psql, and by the programs they show.
"""

import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from oml.dev import programs
from systems import System

GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guides"
ARTIFACT = "5f0c6a1e-93b4-4a7d-8c55-0e6f2d9b7a10"
"""The id that stands in the guide for every artifact's."""


def sections(language: str, guide: str = "submissions") -> dict[str, list[str]]:
    """Return the code blocks of a guide in a language, by the heading they stand under."""
    found = {}
    for section in (GUIDES / f"{guide}.md").read_text().split("\n## ")[1:]:
        blocks = re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        found[section.partition("\n")[0]] = blocks
    return {heading: blocks for heading, blocks in found.items() if blocks}


class Reader:
    """Somebody who types what the guide shows, with an artifact's id of their own."""

    def __init__(self, system: System) -> None:
        self._system = system

    def psql(self, login: str, *blocks: str, artifact: str = ARTIFACT) -> str:
        """Give blocks to one psql as a login; return what it prints, unaligned."""
        command = [programs.find().path("psql"), "-qAtX", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [*command, self._system.dsn(login)],
            input="".join(blocks).replace(ARTIFACT, artifact),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    def run(self, program: str, *typed: str, artifact: str = ARTIFACT) -> str:
        """Run a program, into which these lines are typed; return what it prints."""
        made, dsns = re.subn(
            r'"host=primary dbname=journal user=(\w+)"',
            lambda match: repr(self._system.dsn(match[1])),
            program.replace(ARTIFACT, artifact),
        )
        assert dsns
        done = subprocess.run(
            [sys.executable, "-c", made],
            input="".join(f"{line}\n" for line in typed),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout


@pytest.fixture
def guided(private_system: System) -> System:
    """A system with the tenant of the guide."""
    private_system.make("acme")
    return private_system


def refusal(system: System, login: str, query: str) -> str | None:
    """Insist that a query of a login is refused; return the SQLSTATE."""
    with pytest.raises(psycopg.Error) as caught:
        system.connect(login).execute(query.encode())
    return caught.value.sqlstate


def test_the_guide_can_be_followed(guided: System) -> None:
    reader, sql, python = Reader(guided), sections("sql"), sections("python")
    ((roles,), (area,), (own,)) = (
        sql[h] for h in ("Roles and permissions", "A workarea", "Submit")
    )
    submit, again = python["Submit"]
    queue, serve, reject, approve = sql["Review"]
    promote, reassign, demote, end = sql["Release, withdraw, move"]
    (read,), (moved,) = sql["Read"], sql["Move a workarea, remove a member"]
    reader.psql("postgres", roles)
    reader.psql("olga", area)

    # The first version is rejected, the second approved with a report.
    artifact, version = reader.run(submit).split()
    assert version == "1"
    assert reader.run(submit).split() == [artifact, "1"], "the key stands for one submission"
    assert reader.psql("rita", queue) == f"{artifact}|1|ann|observed|1|f\n"
    served = reader.psql("rita", serve, reject, artifact=artifact)
    assert "0||text/markdown|observed|# Findings\n1|data.csv|text/csv|observed|a,b\n1,2\n" in served
    assert reader.psql("ann", own) == f"{artifact}|1|rejected|rita|the source is missing\n"
    assert reader.run(again, artifact=artifact).split() == [artifact, "2"]
    (judge,) = python["Review"]
    shown = reader.run(judge, "approve", "sound", artifact=artifact)
    assert "b'# Findings, with their source' []" in shown
    assert reader.psql("ann", own).startswith(f"{artifact}|2|approved|rita|sound\n")
    assert reader.psql("ann", sql["Lists"][-1]).count(artifact) == 2

    reader.psql("olga", promote, artifact=artifact)
    shown = reader.psql("ann", read, artifact=artifact)
    assert shown.startswith("# Findings, with their source\na,b\n1,2\n")
    events = [line.split("|")[1] for line in shown.splitlines() if "|" in line]
    assert events == [
        "submission.submit", "submission.attach", "review.serve", "review.verdict",
        "submission.submit", "review.serve", "review.verdict", "artifact.promoted",
    ]  # fmt: skip
    setting = promote.partition("\n")[0] + "\n"
    for block in (reassign, demote):
        reader.psql("olga", setting, block, artifact=artifact)

    # The other ways: approved in psql, with no report; and a simulation that is over.
    made = guided.connect("ann").execute(
        "select artifact_id::text from oml_submit('research/2026', %b, 'text/plain', 'simulated')",
        (b"a",),
    )
    (simulated,) = made.fetchone() or ()
    reader.psql("rita", serve, approve, artifact=simulated)
    reader.psql("olga", setting, end, artifact=simulated)
    bases = guided.superuser.execute(
        "select payload #>> '{review,0,basis}' from oml.journal"
        " where type = 'review.verdict' order by occurred_at"
    ).fetchall()
    assert [basis for (basis,) in bases] == ["digest", "text", "digest"]

    # What is said of who left.
    reader.psql("olga", moved)
    next_version = (
        "select oml_submit('closed/research-2026', 'a', 'text/plain', 'observed',"
        f" artifact => '{artifact}')"
    )
    assert refusal(guided, "ann", next_version) == "OM190"
    reader.psql("ann", read, artifact=artifact)
    guided.superuser.execute("select oml_revoke('ann', 'acme')")
    assert refusal(guided, "ann", f"select oml_fetch('{artifact}')") == "OM001"
    assert guided.superuser.execute("select * from oml_fold_check('acme')").fetchall() == []


def test_what_the_guide_says_of_grants_and_findings(guided: System) -> None:
    reader, sql, python = Reader(guided), sections("sql"), sections("python")
    reader.psql("postgres", sql["Roles and permissions"][0])
    # Whoever runs the deployment has no workareas in a tenant, and a grant replaces the one before.
    guided.superuser.execute("select oml_grant('olga', 'provider', '{operate}')")
    guided.superuser.execute("select oml_revoke('olga', 'acme')")
    assert refusal(guided, "olga", "select oml_create_workarea('a')") == "OM001"
    guided.connect("olga").execute("select oml_grant('olga', 'acme', '{operate}')")
    reader.psql("olga", sql["A workarea"][0])
    guided.superuser.execute("select oml_grant('ann', 'acme', '{append}')")
    submit = python["Submit"][0]
    assert refusal(guided, "ann", "select * from oml_data_key()") == "OM001"
    guided.superuser.execute("select oml_grant('ann', 'acme', '{append,submit}')")
    # A policy of the guide's own finds what it is for, and rita rejects that.
    artifact = reader.run(submit.replace("# Findings", "of KD-12345678")).split()[0]
    shown = reader.run(python["Review"][0], "reject", "names a customer", artifact=artifact)
    assert "policy.customer" in shown
    assert "|rejected|rita|names a customer" in reader.psql("ann", sql["Submit"][0])


def test_the_guide_to_the_driver_can_be_followed(guided: System) -> None:
    reader, sql = Reader(guided), sections("sql")
    reader.psql("postgres", sql["Roles and permissions"][0])
    reader.psql("olga", sql["A workarea"][0])
    submit, review, release = sections("python", "python-driver")["Submit, review, release"]
    shown = reader.run("import oml\n" + submit + review + release, "approve", "sound").splitlines()
    assert shown[1:] == [
        "observed  text/markdown b'# Findings'",
        "observed data.csv text/csv b'a,b\\n1,2\\n'",
        "approve or reject: reason: b'# Findings'",
    ]
    found = submit.replace("# Findings", "password: hunter2hunter2")
    reader.run("import oml\n" + found + review)
    own = reader.psql("ann", sql["Submit"][0]).splitlines()[0]
    assert own.endswith("|rejected|rita|the scan found: oml.password")
