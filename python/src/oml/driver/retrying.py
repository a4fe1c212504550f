"""What is tried again, how often, and what of an error is handed on: alike for both clients."""

import logging
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg
import tenacity

from oml.errors import DatabaseError, NotAcknowledged, OmlError, UsageError, from_postgres

log = logging.getLogger("oml.driver")

_SIGNER_AWAY = {"OM090", "OM092"}
# Without an SQLSTATE they are psycopg's own: no server has seen what was wrong.
_OURS = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError)


class Repeatable(Protocol):
    """What is tried."""

    @property
    def name(self) -> str:
        """What it is called in a log line."""

    @property
    def repeatable(self) -> bool:
        """Whether it may run again after it may have been committed."""

    @property
    def writes(self) -> bool:
        """Whether it leaves something behind."""


@dataclass(frozen=True)
class Retry:
    """How often a call is tried, and how long it waits in between: exponential, with jitter.

    ``attempts`` counts the first one too. No further one begins later than ``total_s`` seconds
    after the first. The wait is drawn below ``first_wait_s``, then below twice that, and so on, at
    most below ``longest_wait_s``. How long one attempt takes is not bounded here.
    """

    attempts: int = 10
    total_s: float = 60.0
    first_wait_s: float = 0.1
    longest_wait_s: float = 5.0

    def options(self, task: Repeatable, lost: list[NotAcknowledged]) -> dict[str, Any]:
        """Return the arguments of tenacity's Retrying and AsyncRetrying.

        ``lost`` takes the attempts whose outcome is open: see judged.
        """

        def say(state: tenacity.RetryCallState) -> None:
            error = None if state.outcome is None else state.outcome.exception()
            assert isinstance(error, DatabaseError)
            if isinstance(error, NotAcknowledged):
                lost.append(error)
            log.info(
                "%s is tried again in %.2f s, after attempt %d: %s: %s",
                task.name,
                state.upcoming_sleep,
                state.attempt_number,
                error.sqlstate,
                error.message,
            )

        return {
            "retry": tenacity.retry_if_exception(lambda error: mends(error, task.repeatable)),
            "stop": tenacity.stop_after_attempt(self.attempts)
            | tenacity.stop_before_delay(self.total_s),
            "wait": tenacity.wait_random_exponential(
                multiplier=self.first_wait_s, max=self.longest_wait_s
            ),
            "before_sleep": say,
            "reraise": True,
        }


def mends(error: BaseException, repeatable: bool) -> bool:
    """Tell whether a call that ended so is tried again.

    Where the outcome is open, only one that is ``repeatable``: it does nothing the second time, or
    what it does twice is true twice. All else that is listed here is known to have done nothing.
    """
    if isinstance(error, NotAcknowledged):
        return repeatable
    return isinstance(error, DatabaseError) and (error.passing or error.sqlstate in _SIGNER_AWAY)


def judged(error: DatabaseError, lost: list[NotAcknowledged], task: Repeatable) -> DatabaseError:
    """Return what the last attempt's error says of the task as a whole.

    That the last one was refused, or could not begin, does not say that none before it was
    committed.
    """
    if not lost or not task.writes or isinstance(error, NotAcknowledged):
        return error
    return NotAcknowledged(
        error.sqlstate, f"{lost[-1].message}; when it was tried again: {error.message}"
    )


def refusal(error: psycopg.Error) -> OmlError:
    """Turn a psycopg error into ours. Nothing of the statement or its parameters is kept.

    Raise it after the ``except`` block: then it does not hold the frames that hold the parameters.
    """
    if error.sqlstate is None and isinstance(error, _OURS):
        return UsageError(f"an argument cannot be sent: {error}")
    return from_postgres(error)
