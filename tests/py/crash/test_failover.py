"""What was acknowledged survives the loss of the primary; what was not is there once or not."""

import threading

import pytest

from clusters import STANDBYS, Quorum, until
from oml.driver.commit import append
from oml.driver.connection import connect
from oml.driver.verify import verify
from oml.errors import DatabaseError
from systems import Connection

WRITERS = 8
# A lost or cancelled commit, and a server that takes no writes.
_AGAIN = ("01000", "OM050", "OM051", "25006")


@pytest.fixture
def production(trio: Quorum) -> Quorum:
    """The production profile, with a tenant for every two writers."""
    connection = trio.connect()
    connection.execute("select oml_register_event_type('note.added')")
    for number in range(WRITERS // 2):
        connection.execute("select oml_create_tenant(%s)", (f"t{number}",))
        connection.execute("select oml_grant('app', %s)", (f"t{number}",))
    connection.execute("select oml_configure('profile', 'production')")
    return trio


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


def test_every_acknowledged_event_survives_the_primary(production: Quorum) -> None:
    writers = Writers(production)
    writers.reach(300)
    lagging, advanced = STANDBYS
    production.cut_off(lagging)
    writers.reach(300)
    before = len(writers.acknowledged)
    production.kill_primary()
    assert production.most_advanced() == advanced
    production.promote(advanced)
    production.reconnect(lagging)
    writers.reach(100)
    writers.stop()
    assert len(writers.acknowledged) >= before + 100

    found = journal(production)
    lost = {key for key, where in writers.acknowledged.items() if found.get(key) != [where]}
    assert lost == set(), "every acknowledged event is there, where its receipt says, and once"
    assert [key for key, places in found.items() if len(places) > 1] == []
    assert found.keys() - writers.acknowledged.keys() <= writers.in_doubt
    assert verify(production.dsn()).ok


def test_the_standby_that_lagged_would_have_lost_acknowledged_events(production: Quorum) -> None:
    # So the test above can fail: what saves the events is whom one promotes.
    writers = Writers(production)
    writers.reach(100)
    lagging, _ = STANDBYS
    production.cut_off(lagging)
    writers.reach(100)
    production.kill_primary()
    writers.stop()
    production.promote(lagging)
    assert writers.acknowledged.keys() - journal(production).keys() != set()
