"""What all parts of the embedded queue manager share: objects, queues, store, clock and lock. One instance for each
queue manager.

Within `entered` a thread holds the lock; callbacks (waiting gets, consumers) run after it has been released.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from threading import get_ident

from gateway.errors import MQError, StoreError
from gateway.ports.batch import Scheduler
from gateway.queue_manager.batch.commit import Batch, Committer, reason_of
from gateway.queue_manager.batch.damage import Damage
from gateway.queue_manager.descriptor import CORREL_ID
from gateway.queue_manager.entry import Entry
from gateway.queue_manager.objects.catalogue import Catalogue, Definition, decode_definition
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.round import Gathering, Round
from gateway.queue_manager.searches import Searches
from gateway.queue_manager.settlement import Settlement
from gateway.queue_manager.store.place import NUMBER_BITS
from gateway.queue_manager.store.storage import MessageStore
from gateway.queue_manager.store.unit import StoreUnit

CROWD_SECONDS = 0.02
"""Commits of different threads within this time of one another share a frame."""
OBJECT_STATE = b"object/"
"""Prefix of the store's state records that hold definitions."""


class Core:
    """Objects, queues, store, clock and lock of one queue manager."""

    def __init__(self, name: str, store: MessageStore, scheduler: Scheduler) -> None:
        self.name = name
        self.store = store
        self.scheduler = scheduler
        self.lock = threading.RLock()
        self.entry = Entry(self.lock, self._call_afterwards)
        self._gathering = Gathering(self, self.entry)
        self.searches = Searches(self)
        self.catalogue = Catalogue()
        self.queues: dict[str, LocalQueue] = {}
        self.committer = Committer(store, scheduler, self.entered, self.settled)
        self.expiring: dict[str, int] = {}
        """Queues that hold messages with an expiry, and when the first of them may be due (microseconds)."""
        self._awaited: dict[str, dict[str, None]] = {}
        """By alias, the queues on which gets wait through it, or which rules consume through it; some did so a while
        ago."""
        self.quiescing = False
        self.closed = False
        self.on_installed: list[Callable[[Definition], None]] = []
        self.on_arrivals: list[Callable[[LocalQueue, StoreUnit], None]] = []
        """Called with each unit that puts messages on a queue with TRIGGER."""
        self.on_inputs: list[Callable[[LocalQueue, bool], None]] = []
        """Called with queues that programs or rules have opened for input (True) or closed."""
        self.on_removed: list[Callable[[Definition], None]] = []
        self.on_state: list[Callable[[dict[bytes, bytes | None]], None]] = []
        """Called with the state records of each unit that has been committed."""
        self.served_through: Callable[[Callable[[], None]], None] | None = None
        """Has a call made among those that share the next commit; None: nobody gathers calls."""
        self._identifier = b"AMQ " + name.encode()[:12].ljust(12)
        """What identifiers begin with."""
        self.changed: dict[LocalQueue, set[bytes] | None] = {}
        """Queues whose waiting gets are tried next, with the CorrelIds of what has come if nothing else has changed."""
        self._saved: StoreUnit | None = None
        self._before: list[tuple[Definition, Definition | None]] = []
        """Definitions that have been installed and are saved with others, each with what was there before."""
        self._round: Round | None = None
        self._next_round: Round | None = None
        """A round in which nothing was committed, to be used again."""
        self._serial = int(scheduler.now() * 1_000_000) & ((1 << 62) - 1)
        self._last_caller, self._last_call, self._crowd_until = 0, 0.0, 0.0
        self.damage = Damage(store)
        self._restore()

    # Entering and leaving

    def entered(self) -> AbstractContextManager[None]:
        """Hold the lock. The outermost exit releases it and then makes the calls that were left to `afterwards`."""
        return self.entry

    def afterwards(self, call: Callable[[], None]) -> None:
        """Make this call on this thread when the lock has been released."""
        self.entry.afterwards.append(call)

    def _call_afterwards(self) -> None:
        afterwards = self.entry.afterwards
        while afterwards:
            try:
                call = afterwards.popleft()
            except IndexError:  # another thread has taken the last one
                return
            call()

    def without_lock(self, wait: Callable[[], object]) -> None:
        """Release the lock while this call waits for another thread."""
        entry = self.entry
        depth, entry.depth, entry.holder = entry.depth, 0, 0
        for _ in range(depth):
            self.lock.release()
        try:
            wait()
        finally:
            for _ in range(depth):
                self.lock.acquire()
            entry.depth, entry.holder = depth, get_ident()

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
        return self._identifier + (self._serial | 1 << 63).to_bytes(8, "big")

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
        """Put a definition into effect."""
        if self._saved is not None:
            self._before.append((definition, self.catalogue.get(definition.kind, definition.name)))
        self.catalogue.add(definition)
        if definition.kind == "QLOCAL":
            queue = self.queues.get(definition.name)
            if queue is None:
                self.queues[definition.name] = LocalQueue(definition, since=self.now())
            else:
                queue.refresh(definition)
                self.wake(queue)
        elif definition.kind == "QALIAS":
            self._wake_through(definition.name)
        for callback in self.on_installed:
            callback(definition)

    def uninstall(self, definition: Definition) -> None:
        """Remove a definition, and the local queue it defines."""
        self.catalogue.remove(definition)
        if definition.kind == "QLOCAL":
            queue = self.queues.pop(definition.name)
            queue.deleted = True
            self.store.forget(definition.name)
            self.expiring.pop(definition.name, None)
            self.wake(queue)
        for callback in self.on_removed:
            callback(definition)

    def save(self, definitions: Iterable[Definition], removed: Iterable[Definition] = ()) -> None:
        """Make definitions durable, or their removal."""
        unit = StoreUnit()
        for definition in definitions:
            unit.state[state_key(definition)] = definition.encode()
        for definition in removed:
            unit.state[state_key(definition)] = None
        if self._saved is not None:
            self._saved.state.update(unit.state)
        elif unit:
            self.commit(unit)

    @contextmanager
    def saved_together(self) -> Iterator[None]:
        """Save every definition of the block in one frame. Raises MQError if they cannot be saved; then none of them is
        in effect."""
        if self._saved is not None:
            yield
            return
        self.committer.settle()  # who is told of it may put to what is defined here, which is not durable yet
        saved = self._saved = StoreUnit()
        try:
            yield
        finally:
            self._saved, before, self._before = None, self._before, []
            try:
                if saved:
                    self.commit(saved)
            except MQError:
                self._put_back(before)
                raise

    def _put_back(self, before: list[tuple[Definition, Definition | None]]) -> None:
        for definition, replaced in reversed(before):
            if replaced is None:
                self.uninstall(definition)
            else:
                self.install(replaced)

    def attribute(self, keyword: str) -> int:
        """A numeric attribute of the queue manager itself."""
        value = self.catalogue.queue_manager.attributes[keyword]
        return value if isinstance(value, int) else 0

    # Committing

    def commit(self, unit: StoreUnit) -> None:
        """Commit a unit, which is durable when this returns. If it cannot be committed, nothing has happened and the
        reason is raised."""
        if not unit:
            unit.committed()
            return
        failures: list[StoreError] = []

        def finished(error: StoreError | None) -> None:
            if error is not None:
                failures.append(error)

        self.committer.now(Batch(unit, finished))
        if failures:
            raise MQError(reason_of(failures[0]), str(failures[0])) from failures[0]
        self.settled(unit)

    def gathered(self) -> AbstractContextManager[Callable[[], None]]:
        """A context within which calls share one commit; each is told by its settlement. The lock is held meanwhile.
        The context's value is a function that commits what has been gathered so far."""
        return self._gathering

    def begin_round(self) -> bool:
        """Gather the commits of calls from now on; returns False if they are gathered already."""
        if self._round is not None:
            return False
        self.committer.collect()
        self._round, self._next_round = self._next_round or Round(self), None
        return True

    def end_round(self) -> None:
        """Commit what was gathered."""
        gathered, self._round = self._round, None
        if gathered is None:
            return
        if gathered.calls:
            self.committer.share(gathered.batch())
        else:
            self._next_round = gathered
            self.committer.catch_up()

    def next_round(self) -> None:
        """Commit what was gathered, and go on gathering."""
        self.end_round()
        self.begin_round()

    def commit_call(
        self,
        unit: StoreUnit,
        caller: Hashable = None,
        *,
        together: bool = True,
        failed: Callable[[MQError], MQError] | None = None,
        counted: Mapping[LocalQueue, int] | None = None,
    ) -> Settlement | None:
        """Commit the unit of a program's call. Where calls are gathered, and this one may be, the settlement returned
        says when that is done, and `failed` turns the commit's error into the result of the call. Otherwise, while
        other threads commit too or the disk is slow, the lock is released and calls share frames. Until the commit,
        messages that the unit takes are hidden and those it puts are counted; with `counted` that is done already, and
        these are the puts."""
        if self._round is not None and together and unit:
            return self._round.add(unit, counted, failed, caller)
        if counted is not None:
            for queue, rows in counted.items():
                queue.uncommitted_puts -= rows
        if not unit or (not self._crowded() and not self.committer.slow):
            self.commit(unit)
            return None
        alone = Round(self)
        settlement = alone.add(unit)
        self.committer.call(alone.batch(), self.without_lock)
        if settlement.error is not None:
            raise settlement.error
        return None

    def _crowded(self) -> bool:
        """Whether calls of several threads are committing at about the same time."""
        now, thread = self.scheduler.monotonic(), get_ident()
        if thread != self._last_caller and now - self._last_call < CROWD_SECONDS:
            self._crowd_until = now + 5 * CROWD_SECONDS
        self._last_caller, self._last_call = thread, now
        return now < self._crowd_until

    def settled(self, unit: StoreUnit) -> None:
        """Follow up on a unit that has been applied: update counts and locks, wake those who wait for messages."""
        if unit.on_commit:
            unit.committed()
        if unit.state:
            for callback in self.on_state:
                callback(unit.state)
        queues = self.queues
        if unit.takes or unit.replaced:
            self._note_departures(unit)
        arrived: dict[str, int] = {}
        for puts in unit.puts:
            if puts.groups is not None:
                for lane, rows in puts.groups:
                    arrived[lane[0]] = arrived.get(lane[0], 0) + rows
                continue
            arrived[puts.queue] = arrived.get(puts.queue, 0) + len(puts.heads)
            if puts.expiries is not None:
                self._note_expiry(puts.queue, puts.expiries)
        for one in unit.replaced:
            arrived[one.queue] = arrived.get(one.queue, 0) + len(one.keys)
        for moves in unit.moves:
            source = queues.get(moves.queue)
            if source is not None:
                source.taken(moves.tokens)
            arrived[moves.to_queue] = arrived.get(moves.to_queue, 0) + len(moves.tokens)
        self._note_arrivals(arrived, unit)

    def _note_departures(self, unit: StoreUnit) -> None:
        """Note that messages have been got."""
        queues, now = self.queues, self.scheduler.now()
        for takes in unit.takes:
            queue = queues.get(takes.queue)
            if queue is not None:
                queue.taken(takes.tokens)
                queue.gets += len(takes.tokens)
                queue.last_get = now
        for one in unit.replaced:
            queue = queues.get(one.queue)
            if queue is not None:
                if queue.locked or queue.marked or queue.handle_marks:
                    queue.taken([one.rank << NUMBER_BITS | number for number in one.numbers])
                queue.gets += len(one.numbers)
                queue.last_get = now

    def _note_arrivals(self, arrived: dict[str, int], unit: StoreUnit) -> None:
        """Note that messages, in these numbers, have arrived on queues."""
        queues, now = self.queues, self.scheduler.now()
        for (name, messages), depth in zip(arrived.items(), self.store.depths(list(arrived)), strict=True):
            queue = queues.get(name)
            if queue is not None:
                queue.puts += messages
                queue.last_put = now
                if depth > queue.high_depth:  # noqa: PLR1730 -- one call less
                    queue.high_depth = depth
                if queue.triggers or queue.waiters.count or queue.consumers or queue.served is not None:
                    self._announce_arrivals(queue, unit)

    def _announce_arrivals(self, queue: LocalQueue, unit: StoreUnit) -> None:
        if queue.triggers:
            for arrived in self.on_arrivals:
                arrived(queue, unit)
        if queue.waiters.count or queue.consumers or queue.served is not None:
            self.wake(queue, _correl_ids(queue.name, unit))

    def _note_expiry(self, name: str, expiries: Sequence[int]) -> None:
        earliest = min((one for one in expiries if one), default=0)
        if earliest:
            self.expiring[name] = min(earliest, self.expiring.get(name, earliest))

    # Telling and waking

    def tell(self, call: Callable[[], None]) -> None:
        """Make a call that tells programs the results of theirs, among the calls that are gathered, if any are."""
        if self.served_through is None:
            call()
        else:
            self.served_through(call)

    def inputs_changed(self, queue: LocalQueue, *, opened: bool) -> None:
        """Call `on_inputs`: a program or a rule has opened the queue for input or closed it."""
        for callback in self.on_inputs:
            callback(queue, opened)

    def wake(self, queue: LocalQueue, correl_ids: Collection[bytes] | None = None) -> None:
        """Try waiting gets and call consumers again, as something has changed on the queue. If nothing has changed but
        that messages with these CorrelIds have come, only the gets that they concern are tried."""
        if queue.waiters.count:
            if self.served_through is None:
                self.afterwards(lambda: self._serve(queue, correl_ids))
            else:
                self._serve_later(queue, correl_ids, self.served_through)
        if queue.consumers and not queue.announced:
            queue.announced = True
            self.scheduler.soon(lambda: self._announce(queue))
        if queue.served is not None:
            self.afterwards(queue.served)

    def await_through(self, chain: Iterable[Definition], queue: LocalQueue) -> None:
        """Note that a get waits on the queue, or a rule consumes it, through a name that led to it over these
        definitions."""
        for definition in chain:
            if definition.kind == "QALIAS":
                self._awaited.setdefault(definition.name, {})[queue.name] = None

    def _wake_through(self, alias: str) -> None:
        """Wake the gets and rules that came through an alias, which is inhibited now or leads elsewhere."""
        names = self._awaited.get(alias, {})
        for name in list(names):
            queue = self.queues.get(name)
            if queue is not None and (queue.waiters.count or queue.consumers):
                self.wake(queue)
            else:
                del names[name]

    def _serve_later(
        self, queue: LocalQueue, correl_ids: Collection[bytes] | None, soon: Callable[[Callable[[], None]], None]
    ) -> None:
        """Try waiting gets with the calls that are gathered next, once for everything that changes until then."""
        changed = self.changed
        if queue not in changed:
            if not changed:
                soon(self._serve_changed)
            changed[queue] = None if correl_ids is None else set(correl_ids)
            return
        before = changed[queue]
        if before is not None:
            changed[queue] = None if correl_ids is None else before.union(correl_ids)

    def _serve_changed(self) -> None:
        with self.gathered(), self.searches.sharing():
            changed, self.changed = self.changed, {}
            for queue, correl_ids in changed.items():
                _try_waiters(queue, correl_ids, to_the_last=self.quiescing)

    def _serve(self, queue: LocalQueue, correl_ids: Collection[bytes] | None) -> None:
        """Try waiting gets, with one commit for all."""
        with self.gathered(), self.searches.sharing():
            _try_waiters(queue, correl_ids, to_the_last=self.quiescing)

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
        """Make messages visible again, in their old places."""
        for token in tokens:
            queue.locked.pop(token, None)
        self.store.unlock(queue.name, b"", tokens)

    def depth(self, queue: LocalQueue) -> int:
        """CURDEPTH: messages on the queue under whatever keys, as state queues have them, and messages put in units of
        work that are still open."""
        return self.store.depth_of_all(queue.name) + queue.uncommitted_puts


def _try_waiters(queue: LocalQueue, correl_ids: Collection[bytes] | None, *, to_the_last: bool) -> None:
    """Try waiting gets in order. If one that takes any message finds none, the others would find none either; but with
    `to_the_last` all are tried, as some are to be told something else."""
    for waiter in queue.waiters.concerned(correl_ids):
        if not waiter.ended and not waiter.attempt() and waiter.any_message and not to_the_last:
            break


def _correl_ids(queue: str, unit: StoreUnit) -> Collection[bytes] | None:
    """The CorrelIds of the messages that a unit puts on a queue; None if they are not known."""
    if any(moves.to_queue == queue for moves in unit.moves):
        return None
    found: set[bytes] = set()
    for puts in unit.puts_to(queue):
        found.update(puts.correl_ids or (head[CORREL_ID] for head in puts.heads))
    return found


def state_key(definition: Definition) -> bytes:
    """The name of a definition's state record."""
    return OBJECT_STATE + f"{definition.kind}/{definition.name}".encode()
