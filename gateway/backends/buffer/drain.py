"""Drains the buffer: one `Forwarder` puts the entries of the main line to IBM MQ in order, and one more for each
destination that refuses puts the entries for that.

Entries are read a page at a time, and many are put in one unit of work, with the progress in the same unit: after a
crash of either side the progress says where to continue. A unit that is refused is narrowed down to the entry at fault;
then its rule decides (`refusal_policy`). What is tried again is set aside, so that it does not hold up anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import compress

from gateway.backends.buffer import refusal_policy
from gateway.backends.buffer.attempt_queue import AttemptQueue
from gateway.backends.buffer.link import Reads, Verdict
from gateway.backends.buffer.progress import Destination, Progress
from gateway.backends.buffer.record import Record, joined, left_of, messages_of, rows_of
from gateway.backends.buffer.refusal_policy import PolicyOf
from gateway.backends.buffer.spool import Entry, Line, Spool
from gateway.bridge import deadletter
from gateway.bridge.segments import is_further, segments
from gateway.errors import MQError, Refused
from gateway.mq.constants import name_of_reason
from gateway.mq.reason_policy import TOO_LONG, policy_for
from gateway.ports.batch import MQMD_LENGTH, Failure, Outcome, Puts, Scheduler, Takes, Unit
from gateway.ports.counters import NO_ROUTE, Counters, DeadLetterReason, DropReason, mqrc_label
from gateway.queue_manager.embedded import EmbeddedQueueManager

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
MAX_ROWS = 2000
"""The most uncommitted messages of a unit of work; a queue manager allows 10,000 by default (MAXUMSGS)."""


class Item:
    """An entry that is being put, or what is left of it."""

    __slots__ = ("dead", "dropped", "entry", "expired", "further", "ready", "rules", "unit")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.dead: Counter[tuple[str, DeadLetterReason]] = Counter()
        """Messages that go to the dead letters, by rule and reason; counted when that is committed."""
        self.expired: Counter[str] = Counter()
        """Messages that have expired, by rule; counted likewise."""
        self.dropped: Counter[tuple[str, DropReason]] = Counter()
        """Messages that their rule drops; counted likewise."""
        self.further = 0
        """Segments after the first one of their message: they are not counted as messages."""
        self.ready = False
        """Whether the time spent here has been subtracted from the expiry of its messages."""
        record = entry.record
        self.unit = Unit(list(record.unit.puts), record.unit.takes)
        self.rules = [rule or NO_ROUTE for rule in record.rules]

    @property
    def number(self) -> int:
        """The number of its record."""
        return self.entry.record.number

    def remove(self, index: int) -> Puts:
        """Take a run out of the unit and return it."""
        del self.rules[index]
        return self.unit.puts.pop(index)


class Forwarder:
    """Puts the entries of one line to IBM MQ, in order. `destination` is None for the main line."""

    def __init__(self, drain: Drain, line: Line, destination: Destination | None = None) -> None:
        self._drain = drain
        self._line = line
        self._destination = destination
        self._items: list[Item] = []
        self._most = MAX_ROWS
        """Entries of the next attempt: fewer while the one at fault is being looked for."""
        self._running = False
        self._pause = 0.0
        self._tries = 0
        """Refused attempts since anything was last put here."""
        self._cancel: Callable[[], None] | None = None
        self._leaving = 0
        """Removals from the store that are in progress."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits here and nothing is in progress."""
        return not self._running and not self._line.entries

    @property
    def at_rest(self) -> bool:
        """Whether it is idle and has nothing left in the store."""
        return self.idle and not self._leaving

    def kick(self) -> None:
        """Look for new entries; a pause in progress is not cut short."""
        if self._running or self._cancel or self._drain.attempts.progress is None or not self._line.entries:
            return
        self._running = True
        self._soon()

    def wake(self) -> None:
        """There is a new connection: end the pause."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._pause = 0.0
        self.kick()

    def _soon(self) -> None:
        self._drain.scheduler.soon(self._step)

    def _step(self) -> None:
        progress = self._drain.attempts.progress
        if progress is None:
            self._stop()
            return
        if not self._items and not self._read(self._reached(progress)):
            return
        batch, rows = list[Item](), 0
        for item in self._items[: self._most]:
            rows += rows_of(item.unit)
            if batch and rows > min(MAX_ROWS, self._drain.attempts.most_rows):
                break
            batch.append(item)
            if not item.ready:
                self._expire(item)
        self._drain.attempts.commit(
            joined([item.unit for item in batch]),
            lambda now: self._advanced(now, batch[-1].number),
            lambda verdict: self._told(batch, verdict),
        )

    def _stop(self) -> None:
        """The connection is lost: entries in memory may be out of date when it is back."""
        self._running = False
        self._items = []
        self._most = MAX_ROWS

    # The line

    def _reached(self, progress: Progress) -> int:
        return progress.main if self._destination is None else progress.aside.get(self._destination, 0)

    def _advanced(self, progress: Progress, number: int) -> Progress:
        if self._destination is None:
            return self._drain.pruned(progress.reached(number))
        return progress.aside_reached(self._destination, number)

    def _read(self, reached: int) -> bool:
        """Read the next page. Returns False if there is nothing to do in this step."""
        drain = self._drain
        try:
            page = drain.spool.page(self._line)
        except MQError as error:
            self._hold(str(error))
            return False
        if not page:
            self._running = False
            self._check_empty()
            return False
        there = [entry for entry in page if entry.record.number <= reached]
        if there:  # committed by an attempt whose answer was lost
            self._forget(there, sum(entry.messages for entry in there))
        self._items = [Item(entry) for entry in page[len(there) :]]
        if not self._items:
            self._soon()
            return False
        return self._destination is not None or self._divert()

    def _forget(self, entries: list[Entry], drained: int) -> None:
        drain = self._drain
        drain.counters.spool_drained_messages += drained
        takes = drain.spool.done(self._line, entries)
        self._leaving += 1
        self._remove(takes)
        drain.on_room()

    def _remove(self, takes: Takes) -> None:
        """Remove entries from the store as soon as its disk allows it; after a restart the progress tells that they
        were put."""
        drain = self._drain

        def removed(_unit: Unit, outcome: Outcome) -> None:
            if outcome.failures:
                drain.scheduler.later(LONGEST_PAUSE, lambda: self._remove(takes))
                return
            self._leaving -= 1
            self._check_empty()

        drain.store.submit(Unit(takes=[takes]), removed)

    def _check_empty(self) -> None:
        """End a destination's own line. Its progress may be dropped only when nothing of it is left in the store."""
        if self.at_rest:
            self._drain.emptied()

    def _expire(self, item: Item) -> None:
        """Subtract the time spent here from MQMD.Expiry, which counts from the put; expired messages are not put."""
        item.ready = True
        waited = int((self._drain.scheduler.now() - item.entry.record.at) * 10)
        for index in reversed(range(len(item.unit.puts))):
            puts, rule = item.unit.puts[index], item.rules[index]
            left = {head: left_of(head, waited) for head in set(puts.heads)}
            columns = zip([left[head] for head in puts.heads], puts.bodies, strict=True)
            rows = [(head, body) for head, body in columns if head is not None]
            item.expired[rule] += len(puts.heads) - len(rows)
            puts.heads[:] = [head for head, _ in rows]
            puts.bodies[:] = [body for _, body in rows]
            if not rows:
                item.remove(index)

    # Set aside

    def _divert(self) -> bool:
        """Set aside, durably and before their entry is removed, the runs for destinations that have something set aside
        already. Returns False while they are being written; this step is repeated afterwards."""
        spool, unit, after = self._drain.spool, Unit(), list[Callable[[], None]]()
        for item in self._items:
            for destination, (runs, rules) in self._refusing(item).items():
                line = spool.line_of(destination)
                if item.number <= line.last:  # done before a crash
                    continue
                record = Record(item.number, item.entry.record.at, Unit(runs), rules)
                puts = spool.aside_puts(line, record)
                unit.puts.append(puts)
                after.append(partial(spool.aside_added, line, record, puts))
        if unit:
            self._write(unit, after)
        return not unit

    def _refusing(self, item: Item) -> dict[Destination, tuple[list[Puts], list[str]]]:
        """Take the runs out of an item that are for destinations with something set aside. Returns them by
        destination."""
        found: dict[Destination, tuple[list[Puts], list[str]]] = {}
        for index in reversed(range(len(item.unit.puts))):
            run = item.unit.puts[index]
            destination = (run.queue, run.queue_manager)
            if destination in self._drain.spool.aside:
                runs, rules = found.setdefault(destination, ([], []))
                rules.insert(0, item.rules[index])
                runs.insert(0, item.remove(index))
        return found

    def _write(self, unit: Unit, after: list[Callable[[], None]]) -> None:
        def written(_unit: Unit, outcome: Outcome) -> None:
            if outcome.failures:
                self._hold(f"the buffer cannot be written: {outcome.failures[0].text}")
                return
            for call in after:
                call()
            self._drain.kick_aside()
            self._soon()

        self._drain.store.submit(unit, written)

    # Answers

    def _told(self, batch: list[Item], verdict: Verdict) -> None:
        if verdict.lost:
            self._stop()
        elif verdict.committed:
            self._pause, self._most = 0.0, MAX_ROWS
            self._drain.problems.pop(self._destination, None)
            del self._items[: len(batch)]
            if any((puts.queue, puts.queue_manager) == self._destination for one in batch for puts in one.unit.puts):
                self._tries = 0
            self._account(batch)
            self._soon()
        else:
            self._refused(batch, verdict.failures[0])

    def _account(self, batch: list[Item]) -> None:
        """Count what was committed: drained, dead-lettered, dropped or expired."""
        counters = self._drain.counters
        for item in batch:
            for rule, count in item.expired.items():
                counters.messages_dropped[rule, "expired"] += count
            for key, count in item.dead.items():
                counters.dlq_messages[key] += count
            for gone, count in item.dropped.items():
                counters.messages_dropped[gone] += count
        drained = sum(messages_of(item.unit) - item.further - item.dead.total() for item in batch)
        self._forget([item.entry for item in batch], drained)

    def _refused(self, batch: list[Item], failure: Failure) -> None:
        self._drain.counters.mq_errors[self._drain.name(), "put", mqrc_label(failure.reason)] += 1
        if len(batch) > 1:
            self._most = max(1, _place(batch, failure.puts))
            self._soon()
            return
        item = batch[0]
        text = f"{name_of_reason(failure.reason)}: {failure.text}"
        if failure.puts < 0:
            self._hold(text)
            return
        policy, aside = self._drain.policy_of(item.rules[failure.puts]), self._destination is not None
        act = refusal_policy.decide(policy, failure.reason, self._tries, aside=aside)
        if act == "aside":
            self._set_aside(item, failure.puts, text)
        elif act == "segment" and self._segment(item, failure.puts):
            self._soon()
        elif act in {"segment", "dead_letter"}:
            self._dead_letter(item, failure, text)
        elif act == "drop":
            self._drop(item, failure)
        else:
            self._tries += aside
            self._hold(text, refusal_policy.pause(policy, self._tries - 1) if aside else None)

    def _drop(self, item: Item, failure: Failure) -> None:
        """Drop a run, as its rule says; the progress records that."""
        rule = item.rules[failure.puts]
        run = item.remove(failure.puts)
        item.dropped[rule, policy_for(failure.reason).drop] += _count_messages(run.heads)
        item.further -= len(run.heads) - _count_messages(run.heads)
        self._soon()

    def _set_aside(self, item: Item, index: int, text: str) -> None:
        run = item.unit.puts[index]
        destination = (run.queue, run.queue_manager)
        self._drain.spool.line_of(destination)
        self._drain.problems[destination] = text
        self._items = []  # when read again it takes its own place in the order of acceptance
        self._soon()

    def _segment(self, item: Item, index: int) -> bool:
        """Cut what is too long into segments; returns False if nothing can be cut."""
        run, now = item.unit.puts[index], self._drain.scheduler.now()
        try:
            more = _cut_long(run, self._drain.reads.max_length(run.queue), f"{now!r} {item.number} {index}")
        except (MQError, Refused):
            return False
        item.further += more
        return more > 0

    def _apart(self, item: Item, index: int) -> int:
        """Put the messages of a run that fit their queue into a run of their own, in front of the others; returns where
        the others are."""
        run = item.unit.puts[index]
        with suppress(MQError):
            short = _split_off_short(run, self._drain.reads.max_length(run.queue))
            if short is not None:
                item.unit.puts.insert(index, short)
                item.rules.insert(index, item.rules[index])
                return index + 1
        return index

    def _dead_letter(self, item: Item, failure: Failure, text: str) -> None:
        """Put the messages with an MQDLH each, in the unit that makes the progress."""
        drain = self._drain
        if failure.reason in TOO_LONG:
            failure = failure._replace(puts=self._apart(item, failure.puts))
        run, queue = item.unit.puts[failure.puts], drain.dead_letter_queue()
        if not queue or run.queue == queue:
            self._hold(text)
            return
        try:
            room = drain.reads.max_length(queue)
        except MQError as error:
            self._hold(str(error))
            return
        dead = Puts(queue, priority=run.priority, persistent=run.persistent)
        for head, body in zip(run.heads, run.bodies, strict=True):
            made = deadletter.build(
                head, body, reason=failure.reason, queue=run.queue, now=drain.scheduler.now(), max_length=room,
                queue_manager=run.queue_manager or drain.name(),
            )  # fmt: skip
            dead.heads.append(made.head)
            dead.bodies.append(made.body)
        item.unit.puts[failure.puts] = dead
        item.dead[item.rules[failure.puts], policy_for(failure.reason).dead_letter] += _count_messages(dead.heads)
        self._soon()

    def _hold(self, text: str, seconds: float | None = None) -> None:
        """Try the same again after a pause."""
        self._drain.problems[self._destination] = text
        self._running = False
        self._items = []
        self._pause = min(self._pause * 2 or FIRST_PAUSE, LONGEST_PAUSE) if seconds is None else seconds
        self._cancel = self._drain.scheduler.later(self._pause, self._again)

    def _again(self) -> None:
        self._cancel = None
        self.kick()


