"""Whose a lake or a transparency log is: one database writes there, and a copy of it does not.

``owner.json`` at the root names the deployment and the database (its cluster's system identifier
and its oid). It is made by the first to come and changed by ``oml adopt``. Copies of a database's
files have the same identity: what tells those apart is the evidence that the write gate asks for.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oml.errors import OmlError
from oml.store import Store, StoreError

PATH = "owner.json"
_ATTEMPTS = 5


@dataclass(frozen=True)
class Identity:
    """A deployment's id, and the database that holds its journal."""

    deployment_id: str
    system_identifier: str
    database_oid: int

    @classmethod
    def of(cls, deployment_id: str, instance: Mapping[str, Any] | None) -> "Identity":
        """Make it of what the database says of its instance; a standby says nothing."""
        named = instance or {"system_identifier": "", "database_oid": 0}
        return cls(deployment_id, named["system_identifier"], named["database_oid"])

    def __str__(self) -> str:
        return f"database {self.database_oid} of system {self.system_identifier}"


class OwnedError(OmlError):
    """The place belongs to another database."""


def read(store: Store) -> Identity | None:
    """Return whose the place is, None if nobody's. Raises StoreError."""
    data = store.get(PATH)
    return None if data is None else _decode(store, data)


def require(store: Store, identity: Identity) -> None:
    """Insist that the place is this database's. Raises OwnedError, StoreError."""
    owner = read(store)
    if owner is None:
        raise OwnedError(
            f"nobody owns {store.url}: its {PATH} is gone",
            "It was removed while we worked. Look who did, then start anew: it is made again.",
        )
    _refuse_another(store, owner, identity)


def claim(store: Store, identity: Identity, *, take: bool = False) -> None:
    """Make the place this database's, if it is nobody's, or with ``take`` another copy's.

    Another deployment's is never taken. Raises OwnedError, StoreError.
    """
    ours = (json.dumps(asdict(identity), indent=2) + "\n").encode()
    for _ in range(_ATTEMPTS):
        data = store.get(PATH)
        if data is not None:
            owner = _decode(store, data)
            if owner == identity:
                return
            if not take or owner.deployment_id != identity.deployment_id:
                _refuse_another(store, owner, identity)
        if store.replace(PATH, ours, data):
            return
    raise StoreError(f"others keep writing {store.url}/{PATH}")


def _decode(store: Store, data: bytes) -> Identity:
    try:
        identity = Identity(**json.loads(data))
    except (ValueError, TypeError):
        raise StoreError(
            f"{store.url}/{PATH} is not what OML wrote",
            "Restore it from a copy, or remove it if nothing else writes there.",
            retryable=False,
        ) from None
    return identity


def _refuse_another(store: Store, owner: Identity, identity: Identity) -> None:
    if owner == identity:
        return
    if owner.deployment_id != identity.deployment_id:
        raise OwnedError(
            f"{store.url} belongs to deployment {owner.deployment_id}",
            f"This is deployment {identity.deployment_id}. Two may not share one place.",
        )
    raise OwnedError(
        f"{store.url} belongs to {owner}, and this is {identity}",
        "A copy of this database was adopted and goes on in its place: nothing is written from "
        f"here. If this one shall go on instead, stop the other for good and remove {PATH} there.",
    )
