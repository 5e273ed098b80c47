"""A rule filled in for one origin: the head of its messages as literal pieces and the cells that each message decides.

Devices change user properties and an expiry from message to message. A form accepts them in addition to the properties
it was made for, and gives byte for byte what the recipe gives. Rules whose destination or descriptor depends on the
message have no form. The fast lanes read the fields; `Form.make` says what they mean.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge import assembly
from gateway.bridge import descriptor as descriptors
from gateway.bridge.assembly import Destination, Frame, Scope, cannot_be_written, element_of, head_around
from gateway.bridge.descriptor import Described
from gateway.bridge.mqtt5 import MAX_NAME, MESSAGE_EXPIRY, USER_PROPERTY, numbered_names
from gateway.bridge.payload import UNREAD, Body, Check, Condition, steps_of
from gateway.bridge.request import Asking, asking_of, request_of
from gateway.bridge.stencil import Stencil, stencil_of
from gateway.errors import HeaderError, Refused
from gateway.mq import mqmd
from gateway.mq.headers.rfh2_folder import element, escape, escape_bytes
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import InboundRule, PropertyRule
from gateway.rules.templates import Slot, Template, Value, text_of, to_type

if TYPE_CHECKING:
    from gateway.bridge.inbound import Prepared

Users = Sequence[tuple[bytes, bytes]]
"""User properties as they are on the wire: names and values in UTF-8, in order."""
_NO_TIME = b"0000-00-00T00:00:00.000Z"
"""As long as every time of receipt, but not a time."""
_VARYING = frozenset({USER_PROPERTY, MESSAGE_EXPIRY})
_KEPT_NAMES = 256
"""How many bytes the names of user properties may have whose tags are cached, because devices choose the names."""
_EXPIRY = slice(mqmd.AT_EXPIRY, mqmd.AT_EXPIRY + 4)
_PACK = struct.Struct("<i").pack


class Cell:
    """A place in the `usr` folder that each message fills."""

    __slots__ = ()
    kind = 0


class TimeCell(Cell):
    """The time of receipt, which always has 24 characters."""

    __slots__ = ()
    kind = 1


class PacketIdCell(Cell):
    """The packet identifier."""

    __slots__ = ()
    kind = 2


class UserCell(Cell):
    """The text of one user property, the first with that name."""

    __slots__ = ("begin", "end", "name", "required")
    kind = 3

    def __init__(self, name: str, begin: bytes = b"", end: bytes = b"", *, required: bool = False) -> None:
        self.name = name.encode()
        self.begin = begin
        """The tags before and after the value; neither is written if there is no such property."""
        self.end = end
        self.required = required
        """Whether it is part of a longer text: without it the rule cannot be followed."""

    def write(self, users: Users) -> bytes:
        """The bytes of the cell. Raises Refused if it has no value."""
        for name, value in users:
            if name == self.name:
                return b"%b%b%b" % (self.begin, escape_bytes(value), self.end)
        if self.required:
            raise Refused(f"no value for {{property.{self.name.decode()}}}", Feedback.VALUE_MISSING)
        return b""


class JsonCell(Cell):
    """A field of a JSON payload: an element of its own type with its tags, or part of a longer text."""

    __slots__ = ("is_own", "real", "slot", "step", "steps", "text", "text_end", "type", "within")
    kind = 4

    def __init__(self, name: str, slot: Slot, type_name: str, *, within: bool = False) -> None:
        self.steps = steps_of(slot.name)
        self.step = slot.name if len(self.steps) == 1 else None
        """The only step of the path; None: it has several."""
        self.slot = slot
        self.type = type_name
        """The type that the rule asks for; empty: the value's own."""
        self.within = within
        self.is_own = not (within or slot.case or type_name)
        """Whether the value is written as it is, with its own type."""
        self.text, self.real, self.text_end = f"<{name}>", f"<{name} dt='r8'>", f"</{name}>"

    def write(self, body: Body) -> bytes:
        """The bytes of the cell. Raises Refused if the value cannot be written."""
        if self.is_own and self.step is not None:  # as nearly always
            document = body.read() if body.known is UNREAD else body.known
            if type(document) is dict:
                value = document.get(self.step)
                if type(value) is float:
                    return f"{self.real}{value!r}{self.text_end}".encode()
                if type(value) is str:
                    return f"{self.text}{escape(value)}{self.text_end}".encode()
        return self._written(body.find(self.steps))

    def _written(self, value: Value) -> bytes:
        if self.within:
            return escape(text_of(self.slot, value)).encode()
        if value is None:
            return b""
        if self.slot.case:
            value = text_of(self.slot, value)
        if self.type:
            value = to_type(value, self.type, str(self.slot))
        return element(self.text[1:-1], value).encode()


