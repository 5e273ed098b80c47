"""Units of work as bytes: what the buffer writes into its store, and reads back after a restart. Pure.

`MQGB` | version | flags | number (8 bytes) | time of acceptance (float) | messages | heads | puts | takes | replaces.
Counts and lengths are 32-bit, little-endian. A head is written once for the rows that share it. Without the flag
`PACKED` the distinct heads of a run of puts precede its rows. With it, which is set if it makes the record shorter, all
heads of the record precede the puts as `heads.write` writes them, and the columns of a run have the narrowest width
that holds their numbers. Each record can be read by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from gateway.backends.buffer import heads as record_heads
from gateway.errors import StoreCorrupt
from gateway.mq import mqmd
from gateway.ports.batch import Puts, Replace, Takes, Token, Unit
from gateway.queue_manager.store.packed_heads import NoPacking, Packing

EYECATCHER = b"MQGB"
VERSION = 1
PACKED = 1
"""The flag of a record whose heads are packed or deflated."""
EPOCH_BITS = 40
"""A number consists of the process's epoch and a count within it, so that numbers of a new process follow all earlier
ones."""
RETAIN = 2
"""Flag next to 1 for persistent: published on an MQ topic, to be retained."""
_EXPIRY, _UNLIMITED = slice(16, 20), b"\xff\xff\xff\xff"
_FRONT = struct.Struct("<4sBBQdI")
_FLAGS_AT = 5
_COUNT = struct.Struct("<I")
_CLASSES = struct.Struct("<iB")
_NUMBER, _ROW = struct.Struct("<Q"), struct.Struct("<II")
_CODES = {1: "B", 2: "H", 4: "I"}
_NOT_PACKED: Packing = NoPacking()


class Record(NamedTuple):
    """A unit, or a part of one, as it lies in the store."""

    number: int
    at: float
    """When it was accepted; expiry counts from then."""
    unit: Unit
    rules: list[str]
    """The rule that each run of puts came from, for the counters."""


def encode(record: Record, packing: Packing = _NOT_PACKED) -> bytes:
    """Returns the bytes of a record. Moves have been resolved before. What `packing` learns is used for the next
    record."""
    unit = record.unit
    distinct = [dict.fromkeys(puts.heads) for puts in unit.puts]
    messages = messages_of(unit)
    whole = distinct[0] if len(distinct) == 1 else dict.fromkeys(chain.from_iterable(distinct))
    front = record_heads.write(list(whole), messages, packing)
    flags = 0 if front is None else PACKED
    out = [_FRONT.pack(EYECATCHER, VERSION, flags, record.number, record.at, messages)]
    if front is not None:
        out.append(_raw(front))
        places = _places(whole)
    out.append(_COUNT.pack(len(unit.puts)))
    for puts, rule, heads in zip(unit.puts, record.rules, distinct, strict=True):
        _write_run(out, puts, rule)
        if front is None:
            _write_rows(out, puts, _places(heads))
        else:
            _write_columns(out, puts, places)
        out += puts.bodies
    out.append(_COUNT.pack(len(unit.takes)))
    for takes in unit.takes:
        out += (_text(takes.queue), _raw(takes.key), _COUNT.pack(len(takes.tokens)))
        out += map(_token, takes.tokens)
    out.append(_COUNT.pack(len(unit.replaces)))
    for queue, key, body in unit.replaces:
        out += (_text(queue), _raw(key), b"\0" if body is None else b"\1" + _raw(body))
    return b"".join(out)


def _places(heads: dict[bytes, None]) -> dict[bytes, int]:
    """Returns the place of each distinct head."""
    return dict(zip(heads, range(len(heads)), strict=True))


def _write_run(out: list[bytes], puts: Puts, rule: str) -> None:
    out += (_text(puts.queue), _text(puts.queue_manager), _text(rule), _raw(puts.key))
    out.append(_CLASSES.pack(puts.priority, puts.persistent | (RETAIN if puts.retain else 0)))


def _write_rows(out: list[bytes], puts: Puts, heads: dict[bytes, int]) -> None:
    """Write rows that are not packed: the run's distinct heads, then for each row the place of its head and the length
    of its body."""
    out += (_COUNT.pack(len(heads)), *map(_raw, heads), _COUNT.pack(len(puts.heads)))
    out += (_ROW.pack(heads[head], len(body)) for head, body in zip(puts.heads, puts.bodies, strict=True))


def _write_columns(out: list[bytes], puts: Puts, heads: dict[bytes, int]) -> None:
    """Write rows that are packed: the places of the rows' heads among those of the record, then the lengths of the
    bodies."""
    if len(puts.bodies) != len(puts.heads):
        raise ValueError("a run of puts does not have as many bodies as heads")
    out.append(_COUNT.pack(len(puts.heads)))
    out += (_column([heads[head] for head in puts.heads]), _column(list(map(len, puts.bodies))))


def _column(values: list[int]) -> bytes:
    """Returns a byte with the width of the numbers, then the numbers."""
    most = max(values, default=0)
    width = 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4
    return struct.pack(f"<B{len(values)}{_CODES[width]}", width, *values)


def _raw(value: bytes) -> bytes:
    return _COUNT.pack(len(value)) + value


def _text(value: str) -> bytes:
    return _raw(value.encode())


def _token(token: Token) -> bytes:
    """Returns a token as bytes: tokens of the embedded store are numbers, those of IBM MQ are MsgIds."""
    if isinstance(token, int):
        return b"n" + _NUMBER.pack(token)
    if isinstance(token, bytes):
        return b"b" + _raw(token)
    raise TypeError(f"a token of {type(token).__name__} cannot be stored")


def decode(data: bytes) -> Record:
    """Returns the record of these bytes. Raises StoreCorrupt if they are not one."""
    return decode_and_measure(data)[0]


def decode_and_measure(data: bytes) -> tuple[Record, int]:
    """Returns the record, and the bytes that its heads take in memory, however few they take in the store."""
    try:
        number, at, _ = front_of(data)
        reader = _Reader(data, _FRONT.size)
        heads = reader.heads() if data[_FLAGS_AT] & PACKED else None
        unit = Unit()
        rules = []
        for _ in reader.times():
            puts, rule = reader.puts(heads)
            unit.puts.append(puts)
            rules.append(rule)
        unit.takes = [
            Takes(reader.text(), reader.raw(), [reader.token() for _ in reader.times()]) for _ in reader.times()
        ]
        unit.replaces = [Replace(reader.text(), reader.raw(), reader.optional()) for _ in reader.times()]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"a record of the buffer ends early: {error}") from None
    except ValueError as error:
        raise StoreCorrupt(f"a record of the buffer is damaged: {error}") from None
    if reader.at != len(data):
        raise StoreCorrupt(f"a record of the buffer has {len(data) - reader.at} bytes behind its end")
    return Record(number, at, unit, rules), reader.heads_length


def front_of(data: bytes) -> tuple[int, float, int]:
    """Returns number, time of acceptance and messages, without reading the rest. Raises StoreCorrupt if the bytes are
    not a record."""
    if len(data) < _FRONT.size:
        raise StoreCorrupt("a record of the buffer ends early")
    eyecatcher, version, flags, number, at, messages = _FRONT.unpack_from(data)
    if eyecatcher != EYECATCHER or not version:
        raise StoreCorrupt("a record of the buffer does not begin with MQGB and a version")
    if version != VERSION or flags & ~PACKED:
        raise StoreCorrupt(
            f"a record of the buffer has format {version}, flags {flags}; this program reads format {VERSION}: use the"
            " release that wrote it until nothing waits in the buffer"
        )
    return number, at, messages


class _Reader:
    """The position in a record that is being read."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at
        self.heads_length = 0

    def count(self) -> int:
        value: int = _COUNT.unpack_from(self._data, self.at)[0]
        self.at += 4
        return value

    def times(self) -> Iterator[int]:
        return iter(range(self.count()))

    def bytes_of(self, length: int) -> bytes:
        value = self._data[self.at : self.at + length]
        if len(value) != length:
            raise IndexError(f"{length} bytes at {self.at}")
        self.at += length
        return value

    def raw(self) -> bytes:
        return self.bytes_of(self.count())

    def text(self) -> str:
        return self.raw().decode()

    def optional(self) -> bytes | None:
        return self.raw() if self.bytes_of(1) == b"\1" else None

    def token(self) -> Token:
        if self.bytes_of(1) == b"b":
            return self.raw()
        value: int = _NUMBER.unpack(self.bytes_of(8))[0]
        return value

    def heads(self) -> list[bytes]:
        """Read the packed heads of all runs."""
        return self._counted(record_heads.read(self.raw()))

    def _counted(self, heads: list[bytes]) -> list[bytes]:
        self.heads_length += sum(map(len, heads))
        return heads

    def column(self, count: int) -> tuple[int, ...]:
        width = self.bytes_of(1)[0]
        if width not in _CODES:
            raise ValueError("a column has numbers of 1, 2 or 4 bytes")
        values = struct.unpack_from(f"<{count}{_CODES[width]}", self._data, self.at)
        self.at += width * count
        return values

    def puts(self, heads: list[bytes] | None) -> tuple[Puts, str]:
        """Read a run and its rule. `heads` are those of the record if they are packed; otherwise the run has its
        own."""
        queue, manager, rule, key = self.text(), self.text(), self.text(), self.raw()
        priority, flags = _CLASSES.unpack(self.bytes_of(_CLASSES.size))
        puts = Puts(queue, manager, key, priority, bool(flags & 1), retain=bool(flags & RETAIN))
        lengths: Sequence[int]
        if heads is None:
            own = self._counted([self.raw() for _ in self.times()])
            rows = list(_ROW.iter_unpack(self.bytes_of(_ROW.size * self.count())))
            puts.heads, lengths = [own[place] for place, _ in rows], [length for _, length in rows]
        else:
            count = self.count()
            puts.heads, lengths = [heads[place] for place in self.column(count)], self.column(count)
        puts.bodies = self.bodies(lengths)
        return puts, rule

    def bodies(self, lengths: Sequence[int]) -> list[bytes]:
        """Read bodies, which are stored back to back."""
        data, ends = self._data, list(accumulate(lengths, initial=self.at))
        if ends[-1] > len(data):
            raise IndexError(f"{ends[-1] - self.at} bytes at {self.at}")
        self.at = ends[-1]
        return [data[begin:end] for begin, end in pairwise(ends)]


