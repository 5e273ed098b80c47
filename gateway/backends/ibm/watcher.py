"""A thread for each consumed queue that reads ahead by browsing and tells of arrivals, so that neither a wait nor a
round trip to the queue manager blocks a commit or the reactor.

What it reads it marks (MQGMO_MARK_BROWSE_CO_OP), so that of several gateways on one queue only one has a message. A
mark lasts for MARKINT: a message that was not claimed by then is forgotten and read again, unless it has the key of
this gateway: then nobody else may have it, and its place in the order counts. The cursor finds arrivals
after its position; a message that appears before it (a backout, a higher priority, a mark that ran out) is found when
the cursor starts over, which it does after every idle wait.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from gateway.backends.ibm.connection import FIRST_LENGTH, Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.gatherer import Gatherer, same_group
from gateway.backends.ibm.structures import NO_ID, correl_id_of, get_options, match_md, msg_id_of
from gateway.backends.ibm.transmitted import TransmittedSegments
from gateway.backends.ibm.worker import Backoff
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import explain
from gateway.mq.transmitted_segments import part_of
from gateway.ports.batch import Stored, Token
from gateway.ports.sources import Incomplete

WAIT_MILLISECONDS = 1000
"""One wait; also the longest time that stopping and starting over take."""
AHEAD, AHEAD_BYTES = 400, 8 << 20
"""How many messages are read ahead, and how much: then the thread waits until some of them are asked for."""
MARK_INTERVAL = 5000
"""MARKINT unless the queue manager says otherwise."""
_FRESH = 0.6
"""The part of MARKINT for which a message that was read ahead is handed out: later its mark could run out."""
_LOOK = mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2
_MARK = mq.MQGMO_UNMARKED_BROWSE_MSG | mq.MQGMO_MARK_BROWSE_CO_OP
_MQIA_MSG_MARK_BROWSE_INTERVAL = 68
_HEAD_ONLY = mq.MQGMO_ACCEPT_TRUNCATED_MSG
"""With a length of nothing: the descriptor alone."""
_MARKED, _MOST_MARKED = 20, 640
"""So many of the oldest messages are looked at for marks, and as many as a gateway can have marked."""
_HEADERS = 1 << 20
"""Room for the properties of a message, which come in front of it and do not count in MAXMSGL."""
_REFUSED_MARKS = frozenset({mq.MQRC_OPTIONS_ERROR, mq.MQRC_FUNCTION_NOT_SUPPORTED})


class Ahead:
    """Messages read and not handed out yet. Filled by one thread, emptied by another."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        """`arrived` is called in the filling thread: when there is something after there was nothing."""
        self._arrived = arrived
        self._lock = threading.Lock()
        self._messages: deque[tuple[float, Stored]] = deque()
        self._known: set[Token] = set()
        """Tokens of `_messages` and of those handed out last, which may still be on the queue."""
        self._handed_out: dict[bytes, list[Token]] = {}
        self._keys: set[bytes] = set()
        """Keys that were ever claimed."""
        self._bytes = 0
        self._empty = True
        """The last claim got nothing: call `arrived` at the next message."""
        self.room = threading.Event()
        self.lifetime = float("inf")
        """Seconds for which a message may be handed out after it was read."""
        self.stale = False
        """Messages were forgotten: the cursor has to start over."""

    def add(self, stored: Stored, now: float, *others: Stored) -> None:
        """Add a message that was read, or all of a group. One that is here already, because its mark ran out, is
        skipped."""
        with self._lock:
            if stored.token in self._known:
                return
            for one in (stored, *others):
                self._known.add(one.token)
                self._messages.append((now, one))
                self._bytes += len(one.data)
            if self._full(1):
                self._drop_other_keys()
                if self._full(1):
                    self.room.clear()
            tell, self._empty = self._empty, False
        if tell:
            self._arrived()

    def _full(self, part: int) -> bool:
        return len(self._messages) >= AHEAD // part or self._bytes >= AHEAD_BYTES // part

    def _drop_other_keys(self) -> None:
        """Forget messages with keys that are not claimed here: on a queue shared by key they would fill the space."""
        if not self._keys or b"" in self._keys:
            return
        wanted = {key.ljust(24, b"\0") for key in self._keys}
        kept = [entry for entry in self._messages if correl_id_of(entry[1].md) in wanted]
        self._known.difference_update(
            entry[1].token for entry in self._messages if correl_id_of(entry[1].md) not in wanted
        )
        self._messages = deque(kept)
        self._bytes = sum(len(stored.data) for _, stored in kept)

    def looked(self) -> None:
        """The queue was read directly: call `arrived` at the next message."""
        with self._lock:
            self._empty = True

    def take(self, key: bytes, limit: int, now: float) -> list[Stored]:
        """The next ones, of a key if there is one; more than `limit` only for the rest of a group. Those of the same
        key that were handed out before are dealt with: they are taken, or are to come again."""
        with self._lock:
            self._keys.add(key)
            self._known.difference_update(self._handed_out.pop(key, ()))
            page: list[Stored] = []
            rest: list[tuple[float, Stored]] = []
            padded = key.ljust(24, b"\0") if key else b""
            while self._messages and (len(page) < limit or same_group(page[-1].token, self._messages[0][1].token)):
                read, stored = self._messages.popleft()
                if now - read > self.lifetime:
                    self._known.discard(stored.token)
                    self.stale = True
                elif key and correl_id_of(stored.md) != padded:
                    rest.append((read, stored))
                else:
                    page.append(stored)
            self._messages.extendleft(reversed(rest))
            self._bytes = sum(len(stored.data) for _, stored in self._messages)
            if page:
                self._handed_out[key] = [stored.token for stored in page]
            else:
                self._empty = True
            if not self._full(2):
                self.room.set()
        return page

    def forget(self) -> None:
        """The connection is lost and the marks with it: other gateways may have what was not claimed."""
        with self._lock:
            self._known.difference_update(stored.token for _, stored in self._messages)
            self._messages.clear()
            self._bytes = 0
            self._empty = True
            self.room.set()


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
        groups: bool = False,
        backoff: Backoff | None = None,
        told: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`key`: of messages for this gateway alone; `groups`: those of a group only when all are there."""
        self.queue = queue
        self._key = key
        self._driver = driver
        self._settings = settings
        self._backoff = backoff or Backoff()
        self._told = told
        self._stopping = threading.Event()
        self._ahead = Ahead(arrived)
        self._ahead.room.set()
        self._marks = True
        self._gatherer = Gatherer(groups=groups)
        self._transmitted = TransmittedSegments()
        self.thread = threading.Thread(target=self._run, name=f"mq-watch-{queue}", daemon=True)

    def claim(self, key: bytes, limit: int) -> list[Stored]:
        """What was read ahead, without waiting for anything."""
        return self._ahead.take(key, limit, monotonic())

    def looked(self) -> None:
        """The queue was read directly."""
        self._ahead.looked()

    @property
    def incomplete(self) -> Incomplete:
        """Messages that stay on the queue because parts of them are missing."""
        return self._transmitted.incomplete if self._transmitted.incomplete.number else self._gatherer.incomplete

    def gather(self, *, groups: bool) -> None:
        """From now on; what is read ahead stays as it is."""
        self._gatherer.groups = groups

    def stop(self) -> None:
        """End after the wait that is under way."""
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
                    self._marks = False  # a queue manager without marks: then one gateway consumes a queue
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
        ):  # else nobody else has it when its mark runs out: the order counts, however late it is asked for
            self._ahead.lifetime = gatherer.lifetime
        marks = _MARK if self._marks else 0
        wait = _LOOK | marks | mq.MQGMO_WAIT
        match, wanted = (mq.MQMO_MATCH_CORREL_ID, self._key) if self._key else (mq.MQMO_NONE, NO_ID)
        first = get_options(wait | mq.MQGMO_BROWSE_FIRST, match, WAIT_MILLISECONDS)
        following = get_options(wait | mq.MQGMO_BROWSE_NEXT, match, WAIT_MILLISECONDS)
        if self._key and self._marks:  # several gateways put there: one that commits late is behind the cursor
            following = first
        handle = connection.browse(self.queue, co_op=self._marks)
        if self._marks:
            self._wait_for_marks(connection, handle)
        session, options, length = connection.session, first, FIRST_LENGTH
        while not self._stopping.is_set():
            if not self._ahead.room.wait(WAIT_MILLISECONDS / 1000):
                continue
            for marked, whole in [*gatherer.due(monotonic()), *transmitted.due(monotonic())]:
                self._ahead.add(whole[0], marked, *whole[1:])
            if self._ahead.stale or gatherer.restart_cursor or transmitted.restart_cursor:
                self._ahead.stale = gatherer.restart_cursor = transmitted.restart_cursor = False
                options = first
            answer = session.mqget(session.handle, handle, match_md(correl_id=wanted), options(), length)
            reason = int(answer[-1])
            if reason == mq.MQRC_NO_MSG_AVAILABLE:
                options = first
            elif reason == mq.MQRC_TRUNCATED_MSG_FAILED:  # the cursor has not moved: the same again with its length
                length = max(int(answer[-3]), FIRST_LENGTH)
                continue
            elif answer[-2] == mq.MQCC_FAILED:
                raise MQError(reason, "MQGET")
            else:
                options = following
                self._add(answer[0], answer[1], monotonic())
            length = FIRST_LENGTH

    def _add(self, data: bytes, md: bytes, now: float) -> None:
        """A message by itself, or what a part makes whole."""
        part = part_of(md, data)
        if part is None and self._gatherer.alone(md):
            self._ahead.add(Stored(msg_id_of(md), md, data), now)
            return
        if part is not None:
            whole = self._transmitted.seen(part, msg_id_of(md), now)
        else:
            whole = self._gatherer.seen(md, len(data), now)
        if whole:
            self._ahead.add(whole[0], now, *whole[1:])

    def _wait_for_marks(self, connection: Connection, handle: int) -> None:
        """Older messages that are marked go first: an earlier life of this gateway, or a connection that is broken, had
        read them, and its marks run out within MARKINT, one after the other. If they leave meanwhile, another gateway
        is at work on them, and nothing is waited for, unless nobody else can."""
        until = monotonic() + self._gatherer.interval + 1
        many, first = _MARKED, self._heads(connection, handle, 0, 1)
        while first and monotonic() < until:
            there, free = (self._heads(connection, handle, more, many) for more in (0, mq.MQGMO_UNMARKED_BROWSE_MSG))
            if there == free[: len(there)] or (there[:1] != first and not self._key):
                return
            if len(there) == many and there[-1] not in free and many < _MOST_MARKED:
                many *= 2
            elif self._stopping.wait(0.1):
                return

    def _heads(self, connection: Connection, handle: int, more: int, most: int) -> list[Token]:
        """The first messages that can be seen with these options."""
        session, found = connection.session, list[Token]()
        following, match = _LOOK | _HEAD_ONLY | more, mq.MQMO_MATCH_CORREL_ID if self._key else mq.MQMO_NONE
        options = get_options(following | mq.MQGMO_BROWSE_FIRST, match, 0)
        while len(found) < most:
            answer = session.mqget(session.handle, handle, match_md(correl_id=self._key or NO_ID), options(), 0)
            if answer[-2] == mq.MQCC_FAILED:
                break
            found.append(msg_id_of(answer[1]))
            options = get_options(following | mq.MQGMO_BROWSE_NEXT, match, 0)
        return found

    @staticmethod
    def _interval(connection: Connection) -> float:
        """MARKINT in seconds."""
        try:
            interval = int(connection.session.inquire("", _MQIA_MSG_MARK_BROWSE_INTERVAL))
        except MQError:
            interval = MARK_INTERVAL
        return interval / 1000 if interval >= 0 else float("inf")
