"""The plain lane: one packet at a time, of any kind. It does everything, and is the reference for the fast lane
(`fast.py`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.errors import ProtocolError
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.packets import PUBACK, PUBLISH, V5, Properties
from gateway.mqtt.writer import DUP
from gateway.session.connection import CLOSED, Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.broker.context import Context
    from gateway.broker.publish.publications import Publications
    from gateway.broker.publish.qos2 import Staging
    from gateway.broker.publish.route import Route
    from gateway.session.publication import Publication

_KINDS = {4: "PUBACK", 5: "PUBREC", 6: "PUBREL", 7: "PUBCOMP", 8: "SUBSCRIBE", 10: "UNSUBSCRIBE", 12: "PINGREQ",
          14: "DISCONNECT", 15: "AUTH"}  # fmt: skip


class PlainLane:
    """Takes the packets of connections that are online, one at a time."""

    def __init__(self, context: Context, publications: Publications, staging: Staging) -> None:
        self.context = context
        self.publications = publications
        self.staging = staging
        self.handlers: list[Callable[[Connection, Any], None]] = []
        """What handles a packet, by its type; set by the engine."""

    def packet(self, connection: Connection, packet: Any) -> None:
        """Handle one packet."""
        kind = packet[0] >> 4
        if kind != PUBLISH:
            self.context.counters.packets_in[kind] += 1
            if connection.traced and self.context.trace is not None:
                self.context.trace(connection, _KINDS.get(kind, "packet"), packet)
        self.handlers[kind](connection, packet)
        if kind == PUBLISH and packet[2] and connection.state != CLOSED:
            self.check_in_flight(connection)

    def check_in_flight(self, connection: Connection) -> None:
        """Refuse a client that has more in flight than it may have, at the PUBLISH that is too much."""
        if connection.version == V5:
            self.check_receive_maximum(connection)
        if connection.state != CLOSED and len(connection.session.inbound) > connection.unreleased:
            self.staging.check_unreleased(connection)

    def check_receive_maximum(self, connection: Connection) -> None:
        """Refuse with 0x93 a client that has more QoS 2 publications in flight than the announced Receive Maximum
        [MQTT-3.3.4-7]. QoS 1 does not count: it waits only for a commit, and a client that was disconnected before that
        would send again what was put. Publications of earlier connections do not count either: a client that was
        refused once could otherwise never send them again, and would be refused for ever."""
        most = connection.receive_maximum
        if connection.uncompleted + len(connection.session.inbound) - len(connection.carried or ()) > most:
            why = f"more of QoS 2 in flight than Receive Maximum ({most}): wait for PUBCOMP, or raise mqtt.max_inflight"
            self.context.overruns.note(connection, connection.session.client_id)
            self.context.protocol_error(connection, ProtocolError(why, reasons.RECEIVE_MAXIMUM_EXCEEDED))

    # -- PUBLISH --

    def publish(self, connection: Connection, packet: Any) -> None:
        """Handle a PUBLISH of any kind."""
        first, topic, packet_id, block, payload = packet
        context = self.context
        context.counters.packets_in[3] += 1
        connection.published += 1
        qos = first >> 1 & 3
        connection.session.received += qos != 1  # those of QoS 1 are counted with their commit
        try:
            limit = connection.limits.max_user_properties
            properties = prop.decode(block, PUBLISH, max_user_properties=limit) if block else {}
            topic = self.resolve_alias(connection, topic, properties)
        except ProtocolError as error:
            context.protocol_error(connection, error)
            return
        if not self.allowed(connection, first, qos):
            return
        route = self.publications.route(connection, first, topic)
        if route.error in {reasons.MALFORMED_PACKET, reasons.TOPIC_NAME_INVALID}:
            context.protocol_error(connection, ProtocolError(route.error_text, route.error))
            return
        if route.error == reasons.NOT_AUTHORIZED:
            context.denied(connection, "publish", topic.decode(errors="replace"))
        if connection.traced and context.trace is not None:
            context.trace(connection, "PUBLISH", packet)
        publication = self.publications.publication(connection, topic, payload, first, block, properties)
        if qos == 2:
            if connection.carried and packet_id in connection.carried and not first & DUP:
                self.staging.make_way(connection, packet_id, publication)
            self.staging.stage(connection, route, publication, packet_id, properties)
            return
        refused = self.publications.refusal(connection, route, publication, properties)
        missed = 0
        if refused is None and self.publications.is_wide(route, publication, connection):
            if publication.retain:  # who subscribes before he would get a copy knows it from here
                self.publications.retained.keep(publication)
            over = partial(self._copied, connection, route, publication, packet_id)
            self.publications.wide.begin(connection, route, publication, over)
            return
        if refused is None:
            missed = self.publications.release(connection.publisher, route, publication, packet_id, connection)
        if qos == 1:
            self.publications.answer(connection, PUBACK, packet_id, route, refused, missed)

    def _copied(
        self, connection: Connection, route: Route, publication: Publication, packet_id: int, missed: int
    ) -> None:
        """Finish a publication of a wide route when all subscribers have their copies, some of which are committed
        already."""
        self.publications.release(connection.publisher, route, publication, packet_id, connection, copied=True)
        if publication.qos and connection.state != CLOSED:
            self.publications.answer(connection, PUBACK, packet_id, route, None, missed)

    def resolve_alias(self, connection: Connection, topic: bytes, properties: Properties) -> bytes:
        """Set or use a Topic Alias. [MQTT-3.3.2-9] [MQTT-3.3.2-12] [MQTT-3.2.2-17] [MQTT-3.2.2-18]"""
        alias = properties.get(prop.TOPIC_ALIAS)
        if alias is None:
            if not topic and connection.version == V5:
                raise ProtocolError("an empty topic name without a Topic Alias", reasons.PROTOCOL_ERROR)
            return topic
        if not isinstance(alias, int) or not 0 < alias <= self.context.limits.topic_aliases:
            raise ProtocolError(
                f"Topic Aliases go up to {self.context.limits.topic_aliases} here",
                reasons.TOPIC_ALIAS_INVALID,
            )
        if topic:
            connection.aliases[alias] = topic
            return topic
        known = connection.aliases.get(alias)
        if known is None:  # without a topic name there is none: as if neither had been sent
            raise ProtocolError("a Topic Alias that was never set, and no topic name", reasons.PROTOCOL_ERROR)
        return known

    def allowed(self, connection: Connection, first: int, qos: int) -> bool:
        """Whether CONNACK allowed this QoS and RETAIN [MQTT-3.2.2-11] [MQTT-3.2.2-14]."""
        limits = self.context.limits
        if qos > limits.max_qos:
            error = ProtocolError(f"QoS {qos} is not offered here", reasons.QOS_NOT_SUPPORTED)
            self.context.protocol_error(connection, error)
            return False
        if first & 1 and not limits.retain:
            error = ProtocolError("retained messages are off here", reasons.RETAIN_NOT_SUPPORTED)
            self.context.protocol_error(connection, error)
            return False
        return True
