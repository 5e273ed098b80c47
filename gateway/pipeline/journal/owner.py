"""The store's owner as the pipeline uses it: groups in its state records, purges as ordinary takes, puts.

In the gateway the owner is the embedded queue manager; when no gateway runs, a driver opens the store for a moment.
All calls are short and come from one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.failpoint import failpoint
from gateway.pipeline.journal import groups
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.lookup import Lookup, MessageRun
from gateway.pipeline.journal.puts import PutColumns, PutTarget
from gateway.pipeline.journal.segments import SegmentUse
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.store.index import Index
from gateway.queue_manager.store.place import ROW_BITS, slot_of, token_of
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

TRANSACTION_PREFIX = b"pipeline/put/"
PURGE_STEP = 20_000
"""PutColumns that leave in one unit of work: the owner's other work goes on in between."""


class Journal(Protocol):
    """What is asked of a store: its index, and one durable step."""

    @property
    def index(self) -> Index:
        """The index, not to be changed."""

    def commit(self, unit: StoreUnit) -> None:
        """Durable when this returns."""

    def uses(self, runs: list[MessageRun]) -> dict[int, SegmentUse]:
        """The uses of the segments that runs lie in."""

    def check_queue(self, queue: str) -> None:
        """WrongOption when messages cannot be put there."""


