"""CONNECT, DISCONNECT, AUTH and everything that ends a connection: identity, take-over, wills, session expiry. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.broker.sessions import greeting, sharing, wills
from gateway.broker.sessions.connack import RESULTS, connack_properties, no_room, refusal
from gateway.broker.sessions.ending import Endings
from gateway.broker.sessions.keep_alive import KeepAlive
from gateway.errors import ProtocolError
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import V5, V31, Auth, Connack, Connect, Will
from gateway.ports.access import Verdict
from gateway.ports.counters import DisconnectReason, Protocol
from gateway.ports.state_queues import OUT, SESSIONS, STAGED
from gateway.session.connection import AUTHENTICATING, CLOSED, NEW, ONLINE, Connection, Publisher
from gateway.session.record import encode_json
from gateway.session.registry import Waiter
from gateway.session.session import Session, session_expiry

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

PROTOCOLS: dict[int, Protocol] = {3: "3.1", 4: "3.1.1", 5: "5.0"}


class Connecting:
    """The beginning and the end of connections."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._asking = False
        """True while a CONNECT is being decided: an answer that comes at once goes out with the batch."""
        self.keep_alive = KeepAlive(engine)
        self.endings = Endings(engine)

    # -- CONNECT -------------------------------------------------------------------------------------------------------

    def connect(self, connection: Connection, packet: Any) -> None:
        """Check what can be checked here, then ask who it is."""
        engine, connect = self.engine, packet[1]
        if connection.state != NEW:  # [MQTT-3.1.0-2]
            engine.protocol_error(connection, ProtocolError("a second CONNECT"))
            return
        engine.counters.packets_in[1] += 1
        connection.version, connection.request = connect.version, connect
        connection.problem_information = connect.properties.get(prop.REQUEST_PROBLEM_INFORMATION, 1) == 1
        found = refusal(connect, connection.limits) or no_room(
            engine.limits, engine.sessions, connect.client_id, connection.link.listener
        )
        if found is not None:
            self.refuse_connect(connection, *found)
            return
        connection.state = AUTHENTICATING
        self._asking = True
        try:
            engine.access.authenticate(connect, connection.link, lambda verdict: self.decided(connection, verdict))
        finally:
            self._asking = False

    def refuse_connect(
        self, connection: Connection, reason: int, text: str, malformed: bool = False, *, silently: bool = False
    ) -> None:
        """CONNACK with the reason, then close; a refused CONNECT publishes no will. [MQTT3-3.2.2-4] [MQTT3-3.2.2-5]
        [MQTT3-3.2.2-6] [MQTT5-3.2.2-6] [MQTT-3.2.2-7] [MQTT5-3.1.4-2] [MQTT-4.13.2-1]"""
        engine = self.engine
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
            self.send_refusal(connection, version or 4, code, text)
        result = RESULTS.get(reason, "malformed" if malformed else "other")
        engine.counters.mqtt_connects[connection.link.listener, PROTOCOLS.get(version, "3.1.1"), result] += 1
        connection.rejected = True
        engine.close(connection, "protocol_error" if malformed else "not_authorized", text)

    def refuse_malformed(self, connection: Connection, error: ProtocolError) -> None:
        """What came before CONNACK breaks the protocol."""
        self.refuse_connect(connection, error.reason, str(error), malformed=True)

    def send_refusal(self, connection: Connection, version: int, code: int, text: str) -> None:
        """The CONNACK, without its text if the client takes no packet of that size [MQTT-3.2.2-19], else not at all."""
        largest = 0xFFFFFFFF
        if connection.request is not None:
            largest = connection.request.properties.get(prop.MAXIMUM_PACKET_SIZE, largest)
        with_text: dict[int, Any] = {prop.REASON_STRING: text} if version == V5 and text else {}
        for properties in (with_text, {}):
            connack = writer.encode_connack(version, Connack(False, code, properties))  # noqa: FBT003 -- not present
            if len(connack) <= largest:
                self.engine.counters.packets_out[2] += 1
                self.engine.send_counted(connection, connack)  # in no batch: nothing is promised
                return

    def decided(self, connection: Connection, verdict: Verdict) -> None:
        """Authentication has answered (perhaps much later)."""
        if connection.state != AUTHENTICATING:
            return
        engine, connect = self.engine, connection.request
        if verdict.reason == reasons.CONTINUE_AUTHENTICATION:  # [MQTT-4.12.0-2]
            engine.send(connection, writer.encode_auth(_auth(verdict, connect)))
        elif verdict.reason:  # [MQTT-4.12.0-1] [MQTT-4.12.0-4]
            if verdict.reason in {reasons.BAD_USER_NAME_OR_PASSWORD, reasons.NOT_AUTHORIZED}:
                engine.counters.mqtt_auth_failures[connection.link.listener, "credentials"] += 1
            self.refuse_connect(connection, verdict.reason, verdict.text)
        else:
            self.accept(connection, connect, verdict)
            self.release(connection)
        if not self._asking:
            engine.flush()

    def release(self, connection: Connection) -> None:
        """What came behind CONNECT, once it is accepted."""
        if connection.state == ONLINE and connection.held:
            held, connection.held = connection.held, []
            connection.eager = True
            self.engine.plain_lane.packets(connection, held)

    def accept(self, connection: Connection, connect: Connect, verdict: Verdict, *, asked: bool = False) -> None:
        """The client is who it says: give it its session. [MQTT3-3.1.4-4] [MQTT5-3.1.4-5] [MQTT-3.2.0-2] `asked`: no
        other gateway has it."""
        engine = self.engine
        client_id = verdict.client_id or connect.client_id
        assigned = not client_id
        if assigned:  # [MQTT-3.1.3-6]
            client_id = engine.router.new_client_id()
        connection.user = verdict.user
        connection.publisher = Publisher(connection.link.listener, client_id, verdict.user, connect.version)
        if connect.will is not None and not self.will_allowed(connection, connect.will):
            self.refuse_connect(connection, reasons.NOT_AUTHORIZED, "the will's topic is not allowed to this client")
            return
        owning = None if asked or assigned else engine.owning
        if owning is not None and owning.holds_up(connection, connect, verdict, client_id):
            return
        again = Waiter(connection, lambda: self.go_on(connection, connect, verdict))
        if self.endings.first(client_id, connect.clean_start, again):
            return
        session, present = self.claim(connection, connect, client_id)
        connection.session, connection.state = session, ONLINE
        connection.reader.max_packet = connection.limits.max_packet  # known now: no longer the bound of strangers
        session.connection = connection
        listener = connection.link.listener
        if session.subscriptions and (session.user, session.listener) != (verdict.user, listener):
            engine.router.touch()  # what may be delivered to it is another question now
        session.user = verdict.user
        engine.sessions.move(session, listener)
        self.apply_limits(connection, session, connect)
        wills.keep(self.engine, session, connect.will)
        connection.auth = verdict
        properties = connack_properties(
            connect, connection.limits, client_id if assigned else "", session.expiry, verdict
        )
        present = present and connect.version != V31
        connack = writer.encode_connack(connect.version, Connack(present, 0, properties))
        if session.durable:
            self.persist(session)
        if len(connack) > session.outflow.max_packet:  # [MQTT5-3.1.2-24]: nothing can be said to such a client
            wills.drop(self.engine, session)
            engine.close(connection, "packet_too_large", "its Maximum Packet Size leaves no room for CONNACK")
            return
        greeting.promised(engine, connection, connack)

    def go_on(self, connection: Connection, connect: Connect, verdict: Verdict) -> None:
        """What a CONNECT had to wait for is there."""
        if connection.state == AUTHENTICATING:
            self.accept(connection, connect, verdict, asked=True)
            self.release(connection)

    def welcome(self, connection: Connection) -> None:
        """CONNACK is on its way: what is in flight and what waited may follow, unless another one has taken over."""
        listener, version = connection.link.listener, PROTOCOLS[connection.version]
        self.engine.counters.mqtt_connects[listener, version, "accepted"] += 1
        connection.session.untold = False
        connection.last_read = self.engine.scheduler.monotonic()  # its keep-alive begins
        if connection.session.connection is connection:
            self.engine.in_flight.resume(connection.session)

    def will_allowed(self, connection: Connection, will: Will) -> bool:
        """A will is a publication: the access list is asked when it is deposited, and again when it is published."""
        publisher = connection.publisher
        return self.engine.access.may_publish(publisher.listener, publisher.client_id, publisher.user, will.topic)

    def claim(self, connection: Connection, connect: Connect, client_id: str) -> tuple[Session, bool]:
        """The session, taken over, resumed or new, and session present. [MQTT3-3.1.2-4] [MQTT5-3.1.2-5] [MQTT5-3.1.2-6]
        [MQTT3-3.2.2-1] [MQTT3-3.2.2-2] [MQTT3-3.2.2-3] [MQTT5-3.2.2-2] [MQTT5-3.2.2-3]"""
        engine = self.engine
        session = engine.sessions.get(client_id)
        if session is not None and session.is_due(engine.now):
            self.endings.due(session)  # over since its expiry, not since the next tick [MQTT5-3.1.2-23]
            session = None
        older = session.connection if session is not None else None
        if older is not None:  # [MQTT3-3.1.4-2]
            self.take_over(older)
            session = engine.sessions.get(client_id)
        if session is not None and (connect.clean_start or session.untold):  # [MQTT3-3.1.4-3] [MQTT5-3.1.4-4]
            wills.fire(
                self.engine, session
            )  # the old session ends [MQTT3-3.1.2-6] [MQTT5-3.1.2-4], its delayed will is due
            self.end(session)
            session = None
        present = session is not None
        connection.earlier = greeting.earlier(session, older)
        if session is None:
            session = Session(client_id, connect.version)
            session.untold = True
            engine.sessions.add(session)
        session.version = connect.version
        wills.drop(self.engine, session)  # [MQTT5-3.1.3-9]
        session.will_at, session.ends_at = 0.0, 0.0
        session.expiry = session_expiry(
            connect.version, connect.clean_start, connect.properties, engine.limits.session_expiry_max
        )
        session.durable |= session.expiry > 0  # one that is stored stays so until it ends
        return session, present

    def take_over(self, old: Connection) -> None:
        """[MQTT5-3.1.4-3]: the same client connects again, the older connection goes."""
        self.engine.refuse(old, reasons.SESSION_TAKEN_OVER, "taken_over", "the same client connected again")

    def apply_limits(self, connection: Connection, session: Session, connect: Connect) -> None:
        """What this connection may do. [MQTT-3.2.2-22] [MQTT-4.9.0-1] [MQTT-3.1.2-26] [MQTT-3.1.2-27]"""
        limits, properties = connection.limits, connect.properties
        keep_alive = connect.keep_alive
        if connect.version == V5 and limits.keep_alive_max and (not keep_alive or keep_alive > limits.keep_alive_max):
            keep_alive = limits.keep_alive_max  # [MQTT5-3.1.2-21] [MQTT-3.2.2-21], announced as Server Keep Alive
        self.keep_alive.begin(connection, keep_alive)
        receive_maximum = properties.get(prop.RECEIVE_MAXIMUM, 0xFFFF)
        window = min(int(receive_maximum), limits.max_inflight) if isinstance(receive_maximum, int) else 1
        largest = properties.get(prop.MAXIMUM_PACKET_SIZE, 0xFFFFFFFF)
        aliases = properties.get(prop.TOPIC_ALIAS_MAXIMUM, 0)
        alias_limit = min(int(aliases), limits.topic_aliases) if isinstance(aliases, int) else 0
        largest = largest if isinstance(largest, int) else 0xFFFFFFFF
        session.outflow.connected(connect.version, window, largest, alias_limit)
        connection.unreleased = max(limits.receive_maximum, len(session.inbound))

    def persist(self, session: Session) -> None:
        """The session's record, as it is now, with the open batch."""
        record = session.to_record(self.engine.now)
        if self.engine.owning is not None:
            record |= self.engine.owning.name(session)
        self.engine.batch.replace(SESSIONS, session.key, encode_json(record))

    # -- AUTH ----------------------------------------------------------------------------------------------------------

    def auth(self, connection: Connection, packet: Any) -> None:
        """A step of enhanced authentication, or re-authentication on a live connection [MQTT-4.12.1-1]."""
        engine, connect = self.engine, connection.request
        method = packet[1].properties.get(prop.AUTHENTICATION_METHOD)
        agreed = connect.properties.get(prop.AUTHENTICATION_METHOD) if connect is not None else None
        wanted = {reasons.CONTINUE_AUTHENTICATION, reasons.REAUTHENTICATE}
        if connection.state == AUTHENTICATING:
            wanted = {reasons.CONTINUE_AUTHENTICATION}  # [MQTT-4.12.0-3]
        if packet[1].reason not in wanted or connection.version != V5 or agreed is None or method != agreed:
            text = "AUTH continues an exchange (0x18) or begins one (0x19), with the method that CONNECT named"
            engine.protocol_error(connection, ProtocolError(text))  # [MQTT-4.12.0-7]
            return
        data = packet[1].properties.get(prop.AUTHENTICATION_DATA, b"")
        if connection.state == AUTHENTICATING:
            engine.access.exchange(connection, data, lambda verdict: self.decided(connection, verdict))
        else:
            engine.access.exchange(connection, data, lambda verdict: self.re_decided(connection, verdict))

    def re_decided(self, connection: Connection, verdict: Verdict) -> None:
        """Re-authentication: success keeps the connection, failure ends it [MQTT-4.12.1-2]."""
        if connection.state != ONLINE:
            return
        if verdict.reason in {reasons.SUCCESS, reasons.CONTINUE_AUTHENTICATION}:
            self.engine.send(connection, writer.encode_auth(_auth(verdict, connection.request)))
            if not verdict.reason:
                connection.auth = verdict
        else:
            self.engine.refuse(connection, verdict.reason, "not_authorized", verdict.text)
        self.engine.flush()

    # -- the end --

    def disconnect(self, connection: Connection, packet: Any) -> None:
        """The client leaves: its will goes unpublished, unless it says otherwise [MQTT-3.14.4-3]."""
        engine, session, record = self.engine, connection.session, packet[1]
        if connection.state == ONLINE:
            wanted = record.properties.get(prop.SESSION_EXPIRY_INTERVAL)
            if isinstance(wanted, int):
                if session.expiry == 0 and wanted:
                    engine.protocol_error(
                        connection, ProtocolError("Session Expiry Interval set at DISCONNECT, 0 at CONNECT")
                    )
                    return
                session.expiry = min(wanted, engine.limits.session_expiry_max)
            if record.reason != reasons.DISCONNECT_WITH_WILL:
                wills.drop(self.engine, session)
        engine.leave_when_committed(connection)

    def ended(self, connection: Connection, why: DisconnectReason) -> None:
        """The connection is over, for whatever reason: only now may its session end [MQTT-4.1.0-1] [MQTT3-4.1.0-2]."""
        engine = self.engine
        if connection.state == CLOSED:
            return
        was_online = connection.state == ONLINE
        connection.state = CLOSED
        connection.out.clear()
        engine.connections.discard(connection)
        engine.parking.forget(connection)
        greeting.forget(engine, connection)
        engine.counters.mqtt_disconnects[connection.link.listener, why] += 1
        engine.on_end(connection, why)
        session = connection.session
        if not was_online or session.connection is not connection:
            return
        session.connection = None
        session.outflow.drop_memory()
        wills.schedule(self.engine, session)
        if session.expiry == 0:
            wills.fire(self.engine, session)
            self.endings.when_known(session)
        else:
            engine.sessions.watch(session, engine.now)
            self.persist(session)

    def end(self, session: Session) -> None:
        """The session is over: nothing of it is kept but what it had retained [MQTT3-3.1.2-7] [MQTT5-4.1.0-2]."""
        engine = self.engine
        left = sharing.orphans(engine, session, self.endings.stored)
        engine.subscribing.drop_all(session)
        engine.sessions.remove(session)
        for token in session.staged_tokens.values():
            engine.batch.take(STAGED, session.key, token)
        engine.staged_runs.ended(session)
        session.over = True
        if session.durable:
            engine.batch.replace(SESSIONS, session.key, None)
        if session.durable or session.stored:  # what was stored while it was durable goes too
            self.purge(session)
        sharing.hand_over(engine, left)

    def purge(self, session: Session) -> None:
        """Forget what is stored for it."""
        engine = self.engine
        going = engine.being_taken(OUT, session.key)
        for stored in self.endings.stored(session):
            if stored.token not in going:
                engine.batch.take("MQGATE.OUT", session.key, stored.token)
                engine.reports.forgotten(stored)
        engine.stored.emptied(session)

    # -- time --

    def too_late(self, connection: Connection) -> None:
        """No CONNECT came, or what has to be known for it is not: nobody waits for ever."""
        if connection.publisher.client_id:  # it is who it says
            text = "its session cannot be read now: the queue manager, or the gateway that has it, does not answer"
            self.refuse_connect(connection, reasons.SERVER_UNAVAILABLE, text)
            return
        result = self.engine.counters.mqtt_connects
        result[connection.link.listener, PROTOCOLS.get(connection.version, "3.1.1"), "timeout"] += 1
        self.engine.close(connection, "other", "no CONNECT in time")

    def tick(self, now: float) -> None:
        """Silence, slow CONNECTs, expired tokens; sessions and wills that are due."""
        engine = self.engine
        for connection in list(engine.connections):
            if connection.state == ONLINE:
                if greeting.overdue(engine, connection, now):
                    greeting.withdraw(engine, connection)
                    continue
                if self.keep_alive.check(connection, now):
                    continue
                if connection.auth is not None and 0 < connection.auth.expires < engine.now:
                    engine.refuse(connection, reasons.NOT_AUTHORIZED, "not_authorized", "the token has expired")
            elif now - connection.connected_at > engine.limits.connect_timeout:
                self.too_late(connection)
        for session in engine.sessions.due(engine.now):
            if session.will_at and session.will_at <= engine.now:
                wills.fire(self.engine, session)
            if session.ends_at and session.ends_at <= engine.now:
                self.endings.due(session)


def _auth(verdict: Verdict, connect: Connect) -> Auth:
    properties = {prop.AUTHENTICATION_METHOD: connect.properties[prop.AUTHENTICATION_METHOD]}
    if verdict.data:
        properties[prop.AUTHENTICATION_DATA] = verdict.data
    return Auth(verdict.reason, properties)
