"""What a publication costs inside the gateway, shape by shape: `python tests/bench/receiving.py [--only REGEX]`.

As `delivering.py`: broker and journal as in a gateway, clients in this process, no sockets. One thing at a time differs
from a plain PUBLISH of QoS 1 for one queue: a property, nobody who wants it, RETAIN, a subscriber besides. Microseconds
of processor time of a publication, from ten clients with a hundred in flight, and from a hundred with one. A shape that
costs fifty times as much as the first is taken by the plain lane.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from delivering import SETTINGS, Kept, answers_to
from inside import Inside

from gateway.app.memory import keep_what_is_freed
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.session.connection import Connection

MAPPING = """
version: 1
to_mq:
  - {name: plain, topic: "dev/{device}/{kind}", queue: BENCH.IN, headers: [mqtt, mqps],
     properties: {device: "{device}", kind: "{kind}"}}
  - {name: json, topic: "json/{device}", queue: BENCH.IN, headers: [mqtt, mqps], properties: {value: "{json.value}"}}
  - {name: two, topic: "two/{device}", queue: BENCH.IN, continue: true}
  - {name: second, topic: "two/{device}", queue: BENCH.TWO}
  - {name: archive, topic: "archive/{device}", queue: BENCH.IN, continue: true}
  - {name: alarm, topic: "archive/{device}", queue: BENCH.TWO, when: {json: {unit: C}}, properties: {d: "{device}"}}
  - {name: hall, topic: "hall/{device}", queue: BENCH.IN, when: {properties: {site: "hall*"}}}
  - {name: own, topic: "own/{device}", queue: BENCH.IN, properties: {site: "{device}"}}
  - {name: short, topic: "short/{device}", queue: BENCH.IN, too_long: reject}
  - {name: ask, topic: "ask/{device}", queue: BENCH.IN, descriptor: {reply_to: {queue: BENCH.TWO}}}
  - {name: topics, topic: "mq/{device}", mq_topic: "mq/{device}"}
