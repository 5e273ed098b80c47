"""A rule's message, cut once at the places where origins differ: topic, client, user and the levels of the topic.

`assembly` puts a message together from everything a rule says; for most rules all but these few texts is the same every
time. That code makes the stencil, from an origin whose texts are marks; filling it in takes a fifth of the time. Rules
whose messages need more than texts (a correlation from a template, values of each message) have no stencil.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, cast

from gateway.bridge import assembly
from gateway.bridge import descriptor as descriptors
from gateway.bridge.assembly import NO_TAILS, Destination, Frame, Made, Scope
from gateway.bridge.origin import Origin
from gateway.errors import HeaderError, Refused
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import element, escape
from gateway.routing.table import Match
from gateway.rules.mappings import InboundRule, PropertyRule
from gateway.rules.templates import Slot, Template, render

_CLIENT, _USER, _TOPIC = "\ue000", "\ue001", "\ue002"
"""Marks, which are private use characters. A rule that has one in its own text gets no stencil."""
_LENGTH = struct.Struct("<i").pack
MAX_CLIENTS = 4096
_OF_CLIENT = ("client", "user", "user_or_client")
_TEXTS = ("level", "rest", "client", "user", "user_or_client", "topic", "listener")
"""Placeholders whose value is a text that is used as it is."""
_BEFORE_LENGTH = 12
"""How many bytes an MQRFH2 has up to and including StrucLength."""

Enclosed = tuple[str, str, Slot]
"""A property that is the text of one placeholder: the text before it, the text after it, the placeholder."""
Part = str | Enclosed | PropertyRule


class TopicPart(NamedTuple):
    """The part of a message that depends only on its topic."""

    destination: Destination
    front: bytes
    """The MQRFH2 from Encoding to the last folder without the client's name; empty: there is no MQRFH2."""


class ClientPart(NamedTuple):
    """The part of a message that depends only on its client."""

    before: bytes
    """The descriptor and the MQRFH2 up to StrucLength."""
    alone: bytes
    """The descriptor of a message without MQRFH2."""
    folder: bytes
    """The `mqtt` folder up to the packet identifier; empty: there is none."""
    tails: dict[int, bytes]
    length: int
    """The length of that folder together with what follows the packet identifier."""

    def head(self, front: bytes) -> bytes:
        """The head of a message of this client on the topic with this front."""
        if not front:
            return self.alone
        return b"".join((self.before, _LENGTH(_BEFORE_LENGTH + len(front) + self.length), front, self.folder))


class Stencil(NamedTuple):
    """A rule's message without the texts of an origin."""

    user: Template | None
    """The user identifier, if origins differ in it; `before` and `alone` then end before it."""
    before: bytes
    after_user: bytes
    alone: bytes
    """The descriptor of a message without MQRFH2, and what follows its user identifier."""
    alone_after_user: bytes
    fixed: bytes
    """The MQRFH2 from Encoding to the end of the `mcd` folder."""
    has_header: bool
    """Whether there is an MQRFH2 even without a `usr` folder."""
    usr: tuple[Part, ...]
    mqps: list[str]
    """The parts of the folder around the topic; one part: there is no such folder."""
    mqtt: list[str]
    """The parts of the folder around the client identifier and the user name, up to the packet identifier."""
    close: bytes
    priority: int
    persistent: bool

    is_shared: bool
    """Whether a message consists of a topic's part and a client's part that do not depend on each other."""
    clients: dict[tuple[str, str], ClientPart]
    """If so, the parts of the clients that published last."""

    def fill(self, match: Match, origin: Origin, scope: Scope) -> Made:
        """The message of this origin. Raises Refused like `Recipe.make`."""
        part = self.topic_part(match, origin, scope)
        try:
            client = self._client(origin, scope)
        except (HeaderError, UnicodeEncodeError) as error:
            raise assembly.cannot_be_written(error) from None
        tails = client.tails if part.front else NO_TAILS
        return Made(part.destination, self.priority, self.persistent, client.head(part.front), tails)

    def frame(self, origin: Origin, scope: Scope) -> Frame:
        """The frame of this origin's messages, as `assembly.frame_of` makes it of a publication without properties."""
        client = self._client(origin, scope)
        after, length = client.folder, 0
        if len(self.mqps) == 2:
            after = b"".join((*_pair(escape(origin.topic).join(self.mqps)), after))
        if self.has_header:
            length = _BEFORE_LENGTH + len(self.fixed) + len(after) - len(client.folder) + client.length
        return Frame(client.before, length, self.fixed, after, client.tails, client.alone)

    def front_of(self, origin: Origin, head: bytes) -> bytes | None:
        """The topic's part of a head that was made for this origin; None: it is not shared with other clients."""
        client = self.clients.get((origin.client_id, origin.username))
        if client is None:
            return None
        return b"" if head == client.alone else head[len(client.before) + 4 : len(head) - len(client.folder)]

    def topic_part(self, match: Match, origin: Origin, scope: Scope) -> TopicPart:
        """The topic's part of this origin's messages."""
        try:
            destination = assembly.destination_of(match.rule, scope)
            usr = "".join([one if isinstance(one, str) else _property(one, scope) for one in self.usr])
            if not usr and not self.has_header:
                return TopicPart(destination, b"")
            pieces = [self.fixed]
            if usr:
                pieces += _pair(f"<usr>{usr}</usr>")
            if len(self.mqps) == 2:
                pieces += _pair(escape(origin.topic).join(self.mqps))
        except (HeaderError, UnicodeEncodeError) as error:
            raise assembly.cannot_be_written(error) from None
        return TopicPart(destination, b"".join(pieces))

    def _client(self, origin: Origin, scope: Scope) -> ClientPart:
        return self.clients.get((origin.client_id, origin.username)) or self._client_part(origin, scope)

    def _client_part(self, origin: Origin, scope: Scope) -> ClientPart:
        folder, tails, length = self._client_folder(origin)
        before = self._descriptor(self.before, self.after_user, scope)
        made = ClientPart(before, self._descriptor(self.alone, self.alone_after_user, scope), folder, tails, length)
        if self.is_shared:
            if len(self.clients) >= MAX_CLIENTS:
                self.clients.clear()
            self.clients[origin.client_id, origin.username] = made
        return made

    def _client_folder(self, origin: Origin) -> tuple[bytes, dict[int, bytes], int]:
        if not self.close:
            return b"", NO_TAILS, 0
        client, *user = self.mqtt[1:]
        text = f"{self.mqtt[0]}{escape(origin.client_id)}{client}"
        opened = (f"{text}{escape(origin.username)}{user[0]}" if user else text).encode()
        tails, size = rfh2.tails_behind(len(opened), self.close)
        return _LENGTH(size) + opened, tails, 4 + size

    def _descriptor(self, before: bytes, after: bytes, scope: Scope) -> bytes:
        if self.user is None:
            return before
        return before + descriptors.field_of(render(self.user, scope), mqmd.USER_IDENTIFIER) + after


