"""The write gate from outside: what the database cannot know of itself, and what follows from it.

``check`` asks the database for its own part (``oml_fork_check``), and compares the journal with the
lake and the published logs, which lie where no restore of the database reaches them. ``open_gate``
opens the gate where nothing speaks against it, ``accept_loss`` where something does and it was
decided to go on, and ``adopt`` where the database is a logical copy.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, NoReturn
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from oml import owner
from oml.driver.connection import connect
from oml.errors import DatabaseError, GateClosedError, from_postgres
from oml.lake.evidence import LakeEvidence, examine
from oml.lake.source import Source
from oml.lake.table import LakeError
from oml.lake.writer import LakeWriter
from oml.settings import Settings
from oml.store import DirectoryStore, Store, StoreError, open_store
from oml.tlog import evidence
from oml.tlog.evidence import Contradiction
from oml.tlog.publisher import tlog_store
from oml.tlog.source import TlogSource

_NAMED = 5
"""How many tenants a message names; a report has them all."""


class Verdict(StrEnum):
    """What a check came to."""

    OPEN = "open"
    """The gate is open, and nothing speaks against it."""
    CLOSED = "closed"
    """The gate is closed, and nothing speaks against opening it."""
    COPY = "copy"
    """The database is a logical copy: it must be adopted."""
    STANDBY = "standby"
    """The server is a standby: there is nothing to open."""
    DAMAGED = "damaged"
    """The database's own check found chains that do not end as they must."""
    CONTRADICTED = "contradicted"
    """The lake or the transparency log knows events that the journal has lost."""
    DISOWNED = "disowned"
    """Lake or log belong to another database: a copy of this one went on in its place."""
    UNREACHABLE = "unreachable"
    """Evidence could not be looked at."""


@dataclass(frozen=True)
class Loss:
    """What is known to be lost of one tenant's chain, by chain seq.

    ``last_seq`` is the journal's last; ``lost_from`` to ``lost_to`` are gone, or other events stand
    there. Both are None where only a newer tlog generation was seen. The lake has ``lake_events``.
    """

    tenant_id: str
    tenant: str | None
    last_seq: int
    lost_from: int | None
    lost_to: int | None
    lake_events: int = 0
    checkpoint_size: int | None = None
    generation: int | None = None
    hashes: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.tenant or self.tenant_id
        if self.lost_from is None:
            return f"{name}: the transparency log is at generation {self.generation}"
        where = f"the journal ends at {self.last_seq}"
        return f"{name}: seq {self.lost_from} to {self.lost_to} are lost, {where}"


@dataclass(frozen=True)
class GateReport:
    """What a check found. ``state`` and ``reason`` are the database's, ``verdict`` is ours."""

    verdict: Verdict
    state: str
    reason: str | None
    instance: dict[str, Any] | None
    opened_last: dict[str, Any] | None
    opened_at: Any
    opened_by: str | None
    evidence: dict[str, Any] | None
    policy: str
    faults: tuple[dict[str, Any], ...] = ()
    losses: tuple[Loss, ...] = ()
    conflicts: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    disowned: str | None = None
    lake: dict[str, Any] = field(default_factory=dict)
    logs: int | None = None
    """How many published logs agree with the journal; None where none is configured."""

    @property
    def ok(self) -> bool:
        """Whether the gate is open and nothing speaks against it."""
        return self.verdict is Verdict.OPEN

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {"ok": self.ok, **asdict(self), "verdict": str(self.verdict)}

    def message(self) -> str:
        """Say in one sentence how things stand."""
        match self.verdict:
            case Verdict.OPEN:
                return "the write gate is open"
            case Verdict.DAMAGED:
                what = [f"{f['tenant']} at seq {f['seq']}: {f['reason']}" for f in self.faults]
                return f"the journal is damaged: {_some(what)}"
            case Verdict.CONTRADICTED:
                lost = f"the journal has lost events: {_some([*self.losses, *self.conflicts])}"
                return f"{self.reason}, and {lost}" if self.state == "copy" else lost
            case Verdict.DISOWNED:
                return str(self.disowned)
            case Verdict.UNREACHABLE:
                return f"evidence cannot be reached: {_some(self.unreachable)}"
        return str(self.reason)

    def hint(self) -> str | None:
        """Say what to do about it."""
        if self.conflicts:
            return (
                "Numbers of the outbox stand for two things, and no accepted loss settles that. "
                "Keep both: go on with a lake at another URL, and look at the old one by hand."
            )
        if self.verdict is Verdict.CONTRADICTED and self.state == "copy":
            return (
                "Restore a newer dump. Where this copy shall take the original's place without the "
                "events that it lacks: oml gate accept-loss --adopt --reason TEXT."
            )
        return _HINTS.get(self.verdict)


