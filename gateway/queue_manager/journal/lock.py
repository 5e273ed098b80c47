"""One process owns a store's directory: an advisory lock, whose file names the owner to a process that is refused. The
directory itself is locked too, as somebody may take the file for a leftover and remove it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from gateway.errors import StoreInUse, StoreUnavailable
from gateway.queue_manager.journal.commit_mark import drop_mark
from gateway.queue_manager.journal.files import DIRECTORY_MODE, FILE_MODE

LOCK_NAME = "lock"


class DirectoryLock:
    """Held from construction to `release`; the kernel releases it if the process dies."""

    def __init__(self, directory: Path) -> None:
        self.mark = -1
        """The descriptor that `commit_mark.set_mark` returned; it is dropped with the lock."""
        try:
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise StoreUnavailable(
                f"{directory}: {error.strerror}: the data directory must be a writable directory"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._directory = _locked_directory(directory)
        except BlockingIOError:
            owner = os.pread(self._descriptor, 64, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            who = f"process {owner}" if owner else "another process"
            advice = "stop it, or ask it through its socket"
            raise StoreInUse(f"{directory}: {who} has this store open", advice) from None
        except OSError as error:
            os.close(self._descriptor)
            raise StoreUnavailable(f"{directory}: it cannot be locked: {error.strerror}") from error
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the lock holds all the same, only its file does not name the owner

    def is_elsewhere(self, directory: Path) -> bool:
        """Whether somebody has put another directory in its place: what is there may be another process's."""
        try:
            named, locked = directory.stat(), os.fstat(self._directory)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) != (locked.st_dev, locked.st_ino)

    def release(self) -> None:
        """Give the directory up."""
        drop_mark(self.mark)
        os.close(self._directory)
        os.close(self._descriptor)


def _locked_directory(directory: Path) -> int:
    """The directory's descriptor, locked where the file system can lock a directory (NFS cannot). Raises OSError if
    another process has it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            os.close(descriptor)
            raise
    return descriptor
