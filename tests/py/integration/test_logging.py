"""Where a body is seen beside its place: the server's log, its statistics, temporary files, dumps.

Each claim of ``oml doctor`` about the log is measured: a canary is submitted under the setting, and
is in the log where the doctor warns, and only there.
"""

import contextlib
import functools
import os
import re
import resource
import shutil
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from clusters import until
from oml.core import body
from oml.dev.cluster import SUPERUSER, Cluster
from oml.doctor.check import Check, Status
from oml.doctor.examine import examine
from oml.driver.connection import connect
from restores import custom, make_database
from systems import LOGINS, SETTINGS, Connection, System, make_login, make_template

LOG_CHECKS = {
    "bound values in the log", "bound values in errors", "debug_print_parse",
    "debug_print_rewritten", "debug_print_plan", "auto_explain", "pgaudit",
}  # fmt: skip
ROOT = 0
CALL = "select * from oml_submit('area', {}, 'text/plain', 'observed')"


@pytest.fixture(scope="module")
def server() -> Iterator[System]:
    """A system with a cluster of its own whose settings tests change, and put back."""
    directory = Path(tempfile.mkdtemp(prefix="oml-test-"))
    directory.chmod(0o755)
    cluster = Cluster(directory / "cluster")
    cluster.create(SETTINGS | {"shared_preload_libraries": "pg_stat_statements,pgaudit"})
    try:
        before = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
        cluster.start()  # its backends would leave core dumps, where the machine lets any
        resource.setrlimit(resource.RLIMIT_CORE, before)
        make_template(cluster)
        with System(cluster, "oml", directory / "lake") as system:
            prepare(system)
            yield system
    finally:
        cluster.destroy()
        shutil.rmtree(directory, ignore_errors=True)


def prepare(system: System) -> None:
    """Make a workarea with an author, and a reviewer."""
    system.make("acme")
    system.bind("app", "acme", ["append", "submit"])
    system.bind("operator", "acme", ["operate"])
    system.make_login("rita", "oml_reviewer")
    system.bind("rita", "acme", ["review"])
    system.bind("auditor", "provider", ["audit"])
    operator = system.connect("operator")
    operator.execute("select oml_create_workarea('area')")
    operator.execute("select oml_add_member('area', 'app')")
    system.superuser.execute("create table kept (seq bigint, canary text unique)")
    system.superuser.execute("grant all on kept to public")
    system.superuser.execute("grant insert on kept to oml_auditor")  # whose grants pgaudit follows


@pytest.fixture
def logged(server: System) -> Iterator[System]:
    """The server, whose settings are the shipped ones at the end again."""
    yield server
    superuser = server.superuser
    superuser.execute("alter system reset all")
    superuser.execute("alter role all reset all")
    superuser.execute("alter role app reset all")
    superuser.execute(f"alter role app in database {server.database} reset all".encode())
    superuser.execute(f"alter database {server.database} reset all".encode())
    superuser.execute("alter role auditor reset all")
    reload(server)


def reload(system: System) -> None:
    """Have the server read its settings, and wait until new sessions have them."""
    (before,) = system.superuser.execute("select pg_conf_load_time()").fetchone() or (None,)
    system.superuser.execute("select pg_reload_conf()")

    def read() -> bool:
        with system.connect(SUPERUSER) as connection:
            row = connection.execute("select pg_conf_load_time() > %s", (before,)).fetchone()
        return row == (True,)

    until(read)


def set_all(system: System, settings: dict[str, str]) -> None:
    """Set the server's settings."""
    system.superuser.execute("load 'auto_explain'")
    for name, value in settings.items():
        system.superuser.execute(f"alter system set {name} = '{value}'".encode())
    reload(system)


