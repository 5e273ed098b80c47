"""Several gateways on one queue manager: publications reach subscribers wherever they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_estate import Talker
from ibm_fleet import LEASE, Fleet, fleet_in, stay, until

from gateway.mqtt import packets as p
from gateway.mqtt import writer

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as made:
        yield made


def got(talker: Talker) -> tuple[bytes, bytes, int, bool]:
    """The next publication, acknowledged: topic, payload, QoS, RETAIN."""
    packet = talker.next(p.PUBLISH)
    qos = packet[0] >> 1 & 3
    if qos == 1:
        talker.socket.sendall(writer.encode_acks(p.PUBACK, [packet[2]]))
    elif qos == 2:
        talker.socket.sendall(writer.encode_acks(p.PUBREC, [packet[2]]))
        talker.next(p.PUBREL)
        talker.socket.sendall(writer.encode_acks(p.PUBCOMP, [packet[2]]))
    return bytes(packet[1]), bytes(packet[4]), qos, bool(packet[0] & 1)


def test_publications_reach_subscribers_of_every_gateway(fleet: Fleet) -> None:
    gateways = [fleet.start(), fleet.start(), fleet.start()]
    talkers = [Talker(gateway.port, f"talks-{number}") for number, gateway in enumerate(gateways)]
    for talker in talkers:
        talker.subscribe("news/#", 2)
    for number in range(9):
        qos, body = number % 3, b"%d" % number
        assert talkers[number // 3].publish("news/a", body, qos) == 0
        for talker in talkers:
            assert got(talker) == (b"news/a", body, qos, False)
    assert all(talker.silent() for talker in talkers)
    assert fleet.bodies("MQGATE.FORWARD") == []
    assert talkers[0].publish("other") == 0x10, "nobody subscribes anywhere"


def test_the_longest_filters_reach_every_gateway(fleet: Fleet) -> None:
    """What says them is longer than the buffer of a first get; a look at the leases meets it too."""
    first, second = fleet.start(), fleet.start()
    listener, teller = Talker(first.port, "listener"), Talker(second.port, "teller")
    filters = [letter * ((65_535 - 6) // len(letter.encode())) + "/news" for letter in ("a", "\N{SNOWMAN}", '"')]
    for filter_ in filters:
        listener.subscribe(filter_, 1)
        assert teller.publish(filter_, b"long") == 0
        assert got(listener)[1:3] == (b"long", 1)
    assert teller.publish("nobody") == 0x10


def test_a_session_that_is_away_gets_what_was_published_elsewhere(fleet: Fleet) -> None:
    first, second = fleet.start(), fleet.start()
    away = stay("away", first)
    away.subscribe("news", 1)
    away.cut()
    teller = Talker(second.port, "teller")
    bodies = [b"%d" % number for number in range(50)]
    for body in bodies:
        assert teller.publish("news", body) == 0
    until(lambda: not fleet.bodies("MQGATE.FORWARD"))
    back = stay("away", second)
    assert [got(back)[1] for _ in bodies] == bodies
    assert teller.publish("news", b"and now here") == 0
    assert got(back)[1] == b"and now here"
    assert back.silent()


def test_a_member_of_a_shared_subscription_gets_each_message_wherever_it_is(fleet: Fleet) -> None:
    gateways = [fleet.start(), fleet.start(), fleet.start()]
    members = [Talker(gateway.port, f"member-{number}") for number, gateway in enumerate(gateways[:2])]
    for member in members:
        member.subscribe("$share/group/work", 1)
    teller = Talker(gateways[2].port, "teller")
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        assert teller.publish("work", body) == 0
    found = [got(member)[1] for member in members for _ in range(10)]
    assert sorted(found, key=int) == bodies
    assert all(member.silent() for member in members)


def test_wills_reach_subscribers_of_other_gateways(fleet: Fleet) -> None:
    first, second = fleet.start(), fleet.start()
    listener = Talker(first.port, "listener")
    listener.subscribe("gone/#", 1)
    Talker(second.port, "device", will=p.Will("gone/device", b"lost", 1, retain=False)).cut()
    assert got(listener)[:2] == (b"gone/device", b"lost")


def test_what_was_put_for_a_gateway_that_was_killed_reaches_its_sessions_once(fleet: Fleet) -> None:
    fleet.lease = LEASE
    first, second = fleet.start(), fleet.start()
    away, beside = stay("away", first), stay("beside", second)
    for talker in (away, beside):
        talker.subscribe("news", 1)
    away.cut()
    teller = Talker(second.port, "teller")
    bodies = [b"%d" % number for number in range(60)]
    for number, body in enumerate(bodies):
        if number == 30:
            first.kill()
        assert teller.publish("news", body) == 0
        assert got(beside)[1] == body
    back = stay("away", second)
    assert [got(back)[1] for _ in bodies] == bodies
    assert back.silent()
    until(lambda: not fleet.bodies("MQGATE.FORWARD"))


def test_a_session_that_goes_from_gateway_to_gateway_misses_nothing(fleet: Fleet) -> None:
    """Three publishers, one at each gateway, while it moves; others there subscribe to the same topic all the time."""
    gateways = [fleet.start(), fleet.start(), fleet.start()]
    bystanders = [Talker(gateway.port, f"stays-{number}") for number, gateway in enumerate(gateways)]
    for bystander in bystanders[:2]:
        bystander.subscribe("news/#", 0)
    wanderer = stay("wanderer", gateways[0])
    wanderer.subscribe("news/#", 1)
    wanderer.cut()
    stop, sent = threading.Event(), [list[bytes]() for _ in gateways]
    allowed = [threading.Semaphore(0) for _ in gateways]
    found: set[bytes] = set()

    def publish(number: int) -> None:
        talker = Talker(gateways[number].port, f"tells-{number}")
        while allowed[number].acquire() and not stop.is_set():
            body = b"%d:%d" % (number, len(sent[number]))
            assert talker.publish(f"news/{number}", body) == 0
            sent[number].append(body)

    def take(here: Talker) -> None:
        packet = here.next(p.PUBLISH)
        found.add(bytes(packet[4]))
        here.socket.sendall(writer.encode_acks(p.PUBACK, [packet[2]]))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 13):
        for each in allowed:
            each.release(15)
        with stay("wanderer", gateways[number % 3]) as here:
            for _ in range(20):
                if here.silent(0.05):
                    break
                take(here)
    stop.set()
    for each in allowed:
        each.release()
    for thread in threads:
        thread.join()
    everything = {body for bodies in sent for body in bodies}
    with stay("wanderer", gateways[1]) as here:
        while len(found) < len(everything):
            take(here)
    assert found == everything
