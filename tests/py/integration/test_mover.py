"""The object mover: what is released arrives whole in its store, and nothing else does."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from lakes import NOBODY, append, drain, frontier, outbox_max, prepare, value, wait_until
from movers import beside, choice, due, move, mover, objects
from oml.core import body
from oml.errors import DatabaseError, UsageError
from oml.lake import mover as lake_mover
from oml.lake.table import LakeUnavailable
from oml.store import MAX_OBJECT_BYTES, open_store
from published import unguarded
from seaweed import Bucket
from submissions import Office, submit
from systems import System

REQUEUE = "select oml_requeue(%s, 'it was mended')"


@pytest.fixture
def office(system: System) -> Office:
    """An office in a database of the session's cluster."""
    return Office(system)


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, system: System) -> Bucket:
    """A fresh place for bodies, of each kind."""
    if request.param == "directory":
        return beside(system)
    bucket: Bucket = request.getfixturevalue("bucket")
    return bucket


def released(office: Office, content: bytes, *attached: bytes) -> UUID:
    """Submit and release a version."""
    artifact = office.submit(content, *attached)
    office.promote(artifact)
    return artifact


def moved_to(system: System) -> int:
    """Return the frontier of the bodies."""
    return int(value(system.superuser, "select seq from oml.frontier where name = 'bodies'"))


def row_of(system: System, artifact: UUID) -> int:
    """Return the outbox seq that queued an artifact's content."""
    query = (
        "select max(o.seq) from oml.outbox o join oml.journal j on j.tenant_id = o.tenant_id"
        " and j.seq = o.chain_seq where o.target = 'bodies' and j.artifact_id = %s"
    )
    return int(value(system.superuser, query, artifact))


def dead_letters(system: System) -> list[tuple[Any, ...]]:
    """Return (outbox seq, reason, attempts) of the dead letters."""
    query = "select outbox_seq, reason, attempts from oml.dead_letter order by 1"
    return system.superuser.execute(query).fetchall()


def test_what_is_released_is_moved_and_nothing_else(office: Office, place: Bucket) -> None:
    system = office.system
    office.submit(b"held", b"with a file")
    rejected, approved = office.submit(b"rejected"), office.submit(b"approved")
    office.reviewer.execute("select count(*) from oml_review_serve(%s)", (rejected,))
    office.reviewer.execute("select oml_verdict(%s, 'reject', 'not so')", (rejected,))
    office.approve(approved)
    artifact = released(office, b"released", b"first", b"second" * 100_000)
    drain(system)
    report = move(system, place)
    assert (report.rows, report.objects, report.dead_letters) == (1, 3, [])
    assert report.frontier == moved_to(system) == frontier(system)
    assert objects(place) == due(system, artifact)
    assert len(due(system, artifact)) == 3
    again = move(system, place)
    assert (again.frontier_before, again.frontier, again.objects) == (*[report.frontier] * 2, 0)

    # Later versions are objects of their own; a withdrawn one was released and stays.
    version = submit(office.author, b"next", artifact=artifact)
    assert version == (artifact, 2)
    office.promote(artifact)
    office.chief.execute("select oml_demote(%s, 'wrong')", (artifact,))
    drain(system)
    assert move(system, place).objects == 1
    assert objects(place) == due(system, artifact)


def test_nothing_is_moved_before_the_lake_has_come_there_behind_a_fence(office: Office) -> None:
    system, place = office.system, beside(office.system)
    first = released(office, b"first")
    drain(system)
    second = released(office, b"second")
    assert move(system, place).objects == 1
    assert objects(place) == due(system, first)
    # Somebody moves the lake's frontier by hand: what is not fenced may still get company below.
    system.superuser.execute("select oml.lake_advance(%s)", (outbox_max(system),))
    assert move(system, place).objects == 0
    assert moved_to(system) < row_of(system, second)
    with pytest.raises(psycopg.Error, match="past the lake's"):
        system.superuser.execute("select oml.bodies_advance(%s)", (outbox_max(system) + 1,))
    with mover(system, **choice(place)) as made:
        system.superuser.execute("select oml.lake_fence(%s)", (outbox_max(system),))
        assert made.move(row_of(system, second) - 1).objects == 0
        assert made.move(row_of(system, second)).objects == 1
    assert objects(place) == due(system, first, second)


