"""The process that scans for ``oml.driver.scan``: ``python -m oml.driver.scanning``.

In: a line of JSON (``policies``, ``cpu_s``, and ``parts`` with media_type and bytes), then the
contents one after the other. Out: a line of JSON for each part, its findings. The rules are loaded
once; then each part has a fork, whose memory and processor time are limited, and which can open,
write and dump nothing. It may be killed at any moment: what it did not say it did not find out.
"""

import json
import os
import re
import resource
import select
import signal
import sys
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from oml.core import body
from oml.driver import extract

CPU_S = 30
"""Seconds of processor time that a part may take."""
WALL_FACTOR = 3
"""How much longer it may take on a machine that is busy with other things."""
MEMORY_BYTES = 1024**3
MAX_LISTED = 1000
"""How many findings of a part are said at most, and then how many more there are."""

EXTRACTION_FAILED = "extraction-failed"
EXTRACTION_INCOMPLETE = "extraction-incomplete"
SCAN_FAILED = "scan-failed"
MORE = "more"

# What Kingfisher takes for a secret is whole: a key's id without the key, a private key that is
# cut off and a password in words are not. These are found as well.
_OWN = {
    "oml.access-key-id": r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b",
    "oml.private-key": r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----",
    "oml.password": r"(?i)\b(?:password|passwd|passphrase|secret|api[_-]?key|token)\b"
    r"[\"']?[ \t]*[:=][ \t]*[\"']?[^\s\"']{8}",
}
_READ = b"read\n"


def main() -> None:
    """Scan what comes in."""
    body.keep_out_of_core_dumps()
    from kingfisher_sdk import Rules, Scanner

    scanner = Scanner(Rules())
    scanner.scan(b"nothing")
    extract.preload()
    source = sys.stdin.buffer
    asked = json.loads(source.readline())
    patterns = {kind: re.compile(pattern) for kind, pattern in _OWN.items()}
    for name, pattern in asked["policies"].items():
        patterns[f"policy.{name}"] = re.compile(pattern, re.MULTILINE)
    for part in asked["parts"]:
        content = source.read(part["bytes"])
        findings = _apart(scanner, patterns, part["media_type"], content, asked["cpu_s"])
        print(json.dumps(findings), flush=True)


def findings(
    scanner: Any, patterns: Mapping[str, re.Pattern[str]], pieces: Sequence[extract.Piece]
) -> list[dict[str, Any]]:
    """Return what is in pieces of text: each kind once a line, in the order of lines."""
    text = "\n".join(text for _, text in pieces)
    starts, ends = [], 0  # the lines of the text at which pieces begin, from 0
    for _, piece in pieces:
        starts.append(ends)
        ends += piece.count("\n") + 1

    def line_of(line: int) -> int:
        piece = bisect_right(starts, line) - 1
        return pieces[piece][0] + line - starts[piece]

    found = {(line_of(f.location["line"] - 1), f.rule_id) for f in scanner.scan(text) if f.visible}
    for kind, pattern in patterns.items():
        line, counted = 0, 0
        for match in pattern.finditer(text):
            line += text.count("\n", counted, match.start())
            counted = match.start()
            found.add((line_of(line), kind))
    return [{"kind": kind, "line": line} for line, kind in sorted(found)]


def _apart(
    scanner: Any,
    patterns: Mapping[str, re.Pattern[str]],
    media_type: str,
    content: bytes,
    cpu_s: int,
) -> list[dict[str, Any]]:
    """Return what a fork of this process finds in a part."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.dup2(sending, 1)
            os.closerange(2, 256)
            _limit(cpu_s)
            _answer(scanner, patterns, media_type, content)
            status = 0
        finally:
            os._exit(status)
    os.close(sending)
    said, deadline = bytearray(), time.monotonic() + WALL_FACTOR * cpu_s
    while select.select([receiving], [], [], max(0.0, deadline - time.monotonic()))[0]:
        some = os.read(receiving, 65536)
        if not some:
            break
        said += some
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(receiving)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    if not said.startswith(_READ):
        return [{"kind": EXTRACTION_FAILED}]
    return list(json.loads(said[len(_READ) :])) if ended else [{"kind": SCAN_FAILED}]


def _answer(
    scanner: Any, patterns: Mapping[str, re.Pattern[str]], media_type: str, content: bytes
) -> None:
    text = extract.extract(content, media_type)
    os.write(1, _READ)
    found = findings(scanner, patterns, text.pieces)
    if not text.whole:
        found.insert(0, {"kind": EXTRACTION_INCOMPLETE})
    if len(found) > MAX_LISTED:
        found[MAX_LISTED:] = [{"kind": MORE, "count": len(found) - MAX_LISTED}]
    answer = memoryview(json.dumps(found).encode())
    while answer:
        answer = answer[os.write(1, answer) :]


def _limit(cpu_s: int) -> None:
    """Bound what this process takes, and let it open, write and dump nothing from now on."""
    for what, most in (
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 2),
    ):
        resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    main()
