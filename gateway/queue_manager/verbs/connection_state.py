"""What a connection holds: its open objects, its unit of work, its waiting gets. The verbs work on it.

`MqiConnection` owns a `ConnectionState`, locks the queue manager and calls the verbs; no verb imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import Arrived, Cancel, Got, Status
from gateway.queue_manager.core import Core
from gateway.queue_manager.groups import LogicalOrder
from gateway.queue_manager.objects.administration import Administration
from gateway.queue_manager.objects.authority import Authority
from gateway.queue_manager.objects.catalogue import Definition
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.name_resolution import Target
from gateway.queue_manager.objects.placement import Placer
from gateway.queue_manager.objects.selectors import Selector
from gateway.queue_manager.objects.topics import Topics
from gateway.queue_manager.settlement import Settlement
from gateway.queue_manager.store.unit import LanePuts, StoreUnit
from gateway.queue_manager.verbs.long_search import LongSearch, SearchInterruptedError
from gateway.queue_manager.verbs.refused_messages import RefusedMessages
from gateway.queue_manager.verbs.repeated_puts import RepeatedPut

CONTEXTS = (
    mq.MQOO_PASS_IDENTITY_CONTEXT | mq.MQOO_PASS_ALL_CONTEXT | mq.MQOO_SET_IDENTITY_CONTEXT | mq.MQOO_SET_ALL_CONTEXT
)  # fmt: skip
"""Options of MQOPEN for the context of messages."""


@dataclass(slots=True, eq=False)
class Handle:
    """An open object."""

    number: int
    options: int
    object_type: int
    definition: Definition | None = None
    """The definition when the object was opened. Put and get fail with 2041 if its name resolves differently since."""
    target: Target | None = None
    queue: LocalQueue | None = None
    """The queue to get from."""
    named: LocalQueue | None = None
    """For a handle that is only for attributes: the local queue that has them."""
    user: str = ""
    """The user with whose authority the object was opened."""
    topic: str = ""
    selector: Selector | None = None
    refused: RefusedMessages | None = None
    """Messages that the selector has refused, as far as it has looked."""
    place: tuple[int | None, int | None] = (None, None)
    """The sequence number and the offset that the last get asked for."""
    elsewhere: RefusedMessages | None = None
    """Messages with another sequence number or offset than these."""
    found_at_once: bool = False
    """Whether messages of the queue are found by CorrelId at once."""
    got_at: int = -1
    """The version of the catalogue when nothing was found that refuses a get."""
    cursor: int | None = None
    """The token of the message under the browse cursor."""
    cursor_locked: bool = False
    saved_context: bytes | None = None
    """The MQMD of the last message got with MQOO_SAVE_ALL_CONTEXT."""
    putting: LogicalOrder = field(default_factory=LogicalOrder)
    repeated: RepeatedPut | None = None
    """The last put, if the next one may be the same except for identifiers and data."""
    getting: LogicalOrder = field(default_factory=LogicalOrder)
    """The logical order of the gets that remove messages; browsing has its own."""
    browsing: LogicalOrder = field(default_factory=LogicalOrder)
    browsed_in_order: bool = False
    """Whether the last browse asked for logical order."""
    subscription: str = ""
    """The name of the subscription that this is a handle of."""
    made_queue: bool = False
    """Whether the MQOPEN of this handle made the dynamic queue."""

    def needs(self, options: int, reason: int, what: str) -> None:
        """Raise `reason` if the object was not opened with one of these options."""
        if not self.options & options:
            raise MQError(reason, f"the object was not opened with {what}")


@dataclass(slots=True)
class Taken:
    """A message got in the unit of work."""

    queue: LocalQueue
    token: int
    backout: int
    md: bytes
    data: bytes
    skip: bool = False
    """Whether it was got with MQGMO_MARK_SKIP_BACKOUT."""


@dataclass(slots=True)
class UnitOfWork:
    """What MQCMIT makes final and MQBACK undoes."""

    unit: StoreUnit = field(default_factory=StoreUnit)
    puts: dict[LocalQueue, int] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    failed: int = 0
    """The number of asynchronous puts that failed: MQCMIT will fail too."""
    orders: dict[int, tuple[LogicalOrder, LogicalOrder]] = field(default_factory=dict)
    """Positions in groups that the unit of work has moved, by identity of the order, each with where it was before."""

    @property
    def open(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.puts or self.taken or self.failed or self.unit)

    def moved(self, order: LogicalOrder, before: LogicalOrder) -> None:
        """Note that a put or get of the unit of work has moved on in a group: MQBACK returns to where it was."""
        self.orders.setdefault(id(order), (order, before))

    def count(self, queue: LocalQueue, rows: int) -> None:
        """Count messages that are about to be put on a queue. Messages put on a deleted queue of the same name are
        dropped."""
        queue.uncommitted_puts += rows
        before = self.puts.get(queue)
        if before is None and any(one.deleted and one.name == queue.name for one in self.puts):
            self.unit.puts = [puts for puts in self.unit.puts if puts.queue != queue.name]
        self.puts[queue] = (before or 0) + rows

    @property
    def messages(self) -> int:
        """The number of messages that counts against MAXUMSGS."""
        return len(self.taken) + sum(self.puts.values())


@dataclass(slots=True, eq=False)
class ConnectionState:
    """One connection of a program."""

    core: Core
    placer: Placer
    topics: Topics
    administration: Administration
    authority: Authority
    connections: Connections
    application: str
    user: str
    channel: str
    connection_name: str
    process: int = 0
    connection_id: bytes = b""
    since: float = 0.0
    ended: bool = False
    broken: bool = False
    """Whether it was ended by somebody other than its program."""
    work: UnitOfWork = field(default_factory=UnitOfWork)
    handles: dict[int, Handle] = field(default_factory=dict)
    waiting: set[WaitingGet] = field(default_factory=set)
    async_status: Status = field(default_factory=Status)
    """What MQSTAT will report about asynchronous puts."""
    settlement: Settlement | None = None
    """The commit of the last call, if it is still to be made."""
    _last_handle: int = 0

    def __post_init__(self) -> None:
        self.connection_id = self.core.new_identifier()
        self.since = self.core.now()

    def unsettled(self) -> Settlement | None:
        """Returns the commit that the last call waits for, once."""
        settlement, self.settlement = self.settlement, None
        return settlement

    def check(self) -> None:
        """Raise 2018 after MQDISC, and 2009 once the connection has been stopped or the queue manager is closed."""
        if self.ended or self.core.closed:
            left = self.ended and not self.broken
            raise MQError(mq.MQRC_HCONN_ERROR if left else mq.MQRC_CONNECTION_BROKEN, "it has ended: connect again")

    def check_quiescing(self) -> None:
        """Raise 2161 while the queue manager is being stopped."""
        if self.core.quiescing:
            raise MQError(mq.MQRC_Q_MGR_QUIESCING, "the queue manager is being stopped: disconnect")

    # Handles

    def handle(self, number: int) -> Handle:
        """Returns the open object of this number. Raises 2019 if there is none."""
        handle = self.handles.get(number)
        if handle is None:
            raise MQError(mq.MQRC_HOBJ_ERROR, f"{number} is not the handle of an open object")
        return handle

    def opened(self, number: int) -> Handle:
        """The same, for a call by a program that may have disconnected."""
        handle = self.handles.get(number)
        if handle is None or self.ended or self.core.closed:
            self.check()
            return self.handle(number)
        return handle

    def check_handles(self, wanted: int) -> None:
        """Raise 2017 if `wanted` more open objects would exceed MAXHANDS. Called before anything is opened or made."""
        if len(self.handles) + wanted > self.core.attribute("MAXHANDS"):
            raise MQError(mq.MQRC_HANDLE_NOT_AVAILABLE, "as many objects are open as MAXHANDS allows: close some")

    def keep(self, handle: Handle) -> int:
        """Give an open object a number, and return it."""
        self._last_handle += 1
        handle.number = self._last_handle
        self.handles[handle.number] = handle
        return handle.number

    # Authority

    def authorise(self, kind: str, name: str, right: str) -> None:
        """Raise 2035 unless the user may do this with the object."""
        self.authority.check(self.user, kind, name, right)

    def may(self, kind: str, name: str, right: str) -> bool:
        """Whether the user may do this with the object."""
        return right in self.authority.rights(self.user, kind, name)

    def user_for(self, alternate: str, *, asked: bool) -> str:
        """Returns the user whose authority counts: another one if a call asks for that (ALTERNATE_USER_AUTHORITY),
        which needs the right to do so on the queue manager (2035)."""
        if not asked:
            return self.user
        self.authorise("QMGR", self.core.name, "ALTUSR")
        return alternate

    def authorise_topic(self, topic: str, right: str, user: str | None = None) -> None:
        """Raise 2035 unless a topic object above the topic string grants the right to `user` (None: this connection's
        user)."""
        self.authority.check_topic(self.user if user is None else user, self.topics.over(topic), right)

    def authorise_open(self, name: str, queue_manager: str, options: int, user: str) -> None:
        """Raise 2035 unless the user has the rights that the options of MQOPEN need. For context options the rights of
        this connection's user count, whoever it acts for (MQOD.AlternateUserId)."""
        checked = name if queue_manager in {"", self.core.name} else queue_manager
        self.authority.check_open(user, checked, options & ~CONTEXTS)
        self.authority.check_open(self.user, checked, options & CONTEXTS)

    # The unit of work

    def check_room(self, messages: int) -> None:
        """Raise 2024 if the unit of work would hold more than MAXUMSGS messages."""
        work = self.work
        if messages == 1 and not (work.taken or work.puts):  # there is room for one
            return
        limit = self.core.attribute("MAXUMSGS")
        if len(work.taken) + (sum(work.puts.values()) if work.puts else 0) + messages > limit:
            raise MQError(
                mq.MQRC_SYNCPOINT_LIMIT_REACHED, f"the unit of work holds MAXUMSGS({limit}) messages: commit it"
            )

    def accept(self, own: StoreUnit, options: int) -> None:
        """Add what a put produced to the unit of work, or commit it now if the put is outside syncpoint."""
        if not options & mq.MQPMO_SYNCPOINT:
            # The outcome of an asynchronous put is recorded when it is made, so its commit does not wait for others.
            together = not options & mq.MQPMO_ASYNC_RESPONSE
            self.settlement = self.core.commit_call(own, self, together=together)
            return
        self.check_room(sum(len(puts.heads) for puts in own.puts))
        for puts in own.puts:
            self.work.count(self.core.queues[puts.queue], len(puts.heads))
        self.work.unit.puts += own.puts
        self.work.unit.state.update(own.state)
        if own.on_commit:
            self.work.unit.say(*own.on_commit)

    def accept_one(self, queue: LocalQueue, puts: LanePuts, options: int) -> None:
        """The same for one message on one queue, put without MQPMO_ASYNC_RESPONSE."""
        if not options & mq.MQPMO_SYNCPOINT:
            self.settlement = self.core.commit_call(StoreUnit([puts]), self)
            return
        self.check_room(1)
        self.work.count(queue, 1)
        self.work.unit.puts.append(puts)


