"""Clients whose connections end each other again and again, as two devices with one identifier do: hundreds of times a
second, if both connect again at once.
"""

from __future__ import annotations

from collections import OrderedDict

LINES, SECONDS = 5, 60.0
"""So many take-overs of a client are lines of their own in so many seconds."""
MOST_CLIENTS = 1000


class TakeOvers:
    """How often each client has been taken over of late."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Since when it is counted, and how often it was."""

    def count(self, client_id: str, now: float) -> int:
        """Once more; how often that is by now."""
        since, times = self._clients.pop(client_id, (now, 0))
        if now - since >= SECONDS:
            since, times = now, 0
        self._clients[client_id] = (since, times + 1)
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return times + 1

    def are_many(self, client_id: str, now: float) -> bool:
        """Whether there are no more lines of its connections for some time."""
        since, times = self._clients.get(client_id, (now, 0))
        return times > LINES and now - since < SECONDS
