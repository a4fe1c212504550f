"""Every way in SQL from a hostile login into another tenant: each ends in its own, or nowhere."""

import contextlib
import itertools
import re
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from attackers import (
    GROUPS,
    LANDLORD,
    OTHER,
    OWN,
    ROLES,
    SECRET,
    VICTIM,
    Target,
    append,
    calls,
    nothing_changes,
    refusal,
)
from lakes import KIND, PATIENCE_S, value
from oml.dev.cluster import SUPERUSER, Cluster
from oml.driver.connection import connect
from systems import Connection, System

WRITERS = [login for login, role in ROLES.items() if role.appends]
every_role = pytest.mark.parametrize("login", ROLES)
every_writer = pytest.mark.parametrize("login", WRITERS)
BOTH = "attack_both"
OWNERS = ("oml_owner", "oml_kernel", "oml_fleet")
APPEND = f"select (public.oml_append('{KIND}', '{{}}')).tenant_id"
BATCH = (
    f"""select tenant_id from public.oml_append_batch('[{{"type": "{KIND}", "payload": {{}}}}]')"""
)
ENTITY = (
    "select (state operator(pg_catalog.->>) 'of')::pg_catalog.uuid"
    " from public.oml_entity('file', '1')"
)
VERBS = (APPEND, BATCH, ENTITY)
APPEND_OTHER = f"select public.oml_append('{KIND}', '{{}}', tenant => '{OTHER}')"
BATCH_OTHER = BATCH.replace('"payload"', f'"tenant": "{OTHER}", "payload"')


