"""The envelope: one shape, exact bytes, and what independent implementations say of it."""

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cbor2
import cwt
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from oml import core
from oml.core import cbor, cose, envelope, keys

# Derandomized: the same examples in every run, and none kept between runs.
BOUNDED = settings(max_examples=200, deadline=None, derandomize=True, database=None)
MANY = settings(BOUNDED, max_examples=1500)

VECTORS = Path(__file__).parents[2] / "vectors"
SYSTEM_PYTHON = "/usr/bin/python3"  # the one PL/Python runs
DOCUMENT: dict[str, Any] = json.loads((VECTORS / "envelope.json").read_bytes())
SEED = bytes.fromhex(DOCUMENT["seed"])
KEY = keys.from_seed(SEED)
OTHER_KEY = keys.from_seed(bytes(32))
KEY_OF = {f.column: f.key for f in envelope.FIELDS}
REQUIRED = [f for f in envelope.FIELDS if f.required]
SIZED = [f for f in envelope.FIELDS if f.size is not None]

UINTS = st.integers(0, 2**64 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def values_of(field: envelope.Field) -> st.SearchStrategy[Any]:
    """Return every value that a field may take."""
    if field.column == "version":
        return st.just(envelope.VERSION)
    if field.kind == "uint":
        return UINTS
    if field.kind == "text":
        return TEXTS
    if field.size is not None:
        return st.binary(min_size=field.size, max_size=field.size)
    return st.binary(max_size=300)


EVENTS = st.fixed_dictionaries(
    {f.column: values_of(f) for f in envelope.FIELDS if f.required},
    optional={f.column: values_of(f) for f in envelope.FIELDS if not f.required},
)


def full_event() -> dict[str, Any]:
    """Return the vector that has every field."""
    return fields_of(DOCUMENT["vectors"][1])


def fields_of(vector: dict[str, Any]) -> dict[str, Any]:
    """Return a vector's fields; byte strings stand there as {"hex": ...}."""
    return {
        column: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
        for column, value in vector["fields"].items()
    }


def short(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the map as it is encoded: keys instead of columns."""
    return {KEY_OF[column]: value for column, value in fields.items()}


def by_cbor2(decoded: envelope.Envelope) -> bytes:
    """Encode what was decoded again, with cbor2 alone."""
    protected = cbor2.dumps({1: -8, 3: envelope.CONTENT_TYPE, 4: decoded.kid}, canonical=True)
    payload = cbor2.dumps(short(decoded.fields), canonical=True)
    return cbor2.dumps(cbor2.CBORTag(18, [protected, {}, payload, decoded.sign1.signature]))


def assemble(
    *,
    start: bytes = b"\xd2\x84",
    protected: bytes | None = None,
    unprotected: bytes = b"\xa0",
    payload: bytes | None = None,
    signature: bytes | None = None,
    end: bytes = b"",
) -> bytes:
    """Put a COSE_Sign1 together from encoded parts, those of a good envelope unless given."""
    sign1 = envelope.decode(good()).sign1
    return b"".join(
        (
            start,
            cbor.byte_string(sign1.protected) if protected is None else protected,
            unprotected,
            cbor.byte_string(sign1.payload) if payload is None else payload,
            cbor.byte_string(sign1.signature) if signature is None else signature,
            end,
        )
    )


def good() -> bytes:
    """Return a good envelope."""
    return bytes.fromhex(DOCUMENT["vectors"][1]["envelope"])


def with_map(encoded: bytes) -> bytes:
    """Return a good envelope around another encoded payload map, signed anew."""
    return cose.sign(cose.protected_header(envelope.CONTENT_TYPE, KEY.kid), encoded, KEY.secret_key)


def with_header(encoded: bytes) -> bytes:
    """Return a good envelope with another encoded protected header, signed anew."""
    return cose.sign(encoded, envelope.decode(good()).sign1.payload, KEY.secret_key)


def encoded_pairs(fields: dict[str, Any]) -> list[bytes]:
    """Return the encoded entries of a map in their order."""
    return [cbor2.dumps(k) + cbor2.dumps(v) for k, v in sorted_pairs(short(fields))]


def sorted_pairs(entries: dict[str, Any]) -> list[tuple[str, Any]]:
    """Sort as RFC 8949, 4.2.1 has it: bytewise by the encoded key."""
    return sorted(entries.items(), key=lambda pair: cbor2.dumps(pair[0]))


def as_map(pairs: list[bytes]) -> bytes:
    """Encode a map of these encoded entries."""
    return cbor.head(cbor.MAP, len(pairs)) + b"".join(pairs)


def refused(data: bytes) -> None:
    """Insist that the decoder refuses the bytes, in the one way it has."""
    with pytest.raises(cbor.MalformedError):
        envelope.decode(data)


# --- the map ---------------------------------------------------------------------------------


def test_the_fields_stand_in_the_bytewise_order_of_their_encoded_keys() -> None:
    encoded = [cbor2.dumps(f.key) for f in envelope.FIELDS]
    assert encoded == sorted(encoded)
    assert len(set(encoded)) == len(encoded)


def test_no_two_fields_share_a_column() -> None:
    assert len({f.column for f in envelope.FIELDS}) == len(envelope.FIELDS)


@BOUNDED
@given(EVENTS)
def test_the_map_is_encoded_as_cbor2_encodes_it_canonically(fields: dict[str, Any]) -> None:
    encoded = envelope.encode_map(tuple(fields.get(f.column) for f in envelope.FIELDS))
    assert encoded == cbor2.dumps(short(fields), canonical=True)


@BOUNDED
@given(EVENTS)
def test_every_field_survives_the_round_trip(fields: dict[str, Any]) -> None:
    decoded = envelope.decode(envelope.encode(fields, KEY.kid, KEY.secret_key))
    assert decoded.fields == fields
    assert decoded.kid == KEY.kid


@BOUNDED
@given(EVENTS)
def test_the_hash_is_the_sha256_of_the_exact_bytes(fields: dict[str, Any]) -> None:
    data = envelope.encode(fields, KEY.kid, KEY.secret_key)
    expected = hashlib.sha256(data).digest()
    assert envelope.decode(data).hash == expected
    assert envelope.digest(data) == expected


@BOUNDED
@given(EVENTS)
def test_the_same_event_is_always_the_same_bytes(fields: dict[str, Any]) -> None:
    reordered = dict(reversed(fields.items()))
    assert envelope.encode(fields, KEY.kid, KEY.secret_key) == envelope.encode(
        reordered, KEY.kid, KEY.secret_key
    )


@pytest.mark.parametrize("field", [f for f in envelope.FIELDS if f.kind == "uint"])
@pytest.mark.parametrize("value", [-1, 2**64])
def test_an_unsigned_field_out_of_range_is_not_encoded(field: envelope.Field, value: int) -> None:
    with pytest.raises(OverflowError):
        envelope.encode(full_event() | {field.column: value}, KEY.kid, KEY.secret_key)


@pytest.mark.parametrize("size", [0, 7, 9, 32])
def test_a_kid_of_another_length_is_not_encoded(size: int) -> None:
    with pytest.raises(ValueError, match="kid"):
        envelope.encode(full_event(), bytes(size), KEY.secret_key)


# --- bytes that are no envelope --------------------------------------------------------------


@MANY
@given(EVENTS, st.data())
def test_what_decodes_re_encodes_to_itself_whatever_bytes_were_changed(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    spoiled = bytearray(envelope.encode(fields, KEY.kid, KEY.secret_key))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(spoiled) - 1))
        kind = data.draw(st.sampled_from(["flip", "set", "insert", "delete", "copy"]))
        if kind == "flip":
            spoiled[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "set":
            spoiled[at] = data.draw(st.integers(0, 255))
        elif kind == "insert":
            spoiled[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        elif kind == "delete":
            del spoiled[at : at + data.draw(st.integers(1, 9))]
        else:
            spoiled[at:at] = spoiled[at : at + data.draw(st.integers(1, 40))]
        if not spoiled:
            break
    try:
        decoded = envelope.decode(bytes(spoiled))
    except cbor.MalformedError:
        return
    assert by_cbor2(decoded) == bytes(spoiled)


@MANY
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_as_malformed_and_in_no_other_way(data: bytes) -> None:
    refused(data)


@MANY
@given(EVENTS, st.data())
def test_a_spoiled_map_under_a_good_signature_is_refused_or_is_exact(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    encoded = bytearray(envelope.encode_map(tuple(fields.get(f.column) for f in envelope.FIELDS)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255))
    try:
        decoded = envelope.decode(with_map(bytes(encoded)))
    except cbor.MalformedError:
        return
    assert cbor2.dumps(short(decoded.fields), canonical=True) == bytes(encoded)


def test_every_single_bit_flip_is_refused_or_breaks_the_signature() -> None:
    data = bytes.fromhex(DOCUMENT["vectors"][0]["envelope"])
    for bit in range(len(data) * 8):
        spoiled = bytearray(data)
        spoiled[bit // 8] ^= 1 << bit % 8
        try:
            decoded = envelope.decode(bytes(spoiled))
        except cbor.MalformedError:
            continue
        assert not cose.verify(decoded.sign1, KEY.public_key), f"bit {bit}"


def test_every_truncation_is_refused() -> None:
    data = good()
    for length in range(len(data)):
        refused(data[:length])


@pytest.mark.parametrize("end", [b"\x00", b"\xf6", b"\xff", b"\x80", bytes(64)])
def test_trailing_bytes_are_refused(end: bytes) -> None:
    refused(good() + end)


def test_two_envelopes_in_a_row_are_refused() -> None:
    refused(good() * 2)


def test_an_empty_envelope_is_refused() -> None:
    refused(b"")


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"\x84", id="untagged"),
        pytest.param(b"\xd1\x84", id="COSE_Mac0"),
        pytest.param(b"\xd0\x84", id="COSE_Encrypt0"),
        pytest.param(b"\xd8\x62\x84", id="COSE_Sign"),
        pytest.param(b"\xd8\x12\x84", id="tag with a long head"),
        pytest.param(b"\xd9\x00\x12\x84", id="tag with a longer head"),
        pytest.param(b"\xd2\xd2\x84", id="tagged twice"),
        pytest.param(b"\xd9\xd9\xf7\xd2\x84", id="self-described CBOR"),
        pytest.param(b"\xd8\x3d\xd2\x84", id="tagged as CWT"),
        pytest.param(b"\xd2\x98\x04", id="array with a long head"),
        pytest.param(b"\xd2\x83", id="array of three"),
        pytest.param(b"\xd2\x85", id="array of five"),
        pytest.param(b"\xd2\xa4", id="map"),
        pytest.param(b"\xd2\x9f", id="array of indefinite length"),
    ],
)
def test_another_tag_or_array_is_refused(start: bytes) -> None:
    refused(assemble(start=start))
    refused(assemble(start=start, end=b"\xff"))


@pytest.mark.parametrize(
    "unprotected",
    [
        cbor2.dumps({4: KEY.kid}),
        cbor2.dumps({1: -8}),
        cbor2.dumps({"note": "x"}),
        b"\xb8\x00",
        b"\xbf\xff",
        b"\xf6",
        b"\x40",
        b"\x80",
    ],
)
def test_an_unprotected_header_that_is_not_the_empty_map_is_refused(unprotected: bytes) -> None:
    refused(assemble(unprotected=unprotected))


def test_the_parts_are_refused_in_any_other_form() -> None:
    sign1 = envelope.decode(good()).sign1
    for name in ("protected", "payload", "signature"):
        part: bytes = getattr(sign1, name)
        chunked = b"\x5f" + cbor.byte_string(part[:5]) + cbor.byte_string(part[5:]) + b"\xff"
        long_head = b"\x5b" + len(part).to_bytes(8) + part
        as_text = cbor.head(cbor.TEXT, len(part)) + part
        for form in (chunked, long_head, as_text, b"\xf6", b"\xf7", b"\x00", b"\xd8\x18" + chunked):
            refused(assemble(**{name: form}))
        refused(assemble(**{name: b""}))


def test_a_detached_payload_is_refused() -> None:
    refused(assemble(payload=b"\xf6"))
    refused(assemble(payload=b"\x40"))


@pytest.mark.parametrize("size", [0, 1, 63, 65, 96, 128])
def test_a_signature_of_another_length_is_refused(size: int) -> None:
    refused(assemble(signature=cbor.byte_string(bytes(size))))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({1: -7, 3: envelope.CONTENT_TYPE, 4: KEY.kid}, id="ES256"),
        pytest.param({1: -19, 3: envelope.CONTENT_TYPE, 4: KEY.kid}, id="Ed25519 of RFC 9864"),
        pytest.param({1: 0, 3: envelope.CONTENT_TYPE, 4: KEY.kid}, id="alg 0"),
        pytest.param({1: "EdDSA", 3: envelope.CONTENT_TYPE, 4: KEY.kid}, id="alg as text"),
        pytest.param({3: envelope.CONTENT_TYPE, 4: KEY.kid}, id="no alg"),
        pytest.param({1: -8, 4: KEY.kid}, id="no content type"),
        pytest.param({1: -8, 3: envelope.CONTENT_TYPE}, id="no kid"),
        pytest.param({}, id="empty"),
        pytest.param({1: -8, 3: 60, 4: KEY.kid}, id="content type as number"),
        pytest.param({1: -8, 3: "application/cbor", 4: KEY.kid}, id="another content type"),
        pytest.param({1: -8, 3: envelope.CONTENT_TYPE + "2", 4: KEY.kid}, id="longer type"),
        pytest.param({1: -8, 3: envelope.CONTENT_TYPE.upper(), 4: KEY.kid}, id="upper-case type"),
        pytest.param({1: -8, 3: envelope.CONTENT_TYPE, 4: KEY.kid[:7]}, id="kid of 7 bytes"),
        pytest.param({1: -8, 3: envelope.CONTENT_TYPE, 4: KEY.kid + b"x"}, id="kid of 9 bytes"),
        pytest.param({1: -8, 3: envelope.CONTENT_TYPE, 4: b""}, id="empty kid"),
        pytest.param({1: -8, 3: envelope.CONTENT_TYPE, 4: KEY.kid.hex()}, id="kid as text"),
        pytest.param({1: -8, 2: [4], 3: envelope.CONTENT_TYPE, 4: KEY.kid}, id="crit"),
        pytest.param({1: -8, 3: envelope.CONTENT_TYPE, 4: KEY.kid, 5: b"iv"}, id="extra header"),
        pytest.param({1: -8, 3: envelope.CONTENT_TYPE, 4: KEY.kid, "x": 1}, id="extra text key"),
    ],
)
def test_another_protected_header_is_refused_even_well_signed(header: dict[Any, Any]) -> None:
    refused(with_header(cbor2.dumps(header)))


def test_a_protected_header_in_another_form_is_refused() -> None:
    alg, kind, kid = b"\x01\x27", b"\x03" + cbor.text_string(envelope.CONTENT_TYPE), b"\x04\x48"
    kid += KEY.kid
    text = envelope.CONTENT_TYPE.encode()
    assert envelope.decode(with_header(b"\xa3" + alg + kind + kid)).kid == KEY.kid
    for header in (
        b"\xa3" + kind + alg + kid,
        b"\xa3" + alg + kid + kind,
        b"\xa4" + alg + alg + kind + kid,
        b"\xa4" + alg + kind + kid + kid,
        b"\xb8\x03" + alg + kind + kid,
        b"\xbf" + alg + kind + kid + b"\xff",
        b"\xa3\x18\x01\x27" + kind + kid,
        b"\xa3\x01\x38\x07" + kind + kid,
        b"\xa3" + alg + b"\x03\x79" + len(text).to_bytes(2) + text + kid,
        b"\xa3" + alg + kind + b"\x04\x58\x08" + KEY.kid,
        b"\xa3" + alg + kind + kid + b"\x00",
        b"",
        b"\xa0",
    ):
        refused(with_header(header))


@pytest.mark.parametrize("field", envelope.FIELDS, ids=lambda f: f.column)
def test_a_field_of_another_type_is_refused(field: envelope.Field) -> None:
    forms = {"uint": 7, "bytes": bytes(field.size or 3), "text": "abc"}
    del forms[field.kind]
    others = [*forms.values(), None, -1, 1.5, True, [], {}, cbor2.undefined, cbor2.CBORTag(2, b"")]
    for value in others:
        fields = short(full_event()) | {field.key: value}
        pairs = [cbor2.dumps(k) + cbor2.dumps(v) for k, v in sorted_pairs(fields)]
        refused(with_map(as_map(pairs)))


@pytest.mark.parametrize("field", envelope.FIELDS, ids=lambda f: f.column)
def test_a_field_in_a_longer_form_is_refused(field: envelope.Field) -> None:
    value = full_event()[field.column]
    if field.kind == "uint":
        forms = [b"\x1b" + value.to_bytes(8)] if value < 2**32 else []
        forms += [b"\xc2" + cbor2.dumps(value.to_bytes(9)), b"\xfb" + bytes(8)]
    else:
        raw = value if field.kind == "bytes" else value.encode()
        major = 0x40 if field.kind == "bytes" else 0x60
        whole = cbor2.dumps(value)
        forms = [
            bytes((major | 27,)) + len(raw).to_bytes(8) + raw,
            bytes((major | 31,)) + whole + b"\xff",
            b"\xd8\x40" + whole,
        ]
    for form in forms:
        pairs = encoded_pairs(full_event())
        at = envelope.FIELDS.index(field)
        pairs[at] = cbor2.dumps(field.key) + form
        refused(with_map(as_map(pairs)))


@pytest.mark.parametrize("field", REQUIRED, ids=lambda f: f.column)
def test_a_map_without_a_required_field_is_refused(field: envelope.Field) -> None:
    fields = full_event()
    del fields[field.column]
    refused(with_map(as_map(encoded_pairs(fields))))


@pytest.mark.parametrize("field", SIZED, ids=lambda f: f.column)
def test_a_field_of_another_size_is_refused(field: envelope.Field) -> None:
    assert field.size is not None
    for size in (0, field.size - 1, field.size + 1, 255):
        refused(with_map(as_map(encoded_pairs(full_event() | {field.column: bytes(size)}))))


@pytest.mark.parametrize("version", [0, 2, 24, 2**64 - 1])
def test_another_envelope_version_is_refused(version: int) -> None:
    refused(with_map(as_map(encoded_pairs(full_event() | {"version": version}))))


@pytest.mark.parametrize("at", range(len(envelope.FIELDS)))
def test_a_repeated_key_is_refused(at: int) -> None:
    pairs = encoded_pairs(full_event())
    for again in (at, len(pairs)):
        refused(with_map(as_map([*pairs[:again], pairs[at], *pairs[again:]])))


@BOUNDED
@given(st.permutations(range(len(envelope.FIELDS))))
def test_a_map_in_another_order_is_refused(order: list[int]) -> None:
    pairs = encoded_pairs(full_event())
    moved = [pairs[i] for i in order]
    if moved == pairs:
        assert envelope.decode(with_map(as_map(moved))).fields == full_event()
    else:
        refused(with_map(as_map(moved)))


@pytest.mark.parametrize("key", ["", "a", "zz", "pay", "d\x00", "payload"])
def test_an_unknown_key_is_refused(key: str) -> None:
    pairs = sorted([*encoded_pairs(full_event()), cbor2.dumps(key) + cbor2.dumps(1)])
    refused(with_map(as_map(pairs)))


@pytest.mark.parametrize("key", [b"\x00", b"\x20", b"\x41d", b"\xf5", b"\x80", b"\x78\x01d"])
def test_a_key_that_is_no_short_text_is_refused(key: bytes) -> None:
    pairs = encoded_pairs(full_event())
    refused(with_map(as_map([key + b"\x00", *pairs])))
    refused(with_map(as_map([*pairs, key + b"\x00"])))


@pytest.mark.parametrize("count", [0, -1, 1, 2**32, 2**64])
def test_a_map_that_holds_more_or_fewer_entries_than_it_says_is_refused(count: int) -> None:
    pairs = encoded_pairs(full_event())
    said = count - 1 if count > 1 else len(pairs) + (count or -len(pairs))
    refused(with_map(cbor.head(cbor.MAP, said) + b"".join(pairs)))


def test_a_map_in_another_form_is_refused() -> None:
    pairs = encoded_pairs(full_event())
    for encoded in (
        b"",
        b"\xa0",
        b"\xf6",
        b"\x80",
        b"\xbf" + b"".join(pairs) + b"\xff",
        b"\xb9" + len(pairs).to_bytes(2) + b"".join(pairs),
        b"\xd9\xd9\xf7" + as_map(pairs),
        as_map(pairs) + b"\x00",
        cbor.byte_string(as_map(pairs)),
    ):
        refused(with_map(encoded))


@pytest.mark.parametrize("opening", [b"\x81", b"\xa1", b"\xc2", b"\x5f", b"\x9f", b"\xbf"])
def test_deep_nesting_is_refused_and_not_followed(opening: bytes) -> None:
    refused(opening * 1_000_000)
    refused(with_map(opening * 1_000_000))
    refused(with_map(b"\xa1\x61d" + opening * 1_000_000))
    refused(with_header(opening * 1_000_000))


@pytest.mark.parametrize("length", [2**16, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_huge_length_is_refused_and_not_allocated(length: int) -> None:
    head = cbor.head(cbor.BYTES, length)
    refused(b"\xd2\x84" + head)
    refused(b"\xd2\x84" + head + bytes(100))
    refused(assemble(payload=head))
    refused(assemble(signature=head))
    refused(with_header(cbor.head(cbor.MAP, length)))
    refused(with_map(cbor.head(cbor.MAP, length) + encoded_pairs(full_event())[0]))
    refused(with_map(b"\xa1\x61d" + head))
    refused(with_map(b"\xa1" + cbor.head(cbor.TEXT, length)))


def test_an_envelope_over_the_limit_is_refused_before_it_is_read() -> None:
    room = envelope.MAX_ENVELOPE_BYTES - len(envelope.encode(full_event(), KEY.kid, KEY.secret_key))
    largest = full_event() | {"payload": bytes(room - 100)}
    data = envelope.encode(largest, KEY.kid, KEY.secret_key)
    assert envelope.decode(data).fields == largest
    refused(envelope.encode(largest | {"payload": bytes(room + 200)}, KEY.kid, KEY.secret_key))


# --- signatures ------------------------------------------------------------------------------


@BOUNDED
@given(EVENTS)
def test_a_signature_is_its_own_keys_and_no_other_ones(fields: dict[str, Any]) -> None:
    decoded = envelope.decode(envelope.encode(fields, KEY.kid, KEY.secret_key))
    assert cose.verify(decoded.sign1, KEY.public_key)
    assert not cose.verify(decoded.sign1, OTHER_KEY.public_key)


@BOUNDED
@given(EVENTS, EVENTS)
def test_a_signature_does_not_carry_over_to_another_event(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    if one != other:
        signed = envelope.decode(envelope.encode(one, KEY.kid, KEY.secret_key)).sign1
        moved = envelope.decode(envelope.encode(other, KEY.kid, KEY.secret_key)).sign1
        assert not cose.verify(moved._replace(signature=signed.signature), KEY.public_key)


def test_a_signature_with_a_scalar_beyond_the_group_order_does_not_verify() -> None:
    order = 2**252 + 27742317777372353535851937790883648493
    sign1 = envelope.decode(good()).sign1
    scalar = int.from_bytes(sign1.signature[32:], "little") + order
    malleable = sign1.signature[:32] + scalar.to_bytes(32, "little")
    assert not cose.verify(sign1._replace(signature=malleable), KEY.public_key)


def test_a_public_key_of_small_order_verifies_nothing() -> None:
    sign1 = envelope.decode(good()).sign1
    for point in (b"\x01" + bytes(31), bytes(32), b"\xec" + b"\xff" * 30 + b"\x7f"):
        assert not cose.verify(sign1, point)
        assert not cose.verify(sign1._replace(signature=point + bytes(32)), point)


# --- independent implementations -------------------------------------------------------------


def cwt_key(key: keys.SigningKey, seed: bytes | None = None) -> Any:
    """Return the key as cwt has it: the private one from its seed, else the public one."""
    pem = keys.to_pem(seed) if seed is not None else keys.public_pem(key.public_key)
    return cwt.COSEKey.from_pem(pem, kid=key.kid)


@BOUNDED
@given(EVENTS)
def test_our_envelopes_verify_in_cwt(fields: dict[str, Any]) -> None:
    data = envelope.encode(fields, KEY.kid, KEY.secret_key)
    protected, unprotected, payload = cwt.COSE.new(verify_kid=True).decode_with_headers(
        data, [cwt_key(KEY)]
    )
    assert protected == {1: -8, 3: envelope.CONTENT_TYPE, 4: KEY.kid}
    assert unprotected == {}
    assert cbor2.loads(payload) == short(fields)


def test_our_envelopes_do_not_verify_in_cwt_under_another_key() -> None:
    impostor = cwt.COSEKey.from_pem(keys.public_pem(OTHER_KEY.public_key), kid=KEY.kid)
    with pytest.raises(cwt.VerifyError):
        cwt.COSE.new().decode(good(), [impostor])


@BOUNDED
@given(EVENTS)
def test_what_cwt_signs_decodes_and_verifies_here(fields: dict[str, Any]) -> None:
    data = cwt.COSE.new(deterministic_header=True).encode(
        cbor2.dumps(short(fields), canonical=True),
        cwt_key(KEY, SEED),
        protected={1: -8, 3: envelope.CONTENT_TYPE, 4: KEY.kid},
    )
    assert data == envelope.encode(fields, KEY.kid, KEY.secret_key)
    decoded = envelope.decode(data)
    assert decoded.fields == fields
    assert cose.verify(decoded.sign1, KEY.public_key)


@pytest.mark.parametrize("vector", DOCUMENT["vectors"], ids=lambda v: str(v["name"]))
def test_the_fixed_vectors_hold_byte_for_byte(vector: dict[str, Any]) -> None:
    fields = fields_of(vector)
    data = envelope.encode(fields, KEY.kid, KEY.secret_key)
    assert data.hex() == vector["envelope"]
    assert envelope.digest(data).hex() == vector["hash"]
    decoded = envelope.decode(data)
    assert decoded.fields == fields
    assert decoded.kid == KEY.kid
    assert cose.verify(decoded.sign1, bytes.fromhex(DOCUMENT["public_key"]))


def test_the_vectors_cover_every_field_and_the_fewest() -> None:
    fewest, all_of_them = (set(v["fields"]) for v in DOCUMENT["vectors"])
    assert fewest == {f.column for f in REQUIRED}
    assert all_of_them == {f.column for f in envelope.FIELDS}


@pytest.mark.parametrize("vector", DOCUMENT["vectors"], ids=lambda v: str(v["name"]))
def test_the_fixed_vectors_verify_with_cryptography(vector: dict[str, Any]) -> None:
    protected, _, payload, signature = cbor2.loads(bytes.fromhex(vector["envelope"])).value
    signed = cbor2.dumps(["Signature1", protected, b"", payload])
    public_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(DOCUMENT["public_key"]))
    public_key.verify(signature, signed)
    with pytest.raises(InvalidSignature):
        public_key.verify(signature, signed + b"\x00")


@pytest.mark.parametrize("vector", DOCUMENT["vectors"], ids=lambda v: str(v["name"]))
def test_the_fixed_vectors_verify_with_openssl(vector: dict[str, Any], tmp_path: Path) -> None:
    protected, _, payload, signature = cbor2.loads(bytes.fromhex(vector["envelope"])).value
    (tmp_path / "signed").write_bytes(cbor2.dumps(["Signature1", protected, b"", payload]))
    (tmp_path / "signature").write_bytes(signature)
    (tmp_path / "key.pem").write_text(keys.public_pem(bytes.fromhex(DOCUMENT["public_key"])))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin"]
    command += ["-in", "signed", "-sigfile", "signature"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "signature").write_bytes(bytes(64))
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode != 0


def test_the_vectors_are_what_their_independent_maker_makes() -> None:
    made = subprocess.run(
        [sys.executable, str(VECTORS / "make_envelope.py")],
        capture_output=True,
        check=True,
    )
    assert made.stdout == (VECTORS / "envelope.json").read_bytes()


def test_the_systems_python_seals_and_verifies_the_vectors_with_the_same_files(
    tmp_path: Path,
) -> None:
    arguments = (VECTORS / "check_core.py", Path(core.__file__).parent, VECTORS / "envelope.json")
    done = subprocess.run(
        [SYSTEM_PYTHON, "-I", "-B", *map(str, arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(DOCUMENT['vectors'])}\n"


# --- event ids and time ----------------------------------------------------------------------


@BOUNDED
@given(st.integers(0, 2**48 - 1))
def test_an_event_id_is_a_version_7_uuid_of_its_millisecond(unix_ms: int) -> None:
    raw = envelope.uuid7(unix_ms)
    assert len(raw) == 16
    assert int.from_bytes(raw[:6]) == unix_ms
    assert raw[6] >> 4 == 7
    assert raw[8] >> 6 == 0b10


def test_event_ids_of_one_millisecond_differ() -> None:
    assert len({envelope.uuid7(1_700_000_000_000) for _ in range(5000)}) == 5000


def test_event_ids_sort_by_time() -> None:
    ids = [envelope.uuid7(ms) for ms in range(1_700_000_000_000, 1_700_000_000_200)]
    assert ids == sorted(ids)


def test_the_clock_is_in_whole_microseconds_since_1970() -> None:
    now = envelope.now_us()
    assert isinstance(now, int)
    assert abs(now - time.time_ns() // 1000) < 3_600_000_000
