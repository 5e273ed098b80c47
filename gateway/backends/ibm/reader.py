"""Reads queues without taking messages, for the port's `load`, `fetch`, `depth` and `max_length`.

It has a connection of its own, because a browse cursor belongs to a handle and a slow get must not hold up commits.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

from gateway.backends.ibm.bounded_calls import ANSWER_SECONDS, BoundedCalls
from gateway.backends.ibm.connection import STALE_HANDLES, Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.identifiers import MessageIds, follows, follows_in_process, is_msg_id, is_ours
from gateway.backends.ibm.structures import NO_ID, get_options, key_of, match_md, msg_id_of
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for
from gateway.ports.batch import Scheduler, Stored, Token
from gateway.ports.sources import Backout
from gateway.ports.state_queues import PAGE

_LOOK = mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2
_KEYED, _ANY = mq.MQMO_MATCH_CORREL_ID, mq.MQMO_NONE

_MOST_CURSORS = 16
_T = TypeVar("_T")
_COUNT = mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_NO_PROPERTIES | mq.MQGMO_ACCEPT_TRUNCATED_MSG
_COUNT_FIRST = get_options(_COUNT | mq.MQGMO_BROWSE_FIRST, _KEYED)
_COUNT_NEXT = get_options(_COUNT | mq.MQGMO_BROWSE_NEXT, _KEYED)
_STAND_ON = {
    match: get_options(_COUNT | mq.MQGMO_BROWSE_FIRST, match | mq.MQMO_MATCH_MSG_ID) for match in (_KEYED, _ANY)
}


class Reader:
    """A connection for browsing, made when it is first needed and again after it broke."""

    def __init__(self, driver: Driver, settings: ConnectSettings, new_id: MessageIds) -> None:
        self._driver = driver
        self._settings = settings
        self._new_id = new_id
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._cursors: dict[int, tuple[str, bytes, Token]] = {}
        """Handles, each with queue, key and the message it stands on, which was the last of a page. A caller that reads
        page by page continues there, whatever others read meanwhile, even on the same queue."""
        self._first = {match: get_options(_LOOK | mq.MQGMO_BROWSE_FIRST, match) for match in (_KEYED, _ANY)}
        self._next = {match: get_options(_LOOK | mq.MQGMO_BROWSE_NEXT, match) for match in (_KEYED, _ANY)}

    def fetch(self, queue: str, key: bytes, limit: int, after: Token | None) -> list[Stored]:
        """Returns the next messages after `after`, in the queue's order."""
        return self._again(lambda connection: self._page(connection, queue, key, limit, after))

    def load(self, queue: str) -> Iterator[tuple[bytes, Stored]]:
        """Yields every message with its key."""
        after: Token | None = None
        seen: set[Token] = set()
        while True:
            page = self._again(partial(self._page, queue=queue, key=b"", limit=PAGE, after=after, seen=seen))
            seen.update([stored.token for stored in page])
            yield from ((key_of(stored.md), stored) for stored in page)
            if len(page) < PAGE:
                return
            after = page[-1].token

    def rows(self, queue: str, key: bytes) -> Iterator[Stored]:
        """Yields all messages with this key, in order."""
        after: Token | None = None
        while True:
            page = self.fetch(queue, key, PAGE, after)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].token

    def depth(self, queue: str, key: bytes) -> int:
        """Returns how many messages are there; with a key they are counted one by one."""
        if not key:
            return int(self.inquire(queue, mq.MQIA_CURRENT_Q_DEPTH))
        return self._again(lambda connection: self._count(connection, queue, key))

    def _count(self, connection: Connection, queue: str, key: bytes) -> int:
        session, handle, count = connection.session, connection.browse(queue), 0
        options = _COUNT_FIRST
        while True:
            answer = session.mqget(session.handle, handle, match_md(NO_ID, key), options(), 0)
            if answer[-1] == mq.MQRC_NO_MSG_AVAILABLE:
                return count
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(int(answer[-1]), f"counting on {queue}")
            options = _COUNT_NEXT
            count += 1

    def connect(self) -> None:
        """Connect, unless connected. Raises MQError if that is not possible."""
        with self._lock:
            self._ready()

    def inquire(self, queue: str, selector: int) -> int | str:
        """Returns one attribute of a queue, or of the queue manager."""
        return self._again(lambda connection: connection.session.inquire(queue, selector))

    def subscribe(self, name: str, topic: str, queue: str, correl_id: bytes) -> None:
        """Make a durable subscription that puts to a queue, or find it there; one to another topic is replaced."""
        self._again(lambda connection: open_subscription(connection, name, topic, queue, correl_id))

    def forget_objects(self) -> None:
        """Close the queues that are open."""
        with self._lock:
            self._cursors.clear()
            if self._connection is not None:
                self._connection.forget_objects()

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            self._drop()

    def _again(self, call: Callable[[Connection], _T]) -> _T:
        """Make the call, and once more on a new connection if the old one turns out to be broken."""
        with self._lock:
            try:
                return call(self._ready())
            except MQError as error:
                if action_for(error.reason) is not Action.RECONNECT and error.reason not in STALE_HANDLES:
                    raise
                self._drop()
            return call(self._ready())

    def _ready(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._driver.connect(self._settings), self._new_id)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._cursors.clear()
        if connection is not None:
            connection.session.disconnect()

    def _page(
        self, connection: Connection, queue: str, key: bytes, limit: int, after: Token | None,
        seen: Container[Token] | None = None,
    ) -> list[Stored]:  # fmt: skip
        """`seen`: what has been returned already, where several processes put to the queue."""
        kept = next((one for one, stands_on in self._cursors.items() if stands_on == (queue, key, after)), 0)
        self._cursors.pop(kept, None)
        handle, goes_on = kept or connection.browse(queue), False
        try:
            if after is None or kept:
                rows = self._rows(connection, handle, queue, key, first=after is None)
                found = list(islice(rows, limit))
                last = found[-1] if found else None
            else:
                rows = self._rows(connection, handle, queue, key, first=True)
                if seen is not None:
                    found = list(islice((stored for stored in rows if stored.token not in seen), limit))
                    last = found[-1] if found else None
                elif is_msg_id(after) and self._stands_on(connection, handle, queue, key, after):
                    found = list(islice(self._rows(connection, handle, queue, key, first=False), limit))
                    last = found[-1] if found else None
                else:  # it has been taken
                    found, last = _after(rows, after, limit)
            goes_on = len(found) == limit > 1 and last is found[-1]  # else there is no more, or it stands further on
        finally:
            if kept and not goes_on:
                connection.close_browse(kept)
        if goes_on:
            if not kept:
                connection.keep_browse(queue)
            self._cursors[handle] = queue, key, found[-1].token
            if len(self._cursors) > _MOST_CURSORS:
                oldest = next(iter(self._cursors))
                del self._cursors[oldest]
                connection.close_browse(oldest)
        return found

    def _stands_on(self, connection: Connection, handle: int, queue: str, key: bytes, token: bytes) -> bool:
        """Whether a message is there; the next look then continues behind it."""
        session, options = connection.session, _STAND_ON[_KEYED if key else _ANY]
        answer = session.mqget(session.handle, handle, match_md(token, key), options(), 0)
        if answer[-2] == mq.MQCC_FAILED and answer[-1] != mq.MQRC_NO_MSG_AVAILABLE:
            raise MQError(int(answer[-1]), f"looking at {queue}")
        return bool(answer[-2] != mq.MQCC_FAILED)

    def _rows(self, connection: Connection, handle: int, queue: str, key: bytes, *, first: bool) -> Iterator[Stored]:
        while (stored := self._look(connection, handle, queue, key, first=first)) is not None:
            first = False
            self._new_id.follow(stored.token)
            yield stored

    def _look(self, connection: Connection, handle: int, queue: str, key: bytes, *, first: bool) -> Stored | None:
        options = (self._first if first else self._next)[_KEYED if key else _ANY]
        found = connection.look(handle, key, options, queue)
        return None if found is None else Stored(msg_id_of(found[1]), found[1], found[0])


