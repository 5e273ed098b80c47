"""A well-behaved client in a process of its own, and beside it a control that shows what the machine itself costs.

The canary publishes at QoS 1 and remembers the longest it waited for an acknowledgement. The control does the same work
without a gateway: a byte over loopback to a process that writes 4 KiB, calls fdatasync and answers. What keeps both
waiting is the machine; what keeps only the canary waiting is the gateway.

    python tests/e2e/canary.py canary PORT     python tests/e2e/canary.py control DIRECTORY
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PERIOD = 0.01


class Watched:
    """The canary or its control, as a process: `begin`, then `end`, which says how it was in between."""

    def __init__(self, kind: str, argument: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, kind, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert json.loads(self._line()) == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the watcher ended with {self._process.wait(10)}"
        return line

    def _say(self, word: str) -> object:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def begin(self) -> None:
        """From now on."""
        assert self._say("begin") == "begun"

    def end(self) -> tuple[int, float]:
        """How often it was answered since, and the longest wait in seconds, one that still lasts included."""
        found = self._say("end")
        assert isinstance(found, list), found
        return int(found[0]), float(found[1])

    def close(self) -> None:
        """It is no longer needed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@contextlib.contextmanager
def watched(kind: str, argument: str) -> Iterator[Watched]:
    """A watcher for a while."""
    one = Watched(kind, argument)
    try:
        yield one
    finally:
        one.close()


def _watch(ask: Callable[[], object]) -> None:
    """Ask every PERIOD; report between `begin` and `end`, which come as lines."""
    print(json.dumps("ready"), flush=True)
    longest, count = 0.0, 0
    while True:
        if select.select([sys.stdin], [], [], PERIOD)[0]:
            word = sys.stdin.readline().strip()
            if not word:
                return
            if word == "begin":
                longest, count = 0.0, 0
                print(json.dumps("begun"), flush=True)
            else:
                print(json.dumps([count, longest]), flush=True)
        started = time.monotonic()
        ask()
        longest, count = max(longest, time.monotonic() - started), count + 1


def _canary(port: int) -> None:
    from gateway.net.device import Device

    device = Device("127.0.0.1", port, "canary", version=5, timeout=60)
    assert device.connect() == 0
    _watch(lambda: device.publish("canary/alive", b"yes", 1))


def _control(directory: str) -> None:
    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        file = os.open(Path(directory, "control"), os.O_RDWR | os.O_CREAT, 0o600)
        while there.recv(1):
            os.pwrite(file, bytes(4096), 0)
            os.fdatasync(file)
            there.sendall(b"x")
        os._exit(0)
    there.close()

    def ask() -> None:
        here.sendall(b"x")
        here.recv(1)

    _watch(ask)


if __name__ == "__main__":
    if sys.argv[1] == "canary":
        _canary(int(sys.argv[2]))
    else:
        _control(sys.argv[2])
