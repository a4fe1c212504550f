"""CREATE EXTENSION, run by a superuser in a schema that belongs to somebody who is none."""

import pytest
from psycopg import sql

from oml.dev.cluster import SUPERUSER, Cluster
from oml.driver.connection import connect

# Better matches than the catalogue's for what an install script would say unqualified.
TRAPS = """
    create function format(text, text) returns text language plpgsql as
      $$ begin {act}; return pg_catalog.format($1, variadic array[$2]); end $$;
    create function equal(oid, regclass) returns boolean language plpgsql as
      $$ begin {act}; return $1 operator(pg_catalog.=) $2::oid; end $$;
    create operator = (leftarg = oid, rightarg = regclass, function = equal);
    create table loot (by text);
"""
ACT = "insert into public.loot values (current_user)"
SPRINGS = (
    "select format('%s', 'x'::text)",
    "select 1::oid = 'pg_class'::regclass",
)
ROLE, DATABASE = "landlord", "hostile_install"


@pytest.mark.parametrize("schema", ["public", "landlord"])
def test_nothing_of_the_schemas_owner_runs_while_the_extension_is_created(
    cluster: Cluster, schema: str
) -> None:
    role = sql.Identifier(ROLE)
    database = sql.Identifier(DATABASE)
    with connect(cluster.dsn(), autocommit=True) as superuser:
        superuser.execute(sql.SQL("create role {} login").format(role))
        try:
            superuser.execute(sql.SQL("create database {} owner {}").format(database, role))
            with connect(cluster.dsn(ROLE, DATABASE), autocommit=True) as landlord:
                landlord.execute(
                    sql.SQL("create schema if not exists {}").format(sql.Identifier(schema))
                )
                landlord.execute(sql.SQL("set search_path = {}").format(sql.Identifier(schema)))
                act = ACT.replace("public", schema)
                landlord.execute(TRAPS.format(act=act).encode())
                for spring in SPRINGS:
                    landlord.execute(spring.encode())
                sprung = landlord.execute("select by from loot").fetchall()
                assert sprung == [(ROLE,)] * len(SPRINGS)
                with connect(cluster.dsn(SUPERUSER, DATABASE), autocommit=True) as installer:
                    installer.execute(
                        sql.SQL("create extension oml schema {} cascade").format(
                            sql.Identifier(schema)
                        )
                    )
                assert landlord.execute("select by from loot").fetchall() == sprung
        finally:
            superuser.execute(sql.SQL("drop database if exists {} with (force)").format(database))
            superuser.execute(sql.SQL("drop role {}").format(role))
