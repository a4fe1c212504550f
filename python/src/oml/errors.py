"""The errors a user of OML sees: a message, a hint, and the exit status of the command line.

Exit status: 0 all is well, 1 something was found or left incomplete, 2 the command could not run.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

EXIT_FINDINGS = 1
EXIT_COULD_NOT_RUN = 2

_SERIALIZATION = {"40001", "40P01"}
# Of errors before a session, which have no SQLSTATE: those of a server that will be there.
_STARTING = (
    "the database system is ",
    "sorry, too many clients",
    "remaining connection slots",
    "terminating connection",
)
_BAD_DSN = ("connection option", "connection info string", "in URI", "in connection")
_NOT_INSTALLED = {"3F000", "42883", "42P01"}


class OmlError(Exception):
    """An expected failure. ``exit_code`` is what the command line exits with."""

    def __init__(
        self, message: str, hint: str | None = None, exit_code: int = EXIT_COULD_NOT_RUN
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class UsageError(OmlError):
    """The request itself is wrong: an argument, a setting, a directory that is not ours."""


class SetupError(OmlError):
    """The machine lacks something: a server program, the extension, a permission."""


class GateClosedError(OmlError):
    """The write gate is closed: nothing is appended, drained or published."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint, EXIT_FINDINGS)


class DatabaseError(OmlError):
    """PostgreSQL refused or could not be reached. ``sqlstate`` is None if it never answered."""

    def __init__(self, sqlstate: str | None, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.sqlstate = sqlstate

    @property
    def retryable(self) -> bool:
        """Whether the same transaction may succeed when it is run again from its start."""
        return self.sqlstate in _SERIALIZATION

    @property
    def disconnected(self) -> bool:
        """Whether there is no session: never connected, or lost (its outcome is then unknown)."""
        return self.sqlstate is None or self.sqlstate[:2] == "08" or self.sqlstate[:3] == "57P"

    @property
    def passing(self) -> bool:
        """Whether waiting may mend it: a server that is away, and not a DSN or login it refuses."""
        if self.retryable:
            return True
        refused = "FATAL:" in self.message and not any(s in self.message for s in _STARTING)
        bad = any(words in self.message for words in _BAD_DSN)
        return self.disconnected and not (self.sqlstate is None and (refused or bad))


class NotAcknowledged(DatabaseError):
    """A COMMIT whose outcome is not known, or not beyond the one server.

    What it committed may be lost in a failover, or may stay: it must not be reported as done.
    """

    def __init__(self, sqlstate: str | None, message: str) -> None:
        super().__init__(
            sqlstate,
            message,
            "The event may be durable on this server only, or not be there at all. Retry with the"
            " same idempotency key until it is acknowledged; look first where it took no key.",
        )


def from_postgres(error: "psycopg.Error") -> DatabaseError:
    """Turn a psycopg error into ours, keeping the server's SQLSTATE, message and hint.

    A hint is added for a lost connection, for a transaction that should be run again, and for a
    database in which the extension or its genesis is missing.
    """
    message = error.diag.message_primary or str(error).strip() or type(error).__name__
    mapped = DatabaseError(error.sqlstate, message, error.diag.message_hint)
    mapped.hint = _hint(mapped) or mapped.hint
    return mapped


def _hint(error: DatabaseError) -> str | None:
    if error.sqlstate in _NOT_INSTALLED and "oml" in error.message:
        return (
            "Either the arguments do not fit, or OML is not in this database: "
            "CREATE EXTENSION oml CASCADE; then SELECT oml_genesis('name')."
        )
    if error.hint:
        return None
    denied = ("permission denied for function", "permission denied for schema oml")
    if error.sqlstate == "42501" and error.message.startswith(denied):
        return (
            "Grant the login the group that may call it: oml_writer, oml_reviewer, oml_operator,"
            " oml_auditor or oml_daemon. What no group may call is a superuser's."
        )
    if error.disconnected:
        return (
            "Check that the server runs and lets this login in (pg_hba.conf), and the DSN (--dsn,"
            " OML_DSN or the PG* variables)."
        )
    if error.retryable:
        return "Run the transaction again from its start."
    return None
