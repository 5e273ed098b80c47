"""What rules that take messages from a queue manager need beyond the batch port: the back-out settings of a queue, and
durable subscriptions to MQ topics.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from gateway.ports.batch import Stored


class Backout(NamedTuple):
    """BOTHRESH and BOQNAME of a queue; 0 and blank where it has none."""

    threshold: int = 0
    queue: str = ""


class Subscribed(NamedTuple):
    """Where the publications of a subscription arrive, as `fetch`, `consume` and `Takes` want it."""

    queue: str
    key: bytes = b""


@runtime_checkable
class Claims(Protocol):
    """Implemented by queue managers whose queues several gateways may consume."""

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """As `fetch`, of a queue that is consumed: messages that no other gateway is given for a while, at once. What
        the last call for the same queue and key gave is dealt with: taken, or to come again."""


@runtime_checkable
class Sources(Protocol):
    """Implemented by queue managers that applications put to."""

    def backout(self, queue: str) -> Backout:
        """When a message of this queue is poison, and where it goes. MQError."""

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """Make the durable subscription of this name, or take it up; one to another topic is replaced. MQError."""
