"""The PROXY header before TLS or WebSocket: read first, then everything behind it is handed to the protocol proper,
which sees the client's address instead of the balancer's. Bounded in bytes by the reader, in time and number here.
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
    """A transport whose other side is somebody else."""

    def __init__(self, transport: Any, peer: str) -> None:
        self._transport = transport
        host, _, port = peer.rpartition(":")
        kind = IPv6Address if host.startswith("[") else IPv4Address
        self._peer = kind("TCP", host.strip("[]"), int(port))

    def getPeer(self) -> IPv4Address | IPv6Address:
        """The client, as the proxy says."""
        return self._peer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Proxied(Protocol):
    """One connection: the header, then whatever `inner` makes of the rest."""

    def __init__(self, factory: ProxiedFactory) -> None:
        self._factory = factory
        self._header: ProxyReader | None = ProxyReader(factory.version)
        self._inner: Any = None
        self._late: Any = None

    def connectionMade(self) -> None:
        """The header has to come, and soon."""
        transport: Any = self.transport
        self._factory.waiting += 1
        self._late = IReactorTime(self._factory.reactor).callLater(self._factory.seconds, transport.abortConnection)
        if self._factory.waiting > MAX_WAITING:
            transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        """Bytes of the header, or of what follows it."""
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
            self._settle()
            self._inner = self._factory.inner.buildProtocol(transport.getPeer())
            self._inner.makeConnection(Named(transport, peer) if peer else transport)
            if rest:
                self._inner.dataReceived(rest)

    def _settle(self) -> None:
        """No longer waited for."""
        if self._header is not None:
            self._header = None
            self._factory.waiting -= 1
            if self._late.active():
                self._late.cancel()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The peer is gone."""
        self._settle()
        if self._inner is not None:
            self._inner.connectionLost(reason)

    def readConnectionLost(self) -> None:
        """Half of it is."""
        transport: Any = self.transport
        transport.loseConnection()


class ProxiedFactory(Factory):
    """Puts the header before the connections of another factory."""

    noisy = False

    def __init__(self, inner: Factory, version: int, reactor: Any, seconds: float) -> None:
        self.inner = inner
        self.version = version
        self.reactor = reactor
        self.seconds = seconds
        self.waiting = 0

    def buildProtocol(self, addr: Any) -> Proxied:
        """A connection."""
        del addr
        return Proxied(self)
