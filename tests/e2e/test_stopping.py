"""SIGTERM while a queue refuses: what is held was acknowledged to nobody, so the process does not wait for it."""

from __future__ import annotations

import select
import signal
import socket
import time
from pathlib import Path

import pytest
from gateways import RunningGateway
from raw_mqi import Program

from gateway.access.passwords import hash_password, write_password_file
from gateway.mqtt import client, packets, writer

MAPPING = """
version: 1
to_mq:
  - {name: held, topic: "held/#", queue: SHUT.Q, on_failure: {retry: {times: 0}, then: hold}}
  - {name: good, topic: "good/#", queue: GOOD.Q}
"""
OBJECTS = "DEFINE QLOCAL(SHUT.Q) PUT(DISABLED) REPLACE\nDEFINE QLOCAL(GOOD.Q) REPLACE\n"
SETTINGS = """
queue_manager: {embedded: {objects: objects.mqsc}}
mappings: [map.yaml]
process: {drain_timeout: 10m}
"""
BEHIND = 2000
"""Publications behind a CONNECT, each with a topic of its own: 40 KB."""


class Raw:
    """A 5.0 or 3.1.1 client that says what it is told to and keeps every packet."""

    def __init__(self, gateway: RunningGateway, version: int, name: str) -> None:
        self.version, self.found = version, []
        self.reader = client.server_reader(version)
        self.sock = socket.create_connection(("127.0.0.1", gateway.port), 60)
        self.sock.sendall(client.encode_connect(client.connect(version, name, clean_start=False)))
        self.next(packets.CONNACK)

    def publish(self, topic: str, qos: int, packet_id: int) -> None:
        self.sock.sendall(writer.encode_publish(self.version, topic.encode(), b"x", qos, packet_id=packet_id))

    def next(self, kind: int) -> object:
        while True:
            for packet in self.found:
                if packet[0] >> 4 == kind:
                    self.found.remove(packet)
                    return packet
            data = self.sock.recv(4096)
            assert data, self.found
            self.found += self.reader.feed(data)

    def rest(self) -> list[int]:
        """Types of what comes until the connection ends."""
        while data := self.sock.recv(4096):
            self.found += self.reader.feed(data)
        self.sock.close()
        return [packet[0] >> 4 for packet in self.found]


def until_held(gateway: RunningGateway, count: int) -> None:
    until = time.monotonic() + 60
    while gateway.metric('mqgate_messages_held{route="held"}') != count:
        assert time.monotonic() < until, gateway.log
        time.sleep(0.02)


