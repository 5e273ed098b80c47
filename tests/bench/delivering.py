"""What a delivered message costs inside the gateway, shape by shape: `python tests/bench/delivering.py [--only REGEX]`.

Publishers and subscribers in this process, broker and journal as in a gateway, no sockets. A round is what each
publisher may have in flight, and the answers of the subscribers to the round before. Processor time for each copy that
a subscriber gets (for each publication where nobody is there), the best of some repetitions. Data lie in --folder, by
default in memory, so that the disk does not count.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from inside import Inside, Sink
from run import MAPPING, OBJECTS

from gateway.app.mappings import read_table
from gateway.app.memory import keep_what_is_freed
from gateway.broker.deliver.consumers import Consumers
from gateway.config.load import load_settings
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.session.connection import Connection

SETTINGS = """
listeners: [{name: plain, port: 0, bind: 127.0.0.1}]
mappings: [map.yaml]
mqtt: {max_inflight: 65535, max_queued: 100000000, max_queued_bytes: 100GiB, max_connections: 20000}
security: {anonymous: true}
queue_manager: {embedded: {objects: objects.mqsc}}
"""


@dataclass
class Shape:
    """Who sends what to whom."""

    pubs: int = 10
    subs: int = 10
    window: int = 100
    size: int = 64
    qos: int = 1
    sub_qos: int = 1
    version: int = 4
    topic: str = "dev/{}/temp"
    filter: str = "dev/{}/temp"
    clean: bool = False
    away: bool = False
    properties: int = 0
    identifier: int = 0
    reason: bool = False


SHAPES = {
    "10 x 100 to ten durable sessions": Shape(),
    "1 x 100 to one": Shape(pubs=1, subs=1),
    "MQTT 5, subscription identifier, PUBACK with reason": Shape(version=5, identifier=7, reason=True),
    "MQTT 5, three user properties": Shape(version=5, properties=3),
    "QoS 2 to QoS 2": Shape(qos=2, sub_qos=2),
    "QoS 2 to QoS 1": Shape(qos=2),
    "QoS 1 to QoS 0": Shape(sub_qos=0),
    "1 KiB": Shape(size=1024),
    "64 KiB": Shape(size=65_536, pubs=4, subs=4, window=20),
    "1 x 20 to a hundred clean sessions": Shape(pubs=1, subs=100, window=20, clean=True, filter="dev/#"),
    "1 x 20 to a hundred durable sessions": Shape(pubs=1, subs=100, window=20, filter="dev/#"),
    "1 x 1 to a thousand clean sessions": Shape(pubs=1, subs=1000, window=1, clean=True, filter="dev/#"),
    "10 x 100 to one session": Shape(subs=1, filter="dev/#"),
    "100 x 1 to a hundred sessions": Shape(pubs=100, subs=100, window=1),
    "shared by ten": Shape(clean=True, filter="$share/g/dev/#"),
    "10 x 100, stored for a session that is away": Shape(subs=1, filter="dev/#", away=True),
    "100 x 1, stored for a session that is away": Shape(pubs=100, window=1, subs=1, filter="dev/#", away=True),
    "onto an MQ queue and off it": Shape(topic="through/{}", filter="out/{}"),
}


class Kept(Sink):
    """A link that keeps what it is given."""

    def __init__(self, listener: str) -> None:
        super().__init__(listener)
        self.data: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.data.append(data)

    def take(self) -> bytes:
        """All of it."""
        taken = b"".join(self.data)
        self.data.clear()
        return taken


class Running:
    """One shape, its clients connected."""

    def __init__(self, shape: Shape, folder: str) -> None:
        self.shape = shape
        self.inside = Inside(Path(folder), SETTINGS, MAPPING, OBJECTS)
        engine = self.inside.engine
        table = read_table(load_settings(f"{folder}/settings.yaml", {}, {"listeners.0.port": 0}))
        Consumers(engine.context, engine.handover).use(table)
        self.subs = [self._connect(f"s{number}", clean=shape.clean) for number in range(shape.subs)]
        self.pubs = [self._connect(f"p{number}", clean=True) for number in range(shape.pubs)]
        properties = {prop.SUBSCRIPTION_IDENTIFIER: [shape.identifier]} if shape.identifier else {}
        for number, connection in enumerate(self.subs):
            wanted = p.Subscribe(1, [p.Subscription(shape.filter.format(number), shape.sub_qos)], properties)
            engine.received_each([(connection, client.encode_subscribe(shape.version, wanted))])
        self.inside.settle()
        self.chunks = [self._publications(number) for number in range(shape.pubs)]
        self.pubrels = b"".join(writer.encode_acks(p.PUBREL, [number]) for number in range(1, shape.window + 1))
        for connection in (*self.pubs, *self.subs):
            connection.link.take()
        if shape.away:
            for connection in self.subs:
                engine.closed(connection)
        self.answers: list[tuple[Connection, bytes]] = []
        self.seconds, self.messages = 0.0, 0

    def _connect(self, client_id: str, *, clean: bool) -> Connection:
        engine = self.inside.engine
        connection = engine.connected(Kept(self.inside.listener))
        assert connection is not None
        wanted = client.connect(self.shape.version, client_id, clean_start=clean)
        if self.shape.version == p.V5 and not clean:
            wanted.properties[prop.SESSION_EXPIRY_INTERVAL] = 3600
        engine.received_each([(connection, client.encode_connect(wanted))])
        self.inside.settle()
        return connection

    def _publications(self, number: int) -> bytes:
        shape = self.shape
        pairs = [(f"k{at}", f"value {at}") for at in range(shape.properties)]
        block = prop.encode({prop.USER_PROPERTY: pairs}) if pairs else b""
        return b"".join(
            writer.encode_publish(
                shape.version, shape.topic.format(number).encode(), bytes(shape.size), shape.qos,
                packet_id=packet_id if shape.qos else 0, properties=block,
            )
            for packet_id in range(1, shape.window + 1)
        )  # fmt: skip

    def round(self) -> None:
        """Everybody sends what he may, and what follows."""
        self._feed(list(zip(self.pubs, self.chunks, strict=True)))
        if self.shape.qos == 2:
            self._feed([(connection, self.pubrels) for connection in self.pubs])

    def _feed(self, sent: list[tuple[Connection, bytes]]) -> None:
        inside = self.inside
        began = time.process_time()
        inside.feed(sent + self.answers)
        for _ in range(3):  # off the queues
            inside.clock.advance(0)
            inside.settle()
        self.seconds += time.process_time() - began
        self.answers = []
        for connection in self.pubs:
            connection.link.take()
        for connection in self.subs:
            answers = list(answers_to(connection.link.take(), b"\x00" if self.shape.reason else b""))
            self.messages += sum(answer[:1] != b"\x70" for answer in answers)
            if any(answers):
                self.answers.append((connection, b"".join(answers)))
        self.messages += self.shape.away * sum(packet[0] >> 4 == 3 for _, packet in sent) * self.shape.window


def answers_to(data: bytes, more: bytes = b"") -> Iterator[bytes]:
    """What a subscriber answers to each packet that it was sent, one after the other; nothing to a PUBLISH of QoS 0.
    `more`: what stands in its PUBACKs behind the packet identifier."""
    at = 0
    while at < len(data):
        kind, start, length, shift = data[at] >> 4, at + 1, 0, 0
        while True:
            length |= (data[start] & 0x7F) << shift
            start, shift = start + 1, shift + 7
            if data[start - 1] < 0x80:
                break
        if kind == p.PUBLISH:
            mark = start + 2 + (data[start] << 8 | data[start + 1])
            identifier = data[mark : mark + 2]
            yield {0: b"", 1: bytes((0x40, 2 + len(more))) + identifier + more, 2: b"\x50\x02" + identifier}[
                data[at] >> 1 & 3
            ]
        elif kind == p.PUBREL:
            yield b"\x70\x02" + data[start : start + 2]
        at = start + length


def cost(shape: Shape, folder: str, seconds: float) -> float:
    """Microseconds of processor time of a copy."""
    running = Running(shape, folder)
    for _ in range(5):
        running.round()
    least = float("inf")
    for _ in range(3):
        running.seconds, running.messages = 0.0, 0
        while running.seconds < seconds:
            running.round()
        least = min(least, running.seconds / max(1, running.messages) * 1e6)
    running.inside.close()
    return least


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression")
    parser.add_argument("--seconds", type=float, default=0.5, help="of processor time for each repetition")
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    given = parser.parse_args()
    keep_what_is_freed()
    for name, shape in SHAPES.items():
        if re.search(given.only, name):
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                print(f"{name:56}{cost(shape, folder, given.seconds):8.2f} us", flush=True)


if __name__ == "__main__":
    main()
