"""Packets that are put off, so that what one client sends keeps the others waiting for a moment only. Pure.

What was read in one turn of the reactor is worked off until the turn's time is up: `Context.until`. What is left then
comes in later turns, for a few milliseconds each, one client after the other; clients whose packets were merely behind
those of others come first. Meanwhile nothing more is read from a client whose packets are put off, and nothing of its
own overtakes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.session.connection import CLOSED, NEW, PUT_OFF, Connection

if TYPE_CHECKING:
    from gateway.broker.context import Context

TURN_SECONDS, STRANGERS_SECONDS = 0.015, 0.002
"""Time for what was read in one turn, and how much of it may pass before connections that are not online have to
wait."""
LATER_SECONDS, SLICE_SECONDS = 0.006, 0.002
"""Time in one turn for all that was put off, and for one client of it. What is read in the same turn counts towards the
first, because everybody else waits for both."""
FULL_SECONDS = 0.002
"""Time until the next look whether a full batch has gone."""


@dataclass(slots=True, eq=False)
class _Late:
    """What is put off of one connection."""

    generation: int
    """The generation of the connection's routes before it was put off."""
    packets: list[Any] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    """The bytes that came after these packets, from the beginning of a packet on."""
    is_strangers: bool = False
    """Whether it begins with CONNECT."""


class PutOff:
    """The packets that are put off, by connection."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.packets: Callable[[Connection, list[Any]], None] = lambda _connection, _packets: None
        """Takes in packets, and puts off what it does not get to in time; set by the engine."""
        self.received: Callable[[Connection, bytes], None] = lambda _connection, _data: None
        """Takes in bytes, from the beginning of a packet on; set by the engine."""
        self.on_busy: Callable[[Connection, bool], None] = lambda _connection, _busy: None
        """Told when packets of a connection are put off, and when none are any more."""
        self._waiting: dict[Connection, _Late] = {}
        """What waits, by connection."""
        self._first: deque[Connection] = deque()
        """Connections that took no time themselves, which come before `_others`."""
        self._others: deque[Connection] = deque()
        self._held: set[Connection] = set()
        """Connections of which nothing is taken in for the moment."""
        self._strangers = 0
        """How many waiting connections were new: what is put off of them begins with CONNECT."""
        self._now: Connection | None = None
        """The connection whose packets are being taken in again."""
        self._planned = False

    def __contains__(self, connection: object) -> bool:
        return connection in self._waiting

    def add_data(self, connection: Connection, data: bytes, *, slow: bool) -> None:
        """Put off bytes that a connection has sent. They are not decoded before their turn: to decode what many have
        sent takes long."""
        self._late(connection, slow=slow).data += data

    def hold(self, connection: Connection) -> None:
        """Put off all that a connection sends until `let_go`, because one of its packets takes many turns."""
        self._late(connection, slow=True)
        self._held.add(connection)
        for queue in (self._first, self._others):
            if connection in queue:
                queue.remove(connection)

    def take_alike(
        self, connection: Connection, length_of: Callable[[bytearray, int], int], take: Callable[[bytes], bool]
    ) -> None:  # fmt: skip
        """Take in, from a connection that is held, the packets at its front whose length `length_of` tells, as long as
        `take` accepts them."""
        late = self._waiting.get(connection)
        if late is None or late.packets or connection.generation != PUT_OFF:
            return
        connection.generation, at = late.generation, 0
        try:
            while (length := length_of(late.data, at)) and take(bytes(late.data[at : at + length])):
                at += length
        finally:
            del late.data[:at]
            if connection in self._waiting and connection.generation == late.generation:
                connection.generation = PUT_OFF

    def let_go(self, connection: Connection) -> None:
        """End a `hold`: what was put off meanwhile comes in its turn."""
        if connection in self._held:
            self._held.discard(connection)
            self._first.append(connection)
            self._plan()

    def is_behind(self, connection: Connection) -> bool:
        """Whether something is put off of a connection that will come soon, as none of its packets takes many turns."""
        return connection in self._waiting and connection not in self._held

    def goes_before(self, connection: Connection) -> bool:
        """Whether a CONNECT is put off that came before this connection's first packet. Both may be of one client, of
        whom the last connection is the one that stays."""
        return self._strangers > 0 and connection is not self._now

    def add_first(self, connection: Connection, data: bytes) -> None:
        """Put off bytes that came before everything else of this connection that waits."""
        late = self._late(connection, slow=False)
        late.data = bytearray(data) + late.data

    def add(self, connection: Connection, packets: list[Any], *, slow: bool) -> None:
        """Put off packets, before all else of this connection that waits; `slow`: they follow packets of the same
        connection that took long."""
        late = self._late(connection, slow=slow)
        late.packets = packets + late.packets

    def _late(self, connection: Connection, *, slow: bool) -> _Late:
        known = self._waiting.get(connection)
        if known is not None:
            return known
        late = self._waiting[connection] = _Late(connection.generation, is_strangers=connection.state == NEW)
        self._strangers += late.is_strangers
        connection.generation = PUT_OFF  # so that the fast lane takes nothing before them
        (self._others if slow else self._first).append(connection)
        if connection is not self._now:
            self.on_busy(connection, True)  # noqa: FBT003 -- the only question
        self._plan()
        return late

    def _plan(self, seconds: float = 0.0) -> None:
        if not self._planned:
            self._planned = True
            self.context.set_aside.later(seconds, self._work_off)

    def _work_off(self) -> None:
        """Take in some of what was put off."""
        context = self.context
        monotonic = context.scheduler.monotonic
        context.now = context.scheduler.now()
        self._planned = False
        begun = monotonic()
        until = max(min(context.until_late, begun + LATER_SECONDS), begun + SLICE_SECONDS)
        over = False
        while (self._first or self._others) and not context.is_full and not over:
            connection = (self._first or self._others).popleft()
            late = self._waiting.pop(connection)
            self._strangers -= late.is_strangers
            if connection.generation == PUT_OFF:  # else its routes have become void meanwhile
                connection.generation = late.generation
            if connection.state == CLOSED:
                continue
            self._now = connection
            context.until = context.until_strangers = monotonic() + SLICE_SECONDS
            context.owed = True  # however busy the machine is, it goes on
            try:
                self._take(connection, late)
                if connection not in self._waiting and connection.state != CLOSED:
                    self._over(connection)
            except Exception as error:  # noqa: BLE001 -- a defect costs the connection that met it, not the others
                context.defect(connection, error)
            finally:
                self._now, context.owed = None, False
            over = monotonic() > until
        try:
            context.flush()
        finally:
            if self._first or self._others:
                self._plan(FULL_SECONDS if context.is_full else 0.0)

    def _take(self, connection: Connection, late: _Late) -> None:
        if late.packets:
            self.packets(connection, late.packets)
        if not late.data or connection.state == CLOSED:
            return
        if connection in self._waiting:  # time is up
            self._waiting[connection].data = late.data
        else:
            self.received(connection, bytes(late.data))

    def _over(self, connection: Connection) -> None:
        """All packets of a connection are taken in: resume reading, and report what was wrong behind them."""
        if connection.connack_sent:  # what was not taken in was no silence; a CONNECT that waited is nothing behind it
            connection.last_read = self.context.scheduler.monotonic()
        self.on_busy(connection, False)  # noqa: FBT003 -- as above
        if connection.reader.error is not None:
            self.context.protocol_error(connection, connection.reader.error)
