"""Policy files: whose cosignatures make a quorum, and what is no policy."""

import pytest

from oml.core import keys, note
from oml.errors import OmlError, UsageError
from oml.tlog import policy

ORIGIN = "oml/01890a5d-ac96-774b-bcce-b302099a8057/01890a5d-ac96-774b-bcce-b302099a8058/1"
LOG = keys.from_seed(bytes(32))
WITNESSES = {f"W{number}": keys.from_seed(bytes((number,)) * 32) for number in range(1, 7)}
VKEYS = {
    name: note.witness_verifier(f"{name}.example", key.public_key).vkey
    for name, key in WITNESSES.items()
}
LOG_VKEY = note.log_verifier(ORIGIN, LOG.public_key).vkey
TEXT = note.checkpoint_text(ORIGIN, 5, bytes(32))
TWO_LEVELS = f"""# six witnesses of two operators
log {LOG_VKEY} https://log.example/

witness W1 {VKEYS["W1"]}
witness W2\t{VKEYS["W2"]} https://w2.example/prefix
  witness W3 {VKEYS["W3"]}
group X 2 W1 W2 W3
witness W4 {VKEYS["W4"]}
witness W5 {VKEYS["W5"]}
witness W6 {VKEYS["W6"]}
group Y any W4 W5 W6
\t# both
group both all X Y
quorum both
"""


def cosigned(*names: str, log: keys.SigningKey | None = LOG) -> tuple[note.Checkpoint, note.Note]:
    """Return the checkpoint with the log's signature and the cosignatures of these witnesses."""
    lines = []
    if log is not None:
        verifier = note.log_verifier(ORIGIN, log.public_key)
        lines.append(note.log_signature(verifier, note.signed(TEXT, log.secret_key)))
    for name in names:
        lines.append(note.cosign(TEXT, f"{name}.example", WITNESSES[name].secret_key, 100))
    return note.read_checkpoint(TEXT), note.Note(TEXT, tuple(lines))


@pytest.mark.parametrize(
    ("names", "met"),
    [
        ("", False), ("W1", False), ("W1 W2", False), ("W1 W4", False), ("W4 W5 W6", False),
        ("W1 W2 W4", True), ("W2 W3 W6", True), ("W1 W2 W3 W4 W5 W6", True),
    ],
)  # fmt: skip
def test_two_of_three_and_any_of_three_is_a_quorum(names: str, met: bool) -> None:
    made = policy.parse(TWO_LEVELS.encode())
    checkpoint, signed = cosigned(*names.split())
    if met:
        assert made.require(checkpoint, signed) == dict.fromkeys(names.split(), 100)
    else:
        with pytest.raises(OmlError) as caught:
            made.require(checkpoint, signed)
        assert caught.value.exit_code == 1


def test_a_policy_says_where_a_witness_is_asked() -> None:
    made = policy.parse(TWO_LEVELS.encode())
    assert [w.url for w in made.witnesses] == [None, "https://w2.example/prefix", *[None] * 4]
    assert [w.verifier.vkey for w in made.witnesses] == list(VKEYS.values())


def test_a_checkpoint_of_another_log_is_not_met_by_any_quorum() -> None:
    made = policy.parse(f"log {LOG_VKEY}\nquorum none\n".encode())
    made.require(*cosigned())
    for log in (None, keys.from_seed(bytes((9,)) * 32)):
        with pytest.raises(OmlError, match="no log of the policy"):
            made.require(*cosigned(log=log))
    renamed = note.log_verifier(ORIGIN[:-1] + "2", LOG.public_key).vkey
    with pytest.raises(OmlError, match="no log of the policy"):
        policy.parse(f"log {renamed}\nquorum none\n".encode()).require(*cosigned())


def test_a_log_counts_only_for_checkpoints_of_its_own_origin() -> None:
    other = note.log_verifier("other.example", LOG.public_key)
    line = note.log_signature(other, note.signed(TEXT, LOG.secret_key))
    checkpoint, signed = cosigned()
    both = note.Note(TEXT, (*signed.signatures, line))
    with pytest.raises(OmlError, match="no log of the policy"):
        policy.parse(f"log {other.vkey}\nquorum none\n".encode()).require(checkpoint, both)


def test_without_logs_any_log_will_do_and_quorum_none_needs_no_witness() -> None:
    assert policy.parse(b"quorum none\n").require(*cosigned(log=None)) == {}


def test_a_cosignature_that_is_wrong_is_refused_even_beside_a_quorum() -> None:
    made = policy.parse(
        f"witness A {VKEYS['W1']}\nwitness B {VKEYS['W2']}\ngroup G any A B\nquorum G\n".encode()
    )
    checkpoint, signed = cosigned("W1", "W2")
    assert set(made.require(checkpoint, signed)) == {"A", "B"}
    spoiled = signed.signatures[2]._replace(value=bytes(72))
    with pytest.raises(OmlError, match="not that of its key"):
        made.require(checkpoint, note.Note(TEXT, (*signed.signatures[:2], spoiled)))


