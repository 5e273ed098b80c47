"""Where devices connect: plain TCP and Unix sockets on the hub, TLS and WebSocket on Twisted's transports."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import IListeningPort

from gateway.broker.engine import Engine
from gateway.config.model import Listener
from gateway.errors import Finding
from gateway.net.hub import Acceptor, Hub, HubSocket
from gateway.net.proxy import ProxyReader
from gateway.net.rates import ConnectRates
from gateway.net.stream import StreamFactory, TlsContext, tls_context
from gateway.ports.link import Link
from gateway.session.connection import Connection

BACKLOG = 4096


@dataclass(slots=True)
class Listening:
    """A listener at work."""

    settings: Listener
    address: str
    acceptor: Acceptor | None = None
    port: IListeningPort | None = None
    connections: int = 0
    number: int = 0
    tls: TlsContext | None = None


class Listeners:
    """All listeners of the process."""

    def __init__(self, reactor: Any, engine: Engine, hub: Hub, rates: ConnectRates) -> None:
        self.reactor = reactor
        self.engine = engine
        self.hub = hub
        self.rates = rates
        self.certificate_user = "common_name"
        """What of a client certificate is the user name."""
        self.on_refused: Callable[[str, str, str], None] = lambda _listener, _peer, _why: None
        self.all: dict[str, Listening] = {}

    def open(self, settings: Listener) -> Listening:
        """Bind and listen; OSError says what is in the way."""
        if settings.unix is not None:
            listening = self._unix(settings)
        elif settings.tls is None and settings.websocket is None:
            listening = self._plain(settings)
        else:
            listening = self._stream(settings)
        self.all[settings.name] = listening
        return listening

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
                findings.append(Finding(listening.tls.settings.certificate, 1, 1, what, "mend it and reload again"))
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
        factory = StreamFactory(self, settings)
        number = settings.port or 0
        context = tls_context(settings.tls) if settings.tls is not None else None
        if context is not None:
            port = self.reactor.listenSSL(number, factory, context, BACKLOG, settings.bind)
        else:
            port = self.reactor.listenTCP(number, factory, BACKLOG, settings.bind)
        number = port.getHost().port
        listening = Listening(settings, f"{settings.bind}:{number}", port=port, number=number, tls=context)
        factory.listening = listening
        return listening

    def _accepted(self, listening: Listening, link: HubSocket) -> None:
        connection = self.take(listening, link, link.peer)
        if connection is None:
            link.sock.close()
            return
        listening.connections += 1
        link.connection = connection

        def closed() -> None:
            listening.connections -= 1

        link.on_close = closed
        if listening.settings.proxy_protocol is not None:
            link.proxy = ProxyReader(1 if listening.settings.proxy_protocol == "v1" else 2)
        self.hub.add(link)

    def take(self, listening: Listening, link: Link, peer: str) -> Connection | None:
        """The broker's connection for an accepted socket, or None when there are too many, of all or from there."""
        name, limit = listening.settings.name, listening.settings.max_connections
        if limit is not None and listening.connections >= limit:
            why = "the listener has as many connections as it may"
        elif not self.rates.admit(peer.rpartition(":")[0]):
            why = "connections come faster than limits allow"
        else:
            connection = self.engine.connected(link, listening.settings)
            if connection is not None or self.engine.draining:
                return connection
            why = "the gateway has as many connections as it may"
        self.engine.counters.mqtt_connects[name, "3.1.1", "too_many"] += 1
        self.refused(name, peer, why)
        return None

    def refused(self, listener: str, peer: str, why: str) -> None:
        """A connection that ends before it says CONNECT is told of too."""
        self.on_refused(listener, peer, why)

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
