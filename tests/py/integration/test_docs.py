"""The documentation says what is: pages that are generated, names, links and the worked example."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main

import oml
from oml.cli import app
from oml.core import cose, envelope
from oml.core.chain import Fault
from oml.failpoint import CHANGES, DEAD_LETTERS, LAKE, MOVER, TLOG, UPKEEP
from oml.settings import Settings
from systems import System

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
# oml.toml is the settings file, oml.tenant_id what the policies compare with.
NO_OBJECTS = {"toml", "tenant_id", "principal"}
_FENCE = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
_INLINE = re.compile(r"`([^`]+)`")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _code(page: Path) -> Iterator[str]:
    """Yield every piece of code of a page: blocks and inline."""
    text = page.read_text()
    yield from _FENCE.findall(text)
    text = _FENCE.sub("", text)
    yield from _INDENTED.findall(text)
    yield from _INLINE.findall(text)


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "docs.generator", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_error_has_a_hint() -> None:
    page = (DOCS / "reference" / "errors.md").read_text()
    rows = re.findall(r"^\| `(OM\d{3})` \| .* \| (.*) \|$", page, re.MULTILINE)
    assert rows and not [code for code, hint in rows if not hint.strip()]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = _FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.is_file(), f"{target} leads nowhere"
        assert linked.is_relative_to(ROOT), f"{target} leads out of the repository"
        assert not anchor or anchor in _anchors(linked), f"{target} names no heading"


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+)", index)}
    assert {*PAGES} - {DOCS / "README.md"} <= linked


def _command_lines(page: Path) -> Iterator[list[str]]:
    """Yield the words after ``oml`` of every command line that a page shows."""
    for code in _code(page):
        for line in code.splitlines():
            for match in re.finditer(r"(?<!extension )(?<![\w.-])oml ([a-z][^|>;:,#`\")]*)", line):
                yield match.group(1).split()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_and_option_named_exists(page: Path) -> None:
    for words in _command_lines(page):
        command: Any = typer.main.get_command(app)
        options = list(words)
        while options and hasattr(command, "commands") and not options[0].startswith("-"):
            word = options.pop(0)
            assert word in command.commands, f"there is no command oml {' '.join(words)}"
            command = command.commands[word]
        known = {"--help", *(name for parameter in command.params for name in parameter.opts)}
        used = {word.split("=")[0] for word in options if word.startswith("--")}
        assert used <= known, f"oml {' '.join(words)} has no {used - known}"


def test_every_sql_name_exists(system: System) -> None:
    def names(query: str) -> set[str]:
        return {row[0] for row in system.superuser.execute(query.encode()).fetchall()}

    functions = names(
        "select p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace"
        " where n.nspname = 'oml' or p.proname like 'oml%'"
    )
    roles = names("select rolname from pg_roles")
    relations = names("select relname from pg_class where relnamespace = 'oml'::regnamespace")
    for page in PAGES:
        code = "\n".join(_code(page))
        public = set(re.findall(r"(?<![\w/.-])oml_\w+", code))
        assert public <= functions | roles, f"{_name(page)}: {public - functions - roles}"
        for name in set(re.findall(r"(?<![\w/-])oml\.(\w+)", code)) - NO_OBJECTS:
            known = name in functions | relations or importlib.util.find_spec(f"oml.{name}")
            assert known or hasattr(oml, name), f"{_name(page)} names oml.{name}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_make_target_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= {p.stem.replace("_", "-") for p in (ROOT / "bench").glob("bench_*.py")}
    named = {target for code in _code(page) for target in re.findall(r"\bmake ([a-z-]+)", code)}
    assert named <= targets


def test_settings_are_all_described(system: System) -> None:
    page = (DOCS / "reference" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        row = re.search(rf"^\| `OML_{name.upper()}` \| `{name}` \| ([^|]+) \|", page, re.MULTILINE)
        assert row is not None, name
        if isinstance(field.default, int | float):
            assert float(row.group(1)) == field.default, name
    variables = set(re.findall(r"`OML_(\w+)`", page)) - {"CONFIG", "FAILPOINT"}
    assert variables == {name.upper() for name in Settings.model_fields}
    deployment = page[page.index("## Of the deployment") :]
    stored = system.superuser.execute("select name from oml.setting").fetchall()
    assert all(f"`{name}`" in deployment for (name,) in stored)
    with pytest.raises(psycopg.Error) as caught:
        system.superuser.execute("select oml_configure('no such setting', '')")
    hint = re.fullmatch(r"Settings are (.*)\.", str(caught.value.diag.message_hint))
    assert hint is not None
    rows = re.findall(r"^\| `(\w+)` \|", deployment, re.MULTILINE)
    assert sorted(rows) == sorted(re.split(", | and ", hint.group(1)))


def test_fail_points_are_all_described() -> None:
    of_the_lake = (*LAKE, *CHANGES, *DEAD_LETTERS, *UPKEEP, *MOVER)
    for name, places in (("operate-the-lake", of_the_lake), ("transparency-log", TLOG)):
        page = (DOCS / "guides" / f"{name}.md").read_text()
        assert set(re.findall(r"^\| `([a-z.-]+)` \|", page, re.MULTILINE)) == set(places)


def test_faults_are_all_explained() -> None:
    assert {str(fault) for fault in Fault} <= set(_code(DOCS / "explanation" / "chain.md"))


def test_the_cddl_has_the_fields_of_the_encoder_in_its_order() -> None:
    page = (DOCS / "reference" / "envelope.md").read_text()
    event = page[page.index("event = {") : page.index("What each field means")]
    kinds = {"uuid": ("bytes", 16), "sha256": ("bytes", 32), "bstr": ("bytes", None)}
    kinds |= {"tstr": ("text", None), "uint": ("uint", None), "1": ("uint", None)}
    described = [
        (key, *kinds[kind], optional == "")
        for optional, key, kind in re.findall(r'^  (\? )?"(\w+)": (\w+)', event, re.MULTILINE)
    ]
    assert described == [(f.key, f.kind, f.size, f.required) for f in envelope.FIELDS]


def test_the_worked_example_is_the_vector_and_verifies() -> None:
    page = (DOCS / "reference" / "envelope.md").read_text()
    (block,) = (code for code in _FENCE.findall(page) if code.startswith("d284"))
    data = bytes.fromhex("".join(line.partition("|")[0] for line in block.splitlines()))
    vectors = json.loads((ROOT / "tests" / "vectors" / "envelope.json").read_bytes())
    assert data.hex() == vectors["vectors"][0]["envelope"]
    decoded = envelope.decode(data)
    assert f"    {decoded.hash.hex()}\n" in page
    assert f"    {vectors['public_key']}\n" in page
    assert cose.verify(decoded.sign1, bytes.fromhex(vectors["public_key"]))
    shown = re.findall(r"  ([a-z]{1,2}) \((\w+)\): (?:\"?([^\"\n]+)\"?)", block)
    assert [(key, column) for key, column, _ in shown] == [
        (f.key, f.column) for f in envelope.FIELDS if f.column in decoded.fields
    ]
    for _, column, value in shown:
        if not isinstance(decoded.fields[column], bytes):
            assert value == str(decoded.fields[column])
