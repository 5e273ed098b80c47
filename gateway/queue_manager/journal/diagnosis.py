"""Examining a journal that no process has open: whether it is whole (`check`), its frames (`dump`), and what can be
read of a damaged one (`salvage`). Nothing is written. Each function is a generator of plain records, with a progress
callback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from gateway.errors import StoreCorrupt, StoreUnavailable
from gateway.queue_manager.journal.decode import (
    FrameHeader,
    Links,
    LostLanes,
    Rows,
    frame_at,
    header_at,
    links_of,
    rows_of,
    sections_of,
)
from gateway.queue_manager.journal.layout import BLOCK, FRAME_MAGIC, FrameFlag, header_area, padded
from gateway.queue_manager.journal.lock import DirectoryLock
from gateway.queue_manager.journal.recovery import Progress, changes_of, cut_off, in_use, refuse_strangers
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
from gateway.queue_manager.store.changes import apply
from gateway.queue_manager.store.index import Index
from gateway.queue_manager.store.place import NUMBER_BITS, ROW_BITS, ROW_MASK, frame_of
from gateway.queue_manager.store.unit import Message

_STEP = 1 << 20


class Problem(NamedTuple):
    """One thing that is wrong."""

    path: Path
    offset: int
    what: str


class Verdict(NamedTuple):
    """The last record of `check`."""

    segments: int
    spare: int
    frames: int
    messages: int
    state_records: int
    bytes: int
    closed: bool
    """Whether the last process closed the store in order."""
    problems: int


class FrameRecord(NamedTuple):
    """One frame, as it is shown to people."""

    path: Path
    offset: int
    sequence: int
    time: int
    length: int
    flags: FrameFlag
    first_number: int
    rows: int
    links: Links


class Salvaged(NamedTuple):
    """A message that can still be read. Its queue is "?" if the frame that named it is lost."""

    queue: str
    key: bytes
    priority: int
    message: Message


class SalvagedState(NamedTuple):
    """A state record that can still be read."""

    key: bytes
    value: bytes


@dataclass(slots=True)
class _File:
    """A segment file as found."""

    path: Path
    size: int
    header: SegmentHeader | None
    damaged: bool
    data: memoryview = field(default_factory=lambda: memoryview(b""))

    @property
    def begin(self) -> int:
        return 2 * header_area(self.header.size if self.header is not None else self.size)


def _locked(directory: Path) -> DirectoryLock:
    if not directory.is_dir():
        raise StoreUnavailable(f"{directory}: no such directory; name the store's directory")
    return DirectoryLock(directory)


def _files(directory: Path) -> list[_File]:
    files: list[_File] = []
    paths = sorted(directory.glob(NAMES))
    if not paths:
        raise StoreUnavailable(f"{directory}: no journal here (no *{SUFFIX} files); name the store's directory")
    for path in paths:
        slot_in(path)
        size = _size_of(path)
        try:
            data, whole = _readable(path, head_length(size))
            header, damaged = read_header(data, size)
        except StoreCorrupt:
            header, damaged, whole = None, True, True
        damaged = damaged or (header is None and not whole)
        files.append(_File(path, size, header, damaged))
    return files


def _size_of(path: Path) -> int:
    """The size of a file. Raises StoreUnavailable if it is not a regular file, as reading that might never end."""
    try:
        status = path.stat()
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}: move it away, or put the file back") from error
    if not S_ISREG(status.st_mode):
        raise StoreUnavailable(f"{path}: it is no file: move it away, or put the file back")
    return status.st_size


def _readable(path: Path, length: int) -> tuple[memoryview, bool]:
    """The beginning of a file, and whether the disk gives all of it; blocks that it does not give are zeros."""
    data, whole = bytearray(length), True
    with path.open("rb", buffering=0) as opened:
        for at in range(0, length, BLOCK):
            try:
                part = os.pread(opened.fileno(), min(BLOCK, length - at), at)
                data[at : at + len(part)] = part
            except OSError:
                whole = False
    return memoryview(data), whole


def _load(file: _File) -> None:
    """Load a file's bytes: mapped, or into memory if the disk does not give all of them, since a mapping would end the
    process there."""
    with file.path.open("rb", buffering=0) as opened:
        if not file.size:
            return
        try:
            for at in range(0, file.size, _STEP):
                os.pread(opened.fileno(), _STEP, at)
            file.data = memoryview(mmap(opened.fileno(), 0, access=ACCESS_READ))
        except OSError:
            file.data, _ = _readable(file.path, file.size)


class _Gap(NamedTuple):
    """Blocks without a whole frame where there should be one."""

    begin: int
    end: int
    later: str = ""
    """The reason, if they hold a whole frame of a release that this one cannot read."""


def _walk(file: _File) -> Iterator[tuple[int, FrameHeader] | _Gap]:
    """The whole frames of the segment's present use, in order, and the gaps between them."""
    salt = file.header.salt if file.header is not None else _salt_of(file)
    offset = lost = file.begin
    later = ""
    while offset < len(file.data):
        try:
            frame = _frame(file, offset, salt)
        except StoreCorrupt as error:
            frame, later = None, later or str(error)
        if frame is None:
            offset += BLOCK
            continue
        if offset > lost:
            yield _Gap(lost, offset, later)
        later = ""
        yield offset, frame
        offset = lost = offset + padded(frame.length)
    if later:
        yield _Gap(lost, offset, later)


