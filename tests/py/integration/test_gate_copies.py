"""The gate's copies of settings when a change and an opening meet: the newer value stays.

And the guard of commits, which follows the profile.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from clusters import Quorum
from lakes import append, prepare, value
from oml.dev.cluster import SUPERUSER
from systems import Connection, System

RC, RR, SER = (
    IsolationLevel.READ_COMMITTED,
    IsolationLevel.REPEATABLE_READ,
    IsolationLevel.SERIALIZABLE,
)
LEVELS = [
    pytest.param(RC, id="read committed"),
    pytest.param(RR, id="repeatable read"),
    pytest.param(SER, id="serializable"),
]
SNAPSHOTS = LEVELS[1:]
CONFIGURE = "select oml_configure('signer', %s)"
UPDATE = "update oml.setting set value = %s where name = 'signer'"
CHANGES = [pytest.param(CONFIGURE, id="oml_configure"), pytest.param(UPDATE, id="update")]


@pytest.fixture
def closed(system: System) -> System:
    """A system with tenant acme whose gate a first append may open."""
    prepare(system)
    system.forget_places()
    system.superuser.execute("delete from oml.gate")
    return system


def other_signer(system: System) -> str:
    """Return another name of the signing key."""
    return f"file:{system.key_file.parent}/./{system.key_file.name}"


def connect(system: System, user: str, level: IsolationLevel) -> Connection:
    """Connect with explicit transactions of this level, one of which has its snapshot."""
    connection = system.connect(user, autocommit=False)
    connection.isolation_level = level
    connection.execute("select count(*) from pg_catalog.pg_class")
    return connection


def expect_copies(connection: Connection, signer: str) -> None:
    """Insist that the gate is open and its copies are what the settings say."""
    found = connection.execute(
        "select g.signer, g.deployment_id::text, g.profile from oml.gate g"
    ).fetchall()
    rows = connection.execute("select name, value from oml.setting").fetchall()
    wanted: dict[str, str] = dict(rows)
    assert wanted["signer"] == signer
    assert found == [(signer, wanted["deployment_id"], wanted["profile"])]


@contextmanager
def waiting(
    superuser: Connection, waiter: Connection, holder: Connection, do: Callable[[], Any]
) -> Iterator[Future[Any]]:
    """Run ``do`` on the waiter in a thread; it waits for the holder when this yields."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(do)
        pids = (holder.info.backend_pid, waiter.info.backend_pid)
        while not value(superuser, "select %s = any (pg_blocking_pids(%s))", *pids):
            assert not future.done(), future.exception()
        yield future


# -- a change and an opening -------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_change_while_the_gate_is_being_opened_is_copied_when_the_opening_ends(
    closed: System, change: str, ends: str
) -> None:
    signer = other_signer(closed)
    opener = closed.connect("app", autocommit=False)
    append(opener)
    changer = connect(closed, SUPERUSER, RC)

    def configure() -> None:
        changer.execute(change.encode(), (signer,))
        changer.commit()

    with waiting(closed.superuser, changer, opener, configure) as done:
        getattr(opener, ends)()
        done.result()
    append(closed.connect("app"))
    expect_copies(closed.superuser, signer)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_gate_that_is_opened_while_a_change_is_on_its_way_has_what_it_ends_with(
    closed: System, change: str, ends: str
) -> None:
    old = value(closed.superuser, "select value from oml.setting where name = 'signer'")
    signer = other_signer(closed)
    changer = connect(closed, SUPERUSER, RC)
    changer.execute(change.encode(), (signer,))
    append(closed.connect("app"))  # waits for nobody, and leaves the opening to others
    assert value(closed.superuser, "select count(*) from oml.gate") == 0
    getattr(changer, ends)()
    append(closed.connect("app"))
    expect_copies(closed.superuser, signer if ends == "commit" else old)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("level", LEVELS)
