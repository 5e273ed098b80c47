"""Files of the journal that somebody removes, replaces or shortens while it is open.

What is written to a removed file is gone when the process ends, although its write returned. So nothing is written
until the journal is whole again: a removed file is made again from the one that is still open.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from gateway.queue_manager.journal.files import FILE_MODE, MAKING, DurableFile, sync_directory
from gateway.queue_manager.journal.segment import Segment

COPIED_AT_ONCE = 4 << 20
SECONDS_AT_ONCE = 0.25
"""A look makes at least one file again, and others for about so long."""


class MissingFiles:
    """Looks after the files of the segments in use. Called by the thread that prepares frames."""

    def __init__(self, *, direct: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.problem: OSError | None = None
        """What is wrong with one of them; None: nothing is."""
        self._direct = direct
        self._monotonic = monotonic

    def look(self, segments: Collection[Segment], *, idle: bool, elsewhere: bool = False) -> None:
        """`idle`: no frame is on its way. What is found is told first, and mended at the next look. `elsewhere`: what
        has the name of the directory is not the one that is locked, and nothing is written there."""
        wrong = [(segment, why) for segment in segments if (why := _wrong(segment))]
        if wrong and elsewhere:
            segment, _ = wrong[0]
            wrong = [(segment, OSError(errno.ESTALE, "the directory was replaced by somebody else"))]
        elif wrong and idle and self.problem is not None:
            wrong = self._mended(wrong)
        self.problem = wrong[0][1] if wrong else None

    def _mended(self, wrong: list[tuple[Segment, OSError]]) -> list[tuple[Segment, OSError]]:
        """What is still wrong after as much as is done at once."""
        until = self._monotonic() + SECONDS_AT_ONCE
        left = list(wrong)
        for one in wrong:
            segment, why = one
            if why.errno == errno.ENOENT:
                try:
                    self._make_again(segment)
                except OSError as error:
                    again = f"{segment.path.name} was removed, and cannot be made again: {error.strerror}"
                    return [(segment, OSError(error.errno, again))]
                left.remove(one)
            if self._monotonic() >= until:
                break
        return left

    def _make_again(self, segment: Segment) -> None:
        assert segment.file is not None  # noqa: S101 -- `_wrong` has looked
        making = segment.path.with_name(segment.path.name + MAKING)
        made: DurableFile | None = None
        try:
            with making.open("wb") as file:
                making.chmod(FILE_MODE)
                for offset in range(0, segment.size, COPIED_AT_ONCE):
                    file.write(segment.file.read(min(COPIED_AT_ONCE, segment.size - offset), offset))
                file.flush()
                os.fsync(file.fileno())
            made = DurableFile(making, direct=self._direct)  # with its name, one that is not open is somebody else's
            made.path = segment.path
            _name(making, segment.path)
        except OSError:
            if made is not None:
                made.close()
            making.unlink(missing_ok=True)
            raise
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
    """What somebody has done to its file. A name that leads to another file is told by the link count of the open one:
    numbers of files are not the same for ever on every file system."""
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
        return OSError(errno.EUCLEAN, f"{name} was cut off by somebody else")
    return None
