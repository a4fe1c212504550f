"""A PgBouncer in transaction mode, with one server connection for each login and database."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oml.dev.cluster import Cluster

PROGRAM = "/usr/sbin/pgbouncer"
_PORT = 6432  # only names the socket
_START_TIMEOUT_S = 60
_CONFIG = """
[databases]
* = host={host} port={port}

[pgbouncer]
listen_port = {listen_port}
unix_socket_dir = {directory}
logfile = {directory}/log
auth_type = trust
auth_file = {directory}/logins
pool_mode = transaction
default_pool_size = 1
server_reset_query_always = {always_reset}
"""


class Pooler:
    """PgBouncer as the server's own user, for these logins; a context manager starts and stops it.

    ``always_reset`` is its server_reset_query_always: DISCARD ALL after every transaction.
    """

    def __init__(
        self, cluster: Cluster, logins: Sequence[str], *, always_reset: bool = False
    ) -> None:
        self.cluster = cluster
        self.logins = logins
        self.always_reset = always_reset

    def __enter__(self) -> Self:
        owner = self.cluster.account
        self.directory = Path(tempfile.mkdtemp(prefix="oml-pooler-", dir="/tmp"))
        os.chown(self.directory, owner.uid, owner.gid)
        server = conninfo_to_dict(self.cluster.dsn())
        config = self.directory / "pgbouncer.ini"
        config.write_text(
            _CONFIG.format(
                host=server["host"],
                port=server["port"],
                listen_port=_PORT,
                directory=self.directory,
                always_reset=int(self.always_reset),
            )
        )
        (self.directory / "logins").write_text("".join(f'"{x}" ""\n' for x in self.logins))
        switch = owner.uid != os.geteuid()
        self._process = subprocess.Popen(
            [PROGRAM, "--quiet", str(config)],
            cwd="/",
            user=owner.uid if switch else None,
            group=owner.gid if switch else None,
            extra_groups=[] if switch else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._await_start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def dsn(self, login: str, database: str) -> str:
        """Return the connection string of a login and database through the pooler."""
        return make_conninfo(host=str(self.directory), port=_PORT, user=login, dbname=database)

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory)

    def _await_start(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.dsn(self.logins[0], "postgres")).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
