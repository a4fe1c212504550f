"""A lake and a database that contradict each other are named, and nothing is written."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lakes import (
    NOBODY,
    append,
    delta,
    disown,
    drain,
    expect_exact,
    frontier,
    outbox_max,
    prepare,
)
from oml.dev.cluster import SUPERUSER
from oml.lake.schema import BRONZE_EVENTS
from oml.lake.table import APP_ID, LakeError
from systems import System

FORK = "Run oml reconcile before going on"


def drained(system: System, events: int = 6) -> None:
    append(prepare(system), events)
    drain(system, batch_rows=4)


def refused(
    system: System,
    *needed: str,
    version: int | None = None,
    sqlstate: str | None = None,
    hint: str = "",
    **env: str,
) -> str:
    """Drain; insist on status 2, on a hint, on these words, and on an untouched table."""
    reached = frontier(system)
    before = delta(system).version() if version is None else version
    done = system.oml("lake", "drain", "--once", "--json", env=env)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    report = json.loads(done.stderr)
    assert report["hint"] and hint in report["hint"], report
    assert report["sqlstate"] == sqlstate
    for words in needed:
        assert words in report["error"], report
    assert "\n" not in report["error"] and "\x1b" not in report["error"]
    assert frontier(system) == reached
    if version is None:
        assert delta(system).version() == before
    return str(report["error"])


def unguarded(system: System, table: str, trigger: str, statement: str) -> None:
    """Change a table behind one of its guards, as a superuser can."""
    system.superuser.execute(f"alter table oml.{table} disable trigger {trigger}".encode())
    system.superuser.execute(statement.encode())
    system.superuser.execute(f"alter table oml.{table} enable always trigger {trigger}".encode())


def restored_to(system: System, dump: Path) -> None:
    """Put the database back to an older dump, in place."""
    name = system.database
    connection = system.connect(SUPERUSER)
    connection.execute("select oml_configure('lake_url', %s)", (system.lake_url,))
    connection.close()
    system.superuser.close()
    at = system.cluster.dsn(SUPERUSER, "postgres")
    for statement in (f'drop database "{name}" with (force)', f'create database "{name}"'):
        subprocess.run(["psql", "-qX", "-d", at, "-c", statement], check=True)
    subprocess.run(["pg_restore", "-d", system.dsn(SUPERUSER), str(dump)], check=True)
    system.superuser.execute("select oml_adopt('past what oml adopt would have said')")
    disown(system)


def dumped(system: System, directory: Path) -> Path:
    dump = directory / "dump"
    subprocess.run(["pg_dump", "-Fc", "-f", dump, "-d", system.dsn(SUPERUSER)], check=True)
    return dump


def drained_beyond(system: System, directory: Path) -> tuple[Path, int, int]:
    """Drain past a dump; return it, and the outbox's end in it and in the lake."""
    drained(system)
    dump = dumped(system, directory)
    older = outbox_max(system)
    append(system.connect("app"), 5)
    drain(system)
    return dump, older, outbox_max(system)


def test_a_lake_ahead_of_a_restored_database_is_refused(system: System, tmp_path: Path) -> None:
    dump, older, newer = drained_beyond(system, tmp_path)
    restored_to(system, dump)
    refused(system, "bronze.events", str(newer), f"ends at {older + 1}", hint=FORK)


def test_a_lake_ahead_of_an_older_copy_of_its_database_is_refused(
    system: System, tmp_path: Path
) -> None:
    dump, older, newer = drained_beyond(system, tmp_path)
    with System(system.cluster, f"{system.database}_older", system.lake) as copy:
        restored_to(copy, dump)
        with pytest.raises(LakeError, match=f"bronze.events has applied outbox seq {newer}"):
            drain(copy)
        refused(copy, "bronze.events", str(newer), f"ends at {older + 1}", hint=FORK)
    disown(system)
    append(system.connect("app"), 2)
    drain(system)
    expect_exact(system)


def test_outbox_numbers_that_stand_for_other_events_now_are_refused(
    system: System, tmp_path: Path
) -> None:
    drained(system)
    dump = dumped(system, tmp_path)
    append(system.connect("app"), 5)
    drain(system)
    restored_to(system, dump)
    append(system.connect("app"), 7)
    refused(system, "bronze.events", "holds event", hint=FORK)


def test_recorded_bounds_that_straddle_the_frontier_are_refused(system: System) -> None:
    drained(system)
    end = outbox_max(system)
    frontier = f"update oml.frontier set seq = {end - 1}"
    unguarded(system, "frontier", "guard_forward", frontier)
    refused(system, "straddles", str(end - 1), hint=FORK)


