"""The gateway as a service: what systemd is told, SIGHUP without losing a connection, SIGTERM within a bound."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
from running_gateway import Running, running

pytestmark = pytest.mark.ops


class Told:
    """The datagrams of a service, as systemd would get them."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(60)

    def until(self, state: str) -> str:
        """The first datagram with this state; those before it are let go."""
        while True:
            text = self._socket.recv(1000).decode()
            if state in text.splitlines():
                return text

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Running, Told]]:
    told = Told(tmp_path / "notify")
    with running(
        tmp_path, environment={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"}
    ) as gateway:
        yield gateway, told
    told.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def reload_state(gateway: Running) -> str:
    (line,) = [
        each
        for each in gateway.text("/metrics").splitlines()
        if each.startswith("mqgate_config_last_reload_successful")
    ]
    return line.split()[-1]


def reloads(gateway: Running, result: str) -> float:
    wanted = f'mqgate_config_reloads_total{{result="{result}"}}'
    (line,) = [each for each in gateway.text("/metrics").splitlines() if each.startswith(wanted)]
    return float(line.split()[-1])


def test_a_life_under_systemd(service: tuple[Running, Told]) -> None:
    gateway, told = service
    assert "STATUS=" in told.until("READY=1")
    told.until("WATCHDOG=1")
    ended: list[Any] = []
    device = Client(CallbackAPIVersion.VERSION2, client_id="stays", protocol=MQTTv5)
    device.on_disconnect = lambda _client, _data, _flags, reason, _properties: ended.append(reason)
    device.connect("127.0.0.1", gateway.port)
    device.loop_start()
    until(device.is_connected)

    good = (gateway.folder / "plant.yaml").read_text()
    (gateway.folder / "plant.yaml").write_text(good.replace("queue:", "quue:", 1))
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: reloads(gateway, "failed") == 1)
    assert reload_state(gateway) == "0.0"
    assert "plant.yaml:4" in (gateway.folder / "log.1").read_text()

    (gateway.folder / "plant.yaml").write_text(good)
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: reloads(gateway, "ok") == 1)
    assert reload_state(gateway) == "1.0"
    assert ended == []
    assert device.publish("plant/lima/line/7/temperature", "21.5", qos=1).wait_for_publish(60) is None

    gateway.process.send_signal(signal.SIGTERM)
    told.until("STOPPING=1")
    assert gateway.process.wait(30) == 0
    until(lambda: bool(ended))
    assert ended[0].value == 0x8B, "MQTT 5 clients are told that the server shuts down"
    device.loop_stop()
