"""The report of a review: what is planted is found by kind and line, and nothing of it is said."""

import hashlib
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oml.core.body import MAX_BODY_BYTES
from oml.driver import scan
from oml.driver.artifacts import Part, Report
from oml.driver.scan import MAX_FINDINGS, MAX_REPORT_BYTES, examine
from oml.driver.scanning import MEMORY_BYTES
from oml.errors import SetupError, UsageError

KEY_ID = "AKIA" + "QYLPMN5HFIQR7XYA"
SECRET = "kT9mV2xQ7pLr4WzN8bYc3HdJ6sFg1aEuRi5oXn0v"
TOKEN = "ghp_" + "zQ8xkLm2Vn4pRt6wYb0cJd1eHf3gSi5uAo7q"
PRIVATE_KEY = (
    "-----BEGIN RSA PRIVATE " + "KEY-----\n"
    "MIIEpAIBAAKCAQEA04up8hoqzS1+APIB0RhjXyObwHQnOzhAk5Bd7mhkSbPkyhP1\n"
    "-----END RSA PRIVATE " + "KEY-----"
)
PLANTED = (KEY_ID, SECRET, TOKEN, "MIIEpAIBAAKCAQEA04up8hoqzS1", "hunter2hunter2", "KD-12345678")
AWS = ("betterleaks.aws-access-token", "oml.access-key-id")


def part(media_type: str, content: str | bytes, number: int = 0) -> Part:
    """Return a part as it is served."""
    data = content.encode() if isinstance(content, str) else content
    return Part(number, "" if number == 0 else f"{number}", media_type, data, _digest(data))


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def found(report: Report, number: int = 0) -> set[tuple[str, int]]:
    """Return kind and line of the findings of a part."""
    return {(f["kind"], f["line"]) for f in report[number]["findings"]}


def one(media_type: str, content: str | bytes) -> set[tuple[str, int]]:
    """Return what is found in a submission of one part, which must say nothing of it."""
    report = examine([part(media_type, content)])
    said = json.dumps(report)
    assert not [secret for secret in PLANTED if secret[4:16] in said]
    return found(report)


def kinds(media_type: str, content: str | bytes) -> list[str]:
    """Return the kinds of what is found, in order."""
    report = examine([part(media_type, content)], cpu_s=2)
    return [f["kind"] for f in report[0]["findings"]]


# PDFs, made here.

FLATE = "/Filter /FlateDecode"


def pdf(
    pages: Sequence[str],
    extra: str = "",
    root: str = "",
    info: str = "",
    packed: str = FLATE,
    more: Sequence[str] = (),
) -> bytes:
    """Return a PDF with a text on each page; ``extra`` goes into the dictionary of each page."""
    contents = [_shown(text) for text in pages]
    return raw_pdf(contents, extra, root, info, packed, more)


def raw_pdf(
    contents: Sequence[bytes],
    extra: str = "",
    root: str = "",
    info: str = "",
    packed: str = FLATE,
    more: Sequence[str] = (),
) -> bytes:
    """Return a PDF whose pages have these content streams."""
    font = 3
    first = 4
    objects: list[bytes] = []
    kids = " ".join(f"{first + 2 * i} 0 R" for i in range(len(contents)))
    objects.append(f"<< /Type /Catalog /Pages 2 0 R {root} >>".encode())
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for i, content in enumerate(contents):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792]"
            f" /Contents {first + 2 * i + 1} 0 R"
            f" /Resources << /Font << /F1 {font} 0 R >> >> {extra} >>".encode()
        )
        data = zlib.compress(content) if packed == FLATE else content
        objects.append(
            f"<< /Length {len(data)} {packed} >>\nstream\n".encode() + data + b"\nendstream"
        )
    objects += [item.encode() for item in more]
    objects.append(f"<< {info} >>".encode())
    out, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, item in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n".encode() + item + b"\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    out += (
        f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\n"
        f"startxref\n{start}\n%%EOF\n"
    ).encode()
    return bytes(out)


def _shown(text: str) -> bytes:
    lines = "".join(f"({line}) Tj 0 -14 Td\n" for line in text.split("\n"))
    return f"BT /F1 12 Tf 72 720 Td\n{lines}ET".encode()


# What is planted is found.


def test_text_is_scanned_by_line() -> None:
    text = f"one\naws = {KEY_ID}\nsecret {SECRET}\n\n{TOKEN}\n{PRIVATE_KEY}\n"
    assert one("text/plain", text) >= {
        ("oml.access-key-id", 2),
        ("betterleaks.github-pat", 5),
        ("betterleaks.private-key", 6),
        ("oml.private-key", 6),
    }


