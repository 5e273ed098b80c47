"""IBM MQ with a buffer in front, as one queue manager: the batch port that the broker uses.

The gateway's own state (sessions, retained and staged messages) lives in the buffer's store, so that the gateway
keeps working while IBM MQ is away. Messages for IBM MQ are put there directly while it is connected and nothing older
waits; otherwise they become an entry of the store, and the unit is done when that is durable.

A unit that changes state and IBM MQ at once takes three steps: both halves are written to the store as entry and
intent, IBM MQ is asked, the state is changed. Whatever breaks in between, the intent is carried out and the entry is
put or was put: the progress, which every unit of work on IBM MQ carries, tells which. The reasons are in
docs/decisions/0012. All calls come from the reactor's thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from gateway.backends.buffer.attempt_queue import AttemptQueue
from gateway.backends.buffer.bounded_reads import BoundedReads
from gateway.backends.buffer.drain import Drain
from gateway.backends.buffer.link import Found, Link, Reads, Verdict
from gateway.backends.buffer.progress import Progress, decode
from gateway.backends.buffer.refusal_policy import PolicyOf
from gateway.backends.buffer.spool import Identity, Spool
from gateway.backends.buffer.units import Units
from gateway.errors import MQError, StoreCorrupt
from gateway.mq import constants as mq
from gateway.ports.batch import Done, Outcome, Scheduler, StorageFull, Stored, Token, Unit
from gateway.ports.counters import Counters
from gateway.ports.sources import Backout, Incomplete, Subscribed
from gateway.ports.state_queues import DEAD_LETTERS, FAN_OUT, OUT, REQUESTS, RETAINED, SESSIONS, STAGED, USERS, WILLS
from gateway.queue_manager.embedded import EmbeddedQueueManager

CONNECTED, BUFFERING, DRAINING = "connected", "buffering", "draining"
STATES = (CONNECTED, BUFFERING, DRAINING)
MOVED_IN = frozenset({SESSIONS, RETAINED, STAGED, OUT, WILLS, REQUESTS, USERS})
"""The state queues that a gateway without a buffer has on IBM MQ."""
STATE_QUEUES = MOVED_IN | {FAN_OUT}
"""The queues in the buffer's store. All others are on IBM MQ, including MQGATE.DEAD.LETTER and MQGATE.DEFAULT."""
MAX_LENGTH = 104_857_600
ABSENT_SECONDS = 600.0
"""How long a progress that should be there is waited for, because a unit of work of a broken connection may hold it.
After that it must have been removed, and what was in doubt is put again."""
_MARGIN = 16 << 20
"""How much of `max_bytes` is left for what is in progress when no more publications are taken in."""
_LOOK_AGAIN, _TRY_AGAIN = 0.5, 1.0