def test_it_catches_up_in_steps_once_there_is_a_place(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = office.system
    app = prepare(system, "globex")
    artifacts = []
    for number in range(5):
        artifacts.append(released(office, b"%d" % number, b"attached"))
        append(app, 3, "globex")
    drain(system)
    with mover(system) as made:
        assert made.move().frontier == moved_to(system) == 0
        assert made.status() == {
            "url": None, "frontier": 0, "behind": frontier(system), "waiting": 5,
        }  # fmt: skip
    place = beside(system)
    system.superuser.execute("select oml_configure('bodies_url', %s)", (place.url,))
    monkeypatch.setattr(lake_mover, "_STEP_ROWS", 2)
    monkeypatch.setattr(lake_mover, "_STEP_BYTES", 1)
    monkeypatch.setattr(lake_mover, "_RANGE", 7)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(moved_to(system))
        return len(asked) > 30

    with mover(system) as made:
        stopped = made.move(stop=stop)
        report = made.move()
        assert stopped.objects + report.objects == 10
        assert made.status()["waiting"] == made.status()["behind"] == 0
    assert asked == sorted(asked) and len(set(asked)) > 3, "the frontier moves step by step"
    assert moved_to(system) == frontier(system)
    assert objects(place) == due(system, *artifacts)


@pytest.mark.parametrize("wrong", ["bytes", "metadata"])
def test_what_is_in_the_way_stays_and_is_a_dead_letter(
    office: Office, place: Bucket, wrong: str
) -> None:
    system = office.system
    first, blocked, last = (released(office, n, b"file " + n) for n in (b"a", b"b", b"c"))
    drain(system)
    (tenant,) = {path.partition("/")[0] for path in due(system, blocked)}
    path, (data, metadata) = sorted(due(system, blocked).items())[0]
    in_the_way = (b"other", metadata) if wrong == "bytes" else (data, {"oml-other": "x"})
    store = open_store(place.url, place.options, make=True)
    assert store.create(path, *in_the_way)
    report = move(system, place)
    assert report.dead_letters == [row_of(system, blocked)] and report.rows == 2
    ((seq, reason, attempts),) = dead_letters(system)
    assert seq == row_of(system, blocked) and "in the way at" in reason and attempts == 1
    assert tenant in reason
    held = objects(place)
    assert held[path] == in_the_way, "it is never overwritten"
    assert {p: held[p] for p in due(system, first, last)} == due(system, first, last)
    assert move(system, place).dead_letters == []

    store.delete(path)
    store.delete(f"{path}.meta.json")
    system.superuser.execute(REQUEUE, (seq,))
    drain(system)
    assert move(system, place).rows == 1
    assert objects(place) == due(system, first, blocked, last)


SPOILED = {
    "stored bytes": (
        "body", "update oml.body set ciphertext = ciphertext || 'x' where artifact_id = %s",
        "the stored bytes of part 0 are not those that were signed",
    ),
    "no bytes": (
        "body", "delete from oml.body where artifact_id = %s and part = 1", "part 1 is not stored",
    ),
    "stored bytes and digest": (
        "journal",
        "update oml.journal j set ciphertext_digest = sha256('x') where j.artifact_id = %s"
        " and j.type = 'submission.submit'",
        "the digests that the journal shows for part 0 are not those that were signed",
    ),
    "the way to the submission": (
        "artifact_version",
        "update oml.artifact_version set submitted_seq = 1 where artifact_id = %s",
        "the event of its submission is not where oml.artifact_version says",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILED)
def test_a_row_that_is_bad_in_itself_is_a_dead_letter_and_the_next_are_moved(
    office: Office, what: str
) -> None:
    system, place = office.system, beside(office.system)
    table, spoil, reason = SPOILED[what]
    first, bad, last = (released(office, n, b"file " + n) for n in (b"a", b"b", b"c"))
    whole = due(system, first, last)
    drain(system)
    unguarded(system, table, spoil.replace("%s", f"'{bad}'"))
    report = move(system, place)
    assert (report.rows, report.dead_letters) == (2, [row_of(system, bad)])
    assert dead_letters(system) == [(row_of(system, bad), reason, 1)]
    assert objects(place) == whole
    assert moved_to(system) == frontier(system)


def test_a_row_for_what_was_never_released_moves_and_gives_nothing(office: Office) -> None:
    system, place = office.system, beside(office.system)
    held = office.submit(b"held", b"file")
    system.superuser.execute(
        "insert into oml.outbox (tenant_id, chain_seq, target)"
        " select tenant_id, seq, 'bodies' from oml.journal where artifact_id = %s limit 1",
        (held,),
    )
    seq = row_of(system, held)
    drain(system)
    assert value(system.superuser, "select oml.lake_body(%s, 0)", seq) is None
    assert move(system, place).dead_letters == [seq]
    assert dead_letters(system) == [(seq, "it was never released", 1)]
    assert objects(place) == {}


def test_a_store_that_is_away_is_tried_a_few_times_and_loses_nothing(
    office: Office, bucket: Bucket
) -> None:
    system = office.system
    artifact = released(office, b"a", b"file")
    drain(system)
    away = Bucket(bucket.url, NOBODY)
    pauses: list[float] = []
    with mover(system, **choice(away)) as made:
        made._sleep = pauses.append
        with pytest.raises(LakeUnavailable, match="cannot be reached"):
            made.move()
    assert len(pauses) == lake_mover._ATTEMPTS - 1
    assert moved_to(system) == 0 and dead_letters(system) == []
    assert move(system, bucket).objects == 2
    assert objects(bucket) == due(system, artifact)


def test_an_event_that_is_gone_stops_the_mover(office: Office) -> None:
    system, place = office.system, beside(office.system)
    artifact = released(office, b"a")
    drain(system)
    unguarded(system, "journal", "delete from oml.journal where type = 'artifact.promoted'")
    with pytest.raises(DatabaseError, match="the journal lacks the event of outbox row"):
        move(system, place)
    assert objects(place) == {} and moved_to(system) == 0
    assert len(due(system, artifact)) == 1


def test_two_movers_at_once_move_everything_and_disagree_on_nothing(
    office: Office, place: Bucket
) -> None:
    system = office.system
    artifacts = [released(office, b"%d" % n, b"file %d" % n) for n in range(4)]
    drain(system)
    barrier = threading.Barrier(2)

    def work(_: int) -> list[int]:
        barrier.wait()
        return move(system, place).dead_letters

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(2))) == [[], []]
    assert objects(place) == due(system, *artifacts)
    assert moved_to(system) == frontier(system)


