"""A target whose queues are consumed, in memory: messages that are got and not committed are seen by nobody else, and
come again when the connection is lost. Everything happens when the test says so.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.ports.batch import Done, Outcome, Stored, Token, Unit
from gateway.ports.sources import Backout
from gateway.ports.targets import Origin, Taker


class FarQueue:
    """The queue, as all gateways see it."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[bytes, bytes]] = {}
        self.locked: set[int] = set()
        self.numbers = itertools.count(1)
        self.backout = Backout()
        self.aside: dict[str, list[bytes]] = {}
        self.refusing: set[str] = set()
        """Back-out queues that take nothing."""

    def arrive(self, md: bytes, data: bytes) -> None:
        number = next(self.numbers)
        self.rows[number] = (mqmd.with_msg_id(md, number.to_bytes(24, "big")), data)

    def return_(self, numbers: Iterable[int], *, counted: bool = True) -> None:
        """They are backed out."""
        for number in numbers:
            md, data = self.rows[number]
            count = mqmd.number(md, mqmd.AT_BACKOUT_COUNT) + counted
            self.rows[number] = (mqmd.with_number(md, mqmd.AT_BACKOUT_COUNT, count), data)
            self.locked.discard(number)

    @property
    def bodies(self) -> list[bytes]:
        return [data for _, data in self.rows.values()]


class FarIntake:
    """A gateway's connection to it; the thread of the real one, one step at a time."""

    def __init__(self, queue: FarQueue, taker: Taker, most: int = 200) -> None:
        self.queue, self.taker, self.most = queue, taker, most
        self.orders: list[Callable[[], None]] = []
        self.told: list[Callable[[], None]] = []
        """What the reactor has not heard yet."""
        self.got: list[int] = []
        self.alive = self.handed_over = self.getting = self.closed = False

    # -- the port --

    def get(self) -> None:
        self.orders.append(self._get)

    def verify(self) -> None:
        self.orders.append(self._verify)

    def commit(self, aside: Sequence[tuple[Token, str]]) -> None:
        self.orders.append(partial(self._commit, tuple(aside)))

    def back_out(self) -> None:
        self.orders.append(self._back_out)

    def close(self) -> None:
        self.closed = True
        self.lose()
        self.told.clear()

    # -- steps --

    def step(self) -> bool:
        """The thread does something; False: there is nothing to do."""
        if self.closed:
            return False
        if not self.alive and not self.handed_over:
            self.alive, self.getting = True, False
            self.orders.clear()
            self.told.append(partial(self.taker.opened, self.queue.backout))
            return True
        if self.orders:
            self.orders.pop(0)()
            return True
        return self.getting and not self.handed_over and self._fill()

    def hear(self) -> bool:
        """The reactor hears of it."""
        if self.told:
            self.told.pop(0)()
            return True
        return False

    def run(self) -> bool:
        any_ = False
        while self.step() or self.hear():
            any_ = True
        return any_

    def lose(self, *, committed: bool = False) -> None:
        """The connection is lost; `committed`: a commit that was asked for happens, and its answer does not come."""
        if committed and self.orders and isinstance(self.orders[0], partial):
            self._take(self.orders[0].args[0])
            self.handed_over = False
            self.orders.pop(0)
        self.queue.return_(self.got)
        self.got = []
        self.alive = False

    def _fill(self) -> bool:
        if not self.alive:
            return False
        free = [number for number in sorted(self.queue.rows) if number not in self.queue.locked][: self.most]
        if not free:
            return False
        self.got, self.handed_over = free, True
        self.queue.locked.update(free)
        found = [Stored(at, *self.queue.rows[number]) for at, number in enumerate(free)]
        self.told.append(self.taker.works)
        self.told.append(partial(self.taker.got, found))
        return True

    def _get(self) -> None:
        self.getting = self.alive

    def _verify(self) -> None:
        self.told.append(partial(self.taker.verified, alive=self.alive))

    def _commit(self, aside: Sequence[tuple[Token, str]]) -> None:
        if self.alive and any(queue in self.queue.refusing for _, queue in aside):
            self.orders.insert(0, partial(self._commit, aside))
            return
        self.handed_over = False
        if self.alive:
            self._take(aside)
            self.told.append(self.taker.committed)

    def _take(self, aside: Sequence[tuple[Token, str]]) -> None:
        for token, queue in aside:
            self.queue.aside.setdefault(queue, []).append(self.queue.rows[self.got[token]][1])  # type: ignore[index]
        for number in self.got:
            del self.queue.rows[number]
            self.queue.locked.discard(number)
        self.got = []

    def _back_out(self) -> None:
        self.handed_over = self.getting = False
        if self.alive:
            self.queue.return_(self.got)
            self.got = []
            self.told.append(partial(self.taker.opened, self.queue.backout))


class FarTarget:
    """Implements `ports.targets.Target`: a target that is consumed, and put to by nobody."""

    def __init__(self, queues: dict[str, FarQueue], name: str = "QM2", most: int = 200) -> None:
        self.queues, self.name, self.most, self.away = queues, name, most, ""
        self.intakes: list[FarIntake] = []
        self.origins: Counter[Origin] = Counter()

    def submit(self, unit: Unit, done: Done, settled: Done) -> None:
        del settled
        done(unit, Outcome())

    def on_ready(self, call: Callable[[list[Stored]], None]) -> None:
        call([])

    def fence_off(self, gateways: Iterable[str]) -> None:
        del gateways

    def consume(self, origin: Origin, taker: Taker) -> FarIntake:
        queue = self.queues.get(origin.queue or origin.topic)
        if queue is None:
            raise MQError(2085, "no such queue")
        self.origins[origin] += 1
        self.intakes.append(FarIntake(queue, taker, self.most))
        return self.intakes[-1]

    def run(self) -> bool:
        return sum(one.run() for one in self.intakes) > 0
