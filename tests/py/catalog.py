"""The state of schema oml as the system catalogues have it, to compare before and after."""

from systems import Connection

_OUR_RELATIONS = "c.relnamespace = 'oml'::regnamespace and c.relkind in ('r', 'S')"
_QUERIES = {
    "schema": """
        select n.nspname, n.nspowner::regrole::text, obj_description(n.oid, 'pg_namespace')
        from pg_namespace n where n.nspname = 'oml'
    """,
    "schema privileges": """
        select a.grantee::regrole::text, a.privilege_type, a.is_grantable
        from pg_namespace n, aclexplode(n.nspacl) a where n.nspname = 'oml'
    """,
    "relations": f"""
        select c.relname, c.relkind::text, c.relowner::regrole::text, c.relpersistence::text,
          c.relrowsecurity, c.relforcerowsecurity, obj_description(c.oid, 'pg_class'),
          exists (select from pg_depend d where d.classid = 'pg_class'::regclass
            and d.objid = c.oid and d.deptype = 'e')
        from pg_class c where {_OUR_RELATIONS}
    """,
    "relation privileges": f"""
        select c.relname, a.grantee::regrole::text, a.privilege_type, a.is_grantable
        from pg_class c, aclexplode(coalesce(
          c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner)
        )) a where {_OUR_RELATIONS}
    """,
    "columns": f"""
        select c.relname, a.attnum::int, a.attname, format_type(a.atttypid, a.atttypmod),
          a.attnotnull, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where {_OUR_RELATIONS}
    """,
    "column privileges": f"""
        select c.relname, t.attname, a.grantee::regrole::text, a.privilege_type
        from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
        where {_OUR_RELATIONS}
    """,
    "constraints": """
        select c.conrelid::regclass::text, c.conname, pg_get_constraintdef(c.oid), c.convalidated
        from pg_constraint c where c.connamespace = 'oml'::regnamespace
    """,
    "indexes": "select indexname, indexdef from pg_indexes where schemaname = 'oml'",
    "sequences": """
        select sequencename, data_type::text, start_value, min_value, max_value, increment_by,
          cycle, cache_size
        from pg_sequences where schemaname = 'oml'
    """,
    "triggers": """
        select t.tgrelid::regclass::text, t.tgname, t.tgenabled::text, pg_get_triggerdef(t.oid)
        from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = 'oml'::regnamespace and not t.tgisinternal
    """,
    "policies": """
        select tablename, policyname, permissive, roles::text, cmd, qual, with_check
        from pg_policies where schemaname = 'oml'
    """,
    "functions": """
        select p.oid::regprocedure::text, p.proowner::regrole::text, p.prosecdef, p.provolatile,
          p.proconfig::text, md5(p.prosrc), obj_description(p.oid, 'pg_proc'),
          (select string_agg(a.grantee::regrole || '=' || a.privilege_type, ' ' order by 1)
           from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a)
        from pg_depend d
        join pg_extension e on e.oid = d.refobjid and e.extname = 'oml'
        join pg_proc p on p.oid = d.objid
        where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_extension'::regclass
          and d.deptype = 'e'
    """,
}

Shape = dict[str, list[str]]


def shape(connection: Connection) -> Shape:
    """Return everything but the data: a sorted line for each object and each privilege."""
    return {
        name: sorted(repr(row) for row in connection.execute(query.encode()).fetchall())
        for name, query in _QUERIES.items()
    }


def contents(connection: Connection) -> Shape:
    """Return the rows of every table of schema oml, and where its sequences stand."""
    relations = connection.execute(
        f"select c.relname, c.relkind::text from pg_class c where {_OUR_RELATIONS}".encode()
    ).fetchall()
    columns = {"r": "t::text", "S": "t.last_value, t.is_called"}
    return {
        name: sorted(
            repr(row)
            for row in connection.execute(f"select {columns[kind]} from oml.{name} t".encode())
        )
        for name, kind in relations
    }
