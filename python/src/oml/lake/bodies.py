"""What the object mover asks of the database: how far it may go, what is queued, and its bytes."""

from dataclasses import dataclass
from typing import NamedTuple

import psycopg

from oml.errors import DatabaseError, from_postgres
from oml.fence import Outbox


@dataclass(frozen=True)
class Stores:
    """The stores by the database's settings, and how far bodies were moved: outbox seqs.

    ``movable`` is how far the lake has come, as far as that is fenced.
    """

    lake_url: str | None
    bodies_url: str | None
    quarantine_url: str | None
    tlog_url: str | None
    frontier: int
    movable: int
    gate: str
    """State of the write gate; ``open`` is the only one in which anything is moved."""


class Part(NamedTuple):
    """A part of a version that an outbox row queues: 0 the body, then the attachments.

    ``bytes`` are those stored in the database. ``fault`` says why it cannot be moved.
    """

    outbox_seq: int
    tenant_id: str
    artifact_id: str | None
    version: int | None
    part: int | None
    plaintext_digest: bytes | None
    ciphertext_digest: bytes | None
    bytes: int | None
    fault: str | None


class BodiesSource(Outbox):
    """The database side of the object mover. Raises DatabaseError throughout."""

    def __init__(self, dsn: str | None, application_name: str = "oml bodies mover") -> None:
        super().__init__(dsn, application_name)

    def stores(self) -> Stores:
        """Read where the stores are and how far the bodies have come."""
        found = Stores(*self._rows("select * from oml.bodies_state()")[0])
        if found.frontier is None or found.movable is None:
            raise DatabaseError(
                "OM231",
                "oml.frontier lacks the row of the bodies, or of the lake",
                "It was removed: select oml_attach() as a superuser makes that of the bodies anew.",
            )
        return found

    def parts(self, after: int, upto: int, max_rows: int) -> list[Part]:
        """List the parts of at most ``max_rows`` outbox rows in (after, upto], in order."""
        query = "select * from oml.lake_bodies(%s::bigint, %s::bigint, %s::int)"
        return [Part(*row) for row in self._rows(query, after, upto, max_rows)]

    def stored(self, outbox_seq: int, part: int) -> bytes | None:
        """Return the stored bytes of one part, None when there are none."""
        query = "select oml.lake_body(%s::bigint, %s::int)"
        try:
            row = self.connection.execute(query, (outbox_seq, part), binary=True).fetchone()
        except psycopg.Error as error:
            raise from_postgres(error) from None
        return None if row is None or row[0] is None else bytes(row[0])

    def bodies_advance(self, upto: int) -> None:
        """Move the frontier of the bodies forward; a lower value changes nothing."""
        self._write_cache("oml.bodies_advance(%s::bigint)", upto)

    def bodies_waiting(self, after: int, upto: int) -> int:
        """Count the outbox rows in (after, upto] whose content is to be moved."""
        query = "select oml.lake_queued('bodies', %s::bigint, %s::bigint)"
        return int(self._value(query, after, upto))

    def skip(self, outbox_seq: int, reason: str, attempts: int) -> None:
        """Pass over an outbox row that cannot be applied: journalled, and a row of oml.dead_letter.

        From then on no reading of the outbox returns it. A second call changes nothing.
        """
        self._value("select oml.lake_skip(%s::bigint, %s, %s)", outbox_seq, reason, attempts)
