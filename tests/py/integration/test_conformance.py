"""The behaviours of delta-rs that exactly-once rests on, held against the pinned version.

An upgrade that changes one of them fails here first: read docs/explanation/exactly-once.md then.
"""

import contextlib
import json
import re
import shutil
import threading
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from seaweed import Bucket

APP = "conformance"
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
CONFIGURATION = {"delta.checkpointInterval": "50", "delta.dataSkippingStatsColumns": "n"}


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": list(numbers), "text": [f"text {n}" for n in numbers]}, schema=SCHEMA)


def transaction(at: int, *others: tuple[str, int]) -> CommitProperties:
    ids = [Transaction(APP, at), *(Transaction(name, value) for name, value in others)]
    return CommitProperties(app_transactions=ids)


def append(table: DeltaTable, at: int, data: pa.Table) -> None:
    write_deltalake(table, data, mode="append", commit_properties=transaction(at))


def numbers(table: DeltaTable, predicate: str | None = None) -> list[int]:
    stream = table.scan(columns=["n"], predicate=predicate)
    return sorted(pa.RecordBatchReader.from_stream(stream).read_all()["n"].to_pylist())


@pytest.fixture
def place(tmp_path: Path) -> str:
    url = str(tmp_path / "table")
    DeltaTable.create(url, SCHEMA, configuration=CONFIGURATION)
    return url


def test_the_version_under_test_is_the_pinned_one() -> None:
    project = Path(__file__).parents[3] / "python" / "pyproject.toml"
    needed = tomllib.loads(project.read_text())["project"]["dependencies"]
    (pin,) = [requirement for requirement in needed if requirement.startswith("deltalake")]
    assert pin == f"deltalake=={version('deltalake')}"


def test_a_commit_carries_several_application_transactions(place: str) -> None:
    properties = transaction(7, (f"{APP}/frontier", 3), (f"{APP}/batch_end", 7))
    write_deltalake(DeltaTable(place), rows(1), mode="append", commit_properties=properties)
    table = DeltaTable(place)
    assert table.transaction_version(APP) == 7
    assert table.transaction_version(f"{APP}/frontier") == 3
    assert table.transaction_version(f"{APP}/batch_end") == 7
    assert table.transaction_version("another") is None


def test_a_commit_through_a_stale_object_fails(place: str) -> None:
    stale = DeltaTable(place)
    append(DeltaTable(place), 1, rows(1))
    with pytest.raises(CommitFailedError):
        append(stale, 2, rows(2))
    assert numbers(DeltaTable(place)) == [1]


def test_a_commit_through_a_fresh_object_succeeds_whatever_it_repeats(place: str) -> None:
    append(DeltaTable(place), 1, rows(1))
    append(DeltaTable(place), 1, rows(1))
    assert numbers(DeltaTable(place)) == [1, 1], "so check and commit must share one object"


def race(*attempts: Callable[[], None]) -> int:
    """Run the attempts at one moment; return how many raised nothing."""
    start = threading.Barrier(len(attempts))

    def run(attempt: Callable[[], None]) -> bool:
        start.wait()
        try:
            attempt()
        except (CommitFailedError, DeltaError):
            return False
        return True

    with ThreadPoolExecutor(len(attempts)) as pool:
        return sum(pool.map(run, attempts))


def test_of_racing_commits_one_wins(place: str) -> None:
    for number in range(1, 41):
        tables = [DeltaTable(place) for _ in range(3)]
        attempts = [partial(append, table, number, rows(number)) for table in tables]
        assert race(*attempts) == 1
    assert numbers(DeltaTable(place)) == list(range(1, 41))


def test_a_lower_version_is_accepted_so_that_order_is_ours_to_keep(place: str) -> None:
    append(DeltaTable(place), 5, rows(1))
    append(DeltaTable(place), 3, rows(2))
    assert DeltaTable(place).transaction_version(APP) == 3


