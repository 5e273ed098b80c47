"""The batch port's units on their way to a frame: names resolved, limits checked, columns handed on. No message is
touched alone unless its destination asks for it (a transmission queue, a topic, a report).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from gateway.errors import HeaderError, MQError, StoreError
from gateway.mq import constants as mq
from gateway.ports import state_queues
from gateway.ports.batch import MQMD_LENGTH, Done, Failure, Moves, Outcome, Puts, Takes, Token, Unit
from gateway.queue_manager import descriptor
from gateway.queue_manager.batch.commit import Batch
from gateway.queue_manager.batch.stored_messages import complete
from gateway.queue_manager.core import Core, reason_of
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.name_resolution import Target, resolve
from gateway.queue_manager.objects.placement import Placer, check_lengths
from gateway.queue_manager.store.rows import agree, extent, one_run, same
from gateway.queue_manager.store.unit import LaneMoves, LanePuts, LaneTakes, Message, StoreUnit

TOPIC_PREFIX = "topic://"
TARGETS_REMEMBERED = 10_000
"""Resolved names; messages to devices have a queue manager's name each."""
UNITS_IN_A_FRAME = 256
BYTES_IN_A_FRAME = 16 << 20
REPORT, EXPIRY = 8, 16
"""Where an MQMD has them."""
QUIET = bytes(4)
UNLIMITED = b"\xff\xff\xff\xff"
_STATE_HEAD = descriptor.default_descriptor(persistence=mq.MQPER_PERSISTENT)

States = dict[tuple[str, bytes], bytes | None]
"""State messages by queue and key; None: gone."""
STATES_OF_A_KEY = 1000


@dataclass(slots=True)
class _Entry:
    """A unit and what it became."""

    unit: Unit
    done: Done
    alone: bool = False
    """Its frame was refused with others in it: it is tried once more by itself."""
    failures: list[Failure] = field(default_factory=list)
    puts: list[tuple[Puts, LanePuts]] = field(default_factory=list)
    beside: list[Puts] = field(default_factory=list)
    """What is out of syncpoint: in the frame even if the unit is refused."""


