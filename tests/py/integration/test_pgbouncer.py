"""PgBouncer in transaction mode: what a client leaves on the server connection, the next one meets.

Ann and Bob are two clients of one login on one server connection, which is checked by its pid.
"""

import contextlib
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from lakes import KIND, value
from oml.dev.cluster import Cluster
from pooler import Pooler
from systems import Connection, System

EACH = 40
BOTH, ONE = "pooled_both", "pooled_one"
PEOPLE, SUPPORT = "pooled_people", "pooled_support"
NEIGHBOUR = {BOTH: "globex", ONE: "acme"}  # where Bob's event belongs


def appends(by: str, tenant: str | None) -> str:
    """Return the statement that appends an event of this client, for a tenant or for none."""
    named = "null" if tenant is None else f"'{tenant}'"
    return f"select (public.oml_append('{KIND}', jsonb_build_object('by', '{by}'), {named})).seq"


def batches(by: str, tenant: str | None) -> str:
    """Return the statement that appends such an event as a batch."""
    named = "null" if tenant is None else f"'{tenant}'"
    return (
        "select seq from public.oml_append_batch(jsonb_build_array(jsonb_build_object('type',"
        f" '{KIND}', 'payload', jsonb_build_object('by', '{by}'), 'tenant', {named}::text)))"
    )


def reads(tenant: str | None) -> str:
    """Return the statement that reads the desk of a tenant or of none that is named."""
    named = "null" if tenant is None else f"'{tenant}'"
    return f"select last_event_id from public.oml_entity('desk', '1', {named})"


ANN, BOB = appends("ann", "acme"), appends("bob", "globex")

# What Ann does before Bob comes, and the SQLSTATE that refuses Bob if it is in his way.
# :acme and :globex are the tenants' ids; a statement that fails is no matter.
LEFT: dict[str, tuple[str, str | None]] = {
    "nothing": ("select 1", None),
    "tenant_id of the policies": ("set oml.tenant_id = ':acme'", None),
    "tenant_id of the other": ("set oml.tenant_id = ':globex'", None),
    "tenant_id that is none": ("set oml.tenant_id = 'x'", None),
    "tenant_id by set_config": ("select set_config('oml.tenant_id', ':acme', false)", None),
    "a tenant": ("set oml.tenant = 'acme'", None),
    "a tenant it has not": ("set oml.tenant = 'provider'", None),
    "a principal": ("set oml.principal = 'acme-desk'", None),
    "an impersonation": (f"set oml.impersonation = '{uuid.uuid4()}'", None),
    "a transaction": (
        "select set_config('oml.transaction', pg_current_xact_id()::text, false),"
        " set_config('oml.tenant', 'acme', false), set_config('oml.principal', 'acme-desk', false)",
        None,
    ),
    "its choice": (f"begin; select public.oml_use('acme'); {ANN}; commit", None),
    "its choice without a transaction": ("select public.oml_use('acme', 'acme-desk')", None),
    "a choice that it rolled back": ("begin; select public.oml_use('acme'); rollback", None),
    "a choice in a savepoint": (
        "begin; savepoint s; select public.oml_use('acme'); release s; commit",
        None,
    ),
    "a choice that it made to last": (
        "begin; select public.oml_use('acme', 'acme-desk');"
        " select set_config(name, current_setting(name), false) from unnest("
        "array['oml.transaction', 'oml.tenant', 'oml.principal', 'oml.tenant_id']) name; commit",
        None,
    ),
    "settings of a transaction that it rolled back": (
        "begin; set local oml.tenant = 'acme'; set local oml.tenant_id = ':acme'; rollback",
        None,
    ),
    "settings of a transaction that it committed": (
        "begin; set local oml.tenant = 'acme'; set local oml.tenant_id = ':acme'; commit",
        None,
    ),
    "settings in a savepoint": (
        "begin; savepoint s; set oml.tenant_id = ':acme'; rollback to s; release s; commit",
        None,
    ),
    "an append in a savepoint": (
        f"begin; savepoint s; {ANN}; rollback to s; commit",
        None,
    ),
    "an error in mid transaction": (
        f"begin; set oml.tenant_id = ':acme'; {ANN}; select 1/0",
        None,
    ),
    "a refused append in mid transaction": (
        f"begin; {ANN}; {appends('ann', 'nobody')}; rollback",
        None,
    ),
    "an append that it rolled back": (f"begin; {ANN}; rollback", None),
    "a held cursor": (
        f"begin; declare c cursor with hold for {ANN}; rollback",
        None,
    ),
    "an open cursor": (f"begin; declare c cursor for {ANN}; commit", None),
    "a search_path": ("set search_path = nowhere", None),
    "a search_path of its own": ("set search_path = pg_temp, pg_catalog, public", None),
    "an empty search_path": ("set search_path = ''", None),
    "tables of its own": (
        "create temporary table journal (tenant_id uuid, seq bigint, hash bytea);"
        " create temporary table membership as select session_user::name as login,"
        " ':acme'::uuid as tenant_id, 'acme' as tenant, 'mallory' as principal,"
        " '{append}'::text[] as permissions; set search_path = pg_temp, pg_catalog, oml, public",
        None,
    ),
    "a role": ("set role oml_writer", None),
    "a role that may not": ("set role pooled_group", "42501"),
    "another authorization": ("set session authorization pooled_one", None),
    "row_security": ("set row_security = off", "42501"),
    "read only transactions": ("set default_transaction_read_only = on", "OM051"),
    "serializable transactions": ("set default_transaction_isolation = 'serializable'", None),
    "replica": ("set session_replication_role = replica", None),
    "backslashes": ("set standard_conforming_strings = off; set backslash_quote = on", None),
    "ways to write": (
        "set bytea_output = escape; set datestyle = 'sql, dmy'; set intervalstyle = sql_standard;"
        " set timezone = 'Asia/Kathmandu'; set extra_float_digits = -15; set array_nulls = off;"
        " set quote_all_identifiers = on; set transform_null_equals = on",
        None,
    ),
    "a prepared statement": (f"prepare p as {ANN}", None),
    "an ear": ("listen something", None),
    "an advisory lock": (
        "select pg_advisory_lock(hashtextextended(':globex', 0)), pg_advisory_lock(1),"
        " pg_advisory_lock_shared(0)",
        None,
    ),
}


