"""Bytes that are no UTF-8 come into a text through a setting of the connection, and no further.

PostgreSQL checks neither the settings of a startup packet nor what to_jsonb makes of them. A dump
that held such bytes could not be restored.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from catalog import contents
from lakes import value
from oml.dev import programs
from oml.dev.cluster import SUPERUSER
from oml.driver.connection import connect
from systems import Connection, System

BAD = "current_setting('my.x')"
REST = "current_setting('my.y')"  # what would make a letter of it
TEXTS = {
    **dict.fromkeys(
        ("type", "tenant", "idempotency_key", "operation", "app_version", "invocation_id")
    ),
    "entity_type": "entity_id",
    "entity_id": "entity_type",
    "subject_id": None,
}
"""The text arguments of oml_append, and what goes with each."""


@pytest.fixture
def spoilt(system: System, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """A session whose settings my.x and my.y are halves of a letter."""
    superuser = system.superuser
    superuser.execute("select oml_register_event_type('job.done', state_keys => '{k}')")
    system.make("acme")
    system.bind("app", "acme")
    with spoilt_session(system, "app", monkeypatch) as connection:
        # Python calls other code once a function is warm, and may overlook what a cold one sees.
        connection.execute("select oml_append('job.done', '{}') from generate_series(1, 50)")
        yield connection


@contextmanager
def spoilt_session(system: System, login: str, patch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Connect with halves of a letter in my.x and my.y."""
    patch.setenv("PGOPTIONS", "-c my.x=\udcc3 -c my.y=\udca9")
    with psycopg.connect(system.dsn(login), autocommit=True) as connection:
        patch.delenv("PGOPTIONS")
        assert value(connection, f"select encode({BAD}::bytea, 'hex')") == "c3"
        yield connection


def arguments() -> Iterator[dict[str, str]]:
    """Return the arguments of each attack, as expressions."""
    good = {"type": "'job.done'::text", "payload": """'{}'::jsonb"""}
    for name, partner in TEXTS.items():
        with_it = {} if partner is None else {partner: "'x'::text"}
        for bad in (BAD, f"'x' || {BAD}", f"{BAD} || 'x'"):
            yield good | with_it | {name: bad}
    halves = {"operation": BAD, "app_version": REST}
    yield good | halves
    yield good | {"entity_type": BAD, "entity_id": REST}
    for payload in (
        f"jsonb_build_object('k', {BAD})",
        f"jsonb_build_object({BAD}, 1)",
        f"jsonb_build_object('k', jsonb_build_array('x', {BAD}))",
        f"jsonb_build_object('k', {BAD}, 'l', {REST})",
    ):
        yield good | {"payload": payload}


def single(given: dict[str, str]) -> str:
    """Return the call of oml_append."""
    named = ", ".join(f"{name} => {expression}" for name, expression in given.items())
    return f"select oml_append({named})"


def in_a_batch(given: dict[str, str]) -> str:
    """Return the call of oml_append_batch, behind an event that is good."""
    pairs = ", ".join(f"'{name}', {expression}" for name, expression in given.items())
    good = """'{"type": "job.done", "payload": {}}'::jsonb"""
    return f"select oml_append_batch(jsonb_build_array({good}, jsonb_build_object({pairs})))"


