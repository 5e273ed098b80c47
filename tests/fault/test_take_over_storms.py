"""Two devices with one client identifier that both connect again at once, over two listeners, while publications at
QoS 2 flow both ways and the gateway is killed. What they have of the protocol they have together, as one device would.
"""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gateways import RunningGateway
from patient_device import Device

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt.client import server_reader

EACH, WINDOW = 60, 5
SETTINGS = """
listeners: [{name: one, port: 0}, {name: two, port: 0}]
queue_manager: {embedded: {objects: objects.mqsc}}
mappings: [mapping.yaml]
"""
pytestmark = pytest.mark.timeout(240)


class Both:
    """What the two have together."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.received: Counter[bytes] = Counter()
        self.unreleased: set[int] = set()
        self.open: dict[int, tuple[bytes, bool]] = {}
        """What was published and is not complete: the body, and whether it was received."""
        self.sent = 0
        self.connects = self.made = 0
        self.subscribed = False
        self.latest: Twin | None = None

    def publish(self) -> list[bytes]:
        """As much as the window allows."""
        made = []
        while len(self.open) < WINDOW and self.sent < EACH:
            self.sent += 1
            self.open[self.sent] = (b"%d" % self.sent, False)
            made.append(self.again(self.sent))
        return made

    def again(self, packet_id: int) -> bytes:
        body, received = self.open[packet_id]
        if received:
            return writer.encode_acks(p.PUBREL, [packet_id])
        return writer.encode_publish(self.version, b"up", body, 2, packet_id=packet_id)

    def packet(self, packet: Any) -> list[bytes]:
        """The answers to a packet."""
        kind = packet[0] >> 4
        if kind == p.PUBLISH:
            if packet[2] not in self.unreleased:
                self.unreleased.add(packet[2])
                self.received[packet[4]] += 1
            return [writer.encode_acks(p.PUBREC, [packet[2]])]
        if kind == p.PUBREL:
            self.unreleased.discard(packet[1])
            return [writer.encode_acks(p.PUBCOMP, [packet[1]])]
        if kind == p.PUBREC and packet[1] in self.open:
            self.open[packet[1]] = (self.open[packet[1]][0], True)
            return [self.again(packet[1])]
        if kind == p.SUBACK:
            self.subscribed = True
        elif kind == p.PUBCOMP:
            self.open.pop(packet[1], None)
        return []


class Twin:
    """One connection. It counts from its CONNACK until the other's; what the other was sent before is read first."""

    def __init__(self, both: Both, port: int) -> None:
        self.both = both
        self.wire = socket.create_connection(("127.0.0.1", port), 60)
        self.reader = server_reader(both.version)
        asked = client.connect(both.version, "same", clean_start=False)
        if both.version == 5:
            asked.properties[0x11] = 3600
        self.wire.sendall(client.encode_connect(asked))
        self.wire.setblocking(False)

    def look(self, other: Twin | None) -> bool:
        """At what has come; whether the connection goes on."""
        try:
            data = self.wire.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:  # its end, or closed before
            data = b""
        answers: list[bytes] = []
        for packet in self.reader.feed(data):
            if packet[0] >> 4 == p.CONNACK:
                if other is not None:
                    other.look(None)
                answers += self._connected(packet[1])
            elif self.both.latest is self:
                answers += self.both.packet(packet)
        if self.both.latest is self:
            answers += self.both.publish()
        with suppress(OSError):
            self.wire.sendall(b"".join(answers))
        if not data:
            self.wire.close()
        return bool(data)

    def _connected(self, connack: Any) -> list[bytes]:
        assert connack.reason == 0
        both = self.both
        both.made += not connack.session_present
        assert both.made <= 1, "the session is lost"
        if both.connects and not connack.session_present:
            return []  # it has been taken over by the other, whose CONNACK was read first
        both.latest = self
        both.connects += 1
        wanted = p.Subscribe(0xFFFF, [p.Subscription("down", 2)])
        first = [] if both.subscribed else [client.encode_subscribe(both.version, wanted)]
        return first + [both.again(packet_id) for packet_id in both.open]


@pytest.mark.parametrize("version", [4, 5])
def test_nothing_is_lost_or_doubled(tmp_path: Path, version: int) -> None:
    (tmp_path / "mapping.yaml").write_text('version: 1\nto_mq: [{name: up, topic: "up", queue: UP.Q, headers: []}]\n')
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(UP.Q) MAXDEPTH(99999) REPLACE\n")
    gateway = RunningGateway(tmp_path, settings=SETTINGS)
    both, published = Both(version), 0
    twins: list[Twin | None] = [None, None]
    with gateway:
        while sum(both.received.values()) < EACH or both.open or both.sent < EACH:
            ports = [gateway.ports()[name] for name in ("one", "two")]
            if published < EACH and both.subscribed and both.connects > published:
                with Device("127.0.0.1", ports[0], "publisher", version=version) as device:
                    assert device.connect() == 0
                    device.publish("down", b"%d" % published, 2)
                published += 1
                if published == EACH // 2:
                    gateway.kill()
                    gateway.start()
                    ports = [gateway.ports()[name] for name in ("one", "two")]
            for number, port in enumerate(ports):
                twin, other = twins[number] or Twin(both, port), twins[1 - number]
                twins[number] = twin if twin.look(other) else None
        for twin in filter(None, twins):
            twin.wire.close()
        assert both.received == {b"%d" % number: 1 for number in range(EACH)}
        assert Counter(gateway.bodies("UP.Q")) == {str(number): 1 for number in range(1, EACH + 1)}
