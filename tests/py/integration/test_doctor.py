"""oml doctor on servers in every state: what it says is so, and what it cannot see it says."""

import json
from typing import Any

import psycopg
import pytest

from clusters import Quorum, until
from oml.dev.cluster import SUPERUSER
from oml.doctor.check import Check, Status
from oml.doctor.examine import Report, examine
from oml.doctor.standby_names import parse
from oml.errors import UsageError
from systems import Connection, System


def check(report: Report, name: str) -> Check:
    """Return the one check of a name."""
    (found,) = [c for c in report.checks if c.name == name]
    return found


def failed(report: Report) -> set[str]:
    """Return the names of what failed."""
    return {c.name for c in report.checks if c.status is Status.FAIL}


def warned(report: Report) -> set[str]:
    """Return the names of what was warned of."""
    return {c.name for c in report.checks if c.status is Status.WARN}


def produce(system: Quorum) -> Quorum:
    """Set the production profile, fsync on, and a login for the doctor."""
    system.configure("p", "fsync", "on")
    connection = system.connect()
    connection.execute("select oml_configure('profile', 'production')")
    connection.execute("select oml_configure('lake_url', 'file:///srv/lake')")
    connection.execute("select oml_grant('auditor', 'provider', '{audit}')")
    connection.execute("grant pg_monitor to auditor")
    return system


@pytest.fixture
def production(shared_trio: Quorum) -> Quorum:
    """A quorum in the production profile."""
    return produce(shared_trio)


def diagnose(system: Quorum, profile: str | None = None) -> Report:
    """Run the doctor on the primary as the auditor, in a session of its own."""
    return examine(system.connect(user="auditor"), profile)


# One disk.


@pytest.fixture
def one(private_system: System) -> System:
    """A server without standbys, fsync on, in the local profile."""
    private_system.superuser.execute("alter system set fsync = on")
    private_system.superuser.execute("select pg_reload_conf()")
    private_system.bind("auditor", "provider", ["audit"])
    until(lambda: _setting(private_system, "fsync") == "on")
    return private_system


