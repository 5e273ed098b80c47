"""The store: a directory of segments and the index over them. Prepare, write and apply are three steps, so that the
caller decides which thread waits for the disk.

`prepare`, `apply` and every question belong to one thread; `write` may run in another, one frame at a time and in the
order of `prepare`. Frames may be prepared while an earlier one is being written.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path

from gateway.errors import StoreCorrupt, StoreError, StoreUnavailable
from gateway.queue_manager.journal.cache import RowCache
from gateway.queue_manager.journal.compaction import Walk
from gateway.queue_manager.journal.encode import Dictionary, FrameHead, encode_frame
from gateway.queue_manager.journal.failpoint import reach
from gateway.queue_manager.journal.layout import BLOCK, FrameFlag, padded
from gateway.queue_manager.journal.lock import DirectoryLock
from gateway.queue_manager.journal.matching import Matching
from gateway.queue_manager.journal.plan import Plan, plan_unit
from gateway.queue_manager.journal.prepared import Prepared, StoreOptions, Usage
from gateway.queue_manager.journal.recovery import Progress, recover
from gateway.queue_manager.journal.ring import Ring, RingOptions
from gateway.queue_manager.journal.segment import Berth
from gateway.queue_manager.journal.volatile import VolatileRows
from gateway.queue_manager.store.alike import new_packing
from gateway.queue_manager.store.changes import Changes, apply
from gateway.queue_manager.store.cleaning import excess, victim
from gateway.queue_manager.store.index import Index, TokenRun
from gateway.queue_manager.store.place import NUMBER_BITS, VOLATILE, frame_of
from gateway.queue_manager.store.unit import StoreUnit

NO_FLAGS = 0
RESTART_GAP = 1 << 32
"""Numbers skipped after a crash: non-persistent messages had numbers, and so MsgIds, that no frame tells of."""


class Store(Matching):
    """See the module. Reading is in `Reading`, finding by identifier in `Matching`."""

    def __init__(self, path: Path, ring: Ring, index: Index, options: StoreOptions, clock: Callable[[], float]) -> None:
        volatile = VolatileRows(path, options.volatile_bytes)
        super().__init__(ring, index, RowCache(options.cache_bytes), volatile, options.queue_manager)
        self.path = path
        self.options = options
        self.generation = 0
        self._clock = clock
        self._lock: DirectoryLock | None = None
        self._dictionary = Dictionary()
        self._next_sequence = 1
        self._next_number = 1
        self._next_batch = VOLATILE
        self._failed = False
        self._durable_ends: dict[int, tuple[int, int]] = {}
        self._written = 0
        """Sequence of the last frame that is durable."""
        self._to_apply: deque[int] = deque()
        self._packing = new_packing()
        self._walk: Walk | None = None
        self._placed = 0
        """Bytes of frames until the last step of it."""
        self._uneven = True
        self._carrying = 0

    # ---- opening and closing

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        clock: Callable[[], float],
        options: StoreOptions | None = None,
        progress: Progress | None = None,
    ) -> Store:
        """Open, recovering what the last process left. StoreInUse, StoreCorrupt or StoreUnavailable."""
        path, options = Path(path), options or StoreOptions()
        lock = DirectoryLock(path)
        try:
            index = Index()
            found = recover(path, index, direct=options.direct, progress=progress)
            ring_options = RingOptions(
                options.segment_bytes, options.spare_segments, options.direct, options.background, options.max_bytes
            )
            ring = Ring(path, found.store or secrets.token_bytes(16), ring_options)
            store = cls(path, ring, index, options, clock)
            store._lock = lock
            go_on = found.clean and bool(found.used)
            ring.adopt(found.used, found.spares, found.used[-1] if go_on else None)
            store._next_sequence = found.next_sequence
            store._written = found.next_sequence - 1
            store._next_number = found.next_number + (0 if found.clean else RESTART_GAP)
            store._dictionary = Dictionary(found.lanes if go_on else [])
            store._settle_after_recovery(go_on=go_on)
            ring.start()
        except BaseException:
            lock.release()
            raise
        return store

    def _settle_after_recovery(self, *, go_on: bool) -> None:
        for segment in self.ring.used.values():
            self._durable_ends[segment.slot] = segment.end, segment.last_sequence
        for extent in self.index.space.by_slot.values():
            if not (go_on and self.ring.current is not None and extent.slot == self.ring.current.slot):
                self.index.space.seal(extent)
        for slot in list(self.ring.used):
            if slot not in self.index.space.by_slot:
                self._free(slot)
        self._collect()

    def close(self) -> None:
        """Write the closing frame and let go of the directory. Everything prepared must have been applied."""
        try:
            if not self._failed and self.ring.used and self._written == self._next_sequence - 1:
                closing = Prepared(StoreUnit(), [], self.generation)
                self._place(closing, Plan.empty(self._next_number), self._microseconds(self._clock()), FrameFlag.CLOSE)
                self.write(closing)
        except StoreUnavailable:
            pass  # the next start recovers as after a crash
        finally:
            self.ring.close()
            self.volatile.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    @staticmethod
    def _microseconds(now: float) -> int:
        return int(now * 1_000_000)

    # ---- the three steps

    def prepare(self, unit: StoreUnit, now: float) -> Prepared:
        """Build the frame. Nothing is visible yet, but what leaves is not handed out any more. StoreUnavailable: disk
        full.
        """
        if self._failed:
            self._reopen()
        prepared = Prepared(unit, [], self.generation)
        time = self._microseconds(now)
        plan = plan_unit(self, unit, self._next_number, time)
        prepared.missing = plan.missing
        if plan.volatile_rows is not None:
            self._check_volatile_room()
        if plan.needs_frame:
            self._place(prepared, plan, time, NO_FLAGS)
        if plan.volatile_groups or plan.volatile_takes or plan.volatile_moves:
            prepared.volatile = Changes(
                self._next_batch,
                plan.first_volatile,
                plan.volatile_groups,
                None,
                plan.volatile_takes,
                plan.volatile_moves,
                expiries=plan.volatile_rows.expiries if plan.volatile_rows is not None else None,
            )
            prepared.volatile_rows = plan.volatile_rows
            self._next_batch += 1
        self._next_number = plan.next_number
        self._hide(prepared, plan)
        self.under_way.begin(unit)
        return prepared

    def _check_volatile_room(self) -> None:
        volatile = self.volatile
        if volatile.full is not None and volatile.size > volatile.limit:
            volatile.spill()
            if volatile.full is not None:
                raise StoreUnavailable(
                    f"{self.path}: {volatile.full.strerror}: no new non-persistent messages until there is room"
                )

    def _hide(self, prepared: Prepared, plan: Plan) -> None:
        links = plan.links
        if not (links.takes or links.moves or plan.volatile_takes or plan.volatile_moves):
            return
        runs = [*links.takes, *plan.volatile_takes]
        runs += [TokenRun(move.lane, move.first, move.length) for move in (*links.moves, *plan.volatile_moves)]
        hidden, leaving = self.index.hidden, self.under_way.leaving
        locked: list[int] = []
        if hidden:
            for _lane, first, count in runs:
                locked += hidden.among(range(first, first + count))
        for _lane, first, count in runs:
            numbers = range(first, first + count)
            hidden.update(numbers)
            leaving.update(numbers)
        prepared.leaving, prepared.locked = runs, locked

    def _place(self, prepared: Prepared, plan: Plan, time: int, flags: int, *, essential: bool = False) -> None:
        """Give the frame its place and its bytes. A frame that opens a segment defines its lanes anew."""
        dictionary = self._dictionary
        sections, length = plan.sections(dictionary, self._packing)
        if not self.ring.fits(length):
            dictionary.take_back()
            dictionary = Dictionary()
            sections, length = plan.sections(dictionary, self._packing)
        try:
            essential = essential or not plan.rows
            berth = self.ring.berth(length, self._next_sequence, plan.first_number, time, essential=essential)
        except StoreUnavailable:
            dictionary.take_back()
            raise
        self._dictionary = dictionary
        size = padded(length)
        buffer = self.ring.buffers.take(size)
        head = FrameHead(flags, berth.salt, self._next_sequence, time, plan.first_number, plan.rows)
        frame = buffer[:size]
        encode_frame(head, sections, frame)
        self.ring.take_place(berth, size, self._next_sequence)
        prepared.berth, prepared.buffer, prepared.frame = berth, buffer, frame
        prepared.sequence = self._next_sequence
        prepared.changes = plan.changes(frame_of(berth.segment.slot, berth.offset // BLOCK), length)
        prepared.rows = plan.frame_rows(time, size)
        self._next_sequence += 1

    def write(self, prepared: Prepared) -> None:
        """Wait for the disk: one system call. Once it has failed, nothing prepared before `prepare` is called again
        can be written.
        """
        berth, frame = prepared.berth, prepared.frame
        if prepared.generation != self.generation:
            raise StoreUnavailable("an earlier frame could not be written: prepare this unit of work again")
        if berth is None or frame is None:
            return
        if prepared.sequence != self._written + 1:
            raise StoreError(
                f"frame {prepared.sequence} was prepared after frame {self._written + 1}: write that first"
            )
        pace = self.ring.pace
        try:
            file = self.ring.settle(berth)
            pace.writing = True
            reach("journal.before-write")
            file.write(frame, berth.offset)
            reach("journal.after-write")
        except OSError as error:
            self.generation += 1  # before `_failed`: a frame that is just being prepared in the other thread is refused
            self._failed = True
            raise StoreUnavailable(
                f"{self.path}: {error.strerror}: nothing of this unit of work was stored; it may be tried again"
            ) from error
        finally:
            pace.writing = False
        self._durable_ends[berth.segment.slot] = berth.offset + len(frame), prepared.sequence
        self._written = prepared.sequence
        self._to_apply.append(prepared.sequence)

    def apply(self, prepared: Prepared) -> None:
        """Make a written unit visible; its tokens are valid from now on. In the order of writing."""
        if prepared.berth is not None:
            if not self._to_apply or self._to_apply[0] != prepared.sequence:
                raise StoreError(
                    f"frame {prepared.sequence} is not the next to apply: {list(self._to_apply)} are written"
                )
            self._to_apply.popleft()
        self._settled(prepared)
        if prepared.berth is not None and prepared.changes is not None:
            self._apply_frame(prepared, prepared.berth, prepared.changes)
        if prepared.volatile is not None:
            apply(self.index, None, prepared.volatile)
            if prepared.volatile_rows is not None:
                self.volatile.keep(prepared.volatile.frame, prepared.volatile_rows)
            self.note_arrivals(prepared.volatile, prepared.volatile_rows)
        self.drop_volatile()
        self._collect()
        if prepared.berth is not None:
            self.ring.written(prepared.berth)
        reach("journal.after-apply")

    def _apply_frame(self, prepared: Prepared, berth: Berth, changes: Changes) -> None:
        slot = berth.segment.slot
        if berth.opening is not None:
            for extent in self.index.space.by_slot.values():
                if not extent.sealed:
                    self.index.space.seal(extent)
            self.index.space.open(berth.opening.serial, slot)
        apply(self.index, self.index.space.by_slot[slot], changes)
        if prepared.rows is not None:
            self.cache.keep(berth.segment.serial, changes.frame, prepared.rows)
        self.note_arrivals(changes, prepared.rows)
        if prepared.buffer is not None:
            self.ring.buffers.give(prepared.buffer)

    def abort(self, prepared: Prepared) -> None:
        """The unit was not written (its write, or one before it, failed): what was to leave stays as it was.

        Giving up a frame whose write was not tried leaves a gap, so frames prepared after it must be prepared again.
        """
        self._settled(prepared)
        if prepared.berth is not None and prepared.generation == self.generation:
            self.generation += 1
            self._failed = True
        for lane, first, count in prepared.leaving:
            rank = lane[2] << NUMBER_BITS
            self.index.show(lane[0], lane[1], range(rank | first, (rank | first) + count))
        self.index.hidden.update(prepared.locked)

    def _settled(self, prepared: Prepared) -> None:
        self._carrying -= prepared.carries
        self.under_way.end(prepared.unit, [range(first, first + count) for _lane, first, count in prepared.leaving])

    def _reopen(self) -> None:
        """After a failed write: never behind it, never into its segment again; what is durable stays where it is."""
        self.ring.abandon(self._durable_ends)
        self._written = self._next_sequence - 1
        self._dictionary = Dictionary()
        self._failed = False
        self._walk = None

    # ---- housekeeping

    def maintain(self, now: float) -> Prepared | None:
        """One bounded step of housekeeping, after every commit and while `wants_maintenance`; what it returns is
        written and applied like any other frame (None: nothing). After a failed write it makes the store usable again.
        """
        time = self._microseconds(now)
        if self._failed:
            self._reopen()
            return self._maintenance_frame(Plan.empty(self._next_number), time, carries=False)
        walk, self._walk = self._walk or self._next_walk(), None
        if walk is None:
            return None
        try:
            plan = walk.step(self._next_number, self.ring.pace.placed - self._placed)
        except (StoreCorrupt, OSError) as error:
            walk.extent.readable = False  # the rest of the journal goes on; reading these messages says what is wrong
            raise StoreUnavailable(f"housekeeping: {error}") from error
        if not walk.done:
            self._walk = walk
        carried = self._maintenance_frame(plan, time, carries=True) if plan is not None else None
        self._placed = self.ring.pace.placed
        return carried

    @property
    def under_maintenance(self) -> bool:
        """Whether `maintain` is in the middle of a segment."""
        return self._walk is not None

    @property
    def wants_maintenance(self) -> bool:
        """Whether `maintain` has something to do."""
        return self._failed or self._walk is not None or self._next_walk() is not None

    def _next_walk(self) -> Walk | None:
        if self._carrying or not self._uneven:
            return None
        chosen = victim(self.index.space.by_slot.values(), self._size_of, self.options.segment_bytes)
        if chosen is None:
            self._uneven = False
            return None
        return Walk(self, chosen, self.ring.used[chosen.slot])

    def _size_of(self, slot: int) -> int:
        return self.ring.used[slot].size

    def _maintenance_frame(self, plan: Plan, time: int, *, carries: bool) -> Prepared:
        prepared = Prepared(StoreUnit(), [], self.generation, carries=carries)
        flags = FrameFlag.CARRIED if plan.columns.numbers is not None else NO_FLAGS
        self._place(prepared, plan, time, flags, essential=True)  # carrying makes room, on a full disk above all
        self._carrying += carries
        self.under_way.begin(StoreUnit(state=plan.links.state))
        prepared.unit.state.update(plan.links.state)
        reach("journal.carry")
        return prepared

    def usage(self) -> Usage:
        """What the store takes. Costs a look at each segment."""
        space, ring = self.index.space, self.ring
        return Usage(
            ring.total_bytes,
            sum([extent.live_bytes for extent in space.by_slot.values()]),
            len(ring.used),
            ring.spares,
            self._written,
            sum([queue.depth for queue in self.index.queues.values()]),
            len(self.index.state),
            self.cache.size,
            self.volatile.size,
            "" if ring.full is None else str(ring.full.strerror),
        )

    def _collect(self) -> None:
        space = self.index.space
        if space.changed:
            self._uneven = True
            for extent in space.collect():
                self._free(extent.slot)
            segment = self.options.segment_bytes
            beyond = excess(space.by_slot.values(), self._size_of, segment)
            self.ring.want_spares(max(1, self.options.spare_segments - beyond))

    def _free(self, slot: int) -> None:
        self._durable_ends.pop(slot, None)
        self.ring.free(slot)
