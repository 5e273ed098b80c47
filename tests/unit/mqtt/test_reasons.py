"""gateway.mqtt.reasons: names, validity, return codes of 3.x, MQ reasons."""

from __future__ import annotations

import pytest

from gateway.mqtt import packets, reasons


def test_every_code_has_a_name_and_is_used_by_some_packet():
    used = set().union(*reasons.VALID.values(), reasons.CLIENT_DISCONNECT, reasons.SERVER_DISCONNECT)
    assert used == set(reasons.NAMES)
    assert reasons.name(0x97) == "Quota exceeded"
    assert reasons.name(0x7F) == "reason 0x7F"


@pytest.mark.parametrize(
    ("packet_type", "reason", "from_server", "valid"),
    [
        (packets.DISCONNECT, 0x04, False, True),
        (packets.DISCONNECT, 0x04, True, False),
        (packets.DISCONNECT, 0x8E, True, True),
        (packets.DISCONNECT, 0x8E, False, False),
        (packets.PUBACK, 0x10, True, True),
        (packets.PUBREL, 0x10, False, False),
        (packets.AUTH, 0x19, False, True),
    ],
)
def test_validity_by_packet_and_side(packet_type, reason, from_server, valid):
    assert reasons.is_valid(packet_type, reason, from_server) is valid


@pytest.mark.parametrize(
    ("reason", "code"),
    [(0, 0), (0x84, 1), (0x85, 2), (0x88, 3), (0x89, 3), (0x86, 5), (0x87, 5), (0x8C, 5), (0x81, None)],
)
def test_return_codes_of_3_x(reason, code):
    assert reasons.connack_return_code(reason) == code


@pytest.mark.parametrize(
    ("mqrc", "reason"), [(2053, 0x97), (2030, 0x95), (2031, 0x95), (2035, 0x87), (2051, 0x83), (2009, 0x80)]
)
def test_mq_reasons(mqrc, reason):
    assert reasons.reason_from_mqrc(mqrc) == reason
    assert reasons.is_valid(packets.DISCONNECT, reason, from_server=True)
