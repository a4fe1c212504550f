"""Providers: a key file with its KEKs, and the client of omld against servers that misbehave."""

import os
import socket
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oml.core import cose, envelope, keys, note, seal, signer, wire

SEED = bytes(range(32))
KEY = keys.from_seed(SEED)
DEPLOYMENT = bytes(range(16))
KEK = "0190a7b6-7d3c-7e1f-8a2b-3c4d5e6f7a8b.1"
FIELDS = {
    "deployment_id": DEPLOYMENT,
    "seq": 7,
    "prev_hash": bytes(32),
    "tenant_id": bytes(range(16, 32)),
    "version": envelope.VERSION,
    "occurred_at": 1_700_000_000_000_000,
    "authorization": "member",
    "event_id": bytes(range(32, 48)),
    "pii_class": "none",
    "synchronous_commit": "on",
    "payload": b"{}",
    "principal": "app",
    "schema_version": 1,
    "type": "job.done",
    "writer": "app",
}
PAYLOAD = envelope.encode_map(tuple(FIELDS.get(f.column) for f in envelope.FIELDS))
HEAD = note.TreeHead(uuid.UUID(bytes=DEPLOYMENT), uuid.UUID(int=5), 2, 7, bytes(range(32)))


def refused(call: Callable[[], object], sqlstate: str) -> keys.SignerError:
    """Insist that the call is refused with this SQLSTATE and a hint."""
    with pytest.raises(keys.SignerError) as caught:
        call()
    assert caught.value.sqlstate == sqlstate, caught.value
    assert caught.value.hint
    return caught.value


def proved(kid: bytes, payload: bytes, signature: bytes, public_key: bytes) -> bool:
    """Whether the signature is one of an OML event under this key."""
    header = cose.protected_header(envelope.CONTENT_TYPE, kid)
    return cose.verify(cose.Sign1(kid, header, payload, signature), public_key)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A signing key in a directory of its own."""
    path = tmp_path / "keys" / "signing.key"
    path.parent.mkdir(mode=0o700)
    keys.write_new(str(path), keys.to_pem(SEED).encode())
    return path


@pytest.fixture
def file_signer(key_file: Path) -> signer.FileSigner:
    """The signer of that key."""
    return signer.FileSigner(str(key_file))


CLIENTS: list[signer.UnixSigner] = []


def client_at(path: Path, deadline_s: float = signer.DEADLINE_S) -> signer.UnixSigner:
    """Return a client that the end of the test closes."""
    client = signer.UnixSigner(str(path), deadline_s)
    CLIENTS.append(client)
    return client


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the test's clients."""
    yield
    while CLIENTS:
        CLIENTS.pop().close()


# --- which provider --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *("", "file:", "file:signing.key", "signing.key", "/signing.key", "FILE:/x"),
        *("unix:", "unix:omld.sock", "vault:transit/key", "tcp:/run/x"),
    ],
)
def test_a_signer_that_is_not_understood_is_om036(url: str) -> None:
    assert repr(url) in refused(lambda: signer.provider(url, None), "OM036").message
    refused(lambda: seal.sealer(url, None, bytes(8)), "OM036")


