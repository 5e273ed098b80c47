"""CONNACK: what it says, why a CONNECT is refused, and when it goes out. Pure.

CONNACK says what is committed, so it waits for the commit; but where a queue manager does not answer for too long, the
client is refused. A CONNECT that was refused has changed nothing [MQTT3-3.1.4-5] [MQTT5-3.1.4-6]: the session is as it
was before, with the will that waited then, and a session that the CONNECT made is removed, so that the next CONNECT
does not find what its client has never heard of. That is part of the open batch, hence comes after what has not been
committed yet, should that be committed after all. A client that has sent more without waiting for CONNACK is not
answered at all: some of that is under way, as when a connection breaks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.broker.context import Context
from gateway.broker.limits import Limits
from gateway.broker.publish.given import is_text
from gateway.broker.sessions.wills import Wills
from gateway.errors import ProtocolError
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import V5, V31, V311, Connack, Connect, Properties, Will
from gateway.mqtt.topics import name_error
from gateway.ports.access import Verdict
from gateway.ports.counters import ConnectResult, DisconnectReason, Protocol
from gateway.session.connection import Connection
from gateway.session.registry import Registry
from gateway.session.session import Session

Refusal = tuple[int, str]
RESULTS: dict[int, ConnectResult] = {
    reasons.UNSUPPORTED_PROTOCOL_VERSION: "bad_protocol",
    reasons.CLIENT_IDENTIFIER_NOT_VALID: "bad_client_id",
    reasons.BAD_USER_NAME_OR_PASSWORD: "bad_credentials",
    reasons.NOT_AUTHORIZED: "not_authorized",
    reasons.BANNED: "banned",
    reasons.SERVER_UNAVAILABLE: "unavailable",
    reasons.SERVER_BUSY: "too_many",
    reasons.QUOTA_EXCEEDED: "too_many",
    reasons.CONNECTION_RATE_EXCEEDED: "too_many",
}
"""What a refused CONNECT is counted as."""
_END: dict[ConnectResult, DisconnectReason] = {
    "bad_credentials": "not_authorized", "not_authorized": "not_authorized", "banned": "not_authorized",
}  # fmt: skip
"""What the end of its connection is counted as; `refused` where the client's identity is not in question."""
PROTOCOLS: dict[int, Protocol] = {3: "3.1", 4: "3.1.1", 5: "5.0"}
ANOTHERS = reasons.CLIENT_IDENTIFIER_NOT_VALID, "the session of this client identifier belongs to another user"
AGAIN = reasons.SERVER_BUSY, "the same client connected again"
"""What a client is told that has no CONNACK yet, and so may not be sent DISCONNECT [MQTT-3.14.0-1]."""
_NOT_STORED = "its session cannot be stored now: the queue manager does not answer; connect again later"


class Earlier(NamedTuple):
    """What a session was before a CONNECT resumed it."""

    expiry: int
    will: Will | None


def earlier(session: Session | None, older: Connection | None) -> Earlier | None:
    """What is to be remembered of a session that is resumed, perhaps from an older connection; None if the session is
    new."""
    if session is None:
        return None
    if older is not None and not older.connack_sent:
        before: Earlier | None = older.earlier
        return before
    return Earlier(session.expiry, session.will)


