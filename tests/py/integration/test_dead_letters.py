"""Rows of silver that cannot be written are passed over, journalled, and queued again on demand."""

import json
import signal
import subprocess
from typing import Any

import psycopg
import pytest
from damages import damage, first_dead, mend, tamper

from judge import expect_gold, expect_silver, held
from lakes import PATIENCE_S, await_stop, drain, expect_exact, prepare, value
from oml.lake.schema import SILVER_ATTACHMENTS, SILVER_CLAIMS
from seaweed import on_stores
from submissions import Office
from systems import System

FAST: dict[str, Any] = {"lake_attempts": 2}
pytestmark = on_stores
DAMAGED = "the SHA-256 of its stored body is not the one that was signed"


@pytest.fixture
def office(system: System) -> Office:
    prepare(system, "globex")
    return Office(system)


def letters(system: System) -> list[tuple[str, str, str]]:
    """Return (target, type of the event, reason) of each dead letter that nobody requeued."""
    return system.superuser.execute(
        "select d.target, j.type, d.reason from oml.dead_letter d"
        " join oml.journal j on j.tenant_id = d.tenant_id and j.seq = d.chain_seq"
        " where d.requeued_seq is null order by d.outbox_seq"
    ).fetchall()


def expect_journalled(system: System) -> None:
    """Insist that each dead letter has its one event, and each event its dead letter."""
    told = system.superuser.execute(
        "select (j.payload ->> 'outbox_seq')::bigint, j.payload ->> 'target', j.seq,"
        " j.payload ->> 'reason' from oml.journal j where j.type = 'lake.materialize-skipped'"
        " order by 1"
    ).fetchall()
    dead = system.superuser.execute(
        "select outbox_seq, target, skipped_seq, reason from oml.dead_letter order by 1"
    ).fetchall()
    assert told == dead


def states(system: System) -> dict[str, str]:
    at = SILVER_CLAIMS.arrow_schema().names.index("state")
    return {row[2]: row[at] for row in held(system, SILVER_CLAIMS)}


def expect_all(system: System) -> None:
    drain(system)
    expect_exact(system)
    expect_silver(system)
    expect_gold(system)
    expect_journalled(system)


@pytest.mark.parametrize("batch_rows", [2, 1000])
def test_the_one_bad_row_of_a_batch_is_passed_over_and_the_others_are_not(
    office: Office, batch_rows: int
) -> None:
    system = office.system
    good, bad, also_good = (office.submit(name, b"note") for name in (b"one", b"two", b"three"))
    for artifact in (good, bad, also_good):
        office.promote(artifact)
    damage(system, bad)
    drain(system, batch_rows=batch_rows, **FAST)
    assert letters(system) == [("silver.claims", "artifact.promoted", DAMAGED)]
    assert value(system.superuser, "select attempts from oml.dead_letter") == 2
    assert set(states(system)) == {str(good), str(also_good)}
    assert len(held(system, SILVER_ATTACHMENTS)) == 3
    expect_all(system)


@pytest.mark.parametrize("drained_between", [True, False])
def test_a_demote_whose_insert_was_passed_over_is_reported_and_settled_with_it(
    office: Office, drained_between: bool
) -> None:
    system = office.system
    artifact = office.submit(b"one")
    office.promote(artifact)
    ciphertext = damage(system, artifact)
    if drained_between:
        drain(system, **FAST)
    office.chief.execute("select oml_demote(%s, 'wrong')", (artifact,))
    drain(system, **FAST)
    instead = DAMAGED if not drained_between else "the row that it changes is a dead letter"
    assert letters(system) == [
        ("silver.claims", "artifact.promoted", DAMAGED),
        ("silver.claims", "artifact.demoted", instead),
    ]
    expect_all(system)
    mend(system, artifact, ciphertext)
    requeued = value(system.superuser, "select oml_requeue(%s, 'mended')", first_dead(system))
    assert letters(system) == [], "both are settled by one row"
    assert (
        value(system.superuser, "select max(seq) from oml.outbox where target <> 'bronze.events'")
        == requeued
    )
    expect_all(system)
    assert states(system) == {str(artifact): "demoted"}


def test_a_change_of_state_between_a_requeue_and_its_drain_is_not_lost(office: Office) -> None:
    system = office.system
    artifact = office.submit(b"one")
    office.promote(artifact)
    ciphertext = damage(system, artifact)
    drain(system, **FAST)
    mend(system, artifact, ciphertext)
    system.superuser.execute("select oml_requeue(%s, 'mended')", (first_dead(system),))
    office.chief.execute("select oml_demote(%s, 'wrong')", (artifact,))
    drain(system, batch_rows=1)
    expect_all(system)
    assert states(system) == {str(artifact): "demoted"}


