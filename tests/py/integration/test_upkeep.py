"""Files and log stay few under a steady load, readers keep what they read, and nothing changes."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from judge import expect_gold
from lakes import (
    append,
    delta,
    drain,
    expect_contiguous,
    expect_exact,
    file_sizes,
    lake_writer,
    prepare,
    settings,
)
from oml.dev.cluster import SUPERUSER
from oml.lake import upkeep as upkeep_module
from oml.lake.schema import BRONZE_EVENTS, GOLD_TENANT_DAILY
from oml.lake.source import Source
from oml.lake.upkeep import COMMITS, Upkeep
from oml.lake.writer import LakeWriter
from systems import System


@contextmanager
def keeping(system: System, **others: Any) -> Iterator[LakeWriter]:
    """A lake writer that sees to its tables between batches of three rows."""
    configured = settings(system, batch_rows=3, **others)
    with Source(system.dsn(SUPERUSER)) as source:
        yield LakeWriter(source, configured, upkeep=Upkeep(configured))


def files(system: System) -> list[str]:
    return list(delta(system).file_uris())


def test_small_files_are_put_together_as_batches_go_on(system: System) -> None:
    append(prepare(system), 3 * 2 * COMMITS)
    with keeping(system) as writer:
        report = writer.drain()
    assert report.batches > 2 * COMMITS
    assert len(files(system)) < COMMITS
    assert len(delta(system, GOLD_TENANT_DAILY).file_uris()) < COMMITS
    expect_exact(system)
    expect_gold(system)
    log = system.lake / BRONZE_EVENTS.location / "_delta_log"
    assert len(list(log.glob("*.checkpoint.parquet"))) >= 2


def test_small_files_that_are_few_are_put_together_when_the_time_has_come(system: System) -> None:
    app = prepare(system)
    with keeping(system, lake_roll_s=3600) as writer:
        append(app, 9)
        writer.drain()
    assert len(files(system)) > 2
    with keeping(system, lake_roll_s=0.01) as writer:
        append(app, 3)
        time.sleep(0.05)
        writer.drain()
    assert len(files(system)) < 3
    expect_exact(system)


def test_who_reads_an_older_version_is_not_cut_off_within_the_retention(system: System) -> None:
    append(prepare(system), 30)
    with keeping(system) as writer:
        writer.drain()
        reader = DeltaTable(f"{system.lake_url}/{BRONZE_EVENTS.location}")
        stream = pa.RecordBatchReader.from_stream(reader.scan(columns=["outbox_seq"]))
        append(system.connect("app"), 3 * COMMITS)
        writer.drain()
    assert len(files(system)) < COMMITS
    assert 30 < sum(batch.num_rows for batch in stream) < 50
    expect_exact(system)


def test_what_crashes_left_behind_is_swept_once_it_is_old(system: System) -> None:
    app = prepare(system)
    append(app, 9)
    drain(system)
    root = system.lake / BRONZE_EVENTS.location
    young, old = root / "_delta_log" / "_commit_1.json.tmp#1", root / "part-x.parquet#2"
    orphan = root / "part-00000-orphan.snappy.parquet"
    for path in (young, old, orphan):
        path.write_bytes(b"left")
    long_ago = time.time() - 2 * 86_400
    for path in (old, orphan):
        os.utime(path, (long_ago, long_ago))
    append(app, 6)
    time.sleep(0.05)
    with keeping(system, lake_roll_s=0.01) as writer:
        writer.drain()
    assert young.exists() and not old.exists() and not orphan.exists()
    expect_exact(system)


@pytest.mark.parametrize("place", ["upkeep.compacted", "upkeep.vacuumed"])
def test_a_kill_in_the_upkeep_changes_nothing(system: System, place: str) -> None:
    append(prepare(system), 9)
    killed = system.oml(
        "lake", "drain", "--once",
        env={"OML_FAILPOINT": place, "OML_BATCH_ROWS": "3", "OML_LAKE_ROLL_S": "0.000001"},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, f"it never came to {place}: {killed.stderr}"
    drain(system)
    expect_exact(system)
    expect_gold(system)


def test_a_compaction_that_a_rival_overtakes_is_left_for_later(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = prepare(system)
    append(app, 12)
    compact = Upkeep._compact
    met = 0

    def after_a_rival(self: Upkeep, opened: Any, *, waited: bool) -> bool:
        nonlocal met
        if opened.place.table is GOLD_TENANT_DAILY:
            met += 1
            append(app, 1)
            with lake_writer(system) as rival:
                rival.drain()
        return compact(self, opened, waited=waited)

    monkeypatch.setattr(Upkeep, "_compact", after_a_rival)
    monkeypatch.setattr(upkeep_module, "COMMITS", 2)
    with keeping(system) as writer:
        writer.drain()
    monkeypatch.undo()
    assert met > 0
    drain(system)
    expect_exact(system)
    expect_gold(system)
    expect_contiguous_bronze(system)


def expect_contiguous_bronze(system: System) -> None:
    """Insist on contiguous batches, also behind commits that are no batches."""
    from lakes import batches

    found = batches(system)
    expect_contiguous([b for n, b in enumerate(found) if n == 0 or b != found[n - 1]])


@pytest.mark.parametrize(("size", "commits"), [(40_000, 200), (100_000, 80)])
def test_files_of_any_size_stay_few_as_commits_go_on(
    system: System, monkeypatch: pytest.MonkeyPatch, size: int, commits: int
) -> None:
    whole, looked_after = 2**20, 5
    monkeypatch.setattr(upkeep_module, "COMMITS", looked_after)
    app = prepare(system)
    system.superuser.execute("select oml_register_event_type('blob.added', max_bytes => 1000000)")
    configured = settings(system, batch_rows=1, lake_file_bytes=whole)
    app.execute(
        "select oml_append('blob.added', jsonb_build_object('n',"
        " (select string_agg(md5(n || ':' || g), '') from generate_series(1, %s / 16) g)))"
        " from generate_series(1, %s) n",
        (size, commits),
    )
    with Source(system.dsn(SUPERUSER)) as source:
        LakeWriter(source, configured, (BRONZE_EVENTS,), upkeep=Upkeep(configured)).drain()
    sizes = file_sizes(system)
    assert sum(sizes) > commits * size / 2
    most = 2 * looked_after + 2 * upkeep_module._STEP + 2 * sum(sizes) / whole
    assert len(sizes) <= most, sorted(sizes)
    expect_exact(system)


def test_processes_that_end_after_a_commit_each_leave_few_files_too(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_module, "COMMITS", 5)
    app = prepare(system)
    for _ in range(24):
        append(app, 1)
        with keeping(system) as writer:
            writer.drain()
        assert len(files(system)) <= 5
    expect_exact(system)


def test_a_file_that_is_large_is_not_copied_again_for_each_few_rows(system: System) -> None:
    app = prepare(system)
    whole = 2**20
    system.superuser.execute("select oml_register_event_type('blob.added', max_bytes => 1000000)")
    for number in range(2):
        app.execute(
            "select oml_append('blob.added', jsonb_build_object('n', (select string_agg("
            "md5(%s || ':' || g), '') from generate_series(1, 20000) g)))",
            (number,),
        )
    drain(system, lake_file_bytes=whole)
    (large,) = (path for path in files(system))
    assert file_sizes(system)[0] > whole / 2
    for _ in range(12):
        append(app, 1)
        with keeping(system, lake_roll_s=0.0001, lake_file_bytes=whole) as writer:
            writer.drain()
        assert large in files(system) and len(files(system)) <= 3
    expect_exact(system)
