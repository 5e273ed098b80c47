"""What operators do to a gateway with much in it: `python tests/bench/operating.py [--only REGEX]`.

A whole gateway, as one thing in it is doubled. For each call its seconds, and the longest turn of the reactor meanwhile
in milliseconds of its processor time (`tests/support/measured_gateway.py`; turns below 20 ms are not written down).
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from stall_attacks import Attacked, acknowledged, publish, read, subscribe

from gateway.mqtt import client
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Will

Act = tuple[str, Callable[[], object]]
Scene = Callable[[Attacked, int], Iterator[Act]]
SCENES: dict[str, tuple[Scene, Callable[[int], str], tuple[int, ...]]] = {}
SETTINGS = """
listeners: [{name: plain, port: 0, bind: 127.0.0.1}]
mappings: [map.yaml]
mqtt: {max_inflight: 65535, max_connections: 200000, max_sessions: 2000000, max_subscriptions: 2000000,
  session_expiry_max: 7d}
security: {anonymous: true}
queue_manager: {embedded: {objects: objects.mqsc}}
"""
ONE_RULE = "  - {name: r0, topic: 'dev/{device}', queue: A}\n"
OBJECTS = "DEFINE QLOCAL(A) MAXDEPTH(999999999) REPLACE\nALTER QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) MAXDEPTH(999999999)\n"


def scene(
    name: str, sizes: tuple[int, ...], rules: Callable[[int], str] = lambda _: ONE_RULE
) -> Callable[[Scene], Scene]:
    """A gateway with so many of something."""

    def known(act: Scene) -> Scene:
        SCENES[name] = act, rules, sizes
        return act

    return known


def call(gateway: Attacked, method: str, path: str, body: object = None) -> Any:
    """A call of the API that may take its time."""
    running = gateway.running
    token = next(running.directory.glob("*data/admin.token")).read_text().strip()
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.admin}/api/v1{path}", data, {"Authorization": f"Bearer {token}"}, method=method
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.loads(answer.read() or b"null")


def get(gateway: Attacked, *paths: str) -> Iterator[Act]:
    """Pages of the API."""
    for path in paths:
        yield f"GET {path}", lambda path=path: call(gateway, "GET", path)


def sent(gateway: Attacked, topics: list[str]) -> None:
    """Published at QoS 1 by one client."""
    with gateway.online("filler") as sock:
        for begin in range(0, len(topics), 10_000):
            some = topics[begin : begin + 10_000]
            sock.sendall(b"".join(publish(one, b"12.5", 1, at) for at, one in enumerate(some, 1)))
            acknowledged(sock, len(some))


def sessions(gateway: Attacked, size: int, expiry: int = 3600, filters: int = 1) -> None:
    """Clients that have left; some hundred come together."""
    for begin in range(0, size, 500):
        names = range(begin, min(size, begin + 500))
        found = [gateway.open() for _ in names]
        for number, sock in zip(names, found, strict=True):
            connect = client.connect(5, f"device-{number}", keep_alive=0, clean_start=False)
            connect.properties[prop.SESSION_EXPIRY_INTERVAL] = expiry
            more = subscribe(*(f"cmd/{number}/{at}" for at in range(filters))) if filters else b""
            sock.sendall(client.encode_connect(connect) + more)
        for sock in found:
            for _ in range(1 + (filters > 0)):
                _, length = read(sock, 2)
                read(sock, length)
            sock.close()


@scene("sessions", (12_500, 25_000, 50_000))
def _(gateway: Attacked, size: int) -> Iterator[Act]:
    yield "they come and go", lambda: sessions(gateway, size)
    yield from get(
        gateway, "/clients?limit=500", "/clients?search=99&limit=500", "/clients?state=connected",
        f"/clients?after=device-{size // 2}", "/overview", "/gateways",
    )  # fmt: skip
    yield "GET /metrics", lambda: gateway.running.get("/metrics")
    yield "idle for 12 s", lambda: time.sleep(12)
    yield "stopped", gateway.running.stop
    yield "started", gateway.running.start


@scene("messages on a queue", (25_000, 50_000, 100_000))
def _(gateway: Attacked, size: int) -> Iterator[Act]:
    yield "published", lambda: sent(gateway, [f"dev/{n % 1000}" for n in range(size)])
    yield from get(
        gateway, "/overview", "/queues/A", "/queues/A/messages?limit=500", "/queues/A/messages?text=nothing",
        f"/journey?msg_id={'4D' * 24}",
    )  # fmt: skip
    yield "GET /metrics", lambda: gateway.running.get("/metrics")
    yield "cleared", lambda: call(gateway, "DELETE", "/queues/A/messages?confirm=A")


DEAD = "  - {name: r0, topic: 'dev/{device}', queue: NONE.SUCH, on_failure: {retry: {times: 0}, then: dead_letter}}\n"


def dead_letters(gateway: Attacked, size: int) -> Iterator[Act]:
    """They are listed, replayed and purged."""
    yield "published", lambda: sent(gateway, [f"dev/{n % 1000}" for n in range(size)])
    yield from get(
        gateway,
        "/dlq?limit=500",
        "/dlq?destination=NONE*",
        "/dlq?text=nothing",
        "/dlq?counts=false&whole=true&limit=500",
    )
    yield (
        "replay, half of them to a queue",
        lambda: call(gateway, "POST", "/dlq/replay", {"to": "A", "limit": size // 2}),
    )
    yield "replay, in vain", lambda: len(call(gateway, "POST", "/dlq/replay", {})["failed"])
    yield "purge", lambda: call(gateway, "POST", "/dlq/purge", {"limit": 1 << 30})


scene("dead letters", (12_500, 25_000, 50_000, 100_000), lambda _: DEAD)(dead_letters)


@scene("rules, and 2,000 dead letters", (1250, 2500, 5000, 10_000), lambda n: DEAD + many_rules(n))
def _(gateway: Attacked, size: int) -> Iterator[Act]:
    del size
    yield from dead_letters(gateway, 2000)


def many_rules(size: int) -> str:
    """Each to a queue of its own."""
    return "".join(f"  - {{name: rule {n}, topic: 'site{n}/{{device}}', queue: Q{n}}}\n" for n in range(size))


@scene("rules", (1250, 2500, 5000, 10_000), many_rules)
def _(gateway: Attacked, size: int) -> Iterator[Act]:

    def api(method: str, path: str, body: object = None) -> object:
        return call(gateway, method, path, body)

    yield from get(gateway, "/overview", "/rules?limit=500", "/rules?search=99&limit=500", "/queues?limit=500")
    yield "GET /metrics", lambda: gateway.running.get("/metrics")
    text = "".join(f"DEFINE QLOCAL(Q{n})\n" for n in range(size))
    yield "MQSC", lambda: api("POST", "/mqsc", {"text": text})
    yield from get(gateway, "/overview", "/rules?limit=500", "/queues?limit=500", "/queues?search=9", "/definitions")
    yield "GET /metrics", lambda: gateway.running.get("/metrics")
    yield "POST /explain", lambda: api("POST", "/explain", {"topic": f"site{size - 1}/x"})
    yield "published, each rule", lambda: sent(gateway, [f"site{n}/x" for n in range(size)])
    yield "idle for 12 s", lambda: time.sleep(12)
    yield "POST /reload, as it is", lambda: api("POST", "/reload")
    write_rules(gateway, many_rules(size).replace("site1/", "site-one/"))
    yield "POST /reload, one changed", lambda: api("POST", "/reload")


def write_rules(gateway: Attacked, rules: str) -> None:
    """The mapping file."""
    (gateway.running.directory / "map.yaml").write_text(f"version: 1\nto_mq:\n{rules}")


@scene("subscriptions", (25_000, 50_000, 100_000))
def _(gateway: Attacked, size: int) -> Iterator[Act]:
    yield "made", lambda: sessions(gateway, size // 100, filters=100)
    yield from get(gateway, "/overview", "/clients/device-1", "/clients?limit=500")


@scene("retained messages", (25_000, 50_000, 100_000))
def _(gateway: Attacked, size: int) -> Iterator[Act]:
    def fill() -> None:
        with gateway.online("filler") as sock:
            for begin in range(0, size, 10_000):
                some = range(begin, min(size, begin + 10_000))
                chunk = (publish(f"r/{n % 100}/{n}", b"12.5", 1, at, retain=True) for at, n in enumerate(some, 1))
                sock.sendall(b"".join(chunk))
                acknowledged(sock, len(some))

    yield "published", fill
    yield from get(
        gateway, "/overview", "/retained?search=nothing", "/topics", "/topics?under=r/", "/topics?under=r/1/"
    )


@scene("sessions that end in the same second", (1250, 2500, 5000, 10_000))
def _(gateway: Attacked, size: int) -> Iterator[Act]:
    seconds = max(2, size // 400)
    yield "they come and go", lambda: sessions(gateway, size, seconds)
    yield "they end", lambda: time.sleep(seconds + 3)


@scene("devices that lose power, and come back", (2500, 5000, 9000))
def _(gateway: Attacked, size: int) -> Iterator[Act]:
    online: list[socket.socket] = []

    def come() -> None:
        for number in range(size):
            will = Will("dev/1", b"gone", 1, retain=False)
            connect = client.connect(5, f"device-{number}", keep_alive=0, clean_start=False, will=will)
            connect.properties[prop.SESSION_EXPIRY_INTERVAL] = 3600
            online.append(gateway.open())
            online[-1].sendall(client.encode_connect(connect))
        for sock in online:
            read(sock, read(sock, 2)[1])

    def lose_power(wills: int) -> None:
        while online:
            online.pop().close()
        while call(gateway, "GET", "/queues/A")["depth"] < wills:
            time.sleep(0.05)

    for wills in (size, 2 * size):
        yield "they come at once", come
        yield "they lose power", lambda wills=wills: lose_power(wills)
    yield "stopped", gateway.running.stop
    yield "started", gateway.running.start


def measure(name: str, size: int, folder: str | None) -> None:
    """One size."""
    act, rules, _ = SCENES[name]
    with tempfile.TemporaryDirectory(prefix="operating-", dir=folder) as directory:
        attacked = Attacked(Path(directory), SETTINGS)
        attacked.running.start_seconds = 300.0
        write_rules(attacked, rules(size))
        (attacked.running.directory / "objects.mqsc").write_text(OBJECTS)
        with attacked.serve():
            for what, call in act(attacked, size):
                since, begun = attacked.turns.stat().st_size, time.monotonic()
                try:
                    call()
                    failed = ""
                except Exception as error:  # noqa: BLE001 -- the others are measured all the same
                    failed = f" FAILED {error!r}"
                took = time.monotonic() - begun
                turn = attacked.longest(since)
                said = f"(clock {turn.seconds * 1000:.0f} ms) {turn.doing} {turn.at}" if turn.computed else ""
                print(
                    f"| {name} {size:,} | {what}{failed} | {took:.2f} s | {turn.computed * 1000:.0f} ms {said} |",
                    flush=True,
                )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression")
    parser.add_argument("--sizes", type=int, nargs="*", help="these instead")
    parser.add_argument("--folder", help="where the gateway has its files")
    given = parser.parse_args()
    print("| beside | call | took | longest turn |\n|---|---|---|---|")
    for name, (_, _, sizes) in SCENES.items():
        if re.search(given.only, name):
            for size in given.sizes or sizes:
                measure(name, size, given.folder)


if __name__ == "__main__":
    main()
