"""Recovery: an index made from segment files. Which segments count, their whole frames in order, and the difference
between damage and a torn tail.

Every segment that the youngest header lists must be there, and whole up to the end that the list gives. The youngest
itself ends at its last whole frame; a whole frame beyond that is damage. Reads files, writes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from gateway.errors import StoreCorrupt, StoreUnavailable
from gateway.queue_manager.journal.decode import (
    FrameHeader,
    Sections,
    frame_at,
    header_alone,
    header_at,
    links_of,
    numbers_in,
    sections_of,
)
from gateway.queue_manager.journal.files import MAKING, DurableFile
from gateway.queue_manager.journal.layout import BLOCK, FRAME_MAGIC, FrameFlag, Kind, padded
from gateway.queue_manager.journal.segment import (
    NAMES,
    SUFFIX,
    Listed,
    Segment,
    SegmentHeader,
    head_length,
    read_header,
    slot_in,
)
from gateway.queue_manager.store.changes import Changes, apply
from gateway.queue_manager.store.index import Index, LaneName
from gateway.queue_manager.store.place import frame_of
from gateway.queue_manager.store.space import BIG_ROW

RESTART_GAP = 1 << 32
"""Numbers that are skipped after a crash: non-persistent messages had numbers, and so MsgIds, that no frame records."""
GAP_OF_A_MINUTE = 1 << 28
"""More numbers than a store can give out in a minute."""
LONGEST_AWAY = 1 << 20
"""The most minutes that count: two years."""

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes to read."""


def skipped(ended: int, now: float) -> int:
    """How many numbers are skipped by a store that was not closed. It may have been restored from a backup, more than
    once, and have been in use in between: so more are skipped for each minute since its last frame."""
    minutes = max(0, int(now - ended / 1_000_000)) // 60
    return RESTART_GAP + GAP_OF_A_MINUTE * min(minutes, LONGEST_AWAY)


@dataclass(slots=True)
class Recovered:
    """What was found in the files."""

    used: list[Segment] = field(default_factory=list)
    spares: list[Segment] = field(default_factory=list)
    clean: bool = True
    """Whether the last process closed the store: writing may go on in the youngest segment."""
    ending: str = ""
    """Where it ends, if it did not close the store."""
    left_out: bool = False
    """Whether something may be missing of the youngest segment: its last frame is not whole, or it has none."""
    store: bytes = b""
    next_sequence: int = 1
    next_number: int = 1
    time: int = 0
    """The time of the last frame, in microseconds."""
    frames: int = 0
    lanes: list[LaneName] = field(default_factory=list)
    """The lanes that the youngest segment has defined, in their order."""


def open_segments(directory: Path, opened: list[Segment], *, direct: bool) -> None:
    """Open every segment file of the directory, with its header if it has one, into `opened`. Files that a killed
    process did not finish making are removed."""
    for left in directory.glob(NAMES + MAKING):
        left.unlink()
    for path in sorted(directory.glob(NAMES)):
        slot = slot_in(path)
        try:
            size = path.stat().st_size
            file = DurableFile(path, direct=direct)
        except OSError as error:
            raise StoreUnavailable(f"{path}: {error.strerror}: the store must be able to read and write it") from error
        segment = Segment(slot, size, path, file)
        segment.ready.set()
        opened.append(segment)
        segment.header, damaged = read_header(_read(path, file, head_length(size)), size)
        if damaged:
            raise StoreCorrupt(
                f"{path}: both copies of its header are damaged; `mqgate journal salvage` reads what is left"
            )


def _read(path: Path, file: DurableFile, length: int) -> memoryview:
    try:
        return memoryview(file.read(length, 0))
    except OSError as error:
        raise StoreUnavailable(
            f"{path}: {error.strerror}: it cannot be read; `mqgate journal salvage` reads what is left"
        ) from error


def in_use(segments: list[Segment]) -> tuple[list[tuple[Segment, Listed | None]], list[Segment]]:
    """The segments in use, oldest first, with their entries in the youngest header's list; and the others."""
    refuse_emptied(segments)
    headed = sorted((segment for segment in segments if segment.header), key=lambda segment: segment.serial)
    if not headed:
        return [], segments
    newest = headed[-1]
    refuse_strangers((segment.path, segment.header) for segment in headed)
    listed = {each.serial: each for each in newest.header.listed} if newest.header else {}
    missing = listed.keys() - {segment.serial for segment in headed}
    if missing:
        lost = ", ".join(f"{listed[serial].slot:08d}{SUFFIX}" for serial in sorted(missing))
        raise StoreCorrupt(
            f"{newest.path.parent}: missing or of another time: {lost}; "
            "restore it, or save the rest with `mqgate journal salvage`"
        )
    used = [
        (segment, listed.get(segment.serial)) for segment in headed if segment.serial in listed or segment is newest
    ]
    chosen = {segment.slot for segment, _ in used}
    return used, [segment for segment in segments if segment.slot not in chosen]


