"""Sparkplug B: values by datatype, and nothing but SparkplugError for other bytes."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pipeline.decode.sparkplug import SparkplugError, decode_payload


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes, wire: int | None = None) -> bytes:
    wire = wire if wire is not None else (2 if isinstance(value, bytes) else 0)
    body = value if wire in (1, 5) else varint(len(value)) + value if isinstance(value, bytes) else varint(value)
    assert isinstance(body, bytes)
    return varint(number << 3 | wire) + body


def metric(name: str, datatype: int, value: bytes, *more: bytes) -> bytes:
    return field(2, field(1, name.encode()) + field(4, datatype) + value + b"".join(more))


@pytest.mark.parametrize(
    ("datatype", "raw", "value"),
    [
        (1, field(10, 0xFF), -1),
        (2, field(10, 0xFFFE), -2),
        (3, field(10, 0xFFFFFFFD), -3),
        (4, field(11, 2**64 - 4), -4),
        (5, field(10, 200), 200),
        (7, field(10, 4_000_000_000), 4_000_000_000),
        (8, field(11, 2**64 - 1), 2**64 - 1),
        (9, field(12, struct.pack("<f", 1.5), 5), 1.5),
        (10, field(13, struct.pack("<d", 21.25), 1), 21.25),
        (11, field(14, 1), True),
        (12, field(15, "grüß".encode()), "grüß"),
        (13, field(11, 1_700_000_000_000), 1_700_000_000_000),
        (17, field(16, b"\0\1"), "AAE="),
        (24, field(16, struct.pack("<3i", 1, -2, 3)), [1, -2, 3]),
        (31, field(16, struct.pack("<2d", 0.5, 2.0)), [0.5, 2.0]),
        (32, field(16, struct.pack("<I", 3) + b"\xa0"), [True, False, True]),
        (33, field(16, b"a\0bc\0"), ["a", "bc"]),
    ],
)
def test_values_in_their_type(datatype: int, raw: bytes, value: Any) -> None:
    payload = field(1, 1_700_000_000_001) + metric("m", datatype, raw) + field(3, 7)
    document = decode_payload(payload)
    assert document["values"] == {"m": value}
    assert (document["timestamp"], document["seq"]) == (1_700_000_000_001, 7)


def test_null_alias_history_and_data_sets() -> None:
    rows = field(4, field(1, field(1, 5)) + field(1, field(6, b"x")))
    data_set = field(1, 2) + field(2, b"n") + field(2, b"s") + field(3, varint(3) + varint(12)) + rows
    payload = metric("none", 10, field(7, 1)) + field(2, field(2, 9) + field(4, 3) + field(10, 1) + field(5, 1))
    document = decode_payload(payload + metric("table", 16, field(17, data_set)))
    assert document["values"]["none"] is None
    assert document["metrics"][1] | {"timestamp": None} == {
        "name": None, "alias": 9, "timestamp": None, "type": "Int32", "value": 1, "historical": True,
    }  # fmt: skip
    assert document["values"]["table"] == {"columns": ["n", "s"], "types": ["Int32", "String"], "rows": [[5, "x"]]}


def test_templates_are_bounded() -> None:
    inner = b""
    for _ in range(12):
        inner = metric("t", 19, field(18, inner))
    with pytest.raises(SparkplugError, match="deeper"):
        decode_payload(inner)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(SparkplugError):
        assert set(decode_payload(data)) >= {"timestamp", "seq", "metrics", "values"}


@given(st.data())
def test_a_cut_payload_is_read_or_refused(data: st.DataObject) -> None:
    whole = metric("m", 10, field(13, struct.pack("<d", 1.0), 1)) + field(3, 300)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with contextlib.suppress(SparkplugError):
        decode_payload(cut)
