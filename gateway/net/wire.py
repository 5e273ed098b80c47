"""Reading from many sockets and writing to many in one call; compiled where there was a compiler at installation.

Only the usual case is done here. A socket that has been closed by its peer, has an error, does not take all, or has
bytes kept to be sent first is left to the hub.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gateway.ports.link import Link

if TYPE_CHECKING:
    from gateway.net.hub_socket import HubSocket
    from gateway.session.connection import Connection

    Events = list[tuple[int, int]]
    Received = tuple[list[tuple[Connection, bytes]], list[tuple[HubSocket, bytes]], Events]

ROOM, LONGEST = 512 << 10, 64 << 10
"""How much is read in one call, and from one socket."""


def receive(events: Events, links: Mapping[int, HubSocket], brief: int) -> Received:
    """Read the sockets of a poll. Returned are at most `brief` bytes with their connection, more with their link, and
    the events left to the caller: all that are not data of a connected client, and those beyond ROOM."""
    small: list[tuple[Connection, bytes]] = []
    large: list[tuple[HubSocket, bytes]] = []
    rest: Events = []
    room = ROOM
    for fd, ready in events:
        link = links.get(fd) if ready == select.EPOLLIN else None
        data = b""
        if link is not None and link.proxy is None and link.connection is not None and link.chunk <= min(LONGEST, room):
            try:
                data = link.sock.recv(link.chunk)
            except OSError:
                data = b""
        if not data or link is None or link.connection is None:
            rest.append((fd, ready))
            continue
        room -= len(data)
        if len(data) <= brief:
            small.append((link.connection, data))
        else:
            large.append((link, data))
    return small, large, rest


def write(kind: type, links: list[Link], datas: list[bytes]) -> list[tuple[int, int]]:
    """Send each link of the hub's kind its bytes, if none are kept to be sent first. Returned are the positions of
    those that did not take all, with the number of bytes they took."""
    rest: list[tuple[int, int]] = []
    for at, (link, data) in enumerate(zip(links, datas, strict=True)):
        sent = 0
        socket: Any = link
        if type(link) is kind and socket.direct >= 0:
            try:
                sent = socket.sock.send(data)
            except OSError:
                sent = 0
            if sent == len(data):
                continue
        rest.append((at, sent))
    return rest


read_sockets: Callable[[Events, dict[int, HubSocket], int], Received] = receive
write_sockets: Callable[[type, list[Link], list[bytes]], list[tuple[int, int]]] = write
try:
    import gateway.net._wire as compiled_wire
except ModuleNotFoundError:
    pass
else:
    read_sockets, write_sockets = compiled_wire.receive, compiled_wire.write


def compiled() -> bool:
    """Whether the compiled functions are used."""
    return read_sockets is not receive
