"""Puts a message together: what depends on the origin alone is computed once, and what a template needs is added to
each message.

The MQRFH2 is cut in two around its `usr` folder, the only one whose content rules decide, so that a message with
evaluated properties costs one folder and not a whole header.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.bridge import descriptor as descriptors
from gateway.bridge.descriptor import Described
from gateway.bridge.mqtt5 import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    ORDER_PROPERTY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    to_properties,
    user_properties,
)
from gateway.bridge.origin import Origin
from gateway.bridge.request import Request, request_of
from gateway.errors import HeaderError, Refused
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import PropertyValue, element, folder
from gateway.mqtt.packets import Properties
from gateway.ports import spread
from gateway.routing.table import Match
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import InboundRule, PropertyRule
from gateway.rules.templates import Slot, Template, Value, render, render_queue, render_value

Scope = Callable[[Slot], Value]
_CLIENT = Slot("client")
Pair = tuple[str, PropertyValue]
MAX_TOPIC_STRING = 10240
_PACK = struct.Struct("<i").pack
_FIXED = rfh2.FIXED_LENGTH


class _NoTails(dict[int, bytes]):
    """The tails of messages without an `mqtt` folder: nothing depends on the packet identifier."""

    close, width = b"", 0

    def __missing__(self, packet_id: int) -> bytes:
        return b""


NO_TAILS = _NoTails()


class Destination(NamedTuple):
    """Where a message goes; `queue` as `Puts.queue` takes it."""

    queue: str
    queue_manager: str
    mq_topic: str


class Frame(NamedTuple):
    """A message's head except for the `usr` folder."""

    before: bytes
    """The descriptor and the beginning of the MQRFH2, up to StrucLength."""
    length: int
    """StrucLength without a `usr` folder; 0: without one there is no MQRFH2 at all."""
    fixed: bytes
    after: bytes
    tails: dict[int, bytes]
    alone: bytes
    """The descriptor of a message without MQRFH2."""

    def head(self, usr: bytes) -> bytes:
        """The head with this content of the `usr` folder (elements, or nothing)."""
        return head_around(self.before, self.length, self.fixed, self.after, self.alone, usr)

    def described(self, md: Described) -> Frame:
        """The same frame with another descriptor."""
        return self._replace(before=md.before_rfh2() + self.before[-8:], alone=md.alone())


def head_around(before: bytes, length: int, fixed: bytes, after: bytes, alone: bytes, usr: bytes) -> bytes:
    """The head of a frame (see `Frame`) with this content of the `usr` folder."""
    if usr:
        size = 11 + len(usr)  # with <usr> and </usr>
        blanks = -size & 3
        size += blanks
        return b"%b%b%b%b<usr>%b</usr>%b%b" % (
            before, _PACK((length or _FIXED) + 4 + size), fixed, _PACK(size), usr, b" " * blanks, after
        )  # fmt: skip
    if length:
        return b"%b%b%b%b" % (before, _PACK(length), fixed, after)
    return alone


class Made(NamedTuple):
    """A message without tail and payload."""

    destination: Destination
    priority: int
    persistent: bool
    head: bytes
    tails: dict[int, bytes]


@dataclass(slots=True)
class Recipe:
    """A rule applied to an origin. Where `destination` is None or `usr` has a property rule, each message decides."""

    rule: InboundRule
    qos: int
    properties: Properties
    request: Request | None
    destination: Destination | None
    md: Described
    frame: Frame
    evaluates_md: bool
    usr: list[str | PropertyRule]

    @property
    def evaluated(self) -> bool:
        """Whether anything depends on the message itself."""
        return self.destination is None or self.evaluates_md or not all(isinstance(part, str) for part in self.usr)

    def make(self, scope: Scope) -> Made:
        """The message for these values. Raises Refused."""
        try:
            destination = self.destination or destination_of(self.rule, scope)
            md, frame = self.md, self.frame
            if self.evaluates_md:
                md = descriptors.build(self.rule, self.qos, self.properties, scope, self.request)
                frame = frame.described(md)
            usr = "".join([part if isinstance(part, str) else element_of(part, scope) for part in self.usr])
            return Made(destination, md.priority, md.persistent, frame.head(usr.encode()), frame.tails)
        except (HeaderError, UnicodeEncodeError) as error:
            raise cannot_be_written(error) from None


def cannot_be_written(error: Exception) -> Refused:
    """The refusal of a value that a folder or a name cannot hold, such as a 100-digit number or half of a surrogate
    pair."""
    return Refused(f"a value cannot be written: {error}"[:200], Feedback.VALUE_NOT_VALID)


def recipe(match: Match, origin: Origin, properties: Properties, scope: Scope) -> Recipe:
    """The recipe of a rule for an origin; `scope` returns the values that the origin alone decides."""
    rule = match.rule
    request = request_of(rule, origin.client_id, properties)
    users = user_properties(properties) if rule.spec.user_properties else []
    carried, order = to_properties(users, [name for name, _, _ in rule.properties])
    moves = _per_message(rule.queue, rule.queue_manager, rule.mq_topic)
    grouping = (rule.group_by, rule.group_sequence, rule.group_last)
    evaluates_md = _per_message(rule.correlation, rule.user, rule.application_data, *grouping)
    if evaluates_md:
        md = descriptors.build_plain(rule, origin.qos, properties, "")
    else:
        md = descriptors.build(rule, origin.qos, properties, scope, request)
    return Recipe(
        rule, origin.qos, properties, request,
        destination=None if moves else destination_of(rule, scope),
        md=md,
        frame=frame_of(match, origin, properties, md, order),
        evaluates_md=evaluates_md,
        usr=[_part(one, scope) for one in rule.properties] + [element(name, value) for name, value in carried],
    )  # fmt: skip


