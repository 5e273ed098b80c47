"""Messages in segments and groups as rules get them: one contract for the embedded queue manager and for `ibm` with
both bindings, with and without a buffer in front."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mq_segments
import mqi_clients
import pytest
from ibm_rig import OBJECTS, BatchRig, BufferRig, EmbeddedRig, Rig, served

from gateway.mq import mqmd, situations
from gateway.mq.situations import Putter
from gateway.ports.batch import Puts, Stored, Takes, Unit
from gateway.ports.sources import Claims, Incomplete

pytestmark = pytest.mark.mqi
MARKINT = 1500
TEXT = OBJECTS + f"\nALTER QMGR MARKINT({MARKINT})\nDEFINE QLOCAL(REPORTS) REPLACE"
LASTING = TEXT.replace(f"MARKINT({MARKINT})", "MARKINT(60000)")
"""For two gateways: longer than a busy machine takes from a mark to its commit."""
COD = 0x800
_groups = itertools.count(1)


class Consumer:
    """What a rule asks of the port, for one queue."""

    def __init__(self, rig: BatchRig, *, groups: bool = False) -> None:
        self.rig: Any = rig
        self.manager: Any = rig.queue_manager
        self.arrived = threading.Event()
        self.manager.gather("APP.Q", groups=groups)
        self.manager.consume("APP.Q", self.arrived.set)

    def page(self, limit: int = 100) -> list[Stored]:
        claims = isinstance(getattr(self.rig, "buffer", self.manager), Claims)
        found: list[Stored] = (self.manager.claim if claims else self.manager.fetch)("APP.Q", b"", limit)
        return found

    def take(self, stored: list[Stored]) -> None:
        takes = Takes("APP.Q", b"", [one.token for one in stored])
        assert not self.rig.commit(Unit(takes=[takes])).failures

    def messages(self, count: int, limit: int = 100) -> list[Stored]:
        """The next ones, taken page by page."""
        found: list[Stored] = []
        until = time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < until, [one.data[:20] for one in found]
            page = self.page(limit)
            if page:
                self.take(page)
                found += page
            else:
                time.sleep(0.02)
        return found

    def incomplete(self) -> Incomplete:
        found: Incomplete = self.manager.incomplete("APP.Q")
        return found

    def depth(self) -> int:
        return int(self.manager.depth("APP.Q"))


def put(rig: BatchRig, *messages: tuple[bytes, bytes]) -> None:
    puts = Puts("APP.Q", heads=[head for head, _ in messages], bodies=[body for _, body in messages])
    assert not rig.commit(Unit(puts=[puts])).failures


def segments(data: bytes, size: int, **fields: Any) -> list[tuple[bytes, bytes]]:
    md = mqmd.build(msg_flags=1, persistence=1, **fields)
    return mq_segments.segments(md, data, size, group_id=b"segments %d" % next(_groups) + bytes(10))


def members(*datas: bytes) -> list[tuple[bytes, bytes]]:
    group = (b"group %d" % next(_groups)).ljust(24, b"\0")
    return mq_segments.group([(mqmd.build(persistence=1), data) for data in datas], group)


PLAIN = (mqmd.build(persistence=1), b"plain")


@pytest.fixture(params=["embedded", "ibmmq", "pymqi"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchRig]:
    monkeypatch.setattr("gateway.backends.ibm.watcher.WAIT_MILLISECONDS", 100)  # stopping waits for one
    if request.param == "embedded":
        made: BatchRig = EmbeddedRig(tmp_path / "data")
        made.queue_manager.mqsc(TEXT)  # type: ignore[attr-defined]
        yield made
        made.close()
        return
    mqi_clients.load_bindings()
    where = tmp_path / "mqi.sock"
    with served(None, where, TEXT):
        if request.param == "buffer":
            made = BufferRig("ibmmq", str(where), tmp_path / "buffer")
            made.until("connected")
        else:
            made = Rig(request.param, str(where))
        yield made
        made.close()


on_mq = pytest.mark.parametrize("rig", ["ibmmq", "pymqi"], indirect=True)
"""The embedded queue manager is asked in tests/unit/queue_manager/test_gathering.py."""


@pytest.mark.parametrize("rig", ["embedded", "ibmmq", "pymqi", "buffer"], indirect=True)
def test_segments_are_one_message_byte_for_byte(rig: BatchRig) -> None:
    """In any order, of any size, among others; gone with one take."""
    consumer = Consumer(rig)
    data = random.Random(7).randbytes(300_000)
    parts = segments(data, 65_536, msg_id=b"one".ljust(24, b"\0"))
    random.Random(1).shuffle(parts)
    put(rig, PLAIN, *parts, PLAIN, *segments(b"short" * 10, 16))
    found = consumer.messages(4)
    assert [one.data for one in found] == [b"plain", data, b"plain", b"short" * 10]
    md = mqmd.unpack(found[1].md)
    assert (md.msg_flags & 6, md.offset, md.original_length, md.group_id) == (0, 0, -1, bytes(24))
    assert md.msg_id == b"one".ljust(24, b"\0")
    assert consumer.depth() == 0


def test_what_is_incomplete_stays_and_comes_when_it_is_whole(rig: BatchRig) -> None:
    consumer = Consumer(rig)
    parts = segments(b"0123456789" * 10, 32)
    put(rig, *parts[:2], PLAIN)
    assert [one.data for one in consumer.messages(1)] == [b"plain"]
    assert consumer.page() == []
    put(rig, *parts[2:])
    assert [one.data for one in consumer.messages(1)] == [b"0123456789" * 10]
    assert consumer.depth() == 0


def test_one_report_for_all_segments(rig: BatchRig) -> None:
    """COD, when the message has left its queue."""
    put(rig, *segments(b"x" * 64, 16, report=COD, reply_to_q="REPORTS", msg_id=b"m".ljust(24, b"\0")))
    Consumer(rig).messages(1)
    [report] = rig.queue_manager.fetch("REPORTS", b"", 10)
    assert mqmd.unpack(report.md).correl_id == b"m".ljust(24, b"\0")


@pytest.mark.parametrize("rig", ["embedded", "ibmmq", "pymqi", "buffer"], indirect=True)
def test_a_group_is_wanted_whole(rig: BatchRig) -> None:
    """In logical order, whatever the order of arrival, in one page; with a message in segments among its own."""
    consumer = Consumer(rig, groups=True)
    one, two, three = members(b"1", b"2" * 40, b"3")
    cut = mq_segments.segments(
        mqmd.with_number(two[0], mqmd.AT_MSG_FLAGS, 9), two[1], 16, group_id=two[0][mqmd.GROUP_ID]
    )
    put(rig, three, cut[1], PLAIN, cut[0], one)
    assert [stored.data for stored in consumer.messages(1)] == [b"plain"]
    put(rig, *cut[2:])
    page = consumer.messages(3, limit=1)
    assert [stored.data for stored in page] == [b"1", b"2" * 40, b"3"]
    assert [mqmd.unpack(stored.md).msg_seq_number for stored in page] == [1, 2, 3]
    assert consumer.depth() == 0


def test_groups_as_they_come(rig: BatchRig) -> None:
    consumer = Consumer(rig)
    one, two, three = members(b"1", b"2", b"3")
    put(rig, three, one)
    assert [stored.data for stored in consumer.messages(2)] == [b"3", b"1"]
    put(rig, two)
    consumer.messages(1)


def test_many_of_both(rig: BatchRig) -> None:
    consumer = Consumer(rig, groups=True)
    for number in range(20):
        put(rig, *segments(b"%d." % number * 40, 32), *members(*[b"%d-%d" % (number, at) for at in range(5)]))
    found = [one.data for one in consumer.messages(120, limit=7)]
    assert [one for one in found if b"." in one] == [b"%d." % number * 40 for number in range(20)]
    assert [one for one in found if b"-" in one] == [b"%d-%d" % (n, at) for n in range(20) for at in range(5)]
    assert consumer.depth() == 0


@on_mq
def test_what_stays_incomplete_is_counted(rig: BatchRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.backends.ibm.gatherer._STAYS_SECONDS", 1.0)
    consumer = Consumer(rig)
    parts = segments(b"x" * 64, 16)
    put(rig, *parts[1:])
    until = time.monotonic() + 60
    while not (waiting := consumer.incomplete()).number:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert waiting.group_id == parts[0][0][mqmd.GROUP_ID]
    assert time.time() - 60 < waiting.since < time.time()
    put(rig, parts[0])
    consumer.messages(1)
    while consumer.incomplete().number:
        assert time.monotonic() < until
        time.sleep(0.05)


@on_mq
def test_a_message_that_is_too_long_says_so(rig: BatchRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut to what a queue manager takes, and tells its length; it leaves with all its segments."""
    monkeypatch.setattr("gateway.backends.ibm.watcher._HEADERS", -4_000_000)
    consumer = Consumer(rig)
    put(rig, *segments(b"x" * 300_000, 65_536))
    [cut] = consumer.messages(1)
    assert len(cut.data) == 4_194_304 - 4_000_000 + 1
    assert mqmd.unpack(cut.md).original_length == 300_000
    assert consumer.depth() == 0


