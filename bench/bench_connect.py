"""What a connection costs: the first append of a fresh backend, and what a pooler changes.

PL/Python, the core and every plan are a backend's own, and made at its first append. So a client
that connects for each append (A) is held against one that keeps its connection (B), directly and
through PgBouncer in transaction mode; and 16 clients of one tenant through a pool of two server
connections against 16 with one each.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import common
from oml.dev.cluster import Cluster
from oml.driver.connection import connect

SECONDS = 3
WARM_UP_S = 2
CLIENTS = 16
POOL = 2
FRESH = 10
WARM = 20
PGBOUNCER = "/usr/sbin/pgbouncer"
_PORT = 6432  # only names the socket
_START_TIMEOUT_S = 30

APPEND = """\
select seq from oml_append('job.done', '{"package": "libc6", "status": "installed"}'::jsonb);
"""
_CONFIG = """\
[databases]
* = host={host} port={port}

[pgbouncer]
listen_port = {listen_port}
unix_socket_dir = {directory}
logfile = {directory}/log
auth_type = trust
auth_file = {directory}/logins
pool_mode = transaction
default_pool_size = {size}
"""


@contextmanager
def pooler(cluster: Cluster, login: str, database: str, size: int) -> Iterator[str]:
    """Run PgBouncer with ``size`` server connections; yield the connection string through it."""
    owner = cluster.account
    with tempfile.TemporaryDirectory(prefix="oml-pooler-", dir="/tmp") as name:
        directory, config = Path(name), Path(name) / "pgbouncer.ini"
        server = conninfo_to_dict(cluster.dsn())
        config.write_text(
            _CONFIG.format(
                host=server["host"],
                port=server["port"],
                listen_port=_PORT,
                directory=directory,
                size=size,
            )
        )
        (directory / "logins").write_text(f'"{login}" ""\n')
        switch = owner.uid != os.geteuid()  # it refuses to run as root
        if switch:
            shutil.chown(directory, owner.uid, owner.gid)
        process = subprocess.Popen(
            [PGBOUNCER, "--quiet", str(config)],
            cwd="/",
            user=owner.uid if switch else None,
            group=owner.gid if switch else None,
            extra_groups=[] if switch else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            dsn = make_conninfo(host=name, port=_PORT, user=login, dbname=database)
            _await(process, dsn)
            yield dsn
        finally:
            process.terminate()
            process.wait()


def _await(process: subprocess.Popen[bytes], dsn: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            psycopg.connect(dsn).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def first_and_warm(dsn: str) -> tuple[common.Pair, dict[str, float]]:
    """Return one pair: first appends of fresh backends a second, and warm ones; and both in ms."""
    connects, firsts, warms = [], [], []
    for _ in range(FRESH):
        started = time.perf_counter()
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
            connection.execute("select 1")
            connects.append(time.perf_counter() - started)
            took = []
            for _ in range(1 + WARM):
                started = time.perf_counter()
                connection.execute(APPEND)
                took.append(time.perf_counter() - started)
        firsts.append(took[0])
        warms.append(statistics.median(took[1:]))
    connecting, first, warm = (statistics.median(times) for times in (connects, firsts, warms))
    milliseconds = {"connect": 1000 * connecting, "first": 1000 * first, "warm": 1000 * warm}
    return common.Pair(1 / first, 1 / warm), milliseconds


def main() -> int:
    """Run the pairs; return the exit status."""
    with common.server() as (system, cluster):
        with connect(system.superuser_dsn, autocommit=True) as superuser:
            superuser.execute("select oml_register_event_type('job.done')")
        first_and_warm(system.dsn)
        measured = [first_and_warm(system.dsn) for _ in range(common.PAIRS)]
        with pooler(cluster, "dev", "oml", POOL) as pooled:

            def rate(dsn: str, *, clients: int = 1, reconnect: bool = False) -> float:
                # PgBouncer 1.18 knows nothing of prepared statements: no way here has them.
                return common.pgbench(
                    dsn,
                    APPEND,
                    clients,
                    SECONDS,
                    warm_up=0 if reconnect else WARM_UP_S,
                    reconnect=reconnect,
                    protocol="extended",
                )

            found = common.rounds(
                {
                    "kept": lambda: rate(system.dsn),
                    "each": lambda: rate(system.dsn, reconnect=True),
                    "pooled": lambda: rate(pooled, reconnect=True),
                    "kept_c16": lambda: rate(system.dsn, clients=CLIENTS),
                    "pooled_c16": lambda: rate(pooled, clients=CLIENTS),
                }
            )
    figures = {
        "first_vs_warm_append": [pair for pair, _ in measured],
        "connect_each_vs_kept": common.against(found["each"], found["kept"]),
        "pooled_connect_each_vs_kept": common.against(found["pooled"], found["kept"]),
        "one_tenant_c16_pool_of_2_vs_direct": common.against(
            found["pooled_c16"], found["kept_c16"]
        ),
    }
    names = ("connect", "first", "warm")
    milliseconds = {n: round(statistics.median(ms[n] for _, ms in measured), 2) for n in names}
    kept = [common.figure(key, pairs) for key, pairs in figures.items()]
    return common.finish("connect", kept, {"milliseconds": milliseconds})


if __name__ == "__main__":
    sys.exit(main())