class BoundedReader(Reader):
    """A reader for the reactor, which is not held up by a queue manager that does not answer: calls have a time
    limit."""

    def __init__(
        self,
        driver: Driver,
        settings: ConnectSettings,
        new_id: MessageIds,
        scheduler: Scheduler,
        told: Callable[[str], None],
    ) -> None:
        self.calls = BoundedCalls(scheduler, ANSWER_SECONDS, silent=told)
        super().__init__(driver.noting(self.calls.heard), settings, new_id)

    def _again(self, call: Callable[[Connection], _T]) -> _T:
        again = super()._again
        return self.calls.call(lambda: again(call))

    def close(self) -> None:
        """Disconnect; a call that hangs is abandoned."""
        with suppress(MQError):
            self.calls.call(super().close)
        self.calls.close()


def subscription_key(name: str) -> bytes:
    """Returns the correlation identifier of a subscription, which distinguishes its publications from those of others
    on the same queue."""
    return b"MQGS" + hashlib.blake2b(name.encode(), digest_size=20).digest()


def backout_of(inquire: Callable[[str, int], int | str], queue: str) -> Backout:
    """Returns BOTHRESH and BOQNAME; none if it is not a local queue."""
    try:
        threshold = int(inquire(queue, mq.MQIA_BACKOUT_THRESHOLD))
        return Backout(threshold, str(inquire(queue, mq.MQCA_BACKOUT_REQ_Q_NAME)))
    except MQError as error:
        if action_for(error.reason) is Action.RECONNECT:
            raise
        return Backout()


def open_subscription(connection: Connection, name: str, topic: str, queue: str, correl_id: bytes) -> None:
    """Make a durable subscription that puts to a queue, or resume it; one to another topic is replaced."""
    session, target = connection.session, connection.input(queue)
    try:
        both = mq.MQSO_CREATE | mq.MQSO_RESUME
        handle = session.subscribe(name, topic, target, correl_id, how=both)
    except MQError as error:
        if error.reason != mq.MQRC_TOPIC_NOT_ALTERABLE:
            raise
        session.unsubscribe(session.subscribe(name, "", target, correl_id, how=mq.MQSO_RESUME), remove=True)
        handle = session.subscribe(name, topic, target, correl_id, how=mq.MQSO_CREATE)
    session.unsubscribe(handle, remove=False)


def _after(rows: Iterator[Stored], after: Token, limit: int) -> tuple[list[Stored], Stored | None]:
    """Returns what lies behind a message that may have been taken meanwhile, and the last message that was looked at.
    The message is certain to be gone once one is found that its own process has put later: then the order of the
    identifiers counts."""
    found: list[Stored] = []
    known, stored = False, None
    for stored in rows:
        if stored.token == after:
            found, known = [], True
            continue
        passed = known or follows_in_process(stored.token, after)
        if len(found) < limit and (known or (is_ours(after) and follows(stored.token, after))):
            found.append(stored)
        if passed and len(found) >= limit:
            break
    return found, stored
