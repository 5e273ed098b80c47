"""Units of work with messages for other queue managers: these are put there first, then the rest is committed. Pure.

A batch is split by queue manager. What goes to a target is one unit of work there; when all targets have committed
theirs, the rest of the batch is committed where the state is, and only then is anything acknowledged. So a QoS 1
message is on its queue before its PUBACK; if the gateway dies between the two commits, the device sends it again.

QoS 2 messages are taken off the queue of staged messages in that second commit. Which of them a target already has is
recorded in a marker, a message that is put in the same unit of work as they are. If the gateway dies between the
commits, the PUBREL comes again, to this gateway or to the one that has taken its sessions over, and the marker says
that nothing is to be put again. The next unit takes the marker away.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from gateway.broker.consumed import NAME, marker_of, names_in
from gateway.mq import constants as mq
from gateway.ports.batch import Address, Done, Failure, Outcome, Puts, Stored, Takes, Token, Unit
from gateway.ports.spread import Spread
from gateway.ports.state_queues import MARKERS

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, Destination, Row
    from gateway.broker.context import Context
    from gateway.broker.marks import Released
    from gateway.ports.targets import Intake, Origin, Taker, Target

_Row = tuple[str, bytes, bytes]


def marker_key_of(queue_manager: str) -> bytes:
    """The key of the markers that gateways with their state on this queue manager put on targets."""
    return b"MQGX" + hashlib.blake2b(queue_manager.encode(), digest_size=20).digest()


def staged_name(key: bytes, token: Token) -> bytes:
    """What a marker calls a message that was staged under this key."""
    return hashlib.blake2b(repr((key, token)).encode(), digest_size=NAME).digest()


class _Side:
    """A target, and what is known of it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.seen = False
        """Whether the markers that others have left there were read, so that all staged messages that are there are
        known."""
        self.there: Counter[_Row] = Counter()
        """Messages put by a unit that had been given up: they come again, and are not put again."""
        self.crossed: set[bytes] = set()
        """QoS 2 messages that are there although they are still staged."""
        self.doubtful: set[bytes] = set()
        """QoS 2 messages that may be there: their unit was given up."""
        self.old: list[Token] = []
        """Markers that are no longer needed."""

    def found(self, markers: list[Stored]) -> None:
        """The target takes messages again: note what earlier processes have left there."""
        self.seen = True
        for stored in markers:
            self.crossed.update(names_in(stored))

    def settled(self, names: list[bytes], gone: set[int], unit: Unit, outcome: Outcome) -> None:
        """Note what has become of a unit that was given up. `gone`: those of its puts that do not come to this target
        again."""
        self.doubtful.difference_update(names)
        if outcome.failures:
            return
        self.old = [] if unit.takes else self.old
        self.crossed.update(names)
        for index, puts in enumerate(unit.puts):
            if puts.queue != MARKERS and index not in gone:
                self.there.update(zip((puts.queue,) * len(puts.heads), puts.heads, puts.bodies, strict=True))

    def has(self, name: bytes) -> bool:
        """Whether a staged message is there, or may be."""
        return name in self.crossed or name in self.doubtful


