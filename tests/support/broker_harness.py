"""The broker in a harness: the real engine over a queue manager that is a few dicts, a clock that stands still, and
links that remember. Commits return when the test says so; `kill` forgets everything that was not committed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from open_access import OpenAccess
from schedulers import ManualScheduler

from gateway.backends.ibm.unit_of_work import rows_of
from gateway.broker.deliver.consumers import Consumers
from gateway.broker.engine import Engine
from gateway.broker.limits import Limits
from gateway.broker.publish.router import Router
from gateway.broker.refused.set_aside import Defect
from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt.client import server_reader
from gateway.ports.batch import Failure, Outcome, Stored, Unit
from gateway.ports.counters import Counters
from gateway.ports.sources import Backout, Subscribed
from gateway.routing.table import Table, compile_mappings
from gateway.rules.parse import load_text, parse_mappings


@lru_cache(maxsize=16)
def _table(mapping: str, load: Callable[[str], str]) -> Table:
    """Tables are never changed: the same rules are compiled once."""
    return compile_mappings(parse_mappings([("bench.yaml", mapping)], load), "bench-1")


class Queues:
    """A batch queue manager in memory; what is committed outlives the engine that put it."""

    name = "BENCH"
    mixes = True

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, tuple[int, bytes, bytes, bytes]]] = {}
        """By queue: token -> (priority, key, md, data)."""
        self._tokens = itertools.count(1)
        self._priorities: dict[int, int] = {}
        self.waiting: list[tuple[Unit, Callable[[Unit, Outcome], None]]] = []
        self.landed: list[Unit] = []
        self.automatic = True
        self.commits = 0
        self.refusing: dict[str, int] = {}
        """Queues that refuse puts, and with which reason."""
        self.room: dict[str, int] = {}
        """MAXDEPTH of queues that have one: a unit of work that does not fit whole is refused with 2053."""
        self.longest: dict[str, int] = {}
        """MAXMSGL of queues that have another one than usual; what is longer is put all the same."""
        self.consumed: dict[str, Callable[[], None]] = {}
        self.backouts: dict[str, Backout] = {}
        self.gone: set[str] = set()
        """Queues that were deleted."""
        self.subscribed: dict[str, str] = {}
        self.uncommitted: Counter[str] = Counter()
        """Messages that open units of work of others have put on a queue, which its depth counts."""
        self.put_to: Counter[tuple[str, str]] = Counter()
        """Messages by queue and queue manager."""

    def submit(self, unit: Unit, done: Callable[[Unit, Outcome], None]) -> None:
        self.waiting.append((unit, done))
        if self.automatic:
            self.commit()

    def commit(self) -> bool:
        """Let the oldest commit return; False when there is none."""
        if not self.waiting:
            return False
        unit, done = self.waiting.pop(0)
        if unit in self.landed:
            self.landed.remove(unit)
            done(unit, Outcome())
            return True
        refused = [
            (at, self.refusing[queue])
            for at, puts in enumerate(unit.puts)
            for queue in {*(puts.queues or (puts.queue,))} & self.refusing.keys()
        ]
        for name, room in self.room.items():
            rows = [(puts.queues or [puts.queue] * len(puts.heads)).count(name) for puts in unit.puts]
            if any(rows) and sum(rows) + self.depth(name) > room:
                refused.append((next(at for at, count in enumerate(rows) if count), 2053))
        if refused:
            done(unit, Outcome([Failure(at, reason, "refused by the bench") for at, reason in refused]))
            return True
        self._apply(unit)
        self.commits += 1
        done(unit, Outcome())
        return True

    def land(self) -> None:
        """The oldest commit happens and can be seen, and its answer is still on its way."""
        if (
            self.waiting
            and not self.landed
            and not any({*(puts.queues or (puts.queue,))} & self.refusing.keys() for puts in self.waiting[0][0].puts)
        ):
            self.landed.append(self.waiting[0][0])
            self._apply(self.waiting[0][0])
            self.commits += 1

    def _apply(self, unit: Unit) -> None:
        for takes in unit.takes:
            for token in takes.tokens:
                del self.rows[takes.queue][token]  # a KeyError is a message taken twice
        for puts in (each for one in unit.puts for each in (one.by_queue() if one.queues is not None else [one])):
            queue = self.rows.setdefault(puts.queue, {})
            self.put_to[puts.queue, puts.queue_manager] += len(puts.heads)
            puts.tokens = [next(self._tokens) for _ in puts.heads]
            for token, head, body in zip(puts.tokens, puts.heads, puts.bodies, strict=True):
                queue[token] = (puts.priority, puts.key, head[:364], head[364:] + body)
                self._priorities[token] = puts.priority
        for one in unit.replaces:
            queue = self.rows.setdefault(one.queue, {})
            for token in [token for token, row in queue.items() if row[1] == one.key]:
                del queue[token]
            if one.body is not None:
                queue[next(self._tokens)] = (0, one.key, bytes(364), one.body)
        assert not unit.moves

    def _ordered(self, queue: str) -> list[tuple[int, tuple[int, bytes, bytes, bytes]]]:
        return sorted(self.rows.get(queue, {}).items(), key=lambda item: (-item[1][0], item[0]))

    def load(self, queue: str) -> list[tuple[bytes, Stored]]:
        return [(row[1], Stored(token, row[2], row[3])) for token, row in self._ordered(queue)]

    def delete(self, queue: str) -> None:
        """DELETE QLOCAL: those who consume it are told, and no more."""
        self.gone.add(queue)
        self.consumed.pop(queue)()

    def tokens(self, queue: str, key: bytes) -> list[int]:
        return [token for token, row in self._ordered(queue) if row[1] == key]

    def fetch(self, queue: str, key: bytes, limit: int, after: Any = None) -> list[Stored]:
        if queue in self.gone:
            raise MQError(2085, f"no queue {queue}")
        rows = [(token, row) for token, row in self._ordered(queue) if row[1] == key]
        if after is not None:
            place = (-self._priorities[after], after)
            rows = [(token, row) for token, row in rows if (-row[0], token) > place]
        return [Stored(token, row[2], row[3]) for token, row in rows[:limit]]

    def depth(self, queue: str, key: bytes = b"") -> int:
        rows = self.rows.get(queue, {}).values()
        return sum(row[1] == key for row in rows) if key else len(rows) + self.uncommitted[queue]

    def consume(self, queue: str, arrived: Callable[[], None]) -> None:
        if queue in self.gone:
            raise MQError(2085, f"no queue {queue}")
        self.consumed[queue] = arrived

    def backout(self, queue: str) -> Backout:
        return self.backouts.get(queue, Backout())

    def subscribe(self, name: str, topic: str) -> Subscribed:
        self.subscribed[name] = topic
        return Subscribed(f"SUB.{name}")

    def arrive(self, queue: str, *messages: tuple[bytes, bytes]) -> None:
        """An application puts messages."""
        rows = self.rows.setdefault(queue, {})
        for md, data in messages:
            token = next(self._tokens)
            self._priorities[token] = 0
            rows[token] = (0, b"", mqmd.with_msg_id(md, token.to_bytes(24, "big")), data)
        if queue in self.consumed:
            self.consumed[queue]()

    def max_length(self, queue: str) -> int:
        return self.longest.get(queue, 4_194_304)


class BoundedQueues(Queues):
    """Commits at most so many messages in one unit of work."""

    most_rows = 40

    def __init__(self) -> None:
        super().__init__()
        self.units: list[int] = []
        """The messages of each unit."""

    def submit(self, unit: Unit, done: Callable[[Unit, Outcome], None]) -> None:
        self.units.append(rows_of(unit))
        super().submit(unit, done)


class FarQueues(Queues):
    """One that is asked: what is read is seen at one time and told at another, when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.answers: list[tuple[Any, Callable[[Any], None]]] = []
        self.away = False

    def ask(self, read: Callable[[], Any], answered: Callable[[Any], None]) -> None:
        self.questions.append((read, answered))

    def briefly(self, read: Callable[[], Any]) -> Any:
        if self.away:
            raise MQError(2059, "away")
        return read()

    def look(self) -> bool:
        """The oldest question is read; False when there is none."""
        if not self.questions:
            return False
        read, answered = self.questions.pop(0)
        self.answers.append((MQError(2059, "away") if self.away else read(), answered))
        return True

    def answer(self) -> bool:
        """The oldest answer arrives; False when there is none."""
        if not self.answers and not self.look():
            return False
        found, answered = self.answers.pop(0)
        answered(found)
        return True

    def forget(self) -> None:
        """Nobody is left to be told."""
        self.questions.clear()
        self.answers.clear()


