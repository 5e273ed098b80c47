"""The path from a batch to the disk: gather, prepare, write, apply, tell.

`Committer.run` is the loop. What it gathers are the units of work of the batch port and the MQI calls that wait for a
commit; together they become one frame of the store. Units that arrive while a frame is written wait for the next one.

While the disk answers within a fraction of a millisecond a frame is written on the caller's thread, which is faster;
otherwise on the writer's thread, which keeps the reactor moving. The commit times just measured decide, and a write
that hung (`distrust.py`). After a frame of the writer's thread calls wait a moment for those of the programs that it
has answered (`ports/group_commit.py`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import SimpleQueue
from threading import get_ident
from time import perf_counter
from typing import Any, Protocol

from gateway.errors import StoreError
from gateway.mq import constants as mq
from gateway.ports.batch import Done, Failure, Outcome, Puts, Scheduler, Unit
from gateway.ports.group_commit import SHARE_OF_PROGRAMS, SLOW_SECONDS, GroupCommit
from gateway.queue_manager.batch.distrust import HANGING, Distrust
from gateway.queue_manager.store.storage import MessageStore
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

UNITS_IN_A_FRAME = 256
BYTES_IN_A_FRAME = 16 << 20
"""The size in bytes from which no more units of the batch port are added to a frame."""
STEPS_FOR_ROOM = 32
"""Steps of maintenance that a frame waits for on a full disk."""

INLINE_BELOW = 0.0005
"""Seconds: while commits take less, they are written on the caller's thread."""
THREAD_ABOVE = 0.001
"""Seconds: above this the writer's thread takes over. The gap keeps it from swinging."""
LONGEST_COUNTED = 3 * THREAD_ABOVE
"""A commit that took longer counts as much as this: one hiccup of a fast disk is not yet a slow one."""
FIRST_TRIAL, LAST_TRIAL = 16, 1024
"""Frames on the writer's thread until one is tried on the caller's, and the most there may be."""

QUIET_SECONDS = 0.002
"""After this many seconds without a unit, maintenance goes on at full speed; until then it takes one step per unit."""

Entered = Callable[[], AbstractContextManager[None]]
"""How to take the queue manager's lock."""


class Submission:
    """A unit of work of the batch port, and what it has become on its way."""

    __slots__ = ("alone", "done", "failures", "out_of_syncpoint", "puts", "unit")

    def __init__(self, unit: Unit, done: Done) -> None:
        self.unit = unit
        self.done = done
        self.alone = False
        """Its frame was refused with others in it: it is tried once more by itself."""
        self.failures: list[Failure] = []
        self.puts: list[tuple[Puts, LanePuts]] = []
        """Puts that get tokens, with what they became."""
        self.out_of_syncpoint: list[Puts] = []
        """Puts that are in the frame even if the unit is refused."""


class Translator(Protocol):
    """What turns units of the batch port into a store's unit: see `translation.py`."""

    def begin(self) -> None:
        """Begin a frame."""

    def add(self, submission: Submission, frame: StoreUnit) -> int:
        """Add a unit to the frame, or note in the submission why it cannot be added. Returns the bytes it adds."""

    def end(self, frame: StoreUnit) -> None:
        """End the frame, as every unit has been added."""


@dataclass(slots=True)
class Batch:
    """What goes into one frame: an MQI call's unit, units of the batch port, or several of these together."""

    unit: StoreUnit
    finished: Callable[[StoreError | None], None] | None = None
    """Of an MQI call: called when the frame is durable or refused."""
    submissions: Sequence[Submission] = ()
    """Of the batch port: their `done` is called."""
    again: bool = False
    """Its frame could not be written, and it is tried once more."""
    parts: Sequence[Batch] = ()
    """What it was put together from: if the frame is refused each is tried alone, as a full disk still lets messages
    go."""
    apart: Callable[[], Sequence[Batch]] | None = None
    """Of several MQI calls, which `finished` tells at once: makes of them the parts to be tried alone."""
    callers: Callable[[], Iterable[Hashable]] | None = None
    """Of MQI calls: whose they are, as long as none of them has been told."""

    def answers(self) -> list[Hashable]:
        """The programs that this frame answers."""
        found = list(self.callers()) if self.callers is not None else []
        for part in self.parts:
            found += part.answers()
        return found


