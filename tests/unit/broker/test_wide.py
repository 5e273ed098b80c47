"""gateway.broker.deliver.wide: a publication that many get is copied in slices, in order, and acknowledged last."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from broker_harness import Device
from slow_harness import Slow

from gateway.broker.deliver import wide
from gateway.broker.publish import router
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.state_queues import OUT
from gateway.routing.filters import Subscriptions

MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: 'news/#', queue: Q}\n"
MANY = 40


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "WIDE", 10)
    monkeypatch.setattr(wide, "MOST_AT_ONCE", 7)


@pytest.fixture
def bench() -> Slow:
    return Slow(MAPPING)


def subscribed(bench: Slow, qos: int = 1, *, clean: bool = True, away: bool = False) -> list[Device]:
    found = []
    for one in range(MANY):
        device = bench.device(5, f"reader-{one}").connect(clean=clean)
        device.subscribe("news/#", qos)
        device.take()
        if away:
            device.drop()
        found.append(device)
    return found


def told(device: Device) -> list[bytes]:
    return [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]


def answers(device: Device) -> list[int]:
    return [packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBACK]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("granted", [0, 1])
def test_everybody_gets_it_once_and_in_order_and_others_go_on(bench: Slow, qos: int, granted: int) -> None:
    readers = subscribed(bench, granted)
    sender, other = bench.device(5, "sender").connect(), bench.device(5, "other").connect()
    sender.take()
    other.take()
    bench.engine.context.until = bench.engine.context.until_strangers = float("inf")
    for number in (1, 2):
        sender.publish("news/a", b"%d" % number, qos, number if qos else 0)
    sender.publish("narrow", b"", 1, 3)
    turns, met = 0, False
    while bench.later():
        turns += 1
        if turns == 3:
            assert answers(sender) == [], "acknowledged before all have their copies"
            other.publish("else/where", b"x", 1, 9)
            met = answers(other) == [9]
    assert turns > 2 * MANY // 7
    assert met, "others wait"
    assert [told(one) for one in readers] == [[b"1", b"2"]] * MANY
    assert answers(sender) == ([1, 2, 3] if qos else [3])
    assert [row[3][-1:] for row in bench.queues.rows["Q"].values()] == [b"1", b"2"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_filters_that_are_like_the_topic_up_to_its_end_are_looked_at_in_slices(
    bench: Slow, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    """Whoever subscribes to thousands of them held up everybody with each publication on a new topic."""
    monkeypatch.setattr(router, "MOST_PLACES", 50)
    monkeypatch.setattr(wide, "LOOKED_AT", 1)
    hostile, reader = bench.device(5, "hostile").connect(), bench.device(5, "reader").connect()
    for levels in product("+a", repeat=6):
        hostile.subscribe("/".join((*levels, "zz")), 1)
    reader.subscribe("+/a/+/#", 1)
    sender = bench.device(5, "sender").connect()
    for device in (hostile, reader, sender):
        device.take()
    sender.publish("a/a/a/a/a/a/x", b"1", qos, 1 if qos else 0)
    if qos == 2:
        sender.take()
        sender.send(b"\x62\x02\x00\x01")
    assert told(reader) == [], "in slices"
    turns = 0
    while bench.later():
        turns += 1
    assert turns > 1
    assert told(reader) == [b"1"]
    assert told(hostile) == []


def test_it_is_acknowledged_when_its_last_unit_of_work_is_committed(bench: Slow) -> None:
    subscribed(bench, clean=False, away=True)
    sender = bench.device(5, "sender").connect()
    sender.take()
    sender.publish("news/a", b"1", 1, 1)
    bench.queues.automatic = False
    while True:
        while bench.later():
            pass
        if answers(sender):
            break
        assert "Q" not in bench.queues.rows, "on its queue before its subscribers have it"
        assert bench.queues.commit(), "nothing is left to be committed"
    assert len(bench.queues.rows[OUT]) == MANY
    assert len(bench.queues.rows["Q"]) == 1


def test_who_has_left_meanwhile_gets_nothing_and_who_has_come_needs_not(bench: Slow) -> None:
    readers = subscribed(bench)
    sender = bench.device(5, "sender").connect()
    sender.publish("news/a", b"1", 1, 1)
    bench.later()
    readers[-1].unsubscribe("news/#")
    readers[-2].drop()
    readers[-1].take()
    bench.device(5, "late").connect().subscribe("news/#", 1)
    while bench.later():
        pass
    assert [told(one) for one in readers[:-2]] == [[b"1"]] * (MANY - 2)
    assert told(readers[-1]) == []
    assert 1 in answers(sender)


def test_overlapping_and_shared_subscriptions_are_as_ever(bench: Slow) -> None:
    readers = subscribed(bench, 0)
    for one in readers:
        one.subscribe("news/+", 1)
        one.subscribe("$share/g/news/a", 1)
        one.take()
    sender = bench.device(5, "sender").connect()
    sender.publish("news/a", b"1", 1, 1)
    while bench.later():
        pass
    got = [told(one) for one in readers]
    assert sorted(map(len, got)) == [1] * (MANY - 1) + [2], "each once, and one of the group"
    assert 1 in answers(sender)


def test_a_client_that_is_gone_and_another_one_after_it(bench: Slow) -> None:
    readers = subscribed(bench)
    first, second = bench.device(5, "first").connect(), bench.device(5, "second").connect()
    second.take()
    first.publish("news/a", b"1", 1, 1)
    second.publish("news/b", b"2", 1, 1)
    bench.later()
    first.drop()
    while bench.later():
        pass
    assert [told(one) for one in readers] == [[b"1", b"2"]] * MANY
    assert answers(second) == [1]
    assert not bench.engine.put_off._waiting


def test_a_defect_costs_its_publisher_and_then_it_is_set_aside(bench: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    readers, bench.defects = subscribed(bench), []
    bench.break_copies(monkeypatch, b"poison", "reader-20")
    for closed in (True, False):
        sender = bench.device(5, "sender").connect()
        sender.take()
        sender.publish("news/a", b"poison", 1, 1)
        while bench.later():
            pass
        assert sender.wire.closed is closed
    assert answers(sender) == [1]
    assert bench.queues.rows["MQGATE.SET.ASIDE"]
    other = bench.device(5, "other").connect()
    other.publish("news/a", b"fine", 1, 1)
    while bench.later():
        pass
    assert 1 in answers(other)
    assert all(told(one)[-1] == b"fine" for one in readers)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("turn", [1, 3, 6])
def test_a_defect_behind_a_slice_takes_nothing_of_it_back(
    bench: Slow, monkeypatch: pytest.MonkeyPatch, qos: int, turn: int
) -> None:
    """Nothing wide went on after it, and who had published waited for ever."""
    readers, bench.defects = subscribed(bench), []
    sender = bench.device(5, "sender").connect()
    sender.take()
    sender.publish("news/a", b"1", qos, 1 if qos else 0)
    if qos == 2:
        sender.ack(p.PUBREL, 1)
    turns = 0
    while True:
        turns += 1
        with monkeypatch.context() as broken:
            if turns == turn:
                broken.setattr(bench.engine.context, "flush", lambda: 1 / 0)
            if not bench.later():
                break
        bench.engine.flush()
    assert turns > turn
    assert [told(one) for one in readers] == [[b"1"]] * MANY
    assert [packet[0] >> 4 for packet in sender.take()] == [[], [p.PUBACK], [p.PUBREC, p.PUBCOMP]][qos]
    assert not bench.engine.put_off._waiting


@pytest.mark.parametrize("qos", [1, 2])
def test_who_subscribes_anew_meanwhile_gets_it_as_it_wants_it_by_then(bench: Slow, qos: int) -> None:
    """SUBACK had said another QoS, and one of its subscriptions was gone."""
    readers = subscribed(bench, 2)
    for one in readers:
        one.subscribe("news/a", 2)
        one.take()
    sender = bench.device(5, "sender").connect()
    sender.publish("news/a", b"1", qos, 1)
    if qos == 2:
        sender.ack(p.PUBREL, 1)
    bench.later()
    late = [one for one in readers if not told(one)][-5:]
    assert late
    for one in late:
        one.unsubscribe("news/a")
        one.subscribe("news/#", 0)
        one.take()
    while bench.later():
        pass
    for one in late:
        assert [packet[0] for packet in one.take()] == [p.PUBLISH << 4]


@pytest.mark.parametrize("how", ["0", "1", "2", "queue"])
def test_many_places_for_few_subscriptions_are_looked_at_once(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a subscription comes or goes."""
    monkeypatch.setattr(router, "MOST_PLACES", 20)
    bench = Slow("version: 1\nto_mqtt: [{name: out, queue: OUT.Q, topic: l/l/l/l/l, qos: 1}]\n")
    walks, walk = [0], Subscriptions.walk

    def counted(of: Any, topic: str) -> Any:
        walks[0] += topic == "l/l/l/l/l"
        return walk(of, topic)

    monkeypatch.setattr(Subscriptions, "walk", counted)
    alike = bench.device(5, "alike").connect()
    for levels in product("l+", repeat=4):
        alike.subscribe("/".join((*levels, "z")), 0)
    reader, late = (bench.device(5, name).connect() for name in ("reader", "late"))
    reader.subscribe("l/l/l/#", 1)
    for one in (alike, reader, late):
        one.take()
    sender = bench.device(5, "sender").connect()
    numbers = iter(range(1, 100))

    def publish(count: int) -> None:
        for number in (next(numbers) for _ in range(count)):
            bench.engine.context.until = bench.engine.context.until_strangers = float("inf")
            if how == "queue":
                bench.queues.arrive("OUT.Q", (mqmd.build(), b"%d" % number))
            else:
                sender.publish("l/l/l/l/l", b"%d" % number, int(how), number if how != "0" else 0)
            if how == "2":
                sender.ack(p.PUBREL, number)
            bench.advance(0.25)
            while bench.later():
                pass

    publish(5)
    assert walks == [1]
    assert [int(one) for one in told(reader)] == [1, 2, 3, 4, 5]
    late.subscribe("l/#", 1)
    publish(5)
    assert walks == [2]
    assert told(reader) == told(late) == [b"6", b"7", b"8", b"9", b"10"]
    reader.unsubscribe("l/l/l/#")
    publish(2)
    assert walks == [3]
    assert (told(reader), told(late)) == ([], [b"11", b"12"])


