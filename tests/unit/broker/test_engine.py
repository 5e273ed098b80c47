"""gateway.broker.engine: nothing is acknowledged before its commit; keep-alive; what garbage and kills leave behind."""

from __future__ import annotations

import pytest
from broker_harness import Harness

from gateway.broker.batch import Batch
from gateway.broker.refused.parking import Parking
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.ports.batch import Failure, Outcome, Puts, Unit

VERSIONS = [3, 4, 5]


@pytest.fixture
def bench():
    return Harness()


def kinds(device):
    return [packet[0] >> 4 for packet in device.take()]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_acknowledgement_exists_before_the_commit_returned(bench, version):
    device = bench.device(version, "d").connect()
    device.take()
    bench.queues.automatic = False
    device.publish("a", b"x", 1, 1, retain=True)
    device.publish("a", b"x", 2, 2)
    device.subscribe("b", 1)
    assert device.take() == []
    while bench.queues.commit():
        pass
    assert kinds(device) == [p.PUBACK, p.PUBREC, p.SUBACK]


@pytest.mark.parametrize("version", VERSIONS)
def test_connack_waits_for_the_sessions_record(bench, version):
    bench.queues.automatic = False
    device = bench.device(version, "d").connect(clean=False)
    assert device.take() == []
    bench.queues.commit()
    assert kinds(device) == [p.CONNACK]


@pytest.mark.parametrize(("seconds", "waits"), [(0.0, False), (0.25, True)])
def test_those_whom_a_slow_commit_answers_are_waited_for(bench, seconds, waits):
    device, other = bench.device(4, "d").connect(), bench.device(4, "o").connect()
    assert kinds(device) == kinds(other) == [p.CONNACK]
    group = bench.engine.context.group_commit
    bench.queues.automatic = False
    device.publish("a", b"x", 1, 1, retain=True)
    bench.clock.advance(seconds)
    group.gathering = True  # a round of sockets is being read
    other.publish("a", b"y", 1, 1, retain=True)
    bench.queues.commit()
    assert kinds(device) == [p.PUBACK]
    assert group.missing == ({device.connection} if waits else set())
    assert not bench.engine.context.committing  # the other's is not submitted before the round is over
    group.gathering = False
    bench.engine.flush()
    bench.queues.commit()
    assert kinds(other) == [p.PUBACK]


def test_pingresp_is_behind_what_was_sent_before(bench):
    device = bench.device(4, "d").connect()
    device.subscribe("a", 0)
    device.take()
    bench.queues.automatic = False
    device.publish("a", b"x", 1, 1, retain=True)
    device.send(client.encode_pingreq() * 2)
    assert kinds(device) == [p.PUBLISH], "which waits for nothing"
    device.publish("a", b"y", 0)
    device.send(client.encode_pingreq())
    while bench.queues.commit():
        pass
    got = kinds(device)
    assert sorted(got) == [p.PUBLISH, p.PUBACK] + [p.PINGRESP] * 3
    assert got.index(p.PUBACK) < got.index(p.PINGRESP)


def test_pingresp_does_not_wait_for_a_queue_manager_that_is_stuck(bench):
    device = bench.device(4, "d").connect()
    device.take()
    bench.queues.automatic = False
    device.publish("a", b"x", 1, 1, retain=True)
    device.send(client.encode_pingreq())
    assert kinds(device) == []
    bench.engine.tick()
    assert kinds(device) == [p.PINGRESP]
    bench.queues.commit()
    assert kinds(device) == [p.PUBACK]


def test_pingresp_goes_before_the_end(bench):
    device = bench.device(4, "d").connect()
    device.take()
    bench.queues.automatic = False
    device.publish("a", b"x", 1, 1, retain=True)
    device.send(client.encode_pingreq())
    device.disconnect()
    while bench.queues.commit():
        pass
    assert kinds(device) == [p.PUBACK, p.PINGRESP]
    assert device.wire.closed


@pytest.mark.parametrize("version", VERSIONS)
def test_pingreqs_that_wait_for_connack_are_a_number(bench, version):
    bench.queues.automatic = False
    device = bench.device(version, "d").connect(clean=False)
    for _ in range(3):
        device.send(client.encode_pingreq() * 1000)
        bench.engine.tick()
    assert device.take() == []
    assert len(bench.engine.context.batch.after) <= 1
    assert device.connection.behind_connack == []
    while bench.queues.commit():
        pass
    assert kinds(device) == [p.CONNACK] + [p.PINGRESP] * 3000
    assert bench.engine.counters.packets_out[p.PINGRESP] == 3000
    assert not bench.engine.answers.pings


