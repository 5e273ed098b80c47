"""What has happened to clients: connections, their ends, refusals, losses. The last events of all clients, in memory.

A client that keeps coming and going fills only its own share: equal events in a row are one event with a number. Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from hashlib import blake2b

MAX_EVENTS = 20_000
"""The most events of all clients, some 5 MB; the oldest are dropped first."""
MAX_SHOWN = 200
MAX_NAME, MAX_TEXT = 128, 512
"""How many characters are kept of an identifier or a value, and of a sentence: clients choose up to 65,535 bytes."""


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
    """Keeps the last events."""

    def __init__(self, most: int = MAX_EVENTS) -> None:
        self._events: deque[ClientEvent] = deque(maxlen=most)
        self._latest: dict[str, ClientEvent] = {}

    def add(self, now: float, client_id: str, event: str, text: str, **fields: object) -> None:
        """Note an event."""
        client_id, text = _name(client_id), text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."
        given = {name: _short(value) for name, value in fields.items() if value is not None}
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
        """Returns the last events of a client, oldest first."""
        name = _name(client_id)
        return [one for one in self._events if one.client_id == name][-MAX_SHOWN:]


def _name(client_id: str) -> str:
    """Returns an identifier, or the beginning of a long one and a digest of it."""
    if len(client_id) <= MAX_NAME:
        return client_id
    return f"{client_id[: MAX_NAME // 2]}...{blake2b(client_id.encode(), digest_size=16).hexdigest()}"


def _short(value: object) -> object:
    return value[:MAX_NAME] + "..." if isinstance(value, str) and len(value) > MAX_NAME else value
