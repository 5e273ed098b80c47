"""What rules that take messages from a queue manager need beyond the batch port: the back-out settings of a queue, and
durable subscriptions to MQ topics.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable


class Backout(NamedTuple):
    """BOTHRESH and BOQNAME of a queue; 0 and blank where it has none."""

    threshold: int = 0
    queue: str = ""


class Subscribed(NamedTuple):
    """Where the publications of a subscription arrive, as `fetch`, `consume` and `Takes` want it."""

    queue: str
    key: bytes = b""


@runtime_checkable
class Sources(Protocol):
    """Implemented by queue managers that applications put to."""

    def backout(self, queue: str) -> Backout:
        """When a message of this queue is poison, and where it goes. MQError."""

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """Make the durable subscription of this name, or take it up; one to another topic is replaced. MQError."""