@pytest.mark.timeout(200)
def test_what_a_queue_refuses_does_not_delay_the_end(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(MAPPING)
    (tmp_path / "objects.mqsc").write_text(OBJECTS)
    with RunningGateway(tmp_path, settings=SETTINGS) as gateway:
        new, old, other = Raw(gateway, 5, "new"), Raw(gateway, 4, "old"), Raw(gateway, 5, "other")
        new.publish("held/1", 1, 1)
        old.publish("held/2", 1, 1)
        until_held(gateway, 2)
        other.publish("good/1", 1, 1)
        other.next(packets.PUBACK)
        begun = time.monotonic()
        assert gateway.stop() == 0
        assert time.monotonic() - begun < 100, "and not ten minutes"
        assert new.rest() == [packets.DISCONNECT]
        assert packets.PUBACK not in old.rest()
        assert other.rest() == [packets.DISCONNECT]
        assert '"drain.left"' in gateway.log
        assert "2 messages are left: SHUT.Q takes no messages now" in gateway.log
        assert '"stopped"' in gateway.log
    (tmp_path / "objects.mqsc").write_text(OBJECTS.replace("DISABLED", "ENABLED"))
    with RunningGateway(tmp_path, settings=SETTINGS) as again:
        back = Raw(again, 4, "old")
        back.publish("held/2", 1, 1)
        back.next(packets.PUBACK)
        assert again.stop() == 0
        assert '"drain.left"' not in again.log


def test_connections_are_handed_back_at_the_rate_that_is_set(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text("version: 1\n")
    settings = "mappings: [map.yaml]\nprocess: {drain_timeout: 10m, drain_rate: 1}\n"
    with RunningGateway(tmp_path, settings=settings) as gateway:
        devices = [Raw(gateway, 5, f"device-{number}") for number in range(60)]
        gateway.process.terminate()
        told, untold = devices, devices
        while not len(told) < len(untold):  # some are told and most are not
            readable = select.select([one.sock for one in devices], [], [], 60)[0]
            told = [one for one in devices if one.sock in readable]
            untold = [one for one in devices if one not in told]
        assert told[0].rest() == [packets.DISCONNECT]
        untold[-1].publish("news", 1, 7)
        answers = [untold[-1].next(packets.PUBACK)]
        assert answers[0][1] == 7, "whoever is not told yet is served"
        gateway.kill()
        for device in devices:
            device.sock.close()


def test_a_program_that_asks_to_be_told_is_told_that_the_gateway_stops(tmp_path: Path) -> None:
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(A)")
    with RunningGateway(tmp_path, settings="queue_manager: {embedded: {objects: objects.mqsc}}") as gateway:
        told, other = (Program(tmp_path / "data" / "mqi.sock").greeted() for _ in range(2))
        told.start_get(1 | 0x2000)
        other.start_get(1)
        assert gateway.stop() == 0
        assert told.answer()[0] == 2161
        with pytest.raises((EOFError, OSError)):
            other.answer()


def test_what_devices_had_sent_is_taken_before_they_are_handed_back(tmp_path: Path) -> None:
    """At QoS 0 nobody sends it again. The gateway stands still while it comes, as on a machine with too much to do."""
    (tmp_path / "map.yaml").write_text(MAPPING.replace("GOOD.Q}", "GOOD.Q, descriptor: {persistence: persistent}}"))
    (tmp_path / "objects.mqsc").write_text(OBJECTS)
    packets_of = {version: writer.encode_publish(version, b"good/x", bytes(500), 0) * 100 for version in (4, 5)}
    with RunningGateway(tmp_path, settings=SETTINGS) as gateway:
        devices = [Raw(gateway, 4 + number % 2, f"device-{number}") for number in range(6)]
        gateway.process.send_signal(signal.SIGSTOP)
        for device in devices:
            device.sock.sendall(packets_of[device.version])
        gateway.process.send_signal(signal.SIGTERM)
        gateway.process.send_signal(signal.SIGCONT)
        assert gateway.process.wait(60) == 0
        assert [device.rest() for device in devices] == [[], [packets.DISCONNECT]] * 3
        gateway.start()
        assert gateway.api("GET", "/queues/GOOD.Q")["depth"] == 600


def test_so_is_what_those_had_sent_whose_password_is_being_checked(tmp_path: Path) -> None:
    """It takes a second, and then what they sent is more than is taken in one turn."""
    names = ["device-1", "device-2"]
    hashed = hash_password(b"right", pbkdf2=True, iterations=600_000)
    write_password_file(tmp_path / "users", dict.fromkeys(names, hashed))
    (tmp_path / "map.yaml").write_text(MAPPING.replace("GOOD.Q}", "GOOD.Q, descriptor: {persistence: persistent}}"))
    (tmp_path / "objects.mqsc").write_text(OBJECTS)
    behind = b"".join(writer.encode_publish(5, b"good/%d" % number, b"", 0) for number in range(BEHIND))
    slow = "security: {anonymous: false, password_file: users}\nmqtt: {connect_timeout: 60s}\n"
    with RunningGateway(tmp_path, settings=SETTINGS + slow) as gateway:
        socks = [gateway.connect() for _ in names]
        for name, sock in zip(names, socks, strict=True):
            connect = client.connect(5, name)
            connect.username, connect.password = name, b"right"
            sock.sendall(client.encode_connect(connect) + behind)
        connect = client.connect(5, "patient")
        connect.username, connect.password = names[0], b"wrong"
        patient = gateway.connect()
        patient.sendall(client.encode_connect(connect))
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 0
        reader = client.server_reader(5)
        assert [(one[0] >> 4, one[1].reason) for one in reader.feed(patient.recv(4096))] == [(packets.CONNACK, 0x88)]
        for sock in [*socks, patient]:
            sock.close()
        gateway.start()
        assert gateway.api("GET", "/queues/GOOD.Q")["depth"] == BEHIND * len(names)
