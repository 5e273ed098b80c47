"""What thousands of subscriptions match and everybody must get once: QoS 2, wills, and what queues bring."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from patient_device import Device
from stall_attacks import LONG, Attacked, read, subscribe

from gateway.mqtt.packets import Will

MAPPING = "version: 1\nto_mqtt: [{name: out, queue: OUT.Q, topic: o0/o1/o2/o3/q, qos: 2}]\n"
SETTINGS = """
mappings: [once.yaml]
queue_manager: {embedded: {objects: once.mqsc}}
mqtt: {max_inflight: 1000}
listeners: [{name: plain, port: 0}]
"""
SESSIONS, EACH = (8000, 1) if LONG else (220, 10)
pytestmark = pytest.mark.timeout(400)
TIMES = 3
COPIES = "mqgate_mqtt_publish_sent_total{"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """With very many sessions that have subscribed."""
    directory = tmp_path_factory.mktemp("once")
    (directory / "once.yaml").write_text(MAPPING)
    (directory / "once.mqsc").write_text("DEFINE QLOCAL(OUT.Q)\n")
    filters = ["/".join("+" if number >> level & 1 else f"o{level}" for level in range(4)) for number in range(EACH)]
    with Attacked(directory, SETTINGS).serve() as one:
        for number in range(SESSIONS):
            with one.online(f"once-{number}", expiry=600) as sock:
                sock.sendall(subscribe(*(f"{filter_}/#" for filter_ in filters), qos=2))
                read(sock, 5 + EACH)
        yield one


def release(attacked: Attacked) -> None:
    device = Device("127.0.0.1", attacked.running.port, "publisher", version=5)
    device.connect()
    for number in range(TIMES):
        device.publish(f"o0/o1/o2/o3/{number}", b"x", 2)


def die(attacked: Attacked) -> None:
    for number in range(TIMES):
        attacked.online(f"dying-{number}", will=Will(f"o0/o1/o2/o3/{number}", b"x", 2, retain=False)).close()


def put(attacked: Attacked) -> None:
    for _ in range(TIMES):
        attacked.running.api("POST", "/queues/OUT.Q/messages", {"text": "x"})


@pytest.mark.parametrize("act", [release, die, put])
def test_what_comes_once_to_very_many(attacked: Attacked, act: object) -> None:
    before = copied(attacked)
    with attacked.budget():
        assert callable(act)
        act(attacked)
        until = time.monotonic() + 60
        while copied(attacked) < before + TIMES * SESSIONS:
            assert time.monotonic() < until, "not everybody gets it"
            attacked.settled()
    assert copied(attacked) == before + TIMES * SESSIONS


def copied(attacked: Attacked) -> int:
    """How many copies have been made for subscribers."""
    lines = [one for one in attacked.running.get("/metrics").splitlines() if one.startswith(COPIES)]
    return sum(int(float(one.rpartition(" ")[2])) for one in lines)
