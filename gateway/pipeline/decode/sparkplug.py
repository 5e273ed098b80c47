"""Sparkplug B payloads (Eclipse Sparkplug 3.0, chapter 6.4) to plain values. Reads the protobuf wire format itself.

A payload is untrusted: every length is checked against what is there, nesting is bounded, and anything that is not a
payload ends as `SparkplugError`. Unknown fields are skipped, as protobuf asks.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any

from gateway.pipeline.errors import PipelineError

MAX_DEPTH = 8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGNED_BITS = {1: 8, 2: 16, 3: 32, 4: 64}
_UNSIGNED_BITS = {5: 8, 6: 16, 7: 32, 8: 64}
DATA_TYPES = {
    1: "Int8", 2: "Int16", 3: "Int32", 4: "Int64", 5: "UInt8", 6: "UInt16", 7: "UInt32", 8: "UInt64", 9: "Float",
    10: "Double", 11: "Boolean", 12: "String", 13: "DateTime", 14: "Text", 15: "UUID", 16: "DataSet", 17: "Bytes",
    18: "File", 19: "Template", 20: "PropertySet", 21: "PropertySetList", 22: "Int8Array", 23: "Int16Array",
    24: "Int32Array", 25: "Int64Array", 26: "UInt8Array", 27: "UInt16Array", 28: "UInt32Array", 29: "UInt64Array",
    30: "FloatArray", 31: "DoubleArray", 32: "BooleanArray", 33: "StringArray", 34: "DateTimeArray",
}  # fmt: skip
_ARRAY_ITEMS = {22: "b", 23: "h", 24: "i", 25: "q", 26: "B", 27: "H", 28: "I", 29: "Q", 30: "f", 31: "d", 34: "Q"}

Field = tuple[int, int, Any]
Document = dict[str, Any]


class SparkplugError(PipelineError):
    """Bytes are not a Sparkplug B payload."""


def decode_payload(data: bytes) -> Document:
    """`timestamp`, `seq`, `uuid`, `body`, `metrics` (a list) and `values` (name to value, the last one wins)."""
    metrics: list[Document] = []
    document: Document = {"timestamp": None, "seq": None, "metrics": metrics, "values": {}}
    for number, wire, value in _fields(data):
        if number == 1:
            document["timestamp"] = _unsigned(wire, value)
        elif number == 2:
            metrics.append(_metric(_message(wire, value), 0))
        elif number == 3:
            document["seq"] = _unsigned(wire, value)
        elif number == 4:
            document["uuid"] = _text(wire, value)
        elif number == 5:
            document["body"] = _base64(wire, value)
    document["values"] = {metric["name"]: metric["value"] for metric in metrics if metric["name"] is not None}
    return document


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise SparkplugError(f"a number at byte {at} does not end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7


def _fields(data: bytes) -> Iterator[Field]:
    """Every (field number, wire type, value) of one message."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == _VARINT:
            value, at = _varint(data, at)
        else:
            size, at = _size(data, wire, at)
            if size > end - at:
                raise SparkplugError(f"field {number} at byte {at} wants {size} bytes, {end - at} are left")
            value, at = data[at : at + size], at + size
        if number == 0:
            raise SparkplugError(f"field number 0 at byte {at}")
        yield number, wire, value


def _size(data: bytes, wire: int, at: int) -> tuple[int, int]:
    if wire == _BYTES:
        return _varint(data, at)
    if wire == _FIXED64:
        return 8, at
    if wire == _FIXED32:
        return 4, at
    raise SparkplugError(f"wire type {wire} at byte {at} is not used by Sparkplug B")


def _message(wire: int, value: Any) -> bytes:
    if wire != _BYTES:
        raise SparkplugError(f"a length-delimited field has wire type {wire}")
    return bytes(value)


def _unsigned(wire: int, value: Any) -> int:
    if wire != _VARINT:
        raise SparkplugError(f"an integer field has wire type {wire}")
    return int(value)


def _text(wire: int, value: Any) -> str:
    try:
        return _message(wire, value).decode()
    except UnicodeDecodeError as error:
        raise SparkplugError(f"a string field is not UTF-8: {error.reason} at byte {error.start}") from error


def _base64(wire: int, value: Any) -> str:
    return base64.b64encode(_message(wire, value)).decode()


def _number(code: str, wire: int, value: Any) -> float:
    if wire != (_FIXED32 if code == "<f" else _FIXED64):
        raise SparkplugError(f"a float field has wire type {wire}")
    return float(struct.unpack(code, value)[0])


