"""The store in memory: the calls of the journal's store without a disk. For programs that are developed without a
gateway (`python -m gateway.mqi.serve :memory:`), for tests, and as the model of the journal's store."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf
from sys import maxsize

from gateway.ports.batch import StorageFull
from gateway.queue_manager.descriptor import CORREL_ID, GROUP_ID, LENGTH, MSG_ID, NO_ID, message_id, stamp
from gateway.queue_manager.store.place import priority_of, token_of, wanted
from gateway.queue_manager.store.replaced import Records
from gateway.queue_manager.store.unit import LaneMoves, LanePuts, Message, StoreUnit


class Shelf:
    """The messages of one queue and key."""

    __slots__ = ("by_correl_id", "by_msg_id", "entries", "order", "start")

    def __init__(self) -> None:
        self.entries: dict[int, tuple[Message, bool]] = {}
        """By token: the message, and whether it is persistent."""
        self.order: list[int] = []
        """Tokens in the order of delivery; those of removed messages may still be among them."""
        self.start = 0
        """The messages before this index of `order` are removed."""
        self.by_msg_id: dict[bytes, dict[int, None]] = {}
        """Tokens by identifier. All messages of a queue may have the same one, and they leave in any order."""
        self.by_correl_id: dict[bytes, dict[int, None]] = {}

    def add(self, message: Message, *, persistent: bool) -> None:
        """Add a message after the others of its priority."""
        token = message.token
        order = self.order
        if not order or order[-1] < token:
            order.append(token)
        else:
            at = bisect_right(order, token)
            order.insert(at, token)
            self.start = min(self.start, at)
        self.entries[token] = (message, persistent)
        self.by_msg_id.setdefault(message.head[MSG_ID], {})[token] = None
        self.by_correl_id.setdefault(message.head[CORREL_ID], {})[token] = None

    def remove(self, token: int) -> tuple[Message, bool] | None:
        """Remove a message; returns it and whether it is persistent, or None if it is not there."""
        entry = self.entries.pop(token, None)
        if entry is None:
            return None
        _forget(self.by_msg_id, entry[0].head[MSG_ID], token)
        _forget(self.by_correl_id, entry[0].head[CORREL_ID], token)
        if self.order[self.start] == token:
            self._advance()
        if len(self.order) > 2 * len(self.entries) + 64:
            self.order = [one for one in self.order if one in self.entries]
            self.start = 0
        return entry

    def _advance(self) -> None:
        """Move `start` to the first message that is there: those behind the one removed may have gone before it."""
        order, entries, start = self.order, self.entries, self.start
        while start < len(order) and order[start] not in entries:
            start += 1
        self.start = start

    def after(self, token: int | None) -> Iterable[Message]:
        """The messages after this one, in the order of delivery."""
        entries = self.entries
        return (entries[token][0] for token in self.tokens_after(token))

    def tokens_after(self, token: int | None) -> Iterable[int]:
        """The tokens of the messages after this one, in the order of delivery."""
        order, entries = self.order, self.entries
        start = self.start if token is None else bisect_right(order, token)
        return (order[at] for at in range(start, len(order)) if order[at] in entries)


def _forget(index: dict[bytes, dict[int, None]], key: bytes, token: int) -> None:
    tokens = index[key]
    del tokens[token]
    if not tokens:
        del index[key]


class MemoryStore:
    """Implements `storage.MessageStore`."""

    storage_full: StorageFull | None = None
    ending, left_out = "", False

    def __init__(self, name: str) -> None:
        self._name = name
        self._hidden: set[int] = set()
        self._committed = 0.0
        self._number = 0
        self._shelves: defaultdict[str, dict[bytes, Shelf]] = defaultdict(dict)
        self._state: dict[bytes, bytes] = {}

    def look_after_files(self) -> bool:
        """Always False: there are no files."""
        return False

    def prepare(self, unit: StoreUnit, now: float, *, at_once: bool = False) -> StoreUnit:  # noqa: ARG002
        """Give tokens to the messages."""
        self._committed = now
        unit.puts = [lane for puts in unit.puts for lane in puts.by_lane()]
        for puts in unit.puts:
            first = self._number + 1
            self._number += len(puts.heads)
            base = token_of(puts.priority, first)
            puts.tokens = range(base, base + len(puts.heads))
        for moves in unit.moves:
            tokens = []
            for token in moves.tokens:
                self._number += 1
                priority = priority_of(token) if moves.to_priority is None else moves.to_priority
                tokens.append(token_of(priority, self._number))
            moves.new_tokens = tokens
        return unit

    def write(self, frame: StoreUnit) -> None:
        """Does nothing."""

    def apply(self, frame: StoreUnit) -> None:
        """Make the frame's changes visible."""
        for puts in frame.puts:
            self._put(puts, self._committed)
        for takes in frame.takes:
            shelf = self._shelf(takes.queue, takes.key)
            for token in takes.tokens:
                shelf.remove(token)
            self._hidden.difference_update(takes.tokens)
        for moves in frame.moves:
            self._move(moves)
        for queue, key, token, times in frame.backouts:
            shelf = self._shelf(queue, key)
            if token in shelf.entries:
                message, persistent = shelf.entries[token]
                shelf.entries[token] = (message._replace(backout=times), persistent)
        for name, record in frame.state.items():
            if record is None:
                self._state.pop(name, None)
            else:
                self._state[name] = record

    def abort(self, frame: StoreUnit) -> None:
        """Does nothing: there is nothing to undo."""

    under_maintenance = False

    @property
    def next_number(self) -> int:
        """The number that the next message gets."""
        return self._number + 1

    def maintain(self, _now: float) -> StoreUnit | None:
        """Always None: there is nothing to do."""
        return None

    def load(self, queue: str) -> Iterable[tuple[bytes, Message]]:
        """Every message with its key, in order of arrival."""
        found = [
            (key, message)
            for key, shelf in self._shelves.get(queue, {}).items()
            for message, _ in shelf.entries.values()
        ]
        return sorted(found, key=lambda one: one[1].token & ((1 << 60) - 1))

    def keys(self, queue: str) -> Iterable[bytes]:
        """The keys that messages of a queue have."""
        return self._shelves.get(queue, {})

    def fetch(
        self, queue: str, key: bytes, limit: int, after: int | None = None, *, locked: bool = False
    ) -> list[Message]:
        """The next messages by priority and arrival; locked ones only on request."""
        shelf = self._shelves.get(queue, {}).get(key)
        if shelf is None:
            return []
        hidden = self._hidden
        return list(islice((one for one in shelf.after(after) if locked or one.token not in hidden), limit))

    def fetch_around_damage(
        self,
        queue: str,
        key: bytes,
        limit: int,
        after: int | None = None,
        seconds: float = inf,  # noqa: ARG002
    ) -> tuple[list[Message], dict[int, str]]:
        """As `fetch`, with locked messages: nothing is damaged in memory."""
        return self.fetch(queue, key, limit, after, locked=True), {}

    def first(self, queue: str, key: bytes) -> int | None:
        """The token of the next message, locked or not."""
        found = self.fetch(queue, key, 1, locked=True)
        return found[0].token if found else None

    def tokens(self, queue: str, key: bytes) -> list[int]:
        """The tokens of all messages that `fetch` returns."""
        return self.tokens_after(queue, key, None, maxsize)

    def tokens_after(self, queue: str, key: bytes, after: int | None, limit: int) -> list[int]:
        """The tokens of the next messages that `fetch` returns."""
        return [message.token for message in self.fetch(queue, key, limit, after)]

    def lock(self, _queue: str, _key: bytes, tokens: Sequence[int]) -> None:
        """Hide messages from fetches."""
        self._hidden.update(tokens)

    def unlock(self, _queue: str, _key: bytes, tokens: Sequence[int]) -> None:
        """Make messages available again."""
        self._hidden.difference_update(tokens)

    def read(self, queue: str, key: bytes, token: int) -> Message | None:
        """The message with this token, if it is still there."""
        shelf = self._shelves.get(queue, {}).get(key)
        entry = shelf.entries.get(token) if shelf is not None else None
        return None if entry is None else entry[0]

    def find(
        self, queue: str, key: bytes, msg_id: bytes | None, correl_id: bytes | None, group_id: bytes | None = None,
        after: int | None = None, onward: Callable[[int], int] | None = None,
    ) -> Iterable[Message]:  # fmt: skip
        """The messages with these identifiers."""
        shelf = self._shelves.get(queue, {}).get(key)
        if shelf is None:
            return []
        tokens: Iterable[int] = shelf.tokens_after(after)
        if msg_id is not None or correl_id is not None:
            known = shelf.by_correl_id.get(correl_id or b"", ()) if msg_id is None else shelf.by_msg_id.get(msg_id, ())
            tokens = [token for token in sorted(known) if after is None or token > after]
        found = (shelf.entries[token][0] for token in (tokens if onward is None else wanted(tokens, onward)))
        return (
            message
            for message in found
            if (correl_id is None or message.head[CORREL_ID] == correl_id)
            and (group_id is None or message.head[GROUP_ID] == group_id)
        )

    def prepare_find(self, _queue: str, _key: bytes, _field: str) -> bool:
        """Always True: there is nothing to do."""
        return True

    def replaceable(self, _queue: str, records: Records, _head: bytes) -> tuple[None, Records]:
        """No record can be replaced in its place: returns all of them as others."""
        return None, records

    def depth(self, queue: str, key: bytes = b"", least: int = 0) -> int:
        """How many messages there are, of priority `least` and above."""
        shelf = self._shelves.get(queue, {}).get(key)
        if shelf is None:
            return 0
        return sum(priority_of(token) >= least for token in shelf.entries) if least else len(shelf.entries)

    def depths(self, queues: list[str]) -> list[int]:
        """How many messages there are on each of these queues."""
        return [self.depth(queue) for queue in queues]

    def depth_of_all(self, queue: str) -> int:
        """How many messages a queue has under all keys."""
        return sum(len(shelf.entries) for shelf in self._shelves.get(queue, {}).values())

    def forget(self, queue: str) -> None:
        """Forget a queue if it is empty."""
        if not any(shelf.entries for shelf in self._shelves.get(queue, {}).values()):
            self._shelves.pop(queue, None)

    def oldest(self, queue: str) -> int:
        """When the oldest message was put."""
        shelf = self._shelves.get(queue, {}).get(b"")
        return min((message.put_time for message, _ in shelf.entries.values()), default=0) if shelf else 0

    def state(self) -> dict[bytes, bytes]:
        """The small records."""
        return dict(self._state)

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def _shelf(self, queue: str, key: bytes) -> Shelf:
        shelves = self._shelves[queue]
        shelf = shelves.get(key)
        if shelf is None:
            shelf = shelves[key] = Shelf()
        return shelf

    def _put(self, puts: LanePuts, now: float) -> None:
        shelf = self._shelf(puts.queue, puts.key)
        for index, token in enumerate(puts.tokens):
            head = _with_ids(puts, index)
            put_time = puts.put_times[index] if puts.put_times else int(now * 1_000_000)
            md = stamp(head[:LENGTH], message_id(self._name, token & ((1 << 60) - 1)), put_time / 1_000_000)
            expiry = puts.expiries[index] if puts.expiries else 0
            message = Message(token, md + head[LENGTH:], puts.bodies[index], put_time, 0, expiry)
            shelf.add(message, persistent=puts.persistent)

    def _move(self, moves: LaneMoves) -> None:
        source = self._shelf(moves.queue, moves.key)
        target = self._shelf(moves.to_queue, moves.to_key)
        for index, (token, new) in enumerate(zip(moves.tokens, moves.new_tokens, strict=True)):
            entry = source.remove(token)
            if entry is None:
                continue
            self._hidden.discard(token)
            message, persistent = entry
            if moves.heads is not None:
                head = moves.heads[index]
                md = stamp(head[:LENGTH], message.head[MSG_ID], message.put_time / 1_000_000)
                message = message._replace(head=md + head[LENGTH:])
            target.add(message._replace(token=new), persistent=persistent)


def _with_ids(puts: LanePuts, index: int) -> bytes:
    head = puts.heads[index]
    if puts.msg_ids is not None and puts.msg_ids[index] != NO_ID:
        head = head[:48] + puts.msg_ids[index] + head[72:]
    if puts.correl_ids is not None and puts.correl_ids[index] != NO_ID:
        head = head[:72] + puts.correl_ids[index] + head[96:]
    return head
