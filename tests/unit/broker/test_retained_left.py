"""gateway.broker.sessions.subscriptions: retained messages that a session has still to get go along with it."""

from __future__ import annotations

import pytest
from broker_harness import Device
from several_brokers import Estate

from gateway.mqtt import packets as p
from gateway.ports.state_queues import SESSIONS
from gateway.session.record import decode_json

COUNT = 2500


def topics_of(estate: Estate, device: Device, most: int) -> list[bytes]:
    """Of what comes while each publication is acknowledged at once, until nothing does; about so many."""
    topics: list[bytes] = []
    silent = 0
    while silent < 10 and len(topics) < most:
        estate.settle(0.1)
        found = [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
        topics += [packet[1] for packet in found]
        for packet in found:
            device.ack(p.PUBACK, packet[2])
        silent = 0 if found else silent + 1
    return topics


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_left_of_retained_messages_comes_at_another_gateway(*, killed: bool) -> None:
    """Whether the session moves there or is taken over; later again, all has come."""
    estate = Estate()
    first, second = estate.start(), estate.start()
    sender = first.bench.device(5, "sender").connect()
    estate.settle(0.3)
    for number in range(COUNT):
        sender.publish(f"kept/{number}", b"x", 1, number + 1, retain=True)
    estate.settle()
    device = first.bench.device(5, "d").connect(clean=False)
    estate.settle(0.3)
    device.subscribe("kept/#", 1)
    topics = topics_of(estate, device, 500)
    assert len(topics) < COUNT
    if killed:
        estate.kill(first)
        estate.condemn(first.instance, second)
        estate.changed()
        estate.settle()
    device = second.bench.device(5, "d").connect(clean=False)
    topics += topics_of(estate, device, 500)
    assert len({*topics}) < COUNT
    topics += topics_of(estate, device, 4 * COUNT)
    estate.settle()
    assert {*topics} == {b"kept/%d" % number for number in range(COUNT)}
    assert ["retained" in decode_json(row[3]) for row in estate.rows[SESSIONS].values()] == [False]
