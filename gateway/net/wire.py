"""Polls an epoll, reads from many sockets and writes to many, each in one call; compiled if there was a compiler at
installation.

Only the usual case is done here. A socket that its peer has closed, that has an error, that does not take everything,
or for which bytes are kept that have to be sent first is left to the hub.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gateway.ports.link import Link

if TYPE_CHECKING:
    from gateway.net.hub_socket import HubSocket
    from gateway.session.connection import Connection

    Events = list[tuple[int, int]]
    Ready = Events | bytes
    """What a poll has found; as bytes it is in the kernel's form, for `read_sockets` only."""
    Received = tuple[list[tuple[Connection, bytes]], list[tuple[HubSocket, bytes]], Events, list[HubSocket]]

ROOM, LONGEST = 512 << 10, 64 << 10
"""The most bytes read in one call, and from one socket."""
MOST_EVENTS = 512


def poll(epoll: select.epoll, seconds: float) -> Events:
    """The events that are ready; waits for them at most this many seconds, or without limit if that is negative."""
    return epoll.poll(seconds, MOST_EVENTS)


def receive(events: Events, links: Mapping[int, HubSocket]) -> Received:
    """Read the sockets of a poll. Returns bytes with their connections; what a wrapping has to take itself, with its
    link; the events left to the caller (all that are not data of a client, and those beyond ROOM); and the links among
    the first that had as much as is read of them at once."""
    arrived: list[tuple[Connection, bytes]] = []
    wrapped: list[tuple[HubSocket, bytes]] = []
    rest: Events = []
    full: list[HubSocket] = []
    room = ROOM
    for fd, ready in events:
        link = links.get(fd) if ready & (select.EPOLLIN | select.EPOLLOUT) == select.EPOLLIN else None
        data = b""
        if link is not None and link.connection is not None and link.chunk <= min(LONGEST, room):
            try:
                data = link.sock.recv(link.chunk)
            except OSError:
                data = b""
        if not data or link is None or link.connection is None:
            rest.append((fd, ready))
            continue
        room -= len(data)
        is_full = len(data) == link.chunk
        found = data if link.wrapping is None else None if link.inward is None else link.inward(data)
        if found is None:
            wrapped.append((link, data))
            continue
        if found:
            arrived.append((link.connection, found))
        if is_full:
            full.append(link)
    return arrived, wrapped, rest, full


def write(kind: type, links: list[Link], datas: list[bytes]) -> list[tuple[int, bytes]]:
    """Send each link of the hub's kind its bytes, wrapped as its peer expects them, unless others are kept that have to
    be sent first. Returns the positions of those that did not take everything, with what they did not take."""
    rest: list[tuple[int, bytes]] = []
    for at, (link, data) in enumerate(zip(links, datas, strict=True)):
        sent = 0
        socket: Any = link
        if type(link) is kind and socket.wrapping is not None:
            data = (socket.outward or socket.wrapping.wrap)(data)
        if type(link) is kind and socket.direct >= 0:
            try:
                sent = socket.sock.send(data)
            except OSError:
                sent = 0
            if sent == len(data):
                continue
        rest.append((at, data[sent:]))
    return rest


poll_sockets: Callable[[select.epoll, float], Ready] = poll
read_sockets: Callable[[Any, dict[int, HubSocket]], Received] = receive
write_sockets: Callable[[type, list[Link], list[bytes]], list[tuple[int, bytes]]] = write
with suppress(ModuleNotFoundError):
    import gateway.net._wire as compiled_wire

    poll_sockets = compiled_wire.poll
    read_sockets, write_sockets = compiled_wire.receive, compiled_wire.write


def sends_in_one_call() -> bool:
    """Whether data for many sockets is sent in one call of the kernel: io_uring exists and is allowed."""
    return compiled() and compiled_wire.sends_in_one_call()


def compiled() -> bool:
    """Whether the compiled functions are used."""
    return read_sockets is not receive
