"""Appends to a journal of 10,000,000 events (A) against appends to an empty one (B).

Two databases of one server: the same tenants, memberships and event type in both. The events of A
are loaded by a superuser with the journal's triggers off; METHOD.md says what they are. Then each
tenant appends one event as usual, so that what the measured appends build upon is a real head.

OML_BENCH_EVENTS is how many events are loaded. A run with fewer than 10,000,000 is a trial, whose
result is not kept.
"""

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

import common
from oml.dev.cluster import Cluster
from oml.dev.up import DevSystem
from oml.driver.connection import connect

KEY = "append_at_10m_vs_empty"
REQUIRED = 0.9
FULL = 10_000_000
EVENTS = int(os.environ.get("OML_BENCH_EVENTS", FULL))
TENANTS = 1000
EVENTS_AN_ENTITY = 10
CLIENTS = 4
SECONDS = 10
PAIRS = 7
BIG = "big"
_CHUNK = 250_000
_BYTES_AN_EVENT = 1_500
_BYTES_BESIDE = 4 * 1024**3  # WAL, and what the measured appends write

Connection = psycopg.Connection[TupleRow]

# Keys are random, as clients make them. An entity belongs to the tenant of its number's remainder.
APPEND = """\
\\set tenant random(0, :tenants - 1)
\\set invoice random(0, :invoices - 1)
\\set entity :tenant + :tenants * :invoice
\\set total random(1, 1000000)
\\set key random(0, 9000000000000000000)
select seq from oml_append(
  'invoice.exported',
  jsonb_build_object(
    'invoice', :invoice ::bigint, 'total', :total ::bigint, 'currency', 'EUR',
    'status', 'exported'),
  tenant => 'tenant-' || :tenant, idempotency_key => md5(:key ::text), operation => 'export',
  app_version => '2.4.1', entity_type => 'invoice', entity_id => :entity ::text);
"""

# Event k, from 0, is event k / tenants + 2 of tenant k mod tenants, and of entity k mod entities.
_JOURNAL = """
insert into oml.journal (
  tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer,
  principal, "authorization", operation, app_version, entity_type, entity_id, pii_class,
  synchronous_commit, payload, envelope, idempotency_key, request_digest
)
select
  t.tenant_id, e.k / %(tenants)s + 2,
  (lpad(to_hex(%(first_ms)s + e.k), 12, '0') || '7' || substr(e.digest, 1, 3)
    || 'a' || substr(e.digest, 4, 15))::uuid,
  to_timestamp((%(first_ms)s + e.k) / 1000.0), 'invoice.exported', 1,
  case when e.k < %(tenants)s then t.hash
    else sha256(convert_to((e.k - %(tenants)s)::text, 'UTF8')) end,
  sha256(convert_to(e.k::text, 'UTF8')), t.kid, 'dev', 'dev', 'membership:append', 'export',
  '2.4.1', 'invoice', (e.k %% %(entities)s)::text, 'none', 'on',
  jsonb_build_object('invoice', e.k %% %(entities)s / %(tenants)s, 'total', e.k %% 1000000,
    'currency', 'EUR', 'status', 'exported'),
  substr(decode(repeat(e.digest, %(envelope)s / 16 + 1), 'hex'), 1, %(envelope)s), e.digest,
  sha256(convert_to(e.digest, 'UTF8'))
from (
  select k, md5(k::text) as digest
  from generate_series(%(after)s::bigint, %(upto)s::bigint - 1) k
) e
join tenants t on t.n = e.k %% %(tenants)s
order by e.k
"""
_OUTBOX = """
insert into oml.outbox (seq, tenant_id, chain_seq, target)
select %(outbox)s + k, t.tenant_id, k / %(tenants)s + 2, 'bronze.events'
from generate_series(%(after)s::bigint, %(upto)s::bigint - 1) k
join tenants t on t.n = k %% %(tenants)s
order by k
"""
_ENTITY = """
insert into oml.entity (
  tenant_id, entity_type, entity_id, last_seq, last_event_id, last_type, event_count, first_at,
  last_at, state
)
select j.tenant_id, 'invoice', j.entity_id, max(j.seq),
  (array_agg(j.event_id order by j.seq desc))[1], 'invoice.exported', count(*),
  min(j.occurred_at), max(j.occurred_at), '{"status": "exported"}'
from oml.journal j
where j.entity_type = 'invoice'
group by j.tenant_id, j.entity_id
"""


