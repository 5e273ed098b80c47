"""The store against plain lists: puts, takes, moves, locks, state, crashes and restarts give the same queues."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.store.unit import Backout, LaneMoves, LanePuts, LaneTakes, StoreUnit

pytestmark = pytest.mark.timeout(1800 if os.environ.keys() & {"MQGATE_LONG", "MQGATE_EXPLORE"} else 120)
OPTIONS = StoreOptions(
    segment_bytes=64 * 1024, spare_segments=1, direct=False, background=False, cache_bytes=20_000, volatile_bytes=2_000
)
QUEUES = ["A", "B"]
KEYS = [b"", b"k1", b"k2"]
HEADS = [b"%d" % i * 364 for i in range(3)]
LANES = st.tuples(st.sampled_from(QUEUES), st.sampled_from(KEYS), st.sampled_from([0, 4, 9]))
BODIES = st.lists(st.binary(max_size=40) | st.just(b"L" * 6000), min_size=1, max_size=6)


@dataclass
class Row:
    """One message of the model."""

    order: int
    priority: int
    head: bytes
    body: bytes
    persistent: bool
    backout: int = 0
    locked: bool = False


@dataclass
class Model:
    """Queues as dictionaries from token to row."""

    lanes: dict[tuple[str, bytes], dict[int, Row]] = field(default_factory=dict)
    state: dict[bytes, bytes] = field(default_factory=dict)
    orders: int = 0

    def add(self, queue: str, key: bytes, token: int, row: Row) -> None:
        self.orders += 1
        row.order = self.orders
        self.lanes.setdefault((queue, key), {})[token] = row

    def listed(self, queue: str, key: bytes) -> list[tuple[int, Row]]:
        rows = self.lanes.get((queue, key), {})
        return sorted(rows.items(), key=lambda item: (-item[1].priority, item[1].order))

    def after_restart(self) -> None:
        for rows in self.lanes.values():
            for token in [token for token, row in rows.items() if not row.persistent]:
                del rows[token]
            for row in rows.values():
                row.locked = False


class StoreMachine(RuleBasedStateMachine):
    """Several units may be under way at once; each becomes part of the model when it is applied."""

    @initialize()
    def start(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="store"))
        self.model = Model()
        self.under_way: list[tuple[Prepared, list[object]]] = []
        self.now = 1.0
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.path, clock=lambda: self.now, options=OPTIONS)

    def submit(self, unit: StoreUnit, *then: object) -> None:
        self.now += 1
        at_once = not self.under_way and self.now % 2 == 0
        self.under_way.append((self.store.prepare(unit, self.now, at_once=at_once), list(then)))
        if at_once or len(self.under_way) > 2:
            self.finish()

    @rule()
    def finish(self) -> None:
        """Write and apply everything prepared."""
        for prepared, _then in self.under_way:
            self.store.write(prepared)
        for prepared, then in self.under_way:
            self.store.apply(prepared)
            for effect in then:
                effect()  # type: ignore[operator]
        self.under_way = []

    @rule(
        lanes=st.lists(st.tuples(LANES, BODIES), min_size=1, max_size=3),
        persistent=st.booleans(),
        head=st.sampled_from(HEADS),
    )
    def put(self, lanes: list, persistent: bool, head: bytes) -> None:
        unit = StoreUnit()
        for (queue, key, priority), bodies in lanes:
            unit.puts.append(LanePuts(queue, key, priority, persistent, [head] * len(bodies), bodies))

        def effect() -> None:
            for puts in unit.puts:
                for token, body in zip(puts.tokens, puts.bodies, strict=True):
                    self.model.add(puts.queue, puts.key, token, Row(0, puts.priority, head, body, persistent))

        self.submit(unit, effect)

    @rule(priority=st.sampled_from([0, 9]), lanes=st.lists(st.sampled_from(QUEUES), min_size=2, max_size=3))
    def put_one_body_to_many(self, priority: int, lanes: list[str]) -> None:
        body = b"shared by all"
        unit = StoreUnit(puts=[LanePuts(queue, b"k1", priority, True, [HEADS[0]], [body]) for queue in lanes])

        def effect() -> None:
            for puts in unit.puts:
                self.model.add(puts.queue, b"k1", puts.tokens[0], Row(0, priority, HEADS[0], body, True))

        self.submit(unit, effect)

    @rule(lane=LANES, data=st.data())
    def take(self, lane: tuple[str, bytes, int], data: st.DataObject) -> None:
        queue, key, _priority = lane
        listed = [token for token, _row in self.model.listed(queue, key)]
        if not listed:
            return
        chosen = data.draw(st.lists(st.sampled_from(listed), max_size=8) | st.just(listed[:5]) | st.just(listed))
        leaving = [token for token in dict.fromkeys(chosen) if token not in self.leaving(queue, key)]
        unit = StoreUnit(takes=[LaneTakes(queue, key, chosen)])

        def effect() -> None:
            for token in leaving:
                del self.model.lanes[queue, key][token]

        self.submit(unit, effect)
        prepared = self.under_way[-1][0] if self.under_way else None
        if prepared is not None and prepared.unit is unit:
            assert set(prepared.missing) == set(chosen) - set(leaving)

    def leaving(self, queue: str, key: bytes) -> set[int]:
        gone: set[int] = set()
        for prepared, _then in self.under_way:
            for take in [*prepared.unit.takes, *prepared.unit.moves]:
                if (take.queue, take.key) == (queue, key):
                    gone.update(take.tokens)
        return gone

    @rule(lane=LANES, to=LANES, count=st.integers(1, 5), keep=st.booleans(), rewrite=st.booleans())
    def move(
        self, lane: tuple[str, bytes, int], to: tuple[str, bytes, int], count: int, keep: bool, rewrite: bool
    ) -> None:
        self.finish()
        queue, key, _priority = lane
        moving = self.model.listed(queue, key)[:count]
        if not moving:
            return
        heads = [HEADS[2]] * len(moving) if rewrite else None
        tokens = [token for token, _row in moving]
        move = LaneMoves(queue, key, tokens, to[0], to[1], None if keep else to[2], heads)

        def effect() -> None:
            assert len(move.new_tokens) == len(tokens)
            new = dict(zip(tokens, move.new_tokens, strict=True))
            for token in tokens:
                row = self.model.lanes[queue, key].pop(token)
                self.model.add(to[0], to[1], new[token], row)
                row.locked = False
                if not keep:
                    row.priority = to[2]
                if rewrite:
                    row.head, row.backout = HEADS[2], 0
            # non-persistent messages are numbered behind persistent ones of the same unit
            for offset, token in enumerate(sorted(move.new_tokens, key=lambda t: t & (1 << 60) - 1)):
                self.model.lanes[to[0], to[1]][token].order = self.model.orders + offset
            self.model.orders += len(tokens)

        self.submit(StoreUnit(moves=[move]), effect)

    @rule(lane=LANES, times=st.integers(1, 9))
    def back_out(self, lane: tuple[str, bytes, int], times: int) -> None:
        self.finish()
        listed = self.model.listed(lane[0], lane[1])
        if listed:
            token, row = listed[0]
            self.submit(StoreUnit(backouts=[Backout(lane[0], lane[1], token, times)]))
            self.finish()
            row.backout = times

    @rule(lane=LANES, count=st.integers(1, 4))
    def lock(self, lane: tuple[str, bytes, int], count: int) -> None:
        self.finish()
        rows = self.model.listed(lane[0], lane[1])[:count]
        self.store.lock(lane[0], lane[1], [token for token, _row in rows])
        for _token, row in rows:
            row.locked = True

    @rule(lane=LANES)
    def unlock(self, lane: tuple[str, bytes, int]) -> None:
        rows = [(token, row) for token, row in self.model.listed(lane[0], lane[1]) if row.locked]
        self.finish()
        rows = [(token, row) for token, row in rows if token in self.model.lanes.get((lane[0], lane[1]), {})]
        self.store.unlock(lane[0], lane[1], [token for token, _row in rows])
        for _token, row in rows:
            row.locked = False

    @rule(key=st.sampled_from([b"s1", b"s2", b"s3"]), value=st.none() | st.binary(max_size=20))
    def set_state(self, key: bytes, value: bytes | None) -> None:
        def effect() -> None:
            if value is None:
                self.model.state.pop(key, None)
            else:
                self.model.state[key] = value

        self.submit(StoreUnit(state={key: value}), effect)

    @rule(steps=st.integers(1, 6))
    def maintain(self, steps: int) -> None:
        """Housekeeping changes nothing that can be seen, whatever else is under way."""
        for _ in range(steps):
            prepared = self.store.maintain(self.now)
            if prepared is not None:
                self.under_way.append((prepared, []))

    @rule()
    def restart(self) -> None:
        self.finish()
        self.store.close()
        self.model.after_restart()
        self.open()

    @rule()
    def crash(self) -> None:
        """Whatever was not written is not there."""
        self.under_way = []
        self.store.ring.close()
        assert self.store._lock is not None
        self.store._lock.release()
        self.model.after_restart()
        self.open()

    @rule()
    def give_up(self) -> None:
        """What was prepared is not written after all."""
        if self.under_way:
            self.store.generation += 1
            self.store._failed = True
            for prepared, _then in self.under_way:
                self.store.abort(prepared)
            self.under_way = []

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "store") or self.under_way:
            return
        for queue in QUEUES:
            for key in KEYS:
                expected = self.model.listed(queue, key)
                found = self.store.fetch(queue, key, limit=10_000, locked=True)
                assert [(m.token, m.head, m.body, m.backout) for m in found] == [
                    (token, row.head, row.body, row.backout) for token, row in expected
                ]
                free = self.store.fetch(queue, key, limit=10_000)
                assert [m.token for m in free] == [token for token, row in expected if not row.locked]
                assert self.store.tokens(queue, key) == [m.token for m in free]
                assert self.store.depth(queue, key) == len(expected)
            known = self.store.index.queues.get(queue)
            depth = known.depth if known is not None else 0
            assert depth == sum(len(self.model.listed(queue, key)) for key in KEYS)
        assert self.store.state() == self.model.state

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.path)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(settings.default, stateful_step_count=40)