def sent_together(
    bench: Slow, sender: Device, many: list[tuple[bytes, bytes]], qos: int = 1, *, retain: bool = False
) -> None:  # fmt: skip
    """Publications that are read in one go: topics, payloads."""
    bench.engine.context.until = bench.engine.context.until_strangers = float("inf")
    sender.send(b"".join(
        writer.encode_publish(sender.version, topic, payload, qos, retain=retain, packet_id=number if qos else 0)
        for number, (topic, payload) in enumerate(many, 1)
    ))  # fmt: skip


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("qos", "granted", "clean"), [(0, 1, True), (1, 0, True), (1, 1, True), (1, 1, False)])
def test_what_is_sent_behind_it_and_is_like_it_goes_with_it(
    bench: Slow, version: int, qos: int, granted: int, clean: bool
) -> None:
    """Up to what is not like it."""
    readers = subscribed(bench, granted, clean=clean)
    sender, other = bench.device(version, "sender").connect(), bench.device(5, "other").connect()
    other.subscribe("narrow", 1)
    sender.take()
    payloads = [b"%02d" % number for number in range(30)]
    sent_together(bench, sender, [*((b"news/a", one) for one in payloads), (b"narrow", b"x")], qos)
    turns = 0
    while bench.later():
        turns += 1
        if turns < MANY // 2:
            assert answers(sender) == []
            assert b"x" not in told(other)
    copies = 30 * MANY
    assert turns < copies // 7, "each by itself"
    assert [told(one) for one in readers] == [payloads] * MANY
    assert told(other) == [b"x"]
    assert answers(sender) == (list(range(1, 32)) if qos else [])
    assert bench.engine.counters.mqtt_publish_sent["_none", qos] == copies + 1


