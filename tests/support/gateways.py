"""Gateways as subprocesses for tests: started on free ports, killed, started again on the same data."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import gateway_template
from free_ports import free_port

TREE = gateway_template.TREE


class RunningGateway:
    """One `mqgate run` in a directory of its own."""

    def __init__(self, directory: Path, *, settings: str = "", environ: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.settings = settings
        self.environ = environ or {}
        self.program = ["-m", "gateway"]
        """What the interpreter runs: a program that has to be there before the gateway's modules are loaded needs a
        `launch` of its own."""
        self.launch: Callable[..., subprocess.Popen[bytes]] = gateway_template.launch
        self.segment_bytes = "4MiB"
        """Of the journal, unless the settings speak of it. Empty: as its disk has it, which on a large one is five of
        64 MiB, two of them written at each start."""
        self.start_seconds = 180.0
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.admin = 0
        self._starts = 0

    @property
    def log(self) -> str:
        """What the present process has logged: whole lines, as another is perhaps just being written."""
        lines, end, _ = (self.directory / f"log.{self._starts}").read_bytes().rpartition(b"\n")
        return (lines + end).decode()

    def start(self, *, port: int = 0, admin_port: int = 0) -> RunningGateway:
        """Start and wait until it serves: on these ports, or on others that nobody is given before it starts again."""
        self._starts += 1
        port, admin_port = port or free_port(), admin_port or free_port()
        command = [sys.executable, *self.program, "run", "--port", str(port), "--admin-port", str(admin_port)]
        if "ibm:" not in self.settings:
            command += ["--data", str(self.directory / "data")]
        if self.settings:
            path = self.directory / "settings.yaml"
            path.write_text(self.settings)
            command += ["-c", str(path)]
        environ = gateway_template.of_this_tree({**os.environ, **self.environ})
        if self.segment_bytes and not any(word in self.settings for word in ("ibm:", "segment_bytes:", "max_bytes:")):
            environ.setdefault("MQGATE_QUEUE_MANAGER__EMBEDDED__SEGMENT_BYTES", self.segment_bytes)
        with (self.directory / f"log.{self._starts}").open("wb") as log:
            self.process = self.launch(command, stdout=log, stderr=log, env=environ, cwd=self.directory)
        until = time.monotonic() + self.start_seconds
        while time.monotonic() < until:
            if '"started"' in self.log:
                found = re.search(r"MQTT on [^\"]*?:(\d+)", self.log)
                admin = re.search(r"admin on [^\"]*?:(\d+)", self.log)
                assert found
                assert admin
                self.port, self.admin = int(found[1]), int(admin[1])
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        code = self.process.poll()
        how = f"it is still at it after {self.start_seconds:.0f} s" if code is None else f"it ended with {code}"
        raise AssertionError(f"the gateway did not start, {how}:\n{self.log}")

    def ports(self) -> dict[str, int]:
        """Port by listener name."""
        found = {}
        for line in self.log.splitlines():
            if line.startswith("{"):
                record = json.loads(line)
                match = re.search(r" on .*:(\d+)$", record.get("msg", ""))
                if record.get("event") == "listening" and match:
                    found[record["listener"]] = int(match[1])
        return found

    def kill(self) -> None:
        """SIGKILL, as a power cut for the process."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def wait_killed(self) -> int:
        """Wait until a failpoint has ended it."""
        assert self.process is not None
        return self.process.wait(60)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    close = stop

    def connect(self) -> socket.socket:
        """A TCP connection to its first listener."""
        connection = socket.create_connection(("127.0.0.1", self.port), 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def get(self, path: str) -> str:
        """A page of the admin port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=60) as answer:
            return answer.read().decode()

    def api(self, method: str, path: str, body: object = None) -> Any:
        """A call of the administration API by its operator; None where it answers nothing."""
        token = next(self.directory.glob("*data/admin.token")).read_text().strip()
        url = f"http://127.0.0.1:{self.admin}/api/v1{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def bodies(self, queue: str) -> list[str]:
        """The beginning of each message on a queue of the embedded queue manager."""
        found: list[str] = []
        after = ""
        while True:
            page = self.api("GET", f"/queues/{queue}/messages?limit=500{after}")
            found += [one["preview"] for one in page["items"]]
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"

    def metric(self, line_start: str) -> float:
        """The value of the series that begins so."""
        for line in self.get("/metrics").splitlines():
            if line.startswith(line_start):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no series {line_start}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