@pytest.fixture(scope="module")
def target(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One system for all attacks, and a login that is bound to both tenants."""
    with System(cluster, "oml_reached", tmp_path_factory.mktemp("reached") / "lake") as system:
        target = Target(system)
        system.make_login(BOTH, "oml_writer", "oml_auditor")
        system.bind(BOTH, OWN, ("append", "audit"))
        system.bind(BOTH, OTHER)
        yield target
        system.superuser.execute(
            sql.SQL("alter database oml_reached owner to {}").format(sql.Identifier(SUPERUSER))
        )


@pytest.fixture
def attacker(target: Target, login: str) -> Iterator[Connection]:
    """A session of a hostile login; what it made in its schema goes with the test."""
    yield target.system.connect(login)
    drop_all(target, login)


def drop_all(target: Target, login: str) -> None:
    """Give a login an empty schema of its own."""
    target.superuser.execute(f"drop schema if exists {login} cascade".encode())
    target.superuser.execute(f"create schema {login} authorization {login}".encode())


def reached(connection: Connection) -> set[UUID]:
    """Append and read by every verb without naming a tenant; return the tenants that it reached."""
    return {value(connection, statement) for statement in VERBS}


def others(target: Target) -> int:
    """Count the events of the other tenant."""
    query = "select count(*) from oml.journal where tenant_id = %s"
    return int(value(target.superuser, query, target.other))


@contextlib.contextmanager
def others_unchanged(target: Target) -> Iterator[None]:
    """Insist that the other tenant has not one event more, and that both chains are whole."""
    before = others(target)
    yield
    assert others(target) == before
    whole = "select bool_and(v.ok) from unnest(%s::text[]) t, oml_verify_chain(t) v"
    assert value(target.superuser, whole, [OWN, OTHER]) is True


# --- by calling what there is ------------------------------------------------------------------

# What a call with no or with another tenant's values may do without any membership: nothing.
HARMLESS = {"oml.deployment_id", "oml.lifecycle"}
# Whoever has operate on the provider runs the deployment, and with it every tenant.
OPERATES = {
    "oml.gate_open",
    "oml_fork_check",
    "oml_gate_status",
    "oml_grant",
    "oml_revoke",
    "oml_keys",
    "oml_end_impersonation",
}


def victims_value(kind: str, target: Target, login: str) -> str:
    """Return an argument of this type that aims at the other tenant."""
    values = {
        "uuid": f"'{target.other}'",
        "text": f"'{OTHER}'",
        "name": f"'{login}'",
        "jsonb": "'{}'",
        "text[]": "'{append,audit}'",
        "integer": "1",
        "bigint": "1",
        "bytea": "'\\x00'",
        "interval": "'1 hour'",
    }
    return f"{values.get(kind, 'null')}::{kind}"


@every_role
def test_no_function_serves_a_login_without_the_membership_for_it(
    target: Target, attacker: Connection, login: str
) -> None:
    got = {}
    with nothing_changes(target, draws=bool(ROLES[login].provider)):
        for call, signature, _ in calls(target.superuser):
            granted = value(
                target.superuser,
                "select has_function_privilege(%s::text, %s::regprocedure, 'execute')",
                login,
                signature,
            )
            aimed = re.sub(
                r"null::([\w ]+?(?:\[\])?)(?=[,)])",
                lambda m: victims_value(m.group(1), target, login),
                call,
            )
            explained = f"explain (analyze, verbose) {aimed}"
            for attack in (call, aimed, *([explained] if call.startswith("select") else [])):
                sqlstate = refusal(attacker, attack) or "nothing"
                if sqlstate != "42501" if not granted else not sqlstate.startswith("OM"):
                    got[signature.partition("(")[0]] = sqlstate
    allowed = {*HARMLESS}
    if ROLES[login].own:
        allowed |= {
            *("oml_use", "oml_entity", "oml_my_submissions"),
            *("oml_workareas", "oml_artifacts"),
        }
    if "review" in ROLES[login].own:
        allowed |= {"oml_review_queue"}
    if "submit" in ROLES[login].own:
        allowed |= {"oml_data_key"}
    if "operate" in ROLES[login].provider:
        allowed |= OPERATES
    assert {*got} <= allowed, got


@every_role
def test_nobody_becomes_a_role_of_ours(target: Target, attacker: Connection, login: str) -> None:
    own = ROLES[login].groups
    roles = {*OWNERS, *GROUPS, *ROLES, SUPERUSER, VICTIM, BOTH} - {login, *own}
    with nothing_changes(target):
        for role in sorted(roles):
            assert refusal(attacker, f"set role {role}") == "42501", role
            assert refusal(attacker, f"set local role {role}") == "42501", role
            assert refusal(attacker, f"select set_config('role', '{role}', true)") == "42501", role
            assert refusal(attacker, f"set session authorization {role}") == "42501", role
            assert refusal(attacker, f"grant {role} to {login}") == "42501", role
            made = f"create function {login}.f() returns int set role = {role} language sql"
            call = f"{made} as 'select 1';; select {login}.f()"
            assert refusal(attacker, call) == "42501", role
        for role in own:
            assert refusal(attacker, f"set role {role};; table oml.journal") == "42501", role


@every_writer
def test_a_role_that_it_may_become_changes_nothing(
    target: Target, attacker: Connection, login: str
) -> None:
    with others_unchanged(target):
        attacker.execute("set role oml_writer")
        assert reached(attacker) == {target.own}
        assert refusal(attacker, APPEND_OTHER) == refusal(attacker, BATCH_OTHER) == "OM003"


# --- by settings -------------------------------------------------------------------------------


def aims(target: Target) -> list[str]:
    """Return what a setting of ours could be set to, to reach the other tenant."""
    return [str(target.other), OTHER, VICTIM, "", "x"]


@every_writer
def test_no_setting_of_ours_reaches_another_tenant(
    target: Target, attacker: Connection, login: str
) -> None:
    settings = target.settings()
    assert {"oml.tenant_id", "oml.tenant", "oml.principal", "oml.transaction"} <= {*settings}
    with others_unchanged(target):
        for setting, aim in itertools.product(settings, aims(target)):
            attacker.execute(f"set {setting} = '{aim}'".encode())
            assert reached(attacker) == {target.own}
            with attacker.transaction():
                attacker.execute(f"set local {setting} = '{aim}'".encode())
                assert reached(attacker) == {target.own}
            late = f"(select set_config('{setting}', '{aim}', false) offset 0) s"
            assert value(attacker, f"{APPEND} from {late}") == target.own
            attacker.execute("reset all")


@every_writer
def test_no_setting_that_a_transaction_claims_to_have_chosen_reaches_another_tenant(
    target: Target, attacker: Connection, login: str
) -> None:
    settings = [x for x in target.settings() if x not in ("oml.transaction", "oml.tenant_id")]
    with others_unchanged(target):
        for setting, aim in itertools.product(settings, aims(target)):
            with attacker.transaction(force_rollback=True):
                attacker.execute("select public.oml_use()")
                attacker.execute(f"set {setting} = '{aim}'".encode())
                for statement in VERBS:
                    try:
                        with attacker.transaction():
                            assert value(attacker, statement) == target.own
                    except psycopg.Error as error:
                        # Refused by a code of ours, or as no uuid.
                        assert re.match("OM|22P02", error.sqlstate or ""), (setting, aim)
                        assert aim, setting


@every_writer
def test_no_setting_of_the_connection_or_the_role_reaches_another_tenant(
    target: Target, attacker: Connection, login: str
) -> None:
    dsn = target.system.dsn(login)
    with others_unchanged(target):
        for setting in target.settings():
            options = f"-c {setting}={target.other}"
            with psycopg.connect(dsn, options=options, autocommit=True) as connection:
                assert reached(connection) == {target.own}
            later = f"alter role {login} set {setting} = '{target.other}'"
            made = f"create function {login}.f() returns int set {setting} = 'x' language sql"
            assert refusal(attacker, later) == "42501"
            assert refusal(attacker, f"{made} as 'select 1'") == "42501"
            target.superuser.execute(later.encode())
            with connect(dsn, autocommit=True) as connection:
                now = value(connection, f"select current_setting('{setting}')")
                assert now == str(target.other)
                assert reached(connection) == {target.own}
        target.superuser.execute(f"alter role {login} reset all".encode())


@every_writer
def test_another_tenant_is_refused_however_it_is_named(
    target: Target, attacker: Connection, login: str
) -> None:
    spellings = [
        OTHER,
        OTHER.upper(),
        f" {OTHER}",
        f"{OTHER}\u00a0",
        f"{OTHER}%",
        str(target.other),
    ]
    spellings += [f"{OWN}','{OTHER}", "%", "", "provider", "*"]
    with nothing_changes(target):
        for name in spellings:
            with pytest.raises(psycopg.Error) as refused:
                append(attacker, "x", tenant=name)
            assert refused.value.sqlstate == "OM003", name
            with pytest.raises(psycopg.Error) as refused:
                attacker.execute("select public.oml_use(%s)", (name,))
            assert refused.value.sqlstate == "OM003", name


# --- by names and plans ------------------------------------------------------------------------


OPERATORS = """
    select oprname, oprleft::regtype::text, oprright::regtype::text from pg_operator
    where oprnamespace = 'pg_catalog'::regnamespace and oprleft <> 0
      and oprname in ('=', '<>', '||', '<@', '@>', '&&', '?&', '->>', '>', '<', '>=', '+', '*')
      and oprleft = any ('{uuid,text,name,jsonb,bigint,integer,bytea,oid}'::regtype[])
"""
COLUMNS = """
    select c.relname, string_agg(format('%I %s', a.attname, format_type(a.atttypid, null)), ', ')
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relnamespace = 'oml'::regnamespace and c.relkind = 'r' group by 1
"""


def shadow_names(target: Target) -> list[tuple[str, str, str]]:
    """Return (name, arguments, result) of every catalogue function that ours could mean."""
    rows = target.superuser.execute(
        r"""
        select p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid)
        from pg_proc p
        where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and not p.proretset
          and p.prorettype not in ('internal'::regtype, 'trigger'::regtype)
          and p.provariadic = 0
          and p.proname in (
            select m[1] from pg_proc o, regexp_matches(o.prosrc, '\m([a-z_0-9]+)\s*\(', 'g') m
            where o.pronamespace = 'oml'::regnamespace or o.proname like 'oml%'
            union all select unnest(array['texteq', 'nameeq', 'nameeqtext', 'uuid_eq', 'jsonb_out',
              'jsonb_exists_all', 'array_append', 'textcat', 'int8pl', 'int8eq', 'byteaeq'])
          )
        """
    )
    return rows.fetchall()


@every_role
def test_names_of_its_own_stand_before_none_of_the_catalogues(
    target: Target, attacker: Connection, login: str
) -> None:
    spring = "raise exception using errcode = 'ZZ001'"
    attacker.execute(f"grant all on schema {login} to public".encode())
    made = 0
    for schema in (login, "pg_temp"):
        for name, arguments, result in shadow_names(target):
            with contextlib.suppress(psycopg.Error):  # pseudo-types have no such functions
                attacker.execute(
                    f"create function {schema}.{name}({arguments}) returns {result}"
                    f" language plpgsql as $f$ begin {spring}; end $f$".encode()
                )
                made += 1
        for operator, left, right in target.superuser.execute(OPERATORS).fetchall():
            function = f"{schema}.o{made}"
            with contextlib.suppress(psycopg.Error):
                attacker.execute(
                    f"create function {function}({left}, {right}) returns boolean"
                    f" language plpgsql as $f$ begin {spring}; end $f$;"
                    f" create operator {schema}.{operator} (leftarg = {left}, rightarg = {right},"
                    f" function = {function})".encode()
                )
                made += 1
    assert made > 200
    with attacker.transaction(force_rollback=True):
        attacker.execute(f"set local search_path = {login}, pg_catalog".encode())
        assert refusal(attacker, "select sha256('x')") == "ZZ001", "the trap springs"
    for table, columns in target.superuser.execute(COLUMNS).fetchall():
        attacker.execute(f"create temporary table {table} ({columns})".encode())
    attacker.execute(
        "insert into pg_temp.membership"
        " (login, tenant_id, tenant, chain_no, principal, permissions)"
        " values (session_user, %s, %s, 1, %s, '{append,audit,operate}')",
        (target.other, OTHER, VICTIM),
    )
    for table in ("pg_roles", "pg_settings", "pg_proc", "pg_class"):
        copy = f"create temporary table {table} as select * from pg_catalog.{table}"
        attacker.execute(copy.encode())
    attacker.execute("update pg_temp.pg_roles set rolsuper = true")
    for domain in ("uuid", "text", "jsonb", "name", "regclass", "timestamptz"):
        attacker.execute(f"create domain pg_temp.{domain} as pg_catalog.int4".encode())
    paths = [f"{login}, pg_temp, pg_catalog, oml, public", "pg_temp, pg_catalog", login]
    with others_unchanged(target):
        for path in paths:
            attacker.execute(f"set search_path = {path}".encode())
            if ROLES[login].appends:
                assert reached(attacker) == {target.own}
            for attack in (
                APPEND_OTHER,
                BATCH_OTHER,
                f"select * from public.oml_verify_chain('{OTHER}')",
                "select public.oml_create_tenant('initech')",
                f"select * from oml.chain_rows('{target.other}'::pg_catalog.uuid, 0, 9)",
                "select * from oml.known_heads()",
                "select oml.lake_advance(0)",
                "select oml.bodies_advance(0)",
                "select oml.lake_body(1, 0)",
                "select * from oml.lake_bodies(0, 9, 9)",
            ):
                if "oml_create_tenant" in attack and ROLES[login].provider:
                    continue
                sqlstate = refusal(attacker, attack)
                assert sqlstate == "42501" or str(sqlstate).startswith("OM"), attack


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("login", [BOTH])
def test_no_plan_or_prepared_statement_keeps_a_tenant(
    target: Target, attacker: Connection, mode: str
) -> None:
    attacker.execute(f"set plan_cache_mode = {mode}".encode())
    attacker.execute(
        f"prepare own as select (public.oml_append('{KIND}', '{{}}', tenant => '{OWN}')).tenant_id"
    )
    attacker.execute(
        "prepare named (text) as"
        f" select (public.oml_append('{KIND}', '{{}}', tenant => $1)).tenant_id"
    )
    aimed = BATCH_OTHER.replace(OTHER, OWN)
    attacker.execute(f"prepare batch as {aimed}".encode())
    attacker.execute(f"prepare chosen as {APPEND}".encode())
    for _ in range(7):  # a plan becomes generic at the sixth
        for tenant, tenant_id in ((OWN, target.own), (OTHER, target.other)):
            attacker.execute(f"set oml.tenant_id = '{target.other}'".encode())
            attacker.execute(f"set oml.tenant = '{OTHER}'".encode())
            assert value(attacker, "execute batch") == target.own
            assert value(attacker, "execute own") == target.own
            assert value(attacker, f"execute named ('{tenant}')") == tenant_id
            with attacker.transaction():
                attacker.execute("select public.oml_use(%s)", (tenant,))
                assert value(attacker, "execute chosen") == tenant_id
            assert refusal(attacker, "execute chosen") == "OM002"


def test_a_prepared_statement_asks_again_who_may(target: Target) -> None:
    login = target.system.make_login("attack_gone", "oml_writer", "oml_auditor")
    target.system.bind(login, OTHER, ("append", "audit"))
    attacker = target.system.connect(login)
    attacker.execute(f"prepare a as {APPEND}")
    attacker.execute(f"prepare v as select ok from public.oml_verify_chain('{OTHER}')")
    assert value(attacker, "execute a") == target.other
    assert value(attacker, "execute v") is True
    target.superuser.execute("select oml_revoke(%s, %s)", (login, OTHER))
    assert refusal(attacker, "execute a") == "OM001"
    assert refusal(attacker, "execute v") == "OM004"


def test_a_superusers_prepared_statement_is_no_gift(target: Target) -> None:
    with target.system.connect(SUPERUSER) as session:
        session.execute("prepare j as select * from oml.journal")
        session.execute(f"prepare a as {APPEND}")
        assert session.execute("execute j").rowcount > 0
        session.execute("set session authorization attack_writer")
        assert refusal(session, "execute j") == "42501"
        assert value(session, "execute a") == target.own


@pytest.mark.parametrize("login", [BOTH])
def test_a_cursor_shows_what_its_login_may_read_alone(target: Target, attacker: Connection) -> None:
    rows = f"select tenant_id from oml.chain_rows('{target.own}', 0, 100)"
    for hold in ("without", "with"):
        with attacker.transaction():
            attacker.execute(f"declare c cursor {hold} hold for {rows}".encode())
            attacker.execute(f"set local oml.tenant_id = '{target.other}'".encode())
            attacker.execute("select public.oml_use(%s)", (OTHER,))
            seen = attacker.execute("fetch all from c").fetchall()
        assert {str(tenant) for (tenant,) in seen} == {str(target.own)}
    attacker.execute(f"set oml.tenant_id = '{target.other}'".encode())
    stolen = f"declare d cursor for select * from oml.chain_rows('{target.other}', 0, 9)"
    assert refusal(attacker, f"{stolen};; fetch all from d") == "OM004"


# --- by what leaks -----------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["attack_auditor", "attack_all"])
def test_a_leaky_condition_sees_the_logins_own_rows_alone(
    target: Target, attacker: Connection, login: str
) -> None:
    attacker.execute(
        f"create table {login}.loot (what text);"
        f" create function {login}.leak(text) returns boolean language plpgsql cost 0.0000001 as"
        f" $$ begin insert into {login}.loot values ($1); return true; end $$".encode()
    )
    attacker.execute(
        f"create view {login}.v as select * from oml.chain_rows('{target.own}', 0, 100)".encode()
    )
    attacker.execute(
        f"create view {login}.all as"
        f" select r.* from unnest(array['{target.own}', '{target.other}']::uuid[]) id,"
        " lateral oml.chain_rows(id, 0, 100) r".encode()
    )
    with nothing_changes(target):
        attacker.execute(f"select count(*) from {login}.v r where {login}.leak(r::text)".encode())
        with pytest.raises(psycopg.Error) as refused:
            attacker.execute(f"select * from {login}.all r where {login}.leak(r::text)".encode())
        assert refused.value.sqlstate == "OM004"
    assert (
        value(attacker, f"select count(*) from {login}.loot where what like '%%nothing secret%%'")
        > 0
    )
    assert value(attacker, f"select count(*) from {login}.loot where what like '%%{SECRET}%%'") == 0


@every_role
def test_no_error_notice_or_debugging_output_tells_of_another_tenant(
    target: Target, login: str
) -> None:
    heard: list[str] = []
    with target.system.connect(login) as attacker:
        attacker.add_notice_handler(
            lambda d: heard.append(f"{d.message_primary} {d.message_detail}")
        )
        for setting in (
            "client_min_messages = debug5",
            "debug_print_parse = on",
            "debug_print_rewritten = on",
            "debug_print_plan = on",
            "plpgsql.extra_warnings = 'all'",
        ):
            attacker.execute(f"set {setting}".encode())
        for attack in (
            APPEND,
            APPEND_OTHER,
            BATCH,
            BATCH_OTHER,
            "select public.oml_use()",
            f"select * from public.oml_verify_chain('{OTHER}')",
            f"select * from public.oml_verify_chain('{OWN}')",
            f"select * from oml.chain_rows('{target.other}', 0, 9)",
            f"select public.oml_append('{KIND}', '{{}}', idempotency_key => 'the victim''s')",
            f"select public.oml_impersonate('{OTHER}', '{VICTIM}', 'x')",
        ):
            if login == "attack_provider" and "oml_impersonate" in attack:
                continue  # who operates the deployment may
            try:
                with attacker.transaction(force_rollback=True):
                    attacker.execute(attack.encode())
            except psycopg.Error as error:
                heard.append(f"{error} {error.diag.message_detail} {error.diag.message_hint}")
                heard.append(str(error.diag.context))
    said = "\n".join(heard)
    told = said.replace(f"'{target.other}'", "").replace(f"'{OTHER}'", "")
    assert "parse tree" in said
    for secret in (SECRET, VICTIM, str(target.other.hex)):
        assert secret not in told, secret


# --- by locks ----------------------------------------------------------------------------------


def test_no_advisory_lock_holds_up_an_append(target: Target) -> None:
    attacker = target.system.connect("attack_public")
    words = [str(target.own), str(target.other), OWN, OTHER, "oml", "journal", "oml.journal", ""]
    for word in words:
        for key in ("hashtext(%s)", "hashtextextended(%s, 0)", "hash_array(array[%s])"):
            attacker.execute(f"select pg_advisory_lock({key}::bigint)".encode(), (word,))
        for key in ("0, hashtext(%s)", "hashtext(%s), 0", "hashtext('oml'), hashtext(%s)"):
            attacker.execute(f"select pg_advisory_lock({key})".encode(), (word,))
    attacker.execute(
        "select pg_advisory_lock(n), pg_advisory_lock(0, n), pg_advisory_lock(n, 0),"
        " pg_advisory_lock('pg_class'::regclass::int, n)"
        " from (select generate_series(-3, 300) as n union all select c.oid::int from pg_class c"
        " where c.relnamespace = (select oid from pg_namespace where nspname = 'oml')) keys"
    )
    attacker.execute("begin; select pg_advisory_xact_lock(n) from generate_series(301, 400) n")
    held = "select count(*) from pg_locks where locktype = 'advisory' and pid = %s"
    assert value(target.superuser, held, attacker.info.backend_pid) > 900
    victim = target.system.connect(VICTIM)
    victim.execute(f"set statement_timeout = '{PATIENCE_S}s'".encode())
    seq = append(victim, "nobody waits")[1]
    assert append(victim, "nobody waits")[1] == seq + 1
    target.superuser.execute(f"set statement_timeout = '{PATIENCE_S}s'".encode())
    target.superuser.execute("select oml_register_event_type('nobody.waits')")
    target.superuser.execute("reset statement_timeout")


@pytest.mark.parametrize("login", WRITERS)
def test_an_append_that_does_not_end_holds_up_its_own_tenant_alone(
    target: Target, login: str
) -> None:
    attacker = target.system.connect(login, autocommit=False)
    append(attacker, "without end")
    victim = target.system.connect(VICTIM)
    victim.execute(f"set statement_timeout = '{PATIENCE_S}s'".encode())
    append(victim, "goes on")
    attacker.rollback()


# --- by code that another runs -----------------------------------------------------------------


def test_a_wrapper_acts_for_who_calls_it_whoever_owns_it(target: Target) -> None:
    """SECURITY DEFINER changes current_user; what may be done goes by session_user."""
    writer = "attack_writer"
    target.superuser.execute(f"grant all on schema {writer} to {VICTIM}".encode())
    for owner, caller, tenant_id in ((writer, VICTIM, target.other), (VICTIM, writer, target.own)):
        head = "returns text language sql security definer as"
        with target.system.connect(owner) as connection:
            for name, statement in (("bound", APPEND), ("aimed", APPEND_OTHER)):
                body = f"select ({statement[7:]})::text"
                connection.execute(
                    f"create function {writer}.{name}_{owner}() {head} $$ {body} $$".encode()
                )
        with target.system.connect(caller) as connection:
            assert value(connection, f"select {writer}.bound_{owner}()") == str(tenant_id)
            aimed = refusal(connection, f"select {writer}.aimed_{owner}()")
            assert aimed == (None if caller == VICTIM else "OM003")
    drop_all(target, writer)


def test_without_execute_a_callers_wrapper_is_refused_too(target: Target) -> None:
    """A wrapper lends its owner's EXECUTE, and still not its membership."""
    target.superuser.execute("grant usage on schema attack_writer to attack_public, attack_bound")
    with target.system.connect("attack_writer") as connection:
        connection.execute(
            f"create function attack_writer.lent() returns uuid language sql"
            f" security definer as $$ {APPEND} $$"
        )
    with others_unchanged(target):
        with target.system.connect("attack_public") as connection:
            assert refusal(connection, "select attack_writer.lent()") == "OM001"
        with target.system.connect("attack_bound") as connection:
            assert value(connection, "select attack_writer.lent()") == target.own
    drop_all(target, "attack_writer")