def _frame(file: _File, offset: int, salt: int) -> FrameHeader | None:
    """The whole frame at `offset`, or None. Raises StoreCorrupt if a later release wrote it."""
    return frame_at(file.data, offset, salt) if file.data[offset + 8 : offset + 12] == FRAME_MAGIC else None


def _salt_of(file: _File) -> int:
    """The salt of the youngest frame, for a file without a header. A salt proves itself, as the checksum is seeded with
    it."""
    best, chosen = 0, 0
    for offset in range(file.begin, len(file.data), BLOCK):
        if file.data[offset + 8 : offset + 12] == FRAME_MAGIC:
            header = header_at(file.data, offset)
            if header is not None and header.sequence >= best and _is_frame(file, offset, header.salt):
                best, chosen = header.sequence, header.salt
    return chosen


def _is_frame(file: _File, offset: int, salt: int) -> bool:
    try:
        return _frame(file, offset, salt) is not None
    except StoreCorrupt:
        return True


def _segments(files: list[_File]) -> list[Segment]:
    segments: list[Segment] = []
    for file in files:
        slot = slot_in(file.path)
        segment = Segment(slot, file.size, file.path)
        segment.header = file.header
        segments.append(segment)
    return segments


def check(directory: Path | str, progress: Progress | None = None) -> Iterator[Problem | Verdict]:
    """Everything that is wrong with a journal, then a verdict. Raises StoreInUse if a process has it open."""
    directory = Path(directory)
    lock = _locked(directory)
    try:
        yield from _check(directory, progress)
    finally:
        lock.release()


def _check(directory: Path, progress: Progress | None) -> Iterator[Problem | Verdict]:
    files = _files(directory)
    problems = 0
    for file in files:
        if file.damaged:
            problems += 1
            yield Problem(file.path, 0, "both copies of the segment's header are damaged")
    try:
        used, spares = in_use(_segments(files))
    except StoreCorrupt as error:
        yield Problem(directory, 0, str(error))
        problems += 1
        used, spares = [], []
    by_path = {file.path: file for file in files}
    counted = _Count(Index())
    for number, (segment, listed) in enumerate(used, 1):
        file = by_path[segment.path]
        _load(file)
        end = listed.blocks * BLOCK if listed else None
        for problem in counted.segment(file, segment, end):
            problems += 1
            yield problem
        if listed is not None and counted.last_sequence != listed.last_sequence:
            problems += 1
            yield Problem(
                file.path, counted.end, f"ends at frame {counted.last_sequence} instead of {listed.last_sequence}"
            )
        file.data = memoryview(b"")
        if progress is not None:
            progress(number, len(used))
    index = counted.index
    messages = sum(queue.depth for queue in index.queues.values())
    size = sum(file.size for file in files)
    yield Verdict(len(used), len(spares), counted.frames, messages, len(index.state), size, counted.closed, problems)


