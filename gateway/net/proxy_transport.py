"""The PROXY header before TLS or WebSocket: it is read first, and what follows goes to the listener's own protocol,
which sees the client's address instead of the balancer's. `ProxyReader` bounds its bytes, this module time and number.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from gateway.net.proxy import ProxyReader

MAX_WAITING = 1000
"""Connections whose header is not complete."""


class Named:
    """A transport with another address for its peer."""

    def __init__(self, transport: Any, peer: str) -> None:
        self._transport = transport
        host, _, port = peer.rpartition(":")
        kind = IPv6Address if host.startswith("[") else IPv4Address
        self._peer = kind("TCP", host.strip("[]"), int(port))

    def getPeer(self) -> IPv4Address | IPv6Address:
        """The client's address, by the PROXY header."""
        return self._peer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Proxied(Protocol):
    """One connection: the header, then the `inner` protocol."""

    def __init__(self, factory: ProxiedFactory) -> None:
        self._factory = factory
        self._header: ProxyReader | None = ProxyReader(factory.version)
        self._inner: Any = None
        self._late: Any = None

    def connectionMade(self) -> None:
        """The header has to arrive within the listener's time for CONNECT."""
        transport: Any = self.transport
        self._factory.waiting += 1
        self._late = IReactorTime(self._factory.reactor).callLater(self._factory.seconds, transport.abortConnection)
        if self._factory.waiting > MAX_WAITING:
            transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        """Bytes of the header, or of the inner protocol."""
        if self._header is None:
            self._inner.dataReceived(data)
            return
        transport: Any = self.transport
        try:
            rest = self._header.feed(data)
        except ValueError:
            transport.abortConnection()
            return
        if rest is not None:
            peer = self._header.peer
            self._end_header()
            self._inner = self._factory.inner.buildProtocol(transport.getPeer())
            self._inner.makeConnection(Named(transport, peer) if peer else transport)
            if rest:
                self._inner.dataReceived(rest)

    def _end_header(self) -> None:
        """The header is complete, or the connection has ended: it is not waited for any more."""
        if self._header is not None:
            self._header = None
            self._factory.waiting -= 1
            if self._late.active():
                self._late.cancel()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The peer is gone."""
        self._end_header()
        if self._inner is not None:
            self._inner.connectionLost(reason)

    def readConnectionLost(self) -> None:
        """The peer has closed its side."""
        transport: Any = self.transport
        transport.loseConnection()


class ProxiedFactory(Factory):
    """Connections of another factory that begin with a PROXY header."""

    noisy = False

    def __init__(self, inner: Factory, version: int, reactor: Any, seconds: float) -> None:
        self.inner = inner
        self.version = version
        self.reactor = reactor
        self.seconds = seconds
        self.waiting = 0

    def buildProtocol(self, addr: Any) -> Proxied:
        """The protocol of a new connection."""
        del addr
        return Proxied(self)
