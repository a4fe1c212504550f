"""Checkpoints signed in the database, events proved there, and the proofs verified without it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from forge import read_key
from oml.core import envelope, keys, merkle, note, proof
from oml.dev.cluster import SUPERUSER
from oml.store import open_store
from oml.tlog import policy, witness
from omld import Omld
from systems import System
from tlogs import Grown, WitnessServer, forge, grown, publish, sign

EVENTS = 600


@dataclass
class Chain:
    """The chain of acme, and who may do what."""

    system: System
    tenant_id: UUID

    def event(self, seq: int) -> str:
        """Return the id of an event."""
        row = self.system.superuser.execute(
            "select event_id from oml.journal where tenant_id = %s and seq = %s",
            (self.tenant_id, seq),
        ).fetchone()
        assert row is not None
        return str(row[0])

    def append(self, count: int) -> None:
        """Append so many events."""
        self.system.connect("app").execute(
            "select count(*) from oml_append_batch((select jsonb_agg(jsonb_build_object("
            " 'type', 'job.done', 'payload', '{}'::jsonb)) from generate_series(1, %s)))",
            (count,),
        )

    @property
    def root_key(self) -> str:
        """The deployment's first key, in hex."""
        row = self.system.superuser.execute(
            "select encode(public_key, 'hex') from oml.key where purpose = 'root'"
        ).fetchone()
        assert row is not None
        return str(row[0])

    def prove(self, seq: int) -> proof.Proof:
        """Have an event proved, as superuser."""
        row = self.system.superuser.execute(
            "select oml_prove_inclusion(%s)", (self.event(seq),)
        ).fetchone()
        assert row is not None
        return proof.parse(row[0].encode())


@pytest.fixture
def chain(system: System) -> Chain:
    """A tenant with a few hundred events."""
    system.superuser.execute("select oml_register_event_type('job.done')")
    chain = Chain(system, system.make("acme"))
    system.bind("app", "acme")
    system.bind("auditor", "acme", ("audit",))
    system.bind("daemon_login", "provider", ("operate",))
    chain.append(EVENTS - 1)
    return chain


def refused(chain: Chain, sqlstate: str, statement: str, *values: object) -> psycopg.Error:
    """Insist that a statement is refused with a hint."""
    with pytest.raises(psycopg.Error) as caught:
        chain.system.superuser.execute(statement.encode(), values)
    assert caught.value.sqlstate == sqlstate, caught.value
    assert caught.value.diag.message_hint
    return caught.value


SIGN = "select oml.tlog_sign(%s, %s, %s, %s)"
PROVE = "select oml_prove_inclusion(%s)"


# -- signing ---------------------------------------------------------------------------------------


def test_a_checkpoint_is_signed_by_the_key_in_force(chain: Chain) -> None:
    daemon = chain.system.connect("daemon_login")
    for size in (1, EVENTS):
        root = grown(chain.system, chain.tenant_id, size).root
        row = daemon.execute(SIGN, (chain.tenant_id, 1, size, root)).fetchone()
        assert row is not None
        read, signed = note.parse_checkpoint(row[0].encode())
        deployment = chain.system.superuser.execute("select oml.deployment_id()").fetchone()
        assert deployment is not None
        origin = note.origin(UUID(deployment[0]), chain.tenant_id, 1)
        assert read == note.Checkpoint(origin, size, root)
        key = note.log_verifier(origin, bytes.fromhex(chain.root_key))
        assert note.is_signed(signed, key) and len(signed.signatures) == 1


def test_what_cannot_be_a_checkpoint_of_the_chain_is_not_signed(chain: Chain) -> None:
    root = bytes(32)
    for nobody in (UUID(int=5), None):
        refused(chain, "OM140", SIGN, nobody, 1, 1, root)
    for generation in (0, 2, None):
        refused(chain, "OM141", SIGN, chain.tenant_id, generation, 1, root)
    for size in (0, -1, EVENTS + 1, 2**62, None):
        refused(chain, "OM142", SIGN, chain.tenant_id, 1, size, root)
    own = grown(chain.system, chain.tenant_id, 2).root
    for bad in (bytes(32), own[:31], own + bytes(1), b"", None):
        refused(chain, "OM155", SIGN, chain.tenant_id, 1, 2, bad)
    refused(chain, "OM155", SIGN, chain.tenant_id, 1, 1, own)
    sign(chain.system, chain.tenant_id, 2, own)


