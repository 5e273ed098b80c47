"""Segment files of a journal mapped for reading, beside a running gateway or after it stopped. Writes nothing.

Frames are used only when magic, salt and checksum agree, so a segment that is used again meanwhile is noticed, never
misread. Layout and decoding are the journal's own.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import NamedTuple

from gateway.backends.embedded.journal.decode import FrameHeader, Sections, frame_at, sections_of
from gateway.backends.embedded.journal.layout import BLOCK
from gateway.backends.embedded.journal.segment import SUFFIX, SegmentHeader, read_header, segment_path
from gateway.backends.embedded.store.place import block_of
from gateway.pipeline.failures import DataLost, QueueUnreachable


class Use(NamedTuple):
    """One use of one segment: what a place means only within it."""

    slot: int
    serial: int
    salt: int


class MappedSegment:
    """One file. The mapping stays valid while somebody holds a view of it."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(descriptor).st_size
            self.data = memoryview(mmap.mmap(descriptor, self.size, prot=mmap.PROT_READ))
        finally:
            os.close(descriptor)

    def header(self) -> SegmentHeader | None:
        """The header as it is now."""
        return read_header(self.data, self.size)[0]


class Segments:
    """The mapped files of one data folder, opened when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mapped: dict[int, MappedSegment] = {}

    def segment(self, slot: int) -> MappedSegment:
        """The file of a slot."""
        found = self._mapped.get(slot)
        if found is None:
            try:
                found = self._mapped[slot] = MappedSegment(segment_path(self.folder, slot))
            except (OSError, ValueError) as error:
                raise DataLost(f"{segment_path(self.folder, slot)} cannot be read: {error}") from error
        return found

    def forget(self) -> None:
        """Map anew: files may have been removed or replaced."""
        self._mapped.clear()

    def headers(self) -> list[SegmentHeader]:
        """The headers of all segments that have one, oldest use first."""
        if not self.folder.is_dir():
            raise QueueUnreachable(f"{self.folder} is not a folder: give the data folder of an embedded queue manager")
        found = []
        for path in self.folder.glob("*" + SUFFIX):
            name = path.name.removesuffix(SUFFIX)
            if name.isdigit() and path.stat().st_size:
                found.append(self.segment(int(name)).header())
        return sorted((header for header in found if header), key=lambda header: header.serial)

    def frame(self, use: Use, offset: int, sequence: int | None = None) -> FrameHeader | None:
        """The frame at `offset` if it is a whole one of this use."""
        return frame_at(self.segment(use.slot).data, offset, use.salt, sequence)

    def sections(self, use: Use, offset: int, frame: FrameHeader) -> Sections:
        """The frame's sections, as views of the mapping."""
        return sections_of(self.segment(use.slot).data, offset, frame)

    def frame_of_place(self, use: Use, frame_number: int) -> tuple[FrameHeader, Sections]:
        """The frame a place names; DataLost when its segment is used for something else by now."""
        offset = block_of(frame_number) * BLOCK
        frame = self.frame(use, offset)
        if frame is None:
            raise DataLost(
                f"{segment_path(self.folder, use.slot)}: the frame at byte {offset} is not what it was when the batch "
                "was planned: its messages were taken from the queue, or the file is damaged"
            )
        return frame, self.sections(use, offset, frame)
