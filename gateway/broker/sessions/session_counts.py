"""Figures counted over all sessions, in slices, as there may be a hundred thousand. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.broker.context import Context


class SessionCounts:
    """The figures of the last count."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.sessions = 0
        self.connected = 0
        """Sessions with a client."""
        self.out = 0
        """Messages of QoS 1 and 2 that were sent and are not acknowledged."""
        self.arriving = 0
        """Messages of QoS 1 and 2 that were received and are not answered yet."""

    def steps(self) -> Iterator[None]:
        """Count anew, some sessions at each step."""
        context = self._context
        sessions = connected = out = arriving = 0
        for some in context.sessions.portions():
            sessions += len(some)
            for session in some:
                connection = session.connection
                out += len(session.outflow.inflight)
                arriving += len(session.inbound)
                if connection is not None:
                    connected += 1
                    arriving += connection.inbound_pending + connection.uncompleted
            yield
        self.sessions, self.connected, self.out, self.arriving = sessions, connected, out, arriving
