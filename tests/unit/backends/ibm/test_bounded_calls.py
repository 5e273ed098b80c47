"""gateway.backends.ibm.bounded_calls: which queue manager is silent, and which was only not listened to."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from schedulers import ManualScheduler

from gateway.backends.ibm import bounded_calls
from gateway.backends.ibm.bounded_calls import ANSWER_SECONDS, BoundedCalls, Unanswered


class Rig:
    """A question in progress, by a clock of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scheduler = ManualScheduler()
        monkeypatch.setattr(bounded_calls, "monotonic", self.scheduler.monotonic)
        self.silent: list[str] = []
        self.calls = BoundedCalls(self.scheduler, silent=self.silent.append)
        self.released, self.under_way = threading.Event(), threading.Event()
        self.told: list[object] = []
        self.calls.ask(self._question, self.told.append)
        assert self.under_way.wait(60)

    def _question(self) -> str:
        self.under_way.set()
        assert self.released.wait(60)
        return "found"


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    made = Rig(monkeypatch)
    yield made
    made.released.set()
    made.calls.close(60)


def test_a_queue_manager_that_does_not_answer_is_silent(rig: Rig) -> None:
    rig.scheduler.advance(ANSWER_SECONDS + 1)
    assert len(rig.silent) == 1
    assert isinstance(rig.told[0], Unanswered)


def test_behind_a_stop_of_the_gateway_it_is_heard_first(rig: Rig) -> None:
    rig.scheduler.time += 60
    rig.scheduler.advance(0)
    assert not rig.silent
    assert not rig.told
    rig.released.set()
    rig.scheduler.run_until(lambda: bool(rig.told), 60)
    assert rig.told == ["found"]


def test_a_stop_gives_no_more_time_than_it_took(rig: Rig) -> None:
    rig.scheduler.time += 60
    rig.scheduler.advance(ANSWER_SECONDS + 1)
    assert len(rig.silent) == 1


def test_whoever_waits_for_an_answer_does_not_stand_still(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a queue manager would never count as silent while the gateway waits for it again and again."""

    def waits(_self: object, seconds: float) -> None:
        rig.scheduler.time += seconds
        raise bounded_calls.TooLate

    monkeypatch.setattr(bounded_calls.Future, "result", waits)
    with pytest.raises(Unanswered):
        rig.calls.call(lambda: "behind it")
    monkeypatch.undo()
    monkeypatch.setattr(bounded_calls, "monotonic", rig.scheduler.monotonic)
    rig.scheduler.advance(0)
    assert rig.calls.silence() >= ANSWER_SECONDS
    assert isinstance(rig.told[0], Unanswered)
