"""Units of the batch port as units of the store: names resolved, limits checked, columns handed on. No message is
handled alone unless its destination asks for it (a transmission queue, a topic, a report)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from gateway.errors import HeaderError, MQError, StoreCorrupt
from gateway.mq import constants as mq
from gateway.ports import state_queues
from gateway.ports.batch import MQMD_LENGTH, Failure, Moves, Puts, Takes, Token
from gateway.queue_manager import descriptor
from gateway.queue_manager.batch.commit import Submission
from gateway.queue_manager.batch.stored_messages import as_got
from gateway.queue_manager.batch.watched_queues import NAMES_REMEMBERED, WatchedQueues
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.name_resolution import Target, reply_to, resolve
from gateway.queue_manager.objects.placement import Placer, check_lengths
from gateway.queue_manager.store.place import PRIORITIES
from gateway.queue_manager.store.replaced import Records, records_of
from gateway.queue_manager.store.rows import agree, extent, one_run, runs, same
from gateway.queue_manager.store.unit import EMPTY, LaneMoves, LaneName, LanePuts, LaneTakes, Message, StoreUnit

TOPIC_PREFIX = "topic://"
TARGETS_REMEMBERED = 10_000
"""The most resolved names; messages to devices have a queue manager's name each."""
CONFIRMATIONS_REMEMBERED = 16 << 20
"""Bytes of messages to remember that were taken; those still to be taken are remembered however many they are."""
HEADS_REMEMBERED, WAYS_REMEMBERED = 4000, 16_384
"""The most heads and ways: with a queue for each device each has a head, and a way, of its own."""
NO_QUEUE = b" " * 48
"""A name that is not given."""
REPORT, EXPIRY = 8, 16
"""Their offsets in an MQMD."""
QUIET = bytes(4)
"""A report field that asks for nothing."""
UNLIMITED = b"\xff\xff\xff\xff"
"""MQEI_UNLIMITED."""
_STATE_HEAD = descriptor.default_descriptor(persistence=mq.MQPER_PERSISTENT)


class _Resolved(NamedTuple):
    """Where a name leads. It holds until an object changes."""

    target: Target
    queue: LocalQueue | None
    """The local queue if messages can be put on it as columns: puts are allowed, no MQXQH is needed and no copy is
    made."""
    longest: int
    """MAXMSGL of the queue or of the queue manager, whichever is less."""


class _Way(NamedTuple):
    """How messages with one head go onto a local queue as they are. It holds until an object changes."""

    queue: LocalQueue
    priority: int
    longest: int
    """How long a body may be."""
    lane: LaneName


_Name = tuple[str, str, int, bool, bytes]
"""Queue, queue manager, priority and persistence of what is put, and its one head."""


class _Heads(NamedTuple):
    """What some heads have in common."""

    plain_reply: bool
    """Whether they name no queue for replies."""
    quiet: bool
    """Whether they ask for no report."""
    unlimited: bool
    """Whether the messages do not expire."""


