"""The Python driver: both clients, on a real server."""

import hashlib
import io
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import oml
from clients import KINDS, Kind, open_as, open_client
from clusters import Quorum, until
from oml.core import keys, submission
from oml.core.body import Place
from oml.driver.artifacts import Attachment, Part, Report, Served
from oml.driver.client import Client
from oml.driver.events import Event, Receipt
from oml.driver.retrying import Retry
from oml.driver.sealing import Writer
from oml.driver.session import Session
from oml.errors import DatabaseError, NotAcknowledged, UsageError
from relay import Relay, When
from systems import System

AREA = "research/2026"
BODY = b"The canary sings at dawn."
NOTES = Attachment("notes.md", "text/markdown", b"# Heard by the pond")
QUICK = Retry(attempts=6, total_s=30, first_wait_s=0.01, longest_wait_s=0.05)
SECRETS = (b"canary sings", b"by the pond")


class Stage:
    """A tenant with its people: app and ben submit, rita reviews, operator operates."""

    def __init__(self, system: System, kind: Kind) -> None:
        self.system = system
        self.kind = kind
        self._open: list[Any] = []
        self.ben = system.make_login(f"ben_{uuid4().hex}", "oml_writer")
        self.rita = system.make_login(f"rita_{uuid4().hex}", "oml_reviewer")
        self.tenant_id = system.make("acme")
        system.superuser.execute("select oml_register_event_type('note.added')")
        system.bind("app", "acme", ("append", "submit", "audit"))
        system.bind(self.ben, "acme", ("submit",))
        system.bind(self.rita, "acme", ("review",))
        system.bind("operator", "acme", ("operate", "audit"))
        self.operator = self.client("operator")
        self.area = self.operator.create_workarea(AREA)
        self.operator.add_member(AREA, "app")
        self.operator.add_member(self.area, self.ben)

    def client(self, login: str = "app", dsn: str | None = None, **options: Any) -> Any:
        """Open a client of this stage's kind, which the end of the test closes."""
        opened = open_client(
            self.kind, dsn or self.system.dsn(login), **{"retry": QUICK, **options}
        )
        self._open.append(opened)
        return opened

    def client_as(self, writer: Writer) -> Any:
        """Open a client that has its submissions signed by this writer."""
        session = Session(None, None, writer, Retry(attempts=1), False)
        opened = open_as(self.kind, self.system.dsn(), session)
        self._open.append(opened)
        return opened

    def issue(self, directory: Path, principal: str = "app") -> tuple[str, str]:
        """Make a writer key and have it issued; return its file and its kid."""
        file = str(directory / f"{uuid4()}.key")
        row = self.system.superuser.execute(
            "select oml_issue_key(%s, 'writer', 'acme', %s)", (keys.generate(file), principal)
        ).fetchone()
        assert row is not None
        return file, row[0]

    def value(self, query: str, *parameters: Any) -> Any:
        """Return the one value of a superuser's query."""
        row = self.system.superuser.execute(query.encode(), parameters).fetchone()
        assert row is not None
        return row[0]

    def count(self, type: str) -> int:
        """Return how many events of a type the tenant's chain has."""
        query = "select count(*) from oml.journal where tenant_id = %s and type = %s"
        return int(self.value(query, self.tenant_id, type))

    def sound(self) -> bool:
        """Tell whether the chain verifies and the state is what its events imply."""
        faults = "select count(*) from oml_verify_chain('acme') where fault is not null"
        return self.value(faults) == 0 == self.value("select count(*) from oml_fold_check('acme')")

    def close(self) -> None:
        """Close every client."""
        for client in self._open:
            client.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Which client."""
    found: Kind = request.param
    return found


@pytest.fixture
def stage(system: System, kind: Kind) -> Iterator[Stage]:
    """A tenant, for clients of one kind."""
    made = Stage(system, kind)
    yield made
    made.close()


@pytest.fixture
def relay(stage: Stage) -> Iterator[Relay]:
    """A relay to the stage's database, as app."""
    with Relay(stage.system.dsn()) as running:
        yield running


class Running:
    """A call in a thread of its own: what it returned or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None

        def run() -> None:
            try:
                self.result = call()
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def end(self) -> Any:
        """Wait until it has ended; return its result."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def looked_at(parts: Sequence[Part]) -> Report:
    """Scan as a reviewer of few words does."""
    return [
        {"part": p.part, "basis": "opaque", "scanner": "eyes 1.0", "findings": []} for p in parts
    ]


