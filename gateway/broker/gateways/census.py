"""What the gateways on the same state queues are and do, as each tells the others every few seconds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from gateway.ports.ownership import Message

INTERVAL = 10.0
"""Seconds between two reports of a gateway."""
SILENT = 6 * INTERVAL
"""A gateway that has not been heard of for so long does not count any more."""


class Gateway(NamedTuple):
    """One gateway."""

    instance: str
    """Empty where it has the state queues for itself."""
    name: str
    version: str
    started: float
    """Seconds since the epoch, by its own clock."""
    heard: float | None
    """When it was last heard of, by this gateway's clock; None: never, its lease alone is known."""
    figures: dict[str, int]
    """What it counts."""
    own: bool = False


class Census:
    """All gateways as this one knows them."""

    def __init__(self, instance: str = "", peers: Callable[[], Collection[str]] = frozenset) -> None:
        self.instance = instance
        self.name = ""
        self.version = ""
        self.started = 0.0
        """Of this gateway; set by whoever runs it."""
        self.write: Callable[[str, Message], None] = lambda _to, _message: None
        self._peers = peers
        self._others: dict[str, Gateway] = {}
        self._own: dict[str, int] = {}
        self._due = 0.0

    def report(self, now: float, figures: Callable[[], dict[str, int]]) -> bool:
        """Called once a second: look at what this gateway counts, and tell the others. Whether it was time to."""
        if now < self._due:
            return False
        self._due = now + INTERVAL
        self._own = figures()
        for peer in self._peers():
            self.write(peer, {"kind": "census", "name": self.name, "version": self.version, "started": self.started,
                              "figures": self._own})  # fmt: skip
        return True

    def heard(self, message: Message, now: float) -> None:
        """Another gateway tells what it is and does."""
        sender = message["from"]
        figures = {str(name): int(value) for name, value in message["figures"].items()}
        name, version = str(message["name"]), str(message["version"])
        self._others[sender] = Gateway(sender, name, version, float(message["started"]), now, figures)

    def gateways(self, now: float) -> list[Gateway]:
        """This one first, then the others by name."""
        own = Gateway(self.instance, self.name, self.version, self.started, now, self._own, own=True)
        return [own, *sorted(self._known(), key=lambda one: (one.name, one.instance))]

    def _known(self) -> Iterator[Gateway]:
        peers = self._peers()
        for gone in self._others.keys() - peers:
            del self._others[gone]
        for peer in peers:
            yield self._others.get(peer) or Gateway(peer, "", "", 0.0, None, {})

    def others(self, name: str, now: float) -> int:
        """The sum of what the other gateways count under a name."""
        known = (one for one in self._known() if one.heard is not None and now - one.heard <= SILENT)
        return sum(one.figures.get(name, 0) for one in known)

    def count(self) -> int:
        """How many gateways there are."""
        return 1 + sum(1 for _ in self._known())


def as_answer(one: Gateway) -> dict[str, Any]:
    """As the API shows it."""
    return {
        "name": one.name or one.instance,
        "instance": one.instance,
        "own": one.own,
        "version": one.version,
        "started": one.started or None,
        "heard": one.heard,
        "connections": one.figures.get("clients/connected"),
        "sessions": one.figures.get("clients/total"),
        "subscriptions": one.figures.get("subscriptions/count"),
        "received": one.figures.get("publish/messages/received"),
        "sent": one.figures.get("publish/messages/sent"),
    }
