"""The fence: up to which outbox seq the lake may read.

Invariant: when a cut ends at E, every outbox seq <= E is committed or aborted, and the committed
ones are durable at the deployment's level. Why an xid horizon or "the rows I see" will not do is
in docs/explanation/exactly-once.md.
"""

import time
from dataclasses import dataclass

from oml.lake.failpoint import failpoint
from oml.lake.source import Holder, Source, by_transaction

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.25


@dataclass(frozen=True)
class Cut:
    """A fenced limit, or None with who held it back. ``limit`` is an outbox seq."""

    limit: int | None
    holders: tuple[Holder, ...] = ()
    reason: str | None = None


def cut(source: Source, frontier: int, synchronous_commit: str, timeout_s: float) -> Cut:
    """Find a limit E and make it safe, waiting at most ``timeout_s`` seconds in steps 2 and 3 each.

    1. Read E, the highest seq visible, in a transaction of its own.
    2. Whoever drew a seq up to E holds the outbox's lock and an xid, or has ended. Wait for those.
    3. Commit a fence row at the deployment's level: its WAL lies behind all of theirs.
    """
    deadline = time.monotonic() + timeout_s
    limit = source.cut_limit()
    failpoint("cut.limit-read")
    if limit <= frontier:
        return Cut(frontier)
    holders = source.cut_holders()
    pause = _FIRST_PAUSE_S
    while holders:
        if time.monotonic() >= deadline:
            reason = "open transactions have drawn outbox numbers"
            return Cut(None, tuple(by_transaction(holders)), reason)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
        holders = source.cut_holders(h.xid for h in holders)
    failpoint("cut.holders-ended")
    deadline = time.monotonic() + timeout_s
    while not source.fence(limit, synchronous_commit, deadline - time.monotonic()):
        if time.monotonic() >= deadline:
            return Cut(None, (), f"the fence was not made durable: {'; '.join(source.warnings)}")
    failpoint("cut.fenced")
    return Cut(limit)
