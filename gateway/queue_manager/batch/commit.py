"""Group commit: units become frames, frames go to the disk one after the other, on this thread or the writer's.

While a frame is written the next units gather. Writing on the caller's thread is faster while the disk answers within a
fraction of a millisecond; a thread keeps the reactor moving when it does not. The commit times just measured decide.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from queue import SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple

from gateway.errors import StoreError
from gateway.ports.batch import Scheduler
from gateway.queue_manager.store.storage import MessageStore
from gateway.queue_manager.store.unit import StoreUnit

INLINE_BELOW = 0.0005
"""Seconds: while commits take less, they are written on the caller's thread."""
THREAD_ABOVE = 0.001
"""Seconds: above this the writer's thread takes over. The gap keeps it from swinging."""
LONGEST_COUNTED = 3 * THREAD_ABOVE
"""A commit that took longer counts as much as this: one hiccup of a fast disk is not yet a slow one."""
FIRST_TRIAL, LAST_TRIAL = 16, 1024
"""Frames on the writer's thread until one is tried on the caller's, and the most there may be."""

QUIET_SECONDS = 0.002
"""Without a unit for so long the store's own work goes on at full speed; until then it takes one step a unit."""

Gather = Callable[[], "Batch | None"]
Entered = Callable[[], AbstractContextManager[None]]
"""How to take the queue manager's lock."""


class Batch(NamedTuple):
    """What goes into one frame, and what follows when it is durable or refused."""

    unit: StoreUnit
    finished: Callable[[StoreError | None], None]
    parts: Sequence[Batch] = ()
    """What it was put together from: if the frame is refused each is tried alone, as a full disk still lets messages
    go."""


HOUSEKEEPING = Batch(StoreUnit(), lambda _error: None)
"""Stands for a frame of the store's own work on the writer's thread."""


def together(batches: Sequence[Batch]) -> Batch | None:
    """Several batches as one frame: all are durable with it, or none."""
    if not batches:
        return None
    joined = StoreUnit()
    for batch in batches:
        unit = batch.unit
        joined.puts += unit.puts
        joined.takes += unit.takes
        joined.moves += unit.moves
        joined.backouts += unit.backouts
        joined.state.update(unit.state)

    def finished(error: StoreError | None) -> None:
        for batch in batches:
            batch.finished(error)

    return Batch(joined, finished, batches)


