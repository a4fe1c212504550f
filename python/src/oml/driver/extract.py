"""The text in a part, by a deterministic extractor for its media type; of others, what is readable.

An extraction is a list of pieces: a line, and the text that begins in it. Lines count from 1. Of
text, Markdown and HTML they are lines of the source, of a PDF lines of the text that was found, of
anything else of what its LF bytes make. The libraries are of the extra ``review``. This code meets
hostile content: it runs in a process that is limited (see scan).
"""

import contextlib
import importlib
import io
import logging
import pkgutil
import platform
import re
from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from importlib import metadata
from typing import Any, NamedTuple

from oml import __version__
from oml.core import media

MAX_TEXT = 64 * 1024 * 1024
"""How many characters an extraction may have together."""

Piece = tuple[int, str]

_SHORTEST = 6  # characters that a readable string in opaque bytes has at least
_READABLE = re.compile(
    rb"[\t\x20-\x7e]{%d,}|(?:[\t\x20-\x7e]\x00){%d,}|(?:\x00[\t\x20-\x7e]){%d,}"
    % (_SHORTEST, _SHORTEST, _SHORTEST)
)
_INLINE = frozenset(
    (
        "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn",
        "em", "font", "i", "ins", "kbd", "label", "mark", "q", "ruby", "s", "samp", "small", "span",
        "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
    )
)  # fmt: skip


# Encodings are those that fonts name.
_USED = (
    "json", "html.entities", "markdown_it",
    *(f"encodings.{name}" for name in (
        "ascii", "latin_1", "utf_8", "utf_16", "utf_16_be", "utf_16_le", "cp1252", "charmap",
        "mac_roman", "gbk", "big5", "shift_jis", "euc_jp", "euc_kr", "gb2312", "unicode_escape",
    )),
)  # fmt: skip


class ExtractionError(Exception):
    """The content is not what its extractor reads, or has more text than MAX_TEXT."""


class Extractor(NamedTuple):
    """Reads one kind of content. ``name`` is the library's with its version."""

    name: str
    pieces: Callable[[bytes, str], Iterator[Piece]]


def extractor(media_type: str) -> Extractor | None:
    """Return the extractor of a media type; None if its content is opaque.

    Raises importlib.metadata.PackageNotFoundError if a library is missing.
    """
    parsed = media.parse(media_type)
    if parsed is None:
        return None
    essence, _ = parsed
    if essence == "application/pdf":
        return Extractor(f"pypdf {_version('pypdf')}", _pdf)
    if essence in ("text/html", "application/xhtml+xml"):
        return Extractor(f"html.parser {platform.python_version()}", _html)
    if essence in ("text/markdown", "text/x-markdown"):
        return Extractor(f"markdown-it-py {_version('markdown-it-py')}", _markdown)
    return Extractor(f"oml-text {__version__}", _text) if media.is_text(essence) else None


class Text(NamedTuple):
    """What was read. It is not ``whole`` if the library passed over something."""

    pieces: list[Piece]
    whole: bool


def extract(content: bytes, media_type: str) -> Text:
    """Return the text in a part. Raises ExtractionError, and what a library may raise."""
    found = extractor(media_type)
    parsed = media.parse(media_type)
    pieces = _strings(content) if found is None else found.pieces(content, (parsed or ("", ""))[1])
    result, characters, passed_over = [], 0, len(_complaints)
    for piece in pieces:
        characters += len(piece[1]) + 1
        if characters > MAX_TEXT:
            raise ExtractionError("too much text")
        result.append(piece)
    return Text(result, len(_complaints) == passed_over)


def preload() -> None:
    """Import what the extractors use, so that none of them opens a file when it runs."""
    for module in _USED:
        importlib.import_module(module)
    import pypdf

    for found in pkgutil.walk_packages(pypdf.__path__, "pypdf."):  # it imports some when in need
        with contextlib.suppress(ImportError):  # of a library that is not there
            importlib.import_module(found.name)
    for media_type in ("text/markdown", "application/pdf"):
        extractor(media_type)


