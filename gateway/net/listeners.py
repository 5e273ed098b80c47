"""Where devices connect: plain TCP and Unix sockets on the hub, TLS and WebSocket on Twisted's transports."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import IListeningPort
from twisted.protocols.tls import TLSMemoryBIOFactory

from gateway.broker.engine import Engine
from gateway.config.limits import Limits
from gateway.config.model import Listener
from gateway.errors import Finding
from gateway.net.hub import Hub
from gateway.net.hub_socket import Acceptor, HubSocket
from gateway.net.proxied import ProxiedFactory
from gateway.net.proxy import ProxyReader
from gateway.net.rates import ConnectRates, SendRates, Shares
from gateway.net.stream import StreamFactory, TlsContext, tls_context
from gateway.ports.link import Link, address_of
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
    rates: ConnectRates = field(default_factory=lambda: ConnectRates(0, 0, time.monotonic))
    shares: Shares = field(default_factory=lambda: Shares(0))
    addresses: dict[Link, str] = field(default_factory=dict)
    """Whose share a connection was taken from."""


class Listeners:
    """All listeners of the process."""

    def __init__(self, reactor: Any, engine: Engine, hub: Hub, limits: Limits) -> None:
        self.reactor = reactor
        self.engine = engine
        self.hub = hub
        self.limits = limits
        self.rates = ConnectRates(limits.connects_per_second, 0, time.monotonic)
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
        per_second, per_address, share = self._of(settings)
        listening.rates = ConnectRates(per_second, per_address, time.monotonic)
        listening.shares = Shares(share)
        self.all[settings.name] = listening
        return listening

    def _of(self, settings: Listener) -> tuple[int, int, int]:
        """A listener's connections a second, of all and from one address, and an address's share of them."""
        own, everybody = settings.limits, self.limits
        per_address, share = own.connects_per_second_per_address, own.connections_per_address
        return (
            own.connects_per_second,
            everybody.connects_per_second_per_address if per_address is None else per_address,
            everybody.connections_per_address if share is None else share,
        )

    def use(self, limits: Limits, settings: list[Listener]) -> None:
        """Rates, shares and numbers as they are now. What somebody has used up of a rate that is as it was stays."""
        if limits.connects_per_second != self.limits.connects_per_second:
            self.rates = ConnectRates(limits.connects_per_second, 0, time.monotonic)
        before = {name: self._of(listening.settings) for name, listening in self.all.items()}
        self.limits = limits
        for fresh in settings:
            listening = self.all.get(fresh.name)
            if listening is None:
                continue  # it waits for a restart
            own = {"limits": fresh.limits, "max_connections": fresh.max_connections}
            listening.settings = listening.settings.model_copy(update=own)
            per_second, per_address, share = now = self._of(listening.settings)
            if now[:2] != before[fresh.name][:2]:
                listening.rates = ConnectRates(per_second, per_address, time.monotonic)
            if share != listening.shares.most:
                self._share_anew(listening, share)

    def _share_anew(self, listening: Listening, most: int) -> None:
        """Another share for each address: who is connected counts, and nobody is turned out."""
        listening.shares, listening.addresses = Shares(most), {}
        if not most:
            return
        for connection in self.engine.connections:
            if connection.link.listener == listening.settings.name:
                address = address_of(connection.link.peer)
                listening.addresses[connection.link] = address
                listening.shares.hold(address)

    def use_send_rates(self, rates: SendRates) -> None:
        """What clients may send; each begins anew with it."""
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
        connection = self.take(listening, link, named=proxied is None)
        if connection is None:
            link.sock.close()
            return
        link.connection = connection
        link.on_close = lambda: self.gone(listening, link)
        if proxied is not None:
            link.proxy = ProxyReader(1 if proxied == "v1" else 2)
            link.named = lambda: not self._said(listening, link, self._too_many_from(listening, link))
        self.hub.add(link)

    def take(self, listening: Listening, link: Link, *, named: bool = True) -> Connection | None:
        """The broker's connection for an accepted socket, or None when there are too many, of all or from there.
        Not `named`: a proxy will say where it comes from."""
        found = self._too_many(listening) or (self._too_many_from(listening, link) if named else None)
        connection = None
        if found is None:
            connection = self.engine.connected(link, listening.settings)
            if connection is None and not self.engine.draining:
                found = "the gateway has as many connections as it may"
        if connection is None:
            self._said(listening, link, found)
            self._give_back(listening, link)
            return None
        listening.connections += 1
        return connection

    def gone(self, listening: Listening, link: Link) -> None:
        """A connection that was taken is over."""
        listening.connections -= 1
        self._give_back(listening, link)

    def _too_many(self, listening: Listening) -> str | None:
        limit = listening.settings.max_connections
        if limit is not None and listening.connections >= limit:
            return "the listener has as many connections as it may"
        if not self.rates.admit() or not listening.rates.admit():
            return "connections come faster than limits allow"
        return None

    def _too_many_from(self, listening: Listening, link: Link) -> str | None:
        address = address_of(link.peer)
        self._give_back(listening, link)  # a proxy has named it after shares were counted anew
        if not listening.rates.admit_from(address):
            return "connections from this address come faster than limits allow"
        if not listening.shares.take(address):
            return "this address has as many connections as it may"
        if listening.shares.most:
            listening.addresses[link] = address
        return None

    def _give_back(self, listening: Listening, link: Link) -> None:
        address = listening.addresses.pop(link, None)
        if address is not None:
            listening.shares.give_back(address)

    def _said(self, listening: Listening, link: Link, found: str | None) -> bool:
        """Count and tell why a connection is turned away, if it is."""
        if found is None:
            return False
        name = listening.settings.name
        self.engine.counters.mqtt_connects[name, "3.1.1", "too_many"] += 1
        self.refused(name, link.peer, found)
        return True

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
