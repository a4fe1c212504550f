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


def lint(file: Path, sql: str | bytes) -> subprocess.CompletedProcess[str]:
    """Run the step over this SQL."""
    file.write_bytes(sql.encode() if isinstance(sql, str) else sql)
    return run(file)


def run(*files: Path) -> subprocess.CompletedProcess[str]:
    """Run the step over these files."""
    return subprocess.run(
        [SCRIPTS / "lint-pgspot", *files], capture_output=True, text=True, timeout=60, check=False
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
    done = lint(tmp_path / "none.sql", b"")
    assert done.returncode == 0
    done = lint(tmp_path / "none.sql", b"select '\xff';\n")
    assert done.returncode == 1
    assert "UnicodeDecodeError" in done.stderr


def test_a_file_that_is_not_there_fails_the_step(tmp_path: Path) -> None:
    (tmp_path / "good.sql").write_text(GOOD)
    done = run(tmp_path / "none.sql", tmp_path / "good.sql")
    assert done.returncode == 1
    assert "none.sql: No such file or directory" in done.stderr


def test_what_is_marked_as_pinned_by_its_callers_is_read_as_pinned(tmp_path: Path) -> None:
    function = "create function oml.f(x int) returns int language sql\n{}\nas 'select x + x';"
    mark = "-- search_path: pinned by its callers"
    done = lint(tmp_path / "marked.sql", GOOD + function.format(mark))
    assert (done.returncode, done.stderr) == (0, "")
    done = lint(tmp_path / "other.sql", GOOD + function.format(mark + " or so"))
    assert done.returncode == 1
    assert "PS005" in done.stderr


def test_make_lint_runs_it() -> None:
    assert "\nscripts/lint-pgspot || status=1\n" in (SCRIPTS / "lint").read_text()
