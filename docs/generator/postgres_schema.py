"""``postgres-schema.md``: tables and functions, from the catalogue of a database after genesis."""

from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow

from .markdown import code, names, page, table

_OURS = "n.nspname = 'oml' and c.relkind = 'r'"

_TABLES = f"""
    select c.relname, obj_description(c.oid), c.relrowsecurity and c.relforcerowsecurity,
      pg_get_userbyid(c.relowner)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where {_OURS} order by c.relname
"""
_COLUMNS = f"""
    select c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
      pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
    from pg_attribute a
    join pg_class c on c.oid = a.attrelid
    join pg_namespace n on n.oid = c.relnamespace
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where {_OURS} and a.attnum > 0 and not a.attisdropped
    order by c.relname, a.attnum
"""
_CONSTRAINTS = f"""
    select c.relname, k.conname, pg_get_constraintdef(k.oid)
    from pg_constraint k
    join pg_class c on c.oid = k.conrelid
    join pg_namespace n on n.oid = c.relnamespace
    where {_OURS}
    order by c.relname, array_position('{{p,u,f,c}}'::"char"[], k.contype), k.conname
"""
_INDEXES = f"""
    select c.relname, i.relname, pg_get_indexdef(i.oid)
    from pg_index x
    join pg_class i on i.oid = x.indexrelid
    join pg_class c on c.oid = x.indrelid
    join pg_namespace n on n.oid = c.relnamespace
    where {_OURS} order by c.relname, i.relname
"""
_POLICIES = """
    select p.tablename, p.policyname, p.cmd, p.roles::text[], p.qual, p.with_check
    from pg_policies p where p.schemaname = 'oml' order by p.tablename, p.policyname
"""
_TRIGGERS = f"""
    select c.relname, t.tgname, pg_get_triggerdef(t.oid), t.tgenabled::text
    from pg_trigger t
    join pg_class c on c.oid = t.tgrelid
    join pg_namespace n on n.oid = c.relnamespace
    where {_OURS} and not t.tgisinternal order by c.relname, t.tgname
"""
_PRIVILEGES = f"""
    select c.relname, g.grantee, string_agg(g.what, ', ' order by g.what)
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    cross join lateral (
      select pg_get_userbyid(x.grantee) as grantee, lower(x.privilege_type) as what
      from aclexplode(c.relacl) x where x.grantee <> c.relowner
      union all
      select pg_get_userbyid(x.grantee),
        format('%s (%s)', lower(x.privilege_type), string_agg(a.attname, ', ' order by a.attnum))
      from pg_attribute a cross join lateral aclexplode(a.attacl) x
      where a.attrelid = c.oid group by x.grantee, x.privilege_type
    ) g
    where {_OURS} group by c.relname, g.grantee order by c.relname, g.grantee
"""
_SEQUENCES = """
    select c.relname, obj_description(c.oid), s.seqcache
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    join pg_sequence s on s.seqrelid = c.oid
    where n.nspname = 'oml' order by c.relname
"""
_FUNCTIONS = """
    select n.nspname, p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
      pg_get_userbyid(p.proowner), p.prosecdef, obj_description(p.oid),
      array(
        select pg_get_userbyid(x.grantee) from aclexplode(p.proacl) x
        where x.grantee <> p.proowner order by 1
      )
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    join pg_depend d on d.objid = p.oid and d.classid = 'pg_proc'::regclass and d.deptype = 'e'
    join pg_extension e on e.oid = d.refobjid and e.extname = 'oml'
    order by p.proname, 3
"""
_TYPES = """
    select t.typname, obj_description(t.oid, 'pg_type'),
      (select string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', '
        order by a.attnum)
       from pg_attribute a where a.attrelid = t.typrelid)
    from pg_type t
    join pg_class c on c.oid = t.typrelid and c.relkind = 'c'
    join pg_namespace n on n.oid = t.typnamespace
    where n.nspname = 'oml' order by t.typname
"""
OWNERS = ("oml_owner", "oml_kernel", "oml_fleet")

Rows = list[tuple[Any, ...]]


