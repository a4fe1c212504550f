"""Examine a database and its server; each finding says what is, what should be, and what to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import TupleRow, dict_row

from oml import __version__
from oml.doctor import logging, standby_names
from oml.doctor.check import Check, Status
from oml.doctor.standby_names import StandbyNames
from oml.errors import UsageError, from_postgres

Connection = psycopg.Connection[TupleRow]

PROFILES = ("local", "production")
LEVELS = ("off", "local", "remote_write", "on", "remote_apply")
"""The values of synchronous_commit, each at least as durable as the one before it."""
FLOOR = "remote_write"

_CONFIRMED = {
    "remote_write": "has written it",
    "on": "has flushed it",
    "remote_apply": "has flushed and applied it",
}
_SERVER_SOURCES = ("default", "configuration file", "command line", "environment variable")
_JOURNAL_TRIGGERS = {"guard_rows", "guard_truncate", "guard_commit", "derive"}
_LOOPBACK = ("127.", "::1")
_LAST_SEQ = 2**63 - 1
_SEQ_RESERVE = 10**15
"""How many numbers the outbox must have left."""
_SEQ_STEP = 10**9
"""How far an accepted loss may move the outbox's sequence at once; nothing else moves it."""
_MOST_NAMED = 10
"""How many tenants a check names."""


@dataclass(frozen=True)
class Report:
    """What was examined, and by the requirements of which profile."""

    profile: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(check.status is not Status.FAIL for check in self.checks)


class Standby(NamedTuple):
    """A connected standby. What the login may not see is None: ``sync_state`` then, too."""

    name: str | None
    address: str | None
    state: str | None
    sync_state: str | None
    replay_lag: Any
    behind: int | None  # bytes of WAL that it has not flushed


@dataclass(frozen=True)
class Facts:
    """What the checks judge. ``settings`` are (value, source), as a new session has them."""

    settings: dict[str, tuple[str, str]]
    overrides: list[
        tuple[str | None, bool, str]
    ]  # role, of this database only?, synchronous_commit
    standbys: list[Standby]
    standby_names: StandbyNames | None
    deployment: dict[str, Any]
    triggers: list[tuple[str, str, str]]  # table, trigger, tgenabled
    tables: list[str]
    sequence: tuple[int, int, bool]  # cache, increment, cycle
    extension: str | None
    logging: logging.Settings
    kek_faults: list[tuple[str | None, int | None, str, str]]  # tenant, epoch, SQLSTATE, message

    def value(self, name: str) -> str:
        """Return the value of a server setting."""
        return self.settings[name][0]

    @property
    def database_level(self) -> str | None:
        """The level this database gives its sessions, where roles do not; None if it is hidden."""
        for role, _, level in self.overrides:
            if role is None:
                return level
        value, source = self.settings["synchronous_commit"]
        return value if source in _SERVER_SOURCES else None

    @property
    def candidates(self) -> list[Standby]:
        """The standbys that the server counts on for a commit."""
        return [
            s
            for s in self.standbys
            if s.state == "streaming" and s.sync_state in ("sync", "quorum", "potential")
        ]

    @property
    def replicated(self) -> bool:
        """Whether a commit at a sufficient level waits for standbys at all."""
        return self.standby_names is not None and self.value("max_wal_senders") != "0"


def examine(connection: Connection, profile: str | None = None) -> Report:
    """Examine the connection's database by a profile's requirements (None: the database's own).

    The login needs audit or operate on the provider, and pg_monitor to see the standbys. Raises
    UsageError for an unknown profile and on a standby, DatabaseError where the database refuses.
    """
    if profile is not None and profile not in PROFILES:
        raise UsageError(f"{profile} is no profile", "Profiles are local and production.")
    try:
        facts = gather(connection)
    except psycopg.Error as error:
        raise from_postgres(error) from None
    asked = profile or facts.deployment["profile"] or "local"
    return Report(asked, tuple(_checks(facts, asked == "production")))