def test_a_provider_is_made_once_for_each_url_and_data_directory(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/key"
    first = signer.provider(url, None)
    assert signer.provider(url, None) is first
    assert signer.provider(url, str(tmp_path)) is not first
    unix = signer.provider(f"unix:{tmp_path}/socket", None)
    assert isinstance(unix, signer.UnixSigner)
    assert signer.provider(f"unix:{tmp_path}/socket", None) is unix


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_LONG = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_UUID = st.binary(min_size=16, max_size=16)
# The arguments of Sealer.seal, by the column each is.
SEALED: dict[str, st.SearchStrategy[Any]] = {
    "deployment_id": _UUID,
    "tenant_id": _UUID,
    "seq": st.integers(0, 2**64 - 1),
    "prev_hash": st.binary(min_size=32, max_size=32),
    "type": _TEXT,
    "schema_version": st.integers(0, 2**31 - 1),
    # At the lengths, too, from which on a length takes more bytes.
    "payload": _LONG | st.sampled_from((23, 24, 255, 256, 65_535, 65_536)).map("x".__mul__),
    "writer": _TEXT,
    "principal": _LONG,
    "authorization": _TEXT,
    "impersonation": st.none() | _LONG,
    "operation": st.none() | _TEXT,
    "app_version": st.none() | _TEXT,
    "caused_by": st.none() | _UUID,
    "invocation_id": st.none() | _TEXT,
    "entity_type": st.none() | _TEXT,
    "entity_id": st.none() | _LONG,
    "subject_id": st.none() | _TEXT,
    "pii_class": _TEXT,
    "synchronous_commit": _TEXT,
}


# The fields of seal.Artifact.
ABOUT: dict[str, st.SearchStrategy[Any]] = {
    "artifact_id": _UUID,
    "artifact_version": st.integers(1, 2**63 - 1),
    "plaintext_digest": st.none() | st.binary(min_size=32, max_size=32),
    "ciphertext_digest": st.none() | st.binary(min_size=32, max_size=32),
}


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_fields=st.fixed_dictionaries(SEALED), about=st.none() | st.fixed_dictionaries(ABOUT))
def test_a_sealer_seals_what_the_plain_encoder_encodes(
    key_file: Path, given_fields: dict[str, Any], about: dict[str, Any] | None
) -> None:
    sealer = seal.sealer(f"file:{key_file}", None, KEY.kid)
    artifact = None if about is None else seal.Artifact(*(about[column] for column in ABOUT))
    for _ in range(2):  # the first time, and from what is kept of it
        before = envelope.now_us()
        event_id, now, digest, data = sealer.seal(
            *[*(given_fields[column] for column in SEALED), artifact]
        )
        assert before <= now <= envelope.now_us()
        assert int(event_id[:12], 16) == now // 1000
        fields = (
            given_fields
            | (about or {})
            | {
                "version": envelope.VERSION,
                "occurred_at": now,
                "event_id": bytes.fromhex(event_id),
                "payload": given_fields["payload"].encode(),
            }
        )
        assert data == envelope.encode(fields, KEY.kid, KEY.secret_key)
        assert digest == envelope.digest(data)
        # And the plain encoder against one that is not ours.
        keys = {
            f.key: fields[f.column] for f in envelope.FIELDS if fields.get(f.column) is not None
        }
        assert envelope.decode(data).sign1.payload == cbor2.dumps(keys, canonical=True)


@pytest.mark.parametrize(
    "column", [f.column for f in envelope.FIELDS if f.column in SEALED and f.required]
)
def test_a_sealer_refuses_an_event_without_a_required_claim(key_file: Path, column: str) -> None:
    fields: dict[str, Any] = dict.fromkeys(SEALED)
    fields |= {"deployment_id": bytes(16), "tenant_id": bytes(16), "seq": 1, "prev_hash": bytes(32)}
    fields |= {"schema_version": 1, "payload": "{}", "type": "t", "writer": "w", "principal": "p"}
    fields |= {"authorization": "a", "pii_class": "none", "synchronous_commit": "on"}
    sealer = seal.sealer(f"file:{key_file}", None, KEY.kid)
    sealer.seal(*fields.values())
    with pytest.raises((ValueError, TypeError, AttributeError)):
        sealer.seal(*(fields | {column: None}).values())


def test_a_sealer_keeps_apart_what_differs_in_one_claim(key_file: Path) -> None:
    """Of more kinds of events than it keeps, each is sealed as it is, whichever came before."""
    sealer = seal.sealer(f"file:{key_file}", None, KEY.kid)
    plain: list[Any] = [bytes(16), bytes(16), 1, bytes(32), "t.t", 1, "{}", "w", "p", "a"]
    plain += [None, "op", "1", None, None, "e", "1", None, "none", "on"]
    columns = tuple(SEALED)
    for round_ in range(2):
        for number in range(100):
            for at in (0, 4, 5, 7, 8, 9, 11, 12, 15, 18, 19):
                values = list(plain)
                if at == 0:
                    values[at] = number.to_bytes(16, "big")
                else:
                    values[at] = number if at == 5 else f"x{number}"
                fields = envelope.decode(sealer.seal(*values)[3]).fields
                assert fields[columns[at]] == values[at], round_


def test_a_sealer_refuses_what_an_envelope_cannot_hold_and_another_key(key_file: Path) -> None:
    values: list[Any] = [bytes(16), bytes(16), 1, bytes(32), "t.t", 1, "{}", "w", "p", "a"]
    values += [None, None, None, None, None, None, None, None, "none", "on"]
    sealer = seal.sealer(f"file:{key_file}", None, KEY.kid)
    for seq in (-1, 2**64):
        with pytest.raises(OverflowError):
            sealer.seal(*[*values[:2], seq, *values[3:]])
    with pytest.raises(ValueError, match="31 bytes"):
        sealer.seal(*[*values[:3], bytes(31), *values[4:]])
    with pytest.raises(UnicodeEncodeError):
        sealer.seal(*[*values[:6], "\ud800", *values[7:]])
    other = seal.sealer(f"file:{key_file}", None, bytes(8))
    refused(lambda: other.seal(*values), "OM034")