def _property(part: Enclosed | PropertyRule, scope: Scope) -> str:
    slot = part[2]
    if not isinstance(slot, Slot):
        return assembly.element_of(cast("PropertyRule", part), scope)
    value = scope(slot)
    return "" if value is None else f"{part[0]}{escape(str(value))}{part[1]}"


def _pair(text: str) -> tuple[bytes, bytes]:
    raw = text.encode()
    raw += b" " * (-len(raw) % 4)
    return _LENGTH(len(raw)), raw


def stencil_of(match: Match, origin: Origin) -> Stencil | None:
    """The stencil for origins of this kind (the same flags, and all with a user name or all without); None: the rule
    has none."""
    kind = (origin.qos, origin.retain, origin.dup, origin.will, not origin.username)
    stencils = match.route.stencils
    if kind not in stencils:
        try:
            stencils[kind] = _cut(match, origin)
        except Refused:  # a constant that is not of its type: each message is refused with that reason
            stencils[kind] = None
    return cast("Stencil | None", stencils[kind])


def _cut(match: Match, origin: Origin) -> Stencil | None:
    rule = match.rule
    if not _can_be_cut(rule):
        return None
    marks = origin._replace(client_id=_CLIENT, username=origin.username and _USER, topic=_TOPIC)
    wanted = rule.spec.headers
    mqps = assembly.mqps_folder(marks).split(_TOPIC) if "mqps" in wanted else [""]
    text, close = rfh2.opened("mqtt", assembly.mqtt_folder(match, marks, {}, ""), "msgId")
    mqtt = text.replace(_USER, _CLIENT).split(_CLIENT)
    if len(mqps) > 2 or len(mqtt) != (3 if origin.username else 2):
        return None
    md = descriptors.build(rule, origin.qos, {}, lambda _slot: "", None)
    frame = assembly.frame_of(match, marks, {}, md, "")
    user = rule.user if rule.user is not None and rule.user.slots else None
    before, after_user = _split_at_user(frame.before, user)
    alone, alone_after_user = _split_at_user(frame.alone, user)
    return Stencil(
        user, before, after_user, alone, alone_after_user, frame.fixed, bool(frame.length),
        tuple(_cut_property(one) for one in rule.properties), mqps, mqtt, close if "mqtt" in wanted else b"",
        md.priority, md.persistent, _is_shared(rule), {},
    )  # fmt: skip


def _can_be_cut(rule: InboundRule) -> bool:
    """Whether only its texts differ: nothing is computed from a template, and nothing depends on the single message."""
    computed = (rule.correlation, rule.application_data, rule.group_by, rule.group_sequence, rule.group_last)
    written = (rule.queue, rule.mq_topic, rule.queue_manager, rule.user, *(one[1] for one in rule.properties))
    return not any(template is not None and template.slots for template in computed) and not any(
        template is not None and template.per_message for template in written
    )


def _is_shared(rule: InboundRule) -> bool:
    """Whether only the `mqtt` folder and the user identifier name the client, and the user identifier does not depend
    on the topic."""
    of_topic = [rule.queue, rule.mq_topic, rule.queue_manager, *(one[1] for one in rule.properties)]
    names = any(slot.kind in _OF_CLIENT for template in of_topic if template is not None for slot in template.slots)
    return not names and (rule.user is None or all(slot.kind in _OF_CLIENT for slot in rule.user.slots))


def _split_at_user(md: bytes, user: Template | None) -> tuple[bytes, bytes]:
    return mqmd.split(md, mqmd.USER_IDENTIFIER) if user is not None else (md, b"")


def _cut_property(one: PropertyRule) -> Part:
    name, template, type_name = one
    if not template.slots:
        return assembly.element_of(one, lambda _slot: None)
    slot = template.slots[0]
    is_text = slot.kind in _TEXTS and not slot.case and (type_name or slot.type) in {"", "string"}
    if len(template.parts) > 1 or not is_text:
        return one
    begin, end = element(name, _TOPIC).split(_TOPIC)
    return begin, end, slot