def say(text: str) -> None:
    """Tell on stderr how far we are."""
    print(text, file=sys.stderr, flush=True)


def make_tenants(system: DevSystem) -> None:
    """Make the tenants and the event type."""
    with connect(system.superuser_dsn, autocommit=True) as superuser:
        superuser.execute("set synchronous_commit = off")
        superuser.execute(
            "select oml_register_event_type('invoice.exported', required_keys => '{invoice,total}',"
            " state_keys => '{status}')"
        )
        for number in range(TENANTS):
            superuser.execute(
                "select oml_create_tenant(%(name)s), oml_grant('dev', %(name)s)",
                {"name": f"tenant-{number}"},
            )


def copy(cluster: Cluster) -> None:
    """Copy the database, while it is empty."""
    with connect(cluster.dsn(), autocommit=True) as superuser:
        superuser.execute(f"create database {BIG} template oml".encode())
    with connect(cluster.dsn(dbname=BIG), autocommit=True) as superuser:
        superuser.execute("select oml_adopt('a journal to grow')")  # a copy's gate is closed


@contextmanager
def past_guards(connection: Connection, table: str) -> Iterator[None]:
    """Disable a table's triggers, and put them back as they were."""
    look = (
        "select tgname, tgenabled::text from pg_trigger"
        " where tgrelid = %s::regclass and not tgisinternal order by tgname"
    )
    triggers = connection.execute(look, (table,)).fetchall()
    name = sql.Identifier(*table.split("."))
    connection.execute(sql.SQL("alter table {} disable trigger user").format(name))
    yield
    for trigger, state in triggers:
        if state != "D":
            enable = sql.SQL("alter table {} enable {} trigger {}")
            how = sql.SQL({"A": "always", "R": "replica", "O": ""}[state])
            connection.execute(enable.format(name, how, sql.Identifier(trigger)))
    if connection.execute(look, (table,)).fetchall() != triggers:
        raise RuntimeError(f"the triggers of {table} are not what they were: {triggers}")


def load(connection: Connection, events: int, entities: int, after: int = 0) -> None:
    """Load the events from number ``after`` up to ``events``, past the journal's triggers."""
    connection.execute("set synchronous_commit = off")
    connection.execute("set work_mem = '256MB'")
    connection.execute(
        "create temporary table if not exists tenants as"
        " select split_part(t.name, '-', 2)::int as n, t.tenant_id, j.hash, j.kid"
        " from oml.tenant t join oml.journal j using (tenant_id)"
        " where t.name like 'tenant-%' and j.seq = 1"
    )
    connection.execute("analyze tenants")
    row = connection.execute(
        "select (extract(epoch from clock_timestamp()) * 1000)::bigint - %s,"
        " (select max(seq) from oml.outbox)",
        (events,),
    ).fetchone()
    assert row is not None
    facts = {
        "tenants": TENANTS, "entities": entities, "first_ms": row[0], "outbox": row[1] + 1 - after,
        "envelope": envelope_bytes(connection),
    }  # fmt: skip
    with past_guards(connection, "oml.journal"):
        for start in range(after, events, _CHUNK):
            chunk = facts | {"after": start, "upto": min(start + _CHUNK, events)}
            connection.execute(_JOURNAL.encode(), chunk)
            connection.execute(_OUTBOX.encode(), chunk)
            say(f"loaded {chunk['upto']:,} of {events:,} events")
    connection.execute("select setval('oml.outbox_seq', (select max(seq) from oml.outbox), true)")


