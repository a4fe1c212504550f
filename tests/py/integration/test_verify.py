"""oml verify at work: in several processes, from an earlier proof, while keys rotate."""

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.test_tamper import TAMPERINGS, Victim, deleted_tail, victim
from psycopg.types.json import Jsonb

from forge import resign
from oml.core import keys
from oml.core.chain import Fault, KeyRing, Verdict
from oml.dev.cluster import SUPERUSER
from oml.driver.pages import Pages
from oml.driver.segments import Plan
from oml.driver.verify import Earlier, Verified, verify
from oml.driver.workers import Workers
from oml.errors import DatabaseError, OmlError, UsageError
from systems import Connection, System

__all__ = ["victim"]  # a fixture


def workers_of_ours() -> list[int]:
    """Return the pids of this process's workers."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and b"oml.driver.workers" in command:
            found.append(int(process.name))
    return found


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Whatever a test does, the verifier's processes are gone after it."""
    yield
    assert workers_of_ours() == []


def dsn(system: System) -> str:
    """Return the connection string of whoever may read everything."""
    return system.dsn(SUPERUSER)


# --- several processes -----------------------------------------------------------------------


@pytest.mark.parametrize("tamper", [t[0] for t in TAMPERINGS], ids=lambda tamper: tamper.__name__)
def test_the_verdict_does_not_depend_on_how_many_processes_there_are(
    victim: Victim, tamper: Callable[[Victim], None]
) -> None:
    tamper(victim)
    alone = verify(dsn(victim.system), jobs=1)
    assert not alone.ok
    for rows in (1, 2, 3):
        assert verify(dsn(victim.system), jobs=1, segment_rows=rows) == alone
    assert verify(dsn(victim.system), jobs=2, segment_rows=2) == alone


def test_progress_counts_every_event_whoever_reads_it(victim: Victim) -> None:
    steps: list[tuple[int, int | None]] = []
    found = verify(dsn(victim.system), jobs=3, segment_rows=1, progress=lambda *s: steps.append(s))
    assert found.ok
    total = sum(v.events for v in found.verdicts)
    assert steps[-1] == (total, total)
    assert [read for read, _ in steps] == sorted(read for read, _ in steps)


def test_a_process_that_dies_fails_the_whole(victim: Victim) -> None:
    deployment_id, ring = victim.provider.bytes, KeyRing(victim.key.public_key)
    plan = Plan([], deployment_id, ring)
    with Pages(dsn(victim.system)) as pages, Workers(dsn(victim.system), 1) as workers:
        (process,) = workers.processes
        assert workers_of_ours() == [process.pid]
        process.kill()
        with pytest.raises(OmlError, match="ended before its work"):
            workers.prove(plan, pages, lambda _rows: None)


def test_a_process_that_cannot_connect_fails_the_whole(victim: Victim) -> None:
    plan = Plan([], victim.provider.bytes, KeyRing(victim.key.public_key))
    with (
        Pages(dsn(victim.system)) as pages,
        Workers(dsn(victim.system) + "-gone", 1) as workers,
        pytest.raises(DatabaseError, match="does not exist"),
    ):
        workers.prove(plan, pages, lambda _rows: None)


@pytest.mark.parametrize("jobs", [1, 2])
def test_lost_connections_fail_the_whole(victim: Victim, jobs: int) -> None:
    def cut(_read: int, _total: int | None) -> None:
        victim.superuser.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )

    with pytest.raises(DatabaseError):
        verify(dsn(victim.system), jobs=jobs, segment_rows=1, progress=cut)


