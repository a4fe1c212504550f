"""The key file is looked at again at every append, by backends that already hold the key."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from catalog import contents
from forge import read_key
from oml.core import keys
from systems import Connection, System

APPEND = "select seq from oml_append('job.done', '{}')"


@dataclass
class Signer:
    """A system whose signing key is a copy that a test may spoil."""

    system: System
    path: Path

    def own(self, path: Path) -> None:
        """Give a file to the server's user."""
        owner = self.system.cluster.account
        os.chown(path, owner.uid, owner.gid, follow_symlinks=False)

    def write(self, content: str, mode: int = 0o600) -> None:
        """Put a new file in the key's place, at once as a rename does it."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(content)
        fresh.chmod(mode)
        self.own(fresh)
        fresh.rename(self.path)

    def put_back(self) -> None:
        """Put the good key back, whatever is in its place."""
        target = Path(os.path.realpath(self.path))
        if target.is_relative_to(self.system.cluster.data):
            target.unlink()
        if self.path.is_dir():
            self.path.rmdir()
        self.path.unlink(missing_ok=True)
        self.write(self.system.key_file.read_text())


@pytest.fixture
def signer(system: System, open_dir: Path) -> Signer:
    """A system with tenant acme, an app bound to it, and a signing key of its own."""
    signer = Signer(system, open_dir / "signing.key")
    signer.put_back()
    superuser = system.superuser
    superuser.execute("select oml_configure('signer', %s)", (f"file:{signer.path}",))
    superuser.execute("select oml_register_event_type('job.done')")
    system.make("acme")
    system.bind("app", "acme")
    return signer


def removed(signer: Signer) -> None:
    signer.path.unlink()


def open_to_others(signer: Signer) -> None:
    signer.path.chmod(0o644)


def open_to_the_group(signer: Signer) -> None:
    signer.path.chmod(0o640)


def replaced_by_another_key(signer: Signer) -> None:
    signer.write(keys.to_pem(bytes(32)))


def overwritten_by_another_key(signer: Signer) -> None:
    signer.path.write_text(keys.to_pem(bytes(32)))
    os.utime(signer.path, (1, 1))


def emptied(signer: Signer) -> None:
    os.truncate(signer.path, 0)


def replaced_by_a_directory(signer: Signer) -> None:
    signer.path.unlink()
    signer.path.mkdir()


def replaced_by_a_fifo(signer: Signer) -> None:
    signer.path.unlink()
    os.mkfifo(signer.path, 0o600)
    signer.own(signer.path)


def replaced_by_a_loop(signer: Signer) -> None:
    signer.path.unlink()
    signer.path.symlink_to(signer.path.name)


def moved_into_the_data_directory(signer: Signer) -> None:
    inside = signer.system.cluster.data / f"{signer.system.database}.key"
    shutil.move(signer.path, inside)
    signer.own(inside)
    signer.path.symlink_to(inside)


SPOILT: list[tuple[Callable[[Signer], None], str]] = [
    (removed, "OM030"),
    (replaced_by_a_loop, "OM031"),
    (open_to_others, "OM032"),
    (open_to_the_group, "OM032"),
    (emptied, "OM033"),
    (replaced_by_a_directory, "OM033"),
    (replaced_by_a_fifo, "OM033"),
    (replaced_by_another_key, "OM034"),
    (overwritten_by_another_key, "OM034"),
    (moved_into_the_data_directory, "OM035"),
]


def refused(connection: Connection, statement: str, sqlstate: str) -> None:
    """Insist that the statement is refused in plain words, with a hint."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    assert caught.value.sqlstate == sqlstate
    assert caught.value.diag.message_hint
    message = caught.value.diag.message_primary
    assert message is not None
    assert ".key" in message
    assert "plpy" not in message
    assert "Error" not in message


def expect_chain(signer: Signer, events: int) -> None:
    """Insist that the chain of acme is proved and has so many events."""
    verdict = signer.system.superuser.execute(
        "select ok, events, reason from oml_verify_chain('acme')"
    ).fetchone()
    assert verdict == (True, events, None)


