"""Finding messages by MsgId, CorrelId and GroupId in constant time. An id made here names its message; others are
indexed on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.queue_manager.journal.cache import RowCache
from gateway.queue_manager.journal.decode import Rows
from gateway.queue_manager.journal.reading import Reading
from gateway.queue_manager.journal.ring import Ring
from gateway.queue_manager.journal.volatile import VolatileRows
from gateway.queue_manager.store.changes import Changes
from gateway.queue_manager.store.index import Index, LaneName, spans
from gateway.queue_manager.store.lanes import Lane
from gateway.queue_manager.store.match import FIELDS, Batch, FieldIndex, Matches
from gateway.queue_manager.store.place import MSG_ID_PREFIX, NUMBER_BITS, NUMBER_MASK, ROW_BITS, ROW_MASK
from gateway.queue_manager.store.unit import ID_LENGTH, NO_ID, Message


class Matching(Reading):
    """The matching part of `Store`."""

    def __init__(self, ring: Ring, index: Index, cache: RowCache, volatile: VolatileRows, queue_manager: str) -> None:
        super().__init__(ring, index, cache, volatile)
        self._prefix = MSG_ID_PREFIX + (queue_manager.encode()[:12].ljust(12) if queue_manager else b"")
        self._matches: dict[tuple[str, bytes], Matches] = {}

    def find(
        self,
        queue: str,
        key: bytes = b"",
        *,
        msg_id: bytes | None = None,
        correl_id: bytes | None = None,
        group_id: bytes | None = None,
        locked: bool = True,
    ) -> list[int]:
        """Tokens of the messages that have all the identifiers given, in the order of delivery."""
        wanted = {"msg_id": msg_id, "correl_id": correl_id, "group_id": group_id}
        given = {field: identifier for field, identifier in wanted.items() if identifier is not None}
        if not given:
            return [message.token for message in self.fetch(queue, key, limit=1 << 60, locked=locked)]
        field = next(iter(given))
        numbers = set(self._index_of(queue, key, field).find(given[field]))
        made_here = self._number_in(msg_id) if msg_id is not None else None
        if made_here is not None:
            numbers.add(made_here)
        tokens = sorted(self._tokens(queue, key, numbers, locked=locked))
        return [message.token for message in self.read(queue, key, tokens) if self._fits(message, given)]

    def _number_in(self, msg_id: bytes) -> int | None:
        if len(msg_id) != ID_LENGTH or not msg_id.startswith(self._prefix):
            return None
        return int.from_bytes(msg_id[16:], "big") & NUMBER_MASK

    def _fits(self, message: Message, given: dict[str, bytes]) -> bool:
        for field, identifier in given.items():
            found = message.head[FIELDS[field]]
            if field == "msg_id" and found == NO_ID:
                if self._number_in(identifier) != message.token & NUMBER_MASK:
                    return False
            elif found != identifier:
                return False
        return True

    def _tokens(self, queue: str, key: bytes, numbers: set[int], *, locked: bool) -> Iterator[int]:
        for lane in self.index.chain(queue, key):
            for number in numbers:
                if lane.holds(number) and (locked or number not in self.index.hidden):
                    yield lane.rank << NUMBER_BITS | number

    # ---- indexes

    def _index_of(self, queue: str, key: bytes, field: str) -> FieldIndex:
        matches = self._matches.setdefault((queue, key), Matches())
        return matches.get(field, lambda: self._everything(queue, key, field))

    def _everything(self, queue: str, key: bytes, field: str) -> Iterator[Batch]:
        for lane in self.index.chain(queue, key):
            for first, count, place in lane.live():
                yield self._batch(field, first, count, place, self.rows(place >> ROW_BITS))

    @staticmethod
    def _batch(field: str, first: int, count: int, place: int, rows: Rows) -> Batch:
        begin = place & ROW_MASK
        column: Sequence[bytes] | None = {"msg_id": rows.msg_ids, "correl_id": rows.correl_ids}.get(field)
        own = None if column is None else column[begin : begin + count]
        return first, rows.heads[begin : begin + count], own

    def note_arrivals(self, changes: Changes, rows: Rows | None) -> None:
        """Keep the indexes up to date with what was just applied. Cheap while nobody has asked for any."""
        if self.index.expiring:
            self._note_moved_expiries(changes)
        if not self._matches:
            return
        number, row = changes.first_number, 0
        for name, count in changes.groups if changes.numbers is None else ():
            if rows is not None:
                self._note(name, number, count, row, rows)
            number += count
            row += count
        for move in changes.moves:
            lane = self.index.find(move.to_lane)
            if lane is not None and move.to_lane[:2] in self._matches:
                for first, count, place in list(spans(lane, move.to_first, move.length)):
                    self._note(move.to_lane, first, count, place, self.rows(place >> ROW_BITS))

    def _note_moved_expiries(self, changes: Changes) -> None:
        for move in changes.moves:
            lane = self.index.find(move.to_lane)
            for first, count, place in list(spans(lane, move.to_first, move.length)) if lane is not None else ():
                expiries = self.rows(place >> ROW_BITS).expiries
                if expiries is not None:
                    row = place & ROW_MASK
                    self.index.expiring.add(move.to_lane, first, expiries[row : row + count])

    def _note(self, name: LaneName, first: int, count: int, place: int, rows: Rows) -> None:
        matches = self._matches.get(name[:2])
        if matches is None:
            return
        lanes = list(self.index.chain(name[0], name[1]))
        depth = sum(lane.depth for lane in lanes)
        for index in matches:
            index.add(*self._batch(index.field, first, count, place, rows))
            index.sweep(depth, lambda number: _any_holds(lanes, number))


def _any_holds(lanes: list[Lane], number: int) -> bool:
    return any(lane.holds(number) for lane in lanes)