@pytest.mark.parametrize(("qos", "granted", "clean"), [(0, 1, True), (1, 0, True), (1, 1, True), (1, 1, False)])
@pytest.mark.parametrize("topics", [1, 3])
def test_what_several_have_published_goes_together(
    bench: Slow, monkeypatch: pytest.MonkeyPatch, qos: int, granted: int, clean: bool, topics: int
) -> None:
    """Each connection gets one write for all of it; who has published some of it gets that by itself."""
    monkeypatch.setattr(wide, "MOST_AT_ONCE", 1000)
    readers = subscribed(bench, granted, clean=clean)
    senders = [bench.device(5, f"sender-{number}").connect() for number in range(3)]
    senders[0].subscribe("news/#", granted, no_local=True)
    for sender in senders:
        sender.take()
    for number, sender in enumerate(senders):
        many = [(b"news/%d" % (number % topics), b"%d%d" % (number, at)) for at in range(3)]
        sent_together(bench, sender, many, qos)
    writes, write = [], readers[0].wire.write
    monkeypatch.setattr(readers[0].wire, "write", lambda data: (writes.append(data), write(data)))
    while bench.later():
        pass
    every = [b"%d%d" % (number, at) for number in range(3) for at in range(3)]
    assert [told(one) for one in readers] == [every] * MANY
    assert len(writes) == 1
    got = [sender.take() for sender in senders]
    assert [packet[4] for packet in got[0] if packet[0] >> 4 == p.PUBLISH] == every[3:]
    for packets in got:
        assert [packet[1] for packet in packets if packet[0] >> 4 == p.PUBACK] == ([1, 2, 3] if qos else [])
    assert bench.engine.counters.mqtt_publish_sent["_none", qos] == 9 * MANY + 6


