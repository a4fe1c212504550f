"""What the driver tries again: it happens once, and counts once its commit is acknowledged."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

import oml
from clients import AREA, BODY, NOTES, QUICK, Kind, Running, Stage, open_client, refused
from clusters import Quorum, until
from oml.driver.events import Event
from oml.driver.retrying import Retry
from oml.errors import DatabaseError, NotAcknowledged
from relay import Relay, When


@pytest.fixture
def relay(stage: Stage) -> Iterator[Relay]:
    """A relay to the stage's database, as app."""
    with Relay(stage.system.dsn()) as running:
        yield running


CUTS: list[tuple[bytes, When]] = [
    (b"BEGIN", "before"),
    (b"BEGIN", "after"),
    (b"oml_append", "before"),
    (b"oml_append", "after"),
    (b"client_min_messages", "before"),
    (b"COMMIT", "before"),
    (b"COMMIT", "after"),
]


@pytest.mark.parametrize(("marker", "when"), CUTS)
def test_an_append_whose_connection_is_lost_is_tried_again_and_happens_once(
    stage: Stage, relay: Relay, marker: bytes, when: When
) -> None:
    author = stage.client(dsn=relay.dsn)
    first = author.append("note.added", {"n": 1})
    relay.cut(marker, when)
    second = author.append("note.added", {"n": 2})
    assert relay.cuts == 1
    assert second.seq == first.seq + 1 and stage.count("note.added") == 2
    assert author.append("note.added", {"n": 3}).seq == second.seq + 1


