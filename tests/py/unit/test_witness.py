"""Cosignatures collected from witnesses that serve HTTP, keep state and follow the protocol."""

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest

from oml.core import keys, merkle, note
from oml.store import DirectoryStore
from oml.tlog import policy, witness
from oml.tlog.log import Log, Published
from tlogs import Grown, WitnessServer

ORIGIN = "oml/01890a5d-ac96-774b-bcce-b302099a8057/01890a5d-ac96-774b-bcce-b302099a8058/1"
LOG = keys.from_seed(bytes(32))
LEAVES = [merkle.leaf_hash(bytes((n % 256,)) * 32) for n in range(600)]
GROWN = Grown()
for _size in (1, 3, 300, 600):
    GROWN.add(LEAVES[GROWN.size : _size])


def checkpoint(size: int, key: keys.SigningKey = LOG, root: bytes | None = None) -> bytes:
    """Return the checkpoint of the log at a size."""
    text = note.checkpoint_text(ORIGIN, size, root or merkle.root(GROWN, size))
    verifier = note.log_verifier(ORIGIN, key.public_key)
    line = note.log_signature(verifier, note.signed(text, key.secret_key))
    return note.Note(text, (line,)).encode()


class Two:
    """Two witnesses that know the log, and the policy that names them."""

    def __init__(self, stack: ExitStack) -> None:
        self.servers = [WitnessServer(f"w{n}.example", bytes((n,)) * 32) for n in (1, 2)]
        lines = []
        for number, server in enumerate(self.servers, 1):
            server.logs[ORIGIN] = LOG.public_key
            url = stack.enter_context(server.serve())
            lines.append(f"witness W{number} {server.verifier.vkey} {url}\n")
        text = "".join(lines) + "group both all W1 W2\nquorum both\n"
        self.policy = policy.parse(text.encode())

    def collect(self, size: int, old: dict[str, int], **changes: bytes) -> note.Note:
        """Collect for the log at a size and return the cosigned checkpoint."""
        data = changes.get("data") or checkpoint(size)
        found = witness.collect(self.policy.witnesses, data, GROWN, old)
        return note.parse(data + b"".join(found.lines))


@pytest.fixture
def two() -> Iterator[Two]:
    """Two witnesses that serve."""
    with ExitStack() as stack:
        yield Two(stack)


def test_every_witness_cosigns_a_log_that_grows(two: Two) -> None:
    old: dict[str, int] = {}
    for size in (1, 3, 3, 300, 600):
        cosigned = two.collect(size, old)
        times = two.policy.require(note.read_checkpoint(cosigned.text), cosigned)
        assert set(times) == {"W1", "W2"}
        assert set(old.values()) == {size}
    assert [len(server.requests) for server in two.servers] == [5, 5]


def test_what_a_witness_has_seen_is_learned_from_its_conflict(two: Two) -> None:
    two.collect(300, {})
    old: dict[str, int] = {}
    assert len(two.collect(600, old).signatures) == 3
    assert old == {server.verifier.vkey: 600 for server in two.servers}
    assert [body.split(b"\n")[0] for _, body in two.servers[0].requests] == [
        b"old 0", b"old 0", b"old 300"
    ]  # fmt: skip


def test_a_witness_that_has_seen_more_is_reported_and_does_not_cosign(
    two: Two, caplog: pytest.LogCaptureFixture
) -> None:
    two.collect(600, {})
    old: dict[str, int] = {}
    with caplog.at_level(logging.WARNING, "oml.witness"):
        assert len(two.collect(300, old).signatures) == 1
    assert set(old.values()) == {600}
    assert caplog.text.count("it has seen the log at 600 entries, and this checkpoint has 300") == 2


