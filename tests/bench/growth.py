"""How the cost of a message grows: `python tests/bench/growth.py [--json FILE] [--scale 1.0]`.

For each dimension the processor time of a QoS 1 publication (rule, descriptor, MQRFH2, journal, acknowledgement) at a
size and at a hundredth of it, in this process, in turns. `--scale 0.1` is a quicker run with a tenth of every size.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from inside import Inside, cost, publications
from run import OBJECTS, SETTINGS

from gateway.mqtt import client
from gateway.mqtt import packets as p

RULE = "  - {name: bench, topic: 'dev/{device}/{kind}', queue: BENCH.IN, headers: [mqps, mqtt]}\n"
CLIENTS, WINDOW, ROUNDS = 10, 100, 30
LIMITS = SETTINGS.replace("mqtt: {", "mqtt: {max_sessions: 200000, max_subscriptions: 200000, ")


@contextmanager
def opened(mapping: str = RULE) -> Iterator[Inside]:
    """A gateway's inside on a directory that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="growth-") as name:
        inside = Inside(Path(name), LIMITS, "version: 1\nto_mq:\n" + mapping, OBJECTS)
        try:
            yield inside
        finally:
            inside.close()


def message(inside: Inside) -> float:
    """The cost of a publication now."""
    connections = [inside.connect(f"client{number}") for number in range(CLIENTS)]
    batch = [
        (connection, publications([f"dev/{number}/temp"] * WINDOW, bytes(64)))
        for number, connection in enumerate(connections)
    ]
    inside.feed(batch)
    return cost(inside, [batch] * ROUNDS, ROUNDS * CLIENTS * WINDOW)


def rules(size: int) -> float:
    """That many rules, the matching one last."""
    others = "".join(f"  - {{name: r{n}, topic: 'area{n}/{{device}}/+', queue: BENCH.IN}}\n" for n in range(size - 1))
    with opened(others + RULE) as inside:
        return message(inside)


def subscriptions(size: int) -> float:
    """That many subscriptions of one client to other topics."""
    with opened() as inside:
        holder = inside.connect("holder")
        for start in range(0, size, 1000):
            filters = [p.Subscription(f"other/{n}/+", 0) for n in range(start, min(size, start + 1000))]
            inside.feed([(holder, client.encode_subscribe(4, p.Subscribe(1, filters)))])
        return message(inside)


def depth(size: int) -> float:
    """That many messages on the queue already."""
    with opened() as inside:
        filler = inside.connect("filler")
        chunk = publications(["dev/filler/temp"] * 1000, bytes(64))
        for _ in range(size // 1000):
            inside.feed([(filler, chunk)])
        return message(inside)


def sessions(size: int) -> float:
    """That many stored sessions whose clients are away."""
    with opened() as inside:
        for start in range(0, size, 1000):
            names = [f"away{number}" for number in range(start, min(size, start + 1000))]
            for connection in inside.connect_all(names, clean=False):
                inside.engine.closed(connection)
            inside.settle()
        return message(inside)


DIMENSIONS: dict[str, tuple[Callable[[int], float], int]] = {
    "rules": (rules, 10_000),
    "subscriptions": (subscriptions, 100_000),
    "messages on the queue": (depth, 1_000_000),
    "stored sessions": (sessions, 100_000),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="", help="a part of the name of what grows")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = {}
    print("| what grows | from | to | us a message | us a message | growth |\n|---|---|---|---|---|---|")
    for name, (measure, full) in DIMENSIONS.items():
        if given.only not in name:
            continue
        size = int(full * given.scale)
        little, much = measure(max(1, size // 100)), measure(size)
        found[name] = {"size": size, "little": little, "much": much, "growth": much / little}
        print(f"| {name} | {size // 100:,} | {size:,} | {little:.2f} | {much:.2f} | {much / little:.2f} |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