@pytest.mark.parametrize("encrypt", ["server", "client"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_submission_whose_answer_is_lost_is_made_once(
    stage: Stage, relay: Relay, encrypt: str, when: When
) -> None:
    author = stage.client(dsn=relay.dsn)
    # Of two transactions, where the client encrypts, it is the second.
    relay.cut(b"COMMIT", when, passing=int(encrypt == "client"))
    made = author.submit(AREA, BODY, "text/plain", "observed", encrypt=encrypt, attachments=[NOTES])
    assert relay.cuts == 1 and stage.count("submission.submit") == 1
    assert author.fetch(made.artifact_id).content == BODY
    stored = "select ciphertext_digest from oml.journal where event_id = %s"
    assert stage.value(stored, made.event_id) == made.ciphertext_digest
    assert stage.sound()


def test_a_batch_whose_answer_is_lost_is_appended_once(stage: Stage, relay: Relay) -> None:
    author = stage.client(dsn=relay.dsn)
    relay.cut(b"COMMIT", "after")
    receipts = author.append_batch([Event("note.added", {"n": n}) for n in range(3)])
    assert relay.cuts == 1 and stage.count("note.added") == len({r.seq for r in receipts}) == 3


def test_a_verdict_whose_answer_is_lost_is_given_once_and_a_serve_is_told_twice(
    stage: Stage,
) -> None:
    made = stage.client().submit(AREA, BODY, "text/plain", "observed")
    with Relay(stage.system.dsn(stage.rita)) as relay:
        reviewer = stage.client(dsn=relay.dsn)
        relay.cut(b"COMMIT", "after")
        assert reviewer.review(made.artifact_id, scan=False).parts[0].content == BODY
        assert stage.count("review.serve") == 2, "the bytes may have left the server twice"
        relay.cut(b"COMMIT", "after")
        reviewer.verdict(made.artifact_id, "approve")
        assert relay.cuts == 2 and stage.count("review.verdict") == 1


def test_what_takes_no_key_is_not_repeated_where_it_may_have_happened(stage: Stage) -> None:
    with Relay(stage.system.dsn("operator")) as relay:
        operator = stage.client(dsn=relay.dsn)
        relay.cut(b"oml_create_workarea", "before")
        operator.create_workarea("one")
        relay.cut(b"COMMIT", "after")
        with pytest.raises(NotAcknowledged) as caught:
            operator.create_workarea("two")
        assert caught.value.hint is not None and "look first" in caught.value.hint
        assert refused(lambda: operator.create_workarea("two")) == "OM192"
        relay.cut(b"COMMIT", "after")
        operator.add_member("two", "app")
        relay.cut(b"COMMIT", "before")
        operator.remove_member("two", "app")
        assert relay.cuts == 4
    assert stage.count("workarea.created") == 3 and stage.count("workarea.left") == 1


def test_lists_and_reads_outlive_their_connection(stage: Stage, relay: Relay) -> None:
    author = stage.client(dsn=relay.dsn)
    made = [author.submit(AREA, BODY, "text/plain", "observed") for _ in range(3)]
    relay.cut(b"oml_my_submissions", "after", passing=1)
    assert len(list(author.my_submissions(page_rows=1))) == 3
    relay.cut(b"oml_fetch", "after")
    assert author.fetch(made[0].artifact_id).content == BODY
    assert relay.cuts == 2


def test_an_administrator_may_end_a_connection(stage: Stage) -> None:
    author = stage.client()
    author.append("note.added", {"n": 1})
    ended = (
        "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity"
        " where usename = 'app' and datname = current_database()"
    )
    assert stage.value(ended) == 1
    author.append("note.added", {"n": 2})  # it was idle
    holder = stage.hold()
    running = Running(lambda: author.append("note.added", {"n": 3}))
    (pid,) = stage.waiting(1)
    assert stage.value("select pg_terminate_backend(%s, 10000)", pid)
    stage.waiting(1)  # on another connection
    holder.rollback()
    running.end()
    assert stage.count("note.added") == 3


@pytest.mark.parametrize("encrypt", ["server", "client"])
def test_two_resubmissions_at_once_become_two_versions(stage: Stage, encrypt: str) -> None:
    named = {"encrypt": encrypt}
    made = stage.client().submit(AREA, BODY, "text/plain", "observed", **named)
    holder = stage.hold()

    # Both have encrypted for version 2 when they come to the lock.
    def again(client: Any, n: int) -> Any:
        return client.submit(
            AREA, b"%d" % n, "text/plain", "observed", artifact=made.artifact_id, **named
        )

    racing = [Running(partial(again, stage.client(), n)) for n in range(2)]
    stage.waiting(2)
    holder.rollback()
    receipts = [r.end() for r in racing]
    assert sorted(r.version for r in receipts) == [2, 3]
    for n, receipt in enumerate(receipts):
        fetched = stage.client().fetch(made.artifact_id, version=receipt.version)
        assert fetched.content == b"%d" % n
    assert stage.sound()


def test_a_call_without_retries_says_that_it_should_be_run_again(stage: Stage) -> None:
    once = Retry(attempts=1)
    made = stage.client().submit(AREA, BODY, "text/plain", "observed")
    holder = stage.hold()

    def again(client: Any) -> Any:
        return client.submit(AREA, BODY, "text/plain", "observed", artifact=made.artifact_id)

    clients = [stage.client(retry=once) for _ in range(2)]
    racing = [Running(partial(again, client)) for client in clients]
    stage.waiting(2)
    holder.rollback()
    for running in racing:
        running.wait()
    errors = [r.error for r in racing if r.error is not None]
    assert len(errors) == 1 and isinstance(errors[0], DatabaseError)
    assert errors[0].sqlstate == "40001" and errors[0].retryable


def test_a_refusal_after_a_lost_answer_does_not_say_that_nothing_happened(
    stage: Stage, relay: Relay
) -> None:
    author = stage.client(dsn=relay.dsn)
    made = author.submit(AREA, BODY, "text/plain", "observed")

    def revoke() -> None:
        stage.system.superuser.execute("select oml_revoke('app', 'acme')")

    relay.cut(b"COMMIT", "after", meanwhile=revoke)
    with pytest.raises(NotAcknowledged) as caught:
        author.append("note.added", {})
    assert caught.value.sqlstate == "OM001" and "lost during COMMIT" in caught.value.message
    assert relay.cuts == 1 and stage.count("note.added") == 1, "it did happen"
    assert refused(lambda: author.append("note.added", {})) == "OM001"

    stage.system.bind("app", "acme", ("append", "submit"))
    relay.cut(b"COMMIT", "after", meanwhile=revoke)
    with pytest.raises(DatabaseError) as read:
        author.fetch(made.artifact_id)
    assert not isinstance(read.value, NotAcknowledged) and relay.cuts == 2


def test_a_signer_that_is_away_is_waited_for(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def sign_with(signer: str) -> None:
        superuser = stage.system.superuser
        superuser.execute("alter table oml.setting disable trigger guard_rows")
        superuser.execute("update oml.setting set value = %s where name = 'signer'", (signer,))
        superuser.execute("alter table oml.setting enable always trigger guard_rows")

    caplog.set_level(logging.INFO, "oml.driver")
    patient = Retry(attempts=1000, total_s=60, first_wait_s=0.01, longest_wait_s=0.05)
    author = stage.client(retry=patient)
    sign_with("unix:/tmp/oml-nobody-is-here")
    running = Running(lambda: author.submit(AREA, BODY, "text/plain", "observed", encrypt="client"))
    until(lambda: any("OM090" in record.getMessage() for record in caplog.records))
    sign_with(f"file:{stage.system.key_file}")
    assert running.end().version == 1 and stage.count("submission.submit") == 1


def test_a_refusal_is_not_tried_again(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "oml.driver")
    author = stage.client()
    calls: list[Callable[[], Any]] = [
        lambda: author.append("no.such", {}),
        lambda: author.submit("nowhere", BODY, "text/plain", "observed"),
        lambda: author.submit(AREA, BODY, "image/png", "observed", encrypt="client"),
        lambda: author.fetch(uuid4()),
        lambda: author.promote(uuid4()),
    ]
    for call in calls:
        with pytest.raises(DatabaseError):
            call()
    assert not caplog.records


def test_a_retry_is_logged_by_what_failed(
    stage: Stage, relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    author = stage.client(dsn=relay.dsn)
    relay.cut(b"COMMIT", "after")
    author.submit(AREA, BODY, "text/plain", "observed", attachments=[NOTES])
    (line,) = [r.getMessage() for r in caplog.records if r.name == "oml.driver"]
    assert line.startswith("oml_submit is tried again in 0.") and "lost during COMMIT" in line


SYNC_WAIT = (
    "select pid from pg_stat_activity where wait_event = 'SyncRep' and usename = 'app' limit 1"
)


@pytest.fixture
def silent(shared_trio: Quorum) -> Quorum:
    """A primary both of whose standbys are stopped, a tenant, and login app that may write."""
    connection = shared_trio.connect()
    connection.execute("select oml_create_tenant('acme')")
    connection.execute("select oml_grant('app', 'acme', '{append,submit}')")
    connection.execute("select oml_grant('operator', 'acme', '{operate}')")
    connection.execute("select oml_register_event_type('note.added')")
    with oml.connect(shared_trio.dsn(user="operator")) as operator:
        operator.create_workarea(AREA)
        operator.add_member(AREA, "app")
    for name in shared_trio.standbys:
        shared_trio.freeze(name)
    return shared_trio


def in_wait(system: Quorum) -> int:
    """Wait until a backend of login app waits for standbys; return its pid."""
    pid: int = until(lambda: system.value(None, SYNC_WAIT))
    return pid


def stored(system: Quorum, type: str) -> int:
    """Return how many events of a type there are, as the primary sees them."""
    query = "select count(*) from oml.journal where type = %s"
    row = system.connect().execute(query, (type,)).fetchone()
    assert row is not None
    return int(row[0])


def test_a_cancelled_wait_is_raised_where_nothing_is_tried_again(
    silent: Quorum, kind: Kind
) -> None:
    client = open_client(kind, silent.dsn(user="app"), retry=Retry(attempts=1))
    running = Running(lambda: client.append("note.added", {}, idempotency_key="1"))
    assert silent.value(None, "select pg_cancel_backend(%s)", in_wait(silent))
    with pytest.raises(NotAcknowledged) as caught:
        running.end()
    assert caught.value.sqlstate == "01000" and stored(silent, "note.added") == 1
    again = Running(lambda: client.append("note.added", {}, idempotency_key="1"))
    in_wait(silent)
    silent.thaw("s1")
    assert again.end().seq > 1 and stored(silent, "note.added") == 1
    client.close()


@pytest.mark.parametrize("end", ["cancel", "terminate"])
def test_a_wait_that_ended_early_is_waited_for_again(
    silent: Quorum, kind: Kind, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oml.driver")
    client = open_client(kind, silent.dsn(user="app"), retry=QUICK)
    running = Running(
        lambda: client.submit(AREA, BODY, "text/plain", "observed", attachments=[NOTES])
    )
    for retries in (1, 2):
        assert silent.value(None, f"select pg_{end}_backend(%s)", in_wait(silent))
        until(lambda retries=retries: len(caplog.records) == retries)  # type: ignore[misc]
    in_wait(silent)
    silent.thaw("s2")
    made = running.end()
    assert isinstance(made.artifact_id, UUID) and stored(silent, "submission.submit") == 1
    client.close()


def test_a_membership_that_was_not_acknowledged_is_waited_for_again(
    silent: Quorum, kind: Kind
) -> None:
    # The second time there is nothing to do but to wait for what the first one did.
    client = open_client(kind, silent.dsn(user="operator"), retry=Retry(attempts=1))
    waits = SYNC_WAIT.replace("'app'", "'operator'")
    running = Running(lambda: client.add_member(AREA, "ben"))
    pid = until(lambda: silent.value(None, waits))
    assert silent.value(None, "select pg_cancel_backend(%s)", pid)
    with pytest.raises(NotAcknowledged):
        running.end()
    again = Running(lambda: client.add_member(AREA, "ben"))
    until(lambda: silent.value(None, waits))
    silent.thaw("s1")
    again.end()
    assert stored(silent, "workarea.joined") == 2
    client.close()
