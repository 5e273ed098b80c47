"""gateway.mqtt.decoders: the tables of first bytes. Bodies are covered byte by byte in golden/mqtt."""

from __future__ import annotations

import pytest

from gateway.errors import MalformedPacket, ProtocolError
from gateway.mqtt.decoders import ACK, FROM_CLIENT, FROM_SERVER, PUBLISH_0, PUBLISH_12, RARE


def accepted(grammars, version):
    return {first for first in range(256) if first not in grammars[version].refusals}


PUBLISHES_311 = {0x30, 0x31, *range(0x32, 0x36), *range(0x3A, 0x3E)}


@pytest.mark.parametrize("version", [4, 5])
def test_first_bytes_of_clients_mqtt_2_2_2_2(version):
    exact = {0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0, 0xE0} | ({0xF0} if version == 5 else set())
    assert accepted(FROM_CLIENT, version) == PUBLISHES_311 | exact


def test_first_bytes_of_mqisdp():
    ranges = [range(t << 4, (t << 4) + 16) for t in (4, 5, 6, 7, 8, 10, 12, 14)]
    qos3 = {t << 4 | f for t in (6, 8, 10) for f in (6, 7, 14, 15)}
    publishes = set(range(0x30, 0x40)) - {0x36, 0x37, 0x3E, 0x3F}
    assert accepted(FROM_CLIENT, 3) == set().union(*ranges) - qos3 | publishes


@pytest.mark.parametrize("version", [4, 5])
def test_first_bytes_of_servers(version):
    exact = {0x20, 0x40, 0x50, 0x62, 0x70, 0x90, 0xB0, 0xD0} | ({0xE0, 0xF0} if version == 5 else set())
    assert accepted(FROM_SERVER, version) == PUBLISHES_311 | exact


@pytest.mark.parametrize("version", [3, 4, 5])
def test_kinds_follow_the_type(version):
    grammar = FROM_CLIENT[version]
    for first in accepted(FROM_CLIENT, version):
        expected = {3: PUBLISH_12 if first & 6 else PUBLISH_0, 4: ACK, 5: ACK, 6: ACK, 7: ACK}.get(first >> 4, RARE)
        assert grammar.kinds[first] == expected
    for first, refusal in grammar.refusals.items():
        assert grammar.kinds[first] == RARE
        assert refusal.error in {MalformedPacket, ProtocolError}
        assert refusal.text
