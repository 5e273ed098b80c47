"""What a connection sends before it is online: CONNECT, and what its client sends without waiting for CONNACK. Pure.

Whoever sends it is a stranger. So what is behind a CONNECT is kept as it came, and nothing of it is decoded before its
turn, within a bound for each connection and one for all together. Where the CONNECT names an Authentication Method,
only AUTH and DISCONNECT may follow it [MQTT-3.1.2-30], and they are taken while it is being decided. Another client
that disconnects at once may have come to end the session it had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.errors import ProtocolError
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.packets import AUTH, DISCONNECT
from gateway.session.connection import AUTHENTICATING, NEW, ONLINE

if TYPE_CHECKING:
    from gateway.broker.context import Context
    from gateway.broker.sessions.connect import ConnectHandler
    from gateway.session.connection import Connection

MOST_TOGETHER = 64 << 20
"""Bytes that are kept of all connections that are not online, together."""
LEAST = 4096
"""This much of each connection is kept however much that is together: strangers must not keep others from
connecting."""
_ONLY_AUTH = "until CONNACK a client with an Authentication Method sends AUTH and DISCONNECT only"


class Early:
    """What is kept of connections that are not online."""

    def __init__(self, context: Context, connect: ConnectHandler) -> None:
        self.context = context
        self.connect = connect
        self.on_let_in: Callable[[Connection], None] = lambda _connection: None
        """Told of a client that had to wait and is online now; set by the hub."""

    def take(self, connection: Connection, data: bytes) -> bytes:
        """Take what has come; returns what is left for the session, if the client has one by now."""
        if connection.state == NEW:
            connect, data = connection.reader.first(data)
            if connect is None:
                self._keep(connection, len(connection.reader.held or b""))
                return b""
            self.context.keep_of_stranger(connection, 0)
            self.connect.connect(connection, connect)
        elif connection.refusal is None:
            connection.early_bytes += len(data)
            if connection.early_bytes > self.context.limits.max_connect:
                self._too_much(connection, "too much before CONNACK")
        if connection.state == AUTHENTICATING and connection.refusal is None:
            connection.early += data
            self._take_exchange(connection)
            self._keep(connection, len(connection.early))
            return b""
        if connection.state != ONLINE:
            return b""
        connection.sent_early |= bool(data)
        return data

    def taken(self, connection: Connection) -> bytes:
        """Take away, and return, what is kept of a client that has just come online."""
        data = bytes(connection.early)
        connection.early.clear()
        self.context.keep_of_stranger(connection, 0)
        connection.sent_early |= bool(data)
        self.on_let_in(connection)
        return data

    def _take_exchange(self, connection: Connection) -> None:
        """Take AUTH and DISCONNECT as long as one of them comes first. Where the client has been asked for AUTH,
        nothing else may be there; if it were kept, it would be in the way of the AUTH that is waited for."""
        early, reader = connection.early, connection.reader
        at_once = {AUTH, DISCONNECT} if prop.AUTHENTICATION_METHOD in connection.request.properties else {AUTH}
        while early and early[0] >> 4 in at_once and connection.state == AUTHENTICATING:
            packet, stop = reader.packet(bytes(early), 0)
            reader.held = None
            if packet is None:
                return  # not whole yet, or `reader.error` says what is wrong
            del early[:stop]
            self.connect.while_deciding(connection, packet)
        if early and connection.exchange is not None and connection.state == AUTHENTICATING:
            self.context.protocol_error(connection, ProtocolError(_ONLY_AUTH))

    def _keep(self, connection: Connection, size: int) -> None:
        waits = connection.state in {NEW, AUTHENTICATING}
        if waits and self.context.keep_of_stranger(connection, size) > MOST_TOGETHER and size > LEAST:
            self._too_much(connection, "too much before CONNACK of all clients together: come back later")

    def _too_much(self, connection: Connection, text: str) -> None:
        connection.early.clear()
        self.context.protocol_error(connection, ProtocolError(text, reasons.QUOTA_EXCEEDED))
