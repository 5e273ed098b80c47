"""Files of the journal that somebody removes, replaces or shortens while it is open.

What is written to a removed file is gone when the process ends, although its write returned. So a frame counts only if
its file has its name and its size when it is written (`DurableFile.write`), and nothing is written until the journal is
whole again: a removed file is made again from the one that is still open.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from gateway.queue_manager.journal.files import FILE_MODE, MAKING, DurableFile, cut_off, sync_directory
from gateway.queue_manager.journal.segment import Segment

COPIED_AT_ONCE = 2 << 20
SECONDS_AT_ONCE = 0.02
"""A look copies at least one piece, and more for about this many seconds: the caller serves devices, too."""


class MissingFiles:
    """Looks after the files of the segments in use. Called by the thread that prepares frames."""

    def __init__(self, *, direct: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.problem: OSError | None = None
        """What is wrong with one of the files; None: nothing is."""
        self._direct = direct
        self._monotonic = monotonic
        self._copying: Iterator[None] | None = None
        """The making again of removed files, while it lasts. Nothing disturbs it: no frame is placed as long as there
        is a problem."""

    def look(self, segments: Collection[Segment], *, idle: bool, elsewhere: bool = False) -> bool:
        """Look at the files. What is found is reported first, and mended from the next look on. `idle`: no frame is on
        its way. `elsewhere`: the directory's name leads to another one than the one that is locked, and nothing is
        written there. Returns whether the mending is to go on at once."""
        if self._copying is None or elsewhere:
            wrong = [(segment, why) for segment in segments if (why := _wrong(segment))]
            if elsewhere or not (wrong and idle and self.problem is not None):
                replaced = OSError(errno.ESTALE, "the directory was replaced by somebody else")
                self.problem = (replaced if elsewhere else wrong[0][1]) if wrong else None
                self._copying = None
                return False
            self._copying = self._mended(segments, wrong)
        until = self._monotonic() + SECONDS_AT_ONCE
        for _ in self._copying:
            if self._monotonic() >= until:
                return True
        self._copying = None
        return False

    def _mended(self, segments: Collection[Segment], wrong: list[tuple[Segment, OSError]]) -> Iterator[None]:
        """Make removed files again, a piece at a time; then look for what is still wrong."""
        for segment, why in wrong:
            if why.errno != errno.ENOENT:
                continue
            try:
                yield from self._make_again(segment)
            except OSError as error:
                again = f"{segment.path.name} was removed, and cannot be made again: {error.strerror}"
                self.problem = OSError(error.errno, again)
                return
        self.problem = next(filter(None, map(_wrong, segments)), None)

    def _make_again(self, segment: Segment) -> Iterator[None]:
        assert segment.file is not None  # noqa: S101 -- `_wrong` has looked
        making = segment.path.with_name(segment.path.name + MAKING)
        made: DurableFile | None = None
        named = False
        try:
            with making.open("wb") as file:
                making.chmod(FILE_MODE)
                for offset in range(0, segment.size, COPIED_AT_ONCE):
                    file.write(segment.file.read(min(COPIED_AT_ONCE, segment.size - offset), offset))
                    file.flush()
                    os.fsync(file.fileno())  # of all at the end would be one long pause
                    yield
            made = DurableFile(making, direct=self._direct)  # with its name, one that is not open is somebody else's
            made.name = str(segment.path)
            _name(making, segment.path)
            named = True
        finally:
            if not named:
                if made is not None:
                    made.close()
                making.unlink(missing_ok=True)
        removed, segment.file = segment.file, made
        removed.close()


def _name(making: Path, path: Path) -> None:
    """Give a file its name, durably or not at all."""
    making.rename(path)
    try:
        sync_directory(path.parent)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _wrong(segment: Segment) -> OSError | None:
    """What somebody has done to the segment's file, or None. That a name leads to another file is told by the link
    count of the open one: not every file system keeps the numbers of files for ever."""
    if segment.file is None or not segment.ready.is_set():
        return None
    name = segment.path.name
    try:
        named = segment.path.stat()
    except FileNotFoundError as error:
        return OSError(error.errno, f"{name} was removed by somebody else")
    except OSError as error:
        return OSError(error.errno, f"{name} cannot be reached: {error.strerror}")
    opened = segment.file.status()
    if opened.st_nlink == 0 and opened.st_ino != named.st_ino:
        return OSError(errno.ESTALE, f"{name} was replaced by somebody else")
    if opened.st_size < segment.size:
        return cut_off(name)
    return None
