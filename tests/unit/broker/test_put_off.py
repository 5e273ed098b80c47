"""gateway.broker.put_off: what one client sends is worked off a little at a time, in its order, and loses nothing."""

from __future__ import annotations

import itertools
import socket
import time
from math import inf
from typing import Any

import pytest
from broker_harness import Device, Harness

from gateway.broker.context import MOST_REPLACED
from gateway.broker.publish import fast
from gateway.broker.publish.taking import MOST_KEPT, take_in_python
from gateway.broker.put_off import SLICE_SECONDS
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt.reader import Reader
from gateway.net.hub import Hub
from gateway.net.hub_socket import HubSocket
from gateway.net.reactor import HubReactor

STEP = SLICE_SECONDS / 16


class Slow(Harness):
    """A bench where each look at the clock takes a moment, and turns have an end."""

    def __init__(self, mapping: str = "version: 1\n", **limits: Any) -> None:
        super().__init__(mapping, **limits)
        self.busy: list[tuple[str, bool]] = []
        self.engine.put_off.on_busy = lambda connection, busy: self.busy.append((connection.publisher.client_id, busy))
        self.planned: list[Any] = []
        self.clock.later = lambda _seconds, call: self.planned.append(call)
        looks = itertools.count()
        self.clock.monotonic = lambda: self.clock.time + next(looks) * STEP

    def turn(self) -> None:
        """A turn begins with time for a few packets."""
        context = self.engine.context
        context.until = context.until_strangers = self.clock.monotonic() + SLICE_SECONDS

    def later(self) -> bool:
        """What was put off comes, as far as there is time in a turn; False when there is nothing."""
        calls, self.planned = self.planned, []
        for call in calls:
            call()
        return bool(calls)


def packets(*numbers: int, topic: str = "retained/a") -> bytes:
    """Publications that the plain lane takes one by one."""
    return b"".join(
        writer.encode_publish(5, f"{topic}/{one}".encode(), b"x", 1, retain=True, packet_id=one) for one in numbers
    )


def acknowledged(device: Device) -> list[int]:
    return [packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBACK]


def test_what_there_is_no_time_for_comes_in_later_turns_in_its_order() -> None:
    bench = Slow()
    device = bench.device(5, "a").connect()
    bench.turn()
    device.send(packets(*range(1, 31)))
    first = acknowledged(device)
    assert first == list(range(1, len(first) + 1))
    assert 1 <= len(first) < 15
    turns = 0
    while bench.later():
        turns += 1
        first += acknowledged(device)
    assert first == list(range(1, 31))
    assert turns > 1
    assert bench.busy == [("a", True), ("a", False)]
    assert bench.engine.retained.count == 30


@pytest.mark.parametrize("topic", ["brief", "long/" + "a/" * 150])
@pytest.mark.parametrize("retain", [True, False])
def test_it_goes_on_however_slow_the_machine_is(topic: str, retain: bool) -> None:
    """Nothing is left of a slice when the route of its first packet is found."""
    bench = Slow("version: 1\nto_mq:\n  - {name: all, topic: '#', queue: Q}\n")
    device = bench.device(5, "a").connect()
    moments = itertools.count()
    bench.clock.monotonic = lambda: bench.clock.time + next(moments) * 5 * SLICE_SECONDS
    bench.turn()
    device.send(
        b"".join(
            writer.encode_publish(5, f"{topic}{n}".encode(), b"x", 1, retain=retain, packet_id=n) for n in range(1, 11)
        )
    )
    found = acknowledged(device)
    for _ in range(10):
        bench.later()
        found += acknowledged(device)
    assert found == list(range(1, 11))