def refuse_emptied(segments: list[Segment]) -> None:
    """Refuse a file without a byte, by raising StoreCorrupt. It was not made so, and may have been the youngest, which
    no other one lists: what it held is lost, and must not be taken for a shorter journal, or a first start."""
    emptied = [segment.path for segment in segments if not segment.size]
    if not emptied:
        return
    others = "what the others hold" if any(segment.header for segment in segments) else "nothing"
    raise StoreCorrupt(
        f"{', '.join(map(str, emptied))}: a segment that is empty has been truncated; put a backup back with "
        f"`mqgate restore --replace`, or move empty files away to begin with {others}"
    )


def refuse_strangers(files: Iterable[tuple[Path, SegmentHeader | None]]) -> None:
    """Refuse files of two journals, or two copies of a file, by raising StoreCorrupt: nobody can tell which of them
    counts."""
    headed = sorted(((path, header) for path, header in files if header), key=lambda each: each[1].serial)
    for (one, header), (other, its_header) in pairwise(headed):
        if header.store != its_header.store:
            raise StoreCorrupt(f"{one} and {other} are of different journals: move the files of one of them away")
        if header.serial == its_header.serial:
            raise StoreCorrupt(f"{one} and {other} are copies of the same segment: move one of them away")


def recover(directory: Path, index: Index, *, direct: bool, progress: Progress | None = None) -> Recovered:
    """Fill the index from the files; they stay open in what is returned."""
    opened: list[Segment] = []
    try:
        open_segments(directory, opened, direct=direct)
        return _recover(opened, index, progress)
    except BaseException:
        for segment in opened:
            if segment.file is not None:
                segment.file.close()
        raise


def _recover(opened: list[Segment], index: Index, progress: Progress | None) -> Recovered:
    used, spares = in_use(opened)
    recovered = Recovered(spares=spares)
    total = sum(_bytes_to_read(segment, listed) for segment, listed in used)
    done = 0
    for segment, listed in used:
        _replay(segment, listed, index, recovered)
        index.space.collect()
        recovered.used.append(segment)
        done += _bytes_to_read(segment, listed)
        if progress is not None:
            progress(done, total)
    return recovered


def _bytes_to_read(segment: Segment, listed: Listed | None) -> int:
    return listed.blocks * BLOCK if listed else segment.size


