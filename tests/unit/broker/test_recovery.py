"""gateway.broker.sessions.recovery, deliver.in_flight: what a kill at the worst moment leaves, packet by packet."""

from __future__ import annotations

import pytest
from broker_harness import Harness
from several_brokers import Estate

from gateway.broker.sessions.recovery import end_of_ids
from gateway.errors import StoreError
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt.packets import Will
from gateway.ports.state_queues import FAN_OUT, OUT, RETAINED, SESSIONS, SET_ASIDE, STAGED, TOGETHER, WILLS
from gateway.session.publication import Publication
from gateway.session.record import decode_json, encode_json, encode_publication, key_of
from gateway.session.registry import Registry
from gateway.session.session import Session


@pytest.mark.parametrize(
    ("used", "last"),
    [
        ({5}, 5),
        ({1, 2, 3}, 3),
        ({2, 1}, 2),
        ({65534, 65535, 1, 2}, 2),
        ({65535}, 65535),
        ({10, 12}, 12),
    ],
)
def test_counting_goes_on_behind_the_ids_in_use(used, last):
    assert end_of_ids(used) == last


def persistent(bench, version=4):
    device = bench.device(version, "s").connect(clean=False)
    device.subscribe("a", 2)
    device.take()
    return device


def publisher(bench):
    device = bench.device(4, "p").connect()
    device.take()
    return device


def publish_2(device, payload, packet_id):
    device.publish("a", payload, 2, packet_id)
    device.ack(p.PUBREL, packet_id)


def test_after_pubrec_only_pubrel_is_sent_even_after_a_kill():
    bench = Harness()
    device = persistent(bench)
    publish_2(publisher(bench), b"once", 1)
    assert [packet[0] for packet in device.take()] == [0x34]
    device.ack(p.PUBREC, 1)
    assert [packet[0] for packet in device.take()] == [0x62]
    bench.queues.automatic = False
    device.ack(p.PUBCOMP, 1)  # its commit never returns
    bench.kill()
    bench.queues.automatic = True
    again = bench.device(4, "s").connect(clean=False)
    assert [packet[0] for packet in again.take()] == [0x20, 0x62]
    again.ack(p.PUBCOMP, 1)
    assert not bench.queues.rows["MQGATE.OUT"]


def test_pubrel_does_not_exist_before_the_release_is_durable():
    bench = Harness()
    device = persistent(bench)
    publish_2(publisher(bench), b"once", 1)
    device.take()
    bench.queues.automatic = False
    device.ack(p.PUBREC, 1)
    assert device.take() == []
    bench.kill()
    bench.queues.automatic = True
    again = bench.device(4, "s").connect(clean=False)
    assert [packet[0] for packet in again.take()] == [0x20, 0x3C]


def test_a_new_message_does_not_take_the_id_of_a_released_one():
    bench = Harness()
    device = persistent(bench)
    sender = publisher(bench)
    sender.publish("a", b"one", 1, 1)
    publish_2(sender, b"two", 2)
    device.take()
    device.ack(p.PUBREC, 2)
    bench.kill()
    publish_2(publisher(bench), b"three", 3)
    again = bench.device(4, "s").connect(clean=False)
    sent = [(packet[0] >> 4, packet[2] if packet[0] >> 4 == p.PUBLISH else packet[1]) for packet in again.take()[1:]]
    assert sorted(sent) == [(p.PUBLISH, 1), (p.PUBLISH, 3), (p.PUBREL, 2)]


def test_only_what_was_sent_before_the_kill_carries_dup():
    bench = Harness()
    persistent(bench)
    publisher(bench).publish("a", b"one", 1, 1)
    bench.kill()
    publisher(bench).publish("a", b"two", 1, 1)
    again = bench.device(4, "s").connect(clean=False)
    assert [(packet[0], packet[4]) for packet in again.take()[1:]] == [(0x3A, b"one"), (0x32, b"two")]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_inbound_qos_2_goes_on_after_a_kill_mqtt_4_3_3_10(version):
    bench = Harness("version: 1\nto_mq:\n  - {name: queued, topic: 'q/#', queue: Q}\n")
    device = bench.device(version, "d").connect(clean=False)
    device.publish("q/1", b"once", 2, 7)
    bench.kill()
    device = bench.device(version, "d").connect(clean=False)
    device.publish("q/1", b"once", 2, 7, dup=True)
    device.ack(p.PUBREL, 7)
    device.ack(p.PUBREL, 7)
    assert [packet[0] >> 4 for packet in device.take()] == [p.CONNACK, p.PUBREC, p.PUBCOMP, p.PUBCOMP]
    assert len(bench.queues.rows["Q"]) == 1
    assert not bench.queues.rows["MQGATE.STAGED"]


