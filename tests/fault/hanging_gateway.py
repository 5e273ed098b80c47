"""mqgate whose disk hangs: a write to a file below the directory MQGATE_HANGS does not return while there is a file
`hang` in it. What takes a second is told."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

HANGS = Path(os.environ["MQGATE_HANGS"])
_pwrite, _pwritev = os.pwrite, os.pwritev


def _wait() -> None:
    while (HANGS / "hang").exists():
        time.sleep(0.01)


def pwrite(descriptor: int, *rest: Any) -> int:
    _wait()
    return _pwrite(descriptor, *rest)


def pwritev(descriptor: int, *rest: Any) -> int:
    _wait()
    return _pwritev(descriptor, *rest)


os.pwrite, os.pwritev = pwrite, pwritev

from gateway.cli import main  # noqa: E402 -- the journal sees the disk above
from gateway.net import turns  # noqa: E402
from gateway.observe import disk_reports  # noqa: E402
from gateway.queue_manager.batch import commit  # noqa: E402

disk_reports.PATIENCE_WITH_DISK = turns.LASTING_SECONDS = 1.0
if "MQGATE_HANGS_AFTER_FAST_WRITES" in os.environ:  # all writes are the reactor's
    commit.THREAD_ABOVE = 1e9
else:  # a slow disk: all are the writer's thread's
    commit.INLINE_BELOW, commit.THREAD_ABOVE, commit.FIRST_TRIAL = -1.0, -1.0, 1 << 30

if __name__ == "__main__":
    sys.exit(main())
