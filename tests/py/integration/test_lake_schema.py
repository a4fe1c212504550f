"""A column added to the journal reaches the lake, or the check says that it does not."""

import json

import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

from lakes import append, drain, prepare
from oml.lake.drift import NOT_IN_LAKE
from oml.lake.schema import BRONZE_EVENTS, SILVER_CLAIMS, TABLES
from systems import System


def check(system: System) -> tuple[int, list[tuple[str, str | None]]]:
    """Run the check; return its exit code, and table and column of each drift."""
    done = system.oml("lake", "schema", "--check", "--json")
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)["drifts"]
    return done.returncode, [(drift["where"], drift["column"]) for drift in found]


def test_what_is_declared_is_what_the_database_and_the_lake_have(system: System) -> None:
    assert check(system) == (0, []), "before there is a lake"
    append(prepare(system))
    drain(system)
    assert check(system) == (0, [])


def test_a_column_that_is_added_to_the_journal_fails_the_check(system: System) -> None:
    system.superuser.execute("alter table oml.journal add column verdict text")
    assert check(system) == (1, [("bronze.events", "verdict")])


@pytest.mark.parametrize(
    ("function", "column", "kind"),
    [
        ("lake_rows", "subject_id", "text"),
        ("lake_batch", "subject_id", "text"),
        ("lake_claims", "writer", "text"),
        ("lake_attachments", "media_type", "text"),
    ],
)
def test_a_column_that_the_database_does_not_hand_out_fails_the_check(
    system: System, function: str, column: str, kind: str
) -> None:
    tables = {t.reader: t for t in TABLES if t.reader}
    table = tables.get(f"oml.{function}", BRONZE_EVENTS)
    definition = system.superuser.execute(
        "select pg_get_functiondef(%s::regproc)", (f"oml.{function}",)
    ).fetchone()
    assert definition is not None
    for change, wanted in ((f"{column}_gone {kind}", column), (f"{column} uuid", column)):
        changed = definition[0].replace(f"{column} {kind}", change, 1)
        assert changed != definition[0]
        system.superuser.execute(f"alter extension oml drop function oml.{function}".encode())
        system.superuser.execute(f"drop function oml.{function}".encode())
        system.superuser.execute(changed.encode())
        system.superuser.execute(
            f"grant execute on function oml.{function} to oml_daemon, oml_auditor".encode()
        )
        system.superuser.execute(f"alter extension oml add function oml.{function}".encode())
        assert check(system) == (1, [(table.name, wanted)])


def test_a_table_of_the_lake_that_was_changed_fails_the_check(system: System) -> None:
    append(prepare(system))
    drain(system)
    table = DeltaTable(f"{system.lake_url}/{SILVER_CLAIMS.location}")
    table.alter.add_columns([Field("more", PrimitiveType("string"))])
    assert check(system) == (1, [("silver.claims", None)])


def test_no_table_forgets_its_transactions_and_each_has_few_statistics(system: System) -> None:
    """With a retention, old transactions read as none: all would be applied once more."""
    append(prepare(system))
    drain(system)
    for table in TABLES:
        found = DeltaTable(f"{system.lake_url}/{table.location}").metadata().configuration
        assert "delta.setTransactionRetentionDuration" not in found
        assert found["delta.dataSkippingStatsColumns"] == ",".join(table.statistics)
        assert found["delta.checkpointInterval"] == "50"


def test_what_stays_out_of_the_lake_is_of_the_journal_and_has_a_reason(system: System) -> None:
    columns = {
        name
        for (name,) in system.superuser.execute(
            "select attname::text from pg_attribute where attrelid = 'oml.journal'::regclass"
            " and attnum > 0"
        )
    }
    assert set(NOT_IN_LAKE) <= columns
    assert not set(NOT_IN_LAKE) & {column.name for column in BRONZE_EVENTS.columns}
    assert all(NOT_IN_LAKE.values())
