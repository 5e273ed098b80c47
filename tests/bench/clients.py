"""What clients cost a running gateway: `python tests/bench/clients.py [--filters 100000] [--idle 10000]`.

Subscribes 1,000 filters, then the rest, on a running gateway, and compares what a message costs: processor time of the
gateway for a publication that one of the filters matches, on topics it has seen and on new ones, and for one that none
matches. Then connects and disconnects clients one after the other, and counts the memory of idle connections.

Ratios are what matters: processor time of the gateway's process, not the time that passes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from gateways import RunningGateway  # noqa: E402

from gateway.mqtt import client, packets, writer  # noqa: E402

SETTINGS = """
mappings: [none.yaml]
mqtt: {max_subscriptions: 1000, max_connections: 20000, max_inflight: 1000, keep_alive_max: 1h}

"""
EACH = 1000
"""Filters of one client."""
FEW = 1000
WINDOW = 500


class Wire:
    """One client: sends packets, waits for packets."""

    def __init__(self, gateway: RunningGateway, name: str) -> None:
        self.socket = gateway.connect()
        self.socket.settimeout(120)
        self.reader = client.server_reader(4)
        self.socket.sendall(client.encode_connect(client.connect(4, name)))
        self.wait(lambda packet: packet[0] == 0x20, 1)

    def wait(self, wanted: Callable[[tuple], bool], count: int) -> None:
        while count > 0:
            chunk = self.socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError("the gateway closed the connection")
            count -= sum(map(wanted, self.reader.feed(chunk)))

    def subscribe(self, filters: list[str]) -> None:
        asked = packets.Subscribe(1, [packets.Subscription(one, 0) for one in filters])
        self.socket.sendall(client.encode_subscribe(4, asked))
        self.wait(lambda packet: packet[0] >> 4 == packets.SUBACK, 1)

    def publish(self, topics: Iterator[str], count: int) -> None:
        """QoS 1, a window at a time."""
        for start in range(0, count, WINDOW):
            size = min(WINDOW, count - start)
            raw = (writer.encode_publish(4, next(topics).encode(), b"x" * 64, 1, packet_id=i + 1) for i in range(size))
            self.socket.sendall(b"".join(raw))
            self.wait(lambda packet: packet[0] >> 4 == packets.PUBACK, size)


def processor_seconds(gateway: RunningGateway) -> float:
    """User and system time of the gateway's process."""
    assert gateway.process is not None
    fields = Path(f"/proc/{gateway.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(gateway: RunningGateway) -> int:
    assert gateway.process is not None
    return int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def filters(first: int, count: int) -> list[str]:
    """Exact filters and wildcards, a third each: `a/N/b`, `a/N/+`, `a/N/b/#`."""
    forms = ("plant/{}/b", "plant/{}/+", "plant/{}/b/#")
    return [forms[number % 3].format(number) for number in range(first, first + count)]


def topics(kind: str, run: int) -> Iterator[str]:
    """Topics of one measurement: the same hundred again and again, always new ones, or ones that nothing matches."""
    number = 0
    while True:
        number += 1
        if kind == "known":
            yield f"plant/{number % 100}/b"
        elif kind == "new":
            yield f"plant/{number % FEW}/b/{run}/{number}"
        else:
            yield f"other/{run}/{number}"


def cost(gateway: RunningGateway, publisher: Wire, kind: str, run: int, count: int) -> float:
    """Microseconds of processor time a message."""
    source = topics(kind, run)
    publisher.publish(source, min(count, 2000))
    before = processor_seconds(gateway)
    publisher.publish(source, count)
    return (processor_seconds(gateway) - before) / count * 1e6


def measured(gateway: RunningGateway, count: int, run: int) -> dict[str, float]:
    publisher = Wire(gateway, f"publisher{run}")
    found = {kind: cost(gateway, publisher, kind, run, count) for kind in ("known", "new", "unmatched")}
    publisher.socket.close()
    return found


def subscriptions(gateway: RunningGateway, total: int, count: int, result: dict) -> None:
    """What a message costs with few and with many filters."""
    subscribers = [Wire(gateway, "subscriber0")]
    subscribers[0].subscribe(filters(0, FEW))
    few = measured(gateway, count, 1)
    before, begun, used = resident_bytes(gateway), time.monotonic(), processor_seconds(gateway)
    for number in range(1, total // EACH):
        wire = Wire(gateway, f"subscriber{number}")
        wire.subscribe(filters(number * EACH, EACH))
        subscribers.append(wire)
    more = max(total - FEW, 1)
    result["subscribe"] = {
        "a_second": round(more / (time.monotonic() - begun)),
        "processor_us_each": round((processor_seconds(gateway) - used) / more * 1e6, 1),
        "bytes_each": round((resident_bytes(gateway) - before) / more),
    }
    many = measured(gateway, count, 2)
    for wire in subscribers:
        wire.socket.close()
    result["message_us"] = {
        kind: {
            f"{FEW} filters": round(few[kind], 1),
            f"{total} filters": round(many[kind], 1),
            "ratio": round(many[kind] / few[kind], 2),
        }
        for kind in few
    }


def connects(gateway: RunningGateway, count: int, result: dict) -> None:
    """Clients that connect one after the other, and stay."""
    begun, used = time.monotonic(), processor_seconds(gateway)
    wires = [Wire(gateway, f"connect{number}") for number in range(count)]
    result["connect"] = {
        "a_second": round(count / (time.monotonic() - begun)),
        "processor_us_each": round((processor_seconds(gateway) - used) / count * 1e6),
    }
    for wire in wires:
        wire.socket.close()


def idle(gateway: RunningGateway, count: int, result: dict) -> None:
    """Memory of connections that say nothing after their CONNECT; some first, so that buffers and caches are there."""
    raw, made = client.connect, []
    for number in range(200 + count):
        if number == 200:
            time.sleep(1)
            before = resident_bytes(gateway)
        sock = gateway.connect()
        sock.sendall(client.encode_connect(raw(4, f"idle{number}")))
        made.append(sock)
        if number % 100 == 99:
            receive(made[-100:])
    time.sleep(1)
    result["idle"] = {"connections": count, "kib_each": round((resident_bytes(gateway) - before) / count / 1024, 2)}
    for sock in made:
        sock.close()


def receive(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.settimeout(60)
        if len(sock.recv(4, socket.MSG_WAITALL)) != 4:
            raise ConnectionError("no CONNACK")


def main() -> int:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--filters", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--connects", type=int, default=1_000)
    parser.add_argument("--idle", type=int, default=10_000)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    result: dict = {}
    with tempfile.TemporaryDirectory(prefix="mqgate-clients-") as directory:
        gateway = RunningGateway(Path(directory), settings=SETTINGS)
        (Path(directory) / "none.yaml").write_text("version: 1\n")
        gateway.start()
        try:
            idle(gateway, options.idle, result)  # first: memory that others have used would be used again
            subscriptions(gateway, options.filters, options.messages, result)
            connects(gateway, options.connects, result)
        finally:
            gateway.stop()
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
