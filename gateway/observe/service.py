"""Notifications to systemd: ready, stopping, alive. Without systemd (no NOTIFY_SOCKET) nothing is sent.

`Gateway` calls `ready` when the listeners are bound, `stopping` when the drain begins, and `alive` every
`watchdog_seconds() / 2` while its reactor runs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """The datagram socket that systemd gave this process, if any."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = _watchdog_of(environ)

    def watchdog_seconds(self) -> float | None:
        """Returns within how many seconds `alive` has to be called; None if there is no watchdog for this process."""
        return self._watchdog

    def ready(self, status: str = "") -> None:
        """Report that the process has started; `systemctl status` shows `status`."""
        self._send("READY=1", status)

    def starting(self, status: str, seconds: int) -> None:
        """Report that the start continues, and may take this many seconds more."""
        self._send(f"EXTEND_TIMEOUT_USEC={seconds * 1_000_000}", status)

    def stopping(self, status: str = "") -> None:
        """Report that the drain begins."""
        self._send("STOPPING=1", status)

    def alive(self) -> None:
        """Report that the process is alive, to the watchdog."""
        self._send("WATCHDOG=1", "")

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
