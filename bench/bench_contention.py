"""One tenant's chain under contention: many clients (A) against one (B), then under a snapshot.

A chain is a line: one append at a time, from taking its lock to the commit's flush. So 16 clients
cannot reach more than one does without its pauses; the question is what waiting costs. Beside it
the floor: a function of PL/pgSQL that locks one row and inserts one; and 16 clients with a tenant
each, who share the machine and wait for nobody.

A session with a long-open snapshot keeps every dead row version from being removed. What an append
makes of those is versions of its entity's state. So it is measured twice: with many entities, and
with all appends about one. Of two more databases, alike and new, one has the snapshot open.
"""

import sys
from functools import partial

import common
from oml.dev.cluster import Cluster
from oml.dev.up import DevSystem
from oml.driver.connection import connect

CURVE = (1, 2, 4, 8, 16, 64)
CLIENTS = 16
BARE_CURVE = (1, 16, 64)
ENTITIES = 1000
WARM_UP_S = 2
WARM_UP_64_S = 8
SECONDS = 4
HELD_SECONDS = 6
REQUIRED = {"append_open_snapshot_vs_none": 0.9}
HELD, FREE = "held", "free"

APPEND = """\
\\set entity random(1, :entities)
\\set total random(1, 1000000)
\\set key random(0, 9000000000000000000)
select seq from oml_append(
  'invoice.exported',
  jsonb_build_object(
    'invoice', :entity ::bigint, 'total', :total ::bigint, 'currency', 'EUR',
    'status', 'exported'),
  tenant => 'acme', idempotency_key => md5(:key ::text), operation => 'export',
  app_version => '2.4.1', entity_type => 'invoice', entity_id => :entity ::text);
"""
# The same, each client to a tenant of its own.
APPEND_APART = APPEND.replace("'acme'", "'tenant-' || :client_id")
BARE_FUNCTION = """\
create function bare_append(payload jsonb) returns bigint language plpgsql as $$
declare
  made bigint;
begin
  perform from bare_lock l where l.id = 1 for update;
  insert into bare (payload) values (bare_append.payload) returning id into made;
  return made;
end
$$
"""
BARE = """\
select bare_append('{"invoice": 4711, "total": 500000, "currency": "EUR", "status": "exported"}');
"""
_VERSIONS = """\
select n_tup_upd, n_tup_hot_upd, pg_table_size(relid), pg_indexes_size(relid)
from pg_stat_user_tables where relid = 'oml.entity'::regclass
"""


def prepare(system: DevSystem, cluster: Cluster) -> None:
    """Make the event type and the bare tables, and two more databases alike."""
    with connect(system.superuser_dsn, autocommit=True) as superuser:
        superuser.execute(
            "select oml_register_event_type('invoice.exported', required_keys => '{invoice,total}',"
            " state_keys => '{status}')"
        )
        superuser.execute("create table bare_lock (id int primary key)")
        superuser.execute("insert into bare_lock values (1)")
        superuser.execute(
            "create table bare (id bigint generated always as identity primary key,"
            " payload jsonb not null)"
        )
        superuser.execute("grant select, insert on bare to dev")
        superuser.execute("grant select, update on bare_lock to dev")
        superuser.execute(BARE_FUNCTION)
        for number in range(CLIENTS):
            superuser.execute(
                "select oml_create_tenant(%(name)s), oml_grant('dev', %(name)s)",
                {"name": f"tenant-{number}"},
            )
    with connect(cluster.dsn(), autocommit=True) as superuser:
        for name in (HELD, FREE):
            superuser.execute(f"create database {name} template oml".encode())
    for name in (HELD, FREE):
        with connect(cluster.dsn(dbname=name), autocommit=True) as superuser:
            superuser.execute("select oml_adopt('a database of its own for snapshots')")


def curve(system: DevSystem) -> dict[str, list[common.Pair]]:
    """Run each number of clients by turns; return all of them against one client."""

    def rate(script: str, clients: int) -> float:
        # A fresh backend's first append takes some eighty times as long, and they come in line.
        warm_up = WARM_UP_S if clients <= CLIENTS else WARM_UP_64_S
        return common.pgbench(
            system.dsn, script, clients, SECONDS, {"entities": ENTITIES}, warm_up=warm_up
        )

    ways = {f"one_tenant_c{n}": partial(rate, APPEND, n) for n in CURVE}
    bare = {f"bare_lock_c{n}": partial(rate, BARE, n) for n in BARE_CURVE}
    apart = f"apart_c{CLIENTS}"
    found = common.rounds({**ways, **bare, apart: partial(rate, APPEND_APART, CLIENTS)})
    result = {
        f"{name}_vs_c1": common.against(found[name], found[f"{name.rpartition('_c')[0]}_c1"])
        for name in (*ways, *bare)
        if not name.endswith("_c1")
    }
    one = f"one_tenant_c{CLIENTS}"
    return {**result, f"{one}_vs_a_tenant_each": common.against(found[one], found[apart])}


def held(cluster: Cluster, entities: int) -> tuple[list[common.Pair], dict[str, int]]:
    """Append with a snapshot open and without; return the pairs and what it held back."""

    def rate(database: str) -> float:
        dsn = cluster.dsn("dev", database)
        variables = {"entities": entities}
        return common.pgbench(dsn, APPEND, CLIENTS, HELD_SECONDS, variables, warm_up=WARM_UP_S)

    with connect(cluster.dsn(dbname=HELD)) as reader:
        reader.execute("set transaction isolation level repeatable read")
        before = reader.execute(_VERSIONS).fetchone()  # takes the snapshot
        found = common.pairs(lambda: rate(HELD), lambda: rate(FREE))
        # The reader's own statistics are those of its first look.
        with connect(cluster.dsn(dbname=HELD), autocommit=True) as superuser:
            after = superuser.execute(_VERSIONS).fetchone()
    assert before is not None and after is not None
    return found, {
        "versions": after[0] - before[0],
        "hot_versions": after[1] - before[1],
        "entity_bytes": after[2],
        "entity_index_bytes": after[3],
    }


def main() -> int:
    """Run the rounds and the pairs; return the exit status."""
    with common.server() as (system, cluster):
        prepare(system, cluster)
        found = curve(system)
        many, held_many = held(cluster, ENTITIES)
        one, held_one = held(cluster, 1)
    found["append_open_snapshot_vs_none"] = many
    found["append_open_snapshot_one_entity_vs_none"] = one
    more = {"clients": CLIENTS, "held_back": {"many_entities": held_many, "one_entity": held_one}}
    figures = [common.figure(key, pairs, REQUIRED.get(key)) for key, pairs in found.items()]
    return common.finish("contention", figures, more)


if __name__ == "__main__":
    sys.exit(main())
