"""Named points at which a test kills the process, as a power cut would: without any clean-up.

`MQGATE_FAILPOINT=name` or `name:3` (the third time it is passed). `MQGATE_FAILPOINT_FILE` names a file that is created
first, so that a point fires once over all processes of a run (Spark's planner, its workers and the driver).
Without the variable a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

POINTS = (
    "plan.before",          # latestOffset is about to name the end of a batch
    "offsets.before",       # latestOffset has named it; Spark has not logged it
    "offsets.after",        # partitions: Spark has logged the batch
    "read.middle",          # a task has handed over its first rows
    "land.stage.before",
    "land.stage.after",     # all files are written under the staging folder
    "land.rename.before",
    "land.rename.after",    # the files are visible, the manifest does not know them
    "land.manifest.before",
    "land.manifest.after",  # landed; Spark's commit log does not have the batch
    "commitlog.after",      # latestOffset of the next batch: the commit log has the last one
    "acknowledge.before",
    "acknowledge.after",
    "purge.before",
    "purge.after",
    "drain.get.after",
    "drain.append.before",
    "drain.append.after",   # in the journal with fsync
    "drain.commit.before",  # MQCMIT not called
    "drain.commit.after",
)  # fmt: skip

_wanted, _, _count = os.environ.get("MQGATE_FAILPOINT", "").partition(":")
_left = int(_count or "1")


def failpoint(name: str) -> None:
    """Kill this process here if the test has named this point."""
    if name == _wanted:
        _fire()


def _fire() -> None:
    global _left  # noqa: PLW0603 - one counter for the process is the meaning of a failpoint
    _left -= 1
    if _left or not _claim():
        return
    _kill()


def _claim() -> bool:
    """Whether this is the first process of the run that passes the point."""
    marker = os.environ.get("MQGATE_FAILPOINT_FILE")
    if not marker:
        return True
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _kill() -> None:
    """Kill the process group if the test made one (Spark is several processes), otherwise this process."""
    group = os.environ.get("MQGATE_FAILPOINT_GROUP_FILE")
    if group and Path(group).exists():
        os.killpg(int(Path(group).read_text()), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
