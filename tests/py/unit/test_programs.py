import subprocess
from pathlib import Path

import pytest

from oml.dev import programs
from oml.dev.programs import Programs
from oml.errors import SetupError


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find", programs.find.__wrapped__)


def test_the_server_programs_are_found() -> None:
    found = programs.find()
    version = subprocess.check_output([found.path("postgres"), "--version"], text=True)
    assert "PostgreSQL" in version


def test_a_pg_config_without_a_server_is_refused_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pg_config = tmp_path / "pg_config"
    pg_config.write_text("#!/bin/sh\necho /nonexistent\n")
    pg_config.chmod(0o755)
    monkeypatch.setenv("PG_CONFIG", str(pg_config))
    with pytest.raises(SetupError, match="not found") as caught:
        programs.find()
    assert "postgresql-15" in (caught.value.hint or "")


def test_a_server_without_the_extension_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="not installed") as caught:
        Programs(tmp_path, tmp_path).require_extension()
    assert "make install" in (caught.value.hint or "")
