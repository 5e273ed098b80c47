"""Reads from IBM MQ without holding up the reactor for long; `backends.ibm.bounded_calls` has the thread.

The broker's own state lies in the buffer and is read at once. IBM MQ is asked only where messages come from and how
long they may be; while devices are served, the answer is waited for half a second at most. An answer that comes later
is kept for the next time the same is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from gateway.backends.buffer.link import Reads
from gateway.backends.ibm.bounded_calls import BoundedCalls, Unanswered
from gateway.errors import MQError
from gateway.ports.asking import found_or_raised
from gateway.ports.batch import Scheduler, Stored, Token
from gateway.ports.sources import Backout, Incomplete, Subscribed

BRIEF_SECONDS = 0.05
LATE_SECONDS = 60.0
"""How long a late answer is used; callers ask again after 10 seconds."""
_T = TypeVar("_T")


class BoundedReads:
    """Implements `Reads` with time limits, over another one."""

    def __init__(self, reads: Reads, scheduler: Scheduler, silent: Callable[[str], None]) -> None:
        """`silent` is called for a call that has not returned, in the caller's thread."""
        self._reads = reads
        self._calls = BoundedCalls(scheduler, silent=silent)
        self._call = self._calls.call
        self._scheduler = scheduler
        self._late: dict[Hashable, tuple[float, object]] = {}
        """Answers that came after their caller had stopped waiting, and when."""
        self._looking = False

    @property
    def silent(self) -> Callable[[str], None]:
        """What is called for a call that has not returned."""
        return self._calls.silent

    @silent.setter
    def silent(self, silent: Callable[[str], None]) -> None:
        self._calls.silent = silent

    def _briefly(self, what: Hashable, read: Callable[[], _T]) -> _T:
        """Returns what is read. Raises Unanswered after a moment; the call goes on, and `what` identifies its late
        answer."""

        def question() -> _T | MQError:
            found: _T | MQError = found_or_raised(read)
            self._late[what] = self._scheduler.monotonic(), found
            return found

        since, late = self._late.pop(what, (0.0, None))
        if late is None or self._scheduler.monotonic() - since > LATE_SECONDS:
            try:
                late = self._call(question, BRIEF_SECONDS)
            except Unanswered:
                self._look_later()
                raise
            self._late.pop(what, None)
        if isinstance(late, MQError):
            raise late
        return late  # type: ignore[return-value]

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            self._scheduler.later(self._calls.seconds, self._look)

    def _look(self) -> None:
        """Check whether a call that was not waited for has returned."""
        self._looking = False
        silence = self._calls.silence()
        if silence >= self._calls.seconds:
            self._calls.silent(f"the queue manager has not answered for {silence:.0f} s")

    def fetch(self, queue: str, key: bytes, limit: int, after: Token | None = None) -> list[Stored]:
        """See `Reads`."""
        return self._call(lambda: self._reads.fetch(queue, key, limit, after))

    def load(self, queue: str) -> Iterable[tuple[bytes, Stored]]:
        """See `Reads`."""
        return self._call(lambda: list(self._reads.load(queue)))

    def depth(self, queue: str, key: bytes = b"") -> int:
        """See `Reads`."""
        return self._call(lambda: self._reads.depth(queue, key))

    def max_length(self, queue: str) -> int:
        """See `Reads`."""
        return self._briefly((queue, "length"), lambda: self._reads.max_length(queue))

    def knows_length(self, queue: str) -> bool:
        """See `Reads`; from memory."""
        return self._reads.knows_length(queue)

    def backout(self, queue: str) -> Backout:
        """See `Reads`."""
        return self._briefly((queue, "backout"), lambda: self._reads.backout(queue))

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """See `Reads`."""
        return self._briefly((name, topic, "subscription"), lambda: self._reads.subscribe(name, topic))

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """See `Reads`; from memory."""
        return self._reads.claim(queue, key, limit)

    def gather(self, queue: str, *, groups: bool) -> None:
        """See `Reads`; kept in memory."""
        self._reads.gather(queue, groups=groups)

    def incomplete(self, queue: str) -> Incomplete:
        """See `Reads`; from memory."""
        return self._reads.incomplete(queue)

    def consume(self, queue: str, arrived: Callable[[], None]) -> None:
        """See `Reads`; it starts a thread."""
        self._reads.consume(queue, arrived)

    def stop_consuming(self, queue: str, key: bytes = b"") -> None:
        """See `Reads`; a thread ends, or is told."""
        self._reads.stop_consuming(queue, key)

    def close(self) -> None:
        """See `Reads`."""
        silent = self._calls.silence() >= self._calls.seconds
        self._calls.close()
        if not silent:
            self._reads.close()
