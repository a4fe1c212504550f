"""Single appends against message-db's write_message, and against a bare INSERT of the columns.

Every step of an append is on: membership, gate, catalogue with required keys, forced RLS,
signature, chain, outbox row and folded state. message-db signs and chains nothing.
"""

import sys

import common
import message_db
from oml.dev.cluster import Cluster
from oml.dev.up import DevSystem
from oml.driver.connection import connect

REQUIRED = {1: 0.7, 4: 0.65, 16: 0.5}
BARE_REQUIRED = 0.4
BARE_CLIENTS = 4
TENANTS = 1000
ENTITIES = 100  # a tenant's
SECONDS = 6
WARM_UP_S = 2

_NUMBERS = """\
\\set tenant random(1, :tenants)
\\set invoice random(1, :entities)
\\set total random(1, 1000000)
"""
_CONTENT = """\
jsonb_build_object(
    'invoice', :invoice ::bigint, 'total', :total ::bigint, 'currency', 'EUR',
    'status', 'exported')"""
APPEND = f"""{_NUMBERS}
select oml_append(
  'invoice.exported', {_CONTENT},
  tenant => 'tenant-' || :tenant, operation => 'export', app_version => '2.4.1',
  entity_type => 'invoice', entity_id => :invoice ::text);
"""
# The idempotency key beside all this.
KEYED = APPEND.replace("entity_type", "idempotency_key => gen_random_uuid()::text, entity_type")
# A category a tenant, because message-db takes its lock on the category; a stream an entity.
WRITE = f"""{_NUMBERS}
select write_message(
  gen_random_uuid()::varchar, 'tenant' || :tenant || '-' || :invoice, 'invoice.exported',
  {_CONTENT},
  jsonb_build_object('operation', 'export', 'app_version', '2.4.1'));
"""
# As its users name streams: the type before the hyphen, and so one lock for all writers.
WRITE_ONE_CATEGORY = WRITE.replace("'tenant' || :tenant || '-'", "'invoice-' || :tenant || '-'")
# What an append stores in the journal, of the same sizes and with the same indexes.
INSERT = f"""{_NUMBERS}
insert into bare (
  tenant_id, seq, event_id, occurred_at, type, schema_version, prev_hash, hash, kid, writer,
  principal, "authorization", operation, app_version, entity_type, entity_id, pii_class,
  synchronous_commit, payload, envelope
) values (
  ('00000000-0000-4000-8000-' || lpad(:tenant ::text, 12, '0'))::uuid, nextval('bare_seq'),
  gen_random_uuid(), clock_timestamp(), 'invoice.exported', 1,
  sha256(decode(md5(:total ::text), 'hex')), sha256(decode(md5(:invoice ::text), 'hex')),
  '\\x0123456789abcdef', 'dev', 'dev', 'membership.append', 'export', '2.4.1', 'invoice',
  :invoice ::text, 'none', 'on', {_CONTENT},
  decode(repeat(md5(:total ::text), :envelope ::int / 16), 'hex'));
"""


def prepare(system: DevSystem) -> int:
    """Make the tenants, the type and the bare table; return the size of an envelope in bytes."""
    with connect(system.superuser_dsn, autocommit=True) as superuser:
        superuser.execute("set synchronous_commit = off")
        superuser.execute(
            "select oml_register_event_type('invoice.exported', required_keys => '{invoice,total}',"
            " state_keys => '{status}')"
        )
        for number in range(1, TENANTS + 1):
            superuser.execute(
                "select oml_create_tenant(%(name)s), oml_grant('dev', %(name)s)",
                {"name": f"tenant-{number}"},
            )
        superuser.execute("create table bare (like oml.journal including all)")
        superuser.execute("create sequence bare_seq")
        superuser.execute("grant insert on bare to dev")
        superuser.execute("grant usage on bare_seq to dev")
        with superuser.transaction(force_rollback=True):
            superuser.execute("select oml_grant('postgres', 'tenant-1')")
            superuser.execute(
                "select oml_append('invoice.exported', %s, tenant => 'tenant-1', operation =>"
                " 'export', app_version => '2.4.1', entity_type => 'invoice', entity_id => '50')",
                ('{"invoice": 50, "total": 500000, "currency": "EUR", "status": "exported"}',),
            )
            row = superuser.execute(
                "select octet_length(envelope) from oml.journal where type = 'invoice.exported'"
            ).fetchone()
    assert row is not None
    return int(row[0])


def settle(cluster: Cluster, databases: tuple[str, ...]) -> None:
    """Vacuum, and write out what the preparation left."""
    for database in databases:
        with connect(cluster.dsn(dbname=database), autocommit=True) as superuser:
            superuser.execute("vacuum (freeze, analyze)")
            superuser.execute("checkpoint")


def require_whole(system: DevSystem) -> None:
    """Insist that each event links to the one before, is queued once, and is in its state."""
    with connect(system.superuser_dsn, autocommit=True) as superuser:
        row = superuser.execute(
            "select count(*),"
            " count(*) filter (where p.hash is distinct from j.prev_hash and j.seq > 1), "
            " (select count(*) from oml.outbox), count(j.entity_id),"
            " (select sum(e.event_count) from oml.entity e)"
            " from oml.journal j"
            " left join oml.journal p on p.tenant_id = j.tenant_id and p.seq = j.seq - 1"
        ).fetchone()
    assert row is not None
    events, unlinked, queued, about, folded = row
    if unlinked or queued != events or folded != about:
        raise RuntimeError(f"the appends are not whole: {row}")


def main() -> int:
    """Run the pairs; return the exit status."""
    figures = []
    with common.server() as (system, cluster):
        envelope = prepare(system)
        peer = message_db.install(cluster)
        variables = {"tenants": TENANTS, "entities": ENTITIES, "envelope": envelope}
        settle(cluster, ("oml", message_db.DATABASE))

        def run(dsn: str, script: str, clients: int) -> float:
            return common.pgbench(dsn, script, clients, SECONDS, variables, warm_up=WARM_UP_S)

        def append(clients: int, script: str = APPEND) -> float:
            return run(system.dsn, script, clients)

        def write(clients: int, script: str = WRITE) -> float:
            return run(peer, script, clients)

        def insert(clients: int) -> float:
            return run(system.dsn, INSERT, clients)

        for clients, required in REQUIRED.items():
            found = common.pairs(lambda n=clients: append(n), lambda n=clients: write(n))  # type: ignore[misc]
            figures.append(common.figure(f"append_vs_message_db_c{clients}", found, required))
        found = common.pairs(lambda: append(BARE_CLIENTS), lambda: insert(BARE_CLIENTS))
        figures.append(
            common.figure(f"append_vs_bare_insert_c{BARE_CLIENTS}", found, BARE_REQUIRED)
        )
        for key, ours, theirs in (
            ("keyed_append_vs_message_db", KEYED, WRITE),
            ("append_vs_message_db_one_category", APPEND, WRITE_ONE_CATEGORY),
        ):
            found = common.pairs(
                lambda script=ours: append(BARE_CLIENTS, script),  # type: ignore[misc]
                lambda script=theirs: write(BARE_CLIENTS, script),  # type: ignore[misc]
            )
            figures.append(common.figure(f"{key}_c{BARE_CLIENTS}", found))
        require_whole(system)
    more = {
        "tenants": TENANTS, "entities": ENTITIES * TENANTS, "seconds": SECONDS,
        "envelope_bytes": envelope, "message_db": message_db.VERSION,
    }  # fmt: skip
    return common.finish("append", figures, more)


if __name__ == "__main__":
    sys.exit(main())
