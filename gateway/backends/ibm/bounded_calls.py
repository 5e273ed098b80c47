"""Calls to a queue manager that may not answer, made one after the other in a thread of their own, each with a time
limit for the caller.

When a network is cut silently, calls hang for minutes, until the client library's heartbeats notice. A question is
given up when nothing has been heard for too long, and so is every later one until the call has returned. A slow
question is waited for as long as the queue manager answers the single calls it consists of. The reactor uses `ask` and
goes on; `call` waits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from time import monotonic
from typing import Any, TypeVar

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.batch import Scheduler

ANSWER_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_T = TypeVar("_T")


class Unanswered(MQError):
    """A question was given up."""

    def __init__(self, why: str, *, begun: bool, busy: bool = False, stopping: bool = False) -> None:
        super().__init__(2203 if stopping else mq.MQRC_Q_MGR_NOT_AVAILABLE, why)  # MQRC_CONNECTION_STOPPING
        self.why = why
        self.begun = begun
        """Whether its call was made and has not returned: it may still take effect."""
        self.busy = busy
        """Whether the queue manager answers, and earlier questions took too long."""
        self.stopping = stopping


class _Question:
    __slots__ = ("answered", "begun", "question", "since", "told")

    def __init__(self, question: Callable[[], Any], answered: Callable[[Any], None], since: float) -> None:
        self.question = question
        self.answered = answered
        """Called in the thread with what was found, or with the exception."""
        self.since = since
        self.begun = self.told = False


class BoundedCalls:
    """A thread for calls, with a time limit for callers. `ask` is called in the reactor, and so is its `answered`."""

    def __init__(
        self,
        scheduler: Scheduler,
        seconds: float = ANSWER_SECONDS,
        *,
        silent: Callable[[str], None] = lambda _why: None,
        close: Callable[[], None] = lambda: None,
        name: str = "mq-reads",
    ) -> None:
        """`silent` is called when a call has not returned, in the reactor's thread or that of the caller who waits.
        `close` is called in the thread at its end."""
        self.silent = silent
        self.seconds = seconds
        self._scheduler = scheduler
        self._close = close
        self._waiting: SimpleQueue[_Question | None] = SimpleQueue()
        self._pending: dict[_Question, Callable[[Any], None]] = {}
        """What the reactor has asked, and whom to tell."""
        self._watching = False
        self._due = 0.0
        """When to check next."""
        self._lock = Lock()
        """Keeps a question that has begun from being reported as given up before it began, and vice versa."""
        self._heard = 0.0
        self._busy = False
        self.thread = Thread(target=self._run, name=name, daemon=True)  # the process must end though a call hangs
        self.thread.start()

    def __len__(self) -> int:
        return len(self._pending)

    def heard(self) -> None:
        """Something has been answered: the call in progress may take longer."""
        self._heard = monotonic()

    def silence(self) -> float:
        """Returns for how many seconds a question has been waiting for the queue manager."""
        return monotonic() - self._heard if self._busy else 0.0

    def close(self, seconds: float = 0.0) -> None:
        """End the thread, waiting at most this long for it. A call that hangs is abandoned."""
        for asked in list(self._pending):
            self._tell(asked, Unanswered("the gateway is stopping", begun=asked.begun, stopping=True))
        self._waiting.put(None)
        if seconds:
            self.thread.join(seconds)

    # For callers that go on

    def ask(self, question: Callable[[], _T], answered: Callable[[_T | Exception], None]) -> None:
        """Call `answered` with what the question finds or raises, or with Unanswered; never before this returns."""
        if self.silence() >= self.seconds:
            self._scheduler.soon(lambda: answered(self._no_answer(begun=False)))
            return
        asked = _Question(question, lambda found: self._scheduler.soon(partial(self._tell, asked, found)), monotonic())
        self._pending[asked] = answered
        self._waiting.put(asked)
        if not self._watching:
            self._watching = True
            self._look_later()

    def _look_later(self) -> None:
        seconds = min(_LOOK_SECONDS, self.seconds)
        self._due = monotonic() + seconds
        self._scheduler.later(seconds, self._look)

    def _look(self) -> None:
        self._forgive(monotonic() - self._due)
        for asked in list(self._pending):
            left = self._left(asked)
            if left is None:
                continue
            if left.begun:
                self.silent(left.why)
            self._tell(asked, left)
        self._watching = bool(self._pending)
        if self._watching:
            self._look_later()

    def _forgive(self, late: float) -> None:
        """Take into account that a late check means that this process stood still: for that long only the process
        itself was silent, and what was answered meanwhile may be on its way from the thread."""
        if late < _LOOK_SECONDS:
            return
        self._heard = min(self._heard + late, monotonic())
        for asked in self._pending:
            asked.since += late

    def _tell(self, asked: _Question, found: object) -> None:
        answered = self._pending.pop(asked, None)
        if answered is not None:
            answered(found)

    # For callers that wait

    def call(self, question: Callable[[], _T], seconds: float = 0.0) -> _T:
        """Returns the answer of `question`, or raises its exception; Unanswered if it has not returned after this many
        seconds."""
        if current_thread() is self.thread:
            return question()  # a part of what is being asked already
        limit = seconds or self.seconds
        if self.silence() >= limit:
            raise self._no_answer(begun=False)
        begun = monotonic()
        try:
            return self._waited_for(question, limit, own=not seconds)
        finally:
            self._due += monotonic() - begun  # a caller that waits here has not stood still

    def _waited_for(self, question: Callable[[], _T], limit: float, *, own: bool) -> _T:
        """Wait for an answer. `own`: by the limit of these calls, beyond which the queue manager counts as silent."""
        future: Future[_T] = Future()
        asked = _Question(question, future.set_result, monotonic())
        self._waiting.put(asked)
        left = None
        while left is None and not future.done():
            since = max(self._heard, asked.since) if asked.begun else asked.since
            try:
                found = future.result(max(0.001, since + limit - monotonic()))
            except TooLate:
                left = self._left(asked, limit)
                continue
            if isinstance(found, Exception):
                raise found
            return found
        if left is None:
            return future.result()
        if left.begun and own:
            self.silent(left.why)
        raise left

    # For both

    def _left(self, asked: _Question, limit: float = 0.0) -> Unanswered | None:
        """Returns why a question is given up now; None if it is not."""
        limit = limit or self.seconds
        with self._lock:
            if not asked.begun and monotonic() - asked.since >= limit:
                asked.told = True
        silent = self.silence() >= limit
        if asked.told:
            return self._no_answer(begun=False) if silent else Unanswered("others take long", begun=False, busy=True)
        return self._no_answer(begun=True) if asked.begun and silent else None

    def _no_answer(self, *, begun: bool) -> Unanswered:
        seconds = max(self.silence(), self.seconds)
        return Unanswered(f"the queue manager has not answered for {seconds:.0f} s", begun=begun)

    def _run(self) -> None:
        while (asked := self._waiting.get()) is not None:
            with self._lock:
                if asked.told:
                    continue
                self.heard()
                asked.begun = self._busy = True
            try:
                found = asked.question()
            except Exception as error:  # noqa: BLE001 -- the caller decides what it means
                found = error
            self._busy = False
            asked.answered(found)
        self._close()
