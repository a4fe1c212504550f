"""What tests do with a system's logs: publish them, and judge them without our own tree code."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from nacl.signing import VerifyKey

from lakes import KIND, PATIENCE_S
from oml.core import note
from oml.dev.cluster import SUPERUSER
from oml.settings import Settings
from oml.tlog.evidence import Contradiction, check
from oml.tlog.publisher import Publisher, Report, tlog_store
from oml.tlog.source import TlogSource
from systems import System

WIDTH = 256


def settings(system: System, **others: Any) -> Settings:
    """Return the settings of a publisher of this system."""
    return Settings(**{"tlog_url": system.tlog_url, "cut_timeout_s": PATIENCE_S, **others})


@contextmanager
def publisher(system: System, **others: Any) -> Iterator[Publisher]:
    """A publisher in this process, with a connection of its own."""
    with TlogSource(system.dsn(SUPERUSER)) as source:
        configured = settings(system, **others)
        yield Publisher(source, tlog_store(configured, source.state(), make=True), configured)


def publish(system: System, **others: Any) -> Report:
    """Publish once in this process, as a publisher that has just started."""
    with publisher(system, **others) as one:
        return one.publish()


def evidence(system: System, **others: Any) -> list[Contradiction]:
    """Return what the logs say against the journal."""
    with TlogSource(system.dsn(SUPERUSER)) as source:
        return check(source, tlog_store(settings(system, **others), source.state()))


def directory(system: System, tenant: str = "acme", generation: int = 1) -> Path:
    """Return the directory of a tenant's log."""
    return system.tlog / str(tenant_id(system, tenant)) / str(generation)


def tenant_id(system: System, tenant: str) -> UUID:
    """Return a tenant's id."""
    row = system.superuser.execute(
        "select tenant_id from oml.tenant where name = %s", (tenant,)
    ).fetchone()
    assert row is not None
    found = row[0]
    assert isinstance(found, UUID)
    return found


def entries(system: System, tenant: str = "acme") -> list[bytes]:
    """Return what the entries must be: the hashes of the journal's envelopes, in order."""
    rows = system.superuser.execute(
        "select envelope from oml.journal where tenant_id = %s order by seq",
        (tenant_id(system, tenant),),
    )
    return [hashlib.sha256(row[0]).digest() for row in rows]


def tree_hash(leaves: list[bytes]) -> bytes:
    """Return the Merkle tree hash of leaves, as RFC 6962 defines it."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while 2 * half < len(leaves):
        half *= 2
    below = tree_hash(leaves[:half]) + tree_hash(leaves[half:])
    return hashlib.sha256(b"\1" + below).digest()


def leaf_hashes(found: list[bytes]) -> list[bytes]:
    """Return the leaves of entries."""
    return [hashlib.sha256(b"\0" + entry).digest() for entry in found]


def checkpoint(system: System, tenant: str = "acme", generation: int = 1) -> tuple[int, bytes]:
    """Return (size, root) of a published checkpoint, its signature verified with PyNaCl alone."""
    data = (directory(system, tenant, generation) / "checkpoint").read_bytes()
    body, _, lines = data.decode().partition("\n\n")
    origin, size, root = body.split("\n")
    deployment = tenant_id(system, "provider")
    assert origin == f"oml/{deployment}/{tenant_id(system, tenant)}/{generation}"
    dash, name, blob = lines.splitlines()[0].split(" ")
    assert (dash, name) == ("—", origin)
    keys = system.superuser.execute("select public_key from oml.key").fetchall()
    signature = note.decode_base64(blob)
    signed = f"{body}\n".encode()
    for (key,) in keys:
        key_id = hashlib.sha256(f"{origin}\n".encode() + b"\1" + key).digest()[:4]
        if key_id == signature[:4]:
            VerifyKey(key).verify(signed, signature[4:])
            return int(size), note.decode_base64(root)
    raise AssertionError("no key of the deployment signed it")


def expect_published(system: System, *tenants: str) -> None:
    """Insist that each tenant's log is exactly its chain, in every tile and in what is recorded."""
    for tenant in tenants or ("provider", "acme"):
        expect_log(system, tenant, len(entries(system, tenant)))


