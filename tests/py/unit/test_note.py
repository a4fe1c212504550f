"""Notes, checkpoints and cosignatures: the specifications' examples, round trips, refusals."""

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oml.core import keys, note
from oml.core.note import NoteError, SignatureError

# Derandomized: the same examples in every run, and none kept between runs.
BOUNDED = settings(max_examples=200, deadline=None, derandomize=True, database=None)

LOG = keys.from_seed(bytes(range(32)))
WITNESS = keys.from_seed(bytes(range(32, 64)))
DEPLOYMENT = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057")
TENANT = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8058")
ORIGIN = note.origin(DEPLOYMENT, TENANT, 1)
TEXT = note.checkpoint_text(ORIGIN, 3, bytes(range(32)))
KEY = note.log_verifier(ORIGIN, LOG.public_key)
COSIGNER = note.witness_verifier("witness.example/w1", WITNESS.public_key)

EXAMPLE_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE = """This is an example message.

\u2014 example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=
"""  # noqa: E501


def checkpoint() -> note.Note:
    """Return a checkpoint with the log's signature."""
    line = note.log_signature(KEY, note.signed(TEXT, LOG.secret_key))
    return note.Note(TEXT, (line,))


def cosignature(seconds: int = 1679315147) -> note.Signature:
    """Return a witness' cosignature of it."""
    return note.cosign(TEXT, COSIGNER.name, WITNESS.secret_key, seconds)


def test_the_specifications_example_verifies_under_its_key() -> None:
    verifier = note.parse_vkey(EXAMPLE_KEY)
    assert (verifier.name, verifier.kind) == ("example.com/foo", note.ED25519)
    assert verifier.key_id.hex() == "530d903a"
    assert verifier.vkey == EXAMPLE_KEY
    parsed = note.parse(EXAMPLE.encode())
    assert parsed.text == "This is an example message.\n"
    assert note.is_signed(parsed, verifier)
    assert parsed.encode() == EXAMPLE.encode()


def test_another_text_does_not_verify() -> None:
    changed = note.parse(EXAMPLE.replace("example message", "other message").encode())
    with pytest.raises(SignatureError):
        note.is_signed(changed, note.parse_vkey(EXAMPLE_KEY))


def test_a_checkpoint_comes_back_as_it_was_written() -> None:
    data = checkpoint().encode()
    read, parsed = note.parse_checkpoint(data)
    assert read == note.Checkpoint(ORIGIN, 3, bytes(range(32)), ())
    assert parsed.encode() == data
    assert note.is_signed(parsed, KEY)
    assert note.parse_origin(read.origin) == (DEPLOYMENT, TENANT, 1)


def test_a_signature_of_an_unknown_key_is_passed_over() -> None:
    other = note.log_verifier(ORIGIN, WITNESS.public_key)
    renamed = note.log_verifier("example.com/else", LOG.public_key)
    assert not note.is_signed(checkpoint(), other)
    assert not note.is_signed(checkpoint(), renamed)
    with_more = note.with_signatures(checkpoint(), [note.Signature("who", b"1234", b"5")])
    assert note.is_signed(note.parse(with_more.encode()), KEY)


def test_a_wrong_signature_under_a_known_key_is_refused_even_beside_a_right_one() -> None:
    right = checkpoint().signatures[0]
    wrong = right._replace(value=bytes(64))
    for signatures in ((right, wrong), (wrong, right), (wrong,), (right._replace(value=b"x"),)):
        with pytest.raises(SignatureError):
            note.is_signed(note.Note(TEXT, signatures), KEY)


