"""Encode, for a page of rows at once, the envelopes that its columns call for.

An envelope that equals this encoding byte for byte is well formed and agrees with its columns, for
oml.core.envelope accepts one encoding of each event. One that differs is not judged here: the
caller decodes it, and oml.core.chain names the fault or finds that only the JSON is printed in
another way. Lengths up to 64 KiB are handled; longer rows are left to the caller too.
"""

import array
import functools
import sys
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oml.core import cbor, cose, envelope

_LENGTHS = 1 << 16
_SHORT = 1 << 8
_UUIDS = ("tenant_id", "event_id", "caused_by", "artifact_id", "dek_id")
_BIG_TIME = 1 << 32  # below it, microseconds since 1970 have a shorter encoding
_NONE = pa.scalar(None, pa.binary())
_NO_NUMBER = pa.scalar(None, pa.int64())
_FALSE = pa.scalar(False)
_BEFORE_SIGNATURE = cbor.head(cbor.BYTES, cose.SIGNATURE_BYTES)
_TO_BE_SIGNED, _EXTERNAL_AAD = cose.to_be_signed(b"", b"")[:-3], b"\x40"
_COLUMNS = tuple(f.column for f in envelope.FIELDS if f.column not in ("version", "deployment_id"))


class Expected(NamedTuple):
    """A page's rows as lists: columns as stored, type as bytes, the signed message or None.

    A message is the signature followed by the Sig_structure, as libsodium opens it. It is None
    where the envelope is not the one that the columns call for.
    """

    seqs: list[int]
    types: list[bytes]
    kids: list[bytes]
    prevs: list[bytes]
    hashes: list[bytes]
    envelopes: list[bytes]
    messages: list[bytes | None]


def expect(page: pa.Table, tenant_id: bytes, deployment_id: bytes) -> Expected:
    """Compare a page of oml.chain_rows() with what its columns call for; ids have 16 bytes."""
    columns = {name: _plain(page[name]) for name in page.column_names}
    stored = columns["envelope"]
    return Expected(
        columns["seq"].to_pylist(),
        columns["type"].cast(pa.binary()).to_pylist(),
        columns["kid"].to_pylist(),
        columns["prev_hash"].to_pylist(),
        columns["hash"].to_pylist(),
        stored.to_pylist(),
        _messages(columns, tenant_id, deployment_id).to_pylist(),
    )


def row(page: pa.Table, index: int) -> dict[str, Any]:
    """Return one row of a page as oml.core.chain reads it.

    Its texts are bytes if one of them is not UTF-8, which a superuser can store.
    """
    one = _cast(page.slice(index, 1), "occurred_at", pa.int64())
    try:
        found: dict[str, Any] = one.to_pylist()[0]
    except UnicodeDecodeError:
        for field in page.schema:
            if pa.types.is_string(field.type):
                one = _cast(one, field.name, pa.binary())
        found = one.to_pylist()[0]
    return found


def _cast(table: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, name, table[name].cast(kind))


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array: UUIDs as their 16 bytes, text as text."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    if isinstance(whole, pa.ExtensionArray):
        whole = whole.storage
    return whole


def _messages(columns: dict[str, pa.Array], tenant_id: bytes, deployment_id: bytes) -> pa.Array:
    """Return the messages; null where a row is left to the caller."""
    stored = columns["envelope"]
    parts: list[Any] = []
    absent = None
    for field in envelope.FIELDS:
        key = cbor.text_string(field.key)
        if field.column == "version":
            parts.append(key + cbor.uint(envelope.VERSION))
        elif field.column == "deployment_id":
            parts.append(key + cbor.byte_string(deployment_id))
        else:
            column = columns[field.column]
            if column.null_count == len(column) > 0 and not field.required:
                absent = _add(absent, _number(1))
                continue
            encoded = _encoded(field, key, column)
            if field.required or column.null_count == 0:
                parts += encoded  # null, and with it the row, where it does not fit
                continue
            null = pc.is_null(column)
            absent = _add(absent, null.cast(pa.int8()))
            for part in encoded:
                parts.append(pc.if_else(null, _constant(b""), part))
    heads = _map_heads(absent)
    fields = _join(heads, *parts)
    payload = _join(_head(b"", cbor.BYTES, pc.binary_length(fields)), fields)
    header = _protected(columns["kid"])
    before = _join(b"\xd2\x84", header, b"\xa0", payload, _BEFORE_SIGNATURE)
    same = pc.and_(
        pc.equal(before, pc.binary_slice(stored, 0, -cose.SIGNATURE_BYTES)),
        pc.equal(columns["tenant_id"].cast(pa.binary()), _constant(tenant_id)),
    )
    message = _join(
        pc.binary_slice(stored, -cose.SIGNATURE_BYTES),
        _TO_BE_SIGNED, header, _EXTERNAL_AAD, payload,
    )  # fmt: skip
    return pc.if_else(pc.fill_null(same, _FALSE), message, _NONE)


