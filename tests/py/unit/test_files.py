"""Files that the command line writes: whole or not at all, and nothing that is no file replaced."""

import os
import stat
import threading
from pathlib import Path

import pytest

from oml.errors import UsageError
from oml.tlog import files


def test_a_file_is_replaced_whole_and_can_be_read_by_all(tmp_path: Path) -> None:
    path = tmp_path / "proof"
    path.write_bytes(b"before")
    files.write(path, b"after")
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["proof"]


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("named")
    files.write(tmp_path / "link", b"data")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "named").read_bytes() == b"data"


def test_a_pipe_is_written_into_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    files.write(pipe, b"data")
    reader.join(60)
    assert read == [b"data"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_directory_is_refused_and_stays(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        files.write(tmp_path, b"data")
    assert tmp_path.is_dir()


@pytest.mark.parametrize("place", ["none/proof", "file/proof", "link/proof"])
def test_a_place_where_nothing_can_be_written_is_named_as_it_was_asked_for(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("nowhere")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError) as caught:
        files.write(tmp_path / place, b"data")
    assert caught.value.message.startswith(f"{tmp_path / place} cannot be written: ")
    assert caught.value.hint is not None
    assert sorted(tmp_path.iterdir()) == before
