"""The buffer over the real bindings when calls and answers get lost, and when either side ends: exact counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import mqi_clients
import pytest
from frame_proxy import CUT_AFTER, CUT_BEFORE, FORWARD, REFUSED_AFTER, REFUSED_BEFORE, FrameProxy, after_call, at_call
from ibm_rig import HEAD, OBJECTS, BufferRig, behind_proxy, served

from gateway.backends.buffer import attempt_queue
from gateway.backends.buffer.ibm_link import IbmLink
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.worker import Backoff
from gateway.mqi.wire import Verb
from gateway.ports.batch import Puts, Replace, Takes, Unit
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler

pytestmark = pytest.mark.mqi


def _released(rig: BufferRig, number: int) -> Unit:
    """A QoS 2 publication on its way out: staged, then taken from there and put, with a session record."""
    staged = Puts("MQGATE.STAGED", key=b"device", heads=[HEAD], bodies=[b"%d" % number])
    assert not rig.commit(Unit(puts=[staged])).failures
    return Unit(
        puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"%d" % number])],
        takes=[Takes("MQGATE.STAGED", b"device", list(staged.tokens))],
        replaces=[Replace("MQGATE.SESSIONS", b"session", b"%d" % number)],
    )


def _numbers(queue_manager: EmbeddedQueueManager) -> list[int]:
    return [int(stored.data) for _, stored in queue_manager.load("APP.Q")]


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
@pytest.mark.parametrize(
    ("verb", "nth", "decision"),
    [
        (Verb.COMMIT, 5, CUT_BEFORE),
        (Verb.COMMIT, 5, CUT_AFTER),
        (Verb.COMMIT, 5, REFUSED_BEFORE),  # with a reason that does not say what became of the unit
        (Verb.COMMIT, 5, REFUSED_AFTER),
        (Verb.PUT, 6, CUT_BEFORE),
        (Verb.GET, 6, CUT_AFTER),
    ],
)
def test_a_lost_answer_neither_loses_nor_doubles(
    driver: str, verb: Verb, nth: int, decision: str, tmp_path: Path
) -> None:
    make = partial(BufferRig, driver, path=tmp_path / "buffer")
    with behind_proxy(tmp_path, at_call(verb, nth, decision), make) as (queue_manager, rig):
        rig.until("connected")
        for number in range(8):
            assert not rig.commit(_released(rig, number)).failures
        rig.until("connected")
        assert _numbers(queue_manager) == list(range(8))
        assert any(line.startswith("buffering") for line in rig.told), "the connection was meant to break"
        assert [stored.data for _, stored in rig.queue_manager.load("MQGATE.SESSIONS")] == [b"7"]


def test_half_a_unit_that_cannot_be_backed_out_is_not_committed_by_mqdisc(tmp_path: Path) -> None:
    """MQBACK fails, and fails again; the gateway is told to end, with which the queue manager backs it out."""
    refusing = after_call(Verb.BACK_OUT, 1, REFUSED_BEFORE)  # the first one is of the asynchronous attempt
    with behind_proxy(tmp_path, refusing, partial(BufferRig, "ibmmq", path=tmp_path / "buffer")) as (
        queue_manager,
        rig,
    ):
        rig.until("connected")
        ended = threading.Event()
        rig.buffer._link._driver.on_left_open = lambda _text: ended.set()  # type: ignore[attr-defined]
        half = [Puts(queue, heads=[HEAD], bodies=[b"1"]) for queue in ("APP.Q", "UNKNOWN.Q")]
        rig.scheduler.soon(lambda: rig.buffer.submit(Unit(puts=half), lambda _unit, _outcome: None))
        assert ended.wait(60)
        assert _numbers(queue_manager) == []


@pytest.mark.parametrize("decision", [CUT_BEFORE, CUT_AFTER])
@pytest.mark.parametrize("killed", [False, True])
def test_a_message_from_a_queue_is_handed_over_once(decision: str, killed: bool, tmp_path: Path) -> None:
    """Taken on IBM MQ and stored for a session here: the answer to the commit is lost, and perhaps the gateway too."""
    mqi_clients.load_bindings()
    breaking = threading.Event()

    def decide(verb: int) -> str:
        if verb == Verb.COMMIT and breaking.is_set():
            breaking.clear()
            return decision
        return FORWARD

    arrived = threading.Event()
    with served(None, tmp_path / "mqi.sock") as queue_manager:
        queue_manager.submit(Unit([Puts("APP.Q", heads=[HEAD], bodies=[b"command"])]), lambda _unit, _outcome: None)
        proxy = FrameProxy(tmp_path / "proxy.sock", tmp_path / "mqi.sock", decide)
        rig = BufferRig("ibmmq", str(tmp_path / "proxy.sock"), tmp_path / "buffer")
        try:
            rig.until("connected")
            rig.queue_manager.consume("APP.Q", arrived.set)
            assert arrived.wait(60)
            page = rig.queue_manager.claim("APP.Q", b"", 10)
            assert [stored.data for stored in page] == [b"command"]
            breaking.set()
            copy = Puts("MQGATE.OUT", key=b"session", heads=[HEAD], bodies=[b"command"])
            assert not rig.commit(Unit([copy], [Takes("APP.Q", b"", [page[0].token])])).failures
            if killed:
                rig.close()
                rig = BufferRig("ibmmq", str(tmp_path / "proxy.sock"), tmp_path / "buffer")
                rig.queue_manager.consume("APP.Q", lambda: None)
            rig.until("connected")
            assert rig.queue_manager.claim("APP.Q", b"", 10) == []
            assert queue_manager.depth("APP.Q") == 0
            assert rig.queue_manager.depth("MQGATE.OUT", b"session") == 1
        finally:
            rig.close()
            proxy.close()


def test_a_network_that_is_cut_silently_is_an_outage_like_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection breaks: calls hang. What hung and then went through after all counts."""
    mqi_clients.load_bindings()
    monkeypatch.setattr(attempt_queue, "ANSWER_SECONDS", 0.5)
    open_, cut = threading.Event(), threading.Event()
    open_.set()

    def decide(_verb: int) -> str:
        if cut.is_set():
            open_.wait(60)
        return FORWARD

    with served(None, tmp_path / "mqi.sock") as queue_manager:
        proxy = FrameProxy(tmp_path / "proxy.sock", tmp_path / "mqi.sock", decide)
        rig = BufferRig("ibmmq", str(tmp_path / "proxy.sock"), tmp_path / "buffer")
        try:
            rig.until("connected")
            assert not rig.commit(_released(rig, 0)).failures
            open_.clear()
            cut.set()
            for number in range(1, 6):
                assert not rig.commit(_released(rig, number)).failures
            assert rig.buffer.state == "buffering"
            assert "not answered" in rig.buffer.why
            cut.clear()
            open_.set()
            rig.until("connected")
            assert _numbers(queue_manager) == list(range(6))
        finally:
            open_.set()
            rig.close()
            proxy.close()