@on_mq
def test_order_is_kept_when_marks_run_out_while_they_wait(rig: BatchRig) -> None:
    """Each is marked again by what it begins with."""
    consumer = Consumer(rig, groups=True)
    expected: list[bytes] = []
    for number in range(4):
        body = b"%d" % number
        put(rig, (PLAIN[0], body), *segments(b"s%d " % number * 20, 32), *members(b"g" + body, b"h" + body))
        put(rig, *transmitted(b"t%d " % number * 20, 32))
        expected += [body, b"s%d " % number * 20, b"g" + body, b"h" + body, b"t%d " % number * 20]
    consumer.take(first := consumer.page(1))
    until = time.monotonic() + 1.6 * MARKINT / 1000
    found = list(first)
    while time.monotonic() < until:
        time.sleep(0.02)
    found += consumer.messages(len(expected) - len(found), limit=2)
    assert [arrived(one) if one.data.startswith(b"XQH ") else one.data for one in found] == expected
    assert consumer.depth() == 0


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_two_gateways_share_segments_and_groups(driver: str, tmp_path: Path) -> None:
    """Each message and each group goes to one of them, whole."""
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", LASTING):
        rigs = [Rig(driver, str(tmp_path / "mqi.sock")) for _ in range(2)]
        consumers = [Consumer(rig, groups=True) for rig in rigs]
        expected: list[bytes] = []
        for number in range(12):
            cut, group = segments(b"s%d " % number * 20, 32), members(b"g%d" % number, b"h%d" % number)
            for part in (*cut, *group):  # each a unit of work of its own
                put(rigs[0], part)
            expected += [b"s%d " % number * 20, b"g%d" % number, b"h%d" % number]
        got: list[bytes] = []
        until = time.monotonic() + 60
        while len(got) < len(expected):
            assert time.monotonic() < until, got
            for consumer in consumers:
                page = consumer.page(5)
                consumer.take(page)
                got += [one.data for one in page]
            time.sleep(0.01)
        assert sorted(got) == sorted(expected)
        assert consumers[0].depth() == 0
        for number in range(12):
            assert got.index(b"h%d" % number) == got.index(b"g%d" % number) + 1
        for rig in rigs:
            rig.close()


