"""What other gateways on the same state queues cost a publication: `python tests/bench/beside_gateways.py [--turns N]`.

Processor time of the broker alone for an acknowledged publication of 64 bytes that a rule puts on a queue, without and
with a subscriber at another gateway: the least of many short runs, in which the cases take turns, so that what else the
machine does hardly matters. The queue manager is one in memory that keeps nothing: this is the share of the broker, and
of a whole publication it is less. Then the same for the gateway of the subscriber, who is away.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from several_brokers import Estate  # noqa: E402

from gateway.mqtt import packets, writer  # noqa: E402
from gateway.ports.batch import Stored, Unit  # noqa: E402
from gateway.ports.state_queues import FORWARD, GATEWAYS, OUT, STAGED  # noqa: E402

MAPPING = 'version: 1\nto_mq:\n  - {name: up, topic: "bench/#", queue: APP.Q%s}\n'
STAMPED = ', properties: {received: "{received_at}"}'
USERS = b"\x26\x00\x04site\x00\x04lima\x26\x00\x04line\x00\x017\x26\x00\x03seq\x00\x06%06d"
ROUNDS, TURNS = 5, 12


class Shape(NamedTuple):
    """What devices send in one round."""

    devices: int
    window: int
    version: int = 4
    qos: int = 1
    retain: bool = False
    properties: bytes = b""
    stamped: bool = False


SHAPES = {
    name + shape: Shape(devices, window, **more)  # type: ignore[arg-type]
    for name, more in {
        "QoS 0": {"qos": 0},
        "QoS 1": {},
        "QoS 2": {"qos": 2},
        "QoS 1, time of receipt": {"stamped": True},
        "QoS 1, RETAIN": {"retain": True},
        "QoS 0, 3 user properties": {"version": 5, "qos": 0, "properties": USERS},
        "QoS 1, 3 user properties": {"version": 5, "properties": USERS},
        "QoS 2, 3 user properties": {"version": 5, "qos": 2, "properties": USERS},
        "QoS 1, expiry and 3 properties": {"version": 5, "properties": b"\x02\x00\x00\x0e\x10" + USERS},
    }.items()
    for shape, (devices, window) in {" 10 x 100": (10, 100), " 100 x 1": (100, 1)}.items()
}
PLACES = {"one gateway": (1, ""), "three, nobody there": (3, "other/#"), "three, one subscriber there": (3, "bench/#")}


class Case:
    """Gateways, and devices at the first."""

    def __init__(self, shape: Shape, gateways: int, filter_: str) -> None:
        self.shape = shape
        estate = Estate()
        mapping = MAPPING % (STAMPED if shape.stamped else "")
        most = {"max_queued": 1_000_000, "max_retained": 1_000_000}
        nodes = [estate.start(mapping=mapping, **most) for _ in range(gateways)]
        if gateways > 1:
            self.subscriber = nodes[1].bench.device(5, "elsewhere")
            self.subscriber.connect(clean=False)
            estate.settle(0.5)
            self.subscriber.subscribe(filter_, 2)
            estate.settle(0.5)
        self.estate, self.node = estate, nodes[0]
        devices = [self.node.bench.device(shape.version, f"load-{number}") for number in range(shape.devices)]
        for device in devices:
            device.connect()
        estate.settle(0.5)
        self.written = 0
        for device in devices:
            device.wire.write = self._written  # type: ignore[method-assign]
        released = b"".join(writer.encode_acks(packets.PUBREL, [1 + at]) for at in range(shape.window))
        self.rounds = [[(one.connection, self._data(number)) for number, one in enumerate(devices)]]
        if shape.qos == 2:
            self.rounds.append([(device.connection, released) for device in devices])
        self.node.queues._apply = self._forget  # type: ignore[method-assign]
        self.least = float("inf")

    def _data(self, number: int) -> bytes:
        """What one device sends."""
        shape, block = self.shape, self.shape.properties
        return b"".join(
            writer.encode_publish(
                shape.version, b"bench/a", bytes(64), shape.qos, retain=shape.retain,
                packet_id=1 + at if shape.qos else 0, properties=block % (number * 1000 + at) if block else b"",
            )
            for at in range(shape.window)
        )  # fmt: skip

    def _written(self, data: bytes) -> None:
        self.written += len(data)

    def _forget(self, unit: Unit) -> None:
        """Nothing is kept; what is staged gets tokens."""
        for puts in unit.puts:
            if puts.queue == STAGED:
                first = next(self.node.queues._tokens)
                puts.tokens = range(first, first + len(puts.heads))
            else:
                assert puts.queue in {"APP.Q", FORWARD, GATEWAYS}

    def run(self) -> None:
        """Some rounds; every publication is acknowledged."""
        engine, shape, begun = self.node.bench.engine, self.shape, time.process_time()
        self.written = 0
        for _ in range(ROUNDS):
            for arrived in self.rounds:
                engine.received_each(list(arrived))
                engine.flush()
                while self.node.commit():
                    pass
        publications = ROUNDS * shape.devices * shape.window
        self.least = min(self.least, (time.process_time() - begun) / publications)
        assert self.written == 4 * shape.qos * publications, (self.written, publications)


class Reading:
    """The gateway of a subscriber who is away, and what has been put for it."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        case = Case(shape, *PLACES["three, one subscriber there"])
        del case.node.queues._apply
        for _ in range(ROUNDS):
            for arrived in case.rounds:
                case.node.bench.engine.received_each(list(arrived))
                case.node.bench.engine.flush()
                while case.node.commit():
                    pass
        self.node = list(case.estate.nodes.values())[1]
        self.session = self.node.bench.engine.context.sessions.get("elsewhere")
        case.subscriber.drop()
        while self.node.commit():
            pass
        rows = case.estate.rows[FORWARD]
        self.rows = [Stored(token, row[2], row[3]) for token, row in rows.items()]
        rows.clear()
        self.tokens = itertools.count(1_000_000)
        self.stored = self.taken = 0
        self.node.queues._apply = self._forget
        self.least = float("inf")

    def _forget(self, unit: Unit) -> None:
        self.stored += sum(len(puts.heads) for puts in unit.puts if puts.queue == OUT)
        self.taken += sum(len(takes.tokens) for takes in unit.takes)

    def run(self) -> None:
        """All of it is read."""
        queues = self.node.queues
        queues._ahead = [stored._replace(token=next(self.tokens)) for stored in self.rows]
        self.stored = self.taken = self.session.stored = self.session.stored_bytes = 0
        queues.arrived()
        begun = time.process_time()
        while self.taken < len(self.rows):
            self.node.turn()
            self.node.commit()
        self.least = min(self.least, (time.process_time() - begun) / len(self.rows))
        assert self.stored == (len(self.rows) if self.shape.qos else 0)


def main() -> None:
    """Print what each case costs, and against the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--only", default="", help="shapes whose name begins so")
    arguments = parser.parse_args()
    for name, shape in SHAPES.items():
        if not name.startswith(arguments.only):
            continue
        cases = {place: Case(shape, *how) for place, how in PLACES.items()}
        gc.disable()
        reading = Reading(shape)
        for _ in range(arguments.turns):
            for case in (*cases.values(), reading):
                case.run()
        gc.enable()
        one, nobody, wanted = (case.least * 1e6 for case in cases.values())
        print(
            f"{name}: {one:.2f} us, nobody there {nobody / one - 1:+.1%}, a subscriber there {wanted - one:+.2f} us, "
            f"who gets it for {reading.least * 1e6:.2f} us"
        )


if __name__ == "__main__":
    main()
