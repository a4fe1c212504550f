"""Signing keys in Vault's or OpenBao's transit engine, reached over HTTP with hvac.

``vault:MOUNT/KEY`` names a transit key of type ed25519; each of its versions is a signing key with
a kid of its own. KEKs are transit keys of the same mount, ``oml-kek-`` and the KEK's name. Where
the server is and who we are come from VAULT_ADDR, VAULT_TOKEN and Vault's other variables.
"""

import base64
import binascii
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hvac
import requests
from hvac import exceptions

from oml.core import cose, envelope, keys, note, signer
from oml.errors import UsageError

TIMEOUT_S = 1.0
"""Seconds to connect and seconds to wait for an answer, within a client's own deadline."""

_URL = re.compile(r"vault:((?:[\w.-]+/)*[\w.-]+)/([\w.-]+)")
_REFRESH_S = 1.0
_KEK_TYPE = "chacha20-poly1305"
_NO_KEK_TYPE = "ed25519"
"""Cannot encrypt. The engine looks at a type only where it would make the key: so it refuses."""


class VaultSigner:
    """A transit key. May be used by several threads at once. See oml.core.signer.Signer.

    Raises UsageError for a URL that is not understood.
    """

    def __init__(self, url: str) -> None:
        named = _URL.fullmatch(url)
        if named is None:
            raise UsageError(
                f"signer_keys names {url!r}, which is not understood",
                "Use vault:, the mount of a transit engine, a slash and the name of a key in it.",
            )
        self._url = url
        self._mount, self._name = named.groups()
        self._threads = threading.local()
        self._versions: dict[bytes, tuple[int, bytes]] = {}
        self._read_at: float | None = None

    def sign(self, kid: bytes, payload: bytes) -> bytes:
        """See Signer. Raises OM034 for a key that is none of its versions, OM100 for Vault's."""
        header = cose.protected_header(envelope.CONTENT_TYPE, kid)
        return self._signature(kid, cose.to_be_signed(header, payload))

    def sign_checkpoint(self, kid: bytes, head: note.TreeHead) -> bytes:
        """See Signer. Raises as sign does."""
        return self._signature(kid, head.text.encode())

    def _signature(self, kid: bytes, signed: bytes) -> bytes:
        found = self._find(kid)
        if found is None:
            raise signer.other_key(self._url, list(self._versions), kid)
        with self._errors():
            answer = self._transit.sign_data(
                name=self._name,
                hash_input=_base64(signed),
                key_version=found[0],
                mount_point=self._mount,
            )
            # vault:vVERSION:BASE64
            return base64.b64decode(answer["data"]["signature"].rpartition(":")[2], validate=True)

    def public_keys(self) -> dict[bytes, bytes]:
        """See Signer. A second old at most."""
        self._refresh()
        return {kid: public for kid, (_, public) in self._versions.items()}

    def wrap(self, kek: str, plaintext: bytes, aad: bytes, *, create: bool) -> bytes:
        """See Signer. The bytes are Vault's own ciphertext text."""
        signer.require_kek(kek, plaintext, aad)
        name = _kek_name(kek)
        with self._errors():
            try:
                answer = self._transit.encrypt_data(
                    name=name,
                    plaintext=_base64(plaintext),
                    associated_data=_base64(aad),
                    type=_KEK_TYPE if create else _NO_KEK_TYPE,  # of a key that is not there
                    mount_point=self._mount,
                )
                return str(answer["data"]["ciphertext"]).encode("ascii")
            except (exceptions.InvalidRequest, exceptions.Forbidden):
                # A token that may make no key is forbidden what would make one.
                if create or self._exists(name):
                    raise
                raise signer.kek_missing(kek) from None

    def unwrap(self, kek: str, wrapped: bytes, aad: bytes) -> bytes:
        """See Signer."""
        signer.require_kek(kek, b"", aad)
        name = _kek_name(kek)
        with self._errors():
            try:
                answer = self._transit.decrypt_data(
                    name=name,
                    ciphertext=wrapped.decode("ascii", "replace"),
                    associated_data=_base64(aad),
                    mount_point=self._mount,
                )
                return base64.b64decode(answer["data"]["plaintext"], validate=True)
            except exceptions.InvalidRequest:
                if not self._exists(name):
                    raise signer.kek_missing(kek) from None
                raise signer.not_unwrapped(kek) from None

    def _exists(self, name: str) -> bool:
        try:
            self._transit.read_key(name=name, mount_point=self._mount)
        except exceptions.InvalidPath:
            return False
        return True

    @property
    def _transit(self) -> Any:
        """This thread's client: its HTTP session is not made to be shared."""
        if not hasattr(self._threads, "client"):
            self._threads.client = hvac.Client(timeout=TIMEOUT_S)
        return self._threads.client.secrets.transit

    def _find(self, kid: bytes) -> tuple[int, bytes] | None:
        if kid not in self._versions:
            self._refresh()
        return self._versions.get(kid)

    def _refresh(self) -> None:
        now = time.monotonic()
        if self._read_at is not None and now - self._read_at < _REFRESH_S:
            return
        with self._errors():
            data = self._transit.read_key(name=self._name, mount_point=self._mount)["data"]
            if data["type"] != "ed25519" or data.get("derived"):
                raise self._unusable(f"its type is {data['type']}, not ed25519")
            versions = {}
            for number, version in data["keys"].items():
                public = base64.b64decode(version["public_key"], validate=True)
                versions[keys.kid(public)] = (int(number), public)
        self._versions, self._read_at = versions, now

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what goes wrong on the way to Vault and back into ours."""
        try:
            yield
        except exceptions.VaultError as error:
            reason = ", ".join(map(str, error.errors or ())) or type(error).__name__
            raise self._unusable(" ".join(reason.split())) from None
        except requests.RequestException as error:
            raise self._unusable(f"Vault does not answer ({type(error).__name__})") from None
        except (KeyError, TypeError, AttributeError, binascii.Error, ValueError):
            raise self._unusable("the answer is not one of a transit engine") from None

    def _unusable(self, reason: str) -> keys.SignerError:
        return keys.SignerError(
            "OM100",
            f"{self._url} cannot be used: {reason}",
            "Check VAULT_ADDR, VAULT_TOKEN and the token's policy where omld runs, and that Vault "
            "is unsealed.",
        )


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _kek_name(kek: str) -> str:
    return f"oml-kek-{kek}"
