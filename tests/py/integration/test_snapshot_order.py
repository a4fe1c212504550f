"""At any snapshot, each tenant's seqs are exactly 1..n, and each row links to the one before."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from psycopg import IsolationLevel, sql
from psycopg.types.json import Jsonb

from systems import Connection, System

SEED = 20
WRITERS = 6
TRANSACTIONS_EACH = 40
TENANTS = ("acme", "globex", "hooli")
KINDS = ("commit", "commit", "several", "savepoint", "rollback", "prepare", "prepare and roll back")


class Seen(NamedTuple):
    """One chain as one snapshot shows it."""

    tenant: str
    rows: int
    first: int
    last: int
    links: int
    queued: int


@pytest.fixture
def busy(system: System) -> System:
    """A system with three tenants and an app bound to all of them."""
    system.superuser.execute("select oml_register_event_type('job.done')")
    for tenant in TENANTS:
        system.make(tenant)
        system.bind("app", tenant)
    return system


def append(connection: Connection, tenant: str) -> None:
    """Append one event in the connection's transaction."""
    connection.execute("select oml_append('job.done', %s, tenant => %s)", (Jsonb({}), tenant))


def look(connection: Connection) -> list[Seen]:
    """Take one snapshot and count, in every chain: rows, good links, outbox rows."""
    rows = connection.execute(
        """
        with linked as (
          select tenant_id, seq, prev_hash = lag(hash, 1, decode(repeat('00', 32), 'hex'))
            over (partition by tenant_id order by seq) as links
          from oml.journal
        )
        select t.name, count(*), min(l.seq), max(l.seq), count(*) filter (where l.links),
          (select count(distinct o.chain_seq) from oml.outbox o where o.tenant_id = t.tenant_id)
        from linked l join oml.tenant t using (tenant_id)
        group by t.tenant_id, t.name
        """
    ).fetchall()
    return [Seen(*row) for row in rows]


def expect_whole(seen: list[Seen]) -> None:
    """Insist that every chain of the snapshot is 1..n, linked, and queued for the lake."""
    for chain in seen:
        assert (chain.first, chain.last) == (1, chain.rows), chain
        assert chain.links == chain.rows, chain
        assert chain.queued == chain.rows, chain


def rows_of(seen: list[Seen], tenant: str) -> int:
    """Return how many rows a tenant's chain has in the snapshot."""
    return next(chain.rows for chain in seen if chain.tenant == tenant)


def write(connection: Connection, writer: int) -> dict[str, int]:
    """Run this writer's transactions; return how many events of each tenant it committed."""
    choose = random.Random(f"{SEED}-{writer}")
    committed = dict.fromkeys(TENANTS, 0)
    for number in range(TRANSACTIONS_EACH):
        kind = choose.choice(KINDS)
        tenant = choose.choice(TENANTS)
        name = sql.Literal(f"w{writer}-{number}-{connection.info.dbname}")
        if kind == "commit":
            append(connection, tenant)
            connection.commit()
            committed[tenant] += 1
        elif kind == "several":
            # In one order for all writers: two that lock two chains crosswise would deadlock.
            for each in TENANTS:
                for _ in range(2):
                    append(connection, each)
                    committed[each] += 1
            connection.commit()
        elif kind == "savepoint":
            append(connection, tenant)
            connection.execute("savepoint here")
            append(connection, tenant)
            connection.execute("rollback to savepoint here")
            append(connection, tenant)
            connection.commit()
            committed[tenant] += 2
        elif kind == "rollback":
            append(connection, tenant)
            append(connection, tenant)
            connection.rollback()
        else:
            append(connection, tenant)
            connection.execute(sql.SQL("prepare transaction {}").format(name))
            connection.commit()
            connection.autocommit = True
            if kind == "prepare":
                connection.execute(sql.SQL("commit prepared {}").format(name))
                committed[tenant] += 1
            else:
                connection.execute(sql.SQL("rollback prepared {}").format(name))
            connection.autocommit = False
    return committed


def test_every_snapshot_under_load_shows_each_chain_whole(busy: System) -> None:
    writers = [busy.connect("app", autocommit=False) for _ in range(WRITERS)]
    observer = busy.superuser
    done = threading.Event()
    snapshots: list[list[Seen]] = []

    def observe() -> None:
        while True:
            last = done.is_set()
            snapshots.append(look(observer))
            if last:
                return

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        watching = pool.submit(observe)
        try:
            running = [pool.submit(write, c, n) for n, c in enumerate(writers)]
            committed = [future.result() for future in running]
        finally:
            done.set()
        watching.result()

    for seen in snapshots:
        expect_whole(seen)
    for tenant in TENANTS:
        growth = [rows_of(seen, tenant) for seen in snapshots]
        assert growth == sorted(growth), "a chain never shrinks"
        assert growth[-1] == 1 + sum(each[tenant] for each in committed), f"seed {SEED}"
        verdict = observer.execute("select ok from oml_verify_chain(%s)", (tenant,)).fetchone()
        assert verdict == (True,)


def test_open_and_prepared_transactions_are_in_no_snapshot_and_leave_no_gap(busy: System) -> None:
    first, second = busy.connect("app", autocommit=False), busy.connect("app", autocommit=False)
    observer = busy.superuser
    append(first, "acme")
    append(first, "acme")
    append(second, "globex")
    name = sql.Literal(f"held-{busy.database}")
    second.execute(sql.SQL("prepare transaction {}").format(name))
    append(second, "hooli")
    second.commit()

    seen = look(observer)
    expect_whole(seen)
    assert [rows_of(seen, tenant) for tenant in TENANTS] == [1, 1, 2]

    first.rollback()
    append(first, "acme")
    first.commit()
    observer.execute(sql.SQL("rollback prepared {}").format(name))
    append(second, "globex")
    second.commit()

    seen = look(observer)
    expect_whole(seen)
    assert [rows_of(seen, tenant) for tenant in TENANTS] == [2, 2, 2]


def test_a_snapshot_taken_before_commits_keeps_showing_the_chains_as_they_were(
    busy: System,
) -> None:
    reader = busy.connect("postgres", autocommit=False)
    reader.isolation_level = IsolationLevel.REPEATABLE_READ
    before = look(reader)
    writer = busy.connect("app")
    for tenant in TENANTS:
        append(writer, tenant)
    assert look(reader) == before
    reader.rollback()
    after = look(reader)
    expect_whole(after)
    assert [rows_of(after, tenant) for tenant in TENANTS] == [2, 2, 2]
