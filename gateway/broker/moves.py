"""Staged messages that a unit of work moves to their queue as they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gateway.ports.batch import Moves, Token, Unit
from gateway.ports.state_queues import STAGED

if TYPE_CHECKING:
    from gateway.ports.failure_policy import Policy
    from gateway.session.connection import Connection
    from gateway.session.session import Session
    from gateway.session.staged_run import StagedRun


class Move(NamedTuple):
    """Consecutive messages of a staged run that are moved to their queue."""

    run: StagedRun
    first: int
    rows: int
    policy: Policy
    connection: Connection

    @property
    def tokens(self) -> Sequence[Token]:
        """The tokens of these messages."""
        return self.run.tokens[self.first : self.first + self.rows]

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of these messages."""
        return self.run.bodies[self.first : self.first + self.rows]

    @property
    def size(self) -> int:
        """The bytes of these messages, heads included."""
        run = self.run
        bodies = run.size if self.rows == len(run.ids) else sum(map(len, self.bodies))
        return bodies + self.rows * len(run.head)


def add_moves(moves: Iterable[Move], session: Session, unit: Unit) -> None:
    """Add moves to a unit of work; neighbours that go to the same queue become one."""
    for move in moves:
        queue, manager, priority = move.run.address[:3]
        longest, tokens = len(move.run.head) + move.run.longest, move.tokens
        last = unit.moves[-1] if unit.moves else None
        if (
            last is not None
            and isinstance(tokens, range)
            and isinstance(last.tokens, range)
            and last.tokens.stop == tokens.start
            and (last.key, last.to_queue, last.to_queue_manager, last.to_priority)
            == (session.staged_key, queue, manager, priority)
        ):
            last.tokens, last.longest = range(last.tokens.start, tokens.stop), max(last.longest, longest)
        else:
            key = session.staged_key
            unit.moves.append(Moves(STAGED, key, tokens, queue, manager, to_priority=priority, longest=longest))
