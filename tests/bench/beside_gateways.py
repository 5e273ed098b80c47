"""What other gateways on the same state queues cost a publication: `python tests/bench/beside_gateways.py`.

Processor time of the broker alone for an acknowledged QoS 1 publication of 64 bytes that a rule puts on a queue, ten
devices with a hundred at a time: the least of many short runs, in which the cases take turns, so that what else the
machine does hardly matters. The queue manager is one in memory that keeps nothing: this is the share of the broker, and
of a whole publication it is less.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from several_brokers import Estate  # noqa: E402

from gateway.mqtt import writer  # noqa: E402
from gateway.ports.batch import Unit  # noqa: E402
from gateway.ports.state_queues import FORWARD  # noqa: E402

MAPPING = 'version: 1\nto_mq:\n  - {name: up, topic: "bench/#", queue: APP.Q}\n'
CASES = {
    "one gateway": (1, ""),
    "three, nobody subscribes": (3, ""),
    "three, a subscriber to another topic at another one": (3, "other/#"),
    "three, a subscriber to this topic at another one": (3, "bench/#"),
}
ROUNDS, PUBLICATIONS, TURNS = 5, 1000, 20


class Case:
    """Gateways, and ten devices at the first."""

    def __init__(self, gateways: int, filter_: str) -> None:
        estate = Estate()
        nodes = [estate.start(mapping=MAPPING) for _ in range(gateways)]
        if filter_:
            subscriber = nodes[1].bench.device(5, "elsewhere")
            subscriber.connect(clean=False)
            estate.settle(0.5)
            subscriber.subscribe(filter_, 1)
            estate.settle(0.5)
        self.node = nodes[0]
        devices = [self.node.bench.device(4, f"load-{number}") for number in range(10)]
        for device in devices:
            device.connect()
        estate.settle(0.5)
        data = b"".join(writer.encode_publish(4, b"bench/a", bytes(64), 1, packet_id=1 + at) for at in range(100))
        self.written = 0
        for device in devices:
            device.wire.write = self._written  # type: ignore[method-assign]
        self.arrived = [(device.connection, data, 0) for device in devices]
        self.node.queues._apply = self._forget  # type: ignore[method-assign]
        self.least = float("inf")

    def _written(self, data: bytes) -> None:
        self.written += len(data)

    @staticmethod
    def _forget(unit: Unit) -> None:
        for puts in unit.puts:
            assert puts.queue in {"APP.Q", FORWARD}

    def run(self) -> None:
        """Some rounds; every publication is acknowledged."""
        engine, begun = self.node.bench.engine, time.process_time()
        self.written = 0
        for _ in range(ROUNDS):
            engine.received_each([(connection, data) for connection, data, _ in self.arrived])
            engine.flush()
            while self.node.commit():
                pass
        self.least = min(self.least, (time.process_time() - begun) / (ROUNDS * PUBLICATIONS))
        assert self.written == 4 * ROUNDS * PUBLICATIONS


def main() -> None:
    """Print what each case costs, and against the first."""
    cases = {name: Case(*how) for name, how in CASES.items()}
    gc.disable()
    for _ in range(TURNS):
        for case in cases.values():
            case.run()
    first = cases["one gateway"].least
    for name, case in cases.items():
        print(f"{name}: {case.least * 1e6:.2f} us a publication, {case.least / first - 1:+.1%}")


if __name__ == "__main__":
    main()
