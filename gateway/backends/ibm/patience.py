"""Calls whose caller does not wait for ever: made in a thread of their own, given up when nothing is heard any more.

A network that is cut silently leaves calls hanging for minutes, until the client library's heartbeats notice. One that
takes too long raises MQError, and so does everything after it until that call has come back.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

from gateway.errors import MQError
from gateway.mq import constants as mq

PATIENCE_SECONDS = 2.0
_T = TypeVar("_T")


class Patience:
    """See the module. `call` is for one thread."""

    def __init__(
        self,
        seconds: float = PATIENCE_SECONDS,
        silent: Callable[[str], None] = lambda _why: None,
        name: str = "mq-reads",
    ) -> None:
        """`silent` hears of a call that has not come back, in the caller's thread."""
        self.silent = silent
        self._seconds = seconds
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._heard = 0.0
        self.stuck = False
        Thread(target=self._run, name=name, daemon=True).start()  # the process must end though a call hangs

    def heard(self) -> None:
        """Something has been answered: the call that is under way may take longer."""
        self._heard = monotonic()

    def call(self, call: Callable[[], _T]) -> _T:
        """What it answers or raises; MQError when it does not come back."""
        if self.stuck:
            raise MQError(mq.MQRC_Q_MGR_NOT_AVAILABLE, "an earlier call has not come back")
        future: Future[_T] = Future()
        self.heard()
        self._calls.put((call, future))
        while (left := self._heard + self._seconds - monotonic()) > 0:
            try:
                return future.result(left)
            except TooLate:
                continue
        self.stuck = True
        future.add_done_callback(self._back)
        why = f"IBM MQ has not answered a read for {self._seconds:.0f} s"
        self.silent(why)
        raise MQError(mq.MQRC_Q_MGR_NOT_AVAILABLE, why)

    def close(self) -> None:
        """No more calls; one that hangs is left behind."""
        self._calls.put(None)

    def _back(self, future: Future[Any]) -> None:
        del future
        self.stuck = False

    def _run(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, future = asked
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 -- the caller's
                future.set_exception(error)
