"""What sessions have in flight, several at a time: through commits, crashes and reconnections."""

from __future__ import annotations

import itertools

import pytest
from broker_harness import Device, Harness

from gateway.broker.slices import SLICE_SECONDS
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.session.copies import Copies
from gateway.session.outflow import MOST_IN_FLIGHT
from gateway.session.publication import Publication
from gateway.session.session import Session

BLOCKS = [b"\x26\x00\x01a\x00\x01" + bytes((number,)) for number in b"1234"]


def subscriber(bench: Harness, version: int = 5) -> Device:
    device = bench.device(version, "s").connect(clean=False)
    device.take()
    return device


def relay(
    bench: Harness, qos: int, blocks: list[bytes] | None = None, payloads: tuple[bytes, ...] = (b"1", b"2", b"3", b"4")
):
    """Copies for the session `s`, committed."""
    session = bench.engine.context.sessions.get("s")
    like = Publication(b"t", b"", qos, False, client_id="p")
    bench.engine.fan_out.copy_all(session, Copies(like, qos, (7,), list(payloads), blocks=blocks), len(payloads), {})
    bench.engine.flush()
    return session


def stored(bench: Harness) -> int:
    return len(bench.queues.rows.get("MQGATE.OUT", {}))


def answers(kind: int, packets: list) -> bytes:
    return writer.encode_acks(kind, [packet[2] if kind != p.PUBCOMP else packet[1] for packet in packets])


def refused(_connection, packet):
    raise AssertionError(f"{packet} was looked at alone")


def test_qos_2_ends_several_at_a_time() -> None:
    bench = Harness()
    device = subscriber(bench)
    session = relay(bench, 2)
    bench.engine.plain_lane.handlers[5] = bench.engine.plain_lane.handlers[7] = refused
    sent = device.take()
    bench.queues.automatic = False
    device.send(answers(p.PUBREC, sent))
    assert device.take() == [], "PUBREL follows the commit"
    bench.queues.commit()
    released = device.take()
    assert [(packet[0], packet[1]) for packet in released] == [(0x62, number) for number in (1, 2, 3, 4)]
    assert stored(bench) == 4
    device.send(answers(p.PUBCOMP, released))
    bench.queues.commit()
    assert (stored(bench), session.stored, session.stored_bytes, session.delivered) == (0, 0, 0, 4)
    assert not session.outflow.inflight


def test_what_was_released_before_a_crash_goes_on_with_pubrel() -> None:
    bench = Harness()
    device = subscriber(bench)
    relay(bench, 2)
    sent = device.take()
    device.send(answers(p.PUBREC, sent[:2]))
    bench.queues.automatic = False
    device.send(answers(p.PUBREC, sent[2:]))  # this commit never returns
    bench.kill()
    bench.queues.automatic = True
    again = subscriber_again(bench)
    assert [packet[:2] for packet in again if packet[0] >> 4 == p.PUBREL] == [(0x62, 1), (0x62, 2)]
    assert [packet[2] for packet in again if packet[0] >> 4 == p.PUBLISH] == [3, 4]
    assert all(packet[0] & 8 for packet in again if packet[0] >> 4 == p.PUBLISH), "they may have arrived"


def connected_again(bench: Harness) -> Device:
    return bench.device(5, "s").connect(clean=False)


def subscriber_again(bench: Harness) -> list:
    return [packet for packet in connected_again(bench).take() if packet[0] >> 4 in {p.PUBLISH, p.PUBREL}]


def test_a_session_that_is_looked_at_between_pubrec_and_its_commit_goes_on() -> None:
    bench = Harness()
    device = subscriber(bench)
    session = relay(bench, 2)
    sent = device.take()
    bench.queues.automatic = False
    device.send(answers(p.PUBREC, sent))
    assert all(item.released and item.token is None for item in session.outflow.items())
    bench.queues.commit()
    assert all(item.token is not None for item in session.outflow.items())
    device.send(answers(p.PUBCOMP, device.take()))
    bench.queues.commit()
    assert (stored(bench), session.delivered) == (0, 4)


