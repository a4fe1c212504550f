"""What omld logs: one line an entry, whatever the message."""

import json
import logging

import pytest

from oml.daemon.serve import Lines

ENTRY = logging.LogRecord(
    "oml.lake-writer",
    logging.WARNING,
    "",
    0,
    "database away: %s",
    ("no\r\n\tserver\u2028 is\n",),
    None,
)
ENTRY.created = 1_700_000_000.0625


def test_an_entry_of_text_is_one_line_and_names_the_role() -> None:
    assert Lines(as_json=False).format(ENTRY) == (
        "2023-11-14T22:13:20.062+00:00 WARNING lake-writer: database away: no / server / is"
    )


def test_an_entry_of_json_is_one_line_and_names_the_role() -> None:
    line = Lines(as_json=True).format(ENTRY)
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {
        "at": "2023-11-14T22:13:20.062+00:00", "level": "warning", "role": "lake-writer",
        "message": "database away: no / server / is",
    }  # fmt: skip


@pytest.mark.parametrize("as_json", [False, True])
def test_a_traceback_is_one_line(as_json: bool) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        entry = logging.LogRecord(
            "oml.tlog", logging.ERROR, "", 0, "failed", (), (ValueError, error, error.__traceback__)
        )
    line = Lines(as_json=as_json).format(entry)
    assert len(line.splitlines()) == 1
    assert "failed / Traceback" in line and "ValueError: two / lines" in line