class Targets:
    """Submits the units of batches, to targets first where they have messages for these."""

    def __init__(self, context: Context, targets: Iterable[Target]) -> None:
        self.context = context
        self.sides: Mapping[str, _Side] = {one.name: _Side(one) for one in targets}
        for side in self.sides.values():
            side.target.on_ready(side.found)
        self.key = marker_key_of(context.queue_manager.name)
        self._turn = 0
        context.consume_at = self.consume
        context.submit, context.target_names = self.submit, frozenset(self.sides)
        context.mixes = context.mixes and not self.sides  # a unit is taken apart by queue manager
        context.on_succession, context.name_in_markers = self.succeed, self._name_kept

    def succeed(self, gateways: list[str]) -> None:
        """Count what gateways that have ended have put on targets as put, before a PUBREL comes for it again."""
        for side in self.sides.values():
            side.target.fence_off(gateways)
            side.seen = side.seen and not side.target.away

    def consume(self, target: str, origin: Origin, taker: Taker) -> Intake | None:
        """Consume a queue of a target; returns None if the target is not known."""
        side = self.sides.get(target)
        return None if side is None else side.target.consume(origin, taker)

    # -- staged messages --

    def name_of(self, released: Released) -> bytes:
        """What markers call a staged message."""
        session, _, token = released
        known = session.restored.get(token) if session.restored is not None else None
        return known or staged_name(session.staged_key, token)

    def _name_kept(self, released: Released) -> bytes:
        """The name by which markers call a staged message if there may be such a marker, because the message was
        released before; else empty."""
        name, restored = self.name_of(released), released[0].restored
        may_be = (restored is not None and released[2] in restored) or any(one.has(name) for one in self.sides.values())
        return name if may_be else b""

    def _where_to(self, released: Released, several: Spread) -> str:
        """The target of a staged message that is addressed to several: the one that has it, or may have it. What was
        staged before this process began, or elsewhere, may be on any target that has not been looked at."""
        name, session = self.name_of(released), released[0]
        sides = [self.sides[one] for one in several.names if one in self.sides]
        holder = next((side.target.name for side in sides if side.has(name)), "")
        if holder:
            return holder
        restored = session.restored is not None and released[2] in session.restored
        return several.chosen(after_all=restored and not all(side.seen for side in sides))

    def _bind(self, batch: Batch) -> bool:
        """Address staged messages that one of several targets has, or may have, to that one alone. Returns whether
        there were any."""
        bound = False
        for destination in list(batch.destinations.values()):
            manager = destination.address.queue_manager
            if not (isinstance(manager, Spread) and destination.releases):
                continue
            places = {row: self._where_to(one, manager) for row, one in destination.released.items()}
            places = {row: place for row, place in places.items() if place != manager}
            bound = self.readdress(batch, destination, places) or bound
        return bound

    @staticmethod
    def readdress(batch: Batch, destination: Destination, rows: dict[int, str]) -> bool:
        """Address rows, each of which releases a staged message, to the queue managers given. Only the connections
        whose messages these are wait with them. Returns whether there were any."""
        elsewhere: dict[int, Row] = {}
        for row, manager in sorted(rows.items()):
            address = destination.address._replace(queue_manager=manager)
            head, body = destination.puts.heads[row], destination.puts.bodies[row]
            elsewhere[row] = batch.put(address, destination.policy(row), head, body)
            mark = destination.marks.get(row)
            owner = mark.released[0] if mark is not None and mark.released is not None else None
            elsewhere[row][0].contributors.update(one for one in destination.contributors if one.session is owner)
            elsewhere[row][0].segmented |= destination.segmented
        if elsewhere:
            batch.without(destination, set(elsewhere), elsewhere)
        return bool(elsewhere)

    # -- units --

    def _side_of(self, queue_manager: str) -> str:
        """The name of the target that takes what is addressed to this queue manager; of several, the first that is not
        away. Empty: it is no target."""
        if not isinstance(queue_manager, Spread):
            return queue_manager if queue_manager in self.sides else ""
        names = [one for one in queue_manager.names if one in self.sides]
        if queue_manager.after_all:
            return next((one for one in names if not self.sides[one].seen), names[0] if names else "")
        at = self._turn % len(names) if names and queue_manager.in_turn else 0
        names = names[at:] + names[:at]
        return next((one for one in names if not self.sides[one].target.away), names[0] if names else "")

    def is_there(self, queue_manager: str) -> bool:
        """Whether an address names several targets, and one of them is not away."""
        name = self._side_of(queue_manager) if isinstance(queue_manager, Spread) else ""
        return bool(name) and not self.sides[name].target.away

    def submit(self, unit: Unit, done: Done) -> None:
        """See `BatchQueueManager.submit`."""
        batch = self.context.running
        if any(isinstance(puts.queue_manager, Spread) for puts in unit.puts):
            self._turn += 1
            if self._bind(batch):
                unit = batch.unit() or Unit([])
        by_target: dict[str, list[int]] = {}
        unknown: list[int] = []
        for index, puts in enumerate(unit.puts):
            if not puts.queue_manager:
                continue
            if name := self._side_of(puts.queue_manager):
                by_target.setdefault(name, []).append(index)
            elif isinstance(puts.queue_manager, Spread):  # rules were read again, and the settings name them since
                unknown.append(index)
        if unknown:
            text = "start the gateway again: it is not connected to these targets"
            done(unit, Outcome([Failure(at, mq.MQRC_Q_MGR_NOT_AVAILABLE, text, away=True) for at in unknown]))
            return
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
        _Crossing(self, batch, unit, done, by_target).begin()


