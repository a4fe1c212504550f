"""The flat CBOR of core/cbor.py against cbor2 and against RFC 8949, 4.2.1."""

from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oml.core import cbor

# Derandomized: the same examples in every run, and none kept between runs.
BOUNDED = settings(max_examples=200, deadline=None, derandomize=True, database=None)

EDGES = [
    edge + step
    for edge in (0, 24, 2**8, 2**16, 2**32, 2**63, 2**64)
    for step in (-1, 0, 1)
    if 0 <= edge + step < 2**64
]
UINTS = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**64 - 1))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)
MAJORS = {
    cbor.UINT: 0x00,
    cbor.NINT: 0x20,
    cbor.BYTES: 0x40,
    cbor.TEXT: 0x60,
    cbor.ARRAY: 0x80,
    cbor.MAP: 0xA0,
    cbor.TAG: 0xC0,
}


def long_head(major: int, argument: int, size: int) -> bytes:
    """Encode a head with an argument of ``size`` bytes, whether or not it needs them."""
    return bytes((major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[size],)) + argument.to_bytes(size)


@pytest.mark.parametrize("value", EDGES)
def test_an_unsigned_integer_at_a_boundary_is_encoded_as_cbor2_does(value: int) -> None:
    assert cbor.uint(value) == cbor2.dumps(value)


@BOUNDED
@given(UINTS)
def test_an_unsigned_integer_is_encoded_as_cbor2_does(value: int) -> None:
    assert cbor.uint(value) == cbor2.dumps(value)


@BOUNDED
@given(st.binary(max_size=400))
@example(bytes(23))
@example(bytes(24))
@example(bytes(255))
@example(bytes(256))
@example(bytes(65535))
@example(bytes(65536))
def test_a_byte_string_is_encoded_as_cbor2_does(value: bytes) -> None:
    assert cbor.byte_string(value) == cbor2.dumps(value)


@BOUNDED
@given(TEXTS)
@example("é" * 12)
@example("\U0010ffff" * 64)
@example("\x00")
def test_a_text_string_is_encoded_as_cbor2_does(value: str) -> None:
    assert cbor.text_string(value) == cbor2.dumps(value)


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("argument", EDGES)
def test_a_head_is_the_shortest_there_is(major: int, argument: int) -> None:
    encoded = cbor.head(major, argument)
    assert encoded[0] & 0xE0 == MAJORS[major]
    assert len(encoded) == len(cbor2.dumps(argument))


@pytest.mark.parametrize("value", [-1, -(2**64), 2**64, 2**80])
def test_an_integer_outside_64_unsigned_bits_is_not_encoded(value: int) -> None:
    with pytest.raises(OverflowError):
        cbor.uint(value)


def test_a_lone_surrogate_is_not_encoded() -> None:
    with pytest.raises(UnicodeEncodeError):
        cbor.text_string("\ud800")


@BOUNDED
@given(st.sampled_from(list(MAJORS)), UINTS, st.binary(max_size=8))
def test_a_reader_returns_what_a_head_holds_and_stops_behind_it(
    major: int, argument: int, rest: bytes
) -> None:
    encoded = cbor.head(major, argument)
    reader = cbor.Reader(encoded + rest)
    assert reader.head(major) == argument
    assert reader.at == len(encoded)


@BOUNDED
@given(TEXTS, st.binary(max_size=400))
def test_a_reader_returns_the_strings_that_were_written(text: str, raw: bytes) -> None:
    reader = cbor.Reader(cbor.text_string(text) + cbor.byte_string(raw))
    assert reader.text_string() == text
    assert reader.byte_string() == raw
    reader.end()


@settings(BOUNDED, max_examples=1000)
@given(st.sampled_from(list(MAJORS)), st.binary(max_size=12))
def test_a_head_that_is_read_is_the_one_that_would_be_written(major: int, data: bytes) -> None:
    reader = cbor.Reader(data)
    try:
        argument = reader.head(major)
    except cbor.MalformedError:
        return
    assert data[: reader.at] == cbor.head(major, argument)


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("argument", EDGES)
def test_a_head_is_accepted_in_its_shortest_form_only(major: int, size: int, argument: int) -> None:
    if argument >= 1 << 8 * size:
        argument %= 1 << 8 * size
    encoded = long_head(major, argument, size)
    reader = cbor.Reader(encoded)
    if encoded == cbor.head(major, argument):
        assert reader.head(major) == argument
    else:
        with pytest.raises(cbor.MalformedError):
            reader.head(major)


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("low", [28, 29, 30, 31])
def test_reserved_and_indefinite_lengths_are_refused(major: int, low: int) -> None:
    with pytest.raises(cbor.MalformedError):
        cbor.Reader(bytes((major << 5 | low,)) + bytes(16)).head(major)


@pytest.mark.parametrize("expected", MAJORS)
@pytest.mark.parametrize("first", range(256))
def test_a_head_of_another_major_type_is_refused(expected: int, first: int) -> None:
    if first >> 5 != expected:
        with pytest.raises(cbor.MalformedError):
            cbor.Reader(bytes((first,)) + b"\xff" * 8).head(expected)


@BOUNDED
@given(st.sampled_from(list(MAJORS)), UINTS, st.data())
def test_a_truncated_head_is_refused(major: int, argument: int, data: st.DataObject) -> None:
    encoded = cbor.head(major, argument)
    kept = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(cbor.MalformedError):
        cbor.Reader(encoded[:kept]).head(major)


@pytest.mark.parametrize("read", [cbor.Reader.byte_string, cbor.Reader.text_string])
@pytest.mark.parametrize("length", [1, 24, 2**16, 2**32, 2**63, 2**64 - 1])
def test_a_string_longer_than_the_data_is_refused(
    read: Callable[[cbor.Reader], Any], length: int
) -> None:
    major = cbor.BYTES if read is cbor.Reader.byte_string else cbor.TEXT
    reader = cbor.Reader(cbor.head(major, length))
    with pytest.raises(cbor.MalformedError):
        read(reader)


@pytest.mark.parametrize(
    "raw", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]
)
def test_text_that_is_not_utf8_is_refused(raw: bytes) -> None:
    with pytest.raises(cbor.MalformedError):
        cbor.Reader(cbor.head(cbor.TEXT, len(raw)) + raw).text_string()


def test_trailing_bytes_are_refused() -> None:
    reader = cbor.Reader(b"\x00\x00")
    reader.head(cbor.UINT)
    with pytest.raises(cbor.MalformedError):
        reader.end()


def test_a_literal_is_stepped_over_only_where_it_stands() -> None:
    reader = cbor.Reader(b"\xd2\x84\xa0")
    reader.expect(b"\xd2\x84")
    with pytest.raises(cbor.MalformedError):
        reader.expect(b"\xa1")
    reader.expect(b"\xa0")
    reader.end()
