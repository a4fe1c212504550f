"""Submissions side by side, through crashes, dumps and standbys, and under whoever tampers."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors

from clusters import Quorum, until
from lakes import drain, expect_exact, value, wait_for_restart
from oml.core import body
from oml.dev.cluster import SUPERUSER
from oml.driver.connection import connect
from oml.errors import DatabaseError
from omld import Omld
from restores import custom, drop_database, make_database
from submissions import (
    WORKAREA,
    Office,
    call,
    data_key,
    fetched,
    outcome,
    sealed,
    submit,
)
from systems import Connection, System

SERVE = "select count(*) from oml_review_serve(%s)"
VERDICT = "select oml_verdict(%s, 'approve')"
PROMOTE = "select oml_promote(%s)"


@pytest.fixture
def office(system: System) -> Office:
    """An office in a database of the session's cluster."""
    return Office(system)


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Run acts in threads that begin together; return what each returned."""
    barrier = threading.Barrier(len(acts))

    def act(number: int) -> Any:
        barrier.wait()
        return acts[number]()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(act, range(len(acts))))


def grown(acknowledged: list[Any], size: int) -> bool:
    """Tell whether so many are acknowledged."""
    return len(acknowledged) >= size


# --- at once -----------------------------------------------------------------------------------


def test_of_two_verdicts_at_once_one_counts(office: Office) -> None:
    second = office.system.connect("second_reviewer")
    for number in range(10):
        artifact = office.submit(b"note %d" % number)
        for one in (office.reviewer, second):
            one.execute(SERVE, (artifact,))
        found = at_once(
            partial(outcome, office.reviewer, VERDICT, artifact),
            partial(outcome, second, "select oml_verdict(%s, 'reject', 'no')", artifact),
        )
        assert sorted(map(str, found)) == ["None", "OM216"]
    office.expect_whole()


def test_of_two_promotions_at_once_one_counts(office: Office) -> None:
    other = office.system.connect("chief")
    for number in range(10):
        artifact = office.submit(b"note %d" % number)
        office.approve(artifact)
        found = at_once(
            partial(outcome, office.chief, PROMOTE, artifact),
            partial(outcome, other, PROMOTE, artifact),
        )
        assert sorted(map(str, found)) == ["None", "OM219"]
    office.expect_whole()
    targets = "select count(*) from oml.outbox where target = 'bodies'"
    assert value(office.system.superuser, targets) == 10


def test_a_verdict_beside_a_resubmission_is_on_what_was_served(office: Office) -> None:
    for number in range(10):
        artifact = office.submit(b"note %d" % number)
        office.reviewer.execute(SERVE, (artifact,))
        judged, _ = at_once(
            partial(outcome, office.reviewer, VERDICT, artifact),
            partial(submit, office.author, b"better", artifact=artifact),
        )
        assert judged in (None, "OM221")
        query = (
            "select version from oml.artifact_version where state <> 'held' and artifact_id = %s"
        )
        approved = office.system.superuser.execute(query, (artifact,)).fetchall()
        assert approved == ([(1,)] if judged is None else [])
    office.expect_whole()


def test_two_resubmissions_at_once_make_two_versions_or_one(office: Office) -> None:
    other = office.system.connect("author")
    artifact = office.submit(b"first")
    made = 1

    def again(connection: Connection) -> str | None:
        try:
            submit(connection, b"again", artifact=artifact)
        except psycopg.Error as error:
            return error.sqlstate
        return None

    for _ in range(10):
        found = at_once(lambda: again(office.author), lambda: again(other))
        assert set(found) <= {None, "40001"} and None in found
        made += found.count(None)
    query = "select array_agg(version order by version) from oml.artifact_version"
    assert value(office.system.superuser, query) == list(range(1, made + 1))
    office.expect_whole()


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_stale_snapshot_stores_nothing(office: Office, isolation: str) -> None:
    artifact = office.submit(b"note")
    office.reviewer.execute(SERVE, (artifact,))
    for login, query, parameters in (
        ("author", "select oml_submit(%s, 'x', 'text/plain', 'observed')", (WORKAREA,)),
        ("author", "select oml_submit(%s, 'x', 'text/plain', 'observed', artifact => %s)",
            (WORKAREA, artifact)),
        ("reviewer", VERDICT, (artifact,)),
        ("reviewer", SERVE, (artifact,)),
        ("chief", "select oml_create_workarea(%s)", (f"new {isolation}",)),
        ("chief", "select oml_add_member(%s, 'app')", (WORKAREA,)),
    ):  # fmt: skip
        stale = office.system.connect(login)
        stale.execute(f"begin isolation level {isolation}".encode())
        stale.execute("select count(*) from pg_class")
        office.submit(b"meanwhile")
        assert outcome(stale, query, *parameters) == "40001"
        stale.execute("rollback")
        stale.execute(f"begin isolation level {isolation}".encode())
        stale.execute(query.encode(), parameters)
        stale.execute("rollback")
    office.expect_whole()


def test_a_prepared_submission_is_one_once_it_is_committed(office: Office) -> None:
    superuser = office.system.superuser
    for end, held in (("rollback", 0), ("commit", 1)):
        connection = office.system.connect("author")
        connection.execute("begin")
        submit(connection, b"note", b"attached")
        connection.execute("prepare transaction 'submission'")
        assert value(office.author, "select count(*) from oml_my_submissions()") == 0
        superuser.execute(f"{end} prepared 'submission'".encode())
        assert value(office.author, "select count(*) from oml_my_submissions()") == held
        office.expect_whole()


def test_through_crashes_every_version_has_its_parts(private_system: System) -> None:
    office = Office(private_system)
    acknowledged: list[Any] = []

    def work(login: str, stop: threading.Event) -> None:
        number = 0
        while not stop.is_set():
            try:
                with connect(private_system.dsn(login), autocommit=True) as connection:
                    while not stop.is_set():
                        number += 1
                        attached = [b"a" * 5000] * (number % 3)
                        acknowledged.append(submit(connection, b"x" * 3000, *attached))
            except (psycopg.Error, DatabaseError):  # the server comes and goes
                stop.wait(0.01)

    def review(stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                with (
                    connect(private_system.dsn("reviewer"), autocommit=True) as reviewer,
                    connect(private_system.dsn("chief"), autocommit=True) as chief,
                ):
                    queue = "select artifact_id from oml_review_queue() limit 5"
                    for (artifact,) in reviewer.execute(queue).fetchall():
                        reviewer.execute(SERVE, (artifact,))
                        reviewer.execute(VERDICT, (artifact,))
                        chief.execute(PROMOTE, (artifact,))
            except (psycopg.Error, DatabaseError):  # the server comes and goes
                stop.wait(0.01)

    for _ in range(3):
        stop = threading.Event()
        with ThreadPoolExecutor(3) as pool:
            running = [
                pool.submit(work, "author", stop),
                pool.submit(work, "colleague", stop),
                pool.submit(review, stop),
            ]
            until(partial(grown, acknowledged, len(acknowledged) + 20))
            victim = private_system.connect("app")
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            wait_for_restart(private_system)
            stop.set()
            for one in running:
                one.result()
        private_system.open_gate()
        office.expect_whole()
    have = private_system.superuser.execute(
        "select artifact_id, version from oml.artifact_version"
    ).fetchall()
    assert set(acknowledged) <= set(have)
    drain(private_system)
    expect_exact(private_system)


# --- elsewhere ---------------------------------------------------------------------------------


def test_a_restored_dump_serves_what_was_submitted(office: Office, tmp_path: Path) -> None:
    artifact = office.submit(b"the body", b"the attachment")
    office.promote(artifact)
    held = office.submit(b"held")
    system = office.system
    database = f"{system.database}_copy"
    make_database(system.cluster, database)
    try:
        custom(system.dsn(SUPERUSER), system.cluster.dsn(dbname=database), tmp_path)
        with connect(system.cluster.dsn("colleague", database), autocommit=True) as colleague:
            assert fetched(colleague, artifact) == b"the body"
            assert fetched(colleague, artifact, "1") == b"the attachment"
            assert outcome(colleague, "select * from oml_fetch(%s)", held) == "OM226"
        with connect(system.cluster.dsn(dbname=database), autocommit=True) as superuser:
            assert superuser.execute("select * from oml_fold_check()").fetchall() == []
        done = system.oml("verify", "--dsn", system.cluster.dsn(dbname=database))
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        drop_database(system.cluster, database)


def test_the_command_line_verifies_submissions(office: Office) -> None:
    office.promote(office.submit(b"a", b"b", operation="op", subject_id="s"))
    done = office.system.oml("verify", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    superuser = office.system.superuser
    superuser.execute("alter table oml.journal disable trigger all")
    superuser.execute(
        "update oml.journal set artifact_version = 2 where type = 'submission.submit'"
    )
    done = office.system.oml("verify", "--json")
    assert done.returncode != 0 and "column-mismatch" in done.stdout + done.stderr


def test_a_standby_serves_and_stores_nothing(shared_trio: Quorum) -> None:
    primary = shared_trio.connect()
    primary.execute("select oml_create_tenant('acme')")
    for login, permissions in (("app", "{submit,operate,review}"), ("operator", "{operate}")):
        primary.execute("select oml_grant(%s, 'acme', %s)", (login, permissions))
    operator = shared_trio.connect(user="operator")
    operator.execute("select oml_create_workarea(%s), oml_add_member(%s, 'app')", (WORKAREA,) * 2)
    artifact, _ = submit(shared_trio.connect(user="app"), b"note", b"more")
    name = shared_trio.standbys[0]
    standby = shared_trio.connect(name, "app")
    until(lambda: outcome(standby, "select * from oml_fetch(%s)", artifact) is None)
    assert fetched(standby, artifact) == b"note"
    assert fetched(standby, artifact, "1") == b"more"
    assert value(standby, "select state from oml_my_submissions()") == "held"
    assert value(standby, "select count(*) from oml_history(%s)", artifact) == 2
    query = "select oml_submit(%s, 'x', 'text/plain', 'observed')"
    assert outcome(standby, query, WORKAREA) == "OM050"
    assert outcome(shared_trio.connect(name, "operator"), PROMOTE, artifact) == "OM050"


def test_omld_wraps_and_unwraps_and_without_it_nothing_is_stored(
    system: System, open_dir: Path
) -> None:
    daemon = Omld(system, open_dir, UUID(value(system.superuser, "select oml.deployment_id()")))
    daemon.add_key("signing.key", system.key_file.read_text())
    daemon.start()
    system.superuser.execute("select oml_configure('signer', %s)", (daemon.url,))
    office = Office(system)
    artifact = office.submit(b"note", b"more")
    key = data_key(office.author)
    made = call(office.author, "oml_submit_sealed", sealed(key, b"sealed"))
    assert fetched(office.author, artifact, "1") == b"more"
    assert fetched(office.author, made[1]) == b"sealed"
    daemon.kill()
    count = "select count(*) from oml.journal"
    before = value(system.superuser, count)
    for connection, query, parameters in (
        (office.author, "select oml_submit(%s, 'x', 'text/plain', 'observed')", (WORKAREA,)),
        (office.author, "select * from oml_fetch(%s)", (artifact,)),
        (office.author, "select * from oml_data_key()", ()),
        (office.reviewer, SERVE, (artifact,)),
    ):
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(query.encode(), parameters)
        assert caught.value.sqlstate == "OM090"
        assert caught.value.diag.message_hint
    assert value(system.superuser, count) == before
    daemon.start()
    office.promote(artifact)
    office.expect_whole()


# --- tampered with -----------------------------------------------------------------------------

MINE = "where artifact_id = %(mine)s"
FLIP = "update oml.body set ciphertext = set_byte(ciphertext, {at}, get_byte(ciphertext, {at}) # 1)"
TAMPERING = {
    **{
        f"byte {at}": f"{FLIP.format(at=at)} {MINE} and part = 0"
        for at in (0, 1, 24, 25, "octet_length(ciphertext) - 1")
    },
    "a byte too few": "update oml.body set ciphertext = substr(ciphertext, 1,"
    f" octet_length(ciphertext) - 1) {MINE}",
    "a byte too many": f"update oml.body set ciphertext = ciphertext || '\\x00' {MINE}",
    "nothing left": f"update oml.body set ciphertext = '' {MINE}",
    "removed": f"delete from oml.body {MINE} and part = 0",
    "another artifact's body": "update oml.body b set ciphertext = o.ciphertext from oml.body o"
    " where b.artifact_id = %(mine)s and b.part = 0 and o.artifact_id = %(other)s and o.part = 0",
    "another version's body": "update oml.body b set ciphertext = o.ciphertext from oml.body o"
    " where b.artifact_id = %(mine)s and b.version = 2 and b.part = 0"
    " and o.artifact_id = b.artifact_id and o.version = 1 and o.part = 0",
    "another part": "update oml.body b set ciphertext = o.ciphertext from oml.body o"
    " where b.artifact_id = %(mine)s and b.version = 2 and b.part = 0"
    " and o.artifact_id = b.artifact_id and o.version = 2 and o.part = 1",
    "another tenant's body": "update oml.body b set ciphertext = o.ciphertext from oml.body o"
    " where b.artifact_id = %(mine)s and b.part = 0 and o.artifact_id = %(foreign)s",
    "another artifact's wrapped key": "update oml.dek d set wrapped = o.wrapped from oml.dek o"
    " where d.artifact_id = %(mine)s and o.artifact_id = %(other)s",
    "another version's wrapped key": "update oml.dek d set wrapped = o.wrapped from oml.dek o"
    " where d.artifact_id = %(mine)s and d.version = 2 and o.artifact_id = d.artifact_id"
    " and o.version = 1",
    "another's data key": "update oml.artifact_version v set dek_id = o.dek_id from oml.dek o"
    " where v.artifact_id = %(mine)s and o.artifact_id = %(other)s",
    "no data key": f"delete from oml.dek {MINE}",
    "another plaintext digest": "update oml.artifact_version set plaintext_digest = sha256('x')"
    f" {MINE}",
    "another ciphertext digest": "update oml.artifact_version set ciphertext_digest = sha256('x')"
    f" {MINE}",
    "another digest in state and journal": "with j as (update oml.journal set plaintext_digest ="
    f" sha256('x') {MINE}) update oml.artifact_version set plaintext_digest = sha256('x') {MINE}",
    "an event of another version": "update oml.artifact_version set submitted_seq = (select"
    f" submitted_seq from oml.artifact_version {MINE} and version = 1) {MINE} and version = 2",
}


@pytest.mark.parametrize("tampering", TAMPERING.values(), ids=TAMPERING)
def test_what_was_tampered_with_is_neither_fetched_nor_served(
    office: Office, tampering: str
) -> None:
    mine = office.submit(b"version 1", b"attached 1")
    office.submit(b"version 2", b"attached 2", artifact=mine)
    other = office.submit(b"another", b"attached 3")
    office.system.make("globex")
    for login, permissions in (("author", ("submit",)), ("chief", ("operate",))):
        office.system.bind(login, "globex", permissions)
    office.chief.execute("select oml_create_workarea('there', 'globex')")
    office.chief.execute("select oml_add_member('there', 'author', 'globex')")
    foreign, _ = submit(office.author, b"foreign", workarea="there", tenant="globex")
    for login in ("author", "chief"):
        office.system.superuser.execute("select oml_revoke(%s, 'globex')", (login,))
    tables = ("body", "dek", "artifact_version", "attachment", "journal")
    with psycopg.connect(office.system.dsn(SUPERUSER)) as superuser:
        assert outcome_as(superuser, "author", "select * from oml_fetch(%s)", mine) is None
        assert outcome_as(superuser, "reviewer", SERVE, mine) is None
        for table in tables:
            superuser.execute(f"alter table oml.{table} disable trigger all".encode())
        done = superuser.execute(
            tampering.encode(), {"mine": mine, "other": other, "foreign": foreign}
        )
        assert done.rowcount > 0
        for login, query in (("author", "select * from oml_fetch(%s)"), ("reviewer", SERVE)):
            assert outcome_as(superuser, login, query, mine) in ("OM210", "OM099")
        superuser.rollback()
    assert fetched(office.author, mine) == b"version 2"


def outcome_as(superuser: Connection, login: str, query: str, *parameters: object) -> str | None:
    """Run a statement as a login, in this transaction, and undo what it did."""
    try:
        with superuser.transaction(force_rollback=True):
            superuser.execute(f"set local session authorization {login}".encode())
            superuser.execute(query.encode(), parameters)
    except errors.Error as error:
        return error.sqlstate
    return None


def test_a_whole_forgery_under_a_key_of_its_own_is_refused(office: Office) -> None:
    """A superuser of the database can have keys wrapped; the signed digest is what it lacks."""
    artifact = office.submit(b"true")
    forged = data_key(office.author, artifact)
    part = body.seal(forged.dek, forged.place._replace(version=1), 0, b"false")
    change = {
        "artifact": artifact, "dek_id": forged.dek_id, "wrapped": forged.wrapped,
        "ciphertext": part.ciphertext, "plain": part.plaintext_digest,
        "cipher": part.ciphertext_digest,
    }  # fmt: skip
    digests = "plaintext_digest = %(plain)s, ciphertext_digest = %(cipher)s"
    mine = "where artifact_id = %(artifact)s"
    with psycopg.connect(office.system.dsn(SUPERUSER)) as superuser:
        for table in ("body", "dek", "artifact_version", "journal"):
            superuser.execute(f"alter table oml.{table} disable trigger all".encode())
        for statement in (
            f"update oml.body set ciphertext = %(ciphertext)s {mine}",
            f"update oml.dek set dek_id = %(dek_id)s, wrapped = %(wrapped)s {mine}",
            f"update oml.artifact_version set {digests}, dek_id = %(dek_id)s {mine}",
        ):
            superuser.execute(statement.encode(), change)
        fetch = "select * from oml_fetch(%s)"
        assert outcome_as(superuser, "author", fetch, artifact) == "OM210"
        superuser.execute(f"update oml.journal set {digests} {mine}".encode(), change)
        assert outcome_as(superuser, "author", fetch, artifact) == "OM210"
        superuser.rollback()
