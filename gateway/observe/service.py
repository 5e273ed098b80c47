"""What systemd wants to be told: ready, reloading, stopping, alive. Without systemd (no NOTIFY_SOCKET) nothing is sent.

The composition root calls `ready` when the listeners are bound, `reloading` and `ready` around a reload, `stopping`
when the drain begins, and `alive` every `watchdog_seconds() / 2` while all workers' reactors tick.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class ServiceManager:
    """The datagram socket systemd gave this process, if any."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = _watchdog_of(environ)

    @property
    def present(self) -> bool:
        """Whether there is a systemd to tell."""
        return bool(self._address)

    def watchdog_seconds(self) -> float | None:
        """How often `alive` is expected at least; None without a watchdog for this process."""
        return self._watchdog

    def ready(self, status: str = "") -> None:
        """READY=1: started, or a reload has ended."""
        self._send("READY=1", status)

    def reloading(self) -> None:
        """A reload begins; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}", "reloading the configuration")

    def stopping(self, status: str = "") -> None:
        """The drain begins."""
        self._send("STOPPING=1", status)

    def alive(self) -> None:
        """Feeds the watchdog."""
        self._send("WATCHDOG=1", "")

    def status(self, text: str) -> None:
        """A line for `systemctl status`."""
        self._send("", text)

    def _send(self, state: str, status: str) -> None:
        if not self._address:
            return
        lines = [line for line in (state, f"STATUS={status}" if status else "") if line]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.connect(self._address)
                sender.sendall("\n".join(lines).encode())
            except OSError:
                return  # systemd is gone or its queue is full: the gateway does not depend on it


def _watchdog_of(environ: Mapping[str, str]) -> float | None:
    pid, usec = environ.get("WATCHDOG_PID"), environ.get("WATCHDOG_USEC", "")
    if not usec.isdigit() or (pid is not None and pid != str(os.getpid())):
        return None
    return int(usec) / 1e6
