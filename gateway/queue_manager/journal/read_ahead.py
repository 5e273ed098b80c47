"""Frames read from a segment together with those that follow: consumers read in order, so the next frame is mostly
there. What is read in order does not go through the page cache: filling that costs ten times the processor time of
reading."""

from __future__ import annotations

import errno
import mmap

from gateway.errors import StoreCorrupt, StoreUnavailable
from gateway.queue_manager.journal.decode import FrameHeader, frame_at, header_alone
from gateway.queue_manager.journal.layout import BLOCK, padded
from gateway.queue_manager.journal.segment import Segment

FIRST_READ = 64 * 1024
SEQUENTIAL_READ = 512 * 1024
UNREADABLE = frozenset({errno.EIO, errno.ENODATA, errno.EILSEQ, errno.EUCLEAN, errno.EBADMSG, errno.EREMOTEIO})
"""The errors of the system for blocks that the disk does not give."""
LARGEST_KEPT = 4 << 20
"""The largest buffer that is kept after it had to grow for a frame."""


class ReadAhead:
    """The part of one use of a segment that was read last. What `frame` returns is valid until the next call."""

    def __init__(self) -> None:
        self._serial = 0
        self._begin = 0
        self._data = memoryview(b"")
        self._buffer: mmap.mmap | None = None

    def frame(self, segment: Segment, offset: int) -> tuple[FrameHeader, memoryview]:
        """The header of the whole frame at `offset`, and its bytes. Raises StoreCorrupt if it is damaged."""
        if segment.file is None or segment.header is None:
            raise StoreUnavailable(f"{segment.path} is not open")
        salt = segment.header.salt
        if segment.serial == self._serial and self._begin <= offset < self._begin + len(self._data):
            view = self._data[offset - self._begin :]
            header = frame_at(view, 0, salt)
            if header is not None:  # otherwise what was read ends within the frame, or the frame was written later
                return header, view
        view = self._read(segment, offset)
        header = frame_at(view, 0, salt)
        if header is None:
            raise _damaged(segment, offset)
        return header, view

    def _read(self, segment: Segment, offset: int) -> memoryview:
        follows = segment.serial == self._serial and self._begin <= offset <= self._begin + len(self._data)
        self._serial, self._data = 0, memoryview(b"")
        try:
            data = self._next_part(segment, offset) if follows or offset == segment.begin else _first(segment, offset)
        except OSError:
            data = _alone(segment, offset)
        if len(data) <= LARGEST_KEPT:
            self._serial, self._begin, self._data = segment.serial, offset, data
        return data

    def _next_part(self, segment: Segment, offset: int) -> memoryview:
        """As much as the buffer takes, and at least the frame at `offset`."""
        data = self._fill(self._buffer or mmap.mmap(-1, SEQUENTIAL_READ), segment, offset)
        length = _missing(data, segment, offset)
        return self._fill(mmap.mmap(-1, padded(length)), segment, offset) if length else data

    def _fill(self, buffer: mmap.mmap, segment: Segment, offset: int) -> memoryview:
        assert segment.file is not None  # noqa: S101 -- `frame` has looked
        self._buffer = buffer if len(buffer) <= LARGEST_KEPT else None
        data = memoryview(buffer)[: segment.size - offset]
        return data[: segment.file.read_into(data, offset)]


def _first(segment: Segment, offset: int) -> memoryview:
    """A frame at any place, read through the page cache, as it may be read again."""
    assert segment.file is not None  # noqa: S101 -- `frame` has looked
    data = segment.file.read(min(FIRST_READ, segment.size - offset), offset)
    length = _missing(memoryview(data), segment, offset)
    if length:
        data += segment.file.read(padded(length) - len(data), offset + len(data))
    return memoryview(data)


def _alone(segment: Segment, offset: int) -> memoryview:
    """A frame without what follows it, where the disk does not give that."""
    assert segment.file is not None  # noqa: S101 -- `frame` has looked
    try:
        data = segment.file.read(BLOCK, offset)
        data += segment.file.read(_missing(memoryview(data), segment, offset) - len(data), offset + len(data))
    except OSError as error:
        if error.errno in UNREADABLE:
            raise _damaged(segment, offset, f" ({error.strerror})") from error
        raise StoreUnavailable(f"{segment.path}: {error.strerror}: cannot read it") from error
    return memoryview(data)


def _damaged(segment: Segment, offset: int, why: str = "") -> StoreCorrupt:
    return StoreCorrupt(
        f"{segment.path}: damaged at byte {offset}{why}; `mqgate journal check` says how far, "
        "`mqgate journal salvage` reads what is left"
    )


def _missing(data: memoryview, segment: Segment, offset: int) -> int:
    """The length of the frame with which these bytes begin, if they are not all of it; else 0."""
    header = header_alone(data, 0)
    return header.length if header is not None and len(data) < header.length <= segment.size - offset else 0
