"""How this process uses memory: when the garbage collector runs, and what the C library returns to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Options of mallopt(3)."""
KEPT, LONGEST = 32 << 20, 8 << 20
"""Bytes of free memory that are kept, and the longest piece that is allocated from it."""
COLLECTED = 4_000, 0, 7_500
"""After how many additional objects the youngest are collected, after how many such runs also what these left, and
after how many of these everything. With 0 every second run includes both, 8,000 objects at most: what they refer to is
in no cache, so a run over 20,000 took up to 0.16 s on a machine with slow memory, and nobody is served in that time.
With 2,000 instead of 4,000, batches of a thousand stored messages, which are gone a moment later, would trigger
runs."""
_OPERATORS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables by which an operator sets the same; then nothing is changed here."""


def collect_seldom() -> None:
    """Let the garbage collector run seldom, before stored state is restored: with Python's defaults it would take more
    time than everything else at a start with tens of thousands of sessions."""
    gc.collect()
    gc.set_threshold(*COLLECTED)


def freeze_what_exists() -> None:
    """Exclude everything that exists now from garbage collection: a run over the objects of tens of thousands of
    sessions would stop the gateway for every device. Messages and connections leave no reference cycles, which tests
    check; what may be left nevertheless is young, and collected now and then."""
    gc.collect(1)
    gc.freeze()


def end_without_a_look() -> None:
    """End the process with all that it has. The interpreter would look through everything first, more than once: with
    fifty thousand sessions for two seconds and more, in which the next process waits for the directory."""
    gc.freeze()


def keep_what_is_freed() -> bool:
    """Have the allocator keep the memory of one batch for the next. By default the GNU C library returns a frame's
    memory to the system as soon as it is written and asks for it again a millisecond later, page by page: with payloads
    of 16 KiB that is a third of all processor time. Returns False if there is another library, or an operator has
    decided."""
    if any(name in os.environ for name in _OPERATORS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LONGEST)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT))


def memory_limit(root: Path = Path("/")) -> int:
    """Returns the bytes that this process may use: all of the machine's, or what its control group, such as that of a
    container or a systemd unit, and its own limit allow."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    found += [bound for bound in resource.getrlimit(resource.RLIMIT_AS) if bound != resource.RLIM_INFINITY]
    for file in _control_group(root):
        with contextlib.suppress(OSError, ValueError):  # no limit, or not visible from inside
            found.append(int(file.read_text(encoding="ascii")))
    return min(found)


def _control_group(root: Path) -> Iterator[Path]:
    """Yields the directories that state the limit of this process's control group, in versions 1 and 2 of control
    groups. A container may see its own group as the root, although it is told another name."""
    groups = root / "sys/fs/cgroup"
    yield groups / "memory.max"
    yield groups / "memory/memory.limit_in_bytes"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            if not kinds:
                yield groups / path.strip("/") / "memory.max"
            elif "memory" in kinds.split(","):
                yield groups / "memory" / path.strip("/") / "memory.limit_in_bytes"
