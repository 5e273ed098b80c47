"""From a publication to MQ messages: everything a rule says, prepared once per topic, client, flags and properties.

`plan` finds the rules; each becomes a `Prepared`. A simple one has its whole message but for packet identifier and
payload: per message the caller does `head, tails[packet_id] + payload`. The others evaluate `build` per message.
No I/O, no clock: the time comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from gateway.bridge import descriptor as descriptors
from gateway.bridge.mqtt5 import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    ORDER_PROPERTY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    to_properties,
    user_properties,
)
from gateway.bridge.payload import Body, agrees, check_schema, check_text
from gateway.bridge.request import Request, request_of
from gateway.errors import HeaderError, Refused
from gateway.mq import rfh2
from gateway.mq.rfh2_folder import PropertyValue, folder
from gateway.mqtt.packets import Properties
from gateway.routing.table import Context, Match, Route, Table, settle, templates_of
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import InboundRule
from gateway.rules.model import ToMq
from gateway.rules.templates import Slot, Template, Value, render, render_queue, render_value

Pair = tuple[str, PropertyValue]
MAX_TOPIC_STRING = 10240


_UNMATCHED = InboundRule(
    -1, "", 0, ToMq(name="(unmatched)", topic="#", queue="UNMATCHED"), ("#",), (), None, None, Template("", ())
)
NO_RULE = Route(_UNMATCHED, (), pending=False)
"""Stands for the rule of publications that no rule matches and that are to be dead-lettered."""


class _NoTails(dict[int, bytes]):
    """For messages without an `mqtt` folder: nothing depends on the packet identifier."""

    def __missing__(self, packet_id: int) -> bytes:
        return b""


NO_TAILS = _NoTails()


class Origin(NamedTuple):
    """Who publishes what, apart from packet identifier and payload: the key under which plans may be cached."""

    client_id: str
    username: str
    topic: str
    qos: int
    retain: bool = False
    dup: bool = False
    listener: str = ""
    will: bool = False


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
    simple: bool
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
    tails: dict[int, bytes] = field(default_factory=lambda: NO_TAILS)
    refused: Refused | None = None
    """Set when the rule cannot be followed; the head is then what goes behind a dead-letter header."""
    request: Request | None = None
    """Set when an answer is expected: to be stored in the unit of work of the put."""

    def tail(self, packet_id: int) -> bytes:
        """What stands between the head and the payload."""
        return self.tails[packet_id]

    def build(self, packet_id: int, payload: bytes, now: float) -> Built:
        """The message of one publication; raises Refused when payload or time make it impossible."""
        if self.refused is not None:
            raise self.refused
        if self.simple:
            return self._built(self, packet_id, payload)
        body = Body(payload)
        check_payload(self.rule, body)
        if not self.evaluated:
            return self._built(self, packet_id, payload)
        fresh = _prepare(self.match, self.origin, self.properties, _scope(self, body, packet_id, now))
        return self._built(fresh, packet_id, payload)

    @staticmethod
    def _built(made: Prepared, packet_id: int, payload: bytes) -> Built:
        body = made.tails[packet_id] + payload
        return Built(
            made.queue, made.queue_manager, made.mq_topic, made.priority, made.persistent, made.head, body
        )  # fmt: skip


@dataclass(slots=True)
class Plan:
    """What becomes of publications from one origin."""

    prepared: list[Prepared]
    pending: bool
    """The payload decides which of `prepared` apply: ask `settle`."""
    dead_letter: bool = False
    """No rule matches and the mapping wants such publications dead-lettered: see `unmatched`."""

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


def plan(table: Table, origin: Origin, properties: Properties) -> Plan:
    """The plan for one origin with this MQTT 5 property block."""
    users = tuple(user_properties(properties))
    context = Context(origin.client_id, origin.username, origin.qos, origin.retain, origin.listener, users)
    matches = table.match(origin.topic, context)
    prepared = [prepare_origin(match, origin, properties) for match in matches]
    pending = any(match.pending for match in matches)
    return Plan(prepared, pending, dead_letter=not matches and table.dead_letter_unmatched)


def unmatched(origin: Origin, properties: Properties) -> Prepared:
    """A publication that no rule matches, as the message that goes behind a dead-letter header."""
    made = _fallback(Match(NO_RULE, {}), origin, properties)
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
    if _evaluated(match.rule):
        prepared = _fallback(match, origin, properties)
        prepared.simple, prepared.evaluated = False, True
        return prepared
    try:
        prepared = _prepare(match, origin, properties, _static_scope(match, origin, properties))
    except Refused as refused:
        prepared = _fallback(match, origin, properties)
        prepared.refused = refused
    prepared.simple = not _checked(match.rule)
    return prepared


def _evaluated(rule: InboundRule) -> bool:
    """Whether a template needs something that only a message knows."""
    return any(template.per_message for template in templates_of(rule))


def _checked(rule: InboundRule) -> bool:
    """Whether each payload is looked at."""
    return rule.spec.payload.format in ("json", "string") or rule.schema is not None


def _prepare(match: Match, origin: Origin, properties: Properties, scope: Callable[[Slot], Value]) -> Prepared:
    """Follow the rule. Values that no header can hold (a 100-digit number, half of a surrogate pair) are refused."""
    try:
        return _followed(match, origin, properties, scope)
    except (HeaderError, UnicodeEncodeError) as error:
        raise Refused(f"a value cannot be written: {error}"[:200], Feedback.VALUE_NOT_VALID) from None


def _followed(match: Match, origin: Origin, properties: Properties, scope: Callable[[Slot], Value]) -> Prepared:
    rule = match.rule
    made = Prepared(rule, match, origin, properties, simple=True)
    if rule.queue is not None:
        made.queue = render_queue(rule.queue, scope, rule.spec.allowed_queues or ())
        made.queue_manager = render_queue(rule.queue_manager, scope)
    elif rule.mq_topic is not None:
        made.mq_topic = topic_string(render(rule.mq_topic, scope))
        made.queue = f"topic://{made.mq_topic}"
    made.request = request_of(rule, origin.client_id, properties)
    users = user_properties(properties) if rule.spec.user_properties else []
    named = _rule_properties(rule, scope)
    carried, order = to_properties(users, [name for name, _ in named])
    md = descriptors.build(rule, origin.qos, properties, scope, made.request)
    _headers(made, md, [*named, *carried], order)
    return made


def topic_string(text: str) -> str:
    """An MQ topic string, or a refusal: 1 to 10240 characters without wildcards, which subscriptions alone have."""
    text.encode()  # half of a surrogate pair is no character: refused by the caller
    if not 0 < len(text) <= MAX_TOPIC_STRING or any(character in text for character in "+#\0"):
        raise Refused(f"`{text[:60]}` is not an MQ topic string", Feedback.NAME_NOT_VALID)
    return text


def _rule_properties(rule: InboundRule, scope: Callable[[Slot], Value]) -> list[Pair]:
    """The properties a rule sets. One whose only placeholder has no value is left out."""
    values = [(name, render_value(template, scope, type_name)) for name, template, type_name in rule.properties]
    return [(name, value) for name, value in values if value is not None]


def _headers(made: Prepared, md: descriptors.Described, usr: Sequence[Pair], order: str) -> None:
    """Put descriptor and MQRFH2 together: `mcd` first (PROPCTL(COMPAT) shows the header for it), `mqtt` last."""
    made.priority, made.persistent = md.priority, md.persistent
    folders = list(_folders(made, md, usr))
    last = "mqtt" in made.rule.spec.headers
    if not folders and not last:
        made.head = md.alone()
        return
    followed = {"encoding": md.encoding, "coded_char_set_id": md.ccsid, "format_name": md.format.encode()}
    if last:
        constant = list(_mqtt_folder(made, order))
        template = rfh2.build_template(folders, "mqtt", constant, "msgId", **followed)  # type: ignore[arg-type]
        made.head, made.tails = md.before_rfh2() + template.head, template.tails
    else:
        made.head = md.before_rfh2() + rfh2.build(folders, **followed)  # type: ignore[arg-type]


def _folders(made: Prepared, md: descriptors.Described, usr: Sequence[Pair]) -> Sequence[str]:
    wanted, folders = made.rule.spec.headers, []
    if "mcd" in wanted:
        folders.append(folder("mcd", [("Msd", "jms_text" if md.is_text else "jms_bytes")]))
    if usr:
        folders.append(folder("usr", usr))
    if "mqps" in wanted:
        retained: list[Pair] = [("Ret", True)] if made.origin.retain else []
        folders.append(folder("mqps", [("Top", made.origin.topic), *retained]))
    return folders


def _mqtt_folder(made: Prepared, order: str) -> Sequence[Pair]:
    """What MQ Telemetry writes (clientId, qos, and msgId at the end), and what MQTT 5 adds."""
    origin, properties = made.origin, made.properties
    pairs: list[Pair] = [("clientId", origin.client_id), ("qos", origin.qos)]
    optional: list[tuple[str, object]] = [
        ("gateway", made.match.route.gateway),
        ("userName", origin.username),
        ("dup", origin.dup),
        ("will", origin.will),
        ("payloadFormat", properties.get(PAYLOAD_FORMAT)),
        ("contentType", properties.get(CONTENT_TYPE)),
        ("responseTopic", properties.get(RESPONSE_TOPIC)),
        ("correlationData", properties.get(CORRELATION_DATA)),
        (ORDER_PROPERTY, order),
    ]
    pairs += [(name, value) for name, value in optional if value]  # type: ignore[misc]
    return pairs


def _fallback(match: Match, origin: Origin, properties: Properties) -> Prepared:
    """The message without what the rule's templates add: what a dead letter carries."""
    made = Prepared(match.rule, match, origin, properties, simple=True)
    md = descriptors.build_plain(match.rule, origin.qos, properties, origin.username or origin.client_id)
    carried, order = to_properties(user_properties(properties))
    _headers(made, md, carried, order)
    return made


def _static_scope(match: Match, origin: Origin, properties: Properties) -> Callable[[Slot], Value]:
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


def _scope(made: Prepared, body: Body, packet_id: int, now: float) -> Callable[[Slot], Value]:
    static = _static_scope(made.match, made.origin, made.properties)

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
        raise descriptors.not_json()
    if payload.format == "string":
        check_text(body.raw, payload.ccsid or 1208)