# --- a key file ------------------------------------------------------------------------------


def test_a_file_signer_signs_an_event_with_its_key(file_signer: signer.FileSigner) -> None:
    assert file_signer.public_keys() == {KEY.kid: KEY.public_key}
    assert proved(KEY.kid, PAYLOAD, file_signer.sign(KEY.kid, PAYLOAD), KEY.public_key)


def test_a_file_signer_signs_a_checkpoint_with_its_key(file_signer: signer.FileSigner) -> None:
    signature = file_signer.sign_checkpoint(KEY.kid, HEAD)
    assert cose.opens(signature + HEAD.text.encode(), KEY.public_key)
    refused(lambda: file_signer.sign_checkpoint(bytes(8), HEAD), "OM034")
    for bad in (HEAD._replace(root=b""), HEAD._replace(size=-1), HEAD._replace(generation=0)):
        with pytest.raises(note.NoteError):
            file_signer.sign_checkpoint(KEY.kid, bad)


def test_the_signature_of_a_checkpoint_is_never_that_of_an_event_nor_the_other_way(
    file_signer: signer.FileSigner,
) -> None:
    """What is signed of an event begins with a byte with which no UTF-8, so no note, begins."""
    header = cose.protected_header(envelope.CONTENT_TYPE, KEY.kid)
    for payload in (PAYLOAD, HEAD.text.encode(), b"", b"oml/"):
        signed = cose.to_be_signed(header, payload)
        assert signed[0] == 0x84
        with pytest.raises(UnicodeDecodeError):
            signed.decode()
    with pytest.raises(UnicodeDecodeError):
        b"\x84".decode()
    assert HEAD.text.startswith("oml/")
    assert not proved(
        KEY.kid, HEAD.text.encode(), file_signer.sign_checkpoint(KEY.kid, HEAD), KEY.public_key
    )
    of_event = file_signer.sign(KEY.kid, PAYLOAD)
    assert not cose.opens(of_event + HEAD.text.encode(), KEY.public_key)


def test_a_file_signer_names_both_keys_when_it_is_asked_for_another(
    file_signer: signer.FileSigner,
) -> None:
    message = refused(lambda: file_signer.sign(b"12345678", PAYLOAD), "OM034").message
    assert KEY.kid.hex() in message and b"12345678".hex() in message


def test_a_file_signer_follows_its_file(key_file: Path, file_signer: signer.FileSigner) -> None:
    before = file_signer.sign(KEY.kid, PAYLOAD)

    key_file.chmod(0o644)
    refused(lambda: file_signer.sign(KEY.kid, PAYLOAD), "OM032")
    key_file.chmod(0o600)
    assert file_signer.sign(KEY.kid, PAYLOAD) == before

    key_file.unlink()
    refused(lambda: file_signer.sign(KEY.kid, PAYLOAD), "OM030")
    refused(file_signer.public_keys, "OM030")

    other = keys.generate(str(key_file))
    assert file_signer.public_keys() == {keys.kid(other): other}
    refused(lambda: file_signer.sign(KEY.kid, PAYLOAD), "OM034")

    key_file.unlink()
    keys.write_new(str(key_file), keys.to_pem(SEED).encode())
    assert file_signer.sign(KEY.kid, PAYLOAD) == before


# --- KEKs in files ---------------------------------------------------------------------------


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(plaintext=st.binary(max_size=200), aad=st.binary(max_size=200))
def test_what_is_wrapped_unwraps_and_no_two_are_alike(
    tmp_path_factory: pytest.TempPathFactory, plaintext: bytes, aad: bytes
) -> None:
    wrapper = signer.FileSigner(str(tmp_path_factory.getbasetemp() / "signing.key"))
    first, second = (wrapper.wrap(KEK, plaintext, aad, create=True) for _ in range(2))
    assert first != second
    assert len(first) == 1 + 24 + len(plaintext) + 16
    assert wrapper.unwrap(KEK, first, aad) == wrapper.unwrap(KEK, second, aad) == plaintext


