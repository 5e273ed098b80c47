"""The shipped mappings on a gateway that has none of their queues: devices keep their connections, and each rule's
`on_failure` holds.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from gateways import RunningGateway
from patient_device import Device

from gateway.bridge.rehearsal import payload_of
from gateway.mqtt import client, writer
from gateway.rules.parse import load_mappings

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "mappings").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_nobody_loses_a_connection_for_a_queue_that_is_missing(tmp_path: Path, file: Path) -> None:
    with RunningGateway(tmp_path, settings=f"mappings: [{file}]\n") as gateway:
        for number, trial in enumerate(load_mappings([str(file)]).tests):
            published = trial.test.publish
            if published is None:
                continue
            for version in (4, 5):
                device = Device("127.0.0.1", gateway.port, f"d{number}-{version}", version=version)
                assert device.connect() == 0
                for qos in (0, 1, 2):
                    topic, payload = published.topic.encode(), payload_of(published)
                    device._socket.sendall(writer.encode_publish(version, topic, payload, qos, packet_id=qos))
                device._socket.sendall(client.encode_pingreq())
                device._next(13)
        assert '"defect"' not in gateway.log


def test_what_waits_for_its_queue_is_acknowledged_when_there_is_one(tmp_path: Path) -> None:
    with RunningGateway(tmp_path, settings=f"mappings: [{ROOT / 'mappings/plant-telemetry.yaml'}]\n") as gateway:
        device = Device("127.0.0.1", gateway.port, "line7", version=5)
        assert device.connect() == 0
        device._socket.sendall(writer.encode_publish(5, b"plant/lima/line/7/temperature", b"21.5", 1, packet_id=9))
        with pytest.raises(TimeoutError):
            device._next(4, 1.0)
        gateway.api("POST", "/mqsc", {"text": "DEFINE QLOCAL(TELEMETRY.LIMA) DEFPSIST(YES)"})
        assert device._next(4)[1:3] == (9, 0)
        assert gateway.bodies("TELEMETRY.LIMA")