class _Crossing:
    """One unit on its way: to its targets first, then to where the state is."""

    def __init__(
        self, targets: Targets, batch: Batch, unit: Unit, done: Done, by_target: dict[str, list[int]]
    ) -> None:  # fmt: skip
        self._targets = targets
        self._batch = batch
        self._unit = unit
        self._done = done
        self._by_target = by_target
        self._far = {index for indexes in by_target.values() for index in indexes}
        self._open = len(by_target)
        self._failures: list[Failure] = []
        self._markers: list[tuple[_Side, Puts]] = []

    def begin(self) -> None:
        """Put to each target what goes there."""
        for name, indexes in self._by_target.items():
            side = self._targets.sides[name]
            part, places, names = self._part(side, indexes)
            gone = set[int]()
            put = partial(self._put, side, indexes, places, names, gone)
            if places:
                side.target.submit(part, put, partial(side.settled, names, gone))
            else:
                put(part, Outcome())

    def _part(self, side: _Side, indexes: list[int]) -> tuple[Unit, list[int], list[bytes]]:
        """The unit to be put to a target, the place of each of its puts in the whole unit, and the names of the staged
        messages among them. What the target already has is left out. The columns belong to this unit alone: if it is
        given up, more rows are added to those of the batch while the target still has them."""
        part, places, names = Unit(), list[int](), list[bytes]()
        for index in indexes:
            puts = self._unit.puts[index]
            destination = self._batch.destinations.get(Address.of(puts))
            if destination is not None:
                destination.taker = side.target.name
            origins = self._origins(puts)
            names += [name for name in origins.values() if name not in side.crossed]
            there = set[int]()
            if origins or side.there:
                there = {row for row in range(len(puts.heads)) if self._is_there(side, puts, row, origins)}
            puts = _without(puts, there)
            puts.queue_manager = side.target.name
            if puts.heads:
                part.puts.append(puts)
                places.append(index)
        if names:
            marker = marker_of(self._targets.key, names)
            part.puts.append(marker)
            self._markers.append((side, marker))
        if side.old and places:
            part.takes.append(Takes(MARKERS, self._targets.key, side.old))
        return part, places, names

    def _origins(self, puts: Puts) -> dict[int, bytes]:
        """The names of the staged messages that rows release, by row."""
        destination = self._batch.destinations.get(Address.of(puts))
        if destination is None or not destination.releases:
            return {}
        return {row: self._targets.name_of(one) for row, one in destination.released.items()}

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

    def _put(
        self, side: _Side, indexes: list[int], places: list[int], names: list[bytes], gone: set[int], part: Unit,
        outcome: Outcome,
    ) -> None:  # fmt: skip
        """Note a target's answer, or that the unit is given up: then `gone` gets the puts that other targets take.
        After the last answer the rest of the unit is committed, or the whole is reported as refused."""
        if outcome.failures:
            if any(one.away for one in outcome.failures):
                side.doubtful.update(names)
                gone.update(
                    at for at, index in enumerate(places) if isinstance(self._unit.puts[index].queue_manager, Spread)
                )
            self._refused(side, indexes, places, outcome.failures)
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
            [puts for index, puts in enumerate(unit.puts) if index not in self._far],
            unit.takes, unit.moves, unit.replaces,
        )  # fmt: skip
        if rest:
            self._targets.context.queue_manager.submit(rest, self._committed)
        else:
            self._committed(rest, Outcome())

    def _refused(self, side: _Side, indexes: list[int], places: list[int], failures: list[Failure]) -> None:
        """Note a target's refusals. One that names no queue of an application counts for all its queues."""
        name = side.target.name
        for failure in failures:
            if 0 <= failure.puts < len(places):
                self._failures.append(failure._replace(puts=places[failure.puts], queue_manager=name))
            else:
                self._failures += [self._away(side, failure, index) for index in indexes]

    def _away(self, side: _Side, failure: Failure, index: int) -> Failure:
        """The failure for one put when its target is away: the put waits, or goes to another target, except for staged
        messages that may already be on this one."""
        puts = self._unit.puts[index]
        destination = self._batch.destinations.get(Address.of(puts))
        if destination is not None and isinstance(puts.queue_manager, Spread) and side.doubtful:
            origins = self._origins(puts)
            held = {row: side.target.name for row, name in origins.items() if side.has(name)}
            self._targets.readdress(self._batch, destination, held)
        elsewhere = failure.away and self._targets.is_there(puts.queue_manager)
        return failure._replace(puts=index, away=not elsewhere, elsewhere=elsewhere)

    def _committed(self, _rest: Unit, outcome: Outcome) -> None:
        """The rest of the unit is committed, or was refused; then it comes again without what is on targets."""
        if outcome.failures:
            places = [index for index in range(len(self._unit.puts)) if index not in self._far]
            failures = [one._replace(puts=places[one.puts]) if one.puts >= 0 else one for one in outcome.failures]
            self._done(self._unit, Outcome(failures))
            return
        for puts in self._unit.puts:
            puts.placed = 0
        for side, marker in self._markers:
            side.old += marker.tokens
        self._done(self._unit, Outcome())


def _note_placed(whole: Puts, part: Puts) -> None:
    """Copy what became of rows out of syncpoint although their unit was refused. If rows had been left out of the part
    nothing is copied: the rows are QoS 0 and may come twice."""
    if len(part.heads) < len(whole.heads):
        return
    whole.placed, whole.lost, whole.lost_reason, whole.too_long = (
        part.placed, part.lost, part.lost_reason, part.too_long
    )  # fmt: skip


def _without(puts: Puts, rows: set[int]) -> Puts:
    """A copy of the puts without some rows."""
    kept = [row for row in range(len(puts.heads)) if row not in rows]
    return Puts(
        puts.queue, puts.queue_manager, puts.key, puts.priority, puts.persistent,
        [puts.heads[row] for row in kept], [puts.bodies[row] for row in kept], syncpoint=puts.syncpoint,
        retain=puts.retain,
    )  # fmt: skip
