"""A gateway that starts beside another one on the same queue manager leaves alone what is at work there."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mqi_clients
import paho.mqtt.client as paho
import pytest
from gateways import RunningGateway
from ibm_rig import HEAD, OBJECTS, served

from gateway.mqtt import client
from gateway.ports.batch import Puts, Unit

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
to_mqtt:
  - {name: down, queue: OTHER.Q, topic: down/all, qos: 1}
"""
COUNT = 300


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


@pytest.mark.skipif("MQGATE_LONG" not in os.environ, reason="long runs only: recovery after a kill is tested elsewhere")
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


def test_each_message_of_a_queue_is_got_by_one_and_reaches_all_subscribers_once(gateways: list[RunningGateway]) -> None:
    """A subscriber at each gateway: each of them gets every message, once."""
    queue_manager = gateways[0].queue_manager  # type: ignore[attr-defined]
    got: list[bytes] = []
    subscribers = []
    for number, gateway in enumerate(gateways):
        gateway.start()
        subscriber = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=f"listener-{number}")
        subscribed = threading.Event()
        subscriber.on_subscribe = lambda *_, subscribed=subscribed: subscribed.set()
        subscriber.on_message = lambda _c, _u, message: got.append(message.payload)
        subscriber.connect("127.0.0.1", gateway.port)
        subscriber.subscribe("down/all", 1)
        subscriber.loop_start()
        subscribers.append(subscriber)
        assert subscribed.wait(30)
    for first in range(0, COUNT, 10):
        bodies = [b"%d" % number for number in range(first, first + 10)]
        queue_manager.submit(Unit(puts=[Puts("OTHER.Q", heads=[HEAD] * 10, bodies=bodies)]), lambda *_: None)
    _until(lambda: len(got) >= COUNT * len(gateways))
    _until(lambda: queue_manager.depth("OTHER.Q") == 0)
    for subscriber in subscribers:
        subscriber.disconnect()
        subscriber.loop_stop()
    assert Counter(map(int, got)) == dict.fromkeys(range(COUNT), len(gateways))