def test_a_checkpoint_that_takes_back_the_published_one_is_not_signed(chain: Chain) -> None:
    _, checkpoint = publish(chain.system, chain.tenant_id, 300)
    root = note.parse_checkpoint(checkpoint)[0].root
    assert sign(chain.system, chain.tenant_id, 300, root) == checkpoint
    refused(chain, "OM143", SIGN, chain.tenant_id, 1, 300, bytes(32))
    refused(chain, "OM143", SIGN, chain.tenant_id, 1, 299, root)
    refused(chain, "OM155", SIGN, chain.tenant_id, 1, 301, bytes(32))
    sign(chain.system, chain.tenant_id, 301)


def test_an_event_that_may_be_rolled_back_is_never_in_a_signed_checkpoint(chain: Chain) -> None:
    both = chain.system.make_login("both", "oml_writer", "oml_daemon")
    chain.system.bind(both, "acme")
    chain.system.bind(both, "provider", ("operate",))
    session = chain.system.connect(both, autocommit=False)
    session.execute("select oml_append('job.done', '{}', tenant => 'acme')")
    with pytest.raises(psycopg.Error) as caught:
        session.execute(SIGN, (chain.tenant_id, 1, EVENTS + 1, bytes(32)))
    assert caught.value.sqlstate == "OM149"
    session.rollback()
    with pytest.raises(psycopg.Error) as caught:
        session.execute(SIGN, (chain.tenant_id, 1, EVENTS + 1, bytes(32)))
    assert caught.value.sqlstate == "OM142"
    session.rollback()
    session.execute("savepoint inner_one")
    session.execute("select oml_append('job.done', '{}', tenant => 'acme')")
    session.execute("rollback to inner_one")
    with pytest.raises(psycopg.Error) as caught:
        session.execute(SIGN, (chain.tenant_id, 1, EVENTS, bytes(32)))
    assert caught.value.sqlstate == "OM149"


def test_a_database_that_only_reads_signs_nothing(chain: Chain) -> None:
    session = chain.system.connect("daemon_login")
    session.execute("set default_transaction_read_only = on")
    with pytest.raises(psycopg.Error) as caught:
        session.execute(SIGN, (chain.tenant_id, 1, 1, bytes(32)))
    assert caught.value.diag.message_hint


def test_nothing_is_signed_behind_a_closed_gate(chain: Chain) -> None:
    chain.system.superuser.execute("delete from oml.gate")
    refused(chain, "OM160", SIGN, chain.tenant_id, 1, 1, bytes(32))
    chain.system.open_gate()
    sign(chain.system, chain.tenant_id, 1)


def test_a_root_over_an_event_that_was_rolled_back_is_not_signed(chain: Chain) -> None:
    system = chain.system
    session = system.connect(SUPERUSER, autocommit=False)
    session.execute("set session authorization app")
    session.execute("select oml_append('job.done', '{\"paid\": true}', tenant => 'acme')")
    session.execute("reset session authorization")
    lost = session.execute(
        "select envelope from oml.journal where tenant_id = %s order by seq desc limit 1",
        (chain.tenant_id,),
    ).fetchone()
    assert lost is not None
    session.rollback()
    tree = grown(system, chain.tenant_id)
    tree.add([merkle.leaf_hash(envelope.digest(lost[0]))])
    chain.append(1)
    refused(chain, "OM155", SIGN, chain.tenant_id, 1, EVENTS + 1, tree.root)
    sign(system, chain.tenant_id, EVENTS + 1)


@pytest.mark.parametrize("sizes", [[1], [255], [256], [EVENTS], [1, 300, 511, 512, EVENTS]])
def test_the_database_computes_the_root_and_records_the_subtrees(
    chain: Chain, sizes: list[int]
) -> None:
    for size in sizes:
        sign(chain.system, chain.tenant_id, size)
        assert nodes(chain) == subtrees(chain, size)


