"""What the driver shows of a body: nothing, in no log, no error and no repr."""

import io
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

import oml
from clients import AREA, BODY, NOTES, Stage
from oml.core import keys
from oml.errors import DatabaseError, UsageError

SECRETS = (b"canary sings", b"by the pond")


def written(error: BaseException) -> str:
    """Return all that a report of an error may show: its parts, its frames and their locals."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    parts = ["".join(shown.format()), str(error), repr(error), repr(error.args), repr(vars(error))]
    assert error.__context__ is None and error.__cause__ is None
    return "\n".join(parts)


def assert_untold(text: str) -> None:
    """Insist that nothing of a body is in a text, in clear, as escaped bytes or in hex."""
    for secret in SECRETS:
        for form in (secret.decode(), secret.hex(), repr(secret)[2:-1]):
            assert form not in text, text


def drop_ours(error: BaseException) -> Any:
    """Return an error's traceback from the first frame that is no test's."""
    trace = error.__traceback__
    while trace is not None and "/tests/py/" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    assert trace is not None
    return trace


@pytest.mark.parametrize("encrypt", ["server", "client"])
def test_nothing_of_a_body_is_in_a_log_or_an_error(
    stage: Stage, encrypt: str, tmp_path: Path
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        author = stage.client(writer_key=stage.issue(tmp_path)[0] if encrypt == "client" else None)
        signing = stage.client(writer_key=stage.issue(tmp_path)[0])
        named = {"encrypt": encrypt}
        author.submit(AREA, BODY, "text/plain", "observed", attachments=[NOTES], **named)
        twice = [NOTES, NOTES]
        wrong_type = [NOTES._replace(media_type="application/pdf")]
        text: Any = BODY.decode()
        said: list[Callable[[], Any]] = [
            lambda: author.submit("nowhere", BODY, "text/plain", "observed", **named),
            lambda: author.submit(AREA, BODY, "image/png", "observed", **named),
            lambda: author.submit(AREA, BODY, "application/json", "observed", **named),
            lambda: author.submit(AREA, BODY, "nothing", "observed", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "guessed", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "derived", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "observed", attachments=twice, **named),
            lambda: author.submit(
                AREA, BODY, "text/plain", "observed", attachments=wrong_type, **named
            ),
            lambda: author.submit(AREA, BODY * 400000, "text/plain", "observed", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "observed", artifact=uuid4(), **named),
            lambda: author.submit(AREA, BODY, "text/plain", "observed", operation="\0", **named),
            lambda: author.submit(AREA, BODY, "text/plain", "observed", encrypt="nobody"),
            lambda: author.submit(AREA, text, "text/plain", "observed", **named),
            lambda: author.submit(
                AREA, BODY, "text/plain", "observed",
                attachments=[NOTES._replace(content=NOTES.content.decode())], **named,  # type: ignore[arg-type]
            ),
            lambda: author.submit(
                AREA, BODY, "text/plain", "observed", attachments=[tuple(NOTES)], **named,
            ),
            lambda: signing.submit(AREA, BODY, "text/plain", "observed", encrypt="server"),
        ]  # fmt: skip
        for number, call in enumerate(said):
            try:
                call()
            except (DatabaseError, UsageError) as error:
                # The test's own frames hold the body, and are not the driver's to answer for.
                error.__traceback__ = drop_ours(error)
                assert_untold(written(error))
            else:
                pytest.fail(f"call {number} was not refused")
        assert_untold(stream.getvalue())
        assert stage.count("submission.submit") == 1
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def test_a_server_that_shows_parameters_in_errors_shows_none_here(stage: Stage) -> None:
    # Its CONTEXT has them then, and its log: what oml doctor warns of.
    stage.system.superuser.execute("alter role app set log_parameter_max_length_on_error = -1")
    try:
        with pytest.raises(DatabaseError) as caught:
            stage.client().submit("nowhere", BODY, "text/plain", "observed")
    finally:
        stage.system.superuser.execute("alter role app reset log_parameter_max_length_on_error")
    caught.value.__traceback__ = drop_ours(caught.value)
    assert_untold(written(caught.value))


def test_a_connection_that_would_write_parameters_into_statements_does_not(plain: Stage) -> None:
    # Its cursors bind on the client, and its rows are no tuples.
    connection: Any = plain.system.connect("app")
    connection.cursor_factory = psycopg.ClientCursor
    connection.row_factory = dict_row
    shown = "select query from pg_stat_activity where pid = %s"
    with connection.transaction():
        mine = oml.Client.on(connection)
        made = mine.submit(AREA, BODY, "text/plain", "observed", attachments=[NOTES])
        query = plain.value(shown, connection.info.backend_pid)
        assert "oml_submit" in query and "$1" in query
        assert_untold(query)
        assert mine.fetch(made.artifact_id).content == BODY


def test_what_is_shown_of_things_is_not_their_content(stage: Stage, tmp_path: Path) -> None:
    file, kid = stage.issue(tmp_path)
    author = stage.client(writer_key=file)
    secret = keys.load(file)[0].secret_key
    assert kid in repr(author) and repr(secret)[2:10] not in repr(author)
    made = author.submit(
        AREA, BODY, "text/plain", "observed", attachments=[NOTES], encrypt="client"
    )
    served = stage.client(stage.rita).review(made.artifact_id, scan=False)
    for thing in (made, served, author.fetch(made.artifact_id), NOTES):
        assert_untold(repr(thing))
