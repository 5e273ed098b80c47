"""gateway.broker.sessions.sys_topics: the broker's state under the usual names."""

from __future__ import annotations

from broker_harness import Harness

from gateway.mqtt import packets as p


def state(device):
    return {
        packet[1].decode().removeprefix("$SYS/broker/"): packet[4].decode()
        for packet in device.take()
        if packet[0] >> 4 == p.PUBLISH
    }


def test_what_it_says():
    bench = Harness()
    bench.advance(1)
    watcher = bench.device(5, "w").connect()
    watcher.subscribe("$SYS/#", 0)
    first = state(watcher)
    assert first["version"].startswith("mqgate version")
    assert first["clients/connected"] == "0"
    other = bench.device(4, "o").connect(clean=False)
    other.subscribe("a", 1)
    other.publish("a", b"x", 1, 1)
    bench.advance(11)
    later = state(watcher)
    assert later["clients/connected"] == "2"
    assert later["subscriptions/count"] == "2"
    assert later["publish/messages/received"] == "1"
    assert later["messages/inflight"] == "1"
    assert float(later["load/publish/messages/received/1min"]) > 0
    assert "version" not in later


def test_it_goes_on_and_uptime_grows_when_the_time_of_day_is_set_back():
    bench = Harness()
    bench.advance(1)
    watcher = bench.device(5, "w").connect()
    watcher.subscribe("$SYS/#", 0)
    state(watcher)
    bench.clock.now = lambda at=bench.clock.now: at() - 3600
    bench.advance(10)
    later = state(watcher)
    assert later["clients/connected"] == "1"
    assert 9 <= int(later["uptime"].removesuffix(" seconds")) <= 11


def test_it_is_neither_stored_nor_counted_nor_anybodys_to_publish():
    bench = Harness()
    bench.advance(1)
    device = bench.device(5, "d").connect()
    device.publish("$SYS/broker/version", b"fake", 1, 1, retain=True)
    assert device.take()[-1][:3] == (0x40, 1, 0x87)
    device.publish("kept", b"x", 1, 2, retain=True)
    bench.advance(11)
    device.subscribe("$SYS/broker/+", 0)
    seen = state(device)
    assert seen["version"].startswith("mqgate version")
    assert not bench.queues.rows.get("MQGATE.RETAINED", {}).keys() - {max(bench.queues.rows["MQGATE.RETAINED"])}


def test_hash_does_not_see_it_mqtt_4_7_2_1():
    bench = Harness()
    device = bench.device(4, "d").connect()
    device.subscribe("#", 0)
    device.take()
    bench.advance(11)
    assert device.take() == []
