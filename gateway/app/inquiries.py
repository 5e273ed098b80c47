"""Questions to a queue manager that may not answer: put one after the other in a thread of their own, so that a call
that hangs costs no device anything. Whoever asked gets an answer in any case: what was found, or a sentence that says
for how long the queue manager has been silent and whether anything could still come of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from gateway.net.api import Answered, Endpoint, Later, Problem
from gateway.ports.batch import Scheduler

MOST = 32
"""Questions that wait, beside the one that is being answered."""
CLOSE_SECONDS = 1.0
_LOOK_SECONDS = 0.5


class _Question:
    __slots__ = ("answered", "begun", "changes", "question", "since", "told")

    def __init__(
        self, question: Callable[[], tuple[int, object]], answered: Answered, since: float, *, changes: bool
    ) -> None:
        self.question = question
        self.answered = answered
        self.since = since
        self.changes = changes
        self.begun = self.told = False


class Inquiries:
    """See the module. `ask` is called in the reactor, and so is the `answered` that was given to it."""

    def __init__(self, scheduler: Scheduler, patience: float, close: Callable[[], None] = lambda: None) -> None:
        """`patience`: seconds a queue manager may be silent; `close` is called in the thread when all is over."""
        self._scheduler = scheduler
        self._patience = patience
        self._close = close
        self._waiting: SimpleQueue[_Question | None] = SimpleQueue()
        self._pending: list[_Question] = []
        self._lock = threading.Lock()
        """What is begun is not told to have been left, and the other way round."""
        self._heard = 0.0
        self._busy = False
        self.thread = threading.Thread(target=self._run, name="mq-inquiries", daemon=True)  # a hanging call is left
        self.thread.start()

    def heard(self) -> None:
        """The queue manager has answered a call: one that is slow is waited for as long as it says something."""
        self._heard = self._scheduler.monotonic()

    def silent(self) -> float:
        """Seconds since a question has been waiting for the queue manager."""
        return self._scheduler.monotonic() - self._heard if self._busy else 0.0

    def ask(self, question: Callable[[], tuple[int, object]], answered: Answered, *, changes: bool = False) -> None:
        """`changes`: more than a look, so that it matters whether something was done."""
        if self.silent() >= self._patience:
            answered(self._no_answer(503, "nothing was asked of it; try again when it answers"))
        elif len(self._pending) > MOST:
            answered(Problem(503, "Too many at a time", f"{MOST} questions wait for the queue manager; try again"))
        else:
            asked = _Question(question, answered, self._scheduler.monotonic(), changes=changes)
            self._pending.append(asked)
            self._waiting.put(asked)
            self._scheduler.later(min(_LOOK_SECONDS, self._patience), lambda: self._look(asked))

    def apart(self, endpoint: Endpoint) -> Endpoint:
        """The same endpoint, answered from the thread."""

        def handle(call: object) -> tuple[int, object]:
            question, changes = partial(endpoint.handle, call), endpoint.method != "GET"  # type: ignore[arg-type]
            return 200, Later(lambda answered: self.ask(question, answered, changes=changes))

        return Endpoint(endpoint.method, endpoint.pattern, endpoint.role, handle, endpoint.path)

    def close(self) -> None:
        """End; a call that hangs is left behind."""
        for asked in list(self._pending):
            self._tell(asked, Problem(503, "Stopping", "the gateway is stopping"))
        self._waiting.put(None)
        self.thread.join(CLOSE_SECONDS)

    # In the reactor

    def _look(self, asked: _Question) -> None:
        if asked.told:
            return
        waited = self._scheduler.monotonic() - asked.since
        with self._lock:
            left = asked.told = not asked.begun and waited >= self._patience
        if left:
            self._forget(asked, self._left())
        elif asked.begun and self.silent() >= self._patience:
            what = "what was asked for may still be done when it does: look again" if asked.changes else "try again"
            self._tell(asked, self._no_answer(504, what))
        else:
            self._scheduler.later(min(_LOOK_SECONDS, self._patience), lambda: self._look(asked))

    def _left(self) -> Problem:
        """Why a question was not even begun."""
        if self.silent() >= self._patience:
            return self._no_answer(503, "nothing was asked of it; try again when it answers")
        return Problem(503, "Busy", "questions asked before take long: nothing was done; try again")

    def _no_answer(self, status: int, what: str) -> Problem:
        seconds = max(self.silent(), self._patience)
        return Problem(status, "No answer", f"the queue manager has not answered for {seconds:.0f} s; {what}")

    def _tell(self, asked: _Question, found: tuple[int, object] | Exception) -> None:
        if not asked.told:
            asked.told = True
            self._forget(asked, found)

    def _forget(self, asked: _Question, found: tuple[int, object] | Exception) -> None:
        self._pending.remove(asked)
        asked.answered(found)

    # In the thread

    def _run(self) -> None:
        while (asked := self._waiting.get()) is not None:
            with self._lock:
                if asked.told:
                    continue
                asked.begun = True
                self.heard()
                self._busy = True
            found: tuple[int, object] | Exception
            try:
                found = asked.question()
            except Exception as error:  # noqa: BLE001 -- whoever asked says what it means
                found = error
            self._busy = False
            self._scheduler.soon(partial(self._tell, asked, found))
        self._close()