class Translator:
    """Implements `commit.Translator`. Called with the queue manager's lock held."""

    def __init__(self, core: Core, placer: Placer, define_state: Callable[[str], object]) -> None:
        self._core = core
        self._placer = placer
        self._define_state = define_state
        self._confirmations: dict[tuple[str, int], Message] = {}
        """Messages that were fetched and ask for a confirmation of delivery when they are taken."""
        self._confirmations_size = self._confirmations_left = 0
        """The bytes of these messages, and how many were left when those that had been taken were last forgotten."""
        self._names: dict[tuple[str, str], _Resolved] = {}
        self._ways: dict[_Name, _Way] = {}
        self._filled: dict[tuple[bytes, int], bytes] = {}
        """Filled-in heads by the heads that were put and the priority of their queue; until an object changes."""
        self._alike: dict[bytes, _Heads] = {}
        """What is known of a head that all messages of a put share."""
        self._version = -1
        self._depths: dict[str, int] = {}
        """How many messages queues will hold once the frame is applied."""
        self._placed = False
        """Whether the placer has added to the frame copies and reports for any queue, which are not in these
        numbers."""
        self._states: dict[str, Records] = {}
        """State messages of the frame, by queue."""
        self.watched = WatchedQueues(core)

    # Names

    def target(self, queue: str, queue_manager: str) -> Target:
        """Where a name leads; remembered until an object changes."""
        return self._resolve(queue, queue_manager).target

    def _resolve(self, queue: str, queue_manager: str) -> _Resolved:
        self._forget_if_changed()
        resolved = self._names.get((queue, queue_manager))
        return self._resolve_anew(queue, queue_manager) if resolved is None else resolved

    def _forget_if_changed(self) -> None:
        catalogue, names = self._core.catalogue, self._names
        if self._version != catalogue.version or len(names) > TARGETS_REMEMBERED:
            names.clear()
            self._ways.clear()
            self._filled.clear()
            self._version = catalogue.version

    def _resolve_anew(self, queue: str, queue_manager: str) -> _Resolved:
        core = self._core
        if queue.startswith(state_queues.PREFIX) and core.catalogue.get("QUEUE", queue) is None:
            self._define_state(queue)
        target = resolve(core, queue, queue_manager)
        local, longest = target.queue, core.attribute("MAXMSGL")
        if local is not None:
            longest = min(local.max_length, longest)
        inhibited = any(definition.attributes.get("PUT") == 1 for definition in target.chain)
        alone = inhibited or target.remote or (local is not None and local.stream)
        resolved = _Resolved(target, None if alone else local, longest)
        self._names[queue, queue_manager] = resolved
        if local is not None and len(self.watched.names) < NAMES_REMEMBERED:
            self.watched.names.add(local.name)
        return resolved

    # A frame

    def begin(self) -> None:
        """Begin a frame."""
        self._forget_if_changed()
        self._depths.clear()
        self._placed = False
        self._states.clear()

    def add(self, submission: Submission, frame: StoreUnit) -> int:
        """Add a unit to the frame, or note in the submission why it cannot be added. Returns the number of bytes it
        adds."""
        unit = submission.unit
        size = self._add_out_of_syncpoint(submission, frame)
        depths = self._depths.copy()
        before = frame.mark() if frame.puts or frame.takes or frame.moves or frame.state else EMPTY
        for index, puts in enumerate(unit.puts):
            if not puts.syncpoint:
                continue
            try:
                size += self._put(puts, frame, submission)
            except (MQError, HeaderError) as error:
                submission.failures.append(_failure(index, error))
        try:
            for moves in unit.moves:
                self._move(moves, frame)
            for takes in unit.takes:
                self._take(takes, frame)
            replaces, more = records_of(unit.replaces) if unit.replaces else ({}, 0)
            for name in replaces:
                self.target(name, "")
        except MQError as error:
            submission.failures.append(Failure(-1, error.reason, str(error)))
        if submission.failures:
            self._depths = depths
            frame.cut_back(before)
            submission.puts.clear()
            return size
        for name, records in replaces.items():
            self._states.setdefault(name, records).update(records)
        return size + more

    def end(self, frame: StoreUnit) -> None:
        """End a frame, to which every unit has been added. Of several replacements of a state message the last one
        counts."""
        if not self._states:
            return
        store = self._core.store
        groups: list[tuple[LaneName, int]] = []
        bodies: list[bytes] = []
        for queue, records in self._states.items():
            replaced, others = store.replaceable(queue, records, _STATE_HEAD)
            if replaced is not None:  # as nearly always
                frame.replaced.append(replaced)
            for key, body in others.items():
                tokens = store.tokens(queue, key)
                if tokens:
                    frame.takes.append(LaneTakes(queue, key, tokens))
                if body is not None:
                    groups.append(((queue, key, PRIORITIES - 1), 1))
                    bodies.append(body)
        if groups:
            frame.puts.append(LanePuts("", b"", 0, True, [_STATE_HEAD] * len(bodies), bodies, groups=groups))  # noqa: FBT003

    def _claim(self, queue: LocalQueue, messages: int, frame: StoreUnit) -> None:
        """Count messages for a queue. Raises MQError 2053 if they do not fit below MAXDEPTH."""
        depth = None if self._placed else self._depths.get(queue.name)
        if depth is None:
            depth = self._core.store.depth(queue.name) + queue.uncommitted_puts
            depth += frame.messages_for(queue.name) if self._placed else 0
        depth += messages
        if depth > queue.max_depth:
            raise MQError(
                mq.MQRC_Q_FULL, f"{queue.name} holds {depth - messages} of MAXDEPTH({queue.max_depth}) messages"
            )
        self._depths[queue.name] = depth

    # Puts

    def _add_out_of_syncpoint(self, submission: Submission, frame: StoreUnit) -> int:
        """Add the puts that are in the frame whatever becomes of the rest. Returns the number of bytes they add."""
        size = 0
        for index, puts in enumerate(submission.unit.puts):
            if puts.syncpoint or puts.placed:
                continue
            depths, before = self._depths.copy(), frame.mark()
            try:
                size += self._put(puts, frame, submission)
            except (MQError, HeaderError) as error:
                self._depths = depths
                frame.cut_back(before)
                submission.failures.append(_failure(index, error))
                continue
            submission.out_of_syncpoint.append(puts)
        return size

    def _put(self, puts: Puts, frame: StoreUnit, submission: Submission) -> int:
        heads, bodies = puts.heads, puts.bodies
        if not heads:
            return 0
        if puts.queues is not None:
            return self._put_mixed(puts, puts.queues, frame, submission)
        if len(heads) == 1:
            length = longest = len(bodies[0])
            is_alike = True
        else:
            length, longest = extent(bodies)
            is_alike = same(heads)
        name = puts.queue, puts.queue_manager, puts.priority, puts.persistent, heads[0]
        way = self._ways.get(name) if is_alike else None
        if way is None or longest > way.longest:
            return length + self._put_anew(puts, frame, submission, longest, name if is_alike else None)
        self._claim(way.queue, len(heads), frame)
        lane = LanePuts(way.queue.name, puts.key, way.priority, puts.persistent, heads, bodies)
        frame.puts.append(lane)
        submission.puts.append((puts, lane))
        return length + len(heads[0])

    def _put_mixed(self, puts: Puts, queues: list[str], frame: StoreUnit, submission: Submission) -> int:
        """Put messages each of which has its queue; returns the number of bytes. If one of them goes another way than
        earlier ones with its head, each queue gets puts of its own."""
        length, longest = extent(puts.bodies)
        manager, priority, persistent = puts.queue_manager, puts.priority, puts.persistent
        known, found = self._ways.get, runs(queues, puts.heads)
        ways = [known((queue, manager, priority, persistent, head)) for queue, head, _ in found]
        if self._placed or not all(ways) or longest > min([way.longest for way in cast("list[_Way]", ways)]):
            return sum(self._put(each, frame, submission) for each in puts.by_queue())
        depths, groups = self._depths, []
        stored = self._core.store.depths([way.queue.name for way in cast("list[_Way]", ways)])
        for way, (_, head, rows), before in zip(cast("list[_Way]", ways), found, stored, strict=True):
            queue, length = way.queue, length + len(head)
            depth = rows + depths.get(queue.name, before + queue.uncommitted_puts)
            if depth > queue.max_depth:
                self._claim(queue, rows, frame)  # which says so
            depths[queue.name] = depth
            groups.append((way.lane, rows))
        frame.puts.append(LanePuts("", b"", 0, persistent, puts.heads, puts.bodies, groups=groups))
        return length

    def _put_anew(self, puts: Puts, frame: StoreUnit, submission: Submission, longest: int, name: _Name | None) -> int:
        """Put messages whose way is not known yet, with bodies no longer than `longest`; returns the length of their
        heads. They have a `name` if all heads are the same."""
        heads, bodies = puts.heads, puts.bodies
        if puts.queue.startswith(TOPIC_PREFIX):
            self._placed = True
            self._placer.publish_columns(puts.queue.removeprefix(TOPIC_PREFIX), puts, frame)
            return 0
        target, queue, limit = self._resolve(puts.queue, puts.queue_manager)
        known = _about(heads) if name is None else self._about(heads[0])
        if puts.priority < 0 or not known.plain_reply:
            heads = self._as_put(puts, target, known)
        if queue is None or not known.quiet:
            target.check_put()
            self._placed = True
            self._placer.place_columns(target, replace(puts, heads=heads), frame)
            return 0
        if puts.persistent and queue.temporary:
            raise MQError(mq.MQRC_PERSISTENT_NOT_ALLOWED, f"{queue.name} is a temporary dynamic queue")
        heads_length, longest_head = extent(heads) if name is None else (len(heads[0]), len(heads[0]))
        if longest_head + longest - MQMD_LENGTH > limit:
            check_lengths(self._core, queue, heads, bodies)
        self._claim(queue, len(heads), frame)
        priority = puts.priority
        if queue.fifo or not 0 <= priority <= 9:
            priority = _priority(queue, target, priority)
        lane = LanePuts(queue.name, puts.key, priority, puts.persistent, heads, bodies)
        if not known.unlimited:
            lane.expiries = tuple(expiries(heads, self._core.now()))
        elif name is not None and heads is puts.heads:
            if len(self._ways) >= WAYS_REMEMBERED:
                self._ways.clear()
            lane_name = queue.name, puts.key, PRIORITIES - 1 - priority
            self._ways[name] = _Way(queue, priority, limit - longest_head + MQMD_LENGTH, lane_name)
        frame.puts.append(lane)
        submission.puts.append((puts, lane))
        return heads_length

    def _about(self, head: bytes) -> _Heads:
        """What is known of messages with this head."""
        known = self._alike.get(head)
        if known is None:
            if len(self._alike) >= HEADS_REMEMBERED:
                self._alike.clear()
            known = self._alike[head] = _about([head])
        return known

    def _as_put(self, puts: Puts, target: Target, known: _Heads) -> list[bytes]:
        """The heads with what MQPUT fills in: the queue's DEFPRTY for a priority below 0, and ReplyToQMgr."""
        default = target.chain[0].number("DEFPRTY") if puts.priority < 0 and target.chain else -1
        if default < 0 and known.plain_reply:
            return puts.heads
        return [self._filled.get((head, default)) or self._fill_in(head, default) for head in puts.heads]

    def _fill_in(self, head: bytes, default: int) -> bytes:
        md = descriptor.Descriptor(head[:MQMD_LENGTH])
        if md.priority < 0:
            md.priority = max(default, 0)
        names = reply_to(self._core, descriptor.text(md.reply_to_q), descriptor.text(md.reply_to_qmgr))
        md.reply_to_q, md.reply_to_qmgr = (descriptor.padded(name, 48) for name in names)
        if len(self._filled) >= HEADS_REMEMBERED:
            self._filled.clear()
        filled = self._filled[head, default] = md.pack() + head[MQMD_LENGTH:]
        return filled

    # Moves, takes, state

    def _move(self, moves: Moves, frame: StoreUnit) -> None:
        source = self.target(moves.queue, "").queue
        resolved = self._resolve(moves.to_queue, moves.to_queue_manager)
        target = resolved.target
        target.check_put()
        queue = target.queue
        if source is None:
            raise MQError(
                mq.MQRC_UNKNOWN_OBJECT_NAME, f"{moves.queue!r} is no local queue: messages cannot be moved from it"
            )
        heads = moves.heads
        asks = heads is not None and not agree(heads, REPORT, QUIET)
        rewritten = queue is None or target.remote or asks or bool(queue.stream)
        if moves.to_priority is not None and (rewritten or (queue is not None and queue.temporary)):
            raise MQError(mq.MQRC_Q_TYPE_ERROR, f"messages cannot be moved to {moves.to_queue} now: put them there")
        if queue is None or rewritten:
            self._rewrite(moves, source, target, frame)
            return
        if moves.longest > resolved.longest:
            raise MQError(mq.MQRC_MSG_TOO_BIG_FOR_Q, f"a message may be too long for MAXMSGL of {queue.name}")
        self._claim(queue, len(moves.tokens), frame)
        tokens = numbers_of(moves.tokens)
        to_priority = 0 if queue.fifo else None
        if moves.to_priority is not None:
            to_priority = _priority(queue, target, moves.to_priority)
        frame.moves.append(LaneMoves(source.name, moves.key, tokens, queue.name, moves.to_key, to_priority, heads))

    def _rewrite(self, moves: Moves, source: LocalQueue, target: Target, frame: StoreUnit) -> None:
        """Move staged messages to a remote queue, a topic or a queue with a STREAMQ, by writing them again there."""
        puts = Puts(moves.to_queue, moves.to_queue_manager, moves.to_key, priority=-1)
        tokens = []
        for index, token in enumerate(moves.tokens):
            try:
                message = self._core.store.read(source.name, moves.key, token) if isinstance(token, int) else None
            except StoreCorrupt as error:
                raise MQError(mq.MQRC_OBJECT_DAMAGED, str(error)) from error
            if message is None:
                continue
            tokens.append(message.token)
            puts.heads.append(message.head if moves.heads is None else moves.heads[index])
            puts.bodies.append(message.body)
        if tokens:
            self._placed = True
            self._placer.place_columns(target, puts, frame)
            frame.takes.append(LaneTakes(source.name, moves.key, tokens))

    def _take(self, takes: Takes, frame: StoreUnit) -> None:
        queue = self.target(takes.queue, "").queue
        if queue is None:
            raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"{takes.queue!r} is no local queue")
        tokens = numbers_of(takes.tokens)
        frame.takes.append(LaneTakes(queue.name, takes.key, tokens))
        if self._confirmations:
            for message in filter(None, [self._confirmations.get((queue.name, token)) for token in tokens]):
                md = as_got(message, self._core.name, self._core.now())
                self._placed = True
                self._placer.confirm_delivery(md, _data_of(message), frame)

    def confirm_taking(self, queue: str, messages: Sequence[Message]) -> None:
        """Remember those of the messages, which will be taken, that ask for COD."""
        if self._confirmations_size > 2 * self._confirmations_left + CONFIRMATIONS_REMEMBERED:
            self._forget_confirmed()
        for message in messages:
            if message.head[8:12] != QUIET and descriptor.integer(message.head, "report") & mq.MQRO_COD:
                self._confirmations[queue, message.token] = message
                self._confirmations_size += len(message.head) + len(message.body)

    def _forget_confirmed(self) -> None:
        """Forget the messages that have been taken or released: those that are still to be taken have their lock."""
        queues = self._core.queues
        self._confirmations = {
            (name, token): message
            for (name, token), message in self._confirmations.items()
            if name in queues and token in queues[name].locked
        }
        left = sum(len(message.head) + len(message.body) for message in self._confirmations.values())
        self._confirmations_size = self._confirmations_left = left


