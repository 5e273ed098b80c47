"""The compose file obeys the specification, and what it starts works together: the gateway and Prometheus with the very
files and arguments that it gives them, as processes of this machine instead of containers.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gateway_template
import jsonschema_rs
import pytest
import yaml
from free_ports import free_port
from ops_machine import DEPLOY, compose_schema, program
from patient_device import Device
from running_gateway import Running, until_ready

pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("prometheus")]

FOLDER = DEPLOY / "compose"
FILE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
NEWER = {"name"}
"""Of the specification since the schema of that release."""


def test_it_obeys_the_specification() -> None:
    validator = jsonschema_rs.validator_for(compose_schema())
    known = {key: value for key, value in FILE.items() if key not in NEWER}
    assert [str(error) for error in validator.iter_errors(known)] == []
    broken = known | {"services": {"gateway": {"imagee": "mqgate"}}}
    assert not validator.is_valid(broken), "the check can fail"


def test_services_wait_for_a_gateway_that_answers() -> None:
    waits = FILE["services"]["pipeline"]["depends_on"]["gateway"]["condition"]
    assert waits == "service_healthy"
    assert "HEALTHCHECK" in (DEPLOY / "container" / "Dockerfile").read_text()


class Laid:
    """Where the mounts of a service are on this machine: a text with them in place of the container's paths."""

    def __init__(self, service: str, folder: Path, ports: dict[str, int]) -> None:
        self.places = {}
        for volume in FILE["services"][service].get("volumes", []):
            source, target = volume.split(":")[:2]
            self.places[target] = str((FOLDER / source).resolve()) if source[0] in "./" else str(folder / source)
        self.ports = ports

    def text(self, text: str) -> str:
        for target in sorted(self.places, key=len, reverse=True):
            text = text.replace(target, self.places[target])
        for before, after in self.ports.items():
            text = re.sub(rf"\b{re.escape(before)}\b", str(after), text)
        return text


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("compose")
    ports = {"1883": free_port(), "8083": free_port(), "9160": free_port()}
    laid = Laid("gateway", folder, ports)
    settings = folder / "mqgate.yaml"
    text = laid.text((FOLDER / "mqgate.yaml").read_text()).replace("0.0.0.0", "127.0.0.1")
    settings.write_text(text.replace("mappings/default.yaml", f"{laid.places['/etc/mqgate/mappings']}/default.yaml"))
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "gateway", "run", "--config", str(settings)]
        process = gateway_template.launch(command, stdout=log, stderr=log, env=os.environ, cwd=folder)
    running = Running(ports["1883"], ports["9160"], ports["8083"], folder, process)
    try:
        until_ready(running)
        yield running
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def prometheus(gateway: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    laid = Laid("prometheus", folder, {})
    text = (FOLDER / "prometheus.yml").read_text().replace("gateway:9160", f"127.0.0.1:{gateway.admin}")
    for name in yaml.safe_load(text)["rule_files"]:  # they are named beside the configuration in the container
        text = text.replace(name, laid.places[f"/etc/prometheus/{name}"])
    (folder / "prometheus.yml").write_text(text.replace("5s", "1s"))
    address = f"127.0.0.1:{free_port()}"
    arguments = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    kept = [each for each in FILE["services"]["prometheus"]["command"] if not each.startswith("--config.file")]
    command = [program("prometheus"), *arguments, *kept, f"--web.listen-address={address}", "--log.level=error"]
    with subprocess.Popen(command) as process:
        try:
            yield address
        finally:
            process.terminate()


def asked(address: str, path: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)["data"]
    except (urllib.error.URLError, ConnectionError):
        return None


def test_the_gateway_takes_its_token_and_its_mappings(gateway: Running) -> None:
    token = (FOLDER / "admin.token").read_text().strip()
    rules = json.loads(gateway.text("/api/v1/rules", token))["items"]
    assert rules
    assert all(Path(rule["file"]).parent.name == "mappings" for rule in rules)


def alive(port: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the health check says of the admin port."""
    script = folder / "alive.py"
    script.write_text((DEPLOY / "container" / "alive.py").read_text().replace(":9160/", f":{port}/"))
    environment = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}  # nobody listens there
    command = [sys.executable, str(script)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_health_check_knows_a_gateway_from_none(gateway: Running, tmp_path: Path) -> None:
    answered = alive(gateway.admin, tmp_path)
    assert (answered.returncode, answered.stderr) == (0, "")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it listens, and does not answer
        for port in (free_port(), silent.getsockname()[1], gateway.port):
            refused = alive(port, tmp_path)
            assert refused.returncode == 1
            assert "Traceback" not in refused.stderr


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.skipif("MQGATE_LONG" not in os.environ, reason="long runs only: tests/spark runs jobs in a shorter way")
def test_the_pipeline_runs_with_its_command_and_is_scraped(gateway: Running, tmp_path: Path) -> None:
    """As its service is started, after a device has published; its last words are those of an orderly end."""
    laid = Laid("pipeline", tmp_path, {"gateway:9160": gateway.admin, "9161": free_port()})
    with Device("127.0.0.1", gateway.port, "d") as device:
        device.connect()
        device.publish("plant/lima/line/7", b"21.5", 1)
    job = tmp_path / "pipeline.yaml"
    text = (FOLDER / "pipeline.yaml").read_text().replace("http://gateway:9160", f"http://127.0.0.1:{gateway.admin}")
    job.write_text(laid.text(text))
    laid.places["/etc/mqgate/pipeline.yaml"] = str(job)
    words = [laid.text(word).replace("0.0.0.0", "127.0.0.1") for word in FILE["services"]["pipeline"]["command"]]
    port = laid.ports["9161"]
    with subprocess.Popen([sys.executable, "-m", "gateway", *words], cwd=tmp_path) as process:
        try:
            landed = re.compile(r"^mqgate_pipeline_rows_total\S* [1-9]", re.MULTILINE)
            deadline = time.monotonic() + 200
            while not landed.search(metrics(port)):
                assert process.poll() is None
                assert time.monotonic() < deadline, metrics(port)
                time.sleep(0.5)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert list((tmp_path / "tables").rglob("*.parquet"))


def metrics(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_prometheus_scrapes_it_and_every_rule_is_evaluated(prometheus: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        targets, groups = asked(prometheus, "targets"), asked(prometheus, "rules")
        if targets and groups:
            up = [each for each in targets["activeTargets"] if each["labels"]["job"] == "mqgate"]
            rules = [rule for group in groups["groups"] for rule in group["rules"]]
            if up and up[0]["health"] == "up" and all(rule["health"] != "unknown" for rule in rules):
                break
        time.sleep(0.2)
    else:
        raise AssertionError((targets, groups))
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    written = {
        rule.get("alert") or rule.get("record")
        for name in ("alerts", "slo")
        for group in yaml.safe_load((DEPLOY / "prometheus" / f"{name}.yaml").read_text())["groups"]
        for rule in group["rules"]
    }
    assert {rule["name"] for rule in rules} == written


def test_grafana_finds_the_data_source_and_the_dashboard() -> None:
    (source,) = yaml.safe_load((FOLDER / "grafana-datasource.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((FOLDER / "grafana-dashboards.yaml").read_text())["providers"]
    mounted = {each.split(":")[1]: FOLDER / each.split(":")[0] for each in FILE["services"]["grafana"]["volumes"]}
    assert any(target.startswith(provider["options"]["path"]) for target in mounted)
    home = FILE["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    dashboard = json.loads(mounted[home].read_text())
    (variable,) = [each for each in dashboard["templating"]["list"] if each["type"] == "datasource"]
    assert variable["query"] == source["type"]