def test_what_other_filters_match_goes_behind_it_and_in_order(bench: Slow) -> None:
    """They had been taken to go along, with as many as there was room for: the rest is still put off."""
    readers = subscribed(bench)
    only = bench.device(5, "only").connect()
    only.subscribe("news/b", 1)
    only.take()
    senders = [bench.device(5, f"sender-{number}").connect() for number in range(3)]
    for sender, topic in zip(senders, (b"news/a", b"news/b", b"news/a"), strict=True):
        sender.take()
        sent_together(bench, sender, [(topic, b"%s%d" % (sender.client_id.encode()[-1:], at)) for at in range(6)])
    while bench.later():
        pass
    for one in readers:
        heard = told(one)
        for sender in "012":
            assert [payload for payload in heard if payload.startswith(sender.encode())] == [
                b"%s%d" % (sender.encode(), at) for at in range(6)
            ]
    assert told(only) == [b"1%d" % at for at in range(6)]
    assert [answers(sender) for sender in senders] == [list(range(1, 7))] * 3


def test_what_is_retained_of_several_is_what_came_last(bench: Slow) -> None:
    readers = subscribed(bench)
    senders = [bench.device(5, f"sender-{number}").connect() for number in range(3)]
    for sender in senders:
        sender.take()
        sent_together(
            bench, sender, [(b"news/a", sender.client_id.encode() + b".%d" % at) for at in range(2)], retain=True
        )
    while bench.later():
        pass
    late = bench.device(5, "late").connect()
    late.take()
    late.subscribe("news/a", 1)
    while bench.later():
        pass
    (last,) = told(late)
    assert [told(one)[-1] for one in readers] == [last] * MANY


