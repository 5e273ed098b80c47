"""Several gateways consume one queue of IBM MQ: each message goes to one of them, and none is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import mqi_clients
import pytest
from ibm_rig import HEAD, OBJECTS, BufferRig, Rig, served

from gateway.backends.ibm.ahead import AHEAD
from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.structures import NO_ID, get_options, match_md
from gateway.mq import constants as mq
from gateway.ports.batch import Puts, Stored, Takes, Unit
from gateway.ports.ownership import forward_key
from gateway.ports.state_queues import FORWARD, SUBSCRIPTIONS

pytestmark = pytest.mark.mqi
COUNT = 600
MARKED = OBJECTS + "\nALTER QMGR MARKINT(1500)"
LASTING = OBJECTS + "\nALTER QMGR MARKINT(60000)"
"""For whatever counts: between a claim and its commit a busy machine may take seconds."""


class Consumer:
    """Takes what its gateway is given, batch by batch, as the broker does."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.got: list[bytes] = []
        self._arrived = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        rig.queue_manager.consume("APP.Q", self._arrived.set)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended:
            if not self._arrived.wait(0.1):
                continue
            self._arrived.clear()
            while page := self.rig.queue_manager.claim("APP.Q", b"", 50):
                assert not self.rig.commit(Unit(takes=[Takes("APP.Q", b"", [one.token for one in page])])).failures
                self.got += [one.data for one in page]

    def end(self) -> None:
        self._ended = True
        self._thread.join(60)


def _two(driver: str, folder: Path, objects: str) -> Iterator[list[Rig]]:
    mqi_clients.load_bindings()
    with served(None, folder / "mqi.sock", objects):
        made = [Rig(driver, str(folder / "mqi.sock")) for _ in range(2)]
        yield made
        for rig in made:
            rig.close()


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[list[Rig]]:
    """Two gateways whose marks run out soon."""
    yield from _two("ibmmq", tmp_path, MARKED)


@pytest.fixture
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Rig]]:
    """Two whose marks do not."""
    yield from _two(getattr(request, "param", "ibmmq"), tmp_path, LASTING)


def _put(rig: Rig, first: int, count: int) -> None:
    bodies = [b"%d" % number for number in range(first, first + count)]
    assert not rig.commit(Unit(puts=[Puts("APP.Q", heads=[HEAD] * count, bodies=bodies)])).failures


