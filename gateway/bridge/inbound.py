"""From a publication to MQ messages: everything a rule says, prepared once per topic, client, flags and properties.

`plan` finds the rules; each becomes a `Prepared`. A simple one has its whole message but for packet identifier and
payload: per message the caller does `head, tails[packet_id] + payload`. The others evaluate `build` per message.
No I/O, no clock: the time comes in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from gateway.bridge import assembly
from gateway.bridge.assembly import NO_TAILS, Made, Recipe, Scope
from gateway.bridge.mqtt5 import user_properties
from gateway.bridge.origin import Origin
from gateway.bridge.payload import Body, agrees, check_schema, check_text
from gateway.bridge.request import Request
from gateway.bridge.stencil import stencil_of
from gateway.errors import Refused
from gateway.mqtt.packets import Properties
from gateway.routing.table import Context, Match, Route, Table, settle
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import InboundRule
from gateway.rules.model import ToMq
from gateway.rules.templates import Slot, Template, Value

__all__ = ["NO_RULE", "Built", "Origin", "Plan", "Prepared", "plan", "prepare", "prepare_origin", "unmatched"]

_UNMATCHED = InboundRule(
    -1, "", 0, ToMq(name="(unmatched)", topic="#", queue="UNMATCHED"), ("#",), (), None, None, Template("", ())
)
NO_RULE = Route(_UNMATCHED, (), pending=False)
"""Stands for the rule of publications that no rule matches and that are to be dead-lettered."""


class Built(NamedTuple):
    """One message of one publication."""

    queue: str
    queue_manager: str
    mq_topic: str
    priority: int
    persistent: bool
    head: bytes
    body: bytes


@dataclass(slots=True)
class Prepared:
    """What one rule makes of publications from one origin."""

    rule: InboundRule
    match: Match
    origin: Origin
    properties: Properties
    simple: bool = True
    """Nothing is to be evaluated or checked per message."""
    evaluated: bool = False
    """Templates are evaluated per message: destination and head are known only when built."""
    queue: str = ""
    """As `Puts.queue` takes it: a queue name, or `topic://STRING`."""
    queue_manager: str = ""
    mq_topic: str = ""
    priority: int = 0
    persistent: bool = False
    head: bytes = b""
    """With `refused` or `evaluated` set: what a dead letter carries."""
    tails: dict[int, bytes] = field(default_factory=lambda: NO_TAILS)
    refused: Refused | None = None
    """Set when the rule cannot be followed."""
    request: Request | None = None
    """Set when an answer is expected: to be stored in the unit of work of the put."""
    recipe: Recipe | None = None
    scope: Scope | None = None

    def tail(self, packet_id: int) -> bytes:
        """What stands between the head and the payload."""
        return self.tails[packet_id]

    def build(self, packet_id: int, payload: bytes, now: float) -> Built:
        """The message of one publication; raises Refused when payload or time make it impossible."""
        if self.refused is not None:
            raise self.refused
        if not self.simple:
            body = Body(payload)
            check_payload(self.rule, body)
            if self.evaluated and self.recipe is not None and self.scope is not None:
                made = self.recipe.make(_per_message(self.scope, body, packet_id, now))
                return Built(
                    *made.destination, made.priority, made.persistent, made.head, made.tails[packet_id] + payload
                )
        body_bytes = self.tails[packet_id] + payload
        return Built(
            self.queue, self.queue_manager, self.mq_topic, self.priority, self.persistent, self.head, body_bytes
        )

    def take(self, made: Made) -> None:
        """Use this message."""
        self.queue, self.queue_manager, self.mq_topic = made.destination
        self.priority, self.persistent, self.head, self.tails = made[1:]


@dataclass(slots=True)
class Plan:
    """What becomes of publications from one origin."""

    prepared: list[Prepared]
    pending: bool
    """The payload decides which of `prepared` apply: ask `settle`."""
    dead_letter: bool = False
    """No rule matches and the mapping wants such publications dead-lettered: see `unmatched`."""
    reads_properties: bool = False
    """A rule looks at MQTT 5 user properties: other ones may lead elsewhere."""

    @property
    def simple(self) -> bool:
        """Whether head and tail are all there is to do for every message."""
        return not self.pending and all(one.simple and one.refused is None for one in self.prepared)

    def settle(self, payload: bytes) -> list[Prepared]:
        """The rules that apply to this payload."""
        if not self.pending:
            return self.prepared
        body = Body(payload)
        by_match = {id(one.match): one for one in self.prepared}
        chosen = settle([one.match for one in self.prepared], lambda match: agrees(match.rule.spec.when, body))
        return [by_match[id(match)] for match in chosen]


def plan(table: Table, origin: Origin, properties: Properties, base: Plan | None = None) -> Plan:
    """The plan for one origin with this MQTT 5 property block.

    `base`, the plan of the same origin without properties, makes it several times as fast where only user properties
    and expiry come to it: devices that send a time or a trace with every message.
    """
    if base is not None and properties:
        varied = _varied(base, properties)
        if varied is not None:
            return varied
    users = tuple(user_properties(properties))
    context = Context(origin.client_id, origin.username, origin.qos, origin.retain, origin.listener, users)
    matches = table.match(origin.topic, context)
    prepared = [prepare_origin(match, origin, properties) for match in matches]
    pending = any(match.pending for match in matches)
    dead = not matches and table.dead_letter_unmatched
    return Plan(prepared, pending, dead, table.reads_properties(origin.topic))


def _varied(base: Plan, properties: Properties) -> Plan | None:
    if base.reads_properties or not base.prepared:
        return None
    varied = [_with_properties(one, properties) for one in base.prepared]
    prepared = [one for one in varied if one is not None]
    return Plan(prepared, base.pending) if len(prepared) == len(varied) else None


def _with_properties(one: Prepared, properties: Properties) -> Prepared | None:
    if one.scope is None:
        return None
    if one.recipe is None:  # it was made with a stencil
        one.recipe = assembly.recipe(one.match, one.origin, one.properties, one.scope)
    recipe = one.recipe.with_properties(properties)
    if recipe is None:
        return None
    made = replace(one, properties=properties, recipe=recipe)
    if recipe.evaluated:
        made.take(assembly.plain(one.match, one.origin, properties))
    else:
        made.head = recipe.make(one.scope).head
    return made


def unmatched(origin: Origin, properties: Properties) -> Prepared:
    """A publication that no rule matches, as the message that a dead letter carries."""
    match = Match(NO_RULE, {})
    made = Prepared(NO_RULE.rule, match, origin, properties)
    made.take(assembly.plain(match, origin, properties))
    made.refused = Refused(f"no rule matches {origin.topic!r}", Feedback.NO_RULE)
    return made


def prepare(
    match: Match,
    client_id: str,
    username: str,
    topic: str,
    qos: int,
    retain: bool = False,
    properties: Properties | None = None,
) -> Prepared:
    """What the rule makes of such publications."""
    return prepare_origin(match, Origin(client_id, username, topic, qos, retain), properties or {})


def prepare_origin(match: Match, origin: Origin, properties: Properties) -> Prepared:
    """As `prepare`, with everything that is known of the publication."""
    prepared = Prepared(match.rule, match, origin, properties)
    scope = _static_scope(match, origin, properties)
    stencil = None if properties else stencil_of(match, origin)
    try:
        if stencil is not None:
            prepared.take(stencil.fill(match, origin, scope))
            prepared.simple, prepared.scope = not _checked(match.rule), scope
            return prepared
        recipe = assembly.recipe(match, origin, properties, scope)
        prepared.evaluated = recipe.evaluated
        prepared.take(assembly.plain(match, origin, properties) if recipe.evaluated else recipe.make(scope))
        prepared.request, prepared.recipe, prepared.scope = recipe.request, recipe, scope
    except Refused as refused:
        prepared.take(assembly.plain(match, origin, properties))
        prepared.refused = refused
    prepared.simple = not (prepared.evaluated or _checked(match.rule))
    return prepared


def _checked(rule: InboundRule) -> bool:
    """Whether each payload is looked at."""
    return rule.spec.payload.format in ("json", "string") or rule.schema is not None


def _static_scope(match: Match, origin: Origin, properties: Properties) -> Scope:
    """Values that every publication from this origin shares."""
    plain: dict[str, Value] = {
        "client": origin.client_id,
        "user": origin.username or None,
        "user_or_client": origin.username or origin.client_id,
        "topic": origin.topic,
        "qos": origin.qos,
        "retained": origin.retain,
        "listener": origin.listener or None,
    }
    users: dict[str, Value] = {}
    for name, value in user_properties(properties):
        users.setdefault(name, value)

    def scope(slot: Slot) -> Value:
        if slot.kind in ("level", "rest"):
            return match.captured[slot.name]
        if slot.kind == "property":
            return users.get(slot.name)
        return plain[slot.kind]

    return scope


def _per_message(static: Scope, body: Body, packet_id: int, now: float) -> Callable[[Slot], Value]:
    """Values of one message."""

    def scope(slot: Slot) -> Value:
        if slot.kind == "json":
            return body.field(slot.name)
        if slot.kind == "received_at":
            return timestamp(now)
        return packet_id if slot.kind == "packet_id" else static(slot)

    return scope


def timestamp(now: float) -> str:
    """A time as ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_payload(rule: InboundRule, body: Body) -> None:
    """Refuse a payload that is not what the rule says it is."""
    payload = rule.spec.payload
    if rule.schema is not None:
        check_schema(rule.schema, body)
    elif payload.format == "json" and body.json is None and body.raw.strip() != b"null":
        raise Refused("the payload is not JSON", Feedback.SCHEMA)
    if payload.format == "string":
        check_text(body.raw, payload.ccsid or 1208)
