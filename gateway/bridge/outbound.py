"""From a message on a queue to a publication: topic, QoS, retain flag, MQTT 5 properties, and the body byte for byte.

One function per question, all pure. What cannot be answered is refused with a reason for the dead-letter header.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gateway.bridge import reports
from gateway.bridge.message import STRING, Message, read_message
from gateway.bridge.mqtt5 import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    ORDER_PROPERTY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    USER_PROPERTY,
    from_properties,
)
from gateway.errors import MQError, Refused
from gateway.mq import mqmd
from gateway.mq.character_sets.ccsid import codec_of, decoded
from gateway.mq.describe import header_in_words
from gateway.mq.headers.rfh2_folder import Scalar
from gateway.mqtt.packets import Properties
from gateway.mqtt.topics import name_error
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import OutboundRule
from gateway.rules.templates import Slot, Value, render

REQUEST = 1  # MQMT_REQUEST
PASS_CORREL_ID = 0x40  # MQRO_PASS_CORREL_ID
UTF_8 = 1208
MAX_TEXT = 65535
PUBLICATION_QUEUE = "SYSTEM.MQTT.PUBLICATION.QUEUE"
"""The RemoteQName of publications that MQ Telemetry addresses to a client: the topic is then in the properties."""
_NOTHING = bytes(24)
_TOPIC_SLOTS = {("mqps", "Top"), ("mqtt", "responseTopic"), ("xqh", "RemoteQName")}
"""Slots whose values are topics, in which slashes are allowed."""


class Outgoing(NamedTuple):
    """What a rule makes of a message from a queue, for devices."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties
    client: str
    """If not empty, it is for this client alone, whether the client has subscribed or not."""
    gateway: str = ""
    """The gateway that published the message from a device on this very topic; if that is this gateway, it is a
    loop."""
    report: bytes = b""
    """The descriptor, with the format of the payload, of a message that asks for reports which the gateway has to make;
    otherwise empty."""


def publication(rule: OutboundRule, md: bytes, data: bytes) -> Outgoing:
    """What the rule makes of a message. Raises Refused, whose `feedback` is the reason in the dead-letter header."""
    message = read_message(md, data)
    payload, is_utf_8 = _payload(rule, message)
    scope = _Scope(rule, message)
    topic = _topic(rule, message, scope)
    return Outgoing(
        topic,
        payload,
        min(_qos(rule, message), rule.spec.max_qos),
        _retain(rule, message),
        _properties(rule, message, is_utf_8, scope),
        _client(rule, message, scope),
        str(message.property("mqtt", "gateway") or "") if message.property("mqps", "Top") == topic else "",
        _report(message),
    )


def _report(message: Message) -> bytes:
    if not reports.asks(message.md):
        return b""
    described = message.described
    return mqmd.with_described(message.md, described.encoding, described.ccsid, described.format)


def first_publication(rules: Sequence[OutboundRule], md: bytes, data: bytes) -> tuple[OutboundRule, Outgoing]:
    """What the first of several rules for one queue that can be followed makes of a message. Raises the last rule's
    refusal if none can."""
    for rule in rules[:-1]:
        with suppress(Refused):
            return rule, publication(rule, md, data)
    return rules[-1], publication(rules[-1], md, data)


def sources(rules: Iterable[OutboundRule]) -> dict[tuple[str, str], list[OutboundRule]]:
    """The rules by the queue (or `topic://` and an MQ topic) from which they take messages, and the target that has it
    (empty: the gateway's own queue manager)."""
    found: dict[tuple[str, str], list[OutboundRule]] = {}
    for rule in rules:
        spec = rule.spec
        source = spec.queue or spec.transmission_queue or f"topic://{spec.mq_topic}"
        for target in rule.targets or ("",):
            found.setdefault((source, target), []).append(rule)
    return found


def _topic(rule: OutboundRule, message: Message, scope: _Scope) -> str:
    if rule.topic is not None:
        topic = render(rule.topic, scope)
    elif rule.spec.transmission_queue is not None and message.remote_queue != PUBLICATION_QUEUE:
        topic = message.remote_queue
    else:
        topic = str(message.property("mqps", "Top") or "")
    return valid_topic(topic)


def valid_topic(topic: str) -> str:
    """Check a topic that messages of queues are to be published on; returns it. Raises Refused if it is not valid."""
    if topic.startswith("$"):
        raise Refused("topics beginning with `$` belong to the gateway", Feedback.TOPIC_NOT_VALID)
    return _valid(topic)


def _valid(topic: str) -> str:
    wrong = name_error(topic) or ("half of a surrogate pair is no character" if not _encodable(topic) else None)
    if wrong:
        raise Refused(f"no topic to publish to: {wrong}", Feedback.TOPIC_NOT_VALID)
    return topic


