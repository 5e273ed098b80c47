"""The PROXY protocol, versions 1 and 2: the first bytes of a connection that a load balancer passes on.

Bounded: at most 107 bytes (version 1) or 16 + 4096 (version 2) are kept. No I/O.
"""

from __future__ import annotations

import ipaddress
import struct

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_MAX_V1 = 107
_MAX_V2 = 4096
_V2 = struct.Struct("!12sBBH")


class ProxyReader:
    """Collects the header."""

    __slots__ = ("_data", "peer", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.peer = ""
        """Address and port of the client; empty for a connection of the proxy itself (LOCAL, UNKNOWN)."""
        self._data = b""

    def feed(self, chunk: bytes) -> bytes | None:
        """The bytes after the header; None while it is incomplete. ValueError: it is no PROXY header."""
        self._data += chunk
        return self._feed_v1() if self.version == 1 else self._feed_v2()

    def _feed_v1(self) -> bytes | None:
        end = self._data.find(b"\r\n", 0, _MAX_V1)
        if end < 0:
            if len(self._data) >= _MAX_V1 or not b"PROXY ".startswith(self._data[:6]):
                raise ValueError("no PROXY header of version 1")
            return None
        words = self._data[:end].decode("ascii").split(" ")
        if words[0] != "PROXY" or len(words) < 2:
            raise ValueError("no PROXY header of version 1")
        if words[1] in {"TCP4", "TCP6"}:
            if len(words) != 6:
                raise ValueError("a PROXY header with the wrong number of words")
            self.peer = _peer(ipaddress.ip_address(words[2]), int(words[4]))
        elif words[1] != "UNKNOWN":
            raise ValueError("a PROXY header of an unknown kind")
        return self._data[end + 2 :]

    def _feed_v2(self) -> bytes | None:
        data = self._data
        if not SIGNATURE.startswith(data[:12]):
            raise ValueError("no PROXY header of version 2")
        if len(data) < _V2.size:
            return None
        _, version_command, family, length = _V2.unpack_from(data)
        if version_command >> 4 != 2 or version_command & 15 > 1 or length > _MAX_V2:
            raise ValueError("a PROXY header this listener does not understand")
        if len(data) < _V2.size + length:
            return None
        if version_command & 15:
            self._address(family, data[_V2.size : _V2.size + length])
        return data[_V2.size + length :]

    def _address(self, family: int, block: bytes) -> None:
        width = {0x11: 4, 0x21: 16}.get(family)
        if width is not None and len(block) >= 2 * width + 4:
            (port,) = struct.unpack_from("!H", block, 2 * width)
            self.peer = _peer(ipaddress.ip_address(block[:width]), port)


def _peer(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