# Behind transmission headers

QMGR = Putter("mqm", "QM9", 7, "20260101", "12000000")
_sent = itertools.count(1)


def transmitted(data: bytes, size: int) -> list[tuple[bytes, bytes]]:
    """As a queue manager puts the segments of a message for a remote queue."""
    return [
        situations.to_transmission(*one, "plant/cmd", "dev-7", msg_id=b"%024d" % next(_sent), putter=QMGR)
        for one in segments(data, size, format="MQSTR")
    ]


def arrived(stored: Stored) -> bytes:
    return situations.from_transmission(stored.md, stored.data).data if stored.data != b"plain" else b"plain"


@pytest.mark.parametrize("rig", ["embedded", "ibmmq", "pymqi", "buffer"], indirect=True)
def test_segments_behind_transmission_headers_are_one_message(rig: BatchRig) -> None:
    """In any order, in several units of work, among others; all of them gone with one take."""
    consumer = Consumer(rig)
    data = random.Random(7).randbytes(200_000)
    parts = [*transmitted(data, 65_536), *transmitted(b"0123456789" * 10, 32)]
    random.Random(3).shuffle(parts)
    for part in parts[:3]:
        put(rig, part)
    put(rig, PLAIN, *parts[3:-1])
    first = [arrived(one) for one in consumer.messages(2)]
    assert consumer.page() == []
    put(rig, parts[-1])
    last = [arrived(one) for one in consumer.messages(1)]
    assert sorted(first + last) == sorted([b"plain", data, b"0123456789" * 10])
    assert consumer.depth() == 0


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_two_gateways_share_what_is_behind_transmission_headers(driver: str, tmp_path: Path) -> None:
    """Each message goes to one of them, whole, though both have marked segments of it."""
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", LASTING):
        rigs = [Rig(driver, str(tmp_path / "mqi.sock")) for _ in range(2)]
        consumers = [Consumer(rig) for rig in rigs]
        expected = [b"t%d " % number * 20 for number in range(12)]
        for data in expected:
            for part in transmitted(data, 32):  # each a unit of work of its own
                put(rigs[0], part)
        got: list[bytes] = []
        until = time.monotonic() + 60
        while len(got) < len(expected):
            assert time.monotonic() < until, got
            for consumer in consumers:
                page = consumer.page(5)
                consumer.take(page)
                got += [arrived(one) for one in page]
            time.sleep(0.01)
        assert sorted(got) == sorted(expected)
        assert consumers[0].depth() == 0
        for rig in rigs:
            rig.close()