@pytest.fixture(scope="module")
def pooled(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Tenants acme and globex, a login bound to both and one bound to acme alone."""
    with System(cluster, "oml_pooled", tmp_path_factory.mktemp("pooled") / "lake") as system:
        system.make_login("pooled_group")
        for login in (BOTH, ONE, PEOPLE):
            system.make_login(login, "oml_writer", "pooled_group")
        system.make_login(SUPPORT, "oml_writer", "oml_operator")
        system.superuser.execute("select oml_register_event_type(%s)", (KIND,))
        for tenant in ("acme", "globex"):
            system.make(tenant)
            for login in (BOTH, ONE) if tenant == "acme" else (BOTH,):
                system.superuser.execute(
                    "select oml_grant(%s, %s, principal => %s)", (login, tenant, f"{tenant}-desk")
                )
        for principal in ("ada", "eve"):
            system.superuser.execute(
                "select oml_grant(%s, 'acme', principal => %s)", (PEOPLE, principal)
            )
        system.bind(SUPPORT, "acme", ("append",))
        system.bind(SUPPORT, "provider", ("operate",))
        with system.connect(BOTH) as desks:
            for tenant in ("acme", "globex"):
                desks.execute(
                    "select oml_append(%s, %s, %s, entity_type => 'desk', entity_id => '1')",
                    (KIND, Jsonb({"by": "a desk"}), tenant),
                )
        yield system


@pytest.fixture
def pooler(pooled: System) -> Iterator[Pooler]:
    """A pooler of its own for each test, and so a server connection."""
    with Pooler(pooled.cluster, (BOTH, ONE, PEOPLE, SUPPORT)) as pooler:
        yield pooler


@contextlib.contextmanager
def client(pooler: Pooler, login: str, threshold: int | None = None) -> Iterator[Connection]:
    """A client that prepares no statements, as the guide says; ``threshold`` is psycopg's."""
    dsn = pooler.dsn(login, "oml_pooled")
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=threshold) as connection:
        yield connection


def pid(connection: Connection) -> int:
    """Return the pid of the server process behind a client."""
    return int(value(connection, "select pg_catalog.pg_backend_pid()"))


def stored(system: System) -> list[tuple[str, str, str, str]]:
    """Return (tenant, writer, principal, by) of every event of the applications."""
    return system.superuser.execute(
        "select t.name, j.writer, j.principal, j.payload->>'by'"
        " from oml.journal j join oml.tenant t using (tenant_id) where j.type = %s"
        " order by t.name, j.seq",
        (KIND,),
    ).fetchall()


