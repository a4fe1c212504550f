"""Read chains page by page as Arrow, and prove the events of a page."""

import hashlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from oml.core import cose
from oml.core.chain import Chain
from oml.driver import columns
from oml.errors import DatabaseError

PAGE_ROWS = 2048

_sha256 = hashlib.sha256
PageRead = Callable[[int], None]


class Pages:
    """A connection that reads chains. Use as a context manager; raises DatabaseError throughout.

    The login needs ``audit`` on the provider.
    """

    def __init__(self, dsn: str | None) -> None:
        try:
            self._connection = adbc.connect(dsn or "postgresql://", autocommit=True)
        except adbc.Error as error:
            raise _from_adbc(error) from None
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("set client_encoding to 'UTF8'")
        except adbc.Error as error:
            self._connection.close()
            raise _from_adbc(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def page(self, tenant_id: str, after: int, rows: int) -> pa.Table:
        """Read at most ``rows`` events of a chain above seq ``after``: see oml.chain_rows()."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(
                    "select * from oml.chain_rows($1::text::uuid, $2::bigint, $3::int)",
                    (tenant_id, after, rows),
                )
                return cursor.fetch_arrow_table()
        except adbc.Error as error:
            raise _from_adbc(error) from None

    def prove(self, chain: Chain, upto: int, page_read: PageRead) -> None:
        """Go on with a chain to seq ``upto``, its end or its first fault."""
        prove_page = _each_row if chain.declares else prove_rows
        after = chain.events
        while chain.finding is None and after < upto:
            page = self.page(chain.tenant_uuid, after, min(PAGE_ROWS, upto - after))
            if page.num_rows == 0:
                return
            prove_page(chain, page)
            after = chain.events
            page_read(page.num_rows)

    def digest(self, tenant_id: str, seq: int) -> bytes | None:
        """Return the SHA-256 of the envelope at this seq; None where no such event is."""
        page = self.page(tenant_id, seq - 1, 1)
        if page.num_rows == 0 or page["seq"][0].as_py() != seq:
            return None
        return _sha256(page["envelope"][0].as_py() or b"").digest()


def _each_row(chain: Chain, page: pa.Table) -> None:
    for index in range(page.num_rows):
        if chain.feed(columns.row(page, index)) is None:
            return


def prove_rows(chain: Chain, page: pa.Table) -> None:
    """Prove the rows of a page as chain.feed() would one by one, most of them by comparison.

    A row whose envelope is exactly what its columns call for needs its hash, link and signature
    checked and nothing else. Any other row, and any that fails a check, goes to chain.feed(), which
    alone finds faults.
    """
    rows = columns.expect(page, chain.tenant_id, chain.deployment_id)
    assert chain.key_ring is not None
    whole = 1 if chain.proved_before is None else chain.proved_before[0]
    kid, public_key, last = b"", b"", 0
    for index, (seq, row_kid, prev, digest, data, message) in enumerate(zip(*rows, strict=True)):
        if last is not None and seq > last:
            era = chain.key_ring.era_at(chain.tenant_uuid, seq)
            kid, public_key, _ = chain.key_ring.eras[era]
            last = chain.key_ring.last_seq(chain.tenant_uuid, era)
        if (
            message is not None
            and seq == chain.events + 1
            and seq not in (1, whole)
            and prev == chain.head
            and row_kid == kid
            and _sha256(data).digest() == digest
            and cose.opens(message, public_key)
        ):
            chain.events = seq
            chain.head = digest
        elif chain.feed(columns.row(page, index)) is None:
            return


def _from_adbc(error: Any) -> DatabaseError:
    return DatabaseError(
        getattr(error, "sqlstate", None),
        str(error).strip(),
        "Check that the server runs and that the login may verify, and run it again.",
    )
