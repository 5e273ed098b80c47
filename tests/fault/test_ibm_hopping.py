"""Durable QoS 2 subscribers go from gateway to gateway while gateways are killed: they get each publication once.

The devices do as the specification says: a publisher repeats what was not acknowledged, with its packet identifier and
whether or not it was released (MQTT-4.4.0-1), and a subscriber keeps the identifiers it has received until they are
released (MQTT-4.3.3-10), so that whatever comes twice was sent twice.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from bridge_estate import Talker
from gateways import RunningGateway
from ibm_fleet import Fleet, fleet_in, until

from gateway.mqtt import packets as p
from gateway.mqtt import writer

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(600)]
LONG = "MQGATE_LONG" in os.environ
long_runs = pytest.mark.skipif(not LONG, reason="long runs only")
PUBLICATIONS = 400 if LONG else 40
"""Of each publisher."""
HOP_SECONDS = 0.5
FROM_A_QUEUE = 'to_mqtt:\n  - {name: down, queue: APP.Q, topic: "news/all", qos: 2}\n'


class Device:
    """A device whose session outlives its connections, and the gateway it goes to next."""

    def __init__(self, name: str, gateways: list[RunningGateway]) -> None:
        self.name, self.gateways = name, gateways
        self.turn = sum(name.encode())
        self.failed: Exception | None = None
        self.lost = False
        """A gateway did not know its session."""

    def connected(self) -> Talker:
        """To the next gateway that takes it."""
        while True:
            self.turn += 1
            with suppress(OSError, AssertionError):
                talker = Talker(self.gateways[self.turn % len(self.gateways)].port, self.name, clean=False)
                if talker.connack.reason == 0:
                    return talker
                talker.cut()
            time.sleep(0.05)  # as devices do


class Publisher(Device):
    """Publishes one after the other, and sees each through."""

    def __init__(self, name: str, gateways: list[RunningGateway], topic: str) -> None:
        super().__init__(name, gateways)
        self.topic = topic.encode()
        self.sent: list[bytes] = []

    def run(self) -> None:
        talker = self.connected()
        for number in range(PUBLICATIONS):
            body, packet_id, released = f"{self.name}:{number}".encode(), number % 0xFFFF + 1, False
            duplicate = False
            while True:
                try:
                    if not released:
                        talker.socket.sendall(
                            writer.encode_publish(
                                5, self.topic, body, 2,
                                packet_id=packet_id, properties=b"", dup=duplicate,
                            )
                        )  # fmt: skip
                        assert talker.next(p.PUBREC)[2] < 0x80
                        released = True
                    talker.socket.sendall(writer.encode_acks(p.PUBREL, [packet_id]))
                    talker.next(p.PUBCOMP)
                    break
                except (OSError, AssertionError):
                    talker.cut()
                    talker, duplicate = self.connected(), True
                    self.lost |= not talker.connack.session_present
            self.sent.append(body)
        talker.close()


class Subscriber(Device):
    """Hops twice a second."""

    def __init__(self, name: str, gateways: list[RunningGateway]) -> None:
        super().__init__(name, gateways)
        self.got: list[bytes] = []
        self.held: set[int] = set()
        """Packet identifiers of what it has received that is not released."""
        self.over = threading.Event()
        self.hops = 0

    def run(self) -> None:
        while not self.over.is_set():
            with suppress(OSError, AssertionError):
                self.stay()

    def stay(self) -> None:
        talker = self.connected()
        try:
            if not talker.connack.session_present:
                self.held.clear()
                self.lost |= self.hops > 0
                talker.subscribe("news/#", 2)
            self.hops += 1
            end = time.monotonic() + HOP_SECONDS
            while (left := end - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    self.answer(talker, left)
        finally:
            talker.cut()

    def answer(self, talker: Talker, seconds: float) -> None:
        """What comes within so long."""
        if not talker.packets:
            talker.socket.settimeout(max(0.01, seconds))
            data = talker.socket.recv(65536)
            assert data
            talker.packets += talker.reader.feed(data)
        received, released = [], []
        for packet in talker.packets:
            kind = packet[0] >> 4
            if kind == p.PUBLISH:
                if packet[2] not in self.held:
                    self.held.add(packet[2])
                    self.got.append(bytes(packet[4]))
                received.append(packet[2])
            elif kind == p.PUBREL:
                self.held.discard(packet[1])
                released.append(packet[1])
            else:
                assert kind != p.DISCONNECT
        talker.packets.clear()
        answers = writer.encode_acks(p.PUBREC, received) + writer.encode_acks(p.PUBCOMP, released)
        if answers:
            talker.socket.sendall(answers)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as made:
        made.lease = 8
        made.settings = made.settings.replace("mqtt: {", "mqtt: {max_queued: 100000, ")
        yield made


@pytest.mark.parametrize("topic", ["news/told", pytest.param("up/told", marks=long_runs)])
def test_subscribers_that_hop_while_gateways_are_killed_get_each_publication_once(fleet: Fleet, topic: str) -> None:
    """What is published; and what comes from a queue that all gateways consume."""
    if topic.startswith("up"):
        fleet.mapping += FROM_A_QUEUE
        fleet.queue_manager.mqsc("ALTER QMGR MARKINT(10000)")  # a unit of work that takes longer may be done twice
    gateways = [fleet.start() for _ in range(4 if LONG else 3)]
    subscribers = [Subscriber(f"hops-{number}", gateways) for number in range(3 if LONG else 2)]
    publishers = [Publisher(f"tells-{number}", gateways, topic) for number in range(4 if LONG else 2)]
    threads = [threading.Thread(target=one.run, daemon=True) for one in (*subscribers, *publishers)]
    for thread in threads[: len(subscribers)]:
        thread.start()
    until(lambda: all(one.hops for one in subscribers))
    for thread in threads[len(subscribers) :]:
        thread.start()
    until(lambda: sum(len(one.sent) for one in publishers) > PUBLICATIONS // 4)
    for killed in gateways[1 : 3 if LONG else 2]:
        killed.kill()
        time.sleep(1.5)  # the other dies while the first is taken over
    for killed in gateways[1 : 3 if LONG else 2]:
        killed.start(port=killed.port)
    until(lambda: all(len(one.sent) == PUBLICATIONS for one in publishers))
    everything = {body for one in publishers for body in one.sent}
    until(lambda: all(everything <= set(one.got) for one in subscribers))
    until(lambda: not fleet.bodies("MQGATE.FORWARD") and not fleet.bodies("MQGATE.OUT"))
    for one in subscribers:
        one.over.set()
    for thread in threads:
        thread.join(30)
    assert not any(one.lost for one in (*subscribers, *publishers))
    many = {one.name: {body: times for body, times in Counter(one.got).items() if times > 1} for one in subscribers}
    assert not any(many.values()), (len(everything), many)
