"""Consumer groups: one driver at a time, cursors that never go back, purge after delay and further batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from gateway.pipeline.errors import LeaseHeld, LeaseLost, WrongOption
from gateway.pipeline.journal import groups
from gateway.pipeline.journal.groups import ConsumerGroup

WANTED = ConsumerGroup("g", "A.*", consume=True, delay=600.0)


def test_a_second_driver_waits_until_the_lease_has_run_out() -> None:
    first = groups.acquire(None, WANTED, "one:1", 60.0, 1000.0)
    with pytest.raises(LeaseHeld, match="read by one:1 for 60 more seconds"):
        groups.acquire(first, WANTED, "two:2", 60.0, 1000.0)
    second = groups.acquire(first, WANTED, "two:2", 60.0, 1061.0)
    assert second.epoch == first.epoch + 1
    with pytest.raises(LeaseLost, match="another driver, two:2, has taken over"):
        groups.acknowledge(second, first.epoch, 5, 60.0, 1062.0)


def test_a_dead_driver_of_the_same_host_is_not_waited_for() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    held = groups.acquire(None, WANTED, f"here:{gone.pid}", 60.0, 1000.0)
    assert groups.acquire(held, WANTED, "here:1", 60.0, 1001.0).owner == "here:1"
    alive = groups.acquire(None, WANTED, f"here:{os.getpid()}", 60.0, 1000.0)
    with pytest.raises(LeaseHeld):
        groups.acquire(alive, WANTED, "here:1", 60.0, 1001.0)


def test_a_group_keeps_its_queues() -> None:
    held = groups.acquire(None, WANTED, "one:1", 60.0, 1000.0)
    with pytest.raises(WrongOption, match=r"reads 'A\.\*', not 'B'"):
        groups.acquire(held, ConsumerGroup("g", "B"), "one:1", 60.0, 1000.0)


def test_a_cursor_never_goes_back_unless_moved_by_hand() -> None:
    group = groups.acquire(None, WANTED, "one:1", 60.0, 0.0)
    group = groups.acknowledge(group, 1, 50, 60.0, 1.0)
    assert groups.acknowledge(group, 1, 40, 60.0, 2.0).cursor == 50
    moved = groups.moved(group, "g", 10)
    assert (moved.cursor, moved.owner) == (10, "")
    with pytest.raises(LeaseLost, match="the cursor of consumer group 'g' was moved"):
        groups.held(moved, 1)
    with pytest.raises(LeaseLost, match="this consumer group was removed while a job read it"):
        groups.held(None, 1)
    with pytest.raises(WrongOption, match="no consumer group 'x'"):
        groups.moved(None, "x", 1)


def test_purge_waits_for_two_further_batches_and_the_delay() -> None:
    group = groups.acquire(None, WANTED, "one:1", 60.0, 0.0)
    for at, cursor in ((10.0, 100), (20.0, 200), (30.0, 300)):
        group = groups.acknowledge(group, 1, cursor, 60.0, at)
    assert groups.purgeable(group, 600.0) == 0
    assert groups.purgeable(group, 610.0) == 100
    assert groups.purgeable(group, 1200.0) == 100
    assert groups.purgeable(group, 1231.0) == 300, "an idle queue is emptied after twice the delay"


def test_the_slowest_group_decides_and_readers_alone_purge_nothing() -> None:
    fast = ConsumerGroup("fast", "A.*", cursor=300, marks=[(0.0, 300)], delay=1.0)
    slow = ConsumerGroup("slow", "A.X", consume=False, cursor=50)
    assert groups.due([fast, slow], ["A.X", "A.Y", "B"], 100.0) == {"A.X": 50, "A.Y": 300}
    assert groups.due([slow], ["A.X"], 100.0) == {}


def test_a_record_survives_and_marks_stay_bounded() -> None:
    group = groups.acquire(None, WANTED, "one:1", 60.0, 0.0)
    for at in range(1000):
        group = groups.acknowledge(group, 1, at + 1, 60.0, float(at))
    assert len(group.marks) <= groups.MARKS
    assert group.marks[-1] == (999.0, 1000)
    assert ConsumerGroup.decode(group.encode()) == group


def test_a_record_of_a_later_release() -> None:
    record = json.loads(WANTED.encode()) | {"later": 1}
    assert ConsumerGroup.decode(json.dumps(record).encode()) == WANTED