def test_a_kek_is_made_when_it_is_first_used_and_is_for_its_owner_alone(
    key_file: Path, file_signer: signer.FileSigner
) -> None:
    before = os.umask(0)
    try:
        wrapped = file_signer.wrap(KEK, b"secret", b"", create=True)
    finally:
        os.umask(before)
    directory = key_file.parent / "kek"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [entry.name for entry in directory.iterdir()] == [KEK]
    assert stat.S_IMODE((directory / KEK).stat().st_mode) == 0o600
    assert len((directory / KEK).read_bytes()) == 32
    again = signer.FileSigner(str(key_file))
    assert again.unwrap(KEK, wrapped, b"") == b"secret"


def test_every_byte_of_what_is_wrapped_counts(file_signer: signer.FileSigner) -> None:
    wrapped = file_signer.wrap(KEK, b"secret", b"aad", create=True)
    for at in range(len(wrapped)):
        spoilt = bytearray(wrapped)
        spoilt[at] ^= 1
        refused(partial(file_signer.unwrap, KEK, bytes(spoilt), b"aad"), "OM099")
    for cut in range(len(wrapped)):
        refused(partial(file_signer.unwrap, KEK, wrapped[:cut], b"aad"), "OM099")
    refused(lambda: file_signer.unwrap(KEK, wrapped + b"\0", b"aad"), "OM099")


@pytest.mark.parametrize("aad", [b"", b"aa", b"aad\0", b"aae", b"x" * 100])
def test_other_additional_data_does_not_unwrap(file_signer: signer.FileSigner, aad: bytes) -> None:
    wrapped = file_signer.wrap(KEK, b"secret", b"aad", create=True)
    refused(lambda: file_signer.unwrap(KEK, wrapped, aad), "OM099")


def test_another_kek_does_not_unwrap_even_if_it_is_the_same_key(
    key_file: Path, file_signer: signer.FileSigner
) -> None:
    wrapped = file_signer.wrap(KEK, b"secret", b"aad", create=True)
    other = KEK.replace(".1", ".2")
    file_signer.wrap(other, b"", b"", create=True)
    refused(lambda: file_signer.unwrap(other, wrapped, b"aad"), "OM099")
    (key_file.parent / "kek" / other).write_bytes((key_file.parent / "kek" / KEK).read_bytes())
    refused(lambda: file_signer.unwrap(other, wrapped, b"aad"), "OM099")


def test_a_kek_that_is_gone_is_om098_and_is_not_made_anew_by_an_unwrap(
    key_file: Path, file_signer: signer.FileSigner
) -> None:
    refused(lambda: file_signer.unwrap(KEK, b"\x01" + bytes(64), b""), "OM098")
    assert not (key_file.parent / "kek").exists()
    wrapped = file_signer.wrap(KEK, b"secret", b"", create=True)
    (key_file.parent / "kek" / KEK).unlink()
    refused(lambda: file_signer.unwrap(KEK, wrapped, b""), "OM098")
    assert list((key_file.parent / "kek").iterdir()) == []


def removed(path: Path) -> None:
    path.unlink()


def moved_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def with_its_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize(
    "lose", [removed, moved_away, with_its_directory], ids=lambda lose: lose.__name__
)
def test_a_kek_that_must_exist_is_not_made_and_not_taken_from_memory(
    key_file: Path, file_signer: signer.FileSigner, lose: Callable[[Path], None]
) -> None:
    kek = key_file.parent / "kek" / KEK
    error = refused(lambda: file_signer.wrap(KEK, b"secret", b"", create=False), "OM098")
    assert KEK in error.message
    assert not kek.parent.exists()
    wrapped = file_signer.wrap(KEK, b"secret", b"", create=True)
    secret = kek.read_bytes()
    known = [signer.FileSigner(str(key_file)), file_signer]
    for each in known:
        again = each.wrap(KEK, b"secret", b"", create=False)
        assert file_signer.unwrap(KEK, again, b"") == b"secret"
    lose(kek)
    for each in (*known, signer.FileSigner(str(key_file))):
        refused(partial(each.wrap, KEK, b"secret", b"", create=False), "OM098")
        refused(partial(each.unwrap, KEK, wrapped, b""), "OM098")
    assert not kek.exists()
    kek.parent.mkdir(mode=0o700, exist_ok=True)
    keys.write_new(str(kek), secret)
    for each in known:
        assert each.unwrap(KEK, each.wrap(KEK, b"more", b"", create=False), b"") == b"more"
        assert each.unwrap(KEK, wrapped, b"") == b"secret"