def _until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("lasting", ["ibmmq", "pymqi"], indirect=True)
def test_nothing_is_delivered_twice_and_nothing_forgotten(lasting: list[Rig]) -> None:
    rigs = lasting
    _put(rigs[0], 0, COUNT // 2)
    consumers = [Consumer(rig) for rig in rigs]
    for first in range(COUNT // 2, COUNT, 20):
        _put(rigs[0], first, 20)
    _until(lambda: sum(len(one.got) for one in consumers) >= COUNT)
    for one in consumers:
        one.end()
    got = sorted(int(body) for one in consumers for body in one.got)
    assert got == list(range(COUNT))
    assert rigs[0].queue_manager.depth("APP.Q") == 0


def test_what_goes_to_two_gateways_is_told(rigs: list[Rig]) -> None:
    """The first is cut off before it has committed what it has handed on, and its marks have run out."""
    gone: list[tuple[str, int]] = []
    claimed: list[Stored] = []
    _put(rigs[0], 0, 1)
    for rig in rigs:
        rig.queue_manager.on_gone = lambda queue, count: gone.append((queue, count))
        rig.queue_manager.consume("APP.Q", lambda: None)
        found: list[Stored] = []
        _until(lambda found=found, rig=rig: found.extend(rig.queue_manager.claim("APP.Q", b"", 50)) or found)
        claimed += found
        rig.queue_manager.stop_consuming("APP.Q")
    assert claimed[0].token == claimed[1].token
    for rig in reversed(rigs):
        assert not rig.commit(Unit(takes=[Takes("APP.Q", b"", [claimed[0].token])])).failures
    _until(lambda: gone)
    assert gone == [("APP.Q", 1)]


def test_each_keeps_the_order(lasting: list[Rig]) -> None:
    rigs = lasting
    consumers = [Consumer(rig) for rig in rigs]
    _put(rigs[0], 0, COUNT)
    _until(lambda: sum(len(one.got) for one in consumers) >= COUNT)
    for one in consumers:
        one.end()
        numbers = [int(body) for body in one.got]
        assert numbers == sorted(numbers)


def test_what_a_gateway_that_died_had_claimed_goes_to_the_other(rigs: list[Rig]) -> None:
    _put(rigs[0], 0, 30)
    arrived = threading.Event()
    rigs[0].queue_manager.consume("APP.Q", arrived.set)
    assert arrived.wait(60)
    _until(lambda: rigs[0].queue_manager.claim("APP.Q", b"", 30))  # given out, never taken
    rigs[0].queue_manager.close()
    other = Consumer(rigs[1])
    _until(lambda: len(other.got) >= 30)
    other.end()
    assert sorted(int(body) for body in other.got) == list(range(30))


def test_a_claimed_message_that_stays_comes_again(rigs: list[Rig]) -> None:
    _put(rigs[0], 0, 1)
    arrived, first = threading.Event(), list[Stored]()
    rigs[0].queue_manager.consume("APP.Q", arrived.set)
    begun = time.monotonic()
    _until(lambda: first.extend(rigs[0].queue_manager.claim("APP.Q", b"", 10)) or first)
    assert [one.data for one in first] == [b"0"]
    arrived.clear()
    assert rigs[0].queue_manager.claim("APP.Q", b"", 10) == [] or time.monotonic() > begun + 1.5
    again: list[Stored] = []
    _until(lambda: again.extend(rigs[0].queue_manager.claim("APP.Q", b"", 10)) or again)  # its mark has run out
    assert arrived.wait(60)
    assert again[0].token == first[0].token


def test_a_long_message_is_claimed_whole(lasting: list[Rig]) -> None:
    rigs = lasting
    body = b"0123456789" * 30_000
    assert not rigs[0].commit(Unit(puts=[Puts("APP.Q", heads=[HEAD], bodies=[body])])).failures
    arrived = threading.Event()
    rigs[0].queue_manager.consume("APP.Q", arrived.set)
    assert arrived.wait(60)
    assert rigs[0].queue_manager.claim("APP.Q", b"", 10)[0].data == body


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_a_queue_that_is_consumed_no_more_is_closed_by_all_who_had_it_open(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", MARKED) as queue_manager:
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        consumer = Consumer(rig)
        for first in range(0, 100, 10):
            _put(rig, first, 10)
        _until(lambda: len(consumer.got) == 100)
        consumer.end()
        assert not queue_manager.mqsc("DELETE QLOCAL(APP.Q)").ok
        rig.queue_manager.stop_consuming("APP.Q")
        _until(lambda: queue_manager.mqsc("DELETE QLOCAL(APP.Q)").ok)
        assert rig.queue_manager.claim("APP.Q", b"", 10) == []
        assert queue_manager.mqsc("DEFINE QLOCAL(APP.Q)").ok
        consumer = Consumer(rig)
        _put(rig, 100, 10)
        _until(lambda: len(consumer.got) == 10)
        consumer.end()
        rig.close()


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
@pytest.mark.parametrize("buffer", [False, True])
def test_a_queue_that_was_put_to_can_be_deleted_when_objects_are_closed(
    driver: str, buffer: bool, tmp_path: Path
) -> None:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", MARKED) as queue_manager:
        where = str(tmp_path / "mqi.sock")
        rig = BufferRig(driver, where, tmp_path / "buffer") if buffer else Rig(driver, where)
        if isinstance(rig, BufferRig):
            rig.until("connected")
        for number in range(3):
            assert not rig.commit(Unit(puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"%d" % number])])).failures
        _until(lambda: len([*queue_manager.load("APP.Q")]) == 3)
        assert not queue_manager.mqsc("DELETE QLOCAL(APP.Q) PURGE").ok
        rig.queue_manager.close_objects()
        _until(lambda: queue_manager.mqsc("DELETE QLOCAL(APP.Q) PURGE").ok)
        assert queue_manager.mqsc("DEFINE QLOCAL(APP.Q)").ok
        assert not rig.commit(Unit(puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"again"])])).failures
        _until(lambda: len([*queue_manager.load("APP.Q")]) == 1)
        rig.close()


def test_subscriptions_that_share_a_queue_get_their_own(lasting: list[Rig]) -> None:
    rigs = lasting
    manager = rigs[0].queue_manager
    news, sport = (manager.subscribe(f"claims.{name}", f"claims/{name}") for name in ("news", "sport"))
    assert news.queue == sport.queue
    manager.consume(news.queue, lambda: None)
    for number in range(6):
        topic = "topic://claims/" + ("news" if number % 2 else "sport")
        puts = Puts(topic, heads=[HEAD], bodies=[b"%d" % number])
        assert not rigs[0].commit(Unit(puts=[puts])).failures
    for one, expected in ((news, [b"1", b"3", b"5"]), (sport, [b"0", b"2", b"4"])):
        got: list[bytes] = []

        def more(one=one, got=got) -> bool:
            page = manager.claim(one.queue, one.key, 10)
            got += [stored.data[-1:] for stored in page]  # behind the topic
            if page:
                taken = Takes(one.queue, one.key, [stored.token for stored in page])
                assert not rigs[0].commit(Unit(takes=[taken])).failures
            return len(got) >= 3

        _until(more)
        assert got == expected
    assert manager.depth(news.queue) == 0


