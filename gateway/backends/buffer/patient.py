"""Reading from IBM MQ without ever holding up the reactor for long.

A network that is cut silently leaves calls hanging for minutes, until the client library's heartbeats notice. Reads are
made on a thread of their own; one that takes too long raises MQError, and so does everything after it until that call
has come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from gateway.backends.buffer.link import Reads
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.batch import Stored, Token
from gateway.ports.sources import Backout, Incomplete, Subscribed

PATIENCE_SECONDS = 2.0
_T = TypeVar("_T")


class PatientReads:
    """Implements `Reads` over another one."""

    def __init__(self, reads: Reads, silent: Callable[[str], None] = lambda _why: None) -> None:
        """`silent` hears of a call that has not come back, in the caller's thread."""
        self._reads = reads
        self.silent = silent
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._stuck = False
        Thread(target=self._run, name="mq-reads", daemon=True).start()  # the process must end though a call hangs

    def _run(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, future = asked
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 -- the caller's
                future.set_exception(error)

    def _call(self, call: Callable[[], _T]) -> _T:
        if self._stuck:
            raise MQError(mq.MQRC_Q_MGR_NOT_AVAILABLE, "an earlier call has not come back")
        future: Future[_T] = Future()
        self._calls.put((call, future))
        try:
            return future.result(PATIENCE_SECONDS)
        except TooLate:
            self._stuck = True
            future.add_done_callback(self._back)
            why = f"IBM MQ has not answered a read for {PATIENCE_SECONDS:.0f} s"
            self.silent(why)
            raise MQError(mq.MQRC_Q_MGR_NOT_AVAILABLE, why) from None

    def _back(self, future: Future[_T]) -> None:
        del future
        self._stuck = False

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
        self._calls.put(None)
        if not self._stuck:
            self._reads.close()
