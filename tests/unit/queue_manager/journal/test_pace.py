"""Zeroing leaves the disk to frames, and hurries when a frame waits for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.queue_manager.journal.files import ZEROING_STEP
from gateway.queue_manager.journal.ring import RESERVE, Keep, Ring, RingOptions
from gateway.queue_manager.journal.zeroing_pace import CATCHING_UP, Pace

SEGMENT = 4 * ZEROING_STEP


def wait_for(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def in_a_thread(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_an_idle_disk_is_used_at_once() -> None:
    pace = Pace()
    for _ in range(1000):
        pace.wait(ZEROING_STEP)


def test_while_frames_are_written_zeroing_keeps_a_little_ahead_of_them() -> None:
    pace = Pace()
    pace.writing = True
    zeroed = []
    thread = in_a_thread(lambda: [zeroed.append(pace.wait(ZEROING_STEP)) for _ in range(3)] and None)
    assert not zeroed
    pace.placed += -(-ZEROING_STEP // CATCHING_UP)
    wait_for(lambda: len(zeroed) == 1)
    pace.placed += -(-2 * ZEROING_STEP // CATCHING_UP)
    thread.join(30)
    assert len(zeroed) == 3


def test_a_frame_that_waits_hurries_it() -> None:
    pace = Pace()
    pace.writing = True
    thread = in_a_thread(lambda: pace.wait(ZEROING_STEP))
    pace.hurry()
    thread.join(30)
    assert not thread.is_alive()


def test_the_first_frame_goes_to_the_segment_that_is_being_made(tmp_path: Path) -> None:
    tmp_path.mkdir()
    ring = Ring(tmp_path, b"s" * 16, RingOptions(segment_bytes=SEGMENT, spare_segments=3))
    ring.pace.writing = True  # the disk is busy: nothing is zeroed unless somebody waits for it
    ring.start()
    wait_for(lambda: ring._making is not None)
    making = ring._making
    position = ring.position_for(100, 1, 1, 1, keep=Keep.FOR_MESSAGES)
    assert position.segment is making
    ring.take_position(position, 1)
    assert ring.file_of(position) is position.segment.file
    ring.pace.writing = False
    wait_for(lambda: ring.spares == 1)
    ring.close()
    assert len(list(tmp_path.iterdir())) == 2 + RESERVE
    written = tmp_path.with_name("written")
    with written.open("wb") as zeros:  # a file system that compresses needs no blocks for them
        zeros.write(bytes(SEGMENT))
        os.fsync(zeros.fileno())
    least = min(written.stat().st_blocks * 512, SEGMENT)
    assert all(path.stat().st_size == SEGMENT and path.stat().st_blocks * 512 >= least for path in tmp_path.iterdir())


@pytest.mark.parametrize("goal", [1, 0])
def test_where_nothing_is_given_back_the_next_segment_is_ready_before_it_is_needed(tmp_path: Path, goal: int) -> None:
    """A queue that only grows: no frame behind the first segments waits until one has been zeroed. Where what is in
    use is sparse, and nothing but the reserve is wanted, neither.
    """
    tmp_path.mkdir()
    ring = Ring(tmp_path, b"s" * 16, RingOptions(segment_bytes=SEGMENT, spare_segments=3))
    ring.start()
    wait_for(lambda: ring.spares == 1)
    ring.want_spares(goal)
    half = SEGMENT // 2 - (64 << 10)
    for sequence in range(1, 13):
        position = ring.position_for(half, sequence, sequence, 1, keep=Keep.FOR_MESSAGES)
        assert position.segment.ready.is_set() or sequence == 1
        ring.take_position(position, sequence)
        ring.file_of(position)
        if position.opening is not None:
            ring.header_written()
        if sequence % 2 == 0:
            wait_for(lambda: ring.spares == 1)
    assert len(ring.used) == 6
    ring.close()
