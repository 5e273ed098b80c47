"""The message descriptor of a publication: what the rule, the QoS and the MQTT 5 properties make of its fields."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from gateway.bridge.mqtt5 import CORRELATION_DATA, MESSAGE_EXPIRY, PAYLOAD_FORMAT
from gateway.bridge.request import Request
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.mqtt.packets import Properties
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import InboundRule
from gateway.rules.model import Descriptor
from gateway.rules.templates import Slot, Template, Value, render, render_value

MAX_SEQUENCE = 999_999_999
MAX_EXPIRY = 999_999_999
"""The largest Expiry that MQ takes, in tenths of a second."""
NATIVE, UTF_8 = 546, 1208
RFH2_FORMAT = b"MQHRF2  "
_APPLICATION = "mqgate"
_UNIX = 6  # MQAT_UNIX
_IN_GROUP, _LAST_IN_GROUP = 8, 16  # MQMF_MSG_IN_GROUP, MQMF_LAST_MSG_IN_GROUP

REPORTS = {
    "coa": 0x100, "coa_with_data": 0x300, "coa_with_full_data": 0x700,
    "cod": 0x800, "cod_with_data": 0x1800, "cod_with_full_data": 0x3800,
    "exception": 0x1000000, "exception_with_data": 0x3000000, "exception_with_full_data": 0x7000000,
    "expiration": 0x200000, "expiration_with_data": 0x600000, "expiration_with_full_data": 0xE00000,
    "pan": 1, "nan": 2, "pass_msg_id": 0x80, "pass_correl_id": 0x40, "discard": 0x8000000, "pass_expiry": 0x4000,
}  # fmt: skip
MESSAGE_TYPES = {"datagram": 8, "request": 1, "reply": 2}


@dataclass(frozen=True, slots=True)
class Described:
    """A descriptor, and what it says about the payload."""

    md: bytes
    priority: int
    persistent: bool
    format: str
    ccsid: int
    encoding: int
    is_text: bool

    def alone(self) -> bytes:
        """The descriptor of a message without MQRFH2."""
        return mqmd.with_described(self.md, self.encoding, self.ccsid, self.format.ljust(8).encode())

    def before_rfh2(self) -> bytes:
        """The descriptor of a message that begins with an MQRFH2, whose characters are UTF-8."""
        return mqmd.with_described(self.md, NATIVE, UTF_8, RFH2_FORMAT)


def build(
    rule: InboundRule, qos: int, properties: Properties, scope: Callable[[Slot], Value], request: Request | None
) -> Described:
    """The descriptor that a rule describes. Raises Refused."""
    md = _base(rule)
    if request is not None:
        md = mqmd.with_msg_id(md, request.token)
        if rule.spec.descriptor.message_type == "auto":
            md = mqmd.with_number(md, mqmd.AT_MSG_TYPE, MESSAGE_TYPES["request"])
    md = mqmd.with_correl_id(md, _correlation(rule.correlation, properties, scope, request))
    user = "" if rule.user is None else render(rule.user, scope)
    data = "" if rule.application_data is None else render(rule.application_data, scope)
    md = _with_text(_with_text(md, mqmd.USER_IDENTIFIER, user), mqmd.APPL_IDENTITY_DATA, data)
    if rule.group_by is not None:
        md = _grouped(md, rule.group_by, rule, scope)
    return _described(rule, md, qos, properties)


def build_plain(rule: InboundRule, qos: int, properties: Properties, user: str) -> Described:
    """The descriptor without what templates add."""
    md = mqmd.with_correl_id(_base(rule), _carried(properties))
    return _described(rule, _with_text(md, mqmd.USER_IDENTIFIER, user), qos, properties)


_BASES: dict[int, tuple[InboundRule, bytes]] = {}
_MAX_BASES = 20_000


def _base(rule: InboundRule) -> bytes:
    """The part of the descriptor that all messages of a rule share. Rules are found by identity, so the entry holds a
    reference to its rule."""
    known = _BASES.get(id(rule))
    if known is not None:
        return known[1]
    spec = rule.spec.descriptor
    reply = spec.reply_to
    base = mqmd.build(
        report=_report(spec),
        msg_type=MESSAGE_TYPES.get(spec.message_type, MESSAGE_TYPES["datagram"]),
        feedback=spec.feedback,
        priority=_priority(spec),
        reply_to_q=reply.queue if reply else "",
        reply_to_q_mgr=reply.queue_manager if reply else "",
        put_appl_type=_UNIX,
        put_appl_name=_APPLICATION,
    )
    if len(_BASES) >= _MAX_BASES:
        _BASES.clear()
    _BASES[id(rule)] = (rule, base)
    return base


def _with_text(md: bytes, where: slice, text: str) -> bytes:
    """`md` with this text in a character field."""
    return md[: where.start] + field_of(text, where) + md[where.stop :]


def field_of(text: str, where: slice) -> bytes:
    """The content of a character field; a text that does not fit is cut between characters."""
    size = where.stop - where.start
    raw = text.encode()
    if len(raw) > size:
        raw = raw[:size].decode("utf-8", "ignore").encode()
    return raw.ljust(size)


def _described(rule: InboundRule, md: bytes, qos: int, properties: Properties) -> Described:
    payload, spec = rule.spec.payload, rule.spec.descriptor
    persistent = _persistent(spec, qos)
    md = mqmd.with_expiry(mqmd.with_persistence(md, int(persistent)), _expiry(spec, properties))
    name = payload.format
    if name == "auto":  # [MQTT-3.3.2-4]: 1 says that the payload is UTF-8
        name = "string" if properties.get(PAYLOAD_FORMAT) == 1 else "bytes"
    is_text = name in ("string", "json", "MQSTR")
    format_name = {"bytes": "", "string": "MQSTR", "json": "MQSTR"}.get(name, name)
    ccsid = payload.ccsid if payload.ccsid is not None else UTF_8
    return Described(md, _priority(spec), persistent, format_name, ccsid, payload.encoding or NATIVE, is_text)


def _report(spec: Descriptor) -> int:
    options = 0
    for name in spec.report:
        options |= REPORTS[name]
    return options


def _persistent(spec: Descriptor, qos: int) -> bool:
    return qos > 0 if spec.persistence == "from_qos" else spec.persistence == "persistent"


def _priority(spec: Descriptor) -> int:
    return spec.priority if isinstance(spec.priority, int) else -1


def _expiry(spec: Descriptor, properties: Properties) -> int:
    """The Expiry in tenths of a second; at least 1, as 0 is not valid in MQ."""
    limits: list[float] = []
    asked = properties.get(MESSAGE_EXPIRY)
    if isinstance(asked, int) and spec.expiry != "never":
        limits.append(asked)
    if isinstance(spec.expiry, float):
        limits.append(spec.expiry)
    return min(max(int(min(limits) * 10), 1), MAX_EXPIRY) if limits else -1


def longest_expiry(spec: Descriptor) -> int:
    """The longest Expiry that a publication can ask for; -1: the rule ignores what it asks for."""
    if spec.expiry == "never":
        return -1
    return min(max(int(spec.expiry * 10), 1), MAX_EXPIRY) if isinstance(spec.expiry, float) else MAX_EXPIRY


def _correlation(
    template: Template | None, properties: Properties, scope: Callable[[Slot], Value], request: Request | None
) -> bytes:
    if template is not None:
        return render(template, scope).encode()[:24].ljust(24, b"\0")
    return request.token if request else _carried(properties)


def _carried(properties: Properties) -> bytes:
    """The CorrelId for correlation data of up to 24 bytes; longer data is only in the property, which always has all of
    it."""
    data = properties.get(CORRELATION_DATA, b"")
    return data.ljust(24, b"\0") if isinstance(data, bytes) and len(data) <= 24 else bytes(24)


def _grouped(md: bytes, by: Template, rule: InboundRule, scope: Callable[[Slot], Value]) -> bytes:
    """The descriptor with a GroupId that is the same for equal values, and with what the message itself says about its
    place in the group. Nothing is counted here, so a message that is sent again has the same number. Without numbers
    each message is a group of its own. Raises Refused."""
    group = hashlib.blake2b(render(by, scope).encode(), digest_size=24).digest()
    md = md[: mqmd.GROUP_ID.start] + group + md[mqmd.GROUP_ID.stop :]
    flags = _IN_GROUP
    if rule.group_sequence is None:
        flags |= _LAST_IN_GROUP
    else:
        md = mqmd.with_number(md, mqmd.AT_MSG_SEQ_NUMBER, _sequence(render(rule.group_sequence, scope)))
    if rule.group_last is not None and _is_yes(rule.group_last, scope):
        flags |= _LAST_IN_GROUP
    return mqmd.with_number(md, mqmd.AT_MSG_FLAGS, flags)


def _sequence(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 0 < int(text) <= MAX_SEQUENCE:
        raise Refused(f"`{text[:20]}` is not a message sequence number (1 to {MAX_SEQUENCE})", Feedback.VALUE_NOT_VALID)
    return int(text)


def _is_yes(template: Template, scope: Callable[[Slot], Value]) -> bool:
    """Whether a value means yes. An absent value does not: senders mark only the last message."""
    value = render_value(template, scope)
    return str(value).lower() in {"true", "1", "yes"}