def plain(match: Match, origin: Origin, properties: Properties) -> Made:
    """The message without what the rule's templates add, which is what a dead letter carries."""
    md = descriptors.build_plain(match.rule, origin.qos, properties, origin.username or origin.client_id)
    carried, order = to_properties(user_properties(properties))
    frame = frame_of(match, origin, properties, md, order)
    usr = "".join(element(name, value) for name, value in carried)
    return Made(Destination("", "", ""), md.priority, md.persistent, frame.head(usr.encode()), frame.tails)


def _per_message(*templates: Template | None) -> bool:
    return any(template is not None and template.per_message for template in templates)


def destination_of(rule: InboundRule, scope: Scope) -> Destination:
    """Where the rule sends a message with these values. Raises Refused."""
    if rule.queue is not None:
        queue = render_queue(rule.queue, scope, rule.spec.allowed_queues or ())
        return Destination(queue, manager_of(rule, scope), "")
    if rule.mq_topic is None:
        return Destination("", "", "")
    topic = topic_string(render(rule.mq_topic, scope))
    return Destination(f"topic://{topic}", "", topic)


def manager_of(rule: InboundRule, scope: Scope) -> str:
    """The queue manager that takes the message; several are written as in `ports.spread`."""
    if not rule.targets:
        return render_queue(rule.queue_manager, scope)
    if len(rule.targets) == 1:
        return rule.targets[0]
    if rule.in_turn:
        return spread.Spread(rule.targets, in_turn=True)
    return spread.first_of(rule.targets, str(scope(_CLIENT)))


def topic_string(text: str) -> str:
    """Check an MQ topic string, which has 1 to 10240 characters and no wildcards, as only subscriptions have these;
    returns it. Raises Refused."""
    text.encode()  # raises for half of a surrogate pair, which the caller turns into a refusal
    if not 0 < len(text) <= MAX_TOPIC_STRING or any(character in text for character in "+#\0"):
        raise Refused(f"`{text[:60]}` is not an MQ topic string", Feedback.NAME_NOT_VALID)
    return text


def _part(one: PropertyRule, scope: Scope) -> str | PropertyRule:
    return one if one[1].per_message else element_of(one, scope)


def element_of(one: PropertyRule, scope: Scope) -> str:
    """A property as it is written in the folder; empty if its only placeholder has no value."""
    name, template, type_name = one
    value = render_value(template, scope, type_name)
    return "" if value is None else element(name, value)


def frame_of(match: Match, origin: Origin, properties: Properties, md: Described, order: str) -> Frame:
    """The messages of an origin except for `usr`: `mcd` comes first (PROPCTL(COMPAT) looks for it to show the header),
    `mqtt` last (it ends with the packet identifier)."""
    wanted = match.rule.spec.headers
    first = [folder("mcd", [("Msd", "jms_text" if md.is_text else "jms_bytes")])] if "mcd" in wanted else []
    texts = [*first, mqps_folder(origin)] if "mqps" in wanted else first
    tails: dict[int, bytes] = NO_TAILS
    encoding, ccsid, name = md.encoding, md.ccsid, md.format.encode()
    if "mqtt" in wanted:
        constant = mqtt_folder(match, origin, properties, order)
        template = rfh2.build_template(
            texts, "mqtt", constant, "msgId", encoding=encoding, coded_char_set_id=ccsid, format_name=name
        )
        header, tails, length = template.head, template.tails, template.length
    else:
        header = rfh2.build(texts, encoding=encoding, coded_char_set_id=ccsid, format_name=name)
        length = len(header) if texts else 0
    cut = _FIXED + sum(4 + (len(text) + 3 & -4) for text in first)
    return Frame(md.before_rfh2() + header[:8], length, header[12:cut], header[cut:], tails, md.alone())


def mqps_folder(origin: Origin) -> str:
    """The folder with the topic, and whether the publication is to be retained."""
    retained: list[Pair] = [("Ret", True)] if origin.retain else []
    return folder("mqps", [("Top", origin.topic), *retained])


def mqtt_folder(match: Match, origin: Origin, properties: Properties, order: str) -> Sequence[Pair]:
    """The properties that MQ Telemetry writes (clientId, qos, and msgId at the end), and those that MQTT 5 adds."""
    pairs: list[Pair] = [("clientId", origin.client_id), ("qos", origin.qos)]
    optional: list[tuple[str, object]] = [
        ("gateway", match.route.gateway),
        ("userName", origin.username),
        ("dup", origin.dup),
        ("will", origin.will),
        ("payloadFormat", properties.get(PAYLOAD_FORMAT)),
        ("contentType", properties.get(CONTENT_TYPE)),
        ("responseTopic", properties.get(RESPONSE_TOPIC)),
        ("correlationData", properties.get(CORRELATION_DATA)),
        (ORDER_PROPERTY, order),
    ]
    return pairs + [(name, value) for name, value in optional if value]  # type: ignore[misc]
