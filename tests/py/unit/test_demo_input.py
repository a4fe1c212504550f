"""The demo's input: any file becomes events that the journal takes."""

import json
from pathlib import Path

import pytest

import demo_input
from demo_input import CUT, MOST_CHARACTERS, MOST_LINES, choose, read
from oml.errors import UsageError

LOG = (
    b"2026-01-02 03:04:05 startup archives unpack\n"
    b"2026-01-02 03:04:05 install less:amd64 <none> 590-2.1\n"
    b"2026-01-02 03:04:05 status half-installed less:amd64 590-2.1\n"
    b"2026-01-02 03:04:06 status installed less:amd64 590-2.1\n"
)


def test_a_package_log_is_split_into_states_and_actions(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(LOG)
    events = read(path).events
    assert [(event.tenant, event.type) for event in events] == [
        ("actions", "log.line"),
        ("actions", "package.action"),
        ("states", "package.state"),
        ("states", "package.state"),
    ]
    assert events[1].payload == {
        "line": 2, "time": "2026-01-02 03:04:05", "action": "install", "package": "less",
        "architecture": "amd64", "version": "<none>", "to_version": "590-2.1",
    }  # fmt: skip
    assert (events[2].operation, events[2].entity_id) == ("half-installed", "less")


def test_every_event_has_the_keys_its_type_requires(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(LOG)
    source = read(path)
    required = {kind.name: set(kind.required_keys) for kind in source.types}
    assert all(required[event.type] <= event.payload.keys() for event in source.events)


def test_lines_of_any_other_file_alternate_and_fit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"nul\0 and \xff\xfe\n" + b"\x01" * 100_000 + b"\n\nlast")
    events = read(path).events
    assert [event.tenant for event in events] == ["odd-lines", "even-lines"] * 2
    assert events[0].payload["text"] == "nul and ��"
    assert events[1].payload["text"] == "\x01" * MOST_CHARACTERS + CUT
    assert [event.payload["text"] for event in events[2:]] == ["", "last"]
    assert all(len(json.dumps(event.payload)) <= 4096 for event in events)


def test_a_long_file_is_read_in_part_and_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x\n" * (MOST_LINES + 1))
    source = read(path)
    assert (len(source.events), source.truncated) == (MOST_LINES, True)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one line\n")
    with pytest.raises(UsageError, match="fewer than two lines"):
        read(path)
    for name in ("absent", "."):
        with pytest.raises(UsageError, match="is not a file"):
            choose(str(tmp_path / name))


def test_without_a_package_log_another_file_is_taken_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_input, "DEFAULT", tmp_path / "absent")
    path, why = choose("")
    assert path.is_file()
    assert why is not None and "absent" in why
