"""The buffer's records on disk: what has to be put to IBM MQ, in order, in the store that also holds the gateway's
state.

Three queues of the embedded store: the entries (one message each for a unit of work, or a part of it), what was set
aside for destinations that refuse, and the intent: the half of a unit that is the gateway's state, while IBM MQ is
being asked about the other half. Entries are read in order and never searched, so nothing of them is held in memory.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from gateway.backends.buffer.progress import Destination
from gateway.backends.buffer.record import (
    EPOCH_BITS,
    Record,
    decode,
    decode_and_measure,
    encode,
    front_of,
    messages_of,
    parts_of,
)
from gateway.errors import MQError, StoreUnavailable
from gateway.mq import mqmd
from gateway.mq.constants import MQRC_OBJECT_DAMAGED
from gateway.ports.batch import Outcome, Puts, Replace, Stored, Takes, Unit
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.store.packed_heads import new_packing

ENTRIES = "MQGATE.BUFFER.ENTRIES"
ASIDE = "MQGATE.BUFFER.ASIDE"
INTENT = "MQGATE.BUFFER.INTENT"
SELF = "MQGATE.BUFFER.SELF"
COPYING, COPIED, ADOPTED = "copying", "copied", "adopted"
PART_ROWS, PART_BYTES = 200, 1 << 20
"""The most rows and bytes of an entry; a longer unit becomes several."""
_INTENT_PIECE = 4 << 20
_FIRST_PAGE = 32
_PAGE_BYTES, _PAGE_ENTRIES, _PAGE_MESSAGES = 8 << 20, 500, 20_000
"""The limits of a page in memory, with its heads unpacked."""
_HEAD = mqmd.build(persistence=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """The stored facts about the buffer and its queue manager."""

    key: str
    """The key of its progress on IBM MQ, in hexadecimal digits."""
    epoch: int = 0
    """Raised by one at every start, so that no number is ever given twice."""
    name: str = ""
    dead_letter_queue: str = ""
    recorded: bool = False
    """Whether its progress has been written to IBM MQ: if it cannot be seen there, something holds it."""
    owners: tuple[str, ...] = ()
    """The processes that may have written the progress: this one last, and before it those since one was last
    connected."""
    home: str = ""
    """How far the state that lay on IBM MQ has been moved into the buffer: see `adoption`."""

    def replaces(self) -> Replace:
        """Returns the message that it is stored as."""
        return Replace(SELF, b"self", json.dumps(asdict(self)).encode())

    @staticmethod
    def read(data: bytes) -> Identity:
        """Read the stored message."""
        fields = json.loads(data)
        return Identity(**{**fields, "owners": tuple(fields["owners"])})


@dataclass(slots=True)
class Line:
    """Entries that wait in one order."""

    queue: str
    key: bytes = b""
    entries: int = 0
    messages: int = 0
    bytes: int = 0
    behind: int = 0
    """The token of the last finished entry, whose removal may not be committed yet."""
    last: int = 0
    """The number of the last entry that was set aside."""

    def count(self, entries: int, messages: int, size: int) -> None:
        """Count entries that were added, or removed (negative)."""
        self.entries += entries
        self.messages += messages
        self.bytes += size


@dataclass(frozen=True, slots=True)
class Entry:
    """A record and its place in the store."""

    token: int
    size: int
    messages: int
    record: Record


class Spool:
    """The records of the buffer in its store."""

    def __init__(self, store: EmbeddedQueueManager) -> None:
        self.store = store
        store.core.damage.in_order |= {ENTRIES, ASIDE}
        self.main = Line(ENTRIES)
        self.aside: dict[Destination, Line] = {}
        self.oldest: tuple[float, str] | None = None
        """When the next entry of the main line was accepted, and the rule it came from."""
        self._count = 0
        self._packing = new_packing()
        self.identity = self._identify()
        self.recovered = 0
        """The number of messages that waited at the start."""
        self._recover()

    @property
    def messages(self) -> int:
        """The number of messages that wait."""
        return self.main.messages + sum(line.messages for line in self.aside.values())

    @property
    def bytes(self) -> int:
        """The bytes of the messages that wait."""
        return self.main.bytes + sum(line.bytes for line in self.aside.values())

    # Start

    def _identify(self) -> Identity:
        found = [stored.data for _, stored in self.store.load(SELF)]
        identity = Identity.read(found[0]) if found else Identity(secrets.token_hex(12))
        identity = replace(identity, epoch=identity.epoch + 1, owners=(*identity.owners, secrets.token_hex(8)))
        self.commit_now(Unit(replaces=[identity.replaces()]))
        return identity

    def know(self, identity: Identity) -> Replace:
        """Set the identity; returns what has to be committed."""
        self.identity = identity
        return identity.replaces()

    def _recover(self) -> None:
        """Carry out the intent of a unit that was interrupted. Its other half is an entry, about which the progress on
        IBM MQ decides. Then count everything that waits."""
        intent = list(self.store.load(INTENT))
        if intent:
            unit = decode(b"".join(stored.data for _, stored in intent)).unit
            unit.takes.append(Takes(INTENT, b"", [stored.token for _, stored in intent]))
            self.commit_now(unit)
        for page in self._pages(self.main):
            messages = sum(front_of(stored.data)[2] for stored in page)
            self.main.count(len(page), messages, sum(len(stored.data) for stored in page))
        self.look_at_oldest()
        for _, stored in self.store.load(ASIDE):
            record = decode(stored.data)
            first = record.unit.puts[0]
            line = self.line_of((first.queue, first.queue_manager))
            line.count(1, messages_of(record.unit), len(stored.data))
            line.last = max(line.last, record.number)
        self.recovered = self.messages

    def _pages(self, line: Line) -> Iterator[list[Stored]]:
        after = None
        while page := self.store.fetch(line.queue, line.key, _FIRST_PAGE, after):
            after = page[-1].token
            yield page

    def commit_now(self, unit: Unit) -> None:
        """Commit before the reactor runs; durable on return. Raises StoreUnavailable if the store refuses."""
        outcomes: list[Outcome] = []
        core = self.store.core
        self.store.submit(unit, lambda _unit, outcome: outcomes.append(outcome))
        while not outcomes:
            with core.entered():
                core.committer.settle()
                core.committer.run()
        if outcomes[0].failures:
            raise StoreUnavailable(f"the buffer cannot be written: {outcomes[0].failures[0].text}")

    # Entries

    def number(self) -> int:
        """Returns a number above all that were given before."""
        self._count += 1
        return self.identity.epoch << EPOCH_BITS | self._count

    def records_of(self, unit: Unit, rules: Sequence[str], at: float) -> list[Record]:
        """Returns a unit as records of moderate size, numbered."""
        parts = parts_of(unit, rules, PART_ROWS, PART_BYTES)
        return [Record(self.number(), at, part, names) for part, names in parts]

    def puts_of(self, records: Sequence[Record]) -> Puts:
        """Returns the put that stores records in the main line."""
        return Puts(ENTRIES, heads=[_HEAD] * len(records), bodies=[encode(record, self._packing) for record in records])

    def added(self, records: Sequence[Record], puts: Puts) -> None:
        """Count records that have been stored."""
        if not self.main.entries and records:
            self.oldest = (records[0].at, _rule_of(records[0]))
        messages = sum(messages_of(record.unit) for record in records)
        self.main.count(len(records), messages, sum(map(len, puts.bodies)))

    def intent_of(self, unit: Unit, at: float) -> Puts:
        """Returns the put that stores the gateway's half of a unit until IBM MQ has answered about the other."""
        data = encode(Record(0, at, unit, [""] * len(unit.puts)), self._packing)
        pieces = [data[start : start + _INTENT_PIECE] for start in range(0, len(data), _INTENT_PIECE)]
        return Puts(INTENT, heads=[_HEAD] * len(pieces), bodies=pieces)

    def page(self, line: Line, limit: int = 0) -> list[Entry]:
        """Returns the next entries of a line; without a limit some megabytes of them. Raises MQError if the disk has
        damaged the next one: those behind it would overtake it, and the progress would say that it was put."""
        found = self.store.fetch(line.queue, line.key, limit or _most_entries(line), line.behind or None)
        damaged = self.store.core.damage.stops(line.queue, line.key)
        if damaged and not found:
            raise MQError(MQRC_OBJECT_DAMAGED, f"{damaged}: docs/runbooks/damaged-frame.md")
        page, size = list[Entry](), 0
        for stored in found:
            assert isinstance(stored.token, int)  # noqa: S101 -- the embedded store's are
            record, unpacked = decode_and_measure(stored.data)
            size += len(stored.data) + unpacked
            if page and size > _PAGE_BYTES:
                break
            page.append(Entry(stored.token, len(stored.data), messages_of(record.unit), record))
        return page

    def done(self, line: Line, entries: Sequence[Entry]) -> Takes:
        """Stop counting entries that are on IBM MQ; returns what removes them."""
        messages, size = _totals(entries)
        line.count(-len(entries), -messages, -size)
        line.behind = entries[-1].token
        if line is self.main:
            self.look_at_oldest()
        return Takes(line.queue, line.key, [entry.token for entry in entries])

    def waiting_since(self) -> Iterator[tuple[float, str]]:
        """Yields when the first message of each line was accepted, and its rule."""
        if self.oldest is not None:
            yield self.oldest
        for line in self.aside.values():
            with suppress(MQError):
                for entry in self.page(line, 1):
                    yield entry.record.at, _rule_of(entry.record)

    def look_at_oldest(self) -> None:
        """Find the oldest entry again, after entries were removed. Of one that cannot be read nothing is known."""
        with suppress(MQError):
            page = self.page(self.main, 1) if self.main.entries else []
            self.oldest = (page[0].record.at, _rule_of(page[0].record)) if page else None

    # Set aside

    def line_of(self, destination: Destination) -> Line:
        """Returns the line of a destination, made if there is none."""
        if destination not in self.aside:
            self.aside[destination] = Line(ASIDE, _key_of(destination))
        return self.aside[destination]

    def aside_puts(self, line: Line, record: Record) -> Puts:
        """Returns the put that stores a record in the line of a destination."""
        return Puts(ASIDE, key=line.key, heads=[_HEAD], bodies=[encode(record, self._packing)])

    def aside_added(self, line: Line, record: Record, puts: Puts) -> None:
        """Count a record that has been set aside."""
        line.count(1, messages_of(record.unit), len(puts.bodies[0]))
        line.last = record.number


def _key_of(destination: Destination) -> bytes:
    return hashlib.sha256("\0".join(destination).encode()).digest()[:16]


def _most_entries(line: Line) -> int:
    """Returns how many entries a page may have."""
    by_bytes = _PAGE_BYTES * line.entries // max(line.bytes, 1)
    by_messages = _PAGE_MESSAGES * line.entries // max(line.messages, 1)
    return max(1, min(_PAGE_ENTRIES, by_bytes, by_messages))


def _rule_of(record: Record) -> str:
    return record.rules[0] if record.rules else ""


def _totals(entries: Sequence[Entry]) -> tuple[int, int]:
    """Returns the messages and bytes of some entries."""
    return sum(entry.messages for entry in entries), sum(entry.size for entry in entries)
