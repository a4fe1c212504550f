"""The flat part of deterministic CBOR (RFC 8949, 4.2.1) that an envelope needs.

An envelope is a short map of text keys to unsigned integers, byte strings and text strings, so
this reader has no recursion and its work is bounded by the input's length. A head is accepted in
its shortest form only; what the reader accepts therefore re-encodes to the same bytes.
"""

UINT, NINT, BYTES, TEXT, ARRAY, MAP, TAG = range(7)


class MalformedError(ValueError):
    """The bytes are not a deterministic encoding of the expected structure."""


def head(major: int, argument: int) -> bytes:
    """Return the shortest head of a data item (RFC 8949, 3).

    ``major`` is the major type 0..6; ``argument`` is a length, count or value below 2**64.
    Raises OverflowError when the argument does not fit.
    """
    top = major << 5
    if argument < 24:
        return bytes((top | argument,))
    if argument < 0x100:
        return bytes((top | 24, argument))
    if argument < 0x10000:
        return bytes((top | 25,)) + argument.to_bytes(2, "big")
    if argument < 0x100000000:
        return bytes((top | 26,)) + argument.to_bytes(4, "big")
    return bytes((top | 27,)) + argument.to_bytes(8, "big")


def uint(value: int) -> bytes:
    """Encode a non-negative integer below 2**64."""
    if value < 0:
        raise OverflowError("a negative integer has no place in an envelope")
    return head(UINT, value)


def byte_string(value: bytes) -> bytes:
    """Encode a byte string."""
    return head(BYTES, len(value)) + value


def text_string(value: str) -> bytes:
    """Encode a text string as UTF-8. Raises UnicodeEncodeError on a lone surrogate."""
    raw = value.encode("utf-8")
    return head(TEXT, len(raw)) + raw


def array(*items: bytes) -> bytes:
    """Encode an array of items that are encoded already."""
    return head(ARRAY, len(items)) + b"".join(items)


class Reader:
    """A strict cursor over one encoded item. Every method raises MalformedError."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def expect(self, literal: bytes) -> None:
        """Step over exactly these bytes."""
        if not self.data.startswith(literal, self.at):
            raise MalformedError(f"expected {literal.hex()} at byte {self.at}")
        self.at += len(literal)

    def head(self, major: int) -> int:
        """Read a head of this major type in its shortest form and return its argument."""
        data, at = self.data, self.at
        if at >= len(data):
            raise MalformedError("truncated")
        first = data[at]
        if first >> 5 != major:
            raise MalformedError(f"major type {first >> 5} where {major} belongs, at byte {at}")
        low = first & 31
        if low < 24:
            self.at = at + 1
            return low
        if low > 27:
            raise MalformedError(f"indefinite or reserved length at byte {at}")
        size = 1 << (low - 24)
        raw = data[at + 1 : at + 1 + size]
        if len(raw) != size:
            raise MalformedError("truncated")
        value = int.from_bytes(raw, "big")
        if value < 24 or (size > 1 and value >> (size * 4) == 0):
            raise MalformedError(f"a length longer than it needs to be at byte {at}")
        self.at = at + 1 + size
        return value

    def _take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise MalformedError("truncated")
        raw = self.data[self.at : end]
        self.at = end
        return raw

    def byte_string(self) -> bytes:
        """Read a definite-length byte string."""
        return self._take(self.head(BYTES))

    def text_string(self) -> str:
        """Read a definite-length text string that is valid UTF-8."""
        try:
            return self._take(self.head(TEXT)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedError(f"text that is not UTF-8 before byte {self.at}") from error

    def end(self) -> None:
        """Insist that nothing follows."""
        if self.at != len(self.data):
            raise MalformedError(f"{len(self.data) - self.at} trailing bytes")