# --- the owner of the database -----------------------------------------------------------------


def overload(schema: str) -> str:
    """Return a better match than oml_append for a call with two literals."""
    return (
        f"create function {schema}.oml_append(text, jsonb, text default null) returns text"
        " language sql as $$ select 'not the journal'::text $$"
    )


def test_in_public_its_owner_can_stand_in_for_our_functions_and_elsewhere_nobody_can(
    cluster: Cluster, target: Target
) -> None:
    landlord = target.system.connect(LANDLORD)
    assert refusal(landlord, overload("public")) is None
    database = "oml_ledger"
    with connect(cluster.dsn(), autocommit=True) as superuser:
        superuser.execute(f"create database {database} owner {LANDLORD}".encode())
        try:
            with connect(cluster.dsn(SUPERUSER, database), autocommit=True) as installer:
                installer.execute(
                    "create schema ledger; create extension oml schema ledger cascade"
                )
                installer.execute(f"grant usage on schema ledger to {LANDLORD}".encode())
            with connect(cluster.dsn(LANDLORD, database), autocommit=True) as owner:
                assert refusal(owner, overload("ledger")) == "42501"
                assert refusal(owner, "drop schema ledger cascade") == "42501"
                assert refusal(owner, "alter schema ledger rename to v") == "42501"
                assert refusal(owner, "drop extension oml") == "42501"
        finally:
            superuser.execute(f"drop database {database} with (force)".encode())


def test_what_postgresql_lets_happen_is_what_the_docs_say(target: Target) -> None:
    landlord = target.system.connect(LANDLORD)
    assert refusal(landlord, "alter database oml_reached set row_security = off") is None
    auditor = target.system.connect("attack_auditor")
    assert refusal(auditor, "create view attack_auditor.v as select * from oml.journal") is None
    maker = target.system.make_login("attack_maker")
    target.superuser.execute(f"alter role {maker} createrole".encode())
    become = f"grant oml_fleet to {maker};; set role oml_fleet;; table oml.journal"
    assert refusal(target.system.connect(maker), become) is None