class BufferedQueueManager:
    """Implements the batch port, `Claims` and `Sources`. It is made, `start`ed, used from one thread, and `close`d."""

    def __init__(
        self,
        store: EmbeddedQueueManager,
        link: Link,
        reads: Reads,
        scheduler: Scheduler,
        counters: Counters,
        *,
        max_bytes: int,
        name: str = "",
        state_queues: Iterable[str] = STATE_QUEUES,
        told: Callable[[str, str], None] = lambda _state, _why: None,
    ) -> None:
        """`told` is called at each change of the state, with the reason. Raises StoreUnavailable if the store cannot be
        written."""
        self.store = store
        """The embedded queue manager underneath."""
        self._link = link
        self._reads = BoundedReads(reads, scheduler, self._silent)
        self._scheduler = scheduler
        self._told = told
        self._own = frozenset(state_queues)
        self.max_bytes = max_bytes
        self._limit_reached_at = 0.0
        self.spool = Spool(store)
        counters.spool_recovered_messages += self.spool.recovered
        self.name = name or self.spool.identity.name
        """The name of IBM MQ; empty until the first connection if the settings leave it open."""
        self.dead_letter_queue = self.spool.identity.dead_letter_queue or DEAD_LETTERS
        """The dead-letter queue of IBM MQ."""
        self._attempts = AttemptQueue(link, scheduler)
        self._attempts.on_silent = self._down
        self._drain = Drain(store, self.spool, self._attempts, self._reads, scheduler, counters)
        self._drain.on_empty = self._settled
        self.units = Units(self._drain, self._own, max_bytes)
        """The submitted units, done one after the other."""
        self.units.on_stored = self._note
        self._drain.on_room = self.units.room
        self._arrived: dict[str, Callable[[], None]] = {}
        self._unwatched: set[str] = set()
        """Queues that are to be consumed when nothing waits any more."""
        self._starved: set[str] = set()
        """Queues that a consumer tried to read while units waited."""
        self._backouts: dict[str, Backout] = {}
        self._lengths: dict[str, int] = {}
        self._absent_since = 0.0
        self._closed = False
        self.why = "not connected yet"
        """Why IBM MQ is away."""
        self._state = BUFFERING
        self.on_connected: Callable[[], None] = lambda: None
        """Called when the queue manager's name and dead-letter queue are known."""

    def start(self) -> None:
        """Begin to connect."""
        self._link.start(bytes.fromhex(self.spool.identity.key), self._up, self._down)

    def close(self) -> None:
        """Disconnect and close the store. What is not committed has not been acknowledged."""
        self._closed = self.units.closed = True
        self._attempts.progress = None
        self._link.stop()
        self._reads.close()
        self.store.close()

    # What it is

    @property
    def state(self) -> str:
        """The state: connected, buffering or draining."""
        if self._attempts.progress is None:
            return BUFFERING
        return CONNECTED if self._drain.idle and not self.spool.aside else DRAINING

    @property
    def put_to(self) -> set[str]:
        """Queues of IBM MQ to which messages were put since the start, with placeholders filled in."""
        return set(self._link.put_to)

    @property
    def full(self) -> bool:
        """Whether a unit waits for room."""
        return self.units.held

    @property
    def storage_full(self) -> StorageFull | None:
        """Why nothing new is taken: messages wait here, and the disk is full or `max_bytes` nearly reached. None if
        there is room."""
        if self.state == CONNECTED:
            return None
        disk = self.store.storage_full
        size, most = self.spool.bytes, self.max_bytes
        if disk is None and size + min(_MARGIN, most // 16) > most:
            why = f"{size} bytes wait for {self.name}, and `buffer.max_bytes` is {most}"
            since = self._limit_reached_at = self._limit_reached_at or self._scheduler.now()
            return StorageFull(since, "the buffer", why)
        self._limit_reached_at = 0.0
        return disk

    @property
    def problems(self) -> dict[str, str]:
        """Why something waits although IBM MQ is connected, by queue."""
        return {key[0] if key is not None else "": text for key, text in self._drain.problems.items()}

    def _note(self) -> None:
        """Report the state if it has changed."""
        state = self.state
        if state != self._state:
            self._state = state
            self._told(state, self.why if state == BUFFERING else "")

    # The connection

    def _up(self, found: Found) -> None:
        """There is a connection. Nothing is done before the progress can be seen, which settles what was in doubt."""
        if self._closed:
            return
        self._attempts.most_rows = found.most_rows
        identity = self.spool.identity
        recorded = identity.recorded and identity.name == found.name
        if found.progress is None and recorded and self._patient():
            self._scheduler.later(_LOOK_AGAIN, self._link.look)
            return
        self._absent_since = 0.0
        progress = self._read(found.progress)
        if progress.owner and progress.owner not in identity.owners:
            self._begin_anew()
            return
        progress = replace(progress, owner=identity.owners[-1])
        known = replace(
            identity, name=found.name, dead_letter_queue=found.dead_letter_queue, recorded=True,
            owners=identity.owners[-1:],
        )  # fmt: skip
        if found.progress is None or known != identity:
            self._introduce(progress, known)
        else:
            self._connected(progress)

    def _read(self, body: bytes | None) -> Progress:
        try:
            return Progress() if body is None else decode(body)
        except StoreCorrupt as error:
            self._told(BUFFERING, f"{error}; what was in doubt is put again")
            return Progress()

    def _patient(self) -> bool:
        now = self._scheduler.monotonic()
        self._absent_since = self._absent_since or now
        self.why = "connected; a unit of work of an earlier connection is still open there"
        return now - self._absent_since < ABSENT_SECONDS

    def _begin_anew(self) -> None:
        """Go on with a progress of its own, because this buffer is a copy, and another process uses the original. What
        waits here is put, and what was in doubt is put again: by the other's progress it would count as put already."""
        self._told(BUFFERING, "the buffer was copied or restored from a backup; what was in doubt is put again")
        known = replace(self.spool.identity, key=secrets.token_hex(12), recorded=False)

        def renamed(_unit: Unit, outcome: Outcome) -> None:
            if outcome.failures:
                self._scheduler.later(_TRY_AGAIN, self._begin_anew)
                return
            self._link.rename(bytes.fromhex(known.key))
            self._link.look()

        self.store.submit(Unit(replaces=[self.spool.know(known)]), renamed)

    def _introduce(self, progress: Progress, known: Identity) -> None:
        """Connect for the first time: the progress is written on both sides before anything depends on it."""

        def again(why: str) -> None:
            self.why = why
            self._scheduler.later(_TRY_AGAIN, self._link.look)

        def noted(_unit: Unit, outcome: Outcome) -> None:
            if outcome.failures:
                again(f"the buffer cannot be written: {outcome.failures[0].text}")
            else:
                self._connected(progress)

        def written(verdict: Verdict) -> None:
            if verdict.committed:
                self.store.submit(Unit(replaces=[self.spool.know(known)]), noted)
            elif verdict.failures:
                again(f"the progress cannot be written: {verdict.failures[0].text}")

        self._link.commit(Unit(), progress.encode(), written)

    def _connected(self, progress: Progress) -> None:
        self._attempts.progress = progress
        self.name, self.dead_letter_queue = self.spool.identity.name, self.spool.identity.dead_letter_queue
        self.on_connected()
        self._drain.connected(progress)
        self.units.room()
        self._note()

    def _down(self, why: str) -> None:
        self.why = why
        self._attempts.progress = None
        self._note()

    def _silent(self, why: str) -> None:
        """A read hangs, so other calls would hang too. The link tells when the queue manager answers again."""
        self._down(why)
        self._link.look()

    def _settled(self) -> None:
        """The main line is empty: consumers may go on."""
        self._note()
        self._watch()
        starved, self._starved = self._starved, set()
        for queue in starved:
            self._arrived[queue]()

    def policy_of(self, policy_of: PolicyOf) -> None:
        """Set what returns a rule's policy on failures."""
        self._drain.policy_of = policy_of

    # The batch port

    def submit(self, unit: Unit, done: Done) -> None:
        """Commit the unit: on IBM MQ, or in the store while that is away or older messages wait."""
        self.units.submit(unit, done)

    def load(self, queue: str) -> Iterable[tuple[bytes, Stored]]:
        """Returns every message of a state queue with its key, in order."""
        return self.store.load(queue) if queue in self._own else self._there().load(queue)

    def fetch(self, queue: str, key: bytes, limit: int, after: Token | None = None) -> list[Stored]:
        """Returns the next messages; none from IBM MQ while units wait, which may take what would be fetched again."""
        if queue in self._own:
            return self.store.fetch(queue, key, limit, after)
        return self._reads.fetch(queue, key, limit, after) if self._passable(queue) else []

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """As `fetch`, for a consumed queue: messages that no other gateway is given for a while."""
        return self._reads.claim(queue, key, limit) if self._passable(queue) else []

    def _passable(self, queue: str) -> bool:
        """Whether IBM MQ may be read. A consumer that may not read now is told when it may."""
        if self._attempts.progress is not None and self._drain.idle and queue not in self._unwatched:
            return True
        if queue in self._arrived:
            self._starved.add(queue)
        return False

    def depth(self, queue: str, key: bytes = b"") -> int:
        """Returns how many messages are there. Raises MQError while IBM MQ is away."""
        return self.store.depth(queue, key) if queue in self._own else self._there().depth(queue, key)

    def consume(self, queue: str, arrived: Callable[[], None]) -> None:
        """Ask to be told that `queue` may have something; while units wait, that is told when they are done."""
        if queue in self._own:
            self.store.consume(queue, arrived)
            return
        self._arrived[queue] = arrived
        self._unwatched.add(queue)
        self._watch()

    def stop_consuming(self, queue: str, key: bytes = b"") -> None:
        """See `LetsGo`."""
        if queue in self._own:
            self.store.stop_consuming(queue, key)
            return
        if key:
            self._reads.stop_consuming(queue, key)
            return
        del self._arrived[queue]
        self._starved.discard(queue)
        if queue in self._unwatched:
            self._unwatched.discard(queue)
        else:
            self._reads.stop_consuming(queue)
        self.close_objects()

    def close_objects(self) -> None:
        """See `KeepsOpen`."""
        self._link.close_objects()

    def _watch(self) -> None:
        """Look for arrivals, but not before units that take messages are done: those messages would be found again."""
        if self._attempts.progress is None or not self._drain.idle:
            return
        unwatched, self._unwatched = self._unwatched, set()
        for queue in unwatched:
            self._reads.consume(queue, self._arrived[queue])

    def gather(self, queue: str, *, groups: bool) -> None:
        """Give messages of a group only when the group is complete, or as they come."""
        self._reads.gather(queue, groups=groups)

    def incomplete(self, queue: str) -> Incomplete:
        """Returns what stays on a consumed queue because parts of it are missing."""
        return self._reads.incomplete(queue)

    def backout(self, queue: str) -> Backout:
        """Returns what happens to messages of a queue that cannot be delivered; while IBM MQ gives no answer, its last
        one."""
        try:
            self._backouts[queue] = self._there().backout(queue)
        except MQError:
            if queue not in self._backouts:
                raise
        return self._backouts[queue]

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """Returns where publications on an MQ topic arrive. Raises MQError while IBM MQ is away."""
        return self._there().subscribe(name, topic)

    def max_length(self, queue: str) -> int:
        """Returns the longest message data that `queue` takes; MQ's own maximum if it has never been asked."""
        if queue in self._own:
            return self.store.max_length(queue)
        if queue not in self._lengths and self._attempts.progress is not None:
            with suppress(MQError):
                found = self._reads.max_length(queue)
                if self._reads.knows_length(queue):
                    self._lengths[queue] = found
                return found
        return self._lengths.get(queue, MAX_LENGTH)

    def _there(self) -> Reads:
        if self._attempts.progress is None:
            raise MQError(mq.MQRC_Q_MGR_NOT_AVAILABLE, f"IBM MQ is away: {self.why}")
        return self._reads