def gather(connection: Connection) -> Facts:
    """Read what the checks judge. Raises psycopg.Error, UsageError on a standby."""

    def rows(query: str) -> list[tuple[Any, ...]]:
        return connection.execute(query.encode()).fetchall()

    if rows("select pg_is_in_recovery()")[0][0]:
        raise UsageError(
            "this server is a standby", "Run oml doctor on the primary, which knows its standbys."
        )
    with connection.cursor(row_factory=dict_row) as cursor:
        deployment = cursor.execute("select * from oml.durability()").fetchone()
    assert deployment is not None
    settings = {
        name: (value, source)
        for name, value, source in rows(
            "select name, reset_val, source from pg_settings where name in ('synchronous_commit',"
            " 'synchronous_standby_names', 'max_wal_senders', 'fsync', 'full_page_writes',"
            " 'data_checksums', 'wal_level')"
        )
    }
    return Facts(
        settings=settings,
        overrides=rows(
            "select r.rolname, s.setdatabase <> 0, split_part(c, '=', 2)"
            " from pg_db_role_setting s left join pg_roles r on r.oid = s.setrole,"
            " unnest(s.setconfig) c where s.setdatabase in (0, (select oid from pg_database"
            " where datname = current_database())) and (s.setrole = 0 or r.oid is not null)"
            " and split_part(c, '=', 1) = 'synchronous_commit'"
            " order by r.rolname nulls first, s.setdatabase desc"
        ),
        standbys=[
            Standby(*row)
            for row in rows(
                "select application_name, host(client_addr), state, sync_state, replay_lag,"
                " (pg_current_wal_lsn() - flush_lsn)::bigint from pg_stat_replication"
                " order by application_name, pid"
            )
        ],
        standby_names=standby_names.parse(settings["synchronous_standby_names"][0]),
        deployment=deployment,
        triggers=rows(
            "select c.relname, t.tgname, t.tgenabled::text from pg_trigger t"
            " join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = 'oml' and not t.tgisinternal"
        ),
        tables=[
            row[0]
            for row in rows(
                "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                " where n.nspname = 'oml' and c.relkind in ('r', 'p')"
            )
        ],
        sequence=rows(
            "select s.seqcache, s.seqincrement, s.seqcycle from pg_sequence s"
            " join pg_class c on c.oid = s.seqrelid join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = 'oml' and c.relname = 'outbox_seq'"
        )[0],
        extension=next(
            (row[0] for row in rows("select extversion from pg_extension where extname = 'oml'")),
            None,
        ),
        logging=logging.gather(rows),
        kek_faults=rows("select tenant, kek_epoch, code, message from oml.kek_faults()"),
    )


def _checks(facts: Facts, production: bool) -> Iterator[Check]:
    yield _durability(facts, production)
    yield _profile(facts, production)
    yield _level(facts, production)
    yield _role_levels(facts, production)
    yield _names(facts, production)
    yield _standbys(facts, production)
    yield _machines(facts, production)
    yield from _server(facts, production)
    yield _fence(facts, production)
    yield _guards(facts)
    yield _outbox(facts)
    yield _gate(facts)
    yield _keks(facts)
    yield _version(facts)
    yield from logging.checks(facts.logging, production)
    yield _place(facts, "lake_url", "Events are then copied to no lake")
    yield _place(facts, "tlog_url", "A loss of events is then noticed by no published checkpoint")


def _durability(facts: Facts, production: bool) -> Check:
    """Say in one sentence what a commit is worth in this database."""
    level = facts.database_level
    quorum = False
    if facts.value("fsync") == "off":
        found = "nothing: fsync is off, and a crash of the machine may destroy the database"
    elif level is None:
        found = "cannot be seen: this login's own setting hides synchronous_commit's default"
    elif level == "off":
        found = "less than one disk: a commit is reported before it is on this machine's disk"
    elif level == "local" or not facts.replicated:
        found = "one disk: this machine's"
    else:
        quorum = True
        found = f"a quorum: a commit waits until {facts.standby_names} {_CONFIRMED[level]}"
    weak = facts.value("fsync") == "off" or level in (None, "off")
    return Check(
        "durability",
        _failed(not quorum) if production else (Status.WARN if weak else Status.OK),
        found,
        "a quorum" if production else "at least one disk",
        "See the checks below." if (not quorum if production else weak) else "",
    )


def _profile(facts: Facts, production: bool) -> Check:
    stated = facts.deployment["profile"]
    wanted = "production" if production else "local or production"
    if stated in PROFILES and (stated == "production" or not production):
        return Check("profile", Status.OK, stated, wanted)
    return Check(
        "profile",
        Status.FAIL,
        str(stated),
        wanted,
        "Appends below a quorum are taken until a superuser sets it: select"
        " oml_configure('profile', 'production').",
    )


def _level(facts: Facts, production: bool) -> Check:
    level = facts.database_level
    source = "database" if any(role is None for role, _, _ in facts.overrides) else "server"
    wanted = "remote_write, on or remote_apply" if production else "not off"
    if level is None:
        value, hidden_by = facts.settings["synchronous_commit"]
        return Check(
            "synchronous_commit",
            _failed(production, otherwise=Status.WARN),
            f"cannot be seen ({value} by {hidden_by})",
            wanted,
            "Run it as a login without a synchronous_commit of its own.",
        )
    short = _below_floor(level) if production else level == "off"
    return Check(
        "synchronous_commit",
        (_failed(short) if production else Status.WARN if short else Status.OK),
        f"{level} ({source})",
        wanted,
        "alter system set synchronous_commit = 'on', or alter database." if short else "",
    )


