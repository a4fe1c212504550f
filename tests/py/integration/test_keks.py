"""Key-encryption keys: one a tenant's epoch, refused when it is lost and never made anew."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from clusters import until
from lakes import value
from oml.doctor.check import Check, Status
from oml.doctor.examine import examine
from omld import Omld
from submissions import (
    TENANT,
    WORKAREA,
    Office,
    call,
    data_key,
    fetched,
    sealed,
    submit,
)
from systems import Connection, System

Act = Callable[[Office], object]


@pytest.fixture
def office(system: System) -> Office:
    """An office in a database of the session's cluster, with a login for the doctor."""
    system.bind("auditor", "provider", ["audit"])
    return Office(system)


def kek_of(office: Office, tenant_id: UUID | None = None) -> Path:
    """Return where the signer keeps the KEK of a tenant: acme's by default."""
    return office.system.key_file.parent / "kek" / f"{tenant_id or office.tenant_id}.1"


@contextmanager
def away(kek: Path) -> Iterator[None]:
    """Have a KEK moved away, and put back; insist that no other took its place meanwhile."""
    kept = kek.with_name(f"{kek.name}.away")
    kek.rename(kept)
    try:
        yield
        assert not kek.exists()
    finally:
        kept.rename(kek)


def refused(call_: Callable[[], object], sqlstate: str) -> str:
    """Insist that a statement is refused with this SQLSTATE and a hint; return its message."""
    with pytest.raises(psycopg.Error) as caught:
        call_()
    assert caught.value.sqlstate == sqlstate, caught.value
    assert caught.value.diag.message_hint
    return caught.value.diag.message_primary or ""


def stored(office: Office) -> tuple[int, ...]:
    """Return how many events, bodies and data keys there are."""
    row = office.system.superuser.execute(
        "select (select count(*) from oml.journal), (select count(*) from oml.body),"
        " (select count(*) from oml.dek)"
    ).fetchone()
    assert row is not None
    return row


def doctors_word(system: System) -> Check:
    """Return what oml doctor says of the tenants' keys."""
    with system.connect("auditor") as connection:
        report = examine(connection)
    (found,) = [c for c in report.checks if c.name == "tenants' keys"]
    return found


def another_tenant(office: Office, name: str) -> UUID:
    """Make a tenant with a workarea and its author."""
    tenant_id = office.system.make(name)
    office.system.bind("author", name, ["submit"])
    office.system.bind("chief", name, ["operate"])
    office.chief.execute("select oml_create_workarea(%s, %s)", (WORKAREA, name))
    office.chief.execute("select oml_add_member(%s, %s, %s)", (WORKAREA, "author", name))
    return tenant_id


# --- lost ----------------------------------------------------------------------------------------


def test_a_kek_that_is_lost_is_refused_and_never_made_anew(office: Office) -> None:
    first = office.submit(b"first", b"attached")
    key = data_key(office.author)
    before = stored(office)
    with away(kek_of(office)):
        for connection in (office.author, office.system.connect("author")):
            refused(partial(submit, connection, b"second"), "OM098")
            refused(partial(submit, connection, b"next", artifact=first), "OM098")
            refused(partial(data_key, connection), "OM098")
            refused(partial(fetched, connection, first), "OM098")
        given = sealed(key, b"third")
        refused(lambda: call(office.author, "oml_submit_sealed", given), "OM098")
        refused(lambda: submit(office.colleague, b"theirs"), "OM098")
        assert stored(office) == before
        found = doctors_word(office.system)
        assert found.status is Status.FAIL and "kek" in found.hint
        assert found.found.startswith(f"{TENANT}, epoch 1: the signer holds no key-encryption key")
    assert doctors_word(office.system).status is Status.OK
    second = office.submit(b"second")
    call(office.author, "oml_submit_sealed", sealed(key, b"third"))
    assert [fetched(office.author, a) for a in (first, second, key.artifact_id)] == [
        b"first", b"second", b"third",
    ]  # fmt: skip
    assert fetched(office.author, first, "1") == b"attached"
    office.expect_whole()