def test_what_is_for_the_subscription_of_one_gateway_is_left_to_it_by_others(lasting: list[Rig]) -> None:
    """Another one that reads what lies there first, and takes none of its own, keeps nobody waiting for its marks."""
    managers = [rig.queue_manager for rig in lasting]
    made = [manager.subscribe(f"claims.of.{number}", "claims/all") for number, manager in enumerate(managers)]
    both = [manager.subscribe("claims.of.both", "claims/all") for manager in managers]
    managers[0].consume(made[0].queue, lambda: None)
    for number in range(10):
        puts = Puts("topic://claims/all", heads=[HEAD], bodies=[b"%d" % number])
        assert not lasting[0].commit(Unit(puts=[puts])).failures
    _until(lambda: len(managers[0]._watchers[made[0].queue]._ahead._messages) == 20)
    shared = managers[0].claim(both[0].queue, both[0].key, 10)
    taken = Takes(both[0].queue, both[0].key, [stored.token for stored in shared])
    assert not lasting[0].commit(Unit(takes=[taken])).failures
    managers[1].consume(made[1].queue, lambda: None)
    got: list[bytes] = []

    def all_are_here(number: int) -> bool:
        got.extend(stored.data[-1:] for stored in managers[number].claim(made[number].queue, made[number].key, 10))
        return len(got) >= 10

    for number in (1, 0):
        _until(partial(all_are_here, number))
        assert got == [b"%d" % sent for sent in range(10)]
        got.clear()
    assert len(shared) == 10
    assert managers[1].claim(both[1].queue, both[1].key, 10) == []


def test_what_an_earlier_life_had_read_comes_first_all_of_it(rigs: list[Rig]) -> None:
    """Marks run out one after the other: the second message must not be passed by because the first is free."""
    gone, rig = rigs
    gone.queue_manager.consume("APP.Q", lambda: None)
    ahead = gone.queue_manager._watchers["APP.Q"]._ahead
    for number in range(2):
        _put(rig, number, 1)
        _until(lambda number=number: len(ahead._messages) > number)
        time.sleep(0.4)
    gone.queue_manager._watchers["APP.Q"].stop()
    gone.queue_manager._watchers["APP.Q"].thread.join(60)
    _put(rig, 2, 10)
    consumer = Consumer(rig)
    _until(lambda: len(consumer.got) == 12)
    consumer.end()
    assert consumer.got == [b"%d" % number for number in range(12)]


def _take_all(rig: Rig, count: int, limit: int, pause: Callable[[int], None]) -> list[bytes]:
    """So many at a time, each committed; what has come, in order. `pause` is told how many there were so far."""
    got: list[bytes] = []

    def more() -> bool:
        page = rig.queue_manager.claim("APP.Q", b"", limit)
        pause(len(got))
        if page:
            assert not rig.commit(Unit(takes=[Takes("APP.Q", b"", [one.token for one in page])])).failures
        got.extend(one.data for one in page)
        return len(got) >= count

    _until(more)
    return got


def test_order_is_kept_when_marks_run_out_while_messages_wait(rigs: list[Rig]) -> None:
    """The gateway stands still, its queue is read on when it goes on; nothing that came meanwhile overtakes."""
    rig = rigs[0]
    _put(rig, 0, 300)
    stalled: list[int] = []

    def stall(number: int) -> None:
        if number and len(stalled) < 2:
            stalled.append(number)
            read = time.monotonic()
            _until(lambda: time.monotonic() > read + 0.8 * len(stalled))  # marks are too old; they have run out
            _put(rig, 200 + 100 * len(stalled), 100)

    rig.queue_manager.consume("APP.Q", lambda: None)
    assert [int(body) for body in _take_all(rig, 500, 50, stall)] == list(range(500))
    assert rig.queue_manager.depth("APP.Q") == 0


def test_what_another_gateway_has_taken_meanwhile_is_not_handed_out_by_one_that_stood_still(rigs: list[Rig]) -> None:
    _put(rigs[0], 0, AHEAD)
    rigs[0].queue_manager.consume("APP.Q", lambda: None)
    ahead = rigs[0].queue_manager._watchers["APP.Q"]._ahead
    _until(lambda: not ahead.room.is_set())
    other = Consumer(rigs[1])
    _until(lambda: len(other.got) == AHEAD)
    other.end()
    watcher = rigs[1].queue_manager._watchers["APP.Q"]
    rigs[1].queue_manager.stop_consuming("APP.Q")
    watcher.thread.join(60)  # it marks nothing more
    _put(rigs[0], AHEAD, 10)
    assert [int(body) for body in _take_all(rigs[0], 10, 50, lambda _number: None)] == list(range(AHEAD, AHEAD + 10))