_HINTS = {
    Verdict.CLOSED: "oml gate open opens it, and so does oml serve.",
    Verdict.COPY: "Where this copy takes the place of the original: oml adopt --reason TEXT.",
    Verdict.STANDBY: "Connect to the primary.",
    Verdict.DAMAGED: "Restore it from a backup; oml verify looks at all of it.",
    Verdict.CONTRADICTED: (
        "Restore a newer state, or promote the standby that has it. Where the loss is real and "
        "accepted: oml gate accept-loss --reason TEXT. Reads keep working meanwhile."
    ),
    Verdict.DISOWNED: (
        "An adopted copy or a promoted standby goes on in this server's place. If this one shall "
        "go on instead, stop the other for good and remove owner.json from its lake and its logs."
    ),
    Verdict.UNREACHABLE: (
        "The gate waits until it can be compared. To open without: "
        "select oml_configure('gate_evidence', 'reachable')."
    ),
}


def check(settings: Settings, dsn: str | None = None) -> GateReport:
    """Look at everything that may speak against appending here. Changes nothing.

    Raises DatabaseError, and UsageError for a lake's URL that is none.
    """
    with Source(dsn or settings.dsn) as source:
        return _check(source, settings)


def ensure_open(settings: Settings, dsn: str | None = None) -> GateReport | None:
    """Open the gate if it is closed and nothing speaks against it; for a session's beginning.

    Returns None if it was open already, else what was found. Raises as ``open_gate`` does.
    """
    with connect(dsn or settings.dsn, autocommit=True) as connection:
        if _status(connection)["is_open"]:
            return None
    return open_gate(settings, dsn)


def open_gate(settings: Settings, dsn: str | None = None) -> GateReport:
    """Check and open. Opens a gate that is open as well, if nothing speaks against it.

    Raises GateClosedError with what speaks against it, DatabaseError, UsageError.
    """
    with Source(dsn or settings.dsn) as source:
        report = _check(source, settings)
        if report.verdict is Verdict.OPEN:
            return report
        openable = report.verdict is Verdict.CLOSED or (
            report.verdict is Verdict.UNREACHABLE
            and report.policy == "reachable"
            and report.state not in ("copy", "standby")
        )
        if not openable:
            _refuse(report)
        if report.state != "open":
            _value(
                source.connection,
                sql.SQL("select oml.gate_open(%s, %s)"),
                Jsonb(report.instance),
                Jsonb(_evidence(report)),
            )
        return replace(report, verdict=Verdict.OPEN, **_opened(source.connection))


def find_loss(source: Source, settings: Settings, *, adopting: bool = False) -> GateReport:
    """Check whether there is a loss that can be accepted, of a logical copy only if ``adopting``.

    Raises GateClosedError where there is none, or something else stands in the way.
    """
    report = _check(source, settings)
    if report.state == "copy" and not adopting:
        _refuse(report)
    if report.verdict is not Verdict.CONTRADICTED or report.conflicts:
        if report.verdict in (Verdict.OPEN, Verdict.CLOSED, Verdict.COPY):
            raise GateClosedError(
                "no event is known to be lost: there is no loss to accept", report.hint()
            )
        _refuse(report)
    if report.state == "open":
        raise GateClosedError(
            "the write gate is open: a loss is accepted where it keeps the gate closed",
            "Restart the server: that closes it, and events stop coming.",
        )
    return report


def accept_loss(source: Source, settings: Settings, report: GateReport, reason: str) -> int:
    """Go on without the events that ``find_loss`` has just found.

    Returns the provider chain seq of the event that says so. Raises GateClosedError, DatabaseError.
    """
    _claim(source, settings, take=report.state == "copy")
    losses = [
        {k: v for k, v in asdict(loss).items() if k != "hashes" and v is not None}
        for loss in report.losses
    ]
    query = sql.SQL("select {}.oml_gate_accept_loss(%s, %s, %s)")
    return int(_value(source.connection, query, reason, Jsonb(losses), report.lake.get("cursor")))


def places(source: Source, settings: Settings) -> list[str]:
    """Return the URLs of the lake and the logs, which whoever adopts a copy takes."""
    return [s.url for s in _lake_stores(source, settings) + _log_stores(source, settings)]


