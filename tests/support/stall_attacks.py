"""Attacks on a running gateway's patience: whatever clients send, none of its turns may compute for more than BUDGET.

What is measured is the time for which the reactor's thread had a processor in its longest turn (measured_gateway.py):
on a quiet machine everybody else waits as long. On a busy one a processor does less in the same time, as its caches and
units are shared: how much less a piece of work of known length says (`slower`). A canary is served all the while, and
its waits are printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import thread_time
from typing import NamedTuple

from canary import watched
from gateways import RunningGateway

from gateway.mqtt import client, writer
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import CONNACK, PUBACK, Subscribe, Subscription, Will

BESIDE_OTHERS = 2.0 if os.environ.get("PYTEST_XDIST_WORKER") else 1.0
"""Room for what other tests do to caches and clocks meanwhile: the budget itself is for a machine of its own."""
BUDGET = 0.1
LONG = bool(os.environ.get("MQGATE_LONG"))
PROGRAM = str(Path(__file__).parent / "measured_gateway.py")


REFERENCE = 0.01
"""What the piece of work takes on the build machine when it is quiet."""
REACHED = 0.02
"""What looking for objects all over the memory takes there: a quarter of a microsecond each on a machine that lends its
memory to others, and up to a whole one while they use it."""


def slower() -> float:
    """How many times as long as there Python takes here and now, to make objects or to reach those that are in no
    cache, as the routes of a thousand topics are; at least 1, at most 4."""

    def work() -> float:
        begun = thread_time()
        found = {f"a{number}": (number, [number]) for number in range(20_000)}
        assert found
        return thread_time() - begun

    scattered = [str(number) for number in range(1_000_000)]
    random.Random(0).shuffle(scattered)

    def reach(start: int) -> float:
        begun = thread_time()
        found = scattered[start : start + 100_000]
        assert found
        return thread_time() - begun

    made = sorted(work() for _ in range(5))[2] / REFERENCE
    reached = sorted(reach(start) for start in range(0, 1_000_000, 200_000))[2] / REACHED
    return BESIDE_OTHERS * min(4.0, max(1.0, made, reached))


def without_processor(threads: Iterable[Path]) -> float:
    """Seconds for which threads, by their folders in /proc, could have run and had no processor."""
    found = 0
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended, or this kernel does not say
            found += int((thread / "schedstat").read_text().split()[1])
    return found / 1e9


class Turn(NamedTuple):
    """One turn of the reactor."""

    computed: float
    seconds: float
    doing: str
    who: str
    at: str


class Attacked:
    """A measured gateway with a canary."""

    def __init__(self, directory: Path, settings: str = "") -> None:
        self.turns = directory / "turns"
        self.running = RunningGateway(directory, settings=settings, environ={"MQGATE_TURNS": str(self.turns)})
        self.running.program = [PROGRAM]

    @contextlib.contextmanager
    def serve(self) -> Iterator[Attacked]:
        """Run it."""
        with self.running:
            yield self

    def longest(self, since: int) -> Turn:
        """The longest turn that is written down behind this place of the file."""
        with self.turns.open() as file:
            file.seek(since)
            found = [Turn(*json.loads(line)) for line in file if line.endswith("\n")]
        return max(found, default=Turn(0.0, 0.0, "", "", ""))

    @contextlib.contextmanager
    def budget(self, seconds: float = BUDGET) -> Iterator[contextlib.ExitStack]:
        """What happens inside is an attack, with all that it leaves to be done afterwards. Sockets entered into the
        stack are closed at its end, which is part of it."""
        since = self.turns.stat().st_size
        with watched("canary", str(self.running.port)) as canary:
            canary.begin()
            begun = time.monotonic()
            with contextlib.ExitStack() as sockets:
                yield sockets
                self.settled()
            self.settled()
            took = time.monotonic() - begun
            answered, waited = canary.end()
        longest = self.longest(since)
        slow = 1.0 if longest.computed < seconds else max(slower() for _ in range(3))
        said = (
            f"longest turn {longest.computed * 1000:.0f} ms (clock {longest.seconds * 1000:.0f} ms) {longest.doing} "
            f"{longest.who} {longest.at}; canary waited {waited * 1000:.0f} ms, {answered} answers in {took:.1f} s; "
            f"the machine is {slow:.1f} times as slow"
        )
        print(said)
        assert answered, "the canary was never answered"
        assert longest.computed < seconds * slow, said
        assert '"defect"' not in self.running.log
        assert '"fatal"' not in self.running.log

    def settled(self, patience: float = 60.0) -> None:
        """Wait until the gateway has done what it had to do: it answers at once, several times in a row. For how long
        it, or this test, had no processor because others did is not counted."""
        assert self.running.process is not None
        until, quick = time.monotonic() + patience, 0
        threads = Path("/proc/thread-self"), *Path(f"/proc/{self.running.process.pid}/task").iterdir()
        while quick < 5:
            assert time.monotonic() < until, "the gateway is still at it"
            begun, before = time.monotonic(), without_processor(threads)
            with self.online("settled"):
                took = time.monotonic() - begun - (without_processor(threads) - before)
            quick = quick + 1 if took < 0.1 else 0
            time.sleep(0.02)

    def open(self) -> socket.socket:
        """A raw connection."""
        sock = socket.create_connection(("127.0.0.1", self.running.port), 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def online(
        self, name: str, version: int = 5, *, expiry: int = 0, clean: bool = True, will: Will | None = None,
        receive: int = 0,
    ) -> socket.socket:  # fmt: skip
        """A connection of a client that was let in."""
        sock = self.open()
        connect = client.connect(version, name, keep_alive=0, clean_start=clean, will=will)
        if expiry:
            connect.properties[prop.SESSION_EXPIRY_INTERVAL] = expiry
        if receive:
            connect.properties[prop.RECEIVE_MAXIMUM] = receive
        sock.sendall(client.encode_connect(connect))
        kind, length = read(sock, 2)
        assert (kind >> 4, length < 128) == (CONNACK, True)
        read(sock, length)
        return sock

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> int:
        """A request to the admin port; the status, 0 where the connection was ended."""
        url = f"http://127.0.0.1:{self.running.admin}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=60) as got:
                return int(got.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


def subscribe(*filters: str, qos: int = 1, identifier: int = 0, packet_id: int = 1) -> bytes:
    """A SUBSCRIBE of 5.0."""
    wanted = Subscribe(packet_id, [Subscription(one, qos) for one in filters])
    if identifier:
        wanted.properties[prop.SUBSCRIPTION_IDENTIFIER] = [identifier]
    return client.encode_subscribe(5, wanted)


def publish(topic: str, payload: bytes = b"x", qos: int = 0, packet_id: int = 0, *, retain: bool = False) -> bytes:
    """A PUBLISH of 5.0."""
    return writer.encode_publish(5, topic.encode(), payload, qos, retain=retain, packet_id=packet_id)


def drain(sock: socket.socket, seconds: float = 0.05) -> int:
    """Read what has come, until nothing has for a while; how many bytes that was."""
    sock.settimeout(seconds)
    count = 0
    with contextlib.suppress(OSError):
        while data := sock.recv(1 << 20):
            count += len(data)
    sock.settimeout(60)
    return count


def acknowledged(sock: socket.socket, count: int) -> None:
    """Wait until so many publications at QoS 1 are acknowledged."""
    reader = client.server_reader(5)
    while count > 0:
        data = sock.recv(1 << 20)
        assert data, "the gateway closed the connection"
        count -= sum(packet[0] >> 4 == PUBACK for packet in reader.feed(data))


def read(sock: socket.socket, length: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < length:
        more = sock.recv(length - len(data))
        assert more, "the gateway closed the connection"
        data += more
    return data
