"""omld's signer role as a process of its own, for tests that stop, kill and attack it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from oml.core import keys, wire
from systems import System

PATIENCE_S = 60.0
NOBODY = 65534


class Omld:
    """A daemon for one deployment, on keys that only the user who runs the tests can read."""

    def __init__(self, system: System, directory: Path, deployment: UUID) -> None:
        self.system = system
        self.directory = directory
        self.deployment = deployment
        self.socket = directory / "omld.sock"
        self.url = f"unix:{self.socket}"
        self.keys: list[str] = []
        self.process: subprocess.Popen[str] | None = None

    def add_key(self, name: str, content: str | None = None) -> Path:
        """Put a key file, by default with a new key, beside the socket and into the settings."""
        private = self.directory / "keys"
        private.mkdir(mode=0o700, exist_ok=True)
        path = private / name
        if content is None:
            keys.generate(str(path))
        else:
            keys.write_new(str(path), content.encode())
        self.keys.append(f"file:{path}")
        return path

    def environment(self, env: dict[str, str] | None = None) -> dict[str, str]:
        """Return the settings it runs with."""
        return {
            "OML_DEPLOYMENT_ID": str(self.deployment),
            "OML_SIGNER_KEYS": json.dumps(self.keys),
            "OML_SIGNER_SOCKET": str(self.socket),
            **(env or {}),
        }

    def launch(self, *roles: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start it, by default as a signer alone, and do not wait for it."""
        arguments = [word for role in roles or ("signer",) for word in ("--role", role)]
        return self.system.start_oml("serve", "--json", *arguments, env=self.environment(env))

    def start(self, *roles: str, env: dict[str, str] | None = None) -> None:
        """Start it and wait until it serves."""
        self.process = self.launch(*roles, env=env)
        wait_for_log(self.process, "signing for deployment")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        """Stop all its threads, which happens some time after the signal was sent."""
        self.signal(signal.SIGSTOP)
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task")
        deadline = time.monotonic() + PATIENCE_S
        while any(_state(stat) != "T" for stat in tasks.glob("*/stat")):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def kill(self) -> None:
        """End it as a crash does."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(PATIENCE_S)

    def end(self) -> list[str]:
        """End it, insist on status 0 and return what it logged since it served."""
        self.signal(signal.SIGTERM)
        assert self.process is not None
        _, log = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, log
        return [json.loads(line)["message"] for line in log.splitlines()]

    def connect(self) -> socket.socket:
        """Open a connection to its socket."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.socket))  # waits for a place in the queue
            connection.settimeout(PATIENCE_S)
        except BaseException:
            connection.close()
            raise
        return connection

    def ask(self, frame: bytes) -> bytes:
        """Send bytes on a connection of its own and return the content of the answer.

        Raises keys.SignerError for a refusal.
        """
        with self.connect() as connection:
            with suppress(BrokenPipeError):  # refused before we asked: the answer is there
                connection.sendall(frame)
            return wire.read_answer(read_frame(connection))


def _state(stat: Path) -> str:
    """Return the state of a thread: the field behind its name, which may hold spaces."""
    return stat.read_text().rpartition(")")[2].split()[0]


def read_frame(connection: socket.socket) -> bytes:
    """Read one frame without its length; what there is at the end."""
    received = b""
    while len(received) < 4 or len(received) < 4 + wire.frame_length(received):
        part = connection.recv(65536)
        if not part:
            break
        received += part
    return received[4:]


def wait_for_log(process: subprocess.Popen[str], words: str) -> str:
    """Read the log up to the entry with these words and return its message."""
    assert process.stderr is not None
    seen = ""
    while line := process.stderr.readline():
        seen += line
        message: dict[str, Any] = json.loads(line)
        if words in message.get("message", ""):
            return str(message["message"])
    raise AssertionError(f"it ended: {seen}")


def python_as(uid: int, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code of the standard library alone as another user, where we may."""
    command = [
        *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
        *("/usr/bin/python3", "-I", "-c", code, *arguments),
    ]
    if os.geteuid() != 0:
        command = [sys.executable, "-I", "-c", code, *arguments]
    return subprocess.run(
        command, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@contextmanager
def connections(daemon: Omld, count: int) -> Iterator[Sequence[socket.socket]]:
    """Hold idle connections that the daemon has begun to serve."""
    held = []
    try:
        for _ in range(count):
            held.append(daemon.connect())
            held[-1].sendall(wire.request(wire.KEYS))
            wire.read_answer(read_frame(held[-1]))
        yield held
    finally:
        for connection in held:
            connection.close()
