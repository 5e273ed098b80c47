"""Gets whose search of a deep queue takes several turns: devices and other programs are served in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gateway.queue_manager.core import Core

SECONDS = 0.01
"""Seconds for searching in one turn."""


class Searching(Protocol):
    """A get that has not looked at all messages yet."""

    ended: bool

    def look_on(self) -> None:
        """Look at some more messages; if any are left then, hand itself to `Searches.add`."""


class Searches:
    """The unfinished searches of a queue manager. However many there are, together they get the time of one in a
    turn."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._gets: deque[Searching] = deque()
        self._until: float | None = None
        self._planned = False

    def until(self) -> float:
        """When a search that begins or goes on now has to stop (monotonic seconds)."""
        return self._core.scheduler.monotonic() + SECONDS if self._until is None else self._until

    @contextmanager
    def sharing(self) -> Iterator[Callable[[], bool]]:
        """A context within which searches share their time. Its value is a function that says whether some of it is
        left."""
        monotonic = self._core.scheduler.monotonic
        until = self._until = self.until()
        try:
            yield lambda: monotonic() < until
        finally:
            self._until = None

    def add(self, get: Searching) -> None:
        """Have a get look on in a later turn, behind the others."""
        self._gets.append(get)
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._core.scheduler.soon(lambda: self._core.tell(self._look_on))

    def _look_on(self) -> None:
        with self._core.gathered():
            self._planned = False
            if self._core.closed:
                return
            try:
                self._share_turn()
            finally:  # a defect in one of them does not keep the others waiting
                if self._gets:
                    self._plan()

    def _share_turn(self) -> None:
        with self.sharing() as time_left:
            for _ in range(len(self._gets)):
                get = self._gets.popleft()
                if not get.ended:
                    get.look_on()
                    if not time_left():
                        break
