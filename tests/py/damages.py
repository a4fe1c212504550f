"""What tests do to stored bodies behind the guards' back, and the dead letters of it."""

from uuid import UUID

from lakes import value
from systems import System


def tamper(
    system: System, table: str, change: str, *parameters: object, guard: str = "guard_rows"
) -> None:
    """Change a guarded table as a superuser who turns its guard off."""
    with system.superuser.transaction():
        system.superuser.execute(f"alter table oml.{table} disable trigger {guard}".encode())
        system.superuser.execute(change.encode(), parameters)
        system.superuser.execute(f"alter table oml.{table} enable always trigger {guard}".encode())


def damage(system: System, artifact: UUID) -> bytes:
    """Flip bytes of a stored body and return what it was."""
    of = "where artifact_id = %s and part = 0"
    before = value(system.superuser, f"select ciphertext from oml.body {of}", artifact)
    tamper(system, "body", f"update oml.body set ciphertext = 'damaged' {of}", artifact)
    return bytes(before)


def mend(system: System, artifact: UUID, ciphertext: bytes) -> None:
    change = "update oml.body set ciphertext = %s where artifact_id = %s and part = 0"
    tamper(system, "body", change, ciphertext, artifact)


def first_dead(system: System) -> int:
    query = "select min(outbox_seq) from oml.dead_letter where requeued_seq is null"
    return int(value(system.superuser, query))
