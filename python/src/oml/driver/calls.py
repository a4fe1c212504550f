"""The SQL interface as data: each call's statement, its parameters, and how its answer is read.

What runs them is oml.driver.client, or oml.driver.client_async. Parameters are bound, never part of
a statement; bytes go in binary. None of it is shown or logged.
"""

import contextlib
import json
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar
from uuid import UUID

from psycopg import sql
from psycopg.adapt import PyFormat

from oml.driver.artifacts import (
    ArtifactEvent,
    Attachment,
    Fetched,
    OwnSubmission,
    Part,
    Queued,
    Report,
    Served,
    Submission,
)
from oml.driver.events import Event, Receipt
from oml.driver.sealing import Content, DataKey, Sealed, Sealing, Writer
from oml.errors import UsageError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Rows = list[tuple[Any, ...]]
MAX_PAGE_ROWS = 1000

Source = str | tuple[UUID, int]
"""A version that another was made from: "ARTIFACT/VERSION", or artifact and version."""


class Claims(TypedDict, total=False):
    """What may be said of any act beside its content. A key makes it happen once: see Retry."""

    idempotency_key: str | None
    operation: str | None
    app_version: str | None


class ContentClaims(Claims, total=False):
    """What may be said of a submission."""

    caused_by: UUID | None
    invocation_id: str | None
    subject_id: str | None


class EventClaims(ContentClaims, total=False):
    """What may be said of an event: an entity has a type and an id."""

    entity_type: str | None
    entity_id: str | None
    schema_version: int | None


class Task(Protocol[T_co]):
    """One attempt at something: calls to be made in turn, each in a transaction of its own."""

    @property
    def name(self) -> str:
        """The function that is called, for a log line."""

    @property
    def repeatable(self) -> bool:
        """See oml.driver.retrying.mends."""

    @property
    def writes(self) -> bool:
        """Whether it leaves something behind."""

    def steps(self) -> Generator["Call[Any]", Any, T_co]:
        """Yield each call, take its answer, and return what came of them."""


@dataclass(frozen=True, eq=False)
class Call(Generic[T]):
    """A call of one SQL function. ``repeatable`` and ``writes`` are as Task has them."""

    name: str
    query: sql.Composed = field(repr=False)
    parameters: Sequence[Any] = field(repr=False)
    read: Callable[[Rows], T] = field(repr=False)
    repeatable: bool = True
    writes: bool = True

    def steps(self) -> Generator["Call[Any]", Any, T]:
        """See Task: it is the only one."""
        answer: T = yield self
        return answer


@dataclass(frozen=True)
class Paged(Generic[T]):
    """A list that is read page by page: rows after, or before, the last one's place."""

    rows: int
    page: Callable[[int | None], Call[list[T]]] = field(repr=False)
    place: Callable[[T], int] = field(repr=False)

    def after(self, page: Sequence[T] | None) -> Call[list[T]] | None:
        """Return the call for what follows a page (None: for the first); None if nothing does."""
        if page is None:
            return self.page(None)
        return self.page(self.place(page[-1])) if len(page) == self.rows else None