def nodes(chain: Chain) -> dict[tuple[int, int], bytes]:
    """Return the recorded hashes of full subtrees, by level and position."""
    rows = chain.system.superuser.execute(
        "select level, n, hash from oml.tlog_node where tenant_id = %s", (chain.tenant_id,)
    ).fetchall()
    return {(level, n): digest for level, n, digest in rows}


def subtrees(chain: Chain, size: int) -> dict[tuple[int, int], bytes]:
    """Return what they must be."""
    return {
        (level, 256 * index + at): hashes[32 * at : 32 * at + 32]
        for (level, index, width), hashes in grown(
            chain.system, chain.tenant_id, size
        ).tiles.items()
        for at in range(width if level else 0)
    }


def test_two_levels_of_subtrees_are_recorded(chain: Chain) -> None:
    """More than a page of the computation, in two steps whose border is in the midst of one."""
    for _ in range(66):
        chain.append(1000)
    for size in (65_000, 66_000):
        sign(chain.system, chain.tenant_id, size)
        assert nodes(chain) == subtrees(chain, size)
    assert [key for key in nodes(chain) if key[0] == 2] == [(2, 0)]
    publish(chain.system, chain.tenant_id)
    proof.verify(chain.prove(60_000), [bytes.fromhex(chain.root_key)])


def test_only_new_events_are_read_for_a_root(chain: Chain) -> None:
    publish(chain.system, chain.tenant_id)
    chain.append(2)
    root = grown(chain.system, chain.tenant_id).root
    before = fetched(chain)
    sign(chain.system, chain.tenant_id, EVENTS + 2, root)
    assert fetched(chain) - before <= (EVENTS + 2) % 256 + 10


def test_subtrees_that_are_gone_are_computed_anew(chain: Chain) -> None:
    superuser = chain.system.superuser
    chain.append(500)
    size = EVENTS + 500
    _, checkpoint = publish(chain.system, chain.tenant_id)
    whole = nodes(chain)
    assert len(whole) == 4
    superuser.execute("alter table oml.tlog_node disable trigger user")
    for gone in ("true", "n = 0", "n = 2", "n = 3"):
        superuser.execute(f"delete from oml.tlog_node where {gone}".encode())
        root = note.parse_checkpoint(checkpoint)[0].root
        record = (chain.tenant_id, 1, size, root, checkpoint.decode())
        superuser.execute(RECORD, record)
        assert nodes(chain) == whole
    superuser.execute("delete from oml.tlog_node where n = 1")
    chain.append(1)
    sign(chain.system, chain.tenant_id, size + 1)
    assert nodes(chain) == whole
    superuser.execute("update oml.tlog_node set hash = sha256(hash) where n = 1")
    root = grown(chain.system, chain.tenant_id).root
    refused(chain, "OM155", SIGN, chain.tenant_id, 1, size + 1, root)


RECORD = "select oml.tlog_record(%s, %s, %s, %s, %s)"


