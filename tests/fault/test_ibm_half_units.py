"""MQBACK fails although the connection works: half a unit of work is never committed, by the next MQCMIT or by MQDISC.

Where it fails twice the process is told to end; for that the tests break its connections, with which the queue manager
backs out as it does when a process is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

import mqi_clients
import pytest
from frame_proxy import FORWARD, REFUSED_BEFORE, FrameProxy
from ibm_rig import HEAD, OBJECTS, served
from schedulers import ManualScheduler

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver, load
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.inspection import IbmInspection
from gateway.backends.ibm.membership import Membership
from gateway.backends.ibm.structures import NO_ID
from gateway.backends.ibm.worker import Backoff
from gateway.backends.targets.intake import IbmIntake
from gateway.errors import MQError, StoreUnavailable
from gateway.mqi.wire import Verb
from gateway.pipeline.drain.drainer import QueueDrain
from gateway.pipeline.drain.journal_server import LockedJournal
from gateway.ports.batch import Puts, Stored, Takes, Unit
from gateway.ports.sources import Backout
from gateway.ports.state_queues import GATEWAYS
from gateway.ports.targets import Origin
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal.store import Store, StoreOptions
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

pytestmark = pytest.mark.mqi
SETTINGS = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
BACKOFF = Backoff(0.05, 0.1)
MISSING = "4D" * 24
"""The MsgId of no message."""


class Estate:
    """A queue manager, a way to it on which calls are refused, and a driver that notes when the process has to end."""

    def __init__(self, queue_manager: EmbeddedQueueManager, directory: Path) -> None:
        self.queue_manager = queue_manager
        self._refused: Collection[int] = ()
        self._times = 0
        self.proxy = FrameProxy(directory / "proxy.sock", directory / "mqi.sock", self._decide)
        self.ended = threading.Event()
        self.driver: Driver = load("ibmmq")
        self.driver.on_left_open = lambda _text: self.ended.set()

    def refuse(self, *verbs: int, times: int = 1_000_000) -> None:
        """From now on, so often."""
        self._times, self._refused = times, verbs

    def _decide(self, verb: int) -> str:
        if verb not in self._refused or not self._times:
            return FORWARD
        self._times -= 1
        return REFUSED_BEFORE

    def put(self, body: bytes) -> None:
        connection = Connection(self.driver.connect(SETTINGS), MessageIds(0.0, b"puts"))
        connection.put_run(Puts("APP.Q", heads=[HEAD], bodies=[body]), asynchronous=False)
        connection.session.commit()
        connection.session.disconnect()

    def taken(self, queue: str) -> bytes | None:
        """The first message that nobody has in a unit of work."""
        connection = Connection(self.driver.connect(SETTINGS), MessageIds(0.0, b"gets"))
        try:
            found = connection.get(connection.input(queue), NO_ID, queue)
            connection.session.commit()
        finally:
            connection.session.disconnect()
        return None if found is None else found[0]

    def on(self, queue: str) -> list[bytes]:
        return [stored.data for _, stored in self.queue_manager.load(queue)]


@pytest.fixture
def estate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Estate]:
    mqi_clients.load_bindings()
    monkeypatch.setenv("MQGATE_MQI", str(tmp_path / "proxy.sock"))
    with served(None, tmp_path / "mqi.sock", OBJECTS) as queue_manager:
        made = Estate(queue_manager, tmp_path)
        yield made
        made.proxy.cut()
        made.proxy.close()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Taker:
    """Who consumes a queue of a target, as far as the intake's connection is asked for."""

    def __init__(self) -> None:
        self.got_some = threading.Event()

    def opened(self, backout: Backout) -> None:
        pass

    def works(self) -> None:
        pass

    def got(self, messages: list[Stored]) -> None:
        self.got_some.set()

    def verified(self, *, alive: bool) -> None:
        pass

    def committed(self) -> None:
        pass

    def lost(self, why: str) -> None:
        pass

    def failed(self, error: Exception) -> None:
        pass


@pytest.mark.parametrize("closed", [False, True])
def test_what_an_intake_has_got_stays_on_its_queue(estate: Estate, closed: bool) -> None:
    estate.put(b"1")
    taker, scheduler = Taker(), ManualScheduler()
    new_id = MessageIds(0.0, b"take")
    intake = IbmIntake(estate.driver, SETTINGS, scheduler, new_id, Origin("APP.Q"), taker, BACKOFF)
    intake.start()
    intake.get()

    def has_got() -> bool:
        scheduler.run()
        return taker.got_some.is_set()

    until(has_got)
    estate.refuse(Verb.BACK_OUT, Verb.COMMIT)
    if closed:
        intake.close()
    else:
        intake.back_out()
    assert estate.ended.wait(60)
    intake.close()
    intake.join()
    estate.proxy.cut()
    estate.refuse()
    until(lambda: estate.taken("APP.Q") == b"1")


