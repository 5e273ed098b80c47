"""IBM MQ as the gateway's queue manager: the batch port over the real client library, through ibmmq or pymqi.

`submit` hands a unit to a worker thread, and `done` is called in the reactor's thread, in order of submission. Reading
is done on a connection of its own, in a thread if a call may hang; waiting for arrivals is done in one thread for each
consumed queue.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from gateway.backends.ibm.calls import LEFT, THROUGH
from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver, load
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.longest import Inquire, longest_on
from gateway.backends.ibm.membership import Membership
from gateway.backends.ibm.reader import BoundedReader, Reader, backout_of, subscription_key
from gateway.backends.ibm.requirements import Problem, dead_letter_queue, look, require
from gateway.backends.ibm.submission_queue import Queue, Submission
from gateway.backends.ibm.unit_of_work import Marker, marker_key, rows_of
from gateway.backends.ibm.unit_parts import DividedUnit, largest
from gateway.backends.ibm.watcher import Watcher
from gateway.backends.ibm.worker import Backoff, Worker
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.ports.asking import Answer, found_or_raised
from gateway.ports.batch import Collecting, Done, Outcome, Scheduler, Stored, Token, Unit
from gateway.ports.ownership import Message
from gateway.ports.sources import Backout, Incomplete, Subscribed
from gateway.ports.state_queues import DEAD_LETTERS, FORWARD, OUT, SUBSCRIPTIONS
from gateway.queue_manager.journal import failpoint

_STOP_SECONDS = 10.0
_BRIEF_SECONDS = 0.05
"""How long the reactor waits for an answer; one that comes later is used the next time."""
_UNHEARD_SECONDS = 1.0
_MOST_LENGTHS = 10_000
"""The most queues whose lengths are remembered: devices may choose queues by their topics."""
_USUAL_LENGTH = 4_194_304
_MAXUMSGS = 10_000
"""The default of a queue manager."""


class IbmQueueManager:
    """Implements `ports.batch.BatchQueueManager`. It is made, `start`ed, used from one thread, and `close`d."""

    def __init__(
        self,
        settings: ConnectSettings,
        scheduler: Scheduler,
        *,
        driver: str = "auto",
        connections: int = 4,
        backoff: Backoff | None = None,
        told: Callable[[str], None] = lambda _text: None,
        attempted: Callable[[int], None] = lambda _reason: None,
        lease: float = 0.0,
        patient: bool = False,
    ) -> None:
        """`told` gets a line for the operator at each loss and return of a connection, in any thread; `attempted` gets
        the reason of each attempt to connect again (0: it worked), in the reactor's thread. With a `lease` (seconds)
        the state queues are shared with other gateways. `patient`: a read that is not answered raises MQError after a
        moment. Raises DriverUnavailable if no binding can be loaded."""
        self.name = settings.name
        self._settings = settings
        self._scheduler = scheduler
        self._driver: Driver = load(driver)
        self._driver.check(settings)
        self._driver.on_left_open = self._end
        self._backoff = backoff or Backoff()
        self._told = told
        self._attempted = attempted
        instance = os.urandom(12)
        self.instance = instance.hex() if lease else ""
        """This gateway's name among those that share the state queues; empty if it has them for itself."""
        self.on_superseded: Callable[[str], None] = lambda _text: None
        """Called in any thread when another gateway has taken over, and nothing is committed any more."""
        self.on_gone: Callable[[str, int], None] = lambda _queue, _count: None
        """Called in the reactor's thread with how many messages of a consumed queue were gone when they were to be
        taken: they may have gone to two gateways."""
        self._new_id = MessageIds(time.time(), instance[:4])
        self._heard = False
        """Whether workers tell the reactor by a descriptor."""
        self._posted: list[Worker] = []
        """Workers that may have something to be collected."""
        self._queue = Queue(connections)
        self._under_way: dict[int, Submission] = {}
        self._workers = [self._worker(number, instance.hex()) for number in range(connections)]
        self._reader = (
            BoundedReader(self._driver, settings, self._new_id, scheduler, told)
            if patient
            else Reader(self._driver, settings, self._new_id)
        )
        self._watchers: dict[str, Watcher] = {}
        self._groups: dict[str, bool] = {}
        """Consumed queues, and whether only complete groups are wanted from them."""
        self._subscribed: dict[bytes, None] = {}
        """Keys of the subscriptions that this gateway has, alone or together with others."""
        self._lengths: dict[str, int] = {}
        self._unheard: dict[str, float] = {}
        """The time until which a queue's length is not asked for again, because each question may take long."""
        self._slow_until = 0.0
        """The time until which nothing is waited for, because an answer has just taken too long."""
        self.dead_letter_queue = DEAD_LETTERS
        self._membership = self._member(connections, lease) if lease else None
        self._unread: list[Message] = []
        self._on_message: Callable[[Message], None] = self._unread.append
        self.most_rows = largest(_MAXUMSGS)
        """The most messages of one unit of work; a larger unit is committed in parts."""

    def _worker(self, number: int, instance: str) -> Worker:
        return Worker(
            self._driver, self._settings, Marker(marker_key(number, instance), fence=bool(self.instance)), self._new_id,
            self._finished, backoff=self._backoff, told=self._told, superseded=self._end,
            attempted=lambda reason: self._scheduler.soon(lambda: self._attempted(reason)),
            gone=lambda queue, count: self._scheduler.soon(lambda: self.on_gone(queue, count)),
        )  # fmt: skip

    def _member(self, workers: int, lease: float) -> Membership:
        member = Membership(
            self._driver, self._settings, self._new_id, self.instance, workers, lease,
            backoff=self._backoff, told=self._told, superseded=self._end,
        )  # fmt: skip
        member.on_message = lambda message: self._scheduler.soon(lambda: self._on_message(message))
        return member

    def _end(self, text: str) -> None:
        self.on_superseded(text)

    @property
    def put_to(self) -> set[str]:
        """Queues that were put to since the start, including those whose name a rule makes for each message."""
        return {name for worker in self._workers for name in list(worker.put_to)}

    @property
    def driver(self) -> str:
        """The binding in use."""
        return self._driver.name

    @property
    def connected(self) -> bool:
        """Whether every worker has its connection."""
        return all(worker.connected for worker in self._workers)

    @property
    def silence(self) -> float:
        """For how many seconds nothing has been answered on open connections, if that is longer than a lease; otherwise
        0. Another gateway may have taken over by then."""
        return self._membership.silence() if self._membership is not None else 0.0

    def start(self) -> None:
        """Connect everything. Raises MQError with a text for the operator if the queue manager or its objects
        refuse."""
        try:
            first = self._driver.connect(self._settings)
            if not self.name:
                self.name = str(first.inquire("", mq.MQCA_Q_MGR_NAME))
            require(first)
            self.dead_letter_queue = dead_letter_queue(first)
            with suppress(MQError):
                self.most_rows = largest(int(first.inquire("", mq.MQIA_MAX_UNCOMMITTED_MSGS)))
            self._measure(first.inquire, {OUT, self.dead_letter_queue})
            connections = [Connection(first, self._new_id)]
            connections += [Connection(self._driver.connect(self._settings), self._new_id) for _ in self._workers[1:]]
            for worker, connection in zip(self._workers, connections, strict=True):
                worker.most_rows = min(worker.most_rows, self.most_rows)
                worker.start(connection)
            if self._membership is not None:
                self._membership.join()
        except MQError as error:
            raise MQError(error.reason, explain(error.reason, str(error)), error.comp_code) from None

    def examine(
        self, puts: Iterable[str], consumes: Iterable[str], longest: int, short: Container[str] = ()
    ) -> list[Problem]:
        """Returns what is missing or unsuitable of the queues that the gateway needs; uses a connection of its own."""
        return look(self._settings, self._driver.name, puts, consumes, longest, short)

    def _measure(self, inquire: Inquire, queues: Iterable[str]) -> None:
        """Ask for the length limits of the gateway's own queues before devices are served, because later nobody waits
        for them."""
        with suppress(MQError):  # then it is asked for when it is needed
            for queue in queues:
                found = longest_on(inquire, queue)
                if found is not None:
                    self._lengths[queue] = found

    def close(self) -> None:
        """Commit what waits if the queue manager answers, then disconnect."""
        for watcher in self._watchers.values():
            watcher.stop()
        for worker in self._workers:
            worker.stop()
        if self._membership is not None:
            self._membership.stop()
        threads = [worker.thread for worker in self._workers]
        threads += [watcher.thread for watcher in self._watchers.values()]
        threads += [self._membership.thread] if self._membership is not None else []
        until = time.monotonic() + _STOP_SECONDS  # for all of them: a call that hangs in the client is left behind
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        if self._membership is not None and not self._membership.thread.is_alive():
            settled = all(worker.is_settled for worker in self._workers)
            leave = partial(self._membership.leave, settled=settled)
            leaving = threading.Thread(target=leave, name="mq-leave", daemon=True)
            leaving.start()
            leaving.join(max(1.0, until - time.monotonic()))
        self._reader.close()

    # Among other gateways

    def peers(self) -> frozenset[str]:
        """Returns every other gateway that may own a session: living, or not taken over yet."""
        return self._membership.peers() if self._membership is not None else frozenset()

    def knows(self, gateway: str) -> bool:
        """Returns whether a gateway may be alive, or somebody takes over from it."""
        return self._membership is not None and self._membership.knows(gateway)

    @property
    def lease_seconds(self) -> float:
        """Returns how long a gateway may leave its lease unrenewed; 0 if there are no others."""
        return self._membership.seconds if self._membership is not None else 0.0

    def reads(self, gateway: str) -> int:
        """See `Owners.reads`."""
        return self._membership.reads(gateway) if self._membership is not None else 0

    def leases(self) -> dict[str, float]:
        """Returns for how many seconds the lease of each other gateway has been unchanged."""
        return self._membership.leases() if self._membership is not None else {}

    def expired_owners(self) -> list[str]:
        """Returns the gateways whose successor this one is: sessions and wills that name them are this gateway's
        now."""
        return self._membership.expired_owners() if self._membership is not None else []

    def taken_over(self, owner: str) -> None:
        """Note that nothing that is stored names `owner` any more."""
        if self._membership is not None:
            self._membership.taken_over(owner)

    def reached(self, place: str) -> None:
        """A failpoint of the broker."""
        failpoint.reach(f"owners.{place}")

    def listen(self, on_message: Callable[[Message], None], on_change: Callable[[], None]) -> None:
        """Have `on_message` called with what other gateways send, and `on_change` when peers or expired owners have
        changed."""
        self._on_message = on_message
        if self._membership is not None:
            self._membership.on_change = lambda: self._scheduler.soon(on_change)
        for each in self._unread:
            on_message(each)
        self._scheduler.soon(on_change)

    def receive(self, key: bytes, arrived: Callable[[], None]) -> None:
        """Have `arrived` called in the reactor when other gateways have put something for this one."""
        self._watch(FORWARD, arrived, key)

    # The batch port

    def submit(self, unit: Unit, done: Done) -> None:
        """Commit the unit; `done` is called in the reactor's thread."""
        if rows_of(unit) > self.most_rows:
            DividedUnit(unit, done, self.most_rows, self._begin).begin()
        else:
            self._begin(unit, done)

    def _begin(self, unit: Unit, done: Done) -> None:
        if not self._heard:
            self._listen()
        if self._queue.order:
            self._start_units(self._queue.add(Submission(unit, done)))
            return
        worker = self._workers[0]  # nobody is busy
        posted = worker.post(unit)
        if posted == THROUGH:
            worker.concluded()
            done(unit, Outcome())
            return
        for submission in self._queue.add(Submission(unit, done)):
            self._started(submission, worker, posted)

    def _start_units(self, submissions: Iterable[Submission]) -> None:
        for submission in submissions:
            worker = self._workers[submission.worker or 0]
            self._started(submission, worker, worker.post(submission.unit))

    def _started(self, submission: Submission, worker: Worker, posted: int) -> None:
        """Register a submission. Outcomes from other threads come through the scheduler, so none arrives before
        this."""
        self._under_way[id(submission.unit)] = submission
        if posted == THROUGH:
            self._conclude(submission.unit, Outcome())
        elif posted == LEFT:
            worker.submit(submission.unit)
        elif worker not in self._posted:
            self._posted.append(worker)

    def _listen(self) -> None:
        """Have outcomes that workers reach without Python told by a descriptor, as soon as the reactor has one."""
        if isinstance(self._scheduler, Collecting):
            descriptor = self._scheduler.collect(self._collect)
            self._heard = descriptor >= 0
            for worker in self._workers if self._heard else ():
                worker.tell(descriptor)

    def _collect(self) -> None:
        posted, self._posted = self._posted, []
        for worker in posted:
            unit = worker.collect()
            if unit is not None:
                self._conclude(unit, Outcome())
            elif worker.outstanding and worker not in self._posted:
                self._posted.append(worker)

    def _finished(self, unit: Unit, outcome: Outcome) -> None:
        """A unit has its outcome; called in a worker's thread."""
        self._scheduler.soon(lambda: self._conclude(unit, outcome))

    def _conclude(self, unit: Unit, outcome: Outcome) -> None:
        for failure in outcome.failures:
            if failure.longest >= 0:
                self._lengths[unit.puts[failure.puts].queue] = failure.longest
        submission = self._under_way.pop(id(unit))
        self._workers[submission.worker or 0].concluded()
        told, started = self._queue.finish(submission, outcome)
        self._start_units(started)
        for each in told:
            if each.outcome is not None:
                each.done(each.unit, each.outcome)

    def load(self, queue: str) -> Iterable[tuple[bytes, Stored]]:
        """Returns every message of a state queue with its key, in order."""
        return self._reader.load(queue)

    def fetch(self, queue: str, key: bytes, limit: int, after: Token | None = None) -> list[Stored]:
        """Returns the next messages in order without removing them."""
        watcher = self._watchers.get(queue)
        if watcher is not None:
            watcher.looked()
        return self._reader.fetch(queue, key, limit, after)

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """Returns what was read ahead of a consumed queue; no other gateway gets these messages for a while."""
        watcher = self._watchers.get(queue)
        if queue == SUBSCRIPTIONS:
            self._subscribed[key] = None
        return [] if watcher is None else watcher.claim(key, limit)

    def ask(self, read: Callable[[], Any], answered: Answer) -> None:
        """See `ports.asking.Asks`."""
        if isinstance(self._reader, BoundedReader):
            self._reader.calls.ask(read, answered)
        else:
            self._scheduler.soon(partial(answered, found_or_raised(read)))

    def briefly(self, read: Callable[[], Any]) -> Any:
        """See `ports.asking.Asks`."""
        reader = self._reader
        return reader.calls.call(read, _BRIEF_SECONDS) if isinstance(reader, BoundedReader) else read()

    def depth(self, queue: str, key: bytes = b"") -> int:
        """Returns how many messages are there."""
        return self._reader.depth(queue, key)

    def consume(self, queue: str, arrived: Callable[[], None]) -> None:
        """Ask to be told that `queue` may have something."""
        self._watch(queue, arrived)

    def stop_consuming(self, queue: str, key: bytes = b"") -> None:
        """Stop consuming, so that the queue can soon be altered and deleted: whatever has it open closes it after what
        is in progress. With a key, only that key is no longer read: its subscription goes on, and would fill what is
        read ahead."""
        if key:
            self._subscribed.pop(key, None)
            if queue in self._watchers:
                self._watchers[queue].leave(key)
            return
        if queue == SUBSCRIPTIONS:
            self._subscribed.clear()
        watcher = self._watchers.pop(queue, None)
        if watcher is not None:
            watcher.stop()
        self.close_objects()

    def close_objects(self) -> None:
        """See `KeepsOpen`."""
        for worker in self._workers:
            worker.close_objects(partial(self._scheduler.soon, worker.concluded))

    def _watch(self, queue: str, arrived: Callable[[], None], key: bytes = b"") -> None:
        if queue in self._watchers:
            self._watchers.pop(queue).stop()
        watcher = Watcher(
            self._driver,
            self._settings,
            queue,
            lambda: self._scheduler.soon(arrived),
            key=key,
            keys=(lambda: tuple(self._subscribed)) if queue == SUBSCRIPTIONS else None,
            groups=self._groups.get(queue, False),
            backoff=self._backoff,
            told=self._told,
        )
        self._watchers[queue] = watcher
        watcher.thread.start()

    def gather(self, queue: str, *, groups: bool) -> None:
        """Give messages of a group only when the group is complete, or as they come."""
        self._groups[queue] = groups
        if queue in self._watchers:
            self._watchers[queue].gather(groups=groups)

    def incomplete(self, queue: str) -> Incomplete:
        """Returns what stays on a consumed queue because parts of it are missing."""
        watcher = self._watchers.get(queue)
        return Incomplete() if watcher is None else watcher.incomplete

    def backout(self, queue: str) -> Backout:
        """Returns BOTHRESH and BOQNAME; none if it is not a local queue."""
        return backout_of(self._reader.inquire, queue)

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """Puts the messages of all subscriptions on one queue of the gateway's, and returns that queue and the
        correlation identifier that distinguishes this one's messages."""
        key = subscription_key(name)
        self._reader.subscribe(name, topic, SUBSCRIPTIONS, key)
        self._subscribed[key] = None
        return Subscribed(SUBSCRIPTIONS, key)

    def knows_length(self, queue: str) -> bool:
        """Whether `max_length` is what the queue manager has said, rather than the default."""
        return queue in self._lengths

    def max_length(self, queue: str) -> int:
        """Returns the longest message data that `queue` takes, by the queue's limit and the queue manager's."""
        known = self._lengths.get(queue)
        if known is not None:
            return known
        now = time.monotonic()
        if now < self._unheard.get(queue, 0.0):
            return _USUAL_LENGTH
        read = partial(self._read_length, queue)
        try:
            if now < self._slow_until:
                self._hear_later(queue)
                self.ask(read, lambda _found: None)
                return _USUAL_LENGTH
            return self.briefly(read)  # type: ignore[no-any-return]
        except MQError as error:
            if action_for(error.reason) is Action.RECONNECT:
                self._hear_later(queue)
                self._slow_until = time.monotonic() + _UNHEARD_SECONDS
            return _USUAL_LENGTH

    def _hear_later(self, queue: str) -> None:
        """Do not ask about a queue for a moment."""
        if len(self._unheard) >= _MOST_LENGTHS:
            self._unheard.clear()
        self._unheard[queue] = time.monotonic() + _UNHEARD_SECONDS

    def _read_length(self, queue: str) -> int:
        """Ask for a queue's length in whatever thread this is, and remember it."""
        found = longest_on(self._reader.inquire, queue)
        if len(self._lengths) >= _MOST_LENGTHS:
            self._lengths.clear()
        length = self._lengths[queue] = _USUAL_LENGTH if found is None else found
        return length