def build(connection: Connection[TupleRow]) -> str:
    """Return the page. ``connection`` is a superuser's, to a database after its genesis."""

    def ask(query: str) -> Rows:
        return connection.execute(query.encode()).fetchall()

    functions = ask(_FUNCTIONS)
    public = [f for f in functions if f[1].startswith("oml_")]
    internal = [f for f in functions if not f[1].startswith("oml_")]
    return page(
        "PostgreSQL schema",
        "Tables live in schema `oml` and are made by `oml_genesis`. Public functions are made in"
        " the schema that `CREATE EXTENSION` was given, `public` if none. Row-level security is"
        " enabled and forced on every table, and every trigger is `ENABLE ALWAYS`.",
        "## Public functions",
        *(_public(function) for function in public),
        "## Functions for the daemon and for auditors",
        "In schema `oml`. The Python package calls them; the membership row of the login decides"
        " what it gets.",
        table(
            ("function", "owner", "executed by", "meaning"),
            [
                (code(f"{name}({arguments})"), code(owner), names(granted), doc)
                for _, name, arguments, _, owner, _, doc, granted in internal
                if set(granted) - set(OWNERS)
            ],
        ),
        "## Internal functions",
        "Callable by their owner and, where named, by another owner.",
        table(
            ("function", "owner", "executed by"),
            [
                (code(name), code(owner), names(granted))
                for _, name, _, _, owner, _, _, granted in internal
                if not set(granted) - set(OWNERS)
            ],
        ),
        "## Types",
        table(
            ("type", "fields", "meaning"),
            [(code(name), code(fields), doc) for name, doc, fields in ask(_TYPES)],
        ),
        "## Tables",
        *_tables(ask),
        "## Sequences",
        table(
            ("sequence", "cache", "meaning"),
            [(code(name), cache, doc) for name, doc, cache in ask(_SEQUENCES)],
        ),
    )


def _public(function: tuple[Any, ...]) -> str:
    _, name, arguments, result, owner, _, doc, granted = function
    callers = names(granted) or "superusers only"
    return "\n\n".join(
        (
            f"### `{name}`",
            f"```sql\n{_signature(name, arguments)} -> {result}\n```",
            str(doc),
            f"Owner {code(owner)}. May be executed by: {callers}.",
        )
    )


def _signature(name: str, arguments: str) -> str:
    one_line = f"{name}({arguments})"
    if len(one_line) <= 72 or not arguments:
        return one_line
    return f"{name}(\n  " + arguments.replace(", ", ",\n  ") + "\n)"


def _tables(ask: Any) -> list[str]:
    columns, constraints, indexes = ask(_COLUMNS), ask(_CONSTRAINTS), ask(_INDEXES)
    policies, triggers, privileges = ask(_POLICIES), ask(_TRIGGERS), ask(_PRIVILEGES)
    parts = []
    for name, doc, forced, owner in ask(_TABLES):
        if not forced:
            raise AssertionError(f"row-level security is not forced on {name}")

        def of(rows: Rows, name: str = name) -> Rows:
            return [row[1:] for row in rows if row[0] == name]

        parts += [
            f"### `oml.{name}`",
            f"{doc} Owner {code(owner)}.",
            table(
                ("column", "type", "", "default", "meaning"),
                [
                    (code(column), code(kind), "not null" if not_null else "", code(default), text)
                    for column, kind, not_null, default, text in of(columns)
                ],
            ),
            table(
                ("constraint or index", "definition"),
                [(code(label), code(text)) for label, text in of(constraints)]
                + [
                    (code(label), code(text))
                    for label, text in of(indexes)
                    if label not in {constraint for constraint, _ in of(constraints)}
                ],
            ),
            table(
                ("policy", "for", "to", "rows"),
                [
                    (code(policy), command.lower(), names(roles), code(using or check))
                    for policy, command, roles, using, check in of(policies)
                ],
            ),
            table(("trigger", "fires"), [_trigger(*row) for row in of(triggers)]),
            table(("role", "privileges"), [(code(role), what) for role, what in of(privileges)]),
        ]
    return parts


def _trigger(name: str, definition: str, enabled: str) -> tuple[str, str]:
    if enabled != ("D" if name == "guard_commit" else "A"):  # the profile here is local
        raise AssertionError(f"trigger {name} is not as attach_guards leaves it")
    event, _, action = definition.removeprefix(f"CREATE TRIGGER {name} ").partition(" ON ")
    level, _, function = action.partition(" FOR EACH ")[2].partition(" EXECUTE FUNCTION ")
    return code(name), f"{event.lower()}, each {level.lower()}: {code(function)}"
