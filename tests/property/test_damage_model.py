"""Messages of which the disk damages some while they are read: whoever reads a queue gets all others, in their order,
whatever has been passed before."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gateway.queue_manager.batch import damage as damage_of_batches
from gateway.queue_manager.batch.damage import PASSED_SECONDS, Damage
from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.journal.layout import BLOCK
from gateway.queue_manager.store.place import NUMBER_BITS, NUMBER_MASK, ROW_BITS, VOLATILE, block_of, slot_of
from gateway.queue_manager.store.unit import LaneMoves, LanePuts, LaneTakes, StoreUnit

pytestmark = pytest.mark.timeout(1800 if os.environ.keys() & {"MQGATE_LONG", "MQGATE_EXPLORE"} else 120)
OPTIONS = StoreOptions(segment_bytes=64 * 1024, spare_segments=1, direct=False, background=False, cache_bytes=0)
QUEUE = "Q"
KEYS = st.sampled_from([b"", b"k"])
PRIORITIES = st.sampled_from([0, 4, 4, 4, 9])
HEAD = b"h" * 364


class DamagedQueue(RuleBasedStateMachine):
    """What is expected is what a look at every message finds whole."""

    @initialize()
    def start(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="damage"))
        self.store = Store.open(self.path, clock=lambda: 1.0, options=OPTIONS)
        self.damage = Damage(self.store)
        self.under_way: list[Prepared] = []
        self.elapsed = 0.0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(damage_of_batches, "monotonic", lambda: self.elapsed)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()
            self.store.close()
            shutil.rmtree(self.path)

    def tokens(self, key: bytes) -> list[int]:
        return [one.token for one in self.store.fetch_around_damage(QUEUE, key, 10_000)[0]]

    def begin(self, unit: StoreUnit) -> None:
        """Others may begin, and what is not persistent be there, before it is."""
        prepared = self.store.prepare(unit, 1.0)
        if prepared.position is None:
            self.store.write(prepared)
            self.store.apply(prepared)
        else:
            self.under_way.append(prepared)

    @rule()
    def finish(self) -> None:
        for prepared in self.under_way:
            self.store.write(prepared)
            self.store.apply(prepared)
        self.under_way = []

    @rule(key=KEYS, priority=PRIORITIES, count=st.integers(1, 3), frames=st.integers(1, 6), kept=st.booleans())
    def put(self, key: bytes, priority: int, count: int, frames: int, kept: bool) -> None:
        for _ in range(frames):
            self.begin(StoreUnit([LanePuts(QUEUE, key, priority, kept, [HEAD] * count, [b"body"] * count)]))

    @rule(key=KEYS, at=st.integers(0, 30), many=st.integers(1, 6))
    def take(self, key: bytes, at: int, many: int) -> None:
        self.begin(StoreUnit(takes=[LaneTakes(QUEUE, key, self.tokens(key)[at : at + many])]))

    @rule(key=KEYS, to=KEYS, priority=PRIORITIES, at=st.integers(0, 10))
    def move(self, key: bytes, to: bytes, priority: int, at: int) -> None:
        self.begin(StoreUnit(moves=[LaneMoves(QUEUE, key, self.tokens(key)[at : at + 2], QUEUE, to, priority)]))

    @rule(key=KEYS, at=st.integers(0, 30), locked=st.booleans())
    def lock(self, key: bytes, at: int, locked: bool) -> None:
        (self.store.lock if locked else self.store.unlock)(QUEUE, key, self.tokens(key)[at : at + 3])

    @rule(key=KEYS, at=st.integers(0, 30), many=st.integers(1, 12))
    def damage_some(self, key: bytes, at: int, many: int) -> None:
        for token in self.tokens(key)[at : at + many]:
            lane = self.store.index.find((QUEUE, key, token >> NUMBER_BITS))
            assert lane is not None
            frame = lane.place(token & NUMBER_MASK) >> ROW_BITS
            if not frame & VOLATILE:
                with self.store.ring.used[slot_of(frame)].path.open("r+b") as file:
                    file.seek(block_of(frame) * BLOCK + 100)
                    file.write(b"damaged")

    @rule(seconds=st.sampled_from([1.0, PASSED_SECONDS]))
    def wait(self, seconds: float) -> None:
        self.elapsed += seconds

    @rule()
    def tell(self) -> None:
        self.damage.untold()

    @rule(key=KEYS, limit=st.integers(1, 4), at=st.none() | st.integers(0, 30))
    def fetch(self, key: bytes, limit: int, at: int | None) -> None:
        found, damaged = self.store.fetch_around_damage(QUEUE, key, 10_000)
        after = None if at is None or at >= len(found) else found[at].token
        whole = [one.token for one in found if one.token not in damaged and (after is None or one.token > after)]
        got = [one.token for one in self.damage.fetch(QUEUE, key, limit, after)]
        assert got == whole[: len(got)]
        assert len(got) <= limit
        assert bool(got) == bool(whole)


TestDamagedQueue = DamagedQueue.TestCase
TestDamagedQueue.settings = settings(settings.default, stateful_step_count=40)