class _Count:
    """Replays segments one after the other, and goes on after damage."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.frames = 0
        self.closed = False
        self.last_sequence = 0
        self.end = 0

    def segment(self, file: _File, segment: Segment, end: int | None) -> Iterator[Problem]:
        """Apply every whole frame. A gap is a problem, except for the torn tail of the youngest segment."""
        if end is None and segment.header is not None and (cut := cut_off(file.size, segment.header)):
            yield Problem(file.path, file.size, cut)
        extent = self.index.space.open(segment.serial, segment.slot)
        lanes = LostLanes()
        self.last_sequence, self.end = (segment.header.first_sequence - 1 if segment.header else 0), file.begin
        for part in _walk(file):
            if isinstance(part, _Gap):
                if end is None or part.begin < end:
                    what = part.later or f"damaged to byte {part.end}: whole frames follow"
                    yield Problem(file.path, part.begin, what)
                continue
            offset, frame = part
            if end is not None and offset >= end:
                break
            try:
                sections = sections_of(file.data, offset, frame)
                rows_of(frame, sections) if frame.rows else None
                changes = changes_of(frame_of(segment.slot, offset // BLOCK), frame, sections, lanes)
                apply(self.index, extent, changes)
            except StoreCorrupt as error:
                yield Problem(file.path, offset, str(error))
            self.frames += 1
            self.last_sequence, self.end = frame.sequence, offset + padded(frame.length)
            self.closed = bool(frame.flags & FrameFlag.CLOSE)
        self.index.space.seal(extent)


def dump(directory: Path | str, progress: Progress | None = None) -> Iterator[FrameRecord | Problem]:
    """Every whole frame of the segments in use, oldest first, and the gaps between them. Needs no lock."""
    files = _files(Path(directory))
    headed = sorted((file for file in files if file.header), key=lambda file: file.header.serial if file.header else 0)
    for number, file in enumerate(headed, 1):
        _load(file)
        lanes = LostLanes()
        for part in _walk(file):
            if isinstance(part, _Gap):
                yield Problem(file.path, part.begin, part.later or f"no whole frame to byte {part.end}")
                continue
            offset, frame = part
            links = links_of(sections_of(file.data, offset, frame), lanes, frame.sequence)
            yield FrameRecord(
                file.path, offset, frame.sequence, frame.time, frame.length, FrameFlag(frame.flags),
                frame.first_number, frame.rows, links,
            )  # fmt: skip
        file.data = memoryview(b"")
        if progress is not None:
            progress(number, len(headed))


def salvage(directory: Path | str, progress: Progress | None = None) -> Iterator[Salvaged | SalvagedState | Problem]:
    """Every message and state record that can still be read, in the order of delivery by queue; and what cannot be
    read. Where frames are lost, messages that they took may be among the salvaged ones: everything is salvaged, and
    perhaps more."""
    lock = _locked(Path(directory))
    try:
        yield from _salvage(Path(directory), progress)
    finally:
        lock.release()


def _salvage(directory: Path, progress: Progress | None) -> Iterator[Salvaged | SalvagedState | Problem]:
    index = Index()
    rows: dict[int, tuple[_File, int, FrameHeader]] = {}
    every = _files(directory)
    refuse_strangers((file.path, file.header) for file in every)
    files = _worth_reading(every)
    listed = _listed(every)
    for file in files:
        _load(file)
    yield from _lost(directory, every, listed)
    ordered = sorted(files, key=_age)
    for number, file in enumerate(ordered, 1):
        end = listed.get(file.header.serial) if file.header is not None else None
        yield from _salvage_segment(file, number, index, rows, end)
        if progress is not None:
            progress(number, len(ordered))
    decoded: dict[int, Rows] = {}
    for queue in index.queues.values():
        for key in queue.lanes:
            for lane in index.chain(queue.name, key):
                for first, count, place in lane.live():
                    held = _rows(place >> ROW_BITS, rows, decoded)
                    for at in range(count):
                        token = lane.rank << NUMBER_BITS | first + at
                        backout = index.backouts.get(first + at, 0)
                        message = held.message((place & ROW_MASK) + at, token, backout)
                        yield Salvaged(queue.name, key, 9 - lane.rank, message)
    for name, value in index.state.items():
        yield SalvagedState(name, value)


def _worth_reading(files: list[_File]) -> list[_File]:
    """The segments that the youngest header lists, and those that have lost their own header. The others are free:
    everything in them was taken."""
    headed = [file.header for file in files if file.header is not None]
    if not headed:
        return files
    newest = max(headed, key=lambda header: header.serial)
    serials = {each.serial for each in newest.listed} | {newest.serial}
    return [file for file in files if file.damaged or (file.header is not None and file.header.serial in serials)]


def _age(file: _File) -> int:
    """The key that sorts segments in the order in which they were written: their first whole frame, as the header may
    be lost."""
    for part in _walk(file):
        if not isinstance(part, _Gap):
            return part[1].sequence
    return 0


def _listed(files: list[_File]) -> dict[int, Listed]:
    """What the youngest header lists, by serial."""
    newest = max((file.header for file in files if file.header), key=lambda header: header.serial, default=None)
    return {each.serial: each for each in newest.listed} if newest is not None else {}


def _lost(directory: Path, files: list[_File], listed: dict[int, Listed]) -> Iterator[Problem]:
    """The segments of which not even the header is there."""
    found = {file.header.serial for file in files if file.header is not None}
    damaged = {file.path for file in files if file.damaged}
    for each in listed.values():
        path = directory / f"{each.slot:08d}{SUFFIX}"
        if each.serial not in found and path not in damaged:
            yield Problem(path, 0, f"missing, or of another time: frames to {each.last_sequence} were in it")
    for path in sorted(damaged):
        yield Problem(path, 0, "both copies of its header are damaged: its frames are read without it")


def _salvage_segment(
    file: _File, serial: int, index: Index, rows: dict[int, tuple[_File, int, FrameHeader]], listed: Listed | None
) -> Iterator[Problem]:
    slot = slot_in(file.path)
    if listed is None and file.header is not None and (cut := cut_off(file.size, file.header)):
        yield Problem(file.path, file.size, cut)
    extent = index.space.open(serial, slot)
    lanes, end = LostLanes(), file.begin
    for part in _walk(file):
        if isinstance(part, _Gap):
            if listed is None or part.begin < listed.blocks * BLOCK:
                yield Problem(file.path, part.begin, part.later or f"damaged to byte {part.end}: whole frames follow")
            continue
        offset, frame = part
        end = offset + padded(frame.length)
        place = frame_of(slot, offset // BLOCK)
        try:
            sections = sections_of(file.data, offset, frame)
            apply(index, extent, changes_of(place, frame, sections, lanes))
        except StoreCorrupt as error:
            yield Problem(file.path, offset, str(error))
            continue
        rows[place] = file, offset, frame
    if listed is not None and end < listed.blocks * BLOCK:
        yield Problem(file.path, end, f"damaged to byte {listed.blocks * BLOCK}, the end of its frames")


def _rows(place: int, rows: dict[int, tuple[_File, int, FrameHeader]], decoded: dict[int, Rows]) -> Rows:
    held = decoded.get(place)
    if held is None:
        file, offset, frame = rows[place]
        if len(decoded) > 64:
            decoded.clear()
        held = decoded[place] = rows_of(frame, sections_of(file.data, offset, frame))
    return held
