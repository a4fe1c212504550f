"""What clients encrypt and writers sign: taken when it is what it says, and refused else."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from catalog import contents
from forge import flip
from lakes import value
from oml.core import body, cose, keys
from submissions import TENANT, DataKey, Office, call, data_key, fetched, sealed, signed, submit
from systems import Connection, System

WRITER = keys.from_seed(bytes(range(32)))
OTHER = keys.from_seed(bytes(range(1, 33)))


@pytest.fixture
def office(system: System) -> Office:
    """An office whose author has a writer key."""
    office = Office(system)
    issue(office, WRITER, "author")
    return office


def issue(office: Office, key: keys.SigningKey, principal: str) -> None:
    """Issue a writer key to a principal of the tenant."""
    office.system.superuser.execute(
        "select oml_issue_key(%s, 'writer', %s, %s)", (key.public_key, TENANT, principal)
    )


def refused(office: Office, given: dict[str, Any], sqlstate: str) -> str:
    """Insist that a sealed submission is refused in plain words, and that nothing is stored."""
    before = contents(office.system.superuser)
    with pytest.raises(psycopg.Error) as caught:
        call(office.author, "oml_submit_sealed", given)
    assert caught.value.sqlstate == sqlstate, caught.value
    message = caught.value.diag.message_primary
    assert message and "plpy" not in message and caught.value.diag.message_hint
    after = contents(office.system.superuser)
    assert {name for name in after if after[name] != before[name]} <= {"outbox_seq"}
    return message


def test_what_a_client_sealed_is_served_as_it_was(office: Office) -> None:
    key = data_key(office.author)
    given = signed(sealed(key, b"body", b"one", b"two"), key.place, WRITER)
    row = call(office.author, "oml_submit_sealed", {**given, "idempotency_key": "k"})
    assert row[1:3] == (key.artifact_id, 1)
    again = call(office.author, "oml_submit_sealed", {**given, "idempotency_key": "k"})
    assert again == row
    artifact = key.artifact_id
    assert fetched(office.author, artifact) == b"body"
    assert fetched(office.author, artifact, "2") == b"two"
    query = (
        "select payload ->> 'sealed_by', payload ->> 'writer_kid',"
        " payload ->> 'writer_envelope_digest' = encode(sha256(w.envelope), 'hex'), w.envelope"
        " from oml.journal j join oml.writer_envelope w using (tenant_id, artifact_id)"
        " where j.type = 'submission.submit'"
    )
    found = office.system.superuser.execute(query.encode()).fetchone()
    assert found == ("client", WRITER.kid.hex(), True, given["writer_envelope"])
    next_key = data_key(office.author, artifact)
    assert next_key.version == 2
    call(office.author, "oml_submit_sealed", sealed(next_key, b"better"))
    office.promote(artifact)
    office.expect_whole()


def replaced(given: dict[str, Any], name: str, at: int, new: Any) -> dict[str, Any]:
    """Return arguments with one element of an array replaced."""
    array = list(given[name])
    array[at] = new
    return {**given, name: array}


FAULTS: dict[str, tuple[str, Any]] = {
    "another plaintext digest": ("OM200", lambda g: {**g, "plaintext_digest": bytes(32)}),
    "another ciphertext digest": ("OM200", lambda g: {**g, "ciphertext_digest": bytes(32)}),
    "an attachment's plaintext digest": (
        "OM200", lambda g: replaced(g, "attachment_plaintext_digests", 0, bytes(32))),
    "an attachment's ciphertext digest": (
        "OM200", lambda g: replaced(g, "attachment_ciphertext_digests", 1, bytes(32))),
    "a flipped bit": ("OM200", lambda g: with_body(g, flip(g["ciphertext"], -1))),
    "another version byte": ("OM200", lambda g: with_body(g, flip(g["ciphertext"], 0))),
    "truncated": ("OM200", lambda g: with_body(g, g["ciphertext"][:-1])),
    "attachments in another order": ("OM200", lambda g: {**g, **{
        name: list(reversed(g[name])) for name in (
            "attachments", "attachment_plaintext_digests", "attachment_ciphertext_digests")}}),
    "no more than the overhead": ("OM193", lambda g: with_body(g, bytes(body.OVERHEAD_BYTES))),
    "nothing": ("OM193", lambda g: with_body(g, b"")),
    "a body over the limit": (
        "OM197", lambda g: with_body(g, bytes(body.MAX_BODY_BYTES + body.OVERHEAD_BYTES + 1))),
    "an attachment over the limit": ("OM198", lambda g: replaced(
        g, "attachments", 0, bytes(body.MAX_ATTACHMENT_BYTES + body.OVERHEAD_BYTES + 1))),
    "another media type": ("OM195", lambda g: {**g, "media_type": "image/png"}),
    "no media type": ("OM194", lambda g: {**g, "media_type": None}),
    "a short digest": ("OM209", lambda g: {**g, "plaintext_digest": bytes(31)}),
    "no digest": ("OM209", lambda g: {**g, "ciphertext_digest": None}),
    "a digest too few": ("OM209", lambda g: {**g, "attachment_plaintext_digests": []}),
    "a digest too many": (
        "OM209", lambda g: {**g, "attachment_ciphertext_digests": [bytes(32)] * 3}),
    "no artifact": ("OM209", lambda g: {**g, "artifact": None}),
    "no version": ("OM209", lambda g: {**g, "version": None}),
    "version 0": ("OM209", lambda g: {**g, "version": 0}),
    "no data key": ("OM209", lambda g: {**g, "dek_id": None}),
    "no wrapped key": ("OM209", lambda g: {**g, "wrapped_dek": None}),
    "another epoch": ("OM209", lambda g: {**g, "kek_epoch": 2}),
    "no epoch": ("OM209", lambda g: {**g, "kek_epoch": None}),
    "another artifact": ("OM099", lambda g: {**g, "artifact": uuid4()}),
    "another data key's id": ("OM099", lambda g: {**g, "dek_id": uuid4()}),
    "a damaged wrapped key": ("OM099", lambda g: {**g, "wrapped_dek": flip(g["wrapped_dek"], -1)}),
    "an empty wrapped key": ("OM099", lambda g: {**g, "wrapped_dek": b""}),
    "a later version": ("OM200", lambda g: {**g, "version": 2}),
    "an unknown workarea": ("OM190", lambda g: {**g, "workarea": "nowhere"}),
    "an unknown provenance": ("OM196", lambda g: {**g, "provenance": "guessed"}),
    "an envelope of nothing": ("OM206", lambda g: {**g, "writer_envelope": b""}),
    "an envelope that is none": ("OM206", lambda g: {**g, "writer_envelope": b"\x84" * 100}),
    "an envelope that is too long": ("OM206", lambda g: {**g, "writer_envelope": bytes(20000)}),
}  # fmt: skip


def with_body(given: dict[str, Any], ciphertext: bytes) -> dict[str, Any]:
    """Return a sealed submission of other bytes, under their digest."""
    digest = body._sha256(ciphertext).digest()
    return {**given, "ciphertext": ciphertext, "ciphertext_digest": digest}


@pytest.mark.parametrize(("sqlstate", "spoil"), FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_is_refused_and_nothing_is_stored(
    office: Office, sqlstate: str, spoil: Any
) -> None:
    key = data_key(office.author)
    refused(office, spoil(sealed(key, b"body", b"one", b"two")), sqlstate)


def rewrapped(office: Office, tenant: str, artifact: DataKey) -> dict[str, Any]:
    """Return a data key of another tenant for the same artifact's id, by way of the superuser."""
    superuser = office.system.superuser
    row = superuser.execute(
        "select m.* from oml.setting s, oml.make_data_key(s.value, uuid_send(%s), uuid_send(%s), 1,"
        " true)"
        " m where s.name = 'signer'",
        (value(superuser, "select tenant_id from oml.tenant where name = %s", tenant),
            artifact.artifact_id),
    ).fetchone()  # fmt: skip
    assert row is not None
    return {"dek_id": row[0], "wrapped_dek": row[2]}


