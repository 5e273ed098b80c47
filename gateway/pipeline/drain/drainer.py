"""Drains queues of IBM MQ into a journal: MQGET under syncpoint, append with sync, MQCMIT. Spark reads the journal.

Only the last unit of work can be in doubt: it may be in the journal and back on the queue. The names of its messages
are in a state record, written in the same frame as the messages. Before a drainer gets anything else, it asks for each
of them by MsgId: those that are back on the queue are taken, as often as they were in the unit, and not appended again.
Another message with the same MsgId is appended. So MsgIds need not be unique, and nothing stays in doubt.

A `Drainer` drains one queue over one connection. `QueueDrain` drains several in turn and connects again after errors.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from xxhash import xxh3_64_digest

from gateway.config.units import show_duration
from gateway.errors import MQError, StoreUnavailable
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.pipeline.drain.ibm_queue import GotMessage, IbmQueue
from gateway.pipeline.drain.journal_server import LockedJournal
from gateway.pipeline.failpoint import failpoint
from gateway.pipeline.journal.owner import Journal
from gateway.queue_manager.store.unit import ID_LENGTH, LanePuts, StoreUnit

STATE_PREFIX = b"pipeline/drain/"
NAME_LENGTH = ID_LENGTH + 8


class DrainedQueue(Protocol):
    """A queue under syncpoint. One thread, one connection, exclusive input."""

    def get(self, limit: int, wait: float) -> Sequence[GotMessage]:
        """Up to `limit` messages in one unit of work; empty when none came within `wait` seconds."""

    def get_by_id(self, msg_id: bytes) -> GotMessage | None:
        """The next message with this MsgId, in the same unit of work; None when there is none."""

    def commit(self) -> None:
        """MQCMIT. After an error the outcome is in doubt."""

    def back_out(self) -> None:
        """MQBACK."""


@dataclass(slots=True)
class Drained:
    """Counts of one queue since the process started."""

    messages: int = 0
    units: int = 0
    repeated: int = 0
    """Messages that came again after a crash and were in the journal already."""


class Drainer:
    """Drains one queue to the queue of the same name (or `target`) of a journal. After an error of the queue make a new
    one: it reads from the journal what is in doubt."""

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
            self._forget_unit()
        return len(messages)

    def _resolve(self) -> None:
        """Take those messages of the unit in doubt that are back on the queue, in units of work of their own."""
        for msg_id in dict.fromkeys(name[:ID_LENGTH] for name in self._in_doubt):
            while True:
                with self._unit():
                    messages = list(islice(self._with_id(msg_id), self.batch))
                    self._take(messages)
                if len(messages) < self.batch:
                    break
        self._in_doubt.clear()

    def _with_id(self, msg_id: bytes) -> Iterator[GotMessage]:
        while (message := self.source.get_by_id(msg_id)) is not None:
            yield message

    @contextmanager
    def _unit(self) -> Iterator[None]:
        """A unit of work that is backed out when anything in it fails."""
        try:
            yield
        except BaseException:
            self.source.back_out()
            raise

    def _take(self, messages: Sequence[GotMessage]) -> None:
        """The rest of a unit of work: append the new messages, then commit their removal from the queue."""
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

    def _forget_unit(self) -> None:
        """The queue is empty, so nothing is in doubt: delete the state record."""
        if self._key in self.journal.index.state:
            self.journal.commit(StoreUnit(state={self._key: None}))

    def _without_repeated(self, messages: Sequence[GotMessage]) -> tuple[list[GotMessage], Counter[bytes]]:
        """The messages that the unit in doubt has not appended, and the names of that unit that have not come again.
        A name counts as often as the unit had it."""
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

    def _append(self, messages: list[GotMessage]) -> None:
        """Append messages and their names in one frame, on disk when this returns. Names in doubt stay in the record:
        all of these messages may be back on the queue until MQCMIT."""
        in_doubt = Counter(map(name_of, messages)) + self._in_doubt
        unit = StoreUnit(puts=lanes_of(self.target, messages), state={self._key: b"".join(in_doubt.elements())})
        failpoint("drain.append.before")
        self.journal.commit(unit)
        failpoint("drain.append.after")


def name_of(message: GotMessage) -> bytes:
    """What identifies a message each time it comes: its MsgId, and a digest of CorrelId, put time and data. Expiry and
    backout count are left out, because they change."""
    return message.msg_id + xxh3_64_digest(message.correl_id + message.put_time + message.data)


def lanes_of(queue: str, messages: Sequence[GotMessage]) -> list[LanePuts]:
    """The messages by priority, as the store takes them, with identifiers and put times as columns."""
    lanes: dict[int, LanePuts] = {}
    shared: dict[bytes, bytes] = {}
    for message in messages:
        priority = message.priority
        lane = lanes.get(priority)
        if lane is None:
            lane = LanePuts(queue, priority=priority, msg_ids=[], correl_ids=[], put_times=[])
            lanes[priority] = lane
        head, body, micros = message.parts()
        lane.heads.append(shared.setdefault(head, head))
        lane.bodies.append(body)
        lane.msg_ids.append(message.msg_id)  # type: ignore[union-attr]
        lane.correl_ids.append(message.correl_id)  # type: ignore[union-attr]
        lane.put_times.append(micros)  # type: ignore[union-attr]
    return list(lanes.values())


# ---- several queues, and connections that break

_TRIED_AGAIN = frozenset({Action.RECONNECT, Action.HOLD, Action.RETRY})
HELD = mq.MQRC_OBJECT_IN_USE
LONGEST_PAUSE = 30.0
HELD_FOR = 60.0
"""Seconds that `--once` waits for a queue that the last drainer's connection still has open."""


