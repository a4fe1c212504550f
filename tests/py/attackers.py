"""Hostile logins of every kind, a system for them to attack, and what counts as refused."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from catalog import contents, shape
from lakes import KIND
from systems import Connection, System

OWN, OTHER = "acme", "globex"
SECRET = "known to globex alone"
VICTIM = "attack_victim"
LANDLORD = "attack_landlord"
ALL = ("append", "submit", "review", "operate", "audit")
NOT_IN_A_TRANSACTION = ("vacuum", "alter system", "create subscription")
GROUPS = ("oml_writer", "oml_reviewer", "oml_operator", "oml_auditor", "oml_daemon")


@dataclass(frozen=True)
class Role:
    """The group roles of a login, and its permissions in its own tenant and the provider."""

    groups: tuple[str, ...]
    own: tuple[str, ...] = ()
    provider: tuple[str, ...] = ()

    @property
    def appends(self) -> bool:
        """Whether it may append to its own tenant."""
        return "oml_writer" in self.groups and "append" in self.own


ROLES = {
    "attack_public": Role(()),
    "attack_bound": Role((), ALL),
    "attack_writer": Role(("oml_writer",), ("append",)),
    "attack_reviewer": Role(("oml_reviewer",), ("submit", "review")),
    "attack_operator": Role(("oml_operator",), ("operate",)),
    "attack_provider": Role(("oml_operator",), ("operate",), ("operate",)),
    "attack_auditor": Role(("oml_auditor",), ("audit",)),
    "attack_daemon": Role(("oml_daemon",), ("operate",)),
    "attack_unbound": Role(GROUPS),
    "attack_all": Role(GROUPS, ALL),
    LANDLORD: Role(("oml_writer",), ("append",)),
}
"""Login by login; the landlord owns the database and with it schema public, and is no superuser."""


class Target:
    """A system with two tenants: the attackers', and the one whose login attacks nobody."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.superuser = system.superuser
        self.superuser.execute("set client_min_messages = error")
        self.superuser.execute("select oml_register_event_type(%s)", (KIND,))
        self.own, self.other = system.make(OWN), system.make(OTHER)
        for login, role in ROLES.items():
            system.make_login(login, *role.groups)
            name = sql.Identifier(login)
            self.superuser.execute(sql.SQL("create schema {0} authorization {0}").format(name))
            for tenant, permissions in ((OWN, role.own), ("provider", role.provider)):
                if permissions:
                    system.bind(login, tenant, permissions)
        self.superuser.execute(
            sql.SQL("alter database {} owner to {}").format(
                sql.Identifier(system.database), sql.Identifier(LANDLORD)
            )
        )
        system.make_login(VICTIM, "oml_writer", "oml_auditor")
        system.bind(VICTIM, OTHER, ("append", "audit"))
        victim = system.connect(VICTIM)
        append(victim, SECRET, key="the victim's")
        writer = system.connect("attack_writer")
        append(writer, "nothing secret")
        self.superuser.execute(
            "select oml_register_event_type('file.opened', state_keys => '{of}')"
        )
        for connection, tenant_id in ((writer, self.own), (victim, self.other)):
            connection.execute(
                "select public.oml_append('file.opened', jsonb_build_object('of', %s::uuid),"
                " entity_type => 'file', entity_id => '1')",
                (tenant_id,),
            )

    def tables(self) -> dict[str, str]:
        """Return every table of schema oml, qualified, with the name of its first column."""
        rows = self.superuser.execute(
            """
            select format('oml.%I', c.relname), quote_ident(a.attname)
            from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum = 1
            where c.relnamespace = 'oml'::regnamespace and c.relkind in ('r', 'p')
            order by 1
            """
        )
        return dict(rows.fetchall())

    def sequences(self) -> list[str]:
        """Return every sequence of schema oml."""
        rows = self.superuser.execute(
            "select format('oml.%I', relname) from pg_class"
            " where relnamespace = 'oml'::regnamespace and relkind = 'S' order by 1"
        )
        return [name for (name,) in rows]

    def settings(self) -> list[str]:
        """Return every setting of ours that a function or policy asks for or sets."""
        rows = self.superuser.execute(
            r"""
            select distinct m[1]
            from (
              select prosrc from pg_proc where prosrc like '%oml.%'
              union all select concat(qual, with_check) from pg_policies where schemaname = 'oml'
            ) s (source),
            regexp_matches(source, '(?:current_setting|set_config)\(''(oml\.\w+)', 'g') m
            """
        )
        return sorted(name for (name,) in rows)

    def state(self) -> dict[str, Any]:
        """Return all that no attack may change: rows, objects, rights, and what hangs on them."""
        return {
            **contents(self.superuser),
            **{f"the {kind}": rows for kind, rows in shape(self.superuser).items()},
            "beside": self.superuser.execute(BESIDE.encode()).fetchall(),
        }


