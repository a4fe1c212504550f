"""Media types: whether bytes are what they are said to be.

A type of bytes is told by their signature, as far as the library ``filetype`` knows it. What is
said to be text must decode as such. A type that has no signature is taken at its word.
"""

import json
import re

import filetype

from . import keys

_ESSENCE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}")
_WHOLE = re.compile(rf"({_ESSENCE.pattern})(?:; ?charset=([A-Za-z0-9_-]{{1,20}}))?")
_CHARSETS = {
    "utf-8": "utf-8", "us-ascii": "ascii", "iso-8859-1": "latin-1", "utf-16": "utf-16",
}  # fmt: skip
_TEXTS = frozenset(
    ("application/json", "application/xml", "application/yaml", "application/javascript")
)
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # control characters that no text has
_CONTROLS = bytes(b for b in range(128) if _NO_TEXT.match(chr(b)))
_LOOK_LIKE_TEXT = tuple(
    kind
    for kind in filetype.types
    if kind.mime in ("application/pdf", "application/rtf", "application/postscript")
)
_THEIR_FIRST = b"%{\xef"
"""What those begin with: the last is the first of a byte order mark."""
# What any bytes are has a signature there, too: that of one kind of font.
_SIGNED = frozenset(kind.mime for kind in filetype.types) - {"application/octet-stream"}
_HEADER_BYTES = 8192


def parse(media_type: str) -> tuple[str, str] | None:
    """Return a media type's essence (RFC 6838) and its charset, by default utf-8; None for no type.

    Lower case, with no parameter but charset: one of utf-8, us-ascii, iso-8859-1 and utf-16.
    """
    match = _WHOLE.fullmatch(media_type)
    if match is None:
        return None
    essence, charset = match[1], (match[2] or "utf-8").lower()
    return (essence, _CHARSETS[charset]) if charset in _CHARSETS else None


def is_text(essence: str) -> bool:
    """Tell whether content of this type is text, to be read with its charset."""
    return essence.startswith("text/") or essence in _TEXTS or essence.endswith(_TEXT_SUFFIXES)


def require(part: int, media_type: str, content: bytes) -> None:
    """Insist that a part of a submission is of the type it is said to be.

    Raises keys.SignerError OM194 for what is no media type, OM195 for one of other content.
    """
    what = "the body" if part == 0 else f"attachment {part}"
    if parse(media_type) is None:
        raise keys.SignerError(
            "OM194",
            f"{media_type[:80]!r} is no media type for {what}",
            "A type is written in lower case, with no parameter but charset, which is utf-8, "
            "us-ascii, iso-8859-1 or utf-16: text/plain; charset=utf-8.",
        )
    wrong = fault(media_type, content)
    if wrong is not None:
        raise keys.SignerError(
            "OM195",
            f"{what} is not of type {media_type}: {wrong}",
            "Name the type that the bytes are of, or application/octet-stream.",
        )


def fault(media_type: str, content: bytes) -> str | None:
    """Say why the content cannot be of this type; None if it can.

    ``media_type`` must be one that ``parse`` knows.
    """
    parsed = parse(media_type)
    if parsed is None:
        raise ValueError(f"{media_type!r} is no media type")
    essence, charset = parsed
    if is_text(essence):
        return _text_fault(essence, charset, content)
    header = bytearray(content[:_HEADER_BYTES])
    if essence not in _SIGNED:
        return None
    if any(kind.match(header) for kind in filetype.types if kind.mime == essence):
        return None
    found = filetype.guess_mime(header)
    return f"it begins as {found} does" if found else f"it does not begin as {essence} does"


def _text_fault(essence: str, charset: str, content: bytes) -> str | None:
    if content[:1] in _THEIR_FIRST:
        header = bytearray(content[:_HEADER_BYTES])
        for kind in _LOOK_LIKE_TEXT:
            if kind.match(header):
                return f"it begins as {kind.mime} does"
    try:
        text = content.decode(charset)
    except UnicodeDecodeError as error:
        return f"byte {error.start} does not decode as {charset}"
    # In these charsets a control character is one byte, and such a byte nothing else.
    may_hold = charset == "utf-16" or len(content.translate(None, _CONTROLS)) != len(content)
    control = _NO_TEXT.search(text) if may_hold else None
    if control is not None:
        return f"it holds the control character U+{ord(control[0]):04X}"
    if essence == "application/json" or essence.endswith("+json"):
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            return f"it is no JSON{where}"
    return None
