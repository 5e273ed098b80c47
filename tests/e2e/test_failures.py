"""When a queue refuses: retried, dead-lettered with its reason, dropped or held, by rule; all of it is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from gateways import RunningGateway
from patient_device import Device
from waiting import until

from gateway.errors import MqgateError

SETTINGS = "mappings: [map.yaml]\nqueue_manager: {embedded: {objects: objects.mqsc}}\n"
MAPPING = """
version: 1
to_mq:
  - {name: quick, topic: "quick/#", queue: FULL.Q, on_failure: {retry: {times: 1, from: 50ms, to: 50ms}}}
  - {name: drop, topic: "drop/#", queue: FULL.Q, on_failure: {retry: {times: 0}, then: drop}}
  - {name: hold, topic: "hold/#", queue: HOLD.Q, on_failure: {retry: {times: 0}, then: hold}}
  - {name: unknown, topic: "unknown/#", queue: NOT.DEFINED}
  - {name: short, topic: "short/#", queue: SHORT.Q}
  - {name: inhibited, topic: "inhibited/#", queue: INHIBITED.Q, on_failure: {retry: {times: 1, from: 50ms, to: 50ms}}}
  - {name: json, topic: "json/#", queue: JSON.Q, payload: {format: json}}
  - {name: hostile, topic: "to/{name}", queue: "TO.{name}"}
  - {name: good, topic: "good/#", queue: GOOD.Q}
  - {name: cut, topic: "cut/#", queue: SHORT.Q, too_long: segment}
  - {name: reject, topic: "reject/#", queue: SHORT.Q, too_long: reject}
  - {name: out, topic: "out/#", queue: FULL.Q, on_failure: {retry: {times: 0}, then: disconnect}}
  - {name: two, topic: "two/#", queue: GOOD.Q, continue: true}
  - {name: two again, topic: "two/#", queue: SECOND.Q}
"""
OBJECTS = """
DEFINE QLOCAL(FULL.Q) MAXDEPTH(1) REPLACE
DEFINE QLOCAL(HOLD.Q) MAXDEPTH(1) REPLACE
DEFINE QLOCAL(SHORT.Q) MAXMSGL(600) REPLACE
DEFINE QLOCAL(INHIBITED.Q) PUT(DISABLED) REPLACE
DEFINE QLOCAL(JSON.Q) REPLACE
DEFINE QLOCAL(GOOD.Q) REPLACE
DEFINE QLOCAL(SECOND.Q) REPLACE
"""


class Bridge:
    """A gateway with queues that refuse, and its API."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway = gateway
        self.api = gateway.api

    def depth(self, queue: str) -> int:
        return int(self.api("GET", f"/queues/{queue}")["depth"])

    def dead(self, **conditions: object) -> list[dict[str, Any]]:
        query = "&".join(f"{name}={value}" for name, value in conditions.items())
        return list(self.api("GET", f"/dlq?limit=500&{query}")["items"])

    def mqsc(self, text: str) -> None:
        assert self.api("POST", "/mqsc", {"text": text})["ok"]


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    directory = tmp_path_factory.mktemp("failures")
    (directory / "map.yaml").write_text(MAPPING)
    (directory / "objects.mqsc").write_text(OBJECTS)
    with RunningGateway(directory, settings=SETTINGS) as gateway:
        yield Bridge(gateway)


@pytest.fixture
def device(bridge: Bridge) -> Iterator[Device]:
    with Device("127.0.0.1", bridge.gateway.port, "dev", version=5) as made:
        assert made.connect() == 0
        yield made


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_queue_is_retried_and_then_dead_lettered_with_2053(bridge: Bridge, device: Device, qos: int) -> None:
    before = len(bridge.dead(reason=2053))
    device.publish("quick/1", b"first", qos)
    device.publish("quick/2", b"second", qos)
    dead = bridge.dead(reason=2053, destination="FULL.Q")
    assert len(dead) >= before + 1
    assert dead[-1]["preview"] == "second"
    assert bridge.depth("FULL.Q") == 1


def test_a_rule_may_drop_and_it_is_counted(bridge: Bridge, device: Device) -> None:
    device.publish("quick/fill", b"x", 1)
    device.publish("drop/1", b"gone", 1)
    assert bridge.gateway.metric('mqgate_messages_dropped_total{reason="queue_full",route="drop"}') == 1
    assert not [one for one in bridge.dead() if one["preview"] == "gone"]


def test_an_unknown_queue_dead_letters_with_2085(bridge: Bridge, device: Device) -> None:
    before = len(bridge.dead(reason=2085))
    device.publish("unknown/1", b"nowhere", 1)
    assert [one["preview"] for one in bridge.dead(reason=2085)[before:]] == ["nowhere"]


