"""Session after session of a role, through restarts of everything that it needs."""

import threading
from collections.abc import Callable

from tenacity import Retrying, retry_if_exception, stop_never, wait_exponential_jitter

_LONGEST_BACKOFF_S = 30.0


def run_sessions(
    session: Callable[[], None],
    *,
    passing: Callable[[BaseException], bool],
    tell: Callable[[BaseException | None], None],
    pause_s: float,
    stop: threading.Event,
) -> None:
    """Run ``session`` again and again until ``stop`` is set.

    After one that raised what ``passing`` knows to pass, ``tell`` is told and the next one waits:
    ``pause_s`` seconds at first, then longer, at most 30. What else a session raises is raised.
    """

    def pause(seconds: float) -> None:
        stop.wait(seconds)

    attempts = Retrying(
        retry=retry_if_exception(passing),
        wait=wait_exponential_jitter(multiplier=pause_s, max=_LONGEST_BACKOFF_S),
        stop=stop_never,
        sleep=pause,
        before_sleep=lambda state: tell(state.outcome.exception() if state.outcome else None),
        reraise=True,
    )
    while not stop.is_set():
        attempts(session)
