"""make setup, for those who may not install packages."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "setup-packages"


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
