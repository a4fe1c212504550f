"""What a reviewer's client finds in what it was served: the report that goes with a verdict.

The parts are read and scanned in processes of their own, which are limited: see scanning. Content
goes there and findings come back through pipes. A finding says what kind of thing is in which line,
and nothing of the thing.
"""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from oml.driver import extract, scanning
from oml.driver.artifacts import Part, Report
from oml.errors import SetupError, UsageError

MAX_REPORT_BYTES = 32768
"""How long the database lets a report be: see oml.reviewed_parts()."""
MAX_FINDINGS = 100
"""How many findings of a part are listed at most; then it says how many more there are."""

_POLICY_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SCANNER = "kingfisher-secret-scanner"
_LIBRARIES = (_SCANNER, "pypdf", "markdown-it-py")
_STARTING_S = 60.0


def examine(
    parts: Sequence[Part],
    policies: Mapping[str, str] | None = None,
    *,
    cpu_s: int = scanning.CPU_S,
) -> Report:
    """Scan the parts that oml_review_serve() returned, in order, and return the report on them.

    ``policies`` are patterns (Python's re, multi-line) by name, of what the deployment does not
    want in a submission: a match is a finding of kind ``policy.NAME``. A part may take
    ``cpu_s`` seconds of processor time; one that would take more has failed. Where none does, the
    same parts and policies give the same report.

    Raises UsageError for a policy that is not understood, SetupError if the extra ``review`` is not
    installed or its scanner does not start.
    """
    patterns = dict(sorted((policies or {}).items()))
    _require_policies(patterns)
    scanner = _scanner(patterns)
    found = _findings(parts, patterns, cpu_s)
    most = MAX_FINDINGS
    while True:
        report = [
            _entry(part, scanner, _capped(findings, most))
            for part, findings in zip(parts, found, strict=True)
        ]
        if most == 1 or len(json.dumps(report, ensure_ascii=False).encode()) <= MAX_REPORT_BYTES:
            return report
        most //= 2


def _entry(part: Part, scanner: str, findings: list[dict[str, Any]]) -> dict[str, Any]:
    reader = extract.extractor(part.media_type)
    basis = {"basis": "opaque"} if reader is None else {"basis": "text", "extractor": reader.name}
    said = {
        "part": part.part,
        "plaintext_digest": part.plaintext_digest.hex(),
        "media_type": part.media_type,
        **basis,
    }
    return said | {"scanner": scanner, "findings": findings}


def _capped(findings: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    if len(findings) <= most:
        return findings
    rest = findings[most - 1 :]
    return [
        *findings[: most - 1],
        {"kind": scanning.MORE, "count": sum(f.get("count", 1) for f in rest)},
    ]


def _require_policies(policies: Mapping[str, str]) -> None:
    for name, pattern in policies.items():
        if _POLICY_NAME.fullmatch(name) is None:
            raise UsageError(
                f"{name[:80]!r} is no name of a policy",
                "It has at most 64 letters, digits, dots and dashes, in lower case.",
            )
        try:
            re.compile(pattern, re.MULTILINE)
        except re.error as error:
            raise UsageError(
                f"the pattern of policy {name} is not understood: {error}",
                "It is a regular expression as Python has them.",
            ) from None


def require_libraries() -> None:
    """Insist that the extra ``review`` is installed. Raises SetupError."""
    _versions()


def _scanner(policies: Mapping[str, str]) -> str:
    """Return what scans: the library with its version, and a digest of the policies."""
    scanner = f"{_SCANNER} {_versions()[_SCANNER]}"
    if not policies:
        return scanner
    return f"{scanner}, policies {hashlib.sha256(json.dumps(policies).encode()).hexdigest()[:16]}"


def _versions() -> dict[str, str]:
    try:
        return {name: metadata.version(name) for name in _LIBRARIES}
    except metadata.PackageNotFoundError as error:
        raise SetupError(
            f"the library {error.name} is not installed",
            "A review's report needs the extra review. In a checkout of OML:"
            " pip install -c python/constraints.txt './python[review]'.",
        ) from None


def _findings(
    parts: Sequence[Part], policies: Mapping[str, str], cpu_s: int
) -> list[list[dict[str, Any]]]:
    """Return what is found in each part, by another process."""
    asked = [{"media_type": part.media_type, "bytes": len(part.content)} for part in parts]
    head = json.dumps({"policies": policies, "cpu_s": cpu_s, "parts": asked}).encode()
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "oml.driver.scanning"],
            input=b"".join([head, b"\n", *(part.content for part in parts)]),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a library may quote what it read
            timeout=_STARTING_S + scanning.WALL_FACTOR * cpu_s * len(parts),
            check=False,
        )
        found = [json.loads(line) for line in done.stdout.splitlines()]
    except subprocess.TimeoutExpired:
        found = []
    if len(found) != len(parts):
        raise SetupError(
            "the scanner did not do its work",
            "Run python -m oml.driver.scanning </dev/null to see whether it starts.",
        )
    return found
