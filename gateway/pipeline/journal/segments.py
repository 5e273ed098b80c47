"""The segments of one journal, mapped for reading: frames by their place, with the errors of the pipeline.

The journal's own modules open the files (`queue_manager.journal.mapped_segments`) and decode them. A frame counts only
when magic, salt and checksum agree, so a segment that was recycled meanwhile is noticed, never misread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from gateway.pipeline.errors import DataLost, QueueUnreachable
from gateway.queue_manager.journal.commit_mark import committed
from gateway.queue_manager.journal.decode import FrameHeader, Sections, frame_at, header_alone, sections_of
from gateway.queue_manager.journal.layout import BLOCK
from gateway.queue_manager.journal.mapped_segments import MappedSegment, files_in
from gateway.queue_manager.journal.segment import SegmentHeader, segment_path
from gateway.queue_manager.store.place import block_of


class SegmentUse(NamedTuple):
    """One use of one segment, from opening to recycling. A place has a meaning only together with the use."""

    slot: int
    serial: int
    salt: int


class Segments:
    """The mapped files of one data folder, each opened when first read. Readers that pass bytes on pin them; the
    follower, which lives as long as its query, does not, or the journal could never recycle a segment."""

    def __init__(self, folder: Path, *, pinned: bool = False) -> None:
        self.folder = folder
        self.pinned = pinned
        self._mapped: dict[int, MappedSegment] = {}

    def segment(self, slot: int) -> MappedSegment:
        """The file of a slot."""
        found = self._mapped.get(slot)
        if found is None:
            try:
                found = self._mapped[slot] = MappedSegment(self.folder, slot, pinned=self.pinned)
            except (OSError, ValueError) as error:
                raise DataLost(f"{segment_path(self.folder, slot)} cannot be read: {error}") from error
        return found

    def forget(self) -> None:
        """Drop the mappings: files may have been removed or replaced."""
        self._mapped.clear()

    def headers(self) -> list[SegmentHeader]:
        """The headers of all segments that have one, oldest use first."""
        try:
            os.scandir(self.folder).close()
        except (FileNotFoundError, NotADirectoryError):
            raise QueueUnreachable(
                f"{self.folder} is not a folder: give the data folder of an embedded queue manager"
            ) from None
        except OSError as error:  # names are looked for without a word of it
            raise self._unreadable(error) from error
        files = files_in(self.folder)
        if not files:
            raise QueueUnreachable(
                f"{self.folder} has no journal in it: give the data folder of an embedded queue manager"
            )
        for slot in [slot for slot, mapped in self._mapped.items() if files.get(slot) != mapped.file]:
            del self._mapped[slot]
        found = [self._header(slot) for slot in files]
        return sorted((header for header in found if header), key=lambda header: header.serial)

    def _header(self, slot: int) -> SegmentHeader | None:
        try:
            return self.segment(slot).header()
        except DataLost as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            return None  # just removed: it was free, or is missed where it is listed

    def committed(self) -> int | None:
        """The last frame that counts, if the journal's owner tells it; None: all whole frames count. Asked before the
        headers are read: a header that was written for the frame after a failed one says where the frames before it
        end."""
        try:
            return committed(self.folder)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> QueueUnreachable:
        return QueueUnreachable(
            f"{self.folder} cannot be read ({error.strerror}): run this as the user whose it is, or give the `url` "
            "of its gateway"
        )

    def frame(self, use: SegmentUse, offset: int, sequence: int | None = None) -> FrameHeader | None:
        """The frame at `offset`; None unless it is whole and of this use."""
        return frame_at(self.segment(use.slot).data, offset, use.salt, sequence)

    def sections(self, use: SegmentUse, offset: int, frame: FrameHeader) -> Sections:
        """The frame's sections, as views of the mapping."""
        return sections_of(self.segment(use.slot).data, offset, frame)

    def is_still(self, use: SegmentUse) -> bool:
        """Whether the segment is still in this use, so that what was read from it until now is valid."""
        header = self.segment(use.slot).header()
        return header is not None and header.serial == use.serial

    def frame_of_place(self, use: SegmentUse, frame_number: int) -> tuple[FrameHeader, Sections]:
        """The frame of a place. Raises DataLost if its segment was recycled."""
        offset = block_of(frame_number) * BLOCK
        frame = self.frame(use, offset)
        if frame is None:
            raise DataLost(
                f"{segment_path(self.folder, use.slot)}: the frame at byte {offset} is not what it was when the batch "
                "was planned: its messages were taken from the queue, or the file is damaged"
            )
        return frame, self.sections(use, offset, frame)

    def commit_time(self, use: SegmentUse, frame_number: int) -> int:
        """When a frame was committed, in microseconds; 0 when its segment was recycled. Checksums are not verified."""
        header = header_alone(self.segment(use.slot).data, block_of(frame_number) * BLOCK)
        return header.time if header is not None and header.salt == use.salt else 0
