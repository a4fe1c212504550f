"""Appends signed by omld: through its death, its silence and its return, and against attackers."""

import contextlib
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from catalog import contents
from forge import read_key
from lakes import drain, expect_exact, frontier, outbox_max, wait_until
from oml.core import cbor, cose, envelope, keys, note, wire
from oml.dev.cluster import SUPERUSER
from oml.driver.connection import connect
from oml.errors import SetupError
from omld import NOBODY, PATIENCE_S, Omld, connections, python_as, read_frame, wait_for_log
from systems import Connection, System

APPEND = "select seq from oml_append('job.done', '{}')"


def deployment_of(system: System) -> UUID:
    row = system.superuser.execute("select oml.deployment_id()").fetchone()
    assert row is not None
    return UUID(row[0])


def prepare(system: System, directory: Path) -> Omld:
    """Let omld sign for the system, with tenant acme and an app bound to it."""
    daemon = Omld(system, directory, deployment_of(system))
    daemon.add_key("signing.key", system.key_file.read_text())
    daemon.start()
    system.superuser.execute("select oml_configure('signer', %s)", (daemon.url,))
    system.superuser.execute("select oml_register_event_type('job.done')")
    system.make("acme")
    system.bind("app", "acme")
    return daemon


@pytest.fixture
def daemon(system: System, open_dir: Path) -> Omld:
    """A system of the session's cluster whose events omld signs."""
    return prepare(system, open_dir)


