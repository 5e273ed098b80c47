"""Three gateways behind a load balancer, one fault after the other, and every message counted.

Publishers and subscribers at QoS 1 and 2 keep their sessions and come back wherever the load balancer sends them. What
was acknowledged arrives at every subscriber and at one member of a shared subscription; at QoS 2 once. So do wills:
each connection that was let in leaves one.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gateway_template
import pytest
from bridge_estate import Talker, wait
from counted_devices import PATIENCE, Device, Subscriber
from gateways import TREE, RunningGateway
from gateways_behind_balancer import GatewaysBehindBalancer

from gateway.mqtt import packets as p
from gateway.mqtt import writer

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(7200)]
ROUNDS = int(os.environ.get("MQGATE_ROUNDS", "200"))
LEASE = 5
SETTINGS = "mappings: [none.yaml]\nmqtt: {connect_timeout: 100s, max_queued: 100000}\n"
FAULTS = ["kill", "cut", "stand still", "queue manager", "cut off"]
AT_ONCE = ["all", "two", "all and the queue manager", "two"]
"""Gateways that end at the same moment, while devices that were cut off are coming back."""


class Mortal(Device):
    """Each of its connections leaves a will; none is closed in order."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self.left: list[bytes] = []
        """The wills of connections that were let in."""
        self._number = 0

    def will(self) -> p.Will:
        self._number += 1
        return p.Will("news/wills", b"%s:2:%d" % (self.name_.encode(), self._number), 2, retain=False)

    def live(self, talker: Talker) -> None:
        assert talker.connack.reason == 0
        self.left.append(b"%s:2:%d" % (self.name_.encode(), self._number))
        until = time.monotonic() + 2
        while time.monotonic() < until and not self.stop.is_set():
            talker.socket.settimeout(0.2)
            with suppress(TimeoutError):
                assert talker.socket.recv(100)
        if self.stop.is_set():
            self.ended.set()