def test_a_commit_that_takes_longer_than_a_mark_does_not_have_its_messages_handed_out_again(rigs: list[Rig]) -> None:
    rig = rigs[0]
    _put(rig, 0, 20)

    def slowly(number: int) -> None:
        if not number:
            read = time.monotonic()
            _until(lambda: time.monotonic() > read + 1.6)

    rig.queue_manager.consume("APP.Q", lambda: None)
    ahead = rig.queue_manager._watchers["APP.Q"]._ahead
    _until(lambda: len(ahead._messages) == 20)
    assert [int(body) for body in _take_all(rig, 20, 10, slowly)] == list(range(20))
    assert rig.queue_manager.claim("APP.Q", b"", 50) == []


KEY = forward_key("0a" * 12)
"""Of what other gateways put for one: nobody else reads it, and its order counts."""


def _forward(rig: Rig, first: int, count: int) -> None:
    bodies = [b"%d" % number for number in range(first, first + count)]
    puts = Puts(FORWARD, key=KEY, heads=[HEAD] * count, bodies=bodies)
    assert not rig.commit(Unit(puts=[puts])).failures


def _browser(marks: int) -> Callable[[], int]:
    """Marks the messages with that key, or looks how many of them are unmarked."""
    session = load("ibmmq").connect(ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw"))
    connection = Connection(session, lambda _priority: NO_ID)
    handle = connection.browse(FORWARD, co_op=True)
    look = mq.MQGMO_NO_WAIT | mq.MQGMO_UNMARKED_BROWSE_MSG | marks

    def count() -> int:
        found, how = 0, mq.MQGMO_BROWSE_FIRST
        while True:
            options = get_options(look | how, mq.MQMO_MATCH_CORREL_ID)()
            answer = session.mqget(session.handle, handle, match_md(correl_id=KEY), options, 1000)
            if answer[-2] == mq.MQCC_FAILED:
                return found
            found, how = found + 1, mq.MQGMO_BROWSE_NEXT

    return count


def _claimed(rig: Rig, count: int) -> list[int]:
    found: list[int] = []

    def are_there() -> bool:
        found.extend(int(one.data) for one in rig.queue_manager.claim(FORWARD, KEY, 50))
        return len(found) >= count

    _until(are_there)
    return found


def test_what_is_for_one_gateway_keeps_its_order_however_late_it_is_asked_for(rigs: list[Rig]) -> None:
    """A commit takes long, and the marks run out meanwhile: what comes then is not handed out before it."""
    unmarked = _browser(0)
    rigs[0].queue_manager.receive(KEY, lambda: None)
    _forward(rigs[1], 0, 10)
    _until(lambda: not unmarked())
    read = time.monotonic()
    _until(lambda: time.monotonic() > read + 1.6)  # MARKINT
    _forward(rigs[1], 10, 10)
    _until(lambda: not unmarked())
    assert _claimed(rigs[0], 20) == list(range(20))


def test_nor_do_marks_of_a_connection_that_is_broken_change_it(rigs: list[Rig]) -> None:
    """The queue manager may take its time to notice."""
    _forward(rigs[1], 0, 10)
    assert _browser(mq.MQGMO_MARK_BROWSE_CO_OP)() == 10
    _forward(rigs[1], 10, 10)
    rigs[0].queue_manager.receive(KEY, lambda: None)
    assert _claimed(rigs[0], 20) == list(range(20))


def test_a_subscription_that_is_held_back_does_not_hold_up_another_one(rigs: list[Rig]) -> None:
    """Behind more of the one than is read ahead, of which nothing is claimed, the other's arrive as they are put; then
    the first has all of its own, in order."""
    rig, arrived, many = rigs[0], threading.Event(), AHEAD + 100
    manager = rig.queue_manager

    def put(key: bytes, first: int, count: int) -> None:
        bodies = [b"%d" % number for number in range(first, first + count)]
        assert not rig.commit(Unit(puts=[Puts(SUBSCRIPTIONS, key=key, heads=[HEAD] * count, bodies=bodies)])).failures

    def taken(key: bytes, count: int) -> list[int]:
        got: list[int] = []
        while len(got) < count:
            page = manager.claim(SUBSCRIPTIONS, key, 50)
            if page:
                unit = Unit(takes=[Takes(SUBSCRIPTIONS, key, [one.token for one in page])])
                assert not rig.commit(unit).failures
            got += [int(one.data) for one in page]
            if not page:
                assert arrived.wait(60)
                arrived.clear()
        return got

    held, other = b"MQGS held", b"MQGS other"
    assert not manager.claim(SUBSCRIPTIONS, held, 1)
    assert not manager.claim(SUBSCRIPTIONS, other, 1)
    manager.consume(SUBSCRIPTIONS, arrived.set)
    put(held, 0, many)
    for first in range(0, 30, 10):
        put(other, first, 10)
        assert taken(other, 10) == list(range(first, first + 10))
    assert taken(held, many) == list(range(many))
