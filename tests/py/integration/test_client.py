"""The Python driver, both clients: what its methods do, on a real server."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from clients import AREA, BODY, NOTES, Stage, looked_at, refused
from oml.core import keys, submission
from oml.core.body import Place
from oml.driver.artifacts import Attachment, Served
from oml.driver.events import Event, Receipt
from oml.driver.sealing import Writer
from oml.errors import UsageError


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
    caused = "select caused_by from oml.journal where event_id = %s and operation = 'summarise'"
    assert stage.value(caused, derived.event_id) == source.event_id
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
    made = author.submit(AREA, BODY, "text/plain", "observed", attachments=[NOTES])
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
    assert said["sealed_by"] == "client"
    with pytest.raises(UsageError, match="client that encrypts"):
        author.submit(AREA, BODY, "text/plain", "observed", encrypt="server")


def test_what_is_no_attachment_or_no_id_is_refused_before_it_is_sent(stage: Stage) -> None:
    client: Any = stage.client()
    with pytest.raises(UsageError, match=r"attachment 2 is no oml\.Attachment"):
        client.submit(
            AREA, BODY, "text/plain", "observed",
            attachments=[NOTES, ("a.txt", "text/plain", b"a")],
        )  # fmt: skip
    calls: list[Callable[[Any], Any]] = [
        lambda given: client.submit(AREA, BODY, "text/plain", "observed", artifact=given),
        client.fetch,
        lambda given: list(client.my_submissions(given)),
        lambda given: list(client.history(given)),
        lambda given: client.review(given, scan=False),
        lambda given: client.verdict(given, "approve"),
        client.promote,
        lambda given: client.demote(given, "old"),
        lambda given: client.reassign(given, AREA, "moved"),
        lambda given: client.end_simulation(given, "over"),
    ]
    for number, call in enumerate(calls):
        for wrong in ("zz", 7, "x" * 1000):
            with pytest.raises(UsageError, match="no id of an artifact") as caught:
                call(wrong)
            assert len(str(caught.value)) < 200, number
    assert stage.count("submission.submit") == 0
    made = client.submit(AREA, BODY, "text/plain", "observed")
    assert client.fetch(str(made.artifact_id)).content == BODY, "its text will do"


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


def test_a_writer_key_that_cannot_be_read_is_named(stage: Stage, tmp_path: Path) -> None:
    missing = tmp_path / "missing.key"
    with pytest.raises(UsageError, match=r"writer key .* does not exist"):
        stage.client(writer_key=missing)
    open_to_all = tmp_path / "open.key"
    keys.generate(str(open_to_all))
    open_to_all.chmod(0o644)
    with pytest.raises(UsageError, match="open to others"):
        stage.client(writer_key=open_to_all)
