"""Several programs wait on one queue: each is answered when there is something for it, whoever waits before it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest
from buffer_rig import settle
from embedded_rig import MqiRig, md

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import GetOptions, ObjectDescriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.local_queue import LocalQueue

WAIT = mq.MQGMO_WAIT | mq.MQGMO_NO_SYNCPOINT
FIRST = b"first".ljust(24, b"\0")


@pytest.fixture
def rig() -> Iterator[MqiRig]:
    made = MqiRig(None, "DEFINE QLOCAL(Q) MSGDLVSQ(PRIORITY)")
    yield made
    made.queue_manager.close()


class Program:
    """One that waits on the queue."""

    def __init__(self, rig: MqiRig, name: str = "Q") -> None:
        self.rig = rig
        self.connection = rig.queue_manager.connect(user="ana")
        self.handle = self.connection.open(ObjectDescriptor(name), mq.MQOO_INPUT_SHARED | mq.MQOO_BROWSE).handle
        self.arrived: list[Any] = []

    def get(self, options: int) -> bytes:
        return self.connection.get(self.handle, md(), GetOptions(options), 100).data

    def wait(self, options: int = 0, **others: Any) -> Program:
        asked = GetOptions(options | (0 if options & mq.MQGMO_BROWSE_NEXT else WAIT) | mq.MQGMO_WAIT, **others)
        self.connection.wait(self.handle, md(), asked, 100, None, self.arrived.append)
        return self

    @property
    def found(self) -> list[bytes | int]:
        settle(self.rig.queue_manager, self.rig.scheduler)
        return [one.reason if isinstance(one, MQError) else one.data for one in self.arrived]


def test_whoever_asks_to_be_told_of_the_end_is_told_behind_one_that_does_not(rig: MqiRig) -> None:
    others, asks = [Program(rig).wait() for _ in range(3)], Program(rig).wait(mq.MQGMO_FAIL_IF_QUIESCING)
    rig.queue_manager.quiesce()
    assert asks.found == [mq.MQRC_Q_MGR_QUIESCING]
    assert [one.found for one in others] == [[], [], []]


def test_a_browser_whose_cursor_is_past_a_message_does_not_keep_it_from_others(rig: MqiRig) -> None:
    rig.put("Q", b"low", descriptor=md(priority=1))
    browser = Program(rig)
    assert browser.get(mq.MQGMO_BROWSE_FIRST) == b"low"
    getter = Program(rig)
    assert getter.get(mq.MQGMO_NO_SYNCPOINT) == b"low"
    browser.wait(mq.MQGMO_BROWSE_NEXT)
    getter.wait()
    rig.put("Q", b"high", descriptor=md(priority=7))
    assert getter.found == [b"high"]


def test_a_message_that_is_backed_out_before_the_cursor_of_a_browser_is_got(rig: MqiRig) -> None:
    for data in (b"one", b"two"):
        rig.put("Q", data)
    browser, holds, getter = Program(rig), Program(rig), Program(rig)
    assert holds.get(mq.MQGMO_SYNCPOINT) == b"one"
    assert browser.get(mq.MQGMO_BROWSE_FIRST) == b"two"
    assert getter.get(mq.MQGMO_NO_SYNCPOINT) == b"two"
    browser.wait(mq.MQGMO_BROWSE_NEXT)
    getter.wait()
    holds.connection.back()
    assert getter.found == [b"one"]


@pytest.mark.parametrize("options", [mq.MQGMO_ALL_MSGS_AVAILABLE, mq.MQGMO_COMPLETE_MSG])
def test_who_waits_for_something_whole_does_not_keep_a_part_from_others(rig: MqiRig, options: int) -> None:
    waits, takes = Program(rig).wait(options), Program(rig).wait()
    flags = mq.MQMF_MSG_IN_GROUP if options == mq.MQGMO_ALL_MSGS_AVAILABLE else mq.MQMF_SEGMENT
    rig.put("Q", b"part", descriptor=md(flags=flags, group_id=FIRST, sequence=1, version=2))
    assert (waits.found, takes.found) == ([], [b"part"])


def test_an_alias_that_changes_wakes_those_that_wait_through_it(rig: MqiRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be ten thousand of either."""
    rig.mqsc("".join(f"DEFINE QALIAS(A{number}) TARGET(Q)\n" for number in range(3)))
    plain, through, done = Program(rig), Program(rig, "A0").wait(), Program(rig, "A1").wait()
    rig.put("Q", b"x")
    rig.put("Q", b"y")
    assert (through.found, done.found) == ([b"x"], [b"y"])
    through.wait()
    woken, whole = list[str](), Core.wake

    def counted(core: Core, queue: LocalQueue, correl_ids: Collection[bytes] | None = None) -> None:
        woken.append(queue.name)
        whole(core, queue, correl_ids)

    monkeypatch.setattr(Core, "wake", counted)
    rig.mqsc("".join(f"DEFINE QALIAS(A{number}) TARGET(Q) DESCR(x) REPLACE\n" for number in range(2, 22)))
    assert woken == []
    rig.mqsc("ALTER QALIAS(A0) GET(DISABLED)")
    assert woken == ["Q"]
    assert through.found == [b"x", mq.MQRC_GET_INHIBITED]
    plain.wait()
    rig.mqsc("ALTER QALIAS(A0) GET(ENABLED)")
    assert plain.found == []
