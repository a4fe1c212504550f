"""Role by attack: every hostile login tries everything, on every table and function there is.

What is attacked comes from the catalogue, so that a new table or function is attacked as well.
"""

import contextlib
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from attackers import (
    LANDLORD,
    ROLES,
    VICTIM,
    Target,
    append,
    calls,
    not_refused,
    nothing_changes,
    refusal,
)
from lakes import value
from oml.dev.cluster import SUPERUSER, Cluster
from systems import Connection, System

every_role = pytest.mark.parametrize("login", ROLES)
every_writer = pytest.mark.parametrize("login", [x for x, role in ROLES.items() if role.appends])

LOCK_MODES = (
    "access share",
    "row share",
    "row exclusive",
    "share update exclusive",
    "share",
    "share row exclusive",
    "exclusive",
    "access exclusive",
)
ROW_LOCKS = ("update", "no key update", "share", "key share")

# {t} is a table of ours, {c} its first column, {s} the attacker's own schema and name.
ON_TABLES = {
    "select": "select * from {t}",
    "select of no column": "select from {t}",
    "select of the system's columns": "select tableoid, ctid, xmin from {t}",
    **{f"select for {lock}": f"select * from {{t}} for {lock}" for lock in ROW_LOCKS},
    **{f"lock in {mode} mode": f"lock table {{t}} in {mode} mode nowait" for mode in LOCK_MODES},
    "table sample": "select * from {t} tablesample system (100)",
    "insert": "insert into {t} default values",
    "insert of nothing": "insert into {t} select * from {t} where false",
    "upsert": "insert into {t} default values on conflict do nothing",
    "update": "update {t} set {c} = default",
    "delete": "delete from {t}",
    "delete of nothing": "delete from {t} where false",
    "merge": "merge into {t} using (values (1)) v (x) on false when not matched then do nothing",
    "truncate": "truncate {t} cascade",
    "copy to": "copy {t} to stdout",
    "copy from": "copy {t} from stdin",
    "copy of a query": "copy (select * from {t}) to stdout",
    "explain": "explain verbose select * from {t}",
    "explain analyze": "explain (analyze, verbose) select * from {t}",
    "a cursor": "declare c cursor for select * from {t};; fetch all from c",
    "a held cursor": "declare c cursor with hold for select * from {t}",
    "a prepared statement": "deallocate all;; prepare p as select * from {t};; execute p",
    "a dynamic statement": "do $$ begin execute 'select * from {t}'; end $$",
    "a leaky condition": "select * from {t} t where {s}.leak(t::text)",
    "a view": "create view {s}.v as select * from {t};; table {s}.v",
    "a barrier view": "create view {s}.v with (security_barrier) as table {t};; table {s}.v",
    "an invoker's view": "create view {s}.v with (security_invoker) as table {t};; table {s}.v",
    "a materialized view": "create materialized view {s}.v as select * from {t}",
    "a table as": "create table {s}.v as select * from {t}",
    "a copy of the shape": "create table {s}.v (like {t} including all)",
    "a child": "create table {s}.v () inherits ({t})",
    "an adoption": "create table {s}.v ();; alter table {s}.v inherit {t}",
    "a partition": "alter table {t} attach partition {s}.own default",
    "a reference": "create table {s}.v (x int references {t})",
    "a rule on its own": "create rule r as on insert to {s}.own do instead delete from {t};;"
    " insert into {s}.own values (1)",
    "a trigger on its own": "create function {s}.tr() returns trigger language plpgsql as"
    " $$ begin delete from {t}; return new; end $$;;"
    " create trigger tr before insert on {s}.own for each row execute function {s}.tr();;"
    " insert into {s}.own values (1)",
    "a trigger": "create trigger tr before insert on {t} execute function"
    " suppress_redundant_updates_trigger()",
    "a row trigger": "create trigger tr after insert on {t} for each row execute function {s}.tf()",
    "a rule": "create rule r as on insert to {t} do instead nothing",
    "a rule that tells": "create rule r as on insert to {t} do also insert into {s}.own values (1)",
    "an index": "create index on {t} (({s}.quiet({c}::text)))",
    "a policy": "create policy p on {t} using (true)",
    "statistics": "create statistics {s}.st on {c}, tableoid from {t}",
    "a publication": "create publication p for table {t}",
    "no row-level security": "alter table {t} disable row level security",
    "not forced": "alter table {t} no force row level security",
    "no triggers": "alter table {t} disable trigger all",
    "no guard": "drop trigger guard_truncate on {t}",
    "unlogged": "alter table {t} set unlogged",
    "another owner": "alter table {t} owner to {s}",
    "another schema": "alter table {t} set schema {s}",
    "another name": "alter table {t} rename to v",
    "another column": "alter table {t} add column v int",
    "a column less": "alter table {t} drop column {c}",
    "another default": "alter table {t} alter column {c} set default null",
    "storage": "alter table {t} set (autovacuum_enabled = off)",
    "a constraint": "alter table {t} add constraint v check ({s}.quiet({c}::text))",
    "replica identity": "alter table {t} replica identity full",
    "drop": "drop table {t} cascade",
    "grant": "grant all on {t} to {s}",
    "grant to all": "grant select on {t} to public",
    "grant of a column": "grant select ({c}) on {t} to {s}",
    "revoke": "revoke all on {t} from oml_kernel",
    "comment": "comment on table {t} is 'mine'",
    "comment on a column": "comment on column {t}.{c} is 'mine'",
    "cluster": "cluster {t}",
    "reindex": "reindex table {t}",
    "analyze": "analyze {t}",
    "vacuum": "vacuum {t}",
    "vacuum full": "vacuum full {t}",
}
ON_SEQUENCES = {
    "nextval": "select nextval('{t}')",
    "currval": "select currval('{t}')",
    "setval": "select setval('{t}', 1)",
    "setval back": "select setval('{t}', 1, false)",
    "select": "select * from {t}",
    "pg_sequence_last_value": "select 1 / (pg_sequence_last_value('{t}'))::int",
    "a default": "create table {s}.v (x bigint default nextval('{t}'));;"
    " insert into {s}.v values (default)",
    "restart": "alter sequence {t} restart",
    "cache": "alter sequence {t} cache 100",
    "owned by": "alter sequence {t} owned by {s}.own.x",
    "owner": "alter sequence {t} owner to {s}",
    "schema": "alter sequence {t} set schema {s}",
    "rename": "alter sequence {t} rename to v",
    "drop": "drop sequence {t} cascade",
    "grant": "grant usage on sequence {t} to {s}",
    "comment": "comment on sequence {t} is 'mine'",
}
IN_SCHEMA = {
    "a table": "create table {n}.v ()",
    "an unlogged table": "create unlogged table {n}.v ()",
    "a view": "create view {n}.v as select 1 as one",
    "a materialized view": "create materialized view {n}.v as select 1 as one",
    "a sequence": "create sequence {n}.v",
    "a function": "create function {n}.v() returns int language sql as 'select 1'",
    "a procedure": "create procedure {n}.v() language sql as 'select 1'",
    "an aggregate": "create aggregate {n}.v(int) (sfunc = int4pl, stype = int)",
    "a type": "create type {n}.v as (x int)",
    "an enum": "create type {n}.v as enum ('x')",
    "a domain": "create domain {n}.v as int",
    "an operator": "create operator {n}.= (leftarg = uuid, rightarg = uuid, function = uuid_eq)",
    "a collation": 'create collation {n}.v from "C"',
    "a conversion": "create conversion {n}.v for 'LATIN1' to 'UTF8' from iso8859_1_to_utf8",
    "a dictionary": "create text search dictionary {n}.v (template = simple)",
    "a better match": "create function {n}.oml_append(unknown_type text, jsonb, text) returns int"
    " language sql as 'select 1'",
    "what moves in": "alter table {s}.own set schema {n}",
    "a function that moves in": "alter function {s}.quiet(text) set schema {n}",
    "its drop": "drop schema {n} cascade",
    "another name": "alter schema {n} rename to v",
    "another owner": "alter schema {n} owner to {s}",
    "rights in it": "grant create on schema {n} to {s}",
    "a comment": "comment on schema {n} is 'mine'",
    "default rights": "alter default privileges for role oml_owner in schema {n}"
    " grant all on tables to {s}",
}
ON_THE_EXTENSION = {
    "drop": "drop extension oml",
    "drop cascade": "drop extension oml cascade",
    "drop of plpython": "drop extension plpython3u cascade",
    "update": "alter extension oml update",
    "schema": "alter extension oml set schema {s}",
    "add": "alter extension oml add table {s}.own",
    "take out": "alter extension oml drop function oml.require_genesis()",
    "comment": "comment on extension oml is 'mine'",
    "create": "create extension oml",
    "receipt": "alter type oml.receipt add attribute v int",
    "receipt's owner": "alter type oml.receipt owner to {s}",
    "a cast of receipts": "create cast (oml.receipt as int) with function {s}.c(oml.receipt)"
    " as implicit",
    "a cast of the catalogue's": "create cast (jsonb as text) with function {s}.j(jsonb)"
    " as implicit",
    "an event trigger": "create event trigger e on ddl_command_start execute function {s}.et()",
    "a publication of all": "create publication p for all tables",
    "a publication of the schema": "create publication p for tables in schema oml",
    "what its owner owns": "drop owned by oml_owner cascade",
    "what its owner owns, taken": "reassign owned by oml_owner to {s}",
    "what the kernel owns": "reassign owned by oml_kernel to {s}",
    "a language": "create language plpython4u handler plpython3_call_handler",
    "python": "create function {s}.py() returns text language plpython3u as 'return 1'",
    "python at once": "do language plpython3u 'x = 1'",
    "C": "create function {s}.c() returns int language c as '$libdir/plpgsql', 'x'",
    "a library": "load 'auto_explain'",
}
ON_THE_SERVER = {
    "no row security": "set row_security = off;; table oml.journal",
    "replica": "set session_replication_role = replica",
    "replica by set_config": "select set_config('session_replication_role', 'replica', false)",
    "replica in a function": "create function {s}.r() returns int language sql"
    " set session_replication_role = replica as 'select 1'",
    "local preload": "set session_preload_libraries = 'x'",
    "compile settings": "set plpgsql.variable_conflict = 'use_variable'",
    "system settings": "alter system set row_security = off",
    "settings of others": "alter role " + VICTIM + " set oml.tenant_id = 'x'",
    "settings of the owners": "alter role oml_kernel set row_security = off",
    "copy from a program": "copy {s}.own from program 'true'",
    "copy to a program": "copy {s}.own to program 'true'",
    "copy from a file": "copy {s}.own from '/etc/passwd'",
    "copy to a file": "copy {s}.own to '/tmp/oml-attack'",
    "a file": "select pg_read_file('PG_VERSION')",
    "a file's bytes": "select pg_read_binary_file('PG_VERSION')",
    "a directory": "select pg_ls_dir('.')",
    "the log": "select pg_current_logfile(), pg_ls_logdir()",
    "the WAL": "select pg_ls_waldir()",
    "an import": "select lo_import('/etc/passwd')",
    "an export": "select lo_export(lo_from_bytea(0, 'x'), '/tmp/oml-attack')",
    "a slot": "select pg_create_logical_replication_slot('attack', 'test_decoding')",
    "a slot's changes": "select * from pg_logical_slot_get_changes('none', null, null)",
    "a subscription": "create subscription v connection 'dbname=x' publication p",
    "the end of others": f"select pg_terminate_backend(pid) from pg_stat_activity"
    f" where usename = '{VICTIM}'",
    "a superuser": "alter role {s} superuser",
    "past row security": "alter role {s} bypassrls",
    "a role": "create role attack_child",
    "a role's password": f"alter role {VICTIM} password 'x'",
    "the statistics": "select pg_stat_reset()",
    "a restore point": "select pg_create_restore_point('x')",
}
# What PostgreSQL 15 lets the owner of a database do: docs/explanation/isolation.md says so.
LANDLORDS = {
    "analyze",
    "vacuum",
    "vacuum full",
}
LANDLORDS_SCHEMA = {*IN_SCHEMA} - {"default rights"}