@pytest.mark.parametrize(("spoil", "sqlstate"), SPOILT, ids=[s[0].__name__ for s in SPOILT])
def test_a_connected_backend_stops_with_its_key_file_and_goes_on_when_it_is_back(
    signer: Signer, spoil: Callable[[Signer], None], sqlstate: str
) -> None:
    connected = signer.system.connect("app")
    assert connected.execute(APPEND).fetchone() == (2,)
    before = contents(signer.system.superuser)

    spoil(signer)
    fresh = signer.system.connect("app")
    for _ in range(2):
        refused(connected, APPEND, sqlstate)
        refused(fresh, APPEND, sqlstate)
    assert contents(signer.system.superuser) == before

    signer.put_back()
    assert connected.execute(APPEND).fetchone() == (3,)
    assert fresh.execute(APPEND).fetchone() == (4,)
    expect_chain(signer, 4)


@pytest.mark.parametrize(("spoil", "sqlstate"), SPOILT, ids=[s[0].__name__ for s in SPOILT])
def test_a_deployment_act_without_the_key_leaves_nothing_behind(
    signer: Signer, spoil: Callable[[Signer], None], sqlstate: str
) -> None:
    superuser = signer.system.superuser
    before = contents(superuser)
    spoil(signer)
    for act in (
        "select oml_create_tenant('globex')",
        "select oml_register_event_type('job.failed')",
        "select oml_grant(login => 'app', tenant => 'provider', permissions => '{audit}')",
        "select oml_revoke(login => 'app', tenant => 'acme')",
    ):
        refused(superuser, act, sqlstate)
    after = contents(superuser)
    del before["chain_no"], after["chain_no"]  # a sequence does not roll back
    assert after == before


def test_a_transaction_that_lost_the_key_half_way_stores_nothing_of_it(signer: Signer) -> None:
    connection = signer.system.connect("app", autocommit=False)
    connection.execute(APPEND)
    signer.path.unlink()
    refused(connection, APPEND, "OM030")
    connection.rollback()
    signer.put_back()
    assert connection.execute(APPEND).fetchone() == (2,)
    connection.commit()
    expect_chain(signer, 2)


def test_a_savepoint_keeps_what_was_signed_before_the_key_was_lost(signer: Signer) -> None:
    connection = signer.system.connect("app", autocommit=False)
    connection.execute(APPEND)
    signer.path.unlink()
    with pytest.raises(psycopg.Error), connection.transaction():
        connection.execute(APPEND)
    connection.commit()
    expect_chain(signer, 2)


def test_the_same_key_in_a_new_file_is_taken_without_a_word(signer: Signer) -> None:
    connection = signer.system.connect("app")
    connection.execute(APPEND)
    signer.put_back()
    assert connection.execute(APPEND).fetchone() == (3,)
    expect_chain(signer, 3)


def test_a_symlink_to_the_key_is_followed(signer: Signer) -> None:
    connection = signer.system.connect("app")
    connection.execute(APPEND)
    kept = signer.path.with_name("kept.key")
    signer.path.rename(kept)
    signer.path.symlink_to(kept.name)
    assert connection.execute(APPEND).fetchone() == (3,)
    kept.chmod(0o604)
    refused(connection, APPEND, "OM032")


def test_another_signer_that_is_configured_counts_at_the_next_append(signer: Signer) -> None:
    connection = signer.system.connect("app")
    connection.execute(APPEND)
    superuser = signer.system.superuser
    elsewhere = signer.path.with_name("elsewhere.key")
    configure = f"select oml_configure('signer', 'file:{elsewhere}')"
    refused(superuser, configure, "OM030")
    signer.path.rename(elsewhere)
    refused(connection, APPEND, "OM030")
    superuser.execute(configure.encode())
    assert connection.execute(APPEND).fetchone() == (3,)
    expect_chain(signer, 3)


def test_a_key_never_seen_by_the_deployment_is_named_in_the_refusal(signer: Signer) -> None:
    other = keys.from_seed(bytes(32))
    replaced_by_another_key(signer)
    with pytest.raises(psycopg.Error) as caught:
        signer.system.connect("app").execute(APPEND)
    message = str(caught.value)
    assert other.kid.hex() in message
    assert read_key(signer.system.key_file).kid.hex() in message
