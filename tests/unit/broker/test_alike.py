"""gateway.broker.deliver.alike: what may go with a wide publication."""

from __future__ import annotations

import pytest

from gateway.broker.deliver.alike import are_alike, length_alike, length_of_pubrel
from gateway.mqtt import writer
from gateway.session.publication import Publication

FIRST = Publication(b"t", b"long", 1, False)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("topic", "payload", "qos", "retain", "is_alike"),
    [
        (b"t", b"long", 1, False, True),
        (b"t", b"", 1, False, True),
        (b"t", b"longer", 1, False, False),
        (b"u", b"long", 1, False, False),
        (b"tt", b"lon", 1, False, False),
        (b"t", b"long", 0, False, False),
        (b"t", b"long", 1, True, False),
    ],
)
def test_a_publish_is_like_another(version, topic, payload, qos, retain, is_alike):
    packet = writer.encode_publish(version, topic, payload, qos, retain=retain, packet_id=7)
    data = bytearray(b"before" + packet + b"\xc0\0")
    assert length_alike(FIRST, version, data, 6) == (len(packet) if is_alike else 0)
    assert length_alike(FIRST, version, data[: 6 + len(packet) - 1], 6) == 0, "not all of it has come"


def test_a_publish_with_properties_is_not():
    packet = writer.frame(0x32, b"\0\1t\0\7\2\1\1long")
    assert length_alike(FIRST, 5, bytearray(packet), 0) == 0


def test_a_pubrel_releases_what_is_like_another():
    wide = Publication(b"t", b"long", 2, False)
    inbound = {7: Publication(b"t", b"ever so long", 2, False), 8: Publication(b"u", b"", 2, False)}
    for packet, length in ((b"\x62\2\0\7", 4), (b"\x62\2\0\x08", 0), (b"\x62\2\0\x09", 0), (b"\x62\3\0\7\0", 0)):
        assert length_of_pubrel(wide, inbound, bytearray(packet), 0) == length
    assert length_of_pubrel(wide, inbound, bytearray(b"\x62\2\0"), 0) == 0


def test_properties_and_an_end_tell_publications_apart():
    assert are_alike(FIRST, Publication(b"other", b"", 1, False))
    assert not are_alike(FIRST, Publication(b"t", b"", 1, False, expires=9.0))
