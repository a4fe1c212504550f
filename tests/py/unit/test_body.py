"""Bodies: what opens a part, and that nothing else does."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings

from oml.core import body, keys, media

UUID = st.binary(min_size=16, max_size=16)
PLACES = st.builds(body.Place, UUID, UUID, st.integers(1, 2**63 - 1))
PARTS = st.integers(0, 2**31 - 1)
CONTENT = st.binary(max_size=300)
KEYS = st.binary(min_size=32, max_size=32)


@settings(max_examples=200, derandomize=True)
@given(KEYS, PLACES, PARTS, CONTENT)
def test_a_part_opens_where_it_belongs(
    dek: bytes, place: body.Place, part: int, content: bytes
) -> None:
    sealed = body.seal(dek, place, part, content)
    assert sealed.plaintext_digest == hashlib.sha256(content).digest()
    assert sealed.ciphertext_digest == hashlib.sha256(sealed.ciphertext).digest()
    assert len(sealed.ciphertext) == len(content) + body.OVERHEAD_BYTES
    assert body.open_part(dek, place, part, sealed.plaintext_digest, sealed.ciphertext) == content


@settings(max_examples=300, derandomize=True)
@given(KEYS, PLACES, PARTS, CONTENT, st.data())
def test_whatever_changes_it_does_not_open(
    dek: bytes, place: body.Place, part: int, content: bytes, data: st.DataObject
) -> None:
    sealed = body.seal(dek, place, part, content)
    digest, stored = sealed.plaintext_digest, sealed.ciphertext

    def flipped(value: bytes) -> bytes:
        bit = data.draw(st.integers(0, len(value) * 8 - 1))
        changed = bytearray(value)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    changes: dict[str, Any] = {
        "ciphertext": (dek, place, part, digest, flipped(stored)),
        "digest": (dek, place, part, flipped(digest), stored),
        "key": (flipped(dek), place, part, digest, stored),
        "tenant": (dek, place._replace(tenant_id=flipped(place.tenant_id)), part, digest, stored),
        "artifact": (
            *(dek, place._replace(artifact_id=flipped(place.artifact_id))),
            *(part, digest, stored),
        ),
        "version": (dek, place._replace(version=place.version + 1), part, digest, stored),
        "part": (dek, place, part + 1, digest, stored),
        "shorter": (dek, place, part, digest, stored[: data.draw(st.integers(0, len(stored) - 1))]),
        "longer": (dek, place, part, digest, stored + data.draw(st.binary(min_size=1, max_size=9))),
    }
    assert {name for name, given in changes.items() if body.open_part(*given) is not None} == set()


def test_a_ciphertext_whose_plaintext_has_another_digest_does_not_open() -> None:
    """Whoever has the key can encrypt anything under any digest: the digest is looked at, too."""
    dek, place, digest = (
        bytes(32),
        body.Place(bytes(16), bytes(16), 1),
        hashlib.sha256(b"a").digest(),
    )
    nonce = bytes(24)
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        b"b", body._binding(place, 0, digest), nonce, dek
    )
    assert body.open_part(dek, place, 0, digest, b"\x01" + nonce + sealed) is None


def test_each_seal_of_the_same_has_a_nonce_of_its_own() -> None:
    place = body.Place(bytes(16), bytes(16), 1)
    made = {body.seal(bytes(32), place, 0, b"same").ciphertext for _ in range(100)}
    assert len(made) == 100
    assert len({ciphertext[1:25] for ciphertext in made}) == 100


@settings(max_examples=100, derandomize=True)
@given(UUID, UUID, UUID, st.data())
def test_a_binding_of_a_key_is_of_one_tenant_artifact_and_key(
    tenant: bytes, artifact: bytes, dek: bytes, data: st.DataObject
) -> None:
    other = [data.draw(UUID) for _ in range(3)]
    if other != [tenant, artifact, dek]:
        assert body.dek_binding(*other) != body.dek_binding(tenant, artifact, dek)


def test_fresh_keys_differ_and_have_their_length() -> None:
    made = [body.new_dek() for _ in range(50)]
    assert len({key for _, key in made}) == len({name for name, _ in made}) == 50
    assert {len(key) for _, key in made} == {32} and {len(name) for name, _ in made} == {16}


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_key_of_another_length_is_om099(length: int) -> None:
    with pytest.raises(keys.SignerError) as caught:
        body.require_dek(bytes(length))
    assert caught.value.sqlstate == "OM099"
    body.require_dek(bytes(32))


def test_the_limits_are_those_of_the_database() -> None:
    text = (Path(__file__).parents[3] / "sql/bodies/body_limits.sql").read_text()
    numbers = re.search(r"select (\d+)::bigint, (\d+)::bigint, (\d+)", text)
    assert numbers is not None
    assert tuple(map(int, numbers.groups())) == (
        *(body.MAX_BODY_BYTES, body.MAX_ATTACHMENT_BYTES),
        body.MAX_ATTACHMENTS,
    )


# --- media types -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media_type", "parsed"),
    [
        ("text/plain", ("text/plain", "utf-8")),
        ("text/plain; charset=UTF-8", ("text/plain", "utf-8")),
        ("text/plain;charset=iso-8859-1", ("text/plain", "latin-1")),
        ("application/vnd.oml+json", ("application/vnd.oml+json", "utf-8")),
        *((bad, None) for bad in ("", "text", "text/", "/x", "Text/plain", "text/plain;", "a/b/c")),
        *((bad, None) for bad in ("text/plain; charset=ebcdic", "text/plain; q=1", "text/plain\n")),
    ],
)
def test_media_types_are_parsed(media_type: str, parsed: tuple[str, str] | None) -> None:
    assert media.parse(media_type) == parsed


@settings(max_examples=300, derandomize=True)
@given(st.text(max_size=200), st.sampled_from(["utf-8", "utf-16", "us-ascii", "iso-8859-1"]))
def test_text_is_taken_as_text_unless_a_control_character_is_in_it(text: str, charset: str) -> None:
    try:
        content = text.encode(charset)
    except UnicodeEncodeError:
        return
    allowed = "\t\n\v\f\r\x1b"
    bad = [c for c in text if (ord(c) < 32 and c not in allowed) or ord(c) == 127]
    fault = media.fault(f"text/plain; charset={charset}", content)
    if content[:4] == b"%PDF" or content[:2] == b"%!" or content[:5] == b"{\\rtf":
        assert fault is not None
    else:
        assert (fault is not None) == bool(bad), (fault, bad)


@settings(max_examples=200, derandomize=True)
@given(st.binary(max_size=200))
def test_any_bytes_are_octets_and_judging_never_fails(content: bytes) -> None:
    assert media.fault("application/octet-stream", content) is None
    for media_type in ("text/plain", "application/json", "image/png", "application/pdf", "x/y"):
        media.fault(media_type, content)
