"""PINGRESP: behind the answers to what the client sent before, so that a client may use it to see that these are
complete; but never long after PINGREQ, however long a commit takes. Pure.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.session.connection import CLOSED

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.session.connection import Connection

_PINGRESP = b"\xd0\x00"


class Pings:
    """Answers the keep-alives of clients."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: dict[Connection, int] = {}
        """How many PINGREQ of a connection wait for the commit of what it sent before."""

    def pingreq(self, connection: Connection, packet: Any) -> None:
        """Every PINGREQ has its PINGRESP [MQTT-3.12.4-1]: at once when nothing is under way or the queue manager is
        known not to answer, otherwise with the next commit or the next tick, whichever comes first."""
        del packet
        engine = self.engine
        nothing = engine.idle and not engine.parking.waiting
        if nothing or engine.failures.held_since or engine.parking.withholds(connection):
            engine.send(connection, _PINGRESP)
            return
        self.waiting[connection] = self.waiting.get(connection, 0) + 1
        engine.turn.after.append(partial(self._answer, connection))

    def _answer(self, connection: Connection) -> None:
        count = self.waiting.pop(connection, 0)
        if connection.state != CLOSED:
            for _ in range(count):
                self.engine.send(connection, _PINGRESP)
        elif count and connection.leaving:
            connection.link.write(_PINGRESP * count)

    def tick(self) -> None:
        """Once a second: a commit that takes long does not make clients think that the gateway is gone."""
        for connection in list(self.waiting):
            self._answer(connection)
