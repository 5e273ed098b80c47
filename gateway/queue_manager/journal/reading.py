"""What a store answers: depth, browse, fetch, read. Rows come from memory if they are recent, otherwise from their
frame on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gateway.queue_manager.journal.ahead import ReadAhead
from gateway.queue_manager.journal.cache import RowCache
from gateway.queue_manager.journal.decode import Rows, rows_of, sections_of
from gateway.queue_manager.journal.layout import BLOCK
from gateway.queue_manager.journal.ring import Ring
from gateway.queue_manager.journal.volatile import VolatileRows
from gateway.queue_manager.store.index import Index, chain_depth, neighbours
from gateway.queue_manager.store.lanes import Run
from gateway.queue_manager.store.place import NUMBER_BITS, NUMBER_MASK, ROW_BITS, ROW_MASK, VOLATILE, block_of, slot_of
from gateway.queue_manager.store.rows import make_messages
from gateway.queue_manager.store.under_way import UnderWay
from gateway.queue_manager.store.unit import Message


class Reading:
    """The reading half of `Store`."""

    def __init__(self, ring: Ring, index: Index, cache: RowCache, volatile: VolatileRows) -> None:
        self.ring = ring
        self.index = index
        self.cache = cache
        self.under_way = UnderWay()
        self.volatile = volatile
        self._ahead = ReadAhead()

    # ---- depth and keys

    def depth(self, queue: str, key: bytes | None = None, priority: int | None = None) -> int:
        """Messages on the queue, of one key of it (None: of all), of one priority. Locked ones count, as CURDEPTH
        does.
        """
        if key is None:
            known = self.index.queues.get(queue)
            return known.depth if known else 0
        if priority is None:
            return chain_depth(self.index, queue, key)
        lane = self.index.find((queue, key, 9 - priority))
        return lane.depth if lane else 0

    def queues(self) -> list[str]:
        """Names of queues that have or had messages."""
        return list(self.index.queues)

    def keys(self, queue: str) -> list[bytes]:
        """The keys of a queue that have messages."""
        known = self.index.queues.get(queue)
        return [key for key in known.lanes if chain_depth(self.index, queue, key)] if known else []

    def state(self, key: bytes) -> bytes | None:
        """A state record."""
        return self.index.state.get(key)

    def states(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """State records whose keys begin with `prefix`."""
        return iter([(key, value) for key, value in self.index.state.items() if key.startswith(prefix)])

    # ---- locks

    def lock(self, tokens: Iterable[int]) -> None:
        """Messages got in an open unit of work: others do not see them."""
        self.index.hidden.update([token & NUMBER_MASK for token in tokens])

    def unlock(self, queue: str, key: bytes, tokens: Iterable[int]) -> None:
        """They are back; those that leave in a frame under way are not."""
        leaving = self.under_way.leaving
        if leaving:
            tokens = [token for token in tokens if token & NUMBER_MASK not in leaving]
        self.index.show(queue, key, tokens)

    def exists(self, queue: str, key: bytes, token: int) -> bool:
        """Whether the message is there (locked or not)."""
        lane = self.index.find((queue, key, token >> NUMBER_BITS))
        return lane is not None and lane.holds(token & NUMBER_MASK)

    # ---- messages

    def fetch(
        self, queue: str, key: bytes = b"", *, limit: int = 1, after: int = -1, fifo: bool = False, locked: bool = False
    ) -> list[Message]:
        """The next messages behind token `after`, highest priority first (`fifo`: in the order of arrival), locked
        ones on request.
        """
        find = self.index.browse_fifo if fifo else self.index.browse
        messages: list[Message] = []
        for rank, run in find(queue, key, after, limit, locked=locked):
            self._read_run(rank, run, messages)
        return messages

    def browse(
        self, queue: str, key: bytes = b"", after: int = -1, limit: int = 1, *, fifo: bool = False
    ) -> list[Message]:
        """As `fetch`, locked messages included."""
        return self.fetch(queue, key, limit=limit, after=after, fifo=fifo, locked=True)

    def read(self, queue: str, key: bytes, tokens: Sequence[int]) -> list[Message]:
        """Messages by token, in the order of the tokens; those not there are left out."""
        messages: list[Message] = []
        for run, _volatile in self.index.runs_of(queue, key, neighbours(tokens)).runs:
            lane = self.index.find(run.lane)
            if lane is not None:
                self._read_run(run.lane[2], (run.first, run.length, lane.place(run.first)), messages)
        return messages

    def load(self, queue: str) -> list[tuple[bytes, Message]]:
        """Every message of the queue with its key, in the order of arrival. Reads each frame once, in the order of the
        disk.
        """
        known = self.index.queues.get(queue)
        lanes = [lane for key in known.lanes for lane in self.index.chain(queue, key)] if known else []
        runs = [
            (place, number, first, count) for number, lane in enumerate(lanes) for first, count, place in lane.live()
        ]
        messages: list[Message] = []
        keys: list[bytes] = []
        for place, number, first, count in sorted(runs):
            self._read_run(lanes[number].rank, (first, count, place), messages)
            keys += [lanes[number].key] * count
        return sorted(zip(keys, messages, strict=True), key=_by_number)

    def get(self, queue: str, key: bytes, token: int) -> Message | None:
        """One message by its token."""
        return next(iter(self.read(queue, key, [token])), None)

    def oldest(self, queue: str) -> int:
        """When the oldest message of the queue was put (0: it is empty)."""
        times: list[Message] = []
        for first, _count, place in self.index.oldest(queue):
            self._read_run(0, (first, 1, place), times)
        return min([message.put_time for message in times], default=0)

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
        """The rows of a frame or of a non-persistent batch."""
        if frame & VOLATILE:
            return self._volatile_rows(frame)
        segment = self.ring.used[slot_of(frame)]
        found = self.cache.get(segment.serial, frame)
        if found is None:
            header, data = self._ahead.frame(segment, block_of(frame) * BLOCK)
            found = rows_of(header, sections_of(data, 0, header))
            self.cache.keep(segment.serial, frame, found)
        return found

    def _volatile_rows(self, batch: int) -> Rows:
        found = self.cache.get(0, batch)
        if found is None:
            found = self.volatile.get(batch)
            if self.volatile.is_spilled(batch):
                self.cache.keep(0, batch, found)
        return found

    def drop_volatile(self) -> None:
        """Forget batches whose messages are all gone."""
        for batch in self.index.space.dead_batches:
            self.volatile.drop(batch)
        self.index.space.dead_batches.clear()

    def expired(self, now: float) -> list[tuple[str, bytes, int]]:
        """Queue, key and token of messages that are due. Each is told once, so take them; locked ones come again."""
        index, time = self.index, int(now * 1_000_000)
        found: list[tuple[str, bytes, int]] = []
        for name, first, count in index.expiring.take_due(time) if index.expiring else ():
            lane = index.find(name)
            if lane is None:
                continue
            for number in filter(lane.holds, range(first, first + count)):
                if number in index.hidden:
                    index.expiring.add_run(name, number, 1, time + 1_000_000)
                else:
                    found.append((name[0], name[1], name[2] << NUMBER_BITS | number))
        return list(dict.fromkeys(found))


def _cut(column: Sequence[bytes], begin: int, end: int) -> list[bytes]:
    part = column[begin:end]
    return part if isinstance(part, list) else list(part)


def _by_number(entry: tuple[bytes, Message]) -> int:
    return entry[1].token & NUMBER_MASK