def refused(connection: Connection, sqlstate: str, statement: str = APPEND) -> str:
    """Insist that the statement is refused in plain words with a hint; return the message."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    assert caught.value.sqlstate == sqlstate, caught.value
    assert caught.value.diag.message_hint
    message = caught.value.diag.message_primary
    assert message is not None and "plpy" not in message and "Error" not in message
    assert connection.execute("select 1").fetchone() == (1,), "the session is usable"
    return message


def expect_chain(system: System, events: int) -> None:
    """Insist that the chain of acme is proved and has so many events, in SQL and from outside."""
    verdict = system.superuser.execute(
        "select ok, events, reason from oml_verify_chain('acme')"
    ).fetchone()
    assert verdict == (True, events, None)
    done = system.oml("verify", "--json")
    assert done.returncode == 0, done.stdout + done.stderr


def held_key(daemon: Omld) -> keys.SigningKey:
    return read_key(daemon.system.key_file)


# --- ordinary days ---------------------------------------------------------------------------


def test_appends_are_signed_by_omld_and_verify(daemon: Omld) -> None:
    app = daemon.system.connect("app")
    assert [app.execute(APPEND).fetchone() for _ in range(3)] == [(2,), (3,), (4,)]
    expect_chain(daemon.system, 4)


def test_the_servers_user_needs_no_way_to_the_key(daemon: Omld) -> None:
    account = daemon.system.cluster.account
    key_file = daemon.directory / "keys" / "signing.key"
    assert stat.S_IMODE(key_file.parent.stat().st_mode) == 0o700
    assert key_file.stat().st_uid == os.geteuid()
    if account.uid != os.geteuid():
        with pytest.raises(SetupError, match="Permission denied"):
            account.run(["/bin/cat", str(key_file)])
    kept = daemon.system.key_file.with_name(f"{daemon.system.database}.away")
    daemon.system.key_file.rename(kept)  # nor is the one of before there
    try:
        assert daemon.system.connect("app").execute(APPEND).fetchone() == (2,)
    finally:
        kept.rename(daemon.system.key_file)
    expect_chain(daemon.system, 2)


def test_many_sessions_and_tenants_append_at_once(daemon: Omld) -> None:
    system = daemon.system
    tenants = [f"tenant{number}" for number in range(6)]
    for tenant in tenants:
        system.make(tenant)
        system.bind("app", tenant)
    statement = "select oml_append('job.done', jsonb_build_object('n', %s::int), tenant => %s)"
    sessions = [system.connect("app") for _ in tenants]

    def append(number: int) -> None:
        for n in range(20):
            sessions[number].execute(statement, (n, tenants[number]))

    with ThreadPoolExecutor(len(tenants)) as pool:
        list(pool.map(append, range(len(tenants))))
    for tenant in tenants:
        verdict = system.superuser.execute(
            "select ok, events from oml_verify_chain(%s)", (tenant,)
        ).fetchone()
        assert verdict == (True, 21)


def test_the_largest_payload_with_claims_is_signed(daemon: Omld) -> None:
    app = daemon.system.connect("app")
    daemon.system.superuser.execute(
        "select oml_register_event_type('job.large', max_bytes => 1048576)"
    )
    statement = "select seq from oml_append('job.large', %s::jsonb, operation => %s)"
    text = json.dumps({"text": "é" * (512 * 1024 - 16)}, ensure_ascii=False)
    assert len(text.encode()) > 1_048_500
    assert app.execute(statement, (text, "o" * 200)).fetchone() == (2,)
    expect_chain(daemon.system, 2)


def test_changing_back_to_the_file_needs_no_new_session(daemon: Omld) -> None:
    app = daemon.system.connect("app")
    for url in (f"file:{daemon.system.key_file}", daemon.url) * 2:
        app.execute(APPEND)
        daemon.system.superuser.execute("select oml_configure('signer', %s)", (url,))
    app.execute(APPEND)
    expect_chain(daemon.system, 6)


# --- gone, silent, back ----------------------------------------------------------------------


def test_a_killed_daemon_stops_appends_and_a_new_one_serves_the_same_session(
    daemon: Omld,
) -> None:
    app, fresh = daemon.system.connect("app"), daemon.system.connect("app")
    app.execute(APPEND)
    before = contents(daemon.system.superuser)
    daemon.kill()
    for _ in range(2):
        assert str(daemon.socket) in refused(app, "OM090")
        refused(fresh, "OM090")
    assert contents(daemon.system.superuser) == before
    daemon.start()  # over the socket that the dead one left
    assert app.execute(APPEND).fetchone() == (3,)
    assert fresh.execute(APPEND).fetchone() == (4,)
    daemon.end()
    assert not daemon.socket.exists()
    refused(app, "OM090")
    daemon.start()
    assert app.execute(APPEND).fetchone() == (5,)
    expect_chain(daemon.system, 5)


def test_a_restart_between_two_appends_of_one_transaction_is_not_noticed(daemon: Omld) -> None:
    app = daemon.system.connect("app", autocommit=False)
    app.execute(APPEND)
    daemon.kill()
    daemon.start()
    assert app.execute(APPEND).fetchone() == (3,)
    app.commit()
    expect_chain(daemon.system, 3)


def test_a_hung_daemon_fails_the_append_in_time_and_no_late_answer_is_mixed_up(
    daemon: Omld,
) -> None:
    app, fresh = daemon.system.connect("app"), daemon.system.connect("app")
    app.execute(APPEND)
    before = contents(daemon.system.superuser)
    daemon.stop()
    for _ in range(2):
        assert "did not answer" in refused(app, "OM092")
        assert "did not answer" in refused(fresh, "OM092")
    assert contents(daemon.system.superuser) == before
    daemon.signal(signal.SIGCONT)
    for seq in (3, 4, 5):
        assert app.execute(APPEND).fetchone() == (seq,)
    assert fresh.execute(APPEND).fetchone() == (6,)
    expect_chain(daemon.system, 6)


def test_a_hung_daemon_with_a_full_queue_fails_in_time(daemon: Omld) -> None:
    app = daemon.system.connect("app")
    daemon.stop()
    held = []
    try:
        with contextlib.suppress(BlockingIOError):
            for _ in range(1000):
                held.append(socket.socket(socket.AF_UNIX))
                held[-1].settimeout(0)
                held[-1].connect(str(daemon.socket))
        assert len(held) < 1000
        refused(app, "OM092")
    finally:
        for one in held:
            one.close()
        daemon.signal(signal.SIGCONT)
    assert app.execute(APPEND).fetchone() == (2,)


def test_a_savepoint_outlives_the_daemon(daemon: Omld) -> None:
    app = daemon.system.connect("app", autocommit=False)
    app.execute(APPEND)
    daemon.kill()
    with pytest.raises(psycopg.Error), app.transaction():
        app.execute(APPEND)
    app.commit()
    expect_chain(daemon.system, 2)


def test_the_daemon_serves_on_when_the_server_restarts(
    private_system: System, open_dir: Path
) -> None:
    system = private_system
    daemon = prepare(system, open_dir)
    system.connect("app").execute(APPEND)
    for way in (system.cluster.stop, system.cluster.kill):
        system.superuser.close()
        way()
        system.cluster.start()
        system.open_gate()
        system.connect("app").execute(APPEND)
    expect_chain(system, 4)
    assert daemon.end()[-1] == "stopped"


# --- who may ask -----------------------------------------------------------------------------

ASK = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(60)
connection.connect(sys.argv[1])
try:
    connection.sendall(bytes.fromhex(sys.argv[2]))
except OSError:
    pass
print(connection.recv(65536).hex())
try:
    print(connection.recv(65536).hex())
except ConnectionResetError:
    print()
"""


