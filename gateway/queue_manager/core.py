"""What every verb of the embedded queue manager shares: objects, queues, store, clock, lock. One instance a queue
manager.

Whoever enters holds the lock; what has to be called back (waiters, consumers) is called after it has been given up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from types import TracebackType

from gateway.errors import MQError, StoreError
from gateway.ports.batch import Scheduler
from gateway.queue_manager.batch.commit import Batch, Committer, reason_of
from gateway.queue_manager.objects.catalogue import Catalogue, Definition, decode_definition
from gateway.queue_manager.objects.local_queue import LocalQueue, Waiter
from gateway.queue_manager.store.storage import MessageStore
from gateway.queue_manager.store.unit import StoreUnit

CROWD_SECONDS = 0.02
"""Commits of two threads closer together than this are better off in one frame."""
LEAVING = "leaving"
"""The owner of messages that a frame on its way takes."""
OBJECT_STATE = b"object/"
"""Prefix of the store's state records that hold definitions."""


class _Entry:
    """`with core.entered()`: one object for all, as it holds nothing of its own."""

    __slots__ = ("_core",)

    def __init__(self, core: Core) -> None:
        self._core = core

    def __enter__(self) -> None:
        self._core.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._core.leave()


class Core:
    """See the module."""

    def __init__(self, name: str, store: MessageStore, scheduler: Scheduler) -> None:
        self.name = name
        self.store = store
        self.scheduler = scheduler
        self.lock = threading.RLock()
        self._entry = _Entry(self)
        self.changed = threading.Condition(self.lock)
        self.catalogue = Catalogue()
        self.queues: dict[str, LocalQueue] = {}
        self.committer = Committer(store, scheduler, self.entered, self.changed, self.settled)
        self.expiring: dict[str, int] = {}
        """Queues that hold messages with an expiry, and when the first of them may be due (microseconds)."""
        self.quiescing = False
        self.closed = False
        self.on_installed: list[Callable[[Definition], None]] = []
        self.on_arrivals: list[Callable[[LocalQueue, StoreUnit], None]] = []
        """Told of units that brought messages to a queue with TRIGGER."""
        self.on_inputs: list[Callable[[LocalQueue], None]] = []
        """Told of queues that programs have opened for input, or closed."""
        self.on_removed: list[Callable[[Definition], None]] = []
        self.on_state: list[Callable[[dict[bytes, bytes | None]], None]] = []
        """Told of definitions that come and go, and of small records when they are committed."""
        self._gathered: StoreUnit | None = None
        self._serial = int(scheduler.now() * 1_000_000) & ((1 << 62) - 1)
        self._last_caller, self._last_call, self._crowd_until = 0, 0.0, 0.0
        self._depth_of_lock = 0
        self._afterwards: deque[Callable[[], None]] = deque()
        self._restore()

    # Entering and leaving

    def entered(self) -> AbstractContextManager[None]:
        """The lock; on leaving for good, what has gathered is called without it."""
        return self._entry

    def afterwards(self, call: Callable[[], None]) -> None:
        """Call this when the lock has been given up, on this thread."""
        self._afterwards.append(call)

    def enter(self) -> None:
        """Take the lock."""
        self.lock.acquire()
        self._depth_of_lock += 1

    def leave(self) -> None:
        """Give the lock back."""
        self._depth_of_lock -= 1
        last = self._depth_of_lock == 0
        self.lock.release()
        if last and self._afterwards:
            self._call_afterwards()

    def _call_afterwards(self) -> None:
        while self._afterwards:
            try:
                call = self._afterwards.popleft()
            except IndexError:  # another thread was quicker
                return
            call()

    def wait_until(self, met: Callable[[], bool]) -> None:
        """Give the lock up until a frame that makes this true has arrived."""
        depth, self._depth_of_lock = self._depth_of_lock, 0
        try:
            while not met():
                self.changed.wait()
        finally:
            self._depth_of_lock = depth

    # Time and identity

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.scheduler.now()

    def timestamp(self) -> str:
        """`YYYY-MM-DD HH.MM.SS` in UTC, as objects show when they were made."""
        return f"{datetime.fromtimestamp(self.now(), UTC):%Y-%m-%d %H.%M.%S}"

    def new_identifier(self) -> bytes:
        """24 unique bytes for MsgId, GroupId and the like. The top bit keeps them apart from those the store makes."""
        self._serial += 1
        return b"AMQ " + self.name.encode()[:12].ljust(12) + (self._serial | 1 << 63).to_bytes(8, "big")

    @property
    def identifier(self) -> str:
        """QMID: name and time of creation, as IBM MQ composes it."""
        return f"{self.name}_{self.catalogue.queue_manager.created.replace(' ', '_')}"[:48]

    # Objects

    def _restore(self) -> None:
        for name, record in self.store.state().items():
            if name.startswith(OBJECT_STATE):
                self.install(decode_definition(record))

    def install(self, definition: Definition) -> None:
        """A definition takes effect."""
        self.catalogue.add(definition)
        if definition.kind == "QLOCAL":
            queue = self.queues.get(definition.name)
            if queue is None:
                self.queues[definition.name] = LocalQueue(definition, since=self.now())
            else:
                queue.refresh(definition)
                self.wake(queue)
        for told in self.on_installed:
            told(definition)

    def uninstall(self, definition: Definition) -> None:
        """A definition goes; a local queue with it."""
        self.catalogue.remove(definition)
        if definition.kind == "QLOCAL":
            queue = self.queues.pop(definition.name)
            queue.deleted = True
            self.wake(queue)
        for told in self.on_removed:
            told(definition)

    def save(self, definitions: Iterable[Definition], removed: Iterable[Definition] = ()) -> None:
        """Write definitions down, so that a restart brings them back."""
        unit = StoreUnit()
        for definition in definitions:
            unit.state[state_key(definition)] = definition.encode()
        for definition in removed:
            unit.state[state_key(definition)] = None
        if self._gathered is not None:
            self._gathered.state.update(unit.state)
        elif unit:
            self.commit(unit)

    @contextmanager
    def saved_together(self) -> Iterator[None]:
        """Many definitions in one frame."""
        gathered = self._gathered = StoreUnit()
        try:
            yield
        finally:
            self._gathered = None
            if gathered:
                self.commit(gathered)

    def attribute(self, keyword: str) -> int:
        """A number of the queue manager's own attributes."""
        return self.catalogue.queue_manager.number(keyword)

    # Committing

    def commit(self, unit: StoreUnit) -> None:
        """Durable when this returns; otherwise nothing of it has happened and the reason is raised."""
        if not unit:
            return
        failures: list[StoreError] = []

        def finished(error: StoreError | None) -> None:
            if error is not None:
                failures.append(error)

        self.committer.now(Batch(unit, finished))
        if failures:
            raise MQError(reason_of(failures[0]), str(failures[0])) from failures[0]
        self.settled(unit)

    def commit_call(self, unit: StoreUnit) -> None:
        """The same for the verbs programs call most. While others commit too, or the disk is slow, the lock is given
        up and calls share frames; what the unit takes is hidden meanwhile, what it puts is counted.
        """
        if not unit or (not self._crowded() and not self.committer.slow):
            self.commit(unit)
            return
        hidden = [(queue, tokens) for queue, tokens in self._takes(unit) if tokens]
        counted = [(self.queues[puts.queue], len(puts.heads)) for puts in unit.puts if puts.queue in self.queues]
        for queue, tokens in hidden:
            self.lock_messages(queue, tokens, LEAVING)
        for queue, rows in counted:
            queue.uncommitted_puts += rows
        failures: list[StoreError | None] = []
        try:
            self.committer.call(Batch(unit, failures.append), self.wait_until)
        finally:
            for queue, rows in counted:
                queue.uncommitted_puts -= rows
        failure = failures[0]
        if failure is not None:
            for queue, tokens in hidden:
                self.unlock_messages(queue, tokens)
            raise MQError(reason_of(failure), str(failure)) from failure
        self.settled(unit)

    def _takes(self, unit: StoreUnit) -> Iterator[tuple[LocalQueue, list[int]]]:
        """What a unit takes that nobody has locked."""
        for takes in unit.takes:
            queue = self.queues.get(takes.queue)
            if queue is not None:
                yield queue, [token for token in takes.tokens if token not in queue.locked]

    def _crowded(self) -> bool:
        """Whether calls on several threads commit at the same time."""
        now, thread = self.scheduler.monotonic(), threading.get_ident()
        if thread != self._last_caller and now - self._last_call < CROWD_SECONDS:
            self._crowd_until = now + 5 * CROWD_SECONDS
        self._last_caller, self._last_call = thread, now
        return now < self._crowd_until

    def settled(self, unit: StoreUnit) -> None:
        """After a frame has been applied: accounts, locks, and who is to be woken."""
        if unit.state:
            for told in self.on_state:
                told(unit.state)
        queues = self.queues
        now = self.scheduler.now()
        for takes in unit.takes:
            queue = queues.get(takes.queue)
            if queue is not None:
                queue.taken(takes.tokens)
                queue.gets += len(takes.tokens)
                queue.last_get = now
        arrived: dict[str, int] = {}
        for puts in unit.puts:
            arrived[puts.queue] = arrived.get(puts.queue, 0) + len(puts.heads)
            if puts.expiries is not None:
                self._note_expiry(puts.queue, puts.expiries)
        for moves in unit.moves:
            source = queues.get(moves.queue)
            if source is not None:
                source.taken(moves.tokens)
            arrived[moves.to_queue] = arrived.get(moves.to_queue, 0) + len(moves.tokens)
        for name, messages in arrived.items():
            queue = queues.get(name)
            if queue is not None:
                queue.puts += messages
                queue.last_put = now
                self._announce_arrivals(queue, unit)

    def _announce_arrivals(self, queue: LocalQueue, unit: StoreUnit) -> None:
        depth = self.store.depth(queue.name)
        queue.high_depth = max(queue.high_depth, depth)
        if queue.triggers:
            for arrived in self.on_arrivals:
                arrived(queue, unit)
        if queue.waiters or queue.consumers or queue.served is not None:
            self.wake(queue)

    def _note_expiry(self, name: str, expiries: Sequence[int]) -> None:
        earliest = min((one for one in expiries if one), default=0)
        if earliest:
            self.expiring[name] = min(earliest, self.expiring.get(name, earliest))

    # Waking

    def inputs_changed(self, queue: LocalQueue) -> None:
        """A program has opened the queue for input or closed it."""
        for told in self.on_inputs:
            told(queue)

    def wake(self, queue: LocalQueue) -> None:
        """Something may have changed for those who wait on the queue."""
        if queue.waiters:
            self.afterwards(lambda: self._serve(queue))
        if queue.consumers and not queue.announced:
            queue.announced = True
            self.scheduler.soon(lambda: self._announce(queue))
        if queue.served is not None:
            self.afterwards(queue.served)

    def _serve(self, queue: LocalQueue) -> None:
        """Waiters in order, one message each; a plain one that finds nothing ends it."""
        with self.entered():
            waiting: deque[Waiter] = deque()
            while queue.waiters:
                waiter = queue.waiters.popleft()
                if waiter.ended or waiter.attempt():
                    continue
                waiting.append(waiter)
                if waiter.plain:
                    break
            waiting.extend(queue.waiters)
            queue.waiters = waiting

    def _announce(self, queue: LocalQueue) -> None:
        queue.announced = False
        for arrived in list(queue.consumers):
            arrived()

    # Locks, depth

    def lock_messages(self, queue: LocalQueue, tokens: Sequence[int], owner: Hashable) -> None:
        """Hide messages from everyone but their owner."""
        queue.locked.update(dict.fromkeys(tokens, owner))
        self.store.lock(queue.name, b"", tokens)

    def unlock_messages(self, queue: LocalQueue, tokens: Sequence[int]) -> None:
        """Show them again, in their old places."""
        for token in tokens:
            queue.locked.pop(token, None)
        self.store.unlock(queue.name, b"", tokens)

    def depth(self, queue: LocalQueue) -> int:
        """CURDEPTH: what is there and what is put in units of work that are open."""
        return self.store.depth(queue.name) + queue.uncommitted_puts


def state_key(definition: Definition) -> bytes:
    """Where a definition is kept."""
    return OBJECT_STATE + f"{definition.kind}/{definition.name}".encode()
