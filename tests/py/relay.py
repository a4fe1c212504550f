"""A relay before a server's socket, which can cut a connection at one point of the talk."""

import contextlib
import select
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_PORT = 6543  # only names the socket
_READY = b"Z\x00\x00\x00\x05"  # how the server ends each answer
_BYTES = 1 << 20

When = Literal["before", "after"]


class Relay:
    """Relays to the server of a connection string; a context manager starts and ends it."""

    def __init__(self, dsn: str) -> None:
        self._server = conninfo_to_dict(dsn)
        self._marker: bytes | None = None
        self._when: When = "before"
        self._passed = 0
        self._meanwhile: Callable[[], Any] = lambda: None
        self._ends: list[socket.socket] = []
        self.cuts = 0

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="oml-relay-", dir="/tmp"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._directory / f".s.PGSQL.{_PORT}"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for end in (self._listener, *self._ends):
            _end(end)
        shutil.rmtree(self._directory)

    @property
    def dsn(self) -> str:
        """The connection string of the same database through the relay."""
        here: dict[str, Any] = {"host": str(self._directory), "port": _PORT}
        return make_conninfo(**self._server | here)

    def cut(
        self,
        marker: bytes,
        when: When,
        *,
        passing: int = 0,
        meanwhile: Callable[[], Any] = lambda: None,
    ) -> None:
        """Cut the connection on which a client next sends something with ``marker`` in it.

        Before the server has it, or after it has answered, of which the client hears nothing.
        ``passing`` such messages are let through first. ``meanwhile`` is called before the client
        notices.
        """
        self._meanwhile = meanwhile
        self._when, self._passed, self._marker = when, passing, marker

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._server['host']}/.s.PGSQL.{self._server['port']}")
            self._ends += [client, server]
            threading.Thread(target=self._relay, args=(client, server), daemon=True).start()

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(_BYTES)
                    if not data:
                        return
                    if ready is server:
                        client.sendall(data)
                    elif self._cuts(data):
                        if self._when == "after":
                            server.sendall(data)
                            _await_answer(server)
                        self.cuts += 1
                        self._meanwhile()
                        return
                    else:
                        server.sendall(data)
        except (OSError, ValueError):
            return
        finally:
            _end(client)
            _end(server)

    def _cuts(self, data: bytes) -> bool:
        if self._marker is None or self._marker not in data:
            return False
        self._passed -= 1
        if self._passed >= 0:
            return False
        self._marker = None
        return True


def _await_answer(server: socket.socket) -> None:
    answer = b""
    while _READY not in answer:
        data = server.recv(_BYTES)
        if not data:
            return
        answer += data


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