def _metric(data: bytes, depth: int) -> Document:
    """One metric with its value in the type that its datatype says."""
    if depth > MAX_DEPTH:
        raise SparkplugError(f"templates are nested deeper than {MAX_DEPTH}")
    metric: Document = {"name": None, "alias": None, "timestamp": None, "type": None, "value": None}
    datatype, is_null = 0, False
    held: Field | None = None
    for number, wire, value in _fields(data):
        if number == 1:
            metric["name"] = _text(wire, value)
        elif number in (2, 3):
            metric["alias" if number == 2 else "timestamp"] = _unsigned(wire, value)
        elif number == 4:
            datatype = _unsigned(wire, value)
        elif number in (5, 6) and _unsigned(wire, value):
            metric["historical" if number == 5 else "transient"] = True
        elif number == 7:
            is_null = bool(_unsigned(wire, value))
        elif 10 <= number <= 18:
            held = (number, wire, value)
    metric["type"] = DATA_TYPES.get(datatype)
    if held is not None and not is_null:
        metric["value"] = _value(datatype, held, depth)
    return metric


def _value(datatype: int, held: Field, depth: int) -> Any:
    number, wire, value = held
    if number in (10, 11):
        return signed(datatype, _unsigned(wire, value))
    if number in (12, 13):
        return _number("<f" if number == 12 else "<d", wire, value)
    if number == 14:
        return bool(_unsigned(wire, value))
    if number == 15:
        return _text(wire, value)
    if number == 16:
        return _array(datatype, _message(wire, value))
    if number == 17:
        return _data_set(_message(wire, value))
    return _template(_message(wire, value), depth + 1)


def signed(datatype: int, value: int) -> int:
    """Integers travel as unsigned numbers in two's complement (6.4.16); the datatype says how many bits count."""
    bits = _SIGNED_BITS.get(datatype)
    if bits is None:
        return value & ((1 << _UNSIGNED_BITS.get(datatype, 64)) - 1)
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _array(datatype: int, data: bytes) -> Any:
    """Arrays are packed little-endian in bytes_value (6.4.17); other bytes are given as Base64."""
    code = _ARRAY_ITEMS.get(datatype)
    if code is not None:
        if len(data) % struct.calcsize("<" + code):
            raise SparkplugError(f"{DATA_TYPES[datatype]} of {len(data)} bytes does not divide into items")
        return list(struct.unpack(f"<{len(data) // struct.calcsize('<' + code)}{code}", data))
    if datatype == 32:
        return _booleans(data)
    if datatype == 33:
        return [item.decode(errors="replace") for item in data.split(b"\0")[:-1]]
    return base64.b64encode(data).decode()


def _booleans(data: bytes) -> list[bool]:
    """A count in four bytes, then bits, most significant first."""
    count = int.from_bytes(data[:4], "little")
    if len(data) < 4 or count > (len(data) - 4) * 8:
        raise SparkplugError(f"BooleanArray says {count} items in {len(data)} bytes")
    return [bool(data[4 + at // 8] & (0x80 >> at % 8)) for at in range(count)]


def _data_set(data: bytes) -> Document:
    columns: list[str] = []
    types: list[int] = []
    rows: list[bytes] = []
    for number, wire, value in _fields(data):
        if number == 2:
            columns.append(_text(wire, value))
        elif number == 3:
            types.extend(_packed(wire, value))
        elif number == 4:
            rows.append(_message(wire, value))
    if len(types) != len(columns):
        raise SparkplugError(f"a data set has {len(columns)} columns and {len(types)} types")
    return {
        "columns": columns,
        "types": [DATA_TYPES.get(code) for code in types],
        "rows": [_row(row, types) for row in rows],
    }


def _packed(wire: int, value: Any) -> list[int]:
    if wire == _VARINT:
        return [int(value)]
    data, at, numbers = _message(wire, value), 0, []
    while at < len(data):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers


def _row(data: bytes, types: list[int]) -> list[Any]:
    """The cells of one row; a cell's fields are numbered from 1 where a metric's are from 10."""
    cells = [_message(wire, value) for number, wire, value in _fields(data) if number == 1]
    if len(cells) != len(types):
        raise SparkplugError(f"a data set row has {len(cells)} cells for {len(types)} columns")
    row: list[Any] = []
    for cell, datatype in zip(cells, types, strict=True):
        held = next(iter(_fields(cell)), None)
        row.append(None if held is None or held[0] > 6 else _value(datatype, (held[0] + 9, held[1], held[2]), 0))
    return row


def _template(data: bytes, depth: int) -> Document:
    template: Document = {"version": None, "template_ref": None, "metrics": []}
    for number, wire, value in _fields(data):
        if number == 1:
            template["version"] = _text(wire, value)
        elif number == 2:
            template["metrics"].append(_metric(_message(wire, value), depth))
        elif number == 4:
            template["template_ref"] = _text(wire, value)
    return template
