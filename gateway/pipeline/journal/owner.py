"""What the pipeline writes into a store: consumer groups as state records, purges as takes, and puts.

Only the process that owns the store can do this: a gateway's embedded queue manager, a drainer, or a driver that opens
a stopped gateway's store for a moment. All calls are short and come from one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from gateway.errors import StoreUnavailable
from gateway.pipeline.failpoint import failpoint
from gateway.pipeline.journal import groups
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.lookup import Lookup, MessageRun
from gateway.pipeline.journal.puts import PutColumns, PutTarget
from gateway.pipeline.journal.segments import SegmentUse
from gateway.pipeline.journal.takers import check_takes, defined_in, no_queue
from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.objects.catalogue import Definition
from gateway.queue_manager.store.index import Index
from gateway.queue_manager.store.place import ROW_BITS, slot_of, token_of
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

TRANSACTION_PREFIX = b"pipeline/put/"
PURGE_STEP = 20_000
"""Messages taken in one unit of work, so that the owner's other work goes on in between."""


class Journal(Protocol):
    """A store that this process owns: its index, and one durable step."""

    @property
    def index(self) -> Index:
        """The index, to be read only."""

    @property
    def next_number(self) -> int:
        """The number that the next message gets."""

    @property
    def name(self) -> str:
        """The name that it has had since it was made."""

    def commit(self, unit: StoreUnit) -> None:
        """Apply one unit of work, durable when this returns."""

    def uses(self, runs: list[MessageRun]) -> dict[int, SegmentUse]:
        """The uses of the segments in which these runs lie."""

    def definition(self, queue: str) -> Definition | None:
        """The definition of a local queue; None where there are no definitions. Raises WrongOption if there is no such
        local queue."""


class Owner:
    """Cursors, leases, purges and puts, over a store that this process owns."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self.journal = journal
        self.clock = clock

    @property
    def lookup(self) -> Lookup:
        """Lookups in the store's index."""
        return Lookup(self.journal.index)

    def groups(self) -> list[ConsumerGroup]:
        """All consumer groups."""
        return groups.groups_in(self.journal.index.state)

    def group(self, name: str) -> ConsumerGroup | None:
        """A group by its name."""
        record = self.journal.index.state.get(groups.STATE_PREFIX + name.encode())
        return ConsumerGroup.decode(record) if record else None

    def acquire(self, wanted: ConsumerGroup, owner: str, ttl: float) -> ConsumerGroup:
        """Give the group's lease to `owner`."""
        return self._save(groups.acquire(self.group(wanted.name), wanted, owner, ttl, self.clock()))

    def acknowledge(self, name: str, epoch: int, cursor: int, ttl: float) -> ConsumerGroup:
        """Move the cursor and renew the lease. The lease alone is renewed only when half of it has run."""
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
        """Delete a group, so that it keeps no messages on the queues."""
        group = self.group(name)
        if group is None:
            return False
        self.journal.commit(StoreUnit(state={group.key: None}))
        return True

    def set_cursor(self, name: str, cursor: int) -> ConsumerGroup:
        """Set the cursor by hand, back or forth."""
        return self._save(groups.moved(self.group(name), name, cursor))

    def purge(self, most: int = 1 << 62) -> int:
        """Take the messages that no group needs any more, about `most` at a time; returns how many were taken."""
        known = self.groups()
        limits = groups.due(known, list(self.journal.index.queues), self.clock())
        taken = 0
        for queue, below in limits.items():
            taken += self._purge_queue(queue, below, most - taken)
        if 0 < taken < most:
            self._remember_purge(known, limits)
        return taken

    def _purge_queue(self, queue: str, below: int, most: int) -> int:
        taken = 0
        while taken < most and (runs := self.lookup.runs(queue, 0, below, PURGE_STEP, in_memory=True)):
            tokens: list[int] = []
            for run in runs:
                first = token_of(run.priority, run.first)
                tokens.extend(range(first, first + run.rows))
            failpoint("purge.before")
            self.journal.commit(StoreUnit(takes=[LaneTakes(queue, b"", tokens)]))
            failpoint("purge.after")
            taken += len(tokens)
        return taken

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
        """Put a batch and record its number in one unit of work. A batch of `txn` is put only once."""
        key = TRANSACTION_PREFIX + txn.encode()
        if txn and batch <= int(self.journal.index.state.get(key, b"-1")):
            return 0
        definition = self.journal.definition(target.queue)
        if definition is not None:
            lane = self.journal.index.queues.get(target.queue)
            check_takes(definition, lane.depth if lane else 0, messages)
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
    """The uses of the segments in which these runs lie, in a store that is open here."""
    headers = {slot: store.ring.used[slot].header for slot in {slot_of(run.place >> ROW_BITS) for run in runs}}
    return {slot: SegmentUse(slot, header.serial, header.salt) for slot, header in headers.items() if header}


