"""Alerts that need a full disk, a slow commit or a pipeline, on a real Prometheus, and three of them at a real
Alertmanager. In the long form.

The gateway's journal is small and is filled, and its target is away; another has a message in its buffer for longer
than the rendered copy of the rule allows (three seconds of five minutes); the pipeline's figures are those that its
own exporter writes, for a job that has failed and for one that has landed nothing for long.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mqi_clients
import pytest
from free_ports import free_port
from gateways import RunningGateway
from ops_machine import ROOT, program
from patient_device import Device
from running_gateway import Running, buffering, running
from test_alerts_live import firing, panel, post, rendered

from gateway.errors import ProtocolError
from gateway.pipeline.jobs.metrics import metrics_text, serve_metrics

pytestmark = [
    pytest.mark.ops,
    pytest.mark.xdist_group("prometheus"),
    pytest.mark.timeout(400),
    pytest.mark.skipif("MQGATE_LONG" not in os.environ, reason="long runs only: the rules are tested with data too"),
]

CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yaml, slo.yaml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{manager}"]}}]}}]}}
scrape_configs:
  - {{job_name: mqgate, static_configs: [{{targets: ["127.0.0.1:{admin}", "127.0.0.1:{behind}"]}}]}}
  - {{job_name: pipeline, static_configs: [{{targets: [{pipelines}]}}]}}
"""
RECEIVER = """
route: {{receiver: test, group_wait: 1s, group_interval: 1s, group_by: [alertname]}}
receivers: [{{name: test, webhook_configs: [{{url: "http://127.0.0.1:{port}/"}}]}}]
"""
MAPPING = """
version: 1
to_mq:
  - {name: readings, topic: "plant/#", queue: MQGATE.DEFAULT}
  - {name: shut, topic: "shut/#", queue: SHUT, on_failure: {retry: {from: 100ms, to: 500ms}, then: hold}}
"""
WANTED = {
    "MqgateBridgeLatencyHigh", "MqgateDiskFull", "MqgateOldestMessageStale", "MqgatePipelineBehind",
    "MqgatePipelineStopped",
    "MqgateQueueManagerDisconnected", "MqgateReactorStall", "MqgateSpoolFilling", "MqgateSpoolFullSoon",
}  # fmt: skip


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    small = {
        "MQGATE_QUEUE_MANAGER__EMBEDDED__SEGMENT_BYTES": "1MiB",
        "MQGATE_QUEUE_MANAGER__EMBEDDED__MAX_BYTES": "12MiB",
        "PYTHONPATH": os.pathsep.join([str(mqi_clients.packages(*mqi_clients.BINDINGS)), str(ROOT)]),
    }
    more = f'targets: {{QM2: {{connection: "unix:{tmp_path}/nobody.sock"}}}}\n'
    with running(tmp_path, environment=small, mapping=MAPPING, more=more) as found:
        yield found


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[RunningGateway]:
    (tmp_path / "behind").mkdir()
    with buffering(tmp_path / "behind") as found:
        yield found


@contextmanager
def told() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A receiver of alerts: its port, and what it has been told."""
    heard: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], heard
    finally:
        server.shutdown()
        server.server_close()


def pipeline(state: str, landed: float, lag: int) -> str:
    """What a job shows on its own port."""
    run, last = {"state": state}, {"landed": landed, "seconds": 1.0, "rows": 5}
    groups = [{"name": "spark", "lag": lag}]
    return metrics_text({"job": "land", "run": run, "last_batch": last, "groups": groups})


@pytest.fixture
def pipelines() -> Iterator[list[int]]:
    ports = [free_port(), free_port()]
    texts = [pipeline("failed", time.time(), 0), pipeline("running", time.time() - 1000, 7)]
    servers = [serve_metrics("127.0.0.1", port, partial(str, text)) for port, text in zip(ports, texts, strict=True)]
    yield ports
    for server in servers:
        server.shutdown()
        server.server_close()


def fill(gateway: Running, over: threading.Event) -> None:
    """Publications, until nothing more is taken, and more then."""
    while not over.is_set():
        with suppress(OSError, ProtocolError), Device("127.0.0.1", gateway.port, "fills", timeout=3) as device:
            device.connect()
            while not over.wait(0.05):
                device.publish("plant/x", bytes(20_000), 1)


def wait_late(gateway: Running) -> None:
    """Publications that are held for longer than a second, then put."""
    post(gateway, "/mqsc", {"text": "DEFINE QLOCAL(SHUT) REPLACE PUT(DISABLED)"})
    devices = [Device("127.0.0.1", gateway.port, f"late {number}", timeout=30) for number in range(5)]
    for device in devices:
        device.connect()
    waiting = [threading.Thread(target=device.publish, args=("shut/x", b"x", 1), daemon=True) for device in devices]
    for one in waiting:
        one.start()
    time.sleep(2)
    post(gateway, "/mqsc", {"text": "ALTER QLOCAL(SHUT) PUT(ENABLED)"})
    for one in waiting:
        one.join(30)
    for device in devices:
        device.close()


def stall(gateway: Running) -> None:
    """Stop the process again and again while it works."""
    for _ in range(5):
        os.kill(gateway.process.pid, signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(gateway.process.pid, signal.SIGCONT)
        time.sleep(0.2)


def test_alerts_of_storage_latency_and_pipeline_fire_and_are_told(
    gateway: Running, behind: RunningGateway, pipelines: list[int], tmp_path: Path
) -> None:
    for name in ("alerts.yaml", "slo.yaml"):
        (tmp_path / name).write_text(rendered(name))
    manager, address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    targets = ", ".join(f'"127.0.0.1:{port}"' for port in pipelines)
    (tmp_path / "prometheus.yml").write_text(
        CONFIGURATION.format(admin=gateway.admin, behind=behind.admin, manager=manager, pipelines=targets)
    )
    with told() as (port, heard):
        (tmp_path / "alertmanager.yml").write_text(RECEIVER.format(port=port))
        commands = [
            [program("prometheus"), f"--config.file={tmp_path}/prometheus.yml", "--log.level=error",
             f"--storage.tsdb.path={tmp_path}/tsdb", f"--web.listen-address={address}"],
            [program("prometheus-alertmanager"), f"--config.file={tmp_path}/alertmanager.yml", "--log.level=error",
             f"--storage.path={tmp_path}/am", f"--web.listen-address={manager}", "--cluster.listen-address="],
        ]  # fmt: skip
        processes = [subprocess.Popen(command) for command in commands]
        over = threading.Event()
        filling = threading.Thread(target=fill, args=(gateway, over), daemon=True)
        try:
            seen: set[str] = set()
            wait_late(gateway)
            filling.start()
            deadline = time.monotonic() + 240
            while WANTED - seen:
                assert time.monotonic() < deadline, f"not fired: {sorted(WANTED - seen)}"
                seen |= firing(address)
                if "MqgateBridgeLatencyHigh" not in seen and not over.is_set():
                    wait_late(gateway)
                if "MqgateReactorStall" not in seen:
                    stall(gateway)
                time.sleep(0.3)
            assert panel(address, "Pipeline lag"), "the panel of the dashboard is empty where there is a pipeline"
            wanted = {"MqgateDiskFull", "MqgateOldestMessageStale", "MqgatePipelineStopped"}
            while wanted - {one["labels"]["alertname"] for one in heard}:
                assert time.monotonic() < deadline, heard
                time.sleep(0.3)
        finally:
            over.set()
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)
    full = next(one for one in heard if one["labels"]["alertname"] == "MqgateDiskFull")
    assert full["annotations"]["runbook_url"].endswith("disk-full.md")
