"""scripts/lint-pgspot, the step of make lint that looks for what a hostile login could abuse."""

import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
GOOD = """
\\echo Use "CREATE EXTENSION" to load this file. \\quit
set local search_path = pg_catalog, pg_temp;
create function @extschema@.double(x int) returns int language sql
set search_path = pg_catalog, pg_temp as 'select x + x';
create function oml.doubled() returns int language plpython3u
set search_path = pg_catalog, pg_temp as 'return 2';
create table if not exists oml.kept (x int);
"""
BAD = {
    "PS003": "create function oml.f() returns int language sql security definer as 'select 1';",
    "PS004": "create function oml.f() returns int language sql security definer"
    " set search_path = public as 'select 1';",
    "PS005": "create function oml.f(x int) returns int language sql as 'select x + x';",
    "PS002": "create or replace function @extschema@.f() returns int language sql"
    " set search_path = pg_catalog, pg_temp as 'select 1';",
    "PS012": "create table if not exists public.kept (x int);",
    "PS016": "set local search_path = public; select format('%s', 1);",
    "syntax error": "create function;",
}


def lint(file: Path, sql: str) -> subprocess.CompletedProcess[str]:
    """Run the step over this SQL."""
    file.write_text(sql)
    return subprocess.run(
        [SCRIPTS / "lint-pgspot", file], capture_output=True, text=True, timeout=60, check=False
    )


def test_what_is_safe_is_no_finding(tmp_path: Path) -> None:
    done = lint(tmp_path / "good.sql", GOOD)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("code", BAD)
def test_a_planted_weakness_fails_the_step_and_is_named(tmp_path: Path, code: str) -> None:
    done = lint(tmp_path / "bad.sql", GOOD + BAD[code])
    assert done.returncode == 1
    assert code in done.stderr


def test_a_run_of_pgspot_that_does_not_end_fails_the_step(tmp_path: Path) -> None:
    done = lint(tmp_path / "none.sql", "")
    assert done.returncode == 0
    (tmp_path / "none.sql").unlink()
    done = subprocess.run(
        [SCRIPTS / "lint-pgspot", tmp_path / "none.sql"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr


def test_make_lint_runs_it() -> None:
    assert "\nscripts/lint-pgspot || status=1\n" in (SCRIPTS / "lint").read_text()