def test_an_opening_under_a_snapshot_from_before_a_change_copies_nothing_old(
    closed: System, level: IsolationLevel, change: str
) -> None:
    signer = other_signer(closed)
    opener = connect(closed, "app", level)
    closed.superuser.execute(change.encode(), (signer,))
    if level != RC:
        with pytest.raises(psycopg.errors.SerializationFailure):
            append(opener)
        opener.rollback()
    append(opener)
    opener.commit()
    expect_copies(closed.superuser, signer)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("level", LEVELS)
def test_a_change_under_a_snapshot_from_before_the_opening_is_copied_or_refused(
    closed: System, level: IsolationLevel, change: str
) -> None:
    signer = other_signer(closed)
    changer = connect(closed, SUPERUSER, level)
    append(closed.connect("app"))
    if level != RC:
        with pytest.raises(psycopg.errors.SerializationFailure):
            changer.execute(change.encode(), (signer,))
        changer.rollback()
    changer.execute(change.encode(), (signer,))
    changer.commit()
    expect_copies(closed.superuser, signer)


@pytest.mark.parametrize("level", SNAPSHOTS)
def test_an_append_under_a_snapshot_from_before_a_change_goes_by_its_snapshot(
    system: System, level: IsolationLevel
) -> None:
    prepare(system)
    app = connect(system, "app", level)
    system.superuser.execute(UPDATE.encode(), ("file:/nowhere/signing.key",))
    append(app)
    app.commit()
    with pytest.raises(psycopg.Error) as caught:
        append(app)
    assert caught.value.sqlstate == "OM030"


def test_a_profile_configured_while_the_gate_is_being_opened_waits_and_does_not_deadlock(
    closed: System,
) -> None:
    """Both take the instance's lock first, then the journal's."""
    closed.bind(SUPERUSER, "acme")
    opener = closed.connect(SUPERUSER, autocommit=False)
    changer = closed.connect(SUPERUSER, autocommit=False)
    opener.execute("select oml.open_gate('{}')")

    def configure() -> None:
        changer.execute("select oml_configure('profile', 'local')")
        changer.commit()

    with waiting(closed.superuser, changer, opener, configure) as done:
        append(opener)
        opener.commit()
        done.result()
    expect_copies(
        closed.superuser,
        value(closed.superuser, "select value from oml.setting where name = 'signer'"),
    )


# -- a session that says it has loaded the core ------------------------------------------------


@pytest.mark.parametrize("said", ["on", "off", ""])
def test_a_fresh_session_that_says_what_it_has_loaded_appends_like_any_other(
    system: System, said: str
) -> None:
    prepare(system)
    for verb in (
        "select seq from oml_append('note.added', '{}', entity_type => 'n', entity_id => '1')",
        'select seq from oml_append_batch(\'[{"type": "note.added", "payload": {},'
        ' "entity_type": "n", "entity_id": "1"}]\')',
    ):
        app = system.connect("app")
        app.execute("select set_config('oml.core_loaded', %s, false)", (said,))
        seq = value(app, verb)
        queued = "select count(*) from oml.outbox join oml.tenant using (tenant_id)"
        assert value(system.superuser, queued + " where name = 'acme' and chain_seq = %s", seq) == 1
    assert value(system.superuser, "select event_count from oml.entity") == 2
    assert value(system.superuser, "select ok from oml_verify_chain('acme')")


# -- the guard of commits ----------------------------------------------------------------------


def guard(connection: Connection) -> str:
    """Return how the guard of commits is enabled: A always, D not at all."""
    found = value(connection, "select tgenabled from pg_trigger where tgname = 'guard_commit'")
    return str(found)


def test_the_guard_of_commits_follows_the_profile(shared_trio: Quorum) -> None:
    owner = shared_trio.connect()
    assert guard(owner) == "D"
    for profile, enabled in (("production", "A"), ("production", "A"), ("local", "D")):
        owner.execute("select oml_configure('profile', %s)", (profile,))
        assert guard(owner) == enabled
        owner.execute("select oml_attach()")
        assert guard(owner) == enabled
    owner.execute("begin")
    owner.execute("select oml_configure('profile', 'production')")
    owner.execute("rollback")
    assert (guard(owner), value(owner, "select profile from oml.gate")) == ("D", "local")
    # A profile that was set behind the verb's back is followed from oml_attach on.
    for profile, enabled in (("production", "A"), ("local", "D")):
        owner.execute("update oml.setting set value = %s where name = 'profile'", (profile,))
        owner.execute("select oml_attach()")
        assert guard(owner) == enabled


