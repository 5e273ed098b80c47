"""While the queue manager's own disk takes no new messages: publications are not taken in, and everything else goes on.

A publisher that knows reason codes (5.0) is told 0x97, Quota exceeded. One that does not (3.x) gets no acknowledgement
until there is room: what it publishes is kept in memory, in its order, and taken in then. Nobody is disconnected but
clients of which something could not be kept, when there is room again.
Acknowledgements, subscriptions, sessions and what devices receive go on: the queue manager has a reserve for them, and
it is by these that the disk gets empty. Pure.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.mqtt.packets import V5
from gateway.ports.batch import Fills
from gateway.session.connection import CLOSED, ONLINE, Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.broker.context import Context
    from gateway.broker.publish.plain import PlainLane

MAX_WITHHELD_BYTES = 64 << 20
"""Bytes of publications that are kept for 3.x clients, all together. What comes beyond is neither kept nor
acknowledged: when there is room again the connection ends, so that its client comes back and sends it again."""
_OVERHEAD = 200
"""Bytes in memory of a publication beside its topic and payload."""


class FullDisk:
    """Takes what connections send while the disk is full."""

    def __init__(
        self, context: Context, plain_lane: PlainLane, packets: Callable[[Connection, list[Any]], None]
    ) -> None:
        self.context = context
        self.plain_lane = plain_lane
        self._packets = packets
        """Takes in packets of a connection."""
        self.fills = context.queue_manager if isinstance(context.queue_manager, Fills) else None
        """What has a disk of its own that may be full."""
        self.withheld: dict[Connection, deque[Any]] = {}
        """Publications of 3.x clients, in their order."""
        self.withheld_bytes = 0
        self._beyond: set[Connection] = set()
        """Those of which something was not kept: nothing that follows is taken before it."""
        self._releasing = False

    def look(self) -> None:
        """Once a round, where it is full or was: whether it is, or not any more."""
        context = self.context
        full = self.fills.storage_full if self.fills is not None else None
        context.storage_full = full
        if full is None and (self.withheld or self._beyond) and not self._releasing:
            self._release()

    def publish(self, connection: Connection, packet: Any) -> None:
        """A PUBLISH of any kind, on a full disk or not."""
        first = packet[0]
        waits = self.context.storage_full is not None and first & 6 and connection.version != V5
        if waits and not (first & 4 and packet[2] in connection.session.inbound):
            self._withhold(connection, packet)
            return
        self.plain_lane.publish(connection, packet)

    def _withhold(self, connection: Connection, packet: Any) -> None:
        size = len(packet[1]) + len(packet[4]) + _OVERHEAD
        if connection in self._beyond or self.withheld_bytes + size > MAX_WITHHELD_BYTES:
            self._beyond.add(connection)
            self.context.counters.messages_dropped["_none", "spool_full"] += 1
            return
        kept = self.withheld.get(connection)
        if kept is None:
            kept = self.withheld[connection] = deque()
            self.context.counters.backpressure_events["spool_full"] += 1
        kept.append(packet)
        self.withheld_bytes += size

    def _release(self) -> None:
        """There is room again: what was kept is taken in, until the disk is full once more."""
        self._releasing = True
        try:
            beyond, self._beyond = self._beyond, set()
            for connection in list(self.withheld):
                kept = self.withheld.pop(connection)
                if connection.state == ONLINE:
                    self._packets(connection, list(kept))
            self.withheld_bytes = 0
            if beyond:
                self.context.batch.after.append(partial(self._end, beyond))
        finally:
            self._releasing = False

    def _end(self, beyond: set[Connection]) -> None:
        """3.x sends a publication again on a new connection alone: without an end the client would wait for ever."""
        for connection in beyond:
            text = "not all that was published while the disk was full could be kept: it is to be sent again"
            self.context.close(connection, "refused", text)

    def tick(self) -> None:
        """Once a second: what closed connections had sent will be sent again."""
        for connection in [one for one in self.withheld if one.state == CLOSED]:
            kept = self.withheld.pop(connection)
            self.withheld_bytes -= sum(len(packet[1]) + len(packet[4]) + _OVERHEAD for packet in kept)
        self._beyond = {one for one in self._beyond if one.state != CLOSED}
        self.look()
