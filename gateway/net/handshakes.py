"""TLS handshakes on threads: each takes a third of a millisecond of arithmetic, which no device should have to wait
for.

A connection whose handshake is with a thread is not read meanwhile, so that nobody else touches its session. There are
as many threads as processors, and they yield to the reactor's thread if both want the same one. Handshakes that have
begun go first, so that under a flood of new connections those that are half-way get through.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.net.tls_session import BROKEN_OFF, Session, Step, handshakes

MOST_THREADS = 4
MOST_WAITING = 500
"""If more steps wait, nobody is accepted: they are a fifth of a second's work for a processor."""
MOST_AT_ONCE = 8
"""How many steps one call of a thread takes."""
YIELDS = 5
"""By how much a thread's niceness exceeds that of the reactor's thread."""


class Waiting(NamedTuple):
    """A step of a handshake that waits for a thread."""

    session: Session
    data: bytes
    done: Callable[[Step], None]
    """Called in the reactor's thread."""


def processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


class Handshakes:
    """The threads, and the steps that wait for them. `soon` has a function called in the reactor's thread."""

    def __init__(self, soon: Callable[[Callable[[], None]], None], threads: int = 0) -> None:
        self._soon = soon
        self._most = threads or max(1, min(MOST_THREADS, processors()))
        self._running = self._idle = 0
        self._new: deque[Waiting] = deque()
        self._begun: deque[Waiting] = deque()
        self._some = threading.Condition()
        self._over = False

    @property
    def waiting(self) -> int:
        """How many steps no thread has taken yet."""
        return len(self._new) + len(self._begun)

    def busy(self) -> bool:
        """Whether so many steps wait that new connections should wait outside."""
        return self.waiting > MOST_WAITING

    def add(self, session: Session, data: bytes, done: Callable[[Step], None], *, begun: bool) -> None:
        """Have a thread continue a handshake."""
        with self._some:
            (self._begun if begun else self._new).append(Waiting(session, data, done))
            self._some.notify()
            if self._running < self._most and self.waiting > self._idle:
                self._running += 1
                threading.Thread(target=self._work, name=f"handshakes-{self._running}", daemon=True).start()

    def close(self) -> None:
        """End the threads; what waits for them is not done."""
        with self._some:
            self._over = True
            self._new.clear()
            self._begun.clear()
            self._some.notify_all()

    def _work(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + YIELDS)
        while True:
            with self._some:
                self._idle += 1
                while not self.waiting and not self._over:
                    self._some.wait()
                self._idle -= 1
                if self._over:
                    return
                share = max(1, min(MOST_AT_ONCE, self.waiting // self._most))
                taken = [(self._begun or self._new).popleft() for _ in range(share)]
            self._soon(partial(_tell, taken, _done(taken)))
            del taken


def _done(taken: list[Waiting]) -> list[Step]:
    try:
        return handshakes([(one.session, one.data) for one in taken])
    except Exception:  # noqa: BLE001 -- whatever it was, these connections end and the thread continues
        return [(False, b"", b"", BROKEN_OFF)] * len(taken)


def _tell(taken: list[Waiting], steps: list[Step]) -> None:
    for one, step in zip(taken, steps, strict=True):
        one.done(step)
