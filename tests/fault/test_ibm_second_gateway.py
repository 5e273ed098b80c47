"""A gateway that starts beside another one on the same queue manager leaves alone what is at work there."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import mqi_clients
import paho.mqtt.client as paho
import pytest
from gateways import RunningGateway
from ibm_rig import OBJECTS, served

from gateway.mqtt import client

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
SETTINGS = """
queue_manager:
  ibm: {name: QM1, connection: "localhost(1414)", channel: C, user: app, password_file: pw, driver: ibmmq,
        connections: 1, reconnect_from: 100ms, reconnect_to: 500ms}
mappings: [map.yaml]
"""
MAPPING = """
version: 1
to_mq:
  - {name: up, topic: "up/#", queue: APP.Q, headers: []}
"""


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[list[RunningGateway]]:
    mqi_clients.load_bindings()
    environ = mqi_clients.program_environment(str(tmp_path / "s"), *mqi_clients.BINDINGS)
    made = []
    for number in range(2):
        edge = tmp_path / f"g{number}"
        edge.mkdir()
        (edge / "map.yaml").write_text(MAPPING)
        (edge / "pw").write_text("pw\n")
        (edge / "pw").chmod(0o600)
        made.append(RunningGateway(edge, settings=SETTINGS, environ=environ))
    with served(None, tmp_path / "s", OBJECTS) as queue_manager:
        made[0].queue_manager = queue_manager  # type: ignore[attr-defined]
        yield made
        for gateway in made:
            if gateway.process is not None:
                gateway.kill()


def _until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_neither_wills_nor_staged_messages_of_the_other_are_touched(gateways: list[RunningGateway]) -> None:
    first, second = gateways
    queue_manager = first.queue_manager  # type: ignore[attr-defined]
    first.start()
    willing = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="willing")
    willing.will_set("up/will", b"I am gone", qos=1)
    willing.connect("127.0.0.1", first.port)
    willing.loop_start()
    _until(willing.is_connected)
    _until(lambda: queue_manager.depth("MQGATE.WILLS") == 1)
    with socket.create_connection(("127.0.0.1", first.port), 30) as device:
        device.sendall(client.encode_connect(client.connect(4, "staging")))
        assert device.recv(4)[0] >> 4 == 2  # CONNACK
        body = b"\0\5up/q2" + b"\0\1" + b"once"
        device.sendall(bytes((0x34, len(body))) + body)
        assert device.recv(4) == b"\x50\2\0\1"  # PUBREC
        assert queue_manager.depth("MQGATE.STAGED") == 1
        second.start()
        assert queue_manager.depth("MQGATE.STAGED") == 1
        assert queue_manager.depth("MQGATE.WILLS") == 1
        device.sendall(b"\x62\2\0\1")  # PUBREL
        assert device.recv(4) == b"\x70\2\0\1"  # PUBCOMP
    _until(lambda: queue_manager.depth("APP.Q") == 1)
    assert queue_manager.fetch("APP.Q", b"", 5)[0].data == b"once"
    willing.disconnect()
    willing.loop_stop()


def test_a_gateway_alone_clears_up_behind_one_that_was_killed(gateways: list[RunningGateway]) -> None:
    first, second = gateways
    queue_manager = first.queue_manager  # type: ignore[attr-defined]
    first.start()
    willing = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="willing")
    willing.will_set("up/will", b"I am gone", qos=1)
    willing.connect("127.0.0.1", first.port)
    willing.loop_start()
    _until(lambda: queue_manager.depth("MQGATE.WILLS") == 1)
    willing.loop_stop()
    first.kill()
    second.start()
    _until(lambda: queue_manager.depth("APP.Q") == 1)
    assert queue_manager.fetch("APP.Q", b"", 5)[0].data == b"I am gone"