def test_another_uid_is_refused_and_the_log_names_it_once(daemon: Omld) -> None:
    if os.geteuid() != 0:  # then the only uid we can be is another than the one that is served
        daemon.kill()
        daemon.start(env={"OML_SIGNER_USERS": f"[{NOBODY}]"})
    uid = NOBODY if os.geteuid() == 0 else os.geteuid()
    for _ in range(5):
        done = python_as(uid, ASK, str(daemon.socket), wire.request(wire.KEYS).hex())
        assert done.returncode == 0, done.stderr
        first, second = done.stdout.splitlines()
        assert second == "", "the connection was closed"
        with pytest.raises(keys.SignerError) as caught:
            wire.read_answer(bytes.fromhex(first)[4:])
        assert caught.value.sqlstate == "OM091"
        assert str(uid) in caught.value.message
    logged = [message for message in daemon.end() if f"refused uid {uid}" in message]
    assert len(logged) == 1


def test_a_database_whose_user_is_not_listed_is_refused(daemon: Omld) -> None:
    app = daemon.system.connect("app")
    app.execute(APPEND)
    daemon.kill()
    daemon.start(env={"OML_SIGNER_USERS": f'["nobody", {NOBODY}]'})
    for _ in range(2):
        assert str(daemon.system.cluster.account.uid) in refused(app, "OM091")
    daemon.kill()
    daemon.start(env={"OML_SIGNER_USERS": json.dumps([daemon.system.cluster.account.name])})
    assert app.execute(APPEND).fetchone() == (3,)


# --- hostile messages ------------------------------------------------------------------------

GARBAGE = {
    "one byte too long": (wire.MAX_REQUEST_BYTES + 1).to_bytes(4, "big"),
    "4 GiB": b"\xff\xff\xff\xff",
    "4 GiB with some of it": b"\xff\xff\xff\xff" + bytes(100_000),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "an empty frame": bytes(4),
    "another version": b"\0\0\0\x02\x02\x01",
    "another operation": b"\0\0\0\x02\x01\x09",
    "a short kid": wire.request(wire.SIGN, b"1234567"),
    "nothing to sign": wire.request(wire.SIGN, b"12345678"),
    "a wrap that is cut": wire.request(wire.WRAP, b"\x00\x20abc"),
    "a wrap of text that is none": wire.request(wire.WRAP, b"\x00\x01\xff\0\0\0\0"),
    "half a head": b"\0\0",
    "half a body": wire.request(wire.SIGN, bytes(100))[:50],
}


@pytest.mark.parametrize("raw", GARBAGE.values(), ids=GARBAGE)
def test_a_hostile_message_is_refused_and_hurts_nobody_else(daemon: Omld, raw: bytes) -> None:
    app = daemon.system.connect("app")
    app.execute(APPEND)
    with pytest.raises(keys.SignerError) as caught:
        daemon.ask(raw)
    assert caught.value.sqlstate == "OM093"
    assert app.execute(APPEND).fetchone() == (3,)


@pytest.mark.parametrize("length", [wire.MAX_REQUEST_BYTES + 1, 2**32 - 1])
def test_a_frame_that_is_too_long_is_refused_by_its_length_alone(daemon: Omld, length: int) -> None:
    with pytest.raises(keys.SignerError, match=f"a frame of {length} bytes, .* at most"):
        daemon.ask(length.to_bytes(4, "big"))


