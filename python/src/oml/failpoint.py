"""Named places where a test has the process killed, to show that no crash there loses or doubles.

``OML_FAILPOINT=name`` kills at the first pass of that place, ``name:3`` at the third, and
``name:3:stop`` stops it there, until somebody sends SIGCONT.
"""

import os
import signal

from oml.errors import UsageError

CUT = ("cut.limit-read", "cut.holders-ended", "cut.fenced")
LAKE = (
    *CUT,
    "table.created",
    "table.recorded",
    "batch.chosen",
    "table.rows-read",
    "table.checked",
    "table.committed",
    "batch.committed",
    "batch.advanced",
)
CHANGES = ("table.changed",)
UPKEEP = ("upkeep.compacted", "upkeep.vacuumed")
DEAD_LETTERS = ("row.given-up", "row.skipped")
TLOG = (
    *CUT,
    "tlog.checked",
    "tlog.entries-read",
    "tlog.tile-written",
    "tlog.tiles-written",
    "tlog.signed",
    "tlog.checkpoint-written",
    "tlog.recorded",
    "tlog.cosigned",
    "tlog.published",
    "tlog.advanced",
)
MOVER = (
    "mover.read",
    "store.metadata-written",
    "mover.put",
    "mover.verified",
    "mover.moved",
    "mover.advanced",
)
FAILPOINTS = (
    *LAKE,
    *CHANGES,
    *DEAD_LETTERS,
    *UPKEEP,
    *(name for name in TLOG if name not in CUT),
    *MOVER,
)

_SIGNALS = {"": signal.SIGKILL, "stop": signal.SIGSTOP}
_passes: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Die by SIGKILL here if OML_FAILPOINT says so, or stop by SIGSTOP; otherwise do nothing.

    Raises UsageError for a place that does not exist: a crash test must not pass without a crash.
    """
    wanted = os.environ.get("OML_FAILPOINT")
    if wanted is None:
        return
    place, _, rest = wanted.partition(":")
    nth, _, how = rest.partition(":")
    if place not in FAILPOINTS or not (nth or "1").isdecimal() or how not in _SIGNALS:
        raise UsageError(
            f"OML_FAILPOINT={wanted} names no place", f"Places: {', '.join(FAILPOINTS)}."
        )
    if place == name:
        _passes[name] = _passes.get(name, 0) + 1
        if _passes[name] == int(nth or 1):
            os.kill(os.getpid(), _SIGNALS[how])