class Publisher(Device):
    """One message after the other, each until it is acknowledged to the end."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self.done: list[bytes] = []
        self._released = False
        self._sent = False

    def live(self, talker: Talker) -> None:
        while not (self.stop.is_set() and not self._sent):
            number = len(self.done)
            qos, packet_id = 1 + number % 2, 1 + number % 1000
            if not self._released:
                body = self.body(number)
                packet = writer.encode_publish(5, b"news/a", body, qos, packet_id=packet_id, properties=b"")
                talker.socket.sendall(bytes((packet[0] | self._sent << 3,)) + packet[1:])
                self._sent = True
                answer = talker.next(p.PUBACK if qos == 1 else p.PUBREC)
                assert (answer[1], answer[2] < 0x80) == (packet_id, True)
            if qos == 2:
                self._released = True
                talker.socket.sendall(writer.encode_acks(p.PUBREL, [packet_id]))
                assert talker.next(p.PUBCOMP)[1] == packet_id
            self._released = self._sent = False
            self.done.append(self.body(number))
            time.sleep(0.02)
        self.ended.set()

    def body(self, number: int) -> bytes:
        return b"%s:%d:%d" % (self.name_.encode(), 1 + number % 2, number)


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewaysBehindBalancer]:
    (tmp_path / "none.yaml").write_text("version: 1\n")
    lease = getattr(request, "param", LEASE)
    made = GatewaysBehindBalancer(tmp_path, settings=SETTINGS, lease=lease, may_be_cut_off=True)
    made.start()
    yield made
    made.close()


def supervise(broker: GatewaysBehindBalancer) -> None:
    """Start those again that have ended, as a supervisor does."""
    for gateway in broker.gateways:
        if gateway.process is None or gateway.process.poll() is not None:
            gateway.port = 0
            gateway.start()


def fault(broker: GatewaysBehindBalancer, kind: str, gateway: RunningGateway) -> None:
    assert gateway.process is not None
    if kind == "kill":
        gateway.kill()
    elif kind == "stand still":
        gateway.process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE + 2)  # longer than its lease: it is superseded, and notices when it goes on
        gateway.process.send_signal(signal.SIGCONT)
    elif kind == "cut off":
        broker.cut_off(gateway)
        time.sleep(LEASE + 2)
        broker.join(gateway)
    elif kind == "queue manager":
        broker.queue_manager.kill()
        broker.queue_manager.start()
    elif kind in AT_ONCE:
        end_at_once(broker, kind, gateway)
    else:
        broker.balancer.cut()


def end_at_once(broker: GatewaysBehindBalancer, kind: str, spared: RunningGateway) -> None:
    """All gateways, or all but one, a moment after every device has lost its connection."""
    broker.balancer.cut()
    time.sleep(random.choice([0.05, 0.15, 0.3, 0.5, 0.8]))
    ending = [one for one in broker.gateways if one is not spared or kind != "two"]
    for one in ending:
        assert one.process is not None
        one.process.send_signal(signal.SIGKILL)
    if kind == "all and the queue manager":
        broker.queue_manager.kill()
        broker.queue_manager.start()
    for one in ending:
        one.kill()


class Counted:
    """Devices that have begun, and what has to be true of them in the end."""

    def __init__(self, broker: GatewaysBehindBalancer) -> None:
        self.subscribers = [Subscriber(broker.port, f"hears-{number}") for number in range(3)]
        self.members = [Subscriber(broker.port, f"shares-{number}") for number in range(3)]
        self.publishers = [Publisher(broker.port, f"tells-{number}") for number in range(3)]
        self.mortals = [Mortal(broker.port, f"dies-{number}") for number in range(2)]
        self.devices: list[Device] = [*self.subscribers, *self.members, *self.publishers, *self.mortals]
        for one in (*self.subscribers, *self.members):
            with Talker(broker.port, one.name_, clean=False) as talker:
                talker.subscribe("$share/some/news/#" if one in self.members else "news/#", 2)
        for device in self.devices:
            device.start()

    def go_on(self) -> None:
        """Until some more has been acknowledged to each publisher."""
        before = [len(one.done) for one in self.publishers]
        self.until(lambda: all(len(one.done) >= then + 10 for one, then in zip(self.publishers, before, strict=True)))

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 5 * PATIENCE
        while not condition():
            for device in self.devices:
                assert device.failure is None, device.failure
            if time.monotonic() > end:
                raise TimeoutError("a device waits")
            time.sleep(0.02)

    def end(self) -> None:
        """What was acknowledged has arrived, and at QoS 2 once."""
        for device in (*self.mortals, *self.publishers):
            device.stop.set()
            self.until(device.ended.is_set)
        wanted = [body for one in self.publishers for body in one.done]
        wanted += [body for one in self.mortals for body in one.left]
        with suppress(TimeoutError):
            self.until(lambda: all(found[body] for found in self.found().values() for body in wanted))
        time.sleep(1)  # what comes once too often may still be on its way
        for device in (*self.subscribers, *self.members):
            device.stop.set()
            self.until(device.ended.is_set)
        found = self.found()
        nothing: dict[str, list[bytes]] = {name: [] for name in found}
        assert {name: [body for body in wanted if not one[body]] for name, one in found.items()} == nothing
        twice = {
            name: [body for body, count in one.items() if count > 1 and b":2:" in body] for name, one in found.items()
        }
        assert twice == nothing

    def found(self) -> dict[str, Counter[bytes]]:
        """How often each body has come, by subscriber; what is shared counts together."""
        shared = sum((Counter(dict.copy(one.found)) for one in self.members), Counter[bytes]())
        return {one.name_: one.found for one in self.subscribers} | {"shared": shared}


@pytest.mark.skipif(not os.environ.get("MQGATE_LONG"), reason="the long form: tests/run --long")
@pytest.mark.parametrize("faults", [FAULTS, AT_ONCE], ids=["one-by-one", "at-once"])
def test_what_is_acknowledged_arrives_everywhere_and_once_at_qos_2(
    broker: GatewaysBehindBalancer, faults: list[str]
) -> None:
    counted = Counted(broker)
    dice = random.Random(os.environ.get("MQGATE_SEED", "24"))
    for number in range(ROUNDS):
        fault(broker, faults[number % len(faults)], dice.choice(broker.gateways))
        supervise(broker)
        counted.go_on()
    counted.end()


def rebalance(gateway: RunningGateway) -> dict[str, Any]:
    """What `mqgate client rebalance` says beside it."""
    words = "client", "rebalance", "--json", "-c", "settings.yaml", "--rate", "100"
    done = gateway_template.run(*words, cwd=gateway.directory, env={**os.environ, "PYTHONPATH": TREE})
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def knows_of_more_at_some(gateway: RunningGateway) -> bool:
    """Whether it knows how many connections each of the three has, and that one of them has more than its share. They
    tell each other every ten seconds."""
    (token,) = gateway.directory.rglob("admin.token")
    url, headers = (
        f"http://127.0.0.1:{gateway.admin}/api/v1/gateways",
        {"Authorization": f"Bearer {token.read_text().strip()}"},
    )
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        items = json.loads(answer.read())["items"]
    counts = [one["connections"] for one in items]
    return len(counts) == 3 and None not in counts and max(counts) > -(-sum(counts) // 3)


@pytest.mark.parametrize("broker", [60], indirect=True, ids=["calm"])  # nobody is taken for dead on a busy machine
def test_gateways_that_are_replaced_and_evened_out_cost_each_device_one_connection_at_a_time(
    broker: GatewaysBehindBalancer,
) -> None:
    counted = Counted(broker)
    for gateway in broker.gateways:
        counted.go_on()
        assert gateway.stop() == 0
        gateway.port = 0
        counted.go_on()
        gateway.start()
    some = [Talker(broker.gateways[1].port, f"stays-{number}", clean=False) for number in range(9)]
    wait(lambda: knows_of_more_at_some(broker.gateways[0]), PATIENCE)
    lasting = [*counted.subscribers, *counted.members, *counted.publishers]
    before = [one.connects for one in lasting]
    found = rebalance(broker.gateways[0])
    assert any(one["hands_back"] for one in found["items"]), found

    def is_handed_back() -> bool:
        told, _, _ = select.select([one.socket for one in some], [], [], 0)
        return bool(told) or any(one.connects > then for one, then in zip(lasting, before, strict=True))

    wait(is_handed_back, PATIENCE)
    for one in some:
        one.socket.close()
    counted.go_on()
    counted.end()
    most = 2 + len(broker.gateways)  # at most once to each that stops, and once more
    assert [one.name_ for one in lasting if one.connects > most] == []