@pytest.mark.parametrize("kills", [1, 2])
def test_what_an_older_gateway_staged_for_each_session_by_itself_is_released_once(kills):
    bench = Harness("version: 1\nto_mq:\n  - {name: queued, topic: 'q/#', queue: Q}\n")
    device = bench.device(4, "d").connect(clean=False)
    for number in (7, 8):
        device.publish("q/1", b"%d" % number, 2, number)
    staged = bench.queues.rows["MQGATE.STAGED"]
    for token, (priority, key, md, data) in list(staged.items()):
        assert key == TOGETHER
        staged[token] = (priority, key_of("d"), md, data)
    for _ in range(kills):
        bench.kill()
        assert [key for _, key, *_ in staged.values()] == [TOGETHER, TOGETHER]
    device = bench.device(4, "d").connect(clean=False)
    for number in (8, 7, 8):
        device.ack(p.PUBREL, number)
    assert [packet[0] >> 4 for packet in device.take()] == [p.CONNACK, p.PUBCOMP, p.PUBCOMP, p.PUBCOMP]
    assert [data[-1:] for *_, data in bench.queues.rows["Q"].values()] == [b"8", b"7"]
    assert not staged


def test_of_what_is_staged_together_that_of_sessions_that_are_no_more_goes():
    bench = Harness("version: 1\nto_mq:\n  - {name: queued, topic: 'q/#', queue: Q}\n")
    for name, clean in (("stays", False), ("goes", True), ("stays too", False)):
        bench.device(4, name).connect(clean=clean).publish("q/1", name.encode(), 2, 7)
    assert len(bench.queues.rows["MQGATE.STAGED"]) == 3
    bench.kill()
    assert len(bench.queues.rows["MQGATE.STAGED"]) == 2
    for name in ("stays too", "goes", "stays"):
        bench.device(4, name).connect(clean=False).ack(p.PUBREL, 7)
    assert not bench.queues.rows["MQGATE.STAGED"]
    bodies = [data for *_, data in bench.queues.rows["Q"].values()]
    assert [bodies[0].endswith(b"stays too"), bodies[1].endswith(b"stays"), len(bodies)] == [True, True, 2]


def test_a_session_stages_under_its_own_key_where_another_gateway_may_take_it_over():
    alone, shared = Registry(TOGETHER), Registry()
    sessions = [Session("one", 4), Session("two", 4)]
    for registry, session in zip((alone, shared), sessions, strict=True):
        registry.add(session)
    assert [session.staged_key for session in sessions] == [TOGETHER, key_of("two")]


def test_expired_retained_messages_leave_the_queue():
    bench = Harness()
    sender = bench.device(5, "p").connect()
    sender.publish("a", b"brief", 1, 1, retain=True, properties=b"\x02\0\0\0\x05")
    sender.publish("b", b"stays", 1, 2, retain=True)
    assert len(bench.queues.rows["MQGATE.RETAINED"]) == 2
    bench.advance(7)
    assert len(bench.queues.rows["MQGATE.RETAINED"]) == 1
    bench.kill()
    bench.advance(1)
    assert bench.engine.retained.find("b") is not None
    assert bench.engine.retained.find("a") is None


def test_ending_a_session_leaves_nothing():
    bench = Harness()
    device = persistent(bench, 5)
    sender = publisher(bench)
    for number in (1, 2, 3):
        sender.publish("a", b"x", 1, number)
    device.publish("q", b"half", 2, 9)
    device.drop()
    bench.device(5, "s").connect(clean=True).disconnect()
    left = {name: rows for name, rows in bench.queues.rows.items() if rows}
    assert left == {}


def test_a_session_that_stops_being_durable_leaves_nothing():
    bench = Harness(max_inflight=2)
    persistent(bench, 5).drop()
    sender = publisher(bench)
    for number in range(1, 6):
        sender.publish("a", b"x", 1, number)
    brief = bench.device(5, "s")
    brief.send(client.encode_connect(client.connect(5, "s", clean_start=False)))  # no expiry: ends with the connection
    assert len(brief.take()) == 3
    brief.ack(p.PUBACK, 1)
    brief.drop()
    assert not bench.queues.rows["MQGATE.OUT"]
    assert not bench.queues.rows["MQGATE.SESSIONS"]


def test_an_acknowledgement_and_the_end_of_the_session_in_one_chunk():
    bench = Harness()
    device = persistent(bench, 5)
    sender = publisher(bench)
    sender.publish("a", b"x", 1, 1)
    publish_2(sender, b"y", 2)
    device.take()
    bench.queues.automatic = False
    device.ack(p.PUBREC, 2)
    ack, end = writer.encode_acks(p.PUBACK, [1]), writer.encode_disconnect(5, p.Disconnect(0, {0x11: 0}))
    device.send(ack + end)
    while bench.queues.commit():
        pass
    assert not bench.queues.rows["MQGATE.OUT"]


def test_a_message_that_was_being_committed_when_its_session_ended():
    bench = Harness()
    device = persistent(bench, 5)
    sender = publisher(bench)
    bench.queues.automatic = False
    sender.publish("a", b"x", 1, 1)
    device.send(writer.encode_disconnect(5, p.Disconnect(0, {0x11: 0})))
    while bench.queues.commit():
        pass
    assert not bench.queues.rows["MQGATE.OUT"]


def test_what_is_stored_for_a_session_is_not_read_to_be_taken(monkeypatch):
    """There may be gigabytes of it, and nobody is to wait."""
    bench = Harness()
    persistent(bench).drop()
    publisher(bench).publish("a", b"x", 1, 1)
    monkeypatch.delattr(bench.queues.__class__, "fetch")
    bench.device(4, "s").connect(clean=True)
    assert not bench.queues.rows["MQGATE.OUT"]