STEPS_FOR_ROOM = 64
"""Steps of maintenance for which a frame waits on a full disk."""


class StoreJournal:
    """A `Journal` over a store that this process has opened itself."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.clock = clock

    @property
    def index(self) -> Index:
        """The store's index."""
        return self.store.index

    @property
    def next_number(self) -> int:
        """The number that the next message gets."""
        return self.store.next_number

    @property
    def name(self) -> str:
        """The name in its segments."""
        return self.store.ring.store.hex()

    def commit(self, unit: StoreUnit) -> None:
        """Write one frame. On a full disk a frame that puts nothing waits for the room that maintenance makes."""
        for _ in range(STEPS_FOR_ROOM):
            try:
                self._write(self.store.prepare(unit, self.clock()))
                return
            except StoreUnavailable:
                if unit.puts or not self.maintain():
                    raise
        self._write(self.store.prepare(unit, self.clock()))

    def maintain(self) -> bool:
        """Do one step of the store's maintenance; returns whether there may be another one."""
        prepared = self.store.maintain(self.clock())
        if prepared is not None:
            self._write(prepared)
        return prepared is not None or self.store.under_maintenance

    def _write(self, prepared: Prepared) -> None:
        try:
            self.store.write(prepared)
        except StoreUnavailable:
            self.store.abort(prepared)
            raise
        self.store.apply(prepared)

    def uses(self, runs: list[MessageRun]) -> dict[int, SegmentUse]:
        """The uses of the segments in which these runs lie."""
        return uses_in(self.store, runs)

    def definition(self, queue: str) -> Definition | None:
        """The definition as the gateway has left it."""
        return defined_in(self.index.state, queue)


class QueueManagerJournal:
    """A `Journal` over the store of a running embedded queue manager (`EmbeddedQueueManager.core`)."""

    def __init__(self, core: Any) -> None:
        self.core = core

    @property
    def index(self) -> Index:
        """The store's index."""
        index: Index = self.core.store.index
        return index

    @property
    def next_number(self) -> int:
        """The number that the next message gets."""
        return int(self.core.store.next_number)

    @property
    def name(self) -> str:
        """The name in its segments."""
        return str(self.core.store.ring.store.hex())

    def commit(self, unit: StoreUnit) -> None:
        """Write one frame, after those that were submitted before."""
        with self.core.entered():
            self.core.commit(unit)

    def uses(self, runs: list[MessageRun]) -> dict[int, SegmentUse]:
        """The uses of the segments in which these runs lie."""
        return uses_in(self.core.store, runs)

    def definition(self, queue: str) -> Definition:
        """The definition as it is now."""
        found = self.core.queues.get(queue)
        if found is None:
            raise no_queue(queue)
        definition: Definition = found.definition
        return definition


@contextmanager
def opened(folder: Path, clock: Callable[[], float] = time.time) -> Iterator[Owner]:
    """Open a stopped gateway's store and own it for a moment. Raises StoreInUse while a gateway runs."""
    store = Store.open(folder, clock=clock, options=StoreOptions(spare_segments=1, cache_bytes=1 << 20))
    try:
        yield Owner(StoreJournal(store, clock), clock)
    finally:
        store.close()
