"""Read chains page by page as Arrow, and prove the events of a page."""

import hashlib
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement, Error
from adbc_driver_postgresql import connect

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
        self._open = ExitStack()
        try:
            database = self._open.enter_context(connect(dsn or "postgresql://"))
            self._connection = self._open.enter_context(AdbcConnection(database))
            self._connection.set_autocommit(True)
            self._table("set client_encoding to 'UTF8'")
            # libpq writes what is no error to stderr, in among our own lines.
            self._table("set client_min_messages to error")
        except Error as error:
            self._open.close()
            raise _from_adbc(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def page(self, tenant_id: str, after: int, rows: int) -> pa.Table:
        """Read at most ``rows`` events of a chain above seq ``after``: see oml.chain_rows()."""
        # Without parameters, because only then the rows come by COPY.
        query = f"select * from oml.chain_rows('{uuid.UUID(tenant_id)}', {after:d}, {rows:d})"
        try:
            return self._table(query)
        except Error as error:
            raise _from_adbc(error) from None

    def _table(self, query: str) -> pa.Table:
        # Not through the driver's DB-API, whose import takes longer than to verify 5,000 events.
        with AdbcStatement(self._connection) as statement:
            statement.set_sql_query(query)
            stream, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as reader:
                return reader.read_all()

    def prove(self, chain: Chain, upto: int, page_read: PageRead) -> None:
        """Go on with a chain to seq ``upto``, its end or its first fault."""
        after = chain.events
        while chain.finding is None and after < upto:
            page = self.page(chain.tenant_uuid, after, min(PAGE_ROWS, upto - after))
            if page.num_rows == 0:
                return
            prove_rows(chain, page)
            after = chain.events
            page_read(page.num_rows)

    def envelope(self, tenant_id: str, seq: int) -> bytes | None:
        """Return the envelope at this seq; None where there is none."""
        page = self.page(tenant_id, seq - 1, 1)
        if page.num_rows == 0 or page["seq"][0].as_py() != seq:
            return None
        data: bytes | None = page["envelope"][0].as_py()
        return data


def prove_rows(chain: Chain, page: pa.Table) -> None:
    """Prove the rows of a page as chain.feed() would one by one, most of them by comparison.

    A row whose envelope is exactly what its columns call for needs its hash, link and signature
    checked and nothing else. Any other row, any that declares something, and any that fails a
    check, goes to chain.feed(), which alone finds faults and learns which keys there are.
    """
    rows = columns.expect(page, chain.tenant_id, chain.deployment_id)
    looked_at = {1, *chain.anchors}
    if chain.proved_before is not None:
        looked_at.add(chain.proved_before[0])
    kid, public_key = b"", b""
    last: int | None = 0
    for index, (seq, kind, row_kid, prev, digest, data, message) in enumerate(
        zip(*rows, strict=True)
    ):
        if last is not None and seq > last and chain.key_ring is not None:
            index_now = chain.key_ring.era_at(chain.tenant_uuid, seq)
            era = chain.key_ring.eras[index_now]
            kid, public_key = era.kid, era.public_key
            last = chain.key_ring.last_seq(chain.tenant_uuid, index_now)
        if (
            message is not None
            and seq == chain.events + 1
            and seq not in looked_at
            and not chain.declares(kind)
            and prev == chain.head
            and row_kid == kid
            and _sha256(data).digest() == digest
            and cose.opens(message, public_key)
        ):
            chain.events = seq
            chain.head = digest
        elif chain.feed(columns.row(page, index)) is None:
            return
        else:
            last = 0  # it may have put another key in force


def _from_adbc(error: Any) -> DatabaseError:
    return DatabaseError(
        getattr(error, "sqlstate", None),
        str(error).strip(),
        "Check that the server runs and that the login may verify, and run it again.",
    )
