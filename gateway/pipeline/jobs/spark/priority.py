"""How far a job's processes step back behind others on the same machine, such as the gateway whose queues it reads.

Spark starts as many threads as it has tasks and takes all that the machine has. The gateway answers devices; the stream
may be a moment later. The kernel shares out processors by nice values, so the stream loses nothing while nobody else
wants them. It compares them within a group of processes alone: where each session of a terminal or service is a group
(`sched_autogroup_enabled`), the group has a value too; in control groups the weights of the units decide.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")


def steps_back_here(settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the tasks of a session run on this machine, below this process."""
    return "PYSPARK_GATEWAY_PORT" not in environment and settings.get("spark.master", "local").startswith("local")


def step_back(nice: int) -> None:
    """Give this thread, and all processes that it starts from now on, at least this nice value. The group of the
    session gets it too where the session is this process's own, and nobody else's."""
    if nice > os.getpriority(os.PRIO_PROCESS, 0):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        if os.getsid(0) == os.getpid():
            with suppress(OSError):  # a kernel without groups
                AUTOGROUP.write_text(f"{nice}\n", encoding="ascii")