def refused(call: Callable[[], Any]) -> str | None:
    """Insist that the database refuses a call; return the SQLSTATE."""
    with pytest.raises(DatabaseError) as caught:
        call()
    return caught.value.sqlstate


def test_a_submission_goes_from_its_author_to_its_readers(stage: Stage) -> None:
    author, reviewer, operator = stage.client(), stage.client(stage.rita), stage.operator
    reader = stage.client(stage.ben)
    made = author.submit(AREA, BODY, "text/plain", "observed", attachments=[NOTES])
    assert (made.tenant_id, made.version) == (stage.tenant_id, 1)
    assert made.plaintext_digest == hashlib.sha256(BODY).digest()
    assert refused(lambda: reader.fetch(made.artifact_id)) == "OM226"
    assert refused(lambda: reviewer.verdict(made.artifact_id, "approve")) == "OM221"

    (queued,) = reviewer.review_queue()
    assert (queued.artifact_id, queued.author, queued.attachments) == (made.artifact_id, "app", 1)
    assert queued.submitted_at.tzinfo is not None and not queued.is_served
    served = reviewer.review(made.artifact_id, version=1, examine=looked_at)
    assert isinstance(served, Served) and (served.version, served.provenance) == (1, "observed")
    assert [p.content for p in served.parts] == [BODY, NOTES.content]
    assert [p.name for p in served.parts] == ["", "notes.md"]
    assert served.report == looked_at(served.parts)
    assert next(reviewer.review_queue()).is_served
    verdict = reviewer.verdict(made.artifact_id, "approve", "sound", report=served.report)
    assert isinstance(verdict, Receipt) and list(reviewer.review_queue()) == []
    assert stage.value(
        "select payload -> 'review' from oml.journal where event_id = %s", verdict.event_id
    ) == looked_at(served.parts)

    operator.promote(made.artifact_id)
    fetched = reader.fetch(made.artifact_id)
    assert (fetched.content, fetched.state, fetched.media_type) == (BODY, "promoted", "text/plain")
    assert reader.fetch(made.artifact_id, version=1, attachment="notes.md").content == NOTES.content
    archive = operator.create_workarea("archive")
    operator.reassign(made.artifact_id, archive, "the year is over")
    assert refused(lambda: reader.fetch(made.artifact_id)) == "OM226"
    operator.add_member("archive", stage.ben)
    assert reader.fetch(made.artifact_id).state == "reassigned"
    operator.demote(made.artifact_id, "withdrawn", version=1)

    (own,) = author.my_submissions()
    assert (own.state, own.reviewer, own.path, own.bytes) == (
        "demoted",
        stage.rita,
        AREA,
        len(BODY),
    )
    assert [(e.type, e.to_state) for e in author.history(made.artifact_id)] == [
        ("submission.submit", "held"),
        ("submission.attach", None),
        ("review.serve", None),
        ("review.verdict", "approved"),
        ("artifact.promoted", "promoted"),
        ("artifact.reassigned", "reassigned"),
        ("artifact.demoted", "demoted"),
    ]
    assert stage.sound()


def test_workareas_move_and_lose_members_and_simulations_end(stage: Stage) -> None:
    author, operator = stage.client(), stage.operator
    made = author.submit(stage.area, BODY, "text/plain", "simulated")
    operator.end_simulation(made.artifact_id, "the run is over")
    assert [own.state for own in author.my_submissions(made.artifact_id)] == ["simulation-ended"]
    operator.move_workarea(AREA, "attic")
    source = author.submit("attic", BODY, "text/plain", "observed")
    derived = author.submit(
        "attic", BODY, "text/plain", "derived", derived_from=[(source.artifact_id, source.version)],
        operation="summarise", caused_by=source.event_id,
    )  # fmt: skip
    assert [own.path for own in author.my_submissions(source.artifact_id)] == ["attic"]
    claims = "select (operation, caused_by) from oml.journal where event_id = %s"
    assert stage.value(claims, derived.event_id) == ("summarise", source.event_id)
    operator.remove_member("attic", "app")
    operator.remove_member("attic", "app")
    assert refused(lambda: author.submit("attic", BODY, "text/plain", "observed")) == "OM190"
    assert stage.count("workarea.left") == 1 and stage.sound()