def _encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _client(rule: OutboundRule, message: Message, scope: _Scope) -> str:
    if rule.client is None and rule.spec.transmission_queue is None:
        return ""
    client = message.remote_queue_manager if rule.client is None else render(rule.client, scope)
    if rule.client is None and not client:
        raise Refused("RemoteQMgrName, which is the client identifier, is blank", Feedback.DEVICE_UNKNOWN)
    if not _encodable(client):  # bytes of a descriptor that are no characters: no client can have that identifier
        raise Refused("the client identifier is not text", Feedback.DEVICE_UNKNOWN)
    return client


def _qos(rule: OutboundRule, message: Message) -> int:
    if isinstance(rule.spec.qos, int):
        return rule.spec.qos
    if rule.spec.qos == "from_property":
        given = message.property("mqtt", "qos")
        if isinstance(given, str) and given in {"0", "1", "2"}:
            return int(given)
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= 2:
            return given
    return 2 if message.persistent else 0


def _retain(rule: OutboundRule, message: Message) -> bool:
    if isinstance(rule.spec.retain, bool):
        return rule.spec.retain
    return message.property("mqps", "Ret") in {True, "1", "true"}


def _payload(rule: OutboundRule, message: Message) -> tuple[bytes, bool]:
    """The bytes to publish, and whether they are known to be UTF-8 text."""
    if not rule.spec.strip_headers:
        return message.data, False
    described, raw = message.described, message.body.raw
    is_text = described.format == STRING
    if rule.spec.convert is not None and is_text and rule.spec.convert != described.ccsid:
        return _converted(message, raw, rule.spec.convert), rule.spec.convert == UTF_8
    return raw, is_text and described.ccsid == UTF_8


def _converted(message: Message, raw: bytes, target: int) -> bytes:
    """The text in the rule's character set, with EBCDIC's new lines as line feeds."""
    source = message.described.ccsid if message.described.ccsid > 0 else UTF_8
    before, after = codec_of(source, message.described.encoding), codec_of(target)
    if before is None or after is None:
        unknown = source if before is None else target
        raise Refused(f"CCSID {unknown} is not known here: leave out `convert`", Feedback.TEXT_NOT_VALID)
    try:
        return decoded(raw, before, after).encode(after)
    except (MQError, UnicodeError) as error:
        raise Refused(f"not convertible from CCSID {source} to {target}: {error}", Feedback.TEXT_NOT_VALID) from None


