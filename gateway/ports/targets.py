"""What the broker asks of a target: a queue manager beside that of the state, to which messages are put directly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.ports.batch import Done, Stored, Unit


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
