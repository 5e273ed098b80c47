"""The folder of Spark's checkpoint where the manifest says where to go on: on this host, new at each start, named after
the job. Its driver holds a lock on it, which ends with the driver however that ends; what a killed driver has left is
removed at the next start of the job on this host."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class OwnFolder:
    """A folder of this driver alone, among temporary files. Folders with this prefix that killed drivers have left are
    removed."""

    def __init__(self, prefix: str) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            remove_unowned(left)
        lock = None
        while lock is None:  # another driver that starts may take it for left behind before it is locked
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            lock = locked(self.path)
        self._lock = lock

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


class CheckpointFolder(OwnFolder):
    """The folder of a job's checkpoint."""

    def __init__(self, job: str) -> None:
        super().__init__(f"mqgate-checkpoint-{job}-")


def remove_unowned(folder: Path) -> None:
    """Remove a folder of this user whose driver is gone."""
    lock = locked(folder)
    if lock is not None:
        if os.fstat(lock).st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def locked(folder: Path) -> int | None:
    """The descriptor that locks a folder; None if another process has the lock, or the folder is not there."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    if folder.exists():
        return lock
    os.close(lock)  # another process has removed it since
    return None