def _setting(system: System, name: str) -> str:
    with system.connect(SUPERUSER) as connection:
        row = connection.execute("select current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


def test_one_disk_is_said_to_be_one_disk(one: System) -> None:
    report = examine(one.connect("auditor"))
    assert report.profile == "local" and report.ok
    assert check(report, "durability").found == "one disk: this machine's"
    assert check(report, "synchronous_standby_names").found == "empty: no standby is waited for"
    assert check(report, "synchronous_commit").found == "on (server)"
    assert check(report, "standbys").found == "none connected"
    assert check(report, "wal_level") == Check(
        "wal_level", Status.OK, "logical", "replica or logical"
    )
    assert warned(report) == {"data_checksums"}


def test_one_disk_does_not_do_for_production(one: System) -> None:
    report = examine(one.connect("auditor"), "production")
    assert failed(report) == {"durability", "profile", "synchronous_standby_names", "standbys"}
    for name in failed(report) - {"standbys"}:
        assert check(report, name).hint


def test_the_command_line(one: System) -> None:
    done = one.oml("doctor", "--json", user="auditor")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True and document["profile"] == "local"
    assert set(document["checks"][0]) == {"name", "status", "found", "wanted", "hint"}
    done = one.oml("doctor", "--profile", "production", user="auditor")
    assert done.returncode == 1 and "one disk: this machine's" in done.stdout
    done = one.oml("doctor", "--profile", "cloud", user="auditor")
    assert done.returncode == 2 and "cloud is no profile" in done.stderr
    done = one.oml("doctor", user="app")
    assert done.returncode == 2 and "lacks the permission operate or audit" in done.stderr


@pytest.mark.parametrize(
    ("statement", "name", "status", "found"),
    [
        ("alter database {} set synchronous_commit = off", "synchronous_commit", Status.WARN,
         "off (database)"),
        ("alter system set synchronous_commit = off", "synchronous_commit", Status.WARN,
         "off (server)"),
        ("alter role app in database {} set synchronous_commit = off",
         "synchronous_commit of roles", Status.WARN, "app: off"),
        ("alter role app set synchronous_commit = off", "synchronous_commit of roles", Status.WARN,
         "app: off"),
        ("alter role all set synchronous_commit = off", "synchronous_commit", Status.WARN,
         "off (database)"),
        ("alter role auditor set synchronous_commit = remote_apply", "synchronous_commit",
         Status.WARN, "cannot be seen (remote_apply by user)"),
        ("alter system set fsync = off", "fsync", Status.FAIL, "off"),
        ("alter system set full_page_writes = off", "full_page_writes", Status.WARN, "off"),
    ],
)  # fmt: skip
def test_each_weak_setting_is_named(
    one: System, statement: str, name: str, status: Status, found: str
) -> None:
    expect_named(one, statement, name, status, found)


@pytest.mark.parametrize(
    ("statement", "name", "status", "found"),
    [
        ("alter table oml.journal disable trigger guard_rows", "guards", Status.FAIL,
         "journal.guard_rows is not"),
        ("alter table oml.journal enable trigger guard_rows", "guards", Status.FAIL,
         "journal.guard_rows is not"),
        ("drop trigger derive on oml.journal", "guards", Status.FAIL,
         "journal.derive is missing"),
        ("drop trigger guard_commit on oml.journal", "guards", Status.FAIL,
         "journal.guard_commit is missing"),
        ("alter table oml.setting disable trigger copy_settings", "guards", Status.FAIL,
         "setting.copy_settings is not"),
        ("drop trigger guard_truncate on oml.membership", "guards", Status.FAIL,
         "membership.guard_truncate is missing"),
        ("alter sequence oml.outbox_seq cache 20", "outbox sequence", Status.FAIL, "CACHE 20"),
        ("alter sequence oml.outbox_seq restart 1", "outbox sequence", Status.FAIL, "at 0, "),
        ("select setval('oml.outbox_seq', 2000000000)", "outbox sequence", Status.WARN,
         "at 2000000000, "),
        ("select setval('oml.outbox_seq', 9222372036854775808)", "outbox sequence", Status.FAIL,
         "at 9222372036854775808, "),
        ("select setval('oml.outbox_seq', 9222372036854775807)", "outbox sequence", Status.WARN,
         "at 9222372036854775807, "),
        ("update pg_extension set extversion = '0.0' where extname = 'oml'", "extension",
         Status.FAIL, "0.0"),
    ],
)  # fmt: skip
def test_each_damage_is_named(
    system: System, statement: str, name: str, status: Status, found: str
) -> None:
    system.bind("auditor", "provider", ["audit"])
    expect_named(system, statement, name, status, found)


def expect_named(system: System, statement: str, name: str, status: Status, found: str) -> None:
    """Insist that a check that is well says so once a statement has spoiled what it looks at."""

    def now() -> Check:
        with system.connect("auditor") as connection:
            return check(examine(connection), name)

    before = now()
    assert before.status is Status.OK
    system.superuser.execute(statement.format(system.database).encode())
    system.superuser.execute("select pg_reload_conf()")
    until(lambda: now() != before)
    after = now()
    assert after.status is status and found in after.found and after.hint


def test_a_commit_that_is_reported_early_is_less_than_one_disk(one: System) -> None:
    one.superuser.execute(f"alter database {one.database} set synchronous_commit = off".encode())
    report = examine(one.connect("auditor"))
    assert check(report, "durability").found.startswith("less than one disk: ")
    assert check(report, "durability").status is Status.WARN


def test_the_roles_own_setting_in_the_database_goes_before_its_general_one(one: System) -> None:
    one.superuser.execute("alter role app set synchronous_commit = off")
    one.superuser.execute(
        f"alter role app in database {one.database} set synchronous_commit = on".encode()
    )
    found = check(examine(one.connect("auditor")), "synchronous_commit of roles")
    assert (found.status, found.found) == (Status.OK, "app: on")


def test_what_the_names_mean_is_what_the_server_takes(one: System) -> None:
    connection = one.superuser
    for text in (
        "s1", "s1, s2", "*", "2 (s1,s2 , s3)", "FIRST 2 (s1, s2)", "first 2(s1,s2)",
        'ANY 1 ("s 1", "a""b", "any")', "1, 2", '"any", s1', "ANY", "ANY 1", "ANY 1 ()", "s1 s2",
        "s1,", "s-1", "0 (s1)", "1 (s1) s2", "7", "any, s1",
    ):  # fmt: skip
        try:
            connection.execute(f"alter system set synchronous_standby_names = '{text}'".encode())
            taken = True
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.SyntaxError):
            taken = False
        try:
            read = parse(text) is not None
        except ValueError:
            read = False
        assert read == taken, text
    connection.execute("alter system reset synchronous_standby_names")


