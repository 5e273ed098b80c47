"""The segments of one journal as the pipeline reads them: frames by their place, and what is wrong told in its terms.

The files are opened by the journal's own door (`journal.mapping`), layout and decoding are the journal's. Frames count
only when magic, salt and checksum agree, so a segment that is used again meanwhile is noticed, never misread.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from gateway.pipeline.failures import DataLost, QueueUnreachable
from gateway.pipeline.source.lookup import Run
from gateway.queue_manager.journal.decode import FrameHeader, Sections, frame_at, header_alone, sections_of
from gateway.queue_manager.journal.layout import BLOCK
from gateway.queue_manager.journal.mapping import MappedSegment, slots_in
from gateway.queue_manager.journal.segment import SegmentHeader, segment_path
from gateway.queue_manager.store.place import ROW_BITS, block_of, slot_of


class Use(NamedTuple):
    """One use of one segment: what a place means only within it."""

    slot: int
    serial: int
    salt: int


class Segments:
    """The mapped files of one data folder, opened when first asked for. Whoever hands out bytes pins them; the
    follower, which lives as long as its query, does not, or the journal could never use a segment again."""

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
        """Map anew: files may have been removed or replaced."""
        self._mapped.clear()

    def headers(self) -> list[SegmentHeader]:
        """The headers of all segments that have one, oldest use first."""
        if not self.folder.is_dir():
            raise QueueUnreachable(f"{self.folder} is not a folder: give the data folder of an embedded queue manager")
        found = [self.segment(slot).header() for slot in slots_in(self.folder)]
        return sorted((header for header in found if header), key=lambda header: header.serial)

    def frame(self, use: Use, offset: int, sequence: int | None = None) -> FrameHeader | None:
        """The frame at `offset` if it is a whole one of this use."""
        return frame_at(self.segment(use.slot).data, offset, use.salt, sequence)

    def sections(self, use: Use, offset: int, frame: FrameHeader) -> Sections:
        """The frame's sections, as views of the mapping."""
        return sections_of(self.segment(use.slot).data, offset, frame)

    def is_still(self, use: Use) -> bool:
        """Whether the segment has not begun another use: what was read from it until now is what it was."""
        header = self.segment(use.slot).header()
        return header is not None and header.serial == use.serial

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

    def commit_time(self, use: Use, frame_number: int) -> int:
        """When a frame was committed, in microseconds; what its checksum says is not asked."""
        header = header_alone(self.segment(use.slot).data, block_of(frame_number) * BLOCK)
        return header.time if header is not None and header.salt == use.salt else 0


def first_since(segments: Segments, runs: list[Run], uses: dict[int, Use], micros: int) -> int | None:
    """The number of the first message committed at that time or later: frames lie in the order of their times."""

    def time_of(run: Run) -> int:
        number = run.place >> ROW_BITS
        return segments.commit_time(uses[slot_of(number)], number)

    at = bisect_left(runs, micros, key=time_of)
    return runs[at].first if at < len(runs) else None
