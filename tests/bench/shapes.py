"""What shapes of `sizes.py` are made of: a gateway's inside whose calls can be timed, windows of publications."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from delivering import Kept, answers_to
from inside import Inside

from gateway.app.mappings import read_table
from gateway.broker.deliver.consumers import Consumers
from gateway.config.load import load_settings
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.queue_manager.verbs.connection import MqiConnection
from gateway.session.connection import Connection

SETTINGS = """
listeners: [{name: plain, port: 0, bind: 127.0.0.1}]
mappings: [map.yaml]
mqtt: {max_inflight: 65535, max_queued: 100000000, max_queued_bytes: 100GiB, max_connections: 200000,
  max_sessions: 2000000, max_subscriptions: 2000000, max_packet: 200MiB}
security: {anonymous: true}
queue_manager: {embedded: {objects: objects.mqsc}}
"""
OBJECTS = """
DEFINE QLOCAL(A) MAXDEPTH(999999999) REPLACE
DEFINE QLOCAL(B) MAXDEPTH(999999999) REPLACE
DEFINE QLOCAL(SMALL) MAXDEPTH(1) REPLACE
DEFINE QLOCAL(SHORT) MAXDEPTH(999999999) MAXMSGL(4) REPLACE
DEFINE QLOCAL(SHUT) MAXDEPTH(999999999) PUT(DISABLED) REPLACE
DEFINE QLOCAL(XQ) MAXDEPTH(999999999) USAGE(XMITQ) REPLACE
DEFINE QLOCAL(STREAMED) MAXDEPTH(999999999) STREAMQ(B) REPLACE
DEFINE QLOCAL(FIRST) MAXDEPTH(999999999) TRIGGER TRIGTYPE(FIRST) INITQ(INIT) PROCESS(P) REPLACE
DEFINE QLOCAL(EVERY) MAXDEPTH(999999999) TRIGGER TRIGTYPE(EVERY) INITQ(INIT) PROCESS(P) REPLACE
DEFINE QLOCAL(DEEP) MAXDEPTH(999999999) TRIGGER TRIGTYPE(DEPTH) TRIGDPTH(10) INITQ(INIT) PROCESS(P) REPLACE
DEFINE QLOCAL(INIT) MAXDEPTH(999999999) REPLACE
DEFINE PROCESS(P) APPLICID(x) REPLACE
ALTER QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) MAXDEPTH(999999999)
DEFINE QREMOTE(REMOTE) RNAME(THERE) RQMNAME(OTHER) XMITQ(XQ) REPLACE
DEFINE QALIAS(ALIAS) TARGET(A) REPLACE
DEFINE TOPIC(T) TOPICSTR(some/topic) REPLACE
DEFINE QALIAS(TALIAS) TARGET(T) TARGTYPE(TOPIC) REPLACE
DEFINE SUB(S1) TOPICSTR('some/topic') DEST(A) REPLACE
DEFINE SUB(S2) TOPICSTR('some/topic') DEST(B) REPLACE
"""
now = time.process_time
turn_now = time.thread_time


class World(Inside):
    """A gateway's inside whose calls are timed one by one."""

    timed = False

    def __init__(self, folder: Path, mapping: str = "", objects: str = "") -> None:
        self.longest, self.doing, self.own = 0.0, "", 0.0
        rules = mapping if mapping.startswith("to_") else "to_mq:\n" + (mapping or RULE.format("A"))
        super().__init__(folder, SETTINGS, "version: 1\n" + rules, OBJECTS + objects)
        self.engine.context.dead_letter_queue = self.queue_manager.dead_letter_queue
        clock = self.clock
        later, soon = clock.later, clock.soon
        if self.timed:
            clock.later = lambda seconds, call: later(seconds, lambda: self._timed(call))  # type: ignore[method-assign]
            clock.soon = lambda call: soon(lambda: self._timed(call))  # type: ignore[method-assign]
        if "to_mqtt" in mapping:
            table = read_table(load_settings(f"{folder}/settings.yaml", {}, {"listeners.0.port": 0}))
            Consumers(self.engine.context, self.engine.handover).use(table)

    def _timed(self, call: Callable[[], None]) -> None:
        began = turn_now()
        call()
        took = turn_now() - began
        if took > self.longest:
            self.longest, self.doing = took, str(getattr(call, "__qualname__", call))

    def join(
        self, names: list[str], *, version: int = 4, clean: bool = True, will: p.Will | None = None, expiry: int = 0,
        packet: int = 0,
    ) -> list[Connection]:  # fmt: skip
        """Clients that come together."""
        found = []
        for name in names:
            connection = self.engine.connected(Kept(self.listener))
            assert connection is not None
            wanted = client.connect(version, name, clean_start=clean, will=will)
            if expiry:
                wanted.properties[prop.SESSION_EXPIRY_INTERVAL] = expiry
            if packet:
                wanted.properties[prop.MAXIMUM_PACKET_SIZE] = packet
            self.engine.received_each([(connection, client.encode_connect(wanted))])
            found.append(connection)
        self.rest()
        return found

    def rest(self, turns: int = 3) -> None:
        """Until nothing is left to be done now."""
        self.settle()
        idle = 0
        while idle < turns:
            before = self.clock._timers[0][0] <= self.clock.time if self.clock._timers else False
            self.clock.advance(0.0)
            waiting = bool(self.engine.put_off._waiting) or bool(self.engine.context.slices._under_way)
            if waiting:
                self.clock.advance(0.003)
            self.settle()
            idle = 0 if before or waiting else idle + 1

    def subscribe(
        self, connection: Connection, filters: list[str], qos: int = 0, version: int = 4, identifier: int = 0
    ) -> None:
        """Some at a time."""
        named: Properties = {prop.SUBSCRIPTION_IDENTIFIER: [identifier]} if identifier else {}
        for at in range(0, len(filters), 1000):
            wanted = p.Subscribe(1, [p.Subscription(one, qos) for one in filters[at : at + 1000]], named)
            self.feed([(connection, client.encode_subscribe(version, wanted))])

    def program(self) -> MqiConnection:
        """A program."""
        return self.queue_manager.connect(application="bench", user="ana")


