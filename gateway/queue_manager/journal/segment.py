"""One segment file: two copies of a header that says which use of the file this is, then frames to its end.

The copies are written one after the other, each durable before the next begins, so that a torn header never looks like
a missing segment: whichever copy is whole counts, the younger one if both are.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from gateway.errors import StoreCorrupt, StoreUnavailable
from gateway.queue_manager.journal.files import Buffers, DurableFile
from gateway.queue_manager.journal.layout import (
    BLOCK,
    CHECKED_FROM,
    LISTED,
    SEGMENT,
    SEGMENT_MAGIC,
    VERSION,
    header_area,
    padded,
)
from gateway.queue_manager.store.place import BLOCK_BITS, MAX_SLOT

SUFFIX = ".segment"
NAMES = "[0-9]" * 8 + SUFFIX
"""A pattern of the names of segment files."""


class Listed(NamedTuple):
    """A segment that was in use when a younger one was opened."""

    serial: int
    slot: int
    blocks: int
    """Blocks from the start of the file to the end of its last frame."""
    last_sequence: int


class SegmentHeader(NamedTuple):
    """The header of one use of a segment, of which there are two equal copies."""

    serial: int
    slot: int
    salt: int
    store: bytes
    size: int
    first_sequence: int
    first_number: int
    time: int
    listed: Sequence[Listed]


@dataclass(slots=True)
class Segment:
    """A segment file, and where the next frame goes. `ready` is set when its blocks exist; `error` says why they do
    not."""

    slot: int
    size: int
    path: Path
    file: DurableFile | None = None
    ready: threading.Event = field(default_factory=threading.Event)
    error: OSError | None = None
    header: SegmentHeader | None = None
    end: int = 0
    last_sequence: int = 0

    @property
    def begin(self) -> int:
        """The offset of the first frame."""
        return 2 * header_area(self.size)

    @property
    def store(self) -> bytes:
        """The store its header names."""
        return self.header.store if self.header else b""

    @property
    def serial(self) -> int:
        """The number of this use of the segment, ascending over the life of a store; 0 while unused."""
        return self.header.serial if self.header else 0


@dataclass(slots=True)
class FramePosition:
    """Where a frame goes. `opening` is the header to write first, if the frame is the first of its segment."""

    segment: Segment
    offset: int
    size: int
    """The size of the frame, in whole blocks."""
    opening: SegmentHeader | None
    salt: int


def slot_in(path: Path) -> int:
    """The slot in the name of a file. Raises StoreCorrupt if no segment can have it."""
    slot = int(path.name.removesuffix(SUFFIX))
    if slot > MAX_SLOT:
        raise StoreCorrupt(f"{path}: no segment has a number above {MAX_SLOT}: move this file away")
    return slot


def segment_path(directory: Path, slot: int) -> Path:
    """The file of a slot."""
    return directory / f"{slot:08d}{SUFFIX}"


def size_for(length: int) -> int:
    """The size of a segment that holds a single frame of `length` bytes. Raises StoreUnavailable if no segment can be
    as large."""
    size = padded(length + 2 * BLOCK)
    while size - 2 * header_area(size) < length:
        size += 2 * BLOCK
    if size // BLOCK >= 1 << BLOCK_BITS:
        raise StoreUnavailable(f"a unit of work of {length} bytes is larger than any segment can be: split it")
    return size


def listing_room(segment_size: int) -> int:
    """How many segments a header can list; no more may be in use."""
    return (header_area(segment_size) - SEGMENT.size) // LISTED.size


def encode_header(header: SegmentHeader) -> bytes:
    """One copy of a header, padded to whole blocks."""
    listed = header.listed
    length = SEGMENT.size + LISTED.size * len(listed)
    content = SEGMENT.pack(
        0, SEGMENT_MAGIC, VERSION, 0, length, header.serial, header.slot, len(listed), header.salt, header.store,
        header.size, header.first_sequence, header.first_number, header.time,
    ) + b"".join([LISTED.pack(*each) for each in listed])  # fmt: skip
    checksum = xxh3_64_intdigest(content[CHECKED_FROM:], seed=header.salt)
    return (checksum.to_bytes(8, "little") + content[CHECKED_FROM:]).ljust(padded(length), b"\0")


def decode_header(data: bytes) -> SegmentHeader | None:
    """The header, or None if these bytes are not a whole one. Raises StoreCorrupt if another release wrote it."""
    if len(data) < SEGMENT.size:
        return None
    (checksum, magic, version, _0, length, serial, slot, count, salt, store, size, sequence, number, time) = (
        SEGMENT.unpack_from(data)
    )
    if (
        magic != SEGMENT_MAGIC
        or not SEGMENT.size <= length <= len(data)
        or length != SEGMENT.size + LISTED.size * count
    ):
        return None
    if xxh3_64_intdigest(data[CHECKED_FROM:length], seed=salt) != checksum:
        return None
    if version != VERSION:
        raise StoreCorrupt(
            f"segment {slot} has format version {version}, this program reads {VERSION}: use the release that wrote "
            "it, or put back a backup of before (`mqgate restore`)"
        )
    listed = [Listed(*each) for each in LISTED.iter_unpack(data[SEGMENT.size : length])]
    return SegmentHeader(serial, slot, salt, store, size, sequence, number, time, listed)


def write_header(file: DurableFile, header: SegmentHeader, buffers: Buffers) -> None:
    """Begin a new use of the segment: write both copies, one after the other."""
    area = header_area(header.size)
    content = encode_header(header)
    buffer = buffers.take(len(content))
    block = buffer[: len(content)]
    block[:] = content
    file.write(block, 0)
    file.write(block, area)
    buffers.give(buffer)


def read_header(data: memoryview, size: int) -> tuple[SegmentHeader | None, bool]:
    """The valid copy (the younger of two), and whether the copies are damaged in a way that no power cut explains: the
    second is written when the first is whole, and frames when both are. `data`: the first `head_length(size)` bytes."""
    area = header_area(size)
    copies = [bytes(data[at : at + area]) for at in (0, area)]
    headers = [decode_header(copy) for copy in copies]
    valid = [header for header in headers if header is not None]
    if valid:
        return max(valid, key=lambda header: header.serial), False
    cut_off = size < head_length(size) and any(copies[0])
    return None, cut_off or any(copies[1][:BLOCK]) or any(data[2 * area : head_length(size)])


def head_length(size: int) -> int:
    """How many bytes of a file tell what it is: both copies of the header, and the block in which its first frame
    begins."""
    return 2 * header_area(size) + BLOCK