@pytest.mark.parametrize(
    ("media_type", "content", "line"),
    [
        ("application/json", '{\n"a": "' + TOKEN + '"}', 2),
        ("application/vnd.x+xml", f"<a>\n\n<b>{TOKEN}</b></a>", 3),
        ("text/csv", f"a,b\r\n1,{TOKEN}\r\n", 2),
        ("text/plain; charset=utf-16", f"a\n{TOKEN}\n".encode("utf-16"), 2),
        ("text/plain; charset=iso-8859-1", f"caf\xe9\n{TOKEN}".encode("latin-1"), 2),
    ],
)
def test_what_counts_as_text(media_type: str, content: str | bytes, line: int) -> None:
    assert one(media_type, content) == {("betterleaks.github-pat", line)}
    report = examine([part(media_type, content)])
    assert report[0]["basis"] == "text" and report[0]["extractor"].startswith("oml-text ")


def test_a_password_in_words_and_a_policy_of_the_deployment_are_found() -> None:
    text = "a\nPassword: hunter2hunter2\nfor KD-12345678\nand KD-123456789"
    report = examine([part("text/plain", text)], {"customer": r"\bKD-\d{8}\b"})
    assert found(report) == {("oml.password", 2), ("policy.customer", 3)}
    assert "KD-" not in json.dumps(report) and "hunter" not in json.dumps(report)
    other = examine([part("text/plain", text)], {"customer": r"\bKD-\d{9}\b"})
    assert found(other) == {("oml.password", 2), ("policy.customer", 4)}
    assert other[0]["scanner"] != report[0]["scanner"], "the policies are part of what it means"


def test_markdown_is_scanned_as_it_is_written_and_as_it_is_shown() -> None:
    text = (
        f"# Title\n\n[a link](https://example.org/?key={KEY_ID})\n\n"
        f"**{TOKEN[:12]}**{TOKEN[12:]}\n\n"
        f"| a | b |\n|---|---|\n| x | {KEY_ID[:6]}*{KEY_ID[6:]}* |\n\n"
        f"```\n{PRIVATE_KEY}\n```\n<!-- {KEY_ID} -->\n"
    )
    report = examine([part("text/markdown", text)])
    assert report[0]["extractor"].startswith("markdown-it-py ")
    assert found(report) == {
        ("oml.access-key-id", 3),
        ("betterleaks.github-pat", 5),
        ("oml.access-key-id", 9),
        ("betterleaks.private-key", 12),
        ("oml.private-key", 12),
        ("oml.access-key-id", 15 + 1),
    }


def test_html_is_scanned_in_attributes_comments_scripts_and_as_it_is_shown() -> None:
    text = (
        f'<!doctype html>\n<a title="x {KEY_ID}">a</a>\n<!-- line\n{KEY_ID} -->\n'
        f"<script>\nlet t = '{TOKEN}';\n</script>\n<p><b>{KEY_ID[:4]}</b>{KEY_ID[4:]}</p>\n"
        f"<p>&#65;{KEY_ID[1:]}</p>\n<input value='&#x41;{KEY_ID[1:]}'>\n"
        f"<p>{KEY_ID[:4]}</p>{KEY_ID[4:]}"
    )
    report = examine([part("text/html", text)])
    assert report[0]["extractor"].startswith("html.parser ")
    assert found(report) == {
        *(("oml.access-key-id", line) for line in (2, 4, 8, 9, 10)),
        ("betterleaks.github-pat", 6),
    }


def test_a_pdf_is_scanned_page_by_page_and_beyond_them() -> None:
    noted = (
        f"/Annots [<< /Subtype /Text /Contents (note {TOKEN}) >>"
        f" << /Subtype /Link /A << /S /URI /URI (https://a/?{KEY_ID}) >> >>]"
    )
    plain = pdf(["first", f"second\nuses {KEY_ID}"])
    report = examine([part("application/pdf", plain)])
    assert (report[0]["basis"], report[0]["extractor"][:6]) == ("text", "pypdf ")
    assert found(report) == {("oml.access-key-id", 3)}
    assert found(examine([part("application/pdf", pdf(["page"], extra=noted))])) == {
        ("betterleaks.github-pat", 2),
        ("oml.access-key-id", 3),
    }
    about = pdf(["page"], info=f"/Keywords ({TOKEN})")
    assert found(examine([part("application/pdf", about)])) == {("betterleaks.github-pat", 2)}
    filed = pdf(
        ["page"],
        root="/AcroForm << /Fields [6 0 R] >>",
        more=[f"<< /FT /Tx /T (a) /V (is {TOKEN}) >>"],
    )
    assert found(examine([part("application/pdf", filed)])) == {("betterleaks.github-pat", 2)}


