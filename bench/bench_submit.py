"""Submissions with a body (A) against appends of an event without one (B).

Four clients, each with a tenant and a workarea of its own, so that no client waits for another's
chain. A submission has a text of 4 KiB: it is checked, encrypted under a fresh data key which is
wrapped, journalled, and its ciphertext kept. B appends an event of about the size of the event
that a submission is journalled as.
"""

import json
import subprocess
import sys

import common
from oml.dev.cluster import Cluster
from oml.driver.connection import connect

REQUIRED = 0.5
CLIENTS = 4
PAIRS = 9
SECONDS = 5
BODY_BYTES = 4096

# Bound parameters of prepared statements, as a driver sends them.
SUBMIT = """\
select seq from oml_submit(
  'notes', :body, 'text/plain', 'observed', tenant => 'bench' || :client_id);
"""
APPEND = """\
select seq from oml_append('note.added', :payload, tenant => 'bench' || :client_id);
"""
PAYLOAD = {
    "workarea_id": "0198c4f2-7c1e-7b7a-9c55-0242ac120002",
    "path": "notes",
    "provenance": "observed",
    "media_type": "text/plain",
    "bytes": BODY_BYTES,
    "digest": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}
LINE = "What was said at noon, and by whom; nothing of it is secret. "


def prepare(cluster: Cluster) -> None:
    """Make the tenants, their workareas and the event type."""
    with connect(cluster.dsn(dbname="oml"), autocommit=True) as superuser:
        superuser.execute("select oml_register_event_type('note.added')")
        superuser.execute("select oml_grant(session_user, 'provider', '{operate}')")
        for number in range(CLIENTS):
            tenant = f"bench{number}"
            superuser.execute("select oml_create_tenant(%s)", (tenant,))
            superuser.execute("select oml_grant('dev', %s, '{append,submit}')", (tenant,))
            superuser.execute("select oml_grant(session_user, %s, '{operate}')", (tenant,))
            superuser.execute(
                "select oml_create_workarea('notes', %(tenant)s),"
                " oml_add_member('notes', 'dev', %(tenant)s)",
                {"tenant": tenant},
            )


def check(cluster: Cluster) -> int:
    """Insist that all that was submitted is there; return how much that is."""
    with connect(cluster.dsn(dbname="oml"), autocommit=True) as superuser:
        row = superuser.execute(
            "select count(*), count(*) filter (where d.dek_id is null or octet_length(b.ciphertext)"
            " is distinct from %s)"
            " from oml.artifact_version v"
            " left join oml.body b using (tenant_id, artifact_id, version)"
            " left join oml.dek d using (tenant_id, dek_id)",
            (BODY_BYTES + 41,),
        ).fetchone()
    if row is None or row[0] == 0 or row[1] != 0:
        raise RuntimeError(f"what was submitted is not all there: {row}")
    return int(row[0])


def main() -> int:
    """Run the pairs; return the exit status."""
    body = (LINE * BODY_BYTES)[:BODY_BYTES]
    with common.server() as (system, cluster):
        prepare(cluster)

        def submissions() -> float:
            return common.pgbench(system.dsn, SUBMIT, CLIENTS, SECONDS, {"body": body}, warm_up=2)

        def appends() -> float:
            payload = json.dumps(PAYLOAD)
            return common.pgbench(
                system.dsn, APPEND, CLIENTS, SECONDS, {"payload": payload}, warm_up=2
            )

        found = common.pairs(submissions, appends, PAIRS)
        submitted = check(cluster)
        verified = subprocess.run(
            [sys.executable, "-m", "oml", "verify", "--dsn", system.superuser_dsn],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if verified.returncode != 0:
            raise RuntimeError("what was submitted does not verify")
    figures = [common.figure("submit_vs_append", found, REQUIRED)]
    more = {"clients": CLIENTS, "body_bytes": BODY_BYTES, "submitted": submitted}
    return common.finish("submit", figures, more)


if __name__ == "__main__":
    sys.exit(main())