def test_requests_sent_in_one_go_or_byte_by_byte_are_answered_in_order(daemon: Omld) -> None:
    frame = wire.request(wire.KEYS)
    with daemon.connect() as connection:
        connection.sendall(frame * 3 + frame[:3])
        for _ in range(3):
            assert len(wire.read_answer(read_exactly(connection, 4 + 2 + 48))) == 48
        for byte in frame[3:]:
            connection.sendall(bytes((byte,)))
        assert len(wire.read_answer(read_exactly(connection, 4 + 2 + 48))) == 48


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Read a frame of this size; return it without its length."""
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        assert part
        received += part
    return received[4:]


def test_one_that_never_reads_its_answers_does_not_hold_others_up(daemon: Omld) -> None:
    with daemon.connect() as connection:
        connection.settimeout(0)
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            for _ in range(100_000):
                connection.send(wire.request(wire.KEYS))
        assert daemon.system.connect("app").execute(APPEND).fetchone() == (2,)


def test_connections_are_bounded_and_places_become_free_again(daemon: Omld) -> None:
    daemon.kill()
    daemon.start(env={"OML_SIGNER_CONNECTIONS": "5"})
    app = daemon.system.connect("app")
    with connections(daemon, 5):
        refused(app, "OM101")
        with pytest.raises(keys.SignerError) as caught:
            daemon.ask(wire.request(wire.KEYS))
        assert caught.value.sqlstate == "OM101"
    deadline = threading.Event()
    for _ in range(600):
        try:
            app.execute(APPEND)
            break
        except psycopg.Error as error:
            assert error.sqlstate == "OM101"
            deadline.wait(0.1)
    expect_chain(daemon.system, 2)


def test_idle_connections_stay_and_hundreds_come_and_go(daemon: Omld) -> None:
    with connections(daemon, 100) as held:
        for _ in range(300):
            daemon.connect().close()
        assert daemon.system.connect("app").execute(APPEND).fetchone() == (2,)
        for connection in held:
            connection.sendall(wire.request(wire.KEYS))
            assert wire.read_answer(read_frame(connection))


# --- what else it could be made to sign ------------------------------------------------------


def fields_of(daemon: Omld) -> dict[str, object]:
    """Return the fields of the last event of acme."""
    row = daemon.system.superuser.execute(
        "select j.envelope from oml.journal j join oml.tenant t using (tenant_id)"
        " where t.name = 'acme' order by j.seq desc limit 1"
    ).fetchone()
    assert row is not None
    return envelope.decode(bytes(row[0])).fields


def encode(fields: dict[str, object]) -> bytes:
    return envelope.encode_map(tuple(fields.get(f.column) for f in envelope.FIELDS))


def itself(payload: bytes, _daemon: Omld) -> bytes:
    return payload


def a_sig_structure(payload: bytes, daemon: Omld) -> bytes:
    header = cose.protected_header(envelope.CONTENT_TYPE, held_key(daemon).kid)
    return cose.to_be_signed(header, payload)


def a_sig_structure_of_another_content_type(payload: bytes, daemon: Omld) -> bytes:
    header = cose.protected_header("application/oml-checkpoint+cbor", held_key(daemon).kid)
    return cose.to_be_signed(header, payload)


def a_whole_envelope(payload: bytes, daemon: Omld) -> bytes:
    header = cose.protected_header(envelope.CONTENT_TYPE, held_key(daemon).kid)
    return cose.assemble(header, payload, bytes(64))


def of_another_deployment(payload: bytes, _daemon: Omld) -> bytes:
    return encode(envelope.decode_map(payload) | {"deployment_id": uuid4().bytes})


def of_another_version(payload: bytes, _daemon: Omld) -> bytes:
    return encode(envelope.decode_map(payload) | {"version": 2})


def with_trailing_bytes(payload: bytes, _daemon: Omld) -> bytes:
    return payload + b"\0"


def twice(payload: bytes, _daemon: Omld) -> bytes:
    return payload * 2


def cut_short(payload: bytes, _daemon: Omld) -> bytes:
    return payload[:-1]


def without_its_type(payload: bytes, _daemon: Omld) -> bytes:
    start = payload.index(cbor.text_string("ty"))
    end = start + len(cbor.text_string("ty") + cbor.text_string("job.done"))
    return bytes((payload[0] - 1,)) + payload[1:start] + payload[end:]


def with_a_long_head(payload: bytes, _daemon: Omld) -> bytes:
    """The same map, its count in two bytes where one is enough."""
    return bytes((0xB8, payload[0] & 31)) + payload[1:]


def with_an_indefinite_map(payload: bytes, _daemon: Omld) -> bytes:
    return b"\xbf" + payload[1:] + b"\xff"


def with_keys_out_of_order(payload: bytes, _daemon: Omld) -> bytes:
    deployment = cbor.text_string("d") + payload[3:20]
    assert payload[1:20] == deployment
    seq = cbor.text_string("n") + cbor.uint(2)
    assert payload[20 : 20 + len(seq)] == seq
    return payload[:1] + seq + deployment + payload[20 + len(seq) :]


def with_an_unknown_key(payload: bytes, _daemon: Omld) -> bytes:
    return bytes((payload[0] + 1,)) + payload[1:] + cbor.text_string("zz") + cbor.uint(1)


def with_a_huge_unknown_key(payload: bytes, _daemon: Omld) -> bytes:
    key = cbor.text_string("z" * 1_000_000)
    return bytes((payload[0] + 1,)) + payload[1:] + key + cbor.uint(1)


def text(_payload: bytes, _daemon: Omld) -> bytes:
    return b"I owe you 100 crowns."


def a_digest(_payload: bytes, _daemon: Omld) -> bytes:
    return bytes(range(32))


OTHER_BYTES = [
    *(a_sig_structure, a_sig_structure_of_another_content_type, a_whole_envelope),
    *(of_another_deployment, of_another_version, with_trailing_bytes, twice, cut_short),
    *(without_its_type, with_a_long_head, with_an_indefinite_map, with_keys_out_of_order),
    *(with_an_unknown_key, with_a_huge_unknown_key, text, a_digest),
]


@pytest.mark.parametrize("make", OTHER_BYTES, ids=lambda make: make.__name__)
def test_it_signs_nothing_but_well_formed_events_of_its_deployment(
    daemon: Omld, make: Callable[[bytes, Omld], bytes]
) -> None:
    daemon.system.connect("app").execute(APPEND)
    key, payload = held_key(daemon), encode(fields_of(daemon))
    with pytest.raises(keys.SignerError) as caught:
        daemon.ask(wire.request(wire.SIGN, key.kid, make(payload, daemon)))
    assert caught.value.sqlstate == "OM093"
    signature = daemon.ask(wire.request(wire.SIGN, key.kid, payload))
    header = cose.protected_header(envelope.CONTENT_TYPE, key.kid)
    assert signature == cose.signature(header, payload, key.secret_key)
    (logged,) = [message for message in daemon.end() if "refused a message" in message]
    assert len(logged) < 400


HEAD = struct.Struct(">8s16s16sIQ32s")


@pytest.mark.parametrize(
    "change",
    [
        {"deployment": bytes(16)}, {"generation": 0}, {"generation": 2**31}, {"size": 2**63},
        {"size": 2**64 - 1}, {"cut": 1}, {"more": b"\n"},
    ],
    ids=str,
)  # fmt: skip
def test_it_signs_no_checkpoint_but_those_of_logs_of_its_deployment(
    daemon: Omld, change: dict[str, Any]
) -> None:
    key, tenant = held_key(daemon), uuid4()

    def request(deployment: bytes, generation: int, size: int, cut: int, more: bytes) -> bytes:
        content = HEAD.pack(key.kid, deployment, tenant.bytes, generation, size, bytes(range(32)))
        return wire.request(wire.CHECKPOINT, content[cut:] + more)

    right: dict[str, Any] = {
        "deployment": daemon.deployment.bytes, "generation": 3, "size": 7, "cut": 0, "more": b""
    }  # fmt: skip
    with pytest.raises(keys.SignerError) as caught:
        daemon.ask(request(**(right | change)))
    assert caught.value.sqlstate == "OM093"
    head = note.TreeHead(daemon.deployment, tenant, 3, 7, bytes(range(32)))
    assert request(**right) == wire.checkpointing(key.kid, head)
    signature = daemon.ask(request(**right))
    assert signature == note.signed(head.text, key.secret_key)
    assert head.text.startswith(f"oml/{daemon.deployment}/{tenant}/3\n7\n")
    (_,) = [message for message in daemon.end() if "refused a message" in message]


def test_a_kid_that_it_does_not_hold_is_om034(daemon: Omld) -> None:
    daemon.system.connect("app").execute(APPEND)
    with pytest.raises(keys.SignerError) as caught:
        daemon.ask(wire.request(wire.SIGN, bytes(8), encode(fields_of(daemon))))
    assert caught.value.sqlstate == "OM034"


def test_a_daemon_of_another_deployment_signs_nothing_for_this_one(daemon: Omld) -> None:
    app = daemon.system.connect("app")
    daemon.kill()
    other = uuid4()
    daemon.start(env={"OML_DEPLOYMENT_ID": str(other)})
    message = refused(app, "OM093")
    assert str(daemon.deployment) in message and str(other) in message


def test_a_daemon_with_another_key_is_named_as_such(daemon: Omld) -> None:
    app = daemon.system.connect("app")
    app.execute(APPEND)
    key = held_key(daemon)
    daemon.kill()
    daemon.keys.clear()
    daemon.add_key("other.key")
    daemon.start()
    fresh = daemon.system.connect("app")
    for session in (app, fresh):
        assert key.kid.hex() in refused(session, "OM034")


# --- impostors -------------------------------------------------------------------------------


@contextlib.contextmanager
def impostor(path: Path, answer: Callable[[int, bytes], bytes]) -> Iterator[None]:
    """Serve a socket that the database may connect to, with answers of our own."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen()
    held: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while body := read_frame(connection):
                connection.sendall(answer(*wire.read_request(body)))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                held.append(listener.accept()[0])
                threads.append(threading.Thread(target=serve, args=(held[-1],)))
                threads[-1].start()

    threads = [threading.Thread(target=accept)]
    threads[0].start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in held:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        path.unlink()