# Parts


def size_of(unit: Unit) -> int:
    """Returns an upper bound for the bytes that a unit takes in the store, before it is encoded; for the limit."""
    return sum(
        512 + len(puts.heads) * 8 + sum(map(len, set(puts.heads))) + sum(map(len, puts.bodies)) for puts in unit.puts
    )


def rows_of(unit: Unit) -> int:
    """Returns the number of messages put and taken."""
    return sum(len(puts.heads) for puts in unit.puts) + sum(len(takes.tokens) for takes in unit.takes)


def messages_of(unit: Unit) -> int:
    """Returns the number of messages put."""
    return sum(len(puts.heads) for puts in unit.puts)


def parts_of(unit: Unit, rules: Sequence[str], max_rows: int, max_bytes: int) -> Iterator[tuple[Unit, list[str]]]:
    """Yields a unit as a sequence of smaller ones, in order: none has more rows or (except for a single row) bytes than
    asked for."""
    part, names, rows, size = Unit(takes=list(unit.takes)), list[str](), 0, 0
    for puts, rule in zip(unit.puts, rules, strict=True):
        run = _like(puts)
        for head, body in zip(puts.heads, puts.bodies, strict=True):
            if rows and (rows >= max_rows or size + len(body) > max_bytes):
                if run.heads:
                    part.puts.append(run)
                    names.append(rule)
                yield part, names
                part, names, rows, size, run = Unit(), [], 0, 0, _like(puts)
            run.heads.append(head)
            run.bodies.append(body)
            rows, size = rows + 1, size + len(body)
        if run.heads:
            part.puts.append(run)
            names.append(rule)
    if part:
        yield part, names