def test_an_older_directory_that_lacks_a_tenant_is_named_tenant_by_tenant(office: Office) -> None:
    office.submit(b"acme's")
    globex = another_tenant(office, "globex")
    initech = another_tenant(office, "initech")
    artifact, _ = submit(office.author, b"globex's", tenant="globex")
    with away(kek_of(office, globex)):
        found = doctors_word(office.system)
        assert found.status is Status.FAIL
        assert found.found.startswith("globex, epoch 1: ") and ";" not in found.found
        done = office.system.oml("doctor", user="auditor")
        assert done.returncode == 1 and "globex, epoch 1" in done.stdout
        refused(lambda: submit(office.author, b"more", tenant="globex"), "OM098")
        submit(office.author, b"more", tenant=TENANT)  # the others go on
        submit(office.author, b"its first", tenant="initech")
        assert kek_of(office, initech).exists()
    assert doctors_word(office.system).status is Status.OK
    query = "select content from oml_fetch(%s, tenant => 'globex')"
    assert value(office.author, query, artifact) == b"globex's"


def test_omld_makes_none_either(office: Office, open_dir: Path) -> None:
    daemon = Omld(
        office.system, open_dir, value(office.system.superuser, "select oml.deployment_id()")
    )
    daemon.add_key("signing.key", office.system.key_file.read_text())
    daemon.start()
    office.system.superuser.execute("select oml_configure('signer', %s)", (daemon.url,))
    first = office.submit(b"first")
    (kek,) = open_dir.rglob(f"kek/{office.tenant_id}.1")
    before = stored(office)
    with away(kek):
        refused(lambda: office.submit(b"second"), "OM098")
        refused(lambda: data_key(office.author), "OM098")
        refused(lambda: fetched(office.author, first), "OM098")
        assert stored(office) == before
        assert doctors_word(office.system).status is Status.FAIL
    assert [fetched(office.author, a) for a in (first, office.submit(b"second"))] == [
        b"first", b"second",
    ]  # fmt: skip
    daemon.kill()
    found = doctors_word(office.system)
    assert found.status is Status.FAIL and found.found.endswith("(OM090)")
    assert "see to the signer first" in found.hint


def test_a_signer_elsewhere_without_the_keks_is_refused(office: Office, open_dir: Path) -> None:
    """As after a key was moved to omld, or rotated to another directory, and the KEKs were not."""
    first = office.submit(b"first")
    office.system.cluster.account.make_directory(open_dir / "keys")
    elsewhere = open_dir / "keys" / "signing.key"
    elsewhere.write_bytes(office.system.key_file.read_bytes())
    elsewhere.chmod(0o600)
    owner = office.system.key_file.stat()
    os.chown(elsewhere, owner.st_uid, owner.st_gid)
    office.system.superuser.execute("select oml_configure('signer', %s)", (f"file:{elsewhere}",))
    refused(lambda: office.submit(b"second"), "OM098")
    assert not (elsewhere.parent / "kek").exists()
    office.system.superuser.execute(
        "select oml_configure('signer', %s)", (f"file:{office.system.key_file}",)
    )
    assert fetched(office.author, first) == b"first"


# --- another in its place ------------------------------------------------------------------------


def replace(kek: Path, content: bytes) -> None:
    """Put another key in a KEK's place, as its owner could."""
    kek.write_bytes(content)


def test_the_doctor_names_a_kek_that_was_replaced_by_another(office: Office) -> None:
    first = office.submit(b"first")
    kek = kek_of(office)
    right = kek.read_bytes()
    replace(kek, bytes(32))
    found = doctors_word(office.system)
    assert found.status is Status.FAIL and "(OM099)" in found.found
    refused(lambda: fetched(office.author, first), "OM099")
    second = office.submit(b"second")  # under the other one
    assert doctors_word(office.system).status is Status.FAIL
    replace(kek, right)
    assert fetched(office.author, first) == b"first"
    refused(lambda: fetched(office.author, second), "OM099")
    assert doctors_word(office.system).status is Status.FAIL, "whichever of the two has its place"


# --- the first -----------------------------------------------------------------------------------


def after(barrier: threading.Barrier, tenant: str, connection: Connection) -> UUID:
    """Submit to a tenant when all have come to the barrier."""
    barrier.wait()
    return submit(connection, b"note", tenant=tenant)[0]


