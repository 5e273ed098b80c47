"""Questions of the page, the API and the commands to a queue manager that may not answer: see `backends.ibm.patience`.

Whoever asked gets an answer in any case: what was found, or a sentence that says for how long the queue manager has
been silent and whether anything could still come of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.backends.ibm.patience import Patience, Unanswered
from gateway.net.api import Answered, Endpoint, Later, Problem
from gateway.ports.batch import Scheduler

MOST = 32
"""Questions that wait, beside the one that is being answered."""
CLOSE_SECONDS = 1.0


class Inquiries:
    """See the module. `ask` is called in the reactor, and so is the `answered` that was given to it."""

    def __init__(self, scheduler: Scheduler, patience: float, close: Callable[[], None] = lambda: None) -> None:
        """`patience`: seconds a queue manager may be silent; `close` is called in the thread when all is over."""
        self._patience = Patience(scheduler, patience, close=close, name="mq-inquiries")
        self.thread = self._patience.thread
        self.heard = self._patience.heard
        """The queue manager has answered a call: one that is slow is waited for as long as it says something."""
        self.silent = self._patience.silence
        """Seconds since a question has been waiting for the queue manager."""

    def ask(self, question: Callable[[], tuple[int, object]], answered: Answered, *, changes: bool = False) -> None:
        """`changes`: more than a look, so that it matters whether something was done."""
        if len(self._patience) > MOST:
            answered(Problem(503, "Too many at a time", f"{MOST} questions wait for the queue manager; try again"))
            return

        def told(found: tuple[int, object] | Exception) -> None:
            answered(self._problem(found, changes=changes) if isinstance(found, Unanswered) else found)

        self._patience.ask(question, told)

    def apart(self, endpoint: Endpoint) -> Endpoint:
        """The same endpoint, answered from the thread."""

        def handle(call: object) -> tuple[int, object]:
            question, changes = partial(endpoint.handle, call), endpoint.method != "GET"  # type: ignore[arg-type]
            return 200, Later(lambda answered: self.ask(question, answered, changes=changes))

        return Endpoint(endpoint.method, endpoint.pattern, endpoint.role, handle, endpoint.path)

    def close(self) -> None:
        """End; a call that hangs is left behind."""
        self._patience.close(CLOSE_SECONDS)

    def _problem(self, left: Unanswered, *, changes: bool) -> Problem:
        if left.stopping:
            return Problem(503, "Stopping", "the gateway is stopping")
        if left.busy:
            return Problem(503, "Busy", "questions asked before take long: nothing was done; try again")
        status, what = 503, "nothing was asked of it; try again when it answers"
        if left.begun:
            status, what = 504, "try again"
            if changes:
                what = "what was asked for may still be done when it does: look again"
        return Problem(status, "No answer", f"{left.why}; {what}")
