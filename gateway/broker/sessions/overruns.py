"""Clients that were refused because they exceeded Receive Maximum, and what they are told when they come back. Pure.

Libraries that have kept messages while the gateway was away, paho-mqtt for Python first of all, send all of them as
soon as they are connected, whatever CONNACK says. If they were refused each time, they would come back with the same
for ever. What a server announces is its own decision, per connection [MQTT-3.3.4-7]: such a client may have all its
identifiers in flight, as a 3.1.1 client always may, and no more memory than may be stored for a session.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.session.connection import Connection

ALL_IDENTIFIERS = 0xFFFF
MOST_REMEMBERED = 10_000


class Overruns:
    """The clients that were refused last."""

    def __init__(self) -> None:
        self._refused: OrderedDict[tuple[str, str], None] = OrderedDict()

    def note(self, connection: Connection, client_id: str) -> None:
        """Note that this client was refused. One whose identifier was assigned comes back with another identifier: it
        is recognised by its address."""
        for key in ("client", client_id), ("address", _address(connection)):
            self._refused[key] = None
            self._refused.move_to_end(key)
        while len(self._refused) > MOST_REMEMBERED:
            self._refused.popitem(last=False)

    def forget(self, client_id: str) -> None:
        """Forget a client that has disconnected in order: when it comes back it has nothing of a lost connection to
        send again."""
        self._refused.pop(("client", client_id), None)

    def receive_maximum(self, connection: Connection, client_id: str, *, assigned: bool) -> int:
        """The Receive Maximum that is announced to a client."""
        key = ("address", _address(connection)) if assigned else ("client", client_id)
        return ALL_IDENTIFIERS if key in self._refused else connection.limits.receive_maximum


def _address(connection: Connection) -> str:
    return connection.link.peer.rpartition(":")[0]
