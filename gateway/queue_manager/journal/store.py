"""The store: a directory of segments and the index over them. Prepare, write and apply are three steps, so that the
caller decides which thread waits for the disk.

`prepare`, `apply` and all that reads belong to one thread; `write` may run in another, one frame at a time and in the
order of `prepare`. Frames may be prepared while an earlier one is being written.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fcntl import F_OFD_SETLK, F_UNLCK, fcntl
from pathlib import Path

from gateway.errors import StoreCorrupt, StoreError, StoreUnavailable
from gateway.ports.batch import StorageFull
from gateway.queue_manager.journal import failpoint
from gateway.queue_manager.journal.commit_mark import RANGE, drop_mark, is_removed, set_mark
from gateway.queue_manager.journal.compaction import Walk
from gateway.queue_manager.journal.decode import Rows
from gateway.queue_manager.journal.encode import LaneNumbers, encode_frame, encode_links, encode_rows, frame_length
from gateway.queue_manager.journal.finder import Finder
from gateway.queue_manager.journal.layout import BLOCK, FrameFlag
from gateway.queue_manager.journal.lock import DirectoryLock
from gateway.queue_manager.journal.plan import Plan, plan_unit
from gateway.queue_manager.journal.reader import Reader
from gateway.queue_manager.journal.recovery import Progress, recover, skipped
from gateway.queue_manager.journal.restating import Restating
from gateway.queue_manager.journal.ring import Keep, Ring, RingOptions
from gateway.queue_manager.journal.segment import FramePosition
from gateway.queue_manager.journal.sizing import AUTOMATIC, refuse_without_room, room_at, size_of_segments
from gateway.queue_manager.journal.snapshot import refuse_backup, refuse_half_restored
from gateway.queue_manager.journal.volatile import VolatileRows
from gateway.queue_manager.store.changes import Changes, apply
from gateway.queue_manager.store.compaction_policy import excess, segment_to_carry, segment_to_say_again
from gateway.queue_manager.store.index import Index, TokenRun
from gateway.queue_manager.store.numbers import parted
from gateway.queue_manager.store.packed_heads import new_packing
from gateway.queue_manager.store.place import BLOCK_BITS, NUMBER_BITS, NUMBER_MASK, VOLATILE
from gateway.queue_manager.store.space import Extent
from gateway.queue_manager.store.under_way import UnderWay
from gateway.queue_manager.store.unit import Replaced, StoreUnit

NO_FLAGS = 0


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings of a store."""

    queue_manager: str = ""
    """Its name, which MsgIds made here begin with: with it, ids of other queue managers are never taken for ours."""
    segment_bytes: int = AUTOMATIC
    spare_segments: int = 3
    direct: bool = True
    background: bool = True
    cache_bytes: int = 64 << 20
    """Rows of recent frames kept in memory."""
    volatile_bytes: int = 64 << 20
    """Non-persistent messages kept in memory; more are spilled to a file that is not recovered."""
    max_bytes: int | None = None
    """What the segments may take together; None: what the disk has."""


@dataclass(slots=True)
class Prepared:
    """A unit that has been prepared: `write` it, then `apply` it."""

    unit: StoreUnit
    generation: int
    missing: Sequence[int] = ()
    """Tokens of takes and moves whose messages were not there."""
    sequence: int = 0
    position: FramePosition | None = None
    """Where the frame goes; None: nothing of the unit needs the disk."""
    buffer: memoryview | None = None
    frame: memoryview | None = None
    """The part of the buffer that is to be written: whole blocks."""
    changes: Changes | None = None
    volatile: Changes | None = None
    rows: Rows | None = None
    volatile_rows: Rows | None = None
    leaving: Sequence[TokenRun] = ()
    """The messages that the unit takes or moves."""
    replaced: Sequence[Replaced] = ()
    """More of them."""
    numbers: tuple[list[int], list[range]] = ([], [])
    """Their numbers."""
    locked: Sequence[int] = ()
    """The numbers of those that were locked before."""
    carries: bool = False
    said_again: Extent | None = None
    """What this segment says has been written again with this frame."""