class Connections:
    """The connections of programs to a queue manager, in the order in which they were made."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, ConnectionState] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ConnectionState]:
        return iter(list(self._by_id.values()))

    def add(self, connection: ConnectionState) -> None:
        """Add a connection: MQCONN."""
        self._by_id[connection.connection_id] = connection

    def discard(self, connection: ConnectionState) -> None:
        """Remove a connection: MQDISC. The queue manager's own connections are not among these."""
        self._by_id.pop(connection.connection_id, None)

    def subscription_in_use(self, name: str) -> bool:
        """Whether a connection has a handle of the subscription."""
        return any(handle.subscription == name for one in self for handle in one.handles.values())


class WaitingGet:
    """An MQGET that waits on its queue, or has not looked at all of it yet. It is tried again when something may have
    arrived, and answered once. Implements `local_queue.Waiter` and `searches.Searching`."""

    def __init__(
        self,
        connection: ConnectionState,
        handle: Handle,
        get: Callable[[LongSearch | None], Got | MQError | None],
        arrived: Arrived,
        *,
        any_message: bool,
        correl_id: bytes | None,
        accept: Callable[[bytes, bytes], Got | None] | None = None,
    ) -> None:
        """`get` returns the outcome now, given the search that it continues; None: the get waits on. `accept` returns
        the outcome with a message that is about to be put, given its head and body; None: the message has to be on the
        queue first."""
        self.handle = handle
        self._connection = connection
        self._get = get
        self._arrived = arrived
        self._accept = accept
        self.any_message = any_message
        self.correl_id = correl_id
        self.ended = False
        self.number = 0
        self._queue: LocalQueue | None = None
        self._deadline: float | None = None
        self._timer: Cancel | None = None
        self._cancelled = False
        self._search: LongSearch | None = None
        """The search of a get that has not looked at all of the queue yet."""
        self._late = False
        """Whether its time ran out while it searched."""

    def start(self, queue: LocalQueue, deadline: float | None, search: LongSearch | None = None) -> None:
        """Wait on the queue until `deadline` (monotonic seconds; None: for ever), or continue `search`."""
        self._queue, self._deadline = queue, deadline
        self._connection.core.committer.came(self._connection)
        queue.waiters.add(self)
        if self.handle.definition is not queue.definition and self.handle.target is not None:
            self._connection.core.await_through(self.handle.target.chain, queue)
        self._connection.waiting.add(self)
        if deadline is not None:
            scheduler = self._connection.core.scheduler
            self._timer = scheduler.later(max(0.0, deadline - scheduler.monotonic()), self._expire)
        if search is not None:
            self._put_off(search)

    def attempt(self) -> bool:
        """Try to get a message; returns True when the get has been answered."""
        if self._search is not None and not self._connection.ended:
            self._search.disturbed = True
            return False
        return self._try()

    def look_on(self) -> None:
        """Search some more of the queue."""
        if self._search is not None:
            self._search.until = self._connection.core.searches.until()
            self._try()

    def _put_off(self, search: LongSearch) -> None:
        self._search, search.last = search, self._late
        self.any_message = False  # it is not known whether others find one
        self._connection.core.searches.add(self)

    def _try(self) -> bool:
        search, self._search = self._search, None
        try:
            outcome = self._get(search)
        except SearchInterruptedError as interrupted:
            self._put_off(interrupted.search)
            return False
        if outcome is None and self._late:
            outcome = MQError(mq.MQRC_NO_MSG_AVAILABLE, "no message came in time", 2)
        if outcome is None:
            return False
        self._finish()
        tell(self._connection, outcome, self._arrived)
        return True

    def cancel(self) -> None:
        """Stop waiting, without an answer."""
        with self._connection.core.entered():
            self._cancelled = True
            self._finish()

    def end(self, outcome: Got | MQError) -> bool:
        """Answer, once. Always returns True."""
        if not self.ended:
            self._finish()
            self._connection.core.tell(partial(self._arrived, outcome))
        return True

    def offer(self, head: bytes, body: bytes) -> Callable[[bool], None] | None:
        """Take a message that is about to be put. The function returned is called when the put is made or has failed.
        Returns None if the get does not take the message."""
        got = None if self._accept is None or self._search is not None else self._accept(head, body)
        if got is None:
            return None
        self._finish()
        return partial(self._handed, got)

    def _handed(self, got: Got, made: bool) -> None:
        """Answer with the message that was offered if it was put; otherwise wait on."""
        core = self._connection.core
        if made:
            if self.handle.options & mq.MQOO_SAVE_ALL_CONTEXT:
                self.handle.saved_context = got.md
            self._arrived(got)
        elif self._queue is not None and not (self._cancelled or self._connection.ended):
            self.ended = False
            self.start(self._queue, self._deadline)
            core.wake(self._queue)

    def _expire(self) -> None:
        with self._connection.core.entered():
            if not self.ended:
                self._timer = None
                if self._search is not None:  # the search has to find out that there is none
                    self._late = self._search.last = True
                    return
                self.end(MQError(mq.MQRC_NO_MSG_AVAILABLE, "no message came in time"))

    def _finish(self) -> None:
        self.ended = True
        if self._queue is not None:
            self._queue.waiters.remove(self)
        self._connection.waiting.discard(self)
        if self._timer is not None:
            self._timer()
            self._timer = None


def tell(connection: ConnectionState, outcome: Got | MQError, arrived: Arrived) -> None:
    """Call `arrived` with the outcome of a get, when its commit is made. A get that needs no commit does not wait for
    the one of the gathered calls."""
    settlement = connection.unsettled()
    if settlement is None:
        connection.core.tell(partial(arrived, outcome))
    else:
        settlement.then(lambda error: arrived(error or outcome))
