"""Reading from IBM MQ without ever holding up the reactor for long: see `backends.ibm.patience`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.backends.buffer.link import Reads
from gateway.backends.ibm.patience import Patience
from gateway.ports.batch import Scheduler, Stored, Token
from gateway.ports.sources import Backout, Incomplete, Subscribed


class PatientReads:
    """Implements `Reads` over another one."""

    def __init__(self, reads: Reads, scheduler: Scheduler, silent: Callable[[str], None] = lambda _why: None) -> None:
        """`silent` hears of a call that has not come back, in the caller's thread."""
        self._reads = reads
        self._patience = Patience(scheduler, silent=silent)
        self._call = self._patience.call

    @property
    def silent(self) -> Callable[[str], None]:
        """Who hears of a call that has not come back."""
        return self._patience.silent

    @silent.setter
    def silent(self, silent: Callable[[str], None]) -> None:
        self._patience.silent = silent

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
        return self._call(lambda: self._reads.max_length(queue))

    def backout(self, queue: str) -> Backout:
        """See `Reads`."""
        return self._call(lambda: self._reads.backout(queue))

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """See `Reads`."""
        return self._call(lambda: self._reads.subscribe(name, topic))

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

    def close(self) -> None:
        """See `Reads`."""
        silent = self._patience.silence() >= self._patience.seconds
        self._patience.close()
        if not silent:
            self._reads.close()
