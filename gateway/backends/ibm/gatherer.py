"""Puts together messages in segments, and groups, as the cursor that reads ahead finds parts of them.

The marks of co-operating browsers work with neither MQGMO_COMPLETE_MSG nor MQGMO_ALL_MSGS_AVAILABLE. So the gateway
that has marked the first segment (of a group: the first message) gets the whole, and browses for the rest on a handle
without marks, by GroupId and MsgSeqNumber. An incomplete message stays on its queue; its parts are browsed for once a
second while the mark lasts, and the cursor finds it again when the mark has run out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from time import time

from gateway.backends.ibm.connection import FIRST_LENGTH, Connection
from gateway.backends.ibm.structures import get_options, group_md
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.mq.grouping import reassembled
from gateway.ports.batch import Stored, Token
from gateway.ports.sources import MAX_GROUP, MAX_GROUP_BYTES, Incomplete

LOOK_SECONDS = 1.0
LOOKS_AT_ONCE = 50
"""The most incomplete messages that are browsed for at a time."""
_MAX_KNOWN = 10_000
_STAYS_SECONDS = 10.0
"""A message that is still incomplete after this time is reported as such."""
_NO_FLAGS = bytes(4)
_FLAGS = slice(mqmd.AT_MSG_FLAGS, mqmd.AT_MSG_FLAGS + 4)
_SEGMENTED = mq.MQMF_SEGMENT | mq.MQMF_LAST_SEGMENT
_IN_GROUP = mq.MQMF_MSG_IN_GROUP | mq.MQMF_LAST_MSG_IN_GROUP
_BROWSE = mq.MQGMO_BROWSE_FIRST | mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2
_MATCH = mq.MQMO_MATCH_GROUP_ID | mq.MQMO_MATCH_MSG_SEQ_NUMBER
_ONE = get_options(_BROWSE | mq.MQGMO_COMPLETE_MSG, _MATCH)
_FIRST_OF_ALL = get_options(_BROWSE | mq.MQGMO_COMPLETE_MSG | mq.MQGMO_ALL_MSGS_AVAILABLE, _MATCH)
_ONE_CUT = get_options(_BROWSE | mq.MQGMO_COMPLETE_MSG | mq.MQGMO_ACCEPT_TRUNCATED_MSG, _MATCH)
_UNLIKE = frozenset({mq.MQRC_INCONSISTENT_CCSIDS, mq.MQRC_INCONSISTENT_ENCODINGS})
Name = tuple[bytes, int]
"""GroupId, and MsgSeqNumber of a message in segments (0 for a whole group)."""


@dataclass(slots=True)
class _Waiting:
    """A message or group of which a part was seen. Times are monotonic."""

    since: float
    seen: float
    marked: float = float("-inf")
    """When its beginning was marked, which makes it this gateway's."""
    first_length: int = 0
    impossible: bool = False
    """Whether it cannot be put together: its segments differ in encoding, or the group has no end."""


def token_of(group: bytes, sequence: int, segments: int) -> bytes:
    """Returns a token that names a message by its place in a group, and says how many messages a unit of work must
    count for it."""
    return group + sequence.to_bytes(4, "big") + max(1, segments).to_bytes(4, "big")


def same_group(one: Token, other: Token) -> bool:
    """Whether two messages are to be handed out together."""
    both = isinstance(one, bytes) and isinstance(other, bytes) and len(one) == len(other) == 32
    return both and one[:24] == other[:24]  # type: ignore[index]


