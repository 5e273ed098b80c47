"""Reading from the sockets of many programs and writing to many, in one call each; in C (`_sockets.c`) where there was
a compiler at installation.

Only the usual case is done here: a socket that is gone, has an error or does not take all is left to the caller. The
Python below does the same; the tests compare the two.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import TypeVar

P = TypeVar("P")
_ROOM = memoryview(bytearray(256 << 10))
"""The most bytes that are read from a socket at a time, until they are copied: memory of this size would be mapped and
released for every read."""


def read(fd: int) -> bytes:
    """Returns what has come; empty if the peer is gone. Raises OSError like a read: BlockingIOError if nothing has
    come."""
    return bytes(_ROOM[: os.readv(fd, (_ROOM,))])


def receive_in_python(
    events: list[tuple[int, int]], programs: dict[int, P], /
) -> tuple[list[tuple[P, bytes]], list[tuple[int, int]]]:
    """Returns what has come, with its sender, and the events that are left to the caller."""
    arrived: list[tuple[P, bytes]] = []
    rest: list[tuple[int, int]] = []
    for fd, ready in events:
        data = b""
        if ready == select.EPOLLIN and fd in programs:
            with suppress(OSError):
                data = read(fd)
        if data:
            arrived.append((programs[fd], data))
        else:
            rest.append((fd, ready))
    return arrived, rest


def send_each_in_python(descriptors: tuple[int, ...], datas: tuple[bytes, ...], /) -> list[tuple[int, int]]:
    """Send each socket its bytes. Returns, for sockets that do not take all, the position and how many bytes were
    taken."""
    rest: list[tuple[int, int]] = []
    for at, (fd, data) in enumerate(zip(descriptors, datas, strict=True)):
        sent = 0
        with suppress(OSError):
            sent = os.write(fd, data)
        if sent < len(data):
            rest.append((at, sent))
    return rest


receive, send_each = receive_in_python, send_each_in_python
with suppress(ModuleNotFoundError):
    import gateway.mqi._sockets as compiled_sockets

    receive, send_each = compiled_sockets.receive, compiled_sockets.send_each