# A quorum.


def test_a_quorum_passes(production: Quorum) -> None:
    report = diagnose(production)
    assert report.profile == "production"
    assert failed(report) == set(), [c for c in report.checks if c.status is Status.FAIL]
    assert check(report, "durability").found == (
        "a quorum: a commit waits until any 1 of s1, s2 has flushed it"
    )
    found = check(report, "standbys")
    assert found.status is Status.OK
    assert "s1: quorum, streaming" in found.found and "s2: quorum, streaming" in found.found
    assert "machines" in warned(report), "both connect from this machine"


def test_a_login_that_may_not_see_the_standbys_says_so(production: Quorum) -> None:
    production.connect().execute("revoke pg_monitor from auditor")
    found = check(diagnose(production), "standbys")
    assert found.status is Status.FAIL
    assert "cannot be seen" in found.found and "pg_monitor" in found.hint


def test_the_last_standby_is_warned_of_and_none_fails(production: Quorum) -> None:
    production.clusters["s1"].stop()
    until(lambda: check(diagnose(production), "standbys").status is Status.WARN)
    production.clusters["s2"].stop()
    until(lambda: check(diagnose(production), "standbys").status is Status.FAIL)
    assert check(diagnose(production), "standbys").found == "none connected"


def test_standbys_of_other_names_do_not_count(production: Quorum) -> None:
    production.configure("p", "synchronous_standby_names", "ANY 2 (s1, elsewhere)")
    until(lambda: "s2: async" in check(diagnose(production), "standbys").found)
    assert check(diagnose(production), "standbys").status is Status.FAIL


def test_names_by_priority_count_those_that_stand_by(production: Quorum) -> None:
    production.configure("p", "synchronous_standby_names", "FIRST 1 (s1, s2)")
    until(lambda: "s2: potential" in check(diagnose(production), "standbys").found)
    report = diagnose(production)
    assert check(report, "standbys").status is Status.OK
    assert "the first 1 of s1, s2" in check(report, "durability").found


@pytest.mark.parametrize("level", ["off", "local"])
def test_a_level_below_the_floor_fails(production: Quorum, level: str) -> None:
    production.configure("p", "synchronous_commit", level)
    report = diagnose(production)
    assert failed(report) == {"durability", "synchronous_commit"}
    expected = "one disk: this machine's" if level == "local" else "less than one disk: "
    assert check(report, "durability").found.startswith(expected)


def test_names_without_wal_senders_are_no_quorum(trio: Quorum) -> None:
    production = produce(trio)
    production.configure("p", "max_wal_senders", "0")
    production.clusters["p"].stop("immediate")
    production.clusters["p"].start()
    report = diagnose(production)
    assert {"durability", "synchronous_standby_names", "standbys"} <= failed(report)
    assert "max_wal_senders is 0" in check(report, "synchronous_standby_names").found