def test_the_readable_strings_of_opaque_content_are_scanned() -> None:
    report = examine([part("image/png", png(TOKEN))])
    assert report[0]["basis"] == "opaque" and "extractor" not in report[0]
    assert {kind for kind, _ in found(report)} == {"betterleaks.github-pat"}
    lines = b"\x00\n\n\xff" + TOKEN.encode() + b"\x00\n" + KEY_ID.encode("utf-16-le") + b"\xff"
    assert one("application/octet-stream", lines) == {
        ("betterleaks.github-pat", 3),
        ("oml.access-key-id", 4),
    }


def png(comment: str) -> bytes:
    """Return a PNG of one pixel with a comment in its metadata."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
            chunk(b"tEXt", b"Comment\x00" + comment.encode()),
            chunk(b"IDAT", zlib.compress(b"\x00\x00")),
            chunk(b"IEND", b""),
        )
    )


def test_there_is_an_entry_for_each_part_in_order_and_nothing_is_found_in_what_is_clean() -> None:
    parts = [
        part("text/plain", "nothing here"),
        part("text/html", "<p>nor here", 1),
        part("application/pdf", pdf(["nor here"]), 2),
        part("application/octet-stream", os.urandom(5000), 3),
        part("text/markdown", "*nor* [here](https://example.org)", 4),
    ]
    report = examine(parts)
    assert [entry["part"] for entry in report] == [0, 1, 2, 3, 4]
    assert [entry["media_type"] for entry in report] == [p.media_type for p in parts]
    assert [entry["findings"] for entry in report] == [[]] * 5


# The same bytes give the same report.


def test_another_process_with_other_hashes_reports_the_same() -> None:
    program = (
        "import json, sys, test_scan as t\n"
        "parts = [t.part('text/html', f'<a b={t.TOKEN}>{t.KEY_ID}\\n{t.PRIVATE_KEY}'),"
        " t.part('application/pdf', t.pdf([t.TOKEN, t.KEY_ID]), 1)]\n"
        "print(json.dumps(t.examine(parts, {'b': 'PRIVATE', 'a': 'KEY'})))\n"
    )

    def run(seed: str) -> str:
        path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    assert run("1") == run("2")
    assert len(json.loads(run("3"))[0]["findings"]) >= 4


# Hostile content ends, and says that it was not read.


def test_content_that_is_not_what_it_says_is_a_finding() -> None:
    assert kinds("text/plain", b"\xff\xfe invalid") == ["extraction-failed"]
    assert kinds("text/html", b"<p>\xff") == ["extraction-failed"]
    assert kinds("application/pdf", b"%PDF-1.7\nbroken") == ["extraction-failed"]
    assert kinds("application/pdf", pdf(["a"])[:200]) != []
    locked = pdf(["a"]).replace(
        b"/Root 1 0 R",
        b"/Root 1 0 R /Encrypt << /Filter /Standard /V 1 /R 2 /O (%s) /U (%s) /P -4 >>"
        % (b"o" * 32, b"u" * 32),
    )
    assert kinds("application/pdf", locked) == ["extraction-failed"]


def test_a_part_that_fails_does_not_hide_the_others() -> None:
    report = examine([part("application/pdf", b"%PDF-1.7\nbroken"), part("text/plain", TOKEN, 1)])
    assert [f["kind"] for f in report[0]["findings"]] == ["extraction-failed"]
    assert found(report, 1) == {("betterleaks.github-pat", 1)}


def test_a_pdf_that_swells_is_cut_off() -> None:
    """A stream that is 200 MB, one that is so when it is inflated twice, and a text of pages."""
    once = zlib.compress(b" " * 200_000_000)
    twice = zlib.compress(once)
    assert len(once) < 200_000 and len(twice) < 2000
    for packed, content in ((f"{FLATE} ", once), ("/Filter [/FlateDecode /FlateDecode]", twice)):
        bomb = kinds("application/pdf", raw_pdf([content], packed=packed))
        assert bomb in (["extraction-failed"], ["extraction-incomplete"])
    long = b"BT /F1 12 Tf " + b"(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa) Tj " * 1_500_000 + b"ET"
    assert kinds("application/pdf", raw_pdf([long])) == ["extraction-failed"]


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("text/html", b"<div>" * 1_600_000),
        ("text/html", b"<" * 8_000_000),
        ("text/html", b"<!--" * 2_000_000),
        ("text/html", b"<a b=" * 1_600_000),
        ("text/html", b"&#" * 4_000_000),
        ("text/markdown", b"[" * 8_000_000),
        ("text/markdown", b"> " * 4_000_000),
        ("text/markdown", b"*a_ " * 2_000_000),
        ("text/plain", b"a" * 8_388_608),
        ("text/plain", b"password=" * 900_000),
        ("application/json", b"[" * 8_388_608),
        ("application/octet-stream", b"a\x00" * 4_194_304),
        ("application/octet-stream", bytes(range(256)) * 32768),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value[:5]),
)
def test_hostile_content_ends_and_what_was_not_read_is_said(
    media_type: str, content: bytes
) -> None:
    assert set(kinds(media_type, content)) <= {
        "extraction-failed", "scan-failed", "oml.password", "more",
    }  # fmt: skip


def test_a_policy_that_takes_for_ever_is_cut_off() -> None:
    report = examine([part("text/plain", "a" * 5000 + "b")], {"slow": "(a|aa)+$"}, cpu_s=2)
    assert [f["kind"] for f in report[0]["findings"]] == ["scan-failed"]


def test_the_process_that_reads_content_is_limited(tmp_path: Any) -> None:
    program = (
        "import os, socket\n"
        "from oml.driver import scanning\n"
        "scanning._limit(30)\n"
        "for act in (lambda: open('/etc/hosts'), socket.socket, lambda: os.pipe(),"
        " lambda: bytearray(scanning.MEMORY_BYTES)):\n"
        "    try:\n"
        "        act()\n"
        "        print('did')\n"
        "    except (OSError, MemoryError) as error:\n"
        "        print(type(error).__name__, getattr(error, 'errno', ''))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.splitlines() == ["OSError 24"] * 3 + ["MemoryError "]
    assert MEMORY_BYTES == 1024**3


# A report fits.


def test_a_part_lists_so_many_findings_and_says_how_many_more_there_are() -> None:
    report = examine([part("text/plain", f"{TOKEN}\n" * 5000)])
    findings = report[0]["findings"]
    assert len(findings) == MAX_FINDINGS
    assert findings[-1] == {"kind": "more", "count": 5000 - MAX_FINDINGS + 1}


def test_a_report_on_many_parts_fits_what_the_database_takes() -> None:
    name = "x" * 64
    text = f"{TOKEN} {KEY_ID} KD-12345678\n" * 1000
    long_type = f"text/{'y' * 60}"
    parts = [part(long_type, text, number) for number in range(17)]
    report = examine(parts, {name: "KD"})
    assert len(json.dumps(report).encode()) <= MAX_REPORT_BYTES
    assert all(entry["findings"][-1]["kind"] == "more" for entry in report)
    listed = len(report[0]["findings"]) - 1
    assert listed + report[0]["findings"][-1]["count"] == 3000


# What is asked for wrongly.


def test_a_policy_that_is_not_understood_is_refused() -> None:
    with pytest.raises(UsageError, match="no name of a policy"):
        examine([part("text/plain", "a")], {"No Name": "a"})
    with pytest.raises(UsageError, match="policy bad is not understood"):
        examine([part("text/plain", "a")], {"bad": "("})


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_LIBRARIES", (*scan._LIBRARIES, "no-such-library"))
    with pytest.raises(SetupError, match="no-such-library is not installed") as caught:
        examine([part("text/plain", "a")])
    assert "./python[review]" in str(caught.value.hint)


def test_the_command_line_reports_on_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(f"one\n{TOKEN}\nKD-12345678\n")
    command = [sys.executable, "-m", "oml", "review", "scan", str(file), "--media-type"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)

    done = run("text/plain", "--policy", r"customer=KD-\d+", "--json")
    assert done.returncode == 1, done.stderr
    assert found(json.loads(done.stdout)) == {("betterleaks.github-pat", 2), ("policy.customer", 3)}
    done = run("text/plain")
    assert done.returncode == 1 and "betterleaks.github-pat" in done.stdout
    assert "text, oml-text" in done.stdout and TOKEN not in done.stdout
    file.write_text("nothing")
    done = run("text/plain")
    assert done.returncode == 0 and done.stdout.endswith("nothing found\n")
    done = run("application/octet-stream")
    assert done.returncode == 0 and done.stdout == "opaque: nothing found\n"
    assert run("text/plain", "--policy", "a").returncode == 2


@pytest.mark.parametrize(
    ("media_type", "content", "said"),
    [
        ("Text", b"a", "no media type"),
        ("text/plain", b"", "is empty"),
        ("text/plain", b"a" * (MAX_BODY_BYTES + 1), "longer than a body may be"),
        ("application/pdf", b"a text", "not of type application/pdf"),
        ("text/html", png("a"), "not of type text/html"),
        ("application/json", b"{", "it is no JSON"),
        ("text/plain", None, "No such file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_command_line_refuses_what_the_database_would(
    tmp_path: Path, media_type: str, content: bytes | None, said: str
) -> None:
    file = tmp_path / "a"
    if content is not None:
        file.write_bytes(content)
    command = [sys.executable, "-m", "oml", "review", "scan", str(file), "--media-type", media_type]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and "hint: " in done.stderr


def test_the_longest_body_is_scanned_by_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"\x00" * MAX_BODY_BYTES)
    command = [sys.executable, "-m", "oml", "review", "scan", str(file), "--media-type"]
    done = subprocess.run(
        [*command, "application/octet-stream"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
