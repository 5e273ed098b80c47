"""How bytes reach the disk: aligned buffers, direct and synchronous writes where the file system takes them, zeroing
ahead.

A write is durable when it returns. It is one system call: O_DIRECT|O_DSYNC, or RWF_DSYNC where O_DIRECT is refused
(tmpfs, overlays), or write and fdatasync where that is refused too. A failed write is never tried again: what the
kernel still holds afterwards is unknown.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Callable
from pathlib import Path

from gateway.queue_manager.journal.layout import padded

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
ZEROING_STEP = 256 << 10
"""Bytes of one write of zeros: a frame that comes meanwhile waits no longer than for this."""
MAKING = ".making"
"""The suffix of a file's name while its blocks are being written."""
POOLED = 4 << 20
"""Buffers up to this size are kept for the next frame."""


class Buffers:
    """Page-aligned memory for frames; several, because the next frame is prepared while one is being written."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def take(self, length: int) -> memoryview:
        """A buffer of at least `length` bytes, not zeroed."""
        if length <= POOLED and self._free:
            try:
                return self._free.pop()
            except IndexError:  # the writing thread takes buffers too
                pass
        return memoryview(mmap.mmap(-1, max(length, POOLED)))

    def give(self, buffer: memoryview) -> None:
        """Give a buffer back for the next frame."""
        if len(buffer) == POOLED and len(self._free) < 4:
            self._free.append(buffer)


class DurableFile:
    """A file of fixed size that is written in whole blocks, each write durable when it returns, and read anywhere."""

    def __init__(self, path: Path, *, direct: bool = True) -> None:
        self.name = str(path)
        self._name = os.fsencode(path)
        self.mode = "direct"
        self._descriptor = -1
        self._reader = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._size = os.lseek(self._reader, 0, os.SEEK_END)
        if direct:
            with contextlib.suppress(OSError):
                self._descriptor = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC | os.O_CLOEXEC)
        if self._descriptor < 0:
            self.mode = "dsync"

    def write(self, data: memoryview, offset: int) -> None:
        """Write whole blocks, durable on return. Raises OSError if they are not, because somebody has removed the file,
        or could not be found again, because it was cut off."""
        if self.mode == "direct":
            try:
                return self._written(os.pwrite(self._descriptor, data, offset), data)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self.mode = "dsync"  # the open was accepted but not the write: nothing of it was done
        if self.mode == "dsync":
            try:
                return self._written(os.pwritev(self._reader, [data], offset, os.RWF_DSYNC), data)
            except OSError as error:
                if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS}:
                    raise
                self.mode = "fdatasync"
        written = os.pwrite(self._reader, data, offset)
        os.fdatasync(self._reader)
        return self._written(written, data)

    def _written(self, written: int, data: memoryview) -> None:
        if written != len(data):
            raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")
        if not os.access(self._name, os.F_OK):  # with each frame: `stat` takes five times as many instructions
            refuse_missing(self.name)
        if os.lseek(self._reader, 0, os.SEEK_END) < self._size:  # less than `access`; all others move no position
            raise cut_off(self.name)

    def read(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes from `offset`."""
        parts: list[bytes] = []
        while length > 0:
            part = os.pread(self._reader, length, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill the page-aligned buffer with whole blocks, past the page cache where the file system allows it; returns
        how many bytes there were."""
        done, descriptor = 0, self._descriptor if self.mode == "direct" else self._reader
        while done < len(buffer):
            try:
                part = os.preadv(descriptor, [buffer[done:]], offset + done)
            except OSError as error:
                if error.errno != errno.EINVAL or descriptor == self._reader:
                    raise
                descriptor = self._reader
                continue
            if not part:
                break
            done += part
        return done

    def status(self) -> os.stat_result:
        """The system's status of the open file, whatever has become of its name."""
        return os.fstat(self._reader)

    def claim(self) -> bool:
        """Keep out readers of other processes, who lock the files that they map (shared). Returns False if one of them
        holds it."""
        try:
            fcntl.flock(self._reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def let_in(self) -> None:
        """Let readers lock the file again."""
        fcntl.flock(self._reader, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self._descriptor, self._reader):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._reader = -1


def cut_off(name: str) -> OSError:
    """The error that a file is shorter than it was."""
    return OSError(errno.EUCLEAN, f"{Path(name).name} was cut off by somebody else")


def refuse_missing(name: str) -> None:
    """Raise FileNotFoundError if no file has this name."""
    if not os.access(name, os.F_OK):
        raise FileNotFoundError(errno.ENOENT, f"{Path(name).name} is not there any more")


def create_zeroed(path: Path, size: int, before: Callable[[int], None] = lambda _size: None) -> None:
    """Make a file of `size` zeros whose blocks exist on the disk, so that writing it later moves no metadata.

    `before` is called before each write, with its size, and returns when the disk can be spared.
    """
    _create(path, lambda descriptor: _zero(descriptor, padded(size), before))


def create_allocated(path: Path, size: int) -> None:
    """Make a file of `size` whose blocks belong to it, though nothing was written to them: at once, where the file
    system can do that."""

    def fill(descriptor: int) -> None:
        if not _allocate(descriptor, padded(size)):
            _zero(descriptor, padded(size))

    _create(path, fill)


def _create(path: Path, fill: Callable[[int], object]) -> None:
    """Make a file and fill it. It gets its name only when it has its size, so that a shorter file of that name has been
    damaged."""
    making = path.with_name(path.name + MAKING)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        descriptor = os.open(making, flags | os.O_DIRECT, FILE_MODE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        descriptor = os.open(making, flags, FILE_MODE)
    try:
        fill(descriptor)
        os.fsync(descriptor)
        making.rename(path)
    except OSError as error:
        making.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)
    sync_directory(path.parent)


def _allocate(descriptor: int, size: int) -> bool:
    """Have the file system reserve the blocks. Returns False where it cannot. A full disk is found before anything is
    written for which others need the room."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}:
            raise
        return False
    return True


def _zero(descriptor: int, size: int, before: Callable[[int], None] = lambda _size: None) -> None:
    _allocate(descriptor, size)
    with mmap.mmap(-1, min(size, ZEROING_STEP)) as zeros, memoryview(zeros) as view:
        done = 0
        while done < size:
            step = view[: min(len(view), size - done)]
            before(len(step))
            try:
                done += os.pwrite(descriptor, step, done)
            except OSError as error:
                if error.errno != errno.EINVAL or not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                    raise
                fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
            finally:
                step.release()


def sync_directory(path: Path) -> None:
    """Make creations and removals in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
