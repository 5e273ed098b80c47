"""What the broker asks of a target: a queue manager beside that of the state, to which messages are put directly, and
whose queues rules may consume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from gateway.ports.batch import Done, Stored, Token, Unit
from gateway.ports.sources import Backout


class Origin(NamedTuple):
    """What is consumed at a target: a queue, or the publications of a durable subscription."""

    queue: str
    topic: str = ""
    subscription: str = ""
    """Its name, with a topic."""


class Taker(Protocol):
    """Who consumes a queue of a target; called in the reactor's thread."""

    def opened(self, backout: Backout) -> None:
        """The queue is open, for the first time or again, and nothing is got: `Intake.get` begins."""

    def works(self) -> None:
        """It can be got from, whether there is something or not."""

    def got(self, messages: list[Stored]) -> None:
        """These have been got in a unit of work, which stays open until `Intake.commit` or `Intake.back_out`. Their
        tokens are numbers, in order."""

    def verified(self, *, alive: bool) -> None:
        """The answer to `Intake.verify`."""

    def committed(self) -> None:
        """They are off their queue; the next ones are being got."""

    def lost(self, why: str) -> None:
        """The queue cannot be consumed for now. A unit of work that is open is still to be concluded."""

    def failed(self, error: Exception) -> None:
        """Its thread has met a defect: as if the connection were lost; `lost` follows."""


class Intake(Protocol):
    """A queue of a target at work. Whatever fails ends with `Taker.opened`: nothing is got then, and what had been got
    is on the queue again, or has been committed."""

    def get(self) -> None:
        """Get messages as soon as there are some."""

    def verify(self) -> None:
        """Ask whether the unit of work is open still: nobody else can have its messages then."""

    def commit(self, aside: Sequence[tuple[Token, str]]) -> None:
        """Everything of the unit of work is dealt with; these messages are put to a back-out queue with the commit."""

    def back_out(self) -> None:
        """The unit of work is not concluded: its messages come again."""

    def close(self) -> None:
        """Consume nothing more; what is got goes back, and nobody is told anything any more."""


class Target(Protocol):
    """One unit of work at a time. All calls come from the reactor's thread."""

    name: str
    """Of the queue manager, as rules give it."""

    @property
    def away(self) -> str:
        """Why it takes nothing now; empty: it does."""

    def submit(self, unit: Unit, done: Done, settled: Done) -> None:
        """Commit the unit; `done` is called in the reactor's thread. A target that is lost, or does not answer, before
        the outcome is known fails the unit with `Failure.away`; `settled` is called with the true outcome then, before
        the target takes anything again."""

    def on_ready(self, call: Callable[[list[Stored]], None]) -> None:
        """Have `call` told each time it takes messages again, with the markers that lie there (`broker.targets`)."""

    def fence_off(self, gateways: Iterable[str]) -> None:
        """These gateways have ended, and sessions that were theirs may come here: it counts as away until nothing of
        theirs can be committed there any more, and then tells its markers again."""

    def consume(self, origin: Origin, taker: Taker) -> Intake:
        """Consume a queue, on a connection of its own."""