class _Complaints(logging.Handler):
    """Counts what a library complains of, and drops the words: they may quote content."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def emit(self, record: logging.LogRecord) -> None:
        """Count a complaint."""
        self._count += 1


_complaints = _Complaints()


@cache
def _version(library: str) -> str:
    return metadata.version(library)


def _decoded(content: bytes, charset: str) -> str:
    try:
        return content.decode(charset)
    except UnicodeDecodeError as error:
        raise ExtractionError("another charset") from error


def _text(content: bytes, charset: str) -> Iterator[Piece]:
    yield 1, _decoded(content, charset)


def _strings(content: bytes) -> Iterator[Piece]:
    """Yield the strings in bytes that are printable as ASCII or UTF-16 without more."""
    line, counted = 1, 0
    for found in _READABLE.finditer(content):
        line += content.count(b"\n", counted, found.start())
        counted = found.start()
        yield line, found[0].replace(b"\x00", b"").decode("ascii")


def _markdown(content: bytes, charset: str) -> Iterator[Piece]:
    """Yield the source, and what its inline markup comes to: text, targets and titles of links."""
    from markdown_it import MarkdownIt

    source = _decoded(content, charset)
    yield 1, source
    for token in MarkdownIt("commonmark", {"maxNesting": 100}).enable("table").parse(source):
        if token.type != "inline" or token.map is None:
            continue
        line = token.map[0] + 1
        shown: list[str] = []
        for child in token.children or []:
            for name in ("href", "src", "title"):
                if value := child.attrGet(name):
                    yield line, str(value)
            if child.type in ("softbreak", "hardbreak"):
                yield line, "".join(shown)
                shown.clear()
                line += 1
            elif child.type != "html_inline":
                shown.append(child.content)
        yield line, "".join(shown)


class _Page(HTMLParser):
    """Collects text as it is shown, and what is not: attributes, comments, scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[Piece] = []
        self._shown: list[str] = []
        self._line = 1

    def flush(self) -> None:
        """End a run of text."""
        if self._shown:
            self.pieces.append((self._line, "".join(self._shown)))
            self._shown = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the attributes, as NAME=VALUE."""
        if tag not in _INLINE:
            self.flush()
        line = self.getpos()[0]
        self.pieces.extend((line, f"{name}={value}") for name, value in attrs if value)

    def handle_endtag(self, tag: str) -> None:
        """End the text of a block."""
        if tag not in _INLINE:
            self.flush()

    def handle_data(self, data: str) -> None:
        """Take text, with character references resolved."""
        if not self._shown:
            self._line = self.getpos()[0]
        self._shown.append(data)

    def handle_comment(self, data: str) -> None:
        """Take a comment."""
        self.pieces.append((self.getpos()[0], data))


def _html(content: bytes, charset: str) -> Iterator[Piece]:
    """Yield the source, and what it comes to when it is parsed."""
    source = _decoded(content, charset)
    yield 1, source
    page = _Page()
    page.feed(source)
    page.close()
    page.flush()
    yield from page.pieces


def _pdf(content: bytes, _charset: str) -> Iterator[Piece]:
    """Yield the text of the pages, then that of notes, links, form fields, data about it, files."""
    from pypdf import PdfReader

    logger = logging.getLogger("pypdf")
    logger.handlers, logger.propagate = [_complaints], False
    reader = PdfReader(io.BytesIO(content), strict=False)
    if reader.is_encrypted:
        raise ExtractionError("encrypted")
    line = 1
    for text in _pdf_texts(reader):
        yield line, text
        line += text.count("\n") + 1


def _pdf_texts(reader: Any) -> Iterator[str]:
    for page in reader.pages:
        yield page.extract_text().rstrip()
    for page in reader.pages:
        for note in page.get("/Annots") or []:
            item = note.get_object()
            action = item.get("/A")
            for holder in (item, action.get_object() if action is not None else {}):
                for key in ("/Contents", "/URI", "/V", "/T", "/JS"):
                    value = holder.get(key)
                    if value is not None:
                        yield _pdf_value(value)
    for key, value in sorted((reader.metadata or {}).items()):
        yield f"{key[1:]}: {value}"
    with contextlib.suppress(KeyError):
        xmp = reader.root_object["/Metadata"].get_object()
        yield xmp.get_data().decode("utf-8", "replace")
    for name, field in sorted((reader.get_fields() or {}).items()):
        yield f"{name}: {_pdf_value(field.get('/V', ''))}"
    for name, files in sorted(reader.attachments.items()):
        yield name
        for file in files:
            yield "\n".join(text for _, text in _strings(file))


def _pdf_value(value: Any) -> str:
    value = value.get_object() if hasattr(value, "get_object") else value
    data = value.get_data() if hasattr(value, "get_data") else value
    return data.decode("latin-1") if isinstance(data, bytes) else str(data)