def test_what_is_requeued_and_still_damaged_is_passed_over_again(office: Office) -> None:
    system = office.system
    artifact = office.submit(b"one")
    office.promote(artifact)
    damage(system, artifact)
    drain(system, **FAST)
    first = first_dead(system)
    again = value(system.superuser, "select oml_requeue(%s, 'hoping')", first)
    assert value(system.superuser, "select oml_requeue(%s, 'twice')", first) == again
    drain(system, **FAST)
    assert first_dead(system) == again
    assert (
        value(system.superuser, "select count(*) from oml.journal where type = 'lake.requeued'")
        == 1
    )
    expect_all(system)


def test_attachments_that_the_journal_lacks_are_a_fault_of_that_version_alone(
    office: Office,
) -> None:
    system = office.system
    first, second = office.submit(b"one", b"note"), office.submit(b"two", b"note")
    tamper(
        system, "artifact_event",
        "delete from oml.artifact_event a using oml.journal j where j.tenant_id = a.tenant_id"
        " and j.seq = a.seq and a.artifact_id = %s and j.type = 'submission.attach'", first,
    )  # fmt: skip
    for artifact in (first, second):
        office.promote(artifact)
    drain(system, **FAST)
    assert letters(system) == [
        (
            "silver.attachments",
            "artifact.promoted",
            "its submission has 1 attachments, the journal 0",
        )
    ]
    assert [row[2] for row in held(system, SILVER_ATTACHMENTS)] == [str(second)]


@pytest.mark.parametrize(
    "place", ["row.given-up", "row.skipped", "table.checked:2", "table.committed:2"]
)
def test_a_crash_at_any_step_of_passing_over_leaves_one_outcome(office: Office, place: str) -> None:
    system = office.system
    good, bad = office.submit(b"one"), office.submit(b"two")
    for artifact in (good, bad):
        office.promote(artifact)
    damage(system, bad)
    environment = {"OML_FAILPOINT": place, "OML_LAKE_ATTEMPTS": "2"}
    killed = system.oml("lake", "drain", "--once", env=environment)
    assert killed.returncode == -signal.SIGKILL, f"it never came to {place}: {killed.stderr}"
    expect_all(system)
    assert letters(system) == [("silver.claims", "artifact.promoted", DAMAGED)]
    assert set(states(system)) == {str(good)}


def test_a_row_mended_after_it_was_passed_over_stays_out_until_it_is_requeued(
    office: Office,
) -> None:
    system = office.system
    artifact = office.submit(b"one")
    office.promote(artifact)
    ciphertext = damage(system, artifact)
    killed = system.oml(
        "lake", "drain", "--once", env={"OML_FAILPOINT": "row.skipped", "OML_LAKE_ATTEMPTS": "1"}
    )
    assert killed.returncode == -signal.SIGKILL
    mend(system, artifact, ciphertext)
    expect_all(system)
    assert states(system) == {}
    system.superuser.execute("select oml_requeue(%s, 'mended')", (first_dead(system),))
    expect_all(system)
    assert states(system) == {str(artifact): "promoted"}


def test_an_event_of_bronze_is_never_passed_over(office: Office) -> None:
    superuser = office.system.superuser
    some = value(superuser, "select min(seq) from oml.outbox")
    with pytest.raises(psycopg.Error, match="cannot be passed over"):
        superuser.execute("select oml.lake_skip(%s, 'x', 1)", (some,))
    with pytest.raises(psycopg.Error, match="no dead letter"):
        superuser.execute("select oml_requeue(%s, 'x')", (some,))


def test_the_command_line_lists_dead_letters_and_queues_them_again(office: Office) -> None:
    system = office.system
    artifacts = [office.submit(name) for name in (b"one", b"two")]
    ciphertexts = []
    for artifact in artifacts:
        office.promote(artifact)
        ciphertexts.append(damage(system, artifact))
    drain(system, **FAST)
    listed = system.oml("lake", "dead-letters", "--json")
    assert listed.returncode == 1, listed.stderr
    found = json.loads(listed.stdout)["dead_letters"]
    assert [(d["target"], d["artifact_id"], d["reason"], d["requeued_as"]) for d in found] == [
        ("silver.claims", str(artifact), DAMAGED, None) for artifact in artifacts
    ]
    assert system.oml("lake", "requeue", "--reason", "mended").returncode == 2
    for artifact, ciphertext in zip(artifacts, ciphertexts, strict=True):
        mend(system, artifact, ciphertext)
    first = str(found[0]["outbox_seq"])
    one = system.oml("lake", "requeue", first, "--reason", "mended", "--json")
    assert one.returncode == 0, one.stderr
    assert system.oml("lake", "requeue", "--all", "--reason", "mended").returncode == 0
    listed = system.oml("lake", "dead-letters", "--all", "--json")
    assert listed.returncode == 0
    assert all(d["requeued_as"] for d in json.loads(listed.stdout)["dead_letters"])
    expect_all(system)
    assert set(states(system)) == set(map(str, artifacts))