class Connacks:
    """Answers CONNECT."""

    def __init__(self, context: Context, wills: Wills) -> None:
        self.context = context
        self.wills = wills

    # -- refused --

    def refuse(
        self, connection: Connection, reason: int, text: str, malformed: bool = False, *, silently: bool = False
    ) -> None:
        """Send CONNACK with the reason, then close. A refused CONNECT publishes no will. [MQTT3-3.2.2-4]
        [MQTT3-3.2.2-5] [MQTT3-3.2.2-6] [MQTT5-3.2.2-6] [MQTT-3.2.2-7] [MQTT5-3.1.4-2] [MQTT-4.13.2-1]"""
        context = self.context
        version = connection.version or connection.reader.version
        code: int | None = reason
        if version != V5:
            code = (
                None
                if malformed and reason != reasons.UNSUPPORTED_PROTOCOL_VERSION
                else reasons.connack_return_code(reason)
            )
        if silently:
            code = None
        if code is not None and (connection.version or reason == reasons.UNSUPPORTED_PROTOCOL_VERSION or version == V5):
            self._send_refusal(connection, version or 4, code, text)
        result = RESULTS.get(reason, "malformed" if malformed else "other")
        context.counters.mqtt_connects[connection.link.listener, PROTOCOLS.get(version, "3.1.1"), result] += 1
        connection.rejected = result
        context.close(connection, "protocol_error" if malformed else _END.get(result, "refused"), text)

    def refuse_malformed(self, connection: Connection, error: ProtocolError) -> None:
        """Refuse a client whose packets before CONNACK break the protocol."""
        self.refuse(connection, error.reason, str(error), malformed=True)

    def _send_refusal(self, connection: Connection, version: int, code: int, text: str) -> None:
        """Send the CONNACK; without its text if the client takes no packet of that size [MQTT-3.2.2-19], and not at all
        if it is still too long."""
        largest = 0xFFFFFFFF
        if connection.request is not None:
            largest = connection.request.properties.get(prop.MAXIMUM_PACKET_SIZE, largest)
        with_text: dict[int, Any] = {prop.REASON_STRING: text} if version == V5 and text else {}
        for properties in (with_text, {}):
            connack = writer.encode_connack(version, Connack(False, code, properties))  # noqa: FBT003 -- not present
            if len(connack) <= largest:
                self.context.counters.packets_out[2] += 1
                self.context.send_counted(connection, connack)  # in no batch: nothing is promised
                return

    # -- promised --

    def promise(self, connection: Connection, connack: bytes) -> None:
        """Have CONNACK sent when the open batch is committed."""
        connection.accepted_at = self.context.scheduler.monotonic()
        self.context.batch.reply(connection, connack)

    def overdue(self, connection: Connection, now: float) -> bool:
        """Whether a client has waited too long for its CONNACK, or too much is kept to go out behind it."""
        if connection.connack_sent:
            return False
        limits, most = self.context.limits, self.context.limits.max_outgoing_bytes
        if now - connection.accepted_at > limits.patience:
            return True
        kept = connection.behind_bytes
        return kept > most and kept - max(map(len, connection.behind_connack)) > most

    def withdraw(self, connection: Connection) -> None:
        """Refuse a CONNECT whose unit of work has not come back."""
        self._put_back(connection.session, connection.earlier)
        told = not connection.sent_early and connection.last_read <= connection.accepted_at
        self.refuse(connection, reasons.SERVER_UNAVAILABLE, _NOT_STORED, silently=not told)

    def _put_back(self, session: Session, before: Earlier | None) -> None:
        """Make a session what it was before a CONNECT."""
        self.wills.drop(session)
        if before is None:
            session.expiry = 0  # it ends with its connection
            return
        session.expiry, session.durable = before.expiry, before.expiry > 0
        if before.will is not None:  # its delay begins anew
            self.wills.keep(session, before.will)

    def forget(self, connection: Connection) -> None:
        """Drop the replies to a connection that was closed before its CONNACK, so that they do not pile up however
        often its client comes again."""
        batch = self.context.batch
        if not connection.connack_sent and not connection.leaving:
            for data in batch.replies.pop(connection, ()):
                batch.answered[data[0] >> 4] -= 1


# -- what can be told from the CONNECT alone --


def refusal(connect: Connect, limits: Limits) -> Refusal | None:
    """(reason, text) if the CONNECT cannot be accepted, whoever sends it."""
    if connect.version not in limits.versions:
        return reasons.UNSUPPORTED_PROTOCOL_VERSION, "this protocol version is switched off here"
    return _client_id(connect, limits) or _will(connect, limits)


def _client_id(connect: Connect, limits: Limits) -> Refusal | None:
    """Accept any identifier of versions later than 3.1 [MQTT-3.1.3-5]; what is not accepted is refused [MQTT3-3.1.3-9]
    [MQTT5-3.1.3-8]."""
    client_id = connect.client_id
    if connect.version == V31:
        if not client_id:
            return reasons.CLIENT_IDENTIFIER_NOT_VALID, "MQIsdp needs a client identifier"
        if limits.strict_client_ids and len(client_id) > 23:
            return reasons.CLIENT_IDENTIFIER_NOT_VALID, "MQIsdp client identifiers have at most 23 characters"
    if connect.version == V311 and not client_id and not connect.clean_start:  # [MQTT3-3.1.3-8]
        return reasons.CLIENT_IDENTIFIER_NOT_VALID, "an empty client identifier needs a clean session"
    return None


