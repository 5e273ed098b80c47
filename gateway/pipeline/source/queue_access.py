"""What the data source asks of queues, and the access to a journal's files.

Three modules implement `QueueAccess`: this one reads a journal's files and opens a stopped gateway's store where a
cursor has to move; `http_access.py` asks a running gateway or drainer; `browse.py` looks at queues of IBM MQ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gateway.errors import MqgateError, StoreInUse
from gateway.pipeline.errors import LeaseLost
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.lookup import Follower, MessageRun, first_since
from gateway.pipeline.journal.owner import Owner, opened
from gateway.pipeline.journal.pieces import JournalPiece, shares
from gateway.pipeline.journal.puts import PutTarget, read_parts
from gateway.pipeline.source.running_gateway import in_use
from gateway.queue_manager.store.head_numbers import HeadNumbers

ACKNOWLEDGE_EVERY = 5.0
"""Seconds between cursor writes into a stopped gateway's store, which is opened for each."""


class BatchExtent(NamedTuple):
    """The number at which a batch ends, and how many messages it has."""

    next: int
    messages: int


class Piece(Protocol):
    """A part of a batch: picklable, read in any process that reaches the same files or address."""

    def chunks(self, rows: int, heads: HeadNumbers | None = None) -> Iterator[Any]:
        """The messages, as `Chunk`s of about `rows`. `heads`: those that the reader has decoded before."""


class QueueAccess(Protocol):
    """Queues of one queue manager, for a driver: leases and cursors, the extent of a batch and its parts, puts."""

    def acquire(self, wanted: ConsumerGroup, owner: str, ttl: float) -> ConsumerGroup:
        """Take the group's lease."""

    def acknowledge(self, name: str, epoch: int, cursor: int, ttl: float, *, last: bool = False) -> None:
        """Tell that everything below `cursor` has landed; also renews the lease."""

    def release(self, name: str, epoch: int) -> None:
        """Give the lease back."""

    def extent(self, queues: str, low: int, rows: int | None, size: int | None = None) -> BatchExtent:
        """The extent of a batch of at most `rows` messages and `size` bytes that begins at `low`."""

    def next_number(self, queues: str) -> int | None:
        """The number that the queue manager gives its next message; None if it does not tell."""

    def journal(self, queues: str) -> str | None:
        """The name, constant as long as it lives, of the journal that gives the numbers; None if it does not tell."""

    def count(self, queues: str, low: int, high: int) -> int:
        """How many messages are on the queues between two numbers."""

    def number_at(self, queues: str, micros: int) -> int:
        """The number of the first message committed at that time or later; the next message's number if there is
        none."""

    def pieces(self, queues: str, low: int, high: int, parts: int) -> list[Piece]:
        """The messages between two numbers in about equal parts."""

    def put(self, target: PutTarget, parts: list[bytes], txn: str, batch: int) -> int:
        """Put the parts of a batch in one unit of work, once for each `txn` and `batch`; returns how many messages were
        put."""


class JournalAccess:
    """Access to a journal's files on this machine, or on a folder that all executors share."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self.clock = clock
        self.follower = Follower(folder)
        self._acknowledged = 0.0
        self._opening = threading.Lock()
        """Held while the store is open: a lease is renewed by a thread of its own, and the store can be opened only
        once at a time."""

    def _owned(self, call: Callable[[Owner], Any]) -> Any:
        try:
            with self._opening, opened(self.folder, self.clock) as owner:
                return call(owner)
        except StoreInUse as error:
            raise in_use(self.folder) from error

    def acquire(self, wanted: ConsumerGroup, owner: str, ttl: float) -> ConsumerGroup:
        """Take the group's lease. If there is no journal, none is made."""
        self.follower.segments.headers()
        group: ConsumerGroup = self._owned(lambda store: store.acquire(wanted, owner, ttl))
        return group

    def acknowledge(self, name: str, epoch: int, cursor: int, ttl: float, *, last: bool = False) -> None:
        """Write the cursor, at most every few seconds, but always when the queues are empty (`last`)."""
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

    def put(self, target: PutTarget, parts: list[bytes], txn: str, batch: int) -> int:
        """Put a batch into a store that no gateway has open."""
        return int(self._owned(lambda store: store.put(target, read_parts(parts), txn, batch)))

    def extent(self, queues: str, low: int, rows: int | None, size: int | None = None) -> BatchExtent:
        """The extent of a batch, from the follower's index after it has read what was written since."""
        self.follower.poll()
        runs = self.follower.runs(queues, low, None, rows)
        whole = sum(run.rows for run in runs)
        if size is not None:
            runs = self.follower.within(runs, size)
        messages = sum(run.rows for run in runs)
        if messages < whole or whole == rows:
            return BatchExtent(runs[-1].first + runs[-1].rows, messages)
        return BatchExtent(max(low, self.follower.next_number), messages)

    def next_number(self, queues: str) -> int:
        """The next number by the frames that have been written."""
        del queues
        self.follower.poll()
        return self.follower.next_number

    def journal(self, queues: str) -> str | None:
        """The name of the journal by its youngest segment; None if nothing was ever written."""
        del queues
        headers = self.follower.segments.headers()
        return headers[-1].store.hex() if headers else None

    def count(self, queues: str, low: int, high: int) -> int:
        """How many messages are on the queues between two numbers."""
        return self.follower.count(queues, low, high)

    def number_at(self, queues: str, micros: int) -> int:
        """The number of the first message at a time, by the commit times of frames."""
        self.follower.poll()
        runs = self.follower.runs(queues, 0)
        number = first_since(self.follower.segments, runs, self.follower.uses(runs), micros)
        return self.follower.next_number if number is None else number

    def pieces(self, queues: str, low: int, high: int, parts: int) -> list[Piece]:
        """The messages in equal shares of the runs."""
        self.follower.poll()
        runs = self.follower.runs(queues, low, high)
        share = -(-sum(run.rows for run in runs) // max(1, parts))
        return [self._piece(queues, part) for part in shares(runs, share)]

    def _piece(self, queues: str, runs: list[MessageRun]) -> JournalPiece:
        backouts = self.follower.backouts(runs[0].first, runs[-1].first + runs[-1].rows)
        return JournalPiece(str(self.folder), runs, self.follower.uses(runs), backouts, queues)


class LeaseRenewal:
    """Renews a lease while a batch is being processed: Spark calls the driver's side of a source only between batches,
    and a batch may take longer than a lease runs. It ends with the process that plans."""

    def __init__(self, access: QueueAccess, lease: ConsumerGroup, ttl: float) -> None:
        self._access, self._lease, self._ttl = access, lease, ttl
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop renewing."""
        self.over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self.over.wait(self._ttl / 4):  # the owner of the store writes it when half of it has run
            try:
                self._access.acknowledge(self._lease.name, self._lease.epoch, 0, self._ttl, last=True)
            except LeaseLost:
                return  # the next call that plans finds out, and says so
            except (MqgateError, OSError, ValueError):
                continue  # a gateway that does not answer may do so before the lease has run out
