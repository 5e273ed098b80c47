"""Real IBM MQ to a journal: MQGET under syncpoint, append with sync, MQCMIT. What Spark then reads is the journal.

Only the last unit of work can be in doubt: it may be in the journal and be back on the queue. What names its messages
stands in a state record written in the same frame as they are. Before anything else is got, a drainer asks for each of
them by its MsgId: those that are back are taken, each as often as it was there, and not appended again. A message that
only has the same MsgId is another one. So MsgIds need not be unique, and nothing stays in doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from xxhash import xxh3_64_digest

from gateway.mq import rfh2
from gateway.pipeline.decode.heads import put_micros
from gateway.pipeline.drain.drained_queue import Got
from gateway.pipeline.land.failpoint import failpoint
from gateway.pipeline.source.owner import Journal
from gateway.ports.batch import MQMD_LENGTH
from gateway.queue_manager.store.unit import ID_LENGTH, LanePuts, StoreUnit

STATE_PREFIX = b"pipeline/drain/"
NAME_LENGTH = ID_LENGTH + 8
_PRIORITY = slice(40, 44)
_FORMAT = slice(32, 40)
_MSG_ID, _CORREL_ID, _BEHIND_IDS = 48, 72, 96
_PUT_DATE, _PUT_TIME, _BEHIND_TIMES = 304, 312, 320
_NO_IDS, _NO_TIMES = bytes(48), b" " * 16


class DrainedQueue(Protocol):
    """A queue under syncpoint. One thread, one connection, exclusive input."""

    def get(self, limit: int, wait: float) -> Sequence[Got]:
        """Up to `limit` messages in one unit of work; empty when none came within `wait` seconds."""

    def get_by_id(self, msg_id: bytes) -> Got | None:
        """The next message with this MsgId, in the same unit of work; None when there is none."""

    def commit(self) -> None:
        """MQCMIT. An error means that the outcome is not known."""

    def back_out(self) -> None:
        """MQBACK."""


@dataclass(slots=True)
class Drained:
    """What has been done so far."""

    messages: int = 0
    units: int = 0
    repeated: int = 0
    """Messages that came again after a crash and were in the journal already."""


class Drainer:
    """One queue to the queue of the same name (or `target`) of a journal. After an error of the queue's a new one is
    made: what is in doubt is read back from the journal."""

    def __init__(
        self,
        source: DrainedQueue,
        journal: Journal,
        queue: str,
        target: str = "",
        batch: int = 1000,
        drained: Drained | None = None,
    ) -> None:
        self.source = source
        self.journal = journal
        self.target = target or queue
        self.batch = batch
        self.drained = drained or Drained()
        self._key = STATE_PREFIX + queue.encode()
        self._in_doubt = self._load()

    def _load(self) -> Counter[bytes]:
        """The names of the last unit's messages, which may be back on the queue."""
        record = self.journal.index.state.get(self._key, b"")
        return Counter(record[at : at + NAME_LENGTH] for at in range(0, len(record), NAME_LENGTH))

    def step(self, wait: float) -> int:
        """One unit of work; how many messages were got."""
        if self._in_doubt:
            self._resolve()
        with self._unit():
            messages = self.source.get(self.batch, wait)
            self._take(messages)
        if not messages:
            self._settle()
        return len(messages)

    def _resolve(self) -> None:
        """What of the last unit is back on the queue leaves it, in units of work of its own."""
        for msg_id in dict.fromkeys(name[:ID_LENGTH] for name in self._in_doubt):
            while True:
                with self._unit():
                    found = list(islice(self._with_id(msg_id), self.batch))
                    self._take(found)
                if len(found) < self.batch:
                    break
        self._in_doubt.clear()

    def _with_id(self, msg_id: bytes) -> Iterator[Got]:
        while (found := self.source.get_by_id(msg_id)) is not None:
            yield found

    @contextmanager
    def _unit(self) -> Iterator[None]:
        """A unit of work that is backed out when anything in it fails."""
        try:
            yield
        except BaseException:
            self.source.back_out()
            raise

    def _take(self, messages: Sequence[Got]) -> None:
        """The rest of a unit of work: append what is new, then let it leave the queue."""
        failpoint("drain.get.after")
        if not messages:
            return
        fresh, left = self._without_repeated(messages)
        if fresh:
            self._append(fresh)
        failpoint("drain.commit.before")
        self.source.commit()
        failpoint("drain.commit.after")
        self._in_doubt = left
        self.drained.messages += len(fresh)
        self.drained.repeated += len(messages) - len(fresh)
        self.drained.units += 1

    def _settle(self) -> None:
        """The queue is empty: nothing is in doubt."""
        if self._key in self.journal.index.state:
            self.journal.commit(StoreUnit(state={self._key: None}))

    def _without_repeated(self, messages: Sequence[Got]) -> tuple[list[Got], Counter[bytes]]:
        """What the unit in doubt has not appended, each message as often as it was there; and what of that unit has
        still not come again."""
        if not self._in_doubt:
            return list(messages), Counter()
        fresh, left = [], Counter(self._in_doubt)
        for message in messages:
            name = name_of(message)
            if left[name] > 0:
                left[name] -= 1
            else:
                fresh.append(message)
        return fresh, +left

    def _append(self, messages: list[Got]) -> None:
        """Messages and their names in one frame, on disk when this returns. What was in doubt stays in the record: all
        of it may be back on the queue until MQCMIT."""
        in_doubt = Counter(map(name_of, messages)) + self._in_doubt
        unit = StoreUnit(puts=lanes_of(self.target, messages), state={self._key: b"".join(in_doubt.elements())})
        failpoint("drain.append.before")
        self.journal.commit(unit)
        failpoint("drain.append.after")

    def run(self, *, stop_when_empty: bool, wait: float = 5.0) -> Drained:
        """Until the queue is empty, or for ever."""
        while self.step(wait) or not stop_when_empty:
            pass
        return self.drained


