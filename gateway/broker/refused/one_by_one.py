"""Each packet that the plain lane takes is a unit: if it meets a defect, its half-done changes are taken back. Pure.

A defect may be one of the moment. So the first time the connection ends, with nothing of that packet acknowledged. Its
client comes back and sends it again; what meets a defect then is put on MQGATE.SET.ASIDE and acknowledged in that unit
of work: with 0x83 to a client of 5.0, plainly to others, as after a dead letter. Without that it would come for ever.
A SUBSCRIBE is refused at once, and its client goes on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.broker.publish.qos2 import StagedRuns, unpacked
from gateway.broker.refused.set_aside import ADDRESS, Aside, Record, aside_of_publication
from gateway.broker.undo import Undo
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBSCRIBE, V5, Properties
from gateway.ports.state_queues import STAGED
from gateway.session.connection import CLOSED
from gateway.session.publication import Publication
from gateway.session.staged_run import StagedRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.broker.batch import Batch
    from gateway.broker.context import Context
    from gateway.broker.publish.plain import PlainLane
    from gateway.broker.put_off import PutOff
    from gateway.session.connection import Connection

_ANSWERS = frozenset({PUBACK, PUBREC, PUBCOMP})
_TEXT = "set aside: a defect of the gateway"


def _begin(batch: Batch, connection: Connection, packet: Any) -> Undo:
    """Note what a packet may change beside the batch: what its packet identifier stands for."""
    undo, kind, session = Undo(batch), packet[0] >> 4, connection.session
    if kind == PUBLISH:
        if packet[0] & 4:
            undo.key(session.inbound, packet[2])
    elif kind == PUBREL:
        undo.key(session.inbound, packet[1])
        undo.key(session.staged_tokens, packet[1])
    elif kind in _ANSWERS:
        undo.key(session.outflow.inflight, packet[1])
    return undo


class OneByOne:
    """Takes in packets of connections that are online, one at a time."""

    def __init__(self, context: Context, plain_lane: PlainLane, put_off: PutOff) -> None:
        self.context = context
        self.plain_lane = plain_lane
        self.put_off = put_off
        self.refuse_subscribe: Callable[[Connection, Any], None] = lambda _connection, _packet: None
        """Answers a SUBSCRIBE of which nothing holds; set by the engine."""

    def packets(self, connection: Connection, packets: list[Any]) -> None:
        """Several packets of a connection, in order. What is not reached in time is put off."""
        for number, packet in enumerate(packets):
            if self.context.is_time_up():
                self.put_off.add(connection, packets[number:], slow=number > 0)
                return
            self.packet(connection, packet)
            if connection.state == CLOSED:
                return
            if connection in self.put_off:  # that one is still under way
                self.put_off.add(connection, packets[number + 1 :], slow=True)
                return

    def packet(self, connection: Connection, packet: Any) -> None:
        """One packet."""
        undo = _begin(self.context.batch, connection, packet)
        try:
            self.plain_lane.packet(connection, packet)
        except Exception as error:  # noqa: BLE001 -- a defect costs the connection that met it, not the others
            undo.take_back(self.context.batch)
            if packet[0] >> 4 == SUBSCRIBE or self.context.set_aside.is_suspect(connection):
                self._failed(connection, packet, error)
            else:
                self.context.defect(connection, error)
        else:
            undo.keep()

    def _failed(self, connection: Connection, packet: Any, error: Exception) -> None:
        kind = packet[0] >> 4
        undo = _begin(self.context.batch, connection, packet)
        if kind == PUBLISH:
            done = self._publish(connection, packet, error)
        elif kind == PUBREL and packet[1] in connection.session.inbound:
            done = self._pubrel(connection, packet[1], error)
        elif kind == SUBSCRIBE:
            done = self._subscribe(connection, packet, error)
        else:
            done = False
        if done:
            undo.keep()
        else:  # it can only end: what it sent is not acknowledged
            undo.take_back(self.context.batch)
            self.context.defect(connection, error)

    def _publish(self, connection: Connection, packet: Any, error: Exception) -> bool:
        """Set a publication aside, and acknowledge it with the batch that has it; False: it cannot be kept."""
        qos, packet_id = packet[0] >> 1 & 3, packet[2]
        if packet_id in connection.session.inbound:  # its PUBREC got lost: it is stored
            return False
        kept = partial(self._aside_of_packet, connection, packet)
        if not self.context.set_aside.keep("publication", connection.publisher.client_id, error, kept):
            return False
        if qos:
            self._answer(connection, PUBACK if qos == 1 else PUBREC, packet_id)
        return True

    def _subscribe(self, connection: Connection, packet: Any, error: Exception) -> bool:
        """Nothing of it holds, and its client is told so."""
        if connection.state == CLOSED:
            return False
        self.context.set_aside.keep("subscription", connection.publisher.client_id, error)
        self.refuse_subscribe(connection, packet)
        return True

    def _aside_of_packet(self, connection: Connection, packet: Any) -> Aside:
        first, topic, _, block, payload = packet
        properties = prop.decode(block, PUBLISH) if block else {}
        topic = self.plain_lane.resolve_alias(connection, topic, properties)
        if properties.pop(prop.TOPIC_ALIAS, None) is not None:
            block = prop.encode(properties)
        qos, retain = first >> 1 & 3, bool(first & 1)
        return aside_of_publication(connection.publisher, Publication(topic, payload, qos, retain, bytes(block)))

    def _pubrel(self, connection: Connection, packet_id: int, error: Exception) -> bool:
        """The same with a publication that is staged and cannot be released."""
        session = connection.session
        staged: Any = session.inbound.pop(packet_id)
        token = session.staged_tokens.pop(packet_id, None)
        whole = staged
        if isinstance(staged, StagedRun):
            token, staged = StagedRuns.remove_one(staged, packet_id)
        if token is None:
            return False
        if not isinstance(staged, Publication):
            staged = unpacked(staged, session.client_id)
        aside = aside_of_publication(connection.publisher, staged)

        def again() -> None:
            session.inbound[packet_id] = whole
            if not isinstance(whole, StagedRun):
                session.staged_tokens[packet_id] = token

        record = Record(STAGED, session.staged_key, b"", token, again)
        aside = aside._replace(source=(record, token), take=record.take)
        if not self.context.set_aside.keep("publication", connection.publisher.client_id, error, lambda: aside):
            return False
        self._answer(connection, PUBCOMP, packet_id)
        return True

    def _answer(self, connection: Connection, kind: int, packet_id: int) -> None:
        """When the batch is committed; if the queue refuses, nobody is told anything, and the connection ends."""
        batch, told = self.context.batch, connection.version == V5 and kind != PUBCOMP
        batch.destination(ADDRESS, batch.destinations[ADDRESS].policies[0][1]).contribute(connection)
        words: Properties = {prop.REASON_STRING: _TEXT} if told and connection.problem_information else {}
        reason = reasons.IMPLEMENTATION_SPECIFIC_ERROR if told else 0
        batch.reply(connection, writer.encode_ack(connection.version, kind, packet_id, reason, words))
