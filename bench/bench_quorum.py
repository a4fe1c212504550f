"""Commits that a standby confirms (A) against commits of the primary's disk alone (B).

A primary and two standbys run on this machine, ``ANY 1 (s1, s2)``. Both ways run on the same
primary with both standbys streaming: only synchronous_commit differs, ``on`` against ``local``.
Once with oml_append, each client in a tenant of its own, and once with a bare INSERT of the
payload.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import common
from oml.dev.cluster import Cluster
from oml.dev.up import DevSystem
from oml.driver.connection import connect

CLIENTS = (1, 8)
SECONDS = 4
STANDBYS = ("s1", "s2")
PAYLOAD = '{"package": "libc6", "version": "2.36-9+deb12u8", "status": "installed"}'
_PATIENCE_S = 60

APPEND = f"""\
select seq from oml_append('job.done', '{PAYLOAD}'::jsonb, tenant => 'bench' || :client_id);
"""
INSERT = f"""\
insert into bare (client, payload) values (:client_id, '{PAYLOAD}'::jsonb);
"""


@contextmanager
def standbys(primary: Cluster) -> Iterator[None]:
    """Run two standbys of a running cluster, which waits for any of them from then on."""
    running: list[Cluster] = []
    try:
        for name in STANDBYS:
            standby = primary.standby(Path(primary.directory).parent / name)
            with (standby.data / "postgresql.conf").open("a") as file:
                file.write(f"cluster_name = '{name}'\n")
            standby.start()
            running.append(standby)
        with connect(primary.dsn(), autocommit=True) as superuser:
            superuser.execute("alter system set synchronous_standby_names = 'ANY 1 (s1, s2)'")
            superuser.execute("select pg_reload_conf()")
            deadline = time.monotonic() + _PATIENCE_S
            counted = "select count(*) from pg_stat_replication where sync_state = 'quorum'"
            while (row := superuser.execute(counted).fetchone()) != (len(STANDBYS),):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"only {row} standbys stream")
                time.sleep(0.05)
        yield
    finally:
        with connect(primary.dsn(), autocommit=True) as superuser:
            superuser.execute("alter system reset synchronous_standby_names")
            superuser.execute("select pg_reload_conf()")
        for standby in running:
            standby.destroy()


def prepare(system: DevSystem) -> None:
    """Make a tenant for each client, the event type, and the bare table."""
    with connect(system.superuser_dsn, autocommit=True) as superuser:
        superuser.execute("select oml_register_event_type('job.done')")
        superuser.execute(
            "create table bare (id bigint generated always as identity primary key,"
            " client int not null, payload jsonb not null, at timestamptz not null default now())"
        )
        superuser.execute("grant insert on bare to dev")
        for number in range(max(CLIENTS)):
            superuser.execute("select oml_create_tenant(%s)", (f"bench{number}",))
            superuser.execute("select oml_grant('dev', %s, '{append}')", (f"bench{number}",))


def main() -> int:
    """Run the pairs; return the exit status."""
    found: dict[str, list[common.Pair]] = {}
    with common.server() as (system, cluster):
        prepare(system)
        with standbys(cluster):

            def rate(script: str, clients: int, level: str) -> float:
                dsn = f"{system.dsn} options='-c synchronous_commit={level}'"
                return common.pgbench(dsn, script, clients, SECONDS)

            for name, script in (("quorum_vs_local", APPEND), ("bare_quorum_vs_local", INSERT)):
                for clients in CLIENTS:
                    found[f"{name}_c{clients}"] = common.pairs(
                        lambda script=script, clients=clients: rate(script, clients, "on"),  # type: ignore[misc]
                        lambda script=script, clients=clients: rate(script, clients, "local"),  # type: ignore[misc]
                    )
    latency = {
        key: {
            "a_ms": round(_latency_ms(key, [pair.a for pair in pairs]), 3),
            "b_ms": round(_latency_ms(key, [pair.b for pair in pairs]), 3),
        }
        for key, pairs in found.items()
    }
    figures = [common.figure(key, pairs) for key, pairs in found.items()]
    return common.finish("quorum", figures, {"latency": latency, "seconds": SECONDS})


def _latency_ms(key: str, rates: list[float]) -> float:
    clients = int(key.rpartition("_c")[2])
    return 1000 * clients / statistics.median(rates)


if __name__ == "__main__":
    sys.exit(main())
