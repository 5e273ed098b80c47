"""gateway.broker.deliver.promise: what very many get, each once, goes on where it was."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import pytest
from broker_harness import Device
from slow_harness import Slow

from gateway.broker.deliver import under_way, wide
from gateway.broker.publish import router
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.mqtt.packets import Will
from gateway.ports.state_queues import FAN_OUT, OUT, SET_ASIDE, WILLS
from gateway.session.record import decode_publication

MAPPING = """
version: 1
to_mq:
  - {name: all, topic: 'news/#', queue: Q}
to_mqtt:
  - {name: out, queue: OUT.Q, topic: news/out, qos: 2}
"""
MANY = 40


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "WIDE", 10)
    monkeypatch.setattr(wide, "MOST_AT_ONCE", 7)


@pytest.fixture
def bench() -> Slow:
    return Slow(MAPPING)


def subscribed(bench: Slow, qos: int = 2, *, clean: bool = True, filter_: str = "news/#") -> list[Device]:
    """Clients with a session each; those with durable ones are away."""
    found = []
    for one in range(MANY):
        device = bench.device(5, f"reader-{one}").connect(clean=clean)
        device.subscribe(filter_, qos)
        device.take()
        if not clean:
            device.drop()
        found.append(device)
    return found


def told(device: Device) -> list[bytes]:
    return [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]


def answers(device: Device, kind: int) -> list[int]:
    return [packet[1] for packet in device.take() if packet[0] >> 4 == kind]


def until_over(bench: Slow, turns: int = 1000) -> None:
    while turns and bench.later():
        turns -= 1


def stored(bench: Slow) -> dict[bytes, list[bytes]]:
    """What waits for each session, in order."""
    found: dict[bytes, list[bytes]] = {}
    for _, (_, key, _, data) in sorted(bench.queues.rows.get(OUT, {}).items()):
        found.setdefault(key, []).append(decode_publication(data)[0].payload)
    return found


def nothing_is_left(bench: Slow) -> bool:
    return not bench.queues.rows.get(FAN_OUT)


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos_2_reaches_everybody_in_order_while_others_go_on(bench: Slow, granted: int) -> None:
    readers = subscribed(bench, granted)
    sender, other = bench.device(5, "sender").connect(), bench.device(5, "other").connect()
    bench.engine.context.until = bench.engine.context.until_strangers = float("inf")
    for number in (1, 2):
        sender.publish("news/a", b"%d" % number, 2, number)
    for number in (1, 2):
        sender.ack(p.PUBREL, number)
    sender.take()
    other.take()
    met = False
    for _ in range(3):
        assert bench.later()
        other.publish("else/where", b"x", 1, 9)
        met = met or answers(other, p.PUBACK) == [9]
    until_over(bench)
    assert met, "others wait"
    assert [told(one) for one in readers] == [[b"1", b"2"]] * MANY
    assert [row[3][-1:] for row in bench.queues.rows["Q"].values()] == [b"1", b"2"]
    assert nothing_is_left(bench)
    assert not bench.engine.put_off._waiting


def publish(bench: Slow, kind: str) -> None:
    if kind == "queue":
        bench.queues.arrive("OUT.Q", (mqmd.build(), b"1"))
        bench.advance(0.25)
        return
    sender = bench.device(5, "sender")
    sender.connect(will=Will("news/a", b"1", 1, retain=False) if kind == "will" else None)
    if kind == "will":
        sender.drop()
        return
    sender.publish("news/a", b"1", 2, 1)
    sender.ack(p.PUBREL, 1)


@pytest.mark.parametrize("kind", ["qos 2", "will", "queue"])
def test_after_a_kill_it_goes_on_where_it_was(bench: Slow, kind: str) -> None:
    places, whole = set[int](), False
    for turns in range(60):
        bench = Slow(MAPPING)
        subscribed(bench, clean=False)
        publish(bench, kind)
        assert not bench.queues.rows.get(WILLS)
        assert not bench.queues.rows.get("OUT.Q")
        until_over(bench, turns)
        places.add(len(stored(bench)))
        whole = nothing_is_left(bench)
        bench.kill()
        until_over(bench)
        assert list(stored(bench).values()) == [[b"1"]] * MANY
        assert nothing_is_left(bench)
        if whole:
            break
    assert whole
    assert len(places) > 4, "it was not killed in between"


def released_together(sender: Device, many: list[tuple[bytes, bytes]]) -> None:
    """Publications at QoS 2 whose PUBRELs are read in one go: topics, payloads."""
    context = sender.bench.engine.context
    for number, (topic, payload) in enumerate(many, 1):
        sender.publish(topic.decode(), payload, 2, number)
    context.until = context.until_strangers = float("inf")
    sender.send(b"".join(b"\x62\x02" + number.to_bytes(2) for number in range(1, len(many) + 1)))


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(("granted", "clean"), [(0, True), (1, True), (2, True), (1, False), (2, False)])
def test_what_is_released_behind_it_and_is_like_it_goes_with_it(
    bench: Slow, version: int, granted: int, clean: bool
) -> None:
    """Up to what is not like it."""
    readers = [bench.device(5, f"reader-{one}").connect(clean=clean) for one in range(MANY)]
    for one in readers:
        one.subscribe("news/#", granted)
    other = bench.device(5, "other").connect()
    other.subscribe("narrow", 1)
    sender = bench.device(version, "sender").connect()
    for one in (*readers, other, sender):
        one.take()
    payloads = [b"%d" % number for number in range(30)]
    released_together(sender, [*((b"news/a", one) for one in payloads), (b"narrow", b"x")])
    turns = 0
    while bench.later():
        turns += 1
        if turns < MANY // 2:
            assert b"x" not in told(other)
    copies = 30 * MANY
    assert turns < copies // 7, "each by itself"
    assert [told(one) for one in readers] == [payloads] * MANY
    assert told(other) == [b"x"]
    assert answers(sender, p.PUBCOMP) == list(range(1, 32))
    assert bench.engine.counters.mqtt_publish_sent["_none", 2] == copies + 1
    assert nothing_is_left(bench)
    assert not bench.engine.put_off._waiting


def test_what_goes_together_comes_once_wherever_it_is_killed() -> None:
    """The client releases again what it has no PUBCOMP for."""
    many, joined, whole = [(b"news/a", b"%d" % number) for number in range(4)], 0, False
    for turns in range(60):
        bench = Slow(MAPPING)
        subscribed(bench, clean=False)
        sender = bench.device(5, "sender").connect(clean=False)
        sender.take()
        released_together(sender, many)
        until_over(bench, turns)
        joined += len(bench.queues.rows.get(FAN_OUT, ())) > 2
        whole, completed = nothing_is_left(bench), answers(sender, p.PUBCOMP)
        bench.kill()
        sender = bench.device(5, "sender").connect(clean=False)
        for number in sorted({1, 2, 3, 4} - set(completed)):
            sender.ack(p.PUBREL, number)
        until_over(bench)
        assert list(stored(bench).values()) == [[payload for _, payload in many]] * MANY
        assert nothing_is_left(bench)
        if whole:
            break
    assert whole
    assert joined > 4, "it was not killed in between"


@pytest.mark.parametrize("how", ["wills", "queue"])
def test_those_that_are_next_and_are_like_it_go_with_it(bench: Slow, how: str) -> None:
    """Whoever has published them."""
    readers = subscribed(bench, 1)
    payloads = [b"%d" % number for number in range(20)]
    if how == "queue":
        bench.queues.arrive("OUT.Q", *((mqmd.build(), payload) for payload in payloads))
        bench.advance(0.25)
    else:
        dying = [bench.device(5, f"dying-{number}") for number in range(20)]
        for one, payload in zip(dying, payloads, strict=True):
            one.connect(will=Will("news/a", payload, 2, retain=False))
        dying[-1].subscribe("news/#", 1, no_local=True)
        for one in dying:
            one.drop()
    turns = 0
    while bench.later():
        turns += 1
    assert turns < 20 * MANY // 7, "each by itself"
    assert [told(one) for one in readers] == [payloads] * MANY
    assert nothing_is_left(bench)


def test_what_several_release_at_qos_2_goes_together(bench: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = [bench.device(4, f"reader-{one}").connect(clean=False) for one in range(MANY)]
    for one in readers:
        one.subscribe("news/#", 2)
        one.take()
    senders = [bench.device(5, f"sender-{number}").connect() for number in range(4)]
    for number, sender in enumerate(senders):
        sender.publish(f"news/{number % 2}", b"%d" % number, 2, 1)
    monkeypatch.setattr(bench.engine.fan_out, "copy", lambda *_: pytest.fail("one is copied by itself"))
    bench.engine.context.until = bench.engine.context.until_strangers = float("inf")
    bench.engine.received_each([(sender.connection, b"\x62\x02\0\1") for sender in senders])
    bench.engine.flush()
    until_over(bench)
    for one in readers:
        sent = [packet for packet in one.take() if packet[0] >> 4 == p.PUBLISH]
        assert [packet[4] for packet in sent] == [b"0", b"1", b"2", b"3"]
        one.send(writer.encode_acks(p.PUBREC, [packet[2] for packet in sent]))
        released = answers(one, p.PUBREL)
        assert released == [packet[2] for packet in sent]
        one.send(writer.encode_acks(p.PUBCOMP, released))
    assert not bench.queues.rows[OUT]
    assert nothing_is_left(bench)


@pytest.mark.parametrize("version", [4, 5])
def test_who_gets_them_at_qos_0_gets_each_with_its_own_topic(bench: Slow, version: int) -> None:
    readers = [bench.device(version, f"reader-{one}").connect() for one in range(MANY)]
    for one in readers:
        one.subscribe("news/#", 0)
        one.take()
    senders = [bench.device(5, f"sender-{number}").connect() for number in range(4)]
    for number, sender in enumerate(senders):
        sender.publish(f"news/{number % 2}", b"%d" % number, 2, 1)
    bench.engine.context.until = bench.engine.context.until_strangers = float("inf")
    bench.engine.received_each([(sender.connection, b"\x62\x02\0\1") for sender in senders])
    bench.engine.flush()
    until_over(bench)
    for one in readers:
        sent = [(packet[1], packet[4]) for packet in one.take() if packet[0] >> 4 == p.PUBLISH]
        assert sent == [(b"news/0", b"0"), (b"news/1", b"1"), (b"news/0", b"2"), (b"news/1", b"3")]
    assert nothing_is_left(bench)


def test_a_publisher_among_others_does_not_get_its_own(bench: Slow) -> None:
    readers = subscribed(bench, 1)
    for one in readers[:3]:
        one.subscribe("news/#", 1, no_local=True)
    for one in readers[:2]:
        one.publish("news/a", one.client_id.encode(), 2, 1)
    for one in readers[:2]:
        bench.engine.context.until = float("inf")
        one.ack(p.PUBREL, 1)
    until_over(bench)
    assert [told(one) for one in readers[:3]] == [[b"reader-1"], [b"reader-0"], [b"reader-0", b"reader-1"]]


def test_a_defect_in_what_goes_together_has_each_come_by_itself(bench: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    readers, bench.defects = subscribed(bench, clean=False), []
    online = bench.device(5, "online").connect()
    online.subscribe("news/#", 0)
    online.subscribe("narrow", 1)
    online.take()
    bench.break_copies(monkeypatch, b"2", "reader-20")
    sender = bench.device(5, "sender").connect()
    sender.take()
    released_together(sender, [(b"news/a", b"1"), (b"news/a", b"2"), (b"news/a", b"3"), (b"narrow", b"x")])
    until_over(bench)
    waiting = stored(bench)
    assert waiting.pop(bench.engine.sessions.get(readers[20].client_id).key) == [b"1", b"3"]
    assert list(waiting.values()) == [[b"1", b"2", b"3"]] * (MANY - 1)
    assert told(online) == [b"1", b"2", b"3", b"x"], "once, in order, though a slice was done again"
    assert len(bench.queues.rows[SET_ASIDE]) == 1
    assert answers(sender, p.PUBCOMP) == [1, 2, 3, 4]
    assert nothing_is_left(bench)
    assert not bench.engine.put_off._waiting


def test_the_next_message_of_a_queue_comes_behind_it(bench: Slow) -> None:
    readers = subscribed(bench)
    for number in range(1, 4):
        bench.queues.arrive("OUT.Q", (mqmd.build(), b"%d" % number))
        bench.advance(0.25)
    for _ in range(200):
        bench.advance(0.25)
        if not bench.later() and not bench.queues.rows.get("OUT.Q"):
            break
    assert [told(one) for one in readers] == [[b"1", b"2", b"3"]] * MANY


def test_a_shared_subscription_gets_one_and_overlapping_ones_are_merged(bench: Slow) -> None:
    readers = subscribed(bench, 1)
    for one in readers:
        one.subscribe("news/+", 2)
        one.subscribe("$share/g/news/a", 2)
        one.take()
    publish(bench, "qos 2")
    until_over(bench)
    assert sorted(len(told(one)) for one in readers) == [1] * (MANY - 1) + [2], "each once, and one of the group"


def test_a_copy_that_meets_a_defect_is_set_aside_alone(bench: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    subscribed(bench, clean=False)
    online = bench.device(5, "online").connect()
    online.subscribe("news/#", 0)
    online.take()
    bench.defects = []
    bench.break_copies(monkeypatch, b"1", "reader-20")
    publish(bench, "qos 2")
    until_over(bench)
    assert Counter(map(len, stored(bench).values())) == {1: MANY - 1}
    assert told(online) == [b"1"], "once, though a slice was done again"
    assert [(met.what, met.whom) for met in bench.defects] == [("stored", "reader-20")]
    assert len(bench.queues.rows[SET_ASIDE]) == 1
    assert nothing_is_left(bench)


def test_what_meets_a_defect_before_any_copy_is_set_aside_whole(bench: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    subscribed(bench, clean=False)
    bench.defects = []

    def failing(_key: bytes) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(wide, "place_of_session", failing)
    publish(bench, "qos 2")
    until_over(bench)
    assert [met.what for met in bench.defects] == ["publication"]
    assert len(bench.queues.rows[SET_ASIDE]) == 1
    assert not stored(bench)
    assert nothing_is_left(bench)
    monkeypatch.undo()
    other = bench.device(5, "other").connect()
    other.publish("narrow", b"", 1, 1)
    until_over(bench)
    assert answers(other, p.PUBACK) == [1]


def test_there_is_an_end_to_what_waits(bench: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "MOST_WAITING", 2)
    readers = subscribed(bench)
    senders = [bench.device(5, f"sender-{one}").connect() for one in range(4)]
    for one in senders:
        one.take()
        one.publish("news/a", b"1", 1, 1)
    refused = [packet[2] for one in senders for packet in one.take() if packet[0] >> 4 == p.PUBACK]
    assert refused == [0x97, 0x97]
    until_over(bench)
    assert [len(told(one)) for one in readers] == [2] * MANY


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("clean", [True, False])
def test_members_of_shared_subscriptions_take_what_goes_together_in_turn(bench: Slow, qos: int, clean: bool) -> None:
    """What one of them cannot take goes to the other one."""
    groups = []
    for number in range(MANY):
        pair = [bench.device(5, f"{name}-{number}") for name in ("one", "other")]
        for at, device in enumerate(pair):
            device.connect(clean=clean, properties={0x27: 200} if not number and not at else {})
            device.subscribe(f"$share/g{number}/news/#", 2)
            device.take()
        groups.append(pair)
    sender = bench.device(5, "sender").connect()
    sender.take()
    payloads = [bytes(200)] + [b"%d" % number for number in range(9)]
    if qos == 1:
        bench.engine.context.until = float("inf")
        sender.send(b"".join(
            writer.encode_publish(5, b"news/a", payload, 1, packet_id=number)
            for number, payload in enumerate(payloads, 1)
        ))  # fmt: skip
    else:
        released_together(sender, [(b"news/a", payload) for payload in payloads])
    until_over(bench)
    first, *others = [[told(device) for device in pair] for pair in groups]
    assert sorted(first[0] + first[1]) == sorted(payloads)
    assert bytes(200) in first[1]
    assert first[0]
    for some in others:
        assert sorted(some) == sorted([payloads[::2], payloads[1::2]])
    assert bench.engine.counters.mqtt_publish_sent["_none", qos] == len(payloads) * MANY
    assert nothing_is_left(bench)


@pytest.mark.parametrize("denied", [0, 5])
def test_wills_to_topics_that_the_same_filters_match_go_together(bench: Slow, denied: int) -> None:
    """What others match comes by itself, and everybody gets what he may, in order."""
    readers = subscribed(bench, 1)
    some = bench.device(5, "some").connect()
    some.subscribe("news/2/x", 1)
    some.take()
    may = bench.engine.router.access.may_receive
    forbidden = "reader-7", f"news/{denied}/x"
    bench.engine.router.access.may_receive = lambda *who: who[1:4:2] != forbidden and may(*who)
    dying = [bench.device(5, f"dying-{number}") for number in range(8)]
    for number, one in enumerate(dying):
        one.connect(will=Will(f"news/{number}/x", b"%d" % number, 2, retain=False))
    for one in dying:
        one.drop()
    turns = 0
    while bench.later():
        turns += 1
    assert turns < 40, "each by itself"
    everything = [b"%d" % number for number in range(8)]
    assert told(readers.pop(7)) == [one for one in everything if one != b"%d" % denied]
    assert [told(one) for one in readers] == [everything] * (MANY - 1)
    assert told(some) == [b"2"]
    assert nothing_is_left(bench)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("full", [0, 1])
def test_a_member_without_room_for_its_part_does_not_have_the_other_one_get_things_out_of_order(
    qos: int, full: int
) -> None:
    bench = Slow(MAPPING, max_queued=4)
    groups = []
    for number in range(MANY):
        pair = [bench.device(5, f"{name}-{number}").connect(clean=False) for name in ("one", "other")]
        for device in pair:
            device.subscribe(f"$share/g{number}/news/#", 1)
        pair[full].subscribe("own", 1)
        groups.append(pair)
    sender = bench.device(5, "sender").connect()
    for number in (1, 2):
        bench.engine.context.until = float("inf")
        sender.publish("own", b"", 1, number)
        until_over(bench)
    for device in (sender, *chain.from_iterable(groups)):
        device.take()
    many = [(b"news/a", b"%d" % number) for number in range(6)]
    if qos == 1:
        bench.engine.context.until = float("inf")
        sender.send(b"".join(
            writer.encode_publish(5, topic, payload, 1, packet_id=number)
            for number, (topic, payload) in enumerate(many, 1)
        ))  # fmt: skip
    else:
        released_together(sender, many)
    until_over(bench)
    for pair in groups:
        some = [told(device) for device in pair]
        assert sorted(chain.from_iterable(some)) == [payload for _, payload in many]
        assert some == [sorted(one) for one in some]
    assert nothing_is_left(bench)


@pytest.mark.parametrize("how", ["released", "wills"])
def test_what_goes_together_has_so_many_bytes_at_most(bench: Slow, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(under_way, "MOST_JOINED_BYTES", 100)
    together, runs = list[int](), under_way.Runs

    def noted(publications: Any) -> Any:
        together.append(sum(len(one.payload) for one in publications))
        return runs(publications)

    readers = subscribed(bench, 1)
    monkeypatch.setattr(under_way, "Runs", noted)
    payloads = [bytes([number]) * 40 for number in range(6)]
    if how == "released":
        released_together(bench.device(5, "sender").connect(), [(b"news/a", payload) for payload in payloads])
    else:
        dying = [bench.device(5, f"dying-{number}") for number in range(6)]
        for one, payload in zip(dying, payloads, strict=True):
            one.connect(will=Will("news/a", payload, 2, retain=False))
        for one in dying:
            one.drop()
    until_over(bench)
    assert max(together) == 80
    assert [told(one) for one in readers] == [payloads] * MANY


@pytest.mark.parametrize("then", ["hold", "dead_letter"])
@pytest.mark.parametrize("version", [4, 5])
def test_what_goes_together_comes_once_where_its_queue_refuses(version: int, then: str) -> None:
    """Wherever it is killed: on its queue, or among the dead letters, and for each session."""
    failure = f"{{retry: {{times: 1, from: 1s, to: 2s}}, then: {then}}}"
    mapping = f"version: 1\nto_mq: [{{name: all, topic: 'news/#', queue: Q, headers: [], on_failure: {failure}}}]\n"
    payloads = [b"%d" % number for number in range(4)]
    for turns in (0, 1, 2, 3, 5, 8, 30):
        bench = Slow(mapping)
        subscribed(bench, clean=False)
        bench.queues.refusing["Q"] = 2051
        sender = bench.device(version, "sender").connect(clean=False)
        released_together(sender, [(b"news/a", payload) for payload in payloads])
        until_over(bench, turns)
        completed = set(answers(sender, p.PUBCOMP))
        if turns % 2:
            bench.queues.refusing.clear()
        bench.kill()
        sender = bench.device(version, "sender").connect(clean=False)
        bench.queues.refusing.clear()
        for number in sorted({1, 2, 3, 4} - completed):
            sender.ack(p.PUBREL, number)
        for _ in range(10):
            bench.advance(0.5)
            until_over(bench, 20)
        assert completed | set(answers(sender, p.PUBCOMP)) == {1, 2, 3, 4}
        assert list(stored(bench).values()) == [payloads] * MANY
        rows = [row for queue in ("Q", "DEAD.Q") for row in bench.queues.rows.get(queue, {}).values()]
        assert sorted(row[3][-1:] for row in rows) == payloads
        assert nothing_is_left(bench)
