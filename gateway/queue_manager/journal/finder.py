"""Finding messages by MsgId, CorrelId and GroupId in constant time. A MsgId made by this queue manager contains the
message's number; other identifiers are indexed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from gateway.errors import StoreCorrupt
from gateway.queue_manager.journal.decode import Rows
from gateway.queue_manager.journal.reader import Reader
from gateway.queue_manager.store.changes import Changes
from gateway.queue_manager.store.identifiers import FIELDS, Batch, FieldIndex, Numbers, QueueIdentifiers
from gateway.queue_manager.store.index import LaneName, spans
from gateway.queue_manager.store.lanes import Lane
from gateway.queue_manager.store.place import MSG_ID_PREFIX, NUMBER_BITS, NUMBER_MASK, ROW_BITS, ROW_MASK, wanted
from gateway.queue_manager.store.unit import ID_LENGTH, NO_ID, Message

FAR = 64
"""Up to this many unwanted numbers are stepped over; beyond that the place in the lane is looked up."""


PART = 4096
"""Messages that are indexed in a few milliseconds."""


class Finder:
    """The indexes of identifiers, one set for each queue and key that was searched."""

    def __init__(self, reader: Reader, queue_manager: str) -> None:
        self._reader = reader
        self._index = reader.index
        self._prefix = MSG_ID_PREFIX + (queue_manager.encode()[:12].ljust(12) if queue_manager else b"")
        self.searched: dict[tuple[str, bytes], QueueIdentifiers] = {}

    def find(
        self,
        queue: str,
        key: bytes = b"",
        msg_id: bytes | None = None,
        correl_id: bytes | None = None,
        group_id: bytes | None = None,
        after: int | None = None,
        onward: Callable[[int], int] | None = None,
    ) -> Iterable[Message]:
        """The messages that have all the identifiers given (None: any), by priority and arrival, behind the token
        `after`; locked ones too. They are read one by one: the store must not change meanwhile. For a token, `onward`
        returns the first wanted one from it on: others are not read where there may be many."""
        holds = partial(self._holds, queue, key)
        if msg_id is None and group_id is None and correl_id is not None:
            identifiers = self.searched.get((queue, key))
            index = identifiers.fields.get("correl_id") if identifiers is not None else None
            numbers = (index or self._index_of(queue, key, "correl_id")).find(correl_id, holds)
            if isinstance(numbers, tuple):  # a reply, as nearly always
                return self._correlated(queue, key, correl_id, numbers, after)
        asked = {"msg_id": msg_id, "correl_id": correl_id, "group_id": group_id}
        given = {field: identifier for field, identifier in asked.items() if identifier is not None}
        if not given:
            return self._read_after(queue, key, None, given, after, onward)
        field = next(iter(given))
        numbers = self._index_of(queue, key, field).find(given[field], holds)
        made_here = self._number_in(msg_id) if msg_id is not None else None
        if made_here is not None:
            numbers = tuple(sorted({*numbers, made_here}))
        return self._read_after(queue, key, numbers, given, after, onward) if numbers else ()

    def _holds(self, queue: str, key: bytes, number: int) -> bool:
        return any(lane.holds(number) for lane in self._index.chain(queue, key))

    def _read_after(
        self, queue: str, key: bytes, numbers: tuple[int, ...] | Numbers | None, given: dict[str, bytes],
        after: int | None, onward: Callable[[int], int] | None,
    ) -> Iterator[Message]:  # fmt: skip
        """The messages with these numbers (None: all) behind a token, if they have the identifiers."""
        rank, last = (-1, -1) if after is None else (after >> NUMBER_BITS, after & NUMBER_MASK)
        for lane in self._index.chain(queue, key):
            if lane.rank < rank:
                continue
            begin = last if lane.rank == rank else -1
            for number in _in_lane(lane, numbers, begin, onward):
                message = self._reader.message(lane, number)
                if message is not None and self._has(message, given):
                    yield message

    def _correlated(
        self, queue: str, key: bytes, correl_id: bytes, numbers: Sequence[int], after: int | None
    ) -> list[Message]:
        """The message with this number, if it has this CorrelId."""
        if not numbers:
            return []
        read, where = self._reader.message, FIELDS["correl_id"]
        found = [read(lane, numbers[0]) for lane in self._index.chain(queue, key)]
        return [
            message for message in found
            if message is not None and message.head[where] == correl_id and (after is None or message.token > after)
        ]  # fmt: skip

    def _number_in(self, msg_id: bytes) -> int | None:
        """The message number in a MsgId that was made here; None for any other."""
        if len(msg_id) != ID_LENGTH or not msg_id.startswith(self._prefix):
            return None
        return int.from_bytes(msg_id[16:], "big") & NUMBER_MASK

    def _has(self, message: Message, given: dict[str, bytes]) -> bool:
        """Whether the message has these identifiers; different ones may have equal fingerprints."""
        for field, identifier in given.items():
            stored = message.head[FIELDS[field]]
            if field == "msg_id" and stored == NO_ID:
                if self._number_in(identifier) != message.token & NUMBER_MASK:
                    return False
            elif stored != identifier:
                return False
        return True

    # ---- indexes

    def _index_of(self, queue: str, key: bytes, field: str) -> FieldIndex:
        while not self.prepare(queue, key, field):
            pass
        return self.searched[queue, key].fields[field]

    def prepare(self, queue: str, key: bytes, field: str) -> bool:
        """Build a part of the index by which messages are found by this field; returns whether it is complete."""
        identifiers = self.searched.get((queue, key))
        if identifiers is None:
            identifiers = self.searched[queue, key] = QueueIdentifiers()
        return field in identifiers.fields or identifiers.build(field, partial(self._behind, queue, key, field), PART)

    def _behind(self, queue: str, key: bytes, field: str, token: int) -> Iterator[tuple[int, Batch]]:
        for lane in self._index.chain(queue, key):
            rank = lane.rank << NUMBER_BITS
            if token >= rank + NUMBER_MASK:
                continue
            for first, count, place in lane.live(max(token - rank, -1)):
                try:
                    rows = self._reader.rows(place >> ROW_BITS)
                except StoreCorrupt:  # it is found by what can be read alone: a MsgId that was made here
                    continue
                for at in range(0, count, PART):
                    length = min(count - at, PART)
                    yield rank | first + at + length - 1, _batch(field, first + at, length, place + at, rows)

    def forget(self, queue: str) -> None:
        """Forget the indexes of a queue that has been deleted. Programs make a queue for each request that they send,
        and take the reply by CorrelId: nothing is kept of these."""
        for name in [name for name in self.searched if name[0] == queue]:
            del self.searched[name]

    def note_arrivals(self, changes: Changes, rows: Rows | None) -> None:
        """Add what was just applied to the indexes of the queues that were searched."""
        number, row = changes.first_number, 0
        for name, count in changes.all_groups if changes.numbers is None else ():
            if rows is not None:
                self._note(name, number, count, row, rows)
            number += count
            row += count
        for move in changes.moves:
            lane = self._index.find(move.to_lane)
            if lane is not None and move.to_lane[:2] in self.searched:
                for first, count, place in list(spans(lane, move.to_first, move.length)):
                    with suppress(StoreCorrupt):
                        self._note(move.to_lane, first, count, place, self._reader.rows(place >> ROW_BITS))

    def _note(self, name: LaneName, first: int, count: int, place: int, rows: Rows) -> None:
        identifiers = self.searched.get(name[:2])
        if identifiers is None:
            return
        lanes = list(self._index.chain(name[0], name[1]))
        depth = sum(lane.depth for lane in lanes)
        for index in identifiers:
            index.add(*_batch(index.field, first, count, place, rows))
            index.sweep(depth, lambda number: _any_holds(lanes, number))


def _in_lane(
    lane: Lane, numbers: tuple[int, ...] | Numbers | None, after: int, onward: Callable[[int], int] | None
) -> Iterable[int]:
    """Those of these numbers (None: of all in the lane) that come after `after` and are wanted."""
    if numbers is None:
        return _wanted(lane, after, onward)
    following = numbers.after(after) if isinstance(numbers, Numbers) else (one for one in numbers if one > after)
    if onward is None:
        return following
    rank = lane.rank << NUMBER_BITS
    return (token - rank for token in wanted((rank | number for number in following), onward))


def _wanted(lane: Lane, after: int, onward: Callable[[int], int] | None) -> Iterator[int]:
    """The wanted numbers of a lane; where a long piece is not wanted, its runs are not gone through."""
    rank: int = lane.rank << NUMBER_BITS
    ahead = True
    while ahead:
        ahead = False
        for first, count, _place in lane.live(after):
            number, end = first, first + count
            while number < end:
                free = number if onward is None else onward(rank | number) - rank
                if free == number:
                    yield number
                    free += 1
                number = free
            if number > end + FAR:
                after, ahead = number - 1, True
                break


def _batch(field: str, first: int, count: int, place: int, rows: Rows) -> Batch:
    begin = place & ROW_MASK
    column: Sequence[bytes] | None = {"msg_id": rows.msg_ids, "correl_id": rows.correl_ids}.get(field)
    own = None if column is None else column[begin : begin + count]
    return first, rows.heads[begin : begin + count], own


def _any_holds(lanes: list[Lane], number: int) -> bool:
    return any(lane.holds(number) for lane in lanes)
