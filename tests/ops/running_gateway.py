"""A gateway as a process, for tests that look at it from outside."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mqi_clients
from free_ports import free_port
from gateways import RunningGateway
from ops_machine import ROOT
from patient_device import Device


@dataclass(frozen=True)
class Running:
    """Where it listens, and its process."""

    port: int
    admin: int
    web: int
    folder: Path
    process: subprocess.Popen[bytes]

    def text(self, path: str, token: str = "") -> str:
        """GET on the admin port."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())


SETTINGS = """
listeners:
  - {{name: plain, port: {port}}}
  - {{name: web, port: {web}, websocket: {{path: /mqtt, origins: ["http://127.0.0.1:{admin}"]}}}}
admin: {{port: {admin}, token_file: admin.token}}
queue_manager: {{embedded: {{path: {folder}/data}}}}
mappings: [plant.yaml]
"""
MAPPING = """
version: 1
to_mq:
  - {name: readings, topic: "plant/{site}/line/{line}/temperature", queue: MQGATE.DEFAULT, properties: {site: "{site}"}}
  - {name: lost, topic: "lost/#", queue: "NO.SUCH.{listener}", on_failure: {then: dead_letter}}
"""
TOKEN = "operator-token-of-the-tests"
AWAY = """
queue_manager:
  ibm: {{name: QM1, connection: "unix:{folder}/nobody.sock", driver: ibmmq}}
  buffer: {{path: buffer}}
mappings: [map.yaml]
"""
BUFFERED = """
version: 1
to_mq:
  - {name: buffered, topic: "plant/#", queue: PLANT}
"""


@contextmanager
def running(
    folder: Path,
    listener: str = "",
    environment: dict[str, str] | None = None,
    *,
    more: str = "",
    mapping: str = MAPPING,
) -> Iterator[Running]:
    """A gateway with the embedded queue manager, ready; `listener` is one more line of its listeners, `more` are
    further settings."""
    port, admin, web = free_port(), free_port(), free_port()
    settings = SETTINGS.format(port=port, admin=admin, web=web, folder=folder)
    (folder / "plant.yaml").write_text(mapping)
    (folder / "admin.token").write_text(TOKEN + "\n")
    text = settings.replace("\nadmin:", f"\n{listener}\nadmin:", 1) + more
    process = RunningGateway(folder, settings=text, environ=environment)
    try:
        process.start(port=port, admin_port=admin)
        assert process.process is not None
        gateway = Running(port, admin, web, folder, process.process)
        until_ready(gateway)
        yield gateway
    finally:
        process.stop()


@contextmanager
def buffering(folder: Path) -> Iterator[RunningGateway]:
    """A gateway whose queue manager is away, with a message that waits in its buffer."""
    (folder / "map.yaml").write_text(BUFFERED)
    path = os.pathsep.join([str(mqi_clients.packages(*mqi_clients.BINDINGS)), str(ROOT)])
    gateway = RunningGateway(folder, settings=AWAY.format(folder=folder), environ={"PYTHONPATH": path})
    try:
        gateway.start()
        with Device("127.0.0.1", gateway.port, "waits", timeout=30) as device:
            device.connect()
            device.publish("plant/x", b"x", 1)
        yield gateway
    finally:
        gateway.stop()


def until_ready(gateway: Running) -> None:
    """Wait until it says so."""
    for _ in range(600):
        assert gateway.process.poll() is None, _logged(gateway.folder)
        try:
            if "ok" in gateway.text("/readyz"):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError(_logged(gateway.folder))


def _logged(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("log*")))


def publish(
    gateway: Running, topic: str, payload: str, times: int = 1, qos: int = 1, client_id: str = "line-007"
) -> None:
    """Publish with a real client and wait for every acknowledgement."""
    from paho.mqtt.client import CallbackAPIVersion, Client

    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id)
    client.connect("127.0.0.1", gateway.port)
    client.loop_start()
    sent = [client.publish(topic, payload, qos=qos) for _ in range(times)]
    for each in sent:
        each.wait_for_publish(60)
        assert each.is_published(), f"no acknowledgement in a minute:\n{_logged(gateway.folder)}"
    client.disconnect()
    client.loop_stop()


def until(check: Callable[[], Any]) -> Any:
    """What `check` finds, as soon as it finds something."""
    deadline = time.monotonic() + 60
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found
