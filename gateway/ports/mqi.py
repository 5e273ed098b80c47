"""The MQI port: one connection to a queue manager with the verbs of the message queue interface.

Everything is passed as plain values: descriptors and options in small records, the message descriptor as the 364 bytes
of MQMD version 2, options as the integers of the MQI. What fails raises `MQError` with the reason code; a warning is
part of the result. No verb waits: `get` answers 2033 at once, and `wait` parks the request and calls back, so that a
reactor and a thread can both be built on it. Imports only exceptions from below; does no I/O itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gateway.errors import MQError

NO_HANDLE = 0

PropertyValue = None | bool | int | float | str | bytes


class Property(NamedTuple):
    """A message property as MQSETMP takes it and MQINQMP gives it."""

    name: str
    """Full name: `usr.site`, `mqps.Top`. A name without a folder is in `usr`."""
    value: PropertyValue
    type: int
    """MQTYPE_*."""
    support: int = 1
    context: int = 0
    copy: int = 22


@dataclass(slots=True)
class ObjectDescriptor:
    """MQOD. The fields after `selection` are filled by the queue manager, as are `name` and `queue_manager` for a
    model queue."""

    name: str = ""
    queue_manager: str = ""
    object_type: int = 1
    dynamic_name: str = "AMQ.*"
    alternate_user: str = ""
    object_string: str = ""
    selection: str = ""
    resolved_name: str = ""
    resolved_queue_manager: str = ""
    resolved_string: str = ""
    resolved_type: int = 0


@dataclass(slots=True)
class PutOptions:
    """MQPMO. `properties` stands for the message handles: it has what OriginalMsgHandle holds, as the application set
    it."""

    options: int = 0
    context: int = NO_HANDLE
    properties: Sequence[Property] = ()
    publication_level: int = 9


@dataclass(slots=True)
class GetOptions:
    """MQGMO. Version 1 of the structure matches MsgId and CorrelId (`match` 3)."""

    options: int = 0
    wait_interval: int = 0
    match: int = 3
    message_token: bytes = bytes(16)
    handle_given: bool = False
    """A message handle was given with the call (MQGMO version 4): properties may be returned in it."""


@dataclass(slots=True)
class SubscriptionDescriptor:
    """MQSD. The queue manager fills in `correl_id`, `resolved_string` and `name`; with MQSO_RESUME it fills in
    everything the subscription has, including `options` with MQSO_DURABLE and MQSO_MANAGED.
    """

    options: int = 0
    topic_object: str = ""
    object_string: str = ""
    name: str = ""
    user_data: str = ""
    correl_id: bytes = bytes(24)
    expiry: int = -1
    publication_priority: int = -3
    accounting_token: bytes = bytes(32)
    application_identity: str = ""
    selection: str = ""
    level: int = 1
    alternate_user: str = ""
    resolved_string: str = ""


class Opened(NamedTuple):
    """What MQOPEN returns; the descriptor has been filled in place."""

    handle: int
    comp_code: int = 0
    reason: int = 0


class PutResult(NamedTuple):
    """What MQPUT and MQPUT1 return."""

    md: bytes
    """The descriptor as the message has it: identifiers, context and character set filled in."""
    resolved_name: str
    resolved_queue_manager: str
    comp_code: int = 0
    reason: int = 0


@dataclass(slots=True)
class Got:
    """What MQGET returns. `data` is what fits into the buffer, `length` the length of the whole message data."""

    md: bytes
    data: bytes
    length: int
    resolved_name: str
    comp_code: int = 0
    reason: int = 0
    properties: Sequence[Property] | None = None
    """For the message handle; None if properties were returned in the data or not at all."""
    group_status: bytes = b" "
    segment_status: bytes = b" "
    segmentation: bytes = b" "
    token: bytes = bytes(16)


class Inquired(NamedTuple):
    """What MQINQ returns: integers and characters in the order of their selectors."""

    integers: list[int]
    characters: list[bytes]
    comp_code: int = 0
    reason: int = 0


class Subscribed(NamedTuple):
    """What MQSUB returns: the queue on which the publications arrive, and the subscription."""

    queue_handle: int
    subscription_handle: int
    comp_code: int = 0
    reason: int = 0


@dataclass(slots=True)
class Status:
    """MQSTS type 0: the first error of asynchronous puts, and the counts since it was last asked for."""

    comp_code: int = 0
    reason: int = 0
    successes: int = 0
    warnings: int = 0
    failures: int = 0
    object_type: int = 1
    object_name: str = ""
    object_queue_manager: str = ""
    resolved_name: str = ""
    resolved_queue_manager: str = ""


Arrived = Callable[[Got | MQError], None]
"""Called once for a parked get: with the message, or with the reason why there will be none (2033, 2016, 2052,
2202...)."""

Cancel = Callable[[], None]


class Settlement(Protocol):
    """The commit of a call that was made together with others (`QueueManager.gathered`)."""

    def then(self, call: Callable[[MQError | None], None]) -> None:
        """Have `call` called when the commit is made (with None), or with the error that the call ends in instead:
        through `QueueManager.serve_through`, or at once if that is known already."""


class QueueManagerConnection(Protocol):
    """One HCONN. Calls on one connection are made one at a time; a parked get is not a call in progress."""

    queue_manager: str
    """The name of the queue manager that this is a connection to."""
    connection_id: bytes
    """24 bytes, unique among the connections of the queue manager."""

    def open(self, descriptor: ObjectDescriptor, options: int) -> Opened:
        """MQOPEN."""

    def close(self, handle: int, options: int = 0) -> None:
        """MQCLOSE, of an object or of a subscription."""

    def put(self, handle: int, md: bytes, options: PutOptions, data: bytes) -> PutResult:
        """MQPUT. When it returns, a persistent message outside syncpoint is on disk."""

    def put_run(self, handle: int, mds: Sequence[bytes], options: PutOptions, bodies: Sequence[bytes]) -> None:
        """MQPUTs with MQPMO_ASYNC_RESPONSE and the same options, in order. MQSTAT and MQCMIT tell what becomes of them;
        MQError is raised only if none of them could be put (2009, 2018, 2019)."""

    def put1(self, descriptor: ObjectDescriptor, md: bytes, options: PutOptions, data: bytes) -> PutResult:
        """MQPUT1."""

    def get(self, handle: int, md: bytes, options: GetOptions, buffer_length: int) -> Got:
        """MQGET that never waits: 2033 at once, even with MQGMO_WAIT."""

    def get_briefly(self, handle: int, md: bytes, options: GetOptions, buffer_length: int) -> Got | None:
        """The same, but only if it takes a moment to look through the messages. None: there are more of them; `wait`
        with a deadline that has passed looks through them, a part in each turn, and then answers."""

    def wait(
        self, handle: int, md: bytes, options: GetOptions, buffer_length: int, deadline: float | None, arrived: Arrived
    ) -> Cancel:
        """MQGET that waits until `deadline` (on the scheduler's monotonic clock; None: for ever), and longer if it has
        not looked through all messages by then. `arrived` is called once: through `QueueManager.serve_through`, or else
        in any thread, maybe before this returns, with the queue manager's lock held, so that it may only note the
        outcome. Waiters of a queue are served in order, one for each message. The returned function cancels the wait
        silently."""

    def begin(self) -> None:
        """MQBEGIN: a unit of work of the queue manager's own; refused while one is open (2128)."""

    def commit(self) -> None:
        """MQCMIT. Raises 2003 if an asynchronous put of the unit has failed: everything is then backed out."""

    def back(self) -> None:
        """MQBACK."""

    def inquire(self, handle: int, selectors: Sequence[int]) -> Inquired:
        """MQINQ."""

    def set(self, handle: int, selectors: Sequence[int], integers: Sequence[int], characters: Sequence[bytes]) -> None:
        """MQSET."""

    def subscribe(self, descriptor: SubscriptionDescriptor, queue_handle: int = NO_HANDLE) -> Subscribed:
        """MQSUB."""

    def subscription_request(self, handle: int, action: int = 1, options: int = 0) -> int:
        """MQSUBRQ: retained publications are sent again; returns how many."""

    def status(self, kind: int = 0) -> Status:
        """MQSTAT."""

    def unsettled(self) -> Settlement | None:
        """The commit that the last call waits for, to be asked for once: until it is made, nobody is told the outcome
        of the call, and no other call is made. None: the call is complete."""

    def disconnect(self, *, commit: bool = True) -> None:
        """MQDISC. Without `commit` the connection was lost, and its unit of work is backed out. Waits end with 2009."""


class QueueManager(Protocol):
    """Where connections come from."""

    name: str

    def connect(
        self,
        *,
        application: str = "",
        user: str = "",
        password: str | None = None,
        channel: str = "",
        connection_name: str = "",
        process: int = 0,
        options: int = 0,
    ) -> QueueManagerConnection:
        """MQCONNX. `process` is the number of the program's process. Raises 2035 if the user or the password is not
        accepted, 2059 or 2161 if the queue manager is not running."""

    def quiesce(self) -> None:
        """From now on answer 2161 to new connections, and to calls and waits with a FAIL_IF_QUIESCING option."""

    def gathered(self) -> AbstractContextManager[Callable[[], None]]:
        """Lets calls of several connections that are made within it share one commit; see
        `QueueManagerConnection.unsettled`. The commit is made at the end; the function that `with` returns makes it for
        the calls so far."""

    def serve_through(self, soon: Callable[[Callable[[], None]], None] | None) -> None:
        """Retry gets that wait for messages, and tell programs what has become of their calls, in calls made by `soon`,
        which are gathered with others. None: at once, with a commit of their own. `soon` may be called in any
        thread."""