@pytest.mark.parametrize("retain", [True, False])
def test_nothing_overtakes_what_is_put_off(retain: bool) -> None:
    bench = Slow("version: 1\nto_mq:\n  - {name: all, topic: fast, queue: Q}\n")
    device = bench.device(5, "a").connect()
    device.publish("fast", b"0", 1, 1000)  # its route is known: the fast lane takes the next
    bench.turn()
    device.send(packets(*range(1, 21)))
    later = writer.encode_publish(5, b"fast", b"1", 1, retain=retain, packet_id=21)
    bench.engine.received_each([(device.connection, later[:3])])
    device.send(later[3:])
    while bench.later():
        pass
    assert acknowledged(device) == [1000, *range(1, 22)]


def test_who_was_only_behind_others_comes_before_those_who_take_long() -> None:
    bench = Slow()
    slow, late = bench.device(5, "slow").connect(), bench.device(5, "late").connect()
    bench.turn()
    slow.send(packets(*range(1, 101)))
    late.send(packets(1, topic="retained/b"))
    assert acknowledged(late) == []
    bench.later()
    assert acknowledged(late) == [1]
    assert bench.engine.put_off._waiting


def test_all_who_take_long_get_their_share() -> None:
    bench = Slow()
    devices = [bench.device(5, f"slow-{one}").connect() for one in range(3)]
    bench.turn()
    for one, device in enumerate(devices):
        device.send(packets(*range(1, 41), topic=f"retained/{one}"))
    done = [len(acknowledged(device)) for device in devices]
    while bench.later():
        done = [count + len(acknowledged(device)) for count, device in zip(done, devices, strict=True)]
        if max(done) < 40:
            assert max(done) - min(done) <= 24
    assert done == [40, 40, 40]


def test_what_strangers_send_is_not_even_decoded_when_it_is_late() -> None:
    bench = Slow()
    slow = bench.device(5, "slow").connect()
    strangers = [bench.device(5, f"stranger-{one}") for one in range(6)]
    bench.turn()
    slow.send(packets(*range(1, 31)))
    for one in strangers:
        connect = client.encode_connect(client.connect(5, one.client_id))
        one.send(connect[:9])
        one.send(connect[9:] + packets(7, topic="early"))
        assert one.connection.reader.version == 0
    while bench.later():
        pass
    assert [acknowledged(one) for one in strangers] == [[7]] * 6
    assert all(bench.engine.sessions.get(one.client_id) is not None for one in strangers)


def test_a_violation_behind_them_is_told_after_them() -> None:
    bench = Slow()
    device = bench.device(5, "a").connect()
    bench.turn()
    device.send(packets(*range(1, 21)) + b"\xff\xff\xff\xff\xff\xff")
    assert not device.wire.closed
    while bench.later():
        pass
    found = device.take()
    assert bench.engine.retained.count == 20
    assert found[-1][0] >> 4 == p.DISCONNECT
    assert device.wire.closed


def test_with_its_connection_they_are_gone() -> None:
    bench = Slow()
    device, other = bench.device(5, "a").connect(), bench.device(5, "b").connect()
    bench.turn()
    device.send(packets(*range(1, 21)))
    other.send(packets(1, topic="other"))
    count = bench.engine.retained.count
    device.drop()
    while bench.later():
        pass
    assert bench.engine.retained.count == count + 1
    assert acknowledged(other) == [1]


def test_a_defect_costs_the_connection_that_met_it() -> None:
    bench = Slow()
    device, other = bench.device(5, "a").connect(), bench.device(5, "b").connect()
    bench.turn()
    device.send(packets(*range(1, 21)))
    other.send(packets(1, topic="other"))
    met: list[tuple[Any, Exception]] = []
    bench.engine.context.set_aside.on_defect = lambda defect: met.append((defect.whom, defect.error))
    keep = bench.engine.retained.keep

    def broken(publication: Any) -> None:
        if publication.topic.startswith(b"retained"):
            raise ZeroDivisionError
        keep(publication)

    bench.engine.retained.keep = broken
    while bench.later():
        pass
    assert [(whom, type(error)) for whom, error in met] == [("a", ZeroDivisionError)]
    assert device.wire.closed
    assert acknowledged(other) == [1]


