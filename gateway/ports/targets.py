"""What the broker asks of a target: a queue manager other than that of the state, to which messages are put directly,
and whose queues rules may consume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from gateway.ports.batch import Done, Stored, Token, Unit
from gateway.ports.sources import Backout


class Origin(NamedTuple):
    """What is consumed from a target: a queue, or the publications of a durable subscription."""

    queue: str
    topic: str = ""
    subscription: str = ""
    """The name of the subscription, if there is a topic."""


class Taker(Protocol):
    """Consumes a queue of a target; called in the reactor's thread."""

    def opened(self, backout: Backout) -> None:
        """The queue is open, for the first time or again, and nothing has been got: `Intake.get` begins."""

    def works(self) -> None:
        """Messages can be got from the queue, whether there are any or not."""

    def got(self, messages: list[Stored]) -> None:
        """These messages have been got in a unit of work, which stays open until `Intake.commit` or `Intake.back_out`.
        Their tokens are numbers, in order."""

    def verified(self, *, alive: bool) -> None:
        """The answer to `Intake.verify`."""

    def committed(self) -> None:
        """The messages are off their queue; the next ones are being got."""

    def lost(self, why: str) -> None:
        """The queue cannot be consumed for now. A unit of work that is open still has to be ended."""

    def failed(self, error: Exception) -> None:
        """The thread of the intake has run into a defect, which counts as a lost connection; `lost` follows."""


class Intake(Protocol):
    """A queue of a target that is being consumed. After any failure `Taker.opened` is called: nothing is then got, and
    what had been got is on the queue again or has been committed."""

    def get(self) -> None:
        """Get messages as soon as there are any."""

    def verify(self) -> None:
        """Ask whether the unit of work is still open; nobody else can then have its messages."""

    def commit(self, aside: Sequence[tuple[Token, str]]) -> None:
        """Commit the unit of work, all of whose messages are dealt with; those in `aside` are put to a back-out queue
        in it."""

    def back_out(self) -> None:
        """Back out the unit of work; its messages come again."""

    def close(self) -> None:
        """Stop consuming; what was got goes back, and nobody is told anything any more."""


class Target(Protocol):
    """A queue manager that is a target, with one unit of work at a time. All calls come from the reactor's thread."""

    name: str
    """The name of the queue manager, as rules give it."""

    @property
    def away(self) -> str:
        """Why it takes nothing now; empty: it takes messages."""

    def submit(self, unit: Unit, done: Done, settled: Done) -> None:
        """Commit the unit; `done` is called in the reactor's thread. If the target is lost, or does not answer, before
        the outcome is known, it fails the unit with `Failure.away`; `settled` is called later with the true outcome,
        before the target takes anything again."""

    def on_ready(self, call: Callable[[list[Stored]], None]) -> None:
        """Have `call` called each time the target takes messages again, with the markers that are there
        (`broker.targets`)."""

    def fence_off(self, gateways: Iterable[str]) -> None:
        """Note that these gateways have ended, and that sessions of theirs may come here: the target counts as away
        until nothing of theirs can be committed there any more, and then reports its markers again."""

    def consume(self, origin: Origin, taker: Taker) -> Intake:
        """Consume a queue on a connection of its own."""