@dataclass(frozen=True)
class Noted(Backoff):
    """Notes which attempts were waited for."""

    attempts: list[int] = field(default_factory=list)

    def delay(self, attempt: int, chance: float) -> float:
        self.attempts.append(attempt)
        return super().delay(attempt, chance)


def test_each_outage_begins_with_the_shortest_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever there was before: a connection that has worked counts."""
    mqi_clients.load_bindings()
    monkeypatch.setenv("MQGATE_MQI", str(tmp_path / "proxy.sock"))
    settings = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
    up, backoff = threading.Semaphore(0), Noted(0.01, 10.0)
    with served(None, tmp_path / "mqi.sock"), ThreadScheduler() as scheduler:
        proxy = FrameProxy(tmp_path / "proxy.sock", tmp_path / "mqi.sock", lambda _verb: FORWARD)
        link = IbmLink(load("ibmmq"), settings, scheduler, MessageIds(0.0, b"test"), backoff=backoff)
        try:
            link.start(b"k" * 24, lambda _found: up.release(), lambda _why: None)
            for _ in range(5):
                assert up.acquire(timeout=60)
                proxy.cut()
                link.look()
            assert up.acquire(timeout=60)
        finally:
            link.stop()
            proxy.close()
    assert set(backoff.attempts) == {0}


def test_what_was_buffered_survives_both_sides_and_is_drained_in_order(tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    socket, total = tmp_path / "mqi.sock", 2500
    with served(tmp_path / "qm", socket):
        rig = BufferRig("ibmmq", str(socket), tmp_path / "buffer")
        rig.until("connected")
        assert not rig.commit(_released(rig, 0)).failures
    rig.until("buffering")
    for number in range(1, total, 10):
        bodies = [b"%d" % one for one in range(number, min(number + 10, total))]
        assert not rig.commit(Unit(puts=[Puts("APP.Q", heads=[HEAD] * len(bodies), bodies=bodies)])).failures
    assert rig.buffer.spool.messages == total - 1
    rig.close()
    rig = BufferRig("ibmmq", str(socket), tmp_path / "buffer")
    assert rig.buffer.spool.recovered == total - 1
    with served(tmp_path / "qm", socket, OBJECTS) as queue_manager:
        rig.until("connected")
        assert _numbers(queue_manager) == list(range(total))
        assert rig.counters.spool_drained_messages == total - 1
        assert not rig.commit(_released(rig, total)).failures
        assert _numbers(queue_manager)[-1] == total
        rig.close()


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_a_queue_that_refuses_is_set_aside_and_a_missing_one_means_dead_letters(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    socket = tmp_path / "mqi.sock"
    rig = BufferRig(driver, str(socket), tmp_path / "buffer")
    for number in range(5):
        puts = [Puts(queue, heads=[HEAD], bodies=[b"%d" % number]) for queue in ("OTHER.Q", "APP.Q", "MISSING.Q")]
        assert not rig.commit(Unit(puts=puts)).failures
    with served(None, socket, OBJECTS + "\nALTER QLOCAL(OTHER.Q) PUT(DISABLED)") as queue_manager:
        rig.until("draining")
        assert rig.wait(lambda: queue_manager.depth(queue_manager.dead_letter_queue) == 5)
        assert rig.wait(lambda: rig.buffer.spool.messages == 5)
        assert _numbers(queue_manager) == list(range(5))
        assert "2051" in rig.buffer.problems["OTHER.Q"]
        queue_manager.mqsc("ALTER QLOCAL(OTHER.Q) PUT(ENABLED)")
        rig.until("connected")
        assert [stored.data for _, stored in queue_manager.load("OTHER.Q")] == [b"%d" % one for one in range(5)]
        rig.close()
