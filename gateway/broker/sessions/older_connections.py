"""CONNECTs of clients whose older connection is not heard to its end: what it has sent comes first, and may be that its
client leaves. Pure.

Those of one client go on in the order in which they came, however long it took to find out who sent each of them. One
of whom that is not known yet is waited for where it has sent more than its CONNECT, but not for long: then it is
refused, as the same client has connected again.

All of them are looked at together, for a moment in each turn: somebody may have very many, and an older connection
that sends on and on.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from gateway.broker.context import Context
from gateway.broker.sessions.connack import AGAIN
from gateway.broker.sessions.endings import Endings
from gateway.session.connection import AUTHENTICATING, Connection

LOOKS, LOOK_SECONDS = 100, 0.005
"""How often it is looked whether the older connection of a client is heard to its end, and when again. What is not
taken by then is of a client that sends on, or of one that may be anybody."""
SLICE_SECONDS = 0.002
"""In one turn, for all who wait."""


@dataclass(slots=True)
class _Line:
    """The CONNECTs of one client."""

    waiting: deque[tuple[Connection, Callable[[], None]]] = field(default_factory=deque)
    looks: int = 0
    """How often it was looked for the first of them."""
    unheard: Connection | None = None
    """One of whom nothing is known, and that was not heard to its end when it was looked last: it is looked at first,
    as there may be very many."""

    def add(self, connection: Connection, call: Callable[[], None]) -> None:
        """In the order in which they came."""
        place = len(self.waiting)
        while place and self.waiting[place - 1][0].asked_at > connection.asked_at:
            place -= 1
        self.waiting.insert(place, (connection, call))


class OlderConnections:
    """Those who wait for them, by client."""

    def __init__(self, context: Context, endings: Endings) -> None:
        self.context = context
        self.endings = endings
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._planned = False
        self._overtaken: set[Connection] = set()
        """Those that are to be refused, whatever is found out about them."""

    def holds_up(self, client_id: str, connection: Connection, call: Callable[[], None]) -> bool:
        """Whether a CONNECT has to wait; then the call is made when it need not any more. Not of one that is refused,
        as a later one has been let in."""
        session = self.context.sessions.get(client_id)
        now = None if session is None else session.connection
        if connection in self._overtaken or (now is not None and now.asked_at > connection.asked_at):
            self._refuse(connection)
            return True
        line = self._lines.get(client_id)
        if line is None:
            line = _Line()
            if self._is_heard(client_id, line, connection):
                self._refuse_earlier(connection)
                return False
            self._lines[client_id] = line
        line.add(connection, call)
        self._plan()
        return True

    def _is_heard(self, client_id: str, line: _Line, connection: Connection) -> bool:
        """Whether all is taken that its client had sent before."""
        sessions, is_heard, one = self.context.sessions, self.endings.is_heard, line.unheard
        session = sessions.get(client_id)
        if session is not None and not is_heard(session.connection):
            return False
        if one is not None and one.state == AUTHENTICATING and one.asked_at < connection.asked_at and not is_heard(one):
            return False
        line.unheard = next((one for one in sessions.earlier(connection) if not is_heard(one)), None)
        return line.unheard is None

    def _refuse_earlier(self, connection: Connection) -> None:
        """Whoever of them turns out to be the client has come before this one: it would be taken over at once."""
        context = self.context
        earlier = context.sessions.earlier(connection)
        if not earlier:
            return
        for one in earlier:
            context.sessions.asked(one)
        self._overtaken.update(earlier)
        context.slices.run(f"overtaken {id(connection)}", partial(self._refuse_each, earlier), SLICE_SECONDS)

    def _refuse_each(self, overtaken: list[Connection]) -> Iterator[None]:
        for one in overtaken:
            self._refuse(one)
            yield

    def _refuse(self, overtaken: Connection) -> None:
        self._overtaken.discard(overtaken)
        if overtaken.state == AUTHENTICATING:
            self.endings.connacks.refuse(overtaken, *AGAIN)

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self.context.scheduler.later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """At as many as there is time for; the others come first in the next turn."""
        context, monotonic = self.context, self.context.scheduler.monotonic
        self._planned = False
        context.now, until = context.scheduler.now(), monotonic() + SLICE_SECONDS
        for _ in range(len(self._lines)):
            client_id = next(iter(self._lines))
            line = self._lines[client_id]
            self._lines.move_to_end(client_id)
            while line.waiting and self._goes_on(client_id, line) and monotonic() <= until:
                pass
            if not line.waiting:
                del self._lines[client_id]
            if monotonic() > until:
                break
        context.flush()
        if self._lines:
            self._plan()

    def _goes_on(self, client_id: str, line: _Line) -> bool:
        """Whether the first need not wait any more: it is called, if its client has not left meanwhile."""
        connection, call = line.waiting[0]
        if connection.state == AUTHENTICATING:
            if line.looks < LOOKS and not self._is_heard(client_id, line, connection):
                line.looks += not self.context.is_full  # nothing that is put off is taken before that is committed
                return False
            line.looks, line.unheard = 0, None
            self._refuse_earlier(connection)
            self.context.set_aside.call(call)
        line.waiting.popleft()
        return True