@pytest.mark.parametrize(("setting", "value"), [("full_page_writes", "off"), ("fsync", "off")])
def test_what_production_needs_of_the_disk(production: Quorum, setting: str, value: str) -> None:
    production.configure("p", setting, value)
    assert setting in failed(diagnose(production))


def test_a_fence_below_the_floor_fails(production: Quorum) -> None:
    production.connect().execute("select oml_configure('fence_synchronous_commit', 'local')")
    assert failed(diagnose(production)) == {"fence_synchronous_commit"}


def test_a_standby_sends_to_the_primary(production: Quorum) -> None:
    with pytest.raises(UsageError, match="is a standby"):
        examine(production.connect("s1"))


# The production profile itself, where it holds.


def _prepare(production: Quorum) -> Connection:
    owner = production.connect()
    owner.execute("select oml_create_tenant('acme')")
    owner.execute("select oml_grant('app', 'acme')")
    owner.execute("select oml_register_event_type('note.added')")
    return production.connect(user="app", autocommit=False)


@pytest.mark.parametrize("level", ["remote_write", "on", "remote_apply"])
def test_production_takes_what_a_quorum_confirms(production: Quorum, level: str) -> None:
    app = _prepare(production)
    app.execute(f"set local synchronous_commit = {level}".encode())
    app.execute("select oml_append('note.added', '{}')")
    app.commit()
    stated = production.connect().execute(
        "select synchronous_commit from oml.journal where type = 'note.added'"
    )
    assert stated.fetchall() == [(level,)]


@pytest.mark.parametrize("level", ["off", "local"])
def test_production_refuses_a_level_below_the_floor(production: Quorum, level: str) -> None:
    app = _prepare(production)
    app.execute(f"set local synchronous_commit = {level}".encode())
    with pytest.raises(psycopg.Error, match=f"synchronous_commit is {level}") as caught:
        app.execute("select oml_append('note.added', '{}')")
    assert caught.value.sqlstate == "OM180"


@pytest.mark.parametrize("state", ["disable trigger", "enable trigger", "enable replica trigger"])
def test_production_is_not_ready_without_its_guard_of_commits(
    production: Quorum, state: str
) -> None:
    superuser = production.connect()
    superuser.execute(f"alter table oml.journal {state} guard_commit".encode())
    superuser.commit()
    try:
        guards = check(diagnose(production), "guards")
    finally:
        superuser.execute("select oml_attach()")
        superuser.commit()
    assert guards.status is Status.FAIL and "journal.guard_commit is not" in guards.found
    assert check(diagnose(production), "guards").status is Status.OK


def test_a_level_lowered_after_the_append_is_refused_at_commit(production: Quorum) -> None:
    app = _prepare(production)
    app.execute("select oml_append('note.added', '{}')")
    app.execute("set local synchronous_commit = off")
    with pytest.raises(psycopg.Error, match="was lowered to off after an append") as caught:
        app.commit()
    assert caught.value.sqlstate == "OM182"
    count = production.connect().execute(
        "select count(*) from oml.journal where type = 'note.added'"
    )
    assert count.fetchone() == (0,)


def test_whoever_means_to_lower_it_after_the_append_can(
    production: Quorum,
) -> None:
    # What docs/explanation/durability.md says it does not hold: a stated limit, kept true.
    app = _prepare(production)
    app.execute("select oml_append('note.added', '{}')")
    app.execute("set constraints all immediate")
    app.execute("set local synchronous_commit = off")
    app.commit()
    stated = production.connect().execute(
        "select synchronous_commit from oml.journal where type = 'note.added'"
    )
    assert stated.fetchall() == [("on",)]


def test_production_is_refused_once_the_names_are_emptied(production: Quorum) -> None:
    app = _prepare(production)
    production.configure("p", "synchronous_standby_names", "")

    def refused() -> Any:
        try:
            app.execute("select oml_append('note.added', '{}')")
        except psycopg.Error as error:
            return error.sqlstate
        finally:
            app.rollback()
        return None

    assert until(refused) == "OM181"
