"""What both clients are made of: who they act as, what they retry, and what they were given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from oml.driver.artifacts import Part, Report
from oml.driver.calls import Call, Calls, acting_as
from oml.driver.retrying import Retry
from oml.driver.sealing import Writer
from oml.errors import UsageError

Examine = Callable[[Sequence[Part]], Report]
"""Scans the parts of a version, as oml.driver.scan.examine does."""


@dataclass(frozen=True)
class Session:
    """How a client was asked to act.

    ``joined``: it takes part in the caller's transactions, on a connection of the caller's.
    """

    tenant: str | None
    principal: str | None
    writer: Writer | None
    retry: Retry = field(repr=False)
    joined: bool

    @classmethod
    def of(
        cls,
        tenant: str | None,
        principal: str | None,
        writer_key: str | PathLike[str] | None,
        retry: Retry,
        *,
        joined: bool = False,
    ) -> "Session":
        """Take a client's arguments. Raises UsageError for a key file that cannot be used."""
        writer = None if writer_key is None else Writer.load(fspath(writer_key))
        return cls(tenant, principal, writer, retry, joined)

    def calls(self) -> Calls:
        """Return what makes this client's calls."""
        return Calls(self.tenant, self.writer, keyed=not self.joined)

    def first(self) -> tuple[Call[Any], ...]:
        """Return the calls with which each transaction begins."""
        return () if self.principal is None else (acting_as(self.tenant, self.principal),)


def usable(connection: psycopg.BaseConnection[Any]) -> bool:
    """Tell whether an owned connection can begin a transaction; else another is opened."""
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


def require_transaction(connection: psycopg.BaseConnection[Any]) -> None:
    """Insist that a call is part of a transaction that its caller will commit."""
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise UsageError(
            "the connection is in no transaction",
            "Begin one: with connection.transaction(): …. A client of its own (oml.connect())"
            " commits by itself, and sees to it that a commit is acknowledged.",
        )


def require_open(closed: bool) -> None:
    """Insist that a client was not closed."""
    if closed:
        raise UsageError("the client is closed", "Open another: oml.connect().")


def default_examine() -> Examine:
    """Return the scan that the driver brings. Raises SetupError without the extra ``review``."""
    from oml.driver import scan

    scan.require_libraries()
    return scan.examine
