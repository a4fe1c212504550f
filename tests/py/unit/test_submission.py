"""What a writer signs, against libraries that are not ours."""

from typing import Any

import cbor2
import cwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oml.core import body, cose, keys, submission

KEY = keys.from_seed(bytes(range(32)))
DIGEST = st.binary(min_size=32, max_size=32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
UUID = st.binary(min_size=16, max_size=16)
PLACES = st.builds(body.Place, UUID, UUID, st.integers(1, 2**63 - 1))
FIRST = st.builds(submission.Signed, DIGEST, DIGEST, TEXT)
ATTACHED = st.lists(st.builds(submission.Signed, DIGEST, DIGEST, TEXT, TEXT), max_size=16)


@settings(max_examples=200, derandomize=True)
@given(PLACES, FIRST, ATTACHED)
def test_a_payload_is_what_another_encoder_makes(
    place: body.Place, first: submission.Signed, attached: list[submission.Signed]
) -> None:
    expected = {
        "t": place.tenant_id,
        "v": 1,
        "ar": place.artifact_id,
        "vn": place.version,
        "pd": first.plaintext_digest,
        "cd": first.ciphertext_digest,
        "mt": first.media_type,
        "aa": [[a.plaintext_digest, a.ciphertext_digest, a.name, a.media_type] for a in attached],
    }
    assert submission.payload(place, [first, *attached]) == cbor2.dumps(expected, canonical=True)


def test_an_envelope_verifies_with_another_library() -> None:
    place = body.Place(bytes(16), bytes(range(16)), 3)
    parts = [submission.Signed(bytes(32), bytes(32), "text/plain")]
    envelope = submission.sign(KEY.kid, KEY.secret_key, place, parts)
    key = cwt.COSEKey.from_pem(keys.public_pem(KEY.public_key), kid=KEY.kid)
    assert cwt.COSE.new(verify_kid=True).decode(envelope, [key]) == submission.payload(place, parts)
    assert submission.kid(envelope) == KEY.kid
    assert submission.is_signed(envelope, KEY.public_key, place, parts)


@settings(max_examples=200, derandomize=True)
@given(PLACES, FIRST, ATTACHED, st.data())
def test_a_signature_is_of_just_this(
    place: body.Place,
    first: submission.Signed,
    attached: list[submission.Signed],
    data: st.DataObject,
) -> None:
    parts = [first, *attached]
    envelope = submission.sign(KEY.kid, KEY.secret_key, place, parts)
    other_place = data.draw(PLACES)
    other = [data.draw(FIRST), *data.draw(ATTACHED)]
    if other_place != place:
        assert not submission.is_signed(envelope, KEY.public_key, other_place, parts)
    if other != parts:
        assert not submission.is_signed(envelope, KEY.public_key, place, other)
    bit = data.draw(st.integers(0, len(envelope) * 8 - 1))
    changed = bytearray(envelope)
    changed[bit // 8] ^= 1 << bit % 8
    assert not submission.is_signed(bytes(changed), KEY.public_key, place, parts) or (
        submission.kid(bytes(changed)) != KEY.kid
    )
    assert not submission.is_signed(envelope, keys.from_seed(bytes(32)).public_key, place, parts)


@pytest.mark.parametrize(
    "envelope",
    [
        *(b"", b"\x84", bytes(100), cbor2.dumps({}), b"x" * (submission.MAX_ENVELOPE_BYTES + 1)),
        cose.sign(
            cose.protected_header("application/oml-event+cbor", KEY.kid), b"", KEY.secret_key
        ),
    ],
)
def test_what_is_no_envelope_names_no_key(envelope: bytes) -> None:
    place: Any = body.Place(bytes(16), bytes(16), 1)
    assert submission.kid(envelope) is None
    parts = [submission.Signed(bytes(32), bytes(32), "text/plain")]
    assert not submission.is_signed(envelope, KEY.public_key, place, parts)
