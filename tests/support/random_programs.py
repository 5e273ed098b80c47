"""Programs that make MQI calls at random through the socket, byte by byte, and keep account of what they put and get.

Whatever they do, every call is answered; and what was put and committed has been got and committed by one of them, or
is still on a queue.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gateway.mqi.wire import HEADER, MAGIC, NO_REPLY, PROTOCOL_VERSION, Verb

PATIENCE = 60
"""Seconds within which a call has to be answered."""
QUEUES = ("Q", "R")
SYNCPOINT, NO_SYNCPOINT, WAIT, BROWSE_FIRST, BROWSE_NEXT, ASYNC = 2, 4, 1, 16, 32, 0x10000
INPUT_OUTPUT_BROWSE = 2 | 16 | 8
GET_NO_MESSAGE = 2033


def _blob(data: bytes) -> bytes:
    return struct.pack("<i", len(data)) + data


def _descriptor(kind: int, *, persistent: bool, correl_id: bytes) -> bytes:
    start = b"MD  " + struct.pack("<7i", 2, 0, kind, -1, 0, 546, 0) + b" " * 8
    start += struct.pack("<2i", -1, persistent) + bytes(24) + correl_id + bytes(4) + b" " * 96
    return start + bytes(364 - len(start) - 40) + bytes(24) + struct.pack("<4i", 1, 0, 0, -1)


class NotAnswered(AssertionError):
    """A call has had no answer in time."""


class RandomProgram:
    """One connection and its dice."""

    def __init__(self, path: Path, number: int, seed: int) -> None:
        self.number = number
        self.dice = random.Random(seed * 1000 + number)
        self.put: Counter[bytes] = Counter()
        """What it has put for good, and `got` what it has got for good; the others are in its unit of work."""
        self.got: Counter[bytes] = Counter()
        self._put_in_unit: list[bytes] = []
        self._got_in_unit: list[bytes] = []
        self._serial = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(str(path))
        greeting = MAGIC + struct.pack("<3i", PROTOCOL_VERSION, 0, 0) + b"".join(map(_blob, [b""] * 6))
        assert self._call(Verb.CONNECT, greeting)[0] == 0
        self._handles = [self._open(name) for name in QUEUES]
        self._kinds: list[Callable[[int], None]] = [
            self._put, self._put, self._put_unanswered, self._get, self._get_waiting, self._browse, self._commit,
            self._back_out, self._pause,
        ]  # fmt: skip

    def run(self, calls: int) -> None:
        """Make so many calls, then commit and leave."""
        for _ in range(calls):
            self.dice.choice(self._kinds)(self.dice.choice(self._handles))
        self._commit(0)
        self._disconnect()

    def drain(self) -> Counter[bytes]:
        """Everything that is on the queues."""
        found: Counter[bytes] = Counter()
        for handle in self._handles:
            while (data := self._got(handle, NO_SYNCPOINT, bytes(24))) is not None:
                found[data] += 1
        self._disconnect()
        return found

    # ---- calls

    def _open(self, name: str) -> int:
        body = struct.pack("<i", 1) + b"".join(map(_blob, [name.encode(), b"", b"", b"", b"", b""]))
        reason, rest = self._call(Verb.OPEN, body + struct.pack("<i", INPUT_OUTPUT_BROWSE))
        assert reason == 0
        return int(struct.unpack_from("<i", rest)[0])

    def _message(self, handle: int, options: int) -> tuple[bytes, bytes]:
        self._serial += 1
        data = b"%d.%d " % (self.number, self._serial) + b"x" * self.dice.choice((1, 500, 5000))
        md = _descriptor(8, persistent=self.dice.random() < 0.5, correl_id=self._correl_id())
        return data, struct.pack("<4i", handle, options, 0, 9) + md + _blob(b"") + _blob(data)

    def _correl_id(self) -> bytes:
        return bytes([1 + self.dice.randrange(4)]) * 24

    def _put(self, handle: int) -> None:
        options = self.dice.choice((SYNCPOINT, NO_SYNCPOINT))
        data, body = self._message(handle, options)
        reason, _ = self._call(Verb.PUT, body)
        assert reason == 0, reason
        self._has_put(data, options)

    def _put_unanswered(self, handle: int) -> None:
        options = self.dice.choice((SYNCPOINT, NO_SYNCPOINT))
        data, body = self._message(handle, options | ASYNC)
        self._send(Verb.PUT, body, NO_REPLY)
        self._has_put(data, options)

    def _has_put(self, data: bytes, options: int) -> None:
        if options & SYNCPOINT:
            self._put_in_unit.append(data)
        else:
            self.put[data] += 1

    def _get(self, handle: int) -> None:
        self._take(handle, 0, 0)

    def _get_waiting(self, handle: int) -> None:
        self._take(handle, WAIT, self.dice.choice((1, 5, 20)))

    def _take(self, handle: int, wait: int, milliseconds: int) -> None:
        options = self.dice.choice((SYNCPOINT, NO_SYNCPOINT))
        wanted = self._correl_id() if self.dice.random() < 0.4 else bytes(24)
        data = self._got(handle, options | wait, wanted, milliseconds)
        if data is None:
            return
        if options & SYNCPOINT:
            self._got_in_unit.append(data)
        else:
            self.got[data] += 1

    def _browse(self, handle: int) -> None:
        self._got(handle, self.dice.choice((BROWSE_FIRST, BROWSE_NEXT)), bytes(24))

    def _got(self, handle: int, options: int, wanted: bytes, milliseconds: int = 0) -> bytes | None:
        md = _descriptor(8, persistent=False, correl_id=wanted)
        body = struct.pack("<7i", handle, options, milliseconds, 3, 0, 2, 10_000) + bytes(16) + md
        reason, rest = self._call(Verb.GET, body)
        if reason == GET_NO_MESSAGE:
            return None
        assert reason == 0, reason
        (length,) = struct.unpack_from("<i", rest, 368)
        return rest[372 : 372 + length]

    def _commit(self, _handle: int) -> None:
        reason, _ = self._call(Verb.COMMIT)
        assert reason == 0, reason
        self.put.update(self._put_in_unit)
        self.got.update(self._got_in_unit)
        self._forget_unit()

    def _back_out(self, _handle: int) -> None:
        assert self._call(Verb.BACK_OUT)[0] == 0
        self._forget_unit()

    def _forget_unit(self) -> None:
        self._put_in_unit.clear()
        self._got_in_unit.clear()

    def _pause(self, _handle: int) -> None:
        time.sleep(self.dice.choice((0.0, 0.001, 0.003)))

    def _disconnect(self) -> None:
        assert self._call(Verb.DISCONNECT)[0] == 0
        self._socket.close()

    # ---- frames

    def _call(self, verb: Verb, body: bytes = b"") -> tuple[int, bytes]:
        """Reason, and what follows it."""
        self._send(verb, body, 0)
        try:
            length, _verb, _flags, _tag = HEADER.unpack(self._read(HEADER.size))
            answer = self._read(length - 4)
        except TimeoutError:
            raise NotAnswered(f"program {self.number}: {verb.name} has had no answer for {PATIENCE} s") from None
        return struct.unpack_from("<ii", answer)[1], answer[8:]

    def _send(self, verb: Verb, body: bytes, flags: int) -> None:
        self._socket.sendall(HEADER.pack(len(body) + 4, verb, flags, 1) + body)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            assert chunk, f"program {self.number} was disconnected"
            data += chunk
        return data


def run_all(path: Path, *, programs: int, calls: int, seed: int) -> None:
    """Programs at once: every call is answered, and the accounts agree with what is left."""
    made = [RandomProgram(path, number, seed) for number in range(programs)]
    failures: list[BaseException] = []

    def run(program: RandomProgram) -> None:
        try:
            program.run(calls)
        except BaseException as error:  # noqa: BLE001 -- raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)
    put, got = sum((one.put for one in made), Counter()), sum((one.got for one in made), Counter())
    left = RandomProgram(path, programs, seed).drain()
    assert got + left == put
