"""Reads of IBM MQ behind a buffer: nobody waits long for a read that hangs, and its answer is not lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from buffer_rig import Mq
from schedulers import ManualScheduler

from gateway.backends.buffer import bounded_reads
from gateway.backends.buffer.bounded_reads import BoundedReads
from gateway.backends.ibm.bounded_calls import Unanswered
from gateway.errors import MQError
from gateway.ports.sources import Backout, Subscribed


class Slow(Mq):
    """A queue manager whose answers wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()
        self.calls = 0

    def _check(self) -> None:
        self.calls += 1
        assert self.open.wait(60)
        super()._check()


class Rig:
    def __init__(self) -> None:
        self.mq = Slow()
        self.scheduler = ManualScheduler()
        self.silent: list[str] = []
        self.reads = BoundedReads(self.mq, self.scheduler, self.silent.append)

    def hangs(self, read: Callable[[], object]) -> None:
        """Let reads hang from now on; this one is not waited for. It is made once: a read whose call has not begun is
        dropped."""
        self.mq.open.clear()
        begun = False
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(bounded_reads, "BRIEF_SECONDS", 0.05)
            while not begun:
                with pytest.raises(Unanswered):
                    read()
                begun = self.reads._calls.silence() > 0

    def comes_back(self) -> None:
        self.mq.open.set()
        self.until(lambda: bool(self.reads._late) and not self.reads._calls.silence())

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.005)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(bounded_reads, "BRIEF_SECONDS", 60.0)
    rig = Rig()
    yield rig
    rig.mq.open.set()
    rig.reads.close()


def test_an_answer_that_comes_late_is_there_for_who_asks_again(rig: Rig) -> None:
    for _ in range(3):
        rig.hangs(lambda: rig.reads.backout("APP.Q"))
    assert rig.mq.calls == 1, "it is not asked again while the first call is under way"
    rig.comes_back()
    assert rig.reads.backout("APP.Q") == Backout(0, "")
    assert rig.mq.calls == 1
    assert rig.reads.backout("APP.Q") == Backout(0, "")
    assert rig.mq.calls == 2, "it serves once"


def test_one_that_is_old_is_not_taken(rig: Rig) -> None:
    rig.hangs(lambda: rig.reads.max_length("APP.Q"))
    rig.comes_back()
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) MAXMSGL(1000)")
    rig.scheduler.advance(bounded_reads.LATE_SECONDS + 1)
    assert rig.reads.max_length("APP.Q") == 1000


def test_a_late_refusal_is_one_for_who_asks_again(rig: Rig) -> None:
    rig.hangs(lambda: rig.reads.subscribe("name", "topic"))
    rig.mq.alive = False
    rig.comes_back()
    with pytest.raises(MQError, match="away"):
        rig.reads.subscribe("name", "topic")
    rig.mq.alive = True
    assert isinstance(rig.reads.subscribe("name", "topic"), Subscribed)


def test_one_that_goes_on_hanging_is_told(rig: Rig) -> None:
    rig.reads._calls.seconds = 0.1
    rig.hangs(lambda: rig.reads.backout("APP.Q"))
    rig.until(lambda: rig.reads._calls.silence() >= 0.1)
    assert not rig.silent
    rig.scheduler.advance(1.0)
    assert len(rig.silent) == 1
    assert "has not answered" in rig.silent[0]
    rig.mq.open.set()
    rig.until(lambda: not rig.reads._calls.silence())
    rig.scheduler.advance(10.0)
    assert len(rig.silent) == 1


def test_one_that_came_back_meanwhile_is_not(rig: Rig) -> None:
    rig.hangs(lambda: rig.reads.backout("APP.Q"))
    rig.mq.open.set()
    rig.until(lambda: not rig.reads._calls.silence())
    rig.scheduler.advance(10.0)
    assert not rig.silent
