"""``dev.json``: marks a directory as ours and keeps what its layout does not say."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from oml.errors import UsageError

FILE = "dev.json"
_KIND = "oml-dev-1"
_PARTIAL = f"{FILE}.new"


@dataclass(frozen=True)
class Record:
    """What ``oml dev`` knows about one directory."""

    socket_dir: str | None = None
    """Where the socket is if not in the directory itself, whose path is unfit for one."""

    def save(self, directory: Path) -> None:
        """Replace the directory's record as one step that survives a crash."""
        partial = directory / _PARTIAL
        with partial.open("w") as file:
            json.dump({"kind": _KIND} | asdict(self), file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(directory / FILE)


def load(directory: Path) -> Record | None:
    """Return the directory's record, or None if it has none. Raises UsageError if not ours."""
    path = directory / FILE
    try:
        content = json.loads(path.read_bytes())
        if content.pop("kind") != _KIND:
            raise KeyError("kind")
        return Record(content["socket_dir"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{path} was not written by oml dev", "Choose another --dir.") from None


def require(directory: Path) -> Record:
    """Return the directory's record. Raises UsageError if the directory is not ours."""
    record = load(directory)
    if record is None:
        raise UsageError(
            f"{directory} was not made by oml dev up: it holds no {FILE}", "Check --dir."
        )
    return record


def is_free(directory: Path) -> bool:
    """Whether a directory holds nothing but what an interrupted ``save`` may leave."""
    return all(entry.name == _PARTIAL for entry in directory.iterdir())
