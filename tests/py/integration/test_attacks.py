"""What a hostile login or a superuser's slip has once broken, each held for good."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg import errors

from attackers import calls
from catalog import contents
from lakes import (
    KIND,
    PATIENCE_S,
    append,
    drain,
    expect_exact,
    findings,
    outbox_max,
    prepare,
    rows,
    value,
)
from oml.dev.cluster import SUPERUSER
from oml.reconcile.bronze import Difference
from systems import Connection, System

TRAP = """
    create function mal.trap() returns void language plpgsql volatile as $$
    begin
      if session_user <> 'mal' then
        insert into mal.loot values (session_user);
        {act}
      end if;
    end $$;
    create function mal.f(int) returns int language plpgsql immutable as
      $$ begin perform mal.trap(); return $1; end $$;
    create table mal.t (i int);
    create index on mal.t (mal.f(i));
    insert into mal.t select generate_series(1, 200);
"""
ACTS = {
    "reads the lake's rows": "perform count(*) from oml.lake_rows('bronze.events', 0, 100000);",
    "grants itself": "perform oml_grant('mal', 'provider', '{operate,audit}');",
    "makes a tenant": "perform oml_create_tenant('loot');",
    "verifies a chain": "perform ok from oml_verify_chain('acme');",
    "reads a chain": "perform count(*) from oml.chain_rows("
    "(select oml.deployment_id())::uuid, 0, 10);",
    "appends": "perform oml_append('note.added', '{}', tenant => 'acme');",
}


def trapped(system: System, act: str) -> Connection:
    """Let a hostile login lay a trap that acts when somebody else maintains its table."""
    system.make_login("mal", "oml_writer", "oml_operator", "oml_auditor", "oml_daemon")
    system.superuser.execute("create schema mal authorization mal")
    mal = system.connect("mal")
    mal.execute("create table mal.loot (by text)")
    mal.execute(TRAP.format(act=act).encode())
    return mal


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("maintenance", ["analyze mal.t", "reindex table mal.t"])
def test_nobody_acts_with_the_rights_of_who_maintains_a_table(
    system: System, act: str, maintenance: str
) -> None:
    prepare(system)
    system.bind(SUPERUSER, "acme", ("append", "audit"))
    mal = trapped(system, act)
    events = value(system.superuser, "select count(*) from oml.journal")
    with pytest.raises(errors.InsufficientPrivilege, match="security-restricted operation"):
        system.superuser.execute(maintenance.encode())
    assert value(system.superuser, "select count(*) from oml.journal") == events
    mal.execute("drop schema mal cascade")


# They tell what the genesis made public and what is written in the code, and change nothing.
FREE = {"oml.deployment_id", "oml.lifecycle"}


def test_no_function_that_a_group_role_may_call_runs_inside_anothers_maintenance(
    system: System,
) -> None:
    prepare(system)
    system.bind(SUPERUSER, "acme", ("append", "audit"))
    system.bind(SUPERUSER, "provider", ("operate",))
    mal = trapped(system, "perform 1;")
    session = value(system.superuser, "select oml_impersonate('acme', 'app', 'ticket 1')")
    attacks = [
        *((call, signature) for call, signature, _ in calls(system.superuser)),
        (f"select oml_end_impersonation('{session}')", "oml_end_impersonation(uuid)"),
    ]
    before = contents(system.superuser)
    got, tried = {}, set()
    for call, signature in attacks:
        may = "select has_function_privilege('mal', %s::regprocedure, 'execute')"
        name = signature.partition("(")[0]
        if not value(system.superuser, may, signature) or name in FREE:
            continue
        tried.add(name)
        act = f"if session_user <> 'mal' then perform * from ({call}) c; end if;"
        trap = "create or replace function mal.trap() returns void language plpgsql volatile"
        mal.execute(f"{trap} as $f$ begin {act} end $f$".encode())
        for maintenance in ("analyze mal.t", "reindex table mal.t"):
            try:
                system.superuser.execute(maintenance.encode())
                got[name] = "nothing"
            except errors.Error as error:
                if "security-restricted operation" not in str(error):
                    got[name] = str(error)
    assert got == {}
    assert {"oml_append", "oml_append_batch", "oml_entity", "oml_use", "oml_keys"} <= tried
    assert len(tried) > 25
    assert contents(system.superuser) == before
    mal.execute("drop schema mal cascade")


def test_the_trap_springs_where_it_does_nothing_of_ours(system: System) -> None:
    mal = trapped(system, "perform 1;")
    system.superuser.execute("analyze mal.t")
    assert value(system.superuser, "select count(*) from mal.loot") > 0
    mal.execute("drop schema mal cascade")


def test_a_login_that_listens_may_append(system: System) -> None:
    app = prepare(system)
    app.execute("listen something")
    append(app, 2)
    system.superuser.execute("notify something, 'still heard'")
    assert [n.payload for n in app.notifies(timeout=PATIENCE_S, stop_after=1)] == ["still heard"]


def test_a_login_that_listened_may_not_prepare_what_it_appended(system: System) -> None:
    # PostgreSQL's limit, and documented: an append asks with UNLISTEN in what context it runs.
    app = prepare(system)
    app.execute("listen something")
    app.execute("begin")
    append(app)
    with pytest.raises(errors.FeatureNotSupported, match="LISTEN, UNLISTEN"):
        app.execute("prepare transaction 'listened'")
    assert value(system.superuser, "select count(*) from oml.journal where type = %s", KIND) == 0


def test_a_frontier_that_was_pushed_ahead_loses_no_event(system: System) -> None:
    app = prepare(system)
    system.make("globex")
    system.bind("app", "globex")
    drain(system)
    late = system.connect("app", autocommit=False)
    append(late, tenant="acme")
    append(app, tenant="globex")
    system.superuser.execute("select oml.lake_advance(%s)", (outbox_max(system),))
    held = drain(system, cut_timeout_s=0.1)
    assert held.held_back
    late.commit()
    drain(system)
    expect_exact(system)


def test_a_frontier_that_was_pushed_to_the_end_does_not_still_a_serving_writer(
    system: System,
) -> None:
    append(prepare(system), 2)
    drain(system)
    serving = system.start_oml("serve", env={"OML_POLL_INTERVAL_S": "0.05"})
    deadline = time.monotonic() + PATIENCE_S
    for _ in range(5):
        append(system.connect("app"))
        end = outbox_max(system)
        system.superuser.execute("select oml.lake_advance(%s)", (end,))
        while rows(system)[-1][0] < end:
            assert serving.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    expect_exact(system)


def test_a_chain_that_grows_while_it_is_verified_is_whole(system: System) -> None:
    app = prepare(system)
    append(app, 50)
    with ThreadPoolExecutor(1) as pool:
        growing = pool.submit(append, app, 300)
        verified = 0
        while not growing.done() or verified < 5:
            row = system.superuser.execute("select ok, fault from oml_verify_chain('acme')")
            assert row.fetchone() == (True, None)
            verified += 1
        growing.result()


def test_an_event_that_was_queued_twice_is_a_duplicate(system: System) -> None:
    append(prepare(system), 3)
    last = outbox_max(system)
    system.superuser.execute(
        "insert into oml.outbox (tenant_id, chain_seq, target)"
        " select tenant_id, chain_seq, target from oml.outbox where seq = %s",
        (last,),
    )
    drain(system)
    (found,) = findings(system)
    assert found.difference == Difference.DUPLICATE_IN_LAKE
    assert found.outbox_seq == outbox_max(system)


@pytest.mark.parametrize("setting", ["deployment_id", "signer"])
def test_without_its_settings_nothing_is_signed(system: System, setting: str) -> None:
    app = prepare(system)
    events = value(system.superuser, "select count(*) from oml.journal")
    system.superuser.execute("alter table oml.setting disable trigger guard_rows")
    system.superuser.execute("delete from oml.setting where name = %s", (setting,))
    with pytest.raises(errors.Error) as refused:
        append(app)
    assert refused.value.sqlstate == "OM042"
    assert value(system.superuser, "select count(*) from oml.journal") == events


def test_a_page_of_a_chain_is_bounded_in_bytes(system: System) -> None:
    app = prepare(system)
    system.superuser.execute("select oml_register_event_type('big.one', max_bytes => 1048576)")
    for _ in range(20):
        app.execute("select oml_append('big.one', jsonb_build_object('t', repeat('x', 1000000)))")
    tenant_id = value(system.superuser, "select tenant_id from oml.tenant where name = 'acme'")
    page = "select count(*) from oml.chain_rows(%s, 0, 1000)"
    assert 16 <= value(system.superuser, page, tenant_id) <= 18
    verdict = system.superuser.execute("select ok, events from oml_verify_chain('acme')")
    assert verdict.fetchone() == (True, 21)


def test_attaching_while_events_come_neither_fails_nor_makes_them_fail(system: System) -> None:
    prepare(system)
    writers = [system.connect("app") for _ in range(4)]
    with ThreadPoolExecutor(len(writers)) as pool:
        done = [pool.submit(append, connection, 100) for connection in writers]
        for _ in range(5):
            system.superuser.execute("select oml_attach()")
        for one in done:
            one.result()
    drain(system)
    expect_exact(system)