def _will(connect: Connect, limits: Limits) -> Refusal | None:
    will = connect.will
    if will is None:
        return None
    problem = name_error(will.topic, limits.max_topic_levels)
    if problem is None and len(will.topic.encode()) > limits.max_topic_length:
        problem = f"topics have at most {limits.max_topic_length} bytes here"
    if problem is not None:
        return reasons.TOPIC_NAME_INVALID, f"will topic: {problem}"
    if will.qos > limits.max_qos:  # [MQTT-3.2.2-12]
        return reasons.QOS_NOT_SUPPORTED, f"a will of QoS {will.qos} is not offered here"
    if will.retain and not limits.retain:  # [MQTT-3.2.2-13]
        return reasons.RETAIN_NOT_SUPPORTED, "retained messages are off here"
    if limits.max_payload and len(will.payload) > limits.max_payload:
        return reasons.PACKET_TOO_LARGE, f"the will is longer than {limits.max_payload} bytes"
    if will.properties.get(prop.PAYLOAD_FORMAT_INDICATOR) == 1 and not is_text(will.payload):  # 3.1.3.2.3
        return reasons.PAYLOAD_FORMAT_INVALID, "the will is not UTF-8, which its Payload Format Indicator says it is"
    return None


TOO_MANY: Refusal = reasons.QUOTA_EXCEEDED, "the gateway holds as many sessions as it may (mqtt.max_sessions)"


def no_room(limits: Limits, sessions: Registry, client_id: str, listener: str) -> Refusal | None:
    """(reason, text) if there are as many sessions as may be, of all clients or of those of a listener. A client that
    has a session comes in; from another listener it counts as one more there."""
    session, most = sessions.get(client_id), limits.at(listener).max_listener_sessions
    if session is None and len(sessions) >= limits.max_sessions:
        return TOO_MANY
    known = session is not None and session.listener == listener
    if most and not known and sessions.by_listener[listener] >= most:
        return reasons.QUOTA_EXCEEDED, "this listener holds as many sessions as it may"
    return None


def connack_properties(
    connect: Connect, connection: Connection, assigned: str, expiry: int, verdict: Verdict
) -> Properties:
    """Everything that a 5.0 client has to know where it differs from the default. Nothing has to be known that the
    specification does not tell [MQTT-7.0.0-2]."""
    if connect.version != V5:
        return {}
    limits = connection.limits
    properties: Properties = {
        prop.RECEIVE_MAXIMUM: connection.receive_maximum,
        prop.MAXIMUM_PACKET_SIZE: limits.max_packet,
    }
    if connect.properties.get(prop.SESSION_EXPIRY_INTERVAL, 0) != expiry:
        properties[prop.SESSION_EXPIRY_INTERVAL] = expiry
    if limits.max_qos < 2:  # [MQTT-3.2.2-9]
        properties[prop.MAXIMUM_QOS] = limits.max_qos
    if not limits.retain:
        properties[prop.RETAIN_AVAILABLE] = 0
    if not limits.shared_subscriptions:
        properties[prop.SHARED_SUBSCRIPTION_AVAILABLE] = 0
    if assigned:  # [MQTT-3.2.2-16] [MQTT5-3.1.3-7]
        properties[prop.ASSIGNED_CLIENT_IDENTIFIER] = assigned
    if limits.topic_aliases:
        properties[prop.TOPIC_ALIAS_MAXIMUM] = limits.topic_aliases
    if limits.keep_alive_max and (not connect.keep_alive or connect.keep_alive > limits.keep_alive_max):
        properties[prop.SERVER_KEEP_ALIVE] = limits.keep_alive_max
    if connect.properties.get(prop.REQUEST_RESPONSE_INFORMATION) == 1:  # [MQTT-3.1.2-28]
        properties |= _response_information(limits, assigned or connect.client_id)
    method = connect.properties.get(prop.AUTHENTICATION_METHOD)
    if method is not None:  # [MQTT-4.12.0-5] [MQTT-4.12.0-6]
        properties[prop.AUTHENTICATION_METHOD] = method
        if verdict.data:
            properties[prop.AUTHENTICATION_DATA] = verdict.data
    return properties


def _response_information(limits: Limits, client_id: str) -> Properties:
    """The topic prefix on which the client is to have its answers sent; nothing if nobody could publish there."""
    topic = limits.response_prefix + client_id
    if len(topic.encode()) > limits.max_topic_length or name_error(topic, limits.max_topic_levels):
        return {}
    return {prop.RESPONSE_INFORMATION: topic}
