"""How a driver reaches a queue manager's queues: what there is, who reads, what lies where. One interface, two ways.

Local: the journal's files beside (or without) the gateway; HTTP: a running gateway's administration port (remote.py).
What `pieces` returns is pickled and read by Spark's tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gateway.errors import StoreInUse
from gateway.pipeline.failures import DataLost, QueueUnreachable
from gateway.pipeline.source.follower import Follower
from gateway.pipeline.source.groups import Group
from gateway.pipeline.source.lookup import Run
from gateway.pipeline.source.messages import Sending, read_parts
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.owner import Owner, opened
from gateway.pipeline.source.segments import Use, first_since
from gateway.queue_manager.store.known import Known

ACKNOWLEDGE_EVERY = 5.0
"""Seconds between cursor writes into a stopped gateway's store, which is opened for each."""


class Extent(NamedTuple):
    """What is there behind a number."""

    next: int
    messages: int


class Piece(Protocol):
    """A part of a batch: picklable, read in any process that reaches the same files or address."""

    def chunks(self, rows: int, heads: Known | None = None) -> Iterator[Any]:
        """The messages, as `chunks.Chunk`s of about `rows`. `heads`: those the reader knows."""


class Access(Protocol):
    """See the module."""

    def acquire(self, wanted: Group, owner: str, ttl: float) -> Group:
        """Take the group's lease."""

    def acknowledge(self, name: str, epoch: int, cursor: int, ttl: float, *, last: bool = False) -> None:
        """Everything below `cursor` has landed; also renews the lease."""

    def release(self, name: str, epoch: int) -> None:
        """Give the lease back."""

    def extent(self, queues: str, low: int, rows: int | None, size: int | None = None) -> Extent:
        """The end of a batch of at most `rows` messages from `low`, and how many messages it has."""

    def count(self, queues: str, low: int, high: int) -> int:
        """Messages that are there between two numbers."""

    def number_at(self, queues: str, micros: int) -> int:
        """The number of the first message committed at that time or later; that of the next one when there is none."""

    def pieces(self, queues: str, low: int, high: int, parts: int) -> list[Piece]:
        """The messages between two numbers in about equal parts."""

    def put(self, sending: Sending, parts: list[bytes], txn: str, batch: int) -> int:
        """Put the parts of a batch in one unit of work, once for each `txn` and `batch`; how many messages."""


class LocalPiece(NamedTuple):
    """Runs of messages and the segments they lie in."""

    folder: str
    runs: list[Run]
    uses: dict[int, Use]
    backouts: dict[int, int]
    queues: str

    def chunks(self, rows: int, heads: Known | None = None) -> Iterator[Any]:
        """From the mapped files. Where the journal has carried messages on since, they are looked up again."""
        from gateway.pipeline.source.chunks import read_chunks

        done = 0
        try:
            for chunk in read_chunks(Path(self.folder), self.runs, self.uses, rows, self.backouts, heads):
                done += chunk.rows
                yield chunk
        except DataLost:
            left = _without_first(self.runs, done)
            runs, uses = _looked_up_again(Path(self.folder), self.queues, left)
            yield from read_chunks(Path(self.folder), runs, uses, rows, self.backouts, heads)


def _without_first(runs: list[Run], rows: int) -> list[Run]:
    """Runs without their first `rows` messages."""
    left = []
    for run in runs:
        skip = min(rows, run.rows)
        rows -= skip
        if skip < run.rows:
            left.append(run._replace(first=run.first + skip, rows=run.rows - skip, place=run.place + skip))
    return left


def _looked_up_again(folder: Path, queues: str, runs: list[Run]) -> tuple[list[Run], dict[int, Use]]:
    follower = Follower(folder)
    follower.poll()
    low, high = runs[0].first, runs[-1].first + runs[-1].rows
    wanted = sum(run.rows for run in runs)
    found = follower.runs(queues, low, high)
    if sum(run.rows for run in found) < wanted:
        raise DataLost(
            f"{wanted - sum(run.rows for run in found)} of {wanted} planned messages are gone from {queues}: somebody "
            "else takes messages from these queues, or they expired; give the pipeline queues of its own, or set "
            "failOnDataLoss to false"
        )
    return found, follower.uses(found)