def zeros(_daemon: Omld, _content: bytes) -> bytes:
    return bytes(64)


def by_a_key_of_its_own(_daemon: Omld, content: bytes) -> bytes:
    header = cose.protected_header(envelope.CONTENT_TYPE, content[:8])
    return cose.signature(header, content[8:], keys.from_seed(bytes(32)).secret_key)


def of_another_event(daemon: Omld, content: bytes) -> bytes:
    """A good signature of the deployment's own key, on something else."""
    header = cose.protected_header(envelope.CONTENT_TYPE, content[:8])
    return cose.signature(header, content[8:] + b" ", held_key(daemon).secret_key)


@pytest.mark.parametrize(
    "forge", [zeros, by_a_key_of_its_own, of_another_event], ids=lambda forge: forge.__name__
)
def test_a_signature_that_is_wrong_is_never_stored(
    daemon: Omld, forge: Callable[[Omld, bytes], bytes]
) -> None:
    app = daemon.system.connect("app")
    app.execute(APPEND)
    before = contents(daemon.system.superuser)
    daemon.end()
    public_key = held_key(daemon).public_key

    def answer(operation: int, content: bytes) -> bytes:
        if operation == wire.KEYS:
            return wire.answer(daemon.deployment.bytes + public_key)
        return wire.answer(forge(daemon, content))

    with impostor(daemon.socket, answer):
        refused(app, "OM094")
        refused(daemon.system.connect("app"), "OM094")
    assert contents(daemon.system.superuser) == before
    daemon.start()
    assert app.execute(APPEND).fetchone() == (3,)
    expect_chain(daemon.system, 3)


