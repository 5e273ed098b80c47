"""System calls of a gateway that fail on request: see failing_calls.c."""

from __future__ import annotations

import enum
import mmap
import struct
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
ORDER = struct.Struct("8I8I256s")
FAILED = struct.Struct("I")
ALWAYS = 0xFFFFFFFF


class Call(enum.IntFlag):
    """What fails."""

    OPEN = 1
    WRITE = 2
    SYNC = 4
    RENAME = 8
    SIZE = 16
    UNLINK = 32


ANY = Call(63)


class FailingCalls:
    """Calls of the processes that have `environ`, on files whose paths contain `where`."""

    def __init__(self, directory: Path, where: str, *, without: int = 0) -> None:
        """`without`: 1 no O_DIRECT, as on overlays; 2 no RWF_DSYNC either, so that writes are followed by fdatasync."""
        library, orders = directory / "failing_calls.so", directory / "faults"
        command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except OSError as error:
            pytest.skip(f"needs a C compiler: {error}")
        orders.write_bytes(bytes(ORDER.size))
        with orders.open("r+b") as file:
            self._order = mmap.mmap(file.fileno(), ORDER.size)
        self._where, self._without = where.encode(), without
        self.environ = {"LD_PRELOAD": str(library), "MQGATE_FAULTS": str(orders)}
        self.recover()

    def fail(self, calls: Call, code: int, *, passed: int = 0, most: int = ALWAYS, done: bool = False) -> None:
        """After `passed` calls so many fail with this error; `done`: after all that they are for."""
        self._write(calls, code, passed, most, done=done)
        self._order[:4] = FAILED.pack(1)

    def recover(self) -> None:
        """No more fails."""
        self._write(Call(0), 0, 0, 0, done=False)

    def _write(self, calls: Call, code: int, passed: int, most: int, *, done: bool) -> None:
        self._order[: ORDER.size] = ORDER.pack(
            0, calls, code, passed, most, done, 0, self._without, *[0] * 8, self._where
        )

    @property
    def failed(self) -> int:
        """How many calls have failed since."""
        return int(FAILED.unpack_from(self._order, 24)[0])

    @property
    def seen(self) -> dict[str, int]:
        """How many calls of each kind there were since."""
        counts = ORDER.unpack(self._order[: ORDER.size])[8:14]
        return {str(call.name): count for call, count in zip(Call, counts, strict=True)}
