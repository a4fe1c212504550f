"""``errors.md``: every SQLSTATE of class OM with its message and hint, as the sources write them.

A code means one thing. Where several sentences carry one code, SHARED says what they have in
common and how each begins, so that a new sentence under an old code stops the build until somebody
has looked at it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pglast import parse_sql
from pglast.ast import CreateFunctionStmt

from .markdown import code, page, table

SHARED: dict[str, tuple[str, tuple[str, ...]]] = {
    "OM001": ("The login is bound to no tenant.", ("login %I is bound to no tenant",)),
    "OM003": (
        "The tenant does not exist, or is not the caller's to know.",
        ("there is no tenant",),
    ),
    "OM004": ("The login lacks a permission.", ("login %I lacks", "login %I may not audit")),
    "OM005": (
        "The name of a tenant or deployment is not well formed.",
        ("%L is not a tenant name", "%L is not a deployment name"),
    ),
    "OM008": (
        "These permissions cannot be granted.",
        ("%L are not permissions", "the provider chain takes no events"),
    ),
    "OM014": (
        "The idempotency key stands for another request.",
        ("idempotency key %L was used", "event %s of the batch: idempotency key %L was used"),
    ),
    "OM015": (
        "The event type belongs to the deployment.",
        ("event type %L is reserved", "event type %L lies in a namespace reserved"),
    ),
    "OM016": (
        "The claims are too long together.",
        ("the claims beside the payload", "the claims beside the content"),
    ),
    "OM092": (
        "The signer is too slow.",
        ("the signer at … did not answer", "… of … events were signed within"),
    ),
    "OM099": (
        "What should be a wrapped key does not unwrap to one.",
        ("what was given is not wrapped", "what was wrapped is no data key"),
    ),
    "OM194": (
        "A media type is missing or not well formed.",
        ("a part has no media type", "… is no media type"),
    ),
    "OM200": (
        "A client encrypted something else than it says.",
        ("… has another ciphertext digest", "… does not decrypt to a plaintext"),
    ),
    "OM205": (
        "Simulation cannot be taken off.",
        ("%s is simulated, and what is made", "%s/%s is simulated, and its next"),
    ),
    "OM210": (
        "What is stored of a submission is not what the journal says.",
        ("… of the stored version …", "the digests kept of", "the data key of"),
    ),
    "OM206": (
        "The writer's envelope is not understood.",
        ("the writer's envelope is not understood", "a writer's envelope of"),
    ),
    "OM223": (
        "The report is none on what was reviewed.",
        ("the report is none on the parts", "a report of"),
    ),
    "OM212": (
        "The reason is missing.",
        ("%s needs a reason", "reject needs a reason", "approve in spite of findings"),
    ),
    "OM220": (
        "The author reviews nothing of its own.",
        ("principal %L is the author",),
    ),
    "OM134": (
        "An impersonation is not as it must be.",
        ("an impersonation needs a reason", "an impersonation of %s"),
    ),
    "OM033": (
        "The signing key's file does not hold a key.",
        ("signing key … is not a regular file", "… does not hold an Ed25519 private key"),
    ),
    "OM090": (
        "omld is not there.",
        ("the signer at … cannot be reached", "the signer at … closed the connection"),
    ),
    "OM093": (
        "The signer takes no such message.",
        ("a message of … bytes is too long", "omld refuses the message"),
    ),
    "OM060": (
        "The row, or this part of it, is for good.",
        ("%s on %I.%I is refused: it is append-only", "UPDATE on %I.%I is refused:"),
    ),
    "OM070": (
        "What the database holds already is not safe to install on.",
        ("role %s already exists", "oml_owner, oml_kernel or", "schema oml exists"),
    ),
    "OM150": (
        "What would be recorded is not the chain's log, or takes back what was published.",
        ("the log of tenant %s may not go", "that is no checkpoint of the first"),
    ),
}
_CODE = re.compile(r"OM\d{3}")
_STRING = r"'(?:[^']|'')*'"
_RAISE = re.compile(rf"raise\s+exception\s+using((?:{_STRING}|[^;'])*);")


class Raised(NamedTuple):
    """One place that raises: its code, message and hint, with … for what is filled in."""

    sqlstate: str
    message: str
    hint: str
    place: str


class AmbiguousCodeError(Exception):
    """A code is used for two meanings, or a place that raises one could not be read."""


def build(root: Path) -> str:
    """Return the page for the sources under ``root``. Raises AmbiguousCodeError."""
    raised = collect(root)
    check(raised)
    rows = []
    for sqlstate in sorted({r.sqlstate for r in raised}):
        texts = dict.fromkeys((r.message, r.hint) for r in raised if r.sqlstate == sqlstate)
        rows += [(code(sqlstate), _filled(message), _filled(hint)) for message, hint in texts]
    return page(
        "Errors",
        "Errors of OML's own have an SQLSTATE of class `OM`, a message and a hint, and nothing is"
        " stored when one is raised. A … stands for what is filled in. An append that would fork"
        " the chain fails with `40001`, as any serialization failure: run the transaction again."
        " Everything else is PostgreSQL's. What the command line finds wrong on its own side has a"
        " message and a hint, but no SQLSTATE.",
        table(("SQLSTATE", "message", "hint"), rows),
    )


def _filled(text: str) -> str:
    return re.sub(r"…[….]*…", "…", re.sub(r"%(?:\d+\$)?[ILs]", "…", text)).replace("%%", "%")


def check(raised: list[Raised]) -> None:
    """Raise AmbiguousCodeError for a code with several sentences that SHARED does not list."""
    for sqlstate in sorted({r.sqlstate for r in raised}):
        messages = {r.message: r.place for r in raised if r.sqlstate == sqlstate}
        if len(messages) == 1:
            continue
        beginnings = SHARED.get(sqlstate, ("", ()))[1]
        for message, place in messages.items():
            if not message.startswith(beginnings):
                raise AmbiguousCodeError(
                    f"{sqlstate} has several messages, and {place} says {message!r}:"
                    " take another code, or add its beginning to SHARED"
                )


def collect(root: Path) -> list[Raised]:
    """Read every place under sql/ and python/src/ that raises a code.

    Raises AmbiguousCodeError when a file names a code in no such place.
    """
    raised: list[Raised] = []
    for path in sorted((root / "sql").rglob("*.sql")):
        raised += _checked(path, root, _from_sql(path, root))
    for path in sorted((root / "python" / "src").rglob("*.py")):
        raised += _checked(path, root, _from_python(path.read_text(), _name(path, root)))
    return raised


def _checked(path: Path, root: Path, found: Iterator[Raised]) -> list[Raised]:
    raised = list(found)
    text = re.sub(
        r"^\s*(?:--|#|comment on |exception when ).*$", "", path.read_text(), flags=re.MULTILINE
    )
    text = re.sub(r'"""(?:.|\n)*?"""', "", text) if path.suffix == ".py" else text
    text = re.sub(r'^_\w+ = \{"OM.*\}$', "", text, flags=re.MULTILINE)  # told apart, not raised
    unread = set(_CODE.findall(text)) - {r.sqlstate for r in raised}
    if unread:
        raise AmbiguousCodeError(f"{_name(path, root)}: cannot read how {unread} is raised")
    return raised


def _name(path: Path, root: Path) -> str:
    return str(path.relative_to(root))


def _from_sql(path: Path, root: Path) -> Iterator[Raised]:
    text = path.read_text()
    for sqlstate_part in _RAISE.findall(text):
        using = _options(sqlstate_part)
        if _CODE.fullmatch(using.get("errcode", "")):
            yield Raised(
                using["errcode"], using["message"], using.get("hint", ""), _name(path, root)
            )
    if "language plpython3u" in text:
        for node in parse_sql(text.replace("@extschema@", "public")):
            if isinstance(node.stmt, CreateFunctionStmt):
                options = {option.defname: option.arg for option in node.stmt.options or ()}
                if options["language"].sval == "plpython3u":
                    yield from _from_python(options["as"][0].sval, _name(path, root))


def _options(text: str) -> dict[str, str]:
    """Return the options of a RAISE, each as its first string literal; of a CASE the results."""
    found = {}
    for name in ("errcode", "message", "hint"):
        match = re.search(rf"\b{name}\s*=\s*(?:format\(\s*)?({_STRING})", text)
        cases = re.search(rf"\b{name}\s*=\s*case\b((?:{_STRING}|[^'])*?)\bend\b", text)
        if match:
            found[name] = _unquoted(match.group(1))
        elif cases:
            results = re.findall(rf"\b(?:then|else)\s+(?:format\(\s*)?({_STRING})", cases.group(1))
            found[name] = " *Or:* ".join(map(_unquoted, results))
    return found


def _unquoted(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


def _from_python(source: str, place: str) -> Iterator[Raised]:
    if not place.endswith(".py"):  # a PL/Python body, which may return
        source = "def body():\n" + "".join(f"  {line}\n" for line in source.splitlines())
    tree = ast.parse(source)
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        # f(code, message, hint), [code, message, hint] or f(message, sqlstate=code, hint=hint).
        if isinstance(node, ast.Call):
            given, named = node.args, {k.arg: k.value for k in node.keywords}
        elif isinstance(node, ast.List | ast.Tuple):
            given, named = node.elts, {}
        else:
            continue
        parts = [named["sqlstate"], *given[:1], named.get("hint")] if "sqlstate" in named else given
        texts = [_text(part, constants) for part in parts[:3]]
        if len(texts) > 1 and _CODE.fullmatch(texts[0]):
            yield Raised(texts[0], texts[1], "".join(texts[2:]), place)


def _text(node: ast.expr | None, constants: dict[str, ast.expr]) -> str:
    """Return a string expression as text, with … for what is not constant."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        parts = (_text(part, constants) for part in node.values)
        return "".join(part or "…" for part in parts)
    if isinstance(node, ast.Name) and node.id in constants:
        return _text(constants[node.id], constants)
    return ""
