"""MQTT over Twisted's transports: TLS, and WebSocket with and without it. The same broker behind them as on the hub."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import ContextFactory
from twisted.python.failure import Failure

from gateway.config.model import Listener, Tls
from gateway.net.rates import Pair
from gateway.net.websocket import WebSocketServer
from gateway.session.connection import Connection

if TYPE_CHECKING:
    from gateway.net.listeners import Listeners, Listening

SLICE = 4096
SLICE_SECONDS = 0.005
"""Tiny WebSocket frames cost more than their bytes: whoever sends them is worked off in slices, between the others."""


class StreamProtocol(Protocol):
    """One connection on a Twisted transport: the broker's `Link`."""

    def __init__(self, listeners: Listeners, listening: Listening) -> None:
        self.listeners = listeners
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
        """A connection: TLS may still be shaking hands, WebSocket has not begun."""
        transport: Any = self.transport
        address = transport.getPeer()
        self.peer = f"{address.host}:{address.port}"
        transport.setTcpNoDelay(1)
        settings = self.listening.settings
        if settings.websocket is not None:
            self._websocket = WebSocketServer(settings.websocket.path, settings.websocket.origins)
        self.connection = self.listeners.take(self.listening, self)
        if self.connection is None:
            transport.abortConnection()
            return
        self.listeners.hub.streams.add(self)
        if self.listeners.hub.paused:
            self.pause(paused=True)

    def dataReceived(self, data: bytes) -> None:
        """Bytes, or frames of them."""
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
            self.listeners.engine.flush()
        except Exception as error:  # noqa: BLE001 -- a defect costs the connection that met it, not the others
            self.listeners.hub.on_defect(error, self.peer)
            self.abort()

    def _received(self, data: bytes) -> None:
        connection, hub = self.connection, self.listeners.hub
        if connection is None or not data:
            return
        if hub.rates:
            hub.receive_slowly(self, connection, data)
        else:
            self.listeners.engine.received(connection, data)

    def _work_off(self) -> None:
        """Frames, a slice at a time; what takes long goes on after the reactor has looked after everybody else."""
        seconds = IReactorTime(self.listeners.reactor).seconds
        until = seconds() + SLICE_SECONDS
        while self._unread and not self.closed:
            piece, self._unread = self._unread[:SLICE], self._unread[SLICE:]
            self._frames(piece)
            if self._unread and seconds() > until:
                self.pause(paused=True)
                IReactorTime(self.listeners.reactor).callLater(0, self._go_on)
                return

    def _go_on(self) -> None:
        if self.closed:
            return
        try:
            self._work_off()
            self.listeners.engine.flush()
            if not self._unread:
                self.pause(paused=self.listeners.hub.paused)
        except Exception as error:  # noqa: BLE001 -- as in dataReceived
            self.listeners.hub.on_defect(error, self.peer)
            self.abort()

    def _frames(self, data: bytes) -> None:
        assert self._websocket is not None  # noqa: S101 -- only called then
        answer, chunks, over = self._websocket.receive(data)
        if answer:
            self._transport().write(answer)
            if self.buffered() > self.listeners.engine.limits.max_outgoing_bytes:
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
        self.listeners.hub.streams.discard(self)
        if self._end is not None and self._end.active():
            self._end.cancel()
        if self.connection is not None:
            self.listeners.gone(self.listening, self)
            if not self._greeted and isinstance(reason.value, SSL.Error):
                self._handshake_failed(reason.value)
            self.listeners.engine.closed(self.connection)
            self.listeners.engine.flush()

    def _handshake_failed(self, error: SSL.Error) -> None:
        """Nothing of MQTT was said: the certificate, the version or the ciphers were not accepted, here or there."""
        found = error.args[0] if error.args and isinstance(error.args[0], list) else []
        text = "; ".join(str(part[-1]) for part in found) or "the handshake was broken off"
        if "certificate" in text:
            self.listeners.engine.counters.mqtt_auth_failures[self.listener, "certificate"] += 1
        self.listeners.refused(self.listener, self.peer, f"TLS: {text}")

    def _transport(self) -> Any:
        return self.transport

    def _read_certificate(self) -> None:
        certificate = self._transport().getPeerCertificate()
        if certificate is not None:
            self.certificate_user = user_of(certificate.to_cryptography(), self.listeners.certificate_user)

    # -- Link --

    def write(self, data: bytes) -> None:
        """To the transport, framed where the listener is a WebSocket."""
        self._transport().write(data if self._websocket is None else self._websocket.send(data))

    def buffered(self) -> int:
        """What the transport could not send yet."""
        transport = self._transport()
        inner = getattr(transport, "transport", transport)
        waiting = len(getattr(inner, "dataBuffer", b"")) - getattr(inner, "offset", 0)
        return int(waiting + getattr(inner, "_tempDataLen", 0))

    def pause(self, paused: bool) -> None:
        """Stop or go on reading; what a slice has left over comes first."""
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
        self._end = IReactorTime(self.listeners.reactor).callLater(5.0, self.abort)

    def abort(self) -> None:
        """Close at once."""
        if not self.closed and self.transport is not None:
            self._unread = b""
            self._transport().abortConnection()