@pytest.mark.parametrize("version", VERSIONS)
def test_what_goes_with_connack_is_bounded(version):
    bench = Harness(max_outgoing_bytes=100_000)
    bench.queues.automatic = False
    device = bench.device(version, "d").connect(clean=False)
    bench.clock.advance(0.25)
    device.send(writer.encode_acks(p.PUBREC, list(range(1, 1001))))
    bench.engine.tick()
    assert not device.wire.closed
    device.send(writer.encode_acks(p.PUBREC, list(range(1001, 5001))))
    bench.engine.tick()
    assert device.wire.closed
    assert bench.engine.context.behind_connacks == 0
    while bench.queues.commit():
        pass
    assert device.take() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_that_wait_for_a_commit_are_bounded(bench, version):
    """Nobody is read any more, as when there are so many publications."""
    device = bench.device(version, "d").connect()
    bench.queues.automatic = False
    device.publish("a", b"x", 1, 1, retain=True)
    paused = []
    bench.engine.context.on_pause = paused.append
    releases = writer.encode_acks(p.PUBREL, list(range(1, 5001)))
    sent = 0
    while not paused and sent < 100_000:
        device.send(releases)
        sent += 5000
    assert paused == [True]
    assert sent <= 25_000
    while bench.queues.commit():
        pass
    assert paused == [True, False]


def test_what_arrives_during_a_commit_is_one_batch(bench):
    device = bench.device(4, "d").connect()
    bench.queues.automatic = False
    before = bench.queues.commits
    for number in range(1, 11):
        device.publish("a", b"x", 1, number, retain=True)
    while bench.queues.commit():
        pass
    assert bench.queues.commits - before == 2


@pytest.mark.parametrize(
    ("keep_alive", "earliest", "latest"), [(1, 1.0, 1.5), (2, 2.0, 3.0), (10, 10, 15), (60, 60, 90)]
)
@pytest.mark.parametrize("version", VERSIONS)
def test_keep_alive_1_to_1_5_periods_mqtt3_3_1_2_24_mqtt5_3_1_2_22(bench, version, keep_alive, earliest, latest):
    device = bench.device(version, "d").connect(keep_alive=keep_alive)
    passed = 0.0
    while not device.wire.closed and passed < 2 * latest:
        bench.clock.advance(0.05)
        passed += 0.05
        if round(passed, 2) % 1 == 0:
            bench.engine.tick()
    assert earliest <= passed <= latest + 0.01


@pytest.mark.parametrize("keep_alive", [0, 3600])
def test_the_keep_alive_the_server_gives_is_the_one_that_ends_mqtt5_3_1_2_21_mqtt_3_2_2_21(keep_alive):
    bench = Harness(keep_alive_max=60)
    device = bench.device(5, "d").connect(keep_alive=keep_alive)
    assert device.take()[0][1].properties[0x13] == 60
    bench.advance(60)
    assert not device.wire.closed
    bench.advance(30)
    assert device.wire.closed


@pytest.mark.parametrize("version", [3, 4])
def test_a_3_x_client_keeps_its_keep_alive(version):
    """Nothing in 3.x can tell it another one, so it is neither refused nor cut short."""
    bench = Harness(keep_alive_max=60)
    device = bench.device(version, "d").connect(keep_alive=3600)
    assert device.take()[0][1].reason == 0
    bench.advance(1000)
    assert not device.wire.closed


@pytest.mark.parametrize("keep_alive", [2, 60])
def test_a_client_whose_packets_lie_unread_is_not_silent(bench, keep_alive):
    """The gateway stood still, or reads it later because it has sent more than its rates allow."""
    device = bench.device(5, "d").connect(keep_alive=keep_alive)
    device.wire.waits = True
    bench.advance(3 * keep_alive)
    assert not device.wire.closed
    device.wire.waits = False
    device.send(client.encode_pingreq())
    bench.advance(keep_alive)
    assert not device.wire.closed
    bench.advance(keep_alive)
    assert device.wire.closed


