"""Reads one queue by browsing, a message at a time: in the queue's order, or in that of each of some keys."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from gateway.backends.ibm.connection import FIRST_LENGTH, Connection
from gateway.backends.ibm.shared_by_key import SharedByKey
from gateway.backends.ibm.structures import NO_ID, get_options, match_md
from gateway.errors import MQError
from gateway.mq import constants as mq


class Found(NamedTuple):
    """A message that was read."""

    data: bytes
    md: bytes
    asked: float
    """When it was asked for: it was marked no earlier."""


class Cursor:
    """A cursor on one handle."""

    def __init__(
        self, connection: Connection, handle: int, options: int, milliseconds: int, *, key: bytes,
        shared: SharedByKey | None, from_first: bool,
    ) -> None:  # fmt: skip
        """`options` and `milliseconds` are those of each look. `key`: the key of the messages to read, unless `shared`
        names it. `from_first`: what was read is marked, so each look begins at the first message."""
        self._session = connection.session
        self._handle = handle
        self._shared = shared
        self._from_first = from_first
        self._key = key or NO_ID
        match = mq.MQMO_MATCH_CORREL_ID if key or shared is not None else mq.MQMO_NONE
        options |= mq.MQGMO_WAIT if shared is None else mq.MQGMO_NO_WAIT
        self._first = get_options(options | mq.MQGMO_BROWSE_FIRST, match, milliseconds)
        following = get_options(options | mq.MQGMO_BROWSE_NEXT, match, milliseconds)
        self._following = self._first if from_first else following
        self._options = self._first
        self._length = FIRST_LENGTH

    def start_over(self) -> None:
        """Let the next look begin at the first message."""
        self._options = self._first

    def next(self) -> Found | None:
        """Returns the next message; None: there is none after a wait, or it has to be asked for again."""
        if self._shared is not None:
            self._key = self._shared.next_key()
            if not self._key:
                return None
        asked = monotonic()
        descriptor = match_md(correl_id=self._key)
        answer = self._session.mqget(self._session.handle, self._handle, descriptor, self._options(), self._length)
        reason = int(answer[-1])
        if reason == mq.MQRC_TRUNCATED_MSG_FAILED:  # the cursor has not moved: ask again with the length
            self._length = max(int(answer[-3]), FIRST_LENGTH)
            return None
        self._length = FIRST_LENGTH
        if reason == mq.MQRC_NO_MSG_AVAILABLE:
            self.start_over()
            if self._shared is not None:
                self._shared.has_no_more(self._key)
            return None
        if answer[-2] == mq.MQCC_FAILED:
            raise MQError(reason, "MQGET")
        self._options = self._following
        if self._shared is not None and self._from_first:
            self._shared.has_more(self._key)
        return Found(answer[0], answer[1], asked)
