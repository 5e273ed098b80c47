"""What has happened to clients: connects, ends, refusals, what was lost. The last events of all of them, in memory.

A client that keeps coming and going fills its own share only: equal events in a row are one with a number. Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MAX_EVENTS = 20_000
"""In all, some 5 MB; the oldest go first."""
MAX_SHOWN = 200


@dataclass(slots=True)
class ClientEvent:
    """One thing that happened to a client, or several equal ones."""

    client_id: str
    event: str
    text: str
    fields: dict[str, object]
    first: float
    last: float
    count: int = 1


class ClientHistory:
    """A ring of events."""

    def __init__(self, most: int = MAX_EVENTS) -> None:
        self._events: deque[ClientEvent] = deque(maxlen=most)
        self._latest: dict[str, ClientEvent] = {}

    def add(self, now: float, client_id: str, event: str, text: str, **fields: object) -> None:
        """Note an event."""
        given = {name: value for name, value in fields.items() if value is not None}
        latest = self._latest.get(client_id)
        if latest is not None and (latest.event, latest.text, latest.fields) == (event, text, given):
            latest.last, latest.count = now, latest.count + 1
            return
        if len(self._events) == self._events.maxlen:
            oldest = self._events.popleft()
            if self._latest.get(oldest.client_id) is oldest:
                del self._latest[oldest.client_id]
        made = self._latest[client_id] = ClientEvent(client_id, event, text, given, now, now)
        self._events.append(made)

    def of(self, client_id: str) -> list[ClientEvent]:
        """Its events, oldest first; the last of them."""
        return [one for one in self._events if one.client_id == client_id][-MAX_SHOWN:]
