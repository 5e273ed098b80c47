"""The MQI socket of the embedded queue manager: programs with the MQI library connect here. Frames are the front's."""

from __future__ import annotations

import contextlib
import pwd
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure


class MqiFront(Protocol):
    """The sans-I/O side of one connection."""

    def receive(self, chunk: bytes) -> None:
        """Bytes of the program."""

    def connection_lost(self) -> None:
        """The program is gone."""


MakeFront = Callable[[Callable[[bytes], None], Callable[[], None], str], MqiFront]
"""(write, close, user) to a front."""


class MqiProtocol(TwistedProtocol):
    """One program."""

    def __init__(self, make: MakeFront) -> None:
        self._make = make
        self._front: MqiFront | None = None

    def connectionMade(self) -> None:
        """The program's user is whom the system says it is."""
        transport: Any = self.transport
        self._front = self._make(transport.write, transport.loseConnection, peer_user(transport.getHandle()))

    def dataReceived(self, data: bytes) -> None:
        """To the front."""
        if self._front is not None:
            self._front.receive(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Its unit of work is backed out."""
        del reason
        if self._front is not None:
            self._front.connection_lost()


def peer_user(handle: socket.socket) -> str:
    """The name of the user at the other end of a Unix socket."""
    with contextlib.suppress(OSError, KeyError):
        _, uid, _ = struct.unpack("3i", handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pwd.getpwuid(uid).pw_name
    return ""


class MqiFactory(Factory):
    """Programs, one protocol each."""

    noisy = False

    def __init__(self, make: MakeFront) -> None:
        self._make = make

    def buildProtocol(self, addr: Any) -> MqiProtocol:
        """A program connects."""
        del addr
        return MqiProtocol(self._make)


def listen(reactor: Any, path: Path, make: MakeFront) -> IListeningPort:
    """Serve the socket; its permissions are the access control."""
    path.unlink(missing_ok=True)
    port: IListeningPort = reactor.listenUNIX(str(path), MqiFactory(make), mode=0o600)
    return port
