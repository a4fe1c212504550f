"""The published logs are the chains, whatever was there before and whoever else publishes."""

import json
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from lakes import PATIENCE_S, append, outbox_max, prepare, value, wait_until
from oml import owner
from oml.core import keys, note
from oml.errors import DatabaseError, GateClosedError, UsageError
from oml.failpoint import failpoint
from oml.store import DirectoryStore
from oml.tlog import publisher as module
from oml.tlog.publisher import Publisher
from published import (
    Watch,
    checkpoint,
    directory,
    entries,
    expect_log,
    expect_published,
    fill,
    publish,
    publisher,
    recorded_nodes,
    tenant_id,
    unguarded,
)
from seaweed import Bucket
from systems import Connection, System
from tlogs import WitnessServer


@pytest.fixture
def app(system: System) -> Connection:
    """A writer of tenant acme."""
    return prepare(system)


def tlog_frontier(system: System) -> int:
    return int(value(system.superuser, "select seq from oml.frontier where name = 'tlog'"))


def test_each_chain_is_published_as_a_log(system: System, app: Connection) -> None:
    append(app, 3)
    report = publish(system)
    expect_published(system)
    assert report.checkpoints == 2
    assert report.events == value(system.superuser, "select count(*) from oml.journal")
    assert tlog_frontier(system) == report.frontier == outbox_max(system)
    again = publish(system)
    assert (again.checkpoints, again.events, again.refused) == (0, 0, [])


@pytest.mark.parametrize("sizes", [[254, 1, 1, 1], [600], [1, 255, 256, 512], [256, 1, 255]])
def test_a_log_grows_across_the_borders_of_its_tiles(
    system: System, app: Connection, sizes: list[int]
) -> None:
    watch = Watch(system)
    for size in sizes:
        fill(system, size)
        publish(system)
        watch.look()
        expect_published(system)
    assert len(watch.seen) == len(sizes)
    watch.expect_one_history()
    partial = [p for p in (directory(system) / "tile/0").iterdir() if p.suffix == ".p"]
    kept = [p for p in partial if any(p.iterdir())]
    assert len(kept) <= 1, "partial tiles are removed once the full one is published"


