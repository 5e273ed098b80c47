"""The servers of the benchmarks: a gateway, the prototype, and peers as their packages ship them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import newer_peers

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHARED = Path(os.environ.get("MQGATE_BENCH", ROOT.parent / "shared" / "bench"))
START_SECONDS = 30


class Running(NamedTuple):
    """A gateway that serves: its ports by listener, and its process."""

    ports: dict[str, int]
    pid: int
    folder: Path


def load_generator() -> Path | None:
    """The C load generator, built where its source is, with TLS where the headers of OpenSSL are."""
    given = os.environ.get("MQTTLOAD")
    if given:
        return Path(given)
    source = SHARED / "mqttload.c"
    if not source.exists() or shutil.which("cc") is None:
        return None
    target = Path(tempfile.gettempdir()) / f"mqttload-{os.getuid()}"
    plain = ["cc", "-std=gnu11", "-O2", "-o", str(target), str(source)]
    with_tls = [*plain, "-DWITH_TLS", "-lssl", "-lcrypto"]
    if subprocess.run(with_tls, capture_output=True, check=False).returncode:
        subprocess.run(plain, check=True)
    return target


def pinned(core: int, *, wanted: bool = True) -> list[str]:
    """The beginning of a command that is to run on one core."""
    possible = wanted and (os.cpu_count() or 1) > 1 and shutil.which("taskset") is not None
    return ["taskset", "-c", str(core)] if possible else []


@contextmanager
def gateway(files: Mapping[str, str | dict[str, Any]], *, pin: bool = True) -> Iterator[Running]:
    """A gateway in a fresh directory with these files, one of them `settings.yaml`."""
    with tempfile.TemporaryDirectory(prefix="mqgate-bench-", dir=os.environ.get("MQGATE_BENCH_DIR")) as name:
        folder = Path(name)
        for file, content in files.items():
            (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
        command = [*pinned(0, wanted=pin), sys.executable, "-m", "gateway", "run", "-c", "settings.yaml",
                   "--admin-port", "0", "--data", "data"]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=folder, stderr=log, stdout=log, env=environment)
        try:
            yield Running(_ports(folder / "log", process), process.pid, folder)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def _ports(log: Path, process: subprocess.Popen[bytes]) -> dict[str, int]:
    """What the gateway says it listens on, by the name of the listener."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        text = log.read_text()
        events = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
        if any(one["event"] == "started" for one in events):
            said = [one for one in events if one["event"] == "listening" and one["msg"].rpartition(":")[2].isdigit()]
            return {one["listener"]: int(one["msg"].rpartition(":")[2]) for one in said}
        if process.poll() is not None:
            raise SystemExit(f"the gateway did not start:\n{text}")
        time.sleep(0.05)
    raise SystemExit(f"the gateway has not started after {START_SECONDS} s:\n{log.read_text()}")


@contextmanager
def bare(port: int) -> Iterator[int]:
    """The prototype, on the gateway's core."""
    with tempfile.TemporaryDirectory(prefix="bare-", dir=os.environ.get("MQGATE_BENCH_DIR")) as name:
        command = [*pinned(0), sys.executable, str(HERE / "bare.py"), "--port", str(port), f"{name}/ring"]
        process = subprocess.Popen(command)
        try:
            wait_for(port, process)
            yield process.pid
        finally:
            process.kill()
            process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    """Until something listens there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise SystemExit(f"{process.args}: nothing listens on port {port}")


@contextmanager
def peer(name: str, port: int, **environment: str) -> Iterator[int]:
    """A peer broker as its package ships it, or the prototype beside this file; its process. What `environment` asks
    for (PEER_TLS: a certificate's folder, PEER_WS: WebSocket) only the peers of the shared scripts understand."""
    if name == "bare":
        with bare(port) as pid:
            yield pid
        return
    if name in newer_peers.PEERS:
        with newer_peers.running(name, port, pinned(0)) as pid:
            yield pid
        return
    script = SHARED / "peers.sh"
    environ = {**os.environ, "PEER_CPUS": "0", "MQTTLOAD": str(load_generator()), **environment}
    out = subprocess.run(["bash", str(script), "start", name, str(port)], env=environ, check=True, text=True,
                         stdout=subprocess.PIPE, timeout=120)  # fmt: skip
    try:
        yield int(out.stdout.strip())
    finally:
        subprocess.run(["bash", str(script), "stop", name, str(port)], env=environ, check=False, timeout=60)
