"""Request and reply: how the answer of an MQ application finds its way back to the device that asked.

An MQTT 5 request (a publication with a response topic) is put with a token of 24 bytes as MsgId and CorrelId, so that
the answer has it as CorrelId whichever of the two the application copies. Token and request are stored in the unit of
work of the put; the answer is published on the response topic with the correlation data that the device gave.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from gateway.bridge.mqtt5 import CORRELATION_DATA, MESSAGE_EXPIRY, RESPONSE_TOPIC
from gateway.mq import mqmd
from gateway.mqtt.packets import Properties
from gateway.rules.mappings import InboundRule

_ELEMENT = b"<correlationData dt='bin.hex'>"
_LONGEST_CORREL_ID = 24


class Request(NamedTuple):
    """What is stored of a request until its answer arrives."""

    client_id: str
    response_topic: str
    correlation_data: bytes
    expiry: int
    """For how many seconds the request may wait; 0: as long as the gateway keeps requests."""

    @property
    def token(self) -> bytes:
        """Names requests like this one in 24 bytes. A plan has it in the place of the token of each message."""
        return self.numbered(0)

    def numbered(self, number: int) -> bytes:
        """The token of one request. Equal requests have different tokens, as each is answered: a device may ask again,
        with the same response topic and no correlation data, before the first answer has arrived."""
        parts = (self.client_id.encode(), self.response_topic.encode(), self.correlation_data)
        framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts) + number.to_bytes(12, "big")
        return b"MQGR" + hashlib.blake2b(framed, digest_size=20).digest()

    def stamp(self, head: bytes, token: bytes) -> bytes:
        """The head of a plan's message for one request: with its MsgId, and its CorrelId unless the rule sets another
        one."""
        correl_id = token if head[mqmd.CORREL_ID] == self.token else head[mqmd.CORREL_ID]
        return mqmd.with_correl_id(mqmd.with_msg_id(head, token), correl_id)

    def encode(self) -> bytes:
        """The request as it is stored."""
        values = [self.client_id, self.response_topic, self.correlation_data.hex(), self.expiry]
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Request:
        """The request from what was stored."""
        client_id, response_topic, data, expiry = json.loads(raw)
        return cls(client_id, response_topic, bytes.fromhex(data), expiry)


class Asking(NamedTuple):
    """What differs between the heads of publications with correlation data of one length. A form is made with NULs as
    the data, and this writes the actual data into each head."""

    request: Request | None
    """The request, with NULs as its data; None: the rule awaits no answer."""
    has_correl_id: bool
    """Whether CorrelId is the token, or the data if there is no token."""
    from_end: int
    """Where the data is in the `mqtt` folder, counted from the end of the head; 0: it is not there."""

    def stamp(self, head: bytes, data: bytes, token: bytes | None) -> bytes:
        """The head of one publication."""
        at, text = len(head) - self.from_end, data.hex().upper().encode() if self.from_end else b""
        msg_id = head[mqmd.MSG_ID] if token is None else token
        correl_id = (token or data.ljust(24, b"\0")) if self.has_correl_id else head[mqmd.CORREL_ID]
        begin, end = head[: mqmd.MSG_ID.start], head[mqmd.CORREL_ID.stop : at]
        return b"".join((begin, msg_id, correl_id, end, text, head[at + len(text) :]))


def asking_of(rule: InboundRule, properties: Properties, request: Request | None, folders: bytes) -> Asking | None:
    """What is written into heads that end with these folders; None: nothing."""
    data = properties.get(CORRELATION_DATA, b"")
    length = len(data) if isinstance(data, bytes) else 0
    found = folders.rfind(_ELEMENT) if length else -1
    has_correl_id = rule.correlation is None and (request is not None or 0 < length <= _LONGEST_CORREL_ID)
    if request is None and not has_correl_id and found < 0:
        return None
    return Asking(request, has_correl_id, 0 if found < 0 else len(folders) - found - len(_ELEMENT))


def request_of(rule: InboundRule, client_id: str, properties: Properties) -> Request | None:
    """The request in a publication, if its rule has a queue for the answer."""
    topic = properties.get(RESPONSE_TOPIC)
    descriptor = rule.spec.descriptor
    if (
        not isinstance(topic, str)
        or not topic
        or descriptor.reply_to is None
        or descriptor.message_type in ("datagram", "reply")
    ):
        return None
    data, expiry = properties.get(CORRELATION_DATA, b""), properties.get(MESSAGE_EXPIRY, 0)
    return Request(client_id, topic, data if isinstance(data, bytes) else b"", expiry if isinstance(expiry, int) else 0)