MAINTENANCE = Batch(StoreUnit())
"""Stands for a frame of the store's maintenance on the writer's thread."""


class Committer:
    """Owns the order of frames. Every method is called with the queue manager's lock held."""

    def __init__(
        self,
        store: MessageStore,
        scheduler: Scheduler,
        entered: Entered,
        settled: Callable[[StoreUnit], None],
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._entered = entered
        self._settled = settled
        """Does the queue manager's accounts of an applied unit, and wakes those who wait for its messages."""
        self.translator: Translator
        self._submissions: deque[Submission] = deque()
        self._port_thread = 0
        """The thread of the batch port: `done` is called there."""
        self._calls: list[Batch] = []
        self._callers = 0
        self._writing: _Writing | None = None
        self._behind = False
        """A frame has been collected, and what waited for it has not been looked at."""
        self._group = GroupCommit[Hashable](SHARE_OF_PROGRAMS, again=True)
        """The programs that a slow frame has answered: those of their calls that come at once go into the next one."""
        self._looks_again = False
        """Calls wait for those of others, and it is seen to that they do not wait for ever."""
        self._work: SimpleQueue[_Writing | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._threaded = False
        self._trial_in = self._trial_gap = FIRST_TRIAL
        self._distrust = Distrust()
        self._maintenance_scheduled = False
        self._maintenance_due = False
        """A frame of the writer's thread was written: maintenance has its turn, however many units wait."""
        self._maintenance_unfinished = False
        """The last step left more to do."""
        self._maintenance_failed = False
        """The last step failed: no other one before a unit has been written."""
        self._scheduling = False
        self._closed = False
        self._last_unit = -1.0
        self.seconds = 0.0
        """The mean commit time just measured."""
        self.times: deque[float] = deque(maxlen=10_000)
        """The last ones, for metrics."""
        self.frames = 0
        self._began = 0.0
        """When the write that is under way began; 0: none is."""

    # ---- what asks for a commit

    def submit(self, unit: Unit, done: Done) -> None:
        """Take a unit of the batch port, and write it if no frame is under way."""
        self._port_thread = get_ident()
        self._submissions.append(Submission(unit, done))
        self.run()

    def call(self, batch: Batch, without_lock: Callable[[Callable[[], object]], None]) -> None:
        """Commit for an MQI call that waits without the lock, in one frame with the other calls that wait.

        Who waits also applies what has been written and hands the next frame over: the writer's thread never takes the
        lock, because whoever holds it may be waiting for the writer.
        """
        ended = False

        def finished(error: StoreError | None) -> None:
            nonlocal ended
            ended = True
            if batch.finished is not None:
                batch.finished(error)

        self._calls.append(Batch(batch.unit, finished))
        self._callers += 1
        try:
            while not ended:
                writing = self._writing
                if writing is None:
                    self.run()
                    continue
                if not writing.written.is_set():
                    without_lock(writing.written.wait)
                if self._writing is writing:
                    self._complete(writing)
                    self.run()
        finally:
            self._callers -= 1
            # The writer looks at `_callers` after it has set `written`, this the other way round: one of them sees the
            # other, and what was handed over last is applied too.
            if not self._callers and self._writing is not None and self._writing.written.is_set():
                self._scheduler.soon(self._go_on)

    def collect(self) -> None:
        """Apply and tell what the writer's thread has written. Whoever happens to hold the lock does it, as a thread
        that waits for the lock may wait long while programs keep it busy. `share` or `catch_up` hands over the next
        frame, with the calls made until then."""
        writing = self._writing
        if writing is not None and writing.written.is_set():
            self._behind = True
            self._complete(writing)

    def catch_up(self) -> None:
        """Hand over what has waited for a frame that was collected, or for calls that will not come."""
        if self._behind or (self._calls and self._writing is None):
            self.run()

    def came(self, caller: Hashable) -> None:
        """Stop waiting for a call of this program."""
        self._group.missing.discard(caller)

    def share(self, batch: Batch) -> None:
        """Commit for calls in which nobody waits; they are told, perhaps before this returns."""
        if self._group.missing:
            self._group.missing.difference_update(batch.answers())
        if not batch.unit:  # there is nothing to store
            self._tell(batch, None)
            self.catch_up()
        elif not (self._writing or self._behind or self._calls) and not (self.slow and not self._on_trial()):
            self.now(batch)
        else:
            self._calls.append(batch)
            self.run()

    # ---- the loop

    def run(self) -> None:
        """Write what has gathered, frame after frame, until nothing waits or the writer's thread has one."""
        maintained = self._behind = False
        while self._writing is None:
            if self._maintenance_due:
                self._maintenance_due = False
                self._maintain()
                continue
            called = bool(self._calls)
            if called and self._waits_for_answered():
                return
            batch = self._gather()
            if batch is None:
                if not maintained:
                    self._maintain()
                return
            if not batch.unit:  # all of it was refused
                self._tell(batch, None)
            elif called or (self.slow and not self._on_trial()):
                self._hand_over(batch)
            else:
                maintained = self.now(batch)

    def _waits_for_answered(self) -> bool:
        """Whether the calls of programs wait for those of others that the last frame has answered."""
        missing = self._group.missing
        if not missing or self._submissions or self._callers:
            return False
        now = self._scheduler.monotonic()
        if now >= self._group.until and self._group.over(now):
            return False
        if not self._looks_again:
            self._looks_again = True
            self._scheduler.later(self._group.until - now, self._look_again)
        return True

    def _look_again(self) -> None:
        with self._entered():
            self._looks_again = False
            if not self._closed:
                self.run()

    def _gather(self) -> Batch | None:
        """Make one frame for all who wait: MQI calls on several threads, and the batch port."""
        submitted = self._gather_submissions() if self._submissions else None
        if not self._calls:
            return submitted
        calls, self._calls = self._calls, []
        return _together(calls if submitted is None else [*calls, submitted])

    def _gather_submissions(self) -> Batch:
        """Return as many units of the batch port as make one frame."""
        waiting, translator = self._submissions, self.translator
        gathered: list[Submission] = []
        unit, size = StoreUnit([], [], [], [], {}, [], own=True), 0
        translator.begin()
        while waiting and len(gathered) < UNITS_IN_A_FRAME and size < BYTES_IN_A_FRAME:
            if gathered and (gathered[0].alone or waiting[0].alone):
                break
            submission = waiting.popleft()
            gathered.append(submission)
            size += translator.add(submission, unit)
        translator.end(unit)
        return Batch(unit, submissions=gathered)

    def now(self, batch: Batch) -> bool:
        """Prepare, write, apply and report on the caller's thread, after what is under way. Returns False if it was
        refused."""
        if self._writing is not None:
            self.settle()
        store = self._store
        try:
            frame = self._prepare(batch.unit, at_once=True)
        except StoreError as error:
            self._refuse(batch, error)
            return False
        try:
            spent = self._timed_write(frame)
        except StoreError as error:
            store.abort(frame)
            return self._refuse_written(batch, error)
        self._maintenance_failed = False
        if self._threaded and spent < INLINE_BELOW:
            self.seconds = spent
            self._trial_in = self._trial_gap = FIRST_TRIAL
        elif self._threaded:
            self._expect(batch, spent)
        store.apply(frame)
        self._tell(batch, None)
        self._last_unit = self._scheduler.monotonic()
        self._maintain()
        return True

    def _prepare(self, unit: StoreUnit, *, at_once: bool) -> Any:
        """Make the unit's frame. On a full disk a unit that only takes waits briefly for maintenance to make room."""
        for _ in range(STEPS_FOR_ROOM):
            try:
                return self._store.prepare(unit, self._scheduler.now(), at_once=at_once)
            except StoreError:
                if unit.adds or not self._make_room():
                    raise
        return self._store.prepare(unit, self._scheduler.now(), at_once=at_once)

    def _make_room(self) -> bool:
        """Take one step of maintenance. Returns whether there may be another one."""
        if self._store.storage_full is None:
            return False
        frame = self._store.maintain(self._scheduler.now())
        if frame is not None:
            self._write_maintenance(frame)
        return frame is not None or self._store.under_maintenance

    def _refuse(self, batch: Batch, error: StoreError) -> None:
        """Try the parts of a frame that cannot be stored one by one, as they may be storable."""
        parts = batch.parts if batch.apart is None else batch.apart()
        if not parts:
            self._tell(batch, error)
        for part in parts:
            self.now(part)

    def _refuse_written(self, batch: Batch, error: StoreError) -> bool:
        """Handle a frame that was not written. What only takes is tried again: the reserve of a full disk is for it."""
        unit = batch.unit
        if unit.adds or batch.again or not unit:
            self._refuse(batch, error)
            return False
        batch.again = True
        return self.now(batch)

    def _expect(self, batch: Batch, spent: float) -> None:
        """Expect the next calls of the programs that are answered now; the frame took this long."""
        if spent > SLOW_SECONDS and (programs := batch.answers()):
            self._group.committed(spent, programs, self._scheduler.monotonic())

    @property
    def waits(self) -> float:
        """For how many seconds the disk has not answered the write under way. Asked without the lock, which whoever
        waits for that write may hold."""
        began = self._began
        return perf_counter() - began if began else 0.0

    def _timed_write(self, frame: Any) -> float:
        self._began = started = perf_counter()
        try:
            self._store.write(frame)
        finally:
            self._began = 0.0
            spent = perf_counter() - started
            # One slow commit among fast ones does not change the way; a few do.
            self.seconds += ((min(LONGEST_COUNTED, spent)) - self.seconds) * 0.2
            self.times.append(spent)
            self.frames += 1
            if spent > HANGING:
                self._distrust.hung(started, spent)
        return spent

    def _tell(self, batch: Batch, error: StoreError | None) -> None:
        """Tell those who asked for it that the batch is durable and applied, or refused."""
        if batch.finished is not None:
            batch.finished(error)
        if batch.submissions:
            self._conclude(batch, error)
        for part in batch.parts:
            self._tell(part, error)

    def _conclude(self, batch: Batch, error: StoreError | None) -> None:
        """Tell the batch port. Units of a refused frame are tried again, each by itself."""
        submissions = batch.submissions
        if error is not None and len(submissions) > 1:
            for submission in reversed(submissions):
                submission.alone = True
                submission.puts.clear()
                submission.out_of_syncpoint.clear()
                submission.failures.clear()
                self._submissions.appendleft(submission)
            return
        if error is None:
            self._settled(batch.unit)
        for submission in submissions:
            if error is not None and not submission.failures:
                submission.failures.append(Failure(-1, reason_of(error), str(error)))
            for puts, lane_puts in submission.puts:
                puts.tokens = lane_puts.tokens
            if error is None and submission.failures:
                for puts in submission.out_of_syncpoint:
                    puts.placed = len(puts.heads)
        if get_ident() == self._port_thread:
            _call_done(submissions)
        else:  # an MQI call on another thread had to wait for this frame
            self._scheduler.soon(lambda: _call_done(submissions))

    # ---- the writer's thread

    @property
    def slow(self) -> bool:
        """Whether the disk is slow: then frames are not written with the lock held."""
        slow = self.seconds > (INLINE_BELOW if self._threaded else THREAD_ABOVE) or self._distrust.begun
        self._threaded = slow
        return slow

    def _on_trial(self) -> bool:
        """Whether this frame is written on the caller's thread although the disk is slow.

        What the writer's thread measures includes its wait for the interpreter: beside a busy reactor it never finds
        out by itself that the disk is fast again."""
        self._trial_in -= 1
        if self._trial_in:
            return False
        if self._distrust.lasts(perf_counter()):
            self._trial_in = 1
            return False
        self._trial_in = self._trial_gap = min(2 * self._trial_gap, LAST_TRIAL)
        return True

    def _hand_over(self, batch: Batch) -> None:
        """Prepare a frame and give it to the writer's thread."""
        if self._writing is not None:  # maintenance after a commit that was made while units gathered
            self.settle()
        try:
            frame = self._prepare(batch.unit, at_once=False)
        except StoreError as error:
            self._refuse(batch, error)
            return
        self._start_writing(_Writing(batch, frame))

    def _start_writing(self, writing: _Writing) -> None:
        self._writing = writing
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_frames, name="journal writer", daemon=True)
            self._thread.start()
        self._work.put(writing)

    def _write_frames(self) -> None:
        """Write frames on the writer's thread until it is to end."""
        while (writing := self._work.get()) is not None:
            try:
                writing.seconds = self._timed_write(writing.frame)
            except StoreError as error:
                writing.error = error
            writing.written.set()
            if not self._callers:
                self._scheduler.soon(self._go_on)

    def _go_on(self) -> None:
        with self._entered():
            writing = self._writing
            if writing is not None and writing.written.is_set():
                self._complete(writing)
            if not self._closed:
                self.run()

    def _complete(self, writing: _Writing) -> None:
        """Apply and tell what the writer's thread has written, or has failed to write."""
        self._writing = None
        is_maintenance = writing.batch is MAINTENANCE
        self._maintenance_due = not is_maintenance
        self._maintenance_failed = is_maintenance and writing.error is not None
        if writing.error is None:
            self._expect(writing.batch, writing.seconds)
            self._store.apply(writing.frame)
            self._tell(writing.batch, None)
        else:
            self._store.abort(writing.frame)
            self._refuse_written(writing.batch, writing.error)

    def settle(self) -> None:
        """Wait for the frame that is on its way, and apply it."""
        while self._writing is not None:  # `done` may have submitted the next one
            writing = self._writing
            writing.written.wait()
            self._complete(writing)

    def close(self) -> None:
        """Write what is left and end the writer's thread."""
        self.settle()
        self._group.missing.clear()
        self.run()
        self.settle()
        self._closed = True
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    # ---- maintenance of the store

    def _maintain(self) -> None:
        """Take one bounded step of the store's maintenance after a commit; the next follows when nothing else is to be
        done."""
        if self._writing is not None or self._maintenance_failed:
            return
        try:
            frame = self._store.maintain(self._scheduler.now())
            self._maintenance_unfinished = frame is not None or self._store.under_maintenance
            if frame is not None:
                if self._threaded:
                    self._start_writing(_Writing(MAINTENANCE, frame))
                    return
                self._write_maintenance(frame)
        except StoreError:  # the disk is full or failing: the next commit says so to those it concerns
            self._maintenance_unfinished = False
            return
        if self._maintenance_unfinished and not self._maintenance_scheduled:
            self._maintenance_scheduled = self._scheduling = True
            self._scheduler.soon(self._maintain_more)
            self._scheduling = False

    def _write_maintenance(self, frame: Any) -> None:
        try:
            self._timed_write(frame)
        except StoreError:
            self._store.abort(frame)
            raise
        self._store.apply(frame)

    def _maintain_more(self) -> None:
        with self._entered():
            self._maintenance_scheduled = False
            if self._scheduling or self._closed:  # a scheduler that calls at once: the next commit takes the next step
                return
            if self._threaded or self._scheduler.monotonic() - self._last_unit >= QUIET_SECONDS:
                self.run()
            elif self._maintenance_unfinished:
                self._maintenance_scheduled = True
                self._scheduler.later(QUIET_SECONDS, self._maintain_more)


class _Writing:
    """A frame on the writer's thread."""

    __slots__ = ("batch", "error", "frame", "seconds", "written")

    def __init__(self, batch: Batch, frame: Any) -> None:
        self.batch = batch
        self.frame = frame
        self.written = threading.Event()
        """Also set when it could not be written."""
        self.error: StoreError | None = None
        self.seconds = 0.0


def _together(batches: Sequence[Batch]) -> Batch:
    """Several batches as one frame: all are durable with it, or none."""
    if len(batches) == 1:
        return batches[0]
    joined = StoreUnit(own=all(batch.unit.own for batch in batches))
    for batch in batches:
        joined.add(batch.unit)
    return Batch(joined, parts=batches)


def _call_done(submissions: Sequence[Submission]) -> None:
    for submission in submissions:
        submission.done(submission.unit, Outcome(submission.failures))


def reason_of(error: StoreError) -> int:
    """The reason code of a store that can take no more; it gives one itself where it knows better."""
    reason = getattr(error, "reason", None)
    return reason if isinstance(reason, int) else mq.MQRC_STORAGE_MEDIUM_FULL
