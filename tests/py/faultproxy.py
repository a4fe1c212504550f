"""An HTTP proxy before an S3 server that loses, delays and refuses what passes through it."""

import http.client
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["unacknowledged", "slow-down", "stalled", "stalled-and-lost", "cut-short"]
KINDS: tuple[Kind, ...] = (
    "unacknowledged", "slow-down", "stalled", "stalled-and-lost", "cut-short",
)  # fmt: skip
"""unacknowledged: done, and the connection dropped before the answer. slow-down: refused with 503.
stalled: done, and never answered. stalled-and-lost: neither. cut-short: half the body goes on."""
QUICK: tuple[Kind, ...] = ("unacknowledged", "slow-down", "cut-short")
STALL_S = 4.0
"""How long a stalled request is held; the client is told to wait less."""

_HOP = {"connection", "keep-alive", "transfer-encoding"}
_BUSY = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


@dataclass
class Fault:
    """What happens to the requests that match, ``times`` of them after the first ``after``."""

    kind: Kind
    method: str
    path: str
    times: int = 1
    after: int = 0


class FaultProxy:
    """Passes on to a server what comes; ``faults`` and ``chance`` say what goes wrong."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._server = (parts.hostname or "", parts.port or 80)
        self._lock = threading.Lock()
        self.faults: list[Fault] = []
        self.chance: tuple[random.Random, float] | None = None
        """A source of chance and how often it makes a request go wrong, in [0, 1]."""
        self.met: Counter[Kind] = Counter()
        self.meanwhile: Callable[[], None] = lambda: None
        """Called when a request was cut short or went unacknowledged, before the client hears."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __getattr__(self, name: str) -> object:
                if name.startswith("do_"):
                    return lambda: proxy._handle(self)
                raise AttributeError(name)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True

    @property
    def endpoint(self) -> str:
        """The URL that clients use."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator["FaultProxy"]:
        """Serve for as long as the block."""
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()

    def heal(self) -> None:
        """Let everything pass from now on."""
        with self._lock:
            self.faults, self.chance = [], None

    def _due(self, method: str, path: str) -> Kind | None:
        with self._lock:
            for fault in self.faults:
                if re.fullmatch(fault.method, method) and re.search(fault.path, path):
                    if fault.after > 0:
                        fault.after -= 1
                    elif fault.times > 0:
                        fault.times -= 1
                        self.met[fault.kind] += 1
                        return fault.kind
            if self.chance is not None and self.chance[0].random() < self.chance[1]:
                kind = self.chance[0].choice([*QUICK * 3, *KINDS])
                self.met[kind] += 1
                return kind
        return None

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        kind = self._due(request.command, request.path)
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if kind == "slow-down":
            request.send_response(503)
            request.send_header("Content-Length", str(len(_BUSY)))
            request.end_headers()
            request.wfile.write(_BUSY)
            return
        if kind == "stalled-and-lost":
            self._drop(request, STALL_S)
            return
        if kind == "cut-short":
            self._cut(request, body)
            return
        answer = self._pass_on(request, body)
        if kind == "stalled":
            self._drop(request, STALL_S)
        elif kind == "unacknowledged" or answer is None:
            self._drop(request, 0)
        else:
            status, headers, content = answer
            request.send_response_only(status)
            for name, value in headers:
                if name.lower() not in _HOP:
                    request.send_header(name, value)
            if not any(name.lower() == "content-length" for name, _ in headers):
                request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)

    def _pass_on(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """Ask the server, with the client's own Host, which its signature covers."""
        connection = http.client.HTTPConnection(*self._server, timeout=60)
        try:
            connection.putrequest(
                request.command, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.items():
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _cut(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Send the server half of a body, then drop both connections."""
        connection = http.client.HTTPConnection(*self._server, timeout=60)
        try:
            connection.putrequest(
                request.command, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body[: len(body) // 2])
        except OSError:
            pass
        finally:
            connection.close()
        self._drop(request, 0)

    def _drop(self, request: BaseHTTPRequestHandler, after_s: float) -> None:
        threading.Event().wait(after_s)
        self.meanwhile()
        request.close_connection = True
        request.connection.close()
