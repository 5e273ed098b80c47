"""MsgIds of the gateway's own state messages: unique, and in the order in which their messages lie on a queue.

`MQGT` | 9 - priority | start of the process (7 bytes, microseconds) | number (8 bytes) | process (4 random bytes)

By their order a reader can continue after a message that has been taken meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

_EYECATCHER = b"MQGT"
NewId = Callable[[int], bytes]


def message_ids(started: float, process: bytes) -> NewId:
    """A function from a message's priority to a new MsgId; `process` is 4 random bytes, `started` the time."""
    numbers = count(1)
    since = int(started * 1_000_000).to_bytes(7, "big")
    lanes = [_EYECATCHER + bytes((9 - priority,)) + since for priority in range(10)]
    process = process.ljust(4, b"\0")[:4]

    def new_id(priority: int) -> bytes:
        return lanes[min(max(priority, 0), 9)] + next(numbers).to_bytes(8, "big") + process

    return new_id


def is_ours(token: object) -> bool:
    """Whether a token is such an identifier."""
    return isinstance(token, bytes) and token[:4] == _EYECATCHER
