"""What tells an exporter of the gateway's own spans: one call for each message of a sampled trace, none for the others.

The exporter is joined by the composition root; without one nothing here costs more than a comparison. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge.trace import sampled
from gateway.mqtt.packets import Properties
from gateway.ports.counters import Direction

if TYPE_CHECKING:
    from gateway.broker.context import Context


class Hop(NamedTuple):
    """A message of a sampled trace on its way through the gateway."""

    received: str
    """The `traceparent` it came with."""
    sent: str
    """The one it goes on with; its parent is the span of this hop."""
    direction: Direction
    rule: str
    topic: str
    client_id: str
    qos: int
    length: int


def note(
    context: Context, before: Properties, after: Properties,
    direction: Direction, rule: str, topic: str, client_id: str, qos: int, length: int,
) -> None:  # fmt: skip
    """Begin the span of a message whose trace context was exchanged; it ends with the commit of the open batch."""
    if context.on_hop is None or after is before:
        return
    received, sent = sampled(before), sampled(after)
    if received and sent:
        hop = Hop(received, sent, direction, rule, topic, client_id, qos, length)
        context.batch.after.append(context.on_hop(hop))
