"""Puts together messages whose segments came behind transmission headers, by their MQMDEs.

To the queue manager these are messages like any other: MQGMO_COMPLETE_MSG does not join them, and nothing in their own
descriptors can be matched. So the gateway that has marked the first segment gets the whole; the others are those that
its own cursor passes and, if other gateways have marked some, those that a handle without marks finds on the queue. An
incomplete message stays there, and is found again when the mark has run out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time

from gateway.backends.ibm.connection import Connection, whole_message
from gateway.backends.ibm.structures import get_options, match_md, msg_id_of
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.mq.transmitted_segments import HEADERS_LENGTH, Logical, Part, is_whole, joined, part_of
from gateway.ports.batch import Stored
from gateway.ports.sources import Incomplete

LOOK_SECONDS = 1.0
MOST_LOOKED_AT = 5_000
"""The most messages whose headers are looked at in one go."""
_MAX_KNOWN = 1_000
_STAYS_SECONDS = 10.0
_BROWSE = mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING
_HEADERS_FIRST = get_options(_BROWSE | mq.MQGMO_BROWSE_FIRST | mq.MQGMO_ACCEPT_TRUNCATED_MSG, mq.MQMO_NONE)
_HEADERS_NEXT = get_options(_BROWSE | mq.MQGMO_BROWSE_NEXT | mq.MQGMO_ACCEPT_TRUNCATED_MSG, mq.MQMO_NONE)
_ONE = get_options(_BROWSE | mq.MQGMO_BROWSE_FIRST, mq.MQMO_MATCH_MSG_ID)


@dataclass(slots=True)
class _Waiting:
    """A message of which a segment was seen. Times are monotonic."""

    since: float
    seen: float
    marked: float = float("-inf")
    """When its first segment was marked, which makes it this gateway's."""
    parts: dict[int, tuple[bytes, Part]] = field(default_factory=dict)
    """MsgIds of its segments by their offsets."""

    def whole(self) -> list[tuple[bytes, Part]]:
        """Returns all segments in order; none if one is missing."""
        found = [self.parts[offset] for offset in sorted(self.parts)]
        return found if is_whole([part for _, part in found]) else []


class TransmittedSegments:
    """Puts segments of one queue together, in the watcher's thread; `incomplete` may be read from any thread."""

    def __init__(self) -> None:
        self.lifetime = self.interval = float("inf")
        """How long a mark is relied on, and MARKINT."""
        self.longest = 104_857_600
        self.incomplete = Incomplete()
        self.restart_cursor = False
        """Whether the mark of an incomplete message has run out: the cursor has to start over to find it again."""
        self._connection: Connection | None = None
        self._handle = 0
        self._queue = ""
        self._waiting: dict[Logical, _Waiting] = {}
        self._next_look = 0.0

    def begin(self, connection: Connection, queue: str) -> None:
        """Begin on a new connection: no mark is left, and the cursor passes all messages again."""
        self._connection, self._queue, self._handle = connection, queue, 0
        self._waiting.clear()

    def seen(self, part: Part, msg_id: bytes, now: float) -> list[Stored]:
        """A segment was seen, and marked: returns the whole, if it is this gateway's and complete."""
        if part.logical not in self._waiting and len(self._waiting) >= _MAX_KNOWN:
            return []
        one = self._waiting.setdefault(part.logical, _Waiting(now, now))
        one.seen = now
        one.parts[part.offset] = msg_id, part
        if not part.offset:
            one.marked = now
        return self._look(part.logical, one, now)

    def due(self, now: float) -> list[tuple[float, list[Stored]]]:
        """Returns what has become complete since it was seen, with the time of its mark. Looks at most once a
        second."""
        if now < self._next_look or not (self._waiting or self.incomplete.number):
            return []
        self._next_look = now + LOOK_SECONDS
        for logical in [logical for logical, one in self._waiting.items() if now - one.seen > 2 * self._memory()]:
            del self._waiting[logical]
        self._count(now)
        mine = {logical: one for logical, one in self._waiting.items() if now - one.marked <= self.lifetime}
        self.restart_cursor = any(now - one.marked > self.interval for one in self._waiting.values() if one.marked >= 0)
        if mine:
            self._look_at_headers(mine)
        found = []
        for logical, one in mine.items():
            whole = self._look(logical, one, now)
            if whole:
                found.append((one.marked, whole))
        return found

    def _memory(self) -> float:
        return 2 * min(self.interval, 60.0)

    def _count(self, now: float) -> None:
        stay = [logical for logical, one in self._waiting.items() if one.seen - one.since >= _STAYS_SECONDS]
        oldest = min(stay, key=lambda logical: self._waiting[logical].since, default=None)
        if oldest is None:
            self.incomplete = Incomplete()
        else:
            since = time() - (now - self._waiting[oldest].since)
            self.incomplete = Incomplete(len(stay), since, oldest.group_id)

    def _look(self, logical: Logical, one: _Waiting, now: float) -> list[Stored]:
        whole = one.whole()
        if not whole or now - one.marked > self.lifetime:
            return []
        found = self._read(one, whole)
        if found:
            del self._waiting[logical]
        return found

    def _read(self, one: _Waiting, whole: list[tuple[bytes, Part]]) -> list[Stored]:
        """Returns the message, or nothing if a segment has gone meanwhile. If it is longer than a message may be, only
        the beginning is read, and OriginalLength says how long it is."""
        md, pieces, left = b"", list[bytes](), self.longest + 1
        for msg_id, part in whole:
            if left <= 0:
                break
            found = self._browse(msg_id)
            if found is None:
                del one.parts[part.offset]
                return []
            pieces.append(found[0][: HEADERS_LENGTH + left])
            left -= part.length
            md = md or found[1]
        length = sum(part.length for _, part in whole) if left <= 0 else -1
        data = joined(md, pieces, length)
        if left <= 0:
            md = mqmd.with_number(md, mqmd.AT_ORIGINAL_LENGTH, HEADERS_LENGTH + length)
        return [Stored(b"".join(msg_id for msg_id, _ in whole), md, data)]

    def _open(self) -> Connection:
        connection = self._connection
        assert connection is not None  # noqa: S101 -- `begin` was called
        self._handle = self._handle or connection.open_browse(self._queue)
        return connection

    def _browse(self, msg_id: bytes) -> tuple[bytes, bytes] | None:
        """Returns data and descriptor of a segment; None if it is no longer there."""
        session, handle = self._open().session, self._handle
        return whole_message(
            lambda length: session.mqget(session.handle, handle, match_md(msg_id), _ONE(), length), "MQGET of a segment"
        )

    def _look_at_headers(self, wanted: dict[Logical, _Waiting]) -> None:
        """Find segments that other gateways have marked."""
        session, options = self._open().session, _HEADERS_FIRST
        for _ in range(MOST_LOOKED_AT):
            answer = session.mqget(session.handle, self._handle, match_md(), options(), HEADERS_LENGTH)
            if answer[-1] == mq.MQRC_NO_MSG_AVAILABLE:
                return
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(int(answer[-1]), "MQGET of a segment's headers")
            options = _HEADERS_NEXT
            part = part_of(answer[1], answer[0], int(answer[-3]))
            if part is not None and part.logical in wanted:
                wanted[part.logical].parts[part.offset] = msg_id_of(answer[1]), part