def test_a_rejected_version_is_followed_by_the_next(stage: Stage) -> None:
    author, reviewer = stage.client(), stage.client(stage.rita)
    made = author.submit(AREA, BODY, "text/plain", "observed")
    assert reviewer.review(made.artifact_id, scan=False).report is None
    reviewer.verdict(made.artifact_id, "reject", "no source")
    again = author.submit(AREA, BODY, "text/plain", "observed", artifact=made.artifact_id)
    assert (again.artifact_id, again.version) == (made.artifact_id, 2)
    newest, oldest = author.my_submissions(made.artifact_id, page_rows=1)
    assert (newest.state, oldest.state, oldest.reason) == ("held", "rejected", "no source")


def test_lists_are_read_page_by_page(stage: Stage) -> None:
    author, reviewer = stage.client(), stage.client(stage.rita)
    made = [author.submit(AREA, b"%d" % n, "text/plain", "observed") for n in range(5)]
    ids = [m.artifact_id for m in made]
    for rows in (1, 2, 5, 1000):
        assert [q.artifact_id for q in reviewer.review_queue(page_rows=rows)] == ids
        assert [o.artifact_id for o in author.my_submissions(page_rows=rows)] == ids[::-1]
    for _ in range(3):
        reviewer.review(ids[0], scan=False)
    for rows in (1, 2, 3, 4, 5):
        assert len(list(author.history(ids[0], page_rows=rows))) == 4
    for rows in (0, 1001):
        with pytest.raises(UsageError):
            reviewer.review_queue(page_rows=rows)


@pytest.mark.parametrize("attachments", [[], [NOTES, NOTES._replace(name="more.md")]])
def test_what_the_client_encrypts_is_what_the_server_decrypts(
    stage: Stage, attachments: list[Attachment]
) -> None:
    author = stage.client()
    made = author.submit(
        AREA, BODY, "text/plain", "observed", attachments=attachments, encrypt="client"
    )
    fetched = author.fetch(made.artifact_id)
    assert fetched.content == BODY
    assert fetched.plaintext_digest == made.plaintext_digest == hashlib.sha256(BODY).digest()
    for attachment in attachments:
        assert author.fetch(made.artifact_id, attachment=attachment.name).content == NOTES.content
    stored = "select sha256(ciphertext) from oml.body where artifact_id = %s and part = 0"
    assert stage.value(stored, made.artifact_id) == made.ciphertext_digest
    again = author.submit(
        AREA, BODY, "text/plain", "observed", artifact=made.artifact_id, encrypt="client"
    )
    assert (again.artifact_id, again.version) == (made.artifact_id, 2)
    by = "select count(*) from oml.journal where payload ->> 'sealed_by' = 'client'"
    assert stage.value(by) == 2 and stage.sound()


def test_a_writer_signs_its_submission(stage: Stage, tmp_path: Path) -> None:
    file, kid = stage.issue(tmp_path)
    author = stage.client(writer_key=Path(file))
    made = author.submit(
        AREA, BODY, "text/plain", "observed", attachments=[NOTES], encrypt="client"
    )
    envelope = stage.value(
        "select envelope from oml.writer_envelope where artifact_id = %s", made.artifact_id
    )
    sealed_as = "select ciphertext_digest from oml.attachment where artifact_id = %s"
    parts = [
        submission.Signed(made.plaintext_digest, made.ciphertext_digest, "text/plain"),
        submission.Signed(
            hashlib.sha256(NOTES.content).digest(),
            stage.value(sealed_as, made.artifact_id),
            NOTES.media_type,
            NOTES.name,
        ),
    ]
    place = Place(stage.tenant_id.bytes, made.artifact_id.bytes, 1)
    assert submission.is_signed(envelope, keys.load(file)[0].public_key, place, parts)
    said = stage.value("select payload from oml.journal where event_id = %s", made.event_id)
    assert said["writer_kid"] == kid
    assert said["writer_envelope_digest"] == hashlib.sha256(envelope).hexdigest()
    with pytest.raises(UsageError, match="client that encrypts"):
        author.submit(AREA, BODY, "text/plain", "observed")


