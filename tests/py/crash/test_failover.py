"""What was acknowledged survives the loss of the primary; what was not is there once or not.

Where a standby is promoted that lacks events, the write gate stays closed and names them.
"""

import subprocess
import sys
import threading

import pytest

from clusters import STANDBYS, Quorum, until
from oml import gate
from oml.driver.commit import append
from oml.driver.connection import connect
from oml.driver.verify import verify
from oml.errors import DatabaseError, GateClosedError
from oml.lake.schema import BRONZE_EVENTS
from oml.lake.source import Source
from oml.lake.writer import LakeWriter
from oml.reconcile.bronze import BronzeJudge
from oml.settings import Settings
from oml.tlog import evidence
from oml.tlog.publisher import Publisher, tlog_store
from oml.tlog.source import TlogSource
from systems import Connection

WRITERS = 8
# A lost or cancelled commit, a server that takes no writes, and a gate that is closed.
_AGAIN = ("01000", "OM050", "OM051", "25006", "OM160")


@pytest.fixture
def tenants(trio: Quorum) -> Quorum:
    """A primary with two standbys and a tenant for every two writers."""
    connection = trio.connect()
    connection.execute("select oml_register_event_type('note.added')")
    for number in range(WRITERS // 2):
        connection.execute("select oml_create_tenant(%s)", (f"t{number}",))
        connection.execute("select oml_grant('app', %s)", (f"t{number}",))
    return trio


@pytest.fixture
def production(tenants: Quorum) -> Quorum:
    """The same in the production profile."""
    tenants.connect().execute("select oml_configure('profile', 'production')")
    return tenants


class Writers:
    """Writers that append one event after the other until they are told to stop.

    What was not acknowledged is tried again under its key, on whoever is the primary then.
    """

    def __init__(self, system: Quorum) -> None:
        self.system = system
        self.acknowledged: dict[str, tuple[str, int, bytes]] = {}
        self.in_doubt: set[str] = set()
        self._failed: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def reach(self, count: int) -> None:
        """Wait until that many events more are acknowledged."""
        goal = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= goal or self._failed)
        assert self._failed == []

    def stop(self) -> None:
        """Let each end its try, and insist that nothing went wrong but what must."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert self._failed == []

    def _run(self, writer: int) -> None:
        try:
            self._write(writer)
        except BaseException as error:
            self._failed.append(error)

    def _write(self, writer: int) -> None:
        connection: Connection | None = None
        tenant, number = f"t{writer // 2}", 1
        while not self._stop.is_set():
            key = f"{writer}-{number}"
            try:
                connection = connection or connect(self.system.dsn(user="app"), autocommit=True)
                receipt = append(
                    connection, "note.added", {"key": key}, idempotency_key=key, tenant=tenant
                )
                self.acknowledged[key] = (tenant, receipt.seq, receipt.hash)
                number += 1
            except DatabaseError as error:
                if not (error.disconnected or error.sqlstate in _AGAIN):
                    raise
                self.in_doubt.add(key)
                if connection is not None:
                    connection.close()
                connection = None
                self._stop.wait(0.05)
        if connection is not None:
            connection.close()


def journal(system: Quorum) -> dict[str, list[tuple[str, int, bytes]]]:
    """Return where each key's events stand on the primary."""
    found: dict[str, list[tuple[str, int, bytes]]] = {}
    for key, *where in system.connect().execute(
        "select j.payload ->> 'key', t.name, j.seq, j.hash from oml.journal j"
        " join oml.tenant t using (tenant_id) where j.type = 'note.added'"
    ):
        found.setdefault(key, []).append((where[0], where[1], where[2]))
    return found


def derive(system: Quorum) -> None:
    """Drain the lake and publish the logs, as omld does."""
    with Source(system.dsn()) as source:
        LakeWriter(source, Settings()).drain()
    with TlogSource(system.dsn()) as logs:
        store = tlog_store(Settings(), logs.state(), make=True)
        Publisher(logs, store, Settings()).publish()


def published(system: Quorum) -> dict[str, int]:
    """Return {tenant: size of its newest checkpoint}; the lake, drained before, knows no more."""
    with TlogSource(system.dsn()) as logs:
        return {head.tenant: head.size for head in logs.heads()}


def heads(system: Quorum) -> dict[str, int]:
    """Return {tenant: last chain seq} on the primary."""
    with TlogSource(system.dsn()) as logs:
        return {head.tenant: head.head for head in logs.heads()}


