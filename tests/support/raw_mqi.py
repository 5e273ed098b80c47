"""A program at the MQI socket, spoken for byte by byte. It opens queue A, as its handle 1."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from gateway.mqi.wire import HEADER, MAGIC, PROTOCOL_VERSION, Verb


def blob(data: bytes) -> bytes:
    return struct.pack("<i", len(data)) + data


GREETING = MAGIC + struct.pack("<3i", PROTOCOL_VERSION, 0, 0) + b"".join(map(blob, [b""] * 6))
OPEN_A = struct.pack("<i", 1) + b"".join(map(blob, [b"A", b"", b"", b"", b"", b""])) + struct.pack("<i", 0x7A)
MD = b"MD  " + struct.pack("<iiiiiii", 2, 0, 8, -1, 0, 546, 0) + b" " * 8 + struct.pack("<ii", 0, 0) + bytes(300)
MD += struct.pack("<4i", 1, 0, 0, -1)


class Program:
    """A connected program, spoken for byte by byte."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))

    def call(self, verb: Verb, body: bytes = b"") -> tuple[int, bytes]:
        self.socket.sendall(HEADER.pack(len(body) + 4, verb, 0, 1) + body)
        return self.answer()

    def answer(self) -> tuple[int, bytes]:
        length, _verb, _flags, _tag = HEADER.unpack(self._read(HEADER.size))
        body = self._read(length - 4)
        return struct.unpack_from("<ii", body)[1], body[8:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data

    def greeted(self) -> Program:
        assert self.call(Verb.CONNECT, GREETING)[0] == 0
        assert self.call(Verb.OPEN, OPEN_A)[0] == 0
        return self

    def start_get(self, options: int, wait: int = -1) -> None:
        """Send an MQGET; `answer` is what it comes to."""
        body = struct.pack("<7i", 1, options, wait, 0, 0, 2, 100) + bytes(16) + MD
        self.socket.sendall(HEADER.pack(len(body) + 4, Verb.GET, 0, 1) + body)

    def put(self, options: int = 0) -> int:
        return self.call(Verb.PUT, struct.pack("<4i", 1, options, 0, 9) + MD + blob(b"") + blob(b"data"))[0]
