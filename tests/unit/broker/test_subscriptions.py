"""SUBSCRIBE that meets a defect of the gateway: refused, said and counted, and its client goes on."""

from __future__ import annotations

import json
from itertools import combinations, islice
from typing import Any

import pytest
from broker_harness import Device, Harness

from gateway.broker import context
from gateway.broker.sessions import subscriptions
from gateway.broker.sessions.subscriptions import PLACES, is_entangled
from gateway.broker.slices import SLICE_SECONDS
from gateway.mqtt import client
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Subscribe, Subscription
from gateway.ports.batch import Unit
from gateway.ports.state_queues import OUT, SESSIONS
from gateway.routing.filters import Interest
from gateway.session.record import decode_json
from gateway.session.session import Session

REFUSED = {3: 1, 4: 0x80, 5: 0x83}


@pytest.fixture
def bench() -> Harness:
    found = Harness()
    found.defects = []
    return found


def granted(device: Device) -> list[list[int]]:
    return [packet[1].reasons for packet in device.take() if packet[0] >> 4 == p.SUBACK]


def send(device: Device, *filters: str, packet_id: int = 7) -> None:
    device.send(
        client.encode_subscribe(device.version, Subscribe(packet_id, [Subscription(one, 1) for one in filters]))
    )


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("where", ["access", "router"])
def test_the_filter_that_meets_it_is_refused_alone(
    bench: Harness, version: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = bench.engine
    owner: Any = engine.context.access if where == "access" else engine.router
    name = "may_subscribe" if where == "access" else "subscribe"
    whole = getattr(owner, name)

    def raising(*given: Any) -> Any:
        if "poison/+" in given:
            raise KeyError("a defect")
        return whole(*given)

    monkeypatch.setattr(owner, name, raising)
    device = bench.device(version, "d").connect()
    device.take()
    send(device, "a", "poison/+", "b")
    send(device, "c", packet_id=8)
    assert granted(device) == [[1, REFUSED[version], 1], [1]]
    assert not device.wire.closed
    assert set(engine.sessions.get("d").subscriptions) == {"a", "b", "c"}
    assert len(engine.router.subscriptions) == 3
    assert engine.counters.set_aside["subscription", "ok"] == 1
    assert engine.counters.mqtt_subscriptions_refused["bench", "defect"] == 1
    assert [met.whom for met in bench.defects or ()] == ["poison/+ of d"]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_nothing_is_granted_where_none_of_it_can_be_stored(
    bench: Harness, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = bench.device(version, "d").connect(clean=False)
    send(device, "before")
    device.take()

    def raising(*_given: object) -> None:
        raise KeyError("a defect")

    with monkeypatch.context() as broken:
        broken.setattr(bench.engine.context, "persist", raising)
        send(device, "a", "before")
        assert granted(device) == []
    assert device.wire.closed
    device = bench.device(version, "d").connect(clean=False)
    device.take()
    send(device, "a", "before")
    assert granted(device) == [[1, 1]]
    sender = bench.device(5, "s").connect()
    sender.publish("before", b"x", 0)
    assert [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH] == [b"x"]


def test_retained_messages_that_meet_it_do_not_keep_those_of_the_next_subscription(
    bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = bench.device(5, "d").connect()
    for one in ("a", "b"):
        device.send(b"\x31\x06\0\1" + one.encode() + b"\0" + b"xx")
    device.take()
    access: Any = bench.engine.context.access
    whole = access.may_receive

    def raising(*given: Any) -> Any:
        if given[-1] == "a":
            raise KeyError("a defect")
        return whole(*given)

    monkeypatch.setattr(access, "may_receive", raising)
    send(device, "a", packet_id=1)
    send(device, "b", packet_id=2)
    assert [packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBLISH] == [b"b"]
    assert not device.wire.closed


def _with_retained(count: int) -> Harness:
    bench = Harness()
    sender = bench.device(5, "sender").connect()
    for number in range(count):
        sender.publish(f"kept/{number}", b"x", 1, number + 1, retain=True)
    return bench


def _all_of(device: Device, most: int = 100_000) -> list[bytes]:
    """The topics of what comes while each publication is acknowledged at once; about so many."""
    topics: list[bytes] = []
    while len(topics) < most and (found := [one for one in device.take() if one[0] >> 4 == p.PUBLISH]):
        topics += [one[1] for one in found]
        for one in found:
            device.ack(p.PUBACK, one[2])
        device.bench.advance(0.25)
    return topics


@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_what_is_left_of_retained_messages_comes_over_the_next_connections(version: int, taken_over: bool) -> None:
    """The client finds its session, and does not subscribe again."""
    bench = _with_retained(4000)
    device = bench.device(version, "d").connect(clean=False)
    device.subscribe("kept/#", 1)
    topics = _all_of(device, 500)
    for _ in range(2):
        if not taken_over:
            device.drop()
            bench.advance(5)
        device = bench.device(version, "d").connect(clean=False)
        topics += _all_of(device, 500)
    assert len(topics) < 4000
    topics += _all_of(device)
    assert sorted(topics) == sorted(b"kept/%d" % number for number in range(4000))


def test_what_has_expired_or_changed_meanwhile_is_not_brought_as_it_was() -> None:
    bench = _with_retained(3000)
    sender = bench.device(5, "later").connect()
    expiry = prop.encode({prop.MESSAGE_EXPIRY_INTERVAL: 10})
    sender.publish("kept/2998", b"x", 1, 1, retain=True, properties=expiry)
    device = bench.device(5, "d").connect(clean=False)
    device.subscribe("kept/#", 1)
    topics = _all_of(device, 900)
    device.drop()
    bench.advance(20)
    sender.publish("kept/2999", b"y", 1, 1, retain=True)
    device = bench.device(5, "d").connect(clean=False)
    topics += _all_of(device)
    assert sorted(topics) == sorted(b"kept/%d" % number for number in range(3000) if number != 2998)


def test_a_subscription_that_has_ended_brings_no_more_retained_messages() -> None:
    bench = _with_retained(4000)
    device = bench.device(5, "d").connect(clean=False)
    device.subscribe("kept/#", 1)
    topics = _all_of(device, 500)
    device.unsubscribe("kept/#")
    topics += _all_of(device)
    assert len(topics) < 2500, "what was on its way by then"


def test_of_few_sessions_without_a_connection_it_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others get all of them once more."""
    monkeypatch.setattr(subscriptions, "MOST_LEFT", 2)
    bench = _with_retained(2500)
    for number in range(3):
        device = bench.device(5, f"d{number}").connect(clean=False)
        device.subscribe("kept/#", 1)
        device.drop()
        bench.advance(1)
    found = [_all_of(bench.device(5, f"d{number}").connect(clean=False)) for number in range(3)]
    assert [len({*topics}) for topics in found] == [2500] * 3
    assert len(found[0]) > 2500
    assert [len(topics) for topics in found[1:]] == [2500] * 2


def _record(bench: Harness) -> dict[str, Any]:
    ((_, stored),) = bench.queues.load(SESSIONS)
    return decode_json(stored.data)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_what_is_left_of_retained_messages_comes_after_a_restart(version: int) -> None:
    """From the beginning: nobody knows how far it was."""
    bench = _with_retained(4000)
    device = bench.device(version, "d").connect(clean=False)
    device.subscribe("kept/#", 1)
    topics = _all_of(device, 500)
    assert _record(bench)["retained"] == ["kept/#"]
    for _ in range(2):  # the second one before all have come again
        bench = Harness(queues=bench.queues)
        device = bench.device(version, "d").connect(clean=False)
        topics += _all_of(device, 900)
    assert len({*topics}) < 4000
    topics += _all_of(device)
    assert {*topics} == {b"kept/%d" % number for number in range(4000)}
    assert "retained" not in _record(bench)
    bench = Harness(queues=bench.queues)
    assert not _all_of(bench.device(version, "d").connect(clean=False))


def test_a_subscription_that_ended_before_a_restart_brings_nothing_after_it() -> None:
    bench = _with_retained(4000)
    device = bench.device(5, "d").connect(clean=False)
    device.subscribe("kept/#", 1)
    _all_of(device, 500)
    device.unsubscribe("kept/#")
    _all_of(device)
    assert "retained" not in _record(bench)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_subscription_does_not_get_what_the_one_before_it_had_to_bring(*, restarted: bool) -> None:
    """Retain Handling 2: no retained messages (MQTT 5, 3.8.3.1)."""
    bench = _with_retained(4000)
    device = bench.device(5, "d").connect(clean=False)
    device.subscribe("kept/#", 1)
    device.subscribe("other/#", 1)
    brought = len(_all_of(device, 500))
    device.unsubscribe("kept/#")
    device.subscribe("kept/#", 1, retain_handling=2)
    if restarted:
        bench = Harness(queues=bench.queues)
        device = bench.device(5, "d").connect(clean=False)
    assert brought + len(_all_of(device)) < 2000, "no more than a page"


@pytest.mark.parametrize("count", [0, 5])
def test_few_retained_messages_cost_a_record_in_the_unit_of_work_that_stores_them(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """That they are to come was committed with the subscription."""
    bench = _with_retained(count)
    device = bench.device(5, "d").connect(clean=False)
    written: list[list[str]] = []
    apply = bench.queues._apply

    def counted(unit: Unit) -> None:
        written.append([one.queue for one in unit.replaces] + [puts.queue for puts in unit.puts])
        apply(unit)

    monkeypatch.setattr(bench.queues, "_apply", counted)
    device.subscribe("kept/#", 1)
    assert len(_all_of(device)) == count
    assert [unit for unit in written if unit] == ([[SESSIONS], [SESSIONS, OUT]] if count else [[SESSIONS]])


@pytest.mark.parametrize("version", [4, 5])
def test_an_unsubscribe_that_meets_a_defect_is_told_of_it_filter_by_filter(
    bench: Harness, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    bench.defects = []
    device, sender = bench.device(version, "d").connect(clean=False), bench.device(4, "sender").connect()
    for one in ("good", "bad", "last"):
        device.subscribe(one, 0)
    device.take()
    unsubscribe = bench.engine.router.unsubscribe

    def failing(session: Any, filter_: str) -> None:
        if filter_ == "bad":
            raise ZeroDivisionError
        unsubscribe(session, filter_)

    with monkeypatch.context() as patched:
        patched.setattr(bench.engine.router, "unsubscribe", failing)
        device.send(client.encode_unsubscribe(version, p.Unsubscribe(9, ["good", "bad", "last", "none"])))
    if version == 5:
        ((_, unsuback),) = device.take()
        assert unsuback.reasons == [0, 0x83, 0, 0x11]
    else:
        assert device.wire.closed, "its UNSUBACK could not say that one of them goes on"
        device = bench.device(version, "d").connect(clean=False)
        device.take()
    for one in ("good", "bad", "last") if version == 5 else ("bad",):
        sender.publish(one, b"x")
    assert [packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBLISH] == [b"bad"]
    assert [one.what for one in bench.defects] == ["subscription"]
    sender.publish("still", b"served", 1, 1)
    assert sender.take()[-1][0] >> 4 == p.PUBACK


def alike(levels: int, wildcards: int) -> str:
    return "/".join(["+"] * wildcards + ["x"] * (levels - wildcards))


@pytest.mark.parametrize("filter_", [
    alike(13, 6), alike(20, 3), alike(20, 18), alike(35, 2), alike(126, 1), alike(200, 200), alike(200, 0),
    "+/" * 13 + "#", "$share/g/" + alike(13, 7),
])  # fmt: skip
def test_ordinary_filters_are_not_entangled(filter_: str) -> None:
    assert not is_entangled(filter_)


@pytest.mark.parametrize("filter_", [alike(14, 7), alike(20, 4) + "/#", "$share/g/" + alike(21, 3), alike(200, 100)])
def test_those_that_are_like_many_others_are(filter_: str) -> None:
    assert is_entangled(filter_)


@pytest.mark.parametrize(("version", "refused"), [(4, 0x80), (5, 0x97)])
def test_a_session_has_few_entangled_filters(version: int, refused: int) -> None:
    """A publication on a new topic was looked up in all of them in one turn, at each of several gateways."""
    bench = Harness(max_subscriptions=150)
    device = bench.device(version, "d").connect()
    device.take()
    marked = [set(one) for one in islice(combinations(range(20), 8), 5)]
    filters = ["/".join("+" if at in one else "x" for at in range(20)) for one in marked]
    send(device, *filters[:2])
    send(device, *filters[2:], filters[0], "a/+")
    assert granted(device) == [[1, 1], [1, refused, refused, 1, 1]]
    device.unsubscribe(filters[0])
    send(device, filters[4])
    assert granted(device) == [[1]]
    assert bench.engine.counters.mqtt_subscriptions_refused["bench", "quota"] == 2


@pytest.mark.parametrize("levels", [13, 18, 24])
def test_all_that_are_not_are_looked_at_in_time(levels: int) -> None:
    bench, topic = Harness(max_subscriptions=1_000_000), ["x"] * levels
    subscriptions = bench.engine.router.subscriptions
    for count in range(levels):
        if is_entangled(alike(levels, count)):
            continue
        for one in combinations(range(levels - 1), count):
            filter_ = ["+" if at in one else "x" for at in range(levels)]
            subscriptions.add("who", "/".join([*filter_[:-1], "other"]), Interest(1))
    assert subscriptions.entries_among("/".join(topic), 2 * PLACES) == []


def records(bench: Harness, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whose records are made from now on."""
    made: list[str] = []
    whole = Session.to_record

    def counted(session: Session, now: float, owner: dict[str, Any]) -> bytes:
        made.append(session.client_id)
        return whole(session, now, owner)

    monkeypatch.setattr(Session, "to_record", counted)
    return made


def stored_filters(bench: Harness) -> list[list[str]]:
    """The filters of each record of a session that is committed."""
    rows = [json.loads(data) for *_, data in bench.queues.rows["MQGATE.SESSIONS"].values()]
    return [[name for name, *_ in row["subscriptions"]] for row in rows]


@pytest.mark.parametrize("version", [4, 5])
def test_a_session_that_changes_often_in_a_batch_is_written_once(
    bench: Harness, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = bench.device(version, "d").connect(clean=False)
    made = records(bench, monkeypatch)
    bench.queues.automatic = False
    send(device, "begins/a/commit")
    made.clear()
    for number in range(20):
        send(device, f"f/{number}")
    device.unsubscribe("f/3")
    assert made == []
    bench.queues.commit()
    assert made == ["d"]
    assert len(granted(device)) == 1, "SUBACK before the commit"
    bench.queues.commit()
    assert len(granted(device)) == 20
    assert stored_filters(bench) == [["begins/a/commit", *(f"f/{number}" for number in range(20) if number != 3)]]


def test_a_session_that_ends_in_the_batch_that_changed_it_is_not_written(bench: Harness) -> None:
    device = bench.device(5, "d").connect(clean=False)
    bench.queues.automatic = False
    send(device, "begins/a/commit")
    send(device, "a")
    device.drop()
    bench.device(5, "d").connect()  # Clean Start, no expiry
    while bench.queues.commit():
        pass
    assert stored_filters(bench) == []


def test_what_a_session_has_already_is_subscribed_to_without_writing_it(
    bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = bench.device(5, "d").connect(clean=False)
    send(device, "a", "b")
    made = records(bench, monkeypatch)
    send(device, "b", "a")
    device.unsubscribe("none")
    assert made == []
    device.subscribe("a", 2)
    assert made == ["d"]
    assert granted(device) == [[1, 1], [1, 1], [2]]


def test_one_commit_has_a_few_megabytes_of_subscriptions(bench: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "MOST_SUBSCRIPTIONS", 40)
    engine = bench.engine
    devices = [bench.device(5, f"d{number}").connect(clean=False) for number in range(8)]
    for device in devices:
        send(device, *(f"f/{number}" for number in range(20)))
    bench.queues.automatic = False
    send(devices[-1], "begins/a/commit")
    assert not engine.context.is_full
    for device in devices[:2]:
        send(device, "more")
    assert engine.context.is_full
    bench.queues.commit()
    assert not engine.context.is_full


@pytest.mark.parametrize("durable", [False, True])
def test_very_many_filters_of_a_session_that_ends_are_removed_in_slices(
    durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody waits meanwhile. From the moment in which it ends it gets nothing by them."""
    bench = Harness(max_subscriptions=5000)
    router, device = bench.engine.router, bench.device(5, "s").connect(clean=not durable)
    filters = [*(f"many/{number}" for number in range(3000)), "$share/g/shared"]
    for begin in range(0, len(filters), 1000):
        some = [p.Subscription(one, 1) for one in filters[begin : begin + 1000]]
        device.send(client.encode_subscribe(5, p.Subscribe(1, some)))
    other, publisher = bench.device(5, "o").connect(), bench.device(5, "one").connect()
    other.subscribe("$share/g/shared", 1)
    publisher.publish("many/2999", b"", 1, 1)
    told: list[str] = []
    monkeypatch.setattr(router, "on_interest", lambda filter_, by: told.append(filter_) if by < 0 else None)
    looks = iter(range(1_000_000))
    monkeypatch.setattr(bench.clock, "monotonic", lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 50)
    device.send(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00")
    assert 0 < len(told) < 200
    for number, topic in enumerate(("many/2999", "many/2998", "shared"), 2):
        publisher.publish(topic, topic.encode(), 1, number)
    assert not bench.queues.rows.get("MQGATE.OUT")
    assert [packet[4] for packet in other.take() if packet[0] >> 4 == p.PUBLISH] == [b"shared"]
    bench.advance(1.0)
    assert sorted(told) == sorted(filters)
    assert len(router.subscriptions) == 1


def test_what_a_session_that_ended_had_counts_no_more_while_it_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client may come back at once with as many."""
    bench = Harness(max_subscriptions=2000, max_total_subscriptions=2000)
    filters = [p.Subscription(f"many/{number}", 1) for number in range(2000)]
    bench.device(5, "s").connect().send(client.encode_subscribe(5, p.Subscribe(1, filters)))
    looks = iter(range(1_000_000))
    monkeypatch.setattr(bench.clock, "monotonic", lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 50)
    again = bench.device(5, "s").connect()
    assert not len(bench.engine.router.subscriptions)
    again.send(client.encode_subscribe(5, p.Subscribe(1, filters)))
    assert [{*reasons} for reasons in granted(again)] == [{1}]
    bench.advance(1.0)
    assert len(bench.engine.router.subscriptions) == len(filters)
    again.publish("many/7", b"x", 0)
    assert [packet[4] for packet in again.take() if packet[0] >> 4 == p.PUBLISH] == [b"x"]