def test_a_writer_key_that_is_not_in_force_or_anothers_is_refused(
    stage: Stage, tmp_path: Path
) -> None:
    unknown = str(tmp_path / "unknown.key")
    keys.generate(unknown)
    others, _ = stage.issue(tmp_path, stage.ben)
    retired, kid = stage.issue(tmp_path)
    stage.system.superuser.execute("select oml_retire_key(%s)", (kid,))
    for file in (unknown, others, retired):
        author = stage.client(writer_key=file)

        def submit(author: Any = author) -> Any:
            return author.submit(AREA, BODY, "text/plain", "observed", encrypt="client")

        assert refused(submit) == "OM208"
    assert stage.count("submission.submit") == 0


def test_a_signature_of_something_else_is_refused(stage: Stage, tmp_path: Path) -> None:
    file, _ = stage.issue(tmp_path)
    key = keys.load(file)[0]

    class Forgetful(Writer):
        def sign(self, place: Place, parts: Sequence[submission.Signed]) -> bytes:
            return super().sign(place, parts[:1])

    class Renaming(Writer):
        def sign(self, place: Place, parts: Sequence[submission.Signed]) -> bytes:
            return super().sign(place, [parts[0], parts[1]._replace(name="other.md")])

    class Late(Writer):
        def sign(self, place: Place, parts: Sequence[submission.Signed]) -> bytes:
            return super().sign(place._replace(version=2), parts)

    class Babbling(Writer):
        def sign(self, place: Place, parts: Sequence[submission.Signed]) -> bytes:
            return b"yes"

    said = {Forgetful: "OM207", Renaming: "OM207", Late: "OM207", Babbling: "OM206"}
    for writer, sqlstate in said.items():
        author = stage.client_as(writer(key))

        def submit(author: Any = author) -> Any:
            return author.submit(
                AREA, BODY, "text/plain", "observed", attachments=[NOTES], encrypt="client"
            )

        assert refused(submit) == sqlstate, writer
    assert stage.count("submission.submit") == 0


@pytest.mark.parametrize("encrypt", ["server", "client"])
def test_a_key_stands_for_one_submission(stage: Stage, encrypt: str, tmp_path: Path) -> None:
    # Whoever tries again may be another process, which encrypts anew and knows no artifact.
    def submit(client: Any, body: bytes = BODY, **more: Any) -> Any:
        named = {"idempotency_key": "monday", "encrypt": encrypt, "attachments": [NOTES]} | more
        return client.submit(AREA, body, "text/plain", "observed", **named)

    first = submit(stage.client())
    assert submit(stage.client()) == first and first.version == 1
    assert refused(lambda: submit(stage.client(), b"another")) == "OM014"
    assert refused(lambda: submit(stage.client(), attachments=[])) == "OM014"
    other = "client" if encrypt == "server" else "server"
    assert refused(lambda: submit(stage.client(), encrypt=other)) == "OM014"
    signing = stage.client(writer_key=stage.issue(tmp_path)[0])
    assert refused(lambda: submit(signing, encrypt="client")) == "OM014", "nobody had signed it"

    def next_(client: Any) -> Any:
        return submit(client, artifact=first.artifact_id, idempotency_key="tuesday")

    second = next_(stage.client())
    assert next_(stage.client()) == second and second.version == 2
    assert stage.count("submission.submit") == 2 and stage.sound()


def test_a_signed_submission_is_known_again(stage: Stage, tmp_path: Path) -> None:
    file, kid = stage.issue(tmp_path)
    named = {"encrypt": "client", "idempotency_key": "monday"}

    def submit(key: str) -> Any:
        return stage.client(writer_key=key).submit(AREA, BODY, "text/plain", "observed", **named)

    first = submit(file)
    assert submit(file) == first
    assert refused(lambda: submit(stage.issue(tmp_path)[0])) == "OM014", "with another key"
    stage.system.superuser.execute("select oml_retire_key(%s)", (kid,))
    assert submit(file) == first, "it was in force when it counted"


def test_events_are_appended_alone_and_in_batches(stage: Stage) -> None:
    author = stage.client()
    receipt = author.append("note.added", {"n": 1}, entity_type="note", entity_id="1")
    assert isinstance(receipt, Receipt) and receipt.tenant_id == stage.tenant_id
    text = author.append("note.added", '{"n": 2}', idempotency_key="second")
    assert author.append("note.added", {"n": 2}, idempotency_key="second") == text
    batch = [Event("note.added", {"n": n}, caused_by=receipt.event_id) for n in range(3)]
    receipts = author.append_batch(batch)
    assert [r.seq for r in receipts] == [text.seq + n for n in (1, 2, 3)]
    distinct = "select count(distinct idempotency_key) from oml.journal where type = 'note.added'"
    assert stage.value(distinct) == stage.count("note.added") == 5
    assert author.append_batch([]) == []
    with pytest.raises(TypeError, match="'reason'"):
        author.append("note.added", {}, reason="none")