def test_a_key_serves_its_tenant_artifact_and_version_once(office: Office) -> None:
    office.system.make("globex")
    first = data_key(office.author)
    refused(office, sealed(first, b"x") | rewrapped(office, "globex", first), "OM099")
    given = sealed(first, b"first")
    call(office.author, "oml_submit_sealed", given)
    assert "another version already" in refused(
        office, sealed(first._replace(version=2), b"second"), "OM227"
    )
    other = data_key(office.author)
    refused(office, sealed(other, b"x") | {"dek_id": first.dek_id}, "OM099")
    refused(
        office,
        sealed(other, b"x") | {"dek_id": first.dek_id, "wrapped_dek": first.wrapped},
        "OM099",
    )
    refused(office, sealed(other._replace(version=2), b"x"), "OM214")
    with pytest.raises(psycopg.errors.SerializationFailure):
        call(office.author, "oml_submit_sealed", given)
    colleague = data_key(office.colleague)
    call(office.colleague, "oml_submit_sealed", sealed(colleague, b"theirs"))
    refused(office, sealed(colleague._replace(version=2), b"mine"), "OM203")
    office.expect_whole()


def test_a_signature_is_of_just_this_submission_by_a_key_in_force(office: Office) -> None:
    key = data_key(office.author)
    given = sealed(key, b"body", b"one", b"two")
    place = key.place
    others = (
        signed(given, place._replace(tenant_id=bytes(16)), WRITER),
        signed(given, place._replace(artifact_id=bytes(16)), WRITER),
        signed(given, place._replace(version=2), WRITER),
        *(
            signed({**given, name: other}, place, WRITER)
            for name, other in (
                ("media_type", "text/html"),
                ("plaintext_digest", bytes(32)),
                ("ciphertext_digest", bytes(32)),
                ("attachment_names", ["1", "3"]),
                ("attachment_types", ["text/plain", "text/html"]),
                ("attachment_plaintext_digests", [bytes(32)] * 2),
                ("attachment_ciphertext_digests", [bytes(32)] * 2),
            )
        ),
        signed(sealed(key, b"body", b"one"), place, WRITER),
    )
    own = signed(given, place, WRITER)
    envelopes = [other["writer_envelope"] for other in others]
    assert own["writer_envelope"] not in envelopes
    for envelope in (*envelopes, flip(own["writer_envelope"], -1)):
        refused(office, {**given, "writer_envelope": envelope}, "OM207")
    forged = keys.SigningKey(OTHER.secret_key, OTHER.public_key, WRITER.kid)
    refused(office, signed(given, place, forged), "OM207")
    refused(office, signed(given, place, OTHER), "OM208")
    issue(office, OTHER, "colleague")
    refused(office, signed(given, place, OTHER), "OM208")
    office.system.superuser.execute("select oml_retire_key(%s)", (WRITER.kid.hex(),))
    refused(office, signed(given, place, WRITER), "OM208")
    header = cose.protected_header("application/oml-event+cbor", WRITER.kid)
    refused(
        office, {**given, "writer_envelope": cose.sign(header, b"", WRITER.secret_key)}, "OM206"
    )
    call(office.author, "oml_submit_sealed", given)


def test_a_resubmission_that_came_first_is_told_from_a_wrong_version(office: Office) -> None:
    artifact, _ = submit(office.author, b"first")
    key = data_key(office.author, artifact)
    submit(office.author, b"second", artifact=artifact)
    with pytest.raises(psycopg.errors.SerializationFailure):
        call(office.author, "oml_submit_sealed", sealed(key, b"late"))
    key = data_key(office.author, artifact)
    assert key.version == 3
    call(office.author, "oml_submit_sealed", sealed(key, b"third"))
    assert outcome_of_key(office.colleague, artifact) == "OM203"
    office.expect_whole()


def outcome_of_key(connection: Connection, artifact: Any) -> str | None:
    """Return the SQLSTATE with which a data key is refused."""
    try:
        data_key(connection, artifact)
    except psycopg.Error as error:
        return error.sqlstate
    return None
