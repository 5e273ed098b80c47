"""Clients whose connections end each other again and again, as those of two devices with one identifier do: hundreds of
times a second if both reconnect at once."""

from __future__ import annotations

from collections import OrderedDict

LINES, SECONDS = 5, 60.0
"""How many take-overs of a client are logged individually in how many seconds."""
MOST_CLIENTS = 1000


class TakeOvers:
    """How often each client has been taken over lately."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Since when each client has been counted, and how often it was taken over."""

    def count(self, client_id: str, now: float) -> int:
        """Count one more; returns how many there have been by now."""
        since, times = self._clients.pop(client_id, (now, 0))
        if now - since >= SECONDS:
            since, times = now, 0
        self._clients[client_id] = (since, times + 1)
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return times + 1

    def are_many(self, client_id: str, now: float) -> bool:
        """Whether no more lines are logged about its connections for some time."""
        since, times = self._clients.get(client_id, (now, 0))
        return times > LINES and now - since < SECONDS