def test_an_append_of_no_rows_commits_its_transaction(place: str) -> None:
    append(DeltaTable(place), 9, rows())
    assert DeltaTable(place).transaction_version(APP) == 9
    assert DeltaTable(place).version() == 1


def clean_log(place: str) -> DeltaTable:
    """Fold the log into a checkpoint and remove what that makes superfluous."""
    table = DeltaTable(place)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    time.sleep(1.1)  # files younger than the retention stay, and they are dated in milliseconds
    table = DeltaTable(place)
    table.create_checkpoint()
    table.cleanup_metadata()
    return table


def test_transactions_outlive_all_maintenance(place: str) -> None:
    for number in range(1, 6):
        append(DeltaTable(place), number, rows(number))
    DeltaTable(place).optimize.compact()
    table = clean_log(place)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert not (Path(place) / "_delta_log" / f"{1:020}.json").exists()
    assert DeltaTable(place).transaction_version(APP) == 5
    assert numbers(DeltaTable(place)) == [1, 2, 3, 4, 5]


def test_custom_metadata_does_not_outlive_a_log_clean_up_so_bounds_are_transactions(
    place: str,
) -> None:
    noted = CommitProperties(
        custom_metadata={"bounds": "0,1"}, app_transactions=[Transaction(APP, 1)]
    )
    write_deltalake(DeltaTable(place), rows(1), mode="append", commit_properties=noted)
    assert any(entry.get("bounds") == "0,1" for entry in DeltaTable(place).history())
    append(DeltaTable(place), 2, rows(2))
    clean_log(place)
    assert not any("bounds" in entry for entry in DeltaTable(place).history())
    assert DeltaTable(place).transaction_version(APP) == 2


def test_a_restore_does_not_take_a_transaction_back(place: str) -> None:
    append(DeltaTable(place), 1, rows(1))
    append(DeltaTable(place), 2, rows(2))
    DeltaTable(place).restore(1)
    assert numbers(DeltaTable(place)) == [1]
    assert DeltaTable(place).transaction_version(APP) == 2


def test_a_merge_that_matches_nothing_commits_nothing_and_so_no_transaction(place: str) -> None:
    append(DeltaTable(place), 1, rows(1))
    table = DeltaTable(place)
    table.merge(
        rows(9), "t.n = s.n", source_alias="s", target_alias="t", commit_properties=transaction(2)
    ).when_matched_delete().execute()
    assert DeltaTable(place).version() == 1
    assert DeltaTable(place).transaction_version(APP) == 1


def test_an_upsert_that_matches_nothing_and_inserts_nothing_commits_nothing(place: str) -> None:
    append(DeltaTable(place), 1, rows(1))
    merge(DeltaTable(place), 2, of(_9="keep"))
    assert DeltaTable(place).version() == 1
    assert DeltaTable(place).transaction_version(APP) == 1