class Calls:
    """Makes the calls of one client.

    ``keyed``: a call that takes an idempotency key and is given none has one made for it.
    """

    def __init__(self, tenant: str | None, writer: Writer | None, *, keyed: bool) -> None:
        self._tenant = tenant
        self._writer = writer
        self._keyed = keyed

    def append(
        self, type: str, payload: Mapping[str, Any] | str, claims: EventClaims
    ) -> Task[Receipt]:
        """oml_append"""
        return appending(type, payload, self._claims(EventClaims, claims))

    def append_batch(self, events: Iterable[Event]) -> Task[list[Receipt]]:
        """oml_append_batch"""
        said = [
            {
                name: str(value) if isinstance(value, UUID) else value
                for name, value in event._asdict().items()
                if value is not None
            }
            for event in events
        ]
        for event in said:
            if self._tenant is not None:
                event.setdefault("tenant", self._tenant)
            if self._keyed:
                event.setdefault("idempotency_key", _new_key())
        return _call("oml_append_batch", _each(Receipt), {"events": _json(said)})

    def submit(
        self,
        workarea: str | UUID,
        body: Content | None,
        media_type: str,
        provenance: str,
        attachments: Sequence[Attachment | None],
        derived_from: Sequence[Source],
        artifact: UUID | None,
        encrypt: str | None,
        claims: ContentClaims,
    ) -> Task[Submission]:
        """oml_submit; or oml_data_key and oml_submit_sealed"""
        if body is None:
            raise UsageError("the body is no bytes", "Encode a text: text.encode().")
        encrypt = encrypt or ("server" if self._writer is None else "client")
        if encrypt not in ("server", "client"):
            raise UsageError(f"encrypt is {encrypt!r}", "Either server or client encrypts.")
        if encrypt == "server" and self._writer is not None:
            raise UsageError(
                "a writer's signature needs a client that encrypts",
                "Leave encrypt out: only who encrypts knows what there is to sign.",
            )
        files = [_attachment(n, a) for n, a in enumerate(attachments, 1)]
        artifact = _artifact(artifact)
        first = {"workarea": str(workarea), "media_type": media_type, "provenance": provenance}
        said = self._claims(ContentClaims, claims) | {
            "derived_from": [_source(s) for s in derived_from] or None,
            "attachment_names": [a.name for a in files] or None,
            "attachment_types": [a.media_type for a in files] or None,
        }
        if encrypt == "server":
            said |= {"attachments": [a.content for a in files] or None, "artifact": artifact}
            return _call("oml_submit", _one(Submission), first | {"body": body}, said)

        def submit(sealed: Sealed) -> Call[Submission]:
            return _call("oml_submit_sealed", _one(Submission), first | sealed.arguments, said)

        key = _call(
            "oml_data_key",
            _one(DataKey),
            {},
            {"artifact": artifact, "tenant": self._tenant},
            writes=False,
        )
        return Sealing(key, submit, body, media_type, files, self._writer)

    def fetch(self, artifact: UUID, version: int | None, attachment: str | None) -> Task[Fetched]:
        """oml_fetch"""
        said = {"version": version, "attachment": attachment, "tenant": self._tenant}
        named = {"artifact": _artifact(artifact)}
        return _call("oml_fetch", _one(Fetched), named, said, writes=False)

    def review(self, artifact: UUID, version: int | None) -> Task[Served]:
        """oml_review_serve. Tried again it serves again, which is another event and as true."""

        def read(rows: Rows) -> Served:
            version, _, _, _, provenance, *_ = rows[0]
            parts = tuple(
                Part(part, name, media_type, content, digest)
                for _, part, name, media_type, _, content, digest in rows
            )
            return Served(artifact, version, provenance, parts)

        said = {"version": version, "tenant": self._tenant}
        return _call("oml_review_serve", read, {"artifact": _artifact(artifact)}, said)

    def verdict(
        self,
        artifact: UUID,
        verdict: Literal["approve", "reject"],
        reason: str | None,
        version: int | None,
        report: Report | None,
        accept_findings: bool,
        claims: Claims,
    ) -> Task[Receipt]:
        """oml_verdict"""
        said = self._claims(Claims, claims) | {
            "reason": reason,
            "version": version,
            "report": None if report is None else _json(report),
            "accept_findings": accept_findings,
        }
        named = {"artifact": _artifact(artifact), "verdict": verdict}
        return _call("oml_verdict", _one(Receipt), named, said)

    def decide(
        self,
        verb: Literal["promote", "demote", "reassign", "end_simulation"],
        artifact: UUID,
        reason: str | None,
        version: int | None,
        claims: Claims,
        workarea: str | UUID | None = None,
    ) -> Task[Receipt]:
        """oml_promote, oml_demote, oml_reassign, oml_end_simulation"""
        required: dict[str, Any] = {"artifact": _artifact(artifact), "reason": reason}
        if verb == "reassign":
            required["workarea"] = None if workarea is None else str(workarea)
        said = self._claims(Claims, claims) | {"version": version}
        return _call(f"oml_{verb}", _one(Receipt), required, said)

    def review_queue(self, rows: int) -> Paged[Queued]:
        """oml_review_queue"""

        def page(after: int | None) -> Call[list[Queued]]:
            said = {"tenant": self._tenant, "after_seq": after, "max_rows": rows}
            return _call("oml_review_queue", _each(Queued), {}, said, writes=False)

        return _paged(rows, page, lambda queued: queued.submitted_seq)

    def my_submissions(self, artifact: UUID | None, rows: int) -> Paged[OwnSubmission]:
        """oml_my_submissions"""
        artifact = _artifact(artifact)

        def page(before: int | None) -> Call[list[OwnSubmission]]:
            said: dict[str, Any] = {"tenant": self._tenant, "before_seq": before, "max_rows": rows}
            said["artifact"] = artifact
            return _call("oml_my_submissions", _each(OwnSubmission), {}, said, writes=False)

        return _paged(rows, page, lambda own: own.submitted_seq)

    def history(self, artifact: UUID, rows: int) -> Paged[ArtifactEvent]:
        """oml_history"""
        named = {"artifact": _artifact(artifact)}

        def page(after: int | None) -> Call[list[ArtifactEvent]]:
            said = {"tenant": self._tenant, "after_seq": after, "max_rows": rows}
            return _call("oml_history", _each(ArtifactEvent), named, said, writes=False)

        return _paged(rows, page, lambda event: event.seq)

    def workarea(
        self, verb: Literal["create", "move", "add", "remove"], **arguments: str | UUID
    ) -> Task[Any]:
        """oml_create_workarea, oml_move_workarea, oml_add_member, oml_remove_member

        They take no idempotency key, so they are not repeatable: a member who was added could be
        removed by another before the second time.
        """
        what = "member" if verb in ("add", "remove") else "workarea"
        return _call(
            f"oml_{verb}_{what}",
            lambda rows: rows[0][0],
            {name: str(value) for name, value in arguments.items()},
            {"tenant": self._tenant},
            repeatable=False,
        )

    def _claims(self, known: type, given: Mapping[str, Any]) -> dict[str, Any]:
        for name in given:
            if name not in known.__annotations__:
                raise TypeError(f"there is no argument {name!r}")
        said = {"tenant": self._tenant, **given}
        if self._keyed and said.get("idempotency_key") is None:
            said["idempotency_key"] = _new_key()
        return said