class Owner:
    """Cursors, leases and purges over a store that this process owns."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self.journal = journal
        self.clock = clock

    @property
    def lookup(self) -> Lookup:
        """Which messages lie where."""
        return Lookup(self.journal.index)

    def groups(self) -> list[ConsumerGroup]:
        """All groups."""
        return groups.groups_in(self.journal.index.state)

    def group(self, name: str) -> ConsumerGroup | None:
        """One group."""
        record = self.journal.index.state.get(groups.STATE_PREFIX + name.encode())
        return ConsumerGroup.decode(record) if record else None

    def acquire(self, wanted: ConsumerGroup, owner: str, ttl: float) -> ConsumerGroup:
        """Take the lease."""
        return self._save(groups.acquire(self.group(wanted.name), wanted, owner, ttl, self.clock()))

    def acknowledge(self, name: str, epoch: int, cursor: int, ttl: float) -> ConsumerGroup:
        """Move the cursor, or only renew the lease when it stands there already and half of it has run."""
        known = self.group(name)
        now = self.clock()
        group = groups.acknowledge(known, epoch, cursor, ttl, now)
        if known is not None and group.cursor == known.cursor and known.expires - now > ttl / 2:
            return known
        failpoint("acknowledge.before")
        self._save(group)
        failpoint("acknowledge.after")
        return group

    def release(self, name: str, epoch: int) -> ConsumerGroup:
        """Give the lease back."""
        return self._save(groups.release(self.group(name), epoch))

    def remove(self, name: str) -> bool:
        """Forget a group: it holds nothing back any more."""
        group = self.group(name)
        if group is None:
            return False
        self.journal.commit(StoreUnit(state={group.key: None}))
        return True

    def set_cursor(self, name: str, cursor: int) -> ConsumerGroup:
        """Back or forth, by hand."""
        return self._save(groups.moved(self.group(name), name, cursor))

    def purge(self, most: int = 1 << 62) -> int:
        """Take what no group needs any more; how many messages. At most about `most`: the owner has other work."""
        known = self.groups()
        limits = groups.due(known, list(self.journal.index.queues), self.clock())
        gone = 0
        for queue, below in limits.items():
            gone += self._purge_queue(queue, below, most - gone)
        if 0 < gone < most:
            self._remember_purge(known, limits)
        return gone

    def _purge_queue(self, queue: str, below: int, most: int) -> int:
        gone = 0
        while gone < most and (runs := self.lookup.runs(queue, 0, below, PURGE_STEP)):
            tokens: list[int] = []
            for run in runs:
                first = token_of(run.priority, run.first)
                tokens.extend(range(first, first + run.rows))
            failpoint("purge.before")
            self.journal.commit(StoreUnit(takes=[LaneTakes(queue, b"", tokens)]))
            failpoint("purge.after")
            gone += len(tokens)
        return gone

    def _remember_purge(self, known: list[ConsumerGroup], limits: dict[str, int]) -> None:
        below = min(limits.values(), default=0)
        state: dict[bytes, bytes | None] = {}
        for group in known:
            changed = groups.purged(group, min(below, group.cursor))
            if changed != group:
                state[group.key] = changed.encode()
        if state:
            self.journal.commit(StoreUnit(state=state))

    # ---- puts

    def put(self, target: PutTarget, messages: PutColumns, txn: str, batch: int) -> int:
        """Put a batch and remember it in one unit of work; a batch of `txn` that was put before is not put again."""
        key = TRANSACTION_PREFIX + txn.encode()
        if txn and batch <= int(self.journal.index.state.get(key, b"-1")):
            return 0
        self.journal.check_queue(target.queue)
        puts = LanePuts(target.queue, b"", target.priority, target.persistent, messages.heads, messages.bodies)
        if target.expiry >= 0:
            puts.expiries = [int((self.clock() + target.expiry) * 1_000_000)] * len(messages.heads)
        state: dict[bytes, bytes | None] = {key: b"%d" % batch} if txn else {}
        if messages.heads or state:
            self.journal.commit(StoreUnit(puts=[puts] if messages.heads else [], state=state))
        return len(messages.heads)

    def _save(self, group: ConsumerGroup) -> ConsumerGroup:
        self.journal.commit(StoreUnit(state={group.key: group.encode()}))
        return group


def uses_in(store: Store, runs: list[MessageRun]) -> dict[int, SegmentUse]:
    """From the segments that a store has open."""
    headers = {slot: store.ring.used[slot].header for slot in {slot_of(run.place >> ROW_BITS) for run in runs}}
    return {slot: SegmentUse(slot, header.serial, header.salt) for slot, header in headers.items() if header}


class StoreJournal:
    """A store that this process has opened itself."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.clock = clock

    @property
    def index(self) -> Index:
        """The store's index."""
        return self.store.index

    def commit(self, unit: StoreUnit) -> None:
        """One frame."""
        prepared = self.store.prepare(unit, self.clock())
        self.store.write(prepared)
        self.store.apply(prepared)

    def uses(self, runs: list[MessageRun]) -> dict[int, SegmentUse]:
        """The uses of the segments that runs lie in."""
        return uses_in(self.store, runs)

    def check_queue(self, queue: str) -> None:
        """A stopped store knows no definitions that forbid it."""


class QueueManagerJournal:
    """The store of a running embedded queue manager (`EmbeddedQueueManager.core`)."""

    def __init__(self, core: Any) -> None:
        self.core = core

    @property
    def index(self) -> Index:
        """The store's index."""
        index: Index = self.core.store.index
        return index

    def commit(self, unit: StoreUnit) -> None:
        """One frame, after what is on its way."""
        with self.core.entered():
            self.core.commit(unit)

    def uses(self, runs: list[MessageRun]) -> dict[int, SegmentUse]:
        """The uses of the segments that runs lie in."""
        return uses_in(self.core.store, runs)

    def check_queue(self, queue: str) -> None:
        """A local queue it must be: the batch is one unit of work of this store."""
        if queue not in self.core.queues:
            raise WrongOption(
                f"{queue} is not a local queue here: define it, or write to the queue an alias stands for"
            )


@contextmanager
def opened(folder: Path, clock: Callable[[], float] = time.time) -> Iterator[Owner]:
    """Own a stopped gateway's store for a moment. StoreInUse while a gateway runs."""
    store = Store.open(folder, clock=clock, options=StoreOptions(spare_segments=1, cache_bytes=1 << 20))
    try:
        yield Owner(StoreJournal(store, clock), clock)
    finally:
        store.close()
