"""One connection's part of a unit of work: runs of puts, takes, moves and replaced state messages as MQI calls.

Objects are opened once and kept. Nothing here commits, reconnects or waits; a call that fails raises MQError and leaves
the unit to its owner. Used by one thread.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from gateway.backends.ibm.calls import Carried
from gateway.backends.ibm.driver import Session
from gateway.backends.ibm.identifiers import NewId
from gateway.backends.ibm.structures import (
    MD_LENGTH,
    MSG_ID,
    NO_ID,
    fresh,
    get_options,
    group_md,
    has_identity,
    head_length_of,
    keyed_md,
    match_md,
    object_descriptor,
    plain_md,
    put_options,
    state_md,
)
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for
from gateway.ports.batch import Moves, Puts, Replace, Takes, Token
from gateway.ports.state_queues import PREFIX

if TYPE_CHECKING:
    from gateway.backends.ibm._calls import Carrier, Run
    from gateway.backends.ibm._calls import Marker as MarkerCalls

TOPIC_PREFIX = "topic://"
STALE_HANDLES = frozenset({mq.MQRC_HOBJ_ERROR, mq.MQRC_OBJECT_CHANGED, mq.MQRC_Q_DELETED})
"""Reason codes that say that the object of a handle was changed or deleted: it is opened again before the failure
counts."""
MARKER_EXPIRY = 7 * 24 * 36_000
"""After how many tenths of a second the markers of a gateway that was killed expire. An idle worker renews its own."""
MAX_PUT_TO = 500
"""How many names of queues are remembered, which lists and metrics show."""
FIRST_LENGTH = 64 * 1024
"""The buffer length of a first get; for a longer message the get is repeated with the message's length."""
_OUTPUT = mq.MQOO_OUTPUT | mq.MQOO_FAIL_IF_QUIESCING
_INPUT = mq.MQOO_INPUT_SHARED | mq.MQOO_FAIL_IF_QUIESCING
_BROWSE = mq.MQOO_BROWSE | mq.MQOO_FAIL_IF_QUIESCING
_CO_OP = 0x20000
"""MQOO_CO_OP."""
_GET = mq.MQGMO_SYNCPOINT | mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_NO_PROPERTIES
_DROP = _GET | mq.MQGMO_ACCEPT_TRUNCATED_MSG
_DROP_WHOLE = get_options(_DROP | mq.MQGMO_COMPLETE_MSG, mq.MQMO_MATCH_GROUP_ID | mq.MQMO_MATCH_MSG_SEQ_NUMBER)
WHOLE_LENGTH = 32
"""Length of a token that is not a MsgId: GroupId, MsgSeqNumber, and how many segments there are."""


