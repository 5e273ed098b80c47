"""A queue of a target that is consumed over the bindings: got under syncpoint, and off its queue with the commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mqi_clients
import pytest
from ibm_rig import OBJECTS, served
from schedulers import ManualScheduler

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.worker import Backoff
from gateway.backends.targets import intake as intakes
from gateway.backends.targets.intake import IbmIntake
from gateway.mq import mqmd
from gateway.ports.batch import Puts, Stored
from gateway.ports.sources import Backout
from gateway.ports.targets import Origin
from gateway.queue_manager.embedded import EmbeddedQueueManager

pytestmark = pytest.mark.mqi
SETTINGS = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
MORE = "\nDEFINE QLOCAL(ASIDE.Q)\nALTER QLOCAL(APP.Q) BOTHRESH(3) BOQNAME(ASIDE.Q)\n"


class Taker:
    """Who consumes, and an intake."""

    def __init__(self, origin: Origin) -> None:
        self.scheduler = ManualScheduler()
        self.messages: list[Stored] = []
        self.backout = Backout()
        self.opens = self.commits = self.working = 0
        self.alive: bool | None = None
        self.whys: list[str] = []
        self.errors: list[Exception] = []
        new_id = MessageIds(0.0, b"take")
        self.intake = IbmIntake(load("ibmmq"), SETTINGS, self.scheduler, new_id, origin, self, Backoff(0.05, 0.1))
        self.intake.start()

    def opened(self, backout: Backout) -> None:
        self.backout, self.messages = backout, []
        self.opens += 1
        self.intake.get()

    def works(self) -> None:
        self.working += 1

    def got(self, messages: list[Stored]) -> None:
        self.messages = messages

    def verified(self, *, alive: bool) -> None:
        self.alive = alive

    def committed(self) -> None:
        self.commits += 1
        self.messages = []

    def lost(self, why: str) -> None:
        self.whys.append(why)

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.whys
            self.scheduler.run()
            time.sleep(0.005)

    @property
    def bodies(self) -> list[bytes]:
        return [stored.data for stored in self.messages]

    def end(self) -> None:
        self.intake.close()
        self.intake.join()


@pytest.fixture
def queue_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedQueueManager]:
    mqi_clients.load_bindings()
    monkeypatch.setenv("MQGATE_MQI", str(tmp_path / "s"))
    with served(None, tmp_path / "s", OBJECTS + MORE) as made:
        yield made


def put(*bodies: bytes, queue: str = "APP.Q") -> None:
    connection = Connection(load("ibmmq").connect(SETTINGS), MessageIds(0.0, b"puts"))
    heads = [mqmd.build(persistence=1)] * len(bodies)
    connection.put_run(Puts(queue, heads=heads, bodies=[*bodies]), asynchronous=False)
    connection.session.commit()
    connection.session.disconnect()


def on(queue_manager: EmbeddedQueueManager, queue: str) -> list[bytes]:
    return [stored.data for _, stored in queue_manager.load(queue)]


def test_messages_are_off_their_queue_when_that_is_said(queue_manager: EmbeddedQueueManager) -> None:
    put(b"1", b"2", b"x" * 200_000)
    taker = Taker(Origin("APP.Q"))
    taker.until(lambda: taker.messages)
    assert taker.bodies == [b"1", b"2", b"x" * 200_000]
    assert taker.backout == Backout(3, "ASIDE.Q")
    taker.intake.verify()
    taker.until(lambda: taker.alive)
    put(b"4")
    taker.intake.commit(())
    taker.until(lambda: taker.commits and taker.messages)
    assert taker.bodies == [b"4"]
    taker.end()
    assert on(queue_manager, "APP.Q") == [b"4"], "what was not concluded is on its queue again"


def test_what_is_backed_out_or_lost_comes_again_and_is_counted(queue_manager: EmbeddedQueueManager) -> None:
    put(b"1", b"2")
    taker = Taker(Origin("APP.Q"))
    taker.until(lambda: taker.messages)
    taker.intake.back_out()
    taker.until(lambda: taker.opens == 2 and taker.messages)
    assert [mqmd.number(stored.md, mqmd.AT_BACKOUT_COUNT) for stored in taker.messages] == [1, 1]
    taker.end()
    other = Taker(Origin("APP.Q"))
    other.until(lambda: other.messages)
    assert [mqmd.number(stored.md, mqmd.AT_BACKOUT_COUNT) for stored in other.messages] == [2, 2]
    other.intake.commit(((1, "ASIDE.Q"),))
    other.until(lambda: other.commits)
    other.end()
    assert on(queue_manager, "APP.Q") == []
    assert on(queue_manager, "ASIDE.Q") == [b"2"]


def test_a_queue_that_is_missing_is_told_and_tried_again(
    queue_manager: EmbeddedQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "_AGAIN_SECONDS", 0.05)
    taker = Taker(Origin("LATER.Q"))
    taker.until(lambda: taker.whys)
    assert "2085" in taker.whys[0] or "LATER.Q" in taker.whys[0]
    queue_manager.mqsc("DEFINE QLOCAL(LATER.Q)")
    put(b"1", queue="LATER.Q")
    taker.until(lambda: taker.messages)
    taker.end()


def test_a_back_out_queue_that_refuses_is_tried_until_it_takes_the_message(
    queue_manager: EmbeddedQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "_ASIDE_SECONDS", 0.05)
    put(b"1", b"2")
    taker = Taker(Origin("APP.Q"))
    taker.until(lambda: taker.messages)
    taker.intake.commit(((0, "NOT.YET"),))
    taker.until(lambda: len(taker.whys) > 1)
    assert "NOT.YET" in taker.whys[0]
    assert not taker.commits
    queue_manager.mqsc("DEFINE QLOCAL(NOT.YET)")
    taker.until(lambda: taker.commits)
    taker.end()
    assert on(queue_manager, "NOT.YET") == [b"1"]


def test_a_defect_in_its_thread_is_told_and_what_was_got_comes_again(
    queue_manager: EmbeddedQueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(b"1")
    monkeypatch.setattr(intakes, "_AGAIN_SECONDS", 0.05)
    taker = Taker(Origin("APP.Q"))
    taker.until(lambda: taker.messages)
    taker.intake.commit((None,))  # type: ignore[arg-type] -- no token and queue
    taker.until(lambda: taker.opens == 2 and taker.messages)
    assert isinstance(taker.errors[0], TypeError)
    assert len(taker.errors) == 1
    assert "a defect" in taker.whys[0]
    assert taker.bodies == [b"1"]
    taker.end()


def test_publications_of_a_durable_subscription(queue_manager: EmbeddedQueueManager) -> None:
    del queue_manager
    taker = Taker(Origin("", "plant/+/alarm", "mqgate.alarms"))
    taker.until(lambda: taker.working)
    put(b"fire", queue="topic://plant/lima/alarm")
    taker.until(lambda: taker.messages)
    assert b"fire" in taker.bodies[0]
    taker.intake.commit(())
    taker.until(lambda: taker.commits)
    taker.end()