def appending(
    type: str, payload: Mapping[str, Any] | str, said: Mapping[str, Any]
) -> Call[Receipt]:
    """Return the call of oml_append(). ``said`` are its further arguments, by name."""
    text = payload if isinstance(payload, str) else _json(payload)
    return _call("oml_append", _one(Receipt), {"type": type, "payload": text}, said)


def acting_as(tenant: str | None, principal: str) -> Call[None]:
    """Return the call of oml_use(): it holds for the transaction."""
    said = {"tenant": tenant, "principal": principal}
    return _call("oml_use", lambda rows: None, {}, said)


def _call(
    function: str,
    read: Callable[[Rows], T],
    required: Mapping[str, Any],
    said: Mapping[str, Any] | None = None,
    *,
    repeatable: bool = True,
    writes: bool = True,
) -> Call[T]:
    """Call a function with its required arguments, and with the others that have a value."""
    given = {**required, **{n: v for n, v in (said or {}).items() if v is not None}}
    query = sql.SQL("select r.* from {}({}) r").format(
        sql.Identifier(function),
        sql.SQL(", ").join(
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(format=_format(value)))
            for name, value in given.items()
        ),
    )
    return Call(function, query, tuple(given.values()), read, repeatable, writes)


def _format(value: Any) -> PyFormat:
    first = value[0] if isinstance(value, list) else value
    return PyFormat.BINARY if isinstance(first, bytes) else PyFormat.AUTO


def _one(kind: Callable[..., T]) -> Callable[[Rows], T]:
    return lambda rows: kind(*rows[0])


def _each(kind: Callable[..., T]) -> Callable[[Rows], list[T]]:
    return lambda rows: [kind(*row) for row in rows]


def _paged(
    rows: int, page: Callable[[int | None], Call[list[T]]], place: Callable[[T], int]
) -> Paged[T]:
    if not 1 <= rows <= MAX_PAGE_ROWS:
        raise UsageError(f"pages of {rows} rows", f"A page has 1 to {MAX_PAGE_ROWS} rows.")
    return Paged(rows, page, place)


def _attachment(number: int, attachment: Attachment | None) -> Attachment:
    if attachment is None:
        raise UsageError(
            f"attachment {number} is no oml.Attachment",
            "Give oml.Attachment(name, media_type, content).",
        )
    content = Content.of(attachment.content)
    if content is None:
        raise UsageError(f"attachment {number} is no bytes", "Encode a text: text.encode().")
    return attachment._replace(content=content)


def _artifact(given: object) -> UUID | None:
    """Take an artifact's id; its text will do. Raises UsageError for what is none."""
    if given is None or isinstance(given, UUID):
        return given
    if isinstance(given, str):
        with contextlib.suppress(ValueError):
            return UUID(given)
    raise UsageError(
        f"{str(given)[:80]!r} is no id of an artifact", "It is a UUID: a receipt's artifact_id."
    )


def _source(source: Source) -> str:
    return source if isinstance(source, str) else f"{source[0]}/{source[1]}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _new_key() -> str:
    return str(uuid.uuid4())
