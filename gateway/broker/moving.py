"""Staged messages on their way to their queue, as columns of a unit of work. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gateway.ports.batch import Moves, Puts, Token, Unit

if TYPE_CHECKING:
    from gateway.broker.publish.route import Policy
    from gateway.session.connection import Connection
    from gateway.session.session import Session
    from gateway.session.staged_run import StagedRun


class Move(NamedTuple):
    """Some of a run, one behind the other, on their way to their queue."""

    held: StagedRun
    first: int
    rows: int
    policy: Policy
    connection: Connection

    @property
    def tokens(self) -> Sequence[Token]:
        """Of these messages."""
        return self.held.tokens[self.first : self.first + self.rows]

    @property
    def bodies(self) -> list[bytes]:
        """Of these messages."""
        return self.held.bodies[self.first : self.first + self.rows]

    @property
    def size(self) -> int:
        """Bytes of these messages."""
        held = self.held
        bodies = held.size if self.rows == len(held.ids) else sum(map(len, self.bodies))
        return bodies + self.rows * len(held.head)


class InRuns:
    """What one turn stages in runs and releases of them."""

    __slots__ = ("moves", "staged")

    def __init__(self) -> None:
        self.staged: dict[Session, tuple[Puts, list[StagedRun]]] = {}
        self.moves: dict[Session, list[Move]] = {}
        """In order."""

    def __bool__(self) -> bool:
        return bool(self.staged or self.moves)

    def ask_for(self, unit: Unit, queue: str) -> None:
        """Add it to a unit of work."""
        unit.puts += [puts for puts, _ in self.staged.values()]
        for session, several in self.moves.items():
            for one in several:
                to_queue, manager, priority = one.held.run[:3]
                longest = len(one.held.head) + one.held.longest
                moves = Moves(
                    queue, session.key, one.tokens, to_queue, manager, to_priority=priority, longest=longest
                )  # fmt: skip
                unit.moves.append(moves)