def test_a_cosignature_without_a_time_is_refused() -> None:
    made = policy.parse(TWO_LEVELS.encode())
    checkpoint, signed = cosigned("W1", "W2", "W4")
    timeless = note.cosign(TEXT, "W5.example", WITNESSES["W5"].secret_key, 0)
    with pytest.raises(OmlError, match="cosignature of W5 has no time"):
        made.require(checkpoint, note.Note(TEXT, (*signed.signatures, timeless)))


def test_groups_may_be_nested_deeply() -> None:
    lines = [f"witness W1 {VKEYS['W1']}", "group g0 any W1"]
    lines += [f"group g{n} all g{n - 1}" for n in range(1, 5000)]
    made = policy.parse("\n".join([*lines, "quorum g4999", ""]).encode())
    assert made.require(*cosigned("W1")) == {"W1": 100}
    with pytest.raises(OmlError, match="no witness of the policy cosigned"):
        made.require(*cosigned())


def test_the_name_of_a_group_is_no_witness() -> None:
    made = policy.parse(TWO_LEVELS.encode())
    assert not made.is_met_by(["both"])
    assert not made.is_met_by(["X", "Y"])


def test_names_are_octets() -> None:
    kelvin = "\u212a".encode()
    made = policy.parse(
        b"witness K " + VKEYS["W1"].encode() + b"\nwitness " + kelvin + b" "
        + VKEYS["W2"].encode() + b"\nwitness \xff " + VKEYS["W3"].encode() + b"\nquorum \xff\n"
    )  # fmt: skip
    made.require(*cosigned("W3"))
    with pytest.raises(OmlError):
        made.require(*cosigned("W1", "W2"))
    assert [policy.printable(w.name) for w in made.witnesses] == ["K", "\u212a", "\\xff"]


def test_a_policy_has_room_for_many() -> None:
    seeds = [keys.from_seed(number.to_bytes(32, "big")) for number in range(40)]
    lines = [
        f"witness w{n} {note.witness_verifier('w', key.public_key).vkey}"
        for n, key in enumerate(seeds)
    ]
    lines += [f"group g{n} all w{n}" for n in range(40)]
    lines += ["group all all " + " ".join(f"g{n}" for n in range(40)), "quorum all", ""]
    assert len(policy.parse("\n".join(lines).encode()).groups) == 41


# The same public keys under other names.
RENAMED = note.witness_verifier("other.example", WITNESSES["W1"].public_key).vkey
OTHER_LOG = note.log_verifier("other.example", LOG.public_key).vkey
ONE = f"witness A {VKEYS['W1']}\nwitness B {VKEYS['W2']}\n"


@pytest.mark.parametrize(
    "text",
    [
        "", ONE, ONE + "quorum A", ONE + "quorum A\nquorum B\n", ONE + "quorum C\n",
        ONE + "quorum A B\n", ONE + "quorum\n", "quorum A\n" + ONE,
        ONE + "group G 3 A B\nquorum G\n", ONE + "group G 0 A B\nquorum G\n",
        ONE + "group G 01 A B\nquorum G\n", ONE + "group G -1 A B\nquorum G\n",
        ONE + "group G all\nquorum G\n", ONE + "group G most A B\nquorum G\n",
        ONE + "group G any A A\nquorum G\n", ONE + "group G any A C\nquorum G\n",
        ONE + "group G any A\ngroup H any A B\nquorum H\n", ONE + "group A any B\nquorum A\n",
        ONE + "group G any G A\nquorum G\n", ONE + "group none any A\nquorum none\n",
        ONE + "group G any none A\nquorum G\n", ONE + f"witness C {VKEYS['W1']}\nquorum A\n",
        ONE + f"witness A {VKEYS['W3']}\nquorum A\n",
        ONE + f"witness C {RENAMED}\nquorum A\n",
        f"log {LOG_VKEY}\nlog {OTHER_LOG}\nquorum none\n",
        ONE + f"witness none {VKEYS['W3']}\nquorum A\n",
        f"log {LOG_VKEY}\nlog {LOG_VKEY}\nquorum none\n", f"log {VKEYS['W1']}\nquorum none\n",
        f"witness A {LOG_VKEY}\nquorum A\n", f"log {LOG_VKEY} url more\nquorum none\n",
        "log\nquorum none\n", "witness A\nquorum A\n", f"log {LOG_VKEY[:-1]}\nquorum none\n",
        "quorum none\r\n", "quorum\vnone\n", "quorum none\0\n", "Quorum none\n",
        f"witness A {VKEYS['W1']} url more\nquorum A\n", "quorum none\nmore\n",
    ],
)  # fmt: skip
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        policy.parse(text.encode())


def test_the_line_that_is_wrong_is_named() -> None:
    with pytest.raises(UsageError, match="line 3: 'wittness'"):
        policy.parse((ONE + "wittness C\nquorum A\n").encode())
