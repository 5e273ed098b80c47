"""Programs at the gateway's own queue manager, with calls at random, while a device publishes to their queue."""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path

from gateways import RunningGateway
from random_programs import run_all

PROGRAMS, CALLS = (16, 600) if os.environ.get("MQGATE_LONG") else (8, 25)
OBJECTS = "DEFINE QLOCAL(Q) MAXDEPTH(100000)\nDEFINE QLOCAL(R) MAXDEPTH(100000)\nDEFINE QLOCAL(FROM.DEVICES)\n"
MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: '{t*}', queue: FROM.DEVICES}\n"
CONNECT = bytes([0x10, 14]) + b"\0\4MQTT\4\2\0\0\0\2d1"


def _publish(gateway: RunningGateway, ended: threading.Event, acknowledged: list[int]) -> None:
    with gateway.connect() as device:
        device.sendall(CONNECT)
        assert device.recv(4)[3] == 0
        number = 0
        while not ended.is_set():
            number = number % 0xFFFF + 1
            device.sendall(bytes([0x32, 6]) + b"\0\1t" + struct.pack(">H", number) + b"x")
            assert device.recv(4) == bytes([0x40, 2]) + struct.pack(">H", number)
            acknowledged.append(number)


def test_every_call_is_answered_and_devices_go_on(tmp_path: Path) -> None:
    (tmp_path / "objects.mqsc").write_text(OBJECTS)
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    gateway = RunningGateway(
        tmp_path, settings="queue_manager: {embedded: {objects: objects.mqsc}}\nmappings: [mapping.yaml]\n"
    )
    gateway.start()
    try:
        ended, acknowledged = threading.Event(), []
        device = threading.Thread(target=_publish, args=(gateway, ended, acknowledged), daemon=True)
        device.start()
        run_all(tmp_path / "data" / "mqi.sock", programs=PROGRAMS, calls=CALLS, seed=1)
        ended.set()
        device.join(20)
        assert not device.is_alive()
        assert acknowledged
    finally:
        assert gateway.stop() == 0
