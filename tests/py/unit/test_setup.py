"""make setup, for those who may not install packages."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "setup-packages"


def test_who_is_not_root_is_told_which_packages_to_install() -> None:
    nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    with SCRIPT.open() as script:
        done = subprocess.run(
            ["bash", "-s"],
            stdin=script,
            cwd="/",
            env={"PATH": os.environ["PATH"], "DPKG_ADMINDIR": "/nonexistent"},
            capture_output=True,
            text=True,
            timeout=60,
            **(nobody if os.geteuid() == 0 else {}),  # type: ignore[call-overload]
        )
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    said, command = done.stderr.splitlines()
    assert "install them as root" in said
    assert command.startswith("  apt-get install --no-install-recommends make postgresql-15 ")
    assert command.endswith(" python3-nacl python3-venv")


def test_a_venv_that_is_a_link_is_refused_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    checkout, shared = tmp_path / "checkout", tmp_path / "shared"
    for name in ("scripts/setup-venv", "python/pyproject.toml", "python/constraints.txt"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    (shared / "bin").mkdir(parents=True)
    (shared / "bin" / "oml").write_text("in use")
    (checkout / ".venv").symlink_to(shared)
    done = subprocess.run(
        [checkout / "scripts" / "setup-venv"],
        env={"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stdout
    assert "symbolic link" in done.stderr and "rm .venv" in done.stderr
    assert (shared / "bin" / "oml").read_text() == "in use"
    assert (checkout / ".venv").is_symlink()