def _properties(rule: OutboundRule, message: Message, is_utf_8: bool, scope: _Scope) -> Properties:
    """The MQTT 5 properties; sessions of clients with older versions leave them out."""
    found: Properties = {}
    if is_utf_8:
        found[PAYLOAD_FORMAT] = 1
    expiry = mqmd.number(message.md, mqmd.AT_EXPIRY)
    if expiry > 0:
        found[MESSAGE_EXPIRY] = max(expiry // 10, 1)
    content_type = message.property("mqtt", "contentType")
    if isinstance(content_type, str) and _sendable(content_type):
        found[CONTENT_TYPE] = content_type
    _request(rule, message, found, scope)
    users = _user_properties(rule, message)
    if users:
        found[USER_PROPERTY] = users
    return found


def _request(rule: OutboundRule, message: Message, found: Properties, scope: _Scope) -> None:
    """The topic on which the device is to answer, and the data that its answer must carry back."""
    if rule.response_topic is not None and mqmd.number(message.md, mqmd.AT_MSG_TYPE) == REQUEST:
        found[RESPONSE_TOPIC] = _valid(render(rule.response_topic, scope))
        passes = mqmd.number(message.md, mqmd.AT_REPORT) & PASS_CORREL_ID
        found[CORRELATION_DATA] = message.md[mqmd.CORREL_ID if passes else mqmd.MSG_ID]
        return
    response = message.property("mqtt", "responseTopic")
    if isinstance(response, str) and not name_error(response):
        found[RESPONSE_TOPIC] = response
    data = message.property("mqtt", "correlationData")
    if isinstance(data, bytes) and len(data) <= MAX_TEXT:
        found[CORRELATION_DATA] = data
    elif message.md[mqmd.CORREL_ID] != _NOTHING and RESPONSE_TOPIC in found:
        found[CORRELATION_DATA] = message.md[mqmd.CORREL_ID]


def _user_properties(rule: OutboundRule, message: Message) -> list[tuple[str, str]]:
    if rule.spec.user_properties == "none":
        return []
    usr = [(name, _text(value)) for name, value in message.pairs("usr")]
    pairs = from_properties(usr, str(message.property("mqtt", ORDER_PROPERTY) or ""))
    if rule.spec.user_properties == "all":
        pairs += _everything(message)
    elif rule.spec.groups == "whole" and mqmd.number(message.md, mqmd.AT_MSG_FLAGS) & _IN_GROUP:
        pairs += [(f"md.{name}", _text(_descriptor_value(message.md, name))) for name in _GROUP]
    return [pair for pair in pairs if _sendable(pair[0]) and _sendable(pair[1])]


def _sendable(text: str) -> bool:
    """Whether a property fits into MQTT. One that does not is left out, because the message must not be lost for it
    [MQTT-1.5.4]."""
    fits = len(text) <= MAX_TEXT and "\0" not in text
    return fits and (text.isascii() or (_encodable(text) and len(text.encode()) <= MAX_TEXT))


def _everything(message: Message) -> list[tuple[str, str]]:
    """The other folders, the descriptor and the headers as text."""
    pairs: list[tuple[str, str]] = []
    for folder in message.folders.values():
        if folder.name not in {"usr", "mqps", "mqtt"}:
            pairs += [(f"{folder.name}.{name}", _text(value)) for name, value in folder.pairs]
    for name in _DESCRIPTOR:
        text = _text(_descriptor_value(message.md, name))
        if text.strip("0"):
            pairs.append((f"md.{name}", text))
    for header in message.headers:
        if header.name != "MQRFH2":
            words = header_in_words(header)
            pairs += [(f"{header.name}.{key}", str(value)) for key, value in words.items() if key != "header"]
    return pairs


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else "" if value is None else str(value)


_DESCRIPTOR: dict[str, slice | int] = {
    "MsgId": mqmd.MSG_ID, "CorrelId": mqmd.CORREL_ID, "GroupId": mqmd.GROUP_ID, "ReplyToQ": mqmd.REPLY_TO_Q,
    "ReplyToQMgr": mqmd.REPLY_TO_Q_MGR, "UserIdentifier": mqmd.USER_IDENTIFIER, "Format": mqmd.FORMAT,
    "ApplIdentityData": mqmd.APPL_IDENTITY_DATA, "PutApplName": mqmd.PUT_APPL_NAME, "PutDate": mqmd.PUT_DATE,
    "PutTime": mqmd.PUT_TIME, "Priority": mqmd.AT_PRIORITY, "Feedback": mqmd.AT_FEEDBACK,
    "MsgType": mqmd.AT_MSG_TYPE, "Persistence": mqmd.AT_PERSISTENCE, "BackoutCount": mqmd.AT_BACKOUT_COUNT,
    "MsgSeqNumber": mqmd.AT_MSG_SEQ_NUMBER, "MsgFlags": mqmd.AT_MSG_FLAGS, "Report": mqmd.AT_REPORT,
}  # fmt: skip
_GROUP, _IN_GROUP = ("GroupId", "MsgSeqNumber", "MsgFlags"), 24
"""A message's place in its group: MQMF_MSG_IN_GROUP, MQMF_LAST_MSG_IN_GROUP."""
_IDENTIFIERS = {"MsgId", "CorrelId", "GroupId"}


def _descriptor_value(md: bytes, name: str) -> str | int | None:
    if name == "CorrelIdText":
        return md[mqmd.CORREL_ID].rstrip(b"\0 ").decode("utf-8", "replace") or None
    where = _DESCRIPTOR.get(name)
    if isinstance(where, int):
        return mqmd.number(md, where)
    if where is None:
        return None
    return md[where].hex() if name in _IDENTIFIERS else mqmd.text(md, where) or None


class _Scope:
    """The values of an outbound rule's slots. A value is one level of a topic; one with a slash is refused."""

    __slots__ = ("message", "rule")

    def __init__(self, rule: OutboundRule, message: Message) -> None:
        self.rule = rule
        self.message = message

    def __call__(self, slot: Slot) -> Value:
        value = self._value(slot)
        free = (slot.kind, slot.name) in _TOPIC_SLOTS or slot.case == "asis" or not isinstance(value, str)
        if not free and any(character in str(value) for character in "/+#\0"):
            raise Refused(f"{{{slot}}} has a slash or wildcard in it: it is not one level", Feedback.TOPIC_NOT_VALID)
        return value

    def _value(self, slot: Slot) -> Value:
        message = self.message
        if slot.kind == "md":
            return _descriptor_value(message.md, slot.name)
        if slot.kind == "json":
            return message.readable.field(slot.name)
        if slot.kind == "xqh":
            return (message.remote_queue if slot.name == "RemoteQName" else message.remote_queue_manager) or None
        if slot.kind == "queue":
            return self.rule.spec.queue or self.rule.spec.transmission_queue
        return message.property(slot.kind, slot.name)
