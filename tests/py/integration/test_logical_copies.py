"""A restored dump is a logical copy: it must be adopted, and then the original writes no more."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakes import (
    append,
    delta,
    drain,
    expect_exact,
    findings,
    frontier,
    lake_writer,
    outbox_max,
    prepare,
    value,
)
from oml.dev.cluster import SUPERUSER, Cluster
from oml.driver.connection import connect
from oml.lake.table import LakeError
from restores import WAYS, drop_database, make_database, run
from systems import LOGINS, SETTINGS, System, make_login


@pytest.fixture
def drained(system: System) -> System:
    """A system with two tenants, up to date in its lake."""
    app = prepare(system, "acme", "globex")
    append(app, 3, "acme")
    append(app, 2, "globex")
    drain(system)
    return system


@pytest.fixture
def empty(drained: System) -> Iterator[System]:
    """An empty database of the same cluster, to restore into, on the same lake."""
    copy = System(drained.cluster, f"{drained.database}_copy", drained.lake)
    make_database(copy.cluster, copy.database)
    try:
        yield copy
    finally:
        copy.close()
        drop_database(copy.cluster, copy.database)


def expect_to_go_on(copy: System) -> None:
    """Insist that appends, the lake and the proofs go on in the copy."""
    append(copy.connect(), 2, "acme")
    done = copy.oml("lake", "drain", "--once")
    assert done.returncode == 0, done.stderr
    assert findings(copy) == []
    assert frontier(copy) == outbox_max(copy)
    assert copy.oml("verify").returncode == 0
    assert copy.oml("gate", "status").returncode == 0


def expect_given_up(original: System) -> None:
    """Insist that the original writes to the lake no more."""
    version = delta(original).version()
    append(original.connect(), 1, "acme")
    with pytest.raises(LakeError, match="belongs to database"):
        drain(original)
    served = original.oml("serve", "--role", "lake-writer")
    assert served.returncode == 2 and "belongs to database" in served.stderr
    found = original.oml("gate", "status", "--json")
    assert found.returncode == 1 and json.loads(found.stdout)["disowned"]
    assert delta(original).version() == version


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_copy_is_adopted_and_the_original_writes_no_more(
    drained: System,
    empty: System,
    tmp_path: Path,
    way: Callable[[str, str, Path], None],
) -> None:
    way(drained.dsn(SUPERUSER), empty.dsn(SUPERUSER), tmp_path)
    closed = empty.oml("gate", "open")
    assert closed.returncode == 1
    assert "logical copy" in closed.stderr and "oml adopt" in closed.stderr
    assert empty.oml("lake", "drain", "--once").returncode == 1
    drain(drained)  # while nobody has adopted it, the original goes on
    adopted = empty.oml("adopt", "--reason", "moved", "--yes")
    assert adopted.returncode == 0, adopted.stderr
    payload = value(
        empty.superuser, "select payload from oml.journal where type = 'database.adopted'"
    )
    assert payload["reason"] == "moved"
    assert payload["from"]["database_oid"] != payload["to"]["database_oid"]
    assert empty.oml("adopt", "--reason", "again", "--yes").returncode == 1
    expect_to_go_on(empty)
    expect_exact(empty)
    expect_given_up(drained)


def test_a_copy_older_than_the_lake_is_adopted_only_with_its_loss(
    drained: System, empty: System, tmp_path: Path
) -> None:
    run("pg_dump", "-Fc", "-f", tmp_path / "dump", "-d", drained.dsn(SUPERUSER))
    append(drained.connect(), 3, "globex")
    drain(drained)
    run("pg_restore", "-d", empty.dsn(SUPERUSER), tmp_path / "dump")
    version = delta(drained).version()
    refused = empty.oml("adopt", "--reason", "moved", "--yes")
    assert refused.returncode == 1
    assert "globex: seq 4 to 6 are lost, the journal ends at 3" in refused.stderr
    assert delta(drained).version() == version
    drain(drained)  # still the original's
    command = ("gate", "accept-loss", "--reason", "an old dump", "--yes")
    hidden = empty.oml(*command)
    assert hidden.returncode == 1
    assert "logical copy" in hidden.stderr and "--adopt" in hidden.stderr, hidden.stderr
    asked = empty.oml(*command[:-1], "--adopt")
    assert asked.returncode == 2
    assert drained.lake_url in asked.stderr and drained.tlog_url in asked.stderr, asked.stderr
    drain(drained)  # still
    accepted = empty.oml(*command, "--adopt")
    assert accepted.returncode == 0, accepted.stderr
    types = empty.superuser.execute(
        "select type from oml.journal where type in ('database.adopted', 'journal.loss-accepted')"
        " order by seq"
    ).fetchall()
    assert types == [("database.adopted",), ("journal.loss-accepted",)]
    expect_to_go_on(empty)
    expect_given_up(drained)


def test_a_copy_in_the_same_database_is_one_too(drained: System, tmp_path: Path) -> None:
    """The server was not even restarted; the tables are others all the same."""
    run("pg_dump", "-Fc", "-f", tmp_path / "dump", "-d", drained.dsn(SUPERUSER))
    drained.superuser.execute("drop extension oml cascade")
    drained.superuser.execute("drop schema oml cascade")
    run("pg_restore", "-d", drained.dsn(SUPERUSER), tmp_path / "dump")
    state = drained.superuser.execute("select is_open, state from oml_gate_status()").fetchone()
    assert state == (False, "copy")
    adopted = drained.oml("adopt", "--reason", "restored in place", "--yes")
    assert adopted.returncode == 0, adopted.stderr
    expect_to_go_on(drained)


def test_a_database_copied_as_a_template_is_a_copy_whose_numbers_do_not_come_twice(
    drained: System,
) -> None:
    append(drained.connect(), 20, "acme")
    for connection in (drained.superuser, drained.connect()):
        connection.close()
    drained.close()
    copy = System(drained.cluster, f"{drained.database}_copy", drained.lake)
    with connect(drained.cluster.dsn(), autocommit=True) as connection:
        statement = f'create database "{copy.database}" template "{drained.database}"'
        connection.execute(statement.encode())
    try:
        assert copy.oml("gate", "open").returncode == 1
        copy_last = value(copy.superuser, "select last_value from oml.outbox_seq")
        assert copy.oml("adopt", "--reason", "copied", "--yes").returncode == 0
        assert value(copy.superuser, "select last_value from oml.outbox_seq") >= copy_last
        expect_to_go_on(copy)
    finally:
        copy.close()
        drop_database(copy.cluster, copy.database)


def test_what_the_original_writes_while_it_is_adopted_conflicts_or_is_refused(
    drained: System, empty: System, tmp_path: Path
) -> None:
    """Paused between its look at the table and its commit, then resumed after the adoption."""
    run("pg_dump", "-Fc", "-f", tmp_path / "dump", "-d", drained.dsn(SUPERUSER))
    run("pg_restore", "-d", empty.dsn(SUPERUSER), tmp_path / "dump")
    append(drained.connect(), 3, "globex")
    with lake_writer(drained) as writer:
        adopting = iter([True])
        real = writer._still_ours

        def adopt_meanwhile() -> None:
            real()
            if next(adopting, False):
                adopted = empty.oml("adopt", "--reason", "moved", "--yes")
                assert adopted.returncode == 0, adopted.stderr

        writer._still_ours = adopt_meanwhile  # type: ignore[method-assign]
        with pytest.raises(LakeError, match="belongs to"):
            writer.drain()
    expect_to_go_on(empty)
    expect_given_up(drained)


def test_an_adoption_that_is_refused_gives_back_what_it_took(
    drained: System, empty: System, tmp_path: Path
) -> None:
    run("pg_dump", "-Fc", "-f", tmp_path / "dump", "-d", drained.dsn(SUPERUSER))
    run("pg_restore", "-d", empty.dsn(SUPERUSER), tmp_path / "dump")
    holder = empty.connect(SUPERUSER, autocommit=False)
    holder.execute("select from oml.instance for update")
    refused = empty.oml("adopt", "--reason", "moved", "--yes")
    assert refused.returncode == 2 and "does not end" in refused.stderr, refused.stderr
    append(drained.connect(), 3, "globex")
    drain(drained)


@pytest.fixture
def bare_cluster(open_dir: Path) -> Iterator[Cluster]:
    """A fresh cluster, whose xids begin anew."""
    cluster = Cluster(open_dir / "second")
    cluster.create(SETTINGS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.destroy()


def test_in_a_cluster_of_lower_xids_the_fence_and_the_cut_hold(
    drained: System, bare_cluster: Cluster, tmp_path: Path
) -> None:
    spend = (
        "do $$ begin for i in 1..5000 loop perform pg_current_xact_id(); commit; end loop; end $$"
    )
    drained.superuser.execute(spend.encode())
    append(drained.connect(), 2, "globex")  # rows of high xids, not drained
    old_xid = value(drained.superuser, "select max(xmin::text::bigint) from oml.outbox")
    run("pg_dump", "-Fc", "-f", tmp_path / "dump", "-d", drained.dsn(SUPERUSER))
    copy = System(bare_cluster, "restored", drained.lake)
    make_database(bare_cluster, copy.database)
    run("pg_restore", "-d", copy.dsn(SUPERUSER), tmp_path / "dump")
    make_login(bare_cluster, "app", LOGINS["app"])
    assert value(copy.superuser, "select pg_current_xact_id()::text::bigint") < old_xid
    adopted = copy.oml("adopt", "--reason", "moved to a new machine", "--yes")
    assert adopted.returncode == 0, adopted.stderr

    late = copy.connect(autocommit=False)
    append(late, 1, "acme")  # has drawn its number and stays open
    append(copy.connect(), 1, "globex")
    held = drain(copy, cut_timeout_s=0.2)
    assert held.held_back and len(held.holders) == 1
    assert frontier(copy) < outbox_max(copy)
    late.commit()
    drain(copy)
    expect_exact(copy)
    expect_to_go_on(copy)
    copy.close()