def test_more_pages_than_one_come_in_order_through_a_small_window():
    bench = Harness(max_inflight=3, max_queued=1000)
    persistent(bench).drop()
    sender = publisher(bench)
    for number in range(1, 501):
        sender.publish("a", str(number).encode(), 1, number)
    device = bench.device(4, "s").connect(clean=False)
    got = []
    while packets := [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]:
        got += [int(packet[4]) for packet in packets]
        for packet in packets:
            device.ack(p.PUBACK, packet[2])
        if len(got) in {99, 100, 101}:  # and once more over a lost connection in the middle
            device.drop()
            device = bench.device(4, "s").connect(clean=False)
    assert got == list(range(1, 501))
    assert not bench.queues.rows["MQGATE.OUT"]


def test_a_delayed_will_whose_device_came_back_is_gone_for_good():
    bench = Harness('version: 1\nto_mq:\n  - {name: w, topic: "will/#", queue: W.Q}\n')
    will = p.Will("will/s", b"gone", 1, retain=False, properties={0x18: 60})
    device = bench.device(5, "s").connect(clean=False, will=will)
    device.drop()
    again = bench.device(5, "s").connect(clean=False)
    assert again.take()[0][1].session_present
    assert not bench.queues.rows["MQGATE.WILLS"]
    bench.kill()
    bench.advance(120)
    assert not bench.queues.rows.get("W.Q")


@pytest.mark.parametrize("queue", [SESSIONS, RETAINED, STAGED, OUT, WILLS, FAN_OUT])
def test_what_a_newer_gateway_has_left_keeps_this_one_from_starting(queue: str) -> None:
    bench = Harness()
    reader = bench.device(5, "reader").connect(clean=False, will=Will("w", b"will", 1, retain=False))
    reader.subscribe("a", 1)
    sender = bench.device(5, "sender").connect(clean=False)
    sender.publish("a", b"kept", 1, 1, retain=True)
    sender.publish("a", b"staged", 2, 2)
    kept = encode_publication(Publication(b"a", b"x", 2, retain=False), 0)
    bench.queues.rows[FAN_OUT] = {1_000_000: (0, bytes(7) + b"\1".ljust(17, b"\0"), bytes(364), kept)}
    for token, (priority, key, md, data) in list(bench.queues.rows[queue].items()):
        newer = encode_json(decode_json(data) | {"format": 2}) if data[:1] == b"{" else b"\2" + data[1:]
        bench.queues.rows[queue][token] = (priority, key, md, newer)
    before = {name: dict(rows) for name, rows in bench.queues.rows.items()}
    with pytest.raises(StoreError, match=rf"on {queue} .*newer release.*version 2.*Start that release"):
        bench.kill()
    assert bench.queues.rows == before


def leaves_for_a_second(bench):
    device = bench.device(5, "s").connect(properties={0x11: 1})
    device.drop()


def test_a_session_lasts_to_the_end_of_its_expiry_through_a_restart_mqtt5_3_1_2_23():
    bench = Harness()
    leaves_for_a_second(bench)
    bench.advance(0.25)
    bench.kill()
    bench.engine.tick()
    bench.advance(0.5)
    ((_, connack),) = bench.device(5, "s").connect(clean=False).take()
    assert connack.session_present


def test_a_session_that_was_not_taken_up_again_ends_with_its_expiry_after_a_restart():
    bench = Harness()
    leaves_for_a_second(bench)
    bench.kill()
    bench.advance(1.25)
    assert not bench.queues.rows[SESSIONS]


@pytest.mark.parametrize("ahead", [0, 60])
def test_a_session_lasts_to_the_end_of_its_expiry_when_it_moves_to_another_gateway_mqtt5_3_1_2_23(ahead):
    """By the clock of the gateway that gives it, be the other one's ahead."""
    estate = Estate()
    first, second = estate.start(), estate.start()
    second.bench.clock.advance(first.bench.clock.now() - second.bench.clock.now() + ahead)
    device = first.bench.device(5, "s").connect(properties={0x11: 1})
    estate.settle(0.25)
    device.drop()
    estate.settle(0.25)
    device = second.bench.device(5, "s").connect(clean=False)
    estate.settle(0.25)
    ((_, connack),) = device.take()
    assert connack.session_present


@pytest.mark.parametrize("begins", [b"\x1b", b"\n", b"\t", b"\x08"])
def test_what_begins_with_a_control_character_is_no_record_of_a_newer_gateway(begins: bytes) -> None:
    """A program that has put such a text on a queue of the gateway must not keep it from starting."""
    bench = Harness()
    bench.defects = []
    bench.queues.rows[RETAINED] = {1_000_000: (0, bytes(24), bytes(364), begins + bytes(20))}
    bench.queues._priorities[1_000_000] = 0
    bench.kill()
    assert [met.what for met in bench.defects] == ["retained"]
    assert len(bench.queues.rows[SET_ASIDE]) == 1