def expect_closed(system: Quorum) -> None:
    """Insist that nothing is appended, on the provider chain neither, and that reads work."""
    with connect(system.dsn(user="app"), autocommit=True) as app:
        with pytest.raises(DatabaseError) as refused:
            append(app, "note.added", {}, idempotency_key="closed", tenant="t0")
        assert refused.value.sqlstate == "OM160"
    with connect(system.dsn(), autocommit=True) as superuser:
        with pytest.raises(Exception, match="the write gate is closed"):
            superuser.execute("select oml_create_tenant('another')")
        assert superuser.execute("select count(*) > 0 from oml.journal").fetchone() == (True,)


def expect_whole(system: Quorum) -> None:
    """Insist that chains, lake and logs agree, once all is derived."""
    derive(system)
    assert verify(system.dsn()).ok
    with Source(system.dsn()) as source:
        writer = LakeWriter(source, Settings())
        assert list(BronzeJudge(source, writer.open(BRONZE_EVENTS)).findings()) == []
    with TlogSource(system.dsn()) as logs:
        assert evidence.check(logs, tlog_store(Settings(), logs.state())) == []
        assert [head.tenant for head in logs.heads() if head.size != head.head] == []


def test_every_acknowledged_event_survives_the_primary(production: Quorum) -> None:
    writers = Writers(production)
    writers.reach(300)
    lagging, advanced = STANDBYS
    production.cut_off(lagging)
    writers.reach(150)
    derive(production)
    writers.reach(150)
    before = len(writers.acknowledged)
    production.kill_primary()
    assert production.most_advanced() == advanced
    production.promote(advanced)
    production.reconnect(lagging)
    expect_closed(production)
    assert gate.open_gate(Settings(), production.dsn()).ok
    writers.reach(100)
    writers.stop()
    assert len(writers.acknowledged) >= before + 100

    found = journal(production)
    lost = {key for key, where in writers.acknowledged.items() if found.get(key) != [where]}
    assert lost == set(), "every acknowledged event is there, where its receipt says, and once"
    assert [key for key, places in found.items() if len(places) > 1] == []
    assert found.keys() - writers.acknowledged.keys() <= writers.in_doubt
    expect_whole(production)


@pytest.mark.parametrize("replication", ["asynchronous", "quorum"])
def test_a_promoted_standby_that_lacks_published_events_names_them_and_stays_closed(
    tenants: Quorum, replication: str
) -> None:
    if replication == "asynchronous":
        tenants.configure("p", "synchronous_standby_names", "")
        lacking: tuple[str, ...] = STANDBYS
    else:
        tenants.connect().execute("select oml_configure('profile', 'production')")
        lacking = STANDBYS[:1]
    writers = Writers(tenants)
    writers.reach(100)
    for name in lacking:
        tenants.cut_off(name)
    writers.reach(100)
    derive(tenants)
    sizes = published(tenants)
    tenants.kill_primary()
    writers.stop()
    tenants.promote(lacking[0])
    left = heads(tenants)
    assert writers.acknowledged.keys() - journal(tenants).keys() != set(), "acknowledged, and lost"
    lost = {name: (left[name] + 1, size) for name, size in sizes.items() if size > left[name]}
    assert lost

    expect_closed(tenants)
    with pytest.raises(GateClosedError) as refused:
        gate.open_gate(Settings(), tenants.dsn())
    for name, (first, last) in lost.items():  # four tenants, and five are named
        assert f"{name}: seq {first} to {last} are lost" in refused.value.message
    report = gate.check(Settings(), tenants.dsn())
    assert {found.tenant: (found.lost_from, found.lost_to) for found in report.losses} == lost
    command = [sys.executable, "-m", "oml", "gate", "open", "--json", "--dsn", tenants.dsn()]
    opened = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert opened.returncode == 1, opened.stderr
    expect_closed(tenants)

    command = [
        sys.executable, "-m", "oml", "gate", "accept-loss", "--reason", "the disk burned", "--yes",
        "--json", "--dsn", tenants.dsn(),
    ]  # fmt: skip
    # The other standbys are ahead of this one, or dead: none can follow it.
    tenants.configure(None, "synchronous_standby_names", "")
    tenants.connect().execute("select oml_configure('profile', 'local')")
    accepted = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert accepted.returncode == 0, accepted.stderr
    says = tenants.connect().execute(
        "select payload from oml.journal where type = 'journal.loss-accepted'"
    )
    named = {
        loss["tenant"]: (loss["lost_from"], loss["lost_to"])
        for (payload,) in says
        for loss in payload["losses"]
    }
    assert named == lost
    with connect(tenants.dsn(user="app"), autocommit=True) as app:
        append(app, "note.added", {}, idempotency_key="after", tenant="t0")
    expect_whole(tenants)
