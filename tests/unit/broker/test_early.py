"""Clients that do not wait with what they send: for CONNACK, or with their next connection."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from broker_harness import Device, Harness, Wire

from gateway.broker.context import MOST_REPLACED
from gateway.broker.sessions.older_connections import LOOK_SECONDS, LOOKS, SLICE_SECONDS
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.ports.access import Verdict
from gateway.session.connection import CLOSED

MAPPING = """
version: 1
to_mq:
  - {name: all, topic: "plant/#", queue: PLANT}
"""


@pytest.fixture
def bench() -> Harness:
    return Harness(MAPPING)


def connect(version: int, client_id: str = "script") -> bytes:
    return client.encode_connect(client.connect(version, client_id, clean_start=True))


def publications(version: int, count: int, qos: int = 0) -> bytes:
    return b"".join(
        writer.encode_publish(version, b"plant/1", b"%d" % at, qos, packet_id=qos and at + 1) for at in range(count)
    )


def disconnect(version: int) -> bytes:
    return writer.encode_disconnect(version, p.Disconnect())


def landed(bench: Harness) -> list[bytes]:
    return [data[-1:] for _, stored in bench.queues.load("PLANT") for data in [stored.data]]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_all_that_a_client_had_sent_is_taken_before_another_takes_its_session_over(
    bench: Harness, version: int
) -> None:
    """Two runs of a script that waits for nothing: the reactor finds both at once."""
    first, second = bench.device(version, "script"), bench.device(version, "script")
    scripts = [connect(version) + publications(version, count) + disconnect(version) for count in (5, 3)]
    bench.engine.received_each([(first.connection, scripts[0]), (second.connection, scripts[1])])
    bench.engine.flush()
    assert landed(bench) == [b"0", b"1", b"2", b"3", b"4", b"0", b"1", b"2"]


def test_so_is_what_was_put_off(bench: Harness) -> None:
    first, second = bench.device(4, "script").connect(), bench.device(4, "script")
    bench.engine.put_off.add_data(first.connection, publications(4, 4), slow=True)
    second.send(connect(4) + publications(4, 2))
    assert landed(bench) == []
    bench.clock.advance(LOOK_SECONDS)
    assert landed(bench) == [b"0", b"1", b"2", b"3", b"0", b"1"]
    assert (first.connection.state, [one[0] >> 4 for one in second.take()]) == (CLOSED, [p.CONNACK])


def test_a_session_is_taken_over_at_once_from_a_packet_that_takes_many_turns(bench: Harness) -> None:
    first, second = bench.device(4, "script").connect(), bench.device(4, "script")
    bench.engine.put_off.hold(first.connection)
    second.connect()
    assert (first.connection.state, [one[0] >> 4 for one in second.take()]) == (CLOSED, [p.CONNACK])


def test_who_waits_for_packets_does_not_wait_for_one_that_takes_many_turns(bench: Harness) -> None:
    first, second = bench.device(4, "script").connect(), bench.device(4, "script")
    bench.engine.put_off.add_data(first.connection, publications(4, 1), slow=True)
    second.connect()
    bench.engine.put_off.hold(first.connection)
    assert second.take() == []
    bench.clock.advance(LOOK_SECONDS)
    assert (first.connection.state, [one[0] >> 4 for one in second.take()]) == (CLOSED, [p.CONNACK])


def test_one_that_sends_on_and_on_does_not_keep_another_from_its_session(bench: Harness) -> None:
    """Whenever it is looked, some of it is unread, and some is put off; that is not taken while a commit is slow."""
    first, second = bench.device(4, "script").connect(), bench.device(4, "script")
    first.wire.waits = True
    second.connect()
    bench.queues.automatic = False
    for number in range(MOST_REPLACED + 1):
        bench.device(4, f"d{number}").connect(clean=False)
    bench.engine.put_off.add_data(first.connection, publications(4, 1), slow=True)
    bench.clock.advance(2 * LOOKS * LOOK_SECONDS)
    assert second.take() == []
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    for _ in range(LOOKS + 1):
        if first.connection not in bench.engine.put_off:
            bench.engine.put_off.add_data(first.connection, b"\xc0\x00", slow=True)
        bench.clock.advance(LOOK_SECONDS)
    assert landed(bench) == [b"0"]
    assert (first.connection.state, [one[0] >> 4 for one in second.take()]) == (CLOSED, [p.CONNACK])


class Asked(Wire):
    """A link that counts how often it is asked."""

    asked = 0

    def unread(self) -> bool:
        self.asked += 1
        return self.waits


def test_however_many_wait_for_an_older_connection_it_is_asked_once_and_they_come_in_order(bench: Harness) -> None:
    first = bench.device(4, "script").connect()
    wire = first.connection.link = Asked(4)
    wire.waits = True
    several = [bench.device(4, "script") for _ in range(300)]
    for number, device in enumerate(several):
        said = writer.encode_publish(4, b"plant/1", b"%d" % number, 0) + disconnect(4)
        device.send(connect(4) + said * (number in {5, 7}))
    wire.asked = 0
    several[6].drop()
    bench.clock.advance(LOOK_SECONDS)
    assert wire.asked == 1
    wire.waits = False
    bench.clock.advance(2 * LOOK_SECONDS)
    assert landed(bench) == [b"5", b"7"]
    assert [number for number, device in enumerate(several) if device.take()] == [5, 7, 299], (
        "the others are taken over"
    )
    assert [device.wire.closed for device in several] == [True] * 299 + [False]
    assert not bench.engine.connect.older._lines


class Doorman:
    """Access that says who a client is when the test does."""

    def __init__(self, bench: Harness) -> None:
        self.bench = bench
        self.asked: dict[str, Callable[[Verdict], None]] = {}
        bench.engine.context.access.authenticate = self._ask  # type: ignore[method-assign]

    def _ask(self, connect: p.Connect, link: object, done: Callable[[Verdict], None]) -> None:
        del link
        self.asked[connect.username or ""] = done

    def comes(
        self, version: int, name: str, behind: bytes = b"", will: p.Will | None = None, client_id: str = "script"
    ) -> Device:
        """A connection of the script, which this call of it names."""
        self.bench.clock.advance(0.001)
        said = client.connect(version, client_id, clean_start=not client_id, will=will)
        said.username = name
        device = self.bench.device(version, "script")
        device.send(client.encode_connect(said) + behind)
        return device

    def lets_in(self, name: str) -> None:
        self.asked[name](Verdict(0))
        self.bench.clock.advance(LOOK_SECONDS)


def kinds(device: Device) -> list[tuple[int, int]]:
    return [(one[0] >> 4, one[1].reason if one[0] >> 4 in {p.CONNACK, p.DISCONNECT} else 0) for one in device.take()]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_who_comes_last_stays_whoever_is_known_first_and_what_the_others_sent_is_taken_before(
    bench: Harness, version: int
) -> None:
    doorman = Doorman(bench)
    three = publications(version, 3)
    first = doorman.comes(version, "first", three, p.Will("plant/will", b"w", 0, retain=False))
    second = doorman.comes(version, "second", publications(version, 1, qos=2))
    third = doorman.comes(version, "third")
    for name in ("third", "second"):
        doorman.lets_in(name)
        assert landed(bench) == []
    assert third.take() == second.take() == []
    doorman.lets_in("first")
    bench.clock.advance(LOOK_SECONDS)
    assert landed(bench) == [b"0", b"1", b"2", b"w"]
    assert [first.wire.closed, second.wire.closed, third.wire.closed] == [True, True, False]
    assert kinds(third) == [(p.CONNACK, 0)]
    third.publish("plant/1", b"0", 2, 1, dup=True)
    third.ack(p.PUBREL, 1)
    assert landed(bench) == [b"0", b"1", b"2", b"w", b"0"]


@pytest.mark.parametrize(("version", "reason"), [(3, 3), (4, 3), (5, 0x89)])
def test_one_that_has_sent_nothing_more_is_not_waited_for_and_takes_nothing_over(
    bench: Harness, version: int, reason: int
) -> None:
    """A device that has given its first connection up: it may be known after the second."""
    doorman = Doorman(bench)
    first, second = (doorman.comes(version, name) for name in ("first", "second"))
    doorman.lets_in("second")
    assert kinds(second) == [(p.CONNACK, 0)]
    assert kinds(first) == [(p.CONNACK, reason)]
    doorman.lets_in("first")
    assert (first.wire.closed, second.wire.closed) == (True, False)


@pytest.mark.parametrize(("version", "reason"), [(4, 3), (5, 0x89)])
def test_who_comes_last_stays_also_where_its_identifier_is_that_of_its_token(
    bench: Harness, version: int, reason: int
) -> None:
    doorman = Doorman(bench)
    first, second = (doorman.comes(version, name, client_id="") for name in ("first", "second"))
    for name in ("second", "first"):
        doorman.asked[name](Verdict(0, client_id="script"))
    assert kinds(second) == [(p.CONNACK, 0)]
    assert kinds(first) == [(p.CONNACK, reason)]
    assert (first.wire.closed, second.wire.closed) == (True, False)


def test_nobody_is_kept_from_his_session_by_one_who_may_be_anybody(bench: Harness) -> None:
    doorman = Doorman(bench)
    first, second = (doorman.comes(5, name, publications(5, 1)) for name in ("first", "second"))
    doorman.lets_in("second")
    bench.clock.advance((LOOKS + 1) * LOOK_SECONDS)
    assert (landed(bench), kinds(second)) == ([b"0"], [(p.CONNACK, 0)])
    assert kinds(first) == [(p.CONNACK, 0x89)]


def test_nor_by_one_who_is_refused_or_leaves(bench: Harness) -> None:
    doorman = Doorman(bench)
    first, second, third = (doorman.comes(5, name, publications(5, 1)) for name in ("first", "second", "third"))
    doorman.lets_in("third")
    doorman.asked["first"](Verdict(0x86, after=1.0))
    second.drop()
    bench.clock.advance(LOOK_SECONDS)
    assert kinds(third) == [(p.CONNACK, 0)]
    assert first.take() == []
    bench.clock.advance(1.0)
    assert kinds(first) == [(p.CONNACK, 0x86)]
    assert not bench.engine.sessions._asking
    assert not bench.engine.connect.older._lines


def test_however_many_may_have_been_the_client_nobody_waits_for_long(
    bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers who use its identifier: they are not all asked at each look, and refused in slices."""
    doorman = Doorman(bench)
    strangers = [doorman.comes(5, f"{number}") for number in range(300)]
    wires = [Asked(5) for _ in strangers]
    for device, wire in zip(strangers, wires, strict=True):
        device.wire = device.connection.link = wire
    wires[-1].waits = True
    client_of_it = doorman.comes(5, "itself")
    doorman.lets_in("itself")
    before = sum(wire.asked for wire in wires)
    bench.clock.advance(10 * LOOK_SECONDS)
    assert sum(wire.asked for wire in wires) == before + 10
    wires[-1].waits = False
    looks = itertools.count()
    monkeypatch.setattr(bench.clock, "monotonic", lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 4)
    planned: list[Callable[[], None]] = []
    monkeypatch.setattr(bench.clock, "later", lambda _seconds, call: planned.append(call))
    bench.clock.advance(LOOK_SECONDS)
    assert kinds(client_of_it) == [(p.CONNACK, 0)]
    left = [device for device in strangers if not device.wire.closed]
    assert len(left) > 200
    doorman.asked["299"](Verdict(0))
    doorman.asked["298"](Verdict(0x86))
    assert [kinds(device) for device in left[-2:]] == [[(p.CONNACK, 0x86)], [(p.CONNACK, 0x89)]]
    while planned:
        planned.pop(0)()
    assert all(device.wire.closed for device in strangers)
    assert not client_of_it.wire.closed
    assert not bench.engine.connect.older._overtaken
    assert not bench.engine.sessions._asking