def test_a_pubcomp_that_comes_before_its_time_leaves_nothing_stored() -> None:
    bench = Harness()
    device = subscriber(bench)
    session = relay(bench, 2)
    sent = device.take()
    bench.queues.automatic = False
    device.send(answers(p.PUBREC, sent))
    device.send(writer.encode_acks(p.PUBCOMP, [1, 2, 3, 4]))
    while bench.queues.commit():
        pass
    assert (stored(bench), session.outflow.inflight) == (0, {})


@pytest.mark.parametrize("connected", [True, False])
def test_properties_that_differ_are_stored_and_sent(connected: bool) -> None:
    bench = Harness()
    device = subscriber(bench)
    if not connected:
        device.drop()
    relay(bench, 1, BLOCKS)
    told = device.take() if connected else subscriber_again(bench)
    assert [packet[3:] for packet in told] == [
        (block + b"\x0b\x07", b"%d" % number) for number, block in enumerate(BLOCKS, 1)
    ]
    bench.kill()
    assert [packet[3:] for packet in subscriber_again(bench)] == [packet[3:] for packet in told]


def test_older_clients_get_no_properties() -> None:
    bench = Harness()
    device = subscriber(bench, 4)
    relay(bench, 1, BLOCKS)
    assert [packet[4] for packet in device.take()] == [b"1", b"2", b"3", b"4"]


def test_acknowledgements_of_several_kinds_come_in_one_go() -> None:
    bench = Harness()
    device = subscriber(bench)
    relay(bench, 2)
    session = relay(bench, 1)
    sent = device.take()
    device.send(answers(p.PUBREC, sent[:4]) + answers(p.PUBACK, sent[4:]))
    device.send(writer.encode_acks(p.PUBCOMP, [1, 2, 3, 4]))
    assert (stored(bench), session.delivered) == (0, 8)


def test_the_rights_of_one_client_void_its_own_routes_and_those_to_it() -> None:
    """What others publish elsewhere keeps its route: thousands of devices may be given their rights one by one."""
    bench = Harness()
    denied: set[tuple[str, str]] = set()
    access = bench.engine.router.access
    access.may_receive = lambda _listener, client_id, _user, topic: (client_id, topic) not in denied
    access.may_publish = lambda _listener, client_id, _user, topic: (client_id, topic) not in denied
    access.decisions = lambda *_: {}
    one, other, reader = (bench.device(4, name).connect() for name in ("one", "other", "reader"))
    reader.subscribe("read/#", 0)
    reader.take()

    def publish() -> list[bytes]:
        for device, topic in ((one, "own"), (one, "read/1"), (other, "read/1"), (other, "own")):
            device.publish(topic, device.connection.publisher.client_id.encode())
        return [packet[4] for packet in reader.take()]

    def routes(device: Device) -> dict[bytes, object]:
        return dict(device.connection.caches[0])

    assert publish() == [b"one", b"other"]
    before = routes(other)
    denied |= {("one", "read/1"), ("one", "own")}
    bench.engine.in_flight.check_rights_of("one")
    assert publish() == [b"other"]
    assert all(routes(other)[topic] is route for topic, route in before.items())
    denied |= {("reader", "read/1")}
    bench.engine.in_flight.check_rights_of("reader")
    assert publish() == []
    assert routes(other)[b"own"] is before[b"own"]


