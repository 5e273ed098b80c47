"""Reading messages back from a store: rows come from memory if they are recent, else from their frame on disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from time import monotonic

from gateway.errors import StoreCorrupt
from gateway.queue_manager.journal.decode import Rows, rows_of, sections_of
from gateway.queue_manager.journal.layout import BLOCK
from gateway.queue_manager.journal.read_ahead import ReadAhead
from gateway.queue_manager.journal.ring import Ring
from gateway.queue_manager.journal.segment import Segment
from gateway.queue_manager.journal.volatile import VolatileRows
from gateway.queue_manager.store.index import Index, neighbours, visible
from gateway.queue_manager.store.lanes import Lane, Run
from gateway.queue_manager.store.place import NUMBER_BITS, NUMBER_MASK, ROW_BITS, ROW_MASK, VOLATILE, block_of, slot_of
from gateway.queue_manager.store.rows import make_messages
from gateway.queue_manager.store.unit import Message

FRAME_BITS = 44
DAMAGED_FOR = 600.0
"""Seconds; all damaged messages before the first one that can be read should be passed over in this time, step by
step."""


UNREAD_PART = 16


class RowCache:
    """Rows of recent frames, kept in memory within a bound, so that consumers that keep up never read the disk.

    The oldest are dropped first. Frames of an earlier use of a segment are never asked for again and age out: dropping
    the rows of a whole segment at once would be a pause of tens of milliseconds. While nobody asks, only a part of the
    bound is used: objects that are dropped soon are still in the processor's caches, and freeing them costs half.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._unread_limit = limit // UNREAD_PART
        self.size = 0
        self._rows: OrderedDict[int, Rows] = OrderedDict()
        self._unread = limit
        """How many bytes have been kept since a row was last asked for; nobody has asked yet."""

    def get(self, serial: int, frame: int) -> Rows | None:
        """The rows of a frame in this use of its segment, if they are in memory."""
        self._unread = 0
        return self._rows.get(serial << FRAME_BITS | frame)

    def keep(self, serial: int, frame: int, rows: Rows) -> None:
        """Remember the rows of a frame."""
        size = rows.size
        if size > self.limit:
            return
        self._rows[serial << FRAME_BITS | frame] = rows
        self._unread += size
        self.size += size
        if self.size > self._unread_limit:
            self._make_room()

    def _make_room(self) -> None:
        while self.size > self.limit:
            self._drop_oldest()
        if self._unread >= self.limit:
            for _ in range(2):  # a frame more than has come: it gets there little by little
                if self.size > self._unread_limit:
                    self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.size -= self._rows.popitem(last=False)[1].size


