"""Two gateways over one queue manager, whose queues are small and fill, and are put-inhibited and allowed again, while
gateways are killed, connections are cut and rules change: every publication is counted. So it is where units of work
may be so small that what gateways commit goes in parts.

What goes to very many, what is retained and what is shared waits for those queues too. What was acknowledged is on each
queue of its rules, at each subscriber and at one member of the shared subscription, at QoS 2 once; the last of what is
retained is what a new subscriber gets.
"""

from __future__ import annotations

import os
import random
import selectors
import signal
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from bridge_estate import Talker
from counted_devices import BROKEN, PATIENCE, Device, Subscriber
from gateways import RunningGateway
from gateways_behind_balancer import GatewaysBehindBalancer
from ibm_rig import OBJECTS
from long_form import LONG

from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.mq import constants as mq
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt.client import server_reader

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(3600)]
SECONDS = float(os.environ.get("MQGATE_SECONDS", "600" if LONG else "0"))
CROWD = 500 if LONG else 25
"""Members that get what is published to all: very many, for these gateways."""
PROGRAM = str(Path(__file__).with_name("wide_gateway.py"))
LEASE = 5 if LONG else 3
QUEUES = "SMALL.A", "SMALL.B", "SMALL.C"
DEPTH, WINDOW = (12, 20) if LONG else (5, 10)
"""Fewer fit into a queue than the publishers at one gateway have under way for it: what waits goes in parts."""
OBJECTS_TOO = OBJECTS + "".join(f"\nDEFINE QLOCAL({name}) MAXDEPTH({DEPTH}) DEFPSIST(YES) REPLACE" for name in QUEUES)
SETTINGS = """mappings: [map.yaml]
mqtt: {connect_timeout: 100s, max_queued: 100000}
"""
PUBLISHERS = 10 if LONG else 4
SMALL = 120 if LONG else 40
"""The most messages of a unit of work, where units go in parts."""
LONGEST_PAUSE = 0.4 if LONG else 1.0
MOST_MEMORY = 400 << 20
"""Of a gateway."""


def mapping(second: str, longest: str) -> str:
    """Of the rules; the second queue is another one after a reload."""
    failure = f"on_failure: {{retry: {{times: 3, from: 100ms, to: {longest}}}, then: hold}}"
    return f"""version: 1
to_mq:
  - {{name: first, topic: "+/+/a/+", queue: SMALL.A, headers: [], {failure}}}
  - {{name: second, topic: "+/+/b/+", queue: {second}, headers: [], {failure}}}
  - {{name: both, topic: "+/+/ab/+", queue: SMALL.A, headers: [], continue: true, {failure}}}
  - {{name: both too, topic: "+/+/ab/+", queue: {second}, headers: [], {failure}}}
"""


class Sent:
    """A publication of somebody; its body says by whom, its QoS and its number."""

    def __init__(self, topic: str, body: bytes, qos: int, *, retain: bool) -> None:
        self.topic, self.body, self.qos, self.retain = topic, body, qos, retain
        self.again = self.received = self.done = False
        self.at = time.monotonic()


class Arrived(Counter[bytes]):
    """What has come to a session, in the order of the first arrivals."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[bytes, float] = {}
        """When it came first."""
        self.connected: list[float] = []
        """When the client connected: the session may have come from another gateway then."""

    def __setitem__(self, body: bytes, count: int) -> None:
        self.at.setdefault(body, time.monotonic())
        super().__setitem__(body, count)

    def may_have_moved_with(self, one: Sent) -> bool:
        """Whether the client connected while this publication was under way to it."""
        return any(one.at < moment < self.at[one.body] for moment in self.connected)


class Hears(Subscriber):
    """A subscriber that knows when it connected."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self.found: Arrived = Arrived()

    def live(self, talker: Talker) -> None:
        self.found.connected.append(time.monotonic())
        super().live(talker)