def name_of(message: Got) -> bytes:
    """The same for the same message each time it comes: its MsgId, and a digest of CorrelId, put time and data. Not of
    its expiry and backout count, which change."""
    md = message.md
    rest = md[_CORREL_ID:_BEHIND_IDS] + md[_PUT_DATE:_BEHIND_TIMES] + message.data
    return md[_MSG_ID:_CORREL_ID] + xxh3_64_digest(rest)


def lanes_of(queue: str, messages: Sequence[Got]) -> list[LanePuts]:
    """The messages by priority, as the store takes them: what differs in every message stands in columns of its own, so
    that messages of one kind share their head."""
    lanes: dict[int, LanePuts] = {}
    shared: dict[bytes, bytes] = {}
    for md, data in messages:
        priority = priority_of(md)
        lane = lanes.get(priority)
        if lane is None:
            lane = LanePuts(queue, priority=priority, msg_ids=[], correl_ids=[], put_times=[])
            lanes[priority] = lane
        cut = header_length(md, data)
        head, micros = blanked(md)
        head += data[:cut]
        lane.heads.append(shared.setdefault(head, head))
        lane.bodies.append(data[cut:])
        lane.msg_ids.append(md[_MSG_ID:_CORREL_ID])  # type: ignore[union-attr]
        lane.correl_ids.append(md[_CORREL_ID:_BEHIND_IDS])  # type: ignore[union-attr]
        lane.put_times.append(micros)  # type: ignore[union-attr]
    return list(lanes.values())


def priority_of(md: bytes) -> int:
    """Of a message that was got: 0 to 9."""
    return min(max(int.from_bytes(md[_PRIORITY], "little", signed=True), 0), 9)


def blanked(md: bytes) -> tuple[bytes, int]:
    """The descriptor without identifiers and put time, and the put time in microseconds; 0 when it stays there."""
    micros = put_micros(md[_PUT_DATE:_PUT_TIME].decode("latin-1"), md[_PUT_TIME:_BEHIND_TIMES].decode("latin-1")) or 0
    times = _NO_TIMES if micros else md[_PUT_DATE:_BEHIND_TIMES]
    return b"".join((md[:_MSG_ID], _NO_IDS, md[_BEHIND_IDS:_PUT_DATE], times, md[_BEHIND_TIMES:MQMD_LENGTH])), micros


def header_length(md: bytes, data: bytes) -> int:
    """How much of the data is an MQRFH2 in our byte order: it belongs to the head. Anything else stays in the body."""
    if md[_FORMAT] != rfh2.FORMAT or data[:4] != b"RFH " or len(data) < 36:
        return 0
    length = int.from_bytes(data[8:12], "little", signed=True)
    return length if 36 <= length <= len(data) else 0
