"""What the published logs say against a journal that lost or changed what was published."""

import shutil
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from lakes import NOBODY, append, prepare
from oml.core import keys, note
from oml.dev.cluster import SUPERUSER
from oml.store import StoreError, open_store
from oml.tlog.evidence import check
from oml.tlog.source import TlogSource
from published import directory, entries, evidence, fill, publish, tenant_id, unguarded
from seaweed import Bucket
from systems import Connection, System


@pytest.fixture
def app(system: System) -> Connection:
    """A writer of tenant acme."""
    return prepare(system)


def restored(system: System, dump: Path) -> None:
    """Put the database back to an older dump, in place."""
    system.superuser.close()
    at = system.cluster.dsn(SUPERUSER, "postgres")
    for statement in ("drop database {} with (force)", "create database {}"):
        command = statement.format(f'"{system.database}"')
        subprocess.run(["psql", "-qX", "-d", at, "-c", command], check=True)
    subprocess.run(["pg_restore", "-d", system.dsn(SUPERUSER), str(dump)], check=True)


def dumped(system: System, place: Path) -> Path:
    dump = place / "dump"
    subprocess.run(["pg_dump", "-Fc", "-f", dump, "-d", system.dsn(SUPERUSER)], check=True)
    return dump


def cut(system: System, after: int, upto: int = 10**9) -> None:
    """Remove events of acme behind the guards."""
    acme = tenant_id(system, "acme")
    unguarded(
        system,
        "journal",
        f"delete from oml.journal where tenant_id = '{acme}' and seq > {after} and seq <= {upto}",
    )


def test_a_whole_journal_is_not_contradicted(system: System, app: Connection) -> None:
    assert evidence(system) == []
    append(app, 3)
    assert evidence(system) == []
    publish(system)
    assert evidence(system) == []
    fill(system, 600)
    assert evidence(system) == [], "what is not published yet contradicts nothing"
    publish(system)
    assert evidence(system) == []


def test_a_database_that_was_restored_lacks_the_events_since(
    system: System, app: Connection, tmp_path: Path
) -> None:
    append(app, 4)
    publish(system)
    dump = dumped(system, tmp_path)
    fill(system, 300)
    system.make("globex")
    publish(system)
    lost = [entry.hex() for entry in entries(system)[5:]]
    globex = tenant_id(system, "globex")
    gone = [entry.hex() for entry in entries(system, "globex")]
    provider = len(entries(system, "provider"))
    restored(system, dump)
    by_tenant = {each.tenant: each for each in evidence(system)}
    assert set(by_tenant) == {"provider", "acme", str(globex)}
    acme = by_tenant["acme"]
    assert (acme.kind, acme.first_seq, acme.last_seq) == ("missing", 6, 305)
    assert (acme.journal_head, acme.checkpoint_size, acme.generation) == (5, 305, 1)
    assert acme.hashes == tuple(lost[:10])
    assert acme.tenant_id == tenant_id(system, "acme")
    found = by_tenant["provider"]
    assert (found.kind, found.last_seq) == ("missing", provider)
    unknown = by_tenant[str(globex)]
    assert (unknown.kind, unknown.first_seq, unknown.last_seq) == ("missing", 1, len(gone))
    assert (unknown.tenant_id, unknown.journal_head, unknown.generation) == (globex, 0, 1)
    assert unknown.hashes == tuple(gone)
    with TlogSource(system.dsn(SUPERUSER)) as source:
        store = open_store(system.tlog_url)
        known = {each.tenant for each in check(source, store, {globex: len(gone)})}
        assert known == {"provider", "acme"}, "it was accepted"
        some = {each.tenant for each in check(source, store, {globex: len(gone) - 1})}
        assert str(globex) in some, "more was published than was accepted"


def test_a_directory_that_no_deployment_key_vouches_for_is_no_lost_tenant(
    system: System, app: Connection
) -> None:
    append(app, 2)
    publish(system)
    unknown = UUID(int=77)
    place = system.tlog / str(unknown)
    shutil.copytree(directory(system).parent, place)
    assert evidence(system) == [], "its checkpoint is that of another log"
    checkpoint = place / "1/checkpoint"
    head, _ = note.parse_checkpoint(checkpoint.read_bytes())
    origin = note.origin(tenant_id(system, "provider"), unknown, 1)
    checkpoint.write_bytes(signed_by(system, bytes(32), head.size, head.root, origin))
    assert evidence(system) == []
    checkpoint.unlink()
    assert evidence(system) == []