"""
OBJECTS = """
DEFINE QLOCAL(BENCH.IN) MAXDEPTH(999999999) REPLACE
DEFINE QLOCAL(BENCH.TWO) MAXDEPTH(999999999) REPLACE
"""
LOADS = ((10, 100), (100, 1))
TEXT = b'{"value": 12.5, "unit": "C", "name": "some sensor", "more": [1, 2, 3]}'


@dataclass
class Shape:
    """What is sent, and who else gets it."""

    topic: str = "dev/{}/temp"
    version: int = 4
    qos: int = 1
    retain: bool = False
    properties: Properties = field(default_factory=dict)
    payload: bytes = TEXT
    filter: str = ""
    """What one more client has subscribed to."""
    as_published: bool = False
    """Whether it wants RETAIN as it was published, as bridges do."""
    answers: str = ""
    """Response topics, by the number of the publication; each has correlation data of its own."""

    def __post_init__(self) -> None:
        if self.properties or self.as_published:
            self.version = 5


USERS: Properties = {prop.USER_PROPERTY: [("site", "hall 3"), ("unit", "C"), ("firmware", "2.4.1")]}
REQUEST: Properties = {prop.RESPONSE_TOPIC: "answers/1", prop.CORRELATION_DATA: b"12345678"}
SHAPES = {
    "plain": Shape(),
    "MQTT 5": Shape(version=5),
    "three user properties": Shape(properties=USERS),
    "a name twice": Shape(properties={prop.USER_PROPERTY: [("site", "hall 3"), ("site", "C"), ("firmware", "2.4.1")]}),
    "a trace context": Shape(properties={prop.USER_PROPERTY: [("traceparent", f"00-{'a' * 32}-{'b' * 16}-01")]}),
    "a name that the rule sets": Shape("own/{}", properties=USERS),
    "Content Type": Shape(properties={prop.CONTENT_TYPE: "application/json"}),
    "Payload Format Indicator 1": Shape(properties={prop.PAYLOAD_FORMAT_INDICATOR: 1}),
    "both, and user properties": Shape(
        properties={prop.PAYLOAD_FORMAT_INDICATOR: 1, prop.CONTENT_TYPE: "text/plain", **USERS}
    ),
    "Message Expiry Interval": Shape(properties={prop.MESSAGE_EXPIRY_INTERVAL: 60}),
    "Topic Alias": Shape(properties={prop.TOPIC_ALIAS: 1}),
    "Response Topic, Correlation Data": Shape(version=5, answers="answers"),
    "a request that is answered": Shape("ask/{}", version=5, answers="answers"),
    "a request that is answered, QoS 2": Shape("ask/{}", version=5, qos=2, answers="answers"),
    "a request with a topic of its own": Shape("ask/{}", version=5, answers="answers/{}"),
    "RETAIN": Shape(retain=True),
    "RETAIN, Topic Alias": Shape(retain=True, properties={prop.TOPIC_ALIAS: 1}),
    "QoS 0": Shape(qos=0),
    "QoS 2": Shape(qos=2),
    "QoS 2, RETAIN": Shape(qos=2, retain=True),
    "QoS 2, Content Type": Shape(qos=2, properties={prop.CONTENT_TYPE: "application/json"}),
    "QoS 2, a JSON field as a property": Shape("json/{}", qos=2),
    "QoS 2, two queues": Shape("two/{}", qos=2),
    "QoS 2, an archive, and a queue for some by a JSON field": Shape("archive/{}", qos=2),
    "QoS 2, a condition on a user property": Shape("hall/{}", qos=2, properties=USERS),
    "a JSON field as a property": Shape("json/{}"),
    "two queues": Shape("two/{}"),
    "a queue that refuses what is too long": Shape("short/{}"),
    "an archive, and a queue for some by a JSON field": Shape("archive/{}"),
    "a condition on a user property": Shape("hall/{}", properties=USERS),
    "an MQ topic": Shape("mq/{}"),
    "nobody": Shape("nobody/{}"),
    "nobody, MQTT 5, Content Type": Shape("nobody/{}", properties={prop.CONTENT_TYPE: "application/json"}),
    "nobody, QoS 0": Shape("nobody/{}", qos=0),
    "nobody, RETAIN": Shape("nobody/{}", retain=True),
    "nobody, QoS 2": Shape("nobody/{}", qos=2),
    "nobody, QoS 2, RETAIN": Shape("nobody/{}", qos=2, retain=True),
    "two queues, RETAIN": Shape("two/{}", retain=True),
    "queue and subscriber": Shape(filter="dev/#"),
    "queue and subscriber, a JSON field": Shape("json/{}", filter="json/#"),
    "two queues and a subscriber": Shape("two/{}", filter="two/#"),
    "queue and subscriber, QoS 2, a JSON field": Shape("json/{}", filter="json/#", qos=2),
    "subscriber": Shape("only/{}", filter="only/#"),
    "subscriber, RETAIN": Shape("only/{}", filter="only/#", retain=True),
    "subscriber, RETAIN, Retain As Published": Shape("only/{}", filter="only/#", retain=True, as_published=True),
    "subscriber, RETAIN, QoS 2": Shape("only/{}", filter="only/#", retain=True, qos=2),
    "shared subscription": Shape("only/{}", filter="$share/group/only/#"),
    "shared subscription, RETAIN": Shape("only/{}", filter="$share/group/only/#", retain=True),
    "subscriber, Content Type": Shape(
        "only/{}", filter="only/#", properties={prop.CONTENT_TYPE: "application/json"}
    ),
    "subscriber, Message Expiry Interval": Shape(
        "only/{}", filter="only/#", properties={prop.MESSAGE_EXPIRY_INTERVAL: 60}
    ),
    "subscriber, Topic Alias": Shape("only/{}", filter="only/#", properties={prop.TOPIC_ALIAS: 1}),
    "subscriber, Response Topic, Correlation Data": Shape("only/{}", filter="only/#", properties=REQUEST),
    "subscriber, QoS 2": Shape("only/{}", filter="only/#", qos=2),
    "subscriber, QoS 2, user properties": Shape("only/{}", filter="only/#", qos=2, properties=USERS),
}  # fmt: skip


class Running:
    """One shape, its clients connected."""

    def __init__(self, shape: Shape, folder: str, clients: int, window: int) -> None:
        self.inside = Inside(Path(folder), SETTINGS, MAPPING, OBJECTS)
        self.shape = shape
        self.subscribers = [self._connect("subscriber")] if shape.filter else []
        for one in self.subscribers:
            wanted = p.Subscribe(1, [p.Subscription(shape.filter, shape.qos, retain_as_published=shape.as_published)])
            self.inside.engine.received_each([(one, client.encode_subscribe(shape.version, wanted))])
            self.inside.settle()
            one.link.take()
        self.publishers = [self._connect(f"p{number}") for number in range(clients)]
        self.chunks = [self._publications(number, window) for number in range(clients)]
        self.pubrels = b"".join(writer.encode_acks(p.PUBREL, [number]) for number in range(1, window + 1))
        self.answers: list[tuple[Connection, bytes]] = []
        self.messages = clients * window

    def _connect(self, client_id: str) -> Connection:
        engine = self.inside.engine
        connection = engine.connected(Kept(self.inside.listener))
        assert connection is not None
        engine.received_each([(connection, client.encode_connect(client.connect(self.shape.version, client_id)))])
        self.inside.settle()
        return connection

    def _publications(self, number: int, window: int) -> bytes:
        shape = self.shape
        return b"".join(
            writer.encode_publish(
                shape.version, shape.topic.format(number).encode(), shape.payload, shape.qos, retain=shape.retain,
                packet_id=packet_id if shape.qos else 0, properties=self._properties(number * window + packet_id),
            )
            for packet_id in range(1, window + 1)
        )  # fmt: skip

    def _properties(self, number: int) -> bytes:
        said, answers = self.shape.properties, self.shape.answers
        if answers:
            said = {**said, prop.RESPONSE_TOPIC: answers.format(number), prop.CORRELATION_DATA: b"%08d" % number}
        return prop.encode(said)

    def round(self) -> float:
        """Everybody sends what he may, and what follows: the processor time of it."""
        seconds = self._feed(list(zip(self.publishers, self.chunks, strict=True)))
        if self.shape.qos == 2:
            seconds += self._feed([(one, self.pubrels) for one in self.publishers])
        return seconds

    def _feed(self, sent: list[tuple[Connection, bytes]]) -> float:
        began = time.process_time()
        self.inside.feed(sent + self.answers)
        seconds = time.process_time() - began
        for one in self.publishers:
            one.link.take()
        found = [(one, b"".join(answers_to(one.link.take()))) for one in self.subscribers]
        self.answers = [one for one in found if one[1]]
        return seconds


def cost(shape: Shape, clients: int, window: int, folder: str, seconds: float) -> float:
    """Microseconds of processor time of a publication."""
    running, least = Running(shape, folder, clients, window), float("inf")
    for _ in range(4):
        running.round()
    for _ in range(3):
        spent, rounds = 0.0, 0
        while spent < seconds:
            spent, rounds = spent + running.round(), rounds + 1
        least = min(least, spent / rounds / running.messages * 1e6)
    running.inside.close()
    return least


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression")
    parser.add_argument("--seconds", type=float, default=0.2, help="of processor time for each repetition")
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    given = parser.parse_args()
    keep_what_is_freed()
    print(f"{'us of processor time for each':48}" + "".join(f"{one:>5} x {many:<4}" for one, many in LOADS))
    for name, shape in SHAPES.items():
        if re.search(given.only, name):
            found = []
            for clients, window in LOADS:
                with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                    found.append(cost(shape, clients, window, folder, given.seconds))
            print(f"{name:48}" + "".join(f"{one:10.2f}  " for one in found), flush=True)


if __name__ == "__main__":
    main()