@pytest.mark.parametrize("keep_alive", [2, 60])
def test_a_byte_now_and_then_of_a_packet_without_end_is_silence_mqtt5_3_1_2_22(bench, keep_alive):
    device = bench.device(5, "d").connect(keep_alive=keep_alive)
    packet = writer.encode_publish(5, b"t", bytes(900_000), 1, packet_id=1)
    device.send(packet[:4096])
    for at in range(4096, 4096 + keep_alive):
        device.send(packet[at : at + 1])
        bench.advance(1)
    assert not device.wire.closed
    for at in range(5000, 5000 + keep_alive + 4):
        device.send(packet[at : at + 1])
        bench.advance(1)
    assert device.wire.closed
    assert device.take()[-1][1].reason == 0x8D


@pytest.mark.parametrize("keep_alive", [2, 60])
def test_a_long_packet_may_come_slowly_and_packets_in_two_pieces_for_ever(bench, keep_alive):
    """The first as a slow link brings it, 2 KiB in a second; of the others one is always incomplete."""
    device = bench.device(5, "d").connect(keep_alive=keep_alive)
    packet = writer.encode_publish(5, b"t", bytes(900_000), 1, packet_id=1)
    for at in range(0, len(packet), 2048):
        device.send(packet[at : at + 2048])
        bench.advance(1)
    assert not device.wire.closed
    packet = writer.encode_publish(5, b"t", bytes(100), 1, packet_id=1)
    device.send(packet[:50])
    for _ in range(3 * keep_alive):
        bench.advance(1)
        device.send(packet[50:] + packet[:50])
    assert not device.wire.closed


def test_a_packet_is_not_late_because_the_gateway_stands_still_or_reads_later(bench):
    device = bench.device(5, "d").connect(keep_alive=60)
    packet = writer.encode_publish(5, b"t", bytes(1000), 1, packet_id=1)
    device.send(packet[:500])
    device.wire.waits = True
    bench.advance(120)
    device.wire.waits = False
    for at in range(500, 503):
        device.send(packet[at : at + 1])
        bench.clock.advance(80)
        bench.engine.tick()
    assert not device.wire.closed


def test_behind_a_stop_of_the_gateway_a_connect_is_read_before_its_time_is_over(bench):
    """Whoever sends none has the time until the next tick, and stops that follow each other give no more."""
    bench.advance(1)
    prompt, slow = bench.device(4, "prompt"), bench.device(4, "slow")
    bench.clock.advance(60)
    bench.engine.tick()
    assert not prompt.wire.closed
    prompt.connect()
    later = bench.device(4, "later")
    bench.clock.advance(60)
    bench.engine.tick()
    assert prompt.take()
    assert slow.wire.closed
    assert not later.wire.closed


def test_nobody_is_late_with_a_connect_that_is_not_read(bench):
    """While nothing can be committed nothing is read, however long that takes."""
    device, silent = bench.device(4, "d"), bench.device(4, "silent")
    device.wire.waits = True
    bench.advance(60)
    assert (device.wire.closed, silent.wire.closed) == (False, True)
    device.wire.waits = False
    device.connect()
    bench.advance(60)
    assert device.take()
    assert not device.wire.closed


def test_behind_a_stop_of_the_gateway_commits_are_looked_at_before_connack_is_overdue():
    bench = Harness(connect_timeout=1.0)
    bench.queues.automatic = False
    device = bench.device(4, "d").connect(clean=False)
    bench.advance(1)
    bench.clock.advance(60)
    bench.engine.tick()
    bench.queues.automatic = True
    bench.queues.commit()
    assert device.take()[0][1].reason == 0


def test_keep_alive_0_never_ends(bench):
    device = bench.device(4, "d").connect(keep_alive=0)
    bench.advance(100)
    assert not device.wire.closed


def test_a_connection_without_connect_is_dropped(bench):
    device = bench.device(4, "d")
    bench.advance(9)
    assert not device.wire.closed
    bench.advance(3)
    assert device.wire.closed


@pytest.mark.parametrize("version", VERSIONS)
def test_disconnect_is_durable_before_the_socket_closes(bench, version):
    device = bench.device(version, "d").connect(clean=False, will=p.Will("w", b"gone", 1, False))
    bench.queues.automatic = False
    device.disconnect()
    assert not device.wire.closed
    bench.queues.commit()
    assert device.wire.closed
    bench.queues.automatic = True
    listener = bench.device(4, "l").connect()
    listener.subscribe("w", 0)
    listener.take()
    bench.kill()
    assert not bench.queues.rows.get("MQGATE.WILLS")


