"""The fast lane by itself: what it is called with, where routes are kept, what it makes of whole columns."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest
from broker_harness import Harness
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import FORMS, lane

from gateway.broker.publish import fast, keeping, publications
from gateway.broker.publish.keeping import MOST_LOOKED_AT
from gateway.broker.publish.kept_routes import make_way
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.mqtt.reader import Reader
from gateway.session.connection import Connection

MAPPING = """
version: 1
to_mq:
  - {name: all, topic: 'q/#', queue: Q}
"""
COMPILED = pytest.mark.skipif(not fast.compiled(), reason="no compiler where the gateway was installed")
if fast.compiled():
    from gateway.broker.publish import _fast


@pytest.fixture
def bench():
    return Harness(MAPPING)


def arguments(bench):
    """What `take` is called with."""
    return [bench.engine.fast_lane, [], {}, {}, 0, 0.0]


@COMPILED
def test_wrong_arguments_are_errors(bench):
    good = arguments(bench)
    assert _fast.take(*good) == ([], 0, 0, 0, 0, 0, 0)
    for at, wrong in [(1, ()), (2, []), (3, []), (4, "0"), (5, 0)]:
        with pytest.raises(TypeError):
            _fast.take(*good[:at], wrong, *good[at + 1 :])
    connection = bench.device(4, "a").connect().connection
    for entry in (None, (1,), [1, 2], (None, b""), (connection, "text"), (connection, b"", -1), (connection, b"", "0")):
        with pytest.raises(TypeError):
            _fast.take(good[0], [entry], *good[2:])
    with pytest.raises(TypeError):
        _fast.take()


@COMPILED
@pytest.mark.parametrize("broken", ["caches", "session", "reader", "limits", "inbound_pending", "uncompleted"])
def test_an_object_of_another_kind_is_an_error(bench, broken):
    device = bench.device(5, "a").connect()
    device.publish("q/1", b"x", 1, packet_id=1)
    before = getattr(device.connection, broken)
    setattr(device.connection, broken, "other")
    bench.defects = []
    with lane("compiled"), suppress(AttributeError, TypeError):  # it cannot even be ended
        bench.engine.fast_lane.take([(device.connection, writer.encode_publish(5, b"q/1", b"x", 1, packet_id=1))])
    setattr(device.connection, broken, before)
    if broken not in {"reader", "session"}:
        assert any(isinstance(met.error, TypeError) for met in bench.defects)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("callback", "qos"),
    [("renew", 1), ("can_keep", 1), ("keep", 1), ("records", 2), ("released", 2)],
)
def test_a_defect_costs_the_connection_that_meets_it(bench, monkeypatch, form, callback, qos):
    bench.defects = []
    one_is_asked_for_all = callback in {"can_keep", "records"}
    names = ("poor", "b", "c") if one_is_asked_for_all else ("a", "poor", "c")
    devices = {name: bench.device(5, name).connect(clean=False) for name in names}

    def packets(first):
        kept = callback in {"can_keep", "keep"}
        data = writer.encode_publish(5, b"q/1", b"x", qos, retain=kept, packet_id=first)
        return data, writer.encode_acks(p.PUBREL, [first]) if qos == 2 else b""

    lane_, poor = bench.engine.fast_lane, devices["poor"].connection
    whole = getattr(lane_, callback)

    def raising(*given):
        about = given[0] if given else None
        if about is poor or about is poor.session or (not given and not called):
            called.append(about)
            raise KeyError("a defect")
        called.append(about)
        return whole(*given)

    called = []
    with lane(form):
        for one in devices.values():
            one.send(packets(1)[0])
            one.take()
        if callback == "renew":
            bench.engine.router.touch()
        monkeypatch.setattr(lane_, callback, raising)
        bench.engine.received_each([(one.connection, packets(1)[1] + packets(100)[0]) for one in devices.values()])
        bench.engine.flush()
    monkeypatch.undo()
    assert called
    assert [name for name, one in devices.items() if one.wire.closed] == ["poor"]
    wanted = p.PUBACK if qos == 1 else p.PUBREC
    for name in set(names) - {"poor"}:
        assert wanted in [packet[0] >> 4 for packet in devices[name].take()], name
    again = bench.device(5, "poor").connect(clean=False)
    for data in packets(100):
        again.send(data)
    assert not again.wire.closed


@COMPILED
def test_classes_without_slots_are_errors():
    numbers = (3, 2, 5, 1, 2, 3, 4, 5, 32, 4, 16, 36)
    for classes in [(int,) * 7, (Connection, Reader, type("Bare", (), {"inbound": 1}), int, int, int, int)]:
        with pytest.raises((TypeError, AttributeError)):
            _fast.configure(classes, numbers)
    with pytest.raises(TypeError):
        _fast.configure((Connection, Reader), numbers)


@COMPILED
def test_a_column_that_is_measured_is_a_list_of_bytes():
    for wrong in [(b"",), ["a"]]:
        with pytest.raises(TypeError):
            _fast.length(wrong)


@st.composite
def topics_in_turn(draw):
    """Topics short and long, many of them alike."""
    count = draw(st.integers(1, 200))
    shape = draw(st.sampled_from([b"q/%d", b"q/%d/x", b"q/" + b"t" * 34 + b"/%07d", b"q/" + b"t" * 40 + b"/%07d"]))
    order = draw(st.lists(st.integers(0, count - 1), max_size=100))
    return [shape % n for n in order or range(count)], draw(st.integers(1, 60))


@COMPILED
@settings(max_examples=60, deadline=None)
@given(topics_in_turn(), st.integers(0, 3))
def test_topics_lead_where_the_dict_says(sent, forgotten):
    """Whatever is forgotten in between. Heads are those of the routes: the same objects, so that a frame needs no look
    at their bytes to see what repeats."""
    topics, size = sent
    bench = Harness(MAPPING, receive_maximum=60_000)
    connection = bench.device(4, "a").connect().connection
    bench.queues.automatic = False
    with lane("compiled, few topics"):
        for number, begin in enumerate(range(0, 2 * len(topics), size)):
            some = (topics * 2)[begin : begin + size]
            data = b"".join(writer.encode_publish(4, topic, b"x", 1, packet_id=n) for n, topic in enumerate(some, 1))
            assert bench.engine.fast_lane.take([(connection, data)]) == []
            assert isinstance(connection.caches[2], _fast.TopicCache)
            (destination,) = bench.engine.context.batch.destinations.values()
            heads = destination.puts.heads[-len(some) :]
            assert [id(head) for head in heads] == [id(connection.caches[2][topic].head) for topic in some]
            if forgotten == 1 and number % 4 == 1:
                connection.caches[2].clear()
                assert len(connection.caches[2]) == 0
            elif forgotten and number % 4 == forgotten:
                make_way(connection.caches[2])


@COMPILED
def test_what_is_removed_is_let_go():
    """An entry holds its route; one that was removed is not found, and its memory is free."""
    connection = new_to_many(bench := Harness(MAPPING, receive_maximum=60_000), 200)
    new_to_many(bench, 200, connection)
    cache, route = connection.caches[2], connection.caches[2][b"q/0"]
    assert isinstance(cache, _fast.TopicCache)
    before = sys.getrefcount(route)
    make_way(cache)
    assert b"q/0" not in cache
    assert len(cache) == 200 - 12
    assert sys.getrefcount(route) == before - 2
    new_to_many(bench, 200, connection)
    assert cache[b"q/0"] is not route
    with pytest.raises(KeyError):
        del cache[b"other"]


@pytest.mark.parametrize("form", FORMS)
def test_topics_in_turn_that_are_more_than_are_kept_find_their_routes_mostly(form, monkeypatch):
    """The cost of one more topic is that of one more."""
    for module in (fast, publications):
        monkeypatch.setattr(module, "MAX_CACHED_ROUTES", 128)
    with lane(form):
        bench = Harness(MAPPING, receive_maximum=60_000)
        connection = new_to_many(bench, 160)
        for _ in range(10):
            before = dict(connection.caches[2])
            new_to_many(bench, 160, connection)
            assert len(connection.caches[2]) <= 128
            assert sum(connection.caches[2].get(topic) is route for topic, route in before.items()) > 64


def new_to_many(bench, topics, connection=None):
    """A client publishes to so many topics."""
    connection = connection or bench.device(4, "a").connect().connection
    data = b"".join(writer.encode_publish(4, b"q/%d" % n, b"x", 1, packet_id=n + 1) for n in range(topics))
    bench.engine.received_each([(connection, data)])
    bench.engine.flush()
    return connection


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("form", FORMS)
def test_who_subscribes_gets_what_came_behind_it_and_not_what_came_before(form, version):
    """In one round too: suites publish on one connection as soon as SUBSCRIBE is sent on another."""
    bench = Harness("version: 1\n")
    one, two, reader, stranger = (bench.device(version, name) for name in ("a", "b", "r", "s"))
    for device in one, two, reader:
        device.connect()
    reader.take()
    subscribe = client.encode_subscribe(version, p.Subscribe(1, [p.Subscription("t", 1)]))
    unsubscribe = client.encode_unsubscribe(version, p.Unsubscribe(2, ["t"]))

    def numbered(number):
        return writer.encode_publish(version, b"t", b"%d" % number, 1, packet_id=number)

    with lane(form):
        bench.engine.received_each(
            [
                (stranger.connection, subscribe),
                (one.connection, numbered(1)),
                (reader.connection, numbered(2) + subscribe + numbered(3)),
                (two.connection, numbered(4)),
            ]
        )
        bench.engine.flush()
        bench.engine.received_each(
            [(two.connection, numbered(5)), (reader.connection, unsubscribe), (one.connection, numbered(6))]
        )
        bench.engine.flush()
    assert [packet[4] for packet in reader.take() if packet[0] >> 4 == p.PUBLISH] == [b"3", b"4", b"5"]
    acknowledged = [packet[0] >> 4 for packet in [*one.take(), *two.take()] if packet[0] >> 4 == p.PUBACK]
    assert len(acknowledged) == 4


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_closed_with_their_batch(bench, form):
    device = bench.device(4, "a").connect()
    bench.queues.automatic = False
    packet = writer.encode_publish(4, b"q/1", b"x", 1, packet_id=1)
    with lane(form):
        for _ in range(3):
            bench.engine.received_each([(device.connection, packet)])
            columns = device.connection.caches[2][b"q/1"].columns
            assert columns.heads is next(iter(bench.engine.context.batch.destinations.values())).puts.heads
            bench.engine.flush()
            bench.queues.commit()
            assert columns.heads is None
    assert len(bench.queues.rows["Q"]) == 3


@pytest.mark.parametrize("form", FORMS)
def test_rules_that_put_on_one_queue_take_turns(form):
    bench = Harness(MAPPING.replace("'q/#'", "'q/1'") + "  - {name: other, topic: 'q/2', queue: Q}\n")
    device = bench.device(4, "a").connect()
    bench.queues.automatic = False
    with lane(form):
        bench.engine.received_each(
            [
                (
                    device.connection,
                    b"".join(
                        writer.encode_publish(4, b"q/%d" % (1 + n % 2), b"x", 1, packet_id=n) for n in range(1, 7)
                    ),
                )
            ]
        )
    (destination,) = bench.engine.context.batch.destinations.values()
    assert [destination.policy(row).rule for row in range(6)] == ["other", "all"] * 3


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_topics_of_a_client_are_told_apart_while_they_are_few_and_when_they_are_many(form, qos):
    """Of the same length, and with the same beginning; each has been cached before it comes again."""
    topics = ["q/1", "q/2", "q/12", "q/123", "Q/1", "q/3", "q/4"]
    rules = [f"  - {{name: r{n}, topic: '{topic}', queue: Q{n}}}\n" for n, topic in enumerate(topics)]
    bench = Harness("version: 1\nto_mq:\n" + "".join(rules))
    device = bench.device(4, "a").connect()
    wanted = [0] * len(topics)
    with lane(form):
        for known in range(1, len(topics) + 1):
            for number in (*range(known), known - 1):
                wanted[number] += 1
                data = writer.encode_publish(4, topics[number].encode(), b"x", qos, packet_id=number + 1)
                release = writer.encode_acks(p.PUBREL, [number + 1]) if qos == 2 else b""
                for packet in (data, release):
                    device.send(packet)
            assert [len(bench.queues.rows.get(f"Q{n}", ())) for n in range(len(topics))] == wanted


@pytest.mark.parametrize("form", FORMS)
def test_publications_for_several_queues_are_noted_as_runs_and_parted_when_one_refuses(form):
    bench = Harness(
        "version: 1\nto_mq:\n  - {name: one, topic: t, queue: A, continue: true}\n  - {name: two, topic: t, queue: B}\n"
    )
    device = bench.device(4, "a").connect()
    device.take()
    bench.queues.automatic = False
    bench.queues.refusing["B"] = 2053
    with lane(form):
        bench.engine.received_each(
            [
                (
                    device.connection,
                    b"".join(writer.encode_publish(4, b"t", b"%d" % n, 1, packet_id=n) for n in range(1, 6)),
                )
            ]
        )
    batch = bench.engine.context.batch
    assert [count for _, _, count, _ in batch.links.runs] == [5]
    bench.engine.flush()
    while bench.queues.commit():
        pass
    assert not bench.queues.rows.get("A")  # they go together
    assert device.take() == []
    bench.queues.refusing.clear()
    bench.queues.automatic = True
    bench.advance(10)
    assert [len(bench.queues.rows[queue]) for queue in "AB"] == [5, 5]
    assert [packet[1] for packet in device.take()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("queues", [2, 9, 16, 17])
def test_publications_for_up_to_16_queues_are_taken_without_being_looked_at(form, queues):
    rules = [f"  - {{name: r{n}, topic: t, queue: Q{n}, continue: true}}\n" for n in range(queues)]
    bench = Harness("version: 1\nto_mq:\n" + "".join(rules))
    device = bench.device(4, "a").connect()
    device.take()
    packets = [writer.encode_publish(4, b"t", b"%d" % n, 1, packet_id=n) for n in range(1, 6)]
    bench.queues.automatic = False
    with lane(form):
        bench.engine.received_each([(device.connection, b"".join(packets))])
    runs = [count for _, _, count, _ in bench.engine.context.batch.links.runs]
    assert runs == ([5] if queues <= 16 else [])
    bench.queues.automatic = True
    bench.engine.flush()
    while bench.queues.commit():
        pass
    assert [len(bench.queues.rows[f"Q{n}"]) for n in range(queues)] == [5] * queues
    assert [packet[1] for packet in device.take()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [[], [0, 1]])
def test_of_a_topic_the_last_is_retained_whatever_its_qos(form, before):
    bench = Harness(MAPPING)
    device = bench.device(4, "a").connect()
    for qos in before:
        device.send(writer.encode_publish(4, b"q/0", b"before", qos, retain=True, packet_id=qos))
    with lane(form):
        bench.engine.received_each(
            [(device.connection, b"".join(
                writer.encode_publish(4, b"q/0", b"%d" % n, n % 2, retain=True, packet_id=n if n % 2 else 0)
                for n in range(1, 4)
            ))]
        )  # fmt: skip
        bench.engine.flush()
    assert [(one.topic, one.payload, one.qos) for one in bench.engine.retained] == [(b"q/0", b"3", 1)]
    bench.kill()
    assert [(one.topic, one.payload, one.qos) for one in bench.engine.retained] == [(b"q/0", b"3", 1)]


@pytest.mark.parametrize("form", FORMS)
def test_of_a_topic_the_last_is_retained(form):
    bench = Harness(MAPPING)
    device = bench.device(4, "a").connect()
    bench.queues.automatic = False
    with lane(form):
        bench.engine.received_each(
            [(device.connection, b"".join(
                writer.encode_publish(4, b"q/%d" % (n % 2), b"%d" % n, 1, retain=True, packet_id=n) for n in range(1, 7)
            ))]
        )  # fmt: skip
    assert sorted((one.topic, one.payload) for one in bench.engine.retained) == [(b"q/0", b"6"), (b"q/1", b"5")]
    assert bench.engine.context.batch.rows == 6


@pytest.mark.parametrize("form", FORMS)
def test_what_sessions_stage_under_keys_of_their_own_is_released_from_these(form):
    """As where several gateways share the state; those whose key is the same follow one another here and there."""
    bench = Harness(MAPPING)
    devices = [bench.device(4, name).connect(clean=False) for name in "abcd"]
    for device, key in zip(devices, (b"one", b"one", b"two", b"one"), strict=True):
        device.connection.session.staged_key = key

    def all_send(data):
        bench.engine.received_each([(device.connection, data) for device in devices])
        return {key: len(puts.heads) for (_, key, _), puts in bench.engine.context.batch.state.items()}

    bench.queues.automatic = False
    with lane(form):
        assert all_send(writer.encode_publish(4, b"q/1", b"x", 2, packet_id=7)) == {b"one": 3, b"two": 1}
        staged = [(session.client_id, first, ids) for session, _, first, ids, _ in bench.engine.context.batch.staged]
        assert staged == [("a", 0, [7]), ("b", 1, [7]), ("c", 0, [7]), ("d", 2, [7])]
        bench.queues.automatic = True
        bench.engine.flush()
        bench.queues.automatic = False
        all_send(writer.encode_acks(p.PUBREL, [7]))
        takes = {key: len(one.tokens) for (_, key), one in bench.engine.context.batch.takes.items()}
        assert takes == {b"one": 3, b"two": 1}
        bench.queues.automatic = True
        bench.engine.flush()
    assert len(bench.queues.rows["Q"]) == 4


@pytest.mark.parametrize("form", FORMS)
def test_rules_for_one_queue_keep_their_rows_apart_whichever_applies(form):
    """Two rules with conditions that put on the same queue: each row is that of its rule."""
    bench = Harness(
        "version: 1\nto_mq:\n  - {name: one, topic: t, queue: A, when: {json: {a: 1}}}\n"
        "  - {name: two, topic: t, queue: A, when: {json: {a: 2}}}\n"
    )
    device = bench.device(4, "a").connect()
    bench.queues.automatic = False
    with lane(form):
        bench.engine.received_each(
            [(device.connection, b"".join(
                writer.encode_publish(4, b"t", b'{"a": %d}' % (1 + n % 2), 1, packet_id=n) for n in range(1, 7)
            ))]
        )  # fmt: skip
    (destination,) = bench.engine.context.batch.destinations.values()
    assert [destination.policy(row).rule for row in range(6)] == ["two", "one"] * 3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("topic", ["q/", "w/", "n/"])
def test_what_a_client_has_staged_is_added_up_once_for_all_that_it_releases(bench, form, topic, monkeypatch):
    """Each is retained on a topic of its own: on a queue, for a subscriber, for nobody."""
    looked_at: list[object] = []
    size_of = keeping.size_of
    monkeypatch.setattr(keeping, "size_of", lambda staged: looked_at.append(staged) or size_of(staged))
    bench.device(5, "s").connect().subscribe("w/#", 0)
    device, ids = bench.device(5, "p").connect(), range(1, 31)
    with lane(form):
        for number in ids:
            device.publish(f"{topic}{number}", b"x", 2, number, retain=True)
        device.send(b"".join(b"\x62\x02" + number.to_bytes(2, "big") for number in ids))
    assert [packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBCOMP] == list(ids)
    assert len(looked_at) <= len(ids)
    assert bench.engine.retained.find(f"{topic}30").payload == b"x"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("topic", ["q/", "w/"])
def test_what_is_retained_of_many_that_are_staged_is_no_work_for_the_plain_lane(form, topic):
    bench, count = Harness(MAPPING), 2 * MOST_LOOKED_AT
    bench.device(5, "s").connect().subscribe("w/#", 0)
    device, plain = bench.device(5, "p").connect(), list[object]()
    packet = bench.engine.one_by_one.packet
    bench.engine.one_by_one.packet = lambda *one: plain.append(one) or packet(*one)
    publications = [
        writer.encode_publish(5, b"%s%d" % (topic.encode(), n % 10), b"x%d" % n, 2, retain=True, packet_id=n)
        for n in range(1, count + 1)
    ]
    pubrels = b"".join(b"\x62\x02" + n.to_bytes(2, "big") for n in range(1, count + 1))
    with lane(form):
        device.send(b"".join(publications))
        plain.clear()
        device.send(pubrels)
    assert [packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBCOMP] == list(range(1, count + 1))
    assert len(plain) <= 3
    assert bench.engine.retained.find(f"{topic}0").payload == b"x%d" % count


@pytest.mark.parametrize("form", FORMS)
def test_what_is_released_and_retained_is_within_the_limits_though_much_is_staged(form):
    bench, count = Harness(MAPPING, max_retained=700), 2 * MOST_LOOKED_AT
    device = bench.device(5, "p").connect()
    with lane(form):
        for kind in (0, 1):
            device.send(
                b"".join(
                    b"\x62\x02" + n.to_bytes(2, "big") if kind
                    else writer.encode_publish(5, b"q/%d" % n, b"x", 2, retain=True, packet_id=n)
                    for n in range(1, count + 1)
                )
            )  # fmt: skip
        bench.advance(1.0)
    assert len([packet for packet in device.take() if packet[0] >> 4 == p.PUBCOMP]) == count
    assert len([one for one in bench.engine.retained if one.topic.startswith(b"q/")]) == 700
    assert bench.engine.counters.messages_dropped["_none", "other"] == count - 700


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("topic", ["q/", "w/"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_pubrel_of_what_is_retained_may_come_in_two_pieces(form, topic, cut):
    """Its first three bytes look like those of another packet identifier, which is in flight too."""
    bench, ids = Harness(MAPPING), (3, 1, 256)
    bench.device(5, "s").connect().subscribe("w/#", 0)
    device = bench.device(5, "p").connect()
    with lane(form):
        for n in (1, 3, 256):
            device.send(writer.encode_publish(5, b"%st" % topic.encode(), b"x%d" % n, 2, retain=True, packet_id=n))
        pubrels = b"".join(b"\x62\x02" + n.to_bytes(2, "big") for n in ids)
        device.send(pubrels[: 8 + cut])
        device.send(pubrels[8 + cut :])
    assert [packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBCOMP] == list(ids)
    assert bench.engine.retained.find(f"{topic}t").payload == b"x256"
    assert not any(bench.engine.counters.set_aside.values())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("topic", ["q/", "w/"])
@pytest.mark.parametrize("limits", [{"max_retained": 30}, {"max_retained_bytes": 30 * 60, "max_packet": 100}])
def test_a_topic_that_has_its_room_keeps_it_beside_what_is_released(form, topic, limits):
    """The first and the last packet are of one topic; what the PUBRELs between them release is one too many."""
    bench, front = Harness(MAPPING, **limits), topic.encode()
    bench.device(5, "s").connect().subscribe("w/#", 0)
    device, ids = bench.device(5, "p").connect(), range(1, 31)
    pad = b"x" * (60 - len(front) - 2)

    def published(name, payload, qos, packet_id):
        return writer.encode_publish(5, front + name, payload, qos, retain=True, packet_id=packet_id)

    with lane(form):
        for number in ids:
            device.send(published(b"%02d" % number, pad, 2, number))
        pubrels = b"".join(b"\x62\x02" + number.to_bytes(2, "big") for number in ids)
        device.send(published(b"a", b"1", 1, 100) + pubrels + published(b"a", b"2", 1, 101))
        bench.advance(1.0)
    assert [packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBCOMP] == list(ids)
    kept = {one.topic: one.payload for one in bench.engine.retained if one.topic.startswith(front)}
    assert kept.pop(front + b"a") == b"2"
    assert sorted(kept) == [front + b"%02d" % number for number in ids][:29]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("qos", "number"), [(1, 33), (1, 100), (2, 100), (1, 150)])
def test_a_message_with_many_user_properties_is_no_work_for_the_plain_lane(bench, form, qos, number):
    device, plain = bench.device(5, "p").connect(), list[object]()
    packet = bench.engine.one_by_one.packet
    bench.engine.one_by_one.packet = lambda *one: plain.append(one) or packet(*one)
    users = [(f"n{each}", f"v{each}") for each in range(number)]
    with lane(form):
        for packet_id in (1, 2):
            device.publish("q/1", b"x", qos, packet_id, properties=prop.encode({prop.USER_PROPERTY: users}))
            device.send(b"\x62\x02" + packet_id.to_bytes(2, "big") if qos == 2 else b"")
    rows = list(bench.queues.rows["Q"].values())
    assert len(rows) == 2
    assert all(row[3].count(b"<n") == number for row in rows)
    assert len(plain) == (0 if number <= 100 or form == "python" else 2)