@pytest.mark.parametrize("more", [1, 300, 700])
@pytest.mark.parametrize("common", [1, 200, 255, 256, 257, 511])
def test_a_database_that_went_on_after_a_restore_is_a_fork(
    system: System, app: Connection, common: int, more: int
) -> None:
    fill(system, common - 1) if common > 1 else None
    publish(system)
    fill(system, 400)
    publish(system)
    size = common + 400
    lost = [entry.hex() for entry in entries(system)[common:]]
    cut(system, common)
    fill(system, more)
    (found,) = evidence(system)
    assert (found.tenant, found.kind) == ("acme", "fork")
    assert (found.first_seq, found.last_seq) == (common + 1, size)
    assert (found.journal_head, found.checkpoint_size) == (common + more, size)
    assert found.hashes == tuple(lost[:10])


def test_an_event_that_was_changed_is_a_fork_from_there(system: System, app: Connection) -> None:
    fill(system, 20)
    publish(system)
    acme = tenant_id(system, "acme")
    unguarded(
        system,
        "journal",
        "update oml.journal set envelope = set_byte(envelope, 40, get_byte(envelope, 40) # 1)"
        f" where tenant_id = '{acme}' and seq = 9",
    )
    (found,) = evidence(system)
    assert (found.kind, found.first_seq, found.last_seq) == ("fork", 9, 21)


def test_a_changed_projection_of_the_hash_hides_nothing(system: System, app: Connection) -> None:
    append(app, 3)
    publish(system)
    acme = tenant_id(system, "acme")
    unguarded(
        system,
        "journal",
        f"update oml.journal set hash = sha256('x') where tenant_id = '{acme}' and seq = 4",
    )
    assert evidence(system) == [], "it is the envelope that counts"


def test_a_gap_in_the_journal_is_missing_alone(system: System, app: Connection) -> None:
    append(app, 9)
    publish(system)
    cut(system, 4, 6)
    (found,) = evidence(system)
    assert (found.kind, found.first_seq, found.last_seq) == ("missing", 5, 6)
    assert len(found.hashes) == 2
    assert found.journal_head == 10


def test_a_chain_that_is_gone_altogether_is_missing(system: System, app: Connection) -> None:
    fill(system, 300)
    publish(system)
    cut(system, 0)
    (found,) = evidence(system)
    assert (found.kind, found.first_seq, found.last_seq) == ("missing", 1, 301)
    assert found.journal_head == 0


def test_lost_events_are_named_without_their_hashes_where_their_bundle_is_gone(
    system: System, app: Connection
) -> None:
    append(app, 3)
    publish(system)
    cut(system, 2)
    (directory(system) / "tile/entries/000.p/4").unlink()
    (found,) = evidence(system)
    assert (found.kind, found.first_seq, found.hashes) == ("missing", 3, ())


def test_hashes_that_are_not_those_of_the_tree_are_not_named(
    system: System, app: Connection
) -> None:
    append(app, 3)
    publish(system)
    cut(system, 2)
    path = directory(system) / "tile/entries/000.p/4"
    bundle = bytearray(path.read_bytes())
    bundle[3 * 34 + 5] ^= 1
    path.write_bytes(bundle)
    (found,) = evidence(system)
    assert (found.kind, found.first_seq, len(found.hashes)) == ("missing", 3, 1)


def edit(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda place: edit(place / "tile/0/001.p/45"), "do not make up the root"),
        (lambda place: edit(place / "tile/1/000.p/1"), "do not make up the root"),
        (lambda place: (place / "tile/0/001.p/45").unlink(), "is missing"),
        (lambda place: (place / "tile/0/001.p/45").write_bytes(b"short"), "has 5 bytes"),
        (lambda place: (place / "checkpoint").write_bytes(b"scribble"), "its checkpoint: "),
        (lambda place: edit(place / "checkpoint", 95), "its checkpoint"),
    ],
)  # fmt: skip
def test_a_log_that_does_not_hold_together_is_told_from_a_fork(
    system: System, app: Connection, damage: object, says: str
) -> None:
    fill(system, 300)
    publish(system)
    assert callable(damage)
    damage(directory(system))
    (found,) = evidence(system)
    assert (found.tenant, found.kind) == ("acme", "tree")
    assert says in found.reason


def signed_by(system: System, seed: bytes, size: int, root: bytes, origin: str) -> bytes:
    key = keys.from_seed(seed)
    text = note.checkpoint_text(origin, size, root)
    line = note.log_signature(
        note.log_verifier(origin, key.public_key), note.signed(text, key.secret_key)
    )
    return note.Note(text, (line,)).encode()