def proved(system: System) -> bool:
    """Whether both chains are whole."""
    query = "select bool_and(v.ok) from unnest(array['acme', 'globex']) t, oml_verify_chain(t) v"
    return bool(value(system.superuser, query))


def sqlstate_of(connection: Connection, query: str) -> str | None:
    """Run a query in a transaction of its own; return the SQLSTATE that it is refused with."""
    try:
        connection.execute(query.encode())
    except psycopg.Error as error:
        return error.sqlstate
    return None


def chosen(connection: Connection, choice: str, query: str) -> str | None:
    """Choose and run a query in one transaction; return the SQLSTATE of what is refused first."""
    try:
        with connection.transaction():
            connection.execute(f"select public.oml_use({choice})".encode())
            connection.execute(query.encode())
    except psycopg.Error as error:
        return error.sqlstate
    return None


def desk(connection: Connection, tenant: str | None) -> str | None:
    """Read a desk; return the id of its last event, or the SQLSTATE of the refusal."""
    try:
        return str(value(connection, reads(tenant)))
    except psycopg.Error as error:
        return error.sqlstate


def leave(system: System, connection: Connection, statements: str) -> None:
    """Run Ann's statements one by one, whatever they say, and end what they began."""
    for tenant in ("acme", "globex"):
        query = "select tenant_id::text from oml.tenant where name = %s"
        statements = statements.replace(f":{tenant}", value(system.superuser, query, tenant))
    for statement in statements.split("; "):
        sqlstate_of(connection, statement)
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        connection.execute("rollback")


@pytest.mark.parametrize("login", [BOTH, ONE])
@pytest.mark.parametrize("left", LEFT)
def test_nothing_that_a_client_leaves_behind_moves_its_neighbours_event(
    pooled: System, pooler: Pooler, login: str, left: str
) -> None:
    statements, refusal = LEFT[left]
    with client(pooler, login) as ann, client(pooler, login) as bob:
        server = pid(ann)
        assert pid(bob) == server
        leave(pooled, ann, statements)
        before = stored(pooled)
        tenant = NEIGHBOUR[login]
        own = [] if refusal else [(tenant, login, f"{tenant}-desk", "bob")]
        added = []
        for verb in (appends, batches):
            assert sqlstate_of(bob, verb("bob", tenant)) == refusal
            added += own
            assert sorted(stored(pooled)) == sorted(before + added)
            unnamed = sqlstate_of(bob, verb("bob", None))
            assert unnamed == refusal if login == ONE else unnamed in ("OM002", refusal or "OM002")
            if login == ONE:
                added += own
            assert sorted(stored(pooled)) == sorted(before + added)
        here = value(
            pooled.superuser,
            "select e.last_event_id::text from oml.entity e join oml.tenant t using (tenant_id)"
            " where t.name = %s",
            tenant,
        )
        seen = here if refusal in (None, "OM051") else refusal  # what only reads may be read-only
        assert desk(bob, tenant) == seen
        assert desk(bob, None) == (seen if login == ONE or seen != here else "OM002")
        assert sqlstate_of(bob, appends("bob", "provider")) in ("OM003", refusal)
        assert chosen(bob, f"'{tenant}'", appends("bob", None)) == refusal
        added += [] if refusal else [(tenant, login, f"{tenant}-desk", "bob")]
        assert sorted(stored(pooled)) == sorted(before + added)
        assert pid(bob) == server
    assert proved(pooled)


def test_two_tenants_in_turn_on_one_server_connection(pooled: System, pooler: Pooler) -> None:
    before = stored(pooled)
    with client(pooler, BOTH) as ann, client(pooler, BOTH) as bob:
        for _ in range(EACH // 2):
            for connection, name, tenant in ((ann, "ann", "acme"), (bob, "bob", "globex")):
                with connection.transaction():
                    connection.execute(appends(name, tenant).encode())
                    connection.execute(appends(name, tenant).encode())
                    here = pid(connection)
            assert pid(ann) == here == pid(bob)
    added = [("acme", BOTH, "acme-desk", "ann"), ("globex", BOTH, "globex-desk", "bob")]
    assert sorted(stored(pooled)) == sorted(before + added * EACH)
    assert proved(pooled)


def test_two_tenants_at_once_on_one_server_connection(pooled: System, pooler: Pooler) -> None:
    def write(name: str, tenant: str) -> set[int]:
        with client(pooler, BOTH) as connection:
            pids = set()
            for _ in range(EACH):
                with connection.transaction():
                    connection.execute(appends(name, tenant).encode())
                    pids.add(pid(connection))
            return pids

    before = stored(pooled)
    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write, "ann", "acme"), pool.submit(write, "bob", "globex")]
        pids = set[int]().union(*(each.result() for each in writing))
    assert len(pids) == 1
    added = [("acme", BOTH, "acme-desk", "ann"), ("globex", BOTH, "globex-desk", "bob")]
    assert sorted(stored(pooled)) == sorted(before + added * EACH)
    assert proved(pooled)


