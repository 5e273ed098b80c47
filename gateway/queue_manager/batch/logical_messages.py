"""Logical messages for rules: segments as one message, and, where a rule asks, groups only when they are whole.

For the batch port this is what MQGMO_COMPLETE_MSG and MQGMO_ALL_MSGS_AVAILABLE are for programs (section 7 of the MQI
reference, Groups and segments). Incomplete messages and groups stay on their queue, do not hold up others, and are
counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.mq import constants as mq
from gateway.ports.batch import MQMD_LENGTH, Stored
from gateway.ports.sources import MAX_GROUP, Incomplete
from gateway.queue_manager import descriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import FLAGS
from gateway.queue_manager.groups import is_complete_group, is_complete_message, physical_key, whole
from gateway.queue_manager.objects.local_queue import BROKER, LocalQueue
from gateway.queue_manager.store.unit import Message

NO_FLAGS = bytes(4)
_SEGMENTED = mq.MQMF_SEGMENT | mq.MQMF_LAST_SEGMENT
_IN_GROUP = mq.MQMF_MSG_IN_GROUP | mq.MQMF_LAST_MSG_IN_GROUP
Name = tuple[bytes, int]
"""GroupId, and MsgSeqNumber of a segmented message (0: a whole group)."""


class _Waiting(NamedTuple):
    """A message or group of which parts are missing."""

    since: float
    parts: tuple[int, ...]
    """The tokens of the parts that were there last time."""


class _Part(NamedTuple):
    """A message or segment without its data."""

    token: int
    head: bytes
    length: int


class Page:
    """One pass over a queue, front to back."""

    def __init__(self, logical_messages: LogicalMessages, queue: LocalQueue) -> None:
        self._logical_messages = logical_messages
        self._queue = queue
        self._seen: set[Name] = set()
        self.parts: dict[int, tuple[int, ...]] = {}
        """The tokens of the segments of a message, by the token under which it is returned: that of its first segment.
        """
        self.incomplete: set[Name] = set()

    def logical(self, messages: Sequence[Message], limit: int) -> list[Message]:
        """What a rule gets of the next messages on the queue: whole logical messages, and messages that are neither
        segments nor grouped as they are. No more than `limit`, except for the rest of a group.
        """
        found: list[Message] = []
        for message in messages:
            if len(found) >= limit:
                break
            flags = int.from_bytes(message.head[FLAGS], "little")
            grouped = flags & _IN_GROUP and self._queue.whole_groups
            if not grouped and not flags & _SEGMENTED:
                found.append(message)
                continue
            group, sequence, _ = physical_key(message.head)
            name = (group, 0 if grouped else sequence)
            if name not in self._seen:
                self._seen.add(name)
                found += self._gathered(name)
        return found

    def named(self, stored: list[Stored]) -> list[Stored]:
        """Give messages of several segments the tokens of all of them: these are what is taken."""
        if not self.parts:
            return stored
        return [one._replace(token=self.parts.get(one.token, one.token)) for one in stored]  # type: ignore[call-overload]

    def _gathered(self, name: Name) -> list[Message]:
        """The messages of a group, or the one message of these segments; none while a part is missing."""
        parts = self._logical_messages.parts(self._queue, name)
        if parts is None:
            self.incomplete.add(name)
            return []
        found = []
        for segments in _by_sequence(parts):
            found.append(self._logical_messages.joined(self._queue, segments))
            if len(segments) > 1:
                self.parts[segments[0].token] = tuple(one.token for one in segments)
        return found


class LogicalMessages:
    """Puts logical messages together. Called with the queue manager's lock held."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[str, dict[Name, _Waiting]] = {}

    @property
    def longest(self) -> int:
        """The longest message that is put together from segments, as for any other. Of a longer one the beginning is
        kept, and OriginalLength says how long it is.
        """
        return self._core.attribute("MAXMSGL")

    def page(self, queue: LocalQueue) -> Page:
        """Begin a pass over a queue."""
        return Page(self, queue)

    def seen(self, queue: LocalQueue, page: Page | None, *, end: bool) -> None:
        """End a pass; `end`: it reached the end of the queue."""
        known = self._waiting.get(queue.name)
        if end and known:
            there = page.incomplete if page is not None else ()
            known = {name: one for name, one in known.items() if name in there}
        if known:
            self._waiting[queue.name] = known
        else:
            self._waiting.pop(queue.name, None)

    def incomplete(self, queue: str) -> Incomplete:
        """What is incomplete on a queue, as far as passes have come."""
        known = self._waiting.get(queue, {})
        if not known:
            return Incomplete()
        oldest = min(known, key=lambda name: known[name].since)
        return Incomplete(len(known), known[oldest].since, oldest[0], whole_group=not oldest[1])

    def parts(self, queue: LocalQueue, name: Name) -> list[_Part] | None:
        """All parts in logical order; None while one is missing or locked by someone else."""
        group, sequence = name
        there = self._core.store.find(queue.name, b"", None, None, group)
        tokens = tuple(one for one in there if queue.locked.get(one, BROKER) is BROKER)
        waiting = self._waiting.setdefault(queue.name, {})
        known = waiting.get(name)
        if known is not None and known.parts == tokens:
            return None
        if sequence or len(tokens) <= MAX_GROUP:
            found = sorted(self._read(queue, tokens, sequence), key=lambda one: physical_key(one.head))
            sizes = [(one.head, one.length) for one in found]
            if is_complete_message(sizes) if sequence else is_complete_group(sizes):
                waiting.pop(name, None)
                return found
        waiting[name] = _Waiting(known.since if known is not None else self._core.now(), tokens)
        return None

    def _read(self, queue: LocalQueue, tokens: Sequence[int], sequence: int) -> Iterator[_Part]:
        """Read the parts of a group, or of one message in it, without keeping more than one part's data in memory."""
        now = int(self._core.now() * 1_000_000)
        for token in tokens:
            one = self._core.store.read(queue.name, b"", token)
            if one is None or 0 < one.expiry <= now or sequence not in {0, physical_key(one.head)[1]}:
                continue
            yield _Part(token, one.head[:MQMD_LENGTH], len(one.head) - MQMD_LENGTH + len(one.body))

    def joined(self, queue: LocalQueue, segments: list[_Part]) -> Message:
        """Segments as one message, under the token of the first. Its backout count is the highest of theirs."""
        pieces: list[bytes] = []
        left, backout, first = self.longest + 1, 0, None
        for part in segments:
            one = self._core.store.read(queue.name, b"", part.token) if left > 0 else None
            if one is not None:
                first = first or one
                data = one.head[MQMD_LENGTH:] + one.body
                pieces.append(data[:left])
                left -= len(data)
                backout = max(backout, one.backout)
        assert first is not None  # noqa: S101 -- it was there a moment ago, and the lock is held
        head = whole(first.head[:MQMD_LENGTH], segments[-1].head)
        if left <= 0:
            head = descriptor.with_integer(head, "original_length", sum(part.length for part in segments))
        return Message(first.token, head, b"".join(pieces), first.put_time, backout, first.expiry)


def _by_sequence(parts: list[_Part]) -> Iterator[list[_Part]]:
    begin = 0
    for at in range(1, len(parts) + 1):
        if at == len(parts) or physical_key(parts[at].head)[1] != physical_key(parts[begin].head)[1]:
            yield parts[begin:at]
            begin = at
