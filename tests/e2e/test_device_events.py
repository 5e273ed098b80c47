"""Device events of a running gateway, put on a queue of its embedded queue manager and to an MQ topic."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from gateways import RunningGateway
from patient_device import Device

from gateway.errors import ProtocolError

OBJECTS = """
DEFINE QLOCAL(DEVICE.EVENTS)
DEFINE QLOCAL(DEVICE.NEWS)
DEFINE SUB(NEWS) TOPICSTR('devices/events') DEST(DEVICE.NEWS)
"""
SETTINGS = """
queue_manager: {embedded: {objects: objects.mqsc}}
security:
  anonymous: false
  users: {alice: {password_file: alice.pw}}
  acl:
    - {user: alice, publish: ["open/#"], subscribe: ["open/#"]}
    - {user: "*", deny: ["#"]}
process: {drain_timeout: 1s}
"""
ON = "events: {queue: DEVICE.EVENTS}\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    directory = tmp_path_factory.mktemp("events")
    (directory / "objects.mqsc").write_text(OBJECTS)
    (directory / "alice.pw").write_text("secret")
    with RunningGateway(directory, settings=SETTINGS + ON) as running:
        yield running


def until(met: Callable[[], bool], gateway: RunningGateway) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end, gateway.log
        time.sleep(0.05)


def device(gateway: RunningGateway, client_id: str) -> Device:
    return Device("127.0.0.1", gateway.port, client_id, version=5, timeout=60)


def events(gateway: RunningGateway, client_id: str, queue: str = "DEVICE.EVENTS") -> list[dict[str, Any]]:
    found = []
    for one in gateway.api("GET", f"/queues/{queue}/messages?limit=500&text={client_id}")["items"]:
        seen = gateway.api("GET", f"/queues/{queue}/messages/{quote(one['token'])}?whole=true")
        found.append(json.loads(seen["body"]["text"]))
    return [one for one in found if one.get("client_id") == client_id]


def counted(gateway: RunningGateway, client_id: str, kind: str) -> int:
    """How often it has happened; what comes soon after another is counted with it."""
    return sum(one["count"] for one in events(gateway, client_id) if one["event"] == kind)


def mqsc(gateway: RunningGateway, text: str) -> None:
    gateway.api("POST", "/mqsc", {"text": text})


def use(gateway: RunningGateway, text: str) -> None:
    """Other settings of the events."""
    (gateway.directory / "settings.yaml").write_text(SETTINGS + text)
    gateway.api("POST", "/reload")


def test_each_kind_is_a_message(gateway: RunningGateway) -> None:
    with device(gateway, "d1") as one:
        assert one.connect("alice", b"wrong") == 0x86
    with device(gateway, "d1") as one:
        assert one.connect("alice", b"secret") == 0
        one.publish("open/t", b"1", 1)
        for qos in (1, 2):
            with pytest.raises(ProtocolError):
                one.publish("closed/t", b"1", qos)
        one.publish("closed/t", b"1", 0)
        assert one.subscribe("closed/#") == 0x87
    until(lambda: counted(gateway, "d1", "denied") == 4 and counted(gateway, "d1", "disconnected") == 1, gateway)
    found = {one["event"]: one for one in events(gateway, "d1")}
    common = {"client_id": "d1", "listener": "plain", "user": "alice", "count": 1}
    assert found["refused"].items() >= (common | {"reason": "bad_credentials"}).items()
    assert found["connected"].items() >= (common | {"protocol": "5.0"}).items()
    assert found["disconnected"].items() >= (common | {"reason": "normal"}).items()
    denied = [one for one in events(gateway, "d1") if one["event"] == "denied"]
    assert denied[0].items() >= {"direction": "publish", "topic": "closed/t"}.items()
    assert denied[-1].items() >= {"direction": "subscribe", "topic": "closed/#"}.items()
    assert [one["event"] for one in events(gateway, "d1")][:2] == ["refused", "connected"]
    assert "secret" not in json.dumps(events(gateway, "d1"))
    assert gateway.metric('mqgate_device_events_total{kind="denied",result="put"}') >= 2
    assert gateway.metric('mqgate_device_events_total{kind="denied",result="thinned"}') >= 1


def test_who_comes_and_goes_all_the_time_is_thinned_and_counted(gateway: RunningGateway) -> None:
    began = time.monotonic()
    for _ in range(20):
        with device(gateway, "d2") as one:
            assert one.connect("alice", b"secret") == 0
    took = time.monotonic() - began

    until(lambda: counted(gateway, "d2", "connected") == counted(gateway, "d2", "disconnected") == 20, gateway)
    for kind in ("connected", "disconnected"):
        assert len([one for one in events(gateway, "d2") if one["event"] == kind]) <= took + 2
    assert events(gateway, "d2")[-1]["event"] == "disconnected", "the last message is how it is"


def test_a_queue_that_takes_nothing_costs_events_visibly_and_nothing_else(gateway: RunningGateway) -> None:
    mqsc(gateway, "ALTER QLOCAL(DEVICE.EVENTS) PUT(DISABLED)")
    lost = 'mqgate_device_events_total{kind="connected",result="lost"}'
    before = gateway.metric(lost)
    with device(gateway, "d3") as one:
        assert one.connect("alice", b"secret") == 0
        until(lambda: gateway.metric(lost) == before + 1, gateway)
        one.publish("open/t", b"1", 1)
        assert "DEVICE.EVENTS takes no device events" in json.dumps(gateway.api("GET", "/overview"))
        mqsc(gateway, "ALTER QLOCAL(DEVICE.EVENTS) PUT(ENABLED)")
    until(lambda: [one["event"] for one in events(gateway, "d3")] == ["disconnected"], gateway)
    assert "takes no device events" not in json.dumps(gateway.api("GET", "/overview"))
    assert gateway.log.count('"device_events"') == 2, "a line each way"


def test_a_reload_changes_what_is_wanted_and_where(gateway: RunningGateway) -> None:
    use(gateway, "events: {mq_topic: devices/events, kinds: [disconnected]}\n")
    with device(gateway, "d4") as one:
        assert one.connect("alice", b"secret") == 0
    until(lambda: [one["event"] for one in events(gateway, "d4", "DEVICE.NEWS")] == ["disconnected"], gateway)
    use(gateway, "")
    with device(gateway, "d5") as one:
        assert one.connect("alice", b"secret") == 0
    use(gateway, ON)
    with device(gateway, "d6") as one:
        assert one.connect("alice", b"secret") == 0
    until(lambda: len(events(gateway, "d6")) == 2, gateway)
    assert not events(gateway, "d5") + events(gateway, "d4")


def test_the_end_of_the_gateway_is_the_end_of_its_connections(gateway: RunningGateway) -> None:
    one = device(gateway, "d7")
    assert one.connect("alice", b"secret") == 0
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait(60) == 0
    with contextlib.suppress(OSError):
        one.close()
    gateway.start()
    found = events(gateway, "d7")
    assert [(one["event"], one.get("reason")) for one in found] == [("connected", None), ("disconnected", "draining")]


def test_refused_settings(tmp_path: Path) -> None:
    from gateway.config.load import load_settings
    from gateway.errors import ConfigurationError

    path = tmp_path / "settings.yaml"
    for text in ("{queue: A, mq_topic: b}", "{queue: MQGATE.EVENTS}", "{queue: 'A B'}", "{kinds: [gone]}"):
        path.write_text(f"events: {text}\n")
        with pytest.raises(ConfigurationError, match=r"settings\.yaml:1:"):
            load_settings(path, {})