def test_two_who_choose_in_turn_on_one_server_connection(pooled: System, pooler: Pooler) -> None:
    before = stored(pooled)
    with client(pooler, BOTH) as ann, client(pooler, BOTH) as bob:
        for _ in range(EACH // 2):
            assert chosen(ann, "'acme'", appends("ann", None)) is None
            assert chosen(bob, "'globex'", appends("bob", None)) is None
            assert sqlstate_of(ann, appends("ann", None)) == "OM002"
            assert pid(ann) == pid(bob)
    added = [("acme", BOTH, "acme-desk", "ann"), ("globex", BOTH, "globex-desk", "bob")]
    assert sorted(stored(pooled)) == sorted(before + added * (EACH // 2))
    assert proved(pooled)


def test_two_principals_in_turn_on_one_server_connection(pooled: System, pooler: Pooler) -> None:
    before = stored(pooled)
    with client(pooler, PEOPLE) as ann, client(pooler, PEOPLE) as bob:
        for _ in range(EACH // 2):
            assert chosen(ann, "principal => 'ada'", appends("ann", None)) is None
            assert chosen(bob, "principal => 'eve'", appends("bob", "acme")) is None
            assert sqlstate_of(bob, appends("bob", None)) == "OM136"
            assert pid(ann) == pid(bob)
    added = [("acme", PEOPLE, "ada", "ann"), ("acme", PEOPLE, "eve", "bob")]
    assert sorted(stored(pooled)) == sorted(before + added * (EACH // 2))


def test_an_impersonation_ends_with_the_transaction_that_chose_it(
    pooled: System, pooler: Pooler
) -> None:
    before = stored(pooled)
    with client(pooler, SUPPORT) as ann, client(pooler, SUPPORT) as bob:
        session = value(ann, "select public.oml_impersonate('acme', 'ada', 'ticket 1')")
        assert chosen(ann, f"impersonation => '{session}'", appends("ann", None)) is None
        ann.execute(f"set oml.impersonation = '{session}'".encode())
        assert sqlstate_of(bob, appends("bob", None)) is None
        assert pid(ann) == pid(bob)
    added = [("acme", SUPPORT, "ada", "ann"), ("acme", SUPPORT, SUPPORT, "bob")]
    assert sorted(stored(pooled)) == sorted(before + added)
    under = pooled.superuser.execute(
        "select payload->>'by', impersonation is not null from oml.journal where writer = %s",
        (SUPPORT,),
    ).fetchall()
    assert {("ann", True), ("bob", False)} <= {*under}


@pytest.mark.parametrize("time", ["", " || ' ' || extract(epoch from now())"], ids=["xid", "both"])
def test_a_guess_of_the_neighbours_transaction_chooses_nothing(
    pooled: System, pooler: Pooler, time: str
) -> None:
    before = stored(pooled)
    with client(pooler, BOTH) as ann, client(pooler, BOTH) as bob:
        guess = f"(pg_current_xact_id()::text::bigint + 1)::text{time}"
        ann.execute(
            f"select set_config('oml.transaction', {guess}, false),"
            " set_config('oml.tenant', 'acme', false)".encode()
        )
        with bob.transaction():
            guessed = value(bob, "select current_setting('oml.transaction')")
            assert value(bob, "select pg_current_xact_id()::text") == guessed.split()[0]
            for statement in (appends("bob", None), batches("bob", None), reads(None)):
                with pytest.raises(psycopg.Error) as refused, bob.transaction():
                    bob.execute(statement.encode())
                assert refused.value.sqlstate == "OM002"
    assert stored(pooled) == before


def test_two_logins_share_no_server_connection(pooled: System, pooler: Pooler) -> None:
    with client(pooler, BOTH) as ann, client(pooler, ONE) as bob:
        assert pid(ann) != pid(bob)
        ann.execute("set oml.tenant_id = 'x'")
        assert value(bob, "select current_setting('oml.tenant_id', true)") in (None, "")


def test_a_client_that_goes_in_mid_transaction_leaves_nothing(
    pooled: System, pooler: Pooler
) -> None:
    before = stored(pooled)
    with client(pooler, BOTH) as bob:
        with client(pooler, BOTH) as ann:
            ann.execute("begin")
            ann.execute(ANN.encode())
            ann.close()  # the end of a psycopg block would commit
        bob.execute(BOB.encode())
    added = [("globex", BOTH, "globex-desk", "bob")]
    assert sorted(stored(pooled)) == sorted(before + added)
    assert proved(pooled)


def test_a_neighbours_search_path_hides_a_name_that_is_not_qualified(pooler: Pooler) -> None:
    unqualified = BOB.replace("public.", "")
    with client(pooler, BOTH) as ann, client(pooler, BOTH) as bob:
        ann.execute("set search_path = nowhere")
        assert sqlstate_of(bob, unqualified) == "42883"
        assert sqlstate_of(bob, BOB) is None


def test_who_may_make_a_schema_can_stand_in_for_a_name_that_is_not_qualified(
    pooled: System, pooler: Pooler
) -> None:
    # PostgreSQL's search_path, which no function can see behind. The guide says what to do.
    unqualified = BOB.replace("public.", "")
    before = stored(pooled)
    pooled.superuser.execute(f"create schema standin authorization {BOTH}".encode())
    with client(pooler, BOTH) as ann, client(pooler, BOTH) as bob:
        ann.execute(
            "create function standin.oml_append(text, jsonb, text, out seq int, out hash bytea)"
            " language sql as $$ select 0, null::bytea $$"
        )
        ann.execute("set search_path = standin, public")
        assert value(bob, unqualified) == 0
        assert stored(pooled) == before
        assert value(bob, BOB) > 0
    assert sorted(stored(pooled)) == sorted([*before, ("globex", BOTH, "globex-desk", "bob")])
    pooled.superuser.execute("set client_min_messages = error; drop schema standin cascade")


def test_with_a_reset_after_every_transaction_a_neighbour_leaves_no_setting(
    pooled: System,
) -> None:
    with (
        Pooler(pooled.cluster, (BOTH,), always_reset=True) as pooler,
        client(pooler, BOTH) as ann,
        client(pooler, BOTH) as bob,
    ):
        server = pid(ann)
        for setting in ("search_path = nowhere", "row_security = off", "oml.tenant = 'acme'"):
            ann.execute(f"set {setting}".encode())
        assert sqlstate_of(bob, BOB.replace("public.", "")) is None
        assert value(bob, "select current_setting('oml.tenant', true)") in (None, "")
        assert pid(bob) == server


def test_the_drivers_own_prepared_statements_collide_and_nothing_is_stored(
    pooled: System, pooler: Pooler
) -> None:
    with client(pooler, BOTH, threshold=0) as ann, client(pooler, BOTH, threshold=0) as bob:
        ann.execute(ANN.encode())
        before = stored(pooled)
        with pytest.raises(errors.DuplicatePreparedStatement):
            bob.execute(BOB.encode())
        assert stored(pooled) == before
    assert proved(pooled)


def test_the_drivers_own_prepared_statements_can_be_the_neighbours(
    pooled: System, pooler: Pooler
) -> None:
    # Both drivers count from the same number, so one name is two statements; the server cannot
    # see. Hence the guide's advice.
    before = stored(pooled)
    with client(pooler, BOTH, threshold=0) as ann, client(pooler, BOTH, threshold=0) as bob:
        bob.execute(BOB.encode())
        value(pooled.superuser, "select pg_terminate_backend(%s, 10000)", pid(bob))
        ann.execute(ANN.encode())
        bob.execute(BOB.encode())
    bobs, anns = ("globex", BOTH, "globex-desk", "bob"), ("acme", BOTH, "acme-desk", "ann")
    assert sorted(stored(pooled)) == sorted([*before, bobs, anns, anns])


def test_without_them_a_client_may_repeat_its_append(pooled: System, pooler: Pooler) -> None:
    before = stored(pooled)
    query = "select oml_append(%s, jsonb_build_object('by', %s::text), tenant => %s)"
    with client(pooler, BOTH) as ann, client(pooler, BOTH) as bob:
        for _ in range(10):  # psycopg would prepare at the sixth
            ann.execute(query, (KIND, "ann", "acme"))
            bob.execute(query, (KIND, "bob", "globex"))
        assert value(bob, "select count(*) from pg_prepared_statements") == 0
    added = [("acme", BOTH, "acme-desk", "ann"), ("globex", BOTH, "globex-desk", "bob")]
    assert sorted(stored(pooled)) == sorted(before + added * 10)
