"""Real IBM MQ to a journal: MQGET under syncpoint, append with sync, MQCMIT. What Spark then reads is the journal.

Only the last unit of work can be in doubt: it may be in the journal and come again from the queue. Its MsgIds stand in
a state record written in the same frame as its messages, so redelivered ones are recognised, each as often as it was
there, and taken without being appended again. The record is cleared when the queue runs empty, so MsgIds need to be
unique only within the units around a crash.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gateway.backends.embedded.store.unit import LanePuts, StoreUnit
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.pipeline.failpoint import failpoint
from gateway.pipeline.owner import Journal
from gateway.ports.batch import MQMD_LENGTH
from gateway.ports.mqi import GetOptions, ObjectDescriptor, QueueManagerConnection

STATE_PREFIX = b"pipeline/drain/"
MSG_ID = slice(48, 72)
POLL = 0.05
EMPTY_MD = mqmd.build()


class Got(NamedTuple):
    """One message: descriptor (364 bytes) and data."""

    md: bytes
    data: bytes


class DrainedQueue(Protocol):
    """A queue of IBM MQ under syncpoint. One thread, one connection, exclusive input."""

    def get(self, limit: int, wait: float) -> Sequence[Got]:
        """Up to `limit` messages in one unit of work; empty when none came within `wait` seconds."""

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


class MqiQueue:
    """A queue of any queue manager with the MQI port, opened for exclusive input."""

    def __init__(self, connection: QueueManagerConnection, queue: str, longest: int = 4 * 1024 * 1024) -> None:
        self._connection = connection
        self._longest = longest
        options = mq.MQOO_INPUT_EXCLUSIVE | mq.MQOO_FAIL_IF_QUIESCING
        self._handle = connection.open(ObjectDescriptor(name=queue), options).handle
        self._options = GetOptions(options=mq.MQGMO_SYNCPOINT | mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING, match=0)

    def get(self, limit: int, wait: float) -> Sequence[Got]:
        """What is there now; looks again for `wait` seconds when there is nothing."""
        until = time.monotonic() + wait
        while True:
            found = list(self._available(limit))
            if found or time.monotonic() >= until:
                return found
            time.sleep(POLL)

    def _available(self, limit: int) -> Iterator[Got]:
        for _ in range(limit):
            try:
                got = self._connection.get(self._handle, EMPTY_MD, self._options, self._longest)
            except MQError as error:
                if error.reason == mq.MQRC_NO_MSG_AVAILABLE:
                    return
                raise
            yield Got(got.md, got.data)

    def commit(self) -> None:
        """MQCMIT."""
        self._connection.commit()

    def back_out(self) -> None:
        """MQBACK."""
        self._connection.back()


class Drainer:
    """One queue to the queue of the same name (or `target`) of a journal."""

    def __init__(self, source: DrainedQueue, journal: Journal, queue: str, target: str = "", batch: int = 1000) -> None:
        self.source = source
        self.journal = journal
        self.target = target or queue
        self.batch = batch
        self.drained = Drained()
        self._key = STATE_PREFIX + queue.encode()
        self._in_doubt = self._load()

    def _load(self) -> Counter[bytes]:
        """The MsgIds of the last unit, which may come again."""
        record = self.journal.index.state.get(self._key)
        return Counter(bytes.fromhex(each) for each in json.loads(record)) if record else Counter()

    def step(self, wait: float) -> int:
        """One unit of work; how many messages were got."""
        try:
            messages = self.source.get(self.batch, wait)
            failpoint("drain.get.after")
            fresh, left = self._without_repeated(messages)
            if fresh:
                self._append(fresh)
        except BaseException:
            self.source.back_out()
            raise
        if messages:
            self.source.commit()
            failpoint("drain.commit.after")
            self._in_doubt = left
        else:
            self._settle()
        self.drained.messages += len(fresh)
        self.drained.repeated += len(messages) - len(fresh)
        self.drained.units += bool(messages)
        return len(messages)

    def _settle(self) -> None:
        """The queue is empty and nothing is in doubt: forget the last unit."""
        self._in_doubt.clear()
        if self._key in self.journal.index.state:
            self.journal.commit(StoreUnit(state={self._key: None}))

    def _without_repeated(self, messages: Sequence[Got]) -> tuple[list[Got], Counter[bytes]]:
        """What the unit in doubt has not appended, each message as often as it was there; and what of that unit has
        still not come again."""
        if not self._in_doubt:
            return list(messages), Counter()
        fresh, left = [], Counter(self._in_doubt)
        for message in messages:
            identifier = message.md[MSG_ID]
            if left[identifier] > 0:
                left[identifier] -= 1
            else:
                fresh.append(message)
        return fresh, +left

    def _append(self, messages: list[Got]) -> None:
        """Messages and their MsgIds in one frame, on disk when this returns. What was in doubt stays in the record: all
        of it may come again until MQCMIT."""
        in_doubt = Counter(message.md[MSG_ID] for message in messages) + self._in_doubt
        record = json.dumps([each.hex() for each in in_doubt.elements()]).encode()
        puts = LanePuts(
            self.target,
            priority=0,
            heads=[message.md[:MQMD_LENGTH] for message in messages],
            bodies=[message.data for message in messages],
        )
        failpoint("drain.append.before")
        self.journal.commit(StoreUnit(puts=[puts], state={self._key: record}))
        failpoint("drain.append.after")

    def run(self, *, stop_when_empty: bool, wait: float = 5.0) -> Drained:
        """Until the queue is empty, or for ever."""
        while self.step(wait) or not stop_when_empty:
            pass
        return self.drained