class Wire:
    """The socket of one client: what the broker writes is decoded into packets."""

    peer, listener, certificate_user, certificate_ends = "bench:1", "bench", None, 0.0

    def __init__(self, version: int) -> None:
        self.reader = server_reader(version)
        self.packets: list[Any] = []
        self.closed = False
        self.waits = False
        """Whether the client has sent something that nobody has read."""

    def write(self, data: bytes) -> None:
        assert not self.closed, "written after close"
        self.packets += self.reader.feed(data)
        assert self.reader.error is None, self.reader.error

    def buffered(self) -> int:
        return 0

    largest = buffered

    def unread(self) -> bool:
        return self.waits

    def close(self) -> None:
        self.closed = True

    abort = close

    def take(self) -> list[Any]:
        taken, self.packets = self.packets, []
        return taken


class Device:
    """A client of the bench: sends packets, acknowledges nothing by itself."""

    def __init__(self, bench: Harness, version: int, client_id: str) -> None:
        self.bench, self.version, self.client_id = bench, version, client_id
        self.wire = Wire(version)
        self.connection = bench.engine.connected(self.wire)
        assert self.connection is not None

    def send(self, data: bytes) -> None:
        if not self.wire.closed:
            self.bench.engine.received_each([(self.connection, data)])
            self.bench.engine.flush()

    def connect(self, *, clean: bool = True, properties: dict[int, Any] | None = None, **options: Any) -> Any:
        properties = (properties or {}) | ({} if clean or self.version != 5 else {0x11: 3600})
        connect = client.connect(self.version, self.client_id, clean_start=clean, **options)
        connect.properties.update(properties)
        self.send(client.encode_connect(connect))
        return self

    def subscribe(self, filter_: str, qos: int, **options: Any) -> None:
        wanted = p.Subscribe(1, [p.Subscription(filter_, qos, **options)])
        self.send(client.encode_subscribe(self.version, wanted))

    def unsubscribe(self, filter_: str) -> None:
        self.send(client.encode_unsubscribe(self.version, p.Unsubscribe(1, [filter_])))

    def publish(self, topic: str, payload: bytes, qos: int = 0, packet_id: int = 0, **options: Any) -> None:
        raw = writer.encode_publish(self.version, topic.encode(), payload, qos, packet_id=packet_id, **options)
        self.send(raw)

    def ack(self, packet_type: int, packet_id: int) -> None:
        self.send(writer.encode_acks(packet_type, [packet_id]))

    def disconnect(self) -> None:
        self.send(writer.encode_disconnect(self.version, p.Disconnect()))

    def drop(self) -> None:
        if not self.wire.closed:
            self.wire.closed = True
            self.bench.engine.closed(self.connection)
            self.bench.engine.flush()

    def take(self) -> list[Any]:
        return self.wire.take()