def test_another_history_is_not_cosigned(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    old: dict[str, int] = {}
    two.collect(300, old)
    other = checkpoint(300, root=bytes(32))
    assert len(two.collect(300, old, data=other).signatures) == 1
    forked = checkpoint(600, root=bytes(32))
    assert len(two.collect(600, old, data=forked).signatures) == 1
    assert caplog.text.count("it answered with status 422") == 4
    assert len(two.collect(600, old).signatures) == 3


def test_a_log_that_a_witness_does_not_know_or_another_key_is_not_cosigned(
    two: Two, caplog: pytest.LogCaptureFixture
) -> None:
    two.servers[0].logs.clear()
    two.servers[1].logs[ORIGIN] = keys.from_seed(bytes((7,)) * 32).public_key
    assert len(two.collect(3, {}).signatures) == 1
    assert "status 404" in caplog.text and "status 403" in caplog.text


def cosignature(name: str, seed: bytes, size: int, seconds: int = 5) -> bytes:
    """Return somebody's cosignature line of the log at a size."""
    text = note.parse(checkpoint(size)).text
    return note.cosign(text, name, keys.from_seed(seed).secret_key, seconds).line().encode()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"no line\n"),
        (200, b"\xff\n"),
        (200, cosignature("w1.example", bytes((9,)) * 32, 3)),
        (200, cosignature("w1.example", bytes((1,)) * 32, 300)),
        (200, cosignature("w1.example", bytes((1,)) * 32, 3, 0)),
        (200, cosignature("w1.example", bytes((1,)) * 32, 3)[:-1]),
        (200, b"x" * (witness.MAX_ANSWER_BYTES + 1)),
        (409, b"three\n"),
        (409, b"03\n"),
        (409, b"3"),
        (301, b""),
        (500, b"no\n"),
    ],
)
def test_an_answer_that_is_no_cosignature_is_left_out_and_the_others_count(
    two: Two, caplog: pytest.LogCaptureFixture, status: int, body: bytes
) -> None:
    two.servers[0].answers = [(status, body)]
    cosigned = two.collect(3, {})
    assert set(two.policy.cosigned_at(cosigned)) == {"W2"}
    assert "witness W1 did not cosign" in caplog.text


def test_lines_of_others_in_an_answer_are_left_out(two: Two) -> None:
    right = cosignature("w1.example", bytes((1,)) * 32, 3)
    other = cosignature("else.example", bytes((9,)) * 32, 3)
    two.servers[0].answers = [(200, other + right)]
    assert [s.name for s in two.collect(3, {}).signatures[1:]] == ["w1.example", "w2.example"]


def test_a_witness_that_never_settles_is_given_up(
    two: Two, caplog: pytest.LogCaptureFixture
) -> None:
    two.servers[0].answers = [(409, b"1\n"), (409, b"3\n"), (409, b"1\n"), (409, b"3\n")]
    assert len(two.collect(300, {}).signatures) == 2
    assert "keeps changing" in caplog.text
    assert len(two.servers[0].answers) == 1