@BOUNDED
@given(st.integers(0, len(checkpoint().encode()) * 8 - 1))
def test_a_checkpoint_with_one_bit_flipped_is_never_taken_for_signed(bit: int) -> None:
    data = bytearray(checkpoint().encode())
    data[bit // 8] ^= 1 << bit % 8
    try:
        _, parsed = note.parse_checkpoint(bytes(data))
        assert not note.is_signed(parsed, KEY)
    except NoteError:
        pass


def test_a_cosignature_says_when_it_was_made() -> None:
    cosigned = note.with_signatures(checkpoint(), [cosignature()])
    parsed = note.parse(cosigned.encode())
    assert note.cosigned_at(parsed, COSIGNER) == 1679315147
    assert note.cosigned_at(checkpoint(), COSIGNER) is None
    newer = note.with_signatures(parsed, [cosignature(1679315148), cosignature(0)])
    assert note.cosigned_at(newer, COSIGNER) == 1679315148


def test_what_a_witness_signs_is_the_text_of_the_specification() -> None:
    assert note.cosigned_text(TEXT, 1679315147) == f"cosignature/v1\ntime 1679315147\n{TEXT}"


def test_the_example_of_the_cosignature_specification_has_its_time() -> None:
    line = (
        "\u2014 witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dl"
        "rDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
    )
    (parsed,) = note.parse_signatures(line)
    assert parsed.key_id.hex() == "8d66cf3f"
    assert int.from_bytes(parsed.value[:8], "big") == 1679315147
    assert len(parsed.value) == 8 + 64
    assert parsed.line() == line


def test_a_cosignature_that_was_changed_is_refused() -> None:
    good = cosignature()
    other_time = good._replace(value=(1).to_bytes(8, "big") + good.value[8:])
    past_all_time = good._replace(value=b"\xff" * 8 + good.value[8:])
    for wrong in (other_time, past_all_time, good._replace(value=good.value[:-1])):
        with pytest.raises(SignatureError):
            note.cosigned_at(note.Note(TEXT, (wrong,)), COSIGNER)
    with pytest.raises(SignatureError):
        note.cosigned_at(note.Note(TEXT + "x\n", (good,)), COSIGNER)


def test_a_signature_of_one_type_is_none_of_the_other() -> None:
    """The same key as log and as witness, under one name: two key ids, and two texts."""
    as_witness = note.witness_verifier(ORIGIN, LOG.public_key)
    assert as_witness.key_id != KEY.key_id
    assert note.cosigned_at(checkpoint(), as_witness) is None
    cosigned = note.Note(TEXT, (note.cosign(TEXT, ORIGIN, LOG.secret_key, 5),))
    assert not note.is_signed(cosigned, KEY)
    relabelled = cosigned.signatures[0]
    relabelled = note.Signature(ORIGIN, KEY.key_id, relabelled.value[8:])
    with pytest.raises(SignatureError):
        note.is_signed(note.Note(TEXT, (relabelled,)), KEY)
    with pytest.raises(NoteError):
        note.is_signed(checkpoint(), as_witness)
    with pytest.raises(NoteError):
        note.cosigned_at(checkpoint(), KEY)


def test_a_key_comes_back_from_its_text() -> None:
    for verifier in (KEY, COSIGNER):
        assert note.parse_vkey(verifier.vkey) == verifier


@pytest.mark.parametrize(
    "text",
    [
        "", "example.com/foo", "example.com/foo+530d903a", "+530d903a+AQ==",
        EXAMPLE_KEY.replace("530d903a", "530d903b"), EXAMPLE_KEY.replace("530d903a", "530D903A"),
        EXAMPLE_KEY.replace("example", "exam ple"), EXAMPLE_KEY[:-1], EXAMPLE_KEY + "=",
        EXAMPLE_KEY.replace("Aeky", "Auky"), "example.com/foo+530d903a+",
        EXAMPLE_KEY.replace("foo+", "foo+x+"), EXAMPLE_KEY + "\n",
    ],
)  # fmt: skip
def test_a_key_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        note.parse_vkey(text)


SIGNATURE_LINE = checkpoint().signatures[0].line()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"text\n",
        b"text\n\n",
        b"text\n" + SIGNATURE_LINE.encode(),
        ("text\n\n" + SIGNATURE_LINE[:-1]).encode(),
        ("text\n\n" + SIGNATURE_LINE + "\n").encode(),
        ("te\tt\n\n" + SIGNATURE_LINE).encode(),
        ("te\rt\n\n" + SIGNATURE_LINE).encode(),
        ("te\0t\n\n" + SIGNATURE_LINE).encode(),
        ("\x1ftext\n\n" + SIGNATURE_LINE).encode(),
        b"te\xfft\n\n" + SIGNATURE_LINE.encode(),
        b"te\xed\xa0\x80t\n\n" + SIGNATURE_LINE.encode(),
        ("text\n\n" + SIGNATURE_LINE.replace("\u2014", "-")).encode(),
        ("text\n\n" + SIGNATURE_LINE.replace("\u2014 ", "\u2014")).encode(),
        ("text\n\n" + SIGNATURE_LINE.replace("\u2014 ", "\u2014  ")).encode(),
        ("text\n\n" + SIGNATURE_LINE.replace("oml", "o+l")).encode(),
        ("text\n\n" + SIGNATURE_LINE.replace("oml", "o\u00a0l")).encode(),
        ("text\n\n" + SIGNATURE_LINE.replace("oml", "o\u2028l")).encode(),
        ("text\n\n" + SIGNATURE_LINE.replace("\n", " \n")).encode(),
        ("text\n\n" + SIGNATURE_LINE.replace("=\n", "\n")).encode(),
        ("text\n\n" + SIGNATURE_LINE.replace("=\n", "==\n")).encode(),
        "text\n\n\u2014 name AAAA\n".encode(),
        "text\n\n\u2014 name AAAAAB==\n".encode(),
        "text\n\n\u2014 name AAAA-_AA\n".encode(),
        "text\n\n\u2014 name\n".encode(),
        "text\n\n\u2014  AAAAAA==\n".encode(),
        ("text\n\n" + SIGNATURE_LINE * (note.MAX_SIGNATURES + 1)).encode(),
        b"x" * note.MAX_NOTE_BYTES + b"\n\n" + SIGNATURE_LINE.encode(),
        ("text\n\n\u2014 " + "n" * 513 + " AAAAAAA=\n").encode(),
    ],
)
def test_a_note_that_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(NoteError):
        note.parse(data)


