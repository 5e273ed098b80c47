"""The PROXY protocol, versions 1 and 2: the first bytes of a connection that a load balancer passes on.

Of what version 2 sends after the addresses only the client certificate (PP2_TYPE_SSL) is read. Memory is bounded: at
most 107 bytes (version 1) or 16 + 4096 (version 2) are kept. Addresses and ports have to be of the kind that the header
names, and are written as the specification says, because they go into logs, limits and access lists. No I/O.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Iterator, Sequence

from gateway.ports.link import peer_of, plain_address

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_MAX_V1 = 107
_MAX_V2 = 4096
_PORT = re.compile(r"[0-9]{1,5}\Z", re.ASCII)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_V2 = struct.Struct("!12sBBH")
_TLV = struct.Struct("!BH")
_SSL = struct.Struct("!BI")
_TYPE_SSL, _SUBTYPE_CN = 0x20, 0x22
_CERTIFICATE_SHOWN = 0x02 | 0x04
"""PP2_CLIENT_CERT_CONN and PP2_CLIENT_CERT_SESS: shown in this connection, or when its TLS session began."""


class ProxyReader:
    """Reads the PROXY header of a connection."""

    __slots__ = ("_data", "extensions", "peer", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.peer = ""
        """Address and port of the client; empty for a connection of the proxy itself (LOCAL, UNKNOWN)."""
        self.extensions = b""
        """What version 2 says about that client after its address."""
        self._data = b""

    def feed(self, chunk: bytes) -> bytes | None:
        """The bytes after the header; None while it is incomplete. Raises ValueError if it is not a PROXY header."""
        self._data += chunk
        return self._feed_v1() if self.version == 1 else self._feed_v2()

    def _feed_v1(self) -> bytes | None:
        end = self._data.find(b"\r\n", 0, _MAX_V1)
        if end < 0:
            if len(self._data) >= _MAX_V1 or not b"PROXY ".startswith(self._data[:6]):
                raise ValueError(self._not_mine())
            return None
        words = self._data[:end].decode("latin-1").split(" ")
        if words[0] != "PROXY" or len(words) < 2:
            raise ValueError(self._not_mine())
        if words[1] in {"TCP4", "TCP6"}:
            if len(words) != 6:
                raise ValueError("a PROXY header with the wrong number of words")
            self.peer = _peer_in_words(4 if words[1] == "TCP4" else 6, words[2:])
        elif words[1] != "UNKNOWN":
            raise ValueError("a PROXY header of an unknown kind")
        return self._data[end + 2 :]

    def _feed_v2(self) -> bytes | None:
        data = self._data
        if not SIGNATURE.startswith(data[:12]):
            raise ValueError(self._not_mine())
        if len(data) < _V2.size:
            return None
        _, version_command, family, length = _V2.unpack_from(data)
        if version_command >> 4 != 2 or version_command & 15 > 1 or length > _MAX_V2:
            raise ValueError("a PROXY header that this listener does not understand")
        if len(data) < _V2.size + length:
            return None
        if version_command & 15:
            self._address(family, data[_V2.size : _V2.size + length])
        return data[_V2.size + length :]

    def _not_mine(self) -> str:
        """What is wrong with the bytes that came: proxies differ in the version that they speak."""
        others = SIGNATURE[:4] if self.version == 1 else b"PROXY "
        instead = f", but of version {3 - self.version}: see `proxy_protocol`" if self._data.startswith(others) else ""
        return f"no PROXY header of version {self.version}{instead}"

    def _address(self, family: int, block: bytes) -> None:
        """Read the address: TCP over IPv4 and IPv6 name a client; unspecified families and Unix sockets do not;
        datagrams are not connections and are refused."""
        width = {0x11: 4, 0x21: 16}.get(family)
        if width is None:
            if family not in {0x00, 0x31}:
                raise ValueError("a PROXY header of an unknown kind")
            return
        if len(block) < 2 * width + 4:
            raise ValueError("a PROXY header without room for its addresses")
        (port,) = struct.unpack_from("!H", block, 2 * width)
        self.peer = peer_of(str(ipaddress.ip_address(block[:width])), port)
        self.extensions = block[2 * width + 4 :]


def _peer_in_words(kind: int, words: Sequence[str]) -> str:
    """The client's address and port, from the words of a version 1 header: source and destination address, source and
    destination port. Raises ValueError."""
    try:
        addresses = [ipaddress.IPv4Address(one) if kind == 4 else ipaddress.IPv6Address(one) for one in words[:2]]
    except ValueError:
        raise ValueError("a PROXY header with an invalid address") from None
    if any("%" in one for one in words[:2]):
        raise ValueError("a PROXY header with the name of an interface")
    if not all(_PORT.match(one) and int(one) <= 0xFFFF for one in words[2:]):
        raise ValueError("a PROXY header with an invalid port")
    return peer_of(str(addresses[0]), int(words[2]))


def verified_names(extensions: bytes) -> list[str] | None:
    """The common names in the client certificate that the proxy has verified; None: there is no such certificate. A
    `verify` of 0 alone proves nothing: OpenSSL does not complain either if no certificate was shown."""
    try:
        told = [value for kind, value in _vectors(extensions) if kind == _TYPE_SSL]
        if len(told) != 1:
            return None
        client, verify = _SSL.unpack_from(told[0])
        if not client & _CERTIFICATE_SHOWN or verify:
            return None
        return [value.decode() for kind, value in _vectors(told[0][_SSL.size :]) if kind == _SUBTYPE_CN]
    except (struct.error, ValueError):
        return None


def _vectors(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield types and values. Raises ValueError or struct.error if the block does not consist of them."""
    at = 0
    while at < len(block):
        kind, length = _TLV.unpack_from(block, at)
        at += _TLV.size + length
        if at > len(block):
            raise ValueError("an extension longer than its header")
        yield kind, block[at - length : at]


def is_trusted(peer: str, networks: Sequence[Network] | None) -> bool:
    """Whether a connection from this peer may say who its client is. With None as networks, all that reach the listener
    may."""
    host, colon, _ = peer.rpartition(":")
    if networks is None or not colon:  # a Unix socket: its permissions decide
        return True
    try:
        address = ipaddress.ip_address(plain_address(host.strip("[]")).partition("%")[0])
    except ValueError:
        return False
    return any(address in network for network in networks if network.version == address.version)