class Gatherer:
    """Puts segments and groups of one queue together, in the watcher's thread; `incomplete` may be read from any
    thread."""

    def __init__(self, *, groups: bool) -> None:
        self.groups = groups
        self.lifetime = float("inf")
        """How long a mark is relied on."""
        self.interval = float("inf")
        """MARKINT."""
        self.longest = 104_857_600
        self.incomplete = Incomplete()
        self._connection: Connection | None = None
        self._handle = 0
        self._queue = ""
        self._waiting: dict[Name, _Waiting] = {}
        self._given: dict[Name, float] = {}
        """Messages put together recently: the cursor has yet to pass the rest of their parts."""
        self._next_look = 0.0
        self.restart_cursor = False
        """Whether the mark of an incomplete message has run out: the cursor has to start over to find it again."""

    def begin(self, connection: Connection, queue: str) -> None:
        """Begin on a new connection: no mark of the last one is left."""
        self._connection, self._queue = connection, queue
        self._handle = 0
        for one in self._waiting.values():
            one.marked = float("-inf")
        self._given.clear()

    def alone(self, md: bytes) -> bool:
        """Whether a message is, by itself, what a rule gets."""
        if md[_FLAGS] == _NO_FLAGS:
            return True
        flags = mqmd.number(md, mqmd.AT_MSG_FLAGS)
        return not flags & _SEGMENTED and not (self.groups and flags & _IN_GROUP)

    def seen(self, md: bytes, length: int, now: float) -> list[Stored]:
        """A part was seen, and marked: returns the whole, if it is this gateway's and complete."""
        name = self._name(md)
        begins = self._begins(md)
        if not begins and now - self._given.get(name, float("-inf")) < self._memory():
            return []
        if name not in self._waiting and len(self._waiting) >= _MAX_KNOWN:
            return []
        one = self._waiting.setdefault(name, _Waiting(now, now))
        one.seen = now
        if begins:
            one.marked, one.first_length, one.impossible = now, length, False
        return self._look(name, one, now)

    def _memory(self) -> float:
        return min(self.interval, 60.0) * 2

    def _name(self, md: bytes) -> Name:
        whole = self.groups and mqmd.number(md, mqmd.AT_MSG_FLAGS) & _IN_GROUP
        return md[mqmd.GROUP_ID], 0 if whole else mqmd.number(md, mqmd.AT_MSG_SEQ_NUMBER)

    def _begins(self, md: bytes) -> bool:
        first = not mqmd.number(md, mqmd.AT_OFFSET)
        return first and (self._name(md)[1] != 0 or mqmd.number(md, mqmd.AT_MSG_SEQ_NUMBER) == 1)

    def due(self, now: float) -> list[tuple[float, list[Stored]]]:
        """Returns what has become complete since it was seen, with the time of its mark. Looks at most once a
        second."""
        if now < self._next_look or not (self._waiting or self._given or self.incomplete.number):
            return []
        self._next_look = now + LOOK_SECONDS
        self._forget(now)
        self.restart_cursor = any(now - one.marked > self.interval for one in self._waiting.values() if one.marked > 0)
        found = []
        for name in list(self._waiting)[:LOOKS_AT_ONCE]:
            one = self._waiting.pop(name)
            self._waiting[name] = one  # to the end: the others come first now
            whole = self._look(name, one, now)
            if whole:
                found.append((one.marked, whole))
        return found

    def _forget(self, now: float) -> None:
        """Forget what is no longer there, and what was given long ago."""
        memory = 2 * self._memory()
        for name in [name for name, one in self._waiting.items() if now - one.seen > memory]:
            del self._waiting[name]
        for name in [name for name, when in self._given.items() if now - when > memory]:
            del self._given[name]
        self._count(now)

    def _count(self, now: float) -> None:
        stay = [name for name, one in self._waiting.items() if one.seen - one.since >= _STAYS_SECONDS]
        oldest = min(stay, key=lambda name: self._waiting[name].since, default=None)
        if oldest is None:
            self.incomplete = Incomplete()
            return
        since = time() - (now - self._waiting[oldest].since)
        self.incomplete = Incomplete(len(stay), since, oldest[0], whole_group=not oldest[1])

    # Looking

    def _look(self, name: Name, one: _Waiting, now: float) -> list[Stored]:
        if one.impossible or now - one.marked > self.lifetime:
            return []
        found = self._message(name, one) if name[1] else self._group(name[0], one)
        if found:
            del self._waiting[name]
            self._given[name] = now
        return found

    def _message(self, name: Name, one: _Waiting) -> list[Stored]:
        found = self._browse(*name, one, _ONE)
        return [found] if found is not None else []

    def _group(self, group: bytes, one: _Waiting) -> list[Stored]:
        """Returns every message in order; none if one is missing."""
        members: list[Stored] = []
        size, options = 0, _FIRST_OF_ALL
        while len(members) < MAX_GROUP and size <= MAX_GROUP_BYTES:
            found = self._browse(group, len(members) + 1, one, options)
            if found is None:
                return []
            members.append(found)
            size, options = size + len(found.data), _ONE
            if mqmd.number(found.md, mqmd.AT_MSG_FLAGS) & mq.MQMF_LAST_MSG_IN_GROUP:
                return members
        one.impossible = True
        return []

    def _browse(self, group: bytes, sequence: int, one: _Waiting, options: Callable[[], bytes]) -> Stored | None:
        """Returns one message with all its segments; None if it is not complete."""
        connection = self._connection
        assert connection is not None  # noqa: S101 -- `begin` was called
        self._handle = self._handle or connection.open_browse(self._queue)
        session, length = connection.session, FIRST_LENGTH
        while True:
            md = group_md(group, sequence)
            answer = session.mqget(session.handle, self._handle, md, options(), length)
            reason, total = int(answer[-1]), int(answer[-3])
            if reason == mq.MQRC_TRUNCATED_MSG_FAILED:
                length = min(total, self.longest + 1)
                if total > length:
                    options = _ONE_CUT
                continue
            if reason == mq.MQRC_NO_MSG_AVAILABLE:
                return None
            if reason in _UNLIKE:
                one.impossible = True
                return None
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(reason, "MQGET of a whole message")
            data = answer[0][:length]
            segments = ceil(total / one.first_length) if one.first_length else 1
            whole = reassembled(answer[1], total if total > len(data) else -1)
            return Stored(token_of(group, sequence, segments), whole, data)
