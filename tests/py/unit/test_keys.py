"""Signing keys: the file format beside openssl, what load refuses, what generate leaves."""

import base64
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings

from oml.core import keys

NOBODY = 65534


def openssl(*arguments: str | Path) -> bytes:
    """Run openssl and return its stdout."""
    command = ["openssl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=True).stdout


def key_file(path: Path, content: str | bytes | None = None, mode: int = 0o600) -> Path:
    """Write a key file, by default with a good key, and return its path."""
    if content is None:
        content = keys.to_pem(hashlib.sha256(bytes(path)).digest())
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


def refused(path: Path | str, sqlstate: str, forbidden: Path | None = None) -> keys.KeyFileError:
    """Insist that load refuses the file with this SQLSTATE, names it and gives a hint."""
    with pytest.raises(keys.KeyFileError) as caught:
        keys.load(str(path), None if forbidden is None else str(forbidden))
    assert caught.value.sqlstate == sqlstate
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


@contextmanager
def an_ordinary_user() -> Iterator[None]:
    """Act as a user other than root: permission bits do not stop root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


# --- interop ---------------------------------------------------------------------------------


def test_a_key_of_openssl_is_loaded_as_the_same_key(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    openssl("genpkey", "-algorithm", "ed25519", "-out", path)
    path.chmod(0o600)
    key, _ = keys.load(str(path))
    der = openssl("pkey", "-in", path, "-pubout", "-outform", "DER")
    assert der[-32:] == key.public_key
    assert openssl("pkey", "-in", path, "-pubout").decode() == keys.public_pem(key.public_key)
    assert path.read_text() == keys.to_pem(key.secret_key[:32])


def test_a_generated_key_is_read_by_openssl(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    public_key = keys.generate(str(path))
    assert openssl("pkey", "-in", path, "-pubout").decode() == keys.public_pem(public_key)
    assert openssl("pkey", "-in", path) == path.read_bytes()


def test_openssl_verifies_what_a_generated_key_signs_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    path, message = tmp_path / "signing.key", tmp_path / "message"
    public_key = keys.generate(str(path))
    key, _ = keys.load(str(path))
    message.write_bytes(bytes(range(100)))
    signature = tmp_path / "signature"
    signed = bindings.crypto_sign(message.read_bytes(), key.secret_key)
    signature.write_bytes(signed[:64])
    (tmp_path / "public.pem").write_text(keys.public_pem(public_key))
    openssl(
        *("pkeyutl", "-verify", "-pubin", "-inkey", tmp_path / "public.pem", "-rawin"),
        *("-in", message, "-sigfile", signature),
    )
    by_openssl = openssl("pkeyutl", "-sign", "-inkey", path, "-rawin", "-in", message)
    assert bindings.crypto_sign_open(by_openssl + message.read_bytes(), public_key)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.binary(min_size=32, max_size=32))
def test_a_key_is_its_seed_and_its_kid_the_start_of_its_digest(seed: bytes) -> None:
    key = keys.from_seed(seed)
    assert key.secret_key == seed + key.public_key
    assert key.kid == hashlib.sha256(key.public_key).digest()[:8] == keys.kid(key.public_key)


def test_the_first_test_vector_of_rfc_8032_holds() -> None:
    key = keys.from_seed(
        bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    )
    assert key.public_key.hex() == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )


def test_the_example_key_of_rfc_8410_loads(tmp_path: Path) -> None:
    pem = (
        "-----BEGIN PRIVATE KEY-----\n"
        "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n"
        "-----END PRIVATE KEY-----\n"
    )
    key, _ = keys.load(str(key_file(tmp_path / "key", pem)))
    assert keys.public_pem(key.public_key) == (
        "-----BEGIN PUBLIC KEY-----\n"
        "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"
        "-----END PUBLIC KEY-----\n"
    )


# --- load ------------------------------------------------------------------------------------


def test_load_returns_the_status_of_the_file_it_read(tmp_path: Path) -> None:
    path = key_file(tmp_path / "key")
    _, status = keys.load(str(path))
    assert (status.st_dev, status.st_ino) == (path.stat().st_dev, path.stat().st_ino)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_key_for_its_owner_alone_is_loaded(tmp_path: Path, mode: int) -> None:
    keys.load(str(key_file(tmp_path / "key", mode=mode)))


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n  \n"])
def test_line_ends_and_blank_lines_do_not_matter(tmp_path: Path, ending: str) -> None:
    seed = bytes(range(32))
    text = keys.to_pem(seed).replace("\n", ending)
    assert keys.load(str(key_file(tmp_path / "key", text)))[0] == keys.from_seed(seed)


def test_a_missing_key_is_om030(tmp_path: Path) -> None:
    refused(tmp_path / "key", "OM030")
    refused(tmp_path / "no" / "such" / "key", "OM030")


def test_a_symlink_to_nothing_is_om030(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "key")
    refused(tmp_path / "link", "OM030")


def test_a_key_that_its_user_may_not_read_is_om031(open_dir: Path) -> None:
    path = key_file(open_dir / "key", mode=0o000)
    with an_ordinary_user():
        refused(path, "OM031")


def test_a_key_in_a_directory_that_its_user_may_not_enter_is_om031(open_dir: Path) -> None:
    inner = open_dir / "inner"
    inner.mkdir()
    path = key_file(inner / "key")
    inner.chmod(0o000)
    with an_ordinary_user():
        refused(path, "OM031")
    inner.chmod(0o700)


def test_a_path_that_leads_nowhere_is_om031(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", "OM031")
    refused(key_file(tmp_path / "key") / "below", "OM031")
    refused(tmp_path / ("k" * 300), "OM031")


@pytest.mark.parametrize("mode", [0o640, 0o660, 0o604, 0o606, 0o610, 0o601, 0o644, 0o4604, 0o777])
def test_a_key_open_to_others_is_om032(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path / "key", mode=mode)
    assert f"{mode:04o}" in refused(path, "OM032").message


def test_a_key_of_another_owner_is_om032(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = key_file(tmp_path / "key")
    owner = os.geteuid()
    if owner == 0:
        os.chown(path, NOBODY, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    refused(path, "OM032")


def test_a_symlink_to_a_good_key_is_followed(tmp_path: Path) -> None:
    path = key_file(tmp_path / "key")
    (tmp_path / "link").symlink_to("key")
    assert keys.load(str(tmp_path / "link"))[0] == keys.load(str(path))[0]


def test_a_symlink_to_a_key_open_to_others_is_om032(tmp_path: Path) -> None:
    key_file(tmp_path / "key", mode=0o644)
    (tmp_path / "link").symlink_to("key")
    refused(tmp_path / "link", "OM032")


def test_what_is_no_regular_file_is_om033_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "directory").mkdir(mode=0o700)
    for path in (tmp_path / "fifo", tmp_path / "directory", Path("/dev/null")):
        refused(path, "OM033")


def pem(der: bytes, label: str = "PRIVATE KEY") -> str:
    """Return DER bytes as PEM text."""
    body = base64.b64encode(der).decode()
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"


DER = base64.b64decode(keys.to_pem(bytes(range(32))).splitlines()[1])
GOOD = keys.to_pem(bytes(range(32)))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\n\n", id="blank"),
        pytest.param(b"\xff\xfe\x00" * 50, id="garbage"),
        pytest.param(bytes(range(32)), id="raw seed"),
        pytest.param(DER, id="DER"),
        pytest.param(GOOD[:40], id="truncated"),
        pytest.param("x\n" + GOOD, id="text before"),
        pytest.param(GOOD + "x\n", id="text behind"),
        pytest.param(GOOD * 2, id="two keys"),
        pytest.param(GOOD.replace("M", "!", 1), id="not base64"),
        pytest.param(pem(DER[:-1]), id="short seed"),
        pytest.param(pem(DER + b"\x00"), id="long seed"),
        pytest.param(pem(DER, "ENCRYPTED PRIVATE KEY"), id="another label"),
        pytest.param(keys.public_pem(bytes(range(32))), id="public key"),
        pytest.param(GOOD.replace("\n", ""), id="one line"),
    ],
)
def test_a_file_that_holds_no_key_is_om033(tmp_path: Path, content: str | bytes) -> None:
    refused(key_file(tmp_path / "key", content), "OM033")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["RSA", "-pkeyopt", "rsa_keygen_bits:2048"], id="RSA"),
        pytest.param(["EC", "-pkeyopt", "ec_paramgen_curve:P-256"], id="P-256"),
        pytest.param(["X25519"], id="X25519"),
        pytest.param(["ED448"], id="Ed448"),
        pytest.param(["ED25519", "-aes256", "-pass", "pass:secret"], id="encrypted"),
    ],
)
def test_another_kind_of_key_is_om033(tmp_path: Path, options: list[str]) -> None:
    openssl("genpkey", "-algorithm", *options, "-out", tmp_path / "key")
    (tmp_path / "key").chmod(0o600)
    refused(tmp_path / "key", "OM033")


def test_a_huge_file_is_om033_and_is_not_read_whole(tmp_path: Path) -> None:
    path = key_file(tmp_path / "key", GOOD + "#" * 10_000)
    refused(path, "OM033")
    os.truncate(path, 2**40)  # sparse: whoever read it all would run out of memory
    refused(path, "OM033")


def test_a_key_inside_the_forbidden_directory_is_om035_by_every_way_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "deep").mkdir(parents=True)
    path = key_file(data / "deep" / "key")
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "alias").symlink_to(data)
    (tmp_path / "chain").symlink_to("link")
    (tmp_path / "outside").mkdir()
    for way in (
        path,
        tmp_path / "link",
        tmp_path / "chain",
        tmp_path / "alias" / "deep" / "key",
        f"{tmp_path}/outside/../data/deep/key",
        f"{tmp_path}/data//deep/./key",
    ):
        keys.load(str(way))
        for forbidden in (data, tmp_path / "alias", data / "deep"):
            refused(way, "OM035", forbidden)


def test_a_key_beside_the_forbidden_directory_is_loaded(tmp_path: Path) -> None:
    for name in ("data", "data2", "keys"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "data2")
    for path in (key_file(tmp_path / "data2" / "key"), key_file(tmp_path / "keys" / "key")):
        keys.load(str(path), str(tmp_path / "data"))


# --- generate --------------------------------------------------------------------------------


def names(directory: Path) -> set[str]:
    """Return what lies in the directory."""
    return {entry.name for entry in directory.iterdir()}


def test_a_generated_key_is_whole_loadable_and_alone(tmp_path: Path) -> None:
    public_key = keys.generate(str(tmp_path / "key"))
    assert keys.load(str(tmp_path / "key"))[0].public_key == public_key
    assert names(tmp_path) == {"key"}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_a_generated_key_has_mode_0600_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        keys.generate(str(tmp_path / "key"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_generated_key_belongs_to_whom_it_is_made_for(tmp_path: Path) -> None:
    owner = NOBODY if os.geteuid() == 0 else os.geteuid()
    group = NOBODY if os.geteuid() == 0 else os.getegid()
    keys.generate(str(tmp_path / "key"), owner, group)
    status = (tmp_path / "key").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (owner, group, 0o600)


def test_two_generated_keys_differ(tmp_path: Path) -> None:
    assert keys.generate(str(tmp_path / "one")) != keys.generate(str(tmp_path / "two"))


def test_generate_never_overwrites_a_key_and_leaves_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    keys.generate(str(path))
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        keys.generate(str(path))
    assert path.read_bytes() == before
    assert names(tmp_path) == {"key"}


def test_generate_never_overwrites_what_else_bears_the_name(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "target")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    before = names(tmp_path)
    for name in before:
        with pytest.raises(FileExistsError):
            keys.generate(str(tmp_path / name))
    assert names(tmp_path) == before
    assert (tmp_path / "empty").read_bytes() == b""


def test_generate_into_a_missing_directory_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        keys.generate(str(tmp_path / "missing" / "key"))
    assert names(tmp_path) == set()


@pytest.mark.parametrize("step", ["fchmod", "fsync", "link"])
def test_generate_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        keys.generate(str(tmp_path / "key"))
    assert names(tmp_path) == set()


def test_of_racing_generates_exactly_one_makes_the_key(tmp_path: Path) -> None:
    def attempt(_number: int) -> bytes | None:
        try:
            return keys.generate(str(tmp_path / "key"))
        except FileExistsError:
            return None

    with ThreadPoolExecutor(8) as pool:
        made = [key for key in pool.map(attempt, range(40)) if key is not None]
    assert made == [keys.load(str(tmp_path / "key"))[0].public_key]
    assert names(tmp_path) == {"key"}
