"""QoS 2 one publication at a time: PUBLISH stages it where nobody sees it, PUBREL makes it available. Pure.

What devices send in runs is staged by `Publishing.packets`, `runs` and `holding`, and released by `runs` and
`releasing`, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.broker import accounting
from gateway.broker.answers import PUBCOMPS, PUBRECS
from gateway.broker.publish.acceptance import missed_by
from gateway.errors import ProtocolError
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import PUBCOMP, PUBREC, V5, Properties
from gateway.ports.state_queues import STAGED
from gateway.session.held import Held
from gateway.session.publication import Publication
from gateway.session.record import encode_prefix
from gateway.session.session import STAGED_ID

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.publish.route import Route
    from gateway.broker.turn import Released
    from gateway.ports.batch import Token
    from gateway.session.connection import Connection
    from gateway.session.session import Plain

STORED_IDS = {number: number.to_bytes(2, "little") for number in range(65_536)}
"""Packet identifiers as they stand in stored records."""


class Staging:
    """What a client has published with QoS 2 and not released yet."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # -- PUBLISH --

    def stage(
        self, connection: Connection, route: Route, publication: Publication, packet_id: int, properties: Properties
    ) -> None:
        """Stored, not visible, then PUBREC [MQTT-4.3.3-8]. The same id again changes nothing [MQTT-4.3.3-10], unless it
        had been refused [MQTT-4.3.3-9]."""
        engine, session = self.engine, connection.session
        publishing = engine.publishing
        if packet_id not in session.inbound:
            refused = publishing.acceptance.refusal(connection, route, publication, properties)
            if refused is not None:  # 3.x is not told: its PUBREL finds nothing
                publishing.answer(connection, PUBREC, packet_id, route, refused)
                return
            session.inbound[packet_id] = publication
            puts, ids = engine.turn.staging(session)
            ids.append(packet_id)
            puts.heads.append(engine.router.state_head(encode_prefix(publication, 2, publication.retain, ())))
            puts.bodies.append(STORED_IDS[packet_id] + publication.payload)
            engine.turn.rows += 1
        if connection.version == V5 and not route.interested:
            publishing.answer(connection, PUBREC, packet_id, route, None)
        else:
            engine.turn.reply(connection, PUBRECS[packet_id])

    def head(self, route: Route, client_id: str) -> bytes:
        """The head of what is staged on a route, for publications without properties."""
        if not route.staged_head:
            publication = Publication(route.wire_topic, b"", 2, bool(route.first & 1), client_id=client_id)
            route.staged_head = self.engine.router.state_head(encode_prefix(publication, 2, publication.retain, ()))
        return route.staged_head

    def check_unreleased(self, connection: Connection) -> None:
        """3.x knows no Receive Maximum: a client that releases nothing may use its 65,535 identifiers, but no more
        memory than is stored for a session. Counted again when there are a quarter more."""
        inbound = connection.session.inbound.values()
        size = sum(map(_size_of, inbound))
        connection.unreleased = len(inbound) + len(inbound) // 4
        if size > connection.limits.max_queued_bytes:
            text = f"{size} bytes of QoS 2 that were not released: send PUBREL"
            self.engine.refuse(connection, reasons.RECEIVE_MAXIMUM_EXCEEDED, "protocol_error", text)

    # -- PUBREL --

    def pubrel(self, connection: Connection, packet: Any) -> None:
        """Unstaged and put on its destination in one unit of work, then PUBCOMP (design decision 3). [MQTT3-4.3.3-2]
        [MQTT-4.3.3-11] [MQTT-4.3.3-12] [MQTT-4.3.3-13]"""
        packet_id = packet[1]
        engine, session = self.engine, connection.session
        turn = engine.turn
        staged = session.inbound.pop(packet_id, None)
        if staged is None and packet_id in session.releasing:
            return  # its queue refuses for now: PUBCOMP follows the commit
        if staged is None:  # a resent PUBREL, or one we never saw: the answer is the same but for 5.0's reason
            reason = reasons.PACKET_IDENTIFIER_NOT_FOUND if connection.version == V5 else 0
            turn.reply(connection, writer.encode_ack(connection.version, PUBCOMP, packet_id, reason, {}))
            return
        if isinstance(staged, Held):
            token, staged = engine.holding.let_go(staged, packet_id)
        else:
            token = session.staged_tokens.pop(packet_id, None)
        if session in turn.held.moves:  # in the order in which they were released
            engine.holding.write_out(turn, session)
        if token is None:
            engine.protocol_error(connection, ProtocolError("PUBREL before PUBREC was sent"))
            return
        turn.take(STAGED, session.key, token)
        self._release(connection, staged, packet_id, token)

    def _release(self, connection: Connection, staged: Publication | Plain, packet_id: int, token: Token) -> None:
        """What was staged goes where its topic leads today."""
        engine, session = self.engine, connection.session
        turn = engine.turn
        released = (session, packet_id, token)
        plain = None if isinstance(staged, Publication) else staged
        topic, first = (plain[0], plain[2]) if plain else (staged.topic, staged.first)  # type: ignore[union-attr]
        route = connection.caches[first & 7].get(topic)
        if route is None or route.seen != route.cell[0] or connection.generation != engine.router.generation:
            route = engine.publishing.route(connection, first, topic)
        missed = 0
        if route.hot and plain is not None:
            turn.aim(route.run, route.policies[0])
            _, row = turn.put(route.run, route.head, route.tails[packet_id] + plain[1][STAGED_ID:])
            turn.contribute(route.run, connection)
            turn.released.setdefault(route.run, {})[row] = released
        elif not route.error:
            missed = self._make_available(connection, route, staged, released)
        else:  # the access list has changed since its PUBREC
            accounting.refused(engine.counters, route.rule, 2, "denied")
        if missed and connection.version == V5:
            words = engine.publishing.acceptance.words(connection, missed_by(missed))
            turn.reply(connection, writer.encode_ack(V5, PUBCOMP, packet_id, 0, words))
        else:
            turn.reply(connection, PUBCOMPS[packet_id])

    def _make_available(
        self, connection: Connection, route: Route, staged: Publication | Plain, released: Released
    ) -> int:
        """The long way; how many had no room for it."""
        publication = _unpacked(staged, connection.session.client_id) if isinstance(staged, tuple) else staged
        return self.engine.publishing.release(
            connection.publisher, route, publication, released[1], connection, released
        )


def _unpacked(staged: Plain, client_id: str) -> Publication:
    """A publication kept as a tuple, for those who need more of it."""
    topic, body, first = staged
    return Publication(topic, body[STAGED_ID:], first >> 1 & 3, bool(first & 1), client_id=client_id)


def _size_of(one: Publication | Plain | Held) -> int:
    """Payload bytes of what is staged; in a run about as many as the others have."""
    if isinstance(one, Held):
        return one.size // len(one.ids) - one.width
    return len(one[1]) - STAGED_ID if isinstance(one, tuple) else len(one.payload)
