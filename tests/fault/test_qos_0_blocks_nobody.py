"""QoS 0 to a queue that refuses: bounded, counted, and in nobody's way. On both backends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bridge_estate import BACKENDS, Estate, estate, wait

from gateway.broker.refused.parking import MAX_ROWS, MAX_UNANSWERED
from gateway.mqtt import packets as p
from gateway.mqtt import writer

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
MAPPING = """
version: 1
to_mq:
  - {name: shut, topic: "shut/#", queue: SHUT.Q, headers: [], on_failure: {retry: {times: 0}, then: hold}}
  - {name: kept, topic: "kept/#", queue: SHUT.Q, headers: [], descriptor: {persistence: persistent},
     on_failure: {retry: {times: 0}, then: hold}}
  - {name: storm, topic: "storm/#", queue: STORM.Q, headers: [], on_failure: {retry: {times: 0}, then: hold}}
  - {name: one of two, topic: "two/#", queue: SHUT.Q, headers: [], continue: true,
     on_failure: {retry: {times: 0}, then: hold}}
  - {name: two, topic: "two/#", queue: OPEN.Q, headers: []}
  - {name: open, topic: "open/#", queue: OPEN.Q, headers: []}
"""
OBJECTS = """
DEFINE QLOCAL(SHUT.Q) PUT(DISABLED) REPLACE
DEFINE QLOCAL(STORM.Q) PUT(DISABLED) MAXDEPTH(999999) REPLACE
DEFINE QLOCAL(OPEN.Q) REPLACE
"""


@pytest.fixture(scope="module", params=BACKENDS)
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    with estate(tmp_path_factory.mktemp(request.param), request.param, MAPPING, OBJECTS) as made:
        yield made


@pytest.mark.parametrize("topic", ["shut/x", "kept/x", "two/x"])
def test_what_waits_at_qos_0_withholds_no_acknowledgement(bridge: Estate, topic: str) -> None:
    """Its queue may refuse for as long as it likes: QoS 0 is not answered, so nothing is in order behind it."""
    with bridge.device("one") as device:
        for qos in (1, 2):
            device.publish(topic, b"waits", 0)
            assert device.publish("open/x", b"goes", qos) == 0
        assert [one.data for one in bridge.application.look("OPEN.Q")] == [b"goes"] * 2
    bridge.mqsc("ALTER QLOCAL(SHUT.Q) PUT(ENABLED)")
    assert [one.body.raw for one in bridge.application.messages("SHUT.Q", 2)] == [b"waits"] * 2
    if topic == "two/x":
        assert len(bridge.application.messages("OPEN.Q", 4)) == 4
    bridge.mqsc("ALTER QLOCAL(SHUT.Q) PUT(DISABLED)")
    bridge.application.clear("SHUT.Q", "OPEN.Q")


def test_an_acknowledged_message_waits_beside_those_of_qos_0(bridge: Estate) -> None:
    """The same connection, the same queue, the same rule: QoS 1 has its answer when it is committed and not before."""
    with bridge.device("both") as device:
        for _ in range(3):
            device.publish("kept/x", b"loose", 0)
        device.socket.sendall(writer.encode_publish(5, b"kept/x", b"owed", 1, packet_id=77))
        device.publish("kept/x", b"loose", 0)
        wait(lambda: bridge.account()["kept"].get("messages_held") == 5)
        assert not device.packets
        device.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            device.socket.recv(1)
        bridge.mqsc("ALTER QLOCAL(SHUT.Q) PUT(ENABLED)")
        assert device.next(p.PUBACK)[1:3] == (77, 0)
    assert sorted(one.body.raw for one in bridge.application.messages("SHUT.Q", 5)) == [b"loose"] * 4 + [b"owed"]
    bridge.mqsc("ALTER QLOCAL(SHUT.Q) PUT(DISABLED)")
    bridge.application.clear("SHUT.Q")


def test_a_storm_to_a_queue_that_refuses_is_bounded_and_stops_nobody(bridge: Estate) -> None:
    sent = MAX_ROWS + MAX_ROWS // 2
    with bridge.device("storm") as storm, bridge.device("other") as other:
        for first in range(0, sent, 1000):
            storm.socket.sendall(
                b"".join(writer.encode_publish(5, b"storm/x", b"%d" % one, 0) for one in range(first, first + 1000))
            )
        assert other.publish("open/x", b"other") == 0
        assert storm.publish("open/x", b"same") == 0
        count = bridge.account()["storm"]
        assert count["mqtt_publish_received"] == sent == count["messages_dropped"] + count["messages_held"], count
        assert count["messages_held"] == MAX_UNANSWERED
        assert other.publish("open/x", b"other", 2) == 0
        bridge.mqsc("ALTER QLOCAL(STORM.Q) PUT(ENABLED)")
        wait(lambda: not bridge.account()["storm"].get("messages_held"), 60)
        count = bridge.account()["storm"]
        assert count["mq_put_messages"] == MAX_UNANSWERED == sent - count["messages_dropped"]
    assert 'mqgate_messages_dropped_total{reason="qos0_overload",route="storm"}' in bridge.gateway.get("/metrics")
