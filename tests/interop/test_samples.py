"""The samples of `deploy/samples`: where their tools are here they run against a gateway; parsers read the others."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import RunningGateway

from gateway.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "deploy" / "samples"
ENDLESS = "1000000"

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-mqtt-js")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("samples")
    for name in ("plant.yaml", "plant.mqsc"):
        shutil.copy(SAMPLES / name, folder)
    settings = (SAMPLES / "mqgate.yaml").read_text()
    with RunningGateway(folder, settings=settings) as running:
        yield running


def talks(gateway: RunningGateway, command: list[str], cwd: Path) -> None:
    """The device sends readings that are acknowledged, and gets a command that is put meanwhile."""
    device = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watchdog = threading.Timer(90, device.kill)
    watchdog.start()
    said: list[str] = []
    try:
        assert device.stdout is not None
        for line in device.stdout:
            said.append(line.strip())
            if len(said) == 1:
                assert said == ["committed 20.5"]
                body = {"text": "open", "properties": {"site": "lima"}}
                gateway.api("POST", "/queues/COMMANDS/messages", body)
            if line.startswith("command"):
                break
        assert said[-1] == "command on plant/lima/cmd: open", said[-5:]
    finally:
        watchdog.cancel()
        device.kill()
        device.wait()
        device.stdout.close()  # type: ignore[union-attr]
    while any(one["connected"] for one in gateway.api("GET", "/clients")["items"]):
        time.sleep(0.05)  # what it had sent before its end still comes
    found = gateway.api("GET", "/queues/TELEMETRY.LIMA/messages?limit=1")["items"]
    assert [one["preview"] for one in found] == ["20.5"]
    gateway.api("DELETE", "/queues/TELEMETRY.LIMA/messages?confirm=TELEMETRY.LIMA")


def test_paho_in_python(gateway: RunningGateway) -> None:
    command = [sys.executable, str(SAMPLES / "python" / "device.py")]
    talks(gateway, [*command, "--port", str(gateway.port), "--count", ENDLESS], SAMPLES)


def test_mqtt_js(gateway: RunningGateway, mqtt_js: Path, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "node" / "device.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(mqtt_js / "node_modules")
    talks(gateway, ["node", "device.mjs", f"mqtt://127.0.0.1:{gateway.port}", ENDLESS], tmp_path)


def test_paho_in_c(gateway: RunningGateway, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("a compiler is needed")
    include = ["cc", "-x", "c", "-E", "-include", "MQTTClient.h", "/dev/null"]
    if subprocess.run(include, capture_output=True, check=False).returncode:
        pytest.skip("libpaho-mqtt-dev is needed")
    program = tmp_path / "device"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *warnings, "-o", str(program), str(SAMPLES / "c" / "device.c"), "-lpaho-mqtt3c"], check=True)
    line_by_line = ["stdbuf", "-oL", str(program)]
    talks(gateway, [*line_by_line, f"tcp://127.0.0.1:{gateway.port}", ENDLESS], tmp_path)


@pytest.mark.parametrize("name", ["java/Device.java", "jms/Consumer.java"])
def test_java_is_java(name: str, tmp_path: Path) -> None:
    """Without the libraries: javac resolves nothing of them, and finds nothing else to complain of."""
    if shutil.which("javac") is None:
        pytest.skip("a Java compiler is needed")
    done = subprocess.run(
        ["javac", "-d", str(tmp_path), "-Xmaxerrs", "1000", str(SAMPLES / name)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = [line for line in done.stderr.splitlines() if ": error: " in line]
    assert errors
    assert [line for line in errors if not line.endswith(("does not exist", "cannot find symbol"))] == []


def test_the_flow_of_node_red_is_whole() -> None:
    nodes = {one["id"]: one for one in json.loads((SAMPLES / "node-red" / "flow.json").read_text())}
    for node in nodes.values():
        assert all(target in nodes for wires in node.get("wires", []) for target in wires), node["id"]
        assert node.get("broker", "mqgate.broker") in nodes or node["type"] == "mqtt-broker"
    topics = {one["topic"] for one in nodes.values() if one["type"].startswith("mqtt ")}
    assert topics == {"plant/lima/line/7/temperature", "plant/lima/cmd"}


def test_the_settings_of_the_samples_pass_the_check() -> None:
    from click.testing import CliRunner

    done = CliRunner().invoke(main, ["check", str(SAMPLES / "mqgate.yaml")])
    assert done.exit_code == 0, done.output


def test_every_sample_is_on_its_page() -> None:
    page = (ROOT / "docs" / "howto" / "connect-programs.md").read_text()
    for folder in sorted(path for path in SAMPLES.iterdir() if path.is_dir()):
        assert f"deploy/samples/{folder.name}/" in page, folder.name
