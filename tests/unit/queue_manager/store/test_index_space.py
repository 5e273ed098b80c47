"""Which segments are free, which is carried forward next: the rule and the arithmetic, without any file."""

from __future__ import annotations

from gateway.queue_manager.store.compaction_policy import excess, segment_to_carry
from gateway.queue_manager.store.lanes import Lane, Queue
from gateway.queue_manager.store.place import ROW_BITS, VOLATILE, frame_of
from gateway.queue_manager.store.space import BIG_ROW, Extent, Space

SIZE = 1000


def size_of(_slot: int) -> int:
    return SIZE


def place(slot: int, row: int = 0) -> int:
    return frame_of(slot, 2) << ROW_BITS | row


def sealed(space: Space, serial: int, rows: int = 0, used: int = SIZE) -> Extent:
    extent = space.open(serial, slot=serial)
    if rows:
        extent.rows = extent.live = rows
    extent.used = used
    space.seal(extent)
    return extent


def test_a_take_outlives_its_put() -> None:
    space = Space()
    old, middle, new = (sealed(space, serial, rows) for serial, rows in ((1, 2), (2, 0), (3, 1)))
    space.release([(place(1), 1)], middle)
    assert space.collect() == [], "segment 2 says that a message of segment 1 is gone, and 1 is still there"
    space.release([(place(1, 1), 1)], new)
    assert space.collect() == [old, middle]
    assert space.by_slot == {3: new}
    space.release([(place(3), 1)], new)
    assert space.collect() == [new], "a segment does not wait for itself"


def test_an_open_segment_and_live_state_are_never_free() -> None:
    space = Space()
    open_one = space.open(1, 1)
    space.changed = True
    assert space.collect() == []
    open_one.state = 1
    space.seal(open_one)
    assert space.collect() == []
    open_one.state = 0
    space.changed = True
    assert space.collect() == [open_one]


def test_live_bytes_follow_rows_and_big_ones_are_counted_alone() -> None:
    space = Space()
    extent = sealed(space, 1, rows=10, used=1000)
    assert extent.live_bytes == 1000
    space.release([(place(1), 5)], None)
    assert extent.live_bytes == 500
    extent.used += BIG_ROW
    extent.rows += 1
    extent.live += 1
    space.big_row(place(1, 77), BIG_ROW)
    assert extent.live_bytes == 500 + BIG_ROW
    space.release([(place(1, 77), 1)], None)
    assert extent.live_bytes == 500


def test_non_persistent_batches_die_with_their_last_message() -> None:
    space = Space()
    batch = VOLATILE | 5
    space.volatile[batch] = 3
    space.release([(batch << ROW_BITS, 2)], None)
    assert space.dead_batches == []
    space.release([(batch << ROW_BITS | 2, 1)], None)
    assert (space.dead_batches, space.volatile) == ([batch], {})
    space.moved(batch << ROW_BITS, 1, 1, Lane(Queue("Q"), b"", 9))
    space.refer(None, place(9))


def test_nothing_is_carried_while_the_journal_is_mostly_live() -> None:
    space = Space()
    for serial in (1, 2, 3):
        sealed(space, serial, rows=10)
    assert segment_to_carry(space.by_slot.values(), size_of) is None
    assert excess(space.by_slot.values(), size_of, SIZE) == 0


def test_the_emptiest_segment_is_carried_first() -> None:
    space = Space()
    extents = [sealed(space, serial, rows=10) for serial in (1, 2, 3)]
    space.release([(place(1), 5), (place(2), 9), (place(3), 5)], None)
    assert segment_to_carry(space.by_slot.values(), size_of) is extents[1]
    extents[1].readable = False
    assert segment_to_carry(space.by_slot.values(), size_of) is extents[0]
    assert excess(space.by_slot.values(), size_of, SIZE) == 1


def test_on_a_full_disk_a_segment_that_holds_only_what_is_live_is_not_carried() -> None:
    space = Space()
    put, carried, dead = (sealed(space, serial, rows=100, used=880) for serial in (1, 2, 3))
    put.numbers, dead.numbers = (1, 101), (201, 301)
    space.release([(place(3), 1)], None)
    extents = space.by_slot.values()
    assert segment_to_carry(extents, size_of, pressed=True) is dead
    space.release([(place(3, 1), 99)], None)
    space.collect()
    assert segment_to_carry(extents, size_of, pressed=True) is None
    put.used = carried.used = 400
    assert segment_to_carry(extents, size_of, pressed=True) is put
    put.numbers, put.carried = (0, 0), (1, 101)
    assert segment_to_carry(extents, size_of, pressed=True) is None


def test_a_full_segment_that_dead_ones_wait_for_is_carried_after_all() -> None:
    space = Space()
    root = sealed(space, 1, rows=100)
    dead = [sealed(space, serial, rows=1) for serial in (2, 3, 4)]
    space.release([(place(1), 1)], dead[0])
    for serial, by in ((2, dead[1]), (3, dead[2]), (4, dead[2])):
        space.release([(place(serial), 1)], by)
    assert space.collect() == []
    assert segment_to_carry(space.by_slot.values(), size_of) is root
    space.release([(place(1, 1), 99)], None)
    assert space.collect() == [root, *dead]
