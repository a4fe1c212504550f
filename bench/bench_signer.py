"""Appends signed by omld (A) against appends signed in the database process (B).

Four clients, each with a tenant of its own, so that no client waits for another's chain. The key is
the same one, and so are tables, payload and statements; only the setting ``signer`` changes.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import common
from oml.dev.cluster import Cluster
from oml.dev.up import DevSystem
from oml.driver.connection import connect

KEY = "daemon_vs_file_signer"
REQUIRED = 0.6
CLIENTS = 4
PAIRS = 15  # many short ones: what else the machine does changes within seconds
SECONDS = 3
_START_TIMEOUT_S = 30

SCRIPT = """\
select seq from oml_append(
  'job.done', '{"package": "libc6", "version": "2.36-9+deb12u8", "status": "installed"}'::jsonb,
  tenant => 'bench' || :client_id);
"""


@contextmanager
def daemon(system: DevSystem, deployment: str) -> Iterator[str]:
    """Run omld's signer on a copy of the system's key; yield its socket's path."""
    directory = Path(system.dir) / "omld"
    directory.mkdir()  # others may pass through to the socket
    key, socket = directory / "signing.key", directory / "omld.sock"
    shutil.copy(system.key_file, key)  # the copy is ours: omld runs as us
    key.chmod(0o600)
    settings = {
        "OML_DEPLOYMENT_ID": deployment,
        "OML_SIGNER_KEYS": f'["file:{key}"]',
        "OML_SIGNER_SOCKET": str(socket),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "oml", "serve", "--role", "signer"],
        env={**os.environ, **settings},
        cwd=directory,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("omld did not start")
            time.sleep(0.02)
        yield str(socket)
    finally:
        process.terminate()
        process.wait()


def prepare(cluster: Cluster) -> str:
    """Make the tenants and the event type; return the deployment's id."""
    with connect(cluster.dsn(dbname="oml"), autocommit=True) as superuser:
        superuser.execute("select oml_register_event_type('job.done')")
        for number in range(CLIENTS):
            superuser.execute("select oml_create_tenant(%s)", (f"bench{number}",))
            superuser.execute("select oml_grant('dev', %s, '{append}')", (f"bench{number}",))
        row = superuser.execute("select oml.deployment_id()").fetchone()
        assert row is not None
        return str(row[0])


def main() -> int:
    """Run the pairs; return the exit status."""
    with common.server() as (system, cluster), daemon(system, prepare(cluster)) as socket:

        def appends(signer: str) -> float:
            with connect(system.superuser_dsn, autocommit=True) as superuser:
                superuser.execute("select oml_configure('signer', %s)", (signer,))
            return common.pgbench(system.dsn, SCRIPT, CLIENTS, SECONDS)

        found = common.pairs(
            lambda: appends(f"unix:{socket}"), lambda: appends(f"file:{system.key_file}"), PAIRS
        )
        verified = subprocess.run(
            [sys.executable, "-m", "oml", "verify", "--dsn", system.superuser_dsn],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if verified.returncode != 0:
            raise RuntimeError("what was appended does not verify")
    figures = [common.figure(KEY, found, REQUIRED)]
    return common.finish("signer", figures, {"clients": CLIENTS, "seconds": SECONDS})


if __name__ == "__main__":
    sys.exit(main())