# --- slow batches ----------------------------------------------------------------------------

BATCH = (
    "select count(*) from oml_append_batch((select jsonb_agg("
    """'{"type": "job.done", "payload": {}}'::jsonb) from generate_series(1, %s)))"""
)


@dataclass
class Slow:
    """A system whose signer takes a twentieth of a second for each signature, and counts them."""

    system: System
    signed: int = 0


@pytest.fixture
def slow(daemon: Omld) -> Iterator[Slow]:
    """The daemon's place taken by a slow one."""
    daemon.end()
    slow = Slow(daemon.system)
    key = held_key(daemon)
    pause = threading.Event()

    def answer(operation: int, content: bytes) -> bytes:
        if operation == wire.KEYS:
            return wire.answer(daemon.deployment.bytes + key.public_key)
        pause.wait(0.05)
        slow.signed += 1
        header = cose.protected_header(envelope.CONTENT_TYPE, content[:8])
        return wire.answer(cose.signature(header, content[8:], key.secret_key))

    with impostor(daemon.socket, answer):
        yield slow


def expect_ended(slow: Slow) -> None:
    """Insist that the batch was ended long before its minute was up, and that the chain goes on."""
    assert slow.signed < 600
    assert slow.system.connect("app").execute(BATCH, (2,)).fetchone() == (2,)
    expect_chain(slow.system, 3)