@functools.lru_cache(1000)
def _constant(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.binary())


# Given as a Python value, a constant costs more than the whole kernel that takes it.
@functools.cache
def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.int64())


def _add(one: Any, other: Any) -> Any:
    return other if one is None else pc.add(one, other)


def _join(*parts: Any) -> pa.Array:
    """Concatenate row by row; null where any part is null."""
    scalars = [_constant(p) if isinstance(p, bytes) else p for p in parts]
    return pc.binary_join_element_wise(*scalars, _constant(b""), null_handling="emit_null")


def _head(key: bytes, major: int, arguments: pa.Array) -> pa.Array:
    """Return the encoded key and head for each argument; null outside 0 .. _LENGTHS - 1."""
    bounds = pc.min_max(arguments)
    lowest, highest = bounds["min"].as_py(), bounds["max"].as_py()
    if highest is None or (lowest >= 0 and highest < _SHORT):
        return _heads(key, major, _SHORT).take(arguments)
    fits = pc.and_(pc.greater_equal(arguments, _number(0)), pc.less(arguments, _number(_LENGTHS)))
    arguments = pc.if_else(fits, arguments, _NO_NUMBER)
    return _join(key, _heads(b"", major, _LENGTHS).take(arguments))


@functools.cache
def _heads(key: bytes, major: int, count: int) -> pa.Array:
    """Return the encoded key and head for each argument below ``count``."""
    return pa.array([key + cbor.head(major, n) for n in range(count)], pa.binary())


@functools.cache
def _counts() -> pa.Array:
    return pa.array([cbor.head(cbor.MAP, n) for n in range(len(envelope.FIELDS) + 1)], pa.binary())


def _map_heads(absent: Any) -> Any:
    if absent is None:
        return cbor.head(cbor.MAP, len(envelope.FIELDS))
    if isinstance(absent, pa.Scalar):
        return cbor.head(cbor.MAP, len(envelope.FIELDS) - absent.as_py())
    return _counts().take(pc.subtract(_number(len(envelope.FIELDS)), absent))


def _protected(kids: pa.Array) -> pa.Array:
    """Return the encoded protected headers; null for a kid that is none."""
    before = cose.protected_header(envelope.CONTENT_TYPE, bytes(cose.KID_BYTES))
    start = cbor.byte_string(before)[: -cose.KID_BYTES]
    return _join(start, _sized(kids, cose.KID_BYTES))


def _sized(values: pa.Array, size: int) -> pa.Array:
    """Return byte strings; null for one of another size."""
    right = pc.equal(pc.binary_length(values), _number(size))
    return pc.if_else(right, values, _NONE)


def _encoded(field: envelope.Field, key: bytes, column: pa.Array) -> tuple[pa.Array, ...]:
    """Return the key and value of one field, in one part or two; null where it does not fit."""
    if field.kind == "text" or field.column == "payload":
        raw = _utf8(column)
        major = cbor.TEXT if field.kind == "text" else cbor.BYTES
        return _head(key, major, pc.binary_length(raw)), raw
    if field.kind == "bytes":
        assert field.size is not None
        head = key + cbor.head(cbor.BYTES, field.size)
        return (_join(head, _sized(column.cast(pa.binary()), field.size)),)
    if field.column == "occurred_at":
        return (_join(key + b"\x1b", _big_endian(column.cast(pa.int64()))),)
    return (_small(key, column),)


def _utf8(column: pa.Array) -> pa.Array:
    """Return texts as their bytes; null for one that is not UTF-8."""
    raw = column.cast(pa.binary())
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([value if _is_utf8(value) else None for value in raw.to_pylist()], raw.type)
    return raw


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _small(key: bytes, column: pa.Array) -> pa.Array:
    """Encode unsigned integers, through one table as long as they are below _LENGTHS."""
    wide = column.cast(pa.int64())
    highest = pc.max(wide).as_py()
    if highest is None or highest < _LENGTHS:
        return _head(key, cbor.UINT, wide)
    values = wide.to_pylist()
    encoded = [None if v is None or v < 0 else key + cbor.uint(v) for v in values]
    return pa.array(encoded, pa.binary())


def _big_endian(column: pa.Array) -> pa.Array:
    """Return integers as their 8 bytes, most significant first; null below _BIG_TIME."""
    filled = pc.fill_null(column, _number(0))
    swapped = array.array("q", filled.to_pylist())
    if sys.byteorder == "little":
        swapped.byteswap()
    raw = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(8), len(filled), [None, pa.py_buffer(swapped)]
    ).cast(pa.binary())
    return pc.if_else(pc.greater_equal(filled, _number(_BIG_TIME)), raw, _NONE)
