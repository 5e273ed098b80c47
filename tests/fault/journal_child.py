"""The process that the kill tests kill: commits at random to a store and says on standard output what it is about to
do and did.

Run as `python journal_child.py DIRECTORY SEED`. Each line is JSON: {"n", "put": [[queue, id]...], "take": [[queue,
id]...], "move": [[from, to, id]...]} before the write, {"done": n} after apply. Bodies begin with the id, so that the
parent can count.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.store.unit import LaneMoves, LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
OPTIONS = StoreOptions(segment_bytes=256 * 1024, spare_segments=2, cache_bytes=50_000)
QUEUES = ["A", "B", "C"]


def say(line: dict[str, object]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def identity(body: bytes) -> int:
    return int(body[:12])


def body_of(number: int, dice: random.Random) -> bytes:
    return b"%012d" % number + b"x" * dice.choice([0, 50, 50, 500, 3000])


class Child:
    """One life of the process."""

    def __init__(self, path: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.store = Store.open(path, clock=lambda: 1.0, options=OPTIONS)
        last = self.store.state().get(b"last")
        self.number = int(last or b"0")
        self.next_id = int(self.store.state().get(b"next id") or b"0")

    def run(self) -> None:
        while True:
            prepared = [self.prepare() for _ in range(self.dice.choice([1, 1, 2]))]
            for each in prepared:
                self.store.write(each)
            for each in prepared:
                self.store.apply(each)
                say({"done": int(each.unit.state[b"last"] or b"0")})
            step = self.store.maintain(1.0)
            if step is not None:
                self.store.write(step)
                self.store.apply(step)

    def prepare(self) -> Prepared:
        dice = self.dice
        self.number += 1
        unit = StoreUnit()
        line: dict[str, object] = {"n": self.number}
        count = dice.choice([0, 1, 1, 5, 30])
        if count:
            ids = range(self.next_id, self.next_id + count)
            queue = dice.choice(QUEUES)
            puts = LanePuts(queue, priority=dice.choice([0, 4]), heads=[HEAD] * count)
            puts.bodies = [body_of(each, dice) for each in ids]
            unit.puts.append(puts)
            line["put"] = [[queue, each] for each in ids]
            self.next_id += count
        queue = dice.choice(QUEUES)
        messages = self.store.fetch(queue, limit=60)
        leaving = messages[: dice.choice([0, 10, 60])] if dice.random() < 0.7 else messages[::7]
        if leaving and dice.random() < 0.3:
            to = dice.choice(QUEUES)
            unit.moves.append(LaneMoves(queue, b"", [m.token for m in leaving], to))
            line["move"] = [[queue, to, identity(m.body)] for m in leaving]
        elif leaving:
            unit.takes.append(LaneTakes(queue, b"", [m.token for m in leaving]))
            line["take"] = [[queue, identity(m.body)] for m in leaving]
        unit.state = {b"last": b"%d" % self.number, b"next id": b"%d" % self.next_id}
        say(line)
        return self.store.prepare(unit, 1.0)


if __name__ == "__main__":
    Child(Path(sys.argv[1]), int(sys.argv[2])).run()
