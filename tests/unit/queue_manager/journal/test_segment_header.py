"""Segment headers byte for byte as the reference has them; which of two copies counts."""

from __future__ import annotations

from struct import pack

import pytest
from xxhash import xxh3_64_intdigest

from gateway.errors import StoreCorrupt
from gateway.queue_manager.journal.layout import BLOCK, header_area
from gateway.queue_manager.journal.segment import (
    Listed,
    SegmentHeader,
    decode_header,
    encode_header,
    head_length,
    read_header,
)

HEADER = SegmentHeader(
    7,
    3,
    0x1122334455667788,
    b"S" * 16,
    1 << 20,
    900,
    5000,
    1_700_000_000_000_000,
    [Listed(5, 1, 200, 800), Listed(6, 2, 33, 899)],
)


def spelled_out(version: int = 1) -> bytes:
    listed = pack("<QIIQ", 5, 1, 200, 800) + pack("<QIIQ", 6, 2, 33, 899)
    checked = (
        pack("<8sHHIQIIQ16s", b"MQGATSEG", version, 0, 96 + 48, 7, 3, 2, 0x1122334455667788, b"S" * 16)
        + pack("<QQQQ", 1 << 20, 900, 5000, 1_700_000_000_000_000)
        + listed
    )
    return pack("<Q", xxh3_64_intdigest(checked, seed=0x1122334455667788)) + checked


def test_the_bytes_are_those_of_the_reference() -> None:
    assert encode_header(HEADER) == spelled_out().ljust(BLOCK, b"\0")
    assert decode_header(spelled_out()) == HEADER


@pytest.mark.parametrize("place", [0, 8, 20, 24, 40, 80, 100, 143])
def test_any_flipped_bit_is_seen(place: int) -> None:
    data = bytearray(spelled_out())
    data[place] ^= 16
    assert decode_header(bytes(data)) is None
    assert decode_header(spelled_out()[:-1]) is None
    assert decode_header(b"") is None


def test_the_younger_of_two_whole_copies_counts() -> None:
    size = 1 << 20
    area = header_area(size)
    older, younger = encode_header(HEADER), encode_header(HEADER._replace(serial=8, salt=5))
    for first, second in ((older, younger), (younger, older)):
        data = memoryview(first.ljust(area, b"\0") + second.ljust(area, b"\0"))
        assert read_header(data, size)[0] == HEADER._replace(serial=8, salt=5)
    torn = younger[:50].ljust(area, b"\0")
    assert read_header(memoryview(torn + older.ljust(area, b"\0")), size) == (HEADER, False)
    assert read_header(memoryview(torn + bytes(area)), size) == (None, False), "a spare whose first use was cut off"
    assert read_header(memoryview(torn + torn), size) == (None, True)


def test_a_header_that_is_gone_is_told_from_one_that_never_was() -> None:
    size, head = 1 << 20, encode_header(HEADER)
    length = head_length(size)
    assert read_header(memoryview(bytes(length)), size) == (None, False), "a spare"
    frames = bytes(length - BLOCK) + b"frame".ljust(BLOCK, b"\0")
    assert read_header(memoryview(frames), size) == (None, True), "frames are written when both copies are whole"
    assert read_header(memoryview(head[:7]), 7) == (None, True), "a file has its length before it has a header"
    assert read_header(memoryview(b""), 0) == (None, False)


def test_another_format_is_refused_by_name() -> None:
    with pytest.raises(StoreCorrupt, match="format version 2, this program reads 1"):
        decode_header(spelled_out(version=2))


def test_areas() -> None:
    assert [header_area(size) for size in (64 << 10, 4 << 20, 64 << 20, 256 << 20)] == [4096, 4096, 65536, 262144]
