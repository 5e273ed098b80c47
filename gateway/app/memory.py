"""How this process keeps its memory: when the garbage collector runs, and what the C library gives back."""

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
"""Bytes of free memory that are kept, and the longest piece that comes from there."""
COLLECTED = 4_000, 0, 7_500
"""After how many more objects a run is made over the youngest, after how many such runs one over what they left, and
after how many of these one over all. With 0 every second run is over both, 8,000 objects at most: what they lead to is
in no cache, so that a run over 20,000 took up to 0.16 s on a machine whose memory is slow, in which nobody is served.
With 2,000 instead of 4,000 batches of a thousand stored messages, which are gone a moment later, set runs off."""
_OPERATORS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables by which an operator says the same; then nothing is changed here."""


def collect_seldom() -> None:
    """Let the garbage collector run seldom, before what is stored comes back: with Python's own numbers it would take
    more time than all else at the start with tens of thousands of sessions."""
    gc.collect()
    gc.set_threshold(*COLLECTED)


def freeze_what_exists() -> None:
    """Never look at what exists now: a run over the objects of tens of thousands of sessions would stop the gateway for
    every device. Messages and connections end in no cycle of references, which tests check; what may still be left is
    young, and collected now and then."""
    gc.collect(1)
    gc.freeze()


def end_without_a_look() -> None:
    """The process ends, with all that it has: the interpreter would look through everything first, more than once, with
    fifty thousand sessions for two seconds and more, in which the next process waits for the directory."""
    gc.freeze()


def keep_what_is_freed() -> bool:
    """Have the allocator keep the memory of one batch for the next. By itself the GNU C library returns a frame's
    memory to the system as soon as it is written and asks for it again a millisecond later, page by page: with payloads
    of 16 KiB that is a third of all processor time. False: another library, or an operator has decided."""
    if any(name in os.environ for name in _OPERATORS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LONGEST)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT))


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes that this process may use: all of the machine, or what its control group, as of a container or a systemd
    unit, and its own limit leave it."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    found += [bound for bound in resource.getrlimit(resource.RLIMIT_AS) if bound != resource.RLIM_INFINITY]
    for file in _control_group(root):
        with contextlib.suppress(OSError, ValueError):  # it has no limit, or is not to be seen from in here
            found.append(int(file.read_text(encoding="ascii")))
    return min(found)


def _control_group(root: Path) -> Iterator[Path]:
    """Where the limit of this process's control group is said, in versions 1 and 2 of these; a container may see its
    own as their root, though it is told of another name."""
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
