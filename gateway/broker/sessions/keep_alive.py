"""Clients that have fallen silent: found between one and one and a half keep-alive periods. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.mqtt import reasons
from gateway.session.connection import ONLINE, Connection

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

SHORT, FINE, COARSE = 10, 0.25, 1.0
"""Keep-alives up to SHORT seconds are checked every FINE seconds, the others every COARSE (the engine's tick)."""


class KeepAlive:
    """Ends connections whose keep-alive has run out [MQTT3-3.1.2-24] [MQTT5-3.1.2-22]."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._short: set[Connection] = set()

    def begin(self, connection: Connection, seconds: int) -> None:
        """The keep-alive that holds for a connection; 0 never ends it."""
        if not seconds:
            connection.keep_alive = 0.0
            return
        # Not later than one and a half periods: the step of the clock that looks is taken off.
        connection.keep_alive = seconds * 1.5 - (FINE if seconds <= SHORT else COARSE)
        if seconds <= SHORT:
            if not self._short:
                self.engine.scheduler.later(FINE, self.look)
            self._short.add(connection)

    def look(self) -> None:
        """Every quarter of a second while a client has a short keep-alive."""
        engine, now = self.engine, self.engine.scheduler.monotonic()
        engine.now = engine.scheduler.now()
        for connection in list(self._short):
            if connection.state != ONLINE or self.check(connection, now):
                self._short.discard(connection)
        if self._short:
            engine.scheduler.later(FINE, self.look)
        engine.flush()

    def check(self, connection: Connection, now: float) -> bool:
        """Whether the connection was silent for too long, and has been ended. Before CONNACK silence is ours."""
        silent = 0 < connection.keep_alive < now - connection.last_read
        if silent and connection.greeted:
            text = "silent for 1.5 keep-alive periods"
            self.engine.refuse(connection, reasons.KEEP_ALIVE_TIMEOUT, "keepalive", text)
            return True
        return False