class Intake:
    """See the module. Called with the queue manager's lock held, except for `done`, which is called on the caller's
    thread."""

    def __init__(self, core: Core, placer: Placer, define_state: Callable[[str], object]) -> None:
        self._core = core
        self._placer = placer
        self._slow_put = placer.place_columns
        self._wanted: dict[tuple[str, int], Message] = {}
        """Messages that were fetched and ask for a confirmation of delivery when they are taken."""
        self._define_state = define_state
        self._waiting: deque[_Entry] = deque()
        self._targets: dict[tuple[str, str], Target] = {}
        self._version = -1
        self._thread = 0
        """The thread of the batch port: `done` is called there."""
        core.committer.gathers_from(self._gather)

    def submit(self, unit: Unit, done: Done) -> None:
        """Queue it and write if nothing is being written."""
        self._thread = get_ident()
        self._waiting.append(_Entry(unit, done))
        self._core.committer.run()

    def target(self, queue: str, queue_manager: str) -> Target:
        """Where a name leads; remembered until an object changes."""
        if self._version != self._core.catalogue.version or len(self._targets) > TARGETS_REMEMBERED:
            self._targets.clear()
            self._version = self._core.catalogue.version
        key = (queue, queue_manager)
        target = self._targets.get(key)
        if target is None:
            if queue.startswith(state_queues.PREFIX) and self._core.catalogue.get("QUEUE", queue) is None:
                self._define_state(queue)
            target = self._targets[key] = resolve(self._core, queue, queue_manager)
        return target

    # Gathering

    def _gather(self) -> Batch | None:
        """As many waiting units as make one frame."""
        if not self._waiting:
            return None
        entries: list[_Entry] = []
        joined = StoreUnit()
        states: States = {}
        room = _Room(self._core)
        size = 0
        while self._waiting and len(entries) < UNITS_IN_A_FRAME and size < BYTES_IN_A_FRAME:
            if entries and (entries[0].alone or self._waiting[0].alone):
                break
            entry = self._waiting.popleft()
            entries.append(entry)
            size += self._translate(entry, joined, states, room)
        if not entries:
            return None
        self._replace(states, joined)
        return Batch(joined, lambda error: self._finished(entries, joined, error))

    def _finished(self, entries: list[_Entry], joined: StoreUnit, error: StoreError | None) -> None:
        if error is None and joined:
            self._core.settled(joined)
        if error is not None and len(entries) > 1:
            for entry in reversed(entries):
                entry.alone = True
                entry.puts.clear()
                entry.beside.clear()
                entry.failures.clear()
                self._waiting.appendleft(entry)
            return
        for entry in entries:
            if error is not None and not entry.failures:
                entry.failures.append(Failure(-1, reason_of(error), str(error)))
            for puts, lane_puts in entry.puts:
                puts.tokens = lane_puts.tokens
            if error is None and entry.failures:
                for puts in entry.beside:
                    puts.placed = len(puts.heads)
        if get_ident() == self._thread:
            _tell(entries)
        else:  # an MQI call on another thread had to wait for this frame
            self._core.scheduler.soon(lambda: _tell(entries))

    def _translate(self, entry: _Entry, joined: StoreUnit, states: States, room: _Room) -> int:
        """Add one unit to the frame, or find out why it cannot be; the bytes it adds."""
        unit, own = entry.unit, StoreUnit()
        size = self._place_beside(entry, joined, room)
        mark = room.mark()
        for index, puts in enumerate(unit.puts):
            if not puts.syncpoint:
                continue
            try:
                size += self._put(puts, own, room, entry)
            except (MQError, HeaderError) as error:
                entry.failures.append(_failure(index, error))
        try:
            for moves in unit.moves:
                self._move(moves, own, room)
            for takes in unit.takes:
                self._take(takes, own)
            if unit.replaces:
                for name in {replace.queue for replace in unit.replaces}:
                    self.target(name, "")
        except MQError as error:
            entry.failures.append(Failure(-1, error.reason, str(error)))
        if entry.failures:
            room.back_to(mark)
            entry.puts.clear()
            return size
        for queue, key, body in unit.replaces:
            states[queue, key] = body
            size += len(body or b"")
        _join(joined, own)
        return size

    # Puts

    def _place_beside(self, entry: _Entry, joined: StoreUnit, room: _Room) -> int:
        """What is out of syncpoint, whatever becomes of the rest; the bytes it adds."""
        size = 0
        for index, puts in enumerate(entry.unit.puts):
            if puts.syncpoint or puts.placed:
                continue
            own, mark = StoreUnit(), room.mark()
            try:
                size += self._put(puts, own, room, entry)
            except (MQError, HeaderError) as error:
                room.back_to(mark)
                entry.failures.append(_failure(index, error))
                continue
            entry.beside.append(puts)
            _join(joined, own)
        return size

    def _put(self, puts: Puts, own: StoreUnit, room: _Room, entry: _Entry) -> int:
        heads, bodies = puts.heads, puts.bodies
        if not heads:
            return 0
        if puts.queue.startswith(TOPIC_PREFIX):
            self._placer.publish_columns(puts.queue.removeprefix(TOPIC_PREFIX), puts, own)
            return sum(map(len, bodies))
        target = self.target(puts.queue, puts.queue_manager)
        target.check_put()
        queue = target.queue
        if queue is None or target.remote or not agree(heads, REPORT, QUIET):
            self._slow_put(target, puts, own)
            return extent(bodies)[0]
        if puts.persistent and queue.temporary:
            raise MQError(mq.MQRC_PERSISTENT_NOT_ALLOWED, f"{queue.name} is a temporary dynamic queue")
        check_lengths(self._core, queue, heads, bodies)
        room.claim(queue, len(heads))
        lane = LanePuts(
            queue.name, puts.key, self._priority(queue, target, puts.priority), puts.persistent, heads, bodies
        )
        if not agree(heads, EXPIRY, UNLIMITED):
            lane.expiries = tuple(expiries(heads, self._core.now()))
        own.puts.append(lane)
        entry.puts.append((puts, lane))
        return extent(bodies)[0] + (len(heads[0]) if same(heads) else extent(heads)[0])

    @staticmethod
    def _priority(queue: LocalQueue, target: Target, priority: int) -> int:
        if queue.fifo:
            return 0
        return target.chain[0].number("DEFPRTY") if priority < 0 else min(priority, 9)

    # Moves, takes, state

    def _move(self, moves: Moves, own: StoreUnit, room: _Room) -> None:
        source = self.target(moves.queue, "").queue
        target = self.target(moves.to_queue, moves.to_queue_manager)
        target.check_put()
        queue = target.queue
        if source is None:
            raise MQError(
                mq.MQRC_UNKNOWN_OBJECT_NAME, f"{moves.queue!r} is no local queue: messages cannot be moved from it"
            )
        heads = moves.heads
        asks = heads is not None and not agree(heads, REPORT, QUIET)
        by_hand = queue is None or target.remote or asks
        if moves.to_priority is not None and (by_hand or (queue is not None and queue.temporary)):
            raise MQError(mq.MQRC_Q_TYPE_ERROR, f"messages cannot be moved to {moves.to_queue} now: put them there")
        if queue is None or by_hand:
            self._move_by_hand(moves, source, target, own)
            return
        if moves.longest > min(queue.max_length, self._core.attribute("MAXMSGL")):
            raise MQError(mq.MQRC_MSG_TOO_BIG_FOR_Q, f"a message may be too long for MAXMSGL of {queue.name}")
        room.claim(queue, len(moves.tokens))
        tokens = numbers_of(moves.tokens)
        to_priority = 0 if queue.fifo else None
        if moves.to_priority is not None:
            to_priority = self._priority(queue, target, moves.to_priority)
        own.moves.append(LaneMoves(source.name, moves.key, tokens, queue.name, moves.to_key, to_priority, heads))

    def _move_by_hand(self, moves: Moves, source: LocalQueue, target: Target, own: StoreUnit) -> None:
        """A staged message whose destination is remote or a topic: it is written again there."""
        puts = Puts(moves.to_queue, moves.to_queue_manager, moves.to_key, priority=-1)
        tokens = []
        for index, token in enumerate(moves.tokens):
            message = self._core.store.read(source.name, moves.key, token) if isinstance(token, int) else None
            if message is None:
                continue
            tokens.append(message.token)
            puts.heads.append(message.head if moves.heads is None else moves.heads[index])
            puts.bodies.append(message.body)
        if tokens:
            self._slow_put(target, puts, own)
            own.takes.append(LaneTakes(source.name, moves.key, tokens))

    def _take(self, takes: Takes, own: StoreUnit) -> None:
        queue = self.target(takes.queue, "").queue
        if queue is None:
            raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"{takes.queue!r} is no local queue")
        tokens = numbers_of(takes.tokens)
        own.takes.append(LaneTakes(queue.name, takes.key, tokens))
        if self._wanted:
            for message in filter(None, [self._wanted.get((queue.name, token)) for token in tokens]):
                self._placer.confirm_delivery(complete(message, self._core.name), _data_of(message), own)

    def confirm_taking(self, queue: str, messages: Sequence[Message]) -> None:
        """These are about to be taken: remember those that ask for COD."""
        if len(self._wanted) > TARGETS_REMEMBERED:
            self._wanted.clear()
        for message in messages:
            if message.head[8:12] != QUIET and descriptor.integer(message.head, "report") & mq.MQRO_COD:
                self._wanted[queue, message.token] = message

    def _replace(self, states: States, joined: StoreUnit) -> None:
        """The last of several replacements within a frame is the one that counts."""
        fetch = self._core.store.fetch
        for (queue, key), body in states.items():
            tokens = [message.token for message in fetch(queue, key, STATES_OF_A_KEY)]
            if tokens:
                joined.takes.append(LaneTakes(queue, key, tokens))
            if body is not None:
                joined.puts.append(LanePuts(queue, key, 0, True, [_STATE_HEAD], [body]))  # noqa: FBT003


