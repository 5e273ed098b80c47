"""Twenty publishers, `kill -9` in mid-stream, and a count: nothing acknowledged is lost, QoS 2 is not doubled."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from gateways import RunningGateway
from patient_device import Device
from schedulers import ManualScheduler

from gateway.errors import MqgateError
from gateway.queue_manager.embedded import EmbeddedQueueManager

PUBLISHERS = 20
ROUNDS = 40 if os.environ.get("MQGATE_LONG") else 3


def publish_until_killed(port: int, number: int, first: int, qos: int, acked: list[bytes], sent: list[bytes]) -> None:
    """One publisher; what was acknowledged is what its ack was read for."""
    try:
        with Device("127.0.0.1", port, f"pub-{number}", version=(3, 4, 5)[number % 3]) as device:
            device.connect()
            count = first
            while True:
                body = b"%d/%d" % (number, count)
                sent.append(body)
                device.publish(f"count/{number}", body, qos)
                acked.append(body)
                count += 1
    except (OSError, MqgateError):
        return


def payloads(directory: Path, queue: str = "MQGATE.DEFAULT") -> Counter[bytes]:
    """What lies on a queue once the gateway is gone."""
    queue_manager = EmbeddedQueueManager.open(directory / "data", "MQGATE", ManualScheduler())
    try:
        found: Counter[bytes] = Counter()
        after = None
        while page := queue_manager.fetch(queue, b"", 1000, after):
            found.update(stored.data[int.from_bytes(stored.data[8:12], "little") :] for stored in page)
            after = page[-1].token
        return found
    finally:
        queue_manager.close()


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_acknowledged_is_lost_by_kill(tmp_path: Path, qos: int) -> None:
    gateway = RunningGateway(tmp_path)
    acked: list[bytes] = []
    sent: list[bytes] = []
    rng = random.Random(qos)
    for round_number in range(ROUNDS):
        with gateway:
            threads = [
                threading.Thread(
                    target=publish_until_killed,
                    args=(gateway.port, number, round_number * 1_000_000, qos, acked, sent),
                )
                for number in range(PUBLISHERS)
            ]
            for thread in threads:
                thread.start()
            before = len(acked)
            until = time.monotonic() + 30
            wanted = before + rng.randrange(100, 1500)
            while len(acked) < wanted and time.monotonic() < until:
                time.sleep(0.001)
            gateway.kill()
            for thread in threads:
                thread.join()
    found = payloads(tmp_path)
    assert len(acked) > 100 * ROUNDS
    missing = [body for body in acked if body not in found]
    assert not missing, f"{len(missing)} acknowledged messages are gone"
    assert set(found) <= set(sent)
    assert max(found.values()) == 1, "a message that was sent once is there twice"