def test_a_second_client_is_not_disturbed_by_garbage(bench):
    good, bad = bench.device(4, "g").connect(), bench.device(4, "b").connect()
    good.subscribe("a", 0)
    good.take()
    bad.send(b"\x36\x00\xff\xff")
    good.publish("a", b"still here", 0)
    assert bad.wire.closed
    assert kinds(good) == [p.PUBLISH]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_goes_out_before_connack_mqtt_3_2_0_1(bench, version):
    first = bench.device(version, "d").connect(clean=False)
    first.subscribe("a", 1)
    first.drop()
    other = bench.device(4, "o").connect()
    bench.queues.automatic = False
    other.publish("a", b"keeps the store busy", 1, 1, retain=True)
    device = bench.device(version, "d").connect(clean=False)
    device.send(client.encode_pingreq())
    other.publish("a", b"at once", 0)
    other.publish("a", b"stored", 1, 2)
    assert device.take() == []
    while bench.queues.commit():
        pass
    packets = device.take()
    assert packets[0][0] >> 4 == p.CONNACK
    assert sorted(kinds(other)) == [p.CONNACK, p.PUBACK, p.PUBACK]
    assert sorted(packet[0] >> 4 for packet in packets[1:]) == [p.PUBLISH] * 3 + [p.PINGRESP]
    assert [packet[0] for packet in packets if packet[0] >> 4 == p.PUBLISH and packet[0] & 8] == []


@pytest.mark.parametrize(("reference", "reason"), [("", 0x8B), ("b.example:1883", 0x9C)])
def test_clients_are_told_where_to_go_when_the_gateway_stops(reference, reason):
    bench = Harness(server_reference=reference)
    device, old = bench.device(5, "d").connect(), bench.device(4, "o").connect()
    device.take()
    bench.engine.endings.leave(device.connection)
    bench.engine.endings.leave(old.connection)
    bench.engine.flush()
    (end,) = device.take()
    assert (end[1].reason, end[1].properties.get(0x1C, "")) == (reason, reference)
    assert device.wire.closed
    assert old.wire.closed


@pytest.mark.parametrize(("version", "strict", "accepted"), [(3, True, False), (3, False, True), (4, True, True)])
def test_long_client_identifiers_of_mqisdp(version, strict, accepted):
    bench = Harness(strict_client_ids=strict)
    device = bench.device(version, "d" * 24).connect()
    assert device.take()[0][1].reason == (0 if accepted else 2)
    assert device.wire.closed is not accepted
    assert bench.engine.counters.mqtt_connects["bench", "3.1", "bad_client_id"] == (not accepted)


def test_response_information_begins_as_the_settings_say():
    bench = Harness(response_prefix="answers/")
    device = bench.device(5, "d")
    connect = client.connect(5, "d")
    connect.properties[0x19] = 1
    device.send(client.encode_connect(connect))
    assert device.take()[0][1].properties[0x1A] == "answers/d"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_came_before_a_disconnect_is_answered_mqtt3_3_1_4_4_mqtt5_3_1_4_5(bench, version):
    """CONNECT, PUBLISH and DISCONNECT in one piece: all is committed and acknowledged, then the socket closes."""
    bench.queues.automatic = False
    device = bench.device(version, "d")
    device.send(
        client.encode_connect(client.connect(version, "d"))
        + writer.encode_publish(version, b"a", b"x", 1, packet_id=7, retain=True)
        + client.encode_subscribe(version, p.Subscribe(8, [p.Subscription("b", 1)]))
        + writer.encode_disconnect(version, p.Disconnect())
        + client.encode_pingreq()
    )
    assert (device.take(), device.wire.closed) == ([], False)
    while bench.queues.commit():
        pass
    assert kinds(device) == [2, 4, 9]
    assert device.wire.closed


def test_a_client_that_closes_behind_its_disconnect_is_told_nothing(bench):
    bench.queues.automatic = False
    device = bench.device(4, "d")
    connect = client.connect(4, "d", clean_start=False)
    device.send(client.encode_connect(connect) + writer.encode_disconnect(4, p.Disconnect()))
    device.drop()
    while bench.queues.commit():
        pass
    assert device.take() == []


def test_a_defect_in_the_hand_over_of_a_unit_is_fatal_whoever_calls(bench, monkeypatch):
    device, fatal = bench.device(5, "d").connect(), []
    bench.engine.context.on_fatal = fatal.append
    bench.engine.context.set_aside.on_defect = lambda _defect: None

    def submit(_unit, _done):
        raise KeyError("a defect")

    monkeypatch.setattr(bench.engine.context, "submit", submit)
    bench.engine.context.scheduler.later(
        0.1, lambda: device.publish("a", b"x", 1, 1, retain=True)
    )  # its defects are set aside
    bench.advance(1)
    assert [type(error) for error in fatal] == [KeyError]
    assert 4 not in kinds(device)