class Reader:
    """Reads the messages that the index names."""

    def __init__(self, ring: Ring, index: Index, volatile: VolatileRows, cache_bytes: int) -> None:
        self.index = index
        self.cache = RowCache(cache_bytes)
        self._ring = ring
        self._volatile = volatile
        self._ahead = ReadAhead()
        self._damaged: dict[int, tuple[float, str]] = {}
        """Damaged frames, by frame as in the cache: until when it is not read again, and why."""

    # ---- messages

    def fetch(
        self, queue: str, key: bytes = b"", limit: int = 1, after: int | None = None, *, locked: bool = False
    ) -> list[Message]:
        """The next messages after a token by priority and arrival; locked ones only on request."""
        messages: list[Message] = []
        for rank, run in self.index.browse(queue, key, after, limit, locked=locked):
            self._read_run(rank, run, messages)
        return messages

    def fetch_around_damage(
        self, queue: str, key: bytes, limit: int, after: int | None = None, seconds: float = inf
    ) -> tuple[list[Message], dict[int, str]]:
        """As `fetch` with locked messages; and by token why some cannot be read: those are empty. After this many
        seconds the first that cannot be read is the last."""
        messages: list[Message] = []
        until = monotonic() + seconds
        damaged: dict[int, str] = {}
        for rank, run in self.index.browse(queue, key, after, limit, locked=True):
            try:
                self._read_run(rank, run, messages)
            except StoreCorrupt as error:
                first = rank << NUMBER_BITS | run[0]
                tokens = range(first, first + run[1])
                messages += [Message(token, b"", b"", 0, 0, 0) for token in tokens]
                damaged |= dict.fromkeys(tokens, str(error))
                if monotonic() >= until:
                    break
        return messages, damaged

    def first(self, queue: str, key: bytes) -> int | None:
        """The token of the next message, locked or not. The message is not read for it."""
        for rank, (number, _, _) in self.index.browse(queue, key, None, 1, locked=True):
            return rank << NUMBER_BITS | number
        return None

    def tokens(self, queue: str, key: bytes) -> list[int]:
        """The tokens of all messages that `fetch` returns. The messages are not read for them."""
        alone = self.index.alone(queue, key)
        if alone is not None:
            return [alone.lane[2] << NUMBER_BITS | alone.first]
        tokens: list[int] = []
        for lane in self.index.chain(queue, key):
            rank = lane.rank << NUMBER_BITS
            for first, count, _ in visible(lane, -1, self.index.hidden):
                tokens += range(rank | first, (rank | first) + count)
        return tokens

    def tokens_after(self, queue: str, key: bytes, after: int | None, limit: int) -> list[int]:
        """The tokens of the next messages that `fetch` returns. The messages are not read for them."""
        tokens: list[int] = []
        for rank, (first, count, _) in self.index.browse(queue, key, after, limit, locked=False):
            token = rank << NUMBER_BITS | first
            tokens += range(token, token + count)
        return tokens

    def read(self, queue: str, key: bytes, token: int) -> Message | None:
        """The message with this token, if it is still there."""
        lane = self.index.find((queue, key, token >> NUMBER_BITS))
        return self.message(lane, token & NUMBER_MASK) if lane is not None else None

    def message(self, lane: Lane, number: int) -> Message | None:
        """The message of a lane with this number, if it is there."""
        place = lane.place(number)
        if place < 0:
            return None
        rows, backouts = self.rows(place >> ROW_BITS), self.index.backouts
        return rows.message(place & ROW_MASK, lane.rank << NUMBER_BITS | number, backouts.get(number, 0))

    def read_all(self, queue: str, key: bytes, tokens: Sequence[int]) -> list[Message]:
        """Messages in the order of their tokens, without those that are not there."""
        messages: list[Message] = []
        for run, _volatile in self.index.runs_of(queue, key, neighbours(tokens)).runs:
            lane = self.index.find(run.lane)
            if lane is not None:
                self._read_run(run.lane[2], (run.first, run.length, lane.place(run.first)), messages)
        return messages

    def load(self, queue: str) -> list[tuple[bytes, Message]]:
        """Every message of the queue with its key, in the order of arrival. Each frame is read once, in the order of
        the disk; what lies there in one piece is one run, under however many keys.
        """
        lanes = self.index.lanes_of(queue)
        runs = [(run[2], number, run) for number, lane in enumerate(lanes) for run in lane.live_at_once()]
        runs.sort()
        messages: list[Message] = []
        keys: list[bytes] = []
        rank, first, count, place = 0, 0, 0, -1
        for at, number, run in runs:
            lane = lanes[number]
            keys += (lane.key,) * run[1]
            if at == place + count and run[0] == first + count and lane.rank == rank and at & ROW_MASK:
                count += run[1]
                continue
            if count:
                self._read_run(rank, (first, count, place), messages)
            rank, (first, count, place) = lane.rank, run
        if count:
            self._read_run(rank, (first, count, place), messages)
        return sorted(zip(keys, messages, strict=True), key=_by_number)

    def oldest(self, queue: str) -> int:
        """When the oldest message of the queue was put, in microseconds; 0 if the queue is empty, or the message is
        damaged."""
        firsts = [first for lane in self.index.lanes_of(queue) if (first := lane.first()) is not None]
        messages: list[Message] = []
        if firsts:  # only one is read: numbers are given in the order of arrival
            with suppress(StoreCorrupt):
                self._read_run(0, min(firsts), messages)
        return messages[0].put_time if messages else 0

    def _read_run(self, rank: int, run: Run, messages: list[Message]) -> None:
        number, count, place = run
        rows = self.rows(place >> ROW_BITS)
        begin = place & ROW_MASK
        end = begin + count
        token = rank << NUMBER_BITS | number
        time, backouts = rows.time, self.index.backouts
        if rows.plain and not backouts:
            messages += make_messages(Message, _cut(rows.heads, begin, end), _cut(rows.bodies, begin, end), token, time)
            return
        for at in range(count):
            messages.append(rows.message(begin + at, token + at, backouts.get(number + at, 0)))

    # ---- rows

    def rows(self, frame: int) -> Rows:
        """The rows of a frame, or of a non-persistent batch."""
        if frame & VOLATILE:
            return self._volatile_rows(frame)
        segment = self._ring.used[slot_of(frame)]
        rows = self.cache.get(segment.serial, frame)
        if rows is None:
            rows = self._read_rows(segment, frame)
            self.cache.keep(segment.serial, frame, rows)
        return rows

    def _read_rows(self, segment: Segment, frame: int) -> Rows:
        """Read rows from the disk. Damaged ones are not read again for each message and each reader: a failing disk may
        take seconds."""
        place = segment.serial << FRAME_BITS | frame
        until, why = self._damaged.get(place, (0.0, ""))
        if until and monotonic() < until:
            raise StoreCorrupt(why)
        try:
            header, data = self._ahead.frame(segment, block_of(frame) * BLOCK)
            rows = rows_of(header, sections_of(data, 0, header))
        except StoreCorrupt as error:
            self._damaged[place] = monotonic() + DAMAGED_FOR, str(error)
            raise
        self._damaged.pop(place, None)
        return rows

    def _volatile_rows(self, batch: int) -> Rows:
        rows = self.cache.get(0, batch)
        if rows is None:
            rows = self._volatile.get(batch)
            if self._volatile.is_spilled(batch):
                self.cache.keep(0, batch, rows)
        return rows


def _cut(column: Sequence[bytes], begin: int, end: int) -> list[bytes]:
    part = column[begin:end]
    return part if isinstance(part, list) else list(part)


def _by_number(entry: tuple[bytes, Message]) -> int:
    return entry[1].token & NUMBER_MASK
