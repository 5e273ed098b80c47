"""The batch port of the embedded queue manager, over memory and over the journal."""

from __future__ import annotations

import pytest
from strategies_embedded import SMALL, ManualScheduler, md

from gateway.backends.embedded.queue_manager import EmbeddedQueueManager
from gateway.ports.batch import Moves, Outcome, Puts, Replace, Takes, Unit


class Rig:
    def __init__(self, path, objects=""):
        self.path = path
        self.scheduler = ManualScheduler()
        self.queue_manager = EmbeddedQueueManager.open(path, "QM1", self.scheduler, objects, store_options=SMALL)

    def commit(self, unit):
        outcomes = []
        self.queue_manager.submit(unit, lambda _unit, outcome: outcomes.append(outcome))
        self.scheduler.run_until(lambda: bool(outcomes))
        assert len(outcomes) == 1
        self.scheduler.run()
        return outcomes[0]

    def restart(self):
        self.queue_manager.close()
        self.queue_manager = EmbeddedQueueManager.open(self.path, "QM1", self.scheduler, store_options=SMALL)


@pytest.fixture(params=["memory", "journal"])
def rig(request, tmp_path):
    made = Rig(
        None if request.param == "memory" else tmp_path / "data", "DEFINE QLOCAL(A)\nDEFINE QLOCAL(B) MAXDEPTH(3)"
    )
    yield made
    made.queue_manager.close()


def puts(queue, *texts, **others):
    return Puts(queue, heads=[md()] * len(texts), bodies=[text.encode() for text in texts], **others)


def test_put_is_fetched_in_order_and_leaves_by_take(rig):
    assert rig.commit(Unit(puts=[puts("A", "1", "2", "3")])) == Outcome()
    found = rig.queue_manager.fetch("A", b"", 10)
    assert [one.data for one in found] == [b"1", b"2", b"3"]
    assert found[0].md[48:64] == b"AMQ QM1         "
    assert len({one.md[48:72] for one in found}) == 3
    assert rig.queue_manager.depth("A") == 3
    assert rig.commit(Unit(takes=[Takes("A", b"", [one.token for one in found[:2]])])) == Outcome()
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 10)] == [b"3"]


def test_a_refused_put_refuses_its_unit_alone(rig):
    outcome = rig.commit(Unit(puts=[puts("A", "1"), puts("B", "1", "2", "3", "4"), puts("NONE", "x")]))
    assert [(one.puts, one.reason) for one in outcome.failures] == [(1, 2053), (2, 2085)]
    assert rig.queue_manager.depth("A") == 0
    assert rig.commit(Unit(puts=[puts("B", "1", "2", "3")])) == Outcome()


def test_inhibited_and_too_big(rig):
    rig.queue_manager.mqsc("ALTER QLOCAL(A) PUT(DISABLED)\nALTER QLOCAL(B) MAXMSGL(4)")
    outcome = rig.commit(Unit(puts=[puts("A", "1"), puts("B", "12345")]))
    assert [(one.puts, one.reason) for one in outcome.failures] == [(0, 2051), (1, 2030)]


def test_priorities_come_first(rig):
    rig.commit(
        Unit(puts=[puts("A", "low", priority=1), puts("A", "high", priority=8), puts("A", "low too", priority=1)])
    )
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 10)] == [b"high", b"low", b"low too"]


def test_staged_messages_move(rig):
    rig.commit(Unit(puts=[puts("MQGATE.STAGED", "1", "2", key=b"client")]))
    staged = rig.queue_manager.fetch("MQGATE.STAGED", b"client", 5)
    assert rig.queue_manager.depth("A") == 0
    moves = Moves("MQGATE.STAGED", b"client", [staged[1].token], "A", heads=[md(correl_id=b"c" * 24) + b"new "])
    assert rig.commit(Unit(moves=[moves])) == Outcome()
    moved = rig.queue_manager.fetch("A", b"", 5)
    assert [(one.data, one.md[72:96]) for one in moved] == [(b"new 2", b"c" * 24)]
    assert rig.queue_manager.depth("MQGATE.STAGED", b"client") == 1


def test_state_is_replaced_within_and_across_frames(rig):
    state = "MQGATE.STATE"
    rig.commit(Unit(replaces=[Replace(state, b"k", b"1"), Replace(state, b"k", b"2"), Replace(state, b"j", b"1")]))
    assert [(key, one.data) for key, one in rig.queue_manager.load(state)] == [(b"k", b"2"), (b"j", b"1")]
    rig.commit(Unit(replaces=[Replace(state, b"k", b"3"), Replace(state, b"j", None)]))
    assert [(key, one.data) for key, one in rig.queue_manager.load(state)] == [(b"k", b"3")]


def test_consumers_are_told_once_a_batch(rig):
    told = []
    rig.queue_manager.consume("A", lambda: told.append(1))
    rig.scheduler.run()
    assert not told
    rig.commit(Unit(puts=[puts("A", "1", "2"), puts("A", "3")]))
    assert told == [1]


def test_expired_messages_are_not_delivered(rig):
    rig.commit(Unit(puts=[Puts("A", heads=[md(expiry=10), md()], bodies=[b"old", b"new"])]))
    rig.scheduler.advance(1.1)
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 5)] == [b"new"]
    assert rig.queue_manager.depth("A") == 1


def test_restart_keeps_objects_and_persistent_messages(tmp_path):
    rig = Rig(tmp_path / "data", "DEFINE QLOCAL(A) MAXDEPTH(77)")
    rig.commit(Unit(puts=[puts("A", "kept"), puts("A", "lost", persistent=False)]))
    assert rig.queue_manager.depth("A") == 2
    rig.restart()
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 5)] == [b"kept"]
    assert "MAXDEPTH(77)" in " ".join(rig.queue_manager.mqsc("DISPLAY QLOCAL(A) MAXDEPTH").lines)
    rig.queue_manager.close()