class Ended(BaseException):
    """The process has ended."""


HELD = "on_failure: {retry: {from: 1s, to: 1s}, then: hold}"
EACH = f"version: 1\nto_mq:\n  - {{name: each, topic: 'each/{{id}}', queue: 'Q.{{id}}', {HELD}}}\n"
MOVES = {
    "lining up": (Parking, "join"),
    "parking": (Parking, "park"),
    "cutting": (Parking, "halve"),
    "waiting again": (Parking, "refused"),
    "making a unit": (Batch, "unit"),
}


@pytest.mark.parametrize("what", MOVES)
def test_a_defect_between_batches_ends_the_process_and_loses_nothing(monkeypatch, what):
    """Nobody can tell then which batch has which message. What is sent again is stored and put."""
    bench = Harness(EACH)
    bench.engine.context.set_aside.on_defect = lambda _defect: None
    device = bench.device(4, "d").connect(clean=False)
    bench.queues.refusing["Q.A"] = 2053
    if what != "parking":
        device.publish("each/A", b"0", 1, 9)
    device.take()
    owner, name = MOVES[what]
    does = getattr(owner, name)

    def fails(*arguments):
        does(*arguments)
        raise KeyError("a defect")

    def fatal(error):
        raise Ended from error

    bench.engine.context.on_fatal = fatal
    sent = writer.encode_publish(4, b"each/A", b"2", 1, packet_id=2)
    sent += writer.encode_publish(4, b"each/B", b"3", 1, packet_id=3)
    sent += writer.encode_publish(4, b"each/B", b"1", 2, packet_id=1)

    def goes_on():
        device.send(sent)
        bench.advance(3)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fails)
        with pytest.raises(Ended):
            goes_on()
    assert 4 not in kinds(device)
    bench.queues.refusing.clear()
    bench.kill()
    device = bench.device(4, "d").connect(clean=False)
    device.send(sent)
    device.ack(p.PUBREL, 1)
    assert kinds(device) == [p.CONNACK, p.PUBACK, p.PUBACK, p.PUBREC, p.PUBCOMP]
    found = [row[3][-1:] for queue in ("Q.A", "Q.B") for row in bench.queues.rows[queue].values()]
    assert (set(found), found.count(b"1")) == ({b"1", b"2", b"3"}, 1)
    assert bench.queues.depth("MQGATE.STAGED") == 0


def test_a_defect_before_the_next_that_waits_has_its_turn_ends_the_process(monkeypatch):
    """What waits behind it would wait until a restart."""
    bench = Harness(EACH)
    bench.engine.context.set_aside.on_defect = lambda _defect: None
    device, fatal = bench.device(4, "d").connect(clean=False), []
    bench.engine.context.on_fatal = fatal.append
    bench.queues.refusing["Q.A"] = 2053
    device.publish("each/A", b"0", 1, 9)
    bench.queues.refusing.clear()

    def fails(*_arguments):
        raise KeyError("a defect")

    monkeypatch.setattr(Parking, "_count", fails)
    bench.advance(3)
    assert [type(error) for error in fatal] == [KeyError]


def test_a_defect_in_taking_apart_what_was_refused_ends_the_process(bench, monkeypatch):
    fatal, batch = [], Batch()
    batch.mixed.append(object())
    bench.engine.context.on_fatal, bench.engine.context.running = fatal.append, batch
    with pytest.raises(AttributeError):
        bench.engine.done(Unit([]), Outcome([Failure(0, 2053, "full")]))
    assert [type(error) for error in fatal] == [AttributeError]


@pytest.mark.parametrize(("owner", "name"), [("failures", "place"), ("staged_runs", "write_all_out")])
def test_a_defect_in_changing_what_was_refused_ends_the_process(bench, monkeypatch, owner, name):
    fatal, batch, puts = [], Batch(), Puts("Q.A", "", b"", 0)
    bench.engine.context.on_fatal = fatal.append
    if name == "place":
        puts.placed = True
    else:
        batch.moves[object()] = []

    def fails(*_arguments):
        raise KeyError("a defect")

    monkeypatch.setattr(getattr(bench.engine, owner), name, fails)
    with pytest.raises(KeyError):
        bench.engine.failures.handle(batch, Unit([puts]), Outcome([Failure(0, 2053, "full")]))
    assert [type(error) for error in fatal] == [KeyError]
