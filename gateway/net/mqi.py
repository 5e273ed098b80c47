"""The MQI socket of the embedded queue manager, to which programs with the MQI library connect.

Their frames are read and answered by `gateway.mqi.server_protocol`, in the rounds of `gateway.mqi.rounds`."""

from __future__ import annotations

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

from gateway.net.descriptors import most_for_programs


class FrameHandler(Protocol):
    """Reads and answers the frames of one program, without I/O."""

    def receive(self, chunk: bytes) -> None:
        """Take bytes that the program has sent."""

    def connection_lost(self) -> None:
        """The program has disconnected."""


class Rounds(Protocol):
    """Answers together what several programs send: `gateway.mqi.rounds`."""

    def receive(self, program: FrameHandler, chunk: bytes) -> None:
        """Take bytes that a program has sent."""

    def lost(self, program: FrameHandler) -> None:
        """The program has disconnected."""


MakeHandler = Callable[[Callable[[bytes], None], Callable[[], None], str, int], FrameHandler]
"""Makes the handler of one program's frames, from (write, close, user, process)."""


class MqiProtocol(TwistedProtocol):
    """The connection of one program."""

    def __init__(self, make: MakeHandler, rounds: Rounds, exhausted: Callable[[], None]) -> None:
        self._make = make
        self._rounds = rounds
        self._exhausted = exhausted
        self._most = most_for_programs()
        self._handler: FrameHandler | None = None
        self._unread = 0
        """How many chunks wait for their round."""

    def connectionMade(self) -> None:
        """Connect the program as the user that the operating system names."""
        transport: Any = self.transport
        if transport.getHandle().fileno() >= self._most:
            self._exhausted()
            transport.abortConnection()
            return
        self._handler = self._make(transport.write, transport.loseConnection, *peer_of(transport.getHandle()))

    def dataReceived(self, data: bytes) -> None:
        """Hand in a chunk, which is answered together with those of other programs. No more than two may wait."""
        self._unread += 1
        if self._unread > 1:
            self.transport.pauseProducing()  # type: ignore[union-attr]
        self._rounds.receive(self, data)

    def receive(self, chunk: bytes) -> None:
        """Take a chunk whose round has come."""
        self._unread -= 1
        if self._unread == 1 and self._handler is not None:
            self.transport.resumeProducing()  # type: ignore[union-attr]
        if self._handler is not None:
            self._handler.receive(chunk)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The program has disconnected: what it has sent still counts, then its unit of work is backed out."""
        del reason
        self._unread = 0
        self._rounds.lost(self)

    def connection_lost(self) -> None:
        """Everything that the program has sent has been taken in."""
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.connection_lost()


def peer_of(handle: socket.socket) -> tuple[str, int]:
    """User and process at the other end of a Unix socket. The user is given by name; one without a name is given by
    number, so that he cannot claim another's name."""
    try:
        pid, uid, _ = struct.unpack("3i", handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:
        return "", 0
    try:
        return pwd.getpwuid(uid).pw_name, pid
    except KeyError:
        return str(uid), pid


class MqiFactory(Factory):
    """Makes a protocol for each program that connects."""

    noisy = False

    def __init__(self, make: MakeHandler, rounds: Rounds, exhausted: Callable[[], None]) -> None:
        self._make = make
        self._rounds = rounds
        self._exhausted = exhausted

    def buildProtocol(self, addr: Any) -> MqiProtocol:
        """The protocol of a new program."""
        del addr
        return MqiProtocol(self._make, self._rounds, self._exhausted)


def listen(
    reactor: Any, path: Path, make: MakeHandler, rounds: Rounds, exhausted: Callable[[], None] = lambda: None
) -> IListeningPort:
    """Serve the socket, whose permissions control access. `exhausted` is called when a program is turned away because
    the journal and operators need the descriptors that are left."""
    path.unlink(missing_ok=True)
    port: IListeningPort = reactor.listenUNIX(str(path), MqiFactory(make, rounds, exhausted), mode=0o600)
    return port