def test_a_checkpoint_of_another_key_or_another_log_is_no_evidence_of_ours(
    system: System, app: Connection
) -> None:
    append(app, 2)
    publish(system)
    path = directory(system) / "checkpoint"
    head, _ = note.parse_checkpoint(path.read_bytes())
    path.write_bytes(signed_by(system, bytes(32), 10**6, head.root, head.origin))
    (found,) = evidence(system)
    assert found.kind == "tree" and "none of the deployment's keys" in found.reason
    shutil.copy(directory(system, "provider") / "checkpoint", path)
    (found,) = evidence(system)
    assert found.kind == "tree" and "its checkpoint is that of" in found.reason


def test_a_checkpoint_under_a_key_since_retired_counts(
    system: System, app: Connection, open_dir: Path
) -> None:
    append(app, 2)
    publish(system)
    owner = system.cluster.account
    path = open_dir / "next.key"
    public = keys.generate(str(path), owner.uid, owner.gid)
    system.superuser.execute("select oml_issue_key(%s, 'signing')", (public,))
    system.superuser.execute("select oml_rotate_signing_key(%s)", (f"file:{path}",))
    assert evidence(system) == []
    cut(system, 2)
    (found,) = evidence(system)
    assert (found.kind, found.first_seq, found.last_seq) == ("missing", 3, 3)


def begin_generation(system: System, generation: int) -> None:
    """Have acme's log begin anew, as an accepted loss does."""
    system.superuser.execute(
        "update oml.tlog set generation = %s, size = 0, root = null, checkpoint = null,"
        " published_at = null where tenant_id = %s",
        (generation, tenant_id(system, "acme")),
    )


@pytest.mark.parametrize("since", [0, 2])
def test_a_later_generation_than_the_database_knows_is_named_with_what_is_lost(
    system: System, app: Connection, tmp_path: Path, since: int
) -> None:
    append(app, 2)
    publish(system)
    dump = dumped(system, tmp_path)
    begin_generation(system, 2)
    publish(system)
    begin_generation(system, 10)
    append(app, since) if since else None
    publish(system)
    assert evidence(system) == []
    lost = tuple(entry.hex() for entry in entries(system)[3:])
    restored(system, dump)
    (found,) = evidence(system)
    assert (found.tenant, found.kind, found.generation) == ("acme", "generation", 10)
    assert (found.journal_head, found.checkpoint_size) == (3, 3 + since)
    assert (found.first_seq, found.last_seq) == ((4, 5) if since else (0, 0))
    assert found.hashes == lost
    (directory(system, generation=10) / f"tile/0/000.p/{3 + since}").unlink()
    (found,) = evidence(system)
    assert (found.kind, found.generation, found.first_seq) == ("generation", 10, 0)
    (directory(system, generation=10) / "checkpoint").unlink()
    tree, older = evidence(system)
    assert (tree.kind, tree.generation) == ("tree", 10)
    assert (older.kind, older.generation) == ("generation", 2), "an older one still counts"


def test_what_no_deployment_key_signed_is_no_later_generation(
    system: System, app: Connection
) -> None:
    append(app, 2)
    publish(system)
    for number in ("77", "2147483647", "99999999999", "007"):
        directory(system).with_name(number).mkdir()
    assert evidence(system) == [], "they are empty"
    shutil.copytree(
        directory(system), directory(system).with_name("2147483647"), dirs_exist_ok=True
    )
    assert evidence(system) == [], "no generation has that number"
    shutil.copy(directory(system) / "checkpoint", directory(system).with_name("77"))
    (found,) = evidence(system)
    assert (found.kind, found.generation, found.first_seq) == ("tree", 77, 0)
    cut(system, 2)
    tree, missing = evidence(system)
    assert (tree.kind, tree.generation) == ("tree", 77)
    assert (missing.kind, missing.first_seq, missing.last_seq) == ("missing", 3, 3)


def test_evidence_that_cannot_be_reached_is_no_contradiction(
    system: System, app: Connection
) -> None:
    append(app, 2)
    publish(system)
    shutil.move(system.tlog, system.tlog.with_name("elsewhere"))
    with pytest.raises(StoreError, match="cannot be reached"):
        evidence(system)
    system.tlog.mkdir()
    with pytest.raises(StoreError, match="holds none of the logs"):
        evidence(system)
    with pytest.raises(StoreError, match="cannot be reached"):
        evidence(system, tlog_url="s3://nowhere/at-all", tlog_storage_options=NOBODY)


def test_evidence_can_lie_in_a_bucket(system: System, app: Connection, bucket: Bucket) -> None:
    place = {"tlog_url": bucket.url, "tlog_storage_options": bucket.options}
    fill(system, 300)
    publish(system, **place)
    assert evidence(system, **place) == []
    cut(system, 200)
    (found,) = evidence(system, **place)
    assert (found.kind, found.first_seq, found.last_seq) == ("missing", 201, 301)
    assert len(found.hashes) == 10