class OtherCell(Cell):
    """A property that is computed from several values, or as another type."""

    __slots__ = ("rule", "scope")
    kind = 5

    def __init__(self, rule: PropertyRule, scope: Scope) -> None:
        self.rule = rule
        self.scope = scope
        """Returns the values that the origin decides."""

    def write(self, now: bytes, users: Users, body: Body, packet_id: int) -> bytes:
        """The bytes of the cell. Raises Refused if the value cannot be written."""

        def scope(slot: Slot) -> Value:
            if slot.kind == "json":
                return body.field(slot.name)
            if slot.kind == "received_at":
                return now.decode()
            if slot.kind == "property":
                return next((value.decode() for name, value in users if name == slot.name.encode()), None)
            return packet_id if slot.kind == "packet_id" else self.scope(slot)

        return element_of(self.rule, scope).encode()


class Form:
    """What one rule makes of publications from one origin."""

    __slots__ = (
        "after",
        "alone",
        "around_time",
        "asking",
        "before",
        "carries",
        "check",
        "condition",
        "destination",
        "fixed",
        "goes_on",
        "head",
        "length",
        "longest_expiry",
        "order",
        "persistent",
        "priority",
        "tails",
        "taken",
        "usr",
    )  # fmt: skip

    def __init__(self, frame: Frame, usr: Iterable[bytes | Cell]) -> None:
        self.destination = Destination("", "", "")
        self.priority = 0
        self.persistent = False
        self.before = frame.before
        """The descriptor and the MQRFH2 up to StrucLength."""
        self.length = frame.length
        """StrucLength without a `usr` folder; 0: without one there is no MQRFH2."""
        self.fixed = frame.fixed
        """The MQRFH2 from Encoding up to the place of the `usr` folder, and what follows it up to the tail."""
        self.after = frame.after
        self.alone = frame.alone
        """The descriptor of a message without MQRFH2."""
        self.tails = frame.tails
        self.usr = _joined(usr)
        """The content of the `usr` folder according to the rule."""
        self.carries = False
        """Whether the user properties of the publication follow in that folder."""
        self.taken: frozenset[bytes] = frozenset()
        """The names of the properties that the rule sets."""
        self.order = ""
        """The names of user properties in order, if one occurs twice: the `mqtt` folder then lists them, and the form
        fits no others."""
        self.longest_expiry = -1
        """The longest Expiry, in tenths of a second, that a publication can ask for; -1: the rule ignores what it asks
        for."""
        self.check: Check | None = None
        """Refuses a payload that is not as the rule says; None: any payload is accepted."""
        self.condition: Condition | None = None
        """Returns whether the rule applies to a payload; None: it applies to any."""
        self.goes_on = False
        """Whether later rules are considered too."""
        self.asking: Asking | None = None
        """What is written into each head, if publications have correlation data or an answer is awaited."""
        self.head: bytes | None = None
        """The head of a publication without properties, if it is the same for all."""
        self.around_time: tuple[bytes, bytes] | None = None
        """That head around the time of receipt, if nothing else differs."""

    def make(self, now: bytes, users: Users, body: Body, packet_id: int = 0, expiry: int | None = None) -> bytes | None:
        """The head of one message; `now` is `timestamp` in ASCII. None: the names of its user properties need another
        form. Raises Refused if the rule cannot be followed."""
        head = self.head
        carries = users and self.carries
        if self.around_time is not None and not carries:
            head = now.join(self.around_time)
        elif head is None or carries:
            usr = self._usr(now, users, body, packet_id)
            if usr is None:
                return None
            head = self.around(usr)
        if expiry is not None and self.longest_expiry > 0:
            tenths = _PACK(min(max(expiry * 10, 1), self.longest_expiry))
            return b"%b%b%b" % (head[: _EXPIRY.start], tenths, head[_EXPIRY.stop :])
        return head

    def fits(self, users: Users) -> bool:
        """Whether the `mqtt` folder says what it has to about the order of these user properties."""
        return not (users and self.carries) or _tags_for(users, self.taken).order == self.order

    def _usr(self, now: bytes, users: Users, body: Body, packet_id: int) -> bytes | None:
        pieces: list[bytes] = []
        try:
            for part in self.usr:
                if type(part) is bytes:
                    pieces.append(part)
                elif type(part) is JsonCell:
                    pieces.append(part.write(body))
                elif type(part) is UserCell:
                    pieces.append(part.write(users))
                elif type(part) is OtherCell:
                    pieces.append(part.write(now, users, body, packet_id))
                else:
                    pieces.append(now if type(part) is TimeCell else b"%d" % packet_id)
        except (HeaderError, UnicodeEncodeError) as error:
            raise cannot_be_written(error) from None
        if users and self.carries:
            carried = carry(users, self.taken, self.order)
            if carried is None:
                return None
            pieces.append(carried)
        return b"".join(pieces)

    def around(self, usr: bytes) -> bytes:
        """The head with this content of the `usr` folder."""
        return head_around(self.before, self.length, self.fixed, self.after, self.alone, usr)