def test_a_batch_over_a_slow_signer_ends_with_statement_timeout(slow: Slow) -> None:
    app = slow.system.connect("app")
    app.execute("set statement_timeout = '1s'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        app.execute(BATCH, (10_000,))
    expect_ended(slow)


@pytest.mark.parametrize(
    ("end", "state"), [("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")]
)
def test_a_batch_over_a_slow_signer_can_be_ended(slow: Slow, end: str, state: str) -> None:
    app = slow.system.connect("app")
    pid = app.info.backend_pid
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(app.execute, BATCH, (10_000,))
        held = (
            "select exists (select from pg_locks where pid = %s and relation::regclass::text"
            " = 'oml.chain_head' and mode = 'RowShareLock' and granted)"
        )
        while slow.system.superuser.execute(held, (pid,)).fetchone() != (True,):
            assert not running.done(), running.exception()
        assert slow.system.superuser.execute(f"select {end}(%s)", (pid,)).fetchone() == (True,)
        error = running.exception()
    assert isinstance(error, psycopg.Error) and error.sqlstate == state, error
    expect_ended(slow)


def test_the_events_of_a_batch_are_signed_in_time_or_none_is_stored(slow: Slow) -> None:
    system = slow.system
    system.bind(SUPERUSER, "acme")
    superuser = system.superuser
    superuser.execute(BATCH, (1,))
    superuser.execute(
        "create function pg_temp.set_deadline(s float8) returns void language plpython3u"
        " as 'import sys; sys.modules[\"_oml_core\"].signer.BATCH_DEADLINE_S = s'"
    )
    superuser.execute("select pg_temp.set_deadline(0.5)")
    message = refused(superuser, "OM092", BATCH.replace("%s", "10000"))
    assert "of 10000 events were signed within 0.5 s" in message
    superuser.execute("select pg_temp.set_deadline(60)")
    expect_chain(system, 2)


# --- one daemon a path -----------------------------------------------------------------------


def ended(process: subprocess.Popen[str]) -> str:
    """Wait until it ends of itself; insist on status 2 and return the error with its hint."""
    _, log = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, log
    last = json.loads(log.splitlines()[-1])
    assert last["hint"], log
    return f"{last['error']} {last['hint']}"


def test_a_second_daemon_on_the_same_path_ends_and_the_first_serves_on(daemon: Omld) -> None:
    app = daemon.system.connect("app")
    app.execute(APPEND)
    assert "another omld serves" in ended(daemon.launch())
    assert app.execute(APPEND).fetchone() == (3,)
    assert daemon.system.connect("app").execute(APPEND).fetchone() == (4,)
    assert stat.S_IMODE(daemon.socket.stat().st_mode) == 0o666


def test_what_is_no_socket_is_not_removed(daemon: Omld) -> None:
    daemon.end()
    daemon.socket.write_text("kept")
    assert "not a socket" in ended(daemon.launch())
    assert daemon.socket.read_text() == "kept"


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "no deployment": ({"OML_DEPLOYMENT_ID": ""}, "deployment_id"),
    "a bad deployment": ({"OML_DEPLOYMENT_ID": "acme"}, "deployment_id"),
    "no key": ({"OML_SIGNER_KEYS": "[]"}, "signer_keys"),
    "keys that are no list": ({"OML_SIGNER_KEYS": "file:/x"}, "JSON"),
    "a key that is missing": ({"OML_SIGNER_KEYS": '["file:/no/such.key"]'}, "does not exist"),
    "a key elsewhere": ({"OML_SIGNER_KEYS": '["unix:/run/oml/omld.sock"]'}, "not understood"),
    "a key of no mount": ({"OML_SIGNER_KEYS": '["vault:key"]'}, "not understood"),
    "a user who is not there": ({"OML_SIGNER_USERS": '["no-such-user"]'}, "no-such-user"),
    "a relative socket": ({"OML_SIGNER_SOCKET": "omld.sock"}, "signer_socket"),
    "a long socket": ({"OML_SIGNER_SOCKET": "/tmp/" + "x" * 120}, "signer_socket"),
}


@pytest.mark.parametrize(("env", "words"), WRONG.values(), ids=WRONG)
def test_wrong_settings_end_it_with_status_2_and_say_what_to_do(
    system: System, open_dir: Path, env: dict[str, str], words: str
) -> None:
    daemon = Omld(system, open_dir, uuid4())
    daemon.add_key("signing.key")
    assert words in ended(daemon.launch(env=env))


# --- beside the lake writer ------------------------------------------------------------------


def test_both_roles_run_by_default_where_a_key_is_set(daemon: Omld) -> None:
    system = daemon.system
    daemon.end()
    both = system.start_oml(
        "serve", "--json", env=daemon.environment({"OML_POLL_INTERVAL_S": "0.05"})
    )
    wait_for_log(both, "signing for deployment")
    app = system.connect("app")
    for _ in range(3):
        app.execute(APPEND)
    wait_until(system, f"select 1 from oml.frontier where seq >= {outbox_max(system)}")
    both.send_signal(signal.SIGTERM)
    _, log = both.communicate(timeout=PATIENCE_S)
    assert both.returncode == 0, log
    assert frontier(system) == outbox_max(system)
    drain(system)
    expect_exact(system)


def test_a_role_that_fails_for_good_ends_the_other_with_its_error(daemon: Omld) -> None:
    daemon.end()
    process = daemon.launch("signer", "lake-writer", env={"OML_DSN": "no such option"})
    ended(process)
    assert not daemon.socket.exists()


def test_the_signer_alone_asks_nothing_of_a_database_and_loads_no_lake(daemon: Omld) -> None:
    daemon.end()
    daemon.start(env={"OML_DSN": "no such option"})
    assert daemon.process is not None
    maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
    assert "deltalake" not in maps and "pyarrow" not in maps
    daemon.end()


