"""Keys: issued, retired and rotated, with writers under way, and what a verifier says of it."""

import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import IsolationLevel, errors

from lakes import KIND, PATIENCE_S, append, prepare, value
from oml.core import keys
from systems import Connection, System

RING = "select kid, purpose, state from oml_keys()"
ROTATE = "select oml_rotate_signing_key(%s)"


def make_key(system: System, name: str) -> tuple[str, str]:
    """Make a key file that the server's user may read; return its signer and kid in hex."""
    path = system.key_file.parent / f"{system.database}-{name}.key"
    owner = system.cluster.account
    public_key = keys.generate(str(path), owner.uid, owner.gid)
    return f"file:{path}", keys.kid(public_key).hex()


def kids(system: System, tenant: str) -> list[str]:
    """Return the key of each event of a chain, in order."""
    rows = system.superuser.execute(
        "select encode(j.kid, 'hex') from oml.journal j join oml.tenant t using (tenant_id)"
        " where t.name = %s order by j.seq",
        (tenant,),
    )
    return [kid for (kid,) in rows.fetchall()]


def root(system: System) -> str:
    """Return the kid of the root key."""
    return str(value(system.superuser, "select kid from oml_keys() where purpose = 'root'"))


def expect_verified(system: System) -> None:
    """Insist that the command line and the database prove every chain."""
    done = system.oml("verify", "--json", "--root-key", root_key(system))
    assert done.returncode == 0, done.stdout + done.stderr
    for (tenant,) in system.superuser.execute("select name from oml.tenant").fetchall():
        row = system.superuser.execute(
            "select ok, fault, reason from oml_verify_chain(%s)", (tenant,)
        ).fetchone()
        assert row == (True, None, None), tenant


def root_key(system: System) -> str:
    """Return the root public key in hex, as an operator keeps it."""
    return str(value(system.superuser, "select public_key from oml_keys() where purpose = 'root'"))


def waiting(system: System, query: str) -> None:
    """Wait until a session waits for a lock in a query like this one."""
    deadline = time.monotonic() + PATIENCE_S
    looks_like = (
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock' and query like %s"
    )
    while not value(system.superuser, looks_like, query):
        assert time.monotonic() < deadline, f"nobody waits in {query}"
        time.sleep(0.01)


def test_old_events_verify_after_a_rotation(system: System) -> None:
    app = prepare(system, "acme", "globex")
    append(app, 2, "acme")
    before = root(system)
    signer, after = make_key(system, "second")
    assert value(system.superuser, ROTATE, signer) == after
    append(app, 2, "acme")
    append(app, 1, "globex")
    system.make("initech")
    assert kids(system, "acme") == [before] * 3 + [after] * 2
    assert kids(system, "globex") == [before, after]
    assert kids(system, "initech") == [after]
    assert system.superuser.execute(RING).fetchall() == [
        (before, "root", "retired"),
        (after, "signing", "in force"),
    ]
    expect_verified(system)


def test_rotations_follow_each_other(system: System) -> None:
    app = prepare(system)
    for name in ("second", "third", "fourth"):
        signer, kid = make_key(system, name)
        value(system.superuser, ROTATE, signer)
        append(app)
        system.make(f"tenant-{name}")
        assert kids(system, "acme")[-1] == kid
    assert len(set(kids(system, "acme"))) == 4
    expect_verified(system)