@pytest.mark.parametrize(
    "kek",
    [
        *("", "1", KEK.upper(), KEK.rpartition(".")[0], KEK + "x", KEK + "\n", " " + KEK),
        *(KEK.replace(".1", ".01"), KEK.replace(".1", ".-1"), KEK.replace(".1", ".1234567890")),
        *("../" + KEK, KEK + "/../x", KEK.replace("-", ""), KEK.replace(".1", "/1"), "\0"),
    ],
)
def test_a_kek_has_the_one_form_of_name(
    key_file: Path, file_signer: signer.FileSigner, kek: str
) -> None:
    refused(lambda: file_signer.wrap(kek, b"secret", b"", create=True), "OM096")
    refused(lambda: file_signer.unwrap(kek, bytes(64), b""), "OM096")
    assert [entry.name for entry in key_file.parent.iterdir()] == ["signing.key"]


def test_what_is_too_long_to_be_a_key_is_not_wrapped(file_signer: signer.FileSigner) -> None:
    longest = bytes(wire.MAX_SECRET_BYTES)
    wrapped = file_signer.wrap(KEK, longest, longest, create=True)
    assert file_signer.unwrap(KEK, wrapped, longest) == longest
    refused(lambda: file_signer.wrap(KEK, longest + b"\0", b"", create=True), "OM097")
    refused(lambda: file_signer.wrap(KEK, b"", longest + b"\0", create=True), "OM097")


def open_to_others(path: Path) -> None:
    path.chmod(0o640)


def directory_open_to_others(path: Path) -> None:
    path.parent.chmod(0o750)


