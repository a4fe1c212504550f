"""What a signer's client and omld say to each other over a Unix socket: protocol version 1.

A frame is four bytes of length, then that many bytes. All numbers are unsigned and big-endian. The
client sends one request and waits for its one answer; a connection serves any number of them.

A request: version (1 byte), operation (1 byte), content.

============ ======================================= =========================================
operation    content                                 content of the answer
============ ======================================= =========================================
1 sign       kid (8), the CBOR map of an event       the 64-byte Ed25519 signature
2 keys       nothing                                 deployment id (16), public keys (32 each)
3 wrap       length (2) and name of the KEK, length  the wrapped bytes
             (4) and additional data, plaintext
4 unwrap     as wrap, with the wrapped bytes last    the plaintext
5 checkpoint kid (8), deployment id (16), tenant id  the 64-byte Ed25519 signature
             (16), generation (4), size (8), root
             (32)
6 first wrap as wrap; a KEK that is missing is made  as wrap
============ ======================================= =========================================

An answer: version (1 byte), 0 for done or 1 for refused (1 byte), content. That of a refusal is an
SQLSTATE of class OM (5 bytes), the length (2) and text of a message, the text of a hint, in UTF-8.
A server that will not serve a connection sends a refusal unasked and closes it.
"""

import re
import struct
import uuid

from . import keys, note

VERSION = 1
SIGN, KEYS, WRAP, UNWRAP, CHECKPOINT, FIRST_WRAP = 1, 2, 3, 4, 5, 6
LENGTH_BYTES = 4
MAX_REQUEST_BYTES = 2 * 1024 * 1024
"""A payload of 1 MiB with its claims has half of this."""
MAX_ANSWER_BYTES = 256 * 1024
MAX_SECRET_BYTES = 64 * 1024
"""Of what is wrapped, of its additional data, and of what that gives, less a little."""

_DONE, _REFUSED = 0, 1
_OM_STATE = re.compile(rb"OM[0-9]{3}")
_WRAP_HEAD = struct.Struct(">H")
_AAD_HEAD = struct.Struct(">I")
_FRAME_HEAD = struct.Struct(">I")
_TREE_HEAD = struct.Struct(">8s16s16sIQ32s")


class ProtocolError(ValueError):
    """The bytes are not a message of this protocol."""


def request(operation: int, *parts: bytes) -> bytes:
    """Return the whole frame of a request."""
    return _frame(bytes((VERSION, operation)), *parts)


def wrapping(operation: int, kek: str, content: bytes, aad: bytes) -> bytes:
    """Return the whole frame of a request to wrap or unwrap."""
    name = kek.encode("utf-8")
    return request(
        operation, _WRAP_HEAD.pack(len(name)), name, _AAD_HEAD.pack(len(aad)), aad, content
    )


def checkpointing(kid: bytes, head: note.TreeHead) -> bytes:
    """Return the whole frame of a request to sign a checkpoint. Raises note.NoteError."""
    _ = head.text  # its numbers are in range then, and its root has 32 bytes
    content = _TREE_HEAD.pack(
        kid, head.deployment_id.bytes, head.tenant_id.bytes, head.generation, head.size, head.root
    )
    return request(CHECKPOINT, content)


def answer(content: bytes) -> bytes:
    """Return the whole frame of an answer."""
    return _frame(bytes((VERSION, _DONE)), content)


def refusal(error: keys.SignerError) -> bytes:
    """Return the whole frame of a refusal. Long texts are cut."""
    text, more = (part.encode("utf-8", "replace")[:2000] for part in (error.message, error.hint))
    head = bytes((VERSION, _REFUSED)) + error.sqlstate.encode()
    return _frame(head, _WRAP_HEAD.pack(len(text)), text, more)


def _frame(*parts: bytes) -> bytes:
    return b"".join((_FRAME_HEAD.pack(sum(map(len, parts))), *parts))


def frame_length(head: bytes | bytearray) -> int:
    """Return the length that the first four bytes of a frame announce."""
    return int(_FRAME_HEAD.unpack_from(head)[0])


def read_request(body: bytes) -> tuple[int, bytes]:
    """Take a request's frame, without its length, apart into operation and content.

    Raises ProtocolError.
    """
    if len(body) < 2 or body[0] != VERSION:
        raise ProtocolError(f"not a request of protocol version {VERSION}")
    if body[1] not in (SIGN, KEYS, WRAP, UNWRAP, CHECKPOINT, FIRST_WRAP):
        raise ProtocolError(f"operation {body[1]} is not known")
    return body[1], body[2:]


def read_wrapping(content: bytes) -> tuple[str, bytes, bytes]:
    """Return the KEK's name, the additional data and the last part. Raises ProtocolError."""
    try:
        (size,) = _WRAP_HEAD.unpack_from(content)
        at = _WRAP_HEAD.size + size
        name = content[_WRAP_HEAD.size : at].decode("utf-8")
        (size,) = _AAD_HEAD.unpack_from(content, at)
    except (struct.error, UnicodeDecodeError):
        raise ProtocolError("a request to wrap that is cut short") from None
    at += _AAD_HEAD.size
    aad = content[at : at + size]
    if len(aad) != size:
        raise ProtocolError("a request to wrap that is cut short")
    return name, aad, content[at + size :]


def read_tree_head(content: bytes) -> tuple[bytes, note.TreeHead]:
    """Return the kid and what it is to sign. Raises ProtocolError."""
    if len(content) != _TREE_HEAD.size:
        raise ProtocolError("a request to sign a checkpoint that has another length")
    kid, deployment, tenant, generation, size, root = _TREE_HEAD.unpack(content)
    head = note.TreeHead(
        uuid.UUID(bytes=deployment), uuid.UUID(bytes=tenant), generation, size, root
    )
    return kid, head


def read_answer(body: bytes) -> bytes:
    """Return the content of an answer's frame, without its length.

    Raises keys.SignerError for a refusal, ProtocolError for anything but an answer.
    """
    if len(body) < 2 or body[0] != VERSION or body[1] not in (_DONE, _REFUSED):
        raise ProtocolError(f"not an answer of protocol version {VERSION}")
    if body[1] == _DONE:
        return body[2:]
    sqlstate, texts = body[2:7], body[7:]
    if not _OM_STATE.fullmatch(sqlstate) or len(texts) < _WRAP_HEAD.size:
        raise ProtocolError("a refusal that is malformed")
    (size,) = _WRAP_HEAD.unpack_from(texts)
    at = _WRAP_HEAD.size + size
    message, hint = (
        # A NUL has no place in a text of PostgreSQL's.
        part.decode("utf-8", "replace").replace("\0", "")
        for part in (texts[_WRAP_HEAD.size : at], texts[at:])
    )
    raise keys.SignerError(sqlstate.decode(), message, hint)
