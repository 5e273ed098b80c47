"""What is counted over all sessions: in slices, as there may be a hundred thousand. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.broker.context import Context

LOOKED_AT = 500
"""Sessions in each step."""


class SessionCounts:
    """The numbers that were counted last."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.sessions = 0
        self.connected = 0
        """Sessions with a client."""
        self.out = 0
        """Messages of QoS 1 and 2 that were sent and are not acknowledged."""
        self.arriving = 0
        """Those that were received and are not answered yet."""

    def steps(self) -> Iterator[None]:
        """Count anew."""
        context = self._context
        connected = out = arriving = 0
        sessions = list(context.sessions)
        for begin in range(0, len(sessions), LOOKED_AT):
            for session in sessions[begin : begin + LOOKED_AT]:
                connected += session.connection is not None
                out += len(session.outflow.inflight)
                arriving += len(session.inbound)
            yield
        arriving += sum(one.inbound_pending + one.uncompleted for one in context.connections)
        self.sessions, self.connected, self.out, self.arriving = len(sessions), connected, out, arriving
