"""Watches the turns of the reactor. A turn is everything between two waits of the process for its sockets: while it
lasts, everybody waits.

Watching costs a turn two readings of the clock. A thread checks ten times a second whether a turn lasts too long, and
notes what the reactor is doing then; the parts that serve one client after the other say which one took long.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import monotonic, thread_time
from types import FrameType
from typing import NamedTuple

STALL_SECONDS = 0.25
"""A turn that takes longer is a stall."""
LASTING_SECONDS = 5.0
"""A turn that takes longer is reported while it lasts: it may never end, and its process may be killed because of
it."""
_LOOK_SECONDS = 0.1
_PROCESSOR_SECONDS = 0.01
"""How old the last reading of the processor time may be: it costs a system call, so not every turn makes one."""
_FRAMES = 5
"""How many of the gateway's own functions are named, innermost first."""


class Stall(NamedTuple):
    """A turn that took too long."""

    seconds: float
    processor: float
    """For how many seconds the reactor's thread had a processor; the rest of the time it waited for one, for a disk or
    for a lock."""
    doing: str
    """What took longest."""
    who: str
    """Who that was for: client identifier and address, or what is known; empty if no single part took long."""
    at: str
    """Where the reactor was when the watching thread looked; empty if it could not look."""


class Turns:
    """The turns of one reactor thread."""

    def __init__(self, stall_seconds: float = STALL_SECONDS) -> None:
        self.stall_seconds = stall_seconds
        self.on_stall: Callable[[Stall], None] = lambda _stall: None
        self.on_lasting: Callable[[float, str], None] = lambda _seconds, _at: None
        """Called by the watching thread, once for each long turn, with where the reactor is."""
        self.begun = 0.0
        """When the current turn began; 0: the process is waiting."""
        self._processor = self._looked = 0.0
        self._slowest = (0.0, "", "")
        self._seen = (0.0, "")
        """The turn at which the thread looked last, and where the reactor was then."""
        self._reactor_thread = 0
        self._over = threading.Event()

    # -- what the hub calls --

    def begin(self) -> None:
        """A turn begins, after the process has waited."""
        now = self.begun = monotonic()
        if now - self._looked > _PROCESSOR_SECONDS:
            self._looked, self._processor = now, thread_time()

    def end(self) -> None:
        """The turn is over: the process is about to wait."""
        begun, self.begun = self.begun, 0.0
        if begun and monotonic() - begun > self.stall_seconds:
            self._stalled(monotonic() - begun, begun)
        elif self._slowest[0]:
            self._slowest = (0.0, "", "")

    def took(self, seconds: float, doing: str, who: str) -> None:
        """Note that a part of this turn took long."""
        if seconds > self._slowest[0]:
            self._slowest = (seconds, doing, who)

    def _stalled(self, seconds: float, begun: float) -> None:
        _, doing, who = self._slowest
        at = self._seen[1] if self._seen[0] == begun else ""
        processor = min(seconds, thread_time() - self._processor)
        self._slowest = (0.0, "", "")
        self._looked = 0.0
        self.on_stall(Stall(seconds, processor, doing, who, at))

    # -- the watching thread --

    def watch(self) -> None:
        """Start the watching thread; called in the reactor's thread."""
        self._reactor_thread = threading.get_ident()
        threading.Thread(target=self._look_on, name="turns", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()

    def _look_on(self) -> None:
        told = 0.0
        while not self._over.wait(_LOOK_SECONDS):
            begun = self.begun
            seconds = monotonic() - begun if begun else 0.0
            if begun != self._seen[0] and seconds > self.stall_seconds:
                self._seen = (begun, self._place())
            if begun != told and seconds > LASTING_SECONDS:
                told = begun
                self.on_lasting(seconds, self._place())

    def _place(self) -> str:
        return place_of(sys._current_frames().get(self._reactor_thread))  # noqa: SLF001


def place_of(frame: FrameType | None) -> str:
    """The functions of the gateway that a frame is in, innermost first."""
    found: list[str] = []
    while frame is not None and len(found) < _FRAMES:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("gateway."):
            found.append(f"{module.removeprefix('gateway.')}.{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(found)