def carry(users: Users, taken: frozenset[bytes], order: str = "") -> bytes | None:
    """User properties as elements. None: a name occurs twice or is taken, and their order is not the one of this
    form."""
    tags = _tags_for(users, taken)
    if tags.order != order:
        return None
    pieces: list[bytes] = []
    for (begin, end), (_, value) in zip(tags.tags, users, strict=True):
        if begin:
            pieces += (begin, escape_bytes(value), end)
    return b"".join(pieces)


class _Tags(NamedTuple):
    """The tags around the values of user properties, which are empty where a name is too long."""

    tags: tuple[tuple[bytes, bytes], ...]
    order: str
    """The order list of `to_properties`."""


def _tags_for(users: Users, taken: frozenset[bytes]) -> _Tags:
    names = tuple([name for name, _ in users])
    return _tags(names, taken) if sum(map(len, names)) <= _KEPT_NAMES else _tags_of(names, taken)


def _tags_of(names: tuple[bytes, ...], taken: frozenset[bytes]) -> _Tags:
    escaped, order = numbered_names([name.decode() for name in names], [name.decode() for name in taken])
    tags = [(f"<{name}>".encode(), f"</{name}>".encode()) if len(name) <= MAX_NAME else (b"", b"") for name in escaped]
    return _Tags(tuple(tags), order)


_tags = lru_cache(maxsize=4096)(_tags_of)


# -- how a form is made --


def form_of(prepared: Prepared, users: Users = ()) -> Form | None:
    """The form of what a rule makes of publications from one origin; None: it has none. User properties in which a name
    occurs twice need a form with their order: pass them."""
    match, origin, properties, scope = prepared.match, prepared.origin, prepared.properties, prepared.scope
    rule = match.rule
    if scope is None or properties.keys() & _VARYING:
        return None
    if any(template is not None and _varies(template) for template in _of_destination_and_descriptor(rule)):
        return None
    taken = frozenset(name.encode() for name, _, _ in rule.properties)
    order, request = _tags_for(users, taken).order, request_of(rule, origin.client_id, properties)
    stencil = None if properties or order else stencil_of(match, origin)
    try:
        md: Described | Stencil
        if stencil is not None:
            md, frame = stencil, stencil.frame(origin, scope)
        else:
            md = descriptors.build(rule, origin.qos, properties, scope, request)
            frame = assembly.frame_of(match, origin, properties, md, order)
        form = Form(frame, [part for one in rule.properties for part in _cut(one, scope)])
        form.destination = assembly.destination_of(rule, scope)
    except (Refused, HeaderError, UnicodeEncodeError):  # each message is then refused with the reason
        return None
    form.priority, form.persistent = md.priority, md.persistent
    form.carries = rule.spec.user_properties
    form.taken, form.order = taken, order
    form.longest_expiry = descriptors.longest_expiry(rule.spec.descriptor)
    form.check, form.condition = prepared.check, prepared.condition
    form.goes_on = rule.spec.goes_on
    form.asking = asking_of(rule, properties, request, form.after)
    _settle_heads(form)
    return form


