import json
from datetime import UTC, datetime

import pytest

from oml.cli import output


def test_json_takes_times_and_paths_and_keeps_text_readable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_json({"at": datetime(2024, 1, 2, tzinfo=UTC), "name": "Zoë"})
    printed = capsys.readouterr().out
    assert "Zoë" in printed
    assert json.loads(printed) == {"at": "2024-01-02T00:00:00+00:00", "name": "Zoë"}


def test_a_record_prints_times_in_tables_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2024, 1, 2, tzinfo=UTC)
    output.print_record({"witnesses": {"A": at}, "names": ["Zoë"], "at": at, "size": 3})
    assert capsys.readouterr().out.splitlines() == [
        'witnesses  {"A": "2024-01-02T00:00:00+00:00"}',
        'names      ["Zoë"]',
        "at         2024-01-02T00:00:00+00:00",
        "size       3",
    ]


def test_a_table_in_a_pipe_keeps_long_cells_on_one_line_and_takes_no_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "host=/tmp/" + "x" * 120
    output.print_table(["name", "rows"], [[long, 3], ["[red]a", None]], title="tables")
    printed = capsys.readouterr().out
    assert long in printed
    assert "[red]a" in printed


def test_an_empty_table_prints_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["seq", "reason"], [])
    assert "reason" in capsys.readouterr().out


def test_progress_is_silent_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("drain", quiet=False) as show:
        show(10, 10)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