class Committer:
    """Owns the order of frames. Every method is called with the queue manager's lock held."""

    def __init__(
        self, store: MessageStore, scheduler: Scheduler, entered: Entered, changed: threading.Condition
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._entered = entered
        self._changed = changed
        """Told, with the lock held, when a frame has arrived."""
        self._calls: list[Batch] = []
        self._callers = 0
        self._gather: Gather = lambda: None
        self._flying: _Flight | None = None
        self._work: SimpleQueue[_Flight | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._threaded = False
        self._trial_in = self._trial_gap = FIRST_TRIAL
        self._keeping = False
        """The next step of the store's own work is to come."""
        self._unfinished = False
        """The last step was not the end of it."""
        self._asking = False
        self._owes_house = False
        """A frame of the writer's thread has arrived: the store's own work has its turn, however many units wait."""
        self._resting = False
        """The store's own work has failed: not again before a unit has been written."""
        self._closed = False
        self._last_unit = -1.0
        self.seconds = 0.0
        """The mean commit time just measured."""
        self.times: deque[float] = deque(maxlen=10_000)
        """What the last commits took, for whoever counts them."""
        self.frames = 0
        self.slowest = 0.0

    def gathers_from(self, gather: Gather) -> None:
        """Where the batches of the batch port come from: called whenever a frame can be made."""
        self._gather = gather

    @property
    def slow(self) -> bool:
        """Whether the disk takes its time: then nobody writes with the lock held."""
        self._threaded = self.seconds > (INLINE_BELOW if self._threaded else THREAD_ABOVE)
        return self._threaded

    def _on_trial(self) -> bool:
        """Whether this frame is written on the caller's thread although frames take their time.

        What the writer's thread measures includes its wait for the interpreter: beside a busy reactor it never finds
        out by itself that the disk is fast again.
        """
        self._trial_in -= 1
        if self._trial_in:
            return False
        self._trial_in = self._trial_gap = min(2 * self._trial_gap, LAST_TRIAL)
        return True

    def run(self) -> None:
        """Write what has gathered, unless a frame is on its way: then that continues when it has arrived."""
        kept = False
        while self._flying is None:
            if self._owes_house:
                self._owes_house = False
                self._keep_house()
                continue
            called = bool(self._calls)
            batch = self._next()
            if batch is None:
                if not kept:
                    self._keep_house()
                return
            if not batch.unit:  # everything in it was refused: there is nothing to write
                batch.finished(None)
            elif called or (self.slow and not self._on_trial()):
                self._send(batch)
            else:
                self.now(batch)
                kept = True

    def _next(self) -> Batch | None:
        """One frame for everybody who waits: calls on several threads, and the batch port."""
        gathered = self._gather()
        calls, self._calls = self._calls, []
        if not calls:
            return gathered
        batches = calls if gathered is None else [*calls, gathered]
        return together(batches) if len(batches) != 1 else batches[0]

    def call(self, batch: Batch, wait_until: Callable[[Callable[[], bool]], None]) -> None:
        """Commit for a call that waits without the lock, in one frame with the other calls that wait."""
        ended = False

        def finished(error: StoreError | None) -> None:
            nonlocal ended
            ended = True
            batch.finished(error)

        self._calls.append(Batch(batch.unit, finished))
        self._callers += 1
        try:
            # The writer looks at `_callers` after it has set `landed`, this the other way round: one of them sees
            # the other.
            if self._flying is not None and self._flying.landed.is_set():
                self._arrived(self._flying)
            self.run()
            wait_until(lambda: ended)
        finally:
            self._callers -= 1

    def now(self, batch: Batch) -> None:
        """Write this on the caller's thread, after what is on its way."""
        self.settle()
        try:
            frame = self._store.prepare(batch.unit, self._scheduler.now())
        except StoreError as error:
            self._refused(batch, error)
            return
        try:
            spent = self._timed_write(frame)
        except StoreError as error:
            self._store.abort(frame)
            self._refused(batch, error)
            return
        self._resting = False
        if self._threaded and spent < INLINE_BELOW:
            self.seconds = spent
            self._trial_in = self._trial_gap = FIRST_TRIAL
        self._store.apply(frame)
        batch.finished(None)
        self._last_unit = self._scheduler.monotonic()
        self._keep_house()

    def _refused(self, batch: Batch, error: StoreError) -> None:
        """The frame cannot be stored; its parts may be, one by one."""
        if not batch.parts:
            batch.finished(error)
        for part in batch.parts:
            self.now(part)

    def _keep_house(self) -> None:
        """One bounded step of the store's own work after a commit; the next when there is nothing better to do."""
        if self._flying is not None or self._resting:
            return
        try:
            frame = self._store.maintain(self._scheduler.now())
            self._unfinished = frame is not None or self._store.under_maintenance
            if frame is not None:
                if self._threaded:
                    self._fly(_Flight(HOUSEKEEPING, frame))
                    return
                self._write_own(frame)
        except StoreError:  # the disk is full or failing: the next commit says so to whom it concerns
            self._unfinished = False
            return
        if self._unfinished and not self._keeping:
            self._keeping = self._asking = True
            self._scheduler.soon(self._keep_on)
            self._asking = False

    def _write_own(self, frame: Any) -> None:
        try:
            self._timed_write(frame)
        except StoreError:
            self._store.abort(frame)
            raise
        self._store.apply(frame)

    def _keep_on(self) -> None:
        with self._entered():
            self._keeping = False
            if self._asking or self._closed:  # a scheduler that calls at once: the next commit takes the next step
                return
            if self._threaded or self._scheduler.monotonic() - self._last_unit >= QUIET_SECONDS:
                self.run()
            elif self._unfinished:
                self._keeping = True
                self._scheduler.later(QUIET_SECONDS, self._keep_on)

    def settle(self) -> None:
        """Wait for the frame that is on its way and let its effects be seen."""
        while self._flying is not None:  # whoever is told may have sent the next one
            flight = self._flying
            flight.landed.wait()
            self._arrived(flight)

    def close(self) -> None:
        """Write what is left and end the writer's thread."""
        self.settle()
        self.run()
        self.settle()
        self._closed = True
        if self._thread is not None:
            self._work.put(None)
            while self._thread.is_alive():  # it may need the lock once more
                self._changed.wait(0.01)
            self._thread = None

    def _send(self, batch: Batch) -> None:
        try:
            frame = self._store.prepare(batch.unit, self._scheduler.now())
        except StoreError as error:
            self._refused(batch, error)
            return
        self._fly(_Flight(batch, frame))

    def _fly(self, flight: _Flight) -> None:
        self._flying = flight
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_frames, name="journal writer", daemon=True)
            self._thread.start()
        self._work.put(flight)

    def _write_frames(self) -> None:
        while (flight := self._work.get()) is not None:
            try:
                self._timed_write(flight.frame)
            except StoreError as error:
                flight.error = error
            flight.landed.set()
            if self._callers:
                self._resume()
            else:
                self._scheduler.soon(self._resume)

    def _resume(self) -> None:
        with self._entered():
            flight = self._flying
            if flight is not None and flight.landed.is_set():
                self._arrived(flight)
            if not self._closed:
                self.run()

    def _arrived(self, flight: _Flight) -> None:
        self._flying = None
        own = flight.batch is HOUSEKEEPING
        self._owes_house = not own
        self._resting = own and flight.error is not None
        if flight.error is None:
            self._store.apply(flight.frame)
            flight.batch.finished(None)
        else:
            self._store.abort(flight.frame)
            self._refused(flight.batch, flight.error)
        self._changed.notify_all()

    def _timed_write(self, frame: Any) -> float:
        started = perf_counter()
        try:
            self._store.write(frame)
        finally:
            spent = perf_counter() - started
            # One slow commit among fast ones does not change the way; a few do.
            self.seconds += (min(spent, LONGEST_COUNTED) - self.seconds) * 0.2
            self.times.append(spent)
            self.slowest = max(self.slowest, spent)
            self.frames += 1
        return spent


class _Flight:
    """A frame on the writer's thread."""

    __slots__ = ("batch", "error", "frame", "landed")

    def __init__(self, batch: Batch, frame: Any) -> None:
        self.batch = batch
        self.frame = frame
        self.landed = threading.Event()
        self.error: StoreError | None = None