class Connection:
    """A session with its open objects."""

    def __init__(self, session: Session, new_id: NewId) -> None:
        """`new_id` makes the MsgIds of state messages, which are known before the put has been answered."""
        self.session = session
        self.calls = 0
        """MQI calls made for messages, which the benchmarks count."""
        self.gone: Counter[str] = Counter()
        """Messages that were to be taken in this unit of work and were not there, by queue; state messages are not
        counted."""
        self._new_id = new_id
        self._handles: dict[tuple[str, str, int], int] = {}
        self._no_identity: set[str] = set()
        self._topics: list[ctypes.Array[ctypes.c_char]] = []
        self._put_options: dict[tuple[bool, bool, int], Callable[[], bytes]] = {}
        self._put_packed: dict[tuple[bool, bool, int], bytes] = {}
        self._plain: dict[tuple[str, str, bool, bool], tuple[int, bytes, bytes]] = {}  # without a key, under syncpoint
        self.marked: MarkerCalls | None = None  # what `marker` has made: its queue is open
        self.put_to: set[str] = set()
        """Local names of queues that were opened for putting; the maker of connections keeps them from one to the
        next."""
        self.carrier: Carrier | None = None
        """Makes the calls of many puts without the interpreter's lock, if the extension was built."""
        self._trusted: set[tuple[str, str]] = set()
        """Queues whose last run out of syncpoint did not fail: the next one is put asynchronously."""
        self._drop_one = get_options(_DROP, mq.MQMO_MATCH_MSG_ID)
        self._drop_keyed = get_options(_DROP, mq.MQMO_MATCH_CORREL_ID)
        self._get_one = get_options(_GET, mq.MQMO_MATCH_MSG_ID)

    # Objects

    def output(self, queue: str, queue_manager: str = "") -> int:
        """Returns the handle for putting; it sets identity context if the gateway's user may do that."""
        key = (queue, queue_manager, _OUTPUT)
        found = self._handles.get(key)
        if found is None:
            found = self._handles[key] = self._open_output(queue, queue_manager)
            if not queue_manager and not queue.startswith(TOPIC_PREFIX) and len(self.put_to) < MAX_PUT_TO:
                self.put_to.add(queue)
        return found

    def _open_output(self, queue: str, queue_manager: str) -> int:
        descriptor = self._descriptor(queue, queue_manager)
        try:
            return self.session.open(descriptor(), _OUTPUT | mq.MQOO_SET_IDENTITY_CONTEXT)
        except MQError as error:
            if error.reason != mq.MQRC_NOT_AUTHORIZED:
                raise MQError(error.reason, f"opening {queue} for output") from None
        self._no_identity.add(queue)
        return self._open(descriptor(), _OUTPUT, queue)

    def input(self, queue: str) -> int:
        """Returns the handle for taking."""
        key = (queue, "", _INPUT)
        found = self._handles.get(key)
        if found is None:
            found = self._handles[key] = self._open(object_descriptor(queue), _INPUT, queue)
        return found

    def browse(self, queue: str, *, co_op: bool = False) -> int:
        """Returns the handle for browsing; its cursor is shared by all browsing of this queue on this connection.
        `co_op`: a handle that sees and makes the marks of co-operating browsers."""
        options = _BROWSE | _CO_OP if co_op else _BROWSE
        key = (queue, "", options)
        found = self._handles.get(key)
        if found is None:
            found = self._handles[key] = self._open(object_descriptor(queue), options, queue)
        return found

    def keep_browse(self, queue: str) -> None:
        """Leave the handle for browsing to its user, with its cursor where it is: the next call opens another."""
        self._handles.pop((queue, "", _BROWSE), None)

    def close_browse(self, handle: int) -> None:
        """Close a handle for browsing that was kept."""
        with suppress(MQError):
            self.session.close(handle)

    def open_browse(self, queue: str) -> int:
        """Returns a handle for browsing with a cursor of its own."""
        return self._open(object_descriptor(queue), _BROWSE, queue)

    def forget_objects(self) -> None:
        """Close everything that is open after a queue was deleted or changed, because its handle is no longer valid."""
        for handle in self._handles.values():
            with suppress(MQError):
                self.session.close(handle)
        self._handles.clear()
        self._no_identity.clear()
        self._plain.clear()
        self.marked = None

    def _open(self, descriptor: bytes, options: int, queue: str) -> int:
        try:
            return self.session.open(descriptor, options)
        except MQError as error:
            raise MQError(error.reason, f"opening {queue}") from None

    def _descriptor(self, queue: str, queue_manager: str) -> Callable[[], bytes]:
        if not queue.startswith(TOPIC_PREFIX):
            return fresh(object_descriptor(queue, queue_manager))
        text = ctypes.create_string_buffer(queue.removeprefix(TOPIC_PREFIX).encode())
        self._topics.append(text)  # the queue manager reads it by its address
        address = ctypes.addressof(text)
        return fresh(object_descriptor("", topic_pointer=address, topic_length=len(text) - 1))

    # Parts of a unit

    def put_run(self, puts: Puts, asynchronous: bool) -> list[Token]:
        """Put every message of a run; returns their MsgIds. With `asynchronous` a failure shows only at the commit."""
        handle = self.output(puts.queue, puts.queue_manager)
        if self.carrier is not None:
            return self._carry(self.carrier, puts, self._run(puts, handle, asynchronous))
        return self._put_keyed(puts, handle, asynchronous) if puts.key else self._put_plain(puts, handle, asynchronous)

    def _carry(self, carrier: Carrier, puts: Puts, run: Run) -> list[Token]:
        """Put a run by the carrier; rows out of syncpoint that were put are marked as placed."""
        carried = Carried(carrier.carry(self.session.handle, None, None, b"", [run], False), [puts.queue])  # noqa: FBT003
        self.calls += len(carried.ids[0])
        if not puts.syncpoint:
            puts.placed += len(carried.ids[0])
        carried.check_puts("")
        return list(carried.ids[0])

    def _run(self, puts: Puts, handle: int, asynchronous: bool) -> Run:
        """Returns a run in the form of the carrier; identifiers of keyed messages are made here."""
        how = mq.MQPMO_SYNCPOINT if puts.syncpoint else mq.MQPMO_NO_SYNCPOINT
        priority, persistent, heads = puts.priority, puts.persistent, puts.heads
        if puts.key and puts.syncpoint:
            options = self._packed(asynchronous, identity=False)
            ids = b"".join([self._new_id(priority) for _ in heads])
            return handle, priority, persistent, heads, puts.bodies, 0, options, options, puts.key, ids
        how |= mq.MQPMO_RETAIN if puts.retain else 0
        options = self._packed(asynchronous, identity=False, how=how)
        identity = self._packed(asynchronous, identity=puts.queue not in self._no_identity, how=how)
        first = 0 if puts.syncpoint else puts.placed
        return handle, priority, persistent, heads, puts.bodies, first, options, identity, None, b""

    def _packed(self, asynchronous: bool, *, identity: bool, how: int = mq.MQPMO_SYNCPOINT) -> bytes:
        """Returns an MQPMO for the carrier, which copies it for each call."""
        found = self._put_packed.get((identity, asynchronous, how))
        if found is None:
            found = self._options(asynchronous, identity=identity, how=how)()
            self._put_packed[identity, asynchronous, how] = found
        return found

    def runs(self, many: Sequence[Puts], *, can_status: bool, open_too: bool) -> list[Run] | None:
        """Returns asynchronous runs for the carrier; None if a queue is not open yet and is not to be opened now."""
        made: list[Run] = []
        for puts in many:
            asynchronous, plain = puts.persistent or can_status, puts.syncpoint and not puts.key
            name = puts.queue, puts.queue_manager, puts.retain, asynchronous
            known = self._plain.get(name) if plain else None
            if known is None:
                if not open_too and (puts.queue, puts.queue_manager, _OUTPUT) not in self._handles:
                    return None
                run = self._run(puts, self.output(puts.queue, puts.queue_manager), asynchronous)
                known = run[0], run[6], run[7]
                if not plain:
                    made.append(run)
                    continue
                self._plain[name] = known
            handle, how, identity = known
            made.append((handle, puts.priority, puts.persistent, puts.heads, puts.bodies, 0, how, identity, None, b""))
        return made

    def has_open(self, queue: str) -> bool:
        """Whether a queue is open for putting and for taking."""
        return (queue, "", _OUTPUT) in self._handles and (queue, "", _INPUT) in self._handles

    def marker(self, queue: str, key: bytes, expiry: int, fence: bool) -> MarkerCalls:
        """Returns `exchange` in the form of the carrier, without the MsgIds; `fence`: stop if the old message is not
        there."""
        if self.marked is None:
            md = keyed_md(state_md(expiry), 0, True, NO_ID, key)  # noqa: FBT003 -- persistent
            options = self._packed(asynchronous=True, identity=False)
            self.marked = fence, self.input(queue), match_md(), self._drop_one(), self.output(queue), md, options
        return self.marked

    def new_id(self) -> bytes:
        """Returns the MsgId of a new marker."""
        return self._new_id(0)

    def place(self, puts: Puts, *, can_status: bool) -> bool:
        """Put the rows of a run out of syncpoint that have not been put yet; returns whether MQSTAT has to be asked
        about them. A queue that refused a message recently is put to synchronously, so that its rule learns of a
        refusal."""
        name = (puts.queue, puts.queue_manager)
        handle = self.output(*name)
        asynchronous = can_status and name in self._trusted
        self._trusted.discard(name)
        first = puts.placed
        try:
            known = [*puts.tokens, *[NO_ID] * (first - len(puts.tokens))]
            if self.carrier is not None:
                puts.tokens = known + self._carry(self.carrier, puts, self._run(puts, handle, asynchronous))
            else:
                puts.tokens = known + self._put_plain(puts, handle, asynchronous, syncpoint=False)
        except MQError as error:
            if action_for(error.reason) is Action.RECONNECT:  # it may have been put, and is sent at most once
                puts.placed, puts.lost, puts.lost_reason = puts.placed + 1, puts.lost + 1, error.reason
            raise
        self._trusted.add(name)
        return asynchronous and puts.placed > first

    def distrust(self) -> None:
        """An asynchronous put has failed: make the next puts synchronous."""
        self._trusted.clear()

    def _options(self, asynchronous: bool, *, identity: bool, how: int = mq.MQPMO_SYNCPOINT) -> Callable[[], bytes]:
        found = self._put_options.get((identity, asynchronous, how))
        if found is None:
            options = how | mq.MQPMO_FAIL_IF_QUIESCING
            options |= mq.MQPMO_ASYNC_RESPONSE if asynchronous else mq.MQPMO_SYNC_RESPONSE
            options |= mq.MQPMO_SET_IDENTITY_CONTEXT if identity else mq.MQPMO_DEFAULT_CONTEXT
            found = self._put_options[identity, asynchronous, how] = put_options(options)
        return found

    def _put_keyed(self, puts: Puts, handle: int, asynchronous: bool) -> list[Token]:
        mqput, hconn, options = self.session.mqput, self.session.handle, self._options(asynchronous, identity=False)
        key, priority, persistent, queue = puts.key, puts.priority, puts.persistent, puts.queue
        tokens: list[Token] = []
        for head, body in zip(puts.heads, puts.bodies, strict=True):
            token = self._new_id(priority)
            md = keyed_md(head, priority, persistent, token, key)
            answer = mqput(hconn, handle, md, options(), head[MD_LENGTH:] + body)
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(int(answer[-1]), f"putting to {queue}")
            tokens.append(token)
        self.calls += len(tokens)
        return tokens

    def _put_plain(self, puts: Puts, handle: int, asynchronous: bool, *, syncpoint: bool = True) -> list[Token]:
        mqput, hconn, queue = self.session.mqput, self.session.handle, puts.queue
        priority, persistent, identity = puts.priority, puts.persistent, puts.queue not in self._no_identity
        tokens: list[Token] = []
        how = mq.MQPMO_SYNCPOINT if syncpoint else mq.MQPMO_NO_SYNCPOINT
        how |= mq.MQPMO_RETAIN if puts.retain else 0
        last, options = None, self._options(asynchronous, identity=False, how=how)
        before = behind = data = b""
        rows = zip(puts.heads, puts.bodies, strict=True)
        for head, body in rows if syncpoint else islice(rows, puts.placed, None):
            if head is not last:  # runs share their head
                last, options = (
                    head,
                    self._options(asynchronous, identity=identity and has_identity(head), how=how),
                )
                before, behind = plain_md(head, priority, persistent)
                data = head[MD_LENGTH:]
            answer = mqput(hconn, handle, before + behind, options(), data + body)
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(int(answer[-1]), f"putting to {queue}")
            tokens.append(answer[0][MSG_ID])
            if not syncpoint:
                puts.placed += 1
        self.calls += len(tokens)
        return tokens

    def exchange(self, queue: str, key: bytes, taken: bytes | None, expiry: int) -> tuple[bool, bytes]:
        """Replace a state message without data by one with the same key, as every unit of work does with its marker.
        Returns whether the old one was missing, and the MsgId of the new one."""
        gone = taken is not None and not self._drop(self.input(queue), taken, NO_ID, self._drop_one(), queue)
        token = self._new_id(0)
        md = keyed_md(state_md(expiry), 0, True, token, key)  # noqa: FBT003 -- persistent
        options = self._options(asynchronous=True, identity=False)()
        answer = self.session.mqput(self.session.handle, self.output(queue), md, options, b"")
        if answer[-2] == mq.MQCC_FAILED:
            raise MQError(int(answer[-1]), f"putting to {queue}")
        self.calls += 1
        return gone, token

    def take(self, takes: Takes) -> None:
        """Remove messages by their MsgIds (behind transmission headers: of all segments), or by their places in groups
        with all segments. A message that is no longer there is not an error."""
        handle = self.input(takes.queue)
        for token in takes.tokens:
            if isinstance(token, bytes) and len(token) == WHOLE_LENGTH:
                md = group_md(token[:24], int.from_bytes(token[24:28], "big"))
                there = self._drop_by(handle, md, _DROP_WHOLE(), takes.queue)
            else:
                there = True
                for msg_id in ids_of(token):
                    there &= self._drop(handle, _as_id(msg_id), NO_ID, self._drop_one(), takes.queue)
            if not there and not takes.queue.startswith(PREFIX):
                self.gone[takes.queue] += 1

    def remove(self, queue: str, key: bytes) -> bool:
        """Remove the message with this key; returns whether one could be seen."""
        return self._drop(self.input(queue), NO_ID, key, self._drop_keyed(), queue)

    def replace(self, replace: Replace) -> None:
        """Replace the message with this key."""
        self.remove(replace.queue, replace.key)
        if replace.body is not None:
            self.put_run(state_put(replace.queue, replace.key, replace.body), asynchronous=True)

    def _drop(self, handle: int, msg_id: bytes, key: bytes, options: bytes, queue: str) -> bool:
        """Remove a message; returns whether it was there."""
        return self._drop_by(handle, match_md(msg_id, key), options, queue)

    def _drop_by(self, handle: int, md: bytes, options: bytes, queue: str) -> bool:
        self.calls += 1
        answer = self.session.mqget(self.session.handle, handle, md, options, 0)
        reason = int(answer[-1])
        if answer[-2] == mq.MQCC_FAILED and reason != mq.MQRC_NO_MSG_AVAILABLE:
            raise MQError(reason, f"taking from {queue}")
        return reason != mq.MQRC_NO_MSG_AVAILABLE

    def move(self, moves: Moves, asynchronous: bool) -> None:
        """Take staged messages and put them on their destination. What has been moved before stays moved."""
        handle = self.input(moves.queue)
        for index, token in enumerate(moves.tokens):
            found = self.get(handle, _as_id(token), moves.queue)
            if found is None:
                continue
            data, staged = found
            head = moves.heads[index] if moves.heads is not None else staged
            self.put_run(_moved(moves, staged, head, data), asynchronous)

    def look(self, handle: int, key: bytes, options: Callable[[], bytes], queue: str) -> tuple[bytes, bytes] | None:
        """Returns data and descriptor of the message that a browse with these options sees, whatever its length."""

        def ask(length: int) -> Sequence[Any]:
            return self.session.mqget(self.session.handle, handle, match_md(NO_ID, key), options(), length)

        return whole_message(ask, f"looking at {queue}")

    def get(self, handle: int, msg_id: bytes, queue: str) -> tuple[bytes, bytes] | None:
        """Returns data and descriptor of the message with this MsgId, got under syncpoint, whatever its length."""

        def ask(length: int) -> Sequence[Any]:
            self.calls += 1
            return self.session.mqget(self.session.handle, handle, match_md(msg_id), self._get_one(), length)

        return whole_message(ask, f"taking from {queue}")