def test_of_first_submissions_at_once_all_are_under_one_kek(office: Office) -> None:
    for number in range(8):
        tenant = f"tenant-{number}"
        tenant_id = another_tenant(office, tenant)
        connections = [office.system.connect("author") for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            first = partial(after, threading.Barrier(3), tenant)
            made = list(pool.map(first, connections))
        query = "select content from oml_fetch(%s, tenant => %s)"
        assert [value(office.author, query, a, tenant) for a in made] == [b"note"] * 3
        assert kek_of(office, tenant_id).exists()
    assert doctors_word(office.system).status is Status.OK


def test_a_first_submission_that_was_rolled_back_leaves_a_kek_that_serves(office: Office) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero), office.author.transaction():
        submit(office.author, b"never")
        office.author.execute("select 1 / 0")
    kek = kek_of(office)
    made = kek.read_bytes()
    assert value(office.system.superuser, "select count(*) from oml.dek") == 0
    assert doctors_word(office.system).status is Status.OK
    first = office.submit(b"first")
    assert kek.read_bytes() == made and fetched(office.author, first) == b"first"


def test_a_kek_under_which_nothing_was_stored_may_be_made_again(office: Office) -> None:
    key = data_key(office.author)
    kek_of(office).unlink()
    before = stored(office)
    refused(lambda: call(office.author, "oml_submit_sealed", sealed(key, b"x")), "OM098")
    assert not kek_of(office).exists()
    again = data_key(office.author)
    refused(lambda: call(office.author, "oml_submit_sealed", sealed(key, b"x")), "OM099")
    assert stored(office) == before
    call(office.author, "oml_submit_sealed", sealed(again, b"first"))
    assert fetched(office.author, again.artifact_id) == b"first"


def first_in_hand(office: Office) -> Connection:
    """Return a connection whose transaction made the tenant's first submission."""
    connection = office.system.connect("author", autocommit=False)
    submit(connection, b"first")
    return connection


@pytest.mark.parametrize("act", [
    lambda o: submit(o.colleague, b"second"),
    lambda o: data_key(o.colleague),
], ids=["submit", "data_key"])  # fmt: skip
def test_nobody_makes_a_kek_while_the_first_submission_is_not_committed(
    office: Office, act: Act
) -> None:
    holder = first_in_hand(office)
    found: list[str | None] = []

    def run() -> None:
        try:
            act(office)
            found.append(None)
        except psycopg.Error as error:
            found.append(error.sqlstate)

    with away(kek_of(office)):
        thread = threading.Thread(target=run)
        thread.start()
        waiting = "select count(*) > 0 from pg_locks where not granted and pid = %s"
        pid = office.colleague.info.backend_pid
        until(lambda: bool(value(office.system.superuser, waiting, pid)))
        holder.commit()
        thread.join()
        assert found == ["OM098"]
    artifact = value(office.system.superuser, "select artifact_id from oml.artifact_version")
    assert fetched(office.author, artifact) == b"first"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_snapshot_from_before_the_first_submission_makes_none(office: Office, level: str) -> None:
    late = office.system.connect("colleague", autocommit=False)
    late.execute(f"set transaction isolation level {level}".encode())
    late.execute("select 1")
    first = office.submit(b"first")
    with away(kek_of(office)):
        refused(lambda: submit(late, b"late"), "40001")
        late.rollback()
        late.execute(f"set transaction isolation level {level}".encode())
        refused(lambda: submit(late, b"late"), "OM098")
        late.rollback()
    assert fetched(office.author, first) == b"first"
    artifact, _ = submit(late, b"late")
    late.commit()
    assert fetched(office.colleague, artifact) == b"late"


def test_a_first_data_key_in_a_read_only_transaction_is_refused(office: Office) -> None:
    reader = office.system.connect("author", autocommit=False)
    reader.execute("set transaction read only")
    refused(lambda: data_key(reader), "OM051")
    reader.rollback()
    assert not kek_of(office).exists()
    office.submit(b"first")
    reader.execute("set transaction read only")
    data_key(reader)