def test_a_defect_behind_them_takes_back_nothing_that_is_answered() -> None:
    """Several clients are answered for what is taken in with one call: it is no unit."""
    bench = Slow("version: 1\nto_mq:\n  - {name: all, topic: up, queue: Q}\n")
    device = bench.device(5, "a").connect()
    device.publish("up", b"0", 1, 1000)  # its route is known
    context, fill, met = bench.engine.context, bench.engine.in_flight.fill, list[Any]()
    context.set_aside.on_defect = lambda defect: met.append(type(defect.error))
    bench.turn()
    context.until = 0.0
    device.send(packets(1) + b"".join(writer.encode_publish(5, b"up", b"x", 1, packet_id=n) for n in range(2, 21)))
    assert acknowledged(device) == [1000]

    def broken(session: Any) -> None:
        bench.engine.in_flight.fill = fill
        raise ZeroDivisionError

    bench.engine.in_flight.fill = broken
    context.refill[device.connection.session] = None
    while bench.later():
        pass
    bench.engine.flush()  # the next turn
    assert met == [ZeroDivisionError]
    assert acknowledged(device) == [*range(1, 21)]
    assert len(bench.queues.rows["Q"]) == 20


def test_the_hub_reads_no_more_from_a_client_whose_packets_are_put_off() -> None:
    bench = Harness()
    hub = Hub(HubReactor(), bench.engine)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = HubSocket(hub, ours, "10.0.0.9:1", "bench")
        link.connection = bench.engine.connected(link)
        assert link.connection is not None
        hub.add(link)
        bench.engine.put_off.add(link.connection, [], slow=True)
        assert not link.watching & 1
        hub.pause(paused=True)
        hub.pause(paused=False)
        assert not link.watching & 1
        bench.clock.advance(0.0)
        assert link.watching & 1


def test_the_hub_gets_to_everybody_though_a_turn_has_an_end() -> None:
    bench = Harness()
    hub = Hub(HubReactor(), bench.engine)
    pairs = [socket.socketpair() for _ in range(20)]
    links = []
    for ours, theirs in pairs:
        link = HubSocket(hub, ours, f"10.0.0.9:{ours.fileno()}", "bench")
        link.connection = bench.engine.connected(link)
        hub.add(link)
        links.append(link)
        theirs.close()
    closed = bench.engine.closed

    def slowly(connection: Any) -> None:
        time.sleep(0.035)
        closed(connection)

    bench.engine.closed = slowly
    turns = 0
    while hub.count:
        hub.wait(1.0)
        turns += 1
    assert turns >= 10
    assert all(link.closed for link in links)


@pytest.mark.parametrize("take", [take_in_python, fast.take], ids=["python", "compiled"])
@pytest.mark.parametrize("again", [False, True], ids=["new topics", "known topics"])
def test_one_commit_replaces_a_bounded_number_of_retained_messages(
    take: Any, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "take", take)
    bench = Slow()
    bench.clock.monotonic = lambda: bench.clock.time  # there is all the time one could wish for
    devices = [bench.device(5, f"d{one}").connect() for one in range(2)]
    for round_ in range(1 + again):
        for device in devices:
            bench.engine.received_each(
                [
                    (
                        device.connection,
                        b"".join(
                            writer.encode_publish(5, f"kept/{number}".encode(), b"%d" % round_, 0, retain=True)
                            for number in range(2 * MOST_REPLACED)
                        ),
                    )
                ]
            )
        most = len(bench.engine.context.batch.replaces)
        bench.engine.flush()
        while bench.later():
            most = max(most, len(bench.engine.context.running.replaces))
        assert MOST_REPLACED <= most <= MOST_REPLACED + MOST_KEPT
    kept = {one.topic: one.payload for one in bench.engine.retained}
    assert kept == {f"kept/{number}".encode(): b"%d" % again for number in range(2 * MOST_REPLACED)}