@dataclass(slots=True)
class QueueDrain:
    """Drains queues of one queue manager in turn, over one connection that is made again when it breaks."""

    connect: Callable[[], Any]
    """Returns a `Session`. Its driver's `on_left_open` ends the process."""
    journal: LockedJournal
    queues: tuple[str, ...]
    target: str = ""
    batch: int = 1000
    wait: float = 1.0
    report: Callable[[str], None] = lambda _text: None
    done: dict[str, Drained] = field(default_factory=dict)
    connected: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.done = {queue: Drained() for queue in self.queues}

    def run(self, *, once: bool, pause: float = 1.0) -> None:
        """Drain until the queues are empty (`once`) or `stopping` is set. MQError when trying again cannot help."""
        first, longest = pause, max(pause, LONGEST_PAUSE)
        began, landed, full = time.monotonic(), 0, False
        while not self.stopping.is_set():
            try:
                self._connected(once=once)
                return
            except MQError as error:
                if not self._tries_again(error.reason, time.monotonic() - began if once else 0.0):
                    raise
                pause = first if self.connected else min(longest, 2 * pause)
                self.report(f"{error}: {explain(error.reason)}; again in {show_duration(pause)}")
                self.connected = False
            except StoreUnavailable as error:  # the unit was backed out: its messages are on their queue
                if once:
                    raise
                before, landed = landed, sum(done.units for done in self.done.values())
                longer = min(longest, 2 * pause) if full and landed == before else first
                pause, full, self.connected = longer, True, False
                self.report(f"{error}; again in {show_duration(pause)}")
            self.stopping.wait(pause)

    def _tries_again(self, reason: int, waited: float) -> bool:
        """Whether trying again can help. `--once` ends soon: it waits for a queue that the last drainer's connection
        still has open, but not for a queue manager that does not answer."""
        if reason == HELD:
            return waited < HELD_FOR
        return action_for(reason) in _TRIED_AGAIN and (self.connected or not waited)

    def _connected(self, *, once: bool) -> None:
        session = self.connect()
        try:
            drainers = [self._drainer(session, queue) for queue in self.queues]
            self.connected = True
            self._drain(drainers, once=once)
        finally:
            session.leave()

    def _drainer(self, session: Any, queue: str) -> Drainer:
        source = IbmQueue(session, queue)
        return Drainer(source, self.journal, queue, self.target, self.batch, self.done[queue])

    def _drain(self, drainers: list[Drainer], *, once: bool) -> None:
        """Rounds over the queues. A round waits for messages only when the round before got none."""
        idle = False
        while not self.stopping.is_set():
            got = sum([drainer.step(self.wait / len(drainers) if idle and not once else 0.0) for drainer in drainers])
            if not got and once:
                return
            idle = not got
            if idle:
                self.journal.tidy()

    def figures(self) -> dict[str, Any]:
        """The counts by queue, for `--json`."""
        queues = {
            queue: {"messages": done.messages, "repeated": done.repeated, "units": done.units}
            for queue, done in self.done.items()
        }
        return {"connected": self.connected, "queues": queues}

    def metrics(self) -> str:
        """The counts in Prometheus' text format."""
        lines = ["# TYPE mqgate_drain_connected gauge", f"mqgate_drain_connected {int(self.connected)}"]
        for name, of in (("messages", "messages"), ("repeated_messages", "repeated"), ("units", "units")):
            lines.append(f"# TYPE mqgate_drain_{name}_total counter")
            lines += [
                f'mqgate_drain_{name}_total{{queue="{queue}"}} {getattr(done, of)}' for queue, done in self.done.items()
            ]
        return "\n".join(lines) + "\n"
