"""Questions of the page, the API and the commands to a queue manager that may hang: see `backends.ibm.bounded_calls`.

Each of them gets an answer in any case: the result, or for how long the queue manager has been silent and whether what
was asked for may still be done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gateway.backends.ibm.bounded_calls import BoundedCalls, Unanswered
from gateway.net.calls import Answered, Endpoint, Later, Problem
from gateway.ports.batch import Scheduler

MOST = 32
"""How many questions may wait, in addition to the one being asked."""
CLOSE_SECONDS = 1.0


class Inquiries:
    """Asks in a thread of its own. `ask` is called in the reactor's thread, and so is its `answered`."""

    def __init__(self, scheduler: Scheduler, patience: float, close: Callable[[], None] = lambda: None) -> None:
        """`patience`: how many seconds a queue manager may be silent. `close` is called in the thread at the end."""
        self._calls = BoundedCalls(scheduler, patience, close=close, name="mq-inquiries")
        self.thread = self._calls.thread
        self.heard = self._calls.heard
        """To be called when the queue manager has answered a call: a slow question is waited for while it answers
        some."""
        self.silent = self._calls.silence
        """Returns for how many seconds a question has been waiting for the queue manager."""

    def ask(self, question: Callable[[], tuple[int, object]], answered: Answered, *, changes: bool = False) -> None:
        """Ask in the thread. `changes`: the question may change something, so the answer says whether it may have been
        done."""
        if len(self._calls) > MOST:
            answered(Problem(503, "Too many at a time", f"{MOST} questions wait for the queue manager; try again"))
            return

        def told(found: tuple[int, object] | Exception) -> None:
            answered(self._problem(found, changes=changes) if isinstance(found, Unanswered) else found)

        self._calls.ask(question, told)

    def apart(self, endpoint: Endpoint) -> Endpoint:
        """Returns the same endpoint, answered from the thread."""

        def handle(call: object) -> tuple[int, object]:
            question, changes = partial(endpoint.handle, call), endpoint.method != "GET"  # type: ignore[arg-type]
            return 200, Later(lambda answered: self.ask(question, answered, changes=changes))

        return replace(endpoint, handle=handle)

    def close(self) -> None:
        """End the thread without waiting for a call that hangs."""
        self._calls.close(CLOSE_SECONDS)

    def _problem(self, left: Unanswered, *, changes: bool) -> Problem:
        if left.stopping:
            return Problem(503, "Stopping", "the gateway is stopping")
        if left.busy:
            return Problem(503, "Busy", "earlier questions are taking long: nothing was done; try again")
        status, what = 503, "nothing was asked of it; try again when it answers"
        if left.begun:
            status, what = 504, "try again"
            if changes:
                what = "what was asked for may still be done when it answers: check again"
        return Problem(status, "No answer", f"{left.why}; {what}")
