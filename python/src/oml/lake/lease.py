"""The lease of the lake writer: one works, others stand by.

It is for tidiness. That no batch is applied twice rests on the Delta commit alone, so a holder that
was paused, or whose clock is wrong, does no harm: it finds its lease lost, or its commit refused.
"""

import os
import secrets
import socket
import time
from contextlib import suppress

from oml.errors import DatabaseError, OmlError
from oml.fence import Outbox

NAME = "lake"
_LOOK_S = 0.2


class LeaseHeld(OmlError):
    """Another process has the lease. ``holder`` and ``term`` say which, and since which change."""

    def __init__(self, holder: str, term: int, seconds_left: float) -> None:
        super().__init__(
            f"{holder} writes the lake, by the lease of term {term}, for {seconds_left:.0f} s more",
            "Only one at a time does, and it renews its lease as long as it works. Wait for it"
            " (--wait), or stop it: oml lake status names it.",
        )
        self.holder = holder
        self.term = term


class LeaseLost(LeaseHeld):
    """It was ours: it expired while we hung, and another has taken it."""


class Lease:
    """The lease as one process sees it. The thread of ``source`` uses it."""

    def __init__(self, source: Outbox, ttl_s: float) -> None:
        self._source = source
        self._ttl_s = ttl_s
        self.holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self.term: int | None = None
        self._renewed = 0.0

    def take(self) -> None:
        """Take it, or renew it if it is ours.

        Raises LeaseHeld when another has it, LeaseLost when it was ours until then, DatabaseError.
        """
        asked = time.monotonic()
        is_held, term, holder, left = self._source.take_lease(
            NAME, self.holder, self.term, self._ttl_s
        )
        if is_held:
            self.term, self._renewed = term, asked
            return
        lost, self.term = self.term is not None, None
        raise (LeaseLost if lost else LeaseHeld)(str(holder or "nobody"), term, max(left or 0, 0))

    def take_within(self, seconds: float) -> None:
        """Take it, waiting so long for another to give it up. Raises as ``take`` does."""
        until = time.monotonic() + seconds
        while True:
            try:
                self.take()
                return
            except LeaseHeld:
                if time.monotonic() >= until:
                    raise
            time.sleep(_LOOK_S)

    def keep(self) -> None:
        """Renew it if a third of its time is over, or take it. Raises as ``take`` does."""
        if self.term is None or time.monotonic() - self._renewed >= self._ttl_s / 3:
            self.take()

    def release(self) -> None:
        """Give it back, if we have it: the next one need not wait. A lost session does the same."""
        if self.term is not None:
            with suppress(DatabaseError):
                self._source.release_lease(NAME, self.holder, self.term)
            self.term = None
