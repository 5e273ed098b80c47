"""Who the client of an HTTP proxy is, by the header in which proxies say so: a list of addresses, as in
X-Forwarded-For, or Forwarded (RFC 7239).

Each proxy adds on the right whom it serves; further to the left is what others have said, the client itself first of
all. So the list is read from the right for as long as it names trusted proxies. The number of proxies and the length of
Forwarded are bounded. No I/O.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from gateway.net.proxy import Network, is_trusted
from gateway.ports.link import peer_of

MOST_PROXIES = 16
MAX_FORWARDED = 4096
_NODE = re.compile(
    r"(?:\[(?P<six>[0-9a-f:.]{2,45})\]|(?P<four>[0-9.]{7,15}))(?::(?P<port>[0-9]{1,5}))?|(?P<bare>[0-9a-f:.]{2,45})",
    re.ASCII | re.IGNORECASE,
)
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"  # noqa: S105 - a token of HTTP
_PAIR = re.compile(
    rf'[ \t]*+(?:(?P<name>{_TOKEN})=(?:(?P<token>{_TOKEN})|"(?P<quoted>(?:[^"\\]|\\.)*+)"))?[ \t]*+(?P<end>[;,]|\Z)'
)


def client_of(header: str, headers: Iterable[tuple[bytes, bytes]], trusted: Sequence[Network]) -> str:
    """Address and port (0: not given) of the first client from the right that is not a trusted proxy, or of the last
    one that can be read. Empty: nobody is named."""
    name, peer = header.lower(), ""
    said = [value.decode("latin-1") for key, value in headers if key.lower() == name.encode()]
    lists = map(_forwarded, said) if name == "forwarded" else [",".join(said).rsplit(",", MOST_PROXIES)]
    nodes = [node for nodes in lists for node in nodes]
    for node in reversed(nodes[-MOST_PROXIES:]):
        named = _peer(node.strip(" \t"))
        peer = named or peer
        if not named or not is_trusted(named, trusted):
            break
    return peer


def _forwarded(said: str) -> list[str]:
    """The client that each element of a header names. It names nobody if it is not as in RFC 7239, section 4, so that
    what a client has sent does not spoil the header that its proxy adds."""
    nodes, node, at = [], "", 0
    if len(said) > MAX_FORWARDED:
        return [""]
    while at < len(said):
        pair = _PAIR.match(said, at)
        if pair is None:
            return [""]
        if (pair["name"] or "").lower() == "for":
            node = pair["token"] or pair["quoted"] or ""
        if pair["end"] != ";":
            nodes.append(node)
            node = ""
        at = pair.end()
    return nodes


def _peer(node: str) -> str:
    """The address with its port, if it has one; empty: it is not an address, such as `unknown` or a made-up name (RFC
    7239, 6)."""
    match = _NODE.fullmatch(node)
    if match is None:
        return ""
    try:
        address = ipaddress.ip_address(match["six"] or match["four"] or match["bare"])
    except ValueError:
        return ""
    port = int(match["port"] or 0)
    return peer_of(str(address), port) if port <= 0xFFFF else ""
