"""A thread for each consumed queue that reads ahead by browsing and reports arrivals, so that neither a wait nor a
round trip to the queue manager blocks a commit or the reactor.

It marks what it reads (MQGMO_MARK_BROWSE_CO_OP), so that of several gateways on one queue only one gets a message. A
mark lasts for MARKINT. A message that was not claimed well before that keeps its place, and is marked again when its
mark has run out, before it is handed out (`ahead`), unless it has the key of this gateway: then nobody else may take
it. The cursor finds arrivals after its position; a message that appears before it (a backout, a higher priority, a mark
of another gateway that has run out) is found when the cursor starts over, which it does after every idle wait. Where
all subscriptions of all gateways share a queue, a gateway reads, and marks, only what is for its own (`shared_by_key`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection
from time import monotonic

from gateway.backends.ibm.ahead import Ahead, Read
from gateway.backends.ibm.connection import FIRST_LENGTH, WHOLE_LENGTH, Connection
from gateway.backends.ibm.cursor import Cursor
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.gatherer import Gatherer
from gateway.backends.ibm.shared_by_key import SharedByKey
from gateway.backends.ibm.structures import NO_ID, get_options, group_md, match_md, msg_id_of
from gateway.backends.ibm.transmitted import TransmittedSegments
from gateway.backends.ibm.worker import Backoff
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import explain
from gateway.mq.transmitted_segments import part_of
from gateway.ports.batch import Stored, Token
from gateway.ports.sources import Incomplete

WAIT_MILLISECONDS = 1000
"""The length of one wait; also the longest time that stopping and starting over take."""
MARK_INTERVAL = 5000
"""MARKINT unless the queue manager says otherwise."""
_FRESH = 0.6
"""The part of MARKINT for which a message that was read ahead is handed out: after that its mark could run out."""
_WAIT = 0.2
"""The part of MARKINT that one wait takes at most: a mark may be as old as the call that made it."""
_LATE_SECONDS = 1.0
"""MARKINT is approximate. A message still marked this long after its mark should have run out is another gateway's."""
_LOOK = mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2
_MARK = mq.MQGMO_UNMARKED_BROWSE_MSG | mq.MQGMO_MARK_BROWSE_CO_OP
_MQIA_MSG_MARK_BROWSE_INTERVAL = 68
_HEAD_ONLY = mq.MQGMO_ACCEPT_TRUNCATED_MSG
"""With a length of 0: get only the descriptor."""
_SOON_SECONDS = 0.05
"""How long to wait before trying again to mark what is still marked."""
_OTHERS_SECONDS = 0.1
"""While a key has its share waiting: how often it is checked whether others have something."""
_MARKED, _MOST_MARKED = 20, 640
"""How many of the oldest messages are checked for marks, and how many a gateway can have marked."""
_HEADERS = 1 << 20
"""Room for the properties of a message, which come in front of it and do not count for MAXMSGL."""
_REFUSED_MARKS = frozenset({mq.MQRC_OPTIONS_ERROR, mq.MQRC_FUNCTION_NOT_SUPPORTED})