class Drain:
    """All forwarders, and what they share."""

    def __init__(
        self, store: EmbeddedQueueManager, spool: Spool, attempts: AttemptQueue, reads: Reads, scheduler: Scheduler,
        counters: Counters,
    ) -> None:  # fmt: skip
        self.store = store
        self.spool = spool
        self.attempts = attempts
        self.reads = reads
        self.scheduler = scheduler
        self.counters = counters
        self.on_room: Callable[[], None] = lambda: None
        """Called when entries were removed."""
        self.on_empty: Callable[[], None] = lambda: None
        """Called when nothing is left in the main line."""
        self.policy_of: PolicyOf = lambda _rule: None
        """Returns a rule's failure policy by its name."""
        self.problems: dict[Destination | None, str] = {}
        """Why something waits although IBM MQ is connected, by destination (None: everything)."""
        self._main = Forwarder(self, spool.main)
        self._aside: dict[Destination, Forwarder] = {}

    @property
    def idle(self) -> bool:
        """Whether the main line is empty and idle, so that new units need not line up."""
        return self._main.idle

    def name(self) -> str:
        """Returns the queue manager's name, for dead-letter headers."""
        return self.spool.identity.name

    def dead_letter_queue(self) -> str:
        """IBM MQ's dead-letter queue."""
        return self.spool.identity.dead_letter_queue

    def connected(self, progress: Progress) -> None:
        """There is a connection, with this progress: begin."""
        for destination, number in progress.aside.items():
            line = self.spool.line_of(destination)
            line.last = max(line.last, number)
        for forwarder in self._all():
            forwarder.wake()
        self.emptied()

    def kick(self) -> None:
        """New entries were added to the main line."""
        self._main.kick()

    def kick_aside(self) -> None:
        """Something was set aside."""
        for forwarder in self._all():
            forwarder.kick()

    def _all(self) -> Iterator[Forwarder]:
        for destination, line in self.spool.aside.items():
            if destination not in self._aside:
                self._aside[destination] = Forwarder(self, line, destination)
        yield self._main
        yield from list(self._aside.values())

    def emptied(self) -> None:
        """A line has nothing left. A destination rejoins the main line when that has passed what was set aside for
        it."""
        progress = self.attempts.progress
        if progress is None:
            return
        for destination, line in list(self.spool.aside.items()):
            forwarder = self._aside.get(destination)
            if not line.entries and progress.main >= line.last and (forwarder is None or forwarder.at_rest):
                del self.spool.aside[destination]
                self._aside.pop(destination, None)
                self.problems.pop(destination, None)
        if self._main.idle:
            self.on_empty()

    def pruned(self, progress: Progress) -> Progress:
        """Returns the progress without the destinations that no longer have anything set aside."""
        for destination in progress.aside:
            if destination not in self.spool.aside:
                progress = progress.without(destination)
        return progress