def test_a_defect_acknowledges_none_of_several_and_the_second_time_that_one_is_set_aside(
    bench: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers, bench.defects = subscribed(bench, clean=False), []
    bench.break_copies(monkeypatch, b"poison", "reader-20")
    for closed in (True, False):
        senders = [bench.device(5, f"sender-{number}").connect() for number in range(3)]
        for sender, payload in zip(senders, (b"before", b"poison", b"behind"), strict=True):
            sender.take()
            sender.publish("news/a", payload, 1, 1)
        while bench.later():
            pass
        assert [sender.wire.closed for sender in senders] == [closed] * 3
        assert [answers(sender) for sender in senders] == [[] if closed else [1]] * 3
    assert bench.queues.rows["MQGATE.SET.ASIDE"]
    assert not bench.engine.put_off._waiting
    for one in readers:
        assert set(told(one)) >= {b"before", b"behind"}


def test_who_makes_up_a_name_for_each_defect_throws_out_its_neighbours_once(
    bench: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers, bench.defects = subscribed(bench), []
    bench.break_copies(monkeypatch, b"poison", "reader-20")
    neighbours = [bench.device(5, f"neighbour-{number}").connect() for number in range(2)]
    for time in range(4):
        hostile = bench.device(5, f"hostile-{time}").connect()
        for sender, payload in zip((neighbours[0], hostile, neighbours[1]), (b"1", b"poison", b"2"), strict=True):
            sender.take()
            bench.engine.context.until = bench.engine.context.until_strangers = float("inf")
            sender.publish("news/a", payload, 1, 1)
        while bench.later():
            pass
        assert hostile.wire.closed
        if not time:
            assert [one.wire.closed for one in neighbours] == [True] * 2
            neighbours = [bench.device(5, one.client_id).connect() for one in neighbours]
            continue
        assert [answers(one) for one in neighbours] == [[1]] * 2
    assert [told(one).count(b"1") for one in readers[21:]] == [told(readers[20]).count(b"1")] * (MANY - 21)


def test_what_is_longer_or_has_another_topic_comes_by_itself_and_in_order(bench: Slow) -> None:
    readers = subscribed(bench)
    sender = bench.device(5, "sender").connect()
    sender.take()
    many = [(b"news/a", b"12"), (b"news/a", b"3"), (b"news/b", b"45"), (b"news/b", b"678"), (b"news/a", b"9")]
    sent_together(bench, sender, many)
    sender.send(writer.encode_publish(5, b"news/a", b"x", 1, packet_id=6, properties=b"\x26\x00\x01k\x00\x01v"))
    while bench.later():
        pass
    assert [told(one) for one in readers] == [[payload for _, payload in many] + [b"x"]] * MANY
    assert answers(sender) == [1, 2, 3, 4, 5, 6]


def test_who_has_room_for_some_of_them_gets_these_and_the_others_are_told_of() -> None:
    bench = Slow(MAPPING, max_queued=2)
    readers = subscribed(bench, clean=False, away=True)
    sender = bench.device(5, "sender").connect()
    sender.take()
    sent_together(bench, sender, [(b"news/a", b"%d" % number) for number in range(3)])
    while bench.later():
        pass
    missed = [(packet[1], packet[3]) for packet in sender.take() if packet[0] >> 4 == p.PUBACK]
    assert [bool(properties) for _, properties in missed] == [False, False, True]
    assert [bench.engine.sessions.get(one.client_id).stored for one in readers] == [2] * MANY


def test_nothing_is_taken_in_with_it_whose_route_is_another_by_now(bench: Slow) -> None:
    readers = subscribed(bench)
    sender = bench.device(5, "sender").connect()
    sender.take()
    sent_together(bench, sender, [(b"news/a", b"1"), (b"news/a", b"2")])
    for one in readers[5:]:
        one.unsubscribe("news/#")
        one.take()
    while bench.later():
        pass
    assert [told(one) for one in readers[:5]] == [[b"1", b"2"]] * 5
    assert answers(sender) == [1, 2]


def test_a_defect_in_one_of_them_acknowledges_none_and_the_second_time_that_one_is_set_aside(
    bench: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers, bench.defects = subscribed(bench, clean=False), []
    bench.break_copies(monkeypatch, b"poison", "reader-20")
    for closed in (True, False):
        sender = bench.device(5, "sender").connect()
        sender.take()
        sent_together(bench, sender, [(b"news/a", b"before"), (b"news/a", b"poison"), (b"news/a", b"behind")])
        while bench.later():
            pass
        assert sender.wire.closed is closed
        assert answers(sender) == ([] if closed else [1, 2, 3])
    assert bench.queues.rows["MQGATE.SET.ASIDE"]
    for one in readers:
        assert told(one)[-2:] in ([b"before", b"behind"], [b"poison", b"behind"])


def test_a_kill_in_between_leaves_none_of_them_acknowledged_and_none_lost(bench: Slow) -> None:
    subscribed(bench, clean=False, away=True)
    sender = bench.device(5, "sender").connect()
    sender.take()
    many = [(b"news/a", b"%d" % number) for number in range(4)]
    sent_together(bench, sender, many)
    for _ in range(3):
        bench.later()
    assert answers(sender) == []
    bench.kill()
    sender = bench.device(5, "sender").connect()
    sender.take()
    sent_together(bench, sender, many)
    while bench.later():
        pass
    assert answers(sender) == [1, 2, 3, 4]
    for number in range(MANY):
        reader = bench.device(5, f"reader-{number}").connect(clean=False)
        while bench.later():
            pass
        assert told(reader)[-4:] == [payload for _, payload in many]


def test_what_is_malformed_ends_the_connection_before_what_is_behind_it(bench: Slow) -> None:
    """Packet identifier 0 in the midst of what would go together."""
    readers = subscribed(bench)
    sender = bench.device(5, "sender").connect()
    sender.take()
    bench.engine.context.until = float("inf")
    packets = [writer.encode_publish(5, b"news/a", b"%d" % number, 1, packet_id=number) for number in (1, 2, 3)]
    sender.send(packets[0] + packets[1].replace(b"news/a\0\2", b"news/a\0\0") + packets[2])
    while bench.later():
        pass
    assert answers(sender) == [1]
    assert sender.wire.closed
    assert [told(one) for one in readers] == [[b"1"]] * MANY


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("slices", range(5))
def test_who_subscribes_meanwhile_knows_what_is_retained_in_the_end(bench: Slow, qos: int, slices: int) -> None:
    """With its subscription, or as a copy: who has the former value keeps it until the next one."""
    readers = subscribed(bench)
    sender = bench.device(5, "sender").connect()
    sender.publish("news/a", b"old", 1, 1, retain=True)
    while bench.later():
        pass
    bench.engine.context.until = float("inf")
    sender.send(b"".join(
        writer.encode_publish(5, b"news/a", payload, qos, packet_id=number if qos else 0, retain=True)
        for number, payload in enumerate((b"mid", b"new"), 2)
    ))  # fmt: skip
    for _ in range(slices):
        bench.later()
    late = bench.device(5, "late").connect()
    late.subscribe("news/#", 1)
    while bench.later():
        pass
    assert told(late)[-1] == b"new"
    assert [told(one) for one in readers] == [[b"old", b"mid", b"new"]] * MANY
    another = bench.device(5, "another").connect()
    another.subscribe("news/#", 1)
    while bench.later():
        pass
    assert told(another) == [b"new"]


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_retained_in_the_end_is_what_came_last(bench: Slow, qos: int, others: int) -> None:
    """Nobody's overtakes that of others on the topic, where several wait."""
    readers = subscribed(bench, 0)
    before, sender, other = (bench.device(5, name).connect() for name in ("before", "sender", "other"))
    before.publish("news/b", b"x", 1, 1)
    for device, at, payloads in ((sender, qos, (b"1", b"3")), (other, others, (b"2",))):
        bench.engine.context.until = float("inf")
        device.send(b"".join(
            writer.encode_publish(5, b"news/a", payload, at, packet_id=number, retain=True)
            for number, payload in enumerate(payloads, 1)
        ))  # fmt: skip
        if at == 2:
            bench.engine.context.until = float("inf")
            device.send(b"".join(b"\x62\x02" + number.to_bytes(2) for number in range(1, len(payloads) + 1)))
    while bench.later():
        pass
    got = [told(one) for one in readers]
    assert [sorted(one) for one in got] == [[b"1", b"2", b"3", b"x"]] * MANY
    late = bench.device(5, "late").connect()
    late.subscribe("news/a", 1)
    while bench.later():
        pass
    last = told(late)
    assert len(last) == 1
    assert [one[-1:] for one in got] == [last] * MANY