def _about(heads: list[bytes]) -> _Heads:
    return _Heads(
        agree(heads, descriptor.REPLY_TO_Q.start, NO_QUEUE), agree(heads, REPORT, QUIET),
        agree(heads, EXPIRY, UNLIMITED),
    )  # fmt: skip


def numbers_of(tokens: Sequence[Token]) -> Sequence[int]:
    """The store's tokens for tokens of the batch port, where the token of a message in segments is a tuple of the
    segments' tokens."""
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


def _priority(queue: LocalQueue, target: Target, priority: int) -> int:
    """The lane's priority: below 0 it is the queue's default, above 9 it counts as 9, and MSGDLVSQ(FIFO) has one
    lane."""
    if queue.fifo:
        return 0
    return target.chain[0].number("DEFPRTY") if priority < 0 else min(priority, 9)


def expiries(heads: Sequence[bytes], now: float) -> list[int]:
    """When each message expires, in microseconds; 0: never. Raises MQError 2013 for an expiry that is not valid."""
    due: dict[bytes, int] = {}
    for head in set(heads):
        tenths = descriptor.integer(head, "expiry")
        if tenths <= 0 and tenths != mq.MQEI_UNLIMITED:
            raise MQError(mq.MQRC_EXPIRY_ERROR, f"Expiry {tenths} is neither -1 nor above 0")
        due[head] = 0 if tenths < 0 else int(now * 1_000_000) + tenths * 100_000
    return [due[head] for head in heads]
