"""The message that an MQGET selects: by identifiers, groups, selectors, marks and the browse cursor. Only reads the
store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.batch import MQMD_LENGTH
from gateway.ports.mqi import GetOptions
from gateway.queue_manager import descriptor
from gateway.queue_manager.batch.stored_messages import complete
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import NO_ID
from gateway.queue_manager.groups import LogicalOrder, is_complete_group, is_complete_message, physical_key
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.selectors import Selector
from gateway.queue_manager.store.unit import Message
from gateway.queue_manager.verbs.browse_marks import marks_of
from gateway.queue_manager.verbs.connection_state import Handle
from gateway.queue_manager.verbs.long_search import LongSearch
from gateway.queue_manager.verbs.refused_messages import RefusedMessages

CHUNK = 64
NO_TOKEN = bytes(16)
_Ids = tuple[bytes | None, bytes | None, bytes | None]
_NO_IDS = (None, None, None)
_FIELDS = ("msg_id", "correl_id", "group_id")
_WHOLE = mq.MQGMO_ALL_MSGS_AVAILABLE | mq.MQGMO_ALL_SEGMENTS_AVAILABLE | mq.MQGMO_COMPLETE_MSG
"""Each of these holds back a message of which a segment is missing. In logical order they have no effect once the first
segment has been got, and MQGMO_ALL_MSGS_AVAILABLE has none once the first message of a group has been got: the rest was
there then, and what has been got no longer is."""


@dataclass(slots=True)
class Candidate:
    """A message on the queue, with its descriptor complete."""

    token: int
    md: bytes
    data: bytes
    backout: int
    expiry: int


@dataclass(slots=True)
class Wanted:
    """The values that a message must have, from the descriptor and MatchOptions."""

    msg_id: bytes | None = None
    correl_id: bytes | None = None
    group_id: bytes | None = None
    sequence: int | None = None
    offset: int | None = None
    token: int | None = None

    def holds_of(self, md: bytes) -> bool:
        """Whether a message has these values, except for the token."""
        has = (
            (self.msg_id, md[descriptor.MSG_ID]),
            (self.correl_id, md[descriptor.CORREL_ID]),
            (self.group_id, md[descriptor.GROUP_ID]),
            (self.sequence, descriptor.integer(md, "sequence")),
            (self.offset, descriptor.integer(md, "offset")),
        )
        return all(wanted is None or wanted == value for wanted, value in has)

    def is_at(self, md: bytes) -> bool:
        """Whether a message has the sequence number and the offset."""
        return (self.sequence is None or descriptor.integer(md, "sequence") == self.sequence) and (
            self.offset is None or descriptor.integer(md, "offset") == self.offset
        )

    @property
    def any_message(self) -> bool:
        """Whether any message will do."""
        return (
            self.msg_id is None and self.correl_id is None and self.group_id is None
            and self.sequence is None and self.offset is None and self.token is None
        )  # fmt: skip


def wanted(md: bytes, options: GetOptions) -> Wanted:
    """Returns what an MQGET selects by. Identifiers of NULs do not select."""
    match = options.match
    if match & ~0x3F:
        raise MQError(mq.MQRC_MATCH_OPTIONS_ERROR, f"MatchOptions 0x{match:X} holds unknown options")
    if match & mq.MQMO_MATCH_MSG_TOKEN and options.message_token != NO_TOKEN:
        return Wanted(token=token_of(options.message_token))
    msg_id, correl_id, group_id = md[descriptor.MSG_ID], md[descriptor.CORREL_ID], md[descriptor.GROUP_ID]
    return Wanted(
        msg_id if match & mq.MQMO_MATCH_MSG_ID and msg_id != NO_ID else None,
        correl_id if match & mq.MQMO_MATCH_CORREL_ID and correl_id != NO_ID else None,
        group_id if match & mq.MQMO_MATCH_GROUP_ID and group_id != NO_ID else None,
        descriptor.integer(md, "sequence") if match & mq.MQMO_MATCH_MSG_SEQ_NUMBER else None,
        descriptor.integer(md, "offset") if match & mq.MQMO_MATCH_OFFSET else None,
    )


def message_token(token: int) -> bytes:
    """Returns MQGMO.MsgToken for a token of the store."""
    return b"MQGT" + bytes(4) + token.to_bytes(8, "big")


def token_of(message_token_bytes: bytes) -> int:
    """Returns the token of the store for MQGMO.MsgToken. Raises 2331 for one that no queue manager of this kind has
    made."""
    if not message_token_bytes.startswith(b"MQGT"):
        raise MQError(mq.MQRC_MSG_TOKEN_ERROR, "this queue manager did not return this MsgToken")
    return int.from_bytes(message_token_bytes[8:16], "big")


@dataclass(slots=True)
class Search:
    """Finds messages on one queue for one handle. The caller discards the expired ones it has come across."""

    core: Core
    queue: LocalQueue
    handle: Handle
    order: LogicalOrder = field(default_factory=LogicalOrder)
    """The position of the handle in a group, for a get in logical order."""
    part: LongSearch | None = None
    """How far it has got in earlier turns; None: it goes through the whole queue in this one."""
    expired: dict[int, Candidate] = field(default_factory=dict)
    """Expired messages by token: the search may come across one several times, once for each other message of its
    group."""

    def at(self, token: int) -> Candidate | None:
        """Returns the message of this token, if it is on the queue and not locked by another owner."""
        message = self.core.store.read(self.queue.name, b"", token)
        return None if message is None else self._free(message)

    def _free(self, message: Message) -> Candidate | None:
        """Returns the message, if it is not locked by another owner and has not expired."""
        if self.queue.locked.get(message.token, self.handle) is not self.handle:
            return None
        return self._unexpired(message)

    def first(self, criteria: Wanted, options: GetOptions, after: int | None = None) -> Candidate | None:
        """Returns the first message in the order of delivery that is selected."""
        if criteria.token is not None:
            return self.at(criteria.token)
        if options.options & mq.MQGMO_LOGICAL_ORDER and self.order.open:
            return self._next_in_order(criteria, options)
        part = self.part
        if part is None:
            return self._look(criteria, options, after, None)
        found = self._look(criteria, options, after if part.after is None else part.after, part)
        part.at_end(found=found is not None)
        return found

    def _look(
        self, criteria: Wanted, options: GetOptions, after: int | None, part: LongSearch | None
    ) -> Candidate | None:
        for one in self._candidates(criteria, after, options, part):
            if self._fits(one, criteria, options):
                return one
            if part is not None:
                part.looked_at(one.token)
        return None

    def _next_in_order(self, criteria: Wanted, options: GetOptions) -> Candidate | None:
        """Returns the next message of the group that the handle is in, wherever it lies. Raises 2247 if it is not the
        one asked for."""
        group = Wanted(group_id=self.order.group_id)
        found = (one for one in self._candidates(group, None, options) if self._fits(one, group, options))
        following = next(found, None)
        if following is not None and not criteria.holds_of(following.md):
            text = "the next message in logical order is not the one that MatchOptions and descriptor ask for"
            raise MQError(mq.MQRC_MATCH_OPTIONS_ERROR, text)
        return following

    def group(self, group_id: bytes) -> list[Candidate]:
        """Returns the messages of a group that are on the queue, in logical order."""
        self._prepare("group_id")
        found = map(self._free, self.core.store.find(self.queue.name, b"", None, None, group_id))
        return sorted((one for one in found if one is not None), key=lambda one: physical_key(one.md))

    def segments(self, first: Candidate) -> list[Candidate]:
        """Returns the segments of the message that begins with `first`, in order."""
        number = descriptor.integer(first.md, "sequence")
        return [
            one for one in self.group(first.md[descriptor.GROUP_ID]) if descriptor.integer(one.md, "sequence") == number
        ]

    def _candidates(
        self, criteria: Wanted, after: int | None, options: GetOptions, part: LongSearch | None = None
    ) -> Iterator[Candidate]:
        ids = criteria.msg_id, criteria.correl_id, criteria.group_id
        handle = self.handle
        goes_on = part is not None and part.after is not None
        refused = self._refused(criteria)
        if ids == _NO_IDS and not (goes_on or handle.cursor_locked or refused or self._looks_at_marks(options)):
            return self._scan(after)
        return self._found(
            ids, after, self._onward(options, part, refused)
        )  # includes what the handle itself has locked, and nothing that is known already

    def _looks_at_marks(self, options: GetOptions) -> bool:
        marks = self.queue.marked or self.queue.handle_marks
        return bool(options.options & mq.MQGMO_UNMARKED_BROWSE_MSG and marks)

    def _found(self, ids: _Ids, after: int | None, onward: Callable[[int], int] | None) -> Iterator[Candidate]:
        field = next((field for field, identifier in zip(_FIELDS, ids, strict=True) if identifier is not None), None)
        if field is not None:
            self._prepare(field)
        for message in self.core.store.find(self.queue.name, b"", *ids, after, onward):
            candidate = self._free(message)
            if candidate is not None:
                yield candidate

    def _prepare(self, field: str) -> None:
        """Prepare to find messages by this field; the first get on a deep queue needs several turns for that."""
        while not self.core.store.prepare_find(self.queue.name, b"", field):
            if self.part is not None:
                self.part.interrupt()

    def _refused(self, criteria: Wanted) -> list[RefusedMessages]:
        """Returns the records of messages known not to be selected: by the handle's selector, and by the sequence
        number or offset, as long as the same ones are asked for."""
        handle = self.handle
        if (criteria.sequence, criteria.offset) != handle.place:
            handle.place, handle.elsewhere = (criteria.sequence, criteria.offset), RefusedMessages("")
        return [one for one in (handle.refused, handle.elsewhere) if one]

    def _onward(
        self, options: GetOptions, part: LongSearch | None, refused: list[RefusedMessages]
    ) -> Callable[[int], int] | None:
        """Returns a function that gives, for a token, the first token from it on that this get does not pass over,
        without reading messages. A gateway has hundreds of messages marked and hundreds in its unit of work while it
        browses on, each time from the first message; and a selector may have refused a million."""
        passed = self._passed_by_others(options)
        if passed is None and part is None and not refused:
            return None

        def onward(token: int) -> int:
            if (part is not None and part.passes(token)) or (passed is not None and passed(token)):
                return token + 1
            for one in refused:
                token = one.onward(token)
            return token

        return onward

    def _passed_by_others(self, options: GetOptions) -> Callable[[int], bool] | None:
        queue, handle = self.queue, self.handle
        locked = queue.locked
        if not self._looks_at_marks(options):
            return (lambda token: locked.get(token, handle) is not handle) if locked else None
        marked = marks_of(self.core, handle, queue)
        return lambda token: locked.get(token, handle) is not handle or marked(token)

    def _scan(self, after: int | None) -> Iterator[Candidate]:
        limit = 1
        while messages := self.core.store.fetch(self.queue.name, b"", limit, after):
            after = messages[-1].token
            for message in messages:
                candidate = self._unexpired(message)
                if candidate is not None:
                    yield candidate
            limit = CHUNK

    def _unexpired(self, message: Message) -> Candidate | None:
        candidate = Candidate(
            message.token,
            complete(message, self.core.name),
            message.head[MQMD_LENGTH:] + message.body,
            message.backout,
            message.expiry,
        )
        if 0 < message.expiry <= int(self.core.now() * 1_000_000):
            self.expired[message.token] = candidate
            return None
        return candidate

    def _fits(self, one: Candidate, criteria: Wanted, options: GetOptions) -> bool:
        md = one.md
        if criteria.group_id is not None and md[descriptor.GROUP_ID] != criteria.group_id:
            return False
        if not criteria.is_at(md):
            if self.handle.elsewhere is not None:
                self.handle.elsewhere.add(one.token)
            return False
        if options.options & mq.MQGMO_UNMARKED_BROWSE_MSG and marks_of(self.core, self.handle, self.queue)(one.token):
            return False
        if self.handle.selector is not None and not self._selected(self.handle.selector, one):
            return False
        return self._in_order(one, options)

    def _selected(self, selector: Selector, one: Candidate) -> bool:
        refused = self.handle.refused
        if refused is None:
            refused = self.handle.refused = RefusedMessages(selector.text)
        if one.token in refused:
            return False
        accepted = selector.accepts(one.md, one.data)
        if not accepted:
            refused.add(one.token)
        return accepted

    def _in_order(self, one: Candidate, options: GetOptions) -> bool:
        """Whether the options for groups and segments accept the message."""
        value = options.options
        flags = descriptor.integer(one.md, "flags")
        order = self.order if value & mq.MQGMO_LOGICAL_ORDER else LogicalOrder()
        if value & mq.MQGMO_LOGICAL_ORDER and not _is_next(order, one.md, flags):
            return False
        segmented = flags & mq.MQMF_SEGMENT
        if value & mq.MQGMO_COMPLETE_MSG and segmented and descriptor.integer(one.md, "offset"):
            return False
        if value & mq.MQGMO_ALL_MSGS_AVAILABLE and flags & mq.MQMF_MSG_IN_GROUP and not order.open:
            return is_complete_group(_sizes(self.group(one.md[descriptor.GROUP_ID])))
        if value & _WHOLE and segmented and not order.in_message:
            return is_complete_message(_sizes(self.segments(one)))
        return True


def _sizes(candidates: list[Candidate]) -> list[tuple[bytes, int]]:
    return [(one.md, len(one.data)) for one in candidates]


def _is_next(state: LogicalOrder, md: bytes, flags: int) -> bool:
    """Whether the message is the next in logical order for a handle in this state."""
    if state.open:
        return physical_key(md) == (state.group_id, state.sequence, state.offset)
    grouped = flags & (mq.MQMF_MSG_IN_GROUP | mq.MQMF_SEGMENT)
    return not grouped or (descriptor.integer(md, "sequence") == 1 and descriptor.integer(md, "offset") == 0)