def expect_log(system: System, tenant: str, size: int, generation: int = 1) -> None:
    """Insist that a log of this size is what the journal makes it, and that it is so recorded."""
    want = entries(system, tenant)[:size]
    leaves = leaf_hashes(want)
    root = tree_hash(leaves)
    assert checkpoint(system, tenant, generation) == (size, root)
    place = directory(system, tenant, generation)
    level, hashes = 0, leaves
    while hashes:
        for at in range(0, len(hashes), WIDTH):
            part = hashes[at : at + WIDTH]
            path = place / f"tile/{level}/{_named(at // WIDTH, len(part))}"
            assert path.read_bytes() == b"".join(part), path
        full = [hashes[at : at + WIDTH] for at in range(0, len(hashes) // WIDTH * WIDTH, WIDTH)]
        level, hashes = level + 1, [tree_hash(part) for part in full]
        assert recorded_nodes(system, tenant, generation, level) == hashes
    for at in range(0, len(want), WIDTH):
        part = want[at : at + WIDTH]
        path = place / f"tile/entries/{_named(at // WIDTH, len(part))}"
        assert path.read_bytes() == b"".join(b"\0\x20" + entry for entry in part), path
    row = system.superuser.execute(
        "select generation, size, root, checkpoint from oml.tlog where tenant_id = %s",
        (tenant_id(system, tenant),),
    ).fetchone()
    assert row == (generation, size, root, (place / "checkpoint").read_text())


def recorded_nodes(system: System, tenant: str, generation: int, level: int) -> list[bytes]:
    """Return the hashes recorded at a level; they must be numbered from 0 without a gap."""
    rows = system.superuser.execute(
        "select n, hash from oml.tlog_node where tenant_id = %s and generation = %s and level = %s"
        " order by n",
        (tenant_id(system, tenant), generation, level),
    ).fetchall()
    assert [row[0] for row in rows] == list(range(len(rows)))
    return [row[1] for row in rows]


def _named(index: int, width: int) -> str:
    assert index < 1000
    return f"{index:03}" if width == WIDTH else f"{index:03}.p/{width}"


class Watch:
    """Keeps every checkpoint that it saw published, to hold them against the journal at the end."""

    def __init__(self, system: System, tenant: str = "acme") -> None:
        self.system = system
        self.tenant = tenant
        self.seen: set[tuple[int, bytes]] = set()

    def look(self) -> int:
        """Take the checkpoint that is published now; return its size, 0 for none."""
        if not (directory(self.system, self.tenant) / "checkpoint").exists():
            return 0
        found = checkpoint(self.system, self.tenant)
        self.seen.add(found)
        return found[0]

    def expect_one_history(self) -> None:
        """Insist that each tree that was ever seen is one of the journal's own prefixes."""
        leaves = leaf_hashes(entries(self.system, self.tenant))
        for size, root in sorted(self.seen):
            assert size <= len(leaves), f"a checkpoint of {size} events, the journal {len(leaves)}"
            assert root == tree_hash(leaves[:size]), f"another history up to {size}"


def fill(system: System, count: int, tenant: str = "acme") -> None:
    """Append many events in one batch."""
    with system.connect("app") as connection:
        connection.execute(
            "select count(*) from generate_series(1, %s::int) page,"
            " lateral (select oml_append_batch((select jsonb_agg(jsonb_build_object("
            "'type', %s::text, 'tenant', %s::text, 'payload', jsonb_build_object('n', n)))"
            " from generate_series(1, least(1000, %s::int - 1000 * (page - 1))) n))) b",
            (-(-count // 1000), KIND, tenant, count),
        )


def unguarded(system: System, table: str, *statements: str) -> None:
    """Change a table behind its guards, as a superuser can."""
    system.superuser.execute(f"alter table oml.{table} disable trigger user".encode())
    for statement in statements:
        system.superuser.execute(statement.encode())
    guards = system.superuser.execute(
        "select tgname from pg_trigger where tgrelid = %s::regclass and not tgisinternal",
        (f"oml.{table}",),
    ).fetchall()
    for (guard,) in guards:
        system.superuser.execute(f"alter table oml.{table} enable always trigger {guard}".encode())