def numbers_of(tokens: Sequence[Token]) -> Sequence[int]:
    """What tokens of the batch port stand for: those of a message in segments are a tuple."""
    column: Any = tokens
    if isinstance(column, range):
        return column
    if one_run(column):
        first: int = column[0]
        return range(first, first + len(tokens))
    plain = [token for token in tokens if isinstance(token, int)]
    if len(plain) < len(tokens):
        plain = sorted(plain + [part for one in tokens if isinstance(one, tuple) for part in one])
    return plain


def _data_of(message: Message) -> bytes:
    return message.head[MQMD_LENGTH:] + message.body


def _failure(index: int, error: MQError | HeaderError) -> Failure:
    return Failure(index, getattr(error, "reason", mq.MQRC_UNEXPECTED_ERROR), str(error))


def _tell(entries: list[_Entry]) -> None:
    for entry in entries:
        entry.done(entry.unit, Outcome(entry.failures))


class _Room:
    """How many messages queues will hold once the frame is applied."""

    __slots__ = ("_claimed", "_core")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._claimed: dict[str, int] = {}

    def claim(self, queue: LocalQueue, messages: int) -> None:
        """2053 when they do not fit below MAXDEPTH."""
        depth = self._claimed.get(queue.name)
        if depth is None:
            depth = self._core.depth(queue)
        depth += messages
        if depth > queue.max_depth:
            raise MQError(
                mq.MQRC_Q_FULL, f"{queue.name} holds {depth - messages} of MAXDEPTH({queue.max_depth}) messages"
            )
        self._claimed[queue.name] = depth

    def mark(self) -> dict[str, int]:
        """What `back_to` goes back to."""
        return dict(self._claimed)

    def back_to(self, mark: dict[str, int]) -> None:
        """A unit was refused: its claims do not count."""
        self._claimed = mark


def _join(joined: StoreUnit, own: StoreUnit) -> None:
    joined.puts += own.puts
    joined.takes += own.takes
    joined.moves += own.moves
    joined.state.update(own.state)


def expiries(heads: Sequence[bytes], now: float) -> list[int]:
    """When each message expires, in microseconds; 0: never. 2013 for an expiry that is none."""
    known: dict[bytes, int] = {}
    for head in set(heads):
        tenths = descriptor.integer(head, "expiry")
        if tenths <= 0 and tenths != mq.MQEI_UNLIMITED:
            raise MQError(mq.MQRC_EXPIRY_ERROR, f"Expiry {tenths} is neither -1 nor above 0")
        known[head] = 0 if tenths < 0 else int(now * 1_000_000) + tenths * 100_000
    return [known[head] for head in heads]