def test_a_connect_that_is_put_off_is_not_overtaken_by_one_that_comes_in_a_later_turn(bench: Harness) -> None:
    first, second = bench.device(4, "script"), bench.device(4, "script")
    context = bench.engine.context
    context.until_strangers = bench.clock.monotonic() - 1
    bench.engine.received_each([(first.connection, connect(4) + publications(4, 2) + disconnect(4))])
    context.until_strangers = bench.clock.monotonic() + 1
    bench.engine.received_each([(second.connection, connect(4))])
    bench.engine.flush()
    assert (landed(bench), second.take()) == ([], [])
    bench.clock.advance(LOOK_SECONDS)
    assert landed(bench) == [b"0", b"1"]
    assert (first.wire.closed, second.wire.closed, kinds(second)) == (True, False, [(p.CONNACK, 0)])


def test_nobody_is_late_with_a_connect_that_is_put_off(bench: Harness) -> None:
    bench.queues.automatic = False
    for number in range(MOST_REPLACED + 1):
        bench.device(4, f"d{number}").connect(clean=False)
    device = bench.device(4, "script")
    device.send(connect(4))
    assert device.connection in bench.engine.put_off
    bench.advance(2 * bench.engine.limits.connect_timeout)
    assert not device.wire.closed
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    bench.advance(1)
    assert kinds(device) == [(p.CONNACK, 0)]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_who_comes_only_to_end_its_session_has_ended_it_however_long_it_is_looked_at(
    bench: Harness, version: int
) -> None:
    bench.device(version, "script").connect(clean=False).drop()
    asked: list[Callable[[Verdict], None]] = []
    bench.engine.context.access.authenticate = lambda _connect, _link, done: asked.append(done)  # type: ignore[method-assign]
    device = bench.device(version, "script")
    device.send(connect(version) + disconnect(version))
    assert not device.wire.closed
    asked.pop()(Verdict(0))
    assert (kinds(device), device.wire.closed) == ([(p.CONNACK, 0)], True)
    assert bench.engine.sessions.get("script") is None


def test_who_leaves_an_exchange_has_left_at_once(bench: Harness) -> None:
    bench.engine.context.access.authenticate = lambda _connect, _link, _done: None  # type: ignore[method-assign]
    device = bench.device(5, "script").connect(properties={0x15: "X"})
    device.disconnect()
    assert device.wire.closed
