"""Several brokers over the same queues in one process, and everything between them one step at a time: commits, what
one tells another, publications for another, reads, time. A test, or dice, says what happens next; nothing happens by
itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from broker_harness import FarQueues, Harness

from gateway.ports.batch import Replace, Stored, Token, Unit
from gateway.ports.ownership import READS, message_key
from gateway.ports.state_queues import FORWARD, GATEWAYS, RETAINED
from gateway.session.record import decode_json


class Estate:
    """What the brokers share: rows, and who lives."""

    def __init__(self) -> None:
        self.harness: Callable[..., Harness] = Harness
        """Makes a broker."""
        self.rows: dict[str, dict[int, tuple[int, bytes, bytes, bytes]]] = {}
        self.tokens = itertools.count(1)
        self.priorities: dict[int, int] = {}
        self.nodes: dict[str, Node] = {}
        """Living ones, by instance."""
        self.dead: dict[str, str | None] = {}
        """Those that are not taken over yet, and their heirs."""
        self.earlier: set[str] = set()
        """Those of a release that does not say what it reads."""
        self.locked: set[int] = set()
        """Records that a unit of work has got which is not committed."""
        self._names = itertools.count(1)

    def start(self, *, successor: bool = False, settle: bool = True, **limits: Any) -> Node:
        """One more; it takes connections when all that is written has been read. `successor`: of those from whom nobody
        takes over yet. `settle`: everything that is under way arrives first."""
        name = f"{next(self._names):024x}"
        if successor:
            self.dead = {owner: heir if heir in self.nodes else name for owner, heir in self.dead.items()}
        node = Node(self, name, limits)
        self.changed()
        if settle:
            self.settle()
        return node

    def kill(self, node: Node, *, landed: bool = False) -> None:
        """It is no more; `landed`: the commit that was under way had happened."""
        if landed:
            node.queues.land()
        node.dead = True
        node.queues.back_out()
        node.queues.forget()
        node.bench.clock.forget()
        del self.nodes[node.instance]
        self.dead[node.instance] = None

    def condemn(self, instance: str, heir: Node) -> None:
        """Its lease has ended, and this one takes over from it."""
        if self.dead.get(instance, "") is None:
            self.dead[instance] = heir.instance
            for older, successor in self.dead.items():
                if successor == instance:  # it goes along
                    self.dead[older] = heir.instance
            heir.queues.on_change()

    def changed(self) -> None:
        for node in list(self.nodes.values()):
            node.queues.on_change()

    def arrive(self, queue: str, md: bytes, data: bytes) -> None:
        """An application puts a message."""
        first, *others = self.nodes.values()
        first.queues.arrive(queue, (md, data))
        for node in others:
            node.queues.consumed[queue]()

    def look_again(self) -> None:
        """What a broker had got that is no more is on its queue again."""
        for node in list(self.nodes.values()):
            for arrived in node.queues.consumed.values():
                arrived()

    def settle(self, seconds: float = 3.0) -> None:
        """Everything that is under way arrives, and some time passes."""
        for _ in range(int(seconds * 20)):
            for node in list(self.nodes.values()):
                while any([node.commit(), node.hear(), node.answer(), node.look_ahead()]):
                    node.turn()
                node.bench.clock.advance(0.05)
        for node in self.nodes.values():
            node.bench.engine.tick()


class SharedQueues(FarQueues):
    """The queue manager as one broker has it."""

    def __init__(self, estate: Estate, instance: str) -> None:
        super().__init__()
        self.estate, self.instance = estate, instance
        self.rows, self._tokens, self._priorities = estate.rows, estate.tokens, estate.priorities
        self.automatic = False
        self.on_message: Callable[[dict[str, Any]], None] = lambda _message: None
        self.on_change: Callable[[], None] = lambda: None
        self.arrived: Callable[[], None] = lambda: None
        self._key = b""
        self._ahead: list[Stored] = []
        self._marked: set[Token] = set()
        self._handed_out: set[Token] = set()
        self._claimed: set[Token] = set()
        """Messages of applications that this broker has got, or is about to."""
        self._called: tuple[list[int], list[tuple[int, Replace]]] | None = None
        """What the calls of the oldest commit have got and put of retained messages."""

    def begin(self) -> None:
        """The calls of the oldest commit are made for retained messages: before it returns, nobody sees what it has put
        nor gets what it has got."""
        if self.waiting and not self.landed and self._called is None:
            self._called = self._call(self.waiting[0][0])

    def back_out(self) -> None:
        self.waiting.clear()
        if self._called is not None:
            self.estate.locked.difference_update(self._called[0])
            self._called = None

    def _call(self, unit: Unit) -> tuple[list[int], list[tuple[int, Replace]]]:
        rows, locked = self.rows.setdefault(RETAINED, {}), self.estate.locked
        got: list[int] = []
        put: list[tuple[int, Replace]] = []

        def get(wanted: Iterable[int]) -> None:
            free = next((token for token in wanted if token not in locked), None)
            if free is not None:
                got.append(free)
                locked.add(free)

        for token in [token for takes in unit.takes if takes.queue == RETAINED for token in takes.tokens]:
            get({token} & rows.keys())  # type: ignore[arg-type]
        for one in unit.replaces:
            if one.queue == RETAINED:
                get(sorted(token for token, row in rows.items() if row[1] == one.key))
                put += [] if one.body is None else [(next(self._tokens), one)]
        return got, put

    def _apply(self, unit: Unit) -> None:
        (got, put), self._called = self._called or self._call(unit), None
        takes = [one for one in unit.takes if one.queue != RETAINED]
        super()._apply(Unit(unit.puts, takes, unit.moves, [one for one in unit.replaces if one.queue != RETAINED]))
        rows = self.rows.setdefault(RETAINED, {})
        for token in got:
            del rows[token]
        for token, one in put:
            rows[token], self._priorities[token] = (0, one.key, bytes(364), one.body or b""), 0
        self.estate.locked.difference_update(got)

    def peers(self) -> frozenset[str]:
        dead = {heir or owner for owner, heir in self.estate.dead.items()}
        return frozenset(self.estate.nodes.keys() | dead) - {self.instance}

    def knows(self, gateway: str) -> bool:
        return gateway in self.estate.nodes or gateway in self.estate.dead

    def reads(self, gateway: str) -> int:
        return 0 if gateway in self.estate.earlier else READS

    lease_seconds = 10.0

    def leases(self) -> dict[str, float]:
        return {}

    def expired_owners(self) -> list[str]:
        return [owner for owner, heir in self.estate.dead.items() if heir == self.instance]

    def taken_over(self, owner: str) -> None:
        self.estate.dead.pop(owner, None)
        self.estate.changed()

    def listen(self, on_message: Callable[[dict[str, Any]], None], on_change: Callable[[], None]) -> None:
        self.on_message, self.on_change = on_message, on_change

    def reached(self, place: str) -> None:
        pass

    def receive(self, key: bytes, arrived: Callable[[], None]) -> None:
        self._key, self.arrived = key, arrived

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """What was read ahead; what was handed out last is dealt with."""
        if queue != FORWARD:
            claimed = set[Token]().union(*(node.queues._claimed for node in self.estate.nodes.values()))
            found = [stored for stored in self.fetch(queue, key, 1000) if stored.token not in claimed][:limit]
            self._claimed.update(stored.token for stored in found)
            return found
        assert (queue, key) == (FORWARD, self._key)
        page, self._ahead = self._ahead[:limit], self._ahead[limit:]
        self._handed_out = {stored.token for stored in page}
        return page

    def look_ahead(self, limit: int = 1000) -> bool:
        """Read what is on the queue and not marked."""
        known = self._handed_out | {stored.token for stored in self._ahead} | self._marked
        found = [stored for stored in self.fetch(FORWARD, self._key, 1000) if stored.token not in known][:limit]
        self._ahead += found
        self._marked.update(stored.token for stored in found)
        if found:
            self.arrived()
        return bool(found)

    def lose_marks(self) -> None:
        """The marks have run out, or went with a connection: what is still there is read again."""
        self._marked.clear()


class Node:
    """One broker."""

    def __init__(self, estate: Estate, instance: str, limits: dict[str, Any]) -> None:
        self.estate, self.instance = estate, instance
        self.dead = False
        self.queues = SharedQueues(estate, instance)
        estate.nodes[instance] = self
        self.bench = estate.harness(queues=self.queues, **limits)

    def commit(self) -> bool:
        """The oldest commit returns."""
        return self.queues.commit()

    def answer(self) -> bool:
        """A read is told."""
        return bool(self.queues.questions or self.queues.answers) and self.queues.answer()

    def look_ahead(self, limit: int = 1000) -> bool:
        """Some publications for it are read."""
        return self.queues.look_ahead(limit)

    def hear(self) -> bool:
        """It reads what another one has told it."""
        found = self.queues.fetch(GATEWAYS, message_key(self.instance), 1)
        if not found:
            return False
        del self.estate.rows[GATEWAYS][found[0].token]  # type: ignore[arg-type]
        self.queues.on_message(decode_json(found[0].data))
        return True

    def turn(self) -> None:
        """Calls that wait are made."""
        self.bench.clock.run()