class LocalAccess:
    """Files on this machine, or on a folder that all executors share."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self.clock = clock
        self.follower = Follower(folder)
        self._acknowledged = 0.0

    def _owned(self, call: Callable[[Owner], Any]) -> Any:
        try:
            with opened(self.folder, self.clock) as owner:
                return call(owner)
        except StoreInUse as error:
            raise QueueUnreachable(
                f"a gateway is running on {self.folder}: give its administration address too (options url and "
                "tokenFile), so that cursors are kept by it; messages are still read from the files"
            ) from error

    def acquire(self, wanted: Group, owner: str, ttl: float) -> Group:
        """Take the group's lease."""
        group: Group = self._owned(lambda store: store.acquire(wanted, owner, ttl))
        return group

    def acknowledge(self, name: str, epoch: int, cursor: int, ttl: float, *, last: bool = False) -> None:
        """At most every few seconds, except when nothing more is there."""
        now = self.clock()
        if not last and now - self._acknowledged < min(ACKNOWLEDGE_EVERY, ttl / 4):
            return
        self._acknowledged = now

        def acknowledge(store: Owner) -> None:
            store.acknowledge(name, epoch, cursor, ttl)
            store.purge()

        self._owned(acknowledge)

    def release(self, name: str, epoch: int) -> None:
        """Give the lease back."""
        self._owned(lambda store: store.release(name, epoch))

    def put(self, sending: Sending, parts: list[bytes], txn: str, batch: int) -> int:
        """Into a store that no gateway has open."""
        return int(self._owned(lambda store: store.put(sending, read_parts(parts), txn, batch)))

    def extent(self, queues: str, low: int, rows: int | None, size: int | None = None) -> Extent:
        """From the follower, which reads what is new first."""
        self.follower.poll()
        runs = self.follower.runs(queues, low, None, rows)
        whole = sum(run.rows for run in runs)
        if size is not None:
            runs = self.follower.within(runs, size)
        messages = sum(run.rows for run in runs)
        if messages < whole or whole == rows:
            return Extent(runs[-1].first + runs[-1].rows, messages)
        return Extent(max(low, self.follower.next_number), messages)

    def count(self, queues: str, low: int, high: int) -> int:
        """Messages that are there between two numbers."""
        return self.follower.count(queues, low, high)

    def number_at(self, queues: str, micros: int) -> int:
        """By the times of frames."""
        self.follower.poll()
        runs = self.follower.runs(queues, 0)
        found = first_since(self.follower.segments, runs, self.follower.uses(runs), micros)
        return self.follower.next_number if found is None else found

    def pieces(self, queues: str, low: int, high: int, parts: int) -> list[Piece]:
        """Equal shares of the runs."""
        self.follower.poll()
        runs = self.follower.runs(queues, low, high)
        share = -(-sum(run.rows for run in runs) // max(1, parts))
        return [self._piece(queues, part) for part in shares(runs, share)]

    def _piece(self, queues: str, runs: list[Run]) -> LocalPiece:
        low, high = runs[0].first, runs[-1].first + runs[-1].rows
        backouts = {number: count for number, count in self.follower.index.backouts.items() if low <= number < high}
        return LocalPiece(str(self.folder), runs, self.follower.uses(runs), backouts, queues)


def shares(runs: list[Run], share: int) -> Iterator[list[Run]]:
    """Runs in parts of `share` messages, cut within a run where need be."""
    part: list[Run] = []
    room = share
    for run in runs:
        while run.rows > room:
            part.append(run._replace(rows=room))
            run = run._replace(first=run.first + room, rows=run.rows - room, place=run.place + room)
            yield part
            part, room = [], share
        part.append(run)
        room -= run.rows
        if room == 0:
            yield part
            part, room = [], share
    if part:
        yield part


def access_of(options: Options) -> Access:
    """The way that the options name: files for reading where `path` is given, the gateway's address for the rest; or
    IBM MQ itself, to look at."""
    from gateway.pipeline.source.browse import BrowseAccess
    from gateway.pipeline.source.remote import MixedAccess, RemoteAccess

    if options.connection or options.ccdt:
        return BrowseAccess(options)
    if options.url and options.path:
        return MixedAccess(RemoteAccess(options), LocalAccess(Path(options.path)))
    if options.url:
        return RemoteAccess(options)
    if options.path:
        return LocalAccess(Path(options.path))
    raise QueueUnreachable(
        "say where the queue is: option path (data folder of an embedded queue manager), url (administration address "
        "of a running gateway, with tokenFile), or connection and channel (IBM MQ, to look at)"
    )