@pytest.mark.parametrize("page", [256, 512, 1024])
def test_a_long_backlog_is_published_in_pages_and_steps(
    system: System, app: Connection, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(module, "_PAGE_ENTRIES", page)
    monkeypatch.setattr(module, "STEP_ENTRIES", 1500)
    fill(system, 4000)
    with publisher(system) as one:
        most = 0
        entries_of = one.source.entries

        def counted(tenant_id: UUID, after_seq: int, most_rows: int) -> list[tuple[int, bytes]]:
            nonlocal most
            most = max(most, most_rows)
            return entries_of(tenant_id, after_seq, most_rows)

        monkeypatch.setattr(one.source, "entries", counted)
        report = one.publish()
    assert most <= page
    assert report.checkpoints == 1 + 3
    expect_published(system)


def test_a_session_looks_only_at_chains_that_have_grown(
    system: System, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_more(system, "globex", "initech")
    with publisher(system) as one:
        assert one.publish().checkpoints == 4
        append(app, 2, "globex")
        asked: list[str] = []
        get = one.store.get

        def noted(path: str) -> bytes | None:
            asked.append(path)
            return get(path)

        monkeypatch.setattr(one.store, "get", noted)
        assert one.publish().checkpoints == 1
        assert (asked.pop(0), asked.pop()) == (owner.PATH, owner.PATH), "and before the checkpoint"
        assert asked and all(p.startswith(str(tenant_id(system, "globex"))) for p in asked)
        asked.clear()
        assert one.publish().checkpoints == 0
        assert asked == []
    expect_published(system, "provider", "acme", "globex", "initech")


def prepare_more(system: System, *tenants: str) -> None:
    for tenant in tenants:
        system.make(tenant)
        system.bind("app", tenant)


def test_nothing_of_a_transaction_that_is_open_or_rolled_back_is_published(
    system: System, app: Connection
) -> None:
    append(app, 2)
    publish(system)
    rolled_back = system.connect("app", autocommit=False)
    append(rolled_back, 3)
    held = publish(system, cut_timeout_s=0.2)
    assert held.checkpoints == 0
    assert held.held_back and str(rolled_back.info.backend_pid) in held.holders[0]
    rolled_back.rollback()
    assert publish(system).held_back is None
    assert checkpoint(system)[0] == 3
    append(app, 1)
    publish(system)
    assert checkpoint(system)[0] == 4
    expect_published(system)


def test_two_publishers_that_race_publish_one_history(
    system: System, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(system)
    rounds = 40
    barrier = threading.Barrier(3, timeout=PATIENCE_S)

    def one(publisher: Publisher) -> int:
        done = 0
        for _ in range(rounds):
            barrier.wait()
            done += publisher.publish().checkpoints
        return done

    with publisher(system) as first, publisher(system) as second, ThreadPoolExecutor(2) as pool:
        first.publish()
        second.publish()
        replaced: list[bool] = []
        replace = DirectoryStore.replace

        def kept(self: DirectoryStore, path: str, data: bytes, expected: bytes | None) -> bool:
            replaced.append(replace(self, path, data, expected))
            return replaced[-1]

        monkeypatch.setattr(DirectoryStore, "replace", kept)
        running = [pool.submit(one, first), pool.submit(one, second)]
        writer = system.connect("app")
        for _ in range(rounds):
            append(writer, 3)
            barrier.wait()
            append(writer, 1)
            watch.look()
        published = sum(each.result() for each in running)
    publish(system)
    expect_published(system)
    watch.expect_one_history()
    assert False in replaced, "they never met, so this shows nothing"
    assert published <= replaced.count(True)


def test_a_rivals_later_checkpoint_is_never_overwritten(
    system: System, app: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(app, 1)
    publish(system)
    append(app, 1)
    real, rivals = failpoint, [3]

    def overtaken(place: str) -> None:
        if place == "tlog.signed" and rivals:
            append(app, rivals.pop())
            publish(system)
            assert checkpoint(system)[0] == 6
        real(place)

    monkeypatch.setattr("oml.tlog.publisher.failpoint", overtaken)
    report = publish(system)
    assert not rivals
    assert checkpoint(system)[0] == 6
    assert (report.checkpoints, report.refused) == (0, [])
    expect_published(system)


def test_behind_a_closed_gate_nothing_is_published(private_system: System) -> None:
    append(prepare(private_system), 2)
    publish(private_system)
    append(private_system.connect("app"), 2)
    private_system.cluster.stop()
    private_system.superuser.close()
    private_system.cluster.start()
    before = {p: p.read_bytes() for p in private_system.tlog.rglob("*") if p.is_file()}
    with publisher(private_system) as one, pytest.raises(GateClosedError, match="is closed"):
        one.publish()
    after = {p: p.read_bytes() for p in private_system.tlog.rglob("*") if p.is_file()}
    assert after == before
    assert private_system.oml("gate", "open").returncode == 0
    publish(private_system)
    expect_published(private_system)


def test_a_frontier_put_back_changes_nothing(system: System, app: Connection) -> None:
    append(app, 3)
    publish(system)
    unguarded(system, "frontier", "update oml.frontier set seq = 0 where name = 'tlog'")
    assert publish(system).checkpoints == 0
    assert tlog_frontier(system) == outbox_max(system)
    append(app, 1)
    publish(system)
    expect_published(system)


@pytest.mark.parametrize("emptied", ["tlog", "tlog_node"])
def test_what_is_recorded_is_repaired_from_the_store(
    system: System, app: Connection, emptied: str
) -> None:
    fill(system, 700)
    publish(system)
    unguarded(system, emptied, f"delete from oml.{emptied}")
    assert publish(system).checkpoints == 0
    expect_published(system)
    unguarded(system, emptied, f"delete from oml.{emptied}")
    fill(system, 300)
    publish(system)
    expect_published(system)


def test_recorded_subtrees_come_from_the_journal_and_not_from_the_store(
    system: System, app: Connection
) -> None:
    fill(system, 1000)
    publish(system)
    recorded = recorded_nodes(system, "acme", 1, 1)
    unguarded(system, "tlog_node", "delete from oml.tlog_node")
    path = directory(system) / "tile/0/001"
    tile = bytearray(path.read_bytes())
    tile[40] ^= 1
    path.write_bytes(tile)
    publish(system)
    assert recorded_nodes(system, "acme", 1, 1) == recorded
    assert len(recorded) == 3


@pytest.mark.parametrize("lost", ["checkpoint", "all", "older", "tiles-of-the-newest"])
def test_a_store_that_lost_its_last_writes_is_completed(
    system: System, app: Connection, tmp_path: Path, lost: str
) -> None:
    watch = Watch(system)
    fill(system, 300)
    publish(system)
    watch.look()
    shutil.copytree(system.tlog, tmp_path / "older")
    fill(system, 300)
    publish(system)
    watch.look()
    before = {p: p.read_bytes() for p in system.tlog.rglob("*") if p.is_file()}
    match lost:
        case "checkpoint":
            (directory(system) / "checkpoint").unlink()
        case "all":
            shutil.rmtree(system.tlog)
            system.tlog.mkdir()
        case "older":
            shutil.rmtree(system.tlog)
            shutil.copytree(tmp_path / "older", system.tlog)
        case _:
            old = tmp_path / "older" / directory(system).relative_to(system.tlog)
            shutil.copy(old / "checkpoint", directory(system) / "checkpoint")
    assert publish(system).refused == []
    watch.look()
    expect_published(system)
    assert len(watch.seen) == 2, "what comes back is what was there"
    for path, content in before.items():
        if "tlog/." not in str(path) and path.exists():
            assert path.read_bytes() == content
    append(app, 1)
    publish(system)
    watch.look()
    watch.expect_one_history()
    expect_published(system)


def copied_in_the_wrong_order(system: System, app: Connection, copy: Path) -> None:
    """Put a copy of the store in its place, of which the checkpoints are newer than the tiles."""
    fill(system, 300)
    publish(system)
    shutil.copytree(system.tlog, copy)
    fill(system, 300)
    publish(system)
    for tenant in ("provider", "acme"):
        newer = directory(system, tenant) / "checkpoint"
        shutil.copy(newer, copy / newer.relative_to(system.tlog))
    shutil.rmtree(system.tlog)
    shutil.copytree(copy, system.tlog)


@pytest.mark.parametrize("restarted", [True, False])
def test_tiles_that_a_copy_of_the_store_lacks_are_written_anew(
    system: System, app: Connection, tmp_path: Path, restarted: bool
) -> None:
    watch = Watch(system)
    with publisher(system) as before:
        before.publish()
        copied_in_the_wrong_order(system, app, tmp_path / "copy")
        watch.look()
        if not restarted:
            append(app, 1)
        assert (publish(system) if restarted else before.publish()).refused == []
    watch.look()
    expect_published(system)
    watch.expect_one_history()


def test_missing_tiles_are_not_made_of_another_history(
    system: System, app: Connection, tmp_path: Path
) -> None:
    copied_in_the_wrong_order(system, app, tmp_path / "copy")
    acme = tenant_id(system, "acme")
    unguarded(
        system,
        "journal",
        "update oml.journal set envelope = set_byte(envelope, 40, get_byte(envelope, 40) # 1)"
        f" where tenant_id = '{acme}' and seq = 500",
    )
    append(app, 1)
    files = {p: p.read_bytes() for p in directory(system).rglob("*") if p.is_file()}
    (refused,) = publish(system).refused
    assert (refused.tenant, refused.kind) == ("acme", "tree")
    assert {p: p.read_bytes() for p in directory(system).rglob("*") if p.is_file()} == files


@pytest.mark.parametrize(
    ("name", "kind"),
    [("tile/0/001.p/45", "tree"), ("tile/1/000.p/1", "tree"), ("checkpoint", "tree")],
)
def test_a_log_that_was_changed_is_not_extended(
    system: System, app: Connection, name: str, kind: str
) -> None:
    prepare_more(system, "globex")
    fill(system, 300)
    publish(system)
    assert checkpoint(system)[0] == 301
    path = directory(system) / name
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    before = {p: p.read_bytes() for p in directory(system).rglob("*") if p.is_file()}
    append(app, 1, "acme")
    append(app, 1, "globex")
    done = system.oml("tlog", "publish", "--once", "--json")
    assert done.returncode == 1, done.stderr
    (refused,) = json.loads(done.stdout)["refused"]
    assert (refused["tenant"], refused["kind"]) == ("acme", kind)
    assert {p: p.read_bytes() for p in directory(system).rglob("*") if p.is_file()} == before
    expect_published(system, "provider", "globex")
    assert tlog_frontier(system) < outbox_max(system)


def test_an_object_that_lies_where_a_tile_belongs_is_never_overwritten(
    system: System, app: Connection
) -> None:
    append(app, 1)
    publish(system)
    stray = directory(system) / "tile/0/000.p/3"
    stray.write_bytes(bytes(96))
    append(app, 1)
    (refused,) = publish(system).refused
    assert refused.kind == "tree" and "000.p/3" in refused.reason
    assert checkpoint(system)[0] == 2
    stray.unlink()
    publish(system)
    expect_published(system)


def test_a_checkpoint_of_another_key_is_not_extended(system: System, app: Connection) -> None:
    append(app, 1)
    publish(system)
    path = directory(system) / "checkpoint"
    head, signed = note.parse_checkpoint(path.read_bytes())
    other = keys.from_seed(bytes(32))
    verifier = note.log_verifier(head.origin, other.public_key)
    line = note.log_signature(verifier, note.signed(signed.text, other.secret_key))
    path.write_bytes(note.Note(signed.text, (line,)).encode())
    append(app, 1)
    (refused,) = publish(system).refused
    assert refused.kind == "tree" and "none of the deployment's keys" in refused.reason


def test_a_log_goes_on_under_a_new_signing_key(
    system: System, app: Connection, open_dir: Path
) -> None:
    append(app, 2)
    publish(system)
    rotate(system, open_dir)
    append(app, 2)
    report = publish(system)
    assert report.refused == []
    expect_published(system)


def rotate(system: System, place: Path) -> None:
    owner = system.cluster.account
    path = place / "next.key"
    public = keys.generate(str(path), owner.uid, owner.gid)
    place.chmod(0o755)
    system.superuser.execute("select oml_issue_key(%s, 'signing')", (public,))
    system.superuser.execute("select oml_rotate_signing_key(%s)", (f"file:{path}",))


def test_a_journal_that_was_cut_is_never_published_over(system: System, app: Connection) -> None:
    append(app, 4)
    publish(system)
    before = checkpoint(system)
    acme = tenant_id(system, "acme")
    unguarded(system, "journal", f"delete from oml.journal where tenant_id = '{acme}' and seq > 3")
    (refused,) = publish(system).refused
    assert (refused.kind, refused.first_seq, refused.last_seq) == ("missing", 4, 5)
    append(app, 4)
    (refused,) = publish(system).refused
    assert (refused.kind, refused.first_seq, refused.last_seq) == ("fork", 4, 5)
    assert checkpoint(system) == before


def test_the_next_generation_begins_anew_beside_the_old(system: System, app: Connection) -> None:
    append(app, 3)
    with publisher(system) as one:
        one.publish()
        old = (directory(system) / "checkpoint").read_bytes()
        system.superuser.execute(
            "update oml.tlog set generation = 2, size = 0, root = null, checkpoint = null,"
            " published_at = null where tenant_id = %s",
            (tenant_id(system, "acme"),),
        )
        assert one.publish().checkpoints == 1, "an accepted loss is noticed in the same session"
        expect_log(system, "acme", len(entries(system)), generation=2)
        assert (directory(system) / "checkpoint").read_bytes() == old


def test_a_publisher_needs_operate_on_the_provider_and_the_daemons_group(
    system: System, app: Connection
) -> None:
    refused = system.oml("tlog", "publish", "--once", user="stranger")
    assert refused.returncode == 2
    refused = system.oml("tlog", "publish", "--once", user="daemon_login")
    assert refused.returncode == 2 and "operate" in refused.stderr
    system.bind("daemon_login", "provider", ("operate",))
    done = system.oml("tlog", "publish", "--once", "--json", user="daemon_login")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checkpoints"] == 2
    expect_published(system)


def test_status_tells_how_far_each_log_is_behind(system: System, app: Connection) -> None:
    append(app, 2)
    publish(system)
    append(app, 5)
    told = json.loads(system.oml("tlog", "status", "--json").stdout)
    by_tenant = {each["tenant"]: each for each in told}
    acme = by_tenant["acme"]
    assert (acme["size"], acme["head"], acme["behind"], acme["generation"]) == (3, 8, 5, 1)
    assert acme["published_at"] is not None and acme["problem"] is None
    assert by_tenant["provider"]["behind"] == 0
    shown = system.oml("tlog", "status").stdout
    assert "acme" in shown and "behind" in shown
    (directory(system) / "checkpoint").write_text("scribble")
    done = system.oml("tlog", "status", "--json")
    assert done.returncode == 1
    assert "note" in {e["tenant"]: e for e in json.loads(done.stdout)}["acme"]["problem"]


def test_without_a_place_nothing_is_published(system: System) -> None:
    unguarded(system, "setting", "delete from oml.setting where name = 'tlog_url'")
    with pytest.raises(UsageError, match="no tlog is configured"):
        publish(system, tlog_url=None)
    done = system.oml("tlog", "publish", env={"OML_TLOG_URL": system.tlog_url})
    assert done.returncode == 2 and "--once" in done.stderr


def test_a_lost_row_of_the_frontier_is_named(system: System) -> None:
    unguarded(system, "frontier", "delete from oml.frontier where name = 'tlog'")
    with pytest.raises(DatabaseError, match="lacks the row of the tlog") as caught:
        publish(system)
    assert caught.value.sqlstate == "OM153"
    system.superuser.execute("select oml_attach()")
    publish(system)
    expect_published(system, "provider")


# -- the daemon ------------------------------------------------------------------------------------


def test_the_daemon_publishes_what_is_committed(system: System, app: Connection) -> None:
    serving = system.start_oml("serve", env={"OML_TLOG_INTERVAL_S": "0.05"})
    append(app, 3)
    acme = tenant_id(system, "acme")
    wait_until(system, "select 1 from oml.tlog where tenant_id = %s and size = 4", acme)
    append(app, 3)
    wait_until(system, "select 1 from oml.tlog where tenant_id = %s and size = 7", acme)
    wait_until(
        system, "select 1 from oml.frontier where name = 'tlog' and seq = %s", outbox_max(system)
    )
    serving.send_signal(signal.SIGTERM)
    _, logged = serving.communicate(timeout=60)
    assert serving.returncode == 0, logged
    assert "published 2 checkpoints" in logged
    expect_published(system)


def test_the_daemon_waits_for_a_place_and_for_its_store(system: System, app: Connection) -> None:
    append(app, 1)
    unguarded(system, "setting", "delete from oml.setting where name = 'tlog_url'")
    place = system.tlog / "later"
    system.tlog.chmod(0o755)
    serving = system.start_oml(
        "serve", "--role", "tlog", env={"OML_TLOG_INTERVAL_S": "0.05", "OML_TLOG_URL": ""}
    )
    system.superuser.execute("select oml_configure('tlog_url', %s)", (place.as_uri(),))
    acme = tenant_id(system, "acme")
    wait_until(system, "select 1 from oml.tlog where tenant_id = %s and size = 2", acme)
    shutil.rmtree(place)
    append(app, 1)
    assert serving.stderr is not None
    line = ""
    while "tlog store away" not in line:
        line = serving.stderr.readline()
        assert line, "it ended"
    place.mkdir()
    wait_until(system, "select 1 from oml.tlog where tenant_id = %s and size = 3", acme)
    serving.send_signal(signal.SIGTERM)
    serving.communicate(timeout=60)
    assert serving.returncode == 0
    system.tlog = place
    expect_published(system)


# -- witnesses -------------------------------------------------------------------------------------


class Witnessed:
    """A witness that knows the logs of provider and acme, and a policy that asks it."""

    def __init__(self, system: System, place: Path) -> None:
        self.system = system
        self.server = WitnessServer("witness.example/1", bytes(range(32)))
        public = system.superuser.execute("select public_key from oml.key").fetchall()[0][0]
        for tenant in ("provider", "acme"):
            self.server.logs[self.origin(tenant)] = public
        self.policy = place / "policy"

    def origin(self, tenant: str) -> str:
        """Return the origin of a tenant's log."""
        deployment = tenant_id(self.system, "provider")
        return note.origin(deployment, tenant_id(self.system, tenant), 1)

    def at(self, url: str) -> str:
        """Write the policy for a witness at this URL, and return its path."""
        vkey = self.server.verifier.vkey
        self.policy.write_text(f"witness w {vkey} {url}\nquorum w\n")
        self.policy.chmod(0o644)
        return str(self.policy)

    def cosigned(self, tenant: str) -> int | None:
        """Return when the witness cosigned the published checkpoint of a tenant's log."""
        data = (directory(self.system, tenant) / "checkpoint").read_bytes()
        return note.cosigned_at(note.parse(data), self.server.verifier)

    def asked(self, tenant: str) -> int:
        """Return how often it was asked for a tenant's log."""
        origin = f"\n{self.origin(tenant)}\n".encode()
        return sum(origin in body for _, body in self.server.requests)


@pytest.fixture
def witnessed(system: System, app: Connection, open_dir: Path) -> Witnessed:
    """The witness of a system with a tenant."""
    return Witnessed(system, open_dir)


def test_witnesses_cosign_what_was_published_and_may_be_away(
    system: System, app: Connection, witnessed: Witnessed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oml.tlog.witness.FIRST_WAIT_S", 0.0)
    append(app, 2)
    cosigned = witnessed.cosigned
    with (
        witnessed.server.serve() as url,
        publisher(system, tlog_policy=witnessed.at(url)) as one,
    ):
        one.publish()
        assert cosigned("acme") and cosigned("provider")
        append(app, 300)
        one.publish()
        assert cosigned("acme")
        expect_published(system)
        witnessed.server.answers.append((500, b"away\n"))
        append(app, 1)
        one.publish()
        assert cosigned("acme") is None
        expect_published(system)
        one.publish()
        assert cosigned("acme"), "it is asked again"
        expect_published(system)
    append(app, 1)
    publish(system, tlog_policy=witnessed.at("http://127.0.0.1:1"))
    assert cosigned("acme") is None
    expect_published(system)


def test_what_was_published_without_cosignatures_is_offered_after_a_restart(
    system: System, app: Connection, witnessed: Witnessed
) -> None:
    append(app, 2)
    publish(system)
    with witnessed.server.serve() as url:
        publish(system, tlog_policy=witnessed.at(url))
        assert witnessed.cosigned("acme") and witnessed.cosigned("provider")
        expect_published(system)
        publish(system, tlog_policy=witnessed.at(url))
        assert witnessed.asked("acme") == witnessed.asked("provider") == 1


def test_a_witness_that_does_not_answer_delays_no_publication(
    system: System, app: Connection, witnessed: Witnessed
) -> None:
    append(app, 2)
    asked, answer = threading.Event(), threading.Event()
    add_checkpoint = witnessed.server.add_checkpoint

    def later(path: str, body: bytes) -> tuple[int, bytes]:
        asked.set()
        assert answer.wait(PATIENCE_S)
        return add_checkpoint(path, body)

    witnessed.server.add_checkpoint = later  # type: ignore[method-assign]
    with witnessed.server.serve() as url:
        with publisher(system, tlog_policy=witnessed.at(url)) as one, one.cosigning():
            one.publish()
            assert asked.wait(PATIENCE_S)
            append(app, 300)
            one.publish()
            assert checkpoint(system)[0] == 303
            answer.set()
            deadline = time.monotonic() + PATIENCE_S
            while not (witnessed.cosigned("provider") and witnessed.cosigned("acme")):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            one.publish()
            expect_published(system)
        assert witnessed.asked("provider") == 1, "its answer was waited for"


def test_the_daemon_has_its_logs_cosigned(
    system: System, app: Connection, witnessed: Witnessed
) -> None:
    append(app, 2)
    with witnessed.server.serve() as url:
        serving = system.start_oml(
            "serve", "--role", "tlog",
            env={"OML_TLOG_INTERVAL_S": "0.05", "OML_TLOG_POLICY": witnessed.at(url)},
        )  # fmt: skip
        recorded = (
            "select 1 from oml.tlog"
            " where tenant_id = %s and strpos(checkpoint, 'witness.example/1') > 0"
        )
        wait_until(system, recorded, tenant_id(system, "acme"))
        wait_until(system, recorded, tenant_id(system, "provider"))
        serving.send_signal(signal.SIGTERM)
        serving.communicate(timeout=60)
    assert serving.returncode == 0
    assert witnessed.cosigned("acme") and witnessed.cosigned("provider")
    expect_published(system)


# -- an S3 store -----------------------------------------------------------------------------------


def test_logs_can_lie_in_a_bucket(
    system: System, app: Connection, bucket: Bucket, tmp_path: Path
) -> None:
    from oml.store import open_store

    options = {"tlog_url": bucket.url, "tlog_storage_options": bucket.options}
    fill(system, 300)
    publish(system, **options)
    fill(system, 300)
    publish(system, **options)
    store = open_store(bucket.url, bucket.options)
    for path in store.list():
        data = store.get(path)
        assert data is not None
        (system.tlog / path).parent.mkdir(parents=True, exist_ok=True)
        (system.tlog / path).write_bytes(data)
    expect_published(system)