def test_a_witness_that_is_away_or_hangs_up_does_not_stop_the_others(
    two: Two, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{closed.getsockname()[1]}"
    first, second = two.policy.witnesses
    for url in (away, "gopher://nowhere", "not a URL"):
        found = witness.collect((replace(first, url=url), second), checkpoint(3), GROWN, {})
        assert len(found.lines) == 1
        assert isinstance(found.failed[first.verifier.vkey], witness.WitnessAway)
    assert caplog.text.count("it cannot be asked") == 3


def test_a_witness_without_a_url_is_not_asked(two: Two) -> None:
    silent = [replace(w, url=None) for w in two.policy.witnesses]
    assert witness.collect(silent, checkpoint(3), GROWN, {}) == witness.Collected([], {})
    assert not any(server.requests for server in two.servers)


def test_a_redirect_is_not_followed(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    first, second = two.policy.witnesses

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(307)
            self.send_header("Location", f"{second.url}/add-checkpoint")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        asked = replace(first, url=f"http://127.0.0.1:{server.server_port}")
        assert witness.collect([asked], checkpoint(3), GROWN, {}).lines == []
        server.shutdown()
    assert "status 307" in caplog.text
    assert not any(each.requests for each in two.servers)


# -- logs in a store -------------------------------------------------------------------------------


class Offered:
    """Logs of one entry each in a directory, and who has them cosigned."""

    def __init__(self, two: Two, place: Path, count: int) -> None:
        self.two = two
        self.store = DirectoryStore(place.as_uri(), make=True)
        self.cosigner = witness.Cosigner(self.store, two.policy)
        deployment, tenant, _ = note.parse_origin(ORIGIN)
        self.logs = [Log(self.store, deployment, UUID(int=tenant.int + n), 1) for n in range(count)]
        for log in self.logs:
            self.publish(log)
            for server in two.servers:
                server.logs[log.origin] = LOG.public_key

    def publish(self, log: Log, size: int = 1) -> None:
        """Put a checkpoint there, as a publisher does, and offer it."""
        root = merkle.root(GROWN, size)
        text = note.checkpoint_text(log.origin, size, root)
        line = note.log_signature(
            note.log_verifier(log.origin, LOG.public_key), note.signed(text, LOG.secret_key)
        )
        data = note.Note(text, (line,)).encode()
        for tile in merkle.new_tiles(GROWN, 0, LEAVES[:size]):
            path = merkle.tile_path(tile.level, tile.index, tile.width)
            self.store.create(log.path(path), tile.hashes)
        old = self.store.get(log.checkpoint_path)
        assert self.store.replace(log.checkpoint_path, data, old)
        self.cosigner.offer(log, Published(data, size, root))

    def cosigned(self) -> list[str]:
        """Return, for each log, the numbers of the witnesses that cosigned it."""
        found = []
        for log in self.logs:
            data = self.store.get(log.checkpoint_path)
            assert data is not None
            names = self.two.policy.cosigned_at(note.parse(data))
            found.append("".join(sorted(name[1:] for name in names)))
        return found


def test_a_log_that_a_witness_refuses_does_not_starve_the_others(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "FIRST_WAIT_S", 1000.0)
    offered = Offered(two, tmp_path, 4)
    for server in two.servers:
        del server.logs[offered.logs[0].origin]
    offered.cosigner.round()
    assert offered.cosigned() == ["", "12", "12", "12"]
    made = {each.log.origin: each.made for each in offered.cosigner.made()}
    assert set(made) == {log.origin for log in offered.logs[1:]}
    for log in offered.logs[1:]:
        assert offered.store.get(log.checkpoint_path) == made[log.origin].data
    assert offered.cosigner.made() == []
    asked = [len(server.requests) for server in two.servers]
    assert asked == [4, 4]
    offered.publish(offered.logs[0], 3)
    offered.cosigner.round()
    assert [len(server.requests) for server in two.servers] == asked, "it waits, grown or not"


def test_a_witness_that_is_away_is_asked_for_one_log_a_round_and_the_other_for_all(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(witness, "FIRST_WAIT_S", 0.0)
    first, second = two.policy.witnesses
    asked = two.policy
    two.policy = replace(asked, witnesses=(replace(first, url="http://127.0.0.1:1"), second))
    offered = Offered(two, tmp_path, 3)
    offered.cosigner.round()
    assert offered.cosigned() == ["2", "2", "2"]
    assert caplog.text.count("it cannot be asked") == 1
    assert len(two.servers[1].requests) == 3
    offered.cosigner.round()
    assert caplog.text.count("it cannot be asked") == 2, "it is asked again"
    assert len(two.servers[1].requests) == 3, "who cosigned is not"
    # Who starts later with what was published offers it again, and the missing one is asked alone.
    two.policy = asked
    later = witness.Cosigner(offered.store, asked)
    for log in offered.logs:
        data = offered.store.get(log.checkpoint_path)
        assert data is not None
        later.offer(log, Published(data, 1, merkle.root(GROWN, 1)))
    later.round()
    assert offered.cosigned() == ["12", "12", "12"]
    assert [len(server.requests) for server in two.servers] == [3, 3]
    later.round()
    assert [len(server.requests) for server in two.servers] == [3, 3]


def test_a_checkpoint_that_another_has_replaced_is_left_alone(two: Two, tmp_path: Path) -> None:
    offered = Offered(two, tmp_path, 1)
    (log,) = offered.logs
    old = offered.store.get(log.checkpoint_path)
    assert old is not None
    asked = two.servers[0].add_checkpoint

    def overtaken(path: str, body: bytes) -> tuple[int, bytes]:
        assert offered.store.replace(log.checkpoint_path, b"another", old)
        return asked(path, body)

    two.servers[0].add_checkpoint = overtaken  # type: ignore[method-assign]
    offered.cosigner.round()
    assert offered.store.get(log.checkpoint_path) == b"another"
    assert offered.cosigner.made() == []
    offered.cosigner.offer(log, Published(old, 1, merkle.root(GROWN, 1)))
    asked_before = len(two.servers[1].requests)
    offered.cosigner.round()
    assert len(two.servers[1].requests) == asked_before, "it is not the published one any more"


def test_after_it_is_stopped_nothing_is_put_any_more(two: Two, tmp_path: Path) -> None:
    offered = Offered(two, tmp_path, 1)
    offered.cosigner.round(lambda: bool(two.servers[0].requests))
    assert len(two.servers[0].requests) == 1
    assert offered.cosigned() == [""]
    assert offered.cosigner.made() == []