def run(program: str, *arguments: str) -> None:
    """Run a client program of PostgreSQL, which must succeed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    command = [programs.find().path(program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_text_arguments_are_all_here(system: System) -> None:
    names = value(
        system.superuser,
        "select array_agg(name order by name) from pg_proc p,"
        " unnest(p.proargnames[:p.pronargs], p.proargtypes::oid[]) a (name, type)"
        " where p.proname = 'oml_append' and a.type = 'text'::regtype",
    )
    assert names == sorted(TEXTS)


@pytest.mark.parametrize("call", [single, in_a_batch], ids=lambda call: call.__name__)
def test_bytes_that_are_no_utf8_are_refused_and_a_dump_restores(
    system: System, spoilt: Connection, call: object, tmp_path: Path
) -> None:
    assert callable(call)
    before = contents(system.superuser)
    got: dict[str, str | None] = {}
    for given in arguments():
        statement = call(given)
        try:
            spoilt.execute(statement.encode())
            got[statement] = None
        except psycopg.Error as error:
            if error.sqlstate not in ("22021", "OM003", "OM010"):
                got[statement] = error.sqlstate
    copy = f"{system.database}_copy"
    with connect(system.cluster.dsn(), autocommit=True) as superuser:
        superuser.execute(sql.SQL("create database {}").format(sql.Identifier(copy)))
        try:
            dump = str(tmp_path / "dump")
            run("pg_dump", "-Fc", "-f", dump, "-d", system.dsn(SUPERUSER))
            run("pg_restore", "-d", system.cluster.dsn(dbname=copy), dump)
        finally:
            superuser.execute(sql.SQL("drop database {}").format(sql.Identifier(copy)))
    assert got == {}
    assert contents(system.superuser) == before


@pytest.mark.parametrize(
    "statement",
    [
        f"select oml_create_tenant('x' || {BAD})",
        f"select oml_grant('app', 'acme', '{{append}}', 'x' || {BAD})",
        f"select oml_register_event_type('job.new', state_keys => array['x' || {BAD}])",
        f"select oml_impersonate('acme', 'app', 'x' || {BAD}, '1 minute')",
        f"select oml.append_own_event(t.tenant_id, 'key.issued', '{{}}', {BAD}, 'x')"
        " from oml.tenant t",
    ],
)
def test_nor_do_they_come_into_the_deployments_own_events(
    system: System, spoilt: Connection, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    def stored() -> dict[str, Any]:
        return contents(system.superuser) | {"chain_no": "no rollback gives a number back"}

    before = stored()
    with (
        spoilt_session(system, SUPERUSER, monkeypatch) as superuser,
        pytest.raises(psycopg.errors.CharacterNotInRepertoire),
    ):
        superuser.execute(statement.encode())
    assert stored() == before


SUBMITTED = {
    "workarea": "'here'",
    "body": "'x'::bytea",
    "media_type": "'text/plain'",
    "provenance": "'observed'",
}
SUBMISSIONS = [
    *(
        {name: bad}
        for name in (
            *("workarea", "media_type", "provenance", "tenant", "idempotency_key", "operation"),
            *("app_version", "invocation_id", "subject_id"),
        )
        for bad in (BAD, f"'x' || {BAD}", f"{BAD} || 'x'")
    ),
    {"operation": BAD, "app_version": REST},
    {"derived_from": f"array[{BAD}]"},
    *(
        {
            "attachments": "array['a'::bytea]",
            "attachment_names": f"array[{name}]",
            "attachment_types": f"array[{media_type}]",
        }
        for name, media_type in (
            (BAD, "'text/plain'"),
            (f"'x' || {BAD}", "'text/plain'"),
            ("'a'", BAD),
        )
    ),
]
OTHER_VERBS = [
    f"oml_create_workarea('x' || {BAD})",
    f"oml_move_workarea('here', {BAD})",
    f"oml_move_workarea('x' || {BAD}, 'there')",
    f"oml_add_member('here', 'x' || {BAD})",
    f"oml_add_member({BAD}, 'app')",
    f"oml_remove_member('here', {BAD})",
    *(
        f"oml_{verb}('{{artifact}}', {before}{name} => {BAD})"
        for verb, before in (
            ("promote", ""),
            ("demote", "'x', "),
            ("end_simulation", "'x', "),
            ("reassign", "'here', 'x', "),
            ("verdict", "'approve', "),
        )
        for name in ("tenant", "idempotency_key", "operation", "app_version")
    ),
    f"oml_promote('{{artifact}}', {BAD})",
    f"oml_reassign('{{artifact}}', {BAD}, 'x')",
    f"oml_reassign('{{artifact}}', 'here', 'x' || {BAD})",
    f"oml_verdict('{{artifact}}', {BAD})",
    f"oml_verdict('{{artifact}}', 'reject', 'x' || {BAD})",
    "oml_verdict('{artifact}', 'approve', report => jsonb_build_array(jsonb_build_object('part', 0,"
    f" 'basis', 'opaque', 'media_type', {BAD}, 'scanner', 'x', 'findings', jsonb_build_array())))",
    f"oml_fetch('{{artifact}}', attachment => {BAD})",
]


def test_nor_into_submissions_and_reviews(
    system: System, spoilt: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    superuser = system.superuser
    for login in ("operator", "auditor"):
        superuser.execute(f"grant oml_writer, oml_reviewer, oml_operator to {login}".encode())
    try:
        system.bind("operator", "acme", ("operate", "submit"))
        system.bind("auditor", "acme", ("review", "operate", "submit"))
        operator = system.connect("operator")
        operator.execute("select oml_create_workarea('here')")
        for member in ("operator", "auditor"):
            operator.execute("select oml_add_member('here', %s)", (member,))
        artifact = value(
            operator,
            "select artifact_id from oml_submit('here', 'x', 'text/plain', 'observed')",
        )
        with spoilt_session(system, "auditor", monkeypatch) as bad:
            bad.execute("select count(*) from oml_review_serve(%s)", (artifact,))
            calls = [
                "oml_submit({})".format(
                    ", ".join(f"{n} => {e}" for n, e in (SUBMITTED | g).items())
                )
                for g in SUBMISSIONS
            ]
            before = contents(superuser)
            got: dict[str, str | None] = {}
            for verb in calls + [verb.format(artifact=artifact) for verb in OTHER_VERBS]:
                try:
                    bad.execute(f"select * from {verb}".encode())
                    got[verb] = None
                except psycopg.Error as error:
                    sqlstate = error.sqlstate or ""
                    if sqlstate != "22021" and not sqlstate.startswith("OM"):
                        got[verb] = sqlstate
            assert got == {}
            assert contents(superuser) == before
    finally:
        superuser.execute("revoke oml_writer, oml_reviewer, oml_operator from auditor")
        superuser.execute("revoke oml_writer, oml_reviewer from operator")
