"""Where a body is seen beside its place: the server's log, its statistics, temporary files, dumps.

Each claim of ``oml doctor`` about the log is measured: a canary is submitted under the setting, and
is in the log where the doctor warns, and only there.
"""

import os
import re
import resource
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from clusters import until
from oml.dev.cluster import SUPERUSER, Cluster
from oml.doctor.check import Status
from oml.doctor.examine import examine
from systems import SETTINGS, Connection, System, make_template

LOG_CHECKS = {
    "bound values in the log", "bound values in errors", "debug_print_parse",
    "debug_print_rewritten", "debug_print_plan", "auto_explain",
}  # fmt: skip
CALL = "select * from oml_submit('area', {}, 'text/plain', 'observed')"


@pytest.fixture(scope="module")
def server() -> Iterator[System]:
    """A system with a cluster of its own whose settings tests change, and put back."""
    directory = Path(tempfile.mkdtemp(prefix="oml-test-"))
    directory.chmod(0o755)
    cluster = Cluster(directory / "cluster")
    cluster.create(SETTINGS)
    try:
        cluster.start()
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
    system.superuser.execute("grant all on kept to app")


@pytest.fixture
def logged(server: System) -> Iterator[System]:
    """The server, whose settings are the shipped ones at the end again."""
    yield server
    superuser = server.superuser
    superuser.execute("alter system reset all")
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
        """Tell whether it is in there: as it is, in hex, or as the numbers of a printed tree."""
        start, text = self.word[:14].encode(), re.sub(rb"\s+", b" ", text)
        forms = (start, start.hex().encode(), " ".join(map(str, start)).encode())
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
EXPLAIN = {"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0"}
CASES = [
    *(Case({}, call, False) for call in (bound, bound_as_text, prepared, with_insert, fetched, literal, refused, refused_literal)),
    *(Case(ALL, call, True) for call in (bound, bound_as_text, prepared, refused)),
    *(Case(ALL | SILENT, call, False) for call in (bound, bound_as_text, prepared, refused, fetched)),
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
    Case({"session_preload_libraries": "auto_explain", "auto_explain.log_verbose": "on"}, bound, False),
]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    CASES,
    ids=lambda c: ",".join(f"{k}={v}" for k, v in c.settings.items()) + f":{c.call.__name__}",
)
def test_a_body_is_in_the_log_where_the_doctor_warns(logged: System, case: Case) -> None:
    set_all(logged, case.settings)
    with logged.connect("auditor") as auditor:
        report = examine(auditor)
    warnings = [c for c in report.checks if c.name in LOG_CHECKS and c.status is not Status.OK]
    canary, log = Canary(), Log(logged)
    with logged.connect("app") as connection:
        case.call(connection, canary)
    assert canary.is_in(bytes(log)) == case.leaks
    assert case.leaks or not canary.is_in(canary.errors)
    assert bool(warnings) == case.leaks
    assert all(c.hint for c in warnings)