def _role_levels(facts: Facts, production: bool) -> Check:
    # What holds for a role in this database goes before what it has everywhere.
    levels: dict[str, str] = {}
    for role, _, level in facts.overrides:
        if role is not None:
            levels.setdefault(role, level)
    short = [
        role
        for role, level in levels.items()
        if (_below_floor(level) if production else level == "off")
    ]
    return Check(
        "synchronous_commit of roles",
        Status.WARN if short else Status.OK,
        ", ".join(f"{role}: {level}" for role, level in levels.items()) or "none of their own",
        "none below the floor" if production else "none off",
        f"alter role … reset synchronous_commit for: {', '.join(short)}."
        + (" In the production profile they cannot append." if production else "")
        if short
        else "",
    )


def _names(facts: Facts, production: bool) -> Check:
    names = facts.standby_names
    short = not facts.replicated
    found = "empty: no standby is waited for" if names is None else str(names)
    if names is not None and short:
        found += "; but max_wal_senders is 0, so none is waited for"
    return Check(
        "synchronous_standby_names",
        _failed(short and production),
        found,
        "any n of more than n standbys" if production else "as you like",
        "alter system set synchronous_standby_names = 'ANY 1 (s1, s2)'; then reload."
        if short and production
        else "",
    )


def _standbys(facts: Facts, production: bool) -> Check:
    needed = facts.standby_names.needed if facts.standby_names is not None else 0
    wanted = f"more than {needed} that count" if needed else "as you like"
    if any(standby.sync_state is None for standby in facts.standbys):
        return Check(
            "standbys",
            _failed(production, otherwise=Status.WARN if needed else Status.OK),
            f"{len(facts.standbys)} connected; their state cannot be seen by this login",
            wanted,
            "grant pg_monitor to the login that runs oml doctor.",
        )
    found = "; ".join(map(_described, facts.standbys)) or "none connected"
    there = len(facts.candidates)
    if needed and there < needed:
        return Check(
            "standbys",
            Status.FAIL,
            found,
            wanted,
            f"Commits wait until {needed} of them stream: start them, with the application_name"
            " that synchronous_standby_names has.",
        )
    if needed and there == needed:
        return Check(
            "standbys", Status.WARN, found, wanted, "If one more is lost, every commit waits."
        )
    if production and not needed:
        hint = (
            "Name them in synchronous_standby_names: they stream, but no commit waits for them."
            if facts.standbys
            else "Start standbys and name them in synchronous_standby_names: there is one copy of"
            " each event."
        )
        return Check("standbys", Status.FAIL, found, "some that count", hint)
    return Check("standbys", Status.OK, found, wanted)


def _described(standby: Standby) -> str:
    behind = "?" if standby.behind is None else f"{standby.behind} bytes"
    lag = "" if standby.replay_lag is None else f", {standby.replay_lag.total_seconds():.3f} s"
    return f"{standby.name}: {standby.sync_state}, {standby.state}, behind {behind}{lag}"


def _machines(facts: Facts, production: bool) -> Check:
    counted = facts.candidates
    here = [s for s in counted if s.address is None or s.address.startswith(_LOOPBACK)]
    alone = bool(counted) and len(here) == len(counted)
    return Check(
        "machines",
        Status.WARN if alone and production else Status.OK,
        f"{len(here)} of {len(counted)} standbys that count connect from this machine",
        "standbys on machines of their own" if production else "as you like",
        "They share its fate, and likely its disk." if alone and production else "",
    )


def _server(facts: Facts, production: bool) -> Iterator[Check]:
    for name, wanted, hint, severe in (
        ("fsync", "on", "Without it a crash of the machine may destroy the database.", True),
        (
            "full_page_writes",
            "on",
            "Without it a crash may leave half-written pages.",
            production,
        ),
        (
            "data_checksums",
            "on",
            "pg_checksums --enable, with the server stopped: a page that rots is then noticed.",
            False,
        ),
        (
            "wal_level",
            "replica or logical",
            "Standbys and base backups need it: alter system set wal_level = 'replica'; restart.",
            False,
        ),
    ):
        value = facts.value(name)
        short = value == "minimal" if name == "wal_level" else value != "on"
        status = (Status.FAIL if severe else Status.WARN) if short else Status.OK
        yield Check(name, status, value, wanted, hint if short else "")


def _fence(facts: Facts, production: bool) -> Check:
    level = facts.deployment["fence_synchronous_commit"]
    short = production and _below_floor(level)
    return Check(
        "fence_synchronous_commit",
        _failed(short),
        level,
        "remote_write, on or remote_apply" if production else "as you like",
        "The lake may otherwise hold events that a failover takes from the journal: select"
        " oml_configure('fence_synchronous_commit', 'on')."
        if short
        else "",
    )


