"""A bare prototype: what durable ingestion costs in Python when nothing else is done. `bare.py --port N FILE`.

Reads PUBLISH packets of QoS 1 from all sockets that are ready, joins their payloads behind a fixed head of 500 bytes (a
descriptor and an MQRFH2), frames them with a checksum, writes the frame over blocks that exist (O_DIRECT, O_DSYNC) and
acknowledges. No session, access list, rule, property, queue or recovery: the gateway's cost is given as a multiple.
"""

from __future__ import annotations

import argparse
import mmap
import os
import select
import socket
import struct
from itertools import accumulate
from pathlib import Path

from xxhash import xxh3_64_intdigest

HEAD = bytes(500)
RING = 64 << 20
BLOCK = 4096
_SHORT = struct.Struct(">BBH").unpack_from
ACKS = [b"\x40\x02" + number.to_bytes(2, "big") for number in range(65_536)]


class Ring:
    """Blocks written beforehand, used round and round."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_DSYNC, 0o600)
        self.buffer = memoryview(mmap.mmap(-1, 16 << 20))
        for offset in range(0, RING, len(self.buffer)):
            os.pwrite(self.fd, self.buffer, offset)
        self.at = self.sequence = 0

    def write(self, bodies: list[bytes]) -> None:
        """One frame with these bodies; on disk when this returns."""
        offsets = struct.pack(f"<{len(bodies) + 1}i", *accumulate(map(len, bodies), initial=0))
        data = b"".join((HEAD, offsets, *bodies))
        checksum = xxh3_64_intdigest(data, seed=self.sequence)
        frame = struct.pack("<QQQQ", checksum, self.sequence, len(bodies), len(data)) + data
        length = -(-len(frame) // BLOCK) * BLOCK
        if self.at + length > RING:
            self.at = 0
        self.buffer[: len(frame)] = frame
        os.pwrite(self.fd, self.buffer[:length], self.at)
        self.at += length
        self.sequence += 1


class Client:
    """A socket and the packet that is not whole yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.rest = b""
        self.acks: list[bytes] = []

    def take(self, chunk: bytes, bodies: list[bytes]) -> None:
        """The publications of a chunk; CONNECT, PINGREQ and DISCONNECT are answered or ignored."""
        data = self.rest + chunk if self.rest else chunk
        at, end, acks = 0, len(data), self.acks
        while at + 4 <= end:
            first, length, topic = _SHORT(data, at)
            start = at + 2
            if length > 127:
                if at + 5 > end:
                    break
                length, start = (length & 127) | (data[at + 2] << 7), at + 3
                topic = data[start] << 8 | data[start + 1]
            stop = start + length
            if stop > end:
                break
            if first == 0x32:
                mark = start + 2 + topic
                packet_id = data[mark] << 8 | data[mark + 1]
                acks.append(ACKS[packet_id])
                bodies.append(data[mark + 2 : stop])
            elif first == 0x10:
                acks.append(b"\x20\x02\x00\x00")
            at = stop
        while at + 2 <= end and data[at + 1] == 0:  # PINGREQ, DISCONNECT
            if data[at] == 0xC0:
                acks.append(b"\xd0\x00")
            at += 2
        self.rest = data[at:]


def serve(port: int, path: Path) -> None:
    """Until killed."""
    listening = socket.create_server(("127.0.0.1", port), backlog=1024)
    listening.setblocking(False)
    ready = select.epoll()
    ready.register(listening.fileno(), select.EPOLLIN)
    ring, clients = Ring(path), {}
    while True:
        bodies: list[bytes] = []
        for fd, _ in ready.poll():
            if fd == listening.fileno():
                sock, _ = listening.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[sock.fileno()] = Client(sock)
                ready.register(sock.fileno(), select.EPOLLIN)
                continue
            client = clients[fd]
            try:
                chunk = client.sock.recv(1 << 16)
            except ConnectionError:
                chunk = b""
            if not chunk:
                ready.unregister(fd)
                clients.pop(fd).sock.close()
                continue
            client.take(chunk, bodies)
        if bodies:
            ring.write(bodies)
        for client in clients.values():
            if client.acks:
                client.sock.setblocking(True)
                client.sock.sendall(b"".join(client.acks))
                client.sock.setblocking(False)
                client.acks = []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    serve(given.port, given.file)