def _replay(segment: Segment, listed: Listed | None, index: Index, recovered: Recovered) -> None:
    header = segment.header
    if header is None or segment.file is None:
        raise StoreCorrupt(f"{segment.path}: no header")
    recovered.store = header.store
    recovered.next_sequence = header.first_sequence
    recovered.next_number = max(recovered.next_number, header.first_number)
    extent = index.space.open(header.serial, segment.slot)
    data = _read(segment.path, segment.file, _bytes_to_read(segment, listed))
    lanes: list[LaneName] = []
    recovered.lanes = lanes
    segment.end, segment.last_sequence = segment.begin, header.first_sequence - 1
    recovered.clean = False
    for offset, frame in frames_in(data, segment.begin, header, listed):
        sections = sections_of(data, offset, frame)
        changes = changes_of(frame_of(segment.slot, offset // BLOCK), frame, sections, lanes)
        apply(index, extent, changes)
        segment.end, segment.last_sequence = offset + padded(frame.length), frame.sequence
        moved = sum([move.length for move in changes.moves])
        if changes.numbers is None:
            recovered.next_number = max(recovered.next_number, frame.first_number + frame.rows + moved)
        recovered.frames += 1
        recovered.clean, recovered.time = bool(frame.flags & FrameFlag.CLOSE), frame.time
    recovered.next_sequence = segment.last_sequence + 1
    if listed is None:
        if cut := cut_off(segment.size, header):
            raise StoreCorrupt(f"{segment.path}: {cut}; `mqgate journal salvage` reads what is left")
        refuse_frames_beyond(data, segment, header)
        _note_ending(data, segment, header, recovered)
    else:
        if (segment.end, segment.last_sequence) != (listed.blocks * BLOCK, listed.last_sequence):
            raise StoreCorrupt(
                f"{segment.path}: damaged at byte {segment.end}: frame {segment.last_sequence + 1} "
                f"of {listed.last_sequence} is not whole; "
                "`mqgate journal salvage` reads what is left"
            )
        index.space.seal(extent)


def _note_ending(data: memoryview, segment: Segment, header: SegmentHeader, recovered: Recovered) -> None:
    """Note what a killed process was writing, and what is therefore left out; it cannot be told from what was damaged
    since."""
    recovered.ending, recovered.left_out = "", False
    if recovered.clean:
        return
    number, path, end = segment.last_sequence + 1, segment.path, segment.end
    torn = header_alone(data, end)
    if torn is not None and (torn.salt, torn.sequence) == (header.salt, number):
        text = f"frame {number} at byte {end} of {path} is not whole: its {torn.length} bytes are left out"
    elif number == header.first_sequence:
        text = f"{path} has no whole frame: its {segment.size} bytes are left out"
    else:
        recovered.ending = f"the last frame is {number - 1}, and ends at byte {end} of {path}"
        return
    recovered.ending, recovered.left_out = text, True


def frames_in(
    data: memoryview, begin: int, header: SegmentHeader, listed: Listed | None
) -> Iterator[tuple[int, FrameHeader]]:
    """The whole frames of one use of a segment, in order, up to the first that is not whole (or to the listed end)."""
    offset, sequence = begin, header.first_sequence
    while listed is None or sequence <= listed.last_sequence:
        frame = frame_at(data, offset, header.salt, sequence)
        if frame is None:
            return
        yield offset, frame
        offset += padded(frame.length)
        sequence += 1


def cut_off(size: int, header: SegmentHeader) -> str:
    """What is wrong with the size of a file; empty if nothing is. A segment has its full length before its header is
    written: there may have been frames in what is missing."""
    return f"cut off: it has {size} bytes of {header.size}" if size < header.size else ""


def refuse_frames_beyond(data: memoryview, segment: Segment, header: SegmentHeader) -> None:
    """Raise StoreCorrupt if a frame before the last one was damaged."""
    frame = frame_beyond(data, segment.end, header, segment.last_sequence)
    if frame is not None:
        raise StoreCorrupt(f"{segment.path}: {hole(segment.end, segment.last_sequence, frame)}")


def hole(end: int, sequence: int, beyond: FrameHeader) -> str:
    """Says what is wrong where frames end and go on later."""
    return (
        f"damaged at byte {end}: frame {sequence + 1} is not whole but frame {beyond.sequence} after it is; "
        "`mqgate journal salvage` reads what is left"
    )


def frame_beyond(data: memoryview, end: int, header: SegmentHeader, sequence: int) -> FrameHeader | None:
    """A whole frame behind the last one that can be reached, or None. A frame is written only when the one before it is
    durable: if there is one, another was damaged later."""
    for offset in range(end, len(data), BLOCK):
        if data[offset + 8 : offset + 12] == FRAME_MAGIC and header_at(data, offset) is not None:
            frame = frame_at(data, offset, header.salt)
            if frame is not None and frame.sequence > sequence:
                return frame
    return None


def changes_of(place: int, frame: FrameHeader, sections: Sections, lanes: list[LaneName]) -> Changes:
    """What the frame does to an index."""
    links = links_of(sections, lanes, frame.sequence)
    numbers = numbers_in(sections, Kind.NUMBERS, frame.rows) if frame.flags & FrameFlag.CARRIED else None
    longest, lengths = _lengths(sections, frame)
    return Changes(
        place, frame.first_number, links.groups, numbers, links.takes, links.moves, links.backouts, links.state,
        frame.length, longest, lengths,
    )  # fmt: skip


def _lengths(sections: Sections, frame: FrameHeader) -> tuple[int, list[int]]:
    """The length of the longest body, and the lengths row by row if one of them is big."""
    if frame.length < BIG_ROW or Kind.BODY_OFFSETS not in sections:
        return 0, []
    width, content = sections[Kind.BODY_OFFSETS]
    bounds = content.cast("i" if width == 4 else "q").tolist()
    lengths = [end - begin for begin, end in pairwise(bounds)]
    longest = max(lengths, default=0)
    if longest >= BIG_ROW and Kind.BODY_INDEX in sections:
        lengths = [lengths[index] for index in sections[Kind.BODY_INDEX][1].cast("I")]
    return longest, lengths
