"""The bytes of a journal: constants and fixed structures. docs/reference/journal-format.md says what they mean.

Everything is little-endian. Nothing here reads or writes a file.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct

VERSION = 1
"""The version of segments and frames. Packed heads are recognised by the form of their section, carried rows by a
flag."""
BLOCK = 4096
"""Frames and headers begin on a multiple of this and are padded to one: what O_DIRECT asks for, and no acknowledged
byte is ever written again because it shares a block with a new one."""

FRAME_MAGIC = b"MQJF"
FRAME = Struct("<Q4sHHQQQQIIHHI")
"""checksum, magic, version, flags, salt, sequence, time, first number, rows, length, sections, 0, 0"""
FRAME_LENGTH = FRAME.size
CHECKED_FROM = 8
"""The checksum (XXH3-64, seeded with the salt) covers everything of a frame or header that follows it."""

SECTION = Struct("<HHI")
"""kind, form, length"""

SEGMENT_MAGIC = b"MQGATSEG"
SEGMENT = Struct("<Q8sHHIQIIQ16sQQQQ")
"""checksum, magic, version, 0, length, serial, slot, listed, salt, store, size, first sequence, first number, time"""
LISTED = Struct("<QIIQ")
"""serial, slot, blocks used, last sequence of a segment that was in use when this header was written"""

MAX_KEY = 0xFFFF
MAX_FRAME = 0x7000_0000
"""The longest frame: what one write takes, with room to spare."""
REMOVED = 0xFFFF_FFFF
"""Length of a state record's value when the record is removed."""


class FrameFlag(IntFlag):
    """What a frame is, beside its sections."""

    CARRIED = 1  # its rows are copies of rows in older segments and keep their numbers
    CLOSE = 2  # written at a clean shutdown: the journal ends here


class Kind(IntEnum):
    """The kinds of a frame's sections. Those below 20 are about rows, the others about messages that are there
    already."""

    LANES = 1
    GROUPS = 2
    HEAD_OFFSETS = 3
    HEADS = 4
    HEAD_INDEX = 5
    BODY_OFFSETS = 6
    BODIES = 7
    BODY_INDEX = 8
    MSG_IDS = 9
    CORREL_IDS = 10
    EXPIRIES = 11
    PUT_TIMES = 12
    NUMBERS = 13
    TAKES = 20
    MOVES = 21
    BACKOUTS = 22
    STATE = 23


EACH = 0
"""Form of a column: a value for each row."""
PACKED = 1
"""Form of HEADS: `store.packed_heads` has packed them, and there are no HEAD_OFFSETS."""
ONE = 1
"""Form of a column: one value for all rows. (Offsets and indexes have the width of an item in bytes as their form.)"""

LANES = Struct("<II")
"""number of the first lane defined here, how many; then the definitions"""
LANE_DEFINITION = Struct("<BBH")
"""priority, length of the queue name, length of the key; then both"""
GROUP = Struct("<II")
"""lane, rows"""
TAKE = Struct("<IIQ")
"""lane, count, first number"""
MOVE = Struct("<IIQQII")
"""from lane, to lane, first number, first number there, count, 0"""
BACKOUT = Struct("<IIQ")
"""lane, count, number"""
STATE = Struct("<HHI")
"""length of the key, 0, length of the value or REMOVED; then both"""


def padded(length: int) -> int:
    """A length rounded up to whole blocks."""
    return -(-length // BLOCK) * BLOCK


def header_area(segment_size: int) -> int:
    """How many bytes each of the two header copies of a segment may take: a thousandth, at least one block."""
    return max(BLOCK, segment_size // 1024 // BLOCK * BLOCK)
