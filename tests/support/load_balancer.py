"""A TCP load balancer for tests: each connection goes to the next server in turn, past those that refuse it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

_CHUNK = 1 << 16


class LoadBalancer:
    """Listens on a free port of the loopback interface until it is closed."""

    def __init__(self, ports: Callable[[], Sequence[int]]) -> None:
        """`ports` says, for each connection, where servers listen now."""
        self._ports = ports
        self._turn = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="load-balancer", daemon=True)
        self._thread.start()

    def connect(self) -> socket.socket:
        """A connection through it."""
        connection = socket.create_connection(("127.0.0.1", self.port), 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cut(self) -> None:
        """Break every connection that is open now, at both ends."""
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        """Break every connection and take none any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._listener.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accepted, sock=self._listener))
        self._loop.run_forever()
        server.close()
        self._cut()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    def _cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            await self._relay(reader, writer)
        finally:
            writer.transport.abort()
            self._open.discard(writer)
            self._tasks.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = await self._next_server()
        if found is None:
            return
        there_reader, there_writer = found
        self._open.add(there_writer)
        try:
            await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
        finally:
            there_writer.transport.abort()
            self._open.discard(there_writer)

    async def _next_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        ports = self._ports()
        for _ in ports:
            self._turn += 1
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", ports[self._turn % len(ports)])
        return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One way, to its end; what breaks here breaks the other way too."""
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
