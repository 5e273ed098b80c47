"""How far a store is committed, told to readers in other processes while its owner has it open.

The owner holds a lock on a range of bytes of the empty file `committed`: from the number of the first frame that does
not count yet to the end. Readers ask the kernel where it begins. So the position goes with the process that holds it,
however that ends; a power cut leaves nothing of it; moving it writes nothing, and needs no room on the disk.
"""

from __future__ import annotations

import os
from fcntl import F_OFD_GETLK, F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK, fcntl
from pathlib import Path
from struct import Struct

from gateway.queue_manager.journal.files import FILE_MODE

MARK_NAME = "committed"
RANGE = Struct("hhqqi4x")
"""struct flock: kind, from where the offset counts (0, the start), offset, length (0: to the end), process"""


def set_mark(directory: Path, sequence: int) -> int:
    """Hold back all frames from this one on. Returns the descriptor, which is closed when none is to be held back any
    more; or -1 where that is not possible, as on a file system without locks: readers then take all that is whole."""
    descriptor = -1
    try:
        descriptor = os.open(directory / MARK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        fcntl(descriptor, F_OFD_SETLK, RANGE.pack(F_WRLCK, 0, sequence, 0, 0))
    except OSError:
        drop_mark(descriptor)
        return -1
    return descriptor


def drop_mark(descriptor: int) -> None:
    """Hold nothing back any more: whoever opens the store next recovers all that is whole."""
    if descriptor >= 0:
        os.close(descriptor)


def is_removed(descriptor: int) -> bool:
    """Whether somebody has removed the file, so that readers do not find what is held."""
    try:
        return descriptor >= 0 and not os.fstat(descriptor).st_nlink
    except OSError:  # over NFS another machine has removed it
        return True


def committed(directory: Path) -> int | None:
    """The last frame that counts. None: no process that tells has the store open, and all whole frames count, as in
    recovery. Raises OSError if this cannot be found out."""
    try:
        descriptor = os.open(directory / MARK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        held = RANGE.unpack(fcntl(descriptor, F_OFD_GETLK, RANGE.pack(F_RDLCK, 0, 0, 0, 0)))
    finally:
        os.close(descriptor)
    kind, _whence, first, _length, _process = held
    return None if kind == F_UNLCK else int(first) - 1
