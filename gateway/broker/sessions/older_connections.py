"""CONNECTs that wait because not everything that the client's older connection has sent is taken yet: that comes first,
and the last of it may be a DISCONNECT. Pure.

CONNECTs of one client go on in the order in which they came, however long it took to find out who sent each of them. An
earlier connection whose client is not known yet is waited for if it has sent more than its CONNECT, but not for long:
then it is refused, because the same client has connected again.

All that wait are looked at together, for a moment in each turn: somebody may have very many, and an older connection
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
"""How often, and how far apart in seconds, the older connection of a client is looked at. What is not taken by the last
look is of a client that never stops sending, or of a connection that may be anybody's."""
SLICE_SECONDS = 0.002
"""Time in one turn for all that wait."""


@dataclass(slots=True)
class _Line:
    """The CONNECTs of one client."""

    waiting: deque[tuple[Connection, Callable[[], None]]] = field(default_factory=deque)
    looks: int = 0
    """How often the first of them was looked at."""
    unheard: Connection | None = None
    """A connection whose client is not known, and that had more to be taken at the last look: it is looked at first, as
    there may be very many."""

    def add(self, connection: Connection, call: Callable[[], None]) -> None:
        """Insert a CONNECT in the order in which they came."""
        place = len(self.waiting)
        while place and self.waiting[place - 1][0].asked_at > connection.asked_at:
            place -= 1
        self.waiting.insert(place, (connection, call))


class OlderConnections:
    """The CONNECTs that wait for older connections, by client identifier."""

    def __init__(self, context: Context, endings: Endings) -> None:
        self.context = context
        self.endings = endings
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._planned = False
        self._overtaken: set[Connection] = set()
        """Connections that are to be refused, whatever is found out about them."""

    def holds_up(self, client_id: str, connection: Connection, call: Callable[[], None]) -> bool:
        """Whether a CONNECT has to wait; the call is then made when it need not any more. The call is never made for a
        connection that is refused because a later one has been let in."""
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
        """Whether everything is taken that the client of a connection had sent before it."""
        sessions, is_heard, one = self.context.sessions, self.endings.is_heard, line.unheard
        session = sessions.get(client_id)
        if session is not None and not is_heard(session.connection):
            return False
        if one is not None and one.state == AUTHENTICATING and one.asked_at < connection.asked_at and not is_heard(one):
            return False
        line.unheard = next((one for one in sessions.earlier(connection) if not is_heard(one)), None)
        return line.unheard is None

    def _refuse_earlier(self, connection: Connection) -> None:
        """Refuse the earlier connections whose client is not known yet: whichever of them turned out to be this client
        would be taken over at once."""
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
        """Look at as many as there is time for; the others come first in the next turn."""
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
        """Whether the first in line need not wait any more. If so, it is taken out of the line, and its call is made
        unless its client has left meanwhile."""
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
