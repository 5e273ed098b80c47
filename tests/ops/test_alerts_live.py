"""Alerts on a real Prometheus that scrapes a running gateway: each fires by the fault that it is for, and none before.

`for:`, the windows of the rules and the five minutes after which a message is stale are shortened in a rendered copy;
otherwise the expressions are those that ship. A full disk and a pipeline are in test_alerts_of_storage_live.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from gateways import RunningGateway
from ops_machine import DEPLOY, program
from patient_device import Device
from running_gateway import TOKEN, Running, buffering, running
from test_certificates_live import write_certificate
from test_dashboard_live import query
from test_generated import GRAFANA

from gateway.errors import ProtocolError
from gateway.mqtt import client

pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("prometheus"), pytest.mark.timeout(600)]

CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yaml, slo.yaml]
scrape_configs:
  - {{job_name: mqgate, static_configs: [{{targets: ["127.0.0.1:{admin}"]}}]}}
  - {{job_name: mqgate-gone, static_configs: [{{targets: ["127.0.0.1:{nobody}"]}}]}}
  - {{job_name: mqgate-buffering, file_sd_configs: [{{files: [later.yaml], refresh_interval: 1s}}]}}
"""
MAPPING = """
version: 1
to_mq:
  - {name: readings, topic: "plant/#", queue: MQGATE.DEFAULT}
  - {name: lost, topic: "lost/#", queue: NO.SUCH.QUEUE, on_failure: {then: dead_letter}}
  - {name: shut, topic: "shut/#", queue: SHUT, on_failure: {retry: {from: 100ms, to: 500ms}, then: hold}}
  - {name: given up, topic: "dropped/x", queue: NO.SUCH.QUEUE, on_failure: {retry: {times: 0}, then: drop}}
"""
SECURITY = """
security:
  anonymous: true
  users: {alice: {password_file: alice.pw}}
  acl: [{anonymous: true, deny_publish: ["denied/#"], publish: ["#"], subscribe: ["#"]}]
"""
STANDING = {"MqgateTargetDown", "MqgateCertificateExpiring"}
"""What is wrong from the start."""
OF_LOAD = {"MqgateEventLoopLag", "MqgateReactorStall", "MqgateBridgeLatencyHigh"}
"""What a machine that has too much to do makes fire, with windows of seconds."""
FAULTS = {
    "MqgateAuthFailures", "MqgateConfigReloadFailed", "MqgateDeadLettering", "MqgateDisconnectStorm",
    "MqgateErrorBudgetBurnFast", "MqgateEventLoopLag", "MqgateMessagesDropped", "MqgateMessagesHeld",
    "MqgateMessagesNotPassedOn",
    "MqgateOldestMessageStale", "MqgatePutErrorsHigh", "MqgateQueueManagerDisconnected", "MqgateSetAside",
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("alerts")
    (folder / "alice.pw").write_text("right\n")
    (folder / "objects.mqsc").write_text("DEFINE QLOCAL(SHUT) PUT(DISABLED)\n")
    write_certificate(folder, 5)
    listener = "  - {name: tls, port: 0, tls: {certificate: server.pem, key: server.key}}"
    objects = {"MQGATE_QUEUE_MANAGER__EMBEDDED__OBJECTS": str(folder / "objects.mqsc")}
    with running(folder, listener, objects, more=SECURITY, mapping=MAPPING) as found:
        yield found


def rendered(name: str) -> str:
    """A file of rules with everything that takes minutes made to take seconds."""
    text = (DEPLOY / "prometheus" / name).read_text()
    text = text.replace(
        "(mqgate_spool_oldest_message_age_seconds) > 300", "(mqgate_spool_oldest_message_age_seconds) > 3"
    )
    return re.sub(r"\[\d+[mh]\]", "[10s]", re.sub(r"for: \d+[mh]\b", "for: 1s", text))


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with buffering(tmp_path_factory.mktemp("buffering")) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Prometheus has its files."""
    return tmp_path_factory.mktemp("prometheus")


@pytest.fixture(scope="module")
def prometheus(gateway: Running, folder: Path) -> Iterator[str]:
    for name in ("alerts.yaml", "slo.yaml"):
        (folder / name).write_text(rendered(name))
    (folder / "prometheus.yml").write_text(CONFIGURATION.format(admin=gateway.admin, nobody=free_port()))
    address = f"127.0.0.1:{free_port()}"
    command = [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
               f"--web.listen-address={address}", "--log.level=error"]  # fmt: skip
    with subprocess.Popen(command) as process:
        try:
            yield address
        finally:
            process.terminate()


def firing(address: str) -> set[str]:
    return {each["metric"]["alertname"] for each in query(address, 'ALERTS{alertstate="firing"}')}


def panel(address: str, name: str) -> list[dict[str, Any]]:
    """What a panel of the dashboard shows."""
    (query_of,) = [expr for title, expr in GRAFANA.expressions() if title == name]
    return query(address, query_of.replace("$job", ".*").replace("$instance", ".*"))


def wait_for(
    address: str, wanted: set[str], seen: set[str], cause: Callable[[], None] = lambda: None
) -> None:  # fmt: skip
    """`cause` is done again when it has left the windows: Prometheus may have stood still meanwhile."""
    deadline, due = time.monotonic() + 180, 0.0
    while not wanted <= seen:
        assert time.monotonic() < deadline, f"not fired: {sorted(wanted - seen)}"
        if time.monotonic() > due:
            cause()
            due = time.monotonic() + 15
        seen |= firing(address)
        time.sleep(0.3)


def publish(gateway: Running, topic: str, qos: int = 0) -> None:
    with suppress(OSError, ProtocolError), Device("127.0.0.1", gateway.port, f"at {topic}", timeout=5) as device:
        device.connect()
        for _ in range(3):
            device.publish(topic, b"x", qos)


def post(gateway: Running, path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin}/api/v1{path}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {TOKEN}"},
        method="POST",
    )
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=30):
        pass


def refuse(gateway: Running, over: threading.Event) -> None:
    """Publications that are dead-lettered, denied, dropped and held."""
    while not over.wait(0.1):
        publish(gateway, "lost/x", 1)
        publish(gateway, "denied/x")
        publish(gateway, "dropped/x", 1)
        publish(gateway, "shut/x")


def guess(gateway: Running, over: threading.Event) -> None:
    """Wrong passwords, twenty at once: the answers wait on purpose."""
    while not over.is_set():
        with ExitStack() as stack:
            for number in range(20):
                with suppress(OSError):
                    device = stack.enter_context(Device("127.0.0.1", gateway.port, f"guesser {number}", timeout=5))
                    wrong = client.connect(4, device.client_id, keep_alive=60)
                    wrong.username, wrong.password = "alice", b"wrong"
                    device._socket.sendall(client.encode_connect(wrong))
            over.wait(3)


def leave(gateway: Running, over: threading.Event) -> None:
    """Devices that are gone without a DISCONNECT."""
    while not over.wait(0.05):
        with suppress(OSError, ProtocolError):
            device = Device("127.0.0.1", gateway.port, "leaves", timeout=5)
            device.connect()
            device._socket.close()


def test_each_alert_fires_by_the_fault_it_is_for(
    gateway: Running, behind: RunningGateway, folder: Path, prometheus: str
) -> None:
    seen: set[str] = set()
    publish(gateway, "plant/x", 1)
    wait_for(prometheus, STANDING, seen)
    assert firing(prometheus) <= STANDING | OF_LOAD, "something fires on a gateway that is well"
    (folder / "later.yaml").write_text(f'[{{targets: ["127.0.0.1:{behind.admin}"]}}]')
    over = threading.Event()
    workers = [threading.Thread(target=one, args=(gateway, over), daemon=True) for one in (refuse, guess, leave, leave)]
    for worker in workers:
        worker.start()
    try:
        post(gateway, "/queues/MQGATE.SET.ASIDE/messages", {"text": "a defect"})
        (gateway.folder / "plant.yaml").write_text("to_mq: oops\n")
        post(gateway, "/reload", {})
        wait_for(prometheus, FAULTS - {"MqgateEventLoopLag"}, seen)
        assert panel(prometheus, "Held"), "the panel of the dashboard is empty while a queue refuses"
    finally:
        over.set()
        for worker in workers:
            worker.join(30)

    def stands_still() -> None:
        os.kill(gateway.process.pid, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(gateway.process.pid, signal.SIGCONT)

    wait_for(prometheus, FAULTS, seen, stands_still)


def test_the_rendered_rules_are_rules(tmp_path: Path) -> None:
    for name in ("alerts.yaml", "slo.yaml"):
        (tmp_path / name).write_text(rendered(name))
        done = subprocess.run(
            [program("promtool"), "check", "rules", str(tmp_path / name)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
