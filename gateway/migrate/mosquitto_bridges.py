"""Converts a bridge of mosquitto to rules.

The gateway connects to a queue manager, not to other MQTT brokers. What a bridge sent out is put on a queue of its own,
and what is put on another queue goes to the topics that the bridge brought in. A program, or another gateway on the
queue manager, takes the place of the remote broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.migrate.mosquitto_options import Line
from gateway.migrate.plan import Plan, name_of_object

_DIRECTIONS = ("out", "in", "both")


@dataclass(slots=True)
class Bridge:
    """A `connection` with the options that follow it."""

    place: Line
    said: list[Line] = field(default_factory=list)


class Rules(NamedTuple):
    """Rules of the mapping."""

    to_mq: list[dict[str, Any]]
    to_mqtt: list[dict[str, Any]]


class _Topic(NamedTuple):
    """A `topic` line."""

    pattern: str
    direction: str
    qos: int
    local: str
    remote: str


def bridge_rules(plan: Plan, bridge: Bridge) -> Rules:
    """Returns the rules of one bridge, with a note for each of its lines."""
    name = bridge.place.value or "bridge"
    queue = name_of_object(f"BRIDGE.{name}", 40)
    rules = Rules([], [])
    for line in bridge.said:
        if line.key != "topic":
            plan.say(*line.where, f"{line.key}: the gateway does not connect to other MQTT brokers; see bridge {name}")
            continue
        topic = _topic(line.value)
        if topic is None:
            plan.say(*line.where, f"{line}: not understood; the line is left out")
            continue
        if topic.direction in {"out", "both"}:
            rules.to_mq.append(_out(f"{name} out {len(rules.to_mq) + 1}", queue, topic))
        if topic.direction in {"in", "both"} and not rules.to_mqtt:
            rules.to_mqtt.append({
                "name": f"{name} in",
                "description": "The topic is the property mqps.Top (JMS: mqps.Top, MQ: MQRFH2 folder mqps).",
                "queue": f"{queue}.IN",
            })  # fmt: skip
        if topic.local != topic.remote:
            plan.say(*line.where, f"{line}: topics keep their local names; the prefixes are properties of the message")
    ways = [f"publications out are on {queue}"] if rules.to_mq else []
    ways += [f"what is put on {queue}.IN comes in"] if rules.to_mqtt else []
    text = f"connection {name}: no counterpart for a bridge to another broker: {' and '.join(ways) or 'no topics'}"
    plan.say(*bridge.place.where, text)
    return rules


def _topic(value: str) -> _Topic | None:
    """Returns the parts of `pattern [[out|in|both] qos] [local prefix] [remote prefix]`; `""` is an empty pattern or
    prefix. Returns None if the line is not understood."""
    words = [("" if word == '""' else word) for word in value.split()]
    if not words:
        return None
    pattern, *rest = words
    direction = rest.pop(0) if rest and rest[0] in _DIRECTIONS else "out"
    qos = int(rest.pop(0)) if rest and rest[0] in {"0", "1", "2"} else 0
    local, remote = ([*rest, "", ""])[:2]
    return _Topic(pattern, direction, qos, local, remote) if local + pattern else None


def _out(name: str, queue: str, topic: _Topic) -> dict[str, Any]:
    rule: dict[str, Any] = {"name": name, "topic": topic.local + topic.pattern, "queue": queue, "continue": True}
    if topic.local != topic.remote:
        rule["properties"] = {"localPrefix": topic.local, "remotePrefix": topic.remote}
    return rule
