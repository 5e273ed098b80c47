"""A real gateway as a subprocess on free ports, for tests that speak to it over sockets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from free_ports import free_port


class Gateway:
    """Starts, kills and restarts one gateway over one data directory."""

    def __init__(self, directory: Path, settings: str = "", *, ready_seconds: float = 20) -> None:
        self.directory = directory
        self.port = free_port()
        self.admin_port = free_port()
        self.ready_seconds = ready_seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.log = directory / "gateway.log"
        self.config = directory / "mqgate.yaml"
        directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text(settings or "{}\n")

    def start(self) -> None:
        command = [sys.executable, "-m", "gateway", "run", "-c", str(self.config), "--port", str(self.port)]
        command += ["--admin-port", str(self.admin_port), "--data", str(self.directory / "data")]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log, env=environment)
        self.wait_ready()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + self.ready_seconds
        while time.monotonic() < deadline:
            if self.process is not None and self.process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"the gateway did not start:\n{self.log.read_text()[-4000:]}")

    def _end(self, number: int, seconds: float) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process = None

    def stop(self) -> None:
        self._end(signal.SIGTERM, 15)

    def kill(self) -> None:
        self._end(signal.SIGKILL, 15)

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