def test_only_the_message_that_is_too_long_is_dead_lettered(bridge: Bridge, device: Device) -> None:
    bridge.mqsc("CLEAR QLOCAL(SHORT.Q)")
    device.publish("short/1", b"fits", 1)
    device.publish("short/1", b"x" * 1000, 1)
    assert bridge.depth("SHORT.Q") == 1
    assert len(bridge.dead(destination="SHORT.Q")) == 1
    assert bridge.dead(destination="SHORT.Q")[0]["reason"] == 2030


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_too_long_is_cut_into_segments_where_the_rule_says_so(bridge: Bridge, device: Device, qos: int) -> None:
    bridge.mqsc("CLEAR QLOCAL(SHORT.Q)")
    device.publish("cut/1", bytes(range(256)) * 5, qos)
    items = bridge.api("GET", "/queues/SHORT.Q/messages")["items"]
    assert len(items) == 3
    parts = [bridge.api("GET", f"/queues/SHORT.Q/messages/{one['token']}")["descriptor"] for one in items]
    assert len({part["GroupId"] for part in parts}) == 1
    assert [part["Offset"] for part in parts] == [0, *(sum(one["length"] for one in items[:n]) for n in (1, 2))]
    bridge.mqsc("CLEAR QLOCAL(SHORT.Q)")


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_too_long_is_refused_with_a_reason_where_the_rule_says_so(
    bridge: Bridge, device: Device, qos: int
) -> None:
    device.publish("reject/1", b"short enough", qos)
    with pytest.raises(MqgateError) as caught:
        device.publish("reject/1", b"x" * 1000, qos)
    assert getattr(caught.value, "reason", 0) == 0x97


def test_a_rule_may_disconnect_and_acknowledges_nothing(bridge: Bridge) -> None:
    with Device("127.0.0.1", bridge.gateway.port, "leaver", version=5) as made:
        made.connect()
        made.publish("quick/fill", b"x", 1)
        with pytest.raises(MqgateError, match="closed the connection"):
            made.publish("out/1", b"unwanted", 1)
    assert not [one for one in bridge.dead() if one["preview"] == "unwanted"]


def test_put_inhibited_dead_letters_and_a_replay_brings_it_home(bridge: Bridge, device: Device) -> None:
    bridge.api("POST", "/dlq/purge", {"reason": 2051})
    device.publish("inhibited/1", b"later", 1)
    dead = bridge.dead(reason=2051)
    assert [one["preview"] for one in dead] == ["later"]
    bridge.mqsc("ALTER QLOCAL(INHIBITED.Q) PUT(ENABLED)")
    assert bridge.api("POST", "/dlq/replay", {"reason": 2051, "dry_run": True})["matched"] == 1
    answer = bridge.api("POST", "/dlq/replay", {"reason": 2051})
    assert (answer["matched"], answer["done"]) == (1, 1)
    message = bridge.api("GET", "/queues/INHIBITED.Q/messages")["items"][0]
    assert message["msg_id"] == dead[0]["msg_id"]
    assert message["format"] == "MQHRF2"
    assert not bridge.dead(reason=2051)


def test_a_payload_that_is_not_json_is_dead_lettered_as_such(bridge: Bridge, device: Device) -> None:
    device.publish("json/1", b'{"a": 1}', 1)
    device.publish("json/1", b"{nonsense", 1)
    assert bridge.depth("JSON.Q") == 1
    assert bridge.dead(reason=65541)[0]["preview"] == "{nonsense"


@pytest.mark.parametrize("level", ["A B", "x" * 60, "é", "a.b", "SYSTEM'", "*"])
def test_a_hostile_level_never_names_a_queue(bridge: Bridge, device: Device, level: str) -> None:
    before = len(bridge.dead(reason=65538))
    device.publish(f"to/{level}", b"attack", 1)
    assert len(bridge.dead(reason=65538)) == before + 1