def user_of(certificate: x509.Certificate, naming: str) -> str:
    """The user a certificate names: its one common name, or its whole subject (RFC 4514). Empty: none, or in doubt."""
    if naming == "subject":
        name = certificate.subject.rfc4514_string()
    else:
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        name = str(names[0].value) if len(names) == 1 else ""
    return "" if any(unicodedata.category(letter) == "Cc" for letter in name) else name


class StreamFactory(Factory):
    """Protocols for one listener."""

    noisy = False

    def __init__(self, listeners: Listeners, settings: Listener) -> None:
        self.listeners = listeners
        self.settings = settings
        self.listening: Listening | None = None

    def buildProtocol(self, addr: Any) -> StreamProtocol | None:
        """A connection."""
        del addr
        return None if self.listening is None else StreamProtocol(self.listeners, self.listening)


class TlsContext(ContextFactory):
    """The server's side of TLS. New connections use what was taken last; those that are open keep theirs."""

    def __init__(self, settings: Tls) -> None:
        self.settings = settings
        self._context = self._make()

    def take(self, fresh: TlsContext) -> None:
        """Use the certificate of a context that was made from the same settings later."""
        self._context = fresh.getContext()

    def getContext(self) -> SSL.Context:
        """For each new connection."""
        return self._context

    def _make(self) -> SSL.Context:
        settings = self.settings
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_3_VERSION if settings.minimum_version == "1.3" else SSL.TLS1_2_VERSION)
        context.set_options(SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE)
        context.set_cipher_list(b"ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:!aNULL:!SHA1")
        context.use_certificate_chain_file(settings.certificate)
        context.use_privatekey_file(settings.key)
        context.check_privatekey()
        context.set_session_id(b"mqgate")
        if settings.client_certificate != "none" and settings.client_ca is not None:
            self._verify_clients(context, settings)
        return context

    def _verify_clients(self, context: SSL.Context, settings: Tls) -> None:
        context.load_verify_locations(settings.client_ca)
        flags = SSL.VERIFY_PEER
        if settings.client_certificate == "required":
            flags |= SSL.VERIFY_FAIL_IF_NO_PEER_CERT
        context.set_verify(flags, lambda _connection, _certificate, _error, _depth, ok: bool(ok))
        if settings.crl is not None:
            store = context.get_cert_store()
            if store is not None:
                store.load_locations(settings.crl)
                store.set_flags(crypto.X509StoreFlags.CRL_CHECK)


def tls_context(settings: Tls) -> TlsContext:
    """The context of a listener; OpenSSL's errors say which file is wrong."""
    return TlsContext(settings)
