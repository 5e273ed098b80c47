"""A queue of IBM MQ, drained under syncpoint or browsed, and its messages in the parts that a store keeps.

Raw calls of either binding (`backends.ibm.driver`), from one thread over one session. Properties are asked for as an
MQRFH2 in front of the data, whatever PROPCTL says, so that they land with the message.
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
from gateway.mq.headers import rfh2
from gateway.pipeline.decode.heads import put_micros
from gateway.ports.batch import MQMD_LENGTH

_OPEN = mq.MQOO_INPUT_EXCLUSIVE | mq.MQOO_FAIL_IF_QUIESCING
_GET = mq.MQGMO_SYNCPOINT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2
_BROWSE = mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2
UNIT_BYTES = 64 * 1024 * 1024
"""A unit of work ends at this size whatever its number of messages, so that it fits a frame and MQ's log."""

_FORMAT, _PRIORITY = slice(32, 40), slice(40, 44)
_MSG_ID, _CORREL_ID, _AFTER_IDS = 48, 72, 96
_PUT_DATE, _PUT_TIME, _AFTER_TIMES = 304, 312, 320
"""Offsets in the MQMD."""
_NO_IDS, _NO_TIMES = bytes(48), b" " * 16


class GotMessage(NamedTuple):
    """A message that was got or browsed: descriptor (364 bytes) and data."""

    md: bytes
    data: bytes

    @property
    def msg_id(self) -> bytes:
        """MsgId."""
        return self.md[_MSG_ID:_CORREL_ID]

    @property
    def correl_id(self) -> bytes:
        """CorrelId."""
        return self.md[_CORREL_ID:_AFTER_IDS]

    @property
    def put_time(self) -> bytes:
        """PutDate and PutTime."""
        return self.md[_PUT_DATE:_AFTER_TIMES]

    @property
    def priority(self) -> int:
        """Priority, forced into 0 to 9."""
        return min(max(int.from_bytes(self.md[_PRIORITY], "little", signed=True), 0), 9)

    def parts(self) -> tuple[bytes, bytes, int]:
        """Head, body, and put time in microseconds (0 when it stays in the descriptor: it is not a time, or before
        1970, which a store cannot say). Identifiers and put time are blanked in the head, so that messages of one kind
        share their head."""
        md, cut = self.md, self._header_length()
        date, time = md[_PUT_DATE:_PUT_TIME].decode("latin-1"), md[_PUT_TIME:_AFTER_TIMES].decode("latin-1")
        micros = max(0, put_micros(date, time) or 0)
        times = _NO_TIMES if micros else self.put_time
        blanked = (md[:_MSG_ID], _NO_IDS, md[_AFTER_IDS:_PUT_DATE], times, md[_AFTER_TIMES:MQMD_LENGTH])
        return b"".join((*blanked, self.data[:cut])), self.data[cut:], micros

    def _header_length(self) -> int:
        """Length of an MQRFH2 in little-endian order at the start of the data, which belongs to the head. Any other
        header stays in the body."""
        data = self.data
        if self.md[_FORMAT] != rfh2.FORMAT or data[:4] != b"RFH " or len(data) < 36:
            return 0
        length = int.from_bytes(data[8:12], "little", signed=True)
        return length if 36 <= length <= len(data) else 0


def browsed(session: Session, queue: str) -> Iterator[GotMessage]:
    """The messages of a queue in its order. They stay on the queue."""
    try:
        handle = session.open(object_descriptor(queue), mq.MQOO_BROWSE | mq.MQOO_FAIL_IF_QUIESCING)
    except MQError as error:
        raise MQError(error.reason, f"opening {queue} to browse") from None
    length = FIRST_LENGTH
    options = get_options(_BROWSE | mq.MQGMO_BROWSE_FIRST, mq.MQMO_NONE)
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
        yield GotMessage(answer[1], answer[0])
        options = get_options(_BROWSE | mq.MQGMO_BROWSE_NEXT, mq.MQMO_NONE)


class IbmQueue:
    """A queue opened for exclusive input; what is got from it belongs to a unit of work."""

    def __init__(self, session: Session, queue: str) -> None:
        """MQError 2042 while another drainer, or the connection of the last one, still has the queue open."""
        self._session = session
        self._queue = queue
        self._length = FIRST_LENGTH
        self._options = get_options(_GET | mq.MQGMO_NO_WAIT, mq.MQMO_NONE)
        self._by_id = get_options(_GET | mq.MQGMO_NO_WAIT, mq.MQMO_MATCH_MSG_ID)
        try:
            self._handle = session.open(object_descriptor(queue), _OPEN)
        except MQError as error:
            raise MQError(error.reason, f"opening {queue} for exclusive input") from None

    def get(self, limit: int, wait: float) -> Sequence[GotMessage]:
        """Up to `limit` messages in one unit of work; empty when none came within `wait` seconds."""
        messages: list[GotMessage] = []
        size = 0
        options = get_options(_GET | mq.MQGMO_WAIT, mq.MQMO_NONE, int(wait * 1000)) if wait else self._options
        while len(messages) < limit and size < UNIT_BYTES:
            message = self._get(match_md(), options)
            if message is None:
                break
            messages.append(message)
            size += len(message.data)
            options = self._options
        return messages

    def get_by_id(self, msg_id: bytes) -> GotMessage | None:
        """The next message with this MsgId, in the same unit of work."""
        return self._get(match_md(msg_id), self._by_id)

    def _get(self, md: bytes, options: Callable[[], bytes]) -> GotMessage | None:
        while True:
            asked = bytes(bytearray(md))  # the binding writes the answer into what it was given
            answer = self._session.mqget(self._session.handle, self._handle, asked, options(), self._length)
            reason = int(answer[-1])
            if reason == mq.MQRC_TRUNCATED_MSG_FAILED:  # the message stays: get it again with its length
                self._length = int(answer[-3])
                continue
            if reason == mq.MQRC_NO_MSG_AVAILABLE:
                return None
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(reason, f"getting from {self._queue}")
            return GotMessage(answer[1], answer[0])

    def commit(self) -> None:
        """MQCMIT. After an error the outcome is in doubt."""
        self._session.commit()

    def back_out(self) -> None:
        """MQBACK. Over a broken connection the queue manager backs out by itself; where it fails otherwise, who leaves
        the session tries again."""
        with suppress(MQError):
            self._session.back()
