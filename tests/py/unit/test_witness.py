"""Cosignatures collected from witnesses that serve HTTP, keep state and follow the protocol."""

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from oml.core import keys, merkle, note
from oml.tlog import policy, witness
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
        lines = witness.collect(self.policy, data, GROWN, old)
        return note.parse(data + b"".join(lines))


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
        asked = replace(two.policy, witnesses=(replace(first, url=url), second))
        lines = witness.collect(asked, checkpoint(3), GROWN, {})
        assert len(lines) == 1
    assert caplog.text.count("it cannot be asked") == 3


def test_a_witness_without_a_url_is_not_asked(two: Two) -> None:
    silent = replace(
        two.policy, witnesses=tuple(replace(w, url=None) for w in two.policy.witnesses)
    )
    assert witness.collect(silent, checkpoint(3), GROWN, {}) == []
    assert not any(server.requests for server in two.servers)