def test_only_a_checkpoint_of_the_chain_itself_is_recorded(chain: Chain) -> None:
    system = chain.system
    tenant, key = chain.tenant_id, read_key(system.key_file)
    checkpoint = sign(system, tenant, 300)
    read, signed = note.parse_checkpoint(checkpoint)
    origin, root = read.origin, read.root
    other = grown(system, tenant, 299).root
    stranger = keys.from_seed(bytes((9,)) * 32)
    spoiled = signed.signatures[0]
    spoiled = spoiled._replace(value=spoiled.value[:-1] + bytes((spoiled.value[-1] ^ 1,)))
    text = checkpoint.decode()
    for size, asked, written in (
        (300, root, "note"),
        (300, root, None),
        (300, root, read.origin),
        (299, other, text),
        (300, other, text),
        (300, None, text),
        (None, root, text),
        (0, merkle.EMPTY_ROOT, forge(key, origin, 0, merkle.EMPTY_ROOT).decode()),
        (300, other, forge(key, origin, 300, other).decode()),
        (EVENTS + 1, root, forge(key, origin, EVENTS + 1, root).decode()),
        (300, root, forge(key, origin + "1", 300, root).decode()),
        (300, root, forge(stranger, origin, 300, root).decode()),
        (300, root, note.Note(signed.text, (spoiled,)).encode().decode()),
    ):
        refused(chain, "OM150", RECORD, tenant, 1, size, asked, written)
    for generation in (0, 2, None):
        refused(chain, "OM151", RECORD, tenant, generation, 300, root, text)
    refused(chain, "OM150", RECORD, UUID(int=5), 1, 300, root, text)
    assert system.superuser.execute("select from oml.tlog").rowcount == 0
    system.superuser.execute("select oml_issue_key(%s, 'signing')", (stranger.public_key,))
    standby = forge(stranger, origin, 300, root).decode()
    refused(chain, "OM150", RECORD, tenant, 1, 300, root, standby)
    system.superuser.execute(RECORD, (tenant, 1, 300, root, text))
    refused(chain, "OM150", RECORD, tenant, 1, 300, root, standby)
    publish(system, tenant)


def test_omld_signs_checkpoints(chain: Chain, open_dir: Path) -> None:
    row = chain.system.superuser.execute("select oml.deployment_id()").fetchone()
    assert row is not None
    daemon = Omld(chain.system, open_dir, UUID(row[0]))
    daemon.add_key("signing.key", chain.system.key_file.read_text())
    daemon.start()
    chain.system.superuser.execute("select oml_configure('signer', %s)", (daemon.url,))
    publish(chain.system, chain.tenant_id, 300)
    proof.verify(chain.prove(5), [bytes.fromhex(chain.root_key)])
    daemon.kill()
    root = grown(chain.system, chain.tenant_id).root
    refused(chain, "OM090", SIGN, chain.tenant_id, 1, EVENTS, root)