def whole_message(ask: Callable[[int], Sequence[Any]], what: str) -> tuple[bytes, bytes] | None:
    """Returns data and descriptor of the message that a get with this much room finds; None if there is none. A longer
    message stays where it is, and a cursor does not move: it is asked for again with its length."""
    length = FIRST_LENGTH
    while True:
        answer = ask(length)
        reason = int(answer[-1])
        if reason == mq.MQRC_TRUNCATED_MSG_FAILED:
            length = int(answer[-3])
            continue
        if reason == mq.MQRC_NO_MSG_AVAILABLE:
            return None
        if answer[-2] == mq.MQCC_FAILED:
            raise MQError(reason, what)
        return answer[0], answer[1]


def state_put(queue: str, key: bytes, body: bytes) -> Puts:
    """Returns one persistent state message."""
    return Puts(queue, key=key, priority=0, persistent=True, heads=[state_md(-1)], bodies=[body])


def _moved(moves: Moves, staged: bytes, head: bytes, data: bytes) -> Puts:
    """Returns a moved message. A new head replaces the old one with the first part of the data that belonged to it."""
    if moves.heads is not None:
        data = data[head_length_of(staged) :]
    priority = int.from_bytes(head[40:44], "little", signed=True)
    persistent = bool(head[44])
    return Puts(moves.to_queue, moves.to_queue_manager, moves.to_key, priority, persistent, [head], [data])


def _as_id(token: Token) -> bytes:
    if not isinstance(token, bytes) or len(token) != 24:
        raise MQError(mq.MQRC_MD_ERROR, "a token that is not a MsgId: it belongs to another backend")
    return token


def ids_of(token: Token) -> list[Token]:
    """Returns the MsgIds that a token names: its own, or those of all segments that were put together by their
    MQMDEs."""
    if not isinstance(token, bytes) or len(token) <= WHOLE_LENGTH:
        return [token]
    return [token[at : at + 24] for at in range(0, len(token), 24)]


def messages_of(token: Token) -> int:
    """Returns how many messages of a unit of work the removal of this one takes."""
    whole = isinstance(token, bytes) and len(token) == WHOLE_LENGTH
    return int.from_bytes(token[28:], "big") if whole else len(ids_of(token))  # type: ignore[index]