def _app(trio: Quorum) -> Connection:
    owner = trio.connect()
    owner.execute("select oml_create_tenant('acme')")
    owner.execute("select oml_grant('app', 'acme')")
    owner.execute("select oml_register_event_type('note.added')")
    return trio.connect(user="app", autocommit=False)


def test_an_append_that_waits_for_the_profile_is_guarded_by_it(shared_trio: Quorum) -> None:
    app, watcher = _app(shared_trio), shared_trio.connect()
    changer = shared_trio.connect(autocommit=False)
    append(app)  # what the session has planned before
    app.commit()
    changer.execute("select oml_configure('profile', 'production')")
    with waiting(watcher, app, changer, lambda: append(app)) as done:
        changer.commit()
        done.result()
    app.execute("set local synchronous_commit = off")
    with pytest.raises(psycopg.Error) as caught:
        app.commit()
    assert caught.value.sqlstate == "OM182"
    assert value(watcher, "select count(*) from oml.journal where type = 'note.added'") == 1


def test_a_profile_waits_for_the_appends_that_are_not_guarded_by_it(shared_trio: Quorum) -> None:
    app, watcher = _app(shared_trio), shared_trio.connect()
    changer = shared_trio.connect(autocommit=False)
    append(app)
    app.execute("set local synchronous_commit = off")

    def configure() -> None:
        changer.execute("select oml_configure('profile', 'production')")
        changer.commit()

    with waiting(watcher, changer, app, configure) as done:
        app.commit()
        done.result()
    assert guard(watcher) == "A"
    append(app)
    app.execute("set local synchronous_commit = off")
    with pytest.raises(psycopg.Error) as caught:
        app.commit()
    assert caught.value.sqlstate == "OM182"


@pytest.mark.parametrize("constraints", ["deferred", "immediate"])
@pytest.mark.parametrize("level", LEVELS)
def test_production_takes_and_guards_appends_of_every_isolation_level(
    shared_trio: Quorum, level: IsolationLevel, constraints: str
) -> None:
    app, owner = _app(shared_trio), shared_trio.connect()
    owner.execute("select oml_configure('profile', 'production')")
    app.isolation_level = level
    app.execute(f"set constraints all {constraints}".encode())
    append(app, 2)
    app.commit()
    append(app)
    app.execute("set local synchronous_commit = local")
    if constraints == "deferred":
        with pytest.raises(psycopg.Error) as caught:
            app.commit()
        assert caught.value.sqlstate == "OM182"
    seqs = "select array_agg(seq order by seq) from oml.journal where type = 'note.added'"
    assert value(owner, seqs) == [2, 3]
    assert value(owner, "select ok from oml_verify_chain('acme')")


@pytest.mark.parametrize("level", ["on", "off"])
def test_a_transaction_that_appended_may_change_the_profile_and_is_guarded_till_then(
    shared_trio: Quorum, level: str
) -> None:
    owner, watcher = shared_trio.connect(autocommit=False), shared_trio.connect()
    owner.execute("select oml_configure('profile', 'production')")
    owner.execute("select oml_create_tenant('acme')")
    owner.execute(f"set local synchronous_commit = {level}".encode())
    if level == "off":
        with pytest.raises(psycopg.Error) as caught:
            owner.execute("select oml_configure('profile', 'local')")
        assert caught.value.sqlstate == "OM182"
        owner.rollback()
    else:
        owner.execute("select oml_configure('profile', 'local')")
        owner.execute("select oml_configure('profile', 'production')")
        owner.execute("select oml_create_tenant('globex')")
        owner.execute("set local synchronous_commit = off")
        with pytest.raises(psycopg.Error) as caught:
            owner.commit()
        assert caught.value.sqlstate == "OM182", "what comes later is asked at the commit again"
    assert value(watcher, "select count(*) from oml.tenant") == 1
    assert guard(watcher) == "D"
