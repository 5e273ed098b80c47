"""The ring of segments: where the next frame goes, which segments are prepared ahead, and which are given back.

Frames are placed by the thread that prepares them; headers and frames are written by the thread that waits for the
disk; files are zeroed ahead by a thread of the ring. A segment is zeroed once: when it is free it is used again with a
new salt.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sys
import threading
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from gateway.errors import StoreError, StoreUnavailable
from gateway.queue_manager.journal import failpoint
from gateway.queue_manager.journal.files import (
    Buffers,
    DurableFile,
    create_allocated,
    create_zeroed,
    refuse_missing,
    sync_directory,
)
from gateway.queue_manager.journal.layout import BLOCK, header_area
from gateway.queue_manager.journal.missing_files import MissingFiles
from gateway.queue_manager.journal.segment import (
    FramePosition,
    Listed,
    Segment,
    SegmentHeader,
    listing_room,
    segment_path,
    size_for,
    write_header,
)
from gateway.queue_manager.journal.zeroing_pace import AHEAD, CATCHING_UP, Pace

RETRY_SECONDS = 1.0
RESERVE = 3
"""Segments that are made at the start and kept for a full disk. Each may be opened by fewer kinds of frames than the
one before it: the first by the gateway's own, which devices need to go on, the second by takes, the last by frames that
carry messages forward, since these make room where only some messages of each segment have been taken."""
KEPT_LISTINGS = 8
"""Entries of a header's list that are reserved for frames that put no messages, in the order of the reserve: what is
the gateway's own may use the first ones, takes some more, what carries messages forward all."""
SMALLEST, LARGEST = 64 << 10, 2 << 30
GIVE_BACK = 4
"""This many free segments that the newest header still lists are worth a new header, after which they are removed."""


class Keep(IntEnum):
    """How many segments of the reserve a frame has to leave untouched."""

    FOR_MESSAGES = 3  # it puts messages
    FOR_STATE = 2  # it belongs to the gateway, which puts no more than it has to
    FOR_TAKES = 1  # it only removes
    NOTHING = 0  # it carries messages out of a segment that becomes free


@dataclass(frozen=True, slots=True)
class RingOptions:
    """The options of a ring."""

    segment_bytes: int = 64 << 20
    spare_segments: int = 3
    direct: bool = True
    background: bool = True
    """Whether segments are prepared in a thread; else in the call that writes."""
    max_bytes: int | None = None
    """The most bytes that all files may take; None: what the disk has."""


