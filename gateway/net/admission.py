"""Which connections are let in, before CONNECT: the rates and numbers of a listener, and the share of one address."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.broker.engine import Engine
from gateway.config.limits import Limits
from gateway.config.model import Listener
from gateway.net.hub_socket import Acceptor
from gateway.net.proxy import Network, is_trusted
from gateway.net.rates import ConnectRates, Shares
from gateway.net.tls import TlsContext
from gateway.ports.link import Link, address_of
from gateway.session.connection import Connection


@dataclass(slots=True)
class Listening:
    """A listener: bound, and open once it has an acceptor."""

    settings: Listener
    address: str
    sock: socket.socket
    acceptor: Acceptor | None = None
    connections: int = 0
    number: int = 0
    tls: TlsContext | None = None
    proxies: tuple[Network, ...] | None = None
    """Which addresses are believed when they send PROXY headers or those of HTTP proxies; None: all that reach the
    listener."""
    names: frozenset[str] = frozenset()
    """Host names under which pages may reach this gateway, besides those in its certificate."""
    rates: ConnectRates = field(default_factory=lambda: ConnectRates(0, 0, time.monotonic))
    shares: Shares = field(default_factory=lambda: Shares(0))
    addresses: dict[Link, str] = field(default_factory=dict)
    """The address to whose share each connection counts."""

    def address_header(self, peer: str) -> str | None:
        """The header in which an HTTP proxy with this address says who its client is; None: the address is not
        believed."""
        web = self.settings.websocket
        header = None if web is None else web.address_header
        return header if header is not None and is_trusted(peer, self.proxies or ()) else None


class Admission:
    """The limits of all listeners, and how much of them is used."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self.engine = engine
        self.limits = limits
        self.rates = ConnectRates(limits.connects_per_second, 0, time.monotonic)
        self.certificate_user = "common_name"
        """Which name in a client certificate is the user name."""
        self.on_refused: Callable[[str, str, str], None] = lambda _listener, _peer, _why: None
        self.listening: dict[str, Listening] = {}

    def add(self, listening: Listening) -> None:
        """Apply the limits to a listener that has been opened."""
        per_second, per_address, share = self._of(listening.settings)
        listening.rates = ConnectRates(per_second, per_address, time.monotonic)
        listening.shares = Shares(share)
        self.listening[listening.settings.name] = listening

    def _of(self, settings: Listener) -> tuple[int, int, int]:
        """How many connections a second a listener admits in all and from one address, and how many an address may have
        open."""
        own, everybody = settings.limits, self.limits
        per_address, share = own.connects_per_second_per_address, own.connections_per_address
        return (
            own.connects_per_second,
            everybody.connects_per_second_per_address if per_address is None else per_address,
            everybody.connections_per_address if share is None else share,
        )

    def use(self, limits: Limits, settings: list[Listener]) -> None:
        """Use other rates, shares and numbers. For a rate that has not changed, what is used up stays used up."""
        if limits.connects_per_second != self.limits.connects_per_second:
            self.rates = ConnectRates(limits.connects_per_second, 0, time.monotonic)
        before = {name: self._of(listening.settings) for name, listening in self.listening.items()}
        self.limits = limits
        for fresh in settings:
            listening = self.listening.get(fresh.name)
            if listening is None:
                continue  # a new listener: only a restart opens it
            own = {"limits": fresh.limits, "max_connections": fresh.max_connections}
            listening.settings = listening.settings.model_copy(update=own)
            per_second, per_address, share = now = self._of(listening.settings)
            if now[:2] != before[fresh.name][:2]:
                listening.rates = ConnectRates(per_second, per_address, time.monotonic)
            if share != listening.shares.most:
                self._share_anew(listening, share)

    def _share_anew(self, listening: Listening, most: int) -> None:
        """Give each address a new share. Open connections count towards it, and none is closed."""
        listening.shares, listening.addresses = Shares(most), {}
        if not most:
            return
        for connection in self.engine.connections:
            if connection.link.listener == listening.settings.name:
                address = address_of(connection.link.peer)
                listening.addresses[connection.link] = address
                listening.shares.hold(address)

    def take(self, listening: Listening, link: Link, *, named: bool = True) -> Connection | None:
        """The broker's connection for an accepted socket; None if there are too many, in all or from its address. If it
        is not `named`, a proxy is still to say which address that is."""
        why = self._too_many(listening) or (self._too_many_from(listening, link) if named else None)
        connection = None
        if why is None:
            connection = self.engine.connected(link)
            if connection is None and not self.engine.context.draining:
                why = "the gateway has as many connections as it may have"
        if connection is None:
            self._count(listening, link, why)
            self._give_back(listening, link)
            return None
        listening.connections += 1
        return connection

    def gone(self, listening: Listening, link: Link) -> None:
        """Note that a connection which was let in has ended."""
        listening.connections -= 1
        self._give_back(listening, link)

    def _too_many(self, listening: Listening) -> str | None:
        limit = listening.settings.max_connections
        if limit is not None and listening.connections >= limit:
            return "the listener has as many connections as it may have"
        if not self.rates.admit() or not listening.rates.admit():
            return "connections come faster than the limits allow"
        return None

    def _too_many_from(self, listening: Listening, link: Link) -> str | None:
        address = address_of(link.peer)
        self._give_back(listening, link)  # a reload may have counted it before a proxy named its client
        if not listening.rates.admit_from(address):
            return "connections from this address come faster than the limits allow"
        if not listening.shares.take(address):
            return "this address has as many connections as it may have"
        if listening.shares.most:
            listening.addresses[link] = address
        return None

    def _give_back(self, listening: Listening, link: Link) -> None:
        address = listening.addresses.pop(link, None)
        if address is not None:
            listening.shares.give_back(address)

    def admits_from(self, listening: Listening, link: Link) -> bool:
        """Whether a connection may stay, now that a proxy has named its client."""
        return not self._count(listening, link, self._too_many_from(listening, link))

    def _count(self, listening: Listening, link: Link, why: str | None) -> bool:
        """Count and log the reason why a connection is refused, if there is one; returns whether it is refused."""
        if why is None:
            return False
        name = listening.settings.name
        self.engine.counters.mqtt_connects[name, "3.1.1", "too_many"] += 1
        self.refused(name, link.peer, why)
        return True

    def malformed(self, listener: str, peer: str, why: str) -> None:
        """Count and log a connection whose first bytes are not what its listener accepts: PROXY, WebSocket."""
        self.engine.counters.mqtt_connects[listener, "3.1.1", "malformed"] += 1
        self.refused(listener, peer, why)

    def believes(self, listening: Listening, peer: str) -> bool:
        """Whether PROXY headers from this address are believed; if not, count and log it."""
        trusted = is_trusted(peer, listening.proxies)
        if not trusted:
            self.malformed(
                listening.settings.name, peer, "PROXY: an address that is not in the listener's `proxy_from`"
            )
        return trusted

    def refused(self, listener: str, peer: str, why: str) -> None:
        """Log a connection that ends before its CONNECT."""
        self.on_refused(listener, peer, why)
