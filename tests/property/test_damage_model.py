"""Messages of which the disk damages some while they are read: whoever reads a queue gets all others, in their order,
whatever has been passed before."""

from __future__ import annotations

import os
from contextlib import closing
from itertools import compress
from pathlib import Path
from random import Random

import pytest

from gateway.queue_manager.batch import damage as damage_of_batches
from gateway.queue_manager.batch.damage import PASSED_SECONDS, Damage
from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.journal.layout import BLOCK
from gateway.queue_manager.journal.read_ahead import ReadAhead
from gateway.queue_manager.store.place import NUMBER_BITS, NUMBER_MASK, ROW_BITS, VOLATILE, block_of, slot_of
from gateway.queue_manager.store.unit import LaneMoves, LanePuts, LaneTakes, StoreUnit

OPTIONS = StoreOptions(segment_bytes=64 * 1024, spare_segments=1, direct=False, background=False, cache_bytes=0)
QUEUE = "Q"
KEYS = [b"", b"", b"", b"k"]
PRIORITIES = [4, 4, 4, 0, 9]
STEPS = 200
SEEDS = 200 if os.environ.get("MQGATE_LONG") else 5


class DamagedQueue:
    """Random steps. What is expected is what a look at every message finds whole."""

    def __init__(self, path: Path, random: Random) -> None:
        self.store = Store.open(path, clock=lambda: 1.0, options=OPTIONS)
        self.damage = Damage(self.store)
        self.under_way: list[Prepared] = []
        self.elapsed = 0.0
        self.random = random
        self.steps = [self.put, self.put, self.take, self.take, self.move, self.lock, self.damage_some, self.wait]

    def step(self) -> None:
        key = self.random.choice(KEYS)
        self.random.choice(self.steps)(key)
        if self.random.random() < 0.5:
            self.finish()
        for _ in range(2):
            self.go_through(key)

    def tokens(self, key: bytes, most: int = 10_000) -> list[int]:
        """Of so many, from any on."""
        found = [one.token for one in self.store.fetch_around_damage(QUEUE, key, 10_000)[0]]
        at = self.random.randrange(len(found) + 1) if most < len(found) else 0
        return found[at : at + most]

    def begin(self, unit: StoreUnit) -> None:
        """Others may begin, and what is not persistent be there, before it is."""
        prepared = self.store.prepare(unit, 1.0)
        if prepared.position is None:
            self.store.apply(prepared)
        else:
            self.under_way.append(prepared)

    def finish(self) -> None:
        for prepared in self.under_way:
            self.store.write(prepared)
            self.store.apply(prepared)
        self.under_way = []

    def put(self, key: bytes) -> None:
        priority, kept, count = (
            self.random.choice(PRIORITIES),
            self.random.random() < 0.8,
            self.random.choice([1, 1, 3]),
        )
        for _ in range(self.random.randrange(1, 9)):
            self.begin(StoreUnit([LanePuts(QUEUE, key, priority, kept, [b"h" * 364] * count, [b"body"] * count)]))

    def take(self, key: bytes) -> None:
        most = self.random.choice([1, 3, 8])
        first = self.tokens(key)[:most]
        self.begin(StoreUnit(takes=[LaneTakes(QUEUE, key, self.random.choice([first, self.tokens(key, most)]))]))

    def move(self, key: bytes) -> None:
        to, priority = self.random.choice(KEYS), self.random.choice(PRIORITIES)
        self.begin(StoreUnit(moves=[LaneMoves(QUEUE, key, self.tokens(key, 2), QUEUE, to, priority)]))

    def lock(self, key: bytes) -> None:
        self.random.choice([self.store.lock, self.store.unlock])(QUEUE, key, self.tokens(key, 3))

    def damage_some(self, key: bytes) -> None:
        for token in compress(self.tokens(key), [self.random.random() < 0.6 for _ in range(12)]):
            lane = self.store.index.find((QUEUE, key, token >> NUMBER_BITS))
            assert lane is not None
            frame = lane.place(token & NUMBER_MASK) >> ROW_BITS
            if not frame & VOLATILE:
                with self.store.ring.used[slot_of(frame)].path.open("r+b") as file:
                    file.seek(block_of(frame) * BLOCK + 100)
                    file.write(b"damaged")
        self.store.reader._ahead = ReadAhead()  # what has been read is whole

    def wait(self, _key: bytes) -> None:
        self.elapsed += self.random.choice([1.0, PASSED_SECONDS])
        self.damage.untold()

    def go_through(self, key: bytes) -> None:
        """From the first on, or from one of them, some at a time."""
        found, damaged = self.store.fetch_around_damage(QUEUE, key, 10_000)
        after = self.random.choice([None, *(one.token for one in found[:5])])
        limit = self.random.choice([1, 2, 5])
        whole = [one.token for one in found if one.token not in damaged and (after is None or one.token > after)]
        while True:
            got = [one.token for one in self.damage.fetch(QUEUE, key, limit, after)]
            assert got == whole[: len(got)]
            assert len(got) <= limit
            if not got:
                break
            whole, after = whole[len(got) :], got[-1]
        assert not whole


@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_reads_gets_all_that_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    queue = DamagedQueue(tmp_path / "data", Random(seed))
    monkeypatch.setattr(damage_of_batches, "monotonic", lambda: queue.elapsed)
    with closing(queue.store):
        for _ in range(STEPS):
            queue.step()
        queue.finish()