def test_a_note_may_have_blank_lines_and_many_signatures() -> None:
    data = f"one\n\ntwo\n\n\n{SIGNATURE_LINE * note.MAX_SIGNATURES}".encode()
    parsed = note.parse(data)
    assert parsed.text == "one\n\ntwo\n\n"
    assert len(parsed.signatures) == note.MAX_SIGNATURES >= 16
    assert parsed.encode() == data


@BOUNDED
@given(st.binary(max_size=200))
def test_what_parses_is_written_back_as_it_was(noise: bytes) -> None:
    data = noise + b"\n\n" + SIGNATURE_LINE.encode()
    try:
        parsed = note.parse(data)
    except NoteError:
        return
    assert parsed.encode() == data


ROOT = note.encode_base64(bytes(32))


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "o\n", "o\n3\n", f"o\n3\n{ROOT}", f"\n3\n{ROOT}\n", f"o\n03\n{ROOT}\n",
        f"o\n-3\n{ROOT}\n", f"o\n+3\n{ROOT}\n", f"o\n3 \n{ROOT}\n", f"o\n\u0663\n{ROOT}\n",
        f"o\n{2**63}\n{ROOT}\n", f"o\n{10**40}\n{ROOT}\n", f"o\n\n{ROOT}\n", "o\n3\n\n",
        f"o\n3\n{ROOT[:-1]}\n", f"o\n3\n{ROOT} \n", f"o\n3\n{note.encode_base64(bytes(31))}\n",
        f"o\n3\n{note.encode_base64(bytes(33))}\n", f"o\n3\n{ROOT[:-2]}B=\n", f"o\n3\n{ROOT}\n\n",
        f"o\n3\n{ROOT}\nx\n\n", f"o\n3\n{ROOT}\n" + "x\n" * 17, f"o\r\n3\n{ROOT}\n",
    ],
)  # fmt: skip
def test_a_text_that_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        note.read_checkpoint(text)


def test_an_extension_line_is_read_as_part_of_what_is_signed() -> None:
    assert note.read_checkpoint(f"o\n0\n{ROOT}\nmore\n") == note.Checkpoint(
        "o", 0, bytes(32), ("more",)
    )


@pytest.mark.parametrize(
    ("origin", "size", "root"),
    [
        ("", 1, bytes(32)), ("a\nb", 1, bytes(32)), ("a\tb", 1, bytes(32)), ("o", -1, bytes(32)),
        ("o", 2**63, bytes(32)), ("o", 1, bytes(31)),
    ],
)  # fmt: skip
def test_a_checkpoint_that_would_not_be_read_back_is_not_made(
    origin: str, size: int, root: bytes
) -> None:
    with pytest.raises(NoteError):
        note.checkpoint_text(origin, size, root)


@pytest.mark.parametrize(
    "text",
    [
        "", "oml", f"oml/{DEPLOYMENT}/{TENANT}/0", f"oml/{DEPLOYMENT}/{TENANT}/01",
        f"oml/{DEPLOYMENT}/{TENANT}", f"oml/{DEPLOYMENT}/{TENANT}/1/",
        f"xml/{DEPLOYMENT}/{TENANT}/1",
        f"oml/{DEPLOYMENT}/{str(TENANT).upper()}/1", f"oml/{DEPLOYMENT}/{TENANT.hex}----/1",
        f"oml/{DEPLOYMENT}/{TENANT}/1\n",
    ],
)  # fmt: skip
def test_an_origin_of_another_form_is_no_tenants(text: str) -> None:
    with pytest.raises(NoteError):
        note.parse_origin(text)


def test_there_is_no_generation_zero() -> None:
    with pytest.raises(NoteError):
        note.origin(DEPLOYMENT, TENANT, 0)


def test_a_signature_is_added_once_and_not_without_end() -> None:
    once = note.with_signatures(checkpoint(), [cosignature(), cosignature()])
    assert note.with_signatures(once, [cosignature()]) == once
    assert len(once.signatures) == 2
    more: list[Any] = [cosignature(seconds) for seconds in range(note.MAX_SIGNATURES)]
    with pytest.raises(NoteError):
        note.with_signatures(once, more)


def test_a_witness_cosigns_nothing_but_checkpoints() -> None:
    with pytest.raises(NoteError):
        note.cosign("any text\n", COSIGNER.name, WITNESS.secret_key, 5)