def of_another_owner(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        path.chmod(0o604)


def cut_short(path: Path) -> None:
    os.truncate(path, 31)


def too_long(path: Path) -> None:
    os.truncate(path, 33)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def a_linked_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "spoil",
    [
        *(open_to_others, directory_open_to_others, of_another_owner, cut_short, too_long),
        *(a_directory, a_link, a_fifo, a_linked_directory),
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_a_kek_that_is_not_to_be_trusted_is_om095(
    key_file: Path, file_signer: signer.FileSigner, spoil: Callable[[Path], None]
) -> None:
    wrapped = file_signer.wrap(KEK, b"secret", b"", create=True)
    spoil(key_file.parent / "kek" / KEK)
    refused(lambda: file_signer.unwrap(KEK, wrapped, b""), "OM095")
    for create in (True, False):
        refused(partial(file_signer.wrap, KEK, b"secret", b"", create=create), "OM095")


def test_a_kek_inside_the_forbidden_directory_is_om095(key_file: Path) -> None:
    inside = signer.FileSigner(str(key_file), str(key_file.parent))
    refused(lambda: inside.wrap(KEK, b"secret", b"", create=True), "OM095")
    assert not (key_file.parent / "kek" / KEK).exists()


def test_of_racing_first_wraps_all_use_one_kek(key_file: Path) -> None:
    signers = [signer.FileSigner(str(key_file)) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        wrapped = list(pool.map(lambda s: s.wrap(KEK, b"secret", b"", create=True), signers * 3))
    again = signer.FileSigner(str(key_file))
    assert {again.unwrap(KEK, each, b"") for each in wrapped} == {b"secret"}
    assert [entry.name for entry in (key_file.parent / "kek").iterdir()] == [KEK]


def test_a_directory_that_another_makes_meanwhile_is_no_kek_yet(
    key_file: Path, file_signer: signer.FileSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def late(path: str, mode: int) -> None:
        mkdir(path, mode)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", late)
    wrapped = file_signer.wrap(KEK, b"secret", b"", create=True)
    assert file_signer.unwrap(KEK, wrapped, b"") == b"secret"
    assert [entry.name for entry in (key_file.parent / "kek").iterdir()] == [KEK]


# --- the client of omld ----------------------------------------------------------------------

Reply = Callable[[socket.socket, bytes], None]


def read_frame(connection: socket.socket) -> bytes:
    """Read one frame without its length; empty at the end."""
    received = b""
    while len(received) < 4 or len(received) < 4 + wire.frame_length(received):
        part = connection.recv(65536)
        if not part:
            return b""
        received += part
    return received[4:]


def honestly(connection: socket.socket, body: bytes) -> None:
    """Answer as omld does."""
    operation, content = wire.read_request(body)
    if operation == wire.KEYS:
        connection.sendall(wire.answer(DEPLOYMENT + KEY.public_key))
    elif operation == wire.CHECKPOINT:
        _, head = wire.read_tree_head(content)
        connection.sendall(wire.answer(note.signed(head.text, KEY.secret_key)))
    else:
        header = cose.protected_header(envelope.CONTENT_TYPE, content[:8])
        signature = cose.signature(header, content[8:], KEY.secret_key)
        connection.sendall(wire.answer(signature))


@contextmanager
def listening(path: Path, *replies: Reply) -> Iterator[None]:
    """Answer requests at a socket, the n-th by the n-th reply and all later ones by the last."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    left = list(replies)
    connections = []

    def serve(connection: socket.socket) -> None:
        with connection:
            while body := read_frame(connection):
                reply = left.pop(0) if len(left) > 1 else left[0]
                try:
                    reply(connection, body)
                except OSError:
                    return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            threads.append(threading.Thread(target=serve, args=(connection,)))
            threads[-1].start()

    threads: list[threading.Thread] = []
    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for each in threads:
            each.join()
        path.unlink()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a socket goes."""
    return tmp_path / "omld.sock"


def test_omld_is_told_whether_a_kek_may_be_made(tmp_path: Path) -> None:
    asked = []

    def reply(connection: socket.socket, body: bytes) -> None:
        operation, content = wire.read_request(body)
        asked.append((operation, *wire.read_wrapping(content)))
        connection.sendall(wire.answer(b"wrapped"))

    with listening(tmp_path / "socket", reply):
        client = signer.UnixSigner(str(tmp_path / "socket"))
        for create in (True, False):
            assert client.wrap(KEK, b"secret", b"aad", create=create) == b"wrapped"
        client.close()
    assert asked == [(6, KEK, b"aad", b"secret"), (3, KEK, b"aad", b"secret")]


def test_a_client_signs_through_what_listens_on_one_connection(path: Path) -> None:
    seen = []

    def counting(connection: socket.socket, body: bytes) -> None:
        seen.append(connection)
        honestly(connection, body)

    client = client_at(path)
    with listening(path, counting):
        for _ in range(3):
            assert proved(KEY.kid, PAYLOAD, client.sign(KEY.kid, PAYLOAD), KEY.public_key)
        signature = client.sign_checkpoint(KEY.kid, HEAD)
        assert cose.opens(signature + HEAD.text.encode(), KEY.public_key)
        assert client.public_keys() == {KEY.kid: KEY.public_key}
        assert client.holding()[0].bytes == DEPLOYMENT
    assert len(seen) == 7  # the keys once, four signatures, the keys twice
    assert len(set(seen)) == 1


def test_a_key_that_is_not_held_is_om034(path: Path) -> None:
    client = client_at(path)
    with listening(path, honestly):
        message = refused(lambda: client.sign(bytes(8), PAYLOAD), "OM034").message
        assert KEY.kid.hex() in message and bytes(8).hex() in message


@pytest.mark.parametrize("gone", ["never there", "a file", "not listening", "too long"])
def test_a_signer_that_is_not_there_is_om090(path: Path, gone: str) -> None:
    if gone == "a file":
        path.touch()
    elif gone == "not listening":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    elif gone == "too long":
        path = path / ("x" * 200)
    refused(lambda: client_at(path).sign(KEY.kid, PAYLOAD), "OM090")


def test_a_kept_connection_that_died_is_replaced_within_the_call(path: Path) -> None:
    client = client_at(path)
    for _ in range(3):
        with listening(path, honestly):
            first = client.sign(KEY.kid, PAYLOAD)
            assert client.sign(KEY.kid, PAYLOAD) == first
    refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM090")
    with listening(path, honestly):
        assert client.sign(KEY.kid, PAYLOAD) == first


def hang_up(connection: socket.socket, _body: bytes) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def test_one_that_hangs_up_each_time_is_om090(path: Path) -> None:
    client = client_at(path)
    with listening(path, honestly, hang_up):
        refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM090")
        refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM090")


def test_one_that_does_not_answer_is_om092_and_its_late_answer_is_never_read(path: Path) -> None:
    late = threading.Event()
    payloads = [PAYLOAD, PAYLOAD.replace(b"job.done", b"job.lost")]

    def too_late(connection: socket.socket, body: bytes) -> None:
        late.wait(30)
        honestly(connection, body)

    client = client_at(path, deadline_s=0.3)
    with listening(path, honestly, honestly, too_late, honestly):
        client.sign(KEY.kid, PAYLOAD)
        refused(lambda: client.sign(KEY.kid, payloads[0]), "OM092")
        late.set()
        signature = client.sign(KEY.kid, payloads[1])
        assert proved(KEY.kid, payloads[1], signature, KEY.public_key)


def dripping(connection: socket.socket, _body: bytes) -> None:
    """Keep the client waiting with a byte now and then."""
    for byte in wire.answer(bytes(200)):
        connection.sendall(bytes((byte,)))
        time.sleep(0.05)


def test_the_deadline_is_over_the_whole_call_and_not_over_each_byte(path: Path) -> None:
    client = client_at(path, deadline_s=0.3)
    with listening(path, honestly, dripping):
        refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM092")


def test_a_queue_of_connections_that_is_full_is_om092(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        client = client_at(path, deadline_s=0.3)
        waiting = []
        try:
            for _ in range(8):  # one or more fit in
                one = socket.socket(socket.AF_UNIX)
                waiting.append(one)
                one.settimeout(0)
                try:
                    one.connect(str(path))
                except BlockingIOError:
                    break
            refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM092")
        finally:
            for one in waiting:
                one.close()


def sends(raw: bytes) -> Reply:
    """Answer with these bytes."""
    return lambda connection, _body: connection.sendall(raw)


OTHER = keys.from_seed(bytes(32))


def with_another_key(connection: socket.socket, body: bytes) -> None:
    """Sign, but with a key of one's own."""
    _, content = wire.read_request(body)
    header = cose.protected_header(envelope.CONTENT_TYPE, content[:8])
    connection.sendall(wire.answer(cose.signature(header, content[8:], OTHER.secret_key)))


def with_another_payload(connection: socket.socket, body: bytes) -> None:
    """Sign something else."""
    _, content = wire.read_request(body)
    header = cose.protected_header(envelope.CONTENT_TYPE, content[:8])
    connection.sendall(wire.answer(cose.signature(header, content[8:] + b"x", KEY.secret_key)))


NONSENSE: dict[str, Reply] = {
    "another key": with_another_key,
    "another payload": with_another_payload,
    "zeros": sends(wire.answer(bytes(64))),
    "no signature": sends(wire.answer(b"")),
    "a short signature": sends(wire.answer(bytes(63))),
    "a long signature": sends(wire.answer(bytes(65))),
    "an empty frame": sends(bytes(4)),
    "another version": sends(b"\0\0\0\x42\x02\x00" + bytes(64)),
    "another status": sends(b"\0\0\0\x42\x01\x02" + bytes(64)),
    "a huge frame": sends(b"\xff\xff\xff\xff\x01\x00"),
    "two answers": sends(wire.answer(bytes(64)) * 2),
    "text": sends(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "a refusal of another class": sends(wire.refusal(keys.SignerError("40001", "go on", ""))),
    "a refusal cut short": sends(b"\0\0\0\x07\x01\x01OM091"),
}


@pytest.mark.parametrize("reply", NONSENSE.values(), ids=NONSENSE)
def test_an_answer_that_is_no_good_is_om094_and_spoils_nothing(path: Path, reply: Reply) -> None:
    client = client_at(path)
    with listening(path, honestly, reply, honestly):
        refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM094")
        assert proved(KEY.kid, PAYLOAD, client.sign(KEY.kid, PAYLOAD), KEY.public_key)
    with listening(path, honestly, reply, honestly):
        client.close()
        client.public_keys()
        refused(lambda: client.sign_checkpoint(KEY.kid, HEAD), "OM094")
        client.sign_checkpoint(KEY.kid, HEAD)
        assert proved(KEY.kid, PAYLOAD, client.sign(KEY.kid, PAYLOAD), KEY.public_key)


@pytest.mark.parametrize("size", [0, 1, 15, 17, 47, 49])
def test_keys_that_are_none_are_om094(path: Path, size: int) -> None:
    with listening(path, sends(wire.answer(bytes(size)))):
        refused(client_at(path).public_keys, "OM094")


def test_keys_of_another_do_not_sign_for_the_one_asked_for(path: Path) -> None:
    client = client_at(path)
    with listening(path, sends(wire.answer(DEPLOYMENT + OTHER.public_key)), with_another_key):
        refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM034")


def test_a_refusal_is_raised_as_it_was_sent(path: Path) -> None:
    client = client_at(path)
    with listening(path, sends(wire.refusal(keys.SignerError("OM091", "not\0 you", "Żaden")))):
        error = refused(client.public_keys, "OM091")
        assert (error.message, error.hint) == ("not you", "Żaden")


def test_a_message_that_is_too_long_is_not_sent(path: Path) -> None:
    client = client_at(path)
    with listening(path, honestly):
        longest = bytes(wire.MAX_REQUEST_BYTES - 2 - 8)
        assert proved(KEY.kid, longest, client.sign(KEY.kid, longest), KEY.public_key)
        refused(lambda: client.sign(KEY.kid, longest + b"\0"), "OM093")


def test_no_descriptor_is_left_behind_by_calls_that_fail(path: Path) -> None:
    client = client_at(path, deadline_s=0.05)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM090")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        for _ in range(5):
            refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM092")
    assert len(os.listdir("/proc/self/fd")) <= before


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(signer, "_clock", lambda: self.now)


def test_the_deadline_leaves_time_for_a_client_behind_the_database() -> None:
    assert signer.DEADLINE_S < 2


def test_a_call_that_connects_anew_has_the_rest_of_its_time_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    client = client_at(path, deadline_s=5)
    left = signer._left
    seen: list[float] = []

    def noted(until: float) -> float:
        seen.append(left(until))
        return seen[-1]

    def hangs_up_late(connection: socket.socket, _body: bytes) -> None:
        clock.now += 4
        connection.shutdown(socket.SHUT_RDWR)

    with listening(path, honestly, honestly, hangs_up_late, honestly):
        client.sign(KEY.kid, PAYLOAD)
        monkeypatch.setattr(signer, "_left", noted)
        client.sign(KEY.kid, PAYLOAD)
    assert seen[0] == 5
    assert seen[-1] == 1


def test_a_call_whose_time_is_up_when_omld_hangs_up_does_not_begin_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    client = client_at(path, deadline_s=5)

    def hangs_up_too_late(connection: socket.socket, _body: bytes) -> None:
        clock.now += 5
        connection.shutdown(socket.SHUT_RDWR)

    with listening(path, honestly, honestly, hangs_up_too_late, honestly):
        client.sign(KEY.kid, PAYLOAD)
        refused(lambda: client.sign(KEY.kid, PAYLOAD), "OM092")


def test_a_batch_looks_ten_times_a_second_and_ends_with_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    time = signer.BatchTime(70)
    looks = 0
    for signed in range(100):
        looks += time.is_due(signed)
        clock.now += 0.01
    assert 9 <= looks <= 11
    clock.now += signer.BATCH_DEADLINE_S - 1.01
    time.is_due(68)
    clock.now += 0.02
    error = refused(lambda: time.is_due(69), "OM092")
    assert "69 of 70" in error.message and "smaller" in error.hint


# --- the protocol ----------------------------------------------------------------------------


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    asked=st.sampled_from([wire.WRAP, wire.FIRST_WRAP, wire.UNWRAP]),
    kek=st.text(max_size=60),
    content=st.binary(max_size=300),
    aad=st.binary(max_size=300),
)
def test_a_request_to_wrap_comes_out_as_it_went_in(
    asked: int, kek: str, content: bytes, aad: bytes
) -> None:
    frame = wire.wrapping(asked, kek, content, aad)
    assert wire.frame_length(frame) == len(frame) - 4
    operation, rest = wire.read_request(frame[4:])
    assert operation == asked
    assert wire.read_wrapping(rest) == (kek, aad, content)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(body=st.binary(max_size=40))
def test_bytes_of_any_kind_are_read_or_refused_and_nothing_else(body: bytes) -> None:
    for read in (
        wire.read_request, wire.read_wrapping, wire.read_answer, wire.read_tree_head
    ):  # fmt: skip
        for given_ in (body, b"\x01" + body, b"\x01\x01" + body):
            with suppress(wire.ProtocolError, keys.SignerError):
                read(given_)


@pytest.mark.parametrize("length", [0, 8, 83, 85])
def test_a_request_to_sign_a_checkpoint_has_one_length(length: int) -> None:
    with pytest.raises(wire.ProtocolError):
        wire.read_tree_head(bytes(length))


def test_a_request_to_sign_a_checkpoint_comes_out_as_it_went_in() -> None:
    operation, content = wire.read_request(wire.checkpointing(KEY.kid, HEAD)[4:])
    assert operation == wire.CHECKPOINT
    assert wire.read_tree_head(content) == (KEY.kid, HEAD)
    for bad in (HEAD._replace(root=b""), HEAD._replace(size=2**63), HEAD._replace(generation=0)):
        with pytest.raises(note.NoteError):
            wire.checkpointing(KEY.kid, bad)


def test_a_refusal_with_very_long_texts_still_fits() -> None:
    frame = wire.refusal(keys.SignerError("OM093", "é" * 100_000, "h" * 100_000))
    assert len(frame) < wire.MAX_ANSWER_BYTES
    with pytest.raises(keys.SignerError) as caught:
        wire.read_answer(frame[4:])
    assert caught.value.message.startswith("éé")
