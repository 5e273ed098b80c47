"""What an unlucky or malicious device does at the wrong moment, on both backends: it is taken over while messages are
handed to it, starts anew with old packet identifiers, is killed in a shared subscription, sends what is just too long.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from bridge_estate import BACKENDS, Estate, Talker, estate, wait

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
MAPPING = """
version: 1
to_mq:
  - {name: up, topic: "up/#", queue: UP.Q, headers: []}
  - {name: short, topic: "short/#", queue: SHORT.Q, headers: [], too_long: reject}
to_mqtt:
  - {name: down, queue: DOWN.Q, topic: "down/{usr.to}", qos: 2}
"""
OBJECTS = """
DEFINE QLOCAL(UP.Q) MAXDEPTH(99999) REPLACE
DEFINE QLOCAL(DOWN.Q) MAXDEPTH(99999) REPLACE
DEFINE QLOCAL(SHORT.Q) REPLACE
"""
MAX_PACKET = 1 << 20


@pytest.fixture(scope="module", params=BACKENDS)
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    with estate(tmp_path_factory.mktemp(request.param), request.param, MAPPING, OBJECTS) as made:
        made.mqsc("ALTER QLOCAL(SHORT.Q) MAXMSGL(1000)")  # at start it would be refused: shorter than `max_packet`
        yield made


def publish(qos: int, topic: bytes, body: bytes, packet_id: int = 0, *, dup: bool = False) -> bytes:
    return writer.encode_publish(5, topic, body, qos, packet_id=packet_id, dup=dup)


def test_the_longest_packet_is_taken_and_one_more_byte_ends_the_connection(bridge: Estate) -> None:
    for qos in (0, 1, 2):
        head = len(publish(qos, b"up/x", b"", 1 if qos else 0)) + 2  # its remaining length takes three bytes
        with bridge.device("exact") as device:
            assert device.publish("up/x", bytes(MAX_PACKET - head), qos) == 0
            assert device.publish("up/x", b"behind", 1) == 0
        found = bridge.application.messages("UP.Q", 2)
        assert sorted(len(one.body.raw) for one in found) == [6, MAX_PACKET - head]
        bridge.application.clear("UP.Q")
        with bridge.device("more") as device:
            device.socket.sendall(publish(qos, b"up/x", bytes(MAX_PACKET - head + 1), 1 if qos else 0)[: 1 << 19])
            assert device.next(p.DISCONNECT)[1].reason == 0x95
        assert bridge.application.look("UP.Q") == []


@pytest.mark.parametrize("qos", [1, 2])
def test_the_longest_message_of_a_queue_is_taken_and_one_more_byte_is_refused(bridge: Estate, qos: int) -> None:
    with bridge.device("exact") as device:
        assert device.publish("short/x", bytes(1000), qos) == 0
        assert device.publish("short/x", bytes(1001), qos) == 0x97
        assert device.publish("short/x", b"behind", qos) == 0
    assert sorted(len(one.body.raw) for one in bridge.application.messages("SHORT.Q", 2)) == [6, 1000]
    bridge.application.clear("SHORT.Q")


def test_an_identifier_used_before_a_clean_start_is_a_new_message(bridge: Estate) -> None:
    """What was staged under it has gone with its session; after a resumed one it is the same message still."""
    for clean, wanted in ((True, [b"new"]), (False, [b"old"])):
        first = bridge.device("ids", clean=False)
        first.socket.sendall(publish(2, b"up/x", b"old", 7))
        first.next(p.PUBREC)
        first.cut()
        with bridge.device("ids", clean=clean) as device:
            device.socket.sendall(publish(2, b"up/x", b"new", 7, dup=not clean))
            device.next(p.PUBREC)
            device.socket.sendall(writer.encode_acks(p.PUBREL, [7]))
            device.next(p.PUBCOMP)
            device.socket.sendall(writer.encode_acks(p.PUBREL, [7]))  # once more changes nothing
            assert device.next(p.PUBCOMP)[2] == (0x92 if clean else 0)
        assert [one.body.raw for one in bridge.application.messages("UP.Q")] == wanted
        bridge.application.clear("UP.Q")


def test_an_alias_means_what_it_was_given_last_and_ends_with_its_connection(bridge: Estate) -> None:
    alias = prop.encode({prop.TOPIC_ALIAS: 1})
    with bridge.device("alias") as device:
        parts = [(b"up/a", b"1"), (b"", b"2"), (b"up/b", b"3"), (b"", b"4")]
        for number, (topic, body) in enumerate(parts, 1):
            device.socket.sendall(writer.encode_publish(5, topic, body, 2, packet_id=number, properties=alias))
        for _ in parts:
            device.next(p.PUBREC)
        with bridge.device("watcher") as watcher:
            watcher.subscribe("up/#")
            device.socket.sendall(writer.encode_acks(p.PUBREL, [1, 2, 3, 4]))
            got = [watcher.receive()[:2] for _ in parts]
        assert got == [("up/a", b"1"), ("up/a", b"2"), ("up/b", b"3"), ("up/b", b"4")]
        device.socket.sendall(writer.encode_publish(5, b"", b"dup", 1, packet_id=9, properties=alias, dup=True))
        device.next(p.PUBACK)
    with bridge.device("alias") as device:
        device.socket.sendall(writer.encode_publish(5, b"", b"?", 1, packet_id=1, properties=alias))
        assert device.next(p.DISCONNECT)[1].reason == 0x82
    bridge.application.clear("UP.Q")


def receive_all(device: Talker, known: dict[int, bytes], seen: Counter[bytes], until: int) -> None:
    """A QoS 2 receiver with a memory (`known`) that outlives its connections."""
    packets, device.packets = device.packets, []
    while True:
        answers = []
        for packet in packets:
            kind = packet[0] >> 4
            if kind == p.PUBLISH:
                if packet[2] not in known:
                    known[packet[2]] = packet[4]
                    seen[packet[4]] += 1
                assert known[packet[2]] == packet[4], "another message under an identifier that is in use"
                answers.append(writer.encode_acks(p.PUBREC, [packet[2]]))
            elif kind == p.PUBREL:
                known.pop(packet[1], None)
                answers.append(writer.encode_acks(p.PUBCOMP, [packet[1]]))
        device.socket.sendall(b"".join(answers))
        if seen.total() >= until:
            return
        try:
            data = device.socket.recv(65536)
        except TimeoutError:
            return
        if not data:
            return
        packets = device.reader.feed(data)


def test_taken_over_again_and_again_while_messages_are_handed_to_it(bridge: Estate) -> None:
    """Each hand-over is gone on with by the next connection: every message once."""
    known: dict[int, bytes] = {}
    seen: Counter[bytes] = Counter()
    device = bridge.device("heir", clean=False)
    device.subscribe("down/#")
    for number in range(60):
        bridge.application.put("DOWN.Q", b"%d" % number, usr={"to": "heir"})
        if number % 6 == 5:
            device.socket.settimeout(0.02)
            receive_all(device, known, seen, 60)
            device = bridge.device("heir", clean=False)  # the one before it is told 0x8E and closed
    device.socket.settimeout(60)
    receive_all(device, known, seen, 60)
    assert seen == Counter({b"%d" % number: 1 for number in range(60)})
    device.close()
    with bridge.device("heir"):  # a clean start: nothing is left for it
        pass
    with bridge.device("heir") as device:
        assert device.silent()


def test_shared_among_devices_that_are_killed_with_their_gateway(bridge: Estate) -> None:
    """Durable members of a shared subscription: a kill in the middle of the hand-over neither loses nor doubles."""
    members = ["m-1", "m-2", "m-3"]
    known: dict[str, dict[int, bytes]] = {name: {} for name in members}
    seen: Counter[bytes] = Counter()
    devices = {name: bridge.device(name, clean=False) for name in members}
    for device in devices.values():
        device.subscribe("$share/g/down/shared")
    for number in range(90):
        bridge.application.put("DOWN.Q", b"%d" % number, usr={"to": "shared"})
    devices["m-1"].socket.settimeout(0.3)
    receive_all(devices["m-1"], known["m-1"], seen, 20)
    bridge.restart()
    devices = {name: bridge.device(name, clean=False) for name in members}
    until = time.monotonic() + 60
    while seen.total() < 90 and time.monotonic() < until:
        for name, device in devices.items():
            device.socket.settimeout(0.2)
            receive_all(device, known[name], seen, 90)
    assert seen == Counter({b"%d" % number: 1 for number in range(90)})
    for device in devices.values():
        assert device.silent(0.2)
        device.close()
    for name in members:
        with bridge.device(name):
            pass


def test_five_thousand_subscriptions_and_one_rule(bridge: Estate) -> None:
    """One message for each of them, and one for all."""
    devices = [bridge.device(f"many-{number}") for number in range(5)]
    for at, device in enumerate(devices):
        for first in range(0, 1000, 100):
            filters = [p.Subscription(f"down/{at}-{number}", 0) for number in range(first, first + 100)]
            device.socket.sendall(_subscribe(1 + first, filters[: 99 if first == 900 else 100]))
            device.next(p.SUBACK)
        device.subscribe("down/all", 1)
    for number in range(0, 1000, 97):
        for at in range(5):
            bridge.application.put("DOWN.Q", b"%d" % number, usr={"to": f"{at}-{number}"})
    bridge.application.put("DOWN.Q", b"all", usr={"to": "all"})
    for device in devices:
        got = [device.receive()[:2] for _ in range(12)]
        assert [body for _, body in got] == [b"%d" % number for number in range(0, 1000, 97)] + [b"all"]
        assert device.silent(0.1)
        device.close()
    wait(lambda: not bridge.application.look("DOWN.Q"))


def _subscribe(packet_id: int, filters: list[p.Subscription]) -> bytes:
    return client.encode_subscribe(5, p.Subscribe(packet_id, filters))
