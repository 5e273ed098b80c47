"""Request and reply: how the answer of an MQ application finds its way back to the device that asked.

An MQTT 5 request (it has a response topic) goes out with a token of 24 bytes as MsgId and CorrelId, so that the answer
carries it as CorrelId whether the application copies the one or the other. Token and request are stored in the unit of
work of the put; the answer is published on the response topic with the correlation data the device gave.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from gateway.bridge.mqtt5 import CORRELATION_DATA, MESSAGE_EXPIRY, RESPONSE_TOPIC
from gateway.mq import mqmd
from gateway.mqtt.packets import Properties
from gateway.rules.mappings import InboundRule


class Request(NamedTuple):
    """What is remembered of a request until its answer comes."""

    client_id: str
    response_topic: str
    correlation_data: bytes
    expiry: int
    """Seconds the request may wait; 0: as long as the gateway keeps requests."""

    @property
    def token(self) -> bytes:
        """Names requests like this one in 24 bytes: what stands in a plan, where the token of each message goes."""
        return self.numbered(0)

    def numbered(self, number: int) -> bytes:
        """Names one request. Equal requests have tokens of their own, as each is answered: a device may ask again, with
        the same response topic and no correlation data, before the first answer has come."""
        parts = (self.client_id.encode(), self.response_topic.encode(), self.correlation_data)
        framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts) + number.to_bytes(12, "big")
        return b"MQGR" + hashlib.blake2b(framed, digest_size=20).digest()

    def stamp(self, head: bytes, token: bytes) -> bytes:
        """The head of a message of a plan as that of one request: MsgId, and CorrelId unless its rule says another."""
        correl_id = token if head[mqmd.CORREL_ID] == self.token else head[mqmd.CORREL_ID]
        return mqmd.with_correl_id(mqmd.with_msg_id(head, token), correl_id)

    def encode(self) -> bytes:
        """As it is stored."""
        values = [self.client_id, self.response_topic, self.correlation_data.hex(), self.expiry]
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Request:
        """From what was stored."""
        client_id, response_topic, data, expiry = json.loads(raw)
        return cls(client_id, response_topic, bytes.fromhex(data), expiry)


def request_of(rule: InboundRule, client_id: str, properties: Properties) -> Request | None:
    """The request in a publication, if its rule has somewhere for the answer to go."""
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