@pytest.mark.parametrize("leaves", [False, True])
def test_the_lease_of_a_gateway_stays_as_it_is(estate: Estate, leaves: bool) -> None:
    member = Membership(
        estate.driver, SETTINGS, MessageIds(2.0, b"more"), "0a" * 12, 0, 1.0, backoff=BACKOFF,
        told=lambda _text: None, superseded=lambda _text: None,
    )  # fmt: skip
    member.join()
    if leaves:
        member.stop()
        member.thread.join(60)
    estate.refuse(Verb.BACK_OUT, Verb.COMMIT)
    if leaves:
        member.leave()
    assert estate.ended.wait(60)
    member.stop()
    member.thread.join(60)
    estate.proxy.cut()
    until(lambda: len(estate.on(GATEWAYS)) == 2)  # its entry, and its lease
    assert estate.on(GATEWAYS).count(b"{}") == 1


def half(body: bytes) -> Unit:
    """What is put, and of which it turns out then that it is not to be."""
    return Unit([Puts("OTHER.Q", heads=[HEAD], bodies=[body])], [Takes("APP.Q", b"", [MISSING])])


def test_what_people_move_is_not_committed_with_what_they_move_next(estate: Estate) -> None:
    inspection = IbmInspection(estate.driver, SETTINGS, MessageIds(0.0, b"look"), list)
    estate.refuse(Verb.BACK_OUT, times=1)
    assert inspection.commit(half(b"1")).failures
    assert not inspection.commit(Unit([Puts("OTHER.Q", heads=[HEAD], bodies=[b"2"])])).failures
    assert estate.on("OTHER.Q") == [b"2"]
    assert not estate.ended.is_set()
    inspection.close()
    assert estate.on("OTHER.Q") == [b"2"]


def test_half_of_what_people_move_ends_the_process_where_it_cannot_be_backed_out(estate: Estate) -> None:
    inspection = IbmInspection(estate.driver, SETTINGS, MessageIds(0.0, b"look"), list)
    estate.refuse(Verb.BACK_OUT)
    assert inspection.commit(half(b"1")).failures
    assert estate.ended.is_set()
    inspection.close()
    assert estate.on("OTHER.Q") == []


def full_journal(folder: Path) -> LockedJournal:
    """A journal that takes no more messages."""
    options = StoreOptions(segment_bytes=1 << 20, spare_segments=1, max_bytes=8 << 20)
    journal = LockedJournal(Store.open(folder, clock=time.time, options=options))
    with suppress(StoreUnavailable):
        while True:
            journal.commit(StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[bytes(100_000)])]))
    return journal


@pytest.mark.parametrize("times", [1, 1_000_000])
def test_what_a_drain_could_not_keep_stays_on_its_queue(estate: Estate, tmp_path: Path, times: int) -> None:
    body = bytes(400_000)
    estate.put(body)
    journal = full_journal(tmp_path / "journal")
    estate.refuse(Verb.BACK_OUT, times=times)
    with pytest.raises(StoreUnavailable):
        QueueDrain(lambda: estate.driver.connect(SETTINGS), journal, ("APP.Q",)).run(once=True)
    journal.store.close()
    assert estate.ended.is_set() == (times > 1)
    estate.proxy.cut()
    estate.refuse()
    until(lambda: estate.taken("APP.Q") == body)


def test_a_queue_is_shown_with_its_depth_and_its_limit(estate: Estate) -> None:
    inspection = IbmInspection(estate.driver, SETTINGS, MessageIds(0.0, b"look"), list)
    assert not inspection.commit(Unit([Puts("OTHER.Q", heads=[HEAD], bodies=[b"1"])])).failures
    attributes = inspection.queue("OTHER.Q").attributes
    inspection.close()
    assert attributes["CURDEPTH"] == "1"
    assert int(attributes["MAXDEPTH"]) > 1


def test_a_queue_with_get_disabled_is_cleared(estate: Estate) -> None:
    inspection = IbmInspection(estate.driver, SETTINGS, MessageIds(0.0, b"look"), lambda: ["OTHER.Q"])
    assert not inspection.commit(Unit([Puts("OTHER.Q", heads=[HEAD] * 3, bodies=[b"1", b"2", b"3"])])).failures
    inspection.browse("OTHER.Q")
    estate.queue_manager.mqsc("ALTER QLOCAL(OTHER.Q) GET(DISABLED)")
    assert list(inspection.clear("OTHER.Q")) == [3]
    assert inspection.depth("OTHER.Q") == 0
    estate.queue_manager.mqsc("ALTER QLOCAL(SYSTEM.ADMIN.COMMAND.QUEUE) PUT(DISABLED)")
    with pytest.raises(MQError, match=r"GET\(ENABLED\) allows it.* 2051") as refused:
        list(inspection.clear("OTHER.Q"))
    assert refused.value.reason == 2016
    inspection.close()


def test_a_queue_with_get_disabled_is_listed(estate: Estate) -> None:
    inspection = IbmInspection(estate.driver, SETTINGS, MessageIds(0.0, b"look"), lambda: ["OTHER.Q"])
    assert not inspection.commit(Unit([Puts("OTHER.Q", heads=[HEAD], bodies=[b"1"])])).failures
    estate.queue_manager.mqsc("ALTER QLOCAL(OTHER.Q) GET(DISABLED)")
    rows = inspection.queues()
    inspection.close()
    assert [(row.name, row.depth, row.attributes["GET"]) for row in rows] == [("OTHER.Q", 1, "DISABLED")]
