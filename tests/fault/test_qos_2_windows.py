"""Windows of QoS 2 sent in one go, released in one go, and `kill -9` in between: each message is there once."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from pathlib import Path

from gateways import RunningGateway
from test_kill_midstream import payloads

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt.client import server_reader

CLIENTS, WINDOW = 6, 40
ROUNDS = 25 if os.environ.get("MQGATE_LONG") else 3


class Sender:
    """A device that remembers over its connections what it must."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.open: dict[int, tuple[bytes, bool]] = {}
        """Payload, and whether PUBREC has come."""
        self.sent: list[bytes] = []
        self.finish = False

    def run(self, port: int) -> None:
        """Until the connection ends, or everything is done that is to be."""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
                reader = server_reader(4)
                link.sendall(client.encode_connect(client.connect(4, self.name, clean_start=False)))
                while not (packets := reader.feed(self.read(link))):
                    pass
                assert packets[0][0] >> 4 == p.CONNACK
                if self.open:
                    link.sendall(b"".join(self.again()))
                while self.open or not self.finish:
                    if not self.open:
                        link.sendall(b"".join(self.window()))
                    released = [number for packet in reader.feed(self.read(link)) if (number := self.heard(packet))]
                    if released:
                        link.sendall(writer.encode_acks(p.PUBREL, released))
        except OSError:
            return

    @staticmethod
    def read(link: socket.socket) -> bytes:
        data = link.recv(65536)
        if not data:
            raise ConnectionError
        return data

    def again(self):
        for number, (payload, received) in self.open.items():
            if received:
                yield writer.encode_acks(p.PUBREL, [number])
            else:
                yield writer.encode_publish(4, self.topic, payload, 2, packet_id=number, dup=True)

    def window(self):
        for number in range(1, WINDOW + 1):
            payload = f"{self.name}/{len(self.sent)}".encode()
            self.sent.append(payload)
            self.open[number] = payload, False
            yield writer.encode_publish(4, self.topic, payload, 2, packet_id=number)

    @property
    def topic(self) -> bytes:
        return b"windows/" + self.name.encode()

    def heard(self, packet) -> int:
        """The number to be released."""
        if packet[0] >> 4 == p.PUBREC:
            self.open[packet[1]] = self.open[packet[1]][0], True
            return packet[1]
        self.open.pop(packet[1], None)
        return 0


def test_each_is_there_once(tmp_path: Path) -> None:
    sent = send(RunningGateway(tmp_path))
    found = payloads(tmp_path)
    assert set(found) == sent
    assert max(found.values()) == 1


SETTINGS = """
listeners: [{name: plain, port: 0, bind: 127.0.0.1}]
mappings: [map.yaml]
queue_manager: {embedded: {objects: objects.mqsc}}
"""
MAPPING = """
version: 1
to_mq:
  - {name: all, topic: 'windows/{device}', queue: ALL.Q, continue: true, properties: {at: '{received_at}'}}
  - {name: short, topic: 'windows/{device}', queue: SHORT.Q, when: {payload: {at_most: 5}}}
"""
OBJECTS = "DEFINE QLOCAL(ALL.Q) MAXDEPTH(999999)\nDEFINE QLOCAL(SHORT.Q) MAXDEPTH(999999)\n"


def test_so_it_is_in_several_queues_by_rules_that_look_at_the_message(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(MAPPING)
    (tmp_path / "objects.mqsc").write_text(OBJECTS)
    sent = send(RunningGateway(tmp_path, settings=SETTINGS))
    for queue, wanted in (("ALL.Q", sent), ("SHORT.Q", {payload for payload in sent if len(payload) <= 5})):
        found = payloads(tmp_path, queue)
        assert set(found) == wanted
        assert max(found.values()) == 1


def send(gateway: RunningGateway) -> set[bytes]:
    """What was sent and, in the end, completed, while the gateway was killed again and again."""
    senders, rng = [Sender(f"w{n}") for n in range(CLIENTS)], random.Random(2)
    for number in range(ROUNDS + 1):
        with gateway:
            for sender in senders:
                sender.finish = number == ROUNDS
            threads = [threading.Thread(target=sender.run, args=(gateway.port,)) for sender in senders]
            for thread in threads:
                thread.start()
            before = sum(len(sender.sent) for sender in senders)
            until, wanted = time.monotonic() + 60, before + rng.randrange(500, 4000)
            while number < ROUNDS and sum(len(one.sent) for one in senders) < wanted and time.monotonic() < until:
                time.sleep(0.001)
            if number < ROUNDS:
                gateway.kill()
            for thread in threads:
                thread.join(60)
    assert not any(sender.open for sender in senders)
    sent = {payload for sender in senders for payload in sender.sent}
    assert len(sent) > 500 * ROUNDS
    return sent