class Harness:
    """One broker and everything round it."""

    def __init__(
        self,
        mapping: str = "version: 1\n",
        queues: Queues | None = None,
        load: Callable[[str], str] = load_text,
        **limits: Any,
    ) -> None:
        self.mapping, self.limits = mapping, limits
        self.load = load
        """Reads the files that the mapping names."""
        self.defects: list[Defect] | None = None
        """A list: defects are collected there, as a gateway logs them. None: they fail the test."""
        self.clock = ManualScheduler(1_000_000.0)
        self.queues = queues or Queues()
        self._names = itertools.count(1)
        self.start()

    def start(self) -> None:
        table = _table(self.mapping, self.load)
        access = OpenAccess()
        router = Router(table, access, lambda: f"auto-{next(self._names)}", lambda: bytes.fromhex("ab" * 8))
        self.engine = Engine(self.queues, self.clock, Limits(**self.limits), router, access, Counters())
        self.engine.context.dead_letter_queue = "DEAD.Q"
        self.consumers = Consumers(self.engine.context, self.engine.handover)
        self.engine.context.set_aside.on_defect = self._defect
        self.join()
        self.engine.recover()
        ownership = self.engine.ownership
        if ownership is None:
            self.consumers.use(table)
        else:
            self.consumers.know(table)
            ownership.joining.when_over(lambda: self.consumers.use(table))
        self.engine.flush()

    def join(self) -> None:
        """What else the engine is joined with, before it recovers."""

    def _defect(self, met: Defect) -> None:
        if self.defects is None:
            raise AssertionError(f"a defect: {met}") from met.error
        self.defects.append(met)

    def kill(self) -> None:
        """The process is gone in the middle of whatever it did; another one starts over the same queues."""
        self.queues.waiting.clear()
        self.queues.landed.clear()
        if isinstance(self.queues, FarQueues):
            self.queues.forget()
        self.clock.forget()
        self.start()

    def device(self, version: int, client_id: str) -> Device:
        return Device(self, version, client_id)

    def advance(self, seconds: float) -> None:
        """Time passes, with the engine's ticks."""
        for _ in range(int(seconds * 4)):
            self.clock.advance(0.25)
            self.engine.tick()