def test_one_refusal_does_not_stop_the_others(bridge: Bridge, device: Device) -> None:
    before = bridge.depth("GOOD.Q")
    threads = []
    for number, topic in enumerate(["quick/9", "good/1", "unknown/2", "good/2", "inhibited/3", "good/3"] * 5):
        threads.append(threading.Thread(target=publish_once, args=(bridge.gateway.port, number, topic)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert bridge.depth("GOOD.Q") == before + 15


def publish_once(port: int, number: int, topic: str) -> None:
    with Device("127.0.0.1", port, f"many-{number}") as made:
        made.connect()
        made.publish(topic, b"x", 1)


def test_two_destinations_are_one_unit_of_work(bridge: Bridge, device: Device) -> None:
    before = bridge.depth("GOOD.Q"), bridge.depth("SECOND.Q")
    device.publish("two/1", b"both", 2)
    assert (bridge.depth("GOOD.Q"), bridge.depth("SECOND.Q")) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize("qos", [1, 2])
def test_hold_withholds_its_own_acknowledgement_and_nobody_elses(bridge: Bridge, qos: int) -> None:
    bridge.mqsc("DEFINE QLOCAL(HOLD.Q) MAXDEPTH(1) REPLACE\nCLEAR QLOCAL(HOLD.Q)")
    with Device("127.0.0.1", bridge.gateway.port, "holder", timeout=60) as made:
        made.connect()
        made.publish("hold/1", b"first", qos)
        waiting = threading.Thread(target=made.publish, args=("hold/1", b"second", qos))
        waiting.start()
        with Device("127.0.0.1", bridge.gateway.port, "other", timeout=60) as other:
            other.connect()
            for number in range(20):
                other.publish("good/meanwhile", b"%d" % number, 1 + number % 2)
        assert waiting.is_alive(), "no acknowledgement before the commit"
        bridge.api("DELETE", "/queues/HOLD.Q/messages?confirm=HOLD.Q")
        waiting.join(60)
        assert not waiting.is_alive()
    assert [one["preview"] for one in bridge.api("GET", "/queues/HOLD.Q/messages")["items"]] == ["second"]


def test_order_is_kept_while_a_queue_refuses(bridge: Bridge) -> None:
    """One device, forty messages for a queue that is inhibited meanwhile, others in between: each queue in order."""
    bridge.mqsc("DEFINE QLOCAL(HOLD.Q) MAXDEPTH(100) REPLACE\nCLEAR QLOCAL(HOLD.Q)\nALTER QLOCAL(HOLD.Q) PUT(DISABLED)")
    bridge.mqsc("CLEAR QLOCAL(GOOD.Q)")
    device = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="orderly")
    device.connect("127.0.0.1", bridge.gateway.port)
    device.loop_start()
    try:
        first = device.publish("good/o", "0", qos=1)
        first.wait_for_publish(60)  # alone: in one batch with what is held, its acknowledgement would wait with that
        assert first.is_published()
        sent = [device.publish("hold/o" if n % 2 else "good/o", str(n), qos=1 + n % 4 // 2) for n in range(1, 80)]
        until(lambda: bridge.gateway.metric('mqgate_messages_held{route="hold"'))
        bridge.mqsc("ALTER QLOCAL(HOLD.Q) PUT(ENABLED)")
        for one in sent:
            one.wait_for_publish(60)
        assert all(one.is_published() for one in sent)
    finally:
        device.disconnect()
        device.loop_stop()
    for queue, odd in (("HOLD.Q", 1), ("GOOD.Q", 0)):
        found = [int(one["preview"]) for one in bridge.api("GET", f"/queues/{queue}/messages?limit=100")["items"]]
        assert sorted(found) == [n for n in range(80) if n % 2 == odd]
        for qos_bit in (0, 1):  # order is a promise within a quality of service
            same = [n for n in found if n % 4 // 2 == qos_bit]
            assert same == sorted(same)


def test_what_waits_survives_a_kill(tmp_path: Path) -> None:
    """QoS 2, released while its queue refuses, then `kill -9`: there once when the queue takes it again."""
    (tmp_path / "map.yaml").write_text(MAPPING)
    (tmp_path / "objects.mqsc").write_text(OBJECTS + "ALTER QLOCAL(HOLD.Q) PUT(DISABLED)\n")
    gateway = RunningGateway(tmp_path, settings=SETTINGS)
    device = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="patient", clean_session=False)
    with gateway:
        port = gateway.port
        device.connect("127.0.0.1", port)
        device.loop_start()
        waiting = device.publish("hold/k", b"once", qos=2)
        waiting.wait_for_publish(1.0)
        assert not waiting.is_published()
        gateway.kill()
    (tmp_path / "objects.mqsc").write_text(OBJECTS + "ALTER QLOCAL(HOLD.Q) PUT(ENABLED)\n")
    gateway.start(port=port)
    try:
        waiting.wait_for_publish(60)
        assert waiting.is_published()
        items = Bridge(gateway).api("GET", "/queues/HOLD.Q/messages")["items"]
        assert [one["preview"] for one in items] == ["once"]
    finally:
        device.disconnect()
        device.loop_stop()
        gateway.stop()


def test_every_publication_is_accounted_for(bridge: Bridge, device: Device) -> None:
    """Received = put + dead-lettered + dropped + held, for each rule."""
    device.publish("unknown/2", b"counted", 1)
    counters: dict[str, dict[str, float]] = {}
    for line in bridge.gateway.get("/metrics").splitlines():
        if 'route="' in line and not line.startswith("#"):
            rule, name = line.partition('route="')[2].partition('"')[0], line.partition("{")[0]
            counts = counters.setdefault(rule, {})
            counts[name] = counts.get(name, 0) + float(line.rsplit(" ", 1)[1])
    del counters["_none"]
    for rule, counts in counters.items():
        aside = counts["mqgate_dlq_messages_total"] + counts["mqgate_messages_dropped_total"]
        decided = counts["mqgate_mq_put_messages_total"] + aside + counts["mqgate_messages_held"]
        assert counts["mqgate_mqtt_publish_received_total"] == decided, (rule, counts)
    assert sum(counts["mqgate_dlq_messages_total"] for counts in counters.values()) >= len(bridge.dead()) > 0
