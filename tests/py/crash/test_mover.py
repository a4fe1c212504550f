"""SIGKILL of the object mover at every step: each part is in the store, whole, and none twice."""

import json
import signal

import pytest

from lakes import drain, frontier, value
from movers import beside, choice, due, move, mover, objects
from oml.failpoint import MOVER
from oml.store import open_store
from seaweed import Bucket
from submissions import Office
from systems import System


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, system: System) -> Bucket:
    """A fresh place for bodies, of each kind."""
    if request.param == "directory":
        return beside(system)
    bucket: Bucket = request.getfixturevalue("bucket")
    return bucket


def test_every_place_named_is_one_of_the_code() -> None:
    assert len(set(MOVER)) == len(MOVER) > 0


def test_kills_at_each_step_in_turn_leave_every_part_in_the_store(
    system: System, place: Bucket
) -> None:
    office = Office(system)
    store = open_store(place.url, place.options, make=True)
    store.create("first", b"")  # the server makes a bucket with its first object
    store.delete("first")
    steps = [name for name in MOVER if place.options == {} or not name.startswith("store.")]
    artifacts = []
    for n, step in enumerate(steps):
        artifacts.append(office.submit(b"body %d" % n, b"file %d" % n, b"another %d" % n))
        office.promote(artifacts[-1])
        # A second pass of a step is inside of a version whose first part is there already.
        nth = 1 if step in ("mover.read", "mover.moved", "mover.advanced") else 2
        killed = system.oml(
            "lake", "drain", "--once",
            env={
                "OML_FAILPOINT": f"{step}:{nth}", "OML_BODIES_URL": place.url,
                "OML_BODIES_STORAGE_OPTIONS": json.dumps(place.options),
            },
        )  # fmt: skip
        assert killed.returncode == -signal.SIGKILL, f"it never came to {step}: {killed.stderr}"
        there = objects(place)
        assert there.items() <= due(system, *artifacts).items()
        moved_to = value(system.superuser, "select seq from oml.frontier where name = 'bodies'")
        with mover(system, **choice(place)) as made:
            assert moved_to <= made.source.stores().movable
    drain(system)
    assert move(system, place).dead_letters == []
    assert objects(place) == due(system, *artifacts)
    assert len(objects(place)) == 3 * len(artifacts)
    assert value(system.superuser, "select seq from oml.frontier where name = 'bodies'") == (
        frontier(system)
    )
    assert value(system.superuser, "select count(*) from oml.dead_letter") == 0
