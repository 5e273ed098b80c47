"""gateway.queue_manager.journal.lock: who has the directory, and what else may keep it from being locked."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gateway.errors import StoreInUse, StoreUnavailable
from gateway.queue_manager.journal import lock
from gateway.queue_manager.journal.lock import DirectoryLock


def test_a_second_one_is_told_who_has_it(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path)
    with pytest.raises(StoreInUse, match=f"process {os.getpid()} has this store open"):
        DirectoryLock(tmp_path)
    (tmp_path / "lock").unlink()  # the directory is locked too
    with pytest.raises(StoreInUse):
        DirectoryLock(tmp_path)
    first.release()
    DirectoryLock(tmp_path).release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EMFILE])
def test_what_the_system_refuses_is_not_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(_directory: Path) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock, "_locked_directory", refused)
    with pytest.raises(StoreUnavailable, match=f"it cannot be locked: {os.strerror(number)}"):
        DirectoryLock(tmp_path)
    monkeypatch.undo()
    DirectoryLock(tmp_path).release()  # nothing of the attempt is left
