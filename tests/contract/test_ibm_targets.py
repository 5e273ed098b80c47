"""A target over the bindings: whoever takes over from a gateway waits for what that has begun there, sees what it has
committed, and it commits nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mqi_clients
import pytest
from ibm_rig import HEAD, OBJECTS, served
from schedulers import ManualScheduler

from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.worker import Backoff
from gateway.backends.targets import fences
from gateway.backends.targets.target import ANSWER_SECONDS, IbmTarget
from gateway.ports.batch import Outcome, Puts, Stored, Unit
from gateway.ports.state_queues import MARKERS
from gateway.queue_manager.embedded import EmbeddedQueueManager

pytestmark = pytest.mark.mqi
KEY = b"MQGX".ljust(24, b"k")
FIRST, SECOND, THIRD = (f"{number:024x}" for number in (1, 2, 3))


class Gateway:
    """One that has a target."""

    def __init__(self, instance: str) -> None:
        self.scheduler = ManualScheduler()
        self.markers: list[bytes] = []
        settings = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
        self.target = IbmTarget(
            settings, self.scheduler, load("ibmmq"), KEY, instance=instance, backoff=Backoff(0.05, 0.2)
        )
        self.target.on_ready(self.found)
        self.target.start()
        self.until(lambda: not self.target.away)

    def found(self, markers: list[Stored]) -> None:
        self.markers = [stored.data for stored in markers]

    def until(self, condition: Callable[[], object], seconds: float = 40) -> bool:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            self.scheduler.run()
            time.sleep(0.01)
        return bool(condition())

    def put(self, body: bytes, marker: bytes) -> Outcome | None:
        outcomes: list[Outcome] = []
        unit = Unit([Puts("APP.Q", heads=[HEAD], bodies=[body]), Puts(MARKERS, "", KEY, heads=[HEAD], bodies=[marker])])
        self.target.submit(unit, lambda _unit, outcome: outcomes.append(outcome), lambda _unit, _outcome: None)
        self.until(lambda: outcomes or "started again" in self.target.away)
        return outcomes[0] if outcomes else None


@pytest.fixture
def queue_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedQueueManager]:
    mqi_clients.load_bindings()
    monkeypatch.setenv("MQGATE_MQI", str(tmp_path / "s"))
    with served(None, tmp_path / "s", OBJECTS) as made:
        yield made


def bodies(queue_manager: EmbeddedQueueManager, queue: str) -> list[bytes]:
    return [stored.data for _, stored in queue_manager.load(queue)]


def test_a_gateway_that_only_stood_still_puts_nothing_more(
    queue_manager: EmbeddedQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences, "_WAIT_SECONDS", 60.0)
    first, second, third = Gateway(FIRST), Gateway(SECOND), Gateway(THIRD)
    outcome = first.put(b"one", b"name of one")
    assert outcome is not None
    assert not outcome.failures
    worker = first.target._worker
    assert worker._connection is not None
    worker._marker.advance(worker._connection)  # a unit of work is open, and the gateway stands still
    second.target.fence_off([FIRST])
    assert not second.until(lambda: not second.target.away, 0.3), "it waits for that unit of work"
    worker._connection.session.commit()
    worker._marker.settle(committed=True)
    assert second.until(lambda: not second.target.away)
    assert second.markers == [b"name of one"]
    third.target.fence_off([FIRST])
    assert third.until(lambda: not third.target.away), "it sees that the marker has been taken"
    failed = first.put(b"two", b"name of two")
    assert failed is not None
    assert failed.failures[0].away
    assert "another gateway has taken over" in first.target.away
    assert bodies(queue_manager, "APP.Q") == [b"one"]
    outcome = second.put(b"three", b"name of three")
    assert outcome is not None
    assert not outcome.failures
    for gateway in (first, second, third):
        gateway.target.close()


def test_a_gateway_that_was_never_there_is_not_waited_for_long(
    queue_manager: EmbeddedQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    del queue_manager
    monkeypatch.setattr(fences, "_WAIT_SECONDS", 0.1)
    second = Gateway(SECOND)
    second.target.fence_off([FIRST])
    assert second.target.away
    assert second.until(lambda: not second.target.away)
    second.target.close()


def test_one_that_stands_still_is_given_up_and_what_it_did_is_told_later(queue_manager: EmbeddedQueueManager) -> None:
    gateway, told, settled = Gateway(FIRST), list[Outcome](), list[Outcome]()
    unit = Unit([Puts("APP.Q", heads=[HEAD], bodies=[b"slow"])])
    with queue_manager.core.entered():  # it answers nothing as long as this is held
        gateway.target.submit(
            unit, lambda _unit, outcome: told.append(outcome), lambda _unit, outcome: settled.append(outcome)
        )
        assert not told
        gateway.scheduler.advance(ANSWER_SECONDS)
        assert told[0].failures[0].away
        assert gateway.target.away == "it has not answered for 5 seconds"
    assert gateway.until(lambda: not gateway.target.away)
    assert settled == [Outcome()]
    assert bodies(queue_manager, "APP.Q") == [b"slow"]
    gateway.target.close()
