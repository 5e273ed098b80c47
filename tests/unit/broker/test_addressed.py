"""A rule addresses a message to one device: it reaches the gateway that has its session."""

from __future__ import annotations

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.bridge.request import Request
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mqtt import properties as prop
from gateway.ports.state_queues import FORWARD
from gateway.rules.feedback import Feedback

MAPPING = """
version: 1
to_mqtt:
  - {name: direct, queue: CMD.Q, topic: cmd, client: "{usr.device}", qos: 1}
"""


def message(device: str, body: bytes = b"go", **fields: object) -> tuple[bytes, bytes]:
    """Descriptor and data of what an application puts."""
    header = rfh2.build(
        [folder("usr", [("device", device)])], encoding=546, coded_char_set_id=1208, format_name=b"MQSTR   "
    )
    return mqmd.with_described(mqmd.build(persistence=1, **fields), 546, 1208, b"MQHRF2  "), header + body  # type: ignore[arg-type]


@pytest.fixture
def estate() -> Estate:
    made = Estate()
    for _ in range(3):
        made.start(mapping=MAPPING)
    return made


def connected(estate: Estate, node: Node, name: str = "lamp", *, clean: bool = False) -> Device:
    device = node.bench.device(5, name)
    device.connect(clean=clean)
    estate.settle(0.5)
    assert device.take()[0][1].reason == 0
    return device


def got(device: Device) -> list[bytes]:
    return [bytes(packet[4]) for packet in device.take() if packet[0] >> 4 == 3]


def dead(estate: Estate) -> list[int]:
    return [int.from_bytes(row[3][8:12], "little") for row in estate.rows.get("DEAD.Q", {}).values()]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("clean", [False, True])
def test_it_reaches_the_device_wherever_it_is(estate: Estate, at: int, clean: bool) -> None:
    device = connected(estate, list(estate.nodes.values())[at], clean=clean)
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        estate.arrive("CMD.Q", *message("lamp", body))
    estate.settle(0.5)
    assert got(device) == bodies
    assert not dead(estate)
    assert not estate.rows.get(FORWARD)


def test_one_that_is_away_has_it_when_it_comes_back(estate: Estate) -> None:
    _, second, third = estate.nodes.values()
    connected(estate, second).drop()
    estate.arrive("CMD.Q", *message("lamp"))
    estate.settle(0.5)
    assert got(connected_again(estate, third)) == [b"go"]


def connected_again(estate: Estate, node: Node) -> Device:
    device = node.bench.device(5, "lamp")
    device.connect(clean=False)
    estate.settle(0.5)
    return device


def test_a_gateway_that_has_just_begun_passes_it_on(estate: Estate) -> None:
    """It does not consume yet, as others have still to tell what their devices subscribe to."""
    first, _, third = estate.nodes.values()
    device = connected(estate, first)
    fourth = estate.start(settle=False, mapping=MAPPING)
    third.bench.engine.ownership.changed()
    third.queues.arrive("CMD.Q", message("lamp"))
    while third.commit() or third.answer():
        third.turn()
    for node in (third, fourth):
        while node.look_ahead() or node.commit():
            node.turn()
    assert not fourth.bench.engine.ownership.joining.over
    estate.settle(20.0)
    assert (got(device), dead(estate)) == ([b"go"], [])


def test_for_a_device_that_nobody_knows_it_is_dead_lettered_once_as_it_was(estate: Estate) -> None:
    estate.arrive("CMD.Q", *message("nobody", b"whole"))
    estate.settle(0.5)
    assert dead(estate) == [Feedback.DEVICE_UNKNOWN]
    (row,) = estate.rows["DEAD.Q"].values()
    assert b"nobody" in row[3]
    assert row[3].endswith(b"whole")
    assert row[3][12:60].rstrip() == b"CMD.Q"
    assert not estate.rows.get(FORWARD)


def test_one_alone_dead_letters_it_at_once() -> None:
    estate = Estate()
    estate.start(mapping=MAPPING)
    estate.arrive("CMD.Q", *message("nobody"))
    estate.settle(0.2)
    assert dead(estate) == [Feedback.DEVICE_UNKNOWN]


def test_it_follows_a_session_that_has_just_moved(estate: Estate) -> None:
    first, second, third = estate.nodes.values()
    connected(estate, second)
    estate.arrive("CMD.Q", *message("lamp"))
    first.turn()
    while first.commit():  # it is on its way to the second, or to the third
        first.turn()
    assert got(connected_again(estate, third)) == [b"go"]


@pytest.mark.timeout(20)
def test_heirs_that_name_each_other_hold_up_nothing(estate: Estate) -> None:
    first, second, third = estate.nodes.values()
    connected(estate, first).drop()
    device = second.bench.device(5, "lamp")
    device.connect(clean=False)
    for _ in range(20):
        for node in (first, second):  # the third has not heard of it: the first still sends on
            while any([node.commit(), node.hear(), node.answer()]):
                node.turn()
    ownership = first.bench.engine.ownership
    assert ownership is not None
    assert ownership.moves.went("lamp") is not None
    ownership.addressed.over(second.instance, third.instance)
    ownership.addressed.over(third.instance, second.instance)
    estate.arrive("CMD.Q", *message("lamp"))
    estate.settle(0.5)
    assert got(device) == [b"go"]


def test_what_is_on_its_way_to_a_gateway_that_is_killed_arrives(estate: Estate) -> None:
    first, second, third = estate.nodes.values()
    connected(estate, second)
    estate.arrive("CMD.Q", *message("lamp"))
    first.turn()
    while first.commit():
        first.turn()
    estate.kill(second)
    device = third.bench.device(5, "lamp")
    device.connect(clean=False)
    estate.settle(0.5)
    estate.condemn(second.instance, first)
    estate.settle(1)
    assert got(device) == [b"go"]


def test_an_answer_keeps_what_its_request_says(estate: Estate) -> None:
    first, second, _ = estate.nodes.values()
    device = connected(estate, second)
    request = Request("lamp", "answers/lamp", b"corr", 0)
    token = next(first.queues._tokens)
    first.queues._priorities[token] = 0
    estate.rows.setdefault("MQGATE.REQUESTS", {})[token] = (0, request.token, mqmd.build(), request.encode())
    estate.arrive("CMD.Q", *message("lamp", correl_id=request.token))
    estate.settle(0.5)
    (packet,) = [packet for packet in device.take() if packet[0] >> 4 == 3]
    assert (packet[1], packet[4]) == (b"answers/lamp", b"go")
    assert prop.decode_publish(packet[3])[prop.CORRELATION_DATA] == b"corr"
    assert not estate.rows["MQGATE.REQUESTS"]


def test_each_message_counts_once(estate: Estate) -> None:
    device = connected(estate, list(estate.nodes.values())[2])
    estate.arrive("CMD.Q", *message("lamp"))
    estate.arrive("CMD.Q", *message("nobody"))
    estate.settle(0.5)
    device.take()
    counters = [node.bench.engine.counters for node in estate.nodes.values()]
    assert sum(one.route_matched["direct"] for one in counters) == 2
    assert (
        sum(
            one.mq_get_messages[node.queues.name, "direct"]
            for one, node in zip(counters, estate.nodes.values(), strict=True)
        )
        == 2
    )
    assert sum(sum(one.mqtt_publish_sent.values()) for one in counters) == 1
    assert sum(sum(one.dlq_messages.values()) for one in counters) == 1