def test_tenant_and_principal_are_chosen_when_the_client_is_made(stage: Stage) -> None:
    system = stage.system
    other = system.make("globex")
    system.superuser.execute("select oml_grant('app', 'globex', '{append}', 'robot')")
    system.superuser.execute("select oml_grant('app', 'globex', '{append}', 'clerk')")
    assert refused(lambda: stage.client().append("note.added", {})) == "OM002"
    assert stage.client(tenant="acme").append("note.added", {}).tenant_id == stage.tenant_id
    assert refused(lambda: stage.client(tenant="globex").append("note.added", {})) == "OM136"
    robot = stage.client(tenant="globex", principal="robot")
    appended = [robot.append("note.added", {}), *robot.append_batch([Event("note.added", {})])]
    assert [a.tenant_id for a in appended] == [other, other]
    who = "select array_agg(distinct principal) from oml.journal where event_id = any (%s)"
    assert stage.value(who, [a.event_id for a in appended]) == ["robot"]
    alone = stage.client(principal="clerk")
    assert alone.append("note.added", {}).tenant_id == other
    here = Event("note.added", {}, tenant="acme")
    assert stage.client(tenant="globex").append_batch([here])[0].tenant_id == stage.tenant_id


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


LOCKED = (
    "select array_agg(pid order by pid) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock'"
)


def waiting(stage: Stage, count: int) -> list[int]:
    """Wait until so many backends wait for a lock; return their pids."""

    def pids() -> list[int]:
        found = stage.value(LOCKED) or []
        return found if len(found) == count else []

    found: list[int] = until(pids)
    return found


def hold(stage: Stage) -> psycopg.Connection[Any]:
    """Hold the tenant's chain in a transaction, on a connection that is returned."""
    holder = stage.system.connect("postgres", autocommit=False)
    holder.execute("select oml.lock_chain(%s)", (stage.tenant_id,))
    return holder


def test_an_administrator_may_end_a_connection(stage: Stage) -> None:
    author = stage.client()
    author.append("note.added", {"n": 1})
    ended = (
        "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity"
        " where usename = 'app' and datname = current_database()"
    )
    assert stage.value(ended) == 1
    author.append("note.added", {"n": 2})  # it was idle
    holder = hold(stage)
    running = Running(lambda: author.append("note.added", {"n": 3}))
    (pid,) = waiting(stage, 1)
    assert stage.value("select pg_terminate_backend(%s, 10000)", pid)
    waiting(stage, 1)  # on another connection
    holder.rollback()
    running.end()
    assert stage.count("note.added") == 3


@pytest.mark.parametrize("encrypt", ["server", "client"])
def test_two_resubmissions_at_once_become_two_versions(stage: Stage, encrypt: str) -> None:
    named = {"encrypt": encrypt}
    made = stage.client().submit(AREA, BODY, "text/plain", "observed", **named)
    holder = hold(stage)
    # Both have encrypted for version 2 when they come to the lock.
    racing = [
        Running(
            lambda client=stage.client(), n=n: client.submit(  # type: ignore[misc]
                AREA, b"%d" % n, "text/plain", "observed", artifact=made.artifact_id, **named
            )
        )
        for n in range(2)
    ]
    waiting(stage, 2)
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
    holder = hold(stage)

    def again(client: Any) -> Any:
        return client.submit(AREA, BODY, "text/plain", "observed", artifact=made.artifact_id)

    clients = [stage.client(retry=once) for _ in range(2)]
    racing = [Running(lambda client=client: again(client)) for client in clients]  # type: ignore[misc]
    waiting(stage, 2)
    holder.rollback()
    for running in racing:
        running._thread.join(60)
    errors = [r.error for r in racing if r.error is not None]
    assert len(errors) == 1 and isinstance(errors[0], DatabaseError)
    assert errors[0].sqlstate == "40001" and errors[0].retryable


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