def envelope_bytes(connection: Connection) -> int:
    """Return the size of the envelope of an event as the measured ones are."""
    with connection.transaction(force_rollback=True):
        connection.execute(
            "select oml_append('invoice.exported', %s, tenant => 'tenant-0', operation => 'export',"
            " app_version => '2.4.1', entity_type => 'invoice', entity_id => '471100')",
            ('{"invoice": 4711, "total": 500000, "currency": "EUR", "status": "exported"}',),
        )
        row = connection.execute(
            "select octet_length(envelope) from oml.journal where type = 'invoice.exported'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def require_chains(dsn: str, loaded_seq: int) -> None:
    """Insist that what was appended links to the event before it, without a gap."""
    with connect(dsn, autocommit=True) as superuser:
        row = superuser.execute(
            "select count(*), count(*) filter (where p.hash is distinct from j.prev_hash)"
            " from oml.journal j join oml.tenant t using (tenant_id)"
            " left join oml.journal p on p.tenant_id = j.tenant_id and p.seq = j.seq - 1"
            " where t.name like 'tenant-%%' and j.seq > %s",
            (loaded_seq,),
        ).fetchone()
    assert row is not None
    if row[0] < TENANTS or row[1] != 0:
        raise RuntimeError(f"of {row[0]} appended events {row[1]} do not link to the one before")


def settle(dsn: str) -> None:
    """Vacuum and analyze a database, and write everything to disk."""
    with connect(dsn, autocommit=True) as superuser:
        superuser.execute("vacuum (freeze, analyze)")
        superuser.execute("checkpoint")


def main() -> int:
    """Load, run the pairs; return the exit status."""
    events = math.ceil(EVENTS / TENANTS / EVENTS_AN_ENTITY) * TENANTS * EVENTS_AN_ENTITY
    entities = events // EVENTS_AN_ENTITY
    needed = events * _BYTES_AN_EVENT + _BYTES_BESIDE
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        where = tempfile.gettempdir()
        say(f"{events:,} events need {needed / 1e9:.0f} GB in {where}: {free / 1e9:.0f} are free")
        return 2
    with common.server() as (system, cluster):
        make_tenants(system)
        copy(cluster)
        big = cluster.dsn(dbname=BIG)
        with connect(big, autocommit=True) as superuser:
            superuser.execute("select oml_grant('postgres', 'tenant-0')")
            load(superuser, events, entities)
            superuser.execute(_ENTITY.encode())
        variables = {"tenants": TENANTS, "invoices": entities // TENANTS}
        for dsn in (cluster.dsn("dev", BIG), system.dsn):
            with connect(dsn, autocommit=True) as connection:
                for number in range(TENANTS):
                    connection.execute(
                        "select oml_append('invoice.exported', '{\"invoice\": 0, \"total\": 1}',"
                        " tenant => %s)",
                        (f"tenant-{number}",),
                    )
        for dsn in (big, system.superuser_dsn):
            settle(dsn)
        with connect(big, autocommit=True) as superuser:
            row = superuser.execute(
                "select pg_database_size(current_database()), (select count(*) from oml.journal)"
            ).fetchone()
        assert row is not None
        say(f"{row[1]:,} events in {row[0] / 1e9:.1f} GB")
        found = common.pairs(
            lambda: common.pgbench(cluster.dsn("dev", BIG), APPEND, CLIENTS, SECONDS, variables),
            lambda: common.pgbench(system.dsn, APPEND, CLIENTS, SECONDS, variables),
            PAIRS,
        )
        require_chains(big, events // TENANTS + 1)
    more = {
        "events": events, "tenants": TENANTS, "entities": entities, "clients": CLIENTS,
        "bytes": row[0],
    }  # fmt: skip
    figures = [common.figure(KEY, found, REQUIRED)]
    return common.finish("growth", figures, more, keep=events >= FULL)


if __name__ == "__main__":
    sys.exit(main())
