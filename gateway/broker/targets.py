"""Units of work with messages for other queue managers: put there first, then the rest is committed. Pure.

A batch is split by queue manager. What goes to a target is one unit of work there; when all targets have committed
theirs, the rest of the batch is committed where the state is, and only then is anything acknowledged. So a QoS 1
message is on its queue before its PUBACK; if the gateway dies between the two commits its device sends it again.

QoS 2 messages are taken off the queue of staged messages in that second commit. What a target has of them stands in a
marker, a message that is put in the unit of work that puts them. After a death between the commits the PUBREL comes
again, to this gateway or to the one that has taken its sessions over, and the marker says that nothing is to be put
again. The next unit takes the marker away.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.ports.batch import Address, Done, Failure, Outcome, Puts, Stored, Takes, Token, Unit
from gateway.ports.state_queues import MARKERS

if TYPE_CHECKING:
    from gateway.broker.batch import Batch
    from gateway.broker.context import Context
    from gateway.ports.targets import Target

_EXPIRY = 30 * 24 * 36_000
"""Tenths of a second after which a marker goes that nobody takes away: longer than a device stays away."""
_NAME = 16
"""Bytes that name a staged message in a marker."""
_Row = tuple[str, bytes, bytes]


def marker_key_of(queue_manager: str) -> bytes:
    """The key of the markers that gateways with their state on this queue manager put on targets."""
    return b"MQGX" + hashlib.blake2b(queue_manager.encode(), digest_size=20).digest()


def _name(key: bytes, token: Token) -> bytes:
    """What a marker calls a staged message."""
    return hashlib.blake2b(repr((key, token)).encode(), digest_size=_NAME).digest()


class _Side:
    """A target, and what is known of it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.there: Counter[_Row] = Counter()
        """Messages that a unit has put that had been given up: they come again, and are not put again."""
        self.crossed: set[bytes] = set()
        """QoS 2 messages that are there although they are still staged."""
        self.old: list[Token] = []
        """Markers that are not needed any more."""

    def found(self, markers: list[Stored]) -> None:
        """It takes messages again: what earlier processes have left there counts."""
        for stored in markers:
            data = stored.data
            self.crossed.update(data[at : at + _NAME] for at in range(0, len(data), _NAME))

    def settled(self, names: list[bytes], unit: Unit, outcome: Outcome) -> None:
        """What has become of a unit that was given up."""
        if outcome.failures:
            return
        self.old = [] if unit.takes else self.old
        self.crossed.update(names)
        for puts in unit.puts:
            if puts.queue != MARKERS:
                self.there.update(zip((puts.queue,) * len(puts.heads), puts.heads, puts.bodies, strict=True))


class Targets:
    """Submits the units of batches."""

    def __init__(self, context: Context, targets: Iterable[Target]) -> None:
        self.context = context
        self.sides: Mapping[str, _Side] = {one.name: _Side(one) for one in targets}
        for side in self.sides.values():
            side.target.on_ready(side.found)
        self.key = marker_key_of(context.queue_manager.name)
        context.submit, context.target_names = self.submit, frozenset(self.sides)
        context.on_succession = self.succeed

    def succeed(self, gateways: list[str]) -> None:
        """What gateways that have ended have put on targets counts as put, before a PUBREL comes for it again."""
        for side in self.sides.values():
            side.target.fence_off(gateways)

    def submit(self, unit: Unit, done: Done) -> None:
        """See `BatchQueueManager.submit`."""
        by_target: dict[str, list[int]] = {}
        for index, puts in enumerate(unit.puts):
            if puts.queue_manager in self.sides:
                by_target.setdefault(puts.queue_manager, []).append(index)
        if not by_target:
            self.context.queue_manager.submit(unit, done)
            return
        away = [
            Failure(index, mq.MQRC_Q_MGR_NOT_AVAILABLE, f"{name}: {why}", away=True)
            for name, indexes in by_target.items()
            if (why := self.sides[name].target.away)
            for index in indexes
        ]
        if away:
            done(unit, Outcome(away))
            return
        _Crossing(self, self.context.running, unit, done, by_target).begin()


