"""Somebody looks at one client: its packets are told one by one, and nothing changes for the others."""

from __future__ import annotations

import pytest
from broker_harness import Device, Harness

from gateway.broker.publish.route import FastPath
from gateway.mqtt import packets as p
from gateway.mqtt import writer

MAPPING = """
version: 1
to_mq:
  - {name: all, topic: 'q/#', queue: Q}
"""


@pytest.fixture
def bench():
    return Harness(MAPPING)


def taken_together(bench: Harness, device: Device, qos: int = 1) -> bool:
    """Whether the fast lane takes a publication of a device."""
    packet = writer.encode_publish(4, b"q/1", b"x", qos, packet_id=9)
    return not bench.engine.fast_lane.take([(device.connection, packet)])


def test_only_who_is_looked_at_is_told_of(bench):
    told = []
    context = bench.engine.context
    context.traces = lambda client_id: client_id == "seen"
    context.trace = lambda connection, kind, _packet: told.append((connection.session.client_id, kind))
    context.trace_out = lambda connection, _data: told.append((connection.session.client_id, "out"))
    seen, other = (bench.device(4, name).connect() for name in ("seen", "other"))
    told.clear()
    for device in (seen, other):
        device.publish("q/1", b"x", 1, packet_id=1)
        device.publish("q/1", b"x", 2, packet_id=2)
        device.ack(p.PUBREL, 2)
        device.send(b"\xc0\x00")
    assert {name for name, _ in told} == {"seen"}
    assert [kind for _, kind in told if kind != "out"] == ["PUBLISH", "PUBLISH", "PUBREL", "PINGREQ"]


def test_routes_stay_fast_for_the_others(bench):
    bench.engine.context.traces = lambda client_id: client_id == "seen"
    bench.engine.context.trace = lambda *_: None
    seen, other = (bench.device(4, name).connect() for name in ("seen", "other"))
    for device in (seen, other):
        device.publish("q/1", b"x", 1, packet_id=1)
        assert device.connection.caches[2][b"q/1"].fast_path is FastPath.DIRECT
    assert not taken_together(bench, seen)
    assert taken_together(bench, other)