# -- a rival that read the row while it could be applied, or while it could not ----------------


def stop(system: System, place: str) -> subprocess.Popen[str]:
    """Start a drain and wait until it has stopped itself at this place."""
    rival = system.start_oml(
        "lake", "drain", "--once", env={"OML_FAILPOINT": f"{place}:stop", "OML_LAKE_ATTEMPTS": "1"}
    )
    await_stop(rival)
    return rival


def go_on(rival: subprocess.Popen[str]) -> None:
    rival.send_signal(signal.SIGCONT)
    _, said = rival.communicate(timeout=PATIENCE_S)
    assert rival.returncode == 0, said


def test_what_a_rival_read_before_it_was_passed_over_is_not_applied_afterwards(
    office: Office,
) -> None:
    system = office.system
    drain(system)
    artifact = office.submit(b"one")
    office.promote(artifact)
    rival = stop(system, "table.rows-read:2")
    ciphertext = damage(system, artifact)
    drain(system, **FAST)
    office.chief.execute("select oml_demote(%s, 'wrong')", (artifact,))
    drain(system, **FAST)
    assert len(letters(system)) == 2
    go_on(rival)
    assert states(system) == {}
    expect_all(system)
    mend(system, artifact, ciphertext)
    system.superuser.execute("select oml_requeue(%s, 'mended')", (first_dead(system),))
    expect_all(system)
    assert states(system) == {str(artifact): "demoted"}


def test_what_a_rival_has_applied_meanwhile_is_not_passed_over(office: Office) -> None:
    system = office.system
    drain(system)
    artifact = office.submit(b"one")
    office.promote(artifact)
    ciphertext = damage(system, artifact)
    rival = stop(system, "row.given-up:1")
    mend(system, artifact, ciphertext)
    drain(system)
    go_on(rival)
    assert letters(system) == []
    office.chief.execute("select oml_demote(%s, 'wrong')", (artifact,))
    expect_all(system)
    assert states(system) == {str(artifact): "demoted"}


def test_a_row_that_was_passed_over_as_a_rival_applied_it_follows_what_changes_it(
    office: Office,
) -> None:
    system = office.system
    artifact = office.submit(b"one")
    office.promote(artifact)
    drain(system)
    applied = value(
        system.superuser, "select max(seq) from oml.outbox where target = 'silver.claims'"
    )
    system.superuser.execute("select oml.lake_skip(%s, 'a moment too late', 1)", (applied,))
    office.chief.execute("select oml_demote(%s, 'wrong')", (artifact,))
    drain(system, **FAST)
    assert letters(system) == [
        ("silver.claims", "artifact.promoted", "a moment too late"),
        ("silver.claims", "artifact.demoted", "the row that it changes is a dead letter"),
    ]
    assert states(system) == {str(artifact): "demoted"}
    system.superuser.execute("select oml_requeue(%s, 'to be sure')", (first_dead(system),))
    expect_all(system)
    assert states(system) == {str(artifact): "demoted"}


def test_a_change_that_stays_faulty_is_passed_over_once_and_holds_up_nobody(
    office: Office,
) -> None:
    system = office.system
    bad, good = office.submit(b"one"), office.submit(b"two")
    office.promote(bad)
    office.chief.execute("select oml_demote(%s, 'wrong')", (bad,))
    office.promote(good)
    tamper(
        system, "artifact_version",
        "update oml.artifact_version set submitted_seq = 1 where artifact_id = %s", bad,
        guard="guard_columns",
    )  # fmt: skip
    drain(system, batch_rows=1, **FAST)
    lost = "the event of its submission is not where oml.artifact_version says"
    assert letters(system) == [
        ("silver.claims", "artifact.promoted", lost),
        ("silver.attachments", "artifact.promoted", lost),
        ("silver.claims", "artifact.demoted", lost),
    ]
    assert states(system) == {str(good): "promoted"}
    drain(system, **FAST)
    expect_exact(system)
    expect_gold(system)
    expect_journalled(system)
