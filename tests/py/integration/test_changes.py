"""A batch that changes many older rows: in portions of few files, whatever happens between."""

import os
import resource
import signal
from uuid import UUID

import pytest

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
)
from oml.lake.schema import SILVER_CLAIMS
from seaweed import on_stores
from submissions import Office
from systems import System

MANY = 9
EACH = 3
MIB = 2**20
WRONG = "select oml_demote(%s, 'wrong')"


@pytest.fixture
def office(system: System) -> Office:
    prepare(system, "globex")
    return Office(system)


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


def few_bytes(system: System) -> int:
    """Return batch_bytes of which a half, the bound of a portion, are the bytes of EACH files."""
    return 2 * EACH * max(file_sizes(system, SILVER_CLAIMS))


def commits(system: System) -> int:
    return int(delta(system, SILVER_CLAIMS).version())


@on_stores
@pytest.mark.parametrize("with_new", [False, True])
def test_many_changes_are_applied_in_portions_and_one_batch_all_the_same(
    office: Office, with_new: bool
) -> None:
    system = office.system
    released = in_a_file_each(office)
    for artifact in released:
        office.chief.execute(WRONG, (artifact,))
    if with_new:
        release(office, b"new")
    version = commits(system)
    report = drain(system, batch_bytes=few_bytes(system))
    assert report.batches == 1, "else nothing is shown"
    assert commits(system) - version == MANY // EACH
    expect_all(system)
    assert states(system) == ["demoted"] * MANY + ["promoted"] * with_new


@on_stores
@pytest.mark.parametrize("place", ["table.changed:1", "table.changed:2"])
def test_a_crash_between_two_portions_loses_and_doubles_nothing(office: Office, place: str) -> None:
    system = office.system
    for artifact in in_a_file_each(office):
        office.chief.execute(WRONG, (artifact,))
    release(office, b"new")
    environment = {"OML_FAILPOINT": place, "OML_BATCH_BYTES": str(few_bytes(system))}
    killed = system.oml("lake", "drain", "--once", env=environment)
    assert killed.returncode == -signal.SIGKILL, f"it never came to {place}: {killed.stderr}"
    drain(system, batch_rows=1)
    expect_all(system)
    assert states(system) == ["demoted"] * MANY + ["promoted"]


def test_a_rival_paused_between_two_portions_changes_nothing_later(office: Office) -> None:
    system = office.system
    released = in_a_file_each(office)
    office.chief.execute("select oml_create_workarea('archive')")
    for artifact in released:
        office.chief.execute("select oml_reassign(%s, 'archive', 'over')", (artifact,))
    environment = {
        "OML_FAILPOINT": "table.changed:1:stop",
        "OML_BATCH_BYTES": str(few_bytes(system)),
    }
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


def test_a_file_that_is_large_already_gets_no_new_rows_beside_a_change(office: Office) -> None:
    system = office.system
    first = [release(office, b"x" * 50_000) for _ in range(4)]
    drain(system)
    for number in range(3):
        office.chief.execute(WRONG, (first[number],))
        release(office, b"y" * 20_000)
        drain(system, batch_bytes=200_000)
    sizes = file_sizes(system, SILVER_CLAIMS)
    assert max(sizes) < 240_000, f"the file of four bodies alone: {sizes}"
    expect_all(system)


def peak_bytes(system: System, **env: str) -> int:
    """Drain in a process of its own and return the most memory that it had."""
    draining = system.start_oml("lake", "drain", "--once", env=env)
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
    one = peak_bytes(system, OML_BATCH_BYTES=str(16 * MIB))
    for artifact in small[1:]:
        office.chief.execute(WRONG, (artifact,))
    many = peak_bytes(system, OML_BATCH_BYTES=str(16 * MIB))
    assert many - one < size, f"{many} bytes, for one change {one}"
    expect_all(system)
    assert states(system).count("demoted") == len(small)


def test_changes_of_a_table_that_is_rolled_back_meanwhile_are_made_again(office: Office) -> None:
    system = office.system
    released = in_a_file_each(office)
    for artifact in released:
        office.chief.execute(WRONG, (artifact,))
    older = delta(system, SILVER_CLAIMS).version()
    with lake_writer(system, batch_bytes=few_bytes(system)) as writer:
        writer.drain()
    log = system.lake / SILVER_CLAIMS.location / "_delta_log"
    for entry in log.glob("*.json"):
        if int(entry.stem) > older:
            entry.unlink()
    append(system.connect("app"), 1)
    expect_all(system)
    assert states(system) == ["demoted"] * MANY
