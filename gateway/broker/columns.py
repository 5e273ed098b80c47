"""Columns of the open batch: where the lanes append rows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.ports.batch import Address, Puts

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, Destination
    from gateway.ports.failure_policy import Policy
    from gateway.session.connection import Connection


class Columns:
    """Where the rows of routes with one address and policy are appended: while they are open, the columns of the open
    batch's destination with this address, or of what the batch puts to many queues. A batch closes them when it is
    submitted."""

    __slots__ = (
        "address", "answered", "bodies", "destination", "heads", "mixed", "owners", "policy", "queues", "released",
    )  # fmt: skip

    def __init__(self, address: Address, policy: Policy, *, answered: bool, mixed: bool = False) -> None:
        self.address = address
        self.policy = policy
        self.answered = answered
        """Whether publishers wait for an answer: QoS 0 has columns of its own, because a batch notes who waits."""
        self.mixed = mixed
        """Whether each row names its own queue, and the address none."""
        self.heads: Any = None
        """A list; None, as are the next four, while the columns are not open."""
        self.bodies: Any = None
        """A list."""
        self.owners: Any = None
        """The connections that have published there; where each row has its queue, one for each row."""
        self.queues: Any = None
        """A list where each row has its queue."""
        self.released: Any = None
        """Rows that release staged messages: a list of `ReleasedRows`."""
        self.destination: Destination | None = None
        """The destination that the columns belong to."""


class Mixed:
    """What a batch puts to many queues by one rule, such as one with a queue for each device. It is one piece for the
    queue manager as long as nothing of it is refused; `Batch.part` makes destinations of it when something asks for one
    of the queues."""

    __slots__ = ("_columns", "address", "policy", "publishers", "puts")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.address, self.policy = columns.address, columns.policy
        _, queue_manager, priority, persistent, syncpoint, _ = self.address
        queues: list[str] = []
        self.puts = Puts("", queue_manager, b"", priority, persistent, [], [], syncpoint=syncpoint, queues=queues)
        self.publishers: list[Connection] = []
        """The publisher of each row."""
        columns.heads, columns.bodies, columns.queues = self.puts.heads, self.puts.bodies, queues
        columns.owners = self.publishers

    @classmethod
    def open(cls, batch: Batch, columns: Columns) -> None:
        """Let rows of these columns be appended to a batch without asking, each with its queue."""
        batch.part(columns.address)  # another rule may put on the same queues, and order is kept
        for destination in batch.destinations.values():
            if destination.address._replace(queue="") == columns.address:
                destination.close()
        mixed = cls(columns)
        batch.mixed.append(mixed)
        batch.undone_by(batch.mixed.remove, mixed)
        batch.undone_by(mixed.close)

    def close(self) -> None:
        """Close the columns: whoever appends rows has to ask from now on."""
        columns = self._columns
        if columns.heads is self.puts.heads:
            columns.heads = columns.bodies = columns.owners = columns.queues = None

    def move_into(self, batch: Batch) -> None:
        """Move its rows into a destination for each queue."""
        self.close()
        for puts in self.puts.by_queue():
            destination = batch.destination(Address.of(puts), self.policy)
            destination.puts.heads += puts.heads
            destination.puts.bodies += puts.bodies
        for queue, publisher in zip(self.puts.queues or (), self.publishers, strict=True):
            batch.destinations[self.address._replace(queue=queue)].contribute(publisher)
