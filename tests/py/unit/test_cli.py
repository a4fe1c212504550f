import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from oml import __version__, cli
from oml.core import keys
from oml.errors import EXIT_COULD_NOT_RUN


def oml(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oml", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version() -> None:
    assert oml("version").stdout == f"{__version__}\n"
    assert json.loads(oml("version", "--json").stdout) == {"version": __version__}


def commands(group: typer.Typer) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the Click command of every command below a group."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(group))]
    while waiting:
        path, command = waiting.pop()
        below = getattr(command, "commands", None)
        if below is None:
            yield path, command
        else:
            waiting += [((*path, name), one) for name, one in below.items()]


def test_every_command_takes_json() -> None:
    found = dict(commands(cli.app))
    assert {("lake", "drain"), ("verify",), ("dev", "up")} < set(found)
    for path, command in found.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options, f"oml {' '.join(path)} lacks --json"


@pytest.mark.parametrize("arguments", [(), ("dev",), ("keys",)])
def test_a_group_without_a_command_shows_its_help_and_nothing_else(arguments: tuple[str]) -> None:
    done = oml(*arguments)
    assert done.returncode == 2
    assert "Usage: oml" in done.stdout + done.stderr
    assert "error" not in done.stderr


@pytest.mark.parametrize("arguments", [("nope",), ("dev", "up"), ("keys", "generate", "--nope")])
def test_bad_usage_is_two_lines_and_exit_status_2(arguments: tuple[str, ...]) -> None:
    done = oml(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")


def test_with_json_an_error_is_one_json_object_on_stderr() -> None:
    done = oml("dev", "up", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    error = json.loads(done.stderr)
    assert set(error) == {"error", "hint", "sqlstate"}
    assert "--dir" in error["error"]
    assert error["sqlstate"] is None


def test_keys_generate_prints_what_the_file_holds(tmp_path: Path) -> None:
    done = oml("keys", "generate", "--out", "signing.key", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    key, status = keys.load(str(tmp_path / "signing.key"))
    assert made["public_key"] == key.public_key.hex()
    assert made["kid"] == key.kid.hex()
    assert status.st_mode & 0o777 == 0o600


def test_keys_generate_refuses_to_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    path.write_text("precious")
    done = oml("keys", "generate", "--out", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {path} exists\nhint: ")
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_keys_generate_into_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    done = oml("keys", "generate", "--out", str(tmp_path / "none" / "k"), "--json")
    assert done.returncode == 2
    assert json.loads(done.stderr)["error"] == f"{tmp_path}/none is not a directory"


def test_heavy_libraries_are_not_loaded_before_they_are_needed() -> None:
    heavy = {"deltalake", "pyarrow", "psycopg", "pydantic", "nacl", "rich.console"}
    script = "import oml.cli, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert heavy.isdisjoint(done.stdout.split())


def test_a_fault_of_the_program_is_not_taken_for_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As a Rust library raises it."""

    for fault in (ZeroDivisionError("fault"), PanicException("panic")):

        def fail(*_: object, fault: BaseException = fault, **__: object) -> None:
            raise fault

        monkeypatch.setattr(cli, "app", fail)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == EXIT_COULD_NOT_RUN