def test_a_commit_whose_checkpoint_fails_raises_and_has_landed(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    DeltaTable.create(url, SCHEMA, configuration={"delta.checkpointInterval": "1"})
    in_the_way = Path(url) / "_delta_log" / f"{1:020}.checkpoint.parquet"
    in_the_way.mkdir()
    with pytest.raises(DeltaError, match="directory"):
        append(DeltaTable(url), 1, rows(1))
    in_the_way.rmdir()
    assert DeltaTable(url).transaction_version(APP) == 1
    assert numbers(DeltaTable(url)) == [1]


def test_a_retention_of_transactions_forgets_those_that_have_a_time_and_ours_have_none(
    tmp_path: Path,
) -> None:
    url = str(tmp_path / "table")
    retention = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    DeltaTable.create(url, SCHEMA, configuration=retention)
    long_ago = int(time.time() * 1000) - 100_000
    both = [Transaction(APP, 1), Transaction("timed", 1, last_updated=long_ago)]
    properties = CommitProperties(app_transactions=both)
    write_deltalake(DeltaTable(url), rows(1), mode="append", commit_properties=properties)
    assert DeltaTable(url).transaction_version("timed") is None
    assert DeltaTable(url).transaction_version(APP) == 1


def test_of_two_creators_without_retries_one_wins(tmp_path: Path) -> None:
    once = CommitProperties(max_commit_retries=0)

    def create(url: str) -> None:
        DeltaTable.create(url, SCHEMA, commit_properties=once)

    for number in range(20):
        url = str(tmp_path / f"table{number}")
        assert race(partial(create, url), partial(create, url)) == 1


def test_a_scan_returns_exactly_what_matches_its_predicate(place: str) -> None:
    append(DeltaTable(place), 1, rows(*range(10)))
    append(DeltaTable(place), 2, rows(*range(10, 20)))
    assert numbers(DeltaTable(place), "n > 7 and n <= 12") == [8, 9, 10, 11, 12]
    assert numbers(DeltaTable(place), "n is null or n < 1 or n > 18") == [0, 19]


def test_a_scan_returns_the_same_before_and_after_a_compaction(place: str) -> None:
    for number in range(1, 31):
        append(DeltaTable(place), number, rows(number, -number))
    questions = ["n > 7 and n <= 12", "n is null or n < -28 or n > 29", "n = 15", "n = 1000"]
    before = [numbers(DeltaTable(place), question) for question in questions]
    assert before == [[8, 9, 10, 11, 12], [-30, -29, 30], [15], []]
    assert DeltaTable(place).optimize.compact()["numFilesRemoved"] == 30
    table = DeltaTable(place)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert [numbers(DeltaTable(place), question) for question in questions] == before
    assert numbers(DeltaTable(place)) == sorted([*range(-30, 0), *range(1, 31)])


def test_statistics_stand_in_the_log_for_declared_columns_alone(place: str) -> None:
    append(DeltaTable(place), 1, rows(41, 42))
    log = (Path(place) / "_delta_log" / f"{1:020}.json").read_text()
    (statistics,) = [
        json.loads(action["add"]["stats"])
        for action in map(json.loads, log.splitlines())
        if "add" in action
    ]
    assert statistics["minValues"] == {"n": 41}
    assert statistics["maxValues"] == {"n": 42}
    assert not re.search("text 4[12]", log)


def merge(table: DeltaTable, at: int, data: pa.Table, within: str = "true") -> dict[str, int]:
    """Upsert by n: rows that are there get the text, if their text is not ``keep``."""
    return dict(
        table.merge(
            data,
            f"t.n = s.n and ({within})",
            source_alias="s",
            target_alias="t",
            commit_properties=transaction(at),
        )
        .when_matched_update({"text": "s.text"}, "s.text <> 'keep'")
        .when_not_matched_insert({"n": "s.n", "text": "s.text"}, "s.text <> 'keep'")
        .execute()
    )


def texts(place: str) -> dict[int, str]:
    found = pa.RecordBatchReader.from_stream(DeltaTable(place).scan()).read_all()
    return dict(zip(found["n"].to_pylist(), found["text"].to_pylist(), strict=True))


def of(**values: str) -> pa.Table:
    """Make rows of n and text: ``_5="x"`` is n = 5."""
    data = {"n": [int(n[1:]) for n in values], "text": list(values.values())}
    return pa.table(data, schema=SCHEMA)


def test_a_merge_is_one_commit_with_its_transaction_and_does_what_its_predicates_say(
    place: str,
) -> None:
    append(DeltaTable(place), 1, rows(1, 2, 3))
    merge(DeltaTable(place), 2, of(_1="new", _2="keep", _4="added", _5="keep"))
    assert DeltaTable(place).version() == 2
    assert DeltaTable(place).transaction_version(APP) == 2
    assert texts(place) == {1: "new", 2: "text 2", 3: "text 3", 4: "added"}


def test_a_merge_through_a_stale_object_fails(place: str) -> None:
    append(DeltaTable(place), 1, rows(1))
    stale = DeltaTable(place)
    append(DeltaTable(place), 2, rows(2))
    with pytest.raises((CommitFailedError, DeltaError)):
        merge(stale, 3, of(_1="late"))
    assert texts(place) == {1: "text 1", 2: "text 2"}


def update(table: DeltaTable, at: int, number: int, text: str) -> dict[str, object]:
    return dict(
        table.update(
            updates={"text": f"CASE WHEN n = {number} THEN '{text}' ELSE text END"},
            predicate=f"n = {number} and text < '{text}'",
            commit_properties=transaction(at),
        )
    )


def test_an_update_is_one_commit_with_its_transaction_or_none_if_nothing_matches(
    place: str,
) -> None:
    append(DeltaTable(place), 1, rows(1, 2))
    append(DeltaTable(place), 1, rows(3))
    done = update(DeltaTable(place), 1, 2, "x")
    assert (done["num_updated_rows"], done["num_removed_files"]) == (1, 1), "the one that holds it"
    assert DeltaTable(place).version() == 3
    assert DeltaTable(place).transaction_version(APP) == 1
    assert texts(place) == {1: "text 1", 2: "x", 3: "text 3"}
    update(DeltaTable(place), 9, 2, "a")
    assert DeltaTable(place).version() == 3
    assert DeltaTable(place).transaction_version(APP) == 1


def test_an_update_through_a_stale_object_fails(place: str) -> None:
    append(DeltaTable(place), 1, rows(1, 2))
    stale = [DeltaTable(place), DeltaTable(place)]
    update(DeltaTable(place), 1, 1, "x")
    with pytest.raises((CommitFailedError, DeltaError)):
        update(stale[0], 1, 2, "x")
    with pytest.raises((CommitFailedError, DeltaError)):
        append(stale[1], 2, rows(3))
    assert texts(place) == {1: "x", 2: "text 2"}


def test_ranges_in_a_merge_leave_out_the_files_outside_them_and_no_row_within(place: str) -> None:
    for number in range(10):
        append(DeltaTable(place), number + 1, rows(*range(10 * number, 10 * number + 10)))
    within = "(t.n >= 12 and t.n <= 12) or (t.n >= 75 and t.n <= 81)"
    done = merge(DeltaTable(place), 11, of(_12="a", _75="b", _81="c", _500="d"), within)
    assert done["num_target_files_skipped_during_scan"] == 7
    assert done["num_target_rows_updated"] == 3 and done["num_target_rows_inserted"] == 1
    found = texts(place)
    assert len(found) == 101
    assert {n: found[n] for n in (12, 75, 81, 500)} == {12: "a", 75: "b", 81: "c", 500: "d"}


@pytest.mark.parametrize("first", ["compaction", "append", "merge"])
def test_a_compaction_beside_a_commit_changes_nothing_whoever_is_first(
    place: str, first: str
) -> None:
    for number in range(1, 6):
        append(DeltaTable(place), number, rows(number))
    acts: dict[str, Callable[[DeltaTable], object]] = {
        "compaction": lambda table: table.optimize.compact(
            commit_properties=CommitProperties(max_commit_retries=0)
        ),
        "append": lambda table: append(table, 6, rows(6)),
        "merge": lambda table: merge(table, 6, of(_1="new", _6="text 6")),
    }
    second = "append" if first == "compaction" else "compaction"
    for one, other in ((first, second), (first, "merge" if second == "append" else second)):
        shutil.copytree(place, f"{place}-{one}-{other}")
        here = f"{place}-{one}-{other}"
        early, late = DeltaTable(here), DeltaTable(here)
        acts[one](early)
        committed = {one}
        try:
            acts[other](late)
            committed.add(other)
        except (CommitFailedError, DeltaError):
            pass  # refused whole
        wanted = {n: f"text {n}" for n in range(1, 6)}
        if committed & {"append", "merge"}:
            wanted[6] = "text 6"
        if "merge" in committed:
            wanted[1] = "new"
        assert numbers(DeltaTable(here)) == sorted(wanted)
        assert texts(here) == wanted
        at = 6 if committed & {"append", "merge"} else 5
        assert DeltaTable(here).transaction_version(APP) == at
        shutil.rmtree(here)


def test_a_commit_so_late_that_its_place_in_the_log_was_cleaned_away_has_no_effect(
    place: str,
) -> None:
    append(DeltaTable(place), 1, rows(1))
    stale = DeltaTable(place)
    for number in range(2, 6):
        append(DeltaTable(place), number, rows(number))
    clean_log(place)
    assert not (Path(place) / "_delta_log" / f"{2:020}.json").exists()
    with contextlib.suppress(CommitFailedError, DeltaError):
        append(stale, 2, rows(99))
    assert numbers(DeltaTable(place)) == [1, 2, 3, 4, 5]
    assert DeltaTable(place).transaction_version(APP) == 5
    append(DeltaTable(place), 6, rows(6))
    assert numbers(DeltaTable(place)) == [1, 2, 3, 4, 5, 6]


# -- on S3: what rests on its conditional put ----------------------------------------------------


def test_on_s3_too_of_racing_commits_one_wins(bucket: Bucket) -> None:
    url, options = f"{bucket.url}/table", bucket.options
    DeltaTable.create(url, SCHEMA, configuration=CONFIGURATION, storage_options=options)
    for number in range(1, 16):
        tables = [DeltaTable(url, storage_options=options) for _ in range(3)]
        attempts = [partial(append, table, number, rows(number)) for table in tables]
        assert race(*attempts) == 1
    assert numbers(DeltaTable(url, storage_options=options)) == list(range(1, 16))


def test_on_s3_too_a_stale_commit_and_a_stale_merge_fail(bucket: Bucket) -> None:
    url, options = f"{bucket.url}/table", bucket.options
    DeltaTable.create(url, SCHEMA, configuration=CONFIGURATION, storage_options=options)
    append(DeltaTable(url, storage_options=options), 1, rows(1))
    stale = [DeltaTable(url, storage_options=options) for _ in range(2)]
    append(DeltaTable(url, storage_options=options), 2, rows(2))
    with pytest.raises((CommitFailedError, DeltaError)):
        append(stale[0], 3, rows(3))
    with pytest.raises((CommitFailedError, DeltaError)):
        merge(stale[1], 3, of(_1="late"))
    assert numbers(DeltaTable(url, storage_options=options)) == [1, 2]


def test_on_s3_too_of_two_creators_without_retries_one_wins(bucket: Bucket) -> None:
    once = CommitProperties(max_commit_retries=0)

    def create(url: str) -> None:
        DeltaTable.create(url, SCHEMA, commit_properties=once, storage_options=bucket.options)

    for number in range(8):
        url = f"{bucket.url}/table{number}"
        assert race(partial(create, url), partial(create, url)) == 1


def test_on_s3_too_transactions_and_rows_outlive_maintenance(bucket: Bucket) -> None:
    url, options = f"{bucket.url}/table", bucket.options
    DeltaTable.create(url, SCHEMA, configuration=CONFIGURATION, storage_options=options)

    def table() -> DeltaTable:
        return DeltaTable(url, storage_options=options)

    for number in range(1, 6):
        append(table(), number, rows(number))
    early = table()
    table().optimize.compact()
    with contextlib.suppress(CommitFailedError, DeltaError):
        append(early, 6, rows(6))
    landed = table().transaction_version(APP) == 6
    table().alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    time.sleep(2.1)  # a store dates its files in seconds
    cleaned = table()
    cleaned.create_checkpoint()
    cleaned.cleanup_metadata()
    cleaned.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(Exception, match=r"version|found|log"):
        DeltaTable(url, version=1, storage_options=options)
    assert table().transaction_version(APP) == 5 + landed
    assert numbers(table()) == [1, 2, 3, 4, 5, *[6] * landed]
    assert len(table().file_uris()) <= 1 + landed