def _place(batch: list[Item], index: int) -> int:
    """Returns the item that a run of the joined unit belongs to; 0 if it is not known."""
    for place, item in enumerate(batch):
        if index < len(item.unit.puts):
            return place
        index -= len(item.unit.puts)
    return 0


def _cut_long(run: Puts, longest: int, name: str) -> int:
    """Cut what is too long into segments; returns how many more messages the run has now. Raises Refused if that cannot
    be done. `name` makes the GroupIds unique."""
    heads: list[bytes] = []
    bodies: list[bytes] = []
    for row, (head, body) in enumerate(zip(run.heads, run.bodies, strict=True)):
        made = segments(head, body, longest, f"{name} {row}".encode())
        heads += [one for one, _ in made]
        bodies += [one for _, one in made]
    more = len(heads) - len(run.heads)
    run.heads[:], run.bodies[:] = heads, bodies
    return more


def _split_off_short(run: Puts, longest: int) -> Puts | None:
    """Take what fits its queue out of the run and return it as a run of its own; None if all of it fits, or nothing."""
    fits = [len(head) - MQMD_LENGTH + len(body) <= longest for head, body in zip(run.heads, run.bodies, strict=True)]
    if all(fits) or not any(fits):
        return None
    short = replace(run, heads=list(compress(run.heads, fits)), bodies=list(compress(run.bodies, fits)), tokens=())
    long = [not one for one in fits]
    run.heads[:], run.bodies[:] = list(compress(run.heads, long)), list(compress(run.bodies, long))
    return short


def _count_messages(heads: list[bytes]) -> int:
    """Returns how many messages these heads are; of a message in segments only the first is counted."""
    return len(heads) - sum(map(is_further, heads))
