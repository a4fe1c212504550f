"""Silver and gold follow the journal: retracts in stream order, in one batch and across batches."""

import random
from uuid import UUID

import pytest

from judge import expect_gold, expect_silver, held
from lakes import delta, drain, expect_exact, prepare
from oml.lake.schema import (
    BRONZE_EVENTS,
    GOLD_LINEAGE,
    GOLD_TENANT_DAILY,
    SILVER_ATTACHMENTS,
    SILVER_CLAIMS,
    TABLES,
    LakeTable,
)
from seaweed import on_stores
from submissions import Office, submit
from systems import System

SEED = 7
pytestmark = on_stores
STEPS = 60


@pytest.fixture
def office(system: System) -> Office:
    """An office with a second workarea, and another tenant beside it."""
    prepare(system, "globex")
    made = Office(system)
    made.chief.execute("select oml_create_workarea('archive')")
    return made


def expect_all(system: System) -> None:
    """Insist that all tables are what they must be."""
    expect_exact(system)
    expect_silver(system)
    expect_gold(system)


def states(system: System) -> dict[str, str]:
    """Return the state of each claim in silver, by artifact."""
    at = SILVER_CLAIMS.arrow_schema().names.index("state")
    return {row[2]: row[at] for row in held(system, SILVER_CLAIMS)}


def demote(office: Office, artifact: UUID) -> None:
    office.chief.execute("select oml_demote(%s, 'wrong')", (artifact,))


def test_released_versions_come_with_their_attachments_and_nothing_else_does(
    office: Office,
) -> None:
    first = office.submit(b"one", b"a note", b"another")
    held_back = office.submit(b"held", b"not to be seen")
    rejected = office.submit(b"rejected")
    office.reviewer.execute("select count(*) from oml_review_serve(%s)", (rejected,))
    office.reviewer.execute("select oml_verdict(%s, 'reject', 'no')", (rejected,))
    office.promote(first)
    drain(office.system)
    expect_all(office.system)
    assert states(office.system) == {str(first): "promoted"}
    assert len(held(office.system, SILVER_ATTACHMENTS)) == 2
    office.promote(held_back)
    submit(office.author, b"two", artifact=first)
    office.promote(first)
    drain(office.system)
    expect_all(office.system)
    assert len(held(office.system, SILVER_CLAIMS)) == 3
    kinds = {row[3] for row in held(office.system, GOLD_LINEAGE)}
    assert kinds == {"caused_by", "attachment_of", "supersedes"}


@pytest.mark.parametrize("batch_rows", [1, 1000])
def test_a_retract_in_the_batch_of_its_insert_or_in_a_later_one_ends_retracted(
    office: Office, batch_rows: int
) -> None:
    artifacts = [office.submit(f"number {n}".encode(), provenance="simulated") for n in range(4)]
    for artifact in artifacts:
        office.promote(artifact)
    demote(office, artifacts[0])
    office.chief.execute("select oml_reassign(%s, 'archive', 'done')", (artifacts[1],))
    office.chief.execute("select oml_end_simulation(%s, 'over')", (artifacts[2],))
    drain(office.system, batch_rows=batch_rows)
    expect_all(office.system)
    wanted = ["demoted", "reassigned", "simulation-ended", "promoted"]
    assert states(office.system) == dict(zip(map(str, artifacts), wanted, strict=True))
    office.chief.execute("select oml_reassign(%s, 'archive', 'too')", (artifacts[3],))
    demote(office, artifacts[1])
    demote(office, artifacts[3])
    drain(office.system, batch_rows=batch_rows)
    expect_all(office.system)
    assert set(states(office.system).values()) == {"demoted", "simulation-ended"}


def test_the_end_of_a_simulation_that_was_never_released_concerns_nobody(office: Office) -> None:
    artifact = office.submit(b"never seen", provenance="simulated")
    office.chief.execute("select oml_end_simulation(%s, 'over')", (artifact,))
    drain(office.system)
    expect_all(office.system)
    assert held(office.system, SILVER_CLAIMS) == []
    assert office.system.superuser.execute("select from oml.dead_letter").fetchall() == []


def test_any_course_of_events_in_batches_of_any_size_ends_as_the_fold(office: Office) -> None:
    choose = random.Random(SEED)
    versions: list[UUID] = []
    for step in range(STEPS):
        if len(versions) < 3 or choose.random() < 0.4:
            attached = [b"part"] * choose.randrange(3)
            sources = [f"{choose.choice(versions)}/1"] if versions and choose.random() < 0.5 else []
            made = office.submit(
                f"number {step}".encode(), *attached, provenance="simulated", derived_from=sources
            )
            versions.append(made)
            if choose.random() < 0.8:
                office.promote(made)
            continue
        artifact = choose.choice(versions)
        verb, state = choose.choice(
            [("demote", "promoted"), ("reassign", "promoted"), ("end_simulation", "held")]
        )
        there = office.system.superuser.execute(
            "select from oml.artifact_version where artifact_id = %s and state = %s",
            (artifact, state),
        )
        if there.fetchone() is not None:
            where = ", 'archive'" if verb == "reassign" else ""
            office.chief.execute(f"select oml_{verb}(%s{where}, 'x')".encode(), (artifact,))
        if choose.random() < 0.2:
            drain(office.system, batch_rows=choose.choice([1, 2, 7, 1000]))
    drain(office.system, batch_rows=3)
    expect_all(office.system)
    assert len(set(states(office.system).values())) == 3


def test_silver_and_gold_that_are_new_beside_an_older_bronze_catch_up(office: Office) -> None:
    artifact = office.submit(b"one", b"note")
    office.promote(artifact)
    drain(office.system, (BRONZE_EVENTS,), batch_rows=2)
    demote(office, artifact)
    drain(office.system, (BRONZE_EVENTS,))
    drain(office.system, batch_rows=3)
    expect_all(office.system)


def test_a_table_is_left_alone_by_batches_that_have_nothing_for_it(office: Office) -> None:
    office.promote(office.submit(b"one"))
    drain(office.system)
    before = {table.name: commits(office.system, table) for table in TABLES}
    office.chief.execute("select oml_create_workarea('third')")
    report = drain(office.system)
    assert report.rows == {
        "bronze.events": 1,
        "silver.claims": 0,
        "silver.attachments": 0,
        "gold.tenant_daily": 1,
        "gold.lineage": 0,
    }
    touched = {t.name for t in TABLES if commits(office.system, t) != before[t.name]}
    assert touched == {BRONZE_EVENTS.name, GOLD_TENANT_DAILY.name}
    expect_all(office.system)


def commits(system: System, table: LakeTable) -> int:
    return int(delta(system, table).version())


def test_bodies_count_for_the_size_of_a_batch(office: Office) -> None:
    for number in range(6):
        office.promote(office.submit(bytes([65 + number]) * 200_000))
    report = drain(office.system, batch_bytes=500_000)
    assert report.batches >= 6, "half of the bytes are what is read ahead"
    expect_all(office.system)
