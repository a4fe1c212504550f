import json
from pathlib import Path

import pytest

from oml.dev import record
from oml.dev.record import Record
from oml.errors import UsageError


def test_a_record_comes_back_as_saved(tmp_path: Path) -> None:
    Record(socket_dir="/tmp/x").save(tmp_path)
    Record(socket_dir="/tmp/y").save(tmp_path)
    assert record.load(tmp_path) == Record(socket_dir="/tmp/y")
    assert [p.name for p in tmp_path.iterdir()] == ["dev.json"]


def test_no_record_is_none_and_is_refused_where_one_is_needed(tmp_path: Path) -> None:
    assert record.load(tmp_path) is None
    assert record.load(tmp_path / "missing") is None
    with pytest.raises(UsageError, match=r"dev\.json"):
        record.require(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "[]", "null", "{}", '{"kind": "other"}', '{"kind": "oml-dev-1"}', "\udcff"]
)
def test_a_file_of_someone_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "dev.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match="was not written by oml dev"):
        record.load(tmp_path)


def test_an_interrupted_save_leaves_a_directory_free(tmp_path: Path) -> None:
    (tmp_path / "dev.json.new").write_text(json.dumps({}))
    assert record.is_free(tmp_path)
    (tmp_path / "letter.txt").touch()
    assert not record.is_free(tmp_path)
