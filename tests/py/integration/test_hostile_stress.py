"""Under all that writers may do, with drains racing: nothing lost, nothing twice, order kept."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from psycopg import sql

from lakes import (
    append,
    batches,
    drain,
    expect_contiguous,
    expect_exact,
    lake_writer,
    prepare,
    value,
)
from oml.lake.schema import BRONZE_EVENTS
from systems import Connection, System

SEED = 7
WRITERS = 12
TRANSACTIONS_EACH = 60
TENANTS = ("acme", "globex", "hooli", "initech")
DRAINERS = 2
BATCH_ROWS = 100
LONGEST_PAUSE_S = 0.01
KINDS = {
    "commit": 55,
    "savepoint": 10,
    "savepoint rolled back": 10,
    "exception block": 5,
    "prepare and commit": 10,
    "prepare and roll back": 5,
    "rollback": 5,
}


class Writer:
    """Runs one writer's transactions and counts the events it committed."""

    def __init__(self, system: System, number: int) -> None:
        self.number = number
        self.choose = random.Random(f"{SEED}-{number}")
        self.connection = system.connect("app", autocommit=False)
        self.other = system.connect("postgres")  # who ends prepared transactions
        self.committed = 0

    def run(self) -> int:
        kinds, weights = list(KINDS), list(KINDS.values())
        for number in range(TRANSACTIONS_EACH):
            if self.choose.random() < 0.5:
                self.connection.execute("select pg_current_xact_id()")
                self._pause()
            kind = self.choose.choices(kinds, weights)[0]
            self._transact(kind, f"w{self.number}-{number}")
        return self.committed

    def _transact(self, kind: str, gid: str) -> None:
        # One tenant a transaction: with two, a prepared one could deadlock unseen.
        c, tenant, count = self.connection, self.choose.choice(TENANTS), self.choose.randint(1, 7)
        if kind == "savepoint rolled back":
            c.execute("savepoint here")
            append(c, self.choose.randint(1, 3), tenant)
            c.execute("rollback to savepoint here")
            append(c, count, tenant)
        elif kind == "savepoint":
            for _ in range(count):
                c.execute("savepoint here")
                append(c, 1, tenant)
                c.execute("release savepoint here")
        elif kind == "exception block":
            self._append_in_blocks(c, count, tenant)
        else:
            append(c, count, tenant)
        self._pause()
        if kind == "rollback":
            c.rollback()
            return
        if kind.startswith("prepare"):
            name = sql.Literal(gid)
            c.execute(sql.SQL("prepare transaction {}").format(name))
            c.rollback()  # of the transaction that psycopg believes in; the server has none
            self._pause()
            end = "commit" if kind == "prepare and commit" else "rollback"
            self.other.execute(sql.SQL("{} prepared {}").format(sql.SQL(end), name))
            self.committed += count if end == "commit" else 0
            return
        c.commit()
        self.committed += count

    @staticmethod
    def _append_in_blocks(c: Connection, count: int, tenant: str) -> None:
        """Append so often, each time after an append that a block takes back."""
        c.execute(
            sql.SQL(
                """do $$ begin
                for n in 1..{} loop
                  begin
                    perform oml_append('note.added', '{{}}', tenant => {tenant});
                    raise division_by_zero;
                  exception when division_by_zero then
                    perform oml_append('note.added', '{{}}', tenant => {tenant});
                  end;
                end loop;
                end $$"""
            ).format(sql.Literal(count), tenant=sql.Literal(tenant))
        )

    def _pause(self) -> None:
        time.sleep(self.choose.random() * LONGEST_PAUSE_S)


def test_nothing_is_lost_doubled_or_turned_around(system: System) -> None:
    prepare(system, *TENANTS)
    foreign = system.connect("postgres", autocommit=False)
    foreign.execute("create table public.elsewhere (n int)")
    foreign.execute("insert into public.elsewhere values (1)")
    before = value(system.superuser, "select count(*) from oml.journal")
    writers = [Writer(system, number) for number in range(WRITERS)]
    written = threading.Event()

    def keep_draining() -> int:
        drained = 0
        with lake_writer(system, batch_rows=BATCH_ROWS) as writer:
            while True:
                last = written.is_set()
                report = writer.drain()
                assert report.held_back is None, report.holders
                drained += report.rows.get(BRONZE_EVENTS.name, 0)
                if last:
                    return drained

    with ThreadPoolExecutor(WRITERS + DRAINERS) as pool:
        draining = [pool.submit(keep_draining) for _ in range(DRAINERS)]
        try:
            committed = sum(pool.map(Writer.run, writers))
        finally:
            written.set()
        drained = sum(future.result() for future in draining)
    drain(system)

    assert foreign.info.transaction_status.name == "INTRANS", "it was open all the while"
    events = value(system.superuser, "select count(*) from oml.journal")
    assert events == before + committed, f"seed {SEED}"
    assert drained <= events, "no row was applied by both"
    expect_exact(system)
    found = batches(system)
    expect_contiguous(found)
    assert len(found) > events / BATCH_ROWS / 2, "drains raced with writers"
    for tenant in TENANTS:
        proved = "select ok from oml_verify_chain(%s)"
        assert value(system.superuser, proved, tenant), tenant
