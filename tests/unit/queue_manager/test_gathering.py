"""Messages in segments and groups as the batch port of the embedded queue manager gives them to rules."""

from __future__ import annotations

import itertools
import random

import mq_segments
import pytest
from embedded_rig import SMALL
from schedulers import ManualScheduler

from gateway.mq import mqmd
from gateway.ports.batch import Outcome, Puts, Stored, Takes, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor
from gateway.ports.sources import MAX_GROUP, Gathers
from gateway.queue_manager.embedded import EmbeddedQueueManager

GROUP = b"one group".ljust(24, b"\0")
COD, COMPLETE = 0x800, 0x10000
OBJECTS = "DEFINE QLOCAL(A)\nDEFINE QLOCAL(REPORTS)"


class Rig:
    def __init__(self, path):
        self.scheduler = ManualScheduler()
        self.manager = EmbeddedQueueManager.open(path, "QM1", self.scheduler, OBJECTS, store_options=SMALL)

    def commit(self, unit):
        outcomes = []
        self.manager.submit(unit, lambda _unit, outcome: outcomes.append(outcome))
        self.scheduler.run_until(lambda: bool(outcomes))
        self.scheduler.run()
        assert outcomes == [Outcome()]

    def put(self, *messages, priority=0):
        puts = Puts("A", heads=[head for head, _ in messages], bodies=[body for _, body in messages], priority=priority)
        self.commit(Unit(puts=[puts]))

    def page(self, limit=100):
        return self.manager.fetch("A", b"", limit)

    def take(self, *stored: Stored):
        self.commit(Unit(takes=[Takes("A", b"", [one.token for one in stored])]))


@pytest.fixture(params=["memory", "journal"])
def rig(request, tmp_path):
    made = Rig(None if request.param == "memory" else tmp_path / "data")
    yield made
    made.manager.close()


def segments(data, size=16, group=GROUP, **fields):
    md = mqmd.build(msg_flags=1, persistence=1, **fields)
    return mq_segments.segments(md, data, size, group_id=group)


def members(count, group=GROUP, **fields):
    messages = [(mqmd.build(persistence=1, **fields), b"%d" % number) for number in range(1, count + 1)]
    return mq_segments.group(messages, group)


PLAIN = (mqmd.build(persistence=1), b"plain")


def test_it_is_part_of_the_port(rig):
    assert isinstance(rig.manager, Gathers)


@pytest.mark.parametrize("seed", range(6))
def test_segments_in_any_order_are_one_message(rig, seed):
    """Byte for byte, in the place of the first that came, and gone with one take."""
    data = bytes(range(256))
    parts = segments(data, 32, msg_id=b"m".ljust(24, b"\0"))
    random.Random(seed).shuffle(parts)
    rig.put(PLAIN, *parts, PLAIN)
    first, whole, last = rig.page()
    assert (first.data, whole.data, last.data) == (b"plain", data, b"plain")
    md = mqmd.unpack(whole.md)
    assert (md.msg_flags & 6, md.offset, md.group_id, md.msg_seq_number) == (0, 0, bytes(24), 1)
    assert md.msg_id == b"m".ljust(24, b"\0")
    rig.take(first, whole, last)
    assert rig.manager.depth("A") == 0


def test_an_incomplete_message_stays_holds_up_nobody_and_is_counted(rig):
    parts = segments(b"x" * 64)
    rig.put(*parts[:-1], PLAIN)
    [plain] = rig.page(limit=1)
    assert plain.data == b"plain"
    rig.take(plain)
    assert rig.page() == []
    waiting = rig.manager.incomplete("A")
    assert (waiting.number, waiting.group_id, waiting.whole_group) == (1, GROUP, False)
    assert waiting.since > 0
    rig.put(parts[-1])
    [whole] = rig.page()
    assert whole.data == b"x" * 64
    assert rig.manager.incomplete("A").number == 0


def test_an_incomplete_message_that_is_cleared_is_forgotten(rig):
    rig.put(segments(b"x" * 64)[1])
    assert rig.page() == []
    assert rig.manager.incomplete("A").number == 1
    rig.manager.mqsc("CLEAR QLOCAL(A)")
    assert rig.page() == []
    assert rig.manager.incomplete("A").number == 0


