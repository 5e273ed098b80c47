"""A get that waits, parked on its queue: what to try again, whom to tell, when to give up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import Arrived, Cancel, GetOptions, Got
from gateway.queue_manager.objects.local_queue import Waiter
from gateway.queue_manager.verbs import mqget
from gateway.queue_manager.verbs.handles import Handle
from gateway.queue_manager.verbs.search import wanted

if TYPE_CHECKING:
    from gateway.queue_manager.verbs.connection import Connection


def park(parked: Parked, deadline: float | None) -> Cancel:
    """Try, and wait until `deadline` when there is nothing yet; what cancels it."""
    if parked.attempt():
        return lambda: None
    queue = parked.handle.queue
    if queue is None:
        raise MQError(mq.MQRC_NOT_OPEN_FOR_INPUT, "the object is not a queue messages can be got from")
    queue.waiters.append(parked.waiter)
    parked.connection.parked.add(parked)
    if deadline is not None:
        scheduler = parked.connection.core.scheduler
        parked.timer = scheduler.later(max(0.0, deadline - scheduler.monotonic()), parked.expire)
    return parked.cancel


class Parked:
    """A get that waits: what to try, whom to tell."""

    def __init__(
        self,
        connection: Connection,
        handle: Handle,
        md: bytes,
        options: GetOptions,
        buffer_length: int,
        arrived: Arrived,
    ) -> None:
        self.connection = connection
        self.handle = handle
        self._md = md
        self._options = options
        self._buffer_length = buffer_length
        self._arrived = arrived
        self.waiter = Waiter(self.attempt, plain=wanted(md, options).plain and handle.selector is None)
        self.timer: Cancel | None = None

    def attempt(self) -> bool:
        """Try; True when the wait is over."""
        connection = self.connection
        if connection.gone:
            return self.end(MQError(mq.MQRC_CONNECTION_BROKEN, "the connection has ended"))
        if connection.core.quiescing and self._options.options & mq.MQGMO_FAIL_IF_QUIESCING:
            return self.end(MQError(mq.MQRC_Q_MGR_QUIESCING, "the queue manager is being stopped"))
        try:
            got = mqget.get(connection, self.handle, self._md, self._options, self._buffer_length)
        except MQError as error:
            return error.reason != mq.MQRC_NO_MSG_AVAILABLE and self.end(error)
        return self.end(got)

    def expire(self) -> None:
        """The time is over."""
        with self.connection.core.entered():
            if not self.waiter.gone:
                self.timer = None
                self.end(MQError(mq.MQRC_NO_MSG_AVAILABLE, "no message came in time"))

    def cancel(self) -> None:
        """Nobody waits any more."""
        with self.connection.core.entered():
            self._finish()

    def end(self, outcome: Got | MQError) -> bool:
        """Answer, once."""
        if not self.waiter.gone:
            self._finish()
            self.connection.core.afterwards(lambda: self._arrived(outcome))
        return True

    def _finish(self) -> None:
        self.waiter.gone = True
        self.connection.parked.discard(self)
        if self.timer is not None:
            self.timer()
            self.timer = None
