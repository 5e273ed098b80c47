"""One connection of a program, with the verbs of the MQI. Implements `ports.mqi.QueueManagerConnection`.

Every verb takes the queue manager's lock, unless its thread holds it already; nothing blocks inside it. A get that
waits is put on its queue's list of waiters.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import get_ident

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import (
    Arrived,
    Cancel,
    GetOptions,
    Got,
    Inquired,
    ObjectDescriptor,
    Opened,
    PutOptions,
    PutResult,
    Status,
    Subscribed,
    SubscriptionDescriptor,
)
from gateway.queue_manager.settlement import Settlement
from gateway.queue_manager.verbs import async_puts, mqcmit, mqdisc, mqget, mqinq, mqopen, mqput, mqsub
from gateway.queue_manager.verbs.connection_state import ConnectionState
from gateway.queue_manager.verbs.long_search import SearchInterruptedError


class MqiConnection:
    """The verbs, each applied to this connection's state under the queue manager's lock."""

    def __init__(self, state: ConnectionState) -> None:
        self.state = state
        self.queue_manager = state.core.name
        self.connection_id = state.connection_id

    # Objects

    def open(self, descriptor: ObjectDescriptor, options: int) -> Opened:
        """MQOPEN."""
        with self.state.core.entered():
            self.state.check()
            if options & mq.MQOO_FAIL_IF_QUIESCING:
                self.state.check_quiescing()
            self.state.check_handles(1)
            return Opened(self.state.keep(mqopen.open_object(self.state, descriptor, options)))

    def close(self, handle: int, options: int = 0) -> None:
        """MQCLOSE."""
        with self.state.core.entered():
            self.state.check()
            closed = self.state.handle(handle)
            for get in [get for get in self.state.waiting if get.handle is closed]:
                get.end(MQError(mq.MQRC_HOBJ_ERROR, "the queue was closed while the get waited"))
            if closed.subscription:
                mqsub.close_subscription(self.state, closed, options)
            else:
                mqopen.close_object(self.state, closed, options)
            del self.state.handles[handle]
            left_open = [order.left_open for order in (closed.putting, closed.getting) if order.left_open]
            if left_open:
                raise MQError(max(left_open), "the object was closed in the middle of a group or a message", 1)

    # Putting

    def put(self, handle: int, md: bytes, options: PutOptions, data: bytes) -> PutResult:
        """MQPUT."""
        state = self.state
        if state.core.entry.holder == get_ident():  # as in a round
            return mqput.put(state, state.opened(handle), md, options, data)
        with state.core.entered():
            return mqput.put(state, state.opened(handle), md, options, data)

    def put_run(self, handle: int, mds: Sequence[bytes], options: PutOptions, bodies: Sequence[bytes]) -> None:
        """Asynchronous MQPUTs with the same options; MQSTAT and MQCMIT report their outcome."""
        with self.state.core.entered():
            self.state.check()
            if async_puts.put_run(self.state, self.state.handle(handle), mds, options, bodies):
                return
        for md, body in zip(mds, bodies, strict=True):
            with suppress(MQError):
                self.put(handle, md, options, body)

    def put1(self, descriptor: ObjectDescriptor, md: bytes, options: PutOptions, data: bytes) -> PutResult:
        """MQPUT1."""
        with self.state.core.entered():
            self.state.check()
            if descriptor.object_type not in {mq.MQOT_Q, mq.MQOT_TOPIC}:
                raise MQError(mq.MQRC_OBJECT_TYPE_ERROR, "MQPUT1 puts messages on queues and topics only")
            opening = mq.MQOO_OUTPUT | options.options & mqput.SAME_AS_OF_MQOPEN
            handle = mqopen.open_object(self.state, descriptor, opening, once=True)
            try:
                return mqput.put(self.state, handle, md, options, data)
            finally:
                mqopen.close_object(self.state, handle)

    # Getting

    def get(self, handle: int, md: bytes, options: GetOptions, buffer_length: int) -> Got:
        """MQGET without waiting."""
        with self.state.core.entered():
            self.state.check()
            if options.options & mq.MQGMO_FAIL_IF_QUIESCING:
                self.state.check_quiescing()
            return mqget.get(self.state, self.state.handle(handle), md, options, buffer_length)

    def get_briefly(self, handle: int, md: bytes, options: GetOptions, buffer_length: int) -> Got | None:
        """MQGET without waiting, if it takes no long search; otherwise returns None."""
        with self.state.core.entered():
            self.state.check()
            if options.options & mq.MQGMO_FAIL_IF_QUIESCING:
                self.state.check_quiescing()
            try:
                return mqget.get(self.state, self.state.handle(handle), md, options, buffer_length, briefly=True)
            except SearchInterruptedError:
                return None

    def wait(
        self, handle: int, md: bytes, options: GetOptions, buffer_length: int, deadline: float | None, arrived: Arrived
    ) -> Cancel:
        """MQGET that waits. Returns what cancels the wait."""
        state = self.state
        if state.core.entry.holder == get_ident():
            return mqget.wait(state, state.opened(handle), md, options, buffer_length, deadline, arrived)
        with state.core.entered():
            return mqget.wait(state, state.opened(handle), md, options, buffer_length, deadline, arrived)

    # Units of work

    def begin(self) -> None:
        """MQBEGIN."""
        with self.state.core.entered():
            self.state.check()
            if self.state.work.open:
                raise MQError(mq.MQRC_UOW_IN_PROGRESS, "a unit of work is open: commit it or back it out")
            raise MQError(mq.MQRC_NO_EXTERNAL_PARTICIPANTS, "no other resource managers take part", 1)

    def commit(self) -> None:
        """MQCMIT."""
        state = self.state
        if state.core.entry.holder == get_ident():
            state.check()
            mqcmit.commit(state)
            return
        with state.core.entered():
            state.check()
            mqcmit.commit(state)

    def back(self) -> None:
        """MQBACK."""
        with self.state.core.entered():
            self.state.check()
            mqcmit.back(self.state)

    # Attributes, subscriptions, status

    def inquire(self, handle: int, selectors: Sequence[int]) -> Inquired:
        """MQINQ."""
        with self.state.core.entered():
            self.state.check()
            return mqinq.inquire(self.state, self.state.handle(handle), selectors)

    def set(self, handle: int, selectors: Sequence[int], integers: Sequence[int], characters: Sequence[bytes]) -> None:
        """MQSET."""
        with self.state.core.entered():
            self.state.check()
            mqinq.set_attributes(self.state, self.state.handle(handle), selectors, integers, characters)

    def subscribe(self, descriptor: SubscriptionDescriptor, queue_handle: int = 0) -> Subscribed:
        """MQSUB."""
        with self.state.core.entered():
            self.state.check()
            managed, subscription = mqsub.subscribe(self.state, descriptor, self.state.handles.get(queue_handle))
            queue_number = queue_handle if managed is None else self.state.keep(managed)
            return Subscribed(queue_number, self.state.keep(subscription))

    def subscription_request(self, handle: int, action: int = 1, options: int = 0) -> int:
        """MQSUBRQ."""
        with self.state.core.entered():
            self.state.check()
            return mqsub.request(self.state, self.state.handle(handle), action, options)

    def status(self, kind: int = 0) -> Status:
        """MQSTAT."""
        with self.state.core.entered():
            self.state.check()
            if kind not in {mq.MQSTAT_TYPE_ASYNC_ERROR, mq.MQSTAT_TYPE_RECONNECTION, mq.MQSTAT_TYPE_RECONNECTION_ERROR}:
                raise MQError(mq.MQRC_STAT_TYPE_ERROR, f"{kind} is not a type of status")
            status, self.state.async_status = self.state.async_status, Status()
            return status

    def unsettled(self) -> Settlement | None:
        """Returns the commit that the last call waits for, once."""
        state = self.state
        settlement, state.settlement = state.settlement, None
        return settlement

    def disconnect(self, *, commit: bool = True) -> None:
        """MQDISC; without `commit`, the connection was lost."""
        with self.state.core.entered():
            mqdisc.disconnect(self.state, commit=commit)