def written(error: BaseException) -> str:
    """Return all that a report of an error may show: its parts, its frames and their locals."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    parts = ["".join(shown.format()), str(error), repr(error), repr(error.args), repr(vars(error))]
    assert error.__context__ is None and error.__cause__ is None
    return "\n".join(parts)


def assert_untold(text: str) -> None:
    """Insist that nothing of a body is in a text, in clear, as escaped bytes or in hex."""
    for secret in SECRETS:
        for form in (secret.decode(), secret.hex(), repr(secret)[2:-1]):
            assert form not in text, text


@pytest.mark.parametrize("encrypt", ["server", "client"])
def test_nothing_of_a_body_is_in_a_log_or_an_error(
    stage: Stage, encrypt: str, tmp_path: Path
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        author = stage.client(writer_key=stage.issue(tmp_path)[0] if encrypt == "client" else None)
        signing = stage.client(writer_key=stage.issue(tmp_path)[0])
        named = {"encrypt": encrypt}
        author.submit(AREA, BODY, "text/plain", "observed", attachments=[NOTES], **named)
        twice = [NOTES, NOTES]
        wrong_type = [NOTES._replace(media_type="application/pdf")]
        text: Any = BODY.decode()
        said: list[Callable[[], Any]] = [
            lambda: author.submit("nowhere", BODY, "text/plain", "observed", **named),
            lambda: author.submit(AREA, BODY, "image/png", "observed", **named),
            lambda: author.submit(AREA, BODY, "application/json", "observed", **named),
            lambda: author.submit(AREA, BODY, "nothing", "observed", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "guessed", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "derived", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "observed", attachments=twice, **named),
            lambda: author.submit(
                AREA, BODY, "text/plain", "observed", attachments=wrong_type, **named
            ),
            lambda: author.submit(AREA, BODY * 400000, "text/plain", "observed", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "observed", artifact=uuid4(), **named),
            lambda: author.submit(AREA, BODY, "text/plain", "observed", operation="\0", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "observed", encrypt="nobody"),
            lambda: author.submit(AREA, text, "text/plain", "observed", **named),
            lambda: author.submit(
                AREA, BODY, "text/plain", "observed",
                attachments=[NOTES._replace(content=NOTES.content.decode())], **named,  # type: ignore[arg-type]
            ),
            lambda: signing.submit(AREA, BODY, "text/plain", "observed"),
        ]  # fmt: skip
        del text
        for number, call in enumerate(said):
            try:
                call()
            except (DatabaseError, UsageError) as error:
                # The test's own frames hold the body, and are not the driver's to answer for.
                error.__traceback__ = drop_ours(error)
                assert_untold(written(error))
            else:
                pytest.fail(f"call {number} was not refused")
        assert_untold(stream.getvalue())
        assert stage.count("submission.submit") == 1
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def drop_ours(error: BaseException) -> Any:
    """Return an error's traceback from the first frame that is no test's."""
    trace = error.__traceback__
    while trace is not None and "/tests/py/" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    assert trace is not None
    return trace


def test_a_server_that_shows_parameters_in_errors_shows_none_here(stage: Stage) -> None:
    # Its CONTEXT has them then, and its log: what oml doctor warns of.
    stage.system.superuser.execute("alter role app set log_parameter_max_length_on_error = -1")
    try:
        with pytest.raises(DatabaseError) as caught:
            stage.client().submit("nowhere", BODY, "text/plain", "observed")
    finally:
        stage.system.superuser.execute("alter role app reset log_parameter_max_length_on_error")
    caught.value.__traceback__ = drop_ours(caught.value)
    assert_untold(written(caught.value))


def test_what_is_shown_of_things_is_not_their_content(stage: Stage, tmp_path: Path) -> None:
    file, kid = stage.issue(tmp_path)
    author = stage.client(writer_key=file)
    secret = keys.load(file)[0].secret_key
    assert kid in repr(author) and repr(secret)[2:10] not in repr(author)
    made = author.submit(
        AREA, BODY, "text/plain", "observed", attachments=[NOTES], encrypt="client"
    )
    served = stage.client(stage.rita).review(made.artifact_id, examine=looked_at)
    for thing in (made, served, author.fetch(made.artifact_id), NOTES):
        assert_untold(repr(thing))


def test_a_writer_key_that_cannot_be_read_is_named(stage: Stage, tmp_path: Path) -> None:
    missing = tmp_path / "missing.key"
    with pytest.raises(UsageError, match="writer key .* does not exist"):
        stage.client(writer_key=missing)
    open_to_all = tmp_path / "open.key"
    keys.generate(str(open_to_all))
    open_to_all.chmod(0o644)
    with pytest.raises(UsageError, match="open to others"):
        stage.client(writer_key=open_to_all)


def test_a_closed_client_and_a_server_that_refuses_are_said_at_once(stage: Stage) -> None:
    author = stage.client()
    author.close()
    if stage.kind == "sync":
        with pytest.raises(UsageError, match="closed"):
            author.append("note.added", {})
    began = time.monotonic()
    with pytest.raises(DatabaseError):
        stage.client("nobody_of_this_name", retry=Retry())
    with pytest.raises(UsageError):
        oml.connect("")
    assert time.monotonic() >= began


def test_threads_share_a_client_one_call_at_a_time(system: System) -> None:
    stage = Stage(system, "sync")
    client = stage.client()
    running = [Running(lambda: client.append("note.added", {})) for _ in range(8)]
    assert len({r.end().seq for r in running}) == 8
    stage.close()


def test_in_a_transaction_of_the_callers_own_the_caller_commits(system: System) -> None:
    stage = Stage(system, "sync")
    connection = system.connect("app")
    with Client.on(connection) as mine:
        with connection.transaction():
            appended = mine.append("note.added", {"n": 1})
            made = mine.submit(AREA, BODY, "text/plain", "observed", encrypt="client")
            assert stage.count("note.added") == 0 == stage.count("submission.submit")
        assert stage.count("note.added") == 1 == stage.count("submission.submit")
        keyless = "select count(*) from oml.journal where idempotency_key is null and seq = any(%s)"
        assert stage.value(keyless, [appended.seq, made.seq]) == 2
        with pytest.raises(ZeroDivisionError), connection.transaction():
            mine.append("note.added", {"n": 2})
            raise ZeroDivisionError
        assert stage.count("note.added") == 1
        with pytest.raises(UsageError, match="no transaction"):
            mine.append("note.added", {"n": 3})
        with connection.transaction():
            assert [o.artifact_id for o in mine.my_submissions()] == [made.artifact_id]
    assert not connection.closed, "it is the caller's"
    plain = system.connect("app", autocommit=False)
    Client.on(plain).append("note.added", {"n": 4})
    plain.rollback()
    assert stage.count("note.added") == 1
    stage.close()


def test_in_a_transaction_of_the_callers_own_nothing_is_tried_again(system: System) -> None:
    stage = Stage(system, "sync")
    connection = system.connect("app")
    mine = Client.on(connection)
    made = stage.client().submit(AREA, BODY, "text/plain", "observed")
    holder = hold(stage)

    def again(client: Any) -> Any:
        return client.submit(AREA, BODY, "text/plain", "observed", artifact=made.artifact_id)

    def in_mine() -> Any:
        with connection.transaction():
            return again(mine)

    racing = [Running(lambda: again(stage.client())), Running(in_mine)]
    waiting(stage, 2)
    holder.rollback()
    for running in racing:
        running._thread.join(60)
    versions = sorted(r.result.version for r in racing if r.result is not None)
    failed = racing[1].error
    if failed is None:
        assert versions == [2, 3]
    else:
        assert isinstance(failed, DatabaseError) and failed.sqlstate == "40001"
        assert versions == [2]
    with pytest.raises(DatabaseError), connection.transaction():
        stage.value("select pg_terminate_backend(%s, 10000)", connection.info.backend_pid)
        mine.append("note.added", {})
    assert stage.count("note.added") == 0
    stage.close()


def test_a_principal_is_chosen_in_the_callers_transaction(system: System) -> None:
    stage = Stage(system, "sync")
    system.superuser.execute("select oml_grant('app', 'acme', '{append}', 'robot')")
    connection = system.connect("app")
    with connection.transaction():
        receipt = Client.on(connection, tenant="acme", principal="robot").append("note.added", {})
    who = "select principal from oml.journal where event_id = %s"
    assert stage.value(who, receipt.event_id) == "robot"
    stage.close()


# With standbys: what a cancelled wait means.

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
    row = (
        system.connect()
        .execute("select count(*) from oml.journal where type = %s", (type,))
        .fetchone()
    )
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
