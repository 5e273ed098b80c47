"""MsgIds of the gateway's own state messages: unique, and in the order in which their messages lie on a queue.

`MQGT` | 9 - priority | epoch (7 bytes) | number (8 bytes) | process (4 random bytes)

By this order a reader can continue after a message that has been taken meanwhile. The epoch is the start of the process
in microseconds, or one more than that of a message which another process has put and this one has read: what a session
is sent at its present gateway follows what was put at its former one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeGuard

_EYECATCHER = b"MQGT"
_EPOCH = slice(5, 12)
_PROCESS = slice(20, 24)


class MessageIds:
    """Makes MsgIds from a message's priority."""

    def __init__(self, started: float, process: bytes) -> None:
        """`process` is 4 random bytes, `started` the time of the start."""
        self._numbers = count(1)
        self._process = process.ljust(4, b"\0")[:4]
        self._begin(int(started * 1_000_000))

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch.to_bytes(7, "big")
        self._lanes = [_EYECATCHER + bytes((9 - priority,)) + self._epoch for priority in range(10)]

    def __call__(self, priority: int) -> bytes:
        return self._lanes[min(max(priority, 0), 9)] + next(self._numbers).to_bytes(8, "big") + self._process

    def follow(self, token: object) -> None:
        """Let what is made from now on follow this message, if another process has put it."""
        if is_ours(token) and token[_EPOCH] >= self._epoch and token[_PROCESS] != self._process:  # type: ignore[index]
            self._begin(int.from_bytes(token[_EPOCH], "big") + 1)  # type: ignore[index]


NewId = Callable[[int], bytes]
"""A function from a message's priority to a new MsgId."""


def is_msg_id(token: object) -> TypeGuard[bytes]:
    """Whether a token is a MsgId, whoever made it."""
    return isinstance(token, bytes) and len(token) == 24


def is_ours(token: object) -> bool:
    """Whether a token is an identifier made here."""
    return isinstance(token, bytes) and token[:4] == _EYECATCHER


def follows(token: object, after: object) -> bool:
    """Whether one of our messages follows another, according to their identifiers."""
    return isinstance(token, bytes) and isinstance(after, bytes) and token > after


def follows_in_process(token: object, after: object) -> bool:
    """Whether it does so because the same process has put both."""
    return (
        isinstance(token, bytes) and isinstance(after, bytes)
        and token > after and token[:5] == after[:5] and token[_PROCESS] == after[_PROCESS]
    )  # fmt: skip