# What others could have put into schema oml or onto our tables and functions.
BESIDE = """
    select 'in oml', classid::regclass::text, objid::regclass::text
    from pg_depend
    where refclassid = 'pg_namespace'::regclass and refobjid = 'oml'::regnamespace
      and classid <> 'pg_class'::regclass and classid <> 'pg_type'::regclass
      and classid <> 'pg_proc'::regclass
    union all
    select 'type', typname, typowner::regrole::text from pg_type
    where typnamespace = 'oml'::regnamespace
    union all
    select 'relation', relname, relowner::regrole::text from pg_class
    where relnamespace = 'oml'::regnamespace
    union all
    select 'child', inhrelid::regclass::text, inhparent::regclass::text from pg_inherits i
    join pg_class c on c.oid = i.inhparent where c.relnamespace = 'oml'::regnamespace
    union all
    select 'reference', conname, conrelid::regclass::text from pg_constraint k
    join pg_class c on c.oid = k.confrelid where c.relnamespace = 'oml'::regnamespace
    union all
    select 'rule', rulename, c.relname from pg_rewrite r
    join pg_class c on c.oid = r.ev_class where c.relnamespace = 'oml'::regnamespace
    union all
    select 'statistics', stxname, c.relname from pg_statistic_ext s
    join pg_class c on c.oid = s.stxrelid where c.relnamespace = 'oml'::regnamespace
    union all
    select 'publication', p.pubname, c.relname from pg_publication p
    left join pg_publication_rel r on r.prpubid = p.oid left join pg_class c on c.oid = r.prrelid
    union all
    select 'event trigger', evtname, evtowner::regrole::text from pg_event_trigger
    union all
    select 'label', label, objoid::text from pg_seclabel
    union all
    select 'member', r.rolname, m.member::regrole::text from pg_auth_members m
    join pg_roles r on r.oid = m.roleid where r.rolname like 'oml%'
    union all
    select 'extension', extname, extowner::regrole::text from pg_extension
    order by 1, 2, 3
"""


def append(
    connection: Connection, note: str, *, tenant: str | None = None, key: str | None = None
) -> tuple[Any, int]:
    """Append an event that carries this note; return its tenant and chain seq."""
    row = connection.execute(
        "select r.tenant_id, r.seq from public.oml_append("
        "%s, jsonb_build_object('note', %s::text), tenant => %s, idempotency_key => %s) r",
        (KIND, note, tenant, key),
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def refusal(connection: Connection, statement: str) -> str | None:
    """Run statements in a transaction of their own and undo them; return the SQLSTATE, or None.

    They are separated by two semicolons. VACUUM, ANALYZE, GRANT and REVOKE refuse with a warning,
    when others of their kind are allowed: that counts as 42501.
    """
    warned: list[str] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        if re.match(r"skipping |no privileges ", diagnostic.message_primary or ""):
            warned.append("42501")

    connection.add_notice_handler(note)
    try:
        if statement.startswith(NOT_IN_A_TRANSACTION):
            connection.execute(statement.encode())
        else:
            with connection.transaction(force_rollback=True):
                for one in statement.split(";; "):
                    connection.execute(one.encode())
    except psycopg.Error as error:
        return error.sqlstate
    finally:
        connection.remove_notice_handler(note)
    return warned[0] if warned else None


def not_refused(
    connection: Connection, attacks: dict[str, str], sqlstates: Sequence[str] = ("42501",)
) -> dict[str, str | None]:
    """Run every attack; return those that got through or failed for another reason."""
    outcomes = {name: refusal(connection, statement) for name, statement in attacks.items()}
    return {name: outcome for name, outcome in outcomes.items() if outcome not in sqlstates}


@contextmanager
def nothing_changes(target: Target, *, draws: bool = False) -> Iterator[None]:
    """Insist that all state is the same after the block; ``draws``: but for the sequences.

    A number that was drawn is gone, also if its transaction is rolled back.
    """
    drawn = {name.removeprefix("oml.") for name in target.sequences()} if draws else set()
    before = target.state()
    yield
    after = target.state()
    assert {k for k in after if after[k] != before.get(k)} <= drawn
    assert before.keys() == after.keys()


def calls(superuser: Connection) -> list[tuple[str, str, str]]:
    """Return every function of the extension: a call with nulls, its signature and definition.

    A trigger function is called by a trigger on a table of the caller's.
    """
    return superuser.execute(
        """
        select case when p.prorettype = 'trigger'::regtype then format(
          'create temporary table mine ();; create trigger t before insert on mine for each row'
          ' execute function %s()', p.oid::regproc
        ) else format('select * from %s(%s)', p.oid::regproc, coalesce((
            select string_agg(format('%snull::%s',
              case when p.provariadic <> 0 and n = p.pronargs then 'variadic ' end,
              format_type(t, null)), ', ' order by n)
            from unnest(p.proargtypes) with ordinality a (t, n)
          ), '')) end, p.oid::regprocedure::text, pg_get_functiondef(p.oid)
        from pg_depend d
        join pg_extension e on e.oid = d.refobjid and e.extname = 'oml'
          and d.refclassid = 'pg_extension'::regclass
        join pg_proc p on p.oid = d.objid and d.classid = 'pg_proc'::regclass
        where d.deptype = 'e'
        order by 1
        """
    ).fetchall()
