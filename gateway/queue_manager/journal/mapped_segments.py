"""Segment files mapped for reading by any process, beside the store's owner. Writes nothing.

A mapping is pinned or not. A pinned one holds a shared lock on its file for as long as there is a view of it, so that
the owner does not use the segment again (`DurableFile.claim`). What is read through one that is not pinned counts only
while the segment's header is still the same.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from contextlib import suppress
from pathlib import Path

from gateway.queue_manager.journal.segment import NAMES, SUFFIX, SegmentHeader, read_header, segment_path

PIN_WITHIN = 5.0
"""Seconds to wait for the lock: the owner holds a segment only while it writes a header."""
_LOOK_AGAIN = 0.002


class MappedSegment:
    """One mapped file. The mapping, and the lock of a pinned one, lasts as long as there is a view of it."""

    def __init__(self, folder: Path, slot: int, *, pinned: bool = False) -> None:
        """Raises OSError or ValueError if there is no such file, or it is empty."""
        descriptor = os.open(segment_path(folder, slot), os.O_RDONLY | os.O_CLOEXEC)
        try:
            if pinned:
                _lock(descriptor)
            status = os.fstat(descriptor)
            self.size, self.file = status.st_size, (status.st_dev, status.st_ino)
            # The mapping keeps a duplicate of the descriptor: the lock belongs to both and goes with the last of them.
            self.data = memoryview(mmap.mmap(descriptor, self.size, prot=mmap.PROT_READ))
        finally:
            os.close(descriptor)

    def header(self) -> SegmentHeader | None:
        """The header as it is now."""
        return read_header(self.data, self.size)[0]


def _lock(descriptor: int) -> None:
    until = time.monotonic() + PIN_WITHIN
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_AGAIN)


def files_in(folder: Path) -> dict[int, tuple[int, int]]:
    """Device and inode of each slot whose file is not empty. A file that was removed is made again under the same name
    when more segments are needed."""
    found: dict[int, tuple[int, int]] = {}
    for path in folder.glob(NAMES):
        with suppress(FileNotFoundError):  # it has just been removed
            status = path.stat()
            if status.st_size:
                found[int(path.name.removesuffix(SUFFIX))] = status.st_dev, status.st_ino
    return found
