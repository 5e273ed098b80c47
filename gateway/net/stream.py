"""MQTT over Twisted's transports: TLS, and WebSocket with and without it. The same broker behind them as on the hub."""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from gateway.net.admission import Admission, Listening
from gateway.net.hub import Hub
from gateway.net.rates import Pair
from gateway.net.tls import user_of
from gateway.net.websocket import WebSocketServer
from gateway.session.connection import Connection

SLICE = 4096
SLICE_SECONDS = 0.005
"""Tiny WebSocket frames cost more than their bytes: a chunk of them is taken in by slices, between other clients."""


class StreamProtocol(Protocol):
    """One connection on a Twisted transport: the broker's `Link`."""

    def __init__(self, admission: Admission, hub: Hub, listening: Listening) -> None:
        self.admission = admission
        self.hub = hub
        self.engine = hub.engine
        self.listening = listening
        self.listener = listening.settings.name
        self.peer = ""
        self.certificate_user: str | None = None
        self.connection: Connection | None = None
        self.closed = False
        self.buckets: Pair | None = None
        self._websocket: WebSocketServer | None = None
        self._greeted = False
        self._unread = b""
        self._end: Any = None

    def connectionMade(self) -> None:
        """A connection: the handshakes of TLS and WebSocket are still to come."""
        transport: Any = self.transport
        address = transport.getPeer()
        self.peer = f"{address.host}:{address.port}"
        transport.setTcpNoDelay(1)
        settings = self.listening.settings
        if settings.websocket is not None:
            self._websocket = WebSocketServer(settings.websocket.path, settings.websocket.origins)
        self.connection = self.admission.take(self.listening, self)
        if self.connection is None:
            transport.abortConnection()
            return
        self.hub.streams.add(self)
        if self.hub.paused:
            self.pause(paused=True)

    def dataReceived(self, data: bytes) -> None:
        """Bytes of MQTT, or of WebSocket frames."""
        if self.connection is None or self.closed:
            return
        if not self._greeted:
            self._greeted = True
            if self.listening.settings.tls is not None:
                self._read_certificate()
        try:
            if self._unread or self._websocket is not None:
                waiting = bool(self._unread)
                self._unread += data
                if not waiting:
                    self._work_off()
            else:
                self._received(data)
            self.engine.flush()
        except Exception as error:  # noqa: BLE001 -- a defect costs the connection that met it, not the others
            self.hub.on_defect(error, self.peer)
            self.abort()

    def _received(self, data: bytes) -> None:
        connection, hub = self.connection, self.hub
        if connection is None or not data:
            return
        if hub.rates.limited:
            hub.receive_slowly(self, connection, data)
        else:
            self.engine.received(connection, data)

    def _work_off(self) -> None:
        """Take in frames, a slice at a time; after SLICE_SECONDS the reactor serves the other clients first."""
        seconds = IReactorTime(self.hub.reactor).seconds
        until = seconds() + SLICE_SECONDS
        while self._unread and not self.closed:
            piece, self._unread = self._unread[:SLICE], self._unread[SLICE:]
            self._frames(piece)
            if self._unread and seconds() > until:
                self.pause(paused=True)
                IReactorTime(self.hub.reactor).callLater(0, self._go_on)
                return

    def _go_on(self) -> None:
        if self.closed:
            return
        try:
            self._work_off()
            self.engine.flush()
            if not self._unread:
                self.pause(paused=self.hub.paused)
        except Exception as error:  # noqa: BLE001 -- as in dataReceived
            self.hub.on_defect(error, self.peer)
            self.abort()

    def _frames(self, data: bytes) -> None:
        assert self._websocket is not None  # noqa: S101 -- only called then
        answer, chunks, over = self._websocket.receive(data)
        if answer:
            self._transport().write(answer)
            if self.buffered() > self.engine.limits.max_outgoing_bytes:
                self.abort()  # it sends pings and does not read the pongs
                return
        if chunks:
            self._received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if over:
            self._unread = b""
            self._leave()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The peer is gone."""
        self.closed = True
        self._unread = b""
        self.hub.streams.discard(self)
        if self._end is not None and self._end.active():
            self._end.cancel()
        if self.connection is not None:
            self.admission.gone(self.listening, self)
            if not self._greeted and isinstance(reason.value, SSL.Error):
                self._handshake_failed(reason.value)
            self.engine.closed(self.connection)
            self.engine.flush()

    def _handshake_failed(self, error: SSL.Error) -> None:
        """The TLS handshake failed: one side did not accept the certificate, the version or the ciphers."""
        found = error.args[0] if error.args and isinstance(error.args[0], list) else []
        text = "; ".join(str(part[-1]) for part in found) or "the handshake was broken off"
        if "certificate" in text:
            self.engine.counters.mqtt_auth_failures[self.listener, "certificate"] += 1
        self.admission.refused(self.listener, self.peer, f"TLS: {text}")

    def _transport(self) -> Any:
        return self.transport

    def _read_certificate(self) -> None:
        certificate = self._transport().getPeerCertificate()
        if certificate is not None:
            self.certificate_user = user_of(certificate.to_cryptography(), self.admission.certificate_user)

    # -- Link --

    def write(self, data: bytes) -> None:
        """Write to the transport, in a frame where the listener is a WebSocket."""
        self._transport().write(data if self._websocket is None else self._websocket.send(data))

    def buffered(self) -> int:
        """Bytes that the transport could not send yet."""
        transport = self._transport()
        inner = getattr(transport, "transport", transport)
        waiting = len(getattr(inner, "dataBuffer", b"")) - getattr(inner, "offset", 0)
        return int(waiting + getattr(inner, "_tempDataLen", 0))

    def pause(self, paused: bool) -> None:
        """Stop or go on reading; what a slice has left unread comes first."""
        if self.closed or self.transport is None:
            return
        if paused or self._unread:
            self._transport().pauseProducing()
        else:
            self._transport().resumeProducing()

    def close(self) -> None:
        """Close when everything is sent; a peer that does not read is given a few seconds."""
        if self.closed or self._end is not None:
            return
        if self._websocket is not None:
            self._transport().write(self._websocket.close())
        self._leave()

    def _leave(self) -> None:
        self._transport().loseConnection()
        self._end = IReactorTime(self.hub.reactor).callLater(5.0, self.abort)

    def abort(self) -> None:
        """Close at once."""
        if not self.closed and self.transport is not None:
            self._unread = b""
            self._transport().abortConnection()


class StreamFactory(Factory):
    """Protocols for one listener."""

    noisy = False

    def __init__(self, admission: Admission, hub: Hub) -> None:
        self.admission = admission
        self.hub = hub
        self.listening: Listening | None = None

    def buildProtocol(self, addr: Any) -> StreamProtocol | None:
        """The protocol of a new connection."""
        del addr
        return None if self.listening is None else StreamProtocol(self.admission, self.hub, self.listening)