class Store:
    """Implements `storage.MessageStore`. The reader, the finder and the index answer what only reads; their calls are
    bound here.
    """

    def __init__(self, path: Path, ring: Ring, index: Index, options: StoreOptions, clock: Callable[[], float]) -> None:
        self.ring = ring
        self.index = index
        self.volatile = VolatileRows(path, options.volatile_bytes)
        self.reader = reader = Reader(ring, index, self.volatile, options.cache_bytes)
        self.finder = Finder(reader, options.queue_manager)
        self.under_way = UnderWay()
        self.fetch, self.read, self.load, self.oldest = reader.fetch, reader.read, reader.load, reader.oldest
        self.first, self.fetch_around_damage = reader.first, reader.fetch_around_damage
        self.tokens, self.tokens_after = reader.tokens, reader.tokens_after
        self.find, self.prepare_find = self.finder.find, self.finder.prepare
        self.depth, self.depths, self.replaceable = index.depth, index.depths, index.replaceable
        self.keys, self.depth_of_all = index.keys, index.depth_of_all
        self.path = path
        self.options = options
        self.generation = 0
        self._clock = clock
        self._lock: DirectoryLock | None = None
        self._lanes = LaneNumbers()
        self._next_sequence = 1
        self._next_number = 1
        self._next_batch = VOLATILE
        self._failed = False
        self._durable_ends: dict[int, tuple[int, int]] = {}
        self._written = 0
        """Sequence of the last frame that is durable."""
        self._mark = -1
        self._to_apply: deque[int] = deque()
        self._packing = new_packing()
        self._walk: Walk | Restating | None = None
        self._placed = 0
        """Bytes of frames that had been placed when the last step was done."""
        self._uneven = True
        self._carrying = 0
        self._unwritable: OSError | None = None
        """Why the last frame could not be written."""
        self.ending = ""
        """Where the store ended, if the last process did not close it."""
        self.left_out = False
        """Whether something is left out there."""
        self._trouble: StorageFull | None = None
        self._pressed = False
        """The disk was full at the last step of maintenance."""

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
        """Open a store and recover what the last process left. StoreInUse, StoreCorrupt or StoreUnavailable."""
        path, options = Path(path), options or StoreOptions()
        refuse_backup(path)
        lock = DirectoryLock(path)
        try:
            refuse_half_restored(path)
            index = Index()
            recovered = recover(path, index, direct=options.direct, progress=progress)
            present = [*recovered.used, *recovered.spares]
            room = room_at(path, sum(segment.size for segment in present), options.max_bytes)
            if options.segment_bytes == AUTOMATIC:
                options = replace(options, segment_bytes=size_of_segments(present, room))
            ring_options = RingOptions(
                options.segment_bytes, options.spare_segments, options.direct, options.background, options.max_bytes
            )
            ring = Ring(path, recovered.store or secrets.token_bytes(16), ring_options)
            if not recovered.used:  # one that holds messages is opened even so
                refuse_without_room(path, options.segment_bytes, room, options.max_bytes)
            store = cls(path, ring, index, options, clock)
            store._lock = lock
            store.ending, store.left_out = recovered.ending, recovered.left_out
            go_on = recovered.clean and bool(recovered.used)
            ring.adopt(recovered.used, recovered.spares, recovered.used[-1] if go_on else None)
            store._next_sequence = recovered.next_sequence
            store._written = recovered.next_sequence - 1
            store._next_number = recovered.next_number + (0 if recovered.clean else skipped(recovered.time, clock()))
            store._lanes = LaneNumbers(recovered.lanes if go_on else [])
            store._settle_after_recovery(go_on=go_on)
            ring.start()
            store._mark = lock.mark = set_mark(path, store._next_sequence)
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
        if self.index.space.changed:
            self._collect()

    def close(self) -> None:
        """Write the closing frame and give the directory up. Everything prepared must have been applied."""
        try:
            self._mend_files()
            if self.ring.used and self._written == self._next_sequence - 1:
                closing = Prepared(StoreUnit(), self.generation)
                self._place(closing, Plan.empty(self._next_number), int(self._clock() * 1_000_000), FrameFlag.CLOSE)
                self.write(closing)
        except StoreUnavailable:
            pass  # the next start recovers as after a crash
        finally:
            self.ring.close()
            self.volatile.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _mend_files(self) -> None:
        """Make removed files again; they are still open, but not for long."""
        if self._failed:
            self._reopen()
        self.look_after_files()
        while self.ring.missing.problem is not None and self.look_after_files():
            pass

    # ---- the three steps

    def prepare(self, unit: StoreUnit, now: float, *, at_once: bool = False) -> Prepared:
        """Make the frame. Nothing is visible yet, but what leaves is not handed out any more, unless the frame is
        written and applied, or given up, before anybody asks (`at_once`). StoreUnavailable: the disk is full.
        """
        if self._failed:
            self._reopen()
        time = int(now * 1_000_000)
        plan = plan_unit(self.reader, self.under_way, unit, self._next_number, time)
        prepared = Prepared(unit, self.generation, plan.missing)
        if plan.volatile_rows is not None:
            self._check_volatile_room()
        links = plan.links
        if plan.rows or links.takes or links.moves or links.backouts or links.state:
            self._place(prepared, plan, time, NO_FLAGS, _keep(unit) if plan.rows else Keep.FOR_TAKES)
        prepared.volatile = plan.volatile_changes(self._next_batch)
        if prepared.volatile is not None:
            prepared.volatile_rows = plan.volatile_rows
            self._next_batch += 1
        self._next_number = plan.next_number
        if not at_once:
            self._hide(prepared, plan)
        if unit.backouts or unit.state:
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
        """Hide what leaves, so that it is not handed out any more."""
        links = plan.links
        if not (links.takes or links.moves or plan.volatile_takes or plan.volatile_moves or plan.replaced):
            return
        runs = [*links.takes, *plan.volatile_takes]
        runs += [TokenRun(move.lane, move.first, move.length) for move in (*links.moves, *plan.volatile_moves)]
        hidden, leaving = self.index.hidden, self.under_way.leaving
        locked: list[int] = []
        if hidden:
            for _lane, first, count in runs:
                locked += hidden.among(range(first, first + count))
        numbers = parted(runs)
        for one in plan.replaced:
            numbers[0].extend(one.numbers)
            if hidden:
                locked += [number for number in one.numbers if number in hidden]
        hidden.add(*numbers)
        leaving.add(*numbers)
        prepared.leaving, prepared.replaced, prepared.numbers, prepared.locked = runs, plan.replaced, numbers, locked

    def _place(self, prepared: Prepared, plan: Plan, time: int, flags: int, keep: int = Keep.FOR_TAKES) -> None:
        """Give the frame its place and its bytes. A frame that opens a segment defines its lanes anew."""
        ring, lanes, columns, sequence = self.ring, self._lanes, plan.columns, self._next_sequence
        rows, packed = encode_rows(columns, self._packing) if plan.rows else ([], 0)
        try:
            sections = rows + encode_links(plan.links, lanes, plan.replaced)
            length = frame_length(sections)
            if length > ring.room:
                lanes.take_back()
                lanes = LaneNumbers()
                sections = rows + encode_links(plan.links, lanes, plan.replaced)
                length = frame_length(sections)
            position = ring.position_for(length, sequence, plan.first_number, time, keep=keep)
        except StoreError:
            lanes.take_back()
            raise
        self._lanes = lanes
        size = position.size
        buffer = ring.buffers.take(size)
        frame = buffer[:size]
        encode_frame(frame, sections, length, flags, position.salt, sequence, time, plan.first_number, plan.rows)
        ring.take_position(position, sequence)
        prepared.position, prepared.buffer, prepared.frame, prepared.sequence = position, buffer, frame, sequence
        place = position.segment.slot << BLOCK_BITS | position.offset // BLOCK
        prepared.changes = plan.changes(place, length)
        if plan.rows:
            prepared.rows = tuple.__new__(Rows, (  # without a call into Python
                time, columns.heads, columns.bodies, columns.msg_ids, columns.correl_ids, columns.expiries,
                columns.put_times, size + packed,
            ))  # fmt: skip
        self._next_sequence = sequence + 1

    def write(self, prepared: Prepared) -> None:
        """Wait for the disk: one system call. Once it has failed, nothing prepared before `prepare` is called again
        can be written.
        """
        position, frame = prepared.position, prepared.frame
        if prepared.generation != self.generation:
            raise StoreUnavailable("an earlier frame could not be written: prepare this unit of work again")
        if position is None or frame is None:
            return
        if prepared.sequence != self._written + 1:
            raise StoreError(
                f"frame {prepared.sequence} was prepared after frame {self._written + 1}: write that first"
            )
        pace = self.ring.pace
        try:
            file = self.ring.file_of(position)
            pace.writing = True
            if failpoint.armed:
                failpoint.reach("journal.before-write")
            file.write(frame, position.offset)
            if failpoint.armed:
                failpoint.reach("journal.after-write")
        except OSError as error:
            self.generation += 1  # before `_failed`: a frame that is just being prepared in the other thread is refused
            self._failed = True
            self._unwritable = error
            raise StoreUnavailable(
                f"{self.path}: {error.strerror}: nothing of this unit of work was stored; it may be tried again"
            ) from error
        finally:
            pace.writing = False
        self._unwritable = None
        self._durable_ends[position.segment.slot] = position.offset + len(frame), prepared.sequence
        self._written = prepared.sequence
        try:
            if self._mark >= 0:
                fcntl(self._mark, F_OFD_SETLK, RANGE.pack(F_UNLCK, 0, 0, prepared.sequence + 1, 0))
        except OSError:
            pass  # the next one tells readers of this one too
        self._to_apply.append(prepared.sequence)

    def apply(self, prepared: Prepared) -> None:
        """Make a written unit visible; its tokens are valid from now on. In the order of writing."""
        if prepared.position is not None:
            if not self._to_apply or self._to_apply[0] != prepared.sequence:
                raise StoreError(
                    f"frame {prepared.sequence} is not the next to apply: {list(self._to_apply)} are written"
                )
            self._to_apply.popleft()
        self._settled(prepared)
        if prepared.position is not None and prepared.changes is not None:
            self._apply_frame(prepared, prepared.position, prepared.changes)
        if prepared.volatile is not None:
            apply(self.index, None, prepared.volatile)
            if prepared.volatile_rows is not None:
                self.volatile.keep(prepared.volatile.frame, prepared.volatile_rows)
            if self.finder.searched:
                self.finder.note_arrivals(prepared.volatile, prepared.volatile_rows)
        space = self.index.space
        if space.dead_batches:
            for batch in space.dead_batches:
                self.volatile.drop(batch)
            space.dead_batches.clear()
        if space.changed:
            self._collect()
        if prepared.position is not None and prepared.position.opening is not None:
            self.ring.header_written()
        if failpoint.armed:
            failpoint.reach("journal.after-apply")

    def _apply_frame(self, prepared: Prepared, position: FramePosition, changes: Changes) -> None:
        slot = position.segment.slot
        if position.opening is not None:
            for extent in self.index.space.by_slot.values():
                if not extent.sealed:
                    self.index.space.seal(extent)
            self.index.space.open(position.opening.serial, slot)
        extent = self.index.space.by_slot[slot]
        apply(self.index, extent, changes)
        if prepared.rows is not None:
            self.reader.cache.keep(extent.serial, changes.frame, prepared.rows)
        if prepared.said_again is not None:
            self._said_again(prepared.said_again)
        if self.finder.searched:
            self.finder.note_arrivals(changes, prepared.rows)
        if prepared.buffer is not None:
            self.ring.buffers.give(prepared.buffer)

    def abort(self, prepared: Prepared) -> None:
        """The unit was not written (its write, or one before it, failed): messages that were to leave stay as they
        were.

        Giving up a frame whose write was not tried leaves a gap, so frames prepared after it must be prepared again.
        """
        self._settled(prepared)
        if prepared.position is not None and prepared.generation == self.generation:
            self.generation += 1
            self._failed = True
        for lane, first, count in [*prepared.leaving, *[run for one in prepared.replaced for run in one.takes]]:
            rank = lane[2] << NUMBER_BITS
            self.index.show(lane[0], lane[1], range(rank | first, (rank | first) + count))
        self.index.hidden.update(prepared.locked)

    def _settled(self, prepared: Prepared) -> None:
        """The unit is no longer under way."""
        unit = prepared.unit
        self._carrying -= prepared.carries
        if prepared.leaving or prepared.replaced or unit.backouts or unit.state:
            self.under_way.end(unit, prepared.numbers)

    def _reopen(self) -> None:
        """After a failed write nothing is written after it or into its segment again. What is durable stays where it
        is.
        """
        self.ring.abandon(self._durable_ends)
        self._written = self._next_sequence - 1
        self._lanes = LaneNumbers()
        self._failed = False
        self._walk = None
        self.look_after_files()
        if self.ring.missing.problem is not None:  # that is why, and may be mended before another frame is written
            self._unwritable = None

    # ---- what is locked, and small records

    def lock(self, _queue: str, _key: bytes, tokens: Sequence[int]) -> None:
        """Lock messages that were got in an open unit of work: fetches do not return them."""
        self.index.hidden.update([token & NUMBER_MASK for token in tokens])

    def unlock(self, queue: str, key: bytes, tokens: Sequence[int]) -> None:
        """Make locked messages available again, except those that leave in a frame under way."""
        leaving = self.under_way.leaving
        if leaving:
            tokens = [token for token in tokens if token & NUMBER_MASK not in leaving]
        self.index.show(queue, key, tokens)

    def state(self) -> dict[bytes, bytes]:
        """The small records."""
        return dict(self.index.state)

    # ---- maintenance

    def maintain(self, now: float) -> Prepared | None:
        """One bounded step of maintenance, after every commit and while `wants_maintenance`; the frame it returns is
        written and applied like any other (None: nothing is to be written). After a failed write it makes the store
        usable again.
        """
        time = int(now * 1_000_000)
        if self._failed:
            self._reopen()
            return self._maintenance_frame(Plan.empty(self._next_number), time, carries=False)
        walk, self._walk = self._walk or self._next_walk(), None
        if walk is None:
            return self._give_back(time)
        try:
            plan = walk.step(self._next_number, self.ring.pace.placed - self._placed)
        except (StoreCorrupt, OSError) as error:
            walk.extent.readable = False  # the rest of the journal goes on; reading these messages says what is wrong
            raise StoreUnavailable(f"maintenance: {error}") from error
        if not walk.done:
            self._walk = walk
        carried = self._maintenance_frame(plan, time, carries=True) if plan is not None else None
        if walk.done and isinstance(walk, Restating):
            if carried is not None:
                carried.said_again = walk.extent
            else:
                self._said_again(walk.extent)
        self._placed = self.ring.pace.placed
        return carried

    def _said_again(self, extent: Extent) -> None:
        if self.index.space.by_slot.get(extent.slot) is extent:
            self.index.space.said_again(extent)
            self._collect()

    def forget(self, queue: str) -> None:
        """Forget a deleted queue; nothing is kept of one that is empty."""
        self.index.forget(queue)
        self.finder.forget(queue)

    @property
    def next_number(self) -> int:
        """The number that the next message gets."""
        return self._next_number

    @property
    def under_maintenance(self) -> bool:
        """Whether `maintain` is in the middle of a segment."""
        return self._walk is not None

    @property
    def wants_maintenance(self) -> bool:
        """Whether `maintain` has something to do."""
        return self._failed or self._walk is not None or self.ring.gives_back or self._next_walk() is not None

    def _give_back(self, time: int) -> Prepared | None:
        """Open a new segment whose header lists none of the free ones; their files are removed afterwards."""
        if self._carrying or not self.ring.gives_back:
            return None
        self.ring.open_next()
        return self._maintenance_frame(Plan.empty(self._next_number), time, carries=False)

    def look_after_files(self) -> bool:
        """Find out what somebody else has done to the journal's files; called every second. Whether to go on at
        once."""
        ring, idle = self.ring, self._written == self._next_sequence - 1
        ring.forget_removed()
        elsewhere = self._lock is not None and self._lock.is_elsewhere(self.path)
        if idle and not elsewhere and is_removed(self._mark):
            drop_mark(self._mark)
            self._mark = set_mark(self.path, self._next_sequence)
            if self._lock is not None:
                self._lock.mark = self._mark
        return ring.missing.look(ring.used.values(), idle=idle, elsewhere=elsewhere)

    @property
    def storage_full(self) -> StorageFull | None:
        """Why and since when the disk takes no new messages; None: it takes them."""
        missing = self.ring.missing.problem
        error = missing or self.ring.full or self._unwritable
        if error is None:
            self._trouble = None
            return None
        why = error.strerror or str(error)
        if self._trouble is None or self._trouble.why != why:
            since = self._clock() if self._trouble is None else self._trouble.since
            self._trouble = StorageFull(since, str(self.path), why, files_missing=missing is not None)
        return self._trouble

    def _next_walk(self) -> Walk | Restating | None:
        pressed = self.ring.full is not None
        if pressed != self._pressed:
            self._pressed, self._uneven = pressed, True
        if self._carrying or not self._uneven:
            return None
        extents = self.index.space.by_slot.values()
        stale = segment_to_say_again(extents, self._size_of) if pressed else None
        if stale is not None:
            return Restating(self.index, self.under_way, stale, self.ring.used[stale.slot])
        chosen = segment_to_carry(extents, self._size_of, self.options.segment_bytes, pressed=pressed)
        if chosen is None:
            self._uneven = False
            return None
        return Walk(self.index, self.under_way, chosen, self.ring.used[chosen.slot])

    def _size_of(self, slot: int) -> int:
        return self.ring.used[slot].size

    def _maintenance_frame(self, plan: Plan, time: int, *, carries: bool) -> Prepared:
        prepared = Prepared(StoreUnit(), self.generation, carries=carries)
        flags = FrameFlag.CARRIED if plan.columns.numbers is not None else NO_FLAGS
        self._place(prepared, plan, time, flags, Keep.NOTHING if carries else Keep.FOR_TAKES)
        self._carrying += carries
        self.under_way.begin(StoreUnit(state=plan.links.state))
        prepared.unit.state.update(plan.links.state)
        if failpoint.armed:
            failpoint.reach("journal.carry")
        return prepared

    def _collect(self) -> None:
        """Give back the segments that nothing depends on any more."""
        space, options = self.index.space, self.options
        self._uneven = True
        for extent in space.collect():
            self._free(extent.slot)
        beyond = excess(space.by_slot.values(), self._size_of, options.segment_bytes)
        self.ring.want_spares(max(0, options.spare_segments - 1 - beyond))

    def _free(self, slot: int) -> None:
        self._durable_ends.pop(slot, None)
        self.ring.free(slot)


def _keep(unit: StoreUnit) -> Keep:
    """How much of the reserve has to be left by a unit that puts messages."""
    return Keep.FOR_STATE if unit.own else Keep.FOR_MESSAGES