@pytest.mark.parametrize("end", ["drop", "kill"])
def test_what_a_smaller_window_holds_back_keeps_identifier_order_and_dup(end: str) -> None:
    bench = Harness()
    device = subscriber(bench)
    relay(bench, 2)
    device.take()
    for window in (2, 1, 3):
        getattr(device if end == "drop" else bench, end)()
        device = bench.device(5, "s").connect(clean=False, properties={0x21: window})
        sent = [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
        assert [packet[2] for packet in sent] == [1, 2, 3][:window]
        assert all(packet[0] & 8 for packet in sent), "they may have arrived"
    device.send(answers(p.PUBREC, sent))
    device.send(answers(p.PUBCOMP, [packet for packet in device.take() if packet[0] >> 4 == p.PUBREL]))
    assert [packet[:3] for packet in device.take()] == [(0x3C, b"t", 4)]


@pytest.mark.parametrize("away", [False, True])
def test_more_subscriptions_with_an_identifier_than_a_byte_counts(away: bool) -> None:
    bench = Harness()
    device = subscriber(bench)
    for number in range(1, 301):
        filter_ = "/".join("+" if number >> level & 1 else "a" for level in range(9))
        wanted = p.Subscribe(1, [p.Subscription(filter_, 1)], {0x0B: [number]})
        device.send(client.encode_subscribe(5, wanted))
    device.take()
    if away:
        device.drop()
    publisher = bench.device(5, "p").connect()
    publisher.publish("/".join("a" * 9), b"x", 1, 1)
    assert [packet[0] >> 4 for packet in publisher.take()] == [p.CONNACK, p.PUBACK]
    if away:
        device = bench.device(5, "s").connect(clean=False)
    assert device.take()[-1][4] == b"x"
    (item,) = bench.engine.context.sessions.get("s").outflow.items()
    assert sorted(item.sub_ids) == list(range(1, 301))


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_topic_that_would_take_much_to_remember_is_given_no_alias(one_by_one: bool) -> None:
    bench = Harness()
    device = bench.device(5, "s").connect(properties={0x22: 5})
    device.subscribe("#", 0)
    device.take()
    sender = bench.device(4, "p").connect()
    short, long = b"s" * 1024, b"l" * 1025
    packets = [writer.encode_publish(4, topic, b"x", 0) for topic in (short, long, short, long)]
    for data in packets if one_by_one else [b"".join(packets)]:
        sender.send(data)
    assert [packet[1] for packet in device.take()] == [short, long, b"", long]


MANY = 4000


class Turns:
    """Plans are kept, and done a turn at a time; each look at the clock takes a quarter of a slice."""

    def __init__(self, bench: Harness) -> None:
        self.planned: list = []
        looks = itertools.count()
        bench.clock.later = lambda _seconds, call: self.planned.append(call)  # type: ignore[method-assign, assignment, return-value]
        bench.clock.monotonic = lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 4  # type: ignore[method-assign]

    def pass_by(self) -> bool:
        planned, self.planned = self.planned, []
        for call in planned:
            call()
        return bool(planned)


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_in_flight_is_sent_again_in_slices_and_before_what_is_new(killed: bool) -> None:
    bench = Harness(max_inflight=65_535, max_queued=65_535)
    payloads = tuple(b"%d" % number for number in range(MANY))
    device = bench.device(5, "s").connect(clean=False, properties={prop.RECEIVE_MAXIMUM: 65_535})
    relay(bench, 1, payloads=payloads)
    assert len(device.take()) == 1 + MANY
    if killed:
        bench.kill()
    else:
        device.drop()
    device, turns = bench.device(5, "s"), Turns(bench)
    device.connect(clean=False, properties={prop.RECEIVE_MAXIMUM: 65_535})
    found = [device.take()[1:]]
    relay(bench, 1, payloads=(b"new",))
    while turns.pass_by():
        found.append(device.take())
    assert [packet[4] for some in found for packet in some] == [*payloads, b"new"]
    assert [packet[0] & 8 for some in found for packet in some] == [8] * MANY + [0]
    assert max(map(len, found)) <= MANY // 4
    assert stored(bench) == MANY + 1


def test_what_is_acknowledged_or_broken_off_meanwhile_is_not_sent_again() -> None:
    bench = Harness(max_inflight=65_535, max_queued=65_535)
    device = bench.device(5, "s").connect(clean=False, properties={prop.RECEIVE_MAXIMUM: 65_535})
    session = relay(bench, 1, payloads=(b"x",) * MANY)
    device.drop()
    device, turns = bench.device(5, "s"), Turns(bench)
    device.connect(clean=False, properties={prop.RECEIVE_MAXIMUM: 65_535})
    sent = device.take()[1:]
    device.send(answers(p.PUBACK, sent))
    device.send(writer.encode_acks(p.PUBACK, [MANY]))  # it was sent before
    turns.pass_by()
    device.drop()
    again, device = device, bench.device(5, "s")
    device.connect(clean=False, properties={prop.RECEIVE_MAXIMUM: 10})
    while turns.pass_by():
        pass
    found = device.take()[1:]
    assert [packet[2] for packet in found] == list(range(len(sent) + 1, len(sent) + 11)), "a window"
    assert len(session.outflow.inflight) == 10
    assert session.stored == MANY - len(sent) - 1
    assert again.wire.closed


def test_pubrel_follows_the_commit_of_its_release_also_while_the_rest_is_sent_again() -> None:
    bench = Harness(max_inflight=65_535, max_queued=65_535)
    device = bench.device(5, "s").connect(clean=False, properties={prop.RECEIVE_MAXIMUM: 65_535})
    relay(bench, 2, payloads=(b"x",) * MANY)
    device.drop()
    device, turns = bench.device(5, "s"), Turns(bench)
    device.connect(clean=False, properties={prop.RECEIVE_MAXIMUM: 65_535})
    assert len(device.take()) < MANY
    bench.queues.automatic = False
    device.send(writer.encode_acks(p.PUBREC, [MANY]))  # it was sent before
    while turns.pass_by():
        pass
    assert {packet[0] >> 4 for packet in device.take()} == {p.PUBLISH}
    bench.queues.commit()
    assert [packet[:2] for packet in device.take()] == [(0x62, MANY)]


def test_pubrel_follows_the_commit_of_its_release_also_where_it_is_sent_again_after_a_while() -> None:
    bench = Harness()
    device = subscriber(bench, 3)
    relay(bench, 2)
    sent = device.take()
    device.send(answers(p.PUBREC, sent[:2]))
    assert [packet[:2] for packet in device.take()] == [(0x62, 1), (0x62, 2)]
    bench.queues.automatic = False
    device.send(answers(p.PUBREC, sent[2:]))
    bench.advance(30)
    assert [packet[:2] for packet in device.take()] == [(0x6A, 1), (0x6A, 2)]
    bench.queues.commit()
    assert [packet[:2] for packet in device.take()] == [(0x62, 3), (0x62, 4)]


def test_nothing_is_written_for_what_a_smaller_window_holds_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Harness(max_inflight=65_535, max_queued=65_535)
    device = bench.device(5, "s").connect(clean=False, properties={prop.RECEIVE_MAXIMUM: 65_535})
    relay(bench, 1, payloads=(b"x",) * MANY)
    device.drop()
    device, turns, written = bench.device(5, "s"), Turns(bench), list[bytes]()
    monkeypatch.setattr(device.wire, "write", written.append)
    device.connect(clean=False, properties={prop.RECEIVE_MAXIMUM: 10})
    while turns.pass_by():
        pass
    assert written
    assert all(written)


@pytest.mark.timeout(60)
def test_a_session_with_all_identifiers_in_flight_takes_more_mqtt_2_2_1_4() -> None:
    bench = Harness(max_inflight=0xFFFF)
    device, sender = subscriber(bench), bench.device(5, "p").connect()
    device.subscribe("t", 1)
    sent = relay(bench, 1, payloads=(b"1",)).outflow
    (one,) = sent.inflight.values()
    sent.inflight = dict.fromkeys(range(1, 0x10000), one)
    device.take()
    for number in (1, 2):
        sender.publish("t", b"%d" % number, 1, number)
    relay(bench, 1, payloads=(b"3", b"4"))
    assert [packet[0] >> 4 for packet in sender.take()] == [p.CONNACK, p.PUBACK, p.PUBACK]
    assert not [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
    for number in range(7, 11 + 0xFFFF - MOST_IN_FLIGHT):
        del sent.inflight[number]
    sender.publish("t", b"5", 1, 3)
    told = [(packet[2], packet[4]) for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
    assert sorted(told) == [(8, b"1"), (9, b"2"), (10, b"3"), (11, b"4")], "7 is stored with the last one"


@pytest.mark.parametrize("payloads", [(b"2",), (b"2", b"3", b"4")])
def test_at_qos_2_nothing_is_sent_under_another_identifier_than_it_is_stored_with_mqtt5_4_3_3_1(
    payloads: tuple[bytes, ...],
) -> None:
    """After a kill it came again, under the one that it is stored with, which its receiver had never seen."""
    bench = Harness()
    subscriber(bench).drop()
    session = relay(bench, 2, payloads=(b"1",))
    session.outflow.resume_ids(0xFFFF)  # so many were stored
    relay(bench, 2, payloads=payloads)
    known, delivered = set[int](), list[bytes]()

    def receive(device: Device) -> list[int]:
        arrived = [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
        delivered.extend(packet[4] for packet in arrived if packet[2] not in known)
        known.update(packet[2] for packet in arrived)
        return [packet[2] for packet in arrived]

    device = connected_again(bench)
    for number in receive(device)[:1]:
        device.ack(p.PUBREC, number)
        device.ack(p.PUBCOMP, number)
        known.remove(number)
    receive(device)
    bench.kill()
    device = connected_again(bench)
    for number in receive(device):
        device.ack(p.PUBREC, number)
        device.ack(p.PUBCOMP, number)
    assert delivered == [b"1", *payloads]
    assert (stored(bench), bench.engine.context.sessions.get("s").outflow.inflight) == (0, {})


class Rights:
    """An access list that lets everybody receive everything, until it does not."""

    def __init__(self, bench: Harness) -> None:
        self.denied = False
        access = bench.engine.router.access
        access.may_receive = lambda *_: not self.denied
        access.decisions = lambda *_: {}


def with_one_in_flight(bench: Harness) -> Device:
    reader = bench.device(5, "reader").connect(clean=False)
    reader.subscribe("t", 1)
    bench.device(5, "one").connect().publish("t", b"kept", 1, 1)
    assert len(reader.connection.session.outflow.inflight) == 1
    return reader


def test_rights_of_those_away_are_looked_at_in_slices_and_hold_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reload of the access list asks about a hundred thousand sessions. Who comes before it has come to him gets
    nothing that he may not have any more."""
    bench = Harness()
    rights, reader = Rights(bench), with_one_in_flight(bench)
    bench.engine.closed(reader.connection)
    for number in range(5000):
        bench.engine.sessions.add(Session(f"s{number}", 5))
    asked: list[Session] = []
    check = bench.engine.in_flight._check_rights_of

    def counted(session: Session, **more: bool) -> None:
        asked.append(session)
        check(session, **more)

    monkeypatch.setattr(bench.engine.in_flight, "_check_rights_of", counted)
    looks = itertools.count()
    bench.clock.monotonic = lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 4
    rights.denied = True
    bench.engine.in_flight.check_rights()
    assert 0 < len(asked) < 500
    again = bench.device(5, "reader").connect(clean=False)
    assert [packet for packet in again.take() if packet[0] >> 4 == p.PUBLISH] == []
    bench.advance(1.0)
    assert len({id(one) for one in asked}) == 5000 + 2


@pytest.mark.parametrize("before", [False, True])
def test_rights_of_who_comes_and_has_no_connack_yet_are_looked_at(before: bool) -> None:
    """A commit takes longer than the slices: he is away as far as what he had in flight is concerned."""
    bench = Harness()
    rights, reader = Rights(bench), with_one_in_flight(bench)
    reader.drop()
    rights.denied = True
    looks = itertools.count()
    bench.clock.monotonic = lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 4
    if not before:
        bench.engine.in_flight.check_rights()
    bench.queues.automatic = False
    again = bench.device(5, "reader").connect(clean=False)
    if before:
        bench.engine.in_flight.check_rights()
    bench.advance(1.0)
    assert again.take() == []
    while bench.queues.commit():
        pass
    assert [packet[0] >> 4 for packet in again.take()] == [p.CONNACK]


def test_a_defect_in_one_session_leaves_no_other_with_what_it_may_not_have() -> None:
    bench, denied = Harness(), False
    bench.defects = []
    access = bench.engine.router.access
    access.decisions = lambda *_: {}

    def may_receive(_listener: str, client: str, *_: object) -> bool:
        if denied and client == "reader-2":
            raise ZeroDivisionError
        return not denied

    access.may_receive = may_receive
    readers = [bench.device(5, f"reader-{number}").connect(clean=False) for number in range(5)]
    for one in readers:
        one.subscribe("t", 1)
    bench.device(5, "one").connect().publish("t", b"kept", 1, 1)
    sessions = [one.connection.session for one in readers]
    for one in readers:
        one.drop()
    denied = True
    bench.engine.in_flight.check_rights()
    bench.advance(1.0)
    assert [len(one.outflow.inflight) for one in sessions] == [0, 0, 1, 0, 0]
    assert [(met.what, met.whom) for met in bench.defects] == [("session", "reader-2")]