class Windowed(Device):
    """Has several publications under way, on several topics."""

    def __init__(self, port: int, name: str, seed: int) -> None:
        super().__init__(port, name)
        self.every: list[Sent] = []
        self.under_way: dict[int, Sent] = {}
        self._dice = random.Random(seed)

    def live(self, talker: Talker) -> None:
        for number, one in self.under_way.items():
            self._say(talker, number, one)
        while self.under_way or not self.stop.is_set():
            while len(self.under_way) < WINDOW and not self.stop.is_set():
                number, one = len(self.every) % 0xFFFF + 1, self._made()
                self.every.append(one)
                self.under_way[number] = one
                self._say(talker, number, one)
            talker.socket.settimeout(1)
            with suppress(TimeoutError):
                data = talker.socket.recv(65536)
                assert data
                for packet in talker.reader.feed(data):
                    self._take(talker, packet)
        self.ended.set()

    def _made(self) -> Sent:
        dice = self._dice
        qos, kind = dice.choice([1, 2]), dice.choice(["a", "b", "ab", "none"])
        head = "wide" if dice.random() < 0.1 else "news"
        body = b"%s:%d:%d" % (self.name_.encode(), qos, len(self.every))
        return Sent(f"{head}/{self.name_}/{kind}/{qos}", body, qos, retain=dice.random() < 0.3)

    def _say(self, talker: Talker, number: int, one: Sent) -> None:
        if one.received:
            talker.socket.sendall(writer.encode_acks(p.PUBREL, [number]))
            return
        raw = writer.encode_publish(
            5, one.topic.encode(), one.body, one.qos, retain=one.retain, packet_id=number, properties=b""
        )
        talker.socket.sendall(bytes((raw[0] | one.again << 3,)) + raw[1:])
        one.again = True

    def _take(self, talker: Talker, packet: Any) -> None:
        kind = packet[0] >> 4
        if kind not in {p.PUBACK, p.PUBREC, p.PUBCOMP} or packet[1] not in self.under_way:
            return
        one = self.under_way[packet[1]]
        if kind == p.PUBREC:
            assert packet[2] < 0x80, packet
            one.received = True
            talker.socket.sendall(writer.encode_acks(p.PUBREL, [packet[1]]))
            return
        assert kind == p.PUBCOMP or packet[2] < 0x80, packet
        one.done = True
        del self.under_way[packet[1]]


class Member:
    """One of the crowd: it has a session, and acknowledges what it gets."""

    def __init__(self, name: str, qos: int) -> None:
        self.name, self.qos = name, qos
        self.socket: socket.socket | None = None
        self.reader = server_reader(5)
        self.subscribed = False
        self.found = Arrived()
        self._open: set[int] = set()

    def connect(self, port: int) -> socket.socket:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.reader = server_reader(5)
        asked = client.connect(5, self.name, clean_start=False)
        asked.properties[0x11] = 3600
        self.socket.sendall(client.encode_connect(asked))
        return self.socket

    def read(self) -> None:
        """OSError, AssertionError: it has to come back."""
        assert self.socket is not None
        data = self.socket.recv(65536)
        assert data
        answers = [self._take(packet) for packet in self.reader.feed(data)]
        self.socket.sendall(b"".join(answers))

    def _take(self, packet: Any) -> bytes:
        kind, qos = packet[0] >> 4, packet[0] >> 1 & 3
        if kind == p.CONNACK:
            assert packet[1].reason == 0
            self.found.connected.append(time.monotonic())
            if self.subscribed and not packet[1].session_present:
                raise Lost(self.name)
            return b"" if self.subscribed else client.encode_subscribe(5, _subscribe("wide/#", self.qos))
        if kind == p.SUBACK:
            self.subscribed = True
        elif kind == p.PUBREL:
            self._open.discard(packet[1])
            return writer.encode_acks(p.PUBCOMP, [packet[1]])
        elif kind == p.PUBLISH and qos == 1:
            self.found[bytes(packet[4])] += 1
            return writer.encode_acks(p.PUBACK, [packet[2]])
        elif kind == p.PUBLISH:
            if packet[2] not in self._open:
                self._open.add(packet[2])
                self.found[bytes(packet[4])] += 1
            return writer.encode_acks(p.PUBREC, [packet[2]])
        return b""


