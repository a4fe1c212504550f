"""What one check of the doctor comes to."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """What a check comes to. Only ``fail`` makes the command exit with 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One line of the report. ``hint`` is empty where all is well."""

    name: str
    status: Status
    found: str
    wanted: str
    hint: str = ""