@pytest.fixture(scope="module")
def target(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One system for all attacks: none may change it."""
    with System(cluster, "oml_attacked", tmp_path_factory.mktemp("attacked") / "lake") as system:
        target = Target(system)
        system.connect(VICTIM)  # there to be ended or spied upon
        yield target
        system.superuser.execute(
            sql.SQL("alter database oml_attacked owner to {}").format(sql.Identifier(SUPERUSER))
        )


@pytest.fixture
def attacker(target: Target, login: str) -> Iterator[Connection]:
    """A session of a hostile login, with a schema of its own and what it needs in there."""
    connection = target.system.connect(login)
    connection.execute(
        """
        create table own (x int);
        create table loot (what text);
        create function leak(text) returns boolean language plpgsql cost 0.0000001 as
          $$ begin insert into loot values ($1); raise notice '%', $1; return true; end $$;
        create function quiet(text) returns boolean language sql immutable as 'select true';
        create function tf() returns trigger language plpgsql as 'begin return new; end';
        create function et() returns event_trigger language plpgsql as 'begin end';
        create function j(jsonb) returns text language sql as $$ select '{}'::text $$;
        """
    )
    if ROLES[login].groups:
        connection.execute("create function c(oml.receipt) returns int language sql as 'select 1'")
    yield connection
    with contextlib.suppress(psycopg.Error):
        connection.execute("reset all; reset role")
    target.superuser.execute(f"drop schema {login} cascade".encode())
    target.superuser.execute(f"create schema {login} authorization {login}".encode())


def filled(attacks: dict[str, str], **names: str) -> dict[str, str]:
    """Return the attacks with the names put in; braces of other meaning stay."""
    for name, text in names.items():
        attacks = {key: x.replace(f"{{{name}}}", text) for key, x in attacks.items()}
    return attacks


# --- tables, sequences, schemas, the extension, the server -------------------------------------


@every_role
def test_no_table_is_open(target: Target, attacker: Connection, login: str) -> None:
    got: dict[str, object] = {}
    with nothing_changes(target):
        for table, column in target.tables().items():
            attacks = filled(ON_TABLES, t=table, c=column, s=login)
            # 42P16: no logged table may refer to an unlogged one, such as the gate.
            through = not_refused(attacker, attacks, ("42501", "42P16"))
            got |= {table: through} if through else {}
    expected = dict.fromkeys(LANDLORDS) if login == LANDLORD else {}
    assert got == (dict.fromkeys(target.tables(), expected) if expected else {})
    assert value(attacker, "select count(*) from loot") == 0


@every_role
def test_no_sequence_is_open(target: Target, attacker: Connection, login: str) -> None:
    with nothing_changes(target):
        for sequence in target.sequences():
            attacks = filled(ON_SEQUENCES, t=sequence, s=login)
            assert not_refused(attacker, attacks) == {}, sequence


@every_role
def test_the_sequence_of_its_own_append_stays_closed(target: Target, login: str) -> None:
    attacker = target.system.connect(login)
    if ROLES[login].appends:
        append(attacker, "for lastval")
        assert refusal(attacker, "select lastval()") == "42501"
        assert refusal(attacker, "select currval('oml.outbox_seq')") == "42501"
    else:
        assert refusal(attacker, "select lastval()") == "55000"


@every_role
@pytest.mark.parametrize("schema", ["oml", "public"])
def test_nothing_is_made_in_our_schemas(
    target: Target, attacker: Connection, login: str, schema: str
) -> None:
    with nothing_changes(target):
        got = not_refused(attacker, filled(IN_SCHEMA, n=schema, s=login))
    theirs = LANDLORDS_SCHEMA if (login, schema) == (LANDLORD, "public") else {}
    assert {*got} == {*theirs}, got


@every_role
def test_the_extension_and_its_types_stay(target: Target, attacker: Connection, login: str) -> None:
    with nothing_changes(target):
        attacks = filled(ON_THE_EXTENSION, s=login)
        # A login that may not look into schema oml has no function of our types to begin with.
        got = not_refused(attacker, attacks, ("42501", "42710", "42883"))
    assert got == {}


@every_role
def test_the_server_stays_closed(target: Target, attacker: Connection, login: str) -> None:
    with nothing_changes(target):
        assert not_refused(attacker, filled(ON_THE_SERVER, s=login)) == {}
    seen = f"select distinct query from pg_stat_activity where usename = '{VICTIM}'"
    assert value(attacker, seen) == "<insufficient privilege>"


@every_role
def test_our_functions_stay_as_they_are(target: Target, attacker: Connection, login: str) -> None:
    with nothing_changes(target):
        for call, signature, definition in calls(target.superuser):
            attacks = {
                "replace": definition.partition("\nAS ")[0] + " as $x$ begin end $x$",
                "drop": f"drop function {signature}",
                "drop cascade": f"drop function {signature} cascade",
                "owner": f"alter function {signature} owner to {login}",
                "rename": f"alter function {signature} rename to v",
                "schema": f"alter function {signature} set schema {login}",
                "invoker": f"alter function {signature} security invoker",
                "search_path": f"alter function {signature} set search_path = {login}",
                "reset": f"alter function {signature} reset all",
                "grant": f"grant execute on function {signature} to {login}",
                "revoke": f"revoke all on function {signature} from oml_writer",
                "comment": f"comment on function {signature} is 'mine'",
            }
            # PostgreSQL keeps what an extension needs: 2BP01, for who may drop in the schema.
            got = not_refused(attacker, attacks, ("42501", "2BP01"))
            assert got == {}, call
