"""Files are read, and what is in them is checked and compiled, in a thread: of ten thousand rules that takes a second,
in which devices are served."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from gateway.access.waiting_threads import WaitingThreads

T = TypeVar("T")
MOST_WAITING = 4
"""Questions of the page, of which each may take a second: a reload waits for no more, whoever asks."""


class Reader:
    """One question after the other, in the order in which they are asked. `soon` makes a call in the reactor's thread,
    where all answers are told."""

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        self._soon = soon
        self._threads = WaitingThreads(1, "reader")
        self._closed = False
        self._waiting = 0

    @property
    def is_busy(self) -> bool:
        """Whether those who can ask again later should."""
        return self._waiting >= MOST_WAITING

    def ask(self, question: Callable[[], T], told: Callable[[T | Exception], None]) -> None:
        """`told` gets the answer, or what was raised."""
        self._waiting += 1
        self._threads.submit(lambda: self._soon(partial(self._tell, told, _answer(question))))

    def _tell(self, told: Callable[[T | Exception], None], answer: T | Exception) -> None:
        self._waiting -= 1
        if not self._closed:
            told(answer)

    def close(self) -> None:
        """The gateway ends: what is under way is told to nobody."""
        self._closed = True
        self._threads.close()


def _answer(question: Callable[[], T]) -> T | Exception:
    try:
        return question()
    except Exception as error:  # noqa: BLE001 -- told apart by who has asked
        return error
