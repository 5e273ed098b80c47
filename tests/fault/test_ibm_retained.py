"""Several gateways on one queue manager have one set of retained messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from bridge_estate import Talker
from gateways import RunningGateway
from ibm_fleet import Fleet, fleet_in, until

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.session.record import decode_publication

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
_numbers = count()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as made:
        yield made


def retained_at(gateway: RunningGateway) -> dict[bytes, bytes]:
    """What a new subscriber gets, which is complete when the message on the topic of its last filter is there."""
    with Talker(gateway.port, f"looks-{next(_numbers)}") as talker:
        filters = [p.Subscription("kept/#", 1), p.Subscription("end", 1)]
        talker.socket.sendall(client.encode_subscribe(5, p.Subscribe(1, filters)))
        found = {}
        while b"end" not in found:
            topic, payload, *_ = talker.receive()
            found[topic.encode()] = payload
        del found[b"end"]
        return found


def test_what_one_retains_or_clears_the_others_know_at_once(fleet: Fleet) -> None:
    gateways = [fleet.start(), fleet.start(), fleet.start()]
    talkers = [Talker(gateway.port, f"talks-{number}") for number, gateway in enumerate(gateways)]
    talkers[0].publish("end", b"of the list", retain=True)
    for number in range(12):
        body, qos = b"%d" % number, 1 + number % 2
        assert talkers[number % 3].publish("kept/a", body, qos, retain=True) in {0, 0x10}
        assert retained_at(gateways[(number + 1) % 3]) == {b"kept/a": body}
        assert talkers[(number + 2) % 3].publish("kept/a", b"", retain=True) in {0, 0x10}
        assert retained_at(gateways[number % 3]) == {}
    assert [decode_publication(body)[0].topic for body in fleet.bodies("MQGATE.RETAINED")] == [b"end"]


def test_also_on_the_longest_topic(fleet: Fleet) -> None:
    first, second = fleet.start(), fleet.start()
    topic = "kept/" + "\N{SNOWMAN}" * ((65_535 - 5) // 3)
    teller = Talker(first.port, "teller")
    teller.publish("end", b"of the list", retain=True)
    for kept in ({topic.encode(): b"new"}, {topic.encode(): b"newer"}, {}):
        teller.publish(topic, kept.get(topic.encode(), b""), retain=True)
        assert retained_at(second) == kept


def test_several_that_retain_on_one_topic_agree_in_the_end(fleet: Fleet) -> None:
    gateways = [fleet.start(), fleet.start()]
    talkers = [Talker(gateway.port, f"talks-{number}") for number, gateway in enumerate(gateways)]
    talkers[0].publish("end", b"of the list", retain=True)
    for number in range(60):
        for talker in talkers:
            body = b"%d" % number if number % 7 else b""
            packet = writer.encode_publish(5, b"kept/x", body, 0, retain=True, packet_id=0, properties=b"")
            talker.socket.sendall(packet)
    for talker in talkers:
        talker.publish("kept/last", b"seen", retain=True)

    def agree() -> bool:
        first, second = map(retained_at, gateways)
        records = [decode_publication(body)[0] for body in fleet.bodies("MQGATE.RETAINED")]
        stored = {one.topic: one.payload for one in records if one.topic != b"end"}
        return first == second == stored and len(records) == len(stored) + 1

    until(agree)


def test_one_that_expires_is_removed_once_and_nothing_newer_with_it(fleet: Fleet) -> None:
    gateways = [fleet.start(), fleet.start()]
    talkers = [Talker(gateway.port, f"talks-{number}") for number, gateway in enumerate(gateways)]
    talkers[0].publish("end", b"of the list", retain=True)
    for topic in ("kept/a", "kept/b"):
        talkers[0].publish(topic, b"for a second", retain=True, properties={0x02: 1})
    talkers[1].publish("kept/b", b"for ever", retain=True)
    until(lambda: len(fleet.bodies("MQGATE.RETAINED")) == 2)
    for gateway in gateways:
        assert retained_at(gateway) == {b"kept/b": b"for ever"}