class Watcher:
    """A thread that reads one consumed queue ahead. `arrived` is called in that thread."""

    def __init__(
        self,
        driver: Driver,
        settings: ConnectSettings,
        queue: str,
        arrived: Callable[[], None],
        *,
        key: bytes = b"",
        keys: Callable[[], Collection[bytes]] | None = None,
        groups: bool = False,
        backoff: Backoff | None = None,
        told: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`key`: the key of messages that are only for this gateway. `keys`: the keys that it reads, where the queue
        also has messages for others, and some of these keys may be others' as well. `groups`: hand out messages of a
        group only when all are there."""
        self.queue = queue
        self._key = key
        self._keys = keys
        self._driver = driver
        self._settings = settings
        self._backoff = backoff or Backoff()
        self._told = told
        self._stopping = threading.Event()
        self._ahead = Ahead(arrived, shares=keys is not None)
        self._ahead.room.set()
        self._marks = True
        self._gatherer = Gatherer(groups=groups)
        self._transmitted = TransmittedSegments()
        self.thread = threading.Thread(target=self._run, name=f"mq-watch-{queue}", daemon=True)

    def claim(self, key: bytes, limit: int) -> list[Stored]:
        """Returns what was read ahead, without waiting."""
        return self._ahead.take(key, limit, monotonic())

    def leave(self, key: bytes) -> None:
        """Nobody claims this key until somebody does again."""
        self._ahead.leave(key)

    def looked(self) -> None:
        """The queue was read directly."""
        self._ahead.looked()

    @property
    def incomplete(self) -> Incomplete:
        """Messages that stay on the queue because parts of them are missing."""
        return self._transmitted.incomplete if self._transmitted.incomplete.number else self._gatherer.incomplete

    def gather(self, *, groups: bool) -> None:
        """Hand out messages of a group only when it is complete, from now on; what is read ahead stays as it is."""
        self._gatherer.groups = groups

    def stop(self) -> None:
        """End after the wait in progress."""
        self._stopping.set()
        self._ahead.room.set()

    def _run(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            try:
                connection = Connection(self._driver.connect(self._settings), lambda _priority: NO_ID)
                attempt = 0
                try:
                    self._watch(connection)
                finally:
                    self._ahead.forget()
                    connection.session.disconnect()
            except MQError as error:
                if error.reason in _REFUSED_MARKS and self._marks:
                    self._marks = False  # a queue manager without marks: then only one gateway consumes a queue
                    continue
                self._told(explain(error.reason, f"waiting on {self.queue}: {error}"))
                self._stopping.wait(self._backoff.delay(attempt, random.random()))  # noqa: S311  jitter
                attempt += 1

    def _watch(self, connection: Connection) -> None:
        gatherer, transmitted = self._gatherer, self._transmitted
        gatherer.begin(connection, self.queue)
        transmitted.begin(connection, self.queue)
        longest = int(connection.session.inquire("", mq.MQIA_MAX_MSG_LENGTH))
        gatherer.longest, transmitted.longest = longest + _HEADERS, longest
        if self._marks:
            gatherer.interval = transmitted.interval = self._interval(connection)
        gatherer.lifetime = transmitted.lifetime = gatherer.interval * _FRESH
        if (
            not self._key
        ):  # else no other gateway gets it when its mark runs out: the order counts, however late it is asked for
            self._ahead.lifetime = gatherer.lifetime
        cursor, handle = self._cursor(connection)
        patience = WAIT_MILLISECONDS / 1000 if self._keys is None else _OTHERS_SECONDS
        while not self._stopping.is_set():
            if not self._ahead.room.wait(patience) and self._keys is None:
                continue
            if self._ahead.lapsed:
                self._mark_again(connection, handle)
                cursor.start_over()
                continue
            self._ahead.looking()
            if self._add_what_is_whole():
                cursor.start_over()
            found = cursor.next()
            if found is not None:
                self._add(found.data, found.md, found.asked)

    def _cursor(self, connection: Connection) -> tuple[Cursor, int]:
        """Returns a cursor and its handle."""
        milliseconds = self._wait(self._gatherer.interval)
        handle = connection.browse(self.queue, co_op=self._marks)
        if self._marks:
            until = monotonic() + self._gatherer.interval + 1
            for key in (self._key,) if self._keys is None else self._keys():
                self._wait_for_marks(connection, handle, key, until)
        shared = None
        if self._keys is not None:
            shared = SharedByKey(connection, self.queue, self._keys, milliseconds, self._ahead.with_room)
        by_key = bool(self._key) or shared is not None  # several gateways put there: one that commits late is behind
        options = _LOOK | (_MARK if self._marks else 0)
        from_first = by_key and self._marks
        return (
            Cursor(connection, handle, options, milliseconds, key=self._key, shared=shared, from_first=from_first),
            handle,
        )

    def _add_what_is_whole(self) -> bool:
        """Add what has become complete since its parts were seen. Returns whether the cursor has to start over, to find
        parts again."""
        gatherer, transmitted, now = self._gatherer, self._transmitted, monotonic()
        for marked, whole in [*gatherer.due(now), *transmitted.due(now)]:
            self._ahead.add(whole[0], marked, *whole[1:], answered=monotonic())
        over = gatherer.restart_cursor or transmitted.restart_cursor
        gatherer.restart_cursor = transmitted.restart_cursor = False
        return over

    def _mark_again(self, connection: Connection, handle: int) -> None:
        """Mark again what was read too long ago to be handed out, in its order, when its mark has run out. Drop what
        has gone, or is another gateway's by now."""
        changed, interval, wait = False, self._gatherer.interval, _SOON_SECONDS
        for read in self._ahead.due(monotonic()):
            began, token = monotonic(), read.stored.token
            if began < read.marked + interval:
                wait = read.marked + interval - began
                break
            if self._mark(connection, handle, read, _MARK):
                self._ahead.renewed(token, began, monotonic())
            elif began > read.answered + interval + _LATE_SECONDS or not self._mark(connection, handle, read, 0):
                self._ahead.drop(token)
            else:
                break
            changed = True
        else:
            changed = True
        if changed:
            self._ahead.in_time()
        else:
            self._stopping.wait(min(wait, WAIT_MILLISECONDS / 1000))

    @staticmethod
    def _mark(connection: Connection, handle: int, read: Read, marks: int) -> bool:
        """Browse, with these options, for a message that was read, or for its beginning. Returns whether it is
        there."""
        token, match = read.stored.token, mq.MQMO_MATCH_MSG_ID
        assert isinstance(token, bytes)  # noqa: S101 -- this module has made it
        wanted = match_md(token[:24])
        if len(token) == WHOLE_LENGTH:
            match = mq.MQMO_MATCH_GROUP_ID | mq.MQMO_MATCH_MSG_SEQ_NUMBER | mq.MQMO_MATCH_OFFSET
            wanted = group_md(token[:24], int.from_bytes(token[24:28], "big"))
        options = get_options(_LOOK | _HEAD_ONLY | mq.MQGMO_BROWSE_FIRST | marks, match)
        session, length = connection.session, max(FIRST_LENGTH, len(read.stored.data))
        answer = session.mqget(session.handle, handle, wanted, options(), length)
        if answer[-2] == mq.MQCC_FAILED and answer[-1] != mq.MQRC_NO_MSG_AVAILABLE:
            raise MQError(int(answer[-1]), "MQGET")
        return bool(answer[-2] != mq.MQCC_FAILED)

    @staticmethod
    def _wait(interval: float) -> int:
        """Returns the length of one wait in milliseconds."""
        return int(min(WAIT_MILLISECONDS, max(1, interval * _WAIT * 1000)))

    def _add(self, data: bytes, md: bytes, now: float) -> None:
        """Add a message that stands by itself, or what a part makes complete."""
        part = part_of(md, data)
        if part is None and self._gatherer.alone(md):
            self._ahead.add(Stored(msg_id_of(md), md, data), now, answered=monotonic())
            return
        if part is not None:
            if not part.offset:
                self._ahead.met(msg_id_of(md), now, monotonic())
            whole = self._transmitted.seen(part, msg_id_of(md), now)
        else:
            whole = self._gatherer.seen(md, len(data), now)
        if whole:
            self._ahead.add(whole[0], now, *whole[1:], answered=monotonic())

    def _wait_for_marks(self, connection: Connection, handle: int, key: bytes, until: float) -> None:
        """Wait for older messages that are marked, which go first: an earlier process of this gateway, or a connection
        that broke, had read them, and their marks run out within MARKINT, one after the other. If they leave meanwhile,
        another gateway is working on them, and there is no wait, unless nobody else can be."""
        many, first = _MARKED, self._heads(connection, handle, key, 0, 1)
        while first and monotonic() < until:
            there, free = (
                self._heads(connection, handle, key, more, many) for more in (0, mq.MQGMO_UNMARKED_BROWSE_MSG)
            )
            if there == free[: len(there)] or (there[:1] != first and not self._key):
                return
            if len(there) == many and there[-1] not in free and many < _MOST_MARKED:
                many *= 2
            elif self._stopping.wait(0.1):
                return

    @staticmethod
    def _heads(connection: Connection, handle: int, key: bytes, more: int, most: int) -> list[Token]:
        """Returns the first messages, of a key if one is given, that can be seen with these options."""
        session, found = connection.session, list[Token]()
        following, match = _LOOK | _HEAD_ONLY | more, mq.MQMO_MATCH_CORREL_ID if key else mq.MQMO_NONE
        options = get_options(following | mq.MQGMO_BROWSE_FIRST, match, 0)
        while len(found) < most:
            answer = session.mqget(session.handle, handle, match_md(correl_id=key or NO_ID), options(), 0)
            if answer[-2] == mq.MQCC_FAILED:
                break
            found.append(msg_id_of(answer[1]))
            options = get_options(following | mq.MQGMO_BROWSE_NEXT, match, 0)
        return found

    @staticmethod
    def _interval(connection: Connection) -> float:
        """Returns MARKINT in seconds."""
        try:
            interval = int(connection.session.inquire("", _MQIA_MSG_MARK_BROWSE_INTERVAL))
        except MQError:
            interval = MARK_INTERVAL
        return interval / 1000 if interval >= 0 else float("inf")