def test_an_interrupt_ends_all_processes(victim: Victim) -> None:
    def interrupt(_read: int, _total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(dsn(victim.system), jobs=3, segment_rows=1, progress=interrupt)


def test_the_command_line_takes_the_number_of_processes(victim: Victim) -> None:
    for jobs in ("1", "2"):
        assert victim.system.oml("verify", "--jobs", jobs).returncode == 0
    assert victim.system.oml("verify", "--jobs", "0").returncode == 2


# --- from an earlier proof -------------------------------------------------------------------


def earlier(victim: Victim, path: Path, *options: str) -> dict[str, Any]:
    """Verify everything and keep what was proved."""
    done = victim.system.oml("verify", "--json", *options)
    path.write_text(done.stdout)
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def append(system: System, events: int) -> None:
    """Append some events to acme."""
    app = system.connect("app")
    for number in range(events):
        app.execute("select oml_append('invoice.exported', %s)", (Jsonb({"number": number}),))
    app.close()


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a document's chains by their tenant."""
    return {chain["tenant"]: chain for chain in document["chains"]}


def test_runs_can_be_chained_and_each_has_the_full_picture(victim: Victim, tmp_path: Path) -> None:
    file = tmp_path / "proved.json"
    first = earlier(victim, file)
    assert set(first) == {"ok", "root_key", "pinned", "deployment_id", "since", "chains"}
    assert (first["since"], first["pinned"]) == (None, False)
    for _ in range(2):
        append(victim.system, 3)
        victim.system.superuser.execute("select oml_create_tenant(%s)", (f"t{uuid.uuid4().hex}",))
        later = earlier(victim, file, "--since", str(file))
        assert later["ok"]
        assert (later["since"], later["pinned"]) == (str(file), False)
        whole = json.loads(victim.system.oml("verify", "--json").stdout)
        assert later["chains"] == whole["chains"]


def known(victim: Victim) -> tuple[Verified, Earlier]:
    """Verify everything and return it with what a later run needs of it."""
    found = verify(dsn(victim.system), jobs=1)
    assert found.root_key is not None
    chains = {v.tenant: (v.events, v.head) for v in found.verdicts}
    return found, Earlier(found.deployment_id, found.root_key, chains)


def later(victim: Victim, since: Earlier) -> dict[str, Verdict]:
    """Verify from an earlier proof, with one process and with two, which agree."""
    alone = verify(dsn(victim.system), jobs=1, since=since)
    assert verify(dsn(victim.system), jobs=2, since=since, segment_rows=2) == alone
    return {v.tenant: v for v in alone.verdicts}


def test_only_what_is_new_is_read(victim: Victim) -> None:
    first, since = known(victim)
    append(victim.system, 3)
    steps: list[tuple[int, int | None]] = []
    verify(dsn(victim.system), jobs=1, since=since, progress=lambda *s: steps.append(s))
    assert steps[-1] == (first.verdicts[0].events + 3, first.verdicts[0].events + 3)


def test_a_fault_in_what_is_new_is_found(victim: Victim) -> None:
    _, since = known(victim)
    append(victim.system, 3)
    victim.execute(
        "update oml.journal set principal = 'mallory' where tenant_id = %s and seq = 8", victim.acme
    )
    acme = later(victim, since)["acme"]
    assert acme.finding is not None
    assert (acme.events, acme.finding.seq, acme.finding.fault) == (7, 8, Fault.COLUMN_MISMATCH)


def test_a_tail_that_was_there_is_missed(victim: Victim) -> None:
    _, since = known(victim)
    deleted_tail(victim)
    victim.execute("delete from oml.outbox where tenant_id = %s and chain_seq >= 5", victim.acme)
    acme = later(victim, since)["acme"]
    assert acme.finding is not None
    assert (acme.events, acme.finding.seq, acme.finding.fault) == (4, 5, Fault.TAIL_MISSING)
    assert "earlier" in acme.finding.reason


def test_a_chain_that_was_there_is_missed(victim: Victim) -> None:
    _, since = known(victim)
    victim.execute("delete from oml.journal where tenant_id = %s", victim.acme)
    acme = later(victim, since)["acme"]
    assert acme.finding is not None
    assert (acme.events, acme.finding.seq, acme.finding.fault) == (0, 1, Fault.CHAIN_MISSING)


@pytest.mark.parametrize("from_seq", [2, 5, 6])
def test_a_chain_rewritten_by_a_holder_of_the_key_shows_against_an_earlier_proof(
    victim: Victim, from_seq: int
) -> None:
    _, since = known(victim)
    rows = victim.rows()
    prev = rows[from_seq - 2]["hash"]
    for row in rows[from_seq - 1 :]:
        forged = resign(row, victim.key, prev_hash=prev, principal="mallory")
        victim.write(forged, row["seq"])
        prev = forged["hash"]
    append(victim.system, 1)
    assert verify(dsn(victim.system), jobs=1).ok
    acme = later(victim, since)["acme"]
    assert acme.finding is not None
    assert (acme.finding.seq, acme.finding.fault) == (6, Fault.BROKEN_LINK)
    assert "earlier" in acme.finding.reason


def test_a_provider_chain_that_lost_what_was_proved_is_found(victim: Victim) -> None:
    _, since = known(victim)
    events, head = since.chains["provider"]
    longer = {**since.chains, "provider": (events + 1, head)}
    provider = later(victim, Earlier(since.deployment_id, since.root_key, longer))["provider"]
    assert provider.finding is not None
    assert (provider.finding.seq, provider.finding.fault) == (events + 1, Fault.TAIL_MISSING)
    other = {**since.chains, "provider": (events, bytes(32))}
    provider = later(victim, Earlier(since.deployment_id, since.root_key, other))["provider"]
    assert provider.finding is not None
    assert (provider.finding.seq, provider.finding.fault) == (events, Fault.BROKEN_LINK)


def test_an_earlier_proofs_root_key_is_the_pin(victim: Victim) -> None:
    _, since = known(victim)
    other = Earlier(since.deployment_id, bytes(32), since.chains)
    provider = later(victim, other)["provider"]
    assert provider.finding is not None
    assert provider.finding.fault == Fault.ROOT_MISMATCH
    with pytest.raises(UsageError, match="another root key"):
        verify(dsn(victim.system), root_key=bytes(32), since=since)


def test_an_earlier_proof_with_a_fault_goes_on_from_what_it_proved(
    victim: Victim, tmp_path: Path
) -> None:
    file = tmp_path / "proved.json"
    victim.execute(
        "update oml.journal set principal = 'mallory' where tenant_id = %s and seq = 4", victim.acme
    )
    first = earlier(victim, file)
    assert by_name(first)["acme"]["events"] == 3
    assert by_name(earlier(victim, file, "--since", str(file))) == by_name(first)
    victim.execute(
        "update oml.journal set principal = 'app' where tenant_id = %s and seq = 4", victim.acme
    )
    row = victim.superuser.execute(
        "select principal from oml.journal where tenant_id = %s and seq = 5", (victim.acme,)
    ).fetchone()
    assert row is not None
    victim.execute(
        "update oml.journal set principal = %s where tenant_id = %s and seq = 4",
        row[0],
        victim.acme,
    )
    mended = earlier(victim, file, "--since", str(file))
    assert mended["ok"]
    assert by_name(mended)["acme"]["events"] == 6


BAD_FILES: list[Callable[[dict[str, Any]], object]] = [
    lambda d: "not a document",
    lambda d: [],
    lambda d: {},
    lambda d: d | {"chains": None},
    lambda d: d | {"chains": [1]},
    lambda d: d | {"chains": d["chains"] + d["chains"]},
    lambda d: d | {"chains": [d["chains"][0] | {"events": "3"}]},
    lambda d: d | {"chains": [d["chains"][0] | {"events": -1}]},
    lambda d: d | {"chains": [d["chains"][0] | {"events": 2**63}]},
    lambda d: d | {"chains": [d["chains"][0] | {"head": "00"}]},
    lambda d: d | {"chains": [d["chains"][0] | {"head": None}]},
    lambda d: d | {"chains": [d["chains"][0] | {"tenant": None}]},
    lambda d: d | {"root_key": None},
    lambda d: d | {"root_key": "zz" * 32},
    lambda d: d | {"deployment_id": None},
    lambda d: d | {"deployment_id": str(uuid.uuid4())},
]


def test_a_file_that_is_no_earlier_proof_of_this_deployment_is_refused(
    victim: Victim, tmp_path: Path
) -> None:
    file = tmp_path / "proved.json"
    document = earlier(victim, file)
    texts = [json.dumps(spoil(document)) for spoil in BAD_FILES]
    for text in [*texts, "", "{", "\x00", "[" * 100_000]:
        file.write_text(text)
        done = victim.system.oml("verify", "--json", "--since", str(file))
        assert done.returncode == 2, text[:200]
        assert json.loads(done.stderr)["error"], text[:200]
    done = victim.system.oml("verify", "--since", str(tmp_path / "none.json"))
    assert (done.returncode, "No such file" in done.stderr) == (2, True)


# --- rotations and writers meanwhile ---------------------------------------------------------


@dataclass
class Rotator:
    """Rotates a system's signing key, to a new one each time."""

    system: System
    superuser: Connection
    rotations: int = 0

    def rotate(self) -> None:
        """Make a key and put it in force on every chain."""
        self.rotations += 1
        owner = self.system.cluster.account
        path = self.system.key_file.with_name(f"{self.system.database}-{self.rotations}.key")
        keys.generate(str(path), owner.uid, owner.gid)
        self.superuser.execute("select oml_rotate_signing_key(%s)", (f"file:{path}",))


@pytest.fixture
def rotator(victim: Victim) -> Rotator:
    """What rotates the victim's key."""
    return Rotator(victim.system, victim.system.connect(SUPERUSER))


def judged(victim: Victim) -> None:
    """Insist that all is proved, by each verifier."""
    for jobs in (1, 2):
        found = verify(dsn(victim.system), jobs=jobs, segment_rows=2)
        assert found.ok, found.verdicts
    row = victim.superuser.execute("select ok, reason from oml_verify_chain('acme')").fetchone()
    assert row == (True, None)


def test_events_before_and_after_rotations_are_proved(victim: Victim, rotator: Rotator) -> None:
    for _ in range(2):
        rotator.rotate()
        append(victim.system, 3)
        judged(victim)
    victim.system.make("initech")
    judged(victim)
    root = victim.key.public_key.hex()
    assert victim.system.oml("verify", "--root-key", root).returncode == 0


def test_an_event_of_a_retired_key_is_named(victim: Victim, rotator: Rotator) -> None:
    rotator.rotate()
    append(victim.system, 3)
    victim.write(resign(victim.rows()[7], victim.key), 8)
    row = victim.superuser.execute(
        "select first_bad_seq, fault, reason from oml_verify_chain('acme')"
    ).fetchone()
    assert row is not None
    assert row[:2] == (8, Fault.RETIRED_KEY)
    done = victim.system.oml("verify", "--json")
    acme = by_name(json.loads(done.stdout))["acme"]
    assert (done.returncode, acme["seq"], acme["class"]) == (1, 8, "retired-key")
    assert acme["reason"] == row[2]
    assert victim.key.kid.hex() in acme["reason"]


def test_an_earlier_proof_does_not_hide_that_a_rotation_found_another_event(
    victim: Victim, rotator: Rotator
) -> None:
    last = victim.rows()[-1]
    forged = resign(last, victim.key, principal="mallory")
    victim.write(forged, last["seq"])
    _, since = known(victim)
    victim.write(last, last["seq"])
    rotator.rotate()
    assert later(victim, since)["acme"].finding is not None
    victim.write(forged, last["seq"])
    acme = later(victim, since)["acme"]
    assert acme.finding is not None
    assert (acme.finding.seq, acme.finding.fault) == (last["seq"], Fault.BROKEN_LINK)
    assert acme == {v.tenant: v for v in verify(dsn(victim.system)).verdicts}["acme"]


def test_an_earlier_proof_does_not_hide_that_a_rotation_found_fewer_events(
    victim: Victim, rotator: Rotator
) -> None:
    _, since = known(victim)
    tail = "from oml.journal where tenant_id = %s and seq >= 5"
    victim.execute(f"create temp table tail as select * {tail}", victim.acme)
    victim.execute(f"delete {tail}", victim.acme)
    rotator.rotate()
    victim.execute("insert into oml.journal select * from tail")
    acme = later(victim, since)["acme"]
    assert acme.finding is not None
    assert (acme.finding.seq, acme.finding.fault) == (5, Fault.RETIRED_KEY)
    assert acme == {v.tenant: v for v in verify(dsn(victim.system)).verdicts}["acme"]


def test_after_a_rotation_still_only_what_is_new_is_read(victim: Victim, rotator: Rotator) -> None:
    rotator.rotate()
    append(victim.system, 2)
    _, since = known(victim)
    rotator.rotate()
    append(victim.system, 3)
    read: list[int] = []
    found = verify(dsn(victim.system), jobs=1, since=since, progress=lambda n, _: read.append(n))
    assert found.ok
    assert read[-1] == found.verdicts[0].events + 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_happens_after_the_start_is_left_to_the_next_run(
    victim: Victim, rotator: Rotator, jobs: int
) -> None:
    before = verify(dsn(victim.system), jobs=1)
    done = False

    def meanwhile(_read: int, _total: int | None) -> None:
        nonlocal done
        if not done:
            done = True
            append(victim.system, 2)
            rotator.rotate()
            append(victim.system, 2)
            victim.system.make("initech")
            rotator.rotate()

    assert verify(dsn(victim.system), jobs=jobs, segment_rows=1, progress=meanwhile) == before
    judged(victim)


def test_no_run_finds_a_fault_while_keys_rotate_and_writers_write(
    victim: Victim, rotator: Rotator
) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for number in range(12):
                if stop.is_set():
                    return
                append(victim.system, 3)
                rotator.rotate()
                victim.system.make(f"new{number}")
                time.sleep(0.02)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    runs = 0
    try:
        while thread.is_alive() or runs < 3:
            found = verify(dsn(victim.system), jobs=1, segment_rows=2)
            assert found.ok, found.verdicts
            with victim.system.connect(SUPERUSER) as other:
                row = other.execute("select ok, reason from oml_verify_chain('acme')").fetchone()
            assert row == (True, None)
            runs += 1
    finally:
        stop.set()
        thread.join()
    assert failures == []
    assert rotator.rotations == 12
    judged(victim)


def test_a_chain_that_only_the_journal_knows_is_named(victim: Victim) -> None:
    stray = uuid.uuid4()
    victim.execute(
        "insert into oml.journal select (jsonb_populate_record(j, jsonb_build_object("
        "'tenant_id', %s::text, 'event_id', gen_random_uuid()))).*"
        " from oml.journal j where tenant_id = %s and seq = 1",
        str(stray),
        victim.acme,
    )
    last = verify(dsn(victim.system), jobs=1).verdicts[-1]
    assert last.tenant == str(stray)
    assert last.finding is not None
    assert last.finding.fault == Fault.GENESIS_MISMATCH