def test_what_a_program_holds_comes_when_it_is_back(rig):
    parts = segments(b"x" * 64)
    rig.put(*parts)
    connection = rig.manager.connect(user="app")
    handle = connection.open(ObjectDescriptor(name="A"), 2)[0]
    connection.get(handle, mqmd.build(), GetOptions(2), 1000)
    assert rig.page() == []
    connection.back()
    [whole] = rig.page()
    assert whole.data == b"x" * 64
    assert mqmd.unpack(whole.md).backout_count == 1


def test_one_report_for_all_segments(rig):
    rig.put(*segments(b"x" * 64, report=COD, reply_to_q="REPORTS", msg_id=b"m".ljust(24, b"\0")))
    rig.take(*rig.page())
    [report] = rig.manager.fetch("REPORTS", b"", 10)
    assert mqmd.unpack(report.md).correl_id == b"m".ljust(24, b"\0")


@pytest.mark.parametrize("options", [2, 4])
def test_one_report_when_a_program_gets_the_message_whole(rig, options):
    rig.put(*segments(b"x" * 64, report=COD | 0x3000, reply_to_q="REPORTS"))
    connection = rig.manager.connect(user="app")
    handle = connection.open(ObjectDescriptor(name="A"), 2)[0]
    assert connection.get(handle, mqmd.build(), GetOptions(options | COMPLETE), 1000).data == b"x" * 64
    connection.commit()
    [report] = rig.manager.fetch("REPORTS", b"", 10)
    assert report.data == b"x" * 64


def test_a_message_that_is_too_long_is_given_as_too_long(rig):
    rig.manager.mqsc("ALTER QMGR MAXMSGL(32768)")
    rig.put(*segments(b"x" * 70_000, 32_768))
    [long] = rig.page()
    assert len(long.data) == 32_769
    assert mqmd.unpack(long.md).original_length == 70_000
    rig.take(long)
    assert rig.manager.depth("A") == 0


def test_what_is_left_of_expiry(rig):
    rig.put(*segments(b"x" * 32, expiry=600), (mqmd.build(expiry=600), b"plain"))
    rig.scheduler.advance(20.0)
    assert [mqmd.unpack(one.md).expiry for one in rig.page()] == [400, 400]
    rig.scheduler.advance(50.0)
    assert rig.page() == []


def test_groups_come_as_they_come_unless_they_are_wanted_whole(rig):
    first, second, third = members(3)
    rig.put(second, PLAIN, first)
    assert [one.data for one in rig.page()] == [b"2", b"plain", b"1"]
    rig.manager.release("A")
    rig.manager.gather("A", groups=True)
    assert [one.data for one in rig.page()] == [b"plain"]
    assert rig.manager.incomplete("A")[::3] == (1, True)
    rig.put(third)
    page = rig.page(limit=2)
    assert [one.data for one in page] == [b"1", b"2", b"3"]
    assert [mqmd.unpack(one.md).msg_seq_number for one in page] == [1, 2, 3]
    rig.take(*page)
    rig.manager.gather("A", groups=False)
    assert [one.data for one in rig.page()] == [b"plain"]


def test_groups_of_different_priority_with_segments_in_them(rig):
    rig.manager.gather("A", groups=True)
    one, two, three = members(3)
    cut = mq_segments.segments(mqmd.with_number(two[0], mqmd.AT_MSG_FLAGS, 9), b"s" * 40, 16, group_id=GROUP)
    other = members(2, b"another".ljust(24, b"\0"))
    rig.put(three, *reversed(cut), other[0])
    rig.put(one, other[1], priority=5)
    page = rig.page()
    assert [stored.data for stored in page] == [b"1", b"s" * 40, b"3", b"1", b"2"]
    assert [mqmd.unpack(stored.md).msg_flags & ~1 for stored in page] == [8, 8, 24, 8, 24]
    rig.take(*page)
    assert rig.manager.depth("A") == 0


def test_a_group_that_is_too_large_stays(rig):
    rig.manager.gather("A", groups=True)
    rig.put(*members(MAX_GROUP + 1), PLAIN)
    assert [one.data for one in rig.page()] == [b"plain"]
    assert rig.manager.incomplete("A").number == 1


def test_many_messages_in_segments_over_several_pages(rig):
    for number in range(7):
        rig.put(*segments(b"%d" % number * 40, group=b"%d" % number * 24))
    got = []
    for _ in itertools.count():
        page = rig.page(limit=2)
        if not page:
            break
        got += [one.data[:1] for one in page]
        rig.take(*page)
    assert got == [b"%d" % number for number in range(7)]