def test_it_leaves_no_core_dump_and_cannot_be_traced_by_its_user(daemon: Omld) -> None:
    assert daemon.process is not None
    limits = Path(f"/proc/{daemon.process.pid}/limits").read_text().splitlines()
    core = next(line for line in limits if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
    code = (
        "import ctypes; from oml.daemon.signer import harden; harden();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


# --- genesis and rotation --------------------------------------------------------------------


@pytest.fixture
def empty(system: System) -> Iterator[Connection]:
    """A superuser's session in a database with the extension and no genesis."""
    name = sql.Identifier(f"{system.database}_empty")
    system.superuser.execute(sql.SQL("create database {}").format(name))
    try:
        dsn = system.cluster.dsn(dbname=f"{system.database}_empty")
        with connect(dsn, autocommit=True) as connection:
            connection.execute("create extension oml cascade")
            yield connection
    finally:
        system.superuser.execute(sql.SQL("drop database {} with (force)").format(name))


GENESIS = "select oml_genesis('acme-prod', signer => %s)"


def test_genesis_takes_deployment_and_root_key_from_the_daemon(
    system: System, open_dir: Path, empty: Connection
) -> None:
    deployment = uuid4()
    daemon = Omld(system, open_dir, deployment)
    root = read_key(daemon.add_key("signing.key"))
    daemon.start()
    assert empty.execute(GENESIS, (daemon.url,)).fetchone() == (deployment,)
    assert empty.execute("select oml.deployment_id()").fetchone() == (str(deployment),)
    empty.execute("select oml_create_tenant('acme')")
    verdicts = empty.execute("select name, ok from oml.tenant, oml_verify_chain(name)").fetchall()
    assert sorted(verdicts) == [("acme", True), ("provider", True)]
    done = system.oml("verify", "--root-key", root.public_key.hex(), "--dsn", empty.info.dsn)
    assert done.returncode == 0, done.stdout + done.stderr


def test_genesis_needs_one_key_and_leaves_nothing_when_it_is_refused(
    system: System, open_dir: Path, empty: Connection
) -> None:
    daemon = Omld(system, open_dir, uuid4())
    held = [read_key(daemon.add_key(name)) for name in ("one.key", "two.key")]
    daemon.start()
    refuse = f"select oml_genesis('acme-prod', signer => '{daemon.url}')"
    assert "2 keys" in refused(empty, "OM038", refuse)
    assert empty.execute("select to_regclass('oml.journal')").fetchone() == (None,)
    for key in held:
        found = empty.execute(
            "select oml.signer_public_key(%s, %s)", (daemon.url, key.kid)
        ).fetchone()
        assert found == (key.public_key,)
    other = f"select oml.signer_public_key('{daemon.url}', '\\x{bytes(8).hex()}')"
    assert held[0].kid.hex() in refused(empty, "OM039", other)
    daemon.end()
    refused(empty, "OM090", refuse)


def test_a_second_key_beside_the_first_changes_nothing_for_appends(daemon: Omld) -> None:
    app = daemon.system.connect("app")
    app.execute(APPEND)
    daemon.kill()
    second = daemon.add_key("next.key")
    daemon.start()
    app.execute(APPEND)
    second.unlink()  # one key that is away does not keep the other from signing
    app.execute(APPEND)
    daemon.system.connect("app").execute(APPEND)
    expect_chain(daemon.system, 5)


# --- data keys -------------------------------------------------------------------------------


def test_data_keys_are_wrapped_through_the_socket(daemon: Omld) -> None:
    kek = f"{uuid4()}.1"
    missing = wire.wrapping(wire.WRAP, kek, b"secret", b"aad")
    with pytest.raises(keys.SignerError) as caught:
        daemon.ask(missing)
    assert caught.value.sqlstate == "OM098"
    wrapped = daemon.ask(wire.wrapping(wire.FIRST_WRAP, kek, b"secret", b"aad"))
    again = daemon.ask(wire.wrapping(wire.WRAP, kek, b"secret", b"aad"))
    assert daemon.ask(wire.wrapping(wire.UNWRAP, kek, again, b"aad")) == b"secret"
    assert daemon.ask(wire.wrapping(wire.UNWRAP, kek, wrapped, b"aad")) == b"secret"
    refusals = {
        "OM096": wire.wrapping(wire.WRAP, "../signing", b"secret", b""),
        "OM097": wire.wrapping(wire.WRAP, kek, bytes(wire.MAX_SECRET_BYTES + 1), b""),
        "OM098": wire.wrapping(wire.UNWRAP, f"{uuid4()}.1", wrapped, b"aad"),
        "OM099": wire.wrapping(wire.UNWRAP, kek, wrapped, b"another"),
    }
    for sqlstate, frame in refusals.items():
        with pytest.raises(keys.SignerError) as caught:
            daemon.ask(frame)
        assert caught.value.sqlstate == sqlstate
    daemon.kill()
    daemon.start()
    assert daemon.ask(wire.wrapping(wire.UNWRAP, kek, wrapped, b"aad")) == b"secret"
