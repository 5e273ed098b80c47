"""The MQI socket of the embedded queue manager: programs with the MQI library connect here.

Their frames are read and answered by `gateway.mqi.server_protocol`."""

from __future__ import annotations

import pwd
import socket
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure


class FrameHandler(Protocol):
    """Reads and answers the frames of one program, without I/O."""

    def receive(self, chunk: bytes) -> None:
        """Bytes of the program."""

    def connection_lost(self) -> None:
        """The program has disconnected."""


MakeHandler = Callable[[Callable[[bytes], None], Callable[[], None], str], FrameHandler]
"""(write, close, user) to the handler of one program's frames."""


class Turns:
    """One chunk a pass of the reactor, of one program: each may wait for the disk, and devices are served between two
    of them, however many programs are busy."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._taken = False
        self._waiting: deque[tuple[MqiProtocol, bytes]] = deque()

    def receive(self, program: MqiProtocol, data: bytes) -> None:
        """Hand in a chunk now, if it is the first of this pass; otherwise in one of the next passes, in order."""
        if self._taken:
            program.hold()
            self._waiting.append((program, data))
            return
        self._taken = True
        self._reactor.callLater(0, self._next)
        program.take(data)

    def leave(self, program: MqiProtocol) -> None:
        """The program has disconnected: hand in at once what it has sent."""
        said = [data for one, data in self._waiting if one is program]
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not program)
        for data in said:
            program.take(data)

    def _next(self) -> None:
        """A new pass of the reactor."""
        if not self._waiting:
            self._taken = False
            return
        program, data = self._waiting.popleft()
        self._reactor.callLater(0, self._next)
        program.go_on()
        program.take(data)


class MqiProtocol(TwistedProtocol):
    """One program."""

    def __init__(self, make: MakeHandler, turns: Turns) -> None:
        self._make = make
        self._turns = turns
        self._handler: FrameHandler | None = None

    def connectionMade(self) -> None:
        """Connect the program as the user that the system names."""
        transport: Any = self.transport
        self._handler = self._make(transport.write, transport.loseConnection, peer_user(transport.getHandle()))

    def dataReceived(self, data: bytes) -> None:
        """Hand in a chunk when it is this program's turn."""
        self._turns.receive(self, data)

    def take(self, data: bytes) -> None:
        """Hand the chunk to the handler."""
        if self._handler is not None:
            self._handler.receive(data)

    def hold(self) -> None:
        """Stop reading until the chunk has been handed in."""
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def go_on(self) -> None:
        """Go on reading."""
        if self._handler is not None:
            self.transport.resumeProducing()  # type: ignore[union-attr]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The program has disconnected: its unit of work is backed out."""
        del reason
        self._turns.leave(self)
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.connection_lost()


def peer_user(handle: socket.socket) -> str:
    """The name of the user at the other end of a Unix socket; without a name the number, so that he cannot claim
    another's."""
    try:
        _, uid, _ = struct.unpack("3i", handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class MqiFactory(Factory):
    """Programs, one protocol each."""

    noisy = False

    def __init__(self, make: MakeHandler, reactor: Any) -> None:
        self._make = make
        self._turns = Turns(reactor)

    def buildProtocol(self, addr: Any) -> MqiProtocol:
        """The protocol of a new program."""
        del addr
        return MqiProtocol(self._make, self._turns)


def listen(reactor: Any, path: Path, make: MakeHandler) -> IListeningPort:
    """Serve the socket. Access is controlled by its permissions."""
    path.unlink(missing_ok=True)
    port: IListeningPort = reactor.listenUNIX(str(path), MqiFactory(make, reactor), mode=0o600)
    return port
