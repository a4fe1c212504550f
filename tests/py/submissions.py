"""What tests do with submissions: an office of logins that make, review and release them."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from lakes import value
from oml.core import body, submission
from oml.core.keys import SigningKey
from systems import Connection, System

TENANT = "acme"
WORKAREA = "research"
PEOPLE = {
    "author": ("oml_writer", ("submit",)),
    "colleague": ("oml_writer", ("submit",)),
    "reviewer": ("oml_reviewer", ("review",)),
    "second_reviewer": ("oml_reviewer", ("review",)),
    "chief": ("oml_operator", ("operate",)),
}


class Office:
    """A system whose tenant acme has authors, reviewers and an operator, by their logins."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.tenant_id = system.make(TENANT)
        for login, (group, permissions) in PEOPLE.items():
            system.make_login(login, group)
            system.bind(login, TENANT, permissions)
        self.author, self.colleague = system.connect("author"), system.connect("colleague")
        self.reviewer, self.chief = system.connect("reviewer"), system.connect("chief")
        self.chief.execute("select oml_create_workarea(%s)", (WORKAREA,))
        for member in ("author", "colleague"):
            self.chief.execute("select oml_add_member(%s, %s)", (WORKAREA, member))

    def submit(self, content: bytes, *attached: bytes, **others: Any) -> UUID:
        """Submit as the author: text, with attachments named 1, 2 …; return the artifact."""
        artifact = submit(self.author, content, *attached, **others)[0]
        assert isinstance(artifact, UUID)
        return artifact

    def approve(self, artifact: UUID) -> None:
        """Have the reviewer read and approve the newest version."""
        self.reviewer.execute("select count(*) from oml_review_serve(%s)", (artifact,))
        self.reviewer.execute("select oml_verdict(%s, 'approve')", (artifact,))

    def promote(self, artifact: UUID) -> None:
        """Have the newest version approved and promoted."""
        self.approve(artifact)
        self.chief.execute("select oml_promote(%s)", (artifact,))

    def expect_whole(self) -> None:
        """Insist that chains verify, the state is the journal's, and each version has its parts."""
        superuser = self.system.superuser
        chains = (
            "select t.name, v.reason from oml.tenant t, oml_verify_chain(t.name) v where not v.ok"
        )
        assert superuser.execute(chains.encode()).fetchall() == []
        assert superuser.execute("select * from oml_fold_check()").fetchall() == []
        assert superuser.execute(INCOMPLETE.encode()).fetchall() == []


INCOMPLETE = """
    select 'version', v.artifact_id, v.version from oml.artifact_version v
    left join oml.dek d on d.tenant_id = v.tenant_id and d.dek_id = v.dek_id
      and d.artifact_id = v.artifact_id and d.version = v.version
    where d.dek_id is null or (
      select array_agg(b.part order by b.part) from oml.body b
      where b.tenant_id = v.tenant_id and b.artifact_id = v.artifact_id and b.version = v.version
    ) is distinct from array(select generate_series(0, v.attachments))
    union all
    select 'body', b.artifact_id, b.version from oml.body b
    where not exists (
      select from oml.artifact_version v
      where v.tenant_id = b.tenant_id and v.artifact_id = b.artifact_id and v.version = b.version
    )
    union all
    select 'dek', d.artifact_id, d.version from oml.dek d
    where not exists (
      select from oml.artifact_version v where v.tenant_id = d.tenant_id and v.dek_id = d.dek_id
    )
"""


def submit(
    connection: Connection, content: bytes, *attached: bytes, **others: Any
) -> tuple[UUID, int]:
    """Submit text with attachments named 1, 2 … as the connection's login.

    Returns artifact and version.
    """
    given = {
        "workarea": WORKAREA,
        "body": content,
        "media_type": "text/plain",
        "provenance": "observed",
        "attachment_names": [str(n + 1) for n in range(len(attached))],
        "attachment_types": ["text/plain"] * len(attached),
        "attachments": list(attached),
        **others,
    }
    row = call(connection, "oml_submit", given)
    return row[1], row[2]


def call(connection: Connection, function: str, given: dict[str, Any]) -> tuple[Any, ...]:
    """Call a function with named arguments, bound as parameters; return its row."""
    arguments = ", ".join(f"{name} => %({name})s" for name in given)
    row = connection.execute(f"select * from {function}({arguments})".encode(), given).fetchone()
    assert row is not None
    return row


class DataKey(NamedTuple):
    """What oml_data_key() gives out."""

    tenant_id: UUID
    artifact_id: UUID
    version: int
    dek_id: UUID
    dek: bytes
    wrapped: bytes
    kek_epoch: int

    @property
    def place(self) -> body.Place:
        """Where what it encrypts belongs."""
        return body.Place(self.tenant_id.bytes, self.artifact_id.bytes, self.version)


def data_key(connection: Connection, artifact: UUID | None = None) -> DataKey:
    """Ask for a fresh data key, of a new artifact or of the next version of one."""
    return DataKey(*call(connection, "oml_data_key", {"artifact": artifact}))


def sealed(key: DataKey, content: bytes, *attached: bytes) -> dict[str, Any]:
    """Return the arguments of oml_submit_sealed() for parts that were encrypted with this key."""
    first, *others = (
        body.seal(key.dek, key.place, n, part) for n, part in enumerate((content, *attached))
    )
    return {
        "workarea": WORKAREA,
        "artifact": key.artifact_id,
        "version": key.version,
        "dek_id": key.dek_id,
        "wrapped_dek": key.wrapped,
        "kek_epoch": key.kek_epoch,
        "ciphertext": first.ciphertext,
        "plaintext_digest": first.plaintext_digest,
        "ciphertext_digest": first.ciphertext_digest,
        "media_type": "text/plain",
        "provenance": "observed",
        "attachment_names": [str(n + 1) for n in range(len(others))],
        "attachment_types": ["text/plain"] * len(others),
        "attachments": [part.ciphertext for part in others],
        "attachment_plaintext_digests": [part.plaintext_digest for part in others],
        "attachment_ciphertext_digests": [part.ciphertext_digest for part in others],
    }


def parts_of(given: dict[str, Any]) -> Sequence[submission.Signed]:
    """Return the parts of a sealed submission as its writer signs them."""
    return [
        submission.Signed(
            given["plaintext_digest"], given["ciphertext_digest"], given["media_type"]
        ),
        *(
            submission.Signed(plain, cipher, media_type, name)
            for plain, cipher, media_type, name in zip(
                given["attachment_plaintext_digests"],
                given["attachment_ciphertext_digests"],
                given["attachment_types"],
                given["attachment_names"],
                strict=True,
            )
        ),
    ]


def signed(given: dict[str, Any], place: body.Place, writer: SigningKey) -> dict[str, Any]:
    """Return a sealed submission with its writer's signature."""
    envelope = submission.sign(writer.kid, writer.secret_key, place, parts_of(given))
    return {**given, "writer_envelope": envelope}


def fetched(connection: Connection, artifact: UUID, attachment: str | None = None) -> bytes:
    """Return a body, or an attachment."""
    query = "select content from oml_fetch(%s, attachment => %s)"
    content = value(connection, query, artifact, attachment)
    assert isinstance(content, bytes)
    return content


def outcome(connection: Connection, query: str, *parameters: object) -> str | None:
    """Run a statement; return the SQLSTATE with which it is refused, or None."""
    try:
        connection.execute(query.encode(), parameters)
    except psycopg.Error as error:
        return error.sqlstate
    return None
