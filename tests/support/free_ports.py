"""Ports for the servers that tests start: never handed out twice at the same time, and out of the kernel's way.

A port asked of the kernel (bind to 0, close, use it later) comes from the range outgoing connections use too:
a second test or any connection may have it by the time the server binds. These come from below that range and are
counted up in a file that all test processes of the user share.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

FIRST, LAST = 12_000, 32_000
COUNTER = Path("/tmp") / f"mqgate-test-ports-{os.getuid()}"  # not TMPDIR: runs with a folder each share the ports


def _listens(port: int) -> bool:
    """Whether somebody has it; without SO_REUSEADDR, so that one still closing counts as taken."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def free_port() -> int:
    """A port nobody has, and which no other test is given before all the others have been."""
    with COUNTER.open("a+") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        text = counter.read().strip()
        port = int(text) if text.isdigit() else FIRST
        for _ in range(LAST - FIRST):
            port = port + 1 if FIRST <= port < LAST else FIRST
            if not _listens(port):
                break
        else:
            raise RuntimeError(f"no port between {FIRST} and {LAST} is free")
        counter.truncate(0)
        counter.write(str(port))
    return port
