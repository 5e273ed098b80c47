"""Which of the queues that messages name are watched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from embedded_rig import md
from schedulers import ManualScheduler

from gateway.ports.batch import Puts, Unit
from gateway.queue_manager.batch import watched_queues
from gateway.queue_manager.embedded import EmbeddedQueueManager


class Rig:
    """A queue manager in memory that is put to."""

    def __init__(self) -> None:
        self.scheduler = ManualScheduler()
        self.queue_manager = EmbeddedQueueManager.open(None, "QM1", self.scheduler)

    def put(self, queue: str, messages: int = 1) -> None:
        puts = Puts(queue, heads=[md()] * messages, bodies=[b"x"] * messages)
        self.queue_manager.submit(Unit(puts=[puts]), lambda _unit, _outcome: None)
        self.scheduler.run()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.queue_manager.close()


def test_queues_that_messages_name_are_watched_the_fullest_first(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_queues, "MOST_WATCHED", 3)
    manager = rig.queue_manager
    manager.mqsc("".join(f"DEFINE QLOCAL(Q.{number}) MAXDEPTH(10)\n" for number in range(6)))
    assert not manager.put_to
    for number in (1, 2, 4):
        rig.put(f"Q.{number}")
    assert manager.put_to == {"Q.1", "Q.2", "Q.4"}
    rig.put("Q.5", 8)
    assert manager.put_to == {"Q.1", "Q.2", "Q.5"}
    rig.put("Q.3", 9)
    monkeypatch.setattr(watched_queues, "monotonic", lambda: float("inf"))
    assert manager.put_to == {"Q.1", "Q.3", "Q.5"}


def test_a_queue_that_is_deleted_is_not(rig: Rig) -> None:
    rig.queue_manager.mqsc("DEFINE QLOCAL(GOES)\nDEFINE QALIAS(OTHER) TARGET(GOES)")
    rig.put("OTHER")
    assert rig.queue_manager.put_to == {"GOES"}
    rig.queue_manager.mqsc("DELETE QLOCAL(GOES) PURGE")
    assert not rig.queue_manager.put_to
