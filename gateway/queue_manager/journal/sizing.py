"""How large the segments of a journal are, and whether its file system has room for those that it cannot do without.

A segment that is large for its disk wastes it: what is prepared ahead and kept back counts in whole segments. So
segments are smaller on a small file system, unless the settings say how large they are.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gateway.errors import StoreUnavailable
from gateway.queue_manager.journal.ring import RESERVE
from gateway.queue_manager.journal.segment import Segment, listing_room

AUTOMATIC = 0
"""In place of a size: the file system decides."""
LEAST, MOST = 1 << 20, 64 << 20
PARTS = 32
"""A segment is about this part of the room, so that the reserve takes a tenth."""
NEEDED = 1 + 2 + RESERVE
"""Segments for which a journal needs room: the one in use, two that take turns, and the reserve."""


def room_at(directory: Path, held: int, limit: int | None) -> int:
    """How many bytes the files of a journal may take together: the `held` ones, and what is free (or up to the
    limit)."""
    space = os.statvfs(directory)
    room = held + space.f_bavail * space.f_frsize
    return room if limit is None else min(room, limit)


def size_of_segments(present: Iterable[Segment], room: int) -> int:
    """The size of new segments: that of the present ones as long as it suits the room, since segments of one size can
    replace each other."""
    suits = min(MOST, max(LEAST, 1 << max(0, (room // PARTS).bit_length() - 1)))
    counted = Counter(segment.size for segment in present if LEAST <= segment.size <= MOST)
    if not counted:
        return suits
    usual = counted.most_common(1)[0][0]
    return usual if usual * NEEDED <= room <= usual * listing_room(usual) else suits


def refuse_without_room(directory: Path, size: int, room: int, limit: int | None) -> None:
    """Raise StoreUnavailable, with the sum, for a new journal for which its disk has no room."""
    if size * NEEDED <= room:
        return
    where = f"`max_bytes` leaves {show(room)}" if limit is not None and room == limit else f"{show(room)} are free"
    raise StoreUnavailable(
        f"{directory}: too small: {where}, and a journal needs {show(size * NEEDED)}: "
        f"{NEEDED} segments of {show(size)} (one in use, two that take turns, "
        f"{RESERVE} kept back so that a full disk can be emptied): "
        + ("make room" if size <= LEAST else "make room, or set smaller `segment_bytes`")
    )


def show(size: int) -> str:
    """A number of bytes as it is shown to people."""
    return f"{size / 2**20:.1f} MiB" if size % 2**20 else f"{size >> 20} MiB"
