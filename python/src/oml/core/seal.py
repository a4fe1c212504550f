"""Seal an event inside the database process: the one Python step of an append."""

from typing import Any, NamedTuple

from . import cose, envelope, signer


class Sealer(NamedTuple):
    """Seals events with one key of one signer."""

    provider: signer.Signer
    kid: bytes
    protected: bytes

    def seal(self, values: tuple[Any, ...]) -> tuple[bytes, bytes]:
        """Encode, sign and hash one event. ``values`` follow envelope.FIELDS.

        Returns the exact envelope bytes and their SHA-256. Raises keys.SignerError, and what
        envelope.encode_map raises.
        """
        payload = envelope.encode_map(values)
        signature = self.provider.sign(self.kid, payload)
        data = cose.assemble(self.protected, payload, signature)
        return data, envelope.digest(data)


_last: tuple[tuple[str, str | None, bytes], Sealer] | None = None


def sealer(signer_url: str, data_directory: str | None, kid: bytes) -> Sealer:
    """Return what seals with this signer's key of this kid. Cheap to call for every event.

    ``data_directory`` is where a key file must not lie. Raises keys.SignerError OM036 for a signer
    that is not understood; whether it holds the key, and may use it, shows when it signs.
    """
    global _last
    asked = (signer_url, data_directory, kid)
    if _last is not None and _last[0] == asked:
        return _last[1]
    made = Sealer(
        signer.provider(signer_url, data_directory),
        kid,
        cose.protected_header(envelope.CONTENT_TYPE, kid),
    )
    _last = (asked, made)
    return made
