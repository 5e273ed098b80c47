"""The open batch: everything that arrived since the last commit was started, as columns of one unit of work.

While a commit runs the next turn fills by itself; there is no timer and no tuned delay. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.ports.batch import Moves, Puts, Replace, Takes, Token, Unit

if TYPE_CHECKING:
    Released = tuple["Session", int, Token]
    """A staged QoS 2 message that is released: whose, its packet id, its token on the queue of staged messages."""
    from gateway.broker.parking import Parked
    from gateway.broker.route import Policy
    from gateway.session.connection import Connection
    from gateway.session.outflow import Item
    from gateway.session.session import Session

Run = tuple[str, str, int, bool, bytes]
"""Destination of a run of puts: queue, queue manager, priority, persistent, key."""


class Turn:
    """One batch on its way to a commit."""

    __slots__ = ("after", "answered", "contributors", "deliveries", "joint", "moves", "opened", "parked", "pending",
                 "released", "replaces", "replies", "rows", "runs", "staged", "started", "takes",
                 "targets")  # fmt: skip

    def __init__(self) -> None:
        self.runs: dict[Run, Puts] = {}
        self.targets: dict[Run, Policy] = {}
        """The rule target a run came from, for what to do when its queue refuses."""
        self.takes: dict[tuple[str, bytes], Takes] = {}
        self.moves: list[Moves] = []
        self.replaces: dict[tuple[str, bytes], Replace] = {}
        self.replies: dict[Connection, list[bytes]] = {}
        """What is sent when the commit has returned, by connection, in order."""
        self.answered = [0] * 16
        """The packets among them, by type."""
        self.pending: dict[Connection, int] = {}
        """QoS 1 publications to be taken off the connection's Receive Maximum by then."""
        self.after: list[Callable[[], None]] = []
        """What else is done when the commit has returned."""
        self.deliveries: list[tuple[Session, Item, Puts | None, int]] = []
        """What local sessions get then, in order; with the row that stores it for a durable session."""
        self.staged: dict[Session, tuple[Puts, list[int]]] = {}
        """QoS 2 publications: the run of rows that hold them until their PUBREL, and the packet id of each row."""
        self.contributors: dict[Run, set[Connection]] = {}
        """Whose publications are in a run: who waits for it if its queue refuses."""
        self.released: dict[Run, list[Released]] = {}
        """The staged QoS 2 messages whose release is in a run."""
        self.joint: set[Run] = set()
        """Runs of publications with several destinations: all of them or none are committed."""
        self.parked: Parked | None = None
        """Set when this turn is the next attempt of what was parked."""
        self.rows = 0
        self.opened = 0.0
        """When the first bytes for this turn were read."""
        self.started = 0.0
        """When it was submitted."""

    def __bool__(self) -> bool:
        return bool(
            self.replies or self.runs or self.deliveries or self.after or self.takes or self.replaces or self.moves
        )

    def run(self, run: Run) -> Puts:
        """The open run for a destination."""
        puts = self.runs.get(run)
        if puts is None:
            queue, queue_manager, priority, persistent, key = run
            puts = self.runs[run] = Puts(queue, queue_manager, key, priority, persistent)
        return puts

    def contribute(self, run: Run, connection: Connection) -> None:
        """A connection has a publication in a run."""
        owners = self.contributors.get(run)
        if owners is None:
            self.contributors[run] = {connection}
        else:
            owners.add(connection)

    def put(self, run: Run, head: bytes, body: bytes) -> None:
        """One message (the hot path appends to the columns itself)."""
        puts = self.run(run)
        puts.heads.append(head)
        puts.bodies.append(body)
        self.rows += 1

    def take(self, queue: str, key: bytes, token: Token) -> None:
        """One message to be removed."""
        takes = self.takes.get((queue, key))
        if takes is None:
            takes = self.takes[queue, key] = Takes(queue, key, [])
        takes.tokens.append(token)

    def replace(self, queue: str, key: bytes, body: bytes | None) -> None:
        """One state message; the last word within a turn counts."""
        self.replaces[queue, key] = Replace(queue, key, body)

    def reply(self, connection: Connection, data: bytes) -> None:
        """A packet that may exist only when the commit has returned (design decision 1)."""
        self.answered[data[0] >> 4] += 1
        replies = self.replies.get(connection)
        if replies is None:
            self.replies[connection] = [data]
        else:
            replies.append(data)

    def unit(self) -> Unit:
        """What the queue manager is asked to commit."""
        return Unit(
            [puts for puts in self.runs.values() if puts.heads],
            [takes for takes in self.takes.values() if takes.tokens],
            self.moves,
            list(self.replaces.values()),
        )