def _settle_heads(form: Form) -> None:
    """Compute what of the head is known before any message."""
    cells = [part for part in form.usr if isinstance(part, Cell)]
    if not cells:
        form.head = form.around(b"".join(form.usr))  # type: ignore[arg-type]
    elif len(cells) == 1 and isinstance(cells[0], TimeCell):
        pieces = form.around(b"".join(_NO_TIME if part is cells[0] else part for part in form.usr)).split(_NO_TIME)  # type: ignore[misc]
        form.around_time = (pieces[0], pieces[1]) if len(pieces) == 2 else None


def _joined(parts: Iterable[bytes | Cell]) -> tuple[bytes | Cell, ...]:
    """The same parts with neighbouring literal pieces joined, and without empty ones."""
    found: list[bytes | Cell] = []
    for part in parts:
        if isinstance(part, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += part
        elif part != b"":
            found.append(part)
    return tuple(found)


def _of_destination_and_descriptor(rule: InboundRule) -> tuple[Template | None, ...]:
    return (
        rule.queue, rule.mq_topic, rule.queue_manager, rule.correlation, rule.user, rule.application_data,
        rule.group_by, rule.group_sequence, rule.group_last,
    )  # fmt: skip


def _varies(template: Template) -> bool:
    """Whether the value of a template differs between publications of one origin."""
    return template.per_message or any(slot.kind == "property" for slot in template.slots)


def _cut(one: PropertyRule, scope: Scope) -> list[bytes | Cell]:
    """A property as literal pieces and cells."""
    name, template, type_name = one
    if not _varies(template):
        return [element_of(one, scope).encode()]
    if len(template.parts) == 1:
        return _cut_alone(one, template.slots[0], scope)
    pieces = [_cut_within(part, scope) for part in template.parts]
    if type_name not in {"", "string"} or not all(pieces):
        return [OtherCell(one, scope)]
    return [b"<%b>" % name.encode(), *(piece for piece in pieces if piece is not None), b"</%b>" % name.encode()]


def _cut_alone(one: PropertyRule, slot: Slot, scope: Scope) -> list[bytes | Cell]:
    """A property that is one placeholder: it keeps its type, and is left out if there is no value."""
    name, type_name = one[0].encode(), one[2] or slot.type
    if slot.kind == "json":
        return [JsonCell(one[0], slot, type_name)]
    if slot.kind == "packet_id" and type_name in {"", "int"} and not slot.case:  # at most 65535
        return [b"<%b dt='i4'>" % name, PacketIdCell(), b"</%b>" % name]
    if type_name not in {"", "string"} or slot.case or slot.kind == "packet_id":
        return [OtherCell(one, scope)]
    if slot.kind == "received_at":
        return [b"<%b>" % name, TimeCell(), b"</%b>" % name]
    return [UserCell(slot.name, b"<%b>" % name, b"</%b>" % name)]


def _cut_within(part: str | Slot, scope: Scope) -> bytes | Cell | None:
    """A part of a longer text; None: only `OtherCell` can write it."""
    if isinstance(part, str):
        return escape(part).encode()
    if part.kind == "json":
        return JsonCell("", part, "", within=True)
    if part.kind == "packet_id":
        return PacketIdCell()
    if part.kind in {"received_at", "property"}:
        if part.case:
            return None
        return TimeCell() if part.kind == "received_at" else UserCell(part.name, required=True)
    return escape(text_of(part, scope(part))).encode()