def test_a_frontier_beyond_the_outbox_is_refused(system: System) -> None:
    drained(system)
    system.superuser.execute("update oml.frontier set seq = 1000000")
    refused(system, "1000000", str(outbox_max(system)), hint=FORK)


def test_a_version_without_its_bounds_is_refused(system: System) -> None:
    drained(system)
    table = delta(system)
    version = outbox_max(system) + 1
    properties = CommitProperties(app_transactions=[Transaction(APP_ID, version)])
    empty = BRONZE_EVENTS.arrow_schema().empty_table()
    write_deltalake(table, empty, mode="append", commit_properties=properties)
    append(system.connect("app"), 5)
    refused(system, f"bronze.events stands at {version} but records", hint=FORK)


def test_another_deployments_table_is_refused(system: System) -> None:
    drained(system)
    delta(system).alter.set_table_description("OML bronze.events, generation 1, deployment x")
    append(system.connect("app"))
    refused(system, "is not ours", "deployment x", hint="may not share a lake")


def test_another_deployments_table_is_not_taken_over_by_a_first_drain(system: System) -> None:
    append(prepare(system))
    url = f"{system.lake_url}/{BRONZE_EVENTS.location}"
    DeltaTable.create(url, BRONZE_EVENTS.arrow_schema(), description="somebody else's")
    refused(system, "is not ours", "somebody else's", hint="may not share a lake")


def test_a_table_whose_columns_drifted_is_refused(system: System) -> None:
    drained(system)
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    delta(system).alter.add_columns([Field("stray", PrimitiveType("string"))])
    append(system.connect("app"))
    refused(system, "columns", "stray", hint="changed outside OML")


def test_a_recorded_table_that_is_gone_is_not_made_anew(system: System) -> None:
    drained(system)
    place = system.lake / BRONZE_EVENTS.location
    shutil.rmtree(place)
    append(system.connect("app"))
    refused(system, "bronze.events exists", str(place), version=0, hint="never makes")
    assert not place.exists()


def test_a_table_whose_log_is_damaged_is_refused(system: System) -> None:
    drained(system)
    version = delta(system).version()
    log = system.lake / BRONZE_EVENTS.location / "_delta_log" / f"{version:020}.json"
    log.write_text('{"commitInfo": ')
    append(system.connect("app"))
    refused(system, "bronze.events cannot be read", str(system.lake), version=version)
    assert log.read_text() == '{"commitInfo": '


def test_an_outbox_row_whose_event_is_gone_stops_the_writer(system: System) -> None:
    drained(system)
    append(system.connect("app"), 3)
    gone = outbox_max(system) - 1
    unguarded(
        system,
        "journal",
        "guard_rows",
        "delete from oml.journal j using oml.outbox o"
        f" where o.seq = {gone} and j.tenant_id = o.tenant_id and j.seq = o.chain_seq",
    )
    refused(system, "the journal lacks", str(gone), sqlstate="OM063", hint="Run oml verify")


@dataclass(frozen=True)
class Unusable:
    """A place that takes no lake: its environment, and what is said about it."""

    env: dict[str, str]
    error: str
    hint: str


def no_lake(system: System) -> Unusable:
    unguarded(system, "setting", "guard_rows", "delete from oml.setting where name = 'lake_url'")
    return Unusable({"OML_LAKE_URL": ""}, "no lake is configured", "oml_configure('lake_url'")


def not_a_directory(system: System) -> Unusable:
    (system.lake / "file").write_text("no directory")
    url = f"{system.lake_url}/file"
    return Unusable({"OML_LAKE_URL": url}, "not what should be there", "Nobody but OML")


def unknown_scheme(system: System) -> Unusable:
    url = "gopher://lake"
    return Unusable({"OML_LAKE_URL": url}, f"'{url}' is no place", "file:/// and a path")


def no_scheme(system: System) -> Unusable:
    url = "lake/here"
    return Unusable({"OML_LAKE_URL": url}, f"'{url}' is no place", "file:/// and a path")


def a_path(system: System) -> Unusable:
    url = str(system.lake / "here")
    return Unusable({"OML_LAKE_URL": url}, f"'{url}' is no place", "file:/// and a path")


def another_host(system: System) -> Unusable:
    url = "file://host/lake"
    return Unusable({"OML_LAKE_URL": url}, f"'{url}' is no place", "file:/// and a path")