class Canary:
    """A body of its own, and where it can be seen."""

    def __init__(self, bytes_: int = 64) -> None:
        self.word = f"canary{uuid.uuid4().hex}"
        self.body = (self.word * (bytes_ // len(self.word) + 1))[:bytes_].encode()
        self.errors = b""

    def is_in(self, text: bytes) -> bool:
        """Tell whether it is in there: as it is, in hex, or as the numbers of a printed tree.

        A tree's lines are broken wherever they are full, in the midst of a number too.
        """
        start, text = self.word[:14].encode(), re.sub(rb"\s+", b"", text)
        forms = (start, start.hex().encode(), "".join(map(str, start)).encode())
        return any(form in text for form in forms)


class Log:
    """What the server has logged since."""

    def __init__(self, system: System) -> None:
        self.file = system.cluster.log_file
        self.start = self.file.stat().st_size

    def __bytes__(self) -> bytes:
        with self.file.open("rb") as file:
            file.seek(self.start)
            return file.read()


def bound(connection: Connection, canary: Canary) -> None:
    """Submit by a bound parameter, in binary form."""
    connection.execute(CALL.format("%b").encode(), (canary.body,))


def bound_as_text(connection: Connection, canary: Canary) -> None:
    """Submit by a bound parameter, in text form."""
    connection.execute(CALL.format("%t").encode(), (canary.body,))


def prepared(connection: Connection, canary: Canary) -> None:
    """Submit by a prepared statement."""
    connection.execute(CALL.format("%b").encode(), (canary.body,), prepare=True)


def with_insert(connection: Connection, canary: Canary) -> None:
    """Submit within an INSERT, by a bound parameter."""
    call = CALL.format("%b").replace("*", "seq")
    connection.execute(f"insert into kept {call}".encode(), (canary.body,))


def with_table(connection: Connection, canary: Canary) -> None:
    """Submit within a CREATE TABLE AS, by a bound parameter."""
    call = f"create temp table t as {CALL.format('%b')}"
    connection.execute(call.encode(), (canary.body,))


def literal(connection: Connection, canary: Canary) -> None:
    """Submit as part of the statement."""
    connection.execute(CALL.format(f"'{canary.word}'").encode())


def refused(connection: Connection, canary: Canary) -> None:
    """Fail inside oml_submit, with bound parameters: types, workarea, provenance, claims."""
    for workarea, media_type, provenance in (
        ("area", "image/png", "observed"),
        ("", "text/plain", "observed"),
        ("nowhere", "text/plain", "observed"),
        ("area", "text/plain", "guessed"),
    ):
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(
                "select oml_submit(%s, %b, %s, %s)",
                (workarea, canary.body, media_type, provenance),
            )
        assert (caught.value.sqlstate or "")[:2] == "OM"
        canary.errors += str(caught.value).encode()


def refused_literal(connection: Connection, canary: Canary) -> None:
    """Fail inside oml_submit with the body in the statement."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(
            f"select oml_submit('area', '{canary.word}', 'image/png', 'observed')".encode()
        )
    assert caught.value.sqlstate == "OM195"


def fetched(connection: Connection, canary: Canary) -> None:
    """Submit by a bound parameter, and read it again in two ways."""
    row = connection.execute(CALL.format("%b").encode(), (canary.body,)).fetchone()
    assert row is not None
    for query in ("select * from oml_fetch(%s)", "select oml_fetch(%s)"):
        shown = connection.execute(query.encode(), (row[1],)).fetchone()
        assert shown is not None and canary.is_in(repr(shown).encode())


class Case(NamedTuple):
    """Under these settings this call leaves the canary in the log, or does not."""

    settings: dict[str, str]
    call: Callable[[Connection, Canary], None]
    leaks: bool


ALL = {"log_statement": "all"}
DURATION = {"log_min_duration_statement": "0"}
SILENT = {"log_parameter_max_length": "0"}
VERBOSE = {"log_min_error_statement": "error", "log_error_verbosity": "verbose"}
LOADED = {"session_preload_libraries": "auto_explain"}
AUDITED = {"pgaudit.log_parameter": "on"}
UNLOADED = {"auto_explain.log_min_duration": "0"}
EXPLAIN = LOADED | UNLOADED
CASES = [
    *(Case({}, call, False) for call in (bound, bound_as_text, prepared, with_insert)),
    *(Case({}, call, False) for call in (fetched, literal, refused, refused_literal)),
    *(Case(ALL, call, True) for call in (bound, bound_as_text, prepared, refused)),
    *(Case(ALL | SILENT, call, False) for call in (bound, bound_as_text, prepared)),
    *(Case(ALL | SILENT, call, False) for call in (refused, fetched)),
    Case(ALL | {"log_parameter_max_length": "40"}, bound, True),
    Case({"log_statement": "mod"}, with_insert, True),
    Case({"log_statement": "mod"} | SILENT, with_insert, False),
    Case({"log_statement": "ddl"}, with_table, True),
    *(Case(DURATION, call, True) for call in (bound, bound_as_text, prepared)),
    *(Case(DURATION | SILENT, call, False) for call in (bound, bound_as_text, fetched)),
    Case({"log_min_duration_sample": "0"}, bound, True),
    Case({"log_min_duration_sample": "0", "log_statement_sample_rate": "0"}, bound, False),
    Case({"log_transaction_sample_rate": "1"}, bound, True),
    Case({"log_duration": "on"}, bound, False),
    Case({"log_parameter_max_length_on_error": "-1"}, refused, True),
    Case(VERBOSE | {"log_parameter_max_length_on_error": "-1"}, refused, True),
    Case(VERBOSE, refused, False),
    Case(VERBOSE, refused_literal, False),
    Case(VERBOSE | {"log_lock_waits": "on", "log_statement_stats": "on"}, refused, False),
    Case({"debug_print_plan": "on"}, bound, True),
    Case({"debug_print_parse": "on"}, literal, True),
    Case({"debug_print_rewritten": "on"}, literal, True),
    Case(EXPLAIN, bound, False),
    Case(EXPLAIN | {"auto_explain.log_nested_statements": "on"}, bound, False),
    Case(EXPLAIN | {"auto_explain.log_nested_statements": "on"}, fetched, False),
    Case(EXPLAIN | {"auto_explain.log_verbose": "on"}, bound, True),
    Case(LOADED | {"auto_explain.log_verbose": "on"}, bound, False),
    Case(UNLOADED | {"auto_explain.log_verbose": "on"}, bound, False),
    *(Case({"pgaudit.log": "all"}, call, False) for call in (bound, fetched, refused)),
    *(Case(AUDITED | {"pgaudit.log": log}, bound, True) for log in ("all, -misc", "READ")),
    Case(AUDITED | {"pgaudit.log": "function, role, misc"}, bound, False),
    Case(AUDITED | {"pgaudit.log": "ddl"}, with_table, True),
    Case(AUDITED | {"pgaudit.log": "write"}, with_insert, True),
    Case(AUDITED | {"pgaudit.role": "oml_auditor"}, with_insert, True),
    Case(AUDITED, bound, False),
]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    CASES,
    ids=lambda c: ",".join(f"{k}={v}" for k, v in c.settings.items()) + f":{c.call.__name__}",
)
def test_a_body_is_in_the_log_where_the_doctor_warns(logged: System, case: Case) -> None:
    set_all(logged, case.settings)
    warnings = log_warnings(logged)
    canary, log = Canary(), Log(logged)
    with logged.connect("app") as connection:
        case.call(connection, canary)
    assert canary.is_in(bytes(log)) == case.leaks
    assert case.leaks or not canary.is_in(canary.errors)
    assert bool(warnings) == case.leaks
    assert all(c.hint for c in warnings)


@pytest.mark.parametrize(
    "statement",
    [
        "alter role app set log_statement = 'all'",
        "alter role app in database {} set log_min_duration_statement = '0s'",
        "alter database {} set log_statement = 'ALL'",
        "alter role app set log_parameter_max_length_on_error = '1kB'",
        "alter role app in database {} set log_parameter_max_length_on_error = '1kB'",
        "alter database {} set log_parameter_max_length_on_error = 100",
        "alter role all set log_parameter_max_length_on_error = -1",
    ],
)
def test_a_setting_of_a_role_or_a_database_is_seen_and_what_the_doctor_says_mends_it(
    logged: System, statement: str
) -> None:
    superuser = logged.superuser
    superuser.execute(statement.format(logged.database).encode())
    assert leaks(logged)
    (warning,) = log_warnings(logged)
    assert ("app: " in warning.found) == ("role app" in statement)
    for command in warning.hint.rstrip(";").split(";"):
        superuser.execute(command.encode())
    reload(logged)
    assert not leaks(logged)
    assert log_warnings(logged) == []


def log_warnings(system: System, user: str = "auditor") -> list[Check]:
    """Return what the doctor says of the log."""
    with system.connect(user) as connection:
        report = examine(connection)
    return [c for c in report.checks if c.name in LOG_CHECKS and c.status is not Status.OK]


def leaks(system: System) -> bool:
    """Tell whether a body that is submitted, and one that is refused, come into the log."""
    canary, log = Canary(), Log(system)
    with system.connect("app") as connection:
        bound(connection, canary)
        refused(connection, canary)
    return canary.is_in(bytes(log))


def test_a_role_goes_on_logging_where_only_the_others_were_mended(logged: System) -> None:
    logged.superuser.execute("alter role app set log_parameter_max_length = '1MB'")
    set_all(logged, ALL | SILENT)
    (warning,) = log_warnings(logged)
    assert warning.found.startswith("app: log_statement = all with log_parameter_max_length")
    assert warning.hint == "alter role app set log_parameter_max_length = 0;"
    assert leaks(logged)


def test_a_library_that_one_role_loads_is_seen(logged: System) -> None:
    set_all(logged, UNLOADED | {"auto_explain.log_verbose": "on"})
    assert not leaks(logged) and log_warnings(logged) == []
    logged.superuser.execute("alter role app set session_preload_libraries = 'auto_explain'")
    (warning,) = log_warnings(logged)
    assert leaks(logged) and warning.found.startswith("app: auto_explain.log_min_duration = 0")
    logged.superuser.execute(warning.hint.encode())
    assert not leaks(logged) and log_warnings(logged) == []


@pytest.mark.parametrize("hiding", ["log_parameter_max_length = 0", "log_statement = 'none'"])
def test_what_the_logins_own_setting_hides_is_said(logged: System, hiding: str) -> None:
    logged.superuser.execute(f"alter role auditor set {hiding}".encode())
    (warning,) = log_warnings(logged)
    assert "cannot be seen" in warning.found
    assert warning.status is Status.WARN
    with logged.connect("auditor") as connection:
        report = examine(connection, "production")
    (found,) = [c for c in report.checks if c.name == "bound values in the log"]
    assert found.status is Status.FAIL


# A literal is part of the statement, and where that is seen it is seen.


def cancelled(system: System, call: Callable[[Connection, Canary], None], canary: Canary) -> None:
    """Cancel a submission that waits for its chain, as somebody else has it."""
    caught: list[psycopg.Error] = []

    def submit(author: Connection) -> None:
        try:
            call(author, canary)
        except psycopg.Error as error:
            caught.append(error)

    holder = system.connect("operator", autocommit=False)
    holder.execute("select oml_add_member('area', 'nobody')")
    with system.connect("app") as author:
        pid = author.info.backend_pid
        thread = threading.Thread(target=submit, args=(author,))
        thread.start()
        try:
            until(functools.partial(is_waiting, system, pid))
            system.superuser.execute("select pg_cancel_backend(%s)", (pid,))
            thread.join()
        finally:
            holder.rollback()
            thread.join()
    assert [error.sqlstate for error in caught] == ["57014"]


def test_an_error_inside_logs_no_statement_and_one_before_it_does(logged: System) -> None:
    canary, log = Canary(), Log(logged)
    with logged.connect("app") as app:
        refused_literal(app, canary)
        refused(app, canary)
    cancelled(logged, literal, canary)
    text = bytes(log)
    assert b"ERROR:  the body is not of type image/png" in text
    assert b"ERROR:  canceling statement due to user request" in text
    assert b"STATEMENT:  " not in text and not canary.is_in(text)
    log = Log(logged)
    with logged.connect("stranger") as stranger, pytest.raises(psycopg.Error) as caught:
        literal(stranger, canary)
    assert caught.value.sqlstate == "42501"
    assert b"STATEMENT:  " in bytes(log) and canary.is_in(bytes(log))
    log = Log(logged)
    with logged.connect("stranger") as stranger, pytest.raises(psycopg.Error):
        bound(stranger, canary)
    assert b"STATEMENT:  " in bytes(log) and not canary.is_in(bytes(log))


def test_a_parameter_that_does_not_parse_is_not_quoted(logged: System) -> None:
    canary, log = Canary(), Log(logged)
    broken = canary.body + b"\\x"
    with logged.connect("app") as app:
        for query, value in (
            (CALL.format("%t::bytea"), broken.decode()),
            ("select oml_submit('area', %s::bytea, 'text/plain', 'observed')", "\\x" + canary.word),
            ("select oml_append('note.added', %s::jsonb)", canary.word),
        ):
            with pytest.raises(psycopg.errors.DataError) as caught:
                app.execute(query.encode(), (value,))
            if "jsonb" not in query:
                assert not canary.is_in(str(caught.value).encode())
        assert canary.is_in(str(caught.value).encode()), "json is quoted, as the guide says"
    before, _, after = bytes(log).partition(b"json")
    assert not canary.is_in(before) and canary.is_in(after)


# Others see the statement, and not what is bound to it.


def waits(system: System, pid: int) -> bytes | None:
    """Return what others see of a backend that waits for a lock; None if it does not."""
    row = system.superuser.execute(
        "select query || a::text from pg_stat_activity a where pid = %s"
        " and state = 'active' and wait_event_type = 'Lock'",
        (pid,),
    ).fetchone()
    return None if row is None else str(row[0]).encode()


def is_waiting(system: System, pid: int) -> bool:
    """Tell whether a backend waits for a lock."""
    return waits(system, pid) is not None


@pytest.mark.parametrize(("call", "is_seen"), [(bound, False), (prepared, False), (literal, True)])
def test_what_other_sessions_see_while_it_runs(
    server: System, call: Callable[[Connection, Canary], None], is_seen: bool
) -> None:
    canary = Canary()
    holder = server.connect("operator", autocommit=False)
    holder.execute("select oml_add_member('area', 'nobody')")
    with server.connect("app") as author:
        thread = threading.Thread(target=call, args=(author, canary))
        thread.start()
        try:
            until(functools.partial(is_waiting, server, author.info.backend_pid))
            seen = waits(server, author.info.backend_pid) or b""
        finally:
            holder.rollback()
            thread.join()
    assert b"oml_submit" in seen and canary.is_in(seen) == is_seen


def test_statistics_keep_no_constant_of_a_select(server: System) -> None:
    superuser = server.superuser
    superuser.execute("create extension if not exists pg_stat_statements")
    canary = Canary()
    with server.connect("app", autocommit=False) as app:
        literal(app, canary)
        bound(app, canary)

        def kept() -> bytes:
            rows = superuser.execute("select query from pg_stat_statements").fetchall()
            return "".join(row[0] for row in rows).encode()

        assert b"oml_submit" in kept() and not canary.is_in(kept())
        app.execute(f"declare c cursor for {CALL.format(repr(canary.word))}".encode())
        assert canary.is_in(kept()), "a utility statement is kept as it is"


def test_a_backend_that_is_ended_or_killed_says_nothing_of_what_was_bound(
    private_system: System,
) -> None:
    prepare(private_system)
    canary, log = Canary(), Log(private_system)

    def terminate(pid: int) -> None:
        private_system.superuser.execute("select pg_terminate_backend(%s)", (pid,))

    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    for end in (terminate, kill):
        holder = private_system.connect("operator", autocommit=False)
        holder.execute("select oml_add_member('area', 'nobody')")
        author = private_system.connect("app")
        failed: list[psycopg.Error] = []

        def submit(author: Connection = author, failed: list[psycopg.Error] = failed) -> None:
            try:
                bound(author, canary)
            except psycopg.Error as error:
                failed.append(error)

        thread = threading.Thread(target=submit)
        thread.start()
        pid = author.info.backend_pid
        until(functools.partial(is_waiting, private_system, pid))
        end(pid)
        thread.join()
        assert len(failed) == 1
        with contextlib.suppress(psycopg.Error):
            holder.rollback()
    until(lambda: b"database system is ready" in bytes(log))
    assert b"Failed process was running: " in bytes(log)
    assert not canary.is_in(bytes(log))


# Temporary files, and dumps of memory.


def test_nothing_of_a_body_is_written_to_a_temporary_file(logged: System) -> None:
    """With the smallest work_mem, and where any temporary file at all is an error."""
    superuser = logged.superuser
    for role in ("app", "rita", "operator"):
        superuser.execute(f"alter role {role} set work_mem = '64kB'".encode())
        superuser.execute(f"alter role {role} set temp_file_limit = 0".encode())
    try:
        set_all(logged, {"log_temp_files": "0"})
        canary, log = Canary(body.MAX_BODY_BYTES), Log(logged)
        names = [f"{n}.txt" for n in range(body.MAX_ATTACHMENTS)]
        small = canary.body[: body.MAX_ATTACHMENT_BYTES]
        with logged.connect("app") as app, logged.connect("rita") as rita:
            row = app.execute(
                "select artifact_id from oml_submit('area', %b, 'text/plain', 'observed',"
                " attachment_names => %s, attachment_types => %s, attachments => %b)",
                (canary.body, names, ["text/plain"] * len(names), [small] * len(names)),
            ).fetchone()
            assert row is not None
            for connection, query, rows in (
                (app, "select * from oml_fetch(%s)", 1),
                (app, "select oml_fetch(%s)", 1),
                (app, "select * from oml_fetch(%s, attachment => '3.txt')", 1),
                (rita, "select * from oml_review_serve(%s)", 17),
                (rita, "select oml_review_serve(%s)", 17),
            ):
                assert len(connection.execute(query.encode(), row).fetchall()) == rows
            submit_sealed(app, canary.body)
            with pytest.raises(psycopg.Error) as caught:
                bound(app, Canary(80 * 1024 * 1024))
            assert caught.value.sqlstate == "OM197"
            assert b"temporary file" not in bytes(log)
            for query in (
                "select content from oml_fetch(%s) order by content",
                "declare kept cursor with hold for select * from oml_fetch(%s)",
            ):
                with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
                    app.execute(query.encode(), row)
    finally:
        for role in ("app", "rita", "operator"):
            superuser.execute(f"alter role {role} reset all".encode())


def submit_sealed(app: Connection, content: bytes) -> None:
    """Submit what is encrypted here."""
    key = app.execute("select * from oml_data_key()").fetchone()
    assert key is not None
    tenant_id, artifact_id, version, dek_id, dek, wrapped, epoch = key
    place = body.Place(tenant_id.bytes, artifact_id.bytes, version)
    part = body.seal(dek, place, body.BODY, content)
    app.execute(
        "select oml_submit_sealed('area', %s, %s, %s, %s, %s, %b, %s, %s,"
        " 'text/plain', 'observed')",
        (artifact_id, version, dek_id, wrapped, epoch, part.ciphertext, part.plaintext_digest,
         part.ciphertext_digest),
    )  # fmt: skip


class Exposure(NamedTuple):
    """What of a backend's memory others get: the most of a core dump, and to whom it belongs.

    What is of a process that is not dumpable belongs to root in /proc, whoever it runs as.
    """

    core_limit: str
    owner: int
    memory_owner: int


def exposure(connection: Connection) -> Exposure:
    """Look at the backend of a connection."""
    process = Path(f"/proc/{connection.info.backend_pid}")
    lines = (process / "limits").read_text().splitlines()
    (line,) = [x for x in lines if x.startswith("Max core file size")]
    owners = {(process / name).stat().st_uid for name in ("mem", "fd", "maps", "environ")}
    assert len(owners) == 1
    return Exposure(line.split()[4], process.stat().st_uid, owners.pop())


def test_a_backend_that_has_seen_plaintext_leaves_no_core_dump_and_opens_to_nobody(
    server: System,
) -> None:
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    allowed = "unlimited" if most == resource.RLIM_INFINITY else str(most)
    user = server.cluster.data.stat().st_uid
    assert user != ROOT
    open_, closed = Exposure(allowed, user, user), Exposure("0", user, ROOT)
    canary = Canary()
    with server.connect("app") as author:
        assert exposure(author) == open_
        row = author.execute(CALL.format("%b").encode(), (canary.body,)).fetchone()
        assert row is not None and exposure(author) == closed
    for login, query in (
        ("app", "select * from oml_fetch(%s)"),
        ("rita", "select * from oml_review_serve(%s)"),
        ("app", "select * from oml_data_key(%s)"),
    ):
        with server.connect(login) as connection:
            assert exposure(connection) == open_
            connection.execute(query.encode(), (row[1],))
            assert exposure(connection) == closed, query
    with server.connect("app") as author:
        submit_sealed(author, canary.body)
        assert exposure(author) == closed


# A copy in another cluster.


def test_a_restored_copy_keeps_statements_that_fail_out_of_its_log(
    server: System, open_dir: Path
) -> None:
    cluster = Cluster(open_dir / "second")
    cluster.create(SETTINGS)
    try:
        cluster.start()
        make_database(cluster, "restored")
        custom(server.dsn(SUPERUSER), cluster.dsn(dbname="restored"), open_dir)
        make_login(cluster, "app", LOGINS["app"])
        with connect(cluster.dsn(dbname="restored"), autocommit=True) as superuser:
            superuser.execute("select oml_adopt('the original is given up')")
            held = "select has_parameter_privilege('oml_kernel', 'log_min_error_statement', 'set')"
            assert superuser.execute(held.encode()).fetchone() == (True,)
        copy = System(cluster, "restored", open_dir)
        canary, log = Canary(), Log(copy)
        with copy.connect("app") as app:
            refused_literal(app, canary)
            bound(app, canary)
        assert b"ERROR:  the body is not of type" in bytes(log)
        assert b"STATEMENT" not in bytes(log) and not canary.is_in(bytes(log))
        copy.close()
    finally:
        cluster.destroy()
