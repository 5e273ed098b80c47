"""Where devices connect: plain TCP and Unix sockets on the hub, TLS and WebSocket on Twisted's transports."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import IListeningPort
from twisted.protocols.tls import TLSMemoryBIOFactory

from gateway.broker.engine import Engine
from gateway.config.limits import Limits
from gateway.config.model import Listener
from gateway.errors import Finding
from gateway.net.admission import Admission, Listening
from gateway.net.hub import Hub
from gateway.net.hub_socket import HubSocket
from gateway.net.proxy import ProxyReader
from gateway.net.proxy_transport import ProxiedFactory
from gateway.net.rates import SendRates
from gateway.net.stream import StreamFactory
from gateway.net.tls import TlsContext, tls_context

BACKLOG = 4096


class Listeners:
    """All listeners of the process."""

    def __init__(self, reactor: Any, engine: Engine, hub: Hub, limits: Limits) -> None:
        self.reactor = reactor
        self.engine = engine
        self.hub = hub
        self.admission = Admission(engine, limits)
        self.all = self.admission.listening
        """By name."""

    def open(self, settings: Listener) -> Listening:
        """Bind and listen; OSError says why that is not possible."""
        if settings.unix is not None:
            listening = self._unix(settings)
        elif settings.tls is None and settings.websocket is None:
            listening = self._plain(settings)
        else:
            listening = self._stream(settings)
        self.admission.add(listening)
        return listening

    def use_send_rates(self, rates: SendRates) -> None:
        """What clients may send; every client begins with full buckets."""
        self.hub.rates = rates
        for connection in self.engine.connections:
            link: Any = connection.link
            link.buckets = None

    def reload_certificates(self) -> list[Finding]:
        """Certificates, keys and revocation lists as their files are now, for new connections. If one cannot
        be used all old ones stay in force, and it is reported."""
        findings, ready = [], []
        for name, listening in self.all.items():
            if listening.tls is None:
                continue
            try:
                ready.append((listening.tls, tls_context(listening.tls.settings)))
            except (SSL.Error, OSError) as error:
                why = str(error) or "it does not fit its key"
                what = f"the certificate of listener `{name}` cannot be used: {why}"
                findings.append(Finding(listening.tls.settings.certificate, 1, 1, what, "repair it and reload again"))
        if not findings:
            for context, fresh in ready:
                context.take(fresh)
        return findings

    def _plain(self, settings: Listener) -> Listening:
        family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((settings.bind, settings.port or 0))
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        number = sock.getsockname()[1]
        listening = Listening(settings, f"{settings.bind}:{number}", number=number)
        listening.acceptor = self.hub.listen(sock, lambda link: self._accepted(listening, link), settings.name)
        return listening

    def _unix(self, settings: Listener) -> Listening:
        path = Path(settings.unix or "")
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o117)
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
        sock.listen(BACKLOG)
        listening = Listening(settings, str(path))
        listening.acceptor = self.hub.listen(sock, lambda link: self._accepted(listening, link), settings.name)
        return listening

    def _stream(self, settings: Listener) -> Listening:
        factory = StreamFactory(self.admission, self.hub)
        context = tls_context(settings.tls) if settings.tls is not None else None
        port = self._listen(settings, factory, context)
        host: Any = port.getHost()
        number = host.port
        listening = Listening(settings, f"{settings.bind}:{number}", port=port, number=number, tls=context)
        factory.listening = listening
        return listening

    def _listen(self, settings: Listener, factory: StreamFactory, context: TlsContext | None) -> IListeningPort:
        number, proxied = settings.port or 0, settings.proxy_protocol
        if proxied is not None:  # its header comes before everything else, TLS included
            inner: Any = (
                factory if context is None else TLSMemoryBIOFactory(context, isClient=False, wrappedFactory=factory)
            )
            version, seconds = 1 if proxied == "v1" else 2, self.engine.limits.connect_timeout
            outer = ProxiedFactory(inner, version, self.reactor, seconds)
            port: IListeningPort = self.reactor.listenTCP(number, outer, BACKLOG, settings.bind)
        elif context is not None:
            port = self.reactor.listenSSL(number, factory, context, BACKLOG, settings.bind)
        else:
            port = self.reactor.listenTCP(number, factory, BACKLOG, settings.bind)
        return port

    def _accepted(self, listening: Listening, link: HubSocket) -> None:
        proxied = listening.settings.proxy_protocol
        connection = self.admission.take(listening, link, named=proxied is None)
        if connection is None:
            link.sock.close()
            return
        link.connection = connection
        link.on_close = lambda: self.admission.gone(listening, link)
        if proxied is not None:
            link.proxy = ProxyReader(1 if proxied == "v1" else 2)
            link.named = lambda: self.admission.admits_from(listening, link)
        self.hub.add(link)

    def stop_accepting(self) -> None:
        """No new connections; the open ones go on."""
        for listening in self.all.values():
            if listening.acceptor is not None:
                self.hub.unlisten(listening.acceptor)
                listening.acceptor = None
                if listening.settings.unix is not None:
                    with contextlib.suppress(OSError):
                        Path(listening.settings.unix).unlink()
            elif listening.port is not None:
                listening.port.stopListening()
                listening.port = None
