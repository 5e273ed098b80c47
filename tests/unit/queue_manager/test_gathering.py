"""Messages in segments and groups as the batch port of the embedded queue manager gives them to rules."""

from __future__ import annotations

import itertools
import random

import mq_segments
import pytest
from embedded_rig import SMALL
from schedulers import ManualScheduler

from gateway.mq import mqmd, situations
from gateway.mq.situations import Putter
from gateway.ports.batch import Outcome, Puts, Stored, Takes, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions
from gateway.ports.sources import MAX_GROUP, Gathers
from gateway.queue_manager.batch import logical_messages
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal import finder

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


@pytest.mark.parametrize(("at", "value"), [(mqmd.AT_CCSID, 500), (mqmd.AT_ENCODING, 273)])
@pytest.mark.parametrize("groups", [False, True])
def test_segments_of_different_character_sets_or_encodings_stay(rig, at, value, groups):
    """They cannot be put together (MQGET: 2243, 2244), and each alone is not the message."""
    rig.manager.gather("A", groups=groups)
    first, second, third = segments(b"x" * 40, coded_char_set_id=1208)
    rig.put(first, second, (mqmd.with_number(third[0], at, value), third[1]), PLAIN)
    for _ in range(2):
        assert [one.data for one in rig.page()] == [b"plain"]
    assert rig.manager.incomplete("A").number == 1
    assert rig.manager.depth("A") == 4


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


def test_what_is_left_of_a_group_that_was_handed_out_comes_again(rig):
    """One of its messages could be neither delivered nor dead-lettered: it does not wait for those that are gone."""
    rig.manager.gather("A", groups=True)
    rig.put(*members(3))
    one, two, three = rig.page()
    rig.take(one, three)
    for _ in range(3):
        assert [(left.data, left.token) for left in rig.page()] == [(b"2", two.token)]
    assert rig.manager.incomplete("A").number == 0
    rig.take(two)
    assert rig.page() == []
    rig.put(*members(3)[1:])  # a group of the same name, of which the first is missing
    assert rig.page() == []
    assert rig.manager.incomplete("A").number == 1


def test_what_is_left_is_not_forgotten_for_the_groups_that_come_after_it(rig, monkeypatch):
    monkeypatch.setattr(logical_messages, "MOST_HANDED_OUT", 3)
    rig.manager.gather("A", groups=True)
    rig.put(*members(2))
    first, second = rig.page()
    rig.take(first)
    for number in range(10):
        rig.put(*members(2, b"%024d" % number))
        left, *others = rig.page()
        assert left.data == second.data
        rig.take(*others)
    assert [one.token for one in rig.page()] == [second.token]


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


# Behind transmission headers


def transmitted(data, size=32, group=GROUP, *, client="device", **fields):
    putter = Putter("mqm", "QM1", 7, "20260102", "03040506")
    return [
        situations.to_transmission(md, part, "plant/cmd", client, msg_id=b"%024d" % at, putter=putter)
        for at, (md, part) in enumerate(segments(data, size, group, **fields))
    ]


@pytest.mark.parametrize("seed", range(4))
def test_segments_behind_transmission_headers_are_one_message(rig, seed):
    data = bytes(range(256))
    parts = transmitted(data, format="MQSTR")
    random.Random(seed).shuffle(parts)
    rig.put(PLAIN, *parts, PLAIN)
    assert rig.manager.fetch_page("A", b"", 100) is None or len(rig.manager.fetch_page("A", b"", 100).tokens) == 1
    found = rig.page()
    whole = next(one for one in found if one.data != b"plain")
    assert len(found) == 3
    arrived = situations.from_transmission(whole.md, whole.data)
    assert (arrived.data, arrived.remote_q_mgr_name, mqmd.unpack(arrived.md).format) == (data, "device", "MQSTR")
    rig.take(*found)
    assert rig.manager.depth("A") == 0


def test_what_is_incomplete_behind_transmission_headers_stays_and_holds_up_nothing(rig):
    parts = transmitted(bytes(100))
    other = transmitted(b"x" * 64, group=b"other".ljust(24, b"\0"))
    rig.put(*parts[1:], *other, PLAIN)
    found = rig.page()
    assert [len(one.data) for one in found] == [500 + 64, 5]
    assert (rig.manager.incomplete("A").number, rig.manager.incomplete("A").group_id) == (1, GROUP)
    rig.take(*found)
    rig.put(parts[0])
    [whole] = rig.page()
    assert whole.data[500:] == bytes(100)
    rig.take(whole)
    assert rig.page() == []
    assert rig.manager.incomplete("A").number == 0
    assert rig.manager.depth("A") == 0


def test_segments_that_say_different_things_of_their_data_are_not_put_together(rig):
    first, last = transmitted(bytes(64), coded_char_set_id=819)
    rig.put(first, transmitted(bytes(64), coded_char_set_id=1208)[1])
    assert rig.page() == []
    rig.put(last)
    assert [len(one.data) for one in rig.page()] == [564]


def test_a_queue_manager_cuts_so_that_the_headers_find_room(rig):
    """On a transmission queue each segment has MQXQH and MQMDE before it."""
    rig.manager.mqsc("DEFINE QLOCAL(X) USAGE(XMITQ) MAXMSGL(1000)\nDEFINE QREMOTE(FAR) RNAME(T) RQMNAME(DEV) XMITQ(X)")
    connection = rig.manager.connect(application="app")
    md = mqmd.build(msg_flags=1, format="MQSTR")
    connection.put1(ObjectDescriptor("FAR"), md, PutOptions(4), bytes(range(256)) * 4)
    assert rig.manager.max_length("FAR") == 500
    assert rig.manager.depth("X") == 3
    [whole] = rig.manager.fetch("X", b"", 10)
    arrived = situations.from_transmission(whole.md, whole.data)
    assert (arrived.remote_q_name, arrived.remote_q_mgr_name, arrived.data) == ("T", "DEV", bytes(range(256)) * 4)


def test_on_a_deep_queue_groups_are_found_in_several_turns(tmp_path, monkeypatch):
    """All in one held up everybody: consumers are told to go on, and get all in order."""
    monkeypatch.setattr(finder, "PART", 64)
    rig = Rig(tmp_path / "data")
    rig.put(*[PLAIN] * 5)
    for number in range(150):
        rig.put(*members(4, b"%d" % number))
    rig.manager.gather("A", groups=True)
    pages = []

    def arrived(*_):
        page = rig.page(limit=8)
        pages.append([one.data for one in page])
        if page:
            rig.manager.submit(Unit(takes=[Takes("A", b"", [one.token for one in page])]), arrived)

    rig.manager.consume("A", arrived)
    rig.scheduler.run_until(lambda: rig.manager.depth("A") == 0)
    assert list(itertools.chain(*pages)) == [b"plain"] * 5 + [b"1", b"2", b"3", b"4"] * 150
    assert pages[:9] == [[]] * 9
    assert rig.manager.incomplete("A").number == 0
    rig.manager.close()