def test_the_last_seqs_of_many_chains_take_several_pages(system: System) -> None:
    app = prepare(system)
    system.superuser.execute(
        "select count(oml_create_tenant('t' || i)) from generate_series(1, 600) i"
    )
    value(system.superuser, ROTATE, make_key(system, "second")[0])
    append(app)
    pages = system.superuser.execute(
        "select payload->'page', payload->'pages',"
        " (select count(*) from jsonb_object_keys(payload->'last'))"
        " from oml.journal where type = 'key.retired' order by seq"
    ).fetchall()
    assert pages == [(1, 2, 400), (2, 2, 201)]
    done = system.oml("verify", "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)["chains"]) == 602


def rotation_behind(
    system: System, pool: ThreadPoolExecutor, holder: Connection, signer: str
) -> Future[object]:
    """Start a rotation that waits for the transaction of ``holder``."""
    rotator = system.connect("postgres")
    rotation = pool.submit(value, rotator, ROTATE, signer)
    waiting(system, "%oml_rotate_signing_key%")
    return rotation


def test_an_append_that_waits_for_a_rotation_signs_with_the_new_key(system: System) -> None:
    app = prepare(system)
    before = root(system)
    signer, after = make_key(system, "second")
    holder = system.connect("app", autocommit=False)
    append(holder)
    with ThreadPoolExecutor(2) as pool:
        rotation = rotation_behind(system, pool, holder, signer)
        late = pool.submit(append, app)
        waiting(system, "%oml_append%")
        holder.commit()
        assert rotation.result(PATIENCE_S) == after
        late.result(PATIENCE_S)
    assert kids(system, "acme") == [before, before, after]
    expect_verified(system)


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_a_snapshot_from_before_a_rotation_signs_nothing(
    system: System, level: IsolationLevel
) -> None:
    prepare(system)
    old = system.connect("app", autocommit=False)
    old.isolation_level = level
    old.execute("select count(*) from pg_catalog.pg_class")
    _, after = made = make_key(system, "second")
    value(system.superuser, ROTATE, made[0])
    with pytest.raises(errors.SerializationFailure):
        append(old)
    old.rollback()
    append(old)
    old.commit()
    assert kids(system, "acme")[-1] == after
    expect_verified(system)


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_a_rotation_needs_read_committed(system: System, level: IsolationLevel) -> None:
    prepare(system)
    rotator = system.connect("postgres", autocommit=False)
    rotator.isolation_level = level
    with pytest.raises(psycopg.Error) as refused:
        value(rotator, ROTATE, make_key(system, "second")[0])
    assert refused.value.sqlstate == "OM129"


def test_a_rotation_does_not_freeze_the_deployment_for_one_open_append(system: System) -> None:
    app = prepare(system, "acme", "globex")
    holder = system.connect("app", autocommit=False)
    append(holder, 1, "globex")
    with ThreadPoolExecutor(1) as pool:
        signer, _ = make_key(system, "second")
        rotation = rotation_behind(system, pool, holder, signer)
        append(app, 1, "acme")  # waits until the rotation has given up
        with pytest.raises(psycopg.Error) as given_up:
            rotation.result(PATIENCE_S)
    assert given_up.value.sqlstate == "OM119"
    holder.commit()
    assert set(kids(system, "acme") + kids(system, "globex")) == {root(system)}
    expect_verified(system)


def test_the_time_for_all_locks_of_a_rotation_is_one(system: System) -> None:
    names = ("acme", "globex", "initech")
    prepare(system, *names)
    holders = [system.connect("app", autocommit=False) for _ in names]
    for holder, tenant in zip(holders, names, strict=True):
        append(holder, 1, tenant)
    with ThreadPoolExecutor(1) as pool:
        rotation = rotation_behind(system, pool, holders[0], make_key(system, "second")[0])
        for holder in holders:  # each is let go well before the limit of a single wait
            time.sleep(2.5)
            holder.commit()
        with pytest.raises(psycopg.Error) as given_up:
            rotation.result(PATIENCE_S)
    assert given_up.value.sqlstate == "OM119"
    expect_verified(system)


def test_a_tenant_created_while_a_rotation_waits_is_rotated_too(system: System) -> None:
    app = prepare(system)
    before = root(system)
    signer, after = make_key(system, "second")
    creator = system.connect("postgres", autocommit=False)
    value(creator, "select oml_create_tenant('newborn')")
    value(creator, "select oml_grant('app', 'newborn')")
    with ThreadPoolExecutor(1) as pool:
        rotation = rotation_behind(system, pool, creator, signer)
        creator.commit()
        rotation.result(PATIENCE_S)
    append(app, 1, "newborn")
    assert kids(system, "newborn") == [before, after]
    last = value(
        system.superuser,
        "select payload->'last'->(select tenant_id::text from oml.tenant where name = 'newborn')"
        " from oml.journal where type = 'key.retired'",
    )
    assert last[0] == 1
    expect_verified(system)


def test_a_rotation_that_is_rolled_back_never_was(system: System) -> None:
    app = prepare(system)
    before = root(system)
    rotator = system.connect("postgres", autocommit=False)
    value(rotator, ROTATE, make_key(system, "second")[0])
    append_in_it = "select oml_create_tenant('within')"
    value(rotator, append_in_it)
    rotator.rollback()
    append(app)
    assert set(kids(system, "acme")) == {before}
    assert system.superuser.execute(RING).fetchall() == [(before, "root", "in force")]
    expect_verified(system)


def test_what_follows_a_rotation_in_its_transaction_is_signed_by_the_new_key(
    system: System,
) -> None:
    prepare(system)
    signer, after = make_key(system, "second")
    rotator = system.connect("postgres", autocommit=False)
    value(rotator, ROTATE, signer)
    value(rotator, "select oml_create_tenant('within')")
    rotator.commit()
    assert kids(system, "within") == [after]
    expect_verified(system)


def test_rotations_under_writers_lose_nothing_and_break_no_chain(system: System) -> None:
    tenants = ("acme", "globex", "initech")
    prepare(system, *tenants)
    signers = [make_key(system, f"number-{n}")[0] for n in range(6)]
    stop = threading.Event()
    batch = json.dumps([{"type": KIND, "payload": {"n": n}} for n in range(20)])

    def write(tenant: str) -> int:
        written = 0
        with psycopg.connect(system.dsn("app"), autocommit=True) as connection:
            while not stop.is_set():
                append(connection, 1, tenant)
                with connection.transaction():
                    connection.execute("select oml_use(%s)", (tenant,))
                    connection.execute("select count(*) from oml_append_batch(%s)", (batch,))
                written += 21
        return written

    def found() -> int:
        """Make tenants and append to each at once: a rotation must not overlook a newborn."""
        born = 0
        with (
            psycopg.connect(system.dsn("postgres"), autocommit=True) as founder,
            psycopg.connect(system.dsn("app"), autocommit=True) as connection,
        ):
            while not stop.is_set():
                with founder.transaction():
                    value(founder, "select oml_create_tenant(%s)", f"born-{born}")
                    value(founder, "select oml_grant('app', %s)", f"born-{born}")
                append(connection, 1, f"born-{born}")
                born += 1
        return born

    with ThreadPoolExecutor(4) as pool:
        writers = {t: pool.submit(write, t) for t in tenants}
        founder = pool.submit(found)
        try:
            for signer in signers:
                value(system.superuser, ROTATE, signer)
        finally:
            stop.set()
        written = {t: future.result(PATIENCE_S) for t, future in writers.items()}
        written |= {f"born-{n}": 1 for n in range(founder.result(PATIENCE_S))}
    for tenant, count in written.items():
        assert len(kids(system, tenant)) == count + 1
    expect_verified(system)


@pytest.mark.parametrize(
    ("signer", "sqlstate"),
    [
        ("file:/nowhere/second.key", "OM030"),
        ("ftp:/second.key", "OM036"),
        (None, "OM127"),
    ],
)
def test_a_signer_that_cannot_take_over_changes_nothing(
    system: System, signer: str | None, sqlstate: str
) -> None:
    app = prepare(system)
    with pytest.raises(psycopg.Error) as refused:
        value(system.superuser, ROTATE, signer)
    assert refused.value.sqlstate == sqlstate
    append(app)
    assert set(kids(system, "acme")) == {root(system)}
    expect_verified(system)


def test_a_retired_key_does_not_come_back(system: System) -> None:
    app = prepare(system)
    first = f"file:{system.key_file}"
    value(system.superuser, ROTATE, make_key(system, "second")[0])
    with pytest.raises(psycopg.Error) as refused:
        value(system.superuser, ROTATE, first)
    assert refused.value.sqlstate == "OM128"
    with pytest.raises(psycopg.Error) as refused:
        system.superuser.execute("select oml_configure('signer', %s)", (first,))
    assert refused.value.sqlstate == "OM039"
    append(app)
    expect_verified(system)


def test_keys_on_the_command_line(system: System, tmp_path: Path) -> None:
    prepare(system)
    system.bind("app", "acme", ("submit", "append"))

    def oml(*arguments: str, status: int = 0) -> dict[str, object]:
        done = system.oml("keys", *arguments, "--json")
        assert done.returncode == status, done.stdout + done.stderr
        found = json.loads(done.stdout if status == 0 else done.stderr)
        assert isinstance(found, dict)
        return found

    made = oml("generate", "--out", str(tmp_path / "writer.key"))
    whose = ("--tenant", "acme", "--principal", "app")
    issued = oml("issue", str(made["public_key"]), *whose)
    assert issued["kid"] == made["kid"] and issued["purpose"] == "writer"
    assert oml("issue", str(made["public_key"]), *whose, status=2)["sqlstate"] == "OM124"
    assert oml("issue", "ab", *whose, status=2)["sqlstate"] is None
    nobody = ("--tenant", "acme", "--principal", "nobody")
    assert oml("issue", "ab" * 32, *nobody, status=2)["sqlstate"] == "OM123"
    assert oml("issue", "ab" * 32, status=2)["sqlstate"] == "OM122"
    assert oml("issue", "ab" * 32, "--purpose", "root", status=2)["sqlstate"] == "OM121"
    standby = oml("issue", "cd" * 32, "--purpose", "signing")
    assert oml("retire", str(standby["kid"])) == {
        "kid": standby["kid"],
        "retired": True,
        "retired_before": False,
    }
    assert oml("retire", str(standby["kid"]))["retired_before"] is True
    assert oml("retire", "0" * 16, status=2)["sqlstate"] == "OM125"
    signer, second = make_key(system, "second")
    assert oml("rotate-signing", "--signer", signer)["kid"] == second
    assert oml("retire", second, status=2)["sqlstate"] == "OM126"
    listed = oml("list")["keys"]
    assert isinstance(listed, list)
    assert [(k["kid"], k["purpose"], k["state"], k["principal"]) for k in listed] == [
        (root(system), "root", "retired", None),
        (made["kid"], "writer", "in force", "app"),
        (standby["kid"], "signing", "retired", None),
        (second, "signing", "in force", None),
    ]
    journalled = system.superuser.execute(
        "select type, payload->>'kid', payload->>'purpose' from oml.journal"
        " where type like 'key.%' order by seq"
    ).fetchall()
    assert journalled == [
        ("key.issued", root(system), "root"),
        ("key.issued", made["kid"], "writer"),
        ("key.issued", standby["kid"], "signing"),
        ("key.retired", standby["kid"], "signing"),
        ("key.issued", second, "signing"),
        ("key.retired", root(system), "signing"),
        ("key.rotated", second, None),
    ]
    expect_verified(system)
