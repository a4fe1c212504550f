"""omld's keys of several providers, of which some are away."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oml.core import keys
from oml.core.signer import FileSigner
from oml.daemon.signer import Keyring

PAYLOAD = b"whatever omld has checked"
SEEDS = {"one": bytes(range(32)), "two": bytes(range(1, 33))}
ONE, TWO = (keys.from_seed(seed) for seed in SEEDS.values())


@pytest.fixture
def one(tmp_path: Path) -> str:
    """A key file's URL."""
    keys.write_new(str(tmp_path / "one.key"), keys.to_pem(SEEDS["one"]).encode())
    return f"file:{tmp_path / 'one.key'}"


class Silent:
    """A server that takes connections, closes each, and counts them."""

    def __init__(self) -> None:
        self.asked = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.asked += 1
                connection.close()

    def end(self) -> None:
        """End it."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    """Where Vault should be."""
    server = Silent()
    monkeypatch.setenv("VAULT_ADDR", server.address)
    monkeypatch.setenv("VAULT_TOKEN", "token-of-this-test")
    yield server
    server.end()


def refused(keyring: Keyring, kid: bytes, sqlstate: str) -> str:
    """Insist that nothing is signed; return the message."""
    with pytest.raises(keys.SignerError) as caught:
        keyring.sign(kid, PAYLOAD)
    assert caught.value.sqlstate == sqlstate
    assert caught.value.hint
    return caught.value.message


def test_a_key_in_a_file_is_signed_with_before_anything_is_asked_of_a_vault(
    vault: Silent, one: str
) -> None:
    keyring = Keyring(["vault:transit/old", one])
    signature = keyring.sign(ONE.kid, PAYLOAD)
    assert signature == FileSigner(one.removeprefix("file:")).sign(ONE.kid, PAYLOAD)
    assert vault.asked == 0


def test_a_vault_that_is_away_is_asked_once_a_second(vault: Silent, one: str) -> None:
    now = 1000.0
    keyring = Keyring(["vault:transit/old", one], clock=lambda: now)
    said = refused(keyring, TWO.kid, "OM100")
    assert vault.asked == 1
    assert {refused(keyring, TWO.kid, "OM100") for _ in range(5)} == {said}
    assert [*keyring.public_keys()] == [ONE.kid]
    now += 0.9
    refused(keyring, TWO.kid, "OM100")
    assert vault.asked == 1
    now += 0.2
    refused(keyring, TWO.kid, "OM100")
    assert vault.asked == 2


def test_a_key_file_that_is_put_back_counts_at_once(one: str, tmp_path: Path) -> None:
    keyring = Keyring([one])
    before = keyring.sign(ONE.kid, PAYLOAD)
    (tmp_path / "one.key").rename(tmp_path / "away")
    refused(keyring, ONE.kid, "OM030")
    (tmp_path / "away").rename(tmp_path / "one.key")
    assert keyring.sign(ONE.kid, PAYLOAD) == before


def test_who_holds_a_key_is_asked_for_it_alone(one: str, tmp_path: Path) -> None:
    path = tmp_path / "two.key"
    keys.write_new(str(path), keys.to_pem(SEEDS["two"]).encode())
    keyring = Keyring([one, f"file:{path}"])
    before = keyring.sign(TWO.kid, PAYLOAD)
    path.unlink()
    (tmp_path / "one.key").unlink()
    message = refused(keyring, TWO.kid, "OM030")
    assert "two.key" in message and "one.key" not in message
    keys.write_new(str(path), keys.to_pem(SEEDS["two"]).encode())
    assert keyring.sign(TWO.kid, PAYLOAD) == before


def test_a_key_that_nobody_holds_is_om034(one: str) -> None:
    assert ONE.kid.hex() in refused(Keyring([one]), TWO.kid, "OM034")
