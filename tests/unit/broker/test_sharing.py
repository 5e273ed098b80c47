"""gateway.broker.sessions.endings, deliver.fan_out: shared subscriptions are fair; a member that goes loses nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from broker_harness import Harness
from lanes import FORMS, lane

from gateway.broker.deliver.share_turns import ShareTurns
from gateway.broker.limits import StoredCount
from gateway.broker.publish import router
from gateway.broker.sessions.endings import GIVING_SECONDS
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.mqtt.reasons import QUOTA_EXCEEDED
from gateway.session.session import Session


@pytest.fixture
def bench():
    return Harness()


def member(bench, name, *, clean=True, filter_="$share/g/a/#", qos=1, version=5):
    device = bench.device(version, name).connect(clean=clean)
    device.subscribe(filter_, qos)
    device.take()
    return device


def payloads(device):
    return [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]


def publish(bench, count, qos=1):
    sender = bench.device(4, "sender").connect()
    for number in range(1, count + 1):
        sender.publish("a/1", str(number).encode(), qos, number if qos else 0)
    return {str(number).encode() for number in range(1, count + 1)}


def test_each_message_goes_to_one_member_in_turn(bench):
    members = [member(bench, f"m{n}") for n in range(4)]
    everything = publish(bench, 20)
    shares = [payloads(one) for one in members]
    assert [len(share) for share in shares] == [5, 5, 5, 5]
    assert {one for share in shares for one in share} == everything


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_arrives_together_is_shared_out_together(form, qos):
    """In turn, in order, beside an ordinary subscriber and a second group, some of whose members are durable; nothing
    of it is looked at alone."""
    bench = Harness()
    members = [member(bench, f"m{n}", clean=n != 1, qos=2) for n in range(3)]
    alone = member(bench, "alone", filter_="$share/h/+/1", qos=2)
    everybody = member(bench, "everybody", filter_="a/#", qos=2)
    sender = bench.device(4, "sender").connect()

    def alone_in_the_plain_lane(_connection, packet):
        raise AssertionError(f"{packet} was looked at alone")

    def send(first, count):
        numbers = range(first, first + count)
        sender.send(b"".join(
            writer.encode_publish(4, b"a/1", b"%d" % n, qos, packet_id=n if qos else 0) for n in numbers
        ))  # fmt: skip
        if qos == 2:
            sender.send(writer.encode_acks(p.PUBREL, list(numbers)))

    with lane(form):
        bench.engine.plain_lane.handlers[p.PUBLISH] = alone_in_the_plain_lane
        bench.engine.plain_lane.handlers[p.PUBREL] = alone_in_the_plain_lane
        send(1, 7)
        assert [payloads(one) for one in members] == [[b"1", b"4", b"7"], [b"2", b"5"], [b"3", b"6"]]
        send(8, 2)
        assert [payloads(one) for one in members] == [[], [b"8"], [b"9"]]
    for one in (alone, everybody):
        assert payloads(one) == [b"%d" % n for n in range(1, 10)]
    assert bench.engine.counters.mqtt_publish_sent["_none", qos] == 3 * 9


def test_groups_and_ordinary_subscribers_do_not_share_with_each_other(bench):
    one, two = member(bench, "m1"), member(bench, "m2", filter_="$share/h/a/#")
    plain = member(bench, "m3", filter_="a/#")
    publish(bench, 6)
    assert [len(payloads(device)) for device in (one, two, plain)] == [6, 6, 6]


def test_a_member_with_a_full_window_is_passed_over():
    bench = Harness(max_inflight=2)
    slow, quick = member(bench, "slow"), member(bench, "quick")
    sender = bench.device(4, "sender").connect()
    counts: Counter[str] = Counter()
    for number in range(1, 21):
        sender.publish("a/1", str(number).encode(), 1, number)
        for packet in quick.take():
            counts["quick"] += 1
            quick.ack(p.PUBACK, packet[2])
    counts["slow"] = len(payloads(slow))
    assert counts == {"quick": 18, "slow": 2}


@pytest.mark.parametrize("clean", [True, False])
def test_what_a_member_did_not_acknowledge_goes_to_another(bench, clean):
    leaving = member(bench, "leaving", clean=clean)
    everything = publish(bench, 5)
    assert len(payloads(leaving)) == 5
    staying = member(bench, "staying")
    leaving.drop()
    if not clean:
        assert payloads(staying) == []  # its session waits for it
        bench.device(5, "leaving").connect(clean=True)
    assert set(payloads(staying)) == everything


def test_after_a_kill_too(bench):
    member(bench, "leaving", clean=False)
    everything = publish(bench, 5)
    bench.kill()
    staying = member(bench, "staying")
    bench.device(5, "leaving").connect(clean=True)
    assert set(payloads(staying)) == everything


def test_qos_2_that_may_have_arrived_goes_to_nobody_else_mqtt_4_8_2_5(bench):
    leaving = member(bench, "leaving", qos=2)
    sender = bench.device(4, "sender").connect()
    sender.publish("a/1", b"once", 2, 1)
    sender.ack(p.PUBREL, 1)
    assert payloads(leaving) == [b"once"]
    staying = member(bench, "staying", qos=2)
    leaving.drop()
    assert payloads(staying) == []


def test_the_last_member_leaves_nothing_behind(bench):
    leaving = member(bench, "leaving", clean=False)
    publish(bench, 3)
    leaving.drop()
    bench.device(5, "leaving").connect(clean=True).disconnect()
    assert not bench.queues.rows["MQGATE.OUT"]


@pytest.mark.parametrize("version", [3, 4])
def test_older_clients_share_too(bench, version):
    old, new = member(bench, "old", version=version), member(bench, "new")
    publish(bench, 4)
    assert (len(payloads(old)), len(payloads(new))) == (2, 2)


def test_what_a_member_leaves_in_memory_is_given_away_a_little_at_a_time():
    bench = Harness(max_inflight=1)
    gone, stays = member(bench, "gone"), member(bench, "stays")
    everything = publish(bench, 40)
    assert len(payloads(gone)) == 1
    looks = iter(range(1_000_000))
    bench.clock.monotonic = lambda: bench.clock.time + next(looks) * GIVING_SECONDS / 4
    planned: list[Any] = []
    bench.clock.later = lambda _seconds, call: planned.append(call)
    gone.drop()
    turns = 0
    while planned:
        planned.pop()()
        turns += 1
    assert turns > 2
    got = set()
    while found := [packet for packet in stays.take() if packet[0] >> 4 == p.PUBLISH]:
        for packet in found:
            got.add(packet[4])
            stays.ack(p.PUBACK, packet[2])
    assert got == everything


def test_of_shared_subscriptions_whose_filters_overlap_each_keeps_its_own():
    bench = Harness()
    filters = ["$share/g/a/+", "$share/h/a/#"]
    gone, stays = (bench.device(5, name).connect(clean=False) for name in ("gone", "stays"))
    for device in (gone, stays):
        for filter_ in filters:
            device.subscribe(filter_, 1)
    gone.drop()
    publish(bench, 4)
    stored = bench.engine.sessions.get("gone").stored
    before = len(payloads(stays))
    assert stored + before == 8
    bench.engine.endings.expire(bench.engine.sessions.get("gone"))
    bench.engine.flush()
    assert len(payloads(stays)) == stored


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_too_large_for_one_member_is_for_another(form, qos):
    """Also in one run with what it takes; what is too large for all of them is for nobody."""
    bench = Harness()
    narrow = bench.device(5, "narrow").connect(properties={0x27: 50})
    narrow.subscribe("$share/g/a/#", 2)
    wide = bench.device(5, "wide").connect(properties={0x27: 300})
    wide.subscribe("$share/g/a/#", 2)
    sender = bench.device(4, "sender").connect()
    for device in narrow, wide, sender:
        device.take()
    sent = [b"1", b"2", b"3" * 100, b"4", b"5" * 100, b"6" * 400, b"7"]
    with lane(form):
        sender.send(
            b"".join(
                writer.encode_publish(4, b"a/1", payload, qos, packet_id=number if qos else 0)
                for number, payload in enumerate(sent, 1)
            )
        )
        sender.send(writer.encode_acks(p.PUBREL, range(1, len(sent) + 1)) if qos == 2 else b"")
    small, large = payloads(narrow), payloads(wide)
    assert sorted(small + large) == sorted(one for one in sent if len(one) < 300)
    assert all(len(one) == 1 for one in small)
    assert small


@pytest.fixture
def asked(monkeypatch):
    """Which sessions are asked whether they can take a message."""
    found, can_take = [], Session.can_take.fget

    def noted(session):
        found.append(session.client_id)
        return can_take(session)

    monkeypatch.setattr(Session, "can_take", property(noted))
    return found


def test_members_that_are_away_are_not_looked_at_for_each_message(bench, asked):
    """One of five hundred is there; then none."""
    members = [member(bench, f"m{n}", clean=False, version=4) for n in range(500)]
    for one in members[1:]:
        one.drop()
    everything = publish(bench, 20)
    assert set(payloads(members[0])) == everything
    assert 0 < len(asked) < 600
    members[0].drop()
    asked.clear()
    publish(bench, 20)
    assert len(asked) < 600
    back = bench.device(4, "m7").connect(clean=False)
    back.take()
    publish(bench, 1)
    assert payloads(back) == [b"1"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("qos", [1, 2])
def test_members_that_have_all_they_may_are_not_looked_at_for_each_message(form, qos, asked):
    """Until they acknowledge something; their turn comes then."""
    bench = Harness(max_inflight=1)
    members = [member(bench, f"m{n}", qos=qos) for n in range(300)]
    sender = bench.device(4, "sender").connect()

    def send(first, count):
        asked.clear()
        for number in range(first, first + count):
            sender.publish("a/1", b"%d" % number, qos, number)
            if qos == 2:
                sender.ack(p.PUBREL, number)

    with lane(form):
        send(1, 300)
        assert len(asked) < 1500
        send(301, 50)  # wait for those that are next
        assert len(asked) < 600
        got = {}
        for one in members:
            (packet,) = (packet for packet in one.take() if packet[0] >> 4 == p.PUBLISH)
            got[one] = packet[2]
        for one in members[60:70]:
            if qos == 2:
                one.ack(p.PUBREC, got[one])
                one.take()
            one.ack(p.PUBACK if qos == 1 else p.PUBCOMP, got[one])
        send(351, 10)
        assert len(asked) < 100
        assert [payloads(one) for one in members[60:70]] == [[b"%d" % n] for n in range(351, 361)]


def test_who_leaves_a_group_while_passed_over_comes_back_as_a_new_member():
    bench = Harness(max_inflight=1)
    one, two = member(bench, "one"), member(bench, "two")
    publish(bench, 4)
    session = bench.engine.sessions.get("one")
    for number in range(1, 30):
        one.unsubscribe("$share/g/a/#")
        one.subscribe("$share/g/a/#", 1)
        bench.device(4, "sender").connect().publish("a/1", b"x", 1, number)
    assert len(session.passed_over) < 5
    group = bench.engine.router.subscriptions.group("$share/g/a/#")
    assert sum(map(len, group.members.rings)) == len(group.members) == 2
    one.unsubscribe("$share/g/a/#")
    one.ack(p.PUBACK, next(packet[2] for packet in one.take() if packet[0] >> 4 == p.PUBLISH))
    two.disconnect()
    assert bench.engine.router.subscriptions.group("$share/g/a/#") is None


def test_of_thousands_that_share_a_subscription_a_message_asks_one(monkeypatch):
    """It is no publication that is copied in slices, however many they are."""
    monkeypatch.setattr(router, "WIDE", 10)
    bench = Harness()
    members = [member(bench, f"m{n}", filter_=f"$share/g{n % 2}/a/#") for n in range(40)]
    everything = publish(bench, 20)
    assert not bench.engine.router.is_wide("a/1")
    assert [len(payloads(one)) for one in members] == [1] * 40
    assert len(everything) == 20


def test_the_first_with_room_is_found_though_many_before_it_have_none():
    bench = Harness(max_inflight=1, max_queued=2)
    full = [member(bench, f"m{n}", clean=False) for n in range(20)]
    publish(bench, 40)
    last = member(bench, "last", clean=False)
    last.drop()
    sender = bench.device(5, "sender5").connect()
    for number in (1, 2, 3):
        sender.publish("a/1", b"more", 1, number)
    assert [packet[3] if len(packet) > 3 else 0 for packet in sender.take() if packet[0] >> 4 == p.PUBACK]
    assert bench.engine.sessions.get("last").stored == 2
    assert sum(bench.engine.sessions.get(f"m{n}").stored for n in range(20)) == 40
    assert full


@pytest.fixture
def asked_for_room(monkeypatch):
    """Which sessions are asked whether they have room."""
    found, full = [], StoredCount.full

    def noted(self, limits, session, size, count=1):
        found.append(session.client_id)
        return full(self, limits, session, size, count)

    monkeypatch.setattr(StoredCount, "full", noted)
    return found


def reasons(device):
    return [packet[2] if len(packet) > 2 else 0 for packet in device.take() if packet[0] >> 4 == p.PUBACK]


@pytest.mark.parametrize("limits", [{"max_queued": 1}, {"max_queued_bytes": 10}])
def test_members_without_room_are_not_asked_for_each_message(limits, asked_for_room):
    """Until something is taken off the queue of one: then that one gets the next."""
    bench = Harness(**limits)
    members = [member(bench, f"m{n}", clean=False) for n in range(200)]
    for one in members[1:]:
        one.drop()
    sender = bench.device(5, "sender").connect()
    for number in range(1, 201):
        sender.publish("a/1", b"12345678", 1, number)
    assert reasons(sender) == [0] * 200
    sender.publish("a/1", b"12345678", 1, 201)
    asked_for_room.clear()
    for number in range(202, 222):
        sender.publish("a/1", b"12345678", 1, number)
    assert reasons(sender) == [QUOTA_EXCEEDED] * 21
    assert len(asked_for_room) < 20
    members[0].ack(p.PUBACK, next(packet[2] for packet in members[0].take() if packet[0] >> 4 == p.PUBLISH))
    sender.publish("a/1", b"12345678", 1, 222)
    assert reasons(sender) == [0]
    assert payloads(members[0]) == [b"12345678"]


@pytest.mark.parametrize("stay", [0, 1, 300])
def test_while_all_together_have_no_room_few_are_asked_for_each_message(stay, asked_for_room):
    """Whoever needs none gets it, wherever he stands."""
    bench = Harness(max_total_queued=5)
    members = [member(bench, f"m{n}", clean=False) for n in range(600)]
    for one in members[stay:]:
        one.drop()
    sender = bench.device(5, "sender").connect()
    for number in range(1, 6):
        sender.publish("a/1", b"x", 1, number)
    assert reasons(sender) == [0] * 5
    asked_for_room.clear()
    for number in range(6, 16):
        sender.publish("a/1", b"x", 1, number)
    assert reasons(sender) == [QUOTA_EXCEEDED] * 10
    assert len(asked_for_room) < 10 * 310
    keeps_nothing = member(bench, "nothing")
    sender.publish("a/1", b"y", 1, 16)
    assert reasons(sender) == [0]
    assert payloads(keeps_nothing) == [b"y"]


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_too_large_for_nearly_all_asks_few_and_finds_the_others(qos, monkeypatch):
    bench, looked = Harness(), []
    for number in range(600):
        one = bench.device(5, f"m{number}").connect(properties={0x27: 50})
        one.subscribe("$share/g/a/#", 1)
    fits = ShareTurns._fits

    def noted(self, receiver, publication):
        looked.append(receiver)
        return fits(self, receiver, publication)

    monkeypatch.setattr(ShareTurns, "_fits", noted)
    sender = bench.device(5, "sender").connect()
    for number in range(1, 6):
        sender.publish("a/1", bytes(100), qos, number * qos)
    assert bench.engine.counters.messages_dropped["_none", "too_large"] == 5
    assert len(looked) < 5 * 310
    large = bench.device(5, "large").connect()
    large.subscribe("$share/g/a/#", 1)
    large.take()
    sender.publish("a/1", bytes(100), qos, 6 * qos)
    assert payloads(large) == [bytes(100)]


def test_members_that_had_no_room_for_much_are_asked_whether_they_have_it_for_less():
    bench = Harness(max_queued_bytes=100)
    for number in range(3):
        member(bench, f"m{number}", clean=False).drop()
    sender = bench.device(5, "sender").connect()
    for number, size in enumerate([90, 90, 90, 40, 40, 10, 10, 10, 10], 1):
        sender.publish("a/1", bytes(size), 1, number)
    assert reasons(sender) == [0] * 3 + [QUOTA_EXCEEDED] * 2 + [0] * 3 + [QUOTA_EXCEEDED]


def test_a_member_has_room_again_when_what_is_stored_for_it_expires():
    bench = Harness(max_queued=1)
    member(bench, "away", clean=False).drop()
    sender = bench.device(5, "sender").connect()
    for number in (1, 2):
        sender.publish("a/1", b"x", 1, number, properties=b"\x02\x00\x00\x00\x05")
    assert reasons(sender) == [0, QUOTA_EXCEEDED]
    bench.advance(60)
    sender.publish("a/1", b"x", 1, 3)
    assert reasons(sender) == [0]


def test_a_member_that_could_take_a_message_and_has_no_room_for_it_leaves_it_to_another():
    """Its window has room, its queue has not for so many bytes."""
    bench = Harness(max_queued_bytes=100)
    one, two = member(bench, "one", clean=False), member(bench, "two", clean=False)
    sender = bench.device(5, "sender").connect()
    for number, size in enumerate([90, 10, 40], 1):
        sender.publish("a/1", bytes(size), 1, number)
    assert reasons(sender) == [0, 0, 0]
    assert [len(one) for one in payloads(one)] == [90]
    assert [len(one) for one in payloads(two)] == [10, 40]


def test_members_that_may_not_have_the_topic_are_not_asked_for_each_message(bench, monkeypatch):
    members = [member(bench, f"m{n}") for n in range(600)]
    asked, allowed = [], set()

    def may_receive(_listener, client_id, _user, _topic):
        asked.append(client_id)
        return client_id in allowed

    monkeypatch.setattr(bench.engine.router.access, "may_receive", may_receive)
    bench.engine.in_flight.check_rights()
    sender = bench.device(5, "sender").connect()
    sender.publish("a/1", b"x", 1, 1)
    asked.clear()
    for number in range(2, 12):
        sender.publish("a/1", b"x", 1, number)
    assert len(asked) < 20
    allowed.add("m7")
    bench.engine.in_flight.check_rights_of("m7")
    sender.publish("a/1", b"x", 1, 12)
    assert payloads(members[7]) == [b"x"]


@pytest.mark.parametrize(("published", "granted"), [(0, 1), (1, 0)])
def test_what_is_not_stored_goes_to_who_is_connected(published, granted):
    """Though that one has all that it may, it gets QoS 0; and though another one is away before it."""
    bench = Harness(max_inflight=1)
    for name in ("a1", "a2"):
        member(bench, name, clean=False, qos=granted).drop()
    busy = member(bench, "busy", qos=1)
    publish(bench, 1)
    assert payloads(busy) == [b"1"]
    sender = bench.device(4, "sender").connect()
    for number in (2, 3, 4):
        sender.publish("a/1", b"%d" % number, published, number if published else 0)
    if published:
        busy.ack(p.PUBACK, 1)
        while found := [packet for packet in busy.take() if packet[0] >> 4 == p.PUBLISH]:
            assert found[0][4] in {b"2", b"3", b"4"}
            busy.ack(p.PUBACK, found[0][2])
    else:
        assert payloads(busy) == [b"2", b"3", b"4"]
    assert bench.engine.sessions.get("busy").delivered == (4 if published else 0)


def test_members_that_are_away_at_qos_0_have_nothing_refused(bench):
    member(bench, "away", clean=False, qos=0).drop()
    sender = bench.device(5, "sender").connect()
    for number in (1, 2):
        sender.publish("a/1", b"x", 1, number)
    assert reasons(sender) == [0, 0]