class Ring:
    """The segments of a store. `file_of` belongs to the thread that writes, the methods below "preparing ahead" to the
    ring's own thread, all others to the thread that prepares frames.
    """

    def __init__(self, directory: Path, store: bytes, options: RingOptions) -> None:
        if not SMALLEST <= options.segment_bytes <= LARGEST or options.segment_bytes % BLOCK:
            raise StoreError(
                f"segments of {options.segment_bytes} bytes: choose a multiple of {BLOCK} from {SMALLEST} to {LARGEST}"
            )
        self.directory = directory
        self.store = store
        self.options = options
        self.buffers = Buffers()
        self.used: dict[int, Segment] = {}
        self.current: Segment | None = None
        self.room = 0
        """Bytes that the current segment still has for frames."""
        self.next_serial = 1
        self.full: OSError | None = None
        """Why the last attempt to prepare a segment failed."""
        self.missing = MissingFiles(direct=options.direct)
        self._spares: deque[Segment] = deque()
        self._reserve: deque[Segment] = deque()
        self._retired: list[Segment] = []
        self._listed: set[int] = set()
        self._slots: set[int] = set()
        self._wanted: deque[tuple[Segment, int]] = deque()
        """Segments for which frames wait, each with what the frame has to leave of the reserve."""
        self._wake = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._making: Segment | None = None
        """The spare that is being zeroed, until it is ready or a frame is placed in it."""
        self.pace = Pace()
        self._goal = max(0, options.spare_segments - 2)
        self._filled = False
        self._fill_up_at = sys.maxsize
        """From this offset of the current segment on the next segment has to be ready."""
        self._due = False
        """Whether that offset has been passed: then the next segment is zeroed, even if few are wanted besides the
        reserve."""

    # ---- start and end

    def adopt(self, used: list[Segment], spares: list[Segment], current: Segment | None) -> None:
        """Take over what recovery found."""
        self.used = {segment.slot: segment for segment in used}
        self.current = current
        self.room = current.size - current.end if current is not None and current.header is not None else 0
        for segment in sorted(spares, key=_is_used):  # blocks that were never written are slower to write: they wait
            if segment.size != self.options.segment_bytes:
                self._retired.append(segment)
            else:
                (self._reserve if len(self._reserve) < RESERVE else self._spares).append(segment)
        self._slots = {segment.slot for segment in [*used, *spares]}
        newest = max(used, key=lambda segment: segment.serial, default=None)
        if newest is not None and newest.header is not None:
            self._listed = {each.serial for each in newest.header.listed} | {newest.serial}
        for segment in [*used, *spares]:
            self.next_serial = max(self.next_serial, segment.serial + 1)

    def start(self) -> None:
        """Make the reserve and begin to prepare ahead."""
        self._give_back()
        while len(self._reserve) < RESERVE and self._add_reserve():
            pass
        if self.options.background:
            self._thread = threading.Thread(target=self._prepare_ahead, name="journal-ahead", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread and close the files."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self.pace.hurry()
        if self._thread is not None:
            self._thread.join()
        for segment in self._files():
            if segment.file is not None:
                segment.file.close()

    def _files(self) -> list[Segment]:
        return [*self.used.values(), *self._spares, *self._reserve, *self._retired]

    # ---- placing frames

    def position_for(self, length: int, sequence: int, number: int, time: int, *, keep: int) -> FramePosition:
        """A place for a frame of `length` bytes, which leaves `keep` segments of the reserve untouched. Raises
        StoreUnavailable if there is none."""
        length = -(-length // BLOCK) * BLOCK
        current = self.current
        if self.missing.problem is not None:
            raise StoreUnavailable(
                f"{self.directory}: {self.missing.problem.strerror}: nothing is written until it is whole"
            )
        if self.full is not None and len(self._reserve) < keep:
            raise self._refusal()
        if length <= self.room and current is not None and current.header is not None:
            return FramePosition(current, current.end, length, None, current.header.salt)
        room = listing_room(self.options.segment_bytes) - KEPT_LISTINGS * keep // Keep.FOR_MESSAGES
        if len(self.used) >= room:
            raise StoreUnavailable(
                f"{self.directory}: {len(self.used)} segments are in use, which is as many as a header lists: "
                "take messages, or set larger segments and restart"
            )
        segment = self._next_segment(length, keep=keep)
        serial, salt, listing = self.next_serial, secrets.randbits(64), self._listing()
        header = SegmentHeader(serial, segment.slot, salt, self.store, segment.size, sequence, number, time, listing)
        self.next_serial += 1
        return FramePosition(segment, segment.begin, length, header, header.salt)

    def take_position(self, position: FramePosition, sequence: int) -> None:
        """Note that the frame of `sequence` will be there: the next one goes after it."""
        segment = position.segment
        if position.opening is not None:
            segment.header = position.opening
            self.used[segment.slot] = segment
            self.current = segment
            self._fill_up_at = segment.size // 2
            self._due = False
        segment.end = position.offset + position.size
        self.room = segment.size - segment.end
        self.pace.placed += position.size
        segment.last_sequence = sequence
        if segment.end > self._fill_up_at:
            self._fill_up_at = sys.maxsize
            self._fill_up()

    def _fill_up(self) -> None:
        """The current segment is half full: unless one was given back, have the next one zeroed before it is needed."""
        self._due = True
        if len(self._spares) < self._wished():
            self._filled = False
            self._kick()

    def _listing(self) -> list[Listed]:
        ordered = sorted(self.used.values(), key=lambda segment: segment.serial)
        return [Listed(each.serial, each.slot, each.end // BLOCK, each.last_sequence) for each in ordered]

    def _next_segment(self, length: int, *, keep: int) -> Segment:
        size = self.options.segment_bytes
        keep = keep if self.used else 0
        if 2 * header_area(size) + length > size:
            return self._order(size_for(length), keep=keep)
        for segment in self._ready():
            if segment.file is not None and segment.file.claim():
                self._spares.remove(segment)
                self._kick()
                return segment
        if self._thread is None and self.used and not self._spares and self._top_up() and self._add_spare():
            return self._spares.popleft()
        if self.full is None and (self._has_room(size) or (self.full is None and len(self._reserve) <= keep)):
            return self._order(size, keep=keep)
        return self._of_reserve(keep)

    def _has_room(self, size: int) -> bool:
        """Whether there can be a segment, and another one that may be in the making; asked before a frame waits for
        one. A quota is only found by trying."""
        try:
            self._check_limit(2 * size if self._making is not None else size)
            space = os.statvfs(self.directory)
        except OSError as error:
            self.full = error
            return False
        free = space.f_bavail * space.f_frsize
        if free < size and self._making is None:
            self.full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.directory))
        return free >= 2 * size or (free >= size and self._making is None)

    def _ready(self) -> list[Segment]:
        return [segment for segment in list(self._spares) if segment.ready.is_set() and segment.error is None]

    def _of_reserve(self, keep: int) -> Segment:
        """A segment of the reserve, on a full disk."""
        with self._wake:
            for segment in list(self._reserve) if len(self._reserve) > keep else ():
                if segment.file is not None and segment.file.claim():
                    self._reserve.remove(segment)
                    return segment
        raise self._refusal()

    def _refusal(self) -> StoreUnavailable:
        why, number = ("no room", errno.ENOSPC) if self.full is None else (self.full.strerror, self.full.errno)
        cure = "until there is room; free disk space or take messages"
        if number == errno.EFBIG:
            cure = "until a file may be larger: raise `LimitFSIZE` of systemd, `ulimit -f`, or lower `segment_bytes`"
        elif number not in {errno.ENOSPC, errno.EDQUOT}:
            cure = "until it can be written: the disk fails or is read-only, `dmesg` says more"
        return StoreUnavailable(f"{self.directory}: {why}: no new persistent messages {cure}")

    def _order(self, size: int, *, keep: int) -> Segment:
        """Order a segment to be prepared at once, or use the one that is being prepared; the frame's write waits for
        it. The reserve goes before it, except for what the frame may use itself (`keep`)."""
        with self._wake:
            making = self._making
            if making is not None and making.size == size and len(self._reserve) >= keep:
                self._making = None
                return making
        segment = self._new(size)
        if self._thread is not None:
            with self._wake:
                self._wanted.append((segment, keep))
                self._wake.notify()
        return segment

    def _new(self, size: int) -> Segment:
        with self._wake:
            slot = next(number for number in range(1, len(self._slots) + 2) if number not in self._slots)
            self._slots.add(slot)
        return Segment(slot, size, segment_path(self.directory, slot))

    # ---- writing

    def file_of(self, position: FramePosition) -> DurableFile:
        """The file to write to, once its blocks exist; a new segment gets its header first. Called in the writing
        thread."""
        segment = position.segment
        if self._thread is None and not segment.ready.is_set():
            self._create(segment)
        if not segment.ready.is_set():
            self.pace.hurry()
            segment.ready.wait()
            self.pace.calm()
        if segment.error is not None or segment.file is None:
            raise segment.error or FileNotFoundError(str(segment.path))
        if position.opening is not None:
            if failpoint.armed:
                failpoint.reach("journal.before-header")
            for each in position.opening.listed:  # no start would go beyond a header that lists what is not there
                refuse_missing(str(segment_path(self.directory, each.slot)))
            write_header(segment.file, position.opening, self.buffers)
            self._listed = {each.serial for each in position.opening.listed} | {position.opening.serial}
            segment.file.let_in()
            if failpoint.armed:
                failpoint.reach("journal.after-header")
        return segment.file

    def header_written(self) -> None:
        """A segment's header is durable: remove segments that it no longer lists."""
        self._give_back()
        if self._thread is None and self._top_up():
            while len(self._spares) < self._low_water() and self._add_spare():
                pass

    # ---- giving back

    def free(self, slot: int) -> None:
        """Take back a segment on which nothing depends any more."""
        segment = self.used.pop(slot)
        if failpoint.armed:
            failpoint.reach("journal.recycle")
        if segment.size != self.options.segment_bytes:
            self._retired.append(segment)
        elif len(self._reserve) < RESERVE:
            self._reserve.append(segment)
        elif len(self._ready()) < max(1, self._goal):
            self._spares.append(segment)
        else:
            self._retired.append(segment)
        self._give_back()
        self._look_for_room()

    def _look_for_room(self) -> None:
        """Note that the disk is no longer full if the reserve is complete and there is a segment beside it."""
        if self.full is not None and len(self._reserve) >= RESERVE and self._ready():
            self.full = None

    @property
    def gives_back(self) -> bool:
        """Whether enough free segments wait for a header that does not list them, and a segment is ready to get that
        header."""
        enough = len(self._retired) >= (1 if self.full is not None else GIVE_BACK)
        return enough and (len(self._reserve) > Keep.FOR_STATE or bool(self._ready()))

    def forget_removed(self) -> None:
        """Stop using segments that are ready but whose files somebody has removed; others are made."""
        with self._wake:
            for ready in (self._spares, self._reserve):
                for segment in list(ready):
                    if segment.ready.is_set() and segment.file is not None and not segment.file.status().st_nlink:
                        ready.remove(segment)
                        segment.file.close()
                        self._slots.discard(segment.slot)
            self._wake.notify()

    def open_next(self) -> None:
        """Have the next frame open a segment."""
        self.room = 0

    def want_spares(self, goal: int) -> None:
        """Set how many segments to have ready: fewer while many sealed ones hold little."""
        if goal != self._goal:
            self._goal = goal
            self._kick()

    def _wished(self) -> int:
        """How many segments are to be ready: at least the next one when the current one is half full."""
        return max(self._goal, min(1, self.options.spare_segments - 1)) if self._due else self._goal

    def _low_water(self) -> int:
        """The number of ready segments below which more are zeroed. It is one less than wanted, since in steady use
        freed segments fill the gap."""
        wished = self._wished()
        if len(self._spares) >= wished:
            self._filled = True
        return max(0, wished - self._filled) if self.full is None else max(1, wished)

    def _give_back(self) -> None:
        """Remove the files of retired segments, except those that the newest header on disk lists: if one of these were
        missing, that would be damage."""
        kept: list[Segment] = []
        for segment in self._retired:
            if segment.serial in self._listed:
                kept.append(segment)
                continue
            if segment.file is not None:
                segment.file.close()
            with contextlib.suppress(OSError):
                segment.path.unlink()
            self._slots.discard(segment.slot)
        if len(kept) < len(self._retired):
            with contextlib.suppress(OSError):
                sync_directory(self.directory)
            self._kick()  # the thread that prepares ahead finds out how much room that makes
        self._retired = kept

    def abandon(self, durable: dict[int, tuple[int, int]]) -> None:
        """Go back to what is on disk after a failed write. `durable`: for each slot, the end and the last sequence
        there."""
        for slot, segment in list(self.used.items()):
            end, last_sequence = durable.get(slot, (0, 0))
            if end:
                segment.end, segment.last_sequence = end, last_sequence
                continue
            del self.used[slot]
            if segment.file is not None:
                segment.file.let_in()
            if segment.error is not None:
                self._slots.discard(slot)
            elif segment.size == self.options.segment_bytes:
                self._spares.append(segment)
            else:
                self._retired.append(segment)
        self.current, self.room = None, 0

    # ---- preparing ahead

    def _kick(self) -> None:
        with self._wake:
            self._wake.notify()

    def _create(self, segment: Segment, *, zeroed: bool = True) -> None:
        try:
            self._check_limit(segment.size, besides=segment)
            if zeroed:
                create_zeroed(segment.path, segment.size, self.pace.wait)
            else:
                create_allocated(segment.path, segment.size)
            segment.file = DurableFile(segment.path, direct=self.options.direct)
        except (OSError, ValueError) as error:
            segment.error = self.full = error if isinstance(error, OSError) else OSError(str(error))
        segment.ready.set()

    def _check_limit(self, size: int, besides: Segment | None = None) -> None:
        """Treat a limit that is reached as a full disk, by raising OSError."""
        limit = self.options.max_bytes
        if limit is None:
            return
        others = sum(each.size for each in self._files() if each is not besides)
        if others + size > limit:
            raise OSError(errno.ENOSPC, f"the limit of {limit} bytes (max_bytes) is reached")

    def _top_up(self) -> bool:
        """Complete the reserve. Returns False if the disk has no room for it."""
        while len(self._reserve) < RESERVE:
            if not self._add_reserve():
                return False
        return True

    def _add_reserve(self) -> bool:
        """Add a segment to the reserve. Its blocks are only allocated: zeroing them would cost time at each start, and
        few are ever written. Returns False if the disk has no room for it."""
        segment = self._new(self.options.segment_bytes)
        self._create(segment, zeroed=False)
        if segment.error is not None:
            self._slots.discard(segment.slot)
            return False
        with self._wake:
            self._reserve.append(segment)
        return True

    def _add_spare(self) -> bool:
        segment = self._making = self._new(self.options.segment_bytes)
        self.pace.ahead = CATCHING_UP if not self._spares else AHEAD
        self._create(segment)
        with self._wake:
            placed, self._making = self._making is not segment, None
        if placed:  # a frame was placed there: its write finds the error too
            return segment.error is None
        if segment.error is not None:
            self._slots.discard(segment.slot)
            return False
        self._spares.append(segment)
        self._look_for_room()
        return True

    def _prepare_ahead(self) -> None:
        while True:
            with self._wake:
                for failed in [each for each in list(self._spares) if each.error is not None]:  # its frame was given up
                    self._spares.remove(failed)
                    self._slots.discard(failed.slot)
                while not self._closing and not self._wanted and not self._is_short():
                    self._wake.wait()
                if self._closing:
                    return
                ordered = self._wanted.popleft() if self._wanted else None
            if ordered is not None:
                self._create_ordered(*ordered)
            elif not (self._top_up() and (len(self._spares) >= self._low_water() or self._add_spare())):
                with self._wake:
                    if not self._wanted and not self._closing:
                        self._wake.wait(RETRY_SECONDS)

    def _is_short(self) -> bool:
        return len(self._reserve) < RESERVE or len(self._spares) < self._low_water()

    def _create_ordered(self, segment: Segment, keep: int) -> None:
        """Prepare a segment that a frame waits for. A frame with messages gets it only if there is a reserve for a full
        disk."""
        if len(self._reserve) >= keep or self._top_up():
            self._create(segment)
        else:
            segment.error = self.full
            segment.ready.set()

    @property
    def spares(self) -> int:
        """How many segments are ready."""
        return len(self._ready())

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(segment.size for segment in self._files())


def _is_used(segment: Segment) -> bool:
    return segment.header is not None
