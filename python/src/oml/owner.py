"""Whose a lake or a transparency log is: one database writes there, and a copy of it does not.

``owner.json`` at the root names the deployment, the database (its cluster's system identifier and
its oid) and the WAL timeline it is on. It is made by the first to come. ``oml adopt`` makes it a
copy's; the database's own server on a later timeline, one that was promoted or recovered, takes it
over, and the one that it superseded writes there no more. Copies of a database's files on one
timeline are not told apart here, but by the evidence that the write gate asks for.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from oml.errors import OmlError
from oml.store import Store, StoreError

PATH = "owner.json"
_ATTEMPTS = 5


@dataclass(frozen=True)
class Identity:
    """A deployment's id, and the database that holds its journal, on a WAL timeline."""

    deployment_id: str
    system_identifier: str
    database_oid: int
    timeline: int

    @classmethod
    def of(cls, deployment_id: str, instance: Mapping[str, Any] | None) -> "Identity":
        """Make it of what the database says of its instance; a standby says nothing."""
        if instance is None:
            return cls(deployment_id, "", 0, 0)
        return cls(
            deployment_id,
            instance["system_identifier"],
            instance["database_oid"],
            int(instance["timeline"], 16),
        )

    def __str__(self) -> str:
        return (
            f"database {self.database_oid} of system {self.system_identifier} "
            f"on timeline {self.timeline}"
        )

    def supersedes(self, other: "Identity") -> bool:
        """Whether this is the same database as ``other``, on a later timeline."""
        return replace(other, timeline=self.timeline) == self and self.timeline > other.timeline


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
    """Make the place this database's, if it is nobody's or an earlier timeline's.

    With ``take`` also if it is another copy's, but never another deployment's. Raises OwnedError,
    StoreError.
    """
    ours = (json.dumps(asdict(identity), indent=2) + "\n").encode()
    for _ in range(_ATTEMPTS):
        data = store.get(PATH)
        if data is not None:
            owner = _decode(store, data)
            if owner == identity:
                return
            same = owner.deployment_id == identity.deployment_id
            if not identity.supersedes(owner) and not (take and same):
                _refuse_another(store, owner, identity)
        if store.replace(PATH, ours, data):
            return
    raise StoreError(f"others keep writing {store.url}/{PATH}")


def _decode(store: Store, data: bytes) -> Identity:
    try:
        identity = Identity(**json.loads(data))
        if type(identity.timeline) is not int:
            raise ValueError(identity)
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
        "Another server goes on in this one's place, a copy that was adopted or a standby that was "
        "promoted: nothing is written from here. If this one shall go on instead, stop the other "
        f"for good and remove {PATH} there.",
    )
