"""Frames read from a segment, with what lies behind them: consumers read in order, so the next is mostly there."""

from __future__ import annotations

from gateway.backends.embedded.journal.decode import FrameHeader, frame_at, header_alone
from gateway.backends.embedded.journal.layout import padded
from gateway.backends.embedded.journal.segment import Segment
from gateway.errors import StoreCorrupt, StoreUnavailable

FIRST_READ = 64 * 1024
SEQUENTIAL_READ = 512 * 1024


class ReadAhead:
    """The last stretch that was read, of one use of one segment."""

    def __init__(self) -> None:
        self._serial = 0
        self._begin = 0
        self._data = b""

    def frame(self, segment: Segment, offset: int) -> tuple[FrameHeader, memoryview]:
        """The whole frame at `offset` and its bytes."""
        if segment.file is None or segment.header is None:
            raise StoreUnavailable(f"{segment.path} is not open")
        salt = segment.header.salt
        if segment.serial == self._serial and self._begin <= offset < self._begin + len(self._data):
            view = memoryview(self._data)[offset - self._begin :]
            header = frame_at(view, 0, salt)  # None: the stretch ends within it, or it was written after the reading
            if header is not None:
                return header, view
        view = memoryview(self._read(segment, offset))
        header = frame_at(view, 0, salt)
        if header is None:
            raise StoreCorrupt(
                f"{segment.path}: damaged at byte {offset}; `mqgate journal check` says how far, "
                "`mqgate journal salvage` reads what is left"
            )
        return header, view

    def _read(self, segment: Segment, offset: int) -> bytes:
        file = segment.file
        if file is None:
            raise StoreUnavailable(f"{segment.path} is not open")
        near = segment.serial == self._serial and self._begin <= offset <= self._begin + len(self._data)
        try:
            data = file.read(min(SEQUENTIAL_READ if near else FIRST_READ, segment.size - offset), offset)
            header = header_alone(memoryview(data), 0)
            if header is not None and len(data) < header.length <= segment.size - offset:
                data += file.read(padded(header.length) - len(data), offset + len(data))
        except OSError as error:
            raise StoreUnavailable(f"{segment.path}: {error.strerror}: cannot read it") from error
        if len(data) <= 2 * SEQUENTIAL_READ:
            self._serial, self._begin, self._data = segment.serial, offset, data
        return data
