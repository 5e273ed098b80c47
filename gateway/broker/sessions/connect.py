"""CONNECT and AUTH: who a client is, which session it gets, what its connection may do; and clients that fall silent.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gateway.broker.context import Context
from gateway.broker.deliver.in_flight import InFlight
from gateway.broker.publish.router import Router
from gateway.broker.sessions.connack import (
    ANOTHERS,
    PROTOCOLS,
    TOO_MANY,
    Connacks,
    connack_properties,
    earlier,
    no_room,
    refusal,
)
from gateway.broker.sessions.endings import Endings
from gateway.broker.sessions.older_connections import OlderConnections
from gateway.broker.sessions.ownership import Ownership
from gateway.broker.sessions.wills import Wills
from gateway.broker.slices import TICK_SECONDS
from gateway.errors import ProtocolError
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import AUTH, DISCONNECT, V5, V31, Auth, Connack, Connect, Will
from gateway.mqtt.topics import NOBODYS
from gateway.ports.access import Verdict
from gateway.ports.counters import AuthReason
from gateway.session.connection import AUTHENTICATING, NEW, ONLINE, Connection, Publisher
from gateway.session.registry import Waiter
from gateway.session.session import Session, session_expiry

SHORT, FINE, COARSE = 10, 0.25, 1.0
"""Keep-alives up to SHORT seconds are checked every FINE seconds, the others every COARSE (the engine's tick)."""
LATE = COARSE + FINE
"""A tick that comes this long after the last one shows that the gateway has stood still."""
LOOKED_AT = 500
"""Connections looked at in each step of a look at all of them."""
LEAST_RATE = 1024
"""Bytes in a second at which a packet has to come that takes longer than silence may last."""
_FAILURES: dict[int, AuthReason] = {
    reasons.BAD_USER_NAME_OR_PASSWORD: "credentials",
    reasons.NOT_AUTHORIZED: "credentials",
    reasons.CONNECTION_RATE_EXCEEDED: "guessing",
}
"""What a refusal is counted as."""
_NO_ROOM_FOR_AUTH = "its Maximum Packet Size leaves no room for AUTH"
_NO_ROOM_FOR_CONNACK = "its Maximum Packet Size leaves no room for CONNACK"
_BUSY = "its password or token could not be checked in time: try again later"
_NO_AUTH = "no AUTH came in time"
_TRICKLES = f"a packet has not come whole within 1.5 keep-alive periods and a second for each {LEAST_RATE} bytes"
_SHOWN = 256
"""Characters of a name that a refusal shows in the log."""


class ConnectHandler:
    """Handles CONNECT and AUTH, and ends connections whose time is up."""

    def __init__(
        self,
        context: Context,
        router: Router,
        in_flight: InFlight,
        wills: Wills,
        connacks: Connacks,
        endings: Endings,
        ownership: Ownership | None,
    ) -> None:
        self.context = context
        self.router = router
        self.in_flight = in_flight
        self.wills = wills
        self.connacks = connacks
        self.endings = endings
        self.ownership = ownership
        self.older = OlderConnections(context, endings)
        self.on_online: Callable[[Connection], None] = lambda _connection: None
        """Told of a client that was let in after it had to wait; set by the engine."""
        self.on_resumed: Callable[[Connection], None] = lambda _connection: None
        """Told of a client whose CONNACK is on its way."""
        self.keep_alive = KeepAlive(context)
        self._ticked = context.scheduler.monotonic()
        """When time was last looked at."""
        self._deciding = False
        """True while a CONNECT is being decided: an answer that comes at once goes out with the batch."""

    def while_deciding(self, connection: Connection, packet: Any) -> None:
        """Take AUTH or DISCONNECT from a client whose CONNECT is being decided. Everything else it sends waits until
        then, and is dropped with a refusal [MQTT3-3.1.4-5] [MQTT5-3.1.4-6]."""
        if packet[0] >> 4 == AUTH:
            self.auth(connection, packet)
        else:
            self.endings.disconnect(connection, packet)

    # -- CONNECT --

    def connect(self, connection: Connection, packet: Any) -> None:
        """Check what can be checked here, then have access control find out who the client is."""
        context, connect = self.context, packet[1]
        if connection.state != NEW:  # [MQTT-3.1.0-2]
            context.protocol_error(connection, ProtocolError("a second CONNECT"))
            return
        context.counters.packets_in[1] += 1
        connection.version, connection.request = connect.version, connect
        connection.problem_information = connect.properties.get(prop.REQUEST_PROBLEM_INFORMATION, 1) == 1
        refused = refusal(connect, connection.limits) or no_room(
            context.limits, context.sessions, connect.client_id, connection.link.listener
        )
        if refused is not None:
            self.connacks.refuse(connection, *refused)
            return
        connection.state, connection.asked_at = AUTHENTICATING, context.scheduler.monotonic()
        context.sessions.asks(connection)
        self._deciding = True
        try:
            context.access.authenticate(connect, connection.link, lambda verdict: self._decided(connection, verdict))
        finally:
            self._deciding = False

    def _decided(self, connection: Connection, verdict: Verdict) -> None:
        """Act on the answer of authentication, which may come much later."""
        if connection.state != AUTHENTICATING:
            return
        context, connect = self.context, connection.request
        connection.exchange = verdict.exchange
        if verdict.reason != reasons.CONTINUE_AUTHENTICATION:
            context.sessions.asked(connection)
        if verdict.reason == reasons.CONTINUE_AUTHENTICATION:  # [MQTT-4.12.0-2]
            self._send_auth(connection, verdict)
        elif verdict.after:
            connection.refusal = verdict
            _forget(connection)
            patience = self._deadline(connection) - context.scheduler.monotonic()
            context.scheduler.later(max(0.0, min(verdict.after, patience)), lambda: self._refuse_now(connection))
        elif verdict.reason:
            self._refuse(connection, verdict)
        else:
            self._accept(connection, connect, verdict)
            self._take_early(connection)
        if not self._deciding:
            context.flush()

    def _refuse(self, connection: Connection, verdict: Verdict) -> None:
        """Refuse a client that is not who it says it is. [MQTT-4.12.0-1] [MQTT-4.12.0-4]"""
        failure = _FAILURES.get(verdict.reason)
        if failure is not None:
            self.context.counters.mqtt_auth_failures[connection.link.listener, failure] += 1
        self.connacks.refuse(connection, verdict.reason, verdict.text)

    def _refuse_now(self, connection: Connection) -> None:
        """Send a refusal that was held back for long enough."""
        if connection.state == AUTHENTICATING and connection.refusal is not None:
            self._refuse(connection, connection.refusal)
            self.context.flush()

    def _take_early(self, connection: Connection) -> None:
        """Have what came after CONNECT taken, once that is accepted."""
        if connection.state == ONLINE:
            self.on_online(connection)

    def _accept(
        self, connection: Connection, connect: Connect, verdict: Verdict, *, heard: bool = False, asked: bool = False
    ) -> None:
        """Give a client that is who it says it is its session. [MQTT3-3.1.4-4] [MQTT5-3.1.4-5] [MQTT-3.2.0-2] `heard`:
        all that its older connection has sent is taken; `asked`: no other gateway has its session."""
        client_id = verdict.client_id or connect.client_id
        made_up = not client_id
        if made_up:  # [MQTT-3.1.3-6]
            client_id = self.router.new_client_id()
        connection.user, connection.auth = verdict.user, verdict
        connection.publisher = Publisher(connection.link.listener, client_id, verdict.user, connect.version)
        if connect.will is not None and connect.will.topic.startswith(NOBODYS):  # that of a bridge
            self.context.denied(connection, "publish", connect.will.topic)
            connect.will = None
        elif connect.will is not None and not self._will_allowed(connection, connect.will):
            why = f"the will's topic is not allowed to this client: {connect.will.topic[:100]}"
            self.connacks.refuse(connection, reasons.NOT_AUTHORIZED, why)
            return
        session = self.context.sessions.get(client_id)
        if self.context.is_anothers(session, verdict.user, connection.link.listener):
            self.connacks.refuse(connection, *ANOTHERS)
            return
        go_on = partial(self._go_on, connection, connect, verdict)  # by then another gateway may have the session
        if not (heard or made_up) and self.older.holds_up(client_id, connection, go_on):
            return
        waiter = Waiter(connection, partial(go_on, asked=True))
        ownership = None if asked or made_up else self.ownership
        if ownership is not None and ownership.holds_up(client_id, waiter):
            return
        if self.endings.must_end_first(client_id, connect.clean_start, waiter):
            return
        if self.context.sessions.get(client_id) is None and self._all_are_full():
            self.connacks.refuse(connection, *TOO_MANY)
            return
        self._give_session(connection, connect, verdict, client_id, assigned=not connect.client_id)

    def _all_are_full(self) -> bool:
        """Whether the gateways together hold as many sessions as they may; only now is it known that this session is
        new."""
        if self.ownership is None:
            return False
        context = self.context
        elsewhere = self.ownership.census.others("clients/total", context.scheduler.monotonic())
        return len(context.sessions) + elsewhere >= context.limits.max_sessions

    def _go_on(self, connection: Connection, connect: Connect, verdict: Verdict, *, asked: bool = False) -> None:
        """Go on with a CONNECT once what it waited for has happened; its client may have left meanwhile."""
        if connection.state == AUTHENTICATING:
            self._accept(connection, connect, verdict, heard=True, asked=asked)
            self._take_early(connection)

    def _give_session(
        self, connection: Connection, connect: Connect, verdict: Verdict, client_id: str, *, assigned: bool
    ) -> None:
        context = self.context
        expiry = session_expiry(
            connect.version, connect.clean_start, connect.properties, context.limits.session_expiry_max
        )
        connection.receive_maximum = context.overruns.receive_maximum(connection, client_id, assigned=assigned)
        properties = connack_properties(connect, connection, client_id if assigned else "", expiry, verdict)
        largest = prop.number(connect.properties, prop.MAXIMUM_PACKET_SIZE)
        granted = Connack(session_present=True, reason=0, properties=properties)
        if 0 < largest < len(writer.encode_connack(connect.version, granted)):
            self.connacks.refuse(connection, reasons.PACKET_TOO_LARGE, _NO_ROOM_FOR_CONNACK)  # [MQTT5-3.1.2-24]
            return
        session, present = self._claim(connection, connect, client_id, expiry)
        connection.session, connection.state, connection.resumed = session, ONLINE, present
        connection.traced = context.traces(client_id)
        connection.reader.max_packet = connection.limits.max_packet  # known now: no longer the bound of strangers
        session.connection = connection
        listener = connection.link.listener
        if session.subscriptions and (session.user, session.listener) != (verdict.user, listener):
            self.router.touch_filters(session.subscriptions)  # what may be delivered to it is another question now
        session.user = verdict.user
        context.sessions.move(session, listener)
        self._apply_limits(connection, session, connect)
        session.be_in_turn()
        self.wills.keep(session, connect.will)
        present = present and connect.version != V31
        connack = writer.encode_connack(connect.version, Connack(present, 0, properties))
        if session.durable:
            context.persist(session)
        self.connacks.promise(connection, connack)

    def connected(self, connection: Connection) -> None:
        """CONNACK is on its way: what is in flight and what waited may follow, unless another connection has taken the
        session over."""
        listener, version = connection.link.listener, PROTOCOLS[connection.version]
        self.context.counters.mqtt_connects[listener, version, "accepted"] += 1
        self.context.on_connected(connection)
        connection.session.unconfirmed = False
        connection.last_read = self.context.scheduler.monotonic()  # its keep-alive begins
        if connection.session.connection is connection:
            self.in_flight.resume(connection.session)
            self.on_resumed(connection)

    def _will_allowed(self, connection: Connection, will: Will) -> bool:
        """A will is a publication: the access list is asked when it is deposited, and again when it is published."""
        publisher = connection.publisher
        return self.context.access.may_publish(publisher.listener, publisher.client_id, publisher.user, will.topic)

    def _claim(
        self, connection: Connection, connect: Connect, client_id: str, expiry: int
    ) -> tuple[Session, bool]:  # fmt: skip
        """The session, taken over, resumed or new, and whether it was present. [MQTT3-3.1.2-4] [MQTT5-3.1.2-5]
        [MQTT5-3.1.2-6] [MQTT3-3.2.2-1] [MQTT3-3.2.2-2] [MQTT3-3.2.2-3] [MQTT5-3.2.2-2] [MQTT5-3.2.2-3]"""
        context = self.context
        session = context.sessions.get(client_id)
        if session is not None and session.is_due(context.now):
            self.endings.expire(session)  # it ended with its expiry, not with the next tick [MQTT5-3.1.2-23]
            session = None
        older = session.connection if session is not None else None
        if older is not None:  # [MQTT3-3.1.4-2]
            self.endings.take_over(older)
            session = context.sessions.get(client_id)
        if session is not None and (connect.clean_start or session.unconfirmed):  # [MQTT3-3.1.4-3] [MQTT5-3.1.4-4]
            # the old session ends [MQTT3-3.1.2-6] [MQTT5-3.1.2-4], its delayed will is due
            self.wills.fire(session)
            self.endings.end(session)
            session = None
        present = session is not None
        connection.earlier = earlier(session, older)
        if session is None:
            session = Session(client_id, connect.version)
            session.unconfirmed = True
            context.sessions.add(session)
        session.version = connect.version
        self.wills.drop(session)  # [MQTT5-3.1.3-9]
        session.will_at, session.ends_at = 0.0, 0.0
        session.expiry = expiry
        session.durable |= session.expiry > 0  # one that is stored stays so until it ends
        return session, present

    def _apply_limits(self, connection: Connection, session: Session, connect: Connect) -> None:
        """Set what this connection may do. [MQTT-3.2.2-22] [MQTT-4.9.0-1] [MQTT-3.1.2-26] [MQTT-3.1.2-27]"""
        limits, properties = connection.limits, connect.properties
        keep_alive = connect.keep_alive
        if connect.version == V5 and limits.keep_alive_max and (not keep_alive or keep_alive > limits.keep_alive_max):
            keep_alive = limits.keep_alive_max  # [MQTT5-3.1.2-21] [MQTT-3.2.2-21], announced as Server Keep Alive
        self.keep_alive.begin(connection, keep_alive)
        window = min(prop.number(properties, prop.RECEIVE_MAXIMUM, 0xFFFF), limits.max_inflight)
        largest = prop.number(properties, prop.MAXIMUM_PACKET_SIZE, 0xFFFFFFFF)
        alias_limit = min(prop.number(properties, prop.TOPIC_ALIAS_MAXIMUM), limits.topic_aliases)
        session.outflow.connected(connect.version, window, largest, alias_limit)
        connection.carried = set(session.inbound) or None
        connection.unreleased = max(limits.receive_maximum, len(session.inbound))

    # -- AUTH --

    def auth(self, connection: Connection, packet: Any) -> None:
        """Take a step of enhanced authentication, or of re-authentication on a live connection [MQTT-4.12.1-1], which
        starts over whenever the client begins it."""
        context, connect = self.context, connection.request
        method = packet[1].properties.get(prop.AUTHENTICATION_METHOD)
        agreed = connect.properties.get(prop.AUTHENTICATION_METHOD) if connect is not None else None
        if connection.refusal is not None:
            return  # it is on its way
        if packet[1].reason == reasons.REAUTHENTICATE and connection.state == ONLINE:
            connection.exchange, fits = None, True
        else:  # [MQTT-4.12.0-3]
            fits = packet[1].reason == reasons.CONTINUE_AUTHENTICATION and connection.exchange is not None
        if not fits or connection.version != V5 or agreed is None or method != agreed:
            text = "AUTH continues an exchange (0x18) or begins one (0x19), with the method that CONNECT named"
            context.protocol_error(connection, ProtocolError(text))  # [MQTT-4.12.0-7]
            return
        data = packet[1].properties.get(prop.AUTHENTICATION_DATA, b"")
        if connection.state == AUTHENTICATING:
            context.access.exchange(connection, data, lambda verdict: self._decided(connection, verdict))
        elif connection.proving:
            connection.proof_behind = data
        else:
            self._prove(connection, data)

    def _prove(self, connection: Connection, data: bytes) -> None:
        """Have one proof checked at a time: of two tokens the one that came last holds, whichever took longer to
        check."""
        connection.proving = True
        connection.proving_since = connection.proving_since or self.context.scheduler.monotonic()
        self.context.access.exchange(connection, data, lambda verdict: self._decided_again(connection, verdict))

    def _decided_again(self, connection: Connection, verdict: Verdict) -> None:
        """Act on the answer to a re-authentication: success keeps the connection, failure ends it [MQTT-4.12.1-2]."""
        if connection.state != ONLINE:
            return
        connection.proving, connection.exchange = False, verdict.exchange
        if verdict.reason != reasons.CONTINUE_AUTHENTICATION:
            connection.proving_since = 0.0
        if verdict.after:
            connection.refusal = verdict
            at_once = verdict._replace(after=0.0)
            self.context.scheduler.later(verdict.after, lambda: self._decided_again(connection, at_once))
        elif verdict.reason in {reasons.SUCCESS, reasons.CONTINUE_AUTHENTICATION}:
            self._send_auth(connection, verdict)
            if not verdict.reason:
                connection.auth = verdict
            behind, connection.proof_behind = connection.proof_behind, None
            if behind is not None and connection.state == ONLINE:
                self._prove(connection, behind)
        else:
            told = reasons.is_valid(DISCONNECT, verdict.reason, from_server=True)  # some are CONNACK's alone
            reason = verdict.reason if told else reasons.NOT_AUTHORIZED
            self.context.refuse(connection, reason, "not_authorized", verdict.text)
        self.context.flush()

    def _send_auth(self, connection: Connection, verdict: Verdict) -> None:
        """Send AUTH to a client that takes a packet of its size [MQTT5-3.1.2-24]; end the connection of one that does
        not."""
        connect = connection.request
        data = writer.encode_auth(_auth(verdict, connect))
        if len(data) <= connect.properties.get(prop.MAXIMUM_PACKET_SIZE, len(data)):
            self.context.send(connection, data)
        elif connection.state == ONLINE:
            self.context.refuse(connection, reasons.NOT_AUTHORIZED, "packet_too_large", _NO_ROOM_FOR_AUTH)
        else:
            self.connacks.refuse(connection, reasons.NOT_AUTHORIZED, _NO_ROOM_FOR_AUTH)

    # -- time --

    def tick(self, now: float) -> Iterator[None]:
        """End connections that are silent, slow to send CONNECT, or whose token or certificate has expired, and close
        sockets that have waited too long for a commit after their client's end. One step for each connection that is
        ended, and for some that are not. After the gateway itself has stood still, only those count as too slow that
        were so before: what the others have sent meanwhile is read first."""
        context, before, self._ticked = self.context, self._ticked, now
        due = before if now - before > LATE else now
        for number, connection in enumerate(list(context.connections), 1):
            if number % LOOKED_AT == 0:
                yield
            if connection.state == ONLINE:
                if self.connacks.overdue(connection, due):
                    self.connacks.withdraw(connection)
                    yield
                    continue
                if self.keep_alive.check(connection, now):
                    yield
                    continue
                ended = _ended(connection, context.now) or self._unproved(connection, due)
                if ended:
                    reason = reasons.SERVER_BUSY if ended == _BUSY else reasons.NOT_AUTHORIZED
                    context.refuse(connection, reason, "not_authorized", ended)
                    yield
            elif due > self._deadline(connection) and not self._is_ours(connection):
                self._too_late(connection)
                yield
        for connection, since in list(context.departing.items()):
            if due - since <= context.limits.patience:
                break
            del context.departing[connection]
            connection.leaving = False
            context.behind_connack(connection)
            connection.link.close()
            yield

    def _deadline(self, connection: Connection) -> float:
        """Until when a client is waited for; or, while the gateway has to decide, until when the client waits."""
        limits = self.context.limits
        if connection.state == AUTHENTICATING and connection.exchange is None:
            return connection.asked_at + limits.patience
        return connection.connected_at + limits.connect_timeout

    def _unproved(self, connection: Connection, due: float) -> str:
        """Why a re-authentication has failed: the client, or the gateway, has not done its part within the time that a
        CONNECT has, however often the client begins anew [MQTT-4.12.1-2]. Empty: there is time left."""
        limits, since = self.context.limits, connection.proving_since
        if not since or due <= since + (limits.patience if connection.proving else limits.connect_timeout):
            return ""
        if connection.proving:
            return _BUSY
        return "" if connection.link.unread() else _NO_AUTH

    def _is_ours(self, connection: Connection) -> bool:
        """Whether a connection without a CONNECT waits for the gateway, which has not read what it sent or has put it
        off."""
        return connection.state == NEW and not self.endings.is_heard(connection)

    def _too_late(self, connection: Connection) -> None:
        """End a connection of which no CONNECT came, or whose CONNECT could not be decided, within the connect timeout.
        A client that has sent a CONNECT is answered."""
        if connection.refusal is not None:
            self._refuse_now(connection)
            return
        if connection.publisher.client_id:  # it is who it says
            text = "its session cannot be read now: the queue manager, or the gateway that has it, does not answer"
            self.connacks.refuse(connection, reasons.SERVER_UNAVAILABLE, text)
            return
        if connection.state == AUTHENTICATING:
            busy = connection.exchange is None
            reason = reasons.SERVER_BUSY if busy else reasons.NOT_AUTHORIZED
            self.connacks.refuse(connection, reason, _BUSY if busy else _NO_AUTH)
            return
        connects = self.context.counters.mqtt_connects
        connects[connection.link.listener, PROTOCOLS.get(connection.version, "3.1.1"), "timeout"] += 1
        self.context.close(connection, "other", "no CONNECT in time")


class KeepAlive:
    """Ends connections whose keep-alive has run out: between one and one and a half periods [MQTT3-3.1.2-24]
    [MQTT5-3.1.2-22]. It is packets that count; a long one may take as much longer as a slow link needs for it, since
    its client can send no PINGREQ meanwhile."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._short: set[Connection] = set()

    def begin(self, connection: Connection, seconds: int) -> None:
        """Set the keep-alive of a connection; 0 never ends it."""
        if not seconds:
            connection.keep_alive = 0.0
            return
        # Not later than one and a half periods: the step of the clock that looks is taken off.
        connection.keep_alive = seconds * 1.5 - (FINE if seconds <= SHORT else COARSE)
        if seconds <= SHORT:
            if not self._short:
                self.context.scheduler.later(FINE, self._look)
            self._short.add(connection)

    def _look(self) -> None:
        """Look at the clients with a short keep-alive; called every quarter of a second while there are any."""
        context, now = self.context, self.context.scheduler.monotonic()
        context.now = context.scheduler.now()
        context.slices.run("short keep-alives", lambda: self._checked(now), TICK_SECONDS)
        if self._short:
            context.scheduler.later(FINE, self._look)
        context.flush()

    def _checked(self, now: float) -> Iterator[None]:
        for number, connection in enumerate(list(self._short), 1):
            if number % LOOKED_AT == 0:
                yield
            if connection.state != ONLINE or self.check(connection, now):
                self._short.discard(connection)
                yield

    def check(self, connection: Connection, now: float) -> bool:
        """Whether the connection was silent for too long, and has been ended. Before CONNACK the silence is the
        gateway's; so it is while something from the client lies unread, because the gateway stood still or reads it
        later."""
        if not connection.keep_alive:
            return False
        silent = connection.keep_alive < now - connection.last_read
        trickles = connection.reader.held is not None and self._trickles(connection, now)
        if (silent or trickles) and connection.connack_sent and not connection.link.unread():
            text = "silent for 1.5 keep-alive periods" if silent else _TRICKLES
            self.context.refuse(connection, reasons.KEEP_ALIVE_TIMEOUT, "keepalive", text)
            return True
        return False

    def _trickles(self, connection: Connection, now: float) -> bool:
        """Whether the rest of a packet does not come in time. What lies unread is not the client's delay, nor is the
        time between two looks beyond the usual."""
        reader = connection.reader
        number, waited, looked = connection.unfinished
        if number != reader.finished or connection.link.unread():
            number, waited, looked = reader.finished, 0.0, now
        waited += min(now - looked, LATE)
        connection.unfinished = number, waited, now
        return waited > connection.keep_alive + len(reader.held or b"") / LEAST_RATE


def _ended(connection: Connection, now: float) -> str:
    """Why what a client has proved no longer holds; empty if it does."""
    if 0 < connection.link.certificate_ends < now:
        return "its certificate has ended"
    if connection.auth is None or not 0 < connection.auth.expires < now:
        return ""
    return "the token has expired" if connection.auth.method == "jwt" else "its login has ended"


def _forget(connection: Connection) -> None:
    """Keep of a CONNECT that is refused later only what the refusal and the log need: strangers may have sent much."""
    connect = connection.request
    connection.early.clear()
    largest = connect.properties.get(prop.MAXIMUM_PACKET_SIZE)
    connect.properties = {} if largest is None else {prop.MAXIMUM_PACKET_SIZE: largest}
    connect.client_id, connect.will, connect.password = connect.client_id[:_SHOWN], None, None
    if connect.username is not None:
        connect.username = connect.username[:_SHOWN]


def _auth(verdict: Verdict, connect: Connect) -> Auth:
    properties = {prop.AUTHENTICATION_METHOD: connect.properties[prop.AUTHENTICATION_METHOD]}
    if verdict.data:
        properties[prop.AUTHENTICATION_DATA] = verdict.data
    return Auth(verdict.reason, properties)
