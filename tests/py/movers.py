"""What tests do with the bodies' store: move, look what is there, and say what should be."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from uuid import UUID

from lakes import settings
from oml.dev.cluster import SUPERUSER
from oml.lake.bodies import BodiesSource
from oml.lake.mover import CIPHERTEXT_DIGEST, PLAINTEXT_DIGEST, Moved, Mover
from oml.store import open_store
from seaweed import Bucket
from systems import System

Objects = dict[str, tuple[bytes, dict[str, str]]]


def beside(system: System) -> Bucket:
    """Return a place for bodies in a directory beside the system's lake."""
    return Bucket((system.lake.parent / f"{system.lake.name}-bodies").as_uri(), {})


def choice(place: Bucket) -> dict[str, Any]:
    """Return the settings that name a place for bodies."""
    return {"bodies_url": place.url, "bodies_storage_options": place.options}


@contextmanager
def mover(system: System, **others: Any) -> Iterator[Mover]:
    """A mover in this process, with a session of its own, that does not pause."""
    with BodiesSource(system.dsn(SUPERUSER)) as source:
        yield Mover(source, settings(system, **others), lambda _: None)


def move(system: System, place: Bucket, **others: Any) -> Moved:
    """Move once, as a mover that has just started."""
    with mover(system, **choice(place), **others) as made:
        return made.move()


def objects(place: Bucket) -> Objects:
    """Return what is in a store: content and metadata by path."""
    store = open_store(place.url, place.options, make=True)
    found = {}
    for path in store.list():
        if not path.endswith(".meta.json"):
            held = store.get_with_metadata(path)
            assert held is not None
            found[path] = held
    return found


def due(system: System, *artifacts: UUID) -> Objects:
    """Return what a store should hold of these artifacts, by the journal and the stored bytes."""
    query = """
        select j.tenant_id, j.plaintext_digest, j.ciphertext_digest, b.ciphertext
        from oml.journal j join oml.body b on b.tenant_id = j.tenant_id
          and b.artifact_id = j.artifact_id and b.version = j.artifact_version
          and b.part = case j.type when 'submission.submit' then 0 else (j.payload ->> 'part')::int end
        where j.type in ('submission.submit', 'submission.attach') and j.artifact_id = any(%s)
    """  # noqa: E501
    found: Objects = {}
    for tenant_id, plaintext, ciphertext, data in system.superuser.execute(
        query, (list(artifacts),)
    ):
        assert sha256(data).digest() == ciphertext
        metadata = {PLAINTEXT_DIGEST: plaintext.hex(), CIPHERTEXT_DIGEST: ciphertext.hex()}
        found[f"{tenant_id}/{ciphertext.hex()}"] = (data, metadata)
    return found