# -- proofs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 512, 513, EVENTS])
def test_every_event_of_a_checkpoint_is_proved(chain: Chain, size: int) -> None:
    publish(chain.system, chain.tenant_id, size)
    pinned = [bytes.fromhex(chain.root_key)]
    for seq in {1, size, (size + 1) // 2, min(size, 256), min(size, 257)}:
        proved = proof.verify(chain.prove(seq), pinned)
        assert (proved.event.fields["seq"], proved.checkpoint.size) == (seq, size)
        assert str(UUID(bytes=proved.event.fields["event_id"])) == chain.event(seq)
    if size < EVENTS:
        refused(chain, "OM146", PROVE, chain.event(size + 1))


def test_a_proof_reads_the_tiles_it_touches_and_not_the_chain(chain: Chain) -> None:
    publish(chain.system, chain.tenant_id)
    before = fetched(chain)
    chain.prove(300)
    assert fetched(chain) - before <= 256 + EVENTS % 256 + 10


def fetched(chain: Chain) -> int:
    """Return how many rows of the journal were read in this session so far."""
    row = chain.system.superuser.execute(
        "select pg_stat_get_xact_tuples_fetched('oml.journal'::regclass) +"
        " pg_stat_get_xact_tuples_returned('oml.journal'::regclass)"
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_an_event_of_the_provider_chain_is_proved(chain: Chain) -> None:
    row = chain.system.superuser.execute("select oml.deployment_id()").fetchone()
    assert row is not None
    provider = Chain(chain.system, UUID(row[0]))
    publish(chain.system, provider.tenant_id)
    proved = proof.verify(provider.prove(2), [bytes.fromhex(chain.root_key)])
    assert proved.tenant_id == proved.deployment_id == provider.tenant_id


def test_keys_that_took_over_are_shown_to_come_from_the_root_key(chain: Chain) -> None:
    superuser, owner = chain.system.superuser, chain.system.cluster.account
    publish(chain.system, chain.tenant_id, 300)
    old = chain.prove(7)
    publics = []
    for number in (1, 2):
        path = chain.system.key_file.with_name(f"{chain.system.database}.{number}.key")
        keys.generate(str(path), owner.uid, owner.gid)
        publics.append(read_key(path).public_key)
        if number == 2:
            superuser.execute("select oml_issue_key(%s, 'signing')", (publics[-1],))
        superuser.execute("select oml_rotate_signing_key(%s)", (f"file:{path}",))
        chain.append(1)
        if number == 1:
            publish(chain.system, chain.tenant_id, EVENTS + 1)
            once = {seq: chain.prove(seq) for seq in (7, EVENTS + 1)}
    publish(chain.system, chain.tenant_id)
    root = bytes.fromhex(chain.root_key)
    for one in once.values():
        assert len(one.keys) == 3
        assert proof.verify(one, [root]).key == publics[0]
    assert in_force(chain) == [root, *publics]
    made = {seq: chain.prove(seq) for seq in (7, EVENTS + 1, EVENTS + 2)}
    for one in made.values():
        assert len(one.keys) == 6
        assert proof.verify(one, [root]).key == publics[1]
    assert old.keys == () and proof.verify(old, [root]).key == root
    # Whoever knows the key in force alone can verify what it signed itself.
    proof.verify(made[EVENTS + 2], [publics[1]])
    with pytest.raises(proof.ProvesNothingError):
        proof.verify(made[7], [publics[1]])


def in_force(chain: Chain) -> list[bytes]:
    """Return the keys that a checkpoint may be signed with."""
    return [row[0] for row in chain.system.superuser.execute("select oml.tlog_keys()").fetchall()]


def test_a_key_that_never_came_into_force_signs_no_proof(chain: Chain) -> None:
    """Neither one on standby, nor one withdrawn, nor one whose issue was rolled back."""
    root = bytes.fromhex(chain.root_key)
    _, checkpoint = publish(chain.system, chain.tenant_id)
    made = chain.prove(7)
    session = chain.system.connect(SUPERUSER, autocommit=False)

    def issue(key: keys.SigningKey) -> None:
        session.execute("select oml_issue_key(%s, 'signing')", (key.public_key,))

    def shown() -> tuple[bytes, ...]:
        rows = session.execute(
            "select envelope from oml.journal where type like 'key.%' order by seq"
        ).fetchall()
        return tuple(row[0] for row in rows)

    rolled_back, standby = (keys.from_seed(bytes((n,)) * 32) for n in (7, 8))
    issue(rolled_back)
    ways = [(rolled_back, shown())]
    session.rollback()
    issue(standby)
    session.commit()
    ways.append((standby, shown()))
    assert in_force(chain) == [root]
    session.execute("select oml_retire_key(%s)", (standby.kid.hex(),))
    session.commit()
    ways.append((standby, shown()))
    assert len(ways[-1][1]) == 3
    assert in_force(chain) == [root]
    for thief, way in ways:
        proof.verify(replace(made, keys=way), [root])
        head = note.parse_checkpoint(checkpoint)[0]
        signed = forge(thief, head.origin, head.size, head.root)
        forged = replace(made, keys=way, checkpoint=signed)
        proof.verify(forged, [root, thief.public_key])
        with pytest.raises(proof.ProvesNothingError, match="signed by no key"):
            proof.verify(forged, [root])


@pytest.mark.parametrize(
    "change",
    [
        "update oml.tlog_node set hash = sha256(hash) where n = 1",
        "delete from oml.tlog_node where n = 0",
        "update oml.tlog set checkpoint = replace(checkpoint, E'\\n600\\n', E'\\n601\\n')",
        "update oml.tlog set checkpoint = regexp_replace(checkpoint, E'\\n\\n.*', E'\\n')",
        "update oml.tlog set generation = 2",
        "update oml.journal set envelope = envelope || '\\x00' where seq = 600",
        "update oml.journal set envelope = envelope || '\\x00' where seq = 3",
        "delete from oml.journal where seq = 599",
    ],
)
def test_what_was_changed_behind_it_gives_no_proof(chain: Chain, change: str) -> None:
    publish(chain.system, chain.tenant_id)
    chain.prove(3)
    superuser = chain.system.superuser
    wanted = chain.event(3)
    for table in ("journal", "tlog", "tlog_node"):
        superuser.execute(f"alter table oml.{table} disable trigger all".encode())
    ours = (" and " if " where " in change else " where ") + "tenant_id = %s"
    assert superuser.execute((change + ours).encode(), (chain.tenant_id,)).rowcount > 0
    refused(chain, "OM148", PROVE, wanted)


# -- the command line ------------------------------------------------------------------------------


REWRITTEN = (
    "the consistency proof does not lead to the ",
    "do not lead to the new one",
    "two roots for the same 600 entries",
)

OFFLINE = """
import sys
def refuse(event, _):
    if event.startswith("socket."):
        raise AssertionError(event)
sys.addaudithook(refuse)
from oml.cli import main
main()
"""


def offline(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where there is neither a database nor a network."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OML_", "PG"))}
    return subprocess.run(
        [sys.executable, "-c", OFFLINE, *arguments],
        env=inherited | {"PGHOST": "/nowhere"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_proof_is_written_and_verified_elsewhere(chain: Chain, tmp_path: Path) -> None:
    publish(chain.system, chain.tenant_id)
    file = tmp_path / "event.tlog-proof"
    done = chain.system.oml("prove", chain.event(7), "--out", str(file), user="auditor")
    assert done.returncode == 0, done.stderr
    printed = chain.system.oml("prove", chain.event(7), user="auditor")
    assert printed.stdout == file.read_text()
    as_json = chain.system.oml("prove", chain.event(7), "--json", user="auditor")
    assert json.loads(as_json.stdout)["proof"] == file.read_text()

    done = offline("verify-proof", str(file), "--key", chain.root_key, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["proved"] and found["event_id"] == chain.event(7)
    assert (found["tenant_id"], found["seq"]) == (str(chain.tenant_id), 7)
    assert (found["type"], found["tree_size"]) == ("job.done", EVENTS)
    row = chain.system.superuser.execute(
        "select occurred_at, encode(hash, 'hex') from oml.journal where event_id = %s",
        (chain.event(7),),
    ).fetchone()
    assert row is not None
    assert (found["occurred_at"], found["hash"]) == (row[0].isoformat(), row[1])
    plain = offline("verify-proof", str(file), "--key", "00" * 32, "--key", chain.root_key)
    assert plain.returncode == 0 and chain.event(7) in plain.stdout


def test_a_proof_that_proves_nothing_exits_1_and_what_is_none_exits_2(
    chain: Chain, tmp_path: Path
) -> None:
    publish(chain.system, chain.tenant_id)
    file = tmp_path / "proof"
    data = chain.system.oml("prove", chain.event(7)).stdout.encode()
    cases = {
        "unpinned": (data, "00" * 32, 1),
        "no checkpoint": (data.partition(b"\n\n")[0] + b"\n", chain.root_key, 1),
        "unsigned": (data.rpartition(b"\n\n")[0] + b"\n", chain.root_key, 1),
        "another entry": (data.replace(b"\nindex 6\n", b"\nindex 7\n"), chain.root_key, 1),
        "cut": (data[:200], chain.root_key, 2),
        "no proof": (b"hello\n", chain.root_key, 2),
        "no key": (data, "abc", 2),
    }
    for name, (content, key, status) in cases.items():
        file.write_bytes(content)
        done = offline("verify-proof", str(file), "--key", key)
        assert done.returncode == status, (name, done.stdout, done.stderr)
        assert ("proves nothing" in done.stderr) == (status == 1), name
        assert ("repeat --key" in done.stderr) == (name == "unpinned"), name
        assert ("must give another" in done.stderr) == (name not in ("unpinned", "no key")), name
        assert "Traceback" not in done.stderr
    assert offline("verify-proof", str(file)).returncode == 2
    assert offline("verify-proof", str(tmp_path / "none"), "--key", "00" * 32).returncode == 2
    for argument in ("no-uuid", "01890a5d-ac96-774b-bcce-b302099a8057"):
        done = chain.system.oml("prove", argument)
        assert done.returncode == 2 and "hint:" in done.stderr


@pytest.fixture
def witnessed(chain: Chain, tmp_path: Path) -> Iterator[tuple[WitnessServer, Path]]:
    """A witness that serves and knows the log, and a policy file that needs it."""
    server = WitnessServer("witness.example/w1", bytes((5,)) * 32)
    checkpoint = sign(chain.system, chain.tenant_id, 1)
    origin = note.parse_checkpoint(checkpoint)[0].origin
    server.logs[origin] = bytes.fromhex(chain.root_key)
    with server.serve() as url:
        file = tmp_path / "policy"
        log = note.log_verifier(origin, bytes.fromhex(chain.root_key))
        file.write_text(f"log {log.vkey}\nwitness W {server.verifier.vkey} {url}\nquorum W\n")
        yield server, file


def test_a_quorum_is_required_of_a_proof_and_met_by_an_attached_cosignature(
    chain: Chain, witnessed: tuple[WitnessServer, Path], tmp_path: Path
) -> None:
    server, rules = witnessed
    tree, checkpoint = publish(chain.system, chain.tenant_id)
    file, lines = tmp_path / "event.tlog-proof", tmp_path / "cosignatures"
    chain.system.oml("prove", chain.event(7), "--out", str(file))
    verify = ("verify-proof", str(file), "--key", chain.root_key, "--policy", str(rules))
    done = offline(*verify)
    assert done.returncode == 1 and "the policy is not met: no witness" in done.stderr

    old: dict[str, int] = {}
    found = witness.collect(policy.read(rules).witnesses, checkpoint, tree, old)
    lines.write_bytes(b"".join(found.lines))
    assert old == {server.verifier.vkey: EVENTS}
    attach = ("tlog", "attach", str(file), str(lines), "--policy", str(rules), "--json")
    for _ in range(2):  # a second time changes nothing
        done = offline(*attach)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["witnesses"] == ["W"]
    done = offline(*verify, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["witnesses"] == {"W": "2023-11-14T22:13:21+00:00"}

    cosigned = tmp_path / "checkpoint"
    cosigned.write_bytes(checkpoint)
    assert (
        offline("tlog", "attach", str(cosigned), str(lines), "--policy", str(rules)).returncode == 0
    )
    assert note.cosigned_at(note.parse(cosigned.read_bytes()), server.verifier) is not None
    chain.system.oml("prove", chain.event(8), "--out", str(file))
    done = offline("tlog", "attach", str(file), str(cosigned), "--policy", str(rules))
    assert done.returncode == 0, done.stderr
    assert offline(*verify).returncode == 0


def test_a_cosignature_that_does_not_verify_is_not_attached(
    chain: Chain, witnessed: tuple[WitnessServer, Path], tmp_path: Path
) -> None:
    server, rules = witnessed
    _, checkpoint = publish(chain.system, chain.tenant_id)
    file, lines = tmp_path / "checkpoint", tmp_path / "cosignatures"
    file.write_bytes(checkpoint)
    text = note.parse(checkpoint).text
    other = note.checkpoint_text("else", 1, bytes(32))
    secret = server.key.secret_key
    for line, status in (
        (note.cosign(other, server.verifier.name, secret, 5).line(), 1),
        (note.cosign(text, "stranger.example", secret, 5).line(), 1),
        ("nothing\n", 2),
        (f"{other}\n{note.cosign(other, server.verifier.name, secret, 5).line()}", 1),
    ):
        lines.write_text(line)
        done = offline("tlog", "attach", str(file), str(lines), "--policy", str(rules))
        assert done.returncode == status, done.stderr
        assert (f"{lines} holds no signature lines" in done.stderr) == (status == 2)
        assert file.read_bytes() == checkpoint
    done = offline("tlog", "attach", str(rules), str(lines), "--policy", str(rules))
    assert done.returncode == 2
    assert f"{rules} is neither a checkpoint nor a proof file" in done.stderr


def test_a_later_checkpoint_is_shown_to_go_on_from_an_earlier_one(
    chain: Chain, tmp_path: Path
) -> None:
    tree = Grown()
    store = open_store(chain.system.tlog_url, make=True)
    files = {}
    rows = chain.system.superuser.execute(
        "select envelope from oml.journal where tenant_id = %s order by seq", (chain.tenant_id,)
    ).fetchall()
    for size in (300, 512, EVENTS):
        leaves = [merkle.leaf_hash(envelope.digest(row[0])) for row in rows[tree.size : size]]
        for tile in tree.add(leaves):
            path = merkle.tile_path(tile.level, tile.index, tile.width)
            assert store.create(f"{chain.tenant_id}/1/{path}", tile.hashes)
        files[size] = tmp_path / f"checkpoint-{size}"
        files[size].write_bytes(sign(chain.system, chain.tenant_id, size, merkle.root(tree, size)))

    proof_file = tmp_path / "consistency"
    made = ("tlog", "consistency", "--tlog-url", store.url, "--out", str(proof_file))
    for old, new in ((300, 512), (300, EVENTS), (512, EVENTS), (300, 300)):
        done = offline(*made, str(files[old]), str(files[new]))
        assert done.returncode == 0, done.stderr
        check = ("verify-consistency", str(files[old]), str(files[new]), str(proof_file))
        done = offline(*check, "--key", chain.root_key, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["old_size"] == old
    check = ("verify-consistency", str(files[512]), str(files[EVENTS]), str(proof_file))
    key = ("--key", chain.root_key)

    def expect(status: int, words: str, *arguments: str) -> None:
        done = offline(*arguments)
        assert done.returncode == status and words in done.stderr, done.stderr
        assert ("rewritten" in done.stderr) == (words in REWRITTEN), done.stderr

    # What is no evidence is not called that.
    expect(1, "proves nothing: the old checkpoint is signed by none", *check, "--key", "00" * 32)
    spoiled = tmp_path / "spoiled"
    spoiled.write_bytes(files[EVENTS].read_bytes().replace(b"\n600\n", b"\n601\n"))
    expect(1, "proves nothing: the new checkpoint: ", *check[:2], str(spoiled), check[3], *key)
    swapped = str(files[512]), str(files[300])
    expect(2, "swapped", *made, *swapped)
    expect(2, "swapped", check[0], *swapped, str(proof_file), *key)
    row = chain.system.superuser.execute("select oml.deployment_id()").fetchone()
    assert row is not None
    other = tmp_path / "other"
    other.write_bytes(sign(chain.system, UUID(row[0]), 3))
    expect(2, "of two logs", *made, str(other), str(files[300]))
    expect(2, "of two logs", check[0], str(other), *check[2:], *key)
    # Nor is a proof at fault.
    assert offline(*made, str(files[300]), str(files[EVENTS])).returncode == 0
    expect(1, "the proof is of other checkpoints", *check, *key)
    # Signed checkpoints that contradict each other are.
    forged = tmp_path / "forged"
    origin = note.parse_checkpoint(files[300].read_bytes())[0].origin
    key_pair = read_key(chain.system.key_file)
    forged.write_bytes(forge(key_pair, origin, 400, bytes(32)))
    expect(1, REWRITTEN[0], *made, str(forged), str(files[EVENTS]))
    expect(1, REWRITTEN[1], *made, str(files[300]), str(forged))
    forged.write_bytes(forge(key_pair, origin, 300, bytes(32)))
    expect(1, REWRITTEN[0], check[0], str(forged), str(files[EVENTS]), str(proof_file), *key)
    forged.write_bytes(forge(key_pair, origin, EVENTS, bytes(32)))
    expect(1, REWRITTEN[2], check[0], str(files[EVENTS]), str(forged), str(proof_file), *key)
    assert offline(*made, str(proof_file), str(files[EVENTS])).returncode == 2
    assert offline(*made[:2], str(files[300]), str(files[512])).returncode == 2
    dsn = ("--dsn", chain.system.dsn("daemon_login"))  # where the database says that it is
    done = offline(*made[:2], str(files[300]), str(files[512]), *dsn)
    assert done.returncode == 0 and done.stdout.startswith("old 300\n"), done.stderr
    for gone in chain.system.tlog.rglob("001"):
        gone.unlink()
    done = offline(*made, str(files[300]), str(files[512]))
    assert done.returncode == 2 and "is missing" in done.stderr
