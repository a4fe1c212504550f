"""A chain's transparency log as a publisher leaves it in the database, and a witness of its own."""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import UUID

from oml.core import envelope, keys, merkle, note
from systems import System


@dataclass
class Grown:
    """The tiles of a tree, each under its own width."""

    tiles: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    size: int = 0

    def tile(self, level: int, index: int, width: int) -> bytes:
        """See merkle.Tiles."""
        return self.tiles[level, index, width]

    @property
    def root(self) -> bytes:
        """The root of the whole tree."""
        return merkle.root(self, self.size)

    def add(self, leaves: Sequence[bytes]) -> list[merkle.Tile]:
        """Grow by these leaves, and return the tiles that this made."""
        made = list(merkle.new_tiles(self, self.size, leaves))
        for tile in made:
            self.tiles[tile.level, tile.index, tile.width] = tile.hashes
        self.size += len(leaves)
        return made


def sign(
    system: System, tenant_id: UUID, size: int, root: bytes | None = None, generation: int = 1
) -> bytes:
    """Have the database sign a checkpoint, of the root that the journal has unless one is given."""
    asked = grown(system, tenant_id, size).root if root is None else root
    row = system.superuser.execute(
        "select oml.tlog_sign(%s, %s, %s, %s)", (tenant_id, generation, size, asked)
    ).fetchone()
    assert row is not None
    return str(row[0]).encode()


def forge(key: keys.SigningKey, origin: str, size: int, root: bytes) -> bytes:
    """Return a checkpoint as whoever has the key can sign it."""
    log = note.log_verifier(origin, key.public_key)
    text = note.checkpoint_text(origin, size, root)
    return note.Note(text, (note.log_signature(log, note.signed(text, key.secret_key)),)).encode()


def grown(system: System, tenant_id: UUID, size: int | None = None) -> Grown:
    """Return the tree of a chain's first events."""
    rows = system.superuser.execute(
        "select envelope from oml.journal where tenant_id = %s order by seq limit %s",
        (tenant_id, size),
    ).fetchall()
    tree = Grown()
    tree.add([merkle.leaf_hash(envelope.digest(row[0])) for row in rows])
    return tree


def publish(system: System, tenant_id: UUID, size: int | None = None) -> tuple[Grown, bytes]:
    """Put a chain's checkpoint into the database; return its tiles and the checkpoint."""
    tree = grown(system, tenant_id, size)
    checkpoint = sign(system, tenant_id, tree.size, tree.root)
    system.superuser.execute(
        "select oml.tlog_record(%s, 1, %s, %s, %s)",
        (tenant_id, tree.size, tree.root, checkpoint.decode()),
    )
    return tree, checkpoint


class WitnessServer:
    """A witness (c2sp.org/tlog-witness) that keeps what it saw in memory.

    ``logs`` are the keys that it knows, by origin. ``answers`` are given instead of its own while
    there are any: (status, body).
    """

    def __init__(self, name: str, seed: bytes) -> None:
        self.key = keys.from_seed(seed)
        self.verifier = note.witness_verifier(name, self.key.public_key)
        self.logs: dict[str, bytes] = {}
        self.seen: dict[str, note.Checkpoint] = {}
        self.requests: list[tuple[str, bytes]] = []
        self.answers: list[tuple[int, bytes]] = []
        self.now = 1_700_000_000
        self._lock = threading.Lock()

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve on the loopback, and yield the URL."""
        witness = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with witness._lock:
                    witness.requests.append((self.path, body))
                    status, answer = (
                        witness.answers.pop(0)
                        if witness.answers
                        else witness.add_checkpoint(self.path, body)
                    )
                self.send_response(status)
                kind = "text/x.tlog.size" if status == 409 else "text/plain"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/prefix"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def add_checkpoint(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Judge a checkpoint as the specification says, in its order."""
        head, blank, checkpoint = body.partition(b"\n\n")
        first, *proof = head.decode().split("\n")
        old = re.fullmatch("old (0|[1-9][0-9]*)", first)
        if path != "/prefix/add-checkpoint" or not blank or old is None or len(proof) > 63:
            return 400, b"malformed\n"
        try:
            asked, signed = note.parse_checkpoint(checkpoint)
            hashes = [note.decode_base64(line) for line in proof]
        except note.NoteError:
            return 400, b"malformed\n"
        if asked.origin not in self.logs:
            return 404, b"unknown log\n"
        try:
            verifier = note.log_verifier(asked.origin, self.logs[asked.origin])
            if not note.is_signed(signed, verifier):
                return 403, b"not signed\n"
        except note.SignatureError:
            return 403, b"badly signed\n"
        old_size = int(old[1])
        if old_size > asked.size:
            return 400, b"smaller\n"
        seen = self.seen.get(asked.origin)
        if old_size != (seen.size if seen else 0):
            return 409, f"{seen.size if seen else 0}\n".encode()
        root = seen.root if seen else merkle.EMPTY_ROOT
        try:
            merkle.verify_consistency(old_size, asked.size, root, asked.root, hashes)
        except merkle.ProofError:
            return 422, b"inconsistent\n"
        self.seen[asked.origin] = asked
        self.now += 1
        made = note.cosign(signed.text, self.verifier.name, self.key.secret_key, self.now)
        return 200, made.line().encode()
