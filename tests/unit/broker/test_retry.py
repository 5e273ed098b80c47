"""Resending on a live connection: 3.1 always, 3.1.1 where the settings say so, 5.0 never."""

from __future__ import annotations

import pytest
from broker_harness import Harness


def resent(bench: Harness, version: int) -> list[int]:
    """First bytes of what a client that acknowledges nothing is sent again within 25 seconds."""
    device = bench.device(version, f"d{version}").connect(keep_alive=0)
    device.subscribe("a", 2)
    sender = bench.device(4, f"s{version}").connect()
    sender.publish("a", b"one", 1, 1)
    sender.publish("a", b"two", 2, 2)
    sender.ack(6, 2)
    device.ack(5, 2)
    device.take()
    bench.advance(25)
    return [packet[0] for packet in device.take()]


@pytest.mark.parametrize(("version", "again"), [(3, [0x3A, 0x6A]), (4, []), (5, [])])
def test_the_default(version, again):
    assert resent(Harness(), version) == again


@pytest.mark.parametrize(("version", "again"), [(3, [0x3A, 0x6A]), (4, [0x3A, 0x62]), (5, [])])
def test_3_1_1_where_the_settings_say_so_and_5_0_never_mqtt_4_4_0_1(version, again):
    assert resent(Harness(retry_versions=frozenset({3, 4})), version) == again


def test_not_after_the_acknowledgement():
    bench = Harness(retry_versions=frozenset({3, 4}))
    device = bench.device(4, "d").connect(keep_alive=0)
    device.subscribe("a", 1)
    bench.device(4, "s").connect().publish("a", b"one", 1, 1)
    device.ack(4, 1)
    device.take()
    bench.advance(60)
    assert device.take() == []