def adopt(settings: Settings, reason: str, dsn: str | None = None) -> GateReport:
    """Let a logical copy go on in the original's place, unless something speaks against it.

    Lake and logs are claimed, then looked at once more, and only then is the copy adopted: so
    nothing that the original wrote meanwhile is overlooked. If something speaks against it after
    all, they are given back. A crash in between leaves them the copy's, which can be adopted again.
    Raises GateClosedError, DatabaseError.
    """
    with Source(dsn or settings.dsn) as source:
        _require_adoptable(_check(source, settings))
        given = _claim(source, settings, take=True)
        try:
            _fence_lake(source, settings)
            report = _check(source, settings)
            _require_adoptable(report)
            _value(source.connection, sql.SQL("select {}.oml_adopt(%s)"), reason)
        except (GateClosedError, DatabaseError):
            for store, before, ours in given:
                store.replace(owner.PATH, before, ours)
            raise
        return replace(report, verdict=Verdict.OPEN, **_opened(source.connection))


def _require_adoptable(report: GateReport) -> None:
    if report.state != "copy":
        raise GateClosedError("this database is no logical copy", report.hint())
    if report.verdict is not Verdict.COPY:
        _refuse(report)


# -- the parts of a check ------------------------------------------------------------------------


def _check(source: Source, settings: Settings) -> GateReport:
    status = _status(source.connection)
    found = GateReport(
        Verdict.STANDBY,
        **{
            name: status[name]
            for name in (
                "state", "reason", "instance", "opened_last", "opened_at", "opened_by",
                "evidence", "policy",
            )
        },
    )  # fmt: skip
    if found.state == "standby":
        return found
    faults = _rows(source.connection, sql.SQL("select * from {}.oml_fork_check()"))
    unreachable: list[str] = []
    lake = _look_at_lake(source, settings, unreachable)
    contradictions, logs = _look_at_logs(source, settings, unreachable)
    owned = [] if lake.cursor is None else _lake_stores(source, settings)
    owned += _log_stores(source, settings) if logs else []
    disowned = _look_at_owners(owned, source.state().identity, unreachable)
    losses = _losses(lake, contradictions, unreachable)
    found = replace(
        found,
        faults=tuple(faults),
        losses=losses,
        conflicts=tuple(lake.conflicts),
        unreachable=tuple(unreachable),
        disowned=None if found.state == "copy" else disowned,
        lake={"cursor": lake.cursor, "outbox_max": lake.outbox_max},
        logs=logs,
    )
    return replace(found, verdict=_verdict(found))


def _verdict(found: GateReport) -> Verdict:
    if found.faults:
        return Verdict.DAMAGED
    if found.disowned:
        return Verdict.DISOWNED
    if found.losses or found.conflicts:
        return Verdict.CONTRADICTED
    if found.state == "open":
        return Verdict.OPEN
    if found.unreachable:
        return Verdict.UNREACHABLE
    return Verdict.COPY if found.state == "copy" else Verdict.CLOSED


def _look_at_lake(source: Source, settings: Settings, unreachable: list[str]) -> LakeEvidence:
    try:
        return examine(source, settings)
    except LakeError as error:
        unreachable.append(error.message)
        return LakeEvidence()


def _look_at_logs(
    source: Source, settings: Settings, unreachable: list[str]
) -> tuple[list[Contradiction], int | None]:
    """Hold the published logs against the journal; count those that the database knows of."""
    with TlogSource(source.dsn, "oml gate") as logs:
        state = logs.state()
        if (settings.tlog_url or state.tlog_url) is None:
            return [], None
        if state.instance != source.state().instance:
            unreachable.append("two connections were answered by two servers")
            return [], 0
        published = sum(head.size > 0 for head in logs.heads())
        store = tlog_store(settings, state)
        accepted: dict[UUID, int] = {}
        for loss in source.accepted_losses():
            tenant_id = UUID(loss.tenant_id)
            accepted[tenant_id] = max(accepted.get(tenant_id, 0), loss.lost_to or 0)
        try:
            found = evidence.check(logs, store, accepted)
        except StoreError as error:
            never_made = isinstance(store, DirectoryStore) and not store.root.exists()
            if not (published == 0 and never_made):
                unreachable.append(error.message)
            return [], 0
        return found, max(published, len(found))


