"""Logical messages for rules: segments as one message, and, where a rule asks for it, groups only when they are whole.

For the batch port this is what MQGMO_COMPLETE_MSG and MQGMO_ALL_MSGS_AVAILABLE are for programs (section 7 of the MQI
reference, Groups and segments). Incomplete messages and groups stay on their queue, do not hold up others, and are
counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.errors import StoreCorrupt
from gateway.mq import constants as mq
from gateway.mq import transmitted_segments
from gateway.ports.batch import MQMD_LENGTH, Stored
from gateway.ports.sources import MAX_GROUP, Incomplete
from gateway.queue_manager import descriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import FLAGS
from gateway.queue_manager.groups import agreeing, is_complete_group, is_complete_message, physical_key, whole
from gateway.queue_manager.objects.local_queue import BROKER, LocalQueue
from gateway.queue_manager.store.unit import Message

NO_FLAGS = bytes(4)
_SEGMENTED = mq.MQMF_SEGMENT | mq.MQMF_LAST_SEGMENT
_IN_GROUP = mq.MQMF_MSG_IN_GROUP | mq.MQMF_LAST_MSG_IN_GROUP
MOST_HANDED_OUT = 1000
"""The most whole groups of a queue that are remembered as handed out."""
Name = tuple[bytes, int]
"""GroupId and MsgSeqNumber of a segmented message (0: a whole group)."""
_FORMAT = slice(32, 40)


def may_be_part(message: Message) -> bool:
    """Whether a message may be a segment, or one of a group, by its descriptor or behind a transmission header."""
    return message.head[FLAGS] != NO_FLAGS or message.head[_FORMAT] == mq.MQFMT_XMIT_Q_HEADER


def transmitted_part(message: Message) -> transmitted_segments.Part | None:
    """The segment that a message on a transmission queue holds; None if it holds none."""
    if message.head[_FORMAT] != mq.MQFMT_XMIT_Q_HEADER:
        return None
    data, length = message.head[MQMD_LENGTH:], len(message.head) - MQMD_LENGTH + len(message.body)
    missing = transmitted_segments.HEADERS_LENGTH - len(data)
    if missing > 0:
        data += message.body[:missing]
    return transmitted_segments.part_of(message.head[:MQMD_LENGTH], data, length)


class _Waiting(NamedTuple):
    """A message or group of which parts are missing."""

    since: float
    parts: tuple[int, ...]
    """The tokens of the parts that were there at the last look."""


class _Transmitted(NamedTuple):
    """A segment on a transmission queue."""

    token: int
    part: transmitted_segments.Part


class _Part(NamedTuple):
    """A message or segment without its data."""

    token: int
    head: bytes
    length: int


class QueuePass:
    """One pass over a queue, front to back."""

    def __init__(self, logical_messages: LogicalMessages, queue: LocalQueue) -> None:
        self._logical_messages = logical_messages
        self._queue = queue
        self._seen: set[Name] = set()
        self.parts: dict[int, tuple[int, ...]] = {}
        """The tokens of a message's segments, by the token under which the message is returned: that of its first
        segment."""
        self.incomplete: set[Name] = set()
        self._transmitted: dict[transmitted_segments.Logical, dict[int, _Transmitted]] = {}
        """Segments behind transmission headers that the pass has met, by their offsets."""
        self._begun: dict[Name, tuple[int, ...]] = {}

    def logical(self, messages: Sequence[Message], limit: int) -> list[Message]:
        """What a rule gets of the next messages on the queue: whole logical messages, and as they are those that are
        neither segments nor grouped. No more than `limit`, except for the rest of a group."""
        logical: list[Message] = []
        for message in messages:
            if len(logical) >= limit:
                break
            transmitted = transmitted_part(message)
            if transmitted is not None:
                logical += self._arrived(message, transmitted)
                continue
            flags = int.from_bytes(message.head[FLAGS], "little")
            grouped = flags & _IN_GROUP and self._queue.whole_groups
            if not grouped and not flags & _SEGMENTED:
                logical.append(message)
                continue
            group, sequence, _ = physical_key(message.head)
            name = (group, 0 if grouped else sequence)
            if name not in self._seen:
                self._seen.add(name)
                logical += self._joined(name)
        return logical

    def _arrived(self, message: Message, part: transmitted_segments.Part) -> list[Message]:
        """The message in segments that this one completes, if it does. A pass remembers what it has seen: nothing on a
        transmission queue tells where the other segments are."""
        there = self._transmitted.setdefault(part.logical, {})
        there.setdefault(part.offset, _Transmitted(message.token, part))
        known = [there[offset] for offset in sorted(there)]
        name = part.logical.group_id, part.logical.sequence
        if not any(one.part.last for one in known) or not transmitted_segments.is_whole([one.part for one in known]):
            self._begun[name] = tuple(one.token for one in known)
            return []
        del self._transmitted[part.logical]
        self._begun.pop(name, None)
        self.parts[known[0].token] = tuple(one.token for one in known)
        return [self._logical_messages.transmitted(self._queue, known)]

    def named(self, stored: list[Stored]) -> list[Stored]:
        """Give each message of several segments the tokens of all of them, as these are what is taken."""
        if not self.parts:
            return stored
        return [message._replace(token=self.parts.get(message.token, message.token)) for message in stored]  # type: ignore[call-overload]

    def begun(self) -> Iterator[tuple[Name, tuple[int, ...]]]:
        """Messages on a transmission queue of which segments are missing, with the tokens of those that are there."""
        for name, tokens in self._begun.items():
            self.incomplete.add(name)
            yield name, tokens

    def _joined(self, name: Name) -> list[Message]:
        """The messages of a group, or the one message of these segments; none while a part is missing."""
        parts = self._logical_messages.parts(self._queue, name)
        if parts is None:
            self.incomplete.add(name)
            return []
        messages = []
        for segments in _by_sequence(parts):
            messages.append(self._logical_messages.joined(self._queue, segments))
            if len(segments) > 1:
                self.parts[segments[0].token] = tuple(part.token for part in segments)
        return messages


class LogicalMessages:
    """Puts logical messages together. Called with the queue manager's lock held."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[str, dict[Name, _Waiting]] = {}
        self._handed_out: dict[str, dict[bytes, frozenset[int]]] = {}
        """The whole groups of each queue that were handed out last, with the tokens of their parts."""

    @property
    def longest(self) -> int:
        """The longest message that is put together from segments: as long as any other may be. Of a longer one the
        beginning is kept, and OriginalLength says how long it is."""
        return self._core.attribute("MAXMSGL")

    def finds(self, queue: LocalQueue) -> bool:
        """Whether parts can be found by their group. If not, some of the work that this takes on a deep queue has been
        done, and consumers are called again to go on."""
        if self._core.store.prepare_find(queue.name, b"", "group_id"):
            return True
        self._core.wake(queue)
        return False

    def page(self, queue: LocalQueue) -> QueuePass:
        """Begin a pass over a queue."""
        return QueuePass(self, queue)

    def seen(self, queue: LocalQueue, page: QueuePass | None, *, end: bool) -> None:
        """End a pass; `end`: it reached the end of the queue."""
        waiting = self._waiting.get(queue.name, {})
        for name, tokens in page.begun() if page is not None else ():
            waiting.setdefault(name, _Waiting(self._core.now(), tokens))
        if end and waiting:
            there = page.incomplete if page is not None else ()
            waiting = {name: parts for name, parts in waiting.items() if name in there}
        if waiting:
            self._waiting[queue.name] = waiting
        else:
            self._waiting.pop(queue.name, None)

    def incomplete(self, queue: str) -> Incomplete:
        """What is incomplete on a queue, as far as passes have found out."""
        waiting = self._waiting.get(queue, {})
        if not waiting:
            return Incomplete()
        oldest = min(waiting, key=lambda name: waiting[name].since)
        messages = sum(len(one.parts) for one in waiting.values())
        return Incomplete(len(waiting), waiting[oldest].since, oldest[0], not oldest[1], messages)

    def parts(self, queue: LocalQueue, name: Name) -> list[_Part] | None:
        """All parts in logical order; None while one is missing or locked by someone else."""
        group, sequence = name
        tokens = self._there(queue, group)
        if not sequence and self._is_rest(queue, group, tokens):
            return sorted(self._read(queue, tokens, 0), key=lambda part: physical_key(part.head)) or None
        waiting = self._waiting.setdefault(queue.name, {})
        before = waiting.get(name)
        if before is not None and before.parts == tokens:
            return None
        if sequence or len(tokens) <= MAX_GROUP:
            parts = sorted(self._read(queue, tokens, sequence), key=lambda part: physical_key(part.head))
            sizes = [(part.head, part.length) for part in parts]
            complete = is_complete_message(sizes) if sequence else is_complete_group(sizes)
            if complete and all(map(_agree, _by_sequence(parts))):
                waiting.pop(name, None)
                if not sequence:
                    self._hand_out(queue, group, frozenset(tokens))
                return parts
        waiting[name] = _Waiting(before.since if before is not None else self._core.now(), tokens)
        return None

    def _there(self, queue: LocalQueue, group: bytes) -> tuple[int, ...]:
        """The tokens of the parts that are there; none if one cannot be read, as it will be missing for ever."""
        try:
            there = self._core.store.find(queue.name, b"", None, None, group)
            return tuple(one.token for one in there if queue.locked.get(one.token, BROKER) is BROKER)
        except StoreCorrupt:
            return ()

    def _hand_out(self, queue: LocalQueue, group: bytes, tokens: frozenset[int]) -> None:
        handed_out = self._handed_out.setdefault(queue.name, {})
        handed_out.pop(group, None)
        handed_out[group] = tokens
        if len(handed_out) > MOST_HANDED_OUT:
            del handed_out[next(iter(handed_out))]

    def _is_rest(self, queue: LocalQueue, group: bytes, tokens: Sequence[int]) -> bool:
        """Whether these are what is left of a group that was handed out whole: some of its messages have been taken,
        and those that could be neither delivered nor dead-lettered, or were not looked at in time, come again by
        themselves."""
        handed_out = self._handed_out.get(queue.name, {}).get(group)
        if handed_out is None or not handed_out > set(tokens):
            return False
        self._hand_out(queue, group, handed_out)  # it is among the last again
        return True

    def _read(self, queue: LocalQueue, tokens: Sequence[int], sequence: int) -> Iterator[_Part]:
        """Read the parts of a group, or of one message in it, keeping no more than one part's data in memory."""
        now = int(self._core.now() * 1_000_000)
        for token in tokens:
            message = self._core.damage.read(queue.name, b"", token)
            if message is None or 0 < message.expiry <= now or sequence not in {0, physical_key(message.head)[1]}:
                continue
            yield _Part(token, message.head[:MQMD_LENGTH], len(message.head) - MQMD_LENGTH + len(message.body))

    def joined(self, queue: LocalQueue, segments: list[_Part]) -> Message:
        """Segments as one message, under the token of the first, with the highest of their backout counts."""
        pieces: list[bytes] = []
        left, backout, first = self.longest + 1, 0, None
        for part in segments:
            message = self._core.store.read(queue.name, b"", part.token) if left > 0 else None
            if message is not None:
                first = first or message
                data = message.head[MQMD_LENGTH:] + message.body
                pieces.append(data[:left])
                left -= len(data)
                backout = max(backout, message.backout)
        assert first is not None  # noqa: S101 -- it was there a moment ago, and the lock is held
        head = whole(first.head[:MQMD_LENGTH], segments[-1].head)
        if left <= 0:
            head = descriptor.with_integer(head, "original_length", sum(part.length for part in segments))
        return Message(first.token, head, b"".join(pieces), first.put_time, backout, first.expiry)

    def transmitted(self, queue: LocalQueue, segments: list[_Transmitted]) -> Message:
        """Segments behind transmission headers as one message, behind the header of the first."""
        pieces: list[bytes] = []
        left, backout, first = self.longest + 1, 0, None
        for one in segments:
            message = self._core.store.read(queue.name, b"", one.token) if left > 0 else None
            if message is not None:
                first = first or message
                data = message.head[MQMD_LENGTH:] + message.body
                pieces.append(data[: transmitted_segments.HEADERS_LENGTH + max(0, left)])
                left -= one.part.length
                backout = max(backout, message.backout)
        assert first is not None  # noqa: S101 -- it was there a moment ago, and the lock is held
        length = sum(one.part.length for one in segments) if left <= 0 else -1
        head = first.head[:MQMD_LENGTH]
        whole = transmitted_segments.joined(head, pieces, length)
        if left <= 0:
            head = descriptor.with_integer(head, "original_length", length + transmitted_segments.HEADERS_LENGTH)
        return Message(first.token, head, whole, first.put_time, backout, first.expiry)


def _agree(segments: list[_Part]) -> bool:
    """Whether the data of all segments have one character set and encoding: only then do they form one message."""
    return len(segments) == 1 or not agreeing([part.head for part in segments])[1]


def _by_sequence(parts: list[_Part]) -> Iterator[list[_Part]]:
    begin = 0
    for at in range(1, len(parts) + 1):
        if at == len(parts) or physical_key(parts[at].head)[1] != physical_key(parts[begin].head)[1]:
            yield parts[begin:at]
            begin = at
