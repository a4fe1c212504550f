"""A batch that changes older rows: before the batch, few at a time, whatever happens between."""

import os
import resource
import signal
from collections.abc import Callable
from uuid import UUID

import pytest
from damages import damage, first_dead, mend

from judge import expect_gold, expect_silver, held
from lakes import (
    PATIENCE_S,
    append,
    await_stop,
    delta,
    drain,
    expect_exact,
    file_sizes,
    lake_writer,
    prepare,
    value,
)
from oml.lake import table as table_module
from oml.lake import writer as writer_module
from oml.lake.schema import SILVER_CLAIMS
from seaweed import on_stores
from submissions import Office
from systems import System

MANY = 9
EACH = 3
"""Changes of one commit, in tests."""
MIB = 2**20
WRONG = "select oml_demote(%s, 'wrong')"


@pytest.fixture
def office(system: System) -> Office:
    prepare(system, "globex")
    return Office(system)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a commit change EACH rows."""
    monkeypatch.setattr(table_module, "_CHANGED_AT_A_TIME", EACH)


def release(office: Office, body: bytes) -> UUID:
    artifact = office.submit(body)
    office.promote(artifact)
    return artifact


def in_a_file_each(office: Office) -> list[UUID]:
    """Return versions that silver.claims has in a file each."""
    released = []
    for number in range(MANY):
        released.append(release(office, f"number {number}".encode()))
        drain(office.system)
    return released


def expect_all(system: System) -> None:
    drain(system)
    expect_exact(system)
    expect_silver(system)
    expect_gold(system)


def states(system: System) -> list[str]:
    at = SILVER_CLAIMS.arrow_schema().names.index("state")
    return sorted(row[at] for row in held(system, SILVER_CLAIMS))


def commits(system: System) -> int:
    return int(delta(system, SILVER_CLAIMS).version())


@on_stores
@pytest.mark.parametrize("with_new", [False, True])
def test_many_changes_are_made_few_at_a_time_and_then_the_batch_is_applied(
    office: Office, few: None, with_new: bool
) -> None:
    system = office.system
    for artifact in in_a_file_each(office):
        office.chief.execute(WRONG, (artifact,))
    if with_new:
        release(office, b"new")
    version = commits(system)
    assert drain(system).batches == 1
    assert commits(system) - version == MANY // EACH + 1
    expect_all(system)
    assert states(system) == ["demoted"] * MANY + ["promoted"] * with_new


@on_stores
def test_a_crash_behind_a_change_loses_and_doubles_nothing(office: Office) -> None:
    system = office.system
    for artifact in in_a_file_each(office):
        office.chief.execute(WRONG, (artifact,))
    release(office, b"new")
    killed = system.oml("lake", "drain", "--once", env={"OML_FAILPOINT": "table.changed"})
    assert killed.returncode == -signal.SIGKILL, f"it never came there: {killed.stderr}"
    assert states(system) == ["demoted"] * MANY, "changed, and the batch is not applied"
    version = commits(system)
    drain(system, batch_rows=1000)
    assert commits(system) == version + 1, "what is changed already is not written anew"
    expect_all(system)
    assert states(system) == ["demoted"] * MANY + ["promoted"]


def test_a_rival_paused_behind_a_change_changes_nothing_later(office: Office) -> None:
    system = office.system
    released = in_a_file_each(office)
    office.chief.execute("select oml_create_workarea('archive')")
    for artifact in released:
        office.chief.execute("select oml_reassign(%s, 'archive', 'over')", (artifact,))
    environment = {"OML_FAILPOINT": "table.changed:1:stop"}
    rival = system.start_oml("lake", "drain", "--once", env=environment)
    await_stop(rival)
    for artifact in released:
        office.chief.execute(WRONG, (artifact,))
    drain(system)
    rival.send_signal(signal.SIGCONT)
    _, said = rival.communicate(timeout=PATIENCE_S)
    assert rival.returncode == 0, said
    expect_all(system)
    assert states(system) == ["demoted"] * MANY


def at_first_change(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[str]:
    """Have ``act`` done behind the first change; what is returned has its place then."""
    met: list[str] = []

    def failpoint(name: str) -> None:
        if name == "table.changed" and not met:
            met.append(name)
            act()

    monkeypatch.setattr(writer_module, "failpoint", failpoint)
    return met


def test_a_rival_that_changes_rows_to_what_an_earlier_batch_has_takes_nothing_back(
    office: Office, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = office.system
    released = in_a_file_each(office)
    office.chief.execute("select oml_create_workarea('archive')")
    drain(system)
    older = commits(system)
    for artifact in released:
        office.chief.execute("select oml_reassign(%s, 'archive', 'over')", (artifact,))
    drain(system)
    for artifact in released:
        office.chief.execute(WRONG, (artifact,))
    append(system.connect("app"), 1, "globex")
    drain(system)
    roll_back(system, older)

    def rival() -> None:
        env = {"OML_FAILPOINT": "table.changed", "OML_BATCH_ROWS": str(2 * MANY)}
        killed = system.oml("lake", "drain", "--once", env=env)
        assert killed.returncode == -signal.SIGKILL, killed.stderr

    met = at_first_change(monkeypatch, rival)
    with lake_writer(system) as writer:
        writer.drain()
    assert met
    monkeypatch.undo()
    expect_all(system)
    assert states(system) == ["demoted"] * MANY


def roll_back(system: System, version: int) -> None:
    """Have silver.claims come back as it was at a version."""
    for entry in (system.lake / SILVER_CLAIMS.location / "_delta_log").glob("*.json"):
        if int(entry.stem) > version:
            entry.unlink()


def test_a_change_that_the_store_loses_before_the_batch_is_applied_is_made_again(
    office: Office, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = office.system
    for artifact in in_a_file_each(office):
        office.chief.execute(WRONG, (artifact,))
    met = at_first_change(monkeypatch, lambda: roll_back(system, commits(system) - 1))
    with lake_writer(system) as writer:
        writer.drain()
    assert met
    monkeypatch.undo()
    expect_all(system)
    assert states(system) == ["demoted"] * MANY


def test_a_requeued_row_comes_with_the_batch_and_not_before_it(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = office.system
    bad = office.submit(b"bad")
    office.promote(bad)
    body = damage(system, bad)
    drain(system, lake_attempts=1)
    released = in_a_file_each(office)
    mend(system, bad, body)
    system.superuser.execute("select oml_requeue(%s, 'mended')", (first_dead(system),))
    for artifact in released:
        office.chief.execute(WRONG, (artifact,))
    killed = system.oml("lake", "drain", "--once", env={"OML_FAILPOINT": "table.changed"})
    assert killed.returncode == -signal.SIGKILL
    damage(system, bad)
    drain(system, lake_attempts=1)
    expect_silver(system)
    mend(system, bad, body)
    system.superuser.execute("select oml_requeue(%s, 'mended')", (first_dead(system),))
    expect_all(system)


def test_a_row_that_is_requeued_though_it_is_there_is_replaced_whole(office: Office) -> None:
    system = office.system
    released = in_a_file_each(office)
    applied = value(
        system.superuser, "select max(seq) from oml.outbox where target = 'silver.claims'"
    )
    system.superuser.execute("select oml.lake_skip(%s, 'a moment too late', 1)", (applied,))
    system.superuser.execute("select oml_requeue(%s, 'to be sure')", (applied,))
    office.chief.execute(WRONG, (released[0],))
    drain(system)
    expect_all(system)
    at = SILVER_CLAIMS.arrow_schema().names.index("outbox_seq")
    assert max(row[at] for row in held(system, SILVER_CLAIMS)) > applied


def peak_bytes(system: System) -> int:
    """Drain in a process of its own and return the most memory that it had."""
    draining = system.start_oml("lake", "drain", "--once")
    _, status, used = os.wait4(draining.pid, 0)
    draining.returncode = os.waitstatus_to_exitcode(status)
    assert draining.returncode == 0, draining.communicate()
    assert isinstance(used, resource.struct_rusage)
    return used.ru_maxrss * 1024


def test_the_memory_that_changes_take_is_bounded_whatever_files_they_touch(
    office: Office,
) -> None:
    system, small = office.system, []
    for _ in range(16):
        small.append(release(office, b"small"))
        for _ in range(6):
            release(office, b"x" * MIB)
        drain(system, batch_bytes=64 * MIB)
    size = sum(file_sizes(system, SILVER_CLAIMS))
    assert size > 90 * MIB
    office.chief.execute(WRONG, (small[0],))
    one = peak_bytes(system)
    for artifact in small[1:]:
        office.chief.execute(WRONG, (artifact,))
    many = peak_bytes(system)
    assert many - one < 2 * size, f"{many} bytes, for one change {one}"
    expect_all(system)
    assert states(system).count("demoted") == len(small)
