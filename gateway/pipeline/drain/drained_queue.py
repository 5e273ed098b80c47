"""A queue of IBM MQ as the drainer takes from it: exclusive input, units of work, messages whole; and as a
batch read looks at it. One thread, one session.

Raw calls of either binding (`backends.ibm.driver`). Properties come as an MQRFH2 in front of the data, whatever PROPCTL
says, so that they land with the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from gateway.backends.ibm.connection import FIRST_LENGTH
from gateway.backends.ibm.driver import Session
from gateway.backends.ibm.structures import get_options, match_md, object_descriptor
from gateway.errors import MQError
from gateway.mq import constants as mq

_OPEN = mq.MQOO_INPUT_EXCLUSIVE | mq.MQOO_FAIL_IF_QUIESCING
_GET = mq.MQGMO_SYNCPOINT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2
_LOOK = mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2
UNIT_BYTES = 64 * 1024 * 1024
"""A unit of work ends here whatever its number of messages, so that it fits a frame and the queue manager's log."""


class Got(NamedTuple):
    """One message: descriptor (364 bytes) and data."""

    md: bytes
    data: bytes


def browsed(session: Session, queue: str) -> Iterator[Got]:
    """Every message of a queue in its order, left where it is."""
    try:
        handle = session.open(object_descriptor(queue), mq.MQOO_BROWSE | mq.MQOO_FAIL_IF_QUIESCING)
    except MQError as error:
        raise MQError(error.reason, f"opening {queue} to browse") from None
    length = FIRST_LENGTH
    options = get_options(_LOOK | mq.MQGMO_BROWSE_FIRST, mq.MQMO_NONE)
    while True:
        answer = session.mqget(session.handle, handle, bytes(bytearray(match_md())), options(), length)
        reason = int(answer[-1])
        if reason == mq.MQRC_TRUNCATED_MSG_FAILED:  # the cursor has not moved
            length = int(answer[-3])
            continue
        if reason == mq.MQRC_NO_MSG_AVAILABLE:
            return
        if answer[-2] == mq.MQCC_FAILED:
            raise MQError(reason, f"browsing {queue}")
        yield Got(answer[1], answer[0])
        options = get_options(_LOOK | mq.MQGMO_BROWSE_NEXT, mq.MQMO_NONE)


class IbmQueue:
    """See the module."""

    def __init__(self, session: Session, queue: str) -> None:
        """2042 while another drainer, or the last one's connection, still has the queue open."""
        self._session = session
        self._queue = queue
        self._length = FIRST_LENGTH
        self._options = get_options(_GET | mq.MQGMO_NO_WAIT, mq.MQMO_NONE)
        self._by_id = get_options(_GET | mq.MQGMO_NO_WAIT, mq.MQMO_MATCH_MSG_ID)
        try:
            self._handle = session.open(object_descriptor(queue), _OPEN)
        except MQError as error:
            raise MQError(error.reason, f"opening {queue} for exclusive input") from None

    def get(self, limit: int, wait: float) -> Sequence[Got]:
        """Up to `limit` messages in one unit of work; empty when none came within `wait` seconds."""
        found: list[Got] = []
        size = 0
        options = get_options(_GET | mq.MQGMO_WAIT, mq.MQMO_NONE, int(wait * 1000)) if wait else self._options
        while len(found) < limit and size < UNIT_BYTES:
            got = self._get(match_md(), options)
            if got is None:
                break
            found.append(got)
            size += len(got.data)
            options = self._options
        return found

    def get_by_id(self, msg_id: bytes) -> Got | None:
        """The next message with this MsgId, in the same unit of work."""
        return self._get(match_md(msg_id), self._by_id)

    def _get(self, md: bytes, options: Callable[[], bytes]) -> Got | None:
        while True:
            asked = bytes(bytearray(md))  # the binding writes the answer into what it was given
            answer = self._session.mqget(self._session.handle, self._handle, asked, options(), self._length)
            reason = int(answer[-1])
            if reason == mq.MQRC_TRUNCATED_MSG_FAILED:  # it is still there: the same again with its length
                self._length = int(answer[-3])
                continue
            if reason == mq.MQRC_NO_MSG_AVAILABLE:
                return None
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(reason, f"getting from {self._queue}")
            return Got(answer[1], answer[0])

    def commit(self) -> None:
        """MQCMIT. An error means that the outcome is not known."""
        self._session.commit()

    def back_out(self) -> None:
        """MQBACK; a connection that is broken backs out by itself."""
        with suppress(MQError):
            self._session.back()