@pytest.mark.parametrize("take", [take_in_python, fast.take], ids=["python", "compiled"])
def test_what_is_retained_again_is_no_work_for_the_plain_way_though_it_is_put_off(
    take: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "take", take)
    bench = Slow()
    bench.clock.monotonic = lambda: bench.clock.time
    device = bench.device(5, "d").connect()
    retained, keep, kept = bench.engine.retained, bench.engine.retained.keep, list[bytes]()

    def counted(publication: Any) -> None:
        kept.append(publication.topic)
        keep(publication)

    retained.keep = counted
    for _ in range(3):  # new, known, and then a record that is replaced
        kept.clear()
        device.send(packets(*range(1, 4 * MOST_REPLACED)))
        while bench.later():
            pass
        assert len(acknowledged(device)) == 4 * MOST_REPLACED - 1
    assert len(kept) <= 4  # the packet that comes when a batch is full


def test_while_nothing_can_be_committed_pings_behind_retained_messages_are_answered() -> None:
    bench = Slow()
    bench.clock.monotonic = lambda: bench.clock.time
    device = bench.device(5, "d").connect()
    bench.engine.context.held_since = 1.0
    bench.engine.context.committing = True
    device.send(b"".join(packets(number) for number in range(1, 2 * MOST_REPLACED)) + b"\xc0\0")
    assert [packet[0] >> 4 for packet in device.take()] == [p.CONNACK, p.PINGRESP]


def test_what_is_kept_from_before_comes_before_what_is_put_off() -> None:
    bench = Slow()
    device = bench.device(5, "a").connect()
    bench.turn()
    device.send(packets(*range(10, 31)))
    done = acknowledged(device)
    assert device.connection in bench.engine.put_off
    bench.engine.one_by_one.packets(device.connection, Reader(1000, 5).feed(packets(*range(1, 10))))
    bench.engine.flush()
    while bench.later():
        pass
    done += acknowledged(device)
    rest = [one for one in done if one >= 10]
    assert rest == list(range(10, 31))
    assert done.index(9) < done.index(30)
    assert [one for one in done if one < 10] == list(range(1, 10))


def test_strangers_wait_when_their_part_of_the_turn_is_over_and_clients_do_not() -> None:
    bench = Slow()
    known, stranger = bench.device(5, "known").connect(), bench.device(5, "stranger")
    bench.turn()
    bench.engine.context.until_strangers = 0.0
    stranger.send(client.encode_connect(client.connect(5, "stranger")))
    known.send(packets(1))
    assert acknowledged(known) == [1]
    assert stranger.take() == []
    assert bench.later()
    assert [packet[0] >> 4 for packet in stranger.take()] == [p.CONNACK]


def test_a_stranger_that_had_to_wait_and_is_not_admitted_in_time_is_told_so() -> None:
    bench = Slow("version: 1\nto_mq:\n  - {name: up, topic: up, queue: Q}\n")
    busy = bench.device(5, "busy").connect()
    bench.turn()
    bench.queues.automatic = False
    busy.publish("up", b"", 1, 1)
    bench.engine.context.until_strangers = 0.0
    stranger = bench.device(5, "stranger")
    stranger.send(client.encode_connect(client.connect(5, "stranger")))
    assert bench.later()
    assert stranger.take() == []
    bench.advance(11)
    assert [(packet[0] >> 4, packet[1].reason) for packet in stranger.take()] == [(p.CONNACK, 0x88)]
    assert stranger.wire.closed


def test_what_is_put_off_has_what_reading_has_left_of_the_turn() -> None:
    bench = Slow()
    devices = [bench.device(5, f"slow-{one}").connect() for one in range(3)]
    bench.turn()
    for one, device in enumerate(devices):
        device.send(packets(*range(1, 41), topic=f"retained/{one}"))
    for device in devices:
        device.take()
    bench.engine.context.until_late = 0.0  # reading has taken all of it
    bench.later()
    assert sum(bool(acknowledged(device)) for device in devices) == 1, "one slice"
    bench.engine.context.until_late = inf
    bench.later()
    assert sum(bool(acknowledged(device)) for device in devices) > 1