def _like(puts: Puts) -> Puts:
    """Returns a run for the same destination, without messages."""
    return Puts(puts.queue, puts.queue_manager, puts.key, puts.priority, puts.persistent, retain=puts.retain)


def joined(units: Sequence[Unit]) -> Unit:
    """Returns several units as one, in order."""
    whole = Unit()
    for unit in units:
        whole.puts += unit.puts
        whole.takes += unit.takes
    return whole


class Parts(NamedTuple):
    """A unit cut along the border between the buffer's store and IBM MQ. Runs of puts are the same objects."""

    own: Unit
    remote: Unit
    own_puts: list[int]
    """Which run of the whole unit each own run is."""
    remote_puts: list[int]


def cut(unit: Unit, is_own: Callable[[str], bool]) -> Parts:
    """Returns what of a unit belongs to the gateway's state, and what to IBM MQ. Moves have been resolved before."""
    parts = Parts(Unit(replaces=list(unit.replaces)), Unit(), [], [])
    for index, puts in enumerate(unit.puts):
        own = is_own(puts.queue) and not puts.queue_manager
        (parts.own if own else parts.remote).puts.append(puts)
        (parts.own_puts if own else parts.remote_puts).append(index)
    for takes in unit.takes:
        (parts.own if is_own(takes.queue) else parts.remote).takes.append(takes)
    return parts


def left_of(head: bytes, waited: int) -> bytes | None:
    """Returns the head with the rest of its Expiry after this many tenths of a second; None if it has expired."""
    if head[_EXPIRY] == _UNLIMITED:
        return head
    left = int.from_bytes(head[_EXPIRY], "little", signed=True) - waited
    return mqmd.with_expiry(head, left) if left > 0 else None