def test_the_largest_part_fits_into_an_object() -> None:
    largest = max(body.MAX_BODY_BYTES, body.MAX_ATTACHMENT_BYTES)
    assert largest + 1024 < MAX_OBJECT_BYTES


# -- the command line and the daemon ---------------------------------------------------------------


def test_a_drain_moves_and_the_status_says_how_far(office: Office) -> None:
    system, place = office.system, beside(office.system)
    artifact = released(office, b"a", b"file")
    env = {"OML_BODIES_URL": place.url}
    done = system.oml("lake", "drain", "--once", "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["moved"]["objects"] == 2
    told = json.loads(system.oml("lake", "status", "--json", env=env).stdout)["bodies"]
    assert told == {
        "url": place.url, "frontier": frontier(system), "behind": 0, "waiting": 0,
    }  # fmt: skip
    assert objects(place) == due(system, artifact)


def test_omld_moves_also_while_the_lake_has_nothing_to_do(office: Office) -> None:
    system, place = office.system, beside(office.system)
    omld = system.start_oml("serve", "--role", "lake-writer", env={"OML_BODIES_URL": place.url})
    for content in (b"a", b"b"):
        artifact = released(office, content)
        seq = row_of(system, artifact)
        wait_until(system, "select from oml.frontier where name = 'bodies' and seq >= %s", seq)
        assert due(system, artifact).items() <= objects(place).items()
    assert omld.poll() is None


def test_a_store_that_lies_in_another_ends_drain_and_daemon(office: Office) -> None:
    system = office.system
    released(office, b"a")
    inside = {"OML_BODIES_URL": f"{system.lake_url}/bodies"}
    for arguments in (["lake", "drain", "--once"], ["serve", "--role", "lake-writer"]):
        done = system.oml(*arguments, env=inside)
        assert done.returncode == 2, done.stderr
        assert "bodies_url" in done.stderr and "lake_url" in done.stderr
    assert not list(Path(system.lake).glob("bodies*"))
    assert frontier(system) == 0
    with pytest.raises(UsageError, match="lies inside tlog_url"):
        move(system, Bucket(f"{system.tlog_url}/x", {}))


def test_objects_are_named_by_their_bytes(office: Office, place: Bucket) -> None:
    system = office.system
    artifact = released(office, b"a", b"file")
    drain(system)
    move(system, place)
    for path, (data, _) in objects(place).items():
        assert path == f"{office.tenant_id}/{sha256(data).hexdigest()}"
    assert len(due(system, artifact)) == 2
