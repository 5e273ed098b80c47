"""mqtt.js against a real gateway: all versions, over TCP and over WebSocket. npm installs it into a cache directory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from free_ports import free_port
from gateways import RunningGateway

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-mqtt-js")]
SCENARIO = Path(__file__).parent / "mqtt_js_client.mjs"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    web = free_port()
    settings = f"""
listeners:
  - {{name: plain, port: 1883}}
  - {{name: web, port: {web}, websocket: {{path: /mqtt}}}}
"""
    gateway = RunningGateway(tmp_path_factory.mktemp("mqtt-js"), settings=settings)
    gateway.start()
    gateway.web = web
    yield gateway
    gateway.stop()


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_mqtt_js(mqtt_js, gateway, version, transport):
    url = f"mqtt://127.0.0.1:{gateway.port}" if transport == "tcp" else f"ws://127.0.0.1:{gateway.web}/mqtt"
    command = ["node", str(SCENARIO), str(mqtt_js), url, str(version)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["granted"] == [2]
    assert result["received"] == [
        {"topic": "t/kept", "payload": "last", "qos": 1, "retain": True},
        {"topic": "t/q0", "payload": "m0", "qos": 0, "retain": False},
        {"topic": "t/q1", "payload": "m1", "qos": 1, "retain": False},
        {"topic": "t/q2", "payload": "m2", "qos": 2, "retain": False},
        {"topic": "t/will", "payload": "gone", "qos": 1, "retain": False},
        {"topic": "t/offline", "payload": "waited", "qos": 1, "retain": False},
    ]