class Lost(Exception):
    """A session is not there any more."""


def _subscribe(name: str, qos: int) -> p.Subscribe:
    return p.Subscribe(1, [p.Subscription(name, qos)])


class Crowd(threading.Thread):
    """Many subscribers, in one thread."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.members = [Member(f"crowd-{number}", 1 + number % 2) for number in range(count)]
        self.stop = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with selectors.EpollSelector() as selector:
                waiting = deque((0.0, one) for one in self.members)
                while not self.stop.is_set():
                    while waiting and waiting[0][0] <= time.monotonic():
                        self._come(selector, waiting.popleft()[1], waiting)
                    for key, _ in selector.select(0.05):
                        member: Member = key.data
                        try:
                            member.read()
                        except BROKEN:
                            selector.unregister(key.fileobj)
                            self._gone(member, waiting)
        except BaseException as failure:  # noqa: BLE001 -- told by whoever waits for it
            self.failure = failure
        for member in self.members:
            if member.socket is not None:
                member.socket.close()

    def _come(self, selector: selectors.BaseSelector, member: Member, waiting: deque[tuple[float, Member]]) -> None:
        try:
            selector.register(member.connect(self.port), selectors.EVENT_READ, member)
        except BROKEN:
            self._gone(member, waiting)

    def _gone(self, member: Member, waiting: deque[tuple[float, Member]]) -> None:
        if member.socket is not None:
            member.socket.close()
        waiting.append((time.monotonic() + 0.2, member))


class Application(threading.Thread):
    """Takes what is on the queues, unless it rests."""

    def __init__(self, where: str) -> None:
        super().__init__(daemon=True)
        os.environ["MQGATE_MQI"] = where
        self.found = {name: Counter[bytes]() for name in QUEUES}
        self.stop, self.rests = threading.Event(), threading.Event()
        self._driver = load("ibmmq")
        self._settings = ConnectSettings("QM1", "localhost(1414)", "C", "app", "pw")
        self._inhibiting = self._driver.connect(self._settings)._owner

    def run(self) -> None:
        module, owner = self._driver.module, self._driver.connect(self._settings)._owner
        queues = {name: module.Queue(owner, name, mq.MQOO_INPUT_SHARED) for name in QUEUES}
        while not self.stop.is_set():
            taken = 0 if self.rests.is_set() else sum(self._take(name, queue) for name, queue in queues.items())
            if not taken:
                time.sleep(0.02)

    def _take(self, name: str, queue: Any) -> int:
        module = self._driver.module
        try:
            body = queue.get(None, module.MD(), module.GMO(Options=mq.MQGMO_NO_WAIT | mq.MQGMO_NO_SYNCPOINT))
        except self._driver.error as error:
            if error.reason != mq.MQRC_NO_MSG_AVAILABLE:
                raise
            return 0
        self.found[name][body] += 1
        return 1

    def inhibit(self, name: str, *, puts: bool) -> None:
        """Nobody may put to a queue, or everybody again."""
        queue = self._driver.module.Queue(self._inhibiting, name, mq.MQOO_SET)
        queue.set(mq.MQIA_INHIBIT_PUT, int(puts))
        queue.close()


class Counted:
    """Devices, the application and the crowd; and what has to be true of them in the end."""

    def __init__(self, broker: GatewaysBehindBalancer, *, whole: bool) -> None:
        self.whole = whole
        self.application = Application(str(broker.queue_manager.socket))
        self.crowd = Crowd(broker.port, CROWD)
        self.subscribers = [Hears(broker.port, f"hears-{number}") for number in range(2)]
        self.members = [Subscriber(broker.port, f"shares-{number}") for number in range(2)]
        self.publishers = [Windowed(broker.port, f"tells-{number}", number) for number in range(PUBLISHERS)]
        self.crowd.start()
        for one in (*self.subscribers, *self.members):
            with Talker(broker.port, one.name_, clean=False) as talker:
                talker.subscribe("$share/some/news/#" if one in self.members else "news/#", 2)
        self.until(lambda: all(one.subscribed for one in self.crowd.members))
        for device in (self.application, *self.subscribers, *self.members, *self.publishers):
            device.start()

    def until(self, condition: Callable[[], bool], seconds: float = 2 * PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not condition():
            self.check()
            assert time.monotonic() < end, self.under_way()
            time.sleep(0.02)

    def check(self) -> None:
        """AssertionError: a device has failed."""
        for device in (*self.subscribers, *self.members, *self.publishers, self.crowd):
            assert device.failure is None, (device.failure, time.strftime("%H:%M:%S"))

    def under_way(self) -> dict[str, list[tuple[str, bytes, bool]]]:
        """What nobody has acknowledged to the end."""
        found = {one.name_: [*one.under_way.values()] for one in self.publishers}
        return {name: [(one.topic, one.body, one.received) for one in some] for name, some in found.items() if some}

    def done(self) -> int:
        return sum(len(one.every) - len(one.under_way) for one in self.publishers)

    def go_on(self) -> None:
        """All queues take messages, and are emptied."""
        self.application.rests.clear()
        for name in QUEUES:
            self.application.inhibit(name, puts=False)

    def end(self) -> None:
        """Everything that was begun ends."""
        self.go_on()
        for one in self.publishers:
            one.stop.set()
            self.until(one.ended.is_set)
        with suppress(AssertionError):
            self.until(lambda: not self.missing())
        time.sleep(1)  # what comes once too often may still be on its way
        assert self.missing() == {}
        assert not self.whole or self.twice() == {}
        assert self.out_of_order() == []

    def stop(self) -> None:
        """All of them; what a device waits for comes from the application."""
        self.go_on()
        for threads in (self.publishers, [*self.subscribers, *self.members, self.application, self.crowd]):
            for one in threads:
                one.stop.set()
            for one in threads:
                one.join(PATIENCE)

    def sent(self) -> list[Sent]:
        return [one for publisher in self.publishers for one in publisher.every]

    def found(self) -> dict[str, tuple[list[Sent], Counter[bytes]]]:
        """What is to be somewhere, and what is."""
        sent, on = self.sent(), {name: Counter(dict.copy(found)) for name, found in self.application.found.items()}
        wide, news = ([one for one in sent if one.topic.startswith(head)] for head in ("wide", "news"))
        shared = sum((Counter(dict.copy(one.found)) for one in self.members), Counter[bytes]())
        first, second = (
            [one for one in sent if one.topic.split("/")[2] in kinds] for kinds in (("a", "ab"), ("b", "ab"))
        )
        places = {"first": (first, on["SMALL.A"]), "second": (second, on["SMALL.B"] + on["SMALL.C"])}
        places |= {one.name: (wide, one.found) for one in self.crowd.members}
        places |= {one.name_: (news, one.found) for one in self.subscribers}
        return places | {"shared": (news, shared)}

    def missing(self) -> dict[str, list[bytes]]:
        lost = {name: [one.body for one in sent if not there[one.body]] for name, (sent, there) in self.found().items()}
        return {name: bodies for name, bodies in lost.items() if bodies}

    def twice(self) -> dict[str, list[bytes]]:
        """At QoS 2; a member of the crowd may have asked for QoS 1."""
        more = {one.name for one in self.crowd.members if one.qos == 1}
        doubled = {
            name: [body for body, count in there.items() if count > 1 and b":2:" in body]
            for name, (_, there) in self.found().items()
            if name not in more
        }
        return {name: bodies for name, bodies in doubled.items() if bodies}

    def out_of_order(self) -> list[tuple[str, bytes, bytes]]:
        """What came first of a topic somewhere where an earlier one of the same topic came later. This may be so only
        where the session may have moved while that one was under way."""
        sent = {one.body: one for one in self.sent()}
        found = []
        for name, (_, there) in self.found().items():
            last: dict[str, bytes] = {}
            for body in there if name not in {"shared", "second"} else ():
                one = sent[body]
                before = last.get(one.topic, b":-1")
                is_late = int(body.rpartition(b":")[2]) < int(before.rpartition(b":")[2])
                if is_late and not (isinstance(there, Arrived) and there.may_have_moved_with(one)):
                    found.append((name, before, body))
                last[one.topic] = body
        return found

    def retained(self) -> dict[str, bytes]:
        """The last of each topic."""
        return {one.topic: one.body for one in self.sent() if one.retain}


@pytest.fixture(params=[True, False], ids=["whole", "in parts"])
def whole(request: pytest.FixtureRequest) -> bool:
    """Whether what gateways commit is one unit of work. A message may be there twice if one is killed between two parts
    (see `gateway.backends.ibm.unit_parts`)."""
    return bool(request.param)


@pytest.fixture
def broker(tmp_path: Path, whole: bool) -> Iterator[GatewaysBehindBalancer]:
    objects = OBJECTS_TOO if whole else f"{OBJECTS_TOO}\nALTER QMGR MAXUMSGS({SMALL})"
    (tmp_path / "map.yaml").write_text(mapping("SMALL.B", "500ms"))
    made = GatewaysBehindBalancer(tmp_path, settings=SETTINGS, count=2, lease=LEASE, objects=objects)
    for gateway in made.gateways:
        gateway.program = [PROGRAM]
    made.start()
    yield made
    made.close()


def happen(broker: GatewaysBehindBalancer, application: Application, dice: random.Random, what: str) -> None:
    if what == "rest":
        (application.rests.clear if application.rests.is_set() else application.rests.set)()
    elif what == "inhibit":
        application.inhibit(dice.choice(QUEUES), puts=dice.random() < 0.25)
    elif what == "reload":
        rules = mapping(dice.choice(QUEUES[1:]), dice.choice(["200ms", "2s"]))
        (broker.directory / "map.yaml").write_text(rules)
        for gateway in broker.gateways:
            assert gateway.process is not None
            gateway.process.send_signal(signal.SIGHUP)
    elif what == "cut":
        broker.balancer.cut()
    else:
        killed = broker.gateways if what == "kill all" else [dice.choice(broker.gateways)]
        for gateway in killed:
            gateway.kill()
        for gateway in killed:
            gateway.port = 0
            gateway.start()


def memory(gateway: RunningGateway) -> int:
    """The most bytes that it has occupied."""
    assert gateway.process is not None
    lines = Path(f"/proc/{gateway.process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


OFTEN = ["rest", "rest", "inhibit", "inhibit", "inhibit", "reload"]
SELDOM = ["kill", "kill", "kill all", "cut"]


@pytest.fixture
def counted(broker: GatewaysBehindBalancer, whole: bool) -> Iterator[Counted]:
    made = Counted(broker, whole=whole)
    yield made
    made.stop()


def test_what_waits_for_full_and_inhibited_queues_is_neither_lost_nor_doubled(
    broker: GatewaysBehindBalancer, counted: Counted
) -> None:
    dice = random.Random(os.environ.get("MQGATE_SEED", "24"))
    end = time.monotonic() + SECONDS
    for what in ["rest", "inhibit", "reload", "kill"]:
        before = counted.done()
        happen(broker, counted.application, dice, what)
        counted.until(lambda before=before: counted.done() > before or counted.application.rests.is_set())
    happened = Counter[str]()
    for number in count(1):
        if time.monotonic() > end:
            break
        what = dice.choice(OFTEN if number % 12 else SELDOM)
        happen(broker, counted.application, dice, what)
        happened[what] += 1
        counted.check()
        time.sleep(dice.uniform(0.05, LONGEST_PAUSE))  # the moment is what is tried out
    counted.end()
    most = max(memory(gateway) for gateway in broker.gateways)
    sys.stderr.write(f"{len(counted.sent())} publications, {dict(happened)}, {most >> 20} MiB\n")
    assert most < MOST_MEMORY
    with Talker(broker.port, "new") as talker:
        talker.subscribe("news/#", 0)
        talker.subscribe("wide/#", 0)
        kept: dict[str, bytes] = {}
        while len(kept) < len(counted.retained()):
            _, topic, _, _, body = talker.next(p.PUBLISH)
            kept[topic.decode()] = bytes(body)
        assert kept == counted.retained()