class _Crossing:
    """One unit on its way: to its targets, then to where the state is."""

    def __init__(
        self, targets: Targets, batch: Batch, unit: Unit, done: Done, by_target: dict[str, list[int]]
    ) -> None:  # fmt: skip
        self._targets = targets
        self._batch = batch
        self._unit = unit
        self._done = done
        self._by_target = by_target
        self._open = len(by_target)
        self._failures: list[Failure] = []
        self._markers: list[tuple[_Side, Puts]] = []

    def begin(self) -> None:
        """Put what goes to targets."""
        for name, indexes in self._by_target.items():
            side = self._targets.sides[name]
            part, places, names = self._part(side, indexes)
            put = partial(self._put, side, indexes, places)
            if places:
                side.target.submit(part, put, partial(side.settled, names))
            else:
                put(part, Outcome())

    def _part(self, side: _Side, indexes: list[int]) -> tuple[Unit, list[int], list[bytes]]:
        """What is to be put to a target, where each of its puts stands in the whole unit, and the names of the staged
        messages among it. What is there already is left out. The columns are the target's own: if it is given up, more
        is added to those of the batch while it still has them."""
        part, places, names = Unit(), list[int](), list[bytes]()
        for index in indexes:
            puts = self._unit.puts[index]
            origins = self._origins(puts)
            names += [name for name in origins.values() if name not in side.crossed]
            there = set[int]()
            if origins or side.there:
                there = {row for row in range(len(puts.heads)) if self._is_there(side, puts, row, origins)}
            puts = _without(puts, there)
            if puts.heads:
                part.puts.append(puts)
                places.append(index)
        if names:
            marker = Puts(MARKERS, key=self._targets.key, heads=[mqmd.build(persistence=1, expiry=_EXPIRY)])
            marker.bodies = [b"".join(names)]
            part.puts.append(marker)
            self._markers.append((side, marker))
        if side.old and places:
            part.takes.append(Takes(MARKERS, self._targets.key, side.old))
        return part, places, names

    def _origins(self, puts: Puts) -> dict[int, bytes]:
        """Rows that release staged messages, with the names of these."""
        destination = self._batch.destinations.get(Address.of(puts))
        if destination is None or not destination.releases:
            return {}
        released = {row: mark.released for row, mark in destination.marks.items() if mark.released is not None}
        return {row: _name(session.staged_key, token) for row, (session, _, token) in released.items()}

    @staticmethod
    def _is_there(side: _Side, puts: Puts, row: int, origins: dict[int, bytes]) -> bool:
        name = origins.get(row)
        if name is not None and name in side.crossed:
            return True
        message = (puts.queue, puts.heads[row], puts.bodies[row])
        if name is not None or not side.there[message]:
            return False
        side.there[message] -= 1
        return True

    def _put(self, side: _Side, indexes: list[int], places: list[int], part: Unit, outcome: Outcome) -> None:
        """A target has answered."""
        if outcome.failures:
            self._refused(indexes, places, outcome.failures)
            for index, puts in zip(places, part.puts, strict=False):  # the marker has no place
                _note_placed(self._unit.puts[index], puts)
        else:
            if part.takes:
                side.old = []
            for index in indexes:
                self._unit.puts[index].placed = len(self._unit.puts[index].heads)
        self._open -= 1
        if self._open:
            return
        if self._failures:
            self._done(self._unit, Outcome(self._failures))
            return
        unit = self._unit
        rest = Unit(
            [puts for puts in unit.puts if puts.queue_manager not in self._by_target],
            unit.takes, unit.moves, unit.replaces,
        )  # fmt: skip
        if rest:
            self._targets.context.queue_manager.submit(rest, self._committed)
        else:
            self._committed(rest, Outcome())

    def _refused(self, indexes: list[int], places: list[int], failures: list[Failure]) -> None:
        """A refusal that names no queue of an application is one of all of them."""
        for failure in failures:
            if 0 <= failure.puts < len(places):
                self._failures.append(failure._replace(puts=places[failure.puts]))
            else:
                self._failures += [failure._replace(puts=index, away=True) for index in indexes]

    def _committed(self, _rest: Unit, outcome: Outcome) -> None:
        """The rest of the unit is committed, or refused: then it comes again, without what is on targets."""
        if outcome.failures:
            places = [i for i, puts in enumerate(self._unit.puts) if puts.queue_manager not in self._by_target]
            failures = [one._replace(puts=places[one.puts]) if one.puts >= 0 else one for one in outcome.failures]
            self._done(self._unit, Outcome(failures))
            return
        for puts in self._unit.puts:
            puts.placed = 0
        for side, marker in self._markers:
            side.old += marker.tokens
        self._done(self._unit, Outcome())


def _note_placed(whole: Puts, part: Puts) -> None:
    """What became of rows out of syncpoint although their unit was refused; if some were left out, they are at QoS 0
    and may come twice."""
    if len(part.heads) < len(whole.heads):
        return
    whole.placed, whole.lost, whole.lost_reason, whole.too_long = (
        part.placed, part.lost, part.lost_reason, part.too_long
    )  # fmt: skip


def _without(puts: Puts, rows: set[int]) -> Puts:
    """The same without some rows."""
    kept = [row for row in range(len(puts.heads)) if row not in rows]
    return Puts(
        puts.queue, puts.queue_manager, puts.key, puts.priority, puts.persistent,
        [puts.heads[row] for row in kept], [puts.bodies[row] for row in kept], syncpoint=puts.syncpoint,
        retain=puts.retain,
    )  # fmt: skip
