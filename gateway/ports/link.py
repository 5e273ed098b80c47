"""What the core knows of a network connection: a place to write to, whatever carries it (hub, TLS, WebSocket)."""

from __future__ import annotations

import ipaddress
from typing import Protocol


class Link(Protocol):
    """A connection as the broker sees it: an ordered, lossless stream of bytes [MQTT-4.2.0-1] [MQTT-7.1.1-1]."""

    peer: str
    """Address and port of the other side, for logs."""
    listener: str
    """The name of the listener that accepted it."""
    certificate_user: str | None
    """The user name taken from a verified client certificate, if the listener asks for one."""
    certificate_fingerprint: str
    """The SHA-256 digest of that certificate in hexadecimal digits; empty: there is none."""
    certificate_ends: float
    """When the certificate expires, in seconds since 1970; 0: there is none."""

    def write(self, data: bytes) -> None:
        """Send bytes now, or as soon as the peer reads; never blocks."""

    def buffered(self) -> int:
        """How many bytes are written and not taken by the operating system yet: how far the peer is behind."""

    def largest(self) -> int:
        """How many of these bytes at most came from one write; 0: nothing waits."""

    def unread(self) -> bool:
        """Whether the peer has sent bytes that the broker has not been handed yet."""

    def close(self) -> None:
        """Close after what was written has been sent (or after a short while)."""

    def abort(self) -> None:
        """Close at once."""


def plain_address(host: str) -> str:
    """The address as its client knows it: a listener on `::` sees IPv4 addresses as `::ffff:10.0.0.7`."""
    if ":" not in host:
        return host
    try:
        mapped = ipaddress.IPv6Address(host.partition("%")[0]).ipv4_mapped
    except ValueError:
        return host
    return host if mapped is None else str(mapped)


def peer_of(host: str, port: int) -> str:
    """Address and port as one text, as `Link.peer` has them."""
    host = plain_address(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(peer: str) -> str:
    """The address part of `address:port`."""
    return plain_address(peer.rpartition(":")[0].strip("[]"))


def address_of(peer: str) -> str:
    """The part of `address:port` that stands for one subscriber, who in IPv6 has a whole /64 to choose from."""
    host = host_of(peer)
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host