def _losses(
    lake: LakeEvidence, contradictions: list[Contradiction], unreachable: list[str]
) -> tuple[Loss, ...]:
    """Put together what lake and logs know of each tenant: the widest range."""
    found = {
        lost.tenant_id: Loss(
            lost.tenant_id, lost.tenant, lost.journal_head, lost.first_seq, lost.last_seq,
            lake_events=lost.events, hashes=tuple(lost.hashes),
        )
        for lost in lake.lost.values()
    }  # fmt: skip
    for each in contradictions:
        if each.kind == "tree":
            unreachable.append(f"the log of {each.tenant} is no evidence: {each.reason}")
            continue
        tenant_id = str(each.tenant_id)
        name = each.tenant if each.tenant != tenant_id else None
        known = found.get(tenant_id, Loss(tenant_id, name, each.journal_head, None, None))
        firsts = [seq for seq in (known.lost_from, each.first_seq) if seq]
        lasts = [seq for seq in (known.lost_to, each.last_seq) if seq]
        found[tenant_id] = replace(
            known,
            lost_from=min(firsts, default=None),
            lost_to=max(lasts, default=None),
            checkpoint_size=each.checkpoint_size,
            generation=each.generation,
            hashes=known.hashes or each.hashes,
        )
    return tuple(sorted(found.values(), key=lambda loss: loss.tenant or loss.tenant_id))


def _lake_stores(source: Source, settings: Settings, *, make: bool = False) -> list[Store]:
    url = settings.lake_url or source.state().lake_url
    return [] if url is None else [open_store(url, settings.lake_storage_options, make=make)]


def _log_stores(source: Source, settings: Settings, *, make: bool = False) -> list[Store]:
    with TlogSource(source.dsn, "oml gate") as logs:
        state = logs.state()
    if (settings.tlog_url or state.tlog_url) is None:
        return []
    return [tlog_store(settings, state, make=make)]


def _look_at_owners(
    stores: Iterable[Store], identity: owner.Identity, unreachable: list[str]
) -> str | None:
    for store in stores:
        try:
            found = owner.read(store)
        except StoreError as error:
            unreachable.append(error.message)
            continue
        if found not in (None, identity) and not (found and identity.supersedes(found)):
            return f"{store.url} belongs to {found}, and this is {identity}"
    return None


def _claim(source: Source, settings: Settings, *, take: bool) -> list[tuple[Store, bytes, bytes]]:
    """Claim lake and logs; return (store, its mark before, ours) of those taken from another."""
    identity = source.state().identity
    stores = _lake_stores(source, settings, make=True) + _log_stores(source, settings, make=True)
    taken = []
    for store in stores:
        before = store.get(owner.PATH)
        try:
            owner.claim(store, identity, take=take)
        except owner.OwnedError as error:
            raise GateClosedError(error.message, error.hint) from error
        ours = store.get(owner.PATH)
        if before is not None and ours is not None and ours != before:
            taken.append((store, before, ours))
    return taken


def _fence_lake(source: Source, settings: Settings) -> None:
    """Make a commit of the original that is under way fail; who begins one now sees our mark."""
    for table in LakeWriter(source, settings).standing():
        if table.bounds is not None:
            table.fence()


def _evidence(report: GateReport) -> dict[str, Any]:
    if report.unreachable:
        return {"database": "checked", "unreachable": list(report.unreachable)}
    lake: Any = "none" if report.lake["cursor"] is None else report.lake
    logs: Any = "none" if report.logs is None else {"compared": report.logs}
    return {"database": "checked", "lake": lake, "tlog": logs}


def _refuse(report: GateReport) -> NoReturn:
    raise GateClosedError(f"the write gate stays closed: {report.message()}", report.hint())


def _some(what: Iterable[object]) -> str:
    texts = [str(item) for item in what]
    more = f"; and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return "; ".join(texts[:_NAMED]) + more


# -- the database --------------------------------------------------------------------------------

Connection = psycopg.Connection[Any]


def _status(connection: Connection) -> dict[str, Any]:
    return _rows(connection, sql.SQL("select * from {}.oml_gate_status()"))[0]


def _opened(connection: Connection) -> dict[str, Any]:
    status = _status(connection)
    names = ("state", "reason", "instance", "opened_last", "opened_at", "opened_by", "evidence")
    return {name: status[name] for name in names}


def _rows(connection: Connection, query: sql.SQL, *parameters: object) -> list[dict[str, Any]]:
    """Run a query; braces in it become the schema of the public functions."""
    schema = (
        "select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace"
        " where e.extname = 'oml'"
    )
    try:
        row = connection.execute(schema).fetchone()
        named = query.format(sql.Identifier(row[0] if row else "public"))
        with connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(named, parameters).fetchall()
    except psycopg.Error as error:
        raise from_postgres(error) from None


def _value(connection: Connection, query: sql.SQL, *parameters: object) -> Any:
    return next(iter(_rows(connection, query, *parameters)[0].values()))