def _guards(facts: Facts) -> Check:
    names: dict[str, set[str]] = {table: set() for table in facts.tables}
    for table, trigger, _ in facts.triggers:
        names.setdefault(table, set()).add(trigger)
    missing = [
        f"{table}.guard_truncate" for table, has in names.items() if "guard_truncate" not in has
    ]
    missing += [f"journal.{name}" for name in _JOURNAL_TRIGGERS - names.get("journal", set())]
    # What guards commits is enabled by the database's own profile, whichever is asked for.
    idle = (
        set() if facts.deployment["profile"] == "production" else {("journal", "guard_commit", "D")}
    )
    off = [f"{t[0]}.{t[1]}" for t in facts.triggers if t[2] != "A" and t not in idle]
    asleep = ", but for guard_commit, which is production's" if idle & set(facts.triggers) else ""
    wrong = sorted({f"{name} is missing" for name in missing} | {f"{name} is not" for name in off})
    return Check(
        "guards",
        _failed(bool(wrong)),
        "; ".join(wrong) or f"all {len(facts.triggers)} triggers are ENABLE ALWAYS{asleep}",
        "every trigger of OML's tables ENABLE ALWAYS",
        "select oml_attach() as a superuser puts them back." if wrong else "",
    )


def _outbox(facts: Facts) -> Check:
    cache, increment, cycle = facts.sequence
    newest, last = facts.deployment["outbox_max"], facts.deployment["outbox_last"]
    shape = (cache, increment, cycle) == (1, 1, False)
    behind, spent = last < newest, last > _LAST_SEQ - _SEQ_RESERVE
    ahead = last - newest > _SEQ_STEP
    hint = ""
    if not shape:
        hint = "alter sequence oml.outbox_seq cache 1 increment 1 no cycle."
    elif behind:
        hint = (
            "select setval('oml.outbox_seq', max(seq)) from oml.outbox, as a superuser, while"
            " nothing is appended."
        )
    elif spent or ahead:
        hint = (
            "Something moved it: no append does. Where the lake is not ahead as well (oml gate"
            " status), set it back to the outbox's end as a superuser, while nothing is appended."
        )
    return Check(
        "outbox sequence",
        _failed(not shape or behind or spent, otherwise=Status.WARN if ahead else Status.OK),
        f"at {last}, the outbox at {newest}, CACHE {cache} INCREMENT {increment}"
        + (" CYCLE" if cycle else ""),
        "CACHE 1 INCREMENT 1 NO CYCLE, not behind the outbox, nor far ahead of it",
        hint,
    )


def _gate(facts: Facts) -> Check:
    is_open, reason = facts.deployment["gate_open"], facts.deployment["gate_reason"]
    return Check(
        "write gate",
        _failed(not is_open),
        "open" if is_open else f"closed: {reason}",
        "open",
        "" if is_open else "Nothing is appended: oml gate status says what speaks against opening.",
    )


def _keks(facts: Facts) -> Check:
    faults = facts.kek_faults
    named = [
        f"{message} ({code})" if tenant is None else f"{tenant}, epoch {epoch}: {message} ({code})"
        for tenant, epoch, code, message in faults
    ]
    hint = ""
    if faults:
        hint = (
            "Nothing of these tenants is read, and nothing submitted to them: put their files back"
        )
        hint += " from a copy, into the directory kek beside the signing key."
        if faults[-1][0] is None:
            hint = "The signer is asked to open a data key of each tenant: see to the signer first."
    return Check(
        "tenants' keys",
        _failed(bool(faults)),
        "; ".join(named[:_MOST_NAMED])
        + (f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else "")
        or "each in use opens what it wrapped",
        "the signer opens data keys of every tenant and epoch that has any",
        hint,
    )


def _version(facts: Facts) -> Check:
    same = facts.extension == __version__
    return Check(
        "extension",
        _failed(not same),
        facts.extension or "not in this database",
        f"{__version__}, as this package",
        "" if same else "Install the package of the extension's version, or update the extension.",
    )


def _place(facts: Facts, name: str, without: str) -> Check:
    place = facts.deployment[name]
    return Check(
        name,
        Status.OK if place else Status.WARN,
        place or "not set",
        "a place",
        "" if place else f"{without}: select oml_configure('{name}', …).",
    )


def _failed(failed: bool, *, otherwise: Status = Status.OK) -> Status:
    return Status.FAIL if failed else otherwise


def _below_floor(level: str) -> bool:
    return level not in LEVELS[LEVELS.index(FLOOR) :]