def looks_encoded(system: System) -> Unusable:
    url = f"{system.lake_url}/a%2520b"
    return Unusable({"OML_LAKE_URL": url}, f"'{url}' is no place", "percent-encoded")


def unreadable_to_the_store(system: System) -> Unusable:
    url = f"{system.lake_url}/a%5Bb%5D"
    return Unusable({"OML_LAKE_URL": url}, f"'{url}' is no place", "file:/// and a path")


def no_bucket(system: System) -> Unusable:
    return Unusable({"OML_LAKE_URL": "s3://"}, "'s3://' is no place", "s3:// and a place")


def overwriting_store(system: System) -> Unusable:
    options = json.dumps({"aws_conditional_put": "disabled"})
    env = {"OML_LAKE_URL": "s3://lake/here", "OML_LAKE_STORAGE_OPTIONS": options}
    return Unusable(env, "aws_conditional_put is set", "conditional writes")


def overwriting_environment(system: System) -> Unusable:
    env = {"OML_LAKE_URL": "s3://lake/here", "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    return Unusable(env, "AWS_S3_ALLOW_UNSAFE_RENAME is set", "conditional writes")


def unreachable_store(system: System) -> Unusable:
    env = {"OML_LAKE_URL": "s3://lake/here", "OML_LAKE_STORAGE_OPTIONS": json.dumps(NOBODY)}
    return Unusable(env, "s3://lake/here/owner.json cannot be reached", "Check the URL")


UNUSABLE = [
    no_lake,
    not_a_directory,
    unknown_scheme,
    no_scheme,
    a_path,
    another_host,
    looks_encoded,
    unreadable_to_the_store,
    no_bucket,
    overwriting_store,
    overwriting_environment,
    unreachable_store,
]


@pytest.mark.parametrize("place", UNUSABLE)
def test_a_lake_that_cannot_be_written_is_refused_in_plain_words(
    system: System, place: Callable[[System], Unusable]
) -> None:
    append(prepare(system))
    unusable = place(system)
    before = sorted(system.lake.rglob("*"))
    refused(system, unusable.error, version=0, hint=unusable.hint, **unusable.env)
    assert sorted(system.lake.rglob("*")) == before
    assert system.superuser.execute("select * from oml.lake_tables()").fetchall() == []


def drain_where_no_file_takes_a_byte(system: System) -> dict[str, str]:
    """Drain where every write to a file fails, as on a full disk; return the report on stderr."""
    command = [sys.executable, "-m", "oml", "lake", "drain", "--once", "--json"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -f 0 && exec "$@"', "sh", *command],
        env=system.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    # The last line: the Delta library's own threads may write to stderr before it.
    report: dict[str, str] = json.loads(done.stderr.splitlines()[-1])
    assert "\n" not in report["error"]
    return report


def test_a_first_drain_to_a_full_disk_is_refused_and_the_next_one_succeeds(system: System) -> None:
    append(prepare(system), 3)
    report = drain_where_no_file_takes_a_byte(system)
    assert f"{system.lake}/owner.json cannot be used" in report["error"]
    assert "has room" in report["hint"]
    assert frontier(system) == 0
    assert system.superuser.execute("select * from oml.lake_tables()").fetchall() == []
    drain(system)
    expect_exact(system)


def test_a_batch_that_a_full_disk_does_not_take_is_left_to_the_next_drain(system: System) -> None:
    drained(system)
    reached, version = frontier(system), delta(system).version()
    append(system.connect("app"), 3)
    report = drain_where_no_file_takes_a_byte(system)
    batch = f"batch ({reached}, {outbox_max(system)}] could not be committed to bronze.events"
    assert report["error"].startswith(batch)
    assert "the next drain tries the same batch again" in report["hint"]
    assert (frontier(system), delta(system).version()) == (reached, version)
    drain(system)
    expect_exact(system)


@pytest.mark.parametrize("wanted", ["nosuch", "batch.commited", "batch.committed:x"])
def test_a_fail_point_that_does_not_exist_is_refused(system: System, wanted: str) -> None:
    append(prepare(system))
    done = system.oml("lake", "drain", "--once", "--json", env={"OML_FAILPOINT": wanted})
    assert done.returncode == 2, done.stderr
    assert "names no place" in json.loads(done.stderr)["error"]
    assert frontier(system) == 0


def test_a_login_without_the_group_is_told_which_one_it_lacks(system: System) -> None:
    append(prepare(system))
    done = system.oml("lake", "drain", "--once", "--json", user="stranger")
    assert done.returncode == 2, done.stderr
    assert "oml_daemon" in json.loads(done.stderr)["hint"]
