"""Events a second in batches of 1,000 (A) against single appends (B), at 4 clients.

Each client has a tenant of its own, so that nobody waits for another's chain. Both append the same
events, with one commit a batch and one commit an event.
"""

import json
import sys

import psycopg

from common import figure, finish, pairs, pgbench, server

CLIENTS = 4
BATCH = 1000
SECONDS = 6
REQUIRED = 6.0
PAYLOAD = {"note": "A line of text, as long as a note has.", "lang": "en"}

SINGLE = """
select * from oml_append('note.added', :payload ::jsonb, tenant => 'client-' || :client_id);
"""
BATCHES = """
begin;
select oml_use('client-' || :client_id);
select count(*) from oml_append_batch(:events ::jsonb);
commit;
"""


def main() -> int:
    """Run the benchmark and return its exit status."""
    with server() as (system, _cluster):
        with psycopg.connect(system.superuser_dsn, autocommit=True) as connection:
            connection.execute("select oml_register_event_type('note.added')")
            for client in range(CLIENTS):
                connection.execute(
                    "select oml_create_tenant(%(name)s), oml_grant('dev', %(name)s)",
                    {"name": f"client-{client}"},
                )
        payload = json.dumps(PAYLOAD)
        events = json.dumps([{"type": "note.added", "payload": PAYLOAD}] * BATCH)

        def batches() -> float:
            return BATCH * pgbench(system.dsn, BATCHES, CLIENTS, SECONDS, {"events": events})

        def single() -> float:
            return pgbench(system.dsn, SINGLE, CLIENTS, SECONDS, {"payload": payload})

        found = pairs(batches, single)
    figures = [figure("batch_vs_single", found, REQUIRED)]
    return finish("batch", figures, {"clients": CLIENTS, "batch": BATCH})


if __name__ == "__main__":
    sys.exit(main())