RULE = "  - {{name: bench, topic: 'dev/{{device}}', queue: {}}}\n"


@dataclass
class Window:
    """Publications of one client in one round; `size` of them unless something else is doubled."""

    rules: str = ""
    topic: str = "dev/{}"
    qos: int = 1
    version: int = 4
    retain: bool = False
    payload: bytes = b'{"value": 12.5, "unit": "C"}'
    properties: Properties = field(default_factory=dict)
    topics: int = 10
    """So many in turn; 0: each has its own."""
    filters: tuple[str, ...] = ()
    clients: int = 1
    objects: str = ""
    sub_qos: int = 1

    def __call__(self, world: World, size: int) -> Iterator[int]:
        """One round after the other; how many messages it had."""
        version = 5 if self.properties else self.version
        publishers = world.join([f"p{n}" for n in range(self.clients)], version=version)
        subscribers = world.join([f"s{n}" for n in range(len(self.filters))], version=version)
        for one, name in zip(subscribers, self.filters, strict=True):
            world.subscribe(one, [name], self.sub_qos, version)
        block = prop.encode(self.properties) if self.properties else b""
        each = size // self.clients
        chunks = [
            b"".join(self._packet(version, n * each + at, at, block) for at in range(1, each + 1))
            for n in range(self.clients)
        ]
        pubrels = b"".join(writer.encode_acks(p.PUBREL, [number]) for number in range(1, each + 1))
        while True:
            world.feed(list(zip(publishers, chunks, strict=True)))
            if self.qos == 2:
                world.feed([(one, pubrels) for one in publishers])
            world.rest(1)
            answers = [(one, b"".join(answers_to(one.link.take()))) for one in subscribers]
            if any(data for _, data in answers):
                world.feed([one for one in answers if one[1]])
            for one in publishers:
                one.link.take()
            yield size

    def _packet(self, version: int, number: int, packet_id: int, properties: bytes) -> bytes:
        topic = self.topic.format(packet_id % self.topics if self.topics else number).encode()
        packet_id = packet_id if self.qos else 0
        return writer.encode_publish(
            version, topic, self.payload, self.qos, retain=self.retain, packet_id=packet_id, properties=properties
        )


Shape = Callable[[World, int], Iterator[int]]
SHAPES: dict[str, tuple[Callable[[int], tuple[str, str]], Shape, tuple[int, ...]]] = {}
"""By name: rules and objects for a size, what is done, sizes."""
WINDOWS = (500, 1000, 2000, 4000, 8000)


def window(name: str, shape: Window, sizes: tuple[int, ...] = WINDOWS) -> None:
    """A window of publications that grows."""
    SHAPES["window: " + name] = (lambda _: (shape.rules, shape.objects), shape, sizes)


def shape(
    name: str, sizes: tuple[int, ...], files: Callable[[int], tuple[str, str]] = lambda _: ("", "")
) -> Callable[[Shape], Shape]:
    """What a function does."""

    def known(act: Shape) -> Shape:
        SHAPES[name] = (files, act, sizes)
        return act

    return known
