"""MQTT over Twisted's transports: TLS, and WebSocket with and without it. The same broker behind them as on the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import ContextFactory
from twisted.python.failure import Failure

from gateway.config.model import Listener, Tls
from gateway.net.websocket import WebSocketServer
from gateway.session.connection import Connection

if TYPE_CHECKING:
    from gateway.net.listeners import Listeners, Listening

HANDSHAKE_SECONDS = 10.0


class StreamProtocol(Protocol):
    """One connection on a Twisted transport: the broker's `Link`."""

    def __init__(self, listeners: Listeners, listening: Listening) -> None:
        self.listeners = listeners
        self.listening = listening
        self.listener = listening.settings.name
        self.peer = ""
        self.certificate_user: str | None = None
        self.connection: Connection | None = None
        self._websocket: WebSocketServer | None = None
        self._counted = False

    def connectionMade(self) -> None:
        """A connection: TLS may still be shaking hands, WebSocket has not begun."""
        transport: Any = self.transport
        address = transport.getPeer()
        self.peer = f"{address.host}:{address.port}"
        transport.setTcpNoDelay(1)
        settings = self.listening.settings
        if settings.websocket is not None:
            self._websocket = WebSocketServer(settings.websocket.path, settings.websocket.origins)
        if not self.listeners.admits(self.listening, self.peer):
            transport.abortConnection()
            return
        self.connection = self.listeners.engine.connected(self, settings)
        if self.connection is None:
            transport.abortConnection()
            return
        self.listening.connections += 1
        self._counted = True

    def dataReceived(self, data: bytes) -> None:
        """Bytes, or frames of them."""
        if self.connection is None:
            return
        if self.certificate_user is None and self.listening.settings.tls is not None:
            self._read_certificate()
        engine = self.listeners.engine
        if self._websocket is None:
            engine.received(self.connection, data)
        else:
            answer, chunks, over = self._websocket.receive(data)
            if answer:
                self._transport().write(answer)
            for chunk in chunks:
                engine.received(self.connection, chunk)
            if over:
                self._transport().loseConnection()
        engine.flush()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The peer is gone."""
        del reason
        if self._counted:
            self.listening.connections -= 1
        if self.connection is not None:
            self.listeners.engine.closed(self.connection)
            self.listeners.engine.flush()

    def _transport(self) -> Any:
        return self.transport

    def _read_certificate(self) -> None:
        certificate = self._transport().getPeerCertificate()
        self.certificate_user = "" if certificate is None else certificate.get_subject().commonName or ""

    # -- Link --

    def write(self, data: bytes) -> None:
        """To the transport, framed where the listener is a WebSocket."""
        self._transport().write(data if self._websocket is None else self._websocket.send(data))

    def buffered(self) -> int:
        """What the transport could not send yet."""
        transport = self._transport()
        inner = getattr(transport, "transport", transport)
        return len(getattr(inner, "dataBuffer", b"")) + sum(map(len, getattr(inner, "_tempDataBuffer", ())))

    def close(self) -> None:
        """Close when everything is sent; a peer that does not read is given a few seconds."""
        transport = self._transport()
        if self._websocket is not None:
            transport.write(self._websocket.close())
        transport.loseConnection()
        IReactorTime(self.listeners.reactor).callLater(5.0, self.abort)

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None and getattr(self.transport, "connected", False):
            self._transport().abortConnection()


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
