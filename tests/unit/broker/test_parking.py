"""Queues that refuse: what waits, what goes on, what is acknowledged when, and that every message is accounted for."""

from __future__ import annotations

import gc
from collections import Counter
from math import inf
from typing import Any

import pytest
from broker_harness import BoundedQueues, Device, Harness, Queues
from calls import calls
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import FORMS, lane
from refused_queues import FULL, MAPPING, PUBACK, PUBCOMP, PUBREC, PUBREL, balance, bodies
from slow_harness import Slow

from gateway.broker.put_off import SLICE_SECONDS
from gateway.broker.refused.parked import Parked
from gateway.mqtt import writer
from gateway.ports.batch import Unit
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings


@pytest.fixture
def bench() -> Harness:
    return Harness(MAPPING.replace("THEN", "dead_letter"))


def acks(device: Device) -> list[tuple[int, int]]:
    return [(packet[0] >> 4, packet[1]) for packet in device.take() if packet[0] >> 4 in {PUBACK, PUBREC, PUBCOMP}]


def release(device: Device, packet_id: int) -> None:
    device.ack(PUBREL, packet_id)


def test_a_publication_with_two_destinations_waits_alone(bench: Harness) -> None:
    """The other destination, other devices and the rest of the batch go on; both rows are put together."""
    one, other = bench.device(4, "one").connect(), bench.device(4, "other").connect()
    one.take(), other.take()
    bench.queues.refusing["FIRST.Q"] = FULL
    bench.queues.automatic = False
    other.publish("second", b"before", 1, 1)
    one.publish("both/a", b"tied", 1, 1)
    other.publish("second", b"beside", 1, 2)
    while bench.queues.commit():
        pass
    bench.queues.automatic = True
    assert acks(other) == [(PUBACK, 1), (PUBACK, 2)]
    assert acks(one) == []
    assert bodies(bench, "SECOND.Q") == [b"before", b"beside"]
    assert bench.engine.parking.held() == {"both": 1, "both again": 1}
    balance(bench)
    del bench.queues.refusing["FIRST.Q"]
    bench.advance(5)
    assert acks(one) == [(PUBACK, 1)]
    assert bodies(bench, "FIRST.Q") == [b"tied"]
    assert bodies(bench, "SECOND.Q") == [b"before", b"beside", b"tied"]
    assert not bench.engine.parking.linked
    balance(bench)


SEVERAL = """
version: 1
to_mq:
  - {name: one, topic: one, queue: A.Q, continue: true, on_failure: {retry: {times: 9}, then: hold}}
  - {name: and b, topic: one, queue: B.Q}
  - {name: other, topic: other, queue: B.Q, continue: true}
  - {name: and c, topic: other, queue: C.Q}
"""


@pytest.mark.parametrize(("qos", "there"), [(0, [b"2"]), (1, [])])
def test_what_shares_a_queue_with_what_is_refused_waits_where_order_is_kept(qos: int, there: list[bytes]) -> None:
    bench = Harness(SEVERAL)
    device = bench.device(4, "one").connect()
    bench.queues.refusing["A.Q"] = FULL
    device.send(
        writer.encode_publish(4, b"one", b"1", qos, packet_id=qos and 1)
        + writer.encode_publish(4, b"other", b"2", qos, packet_id=qos and 2)
    )
    assert bodies(bench, "B.Q") == bodies(bench, "C.Q") == there
    bench.queues.refusing.clear()
    bench.advance(5)
    assert bodies(bench, "B.Q") == (there or [b"1"]) + ([b"1"] if there else [b"2"])
    balance(bench)


EACH = """
version: 1
to_mq:
  - name: each
    topic: 'each/{device}'
    queue: 'DEVICE.{device}'
    on_failure: {retry: {times: 5, from: 1s, to: 2s}, then: hold}
  - {name: other, topic: 'other', queue: OTHER.Q}
"""


@pytest.mark.parametrize("form", FORMS)
def test_of_queues_in_one_column_the_one_that_refuses_waits_alone(form: str) -> None:
    """The queue manager refuses the column as a whole and says of none which it is: each queue is tried by itself then,
    in order, in one unit with what else there was. Later batches are parted before they are submitted."""
    bench = Harness(EACH)
    devices = {name: bench.device(4, name).connect() for name in "ABC"}
    other = bench.device(4, "other").connect()
    bench.queues.refusing["DEVICE.B"] = FULL
    bench.queues.automatic = False

    def put_by(unit: Unit) -> dict[str, list[bytes]]:
        assert all(puts.queues is None for puts in unit.puts)
        return {puts.queue: [body[-1:] for body in puts.bodies] for puts in unit.puts}

    def all_send(payload: bytes, packet_id: int) -> None:
        sent = [
            (device.connection, writer.encode_publish(4, f"each/{name}".encode(), payload, 1, packet_id=packet_id))
            for name, device in devices.items()
        ]
        bench.engine.received_each([(other.connection, writer.encode_publish(4, b"other", b"0", 0)), *sent, *sent[:1]])
        bench.engine.flush()

    with lane(form):
        all_send(b"1", 1)
        waiting = bench.queues.waiting
        assert any(puts.queues == [f"DEVICE.{name}" for name in "ABCA"] for puts in waiting[0][0].puts)
        assert bench.queues.commit()  # it is refused
        (unit, _), *more = waiting
        assert not more
        assert put_by(unit) == {
            "OTHER.Q": [b"0"], "DEVICE.A": [b"1", b"1"], "DEVICE.B": [b"1"], "DEVICE.C": [b"1"]
        }  # fmt: skip
        assert [acks(device) for device in devices.values()] == [[], [], []]
        while bench.queues.commit():
            pass
        assert [acks(device) for device in devices.values()] == [[(PUBACK, 1)] * 2, [], [(PUBACK, 1)]]
        assert bench.engine.parking.held() == {"each": 1}
        balance(bench)
        all_send(b"2", 2)
        assert put_by(waiting[0][0]).keys() == {"OTHER.Q", "DEVICE.A", "DEVICE.C"}
        while bench.queues.commit():
            pass
    assert [acks(device) for device in devices.values()] == [[(PUBACK, 2)] * 2, [], [(PUBACK, 2)]]
    bench.queues.refusing.clear()
    bench.queues.automatic = True
    bench.advance(5)
    assert acks(devices["B"]) == [(PUBACK, 1), (PUBACK, 2)]
    kept = {name: [body[-1:] for body in bodies(bench, f"DEVICE.{name}")] for name in devices}
    assert kept == {"A": [b"1", b"1", b"2", b"2"], "B": [b"1", b"2"], "C": [b"1", b"2"]}
    balance(bench)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("then", ["dead_letter", "drop", "disconnect"])
def test_what_waits_follows_its_rule_as_it_is_now(qos: int, then: str) -> None:
    """A rule that said `hold` is corrected while its queue refuses: what was held goes the new way, and so does what
    comes now. A rule that is gone leaves what it held."""
    bench = Harness(EACH)
    device, late = bench.device(5, "dev").connect(), bench.device(5, "late").connect()
    bench.queues.refusing["DEVICE.B"] = FULL
    device.publish("each/B", b"held", qos, 1)
    device.ack(PUBREL, 1) if qos == 2 else None
    bench.advance(30)
    assert bench.engine.parking.held() == {"each": 1}
    bench.engine.use(compile_mappings(parse_mappings([("gone.yaml", "version: 1\n")])))
    bench.advance(30)
    assert bench.engine.parking.rows == 1
    changed = EACH.replace("then: hold", f"then: {then}")
    bench.engine.use(compile_mappings(parse_mappings([("changed.yaml", changed)])))
    late.publish("each/B", b"late", 1, 1)
    bench.advance(30)
    assert bench.engine.parking.rows == 0
    assert len(bodies(bench, "DEAD.Q")) == (2 if then == "dead_letter" else 0)
    assert device.wire.closed == late.wire.closed == (then == "disconnect")
    if then != "disconnect":
        assert acks(device) == ([(PUBREC, 1), (PUBCOMP, 1)] if qos == 2 else [(PUBACK, 1)])
    balance(bench)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_overtakes_it_because_packets_in_between_were_put_off(form: str) -> None:
    """Routes that became void while packets waited for their turn are not taken for good when it has come."""
    bench = Slow(MAPPING.replace("THEN", "dead_letter"))
    bench.clock.later = lambda seconds, call: bench.planned.append(call) if seconds < 1 else None
    context = bench.engine.context
    device = bench.device(4, "dev").connect()
    many = [writer.encode_publish(4, b"kept/%d" % one, b"x", 1, retain=True, packet_id=one) for one in range(10, 40)]
    with lane(form):
        context.until = inf
        device.publish("second", b"first", 1, 1)
        bench.queues.refusing["FIRST.Q"] = FULL
        bench.queues.automatic = False
        device.publish("both/a", b"tied", 1, 2)
        context.until = bench.clock.monotonic() + SLICE_SECONDS
        device.send(b"".join(many))
        assert device.connection in bench.engine.put_off
        while not bench.engine.parking.linked:
            assert bench.queues.commit()
        assert device.connection in bench.engine.put_off
        bench.queues.automatic = True
        while bench.queues.commit() or bench.later():
            pass
        assert device.connection not in bench.engine.put_off
        context.until = inf
        device.publish("second", b"behind", 1, 3)
    assert bodies(bench, "SECOND.Q") == [b"first"]
    assert acks(device) == [(PUBACK, 1)], "answers keep their order"
    balance(bench)


@pytest.mark.parametrize("refusing", ["SECOND.Q", "FIRST.Q"])
@pytest.mark.parametrize("queues", [Queues, BoundedQueues])
def test_what_was_noted_when_the_way_is_free_again_is_overtaken_by_nothing(
    queues: type[Queues], refusing: str
) -> None:  # fmt: skip
    """What a device has sent behind a publication with two destinations is under way when that one is over; it has to
    wait in its turn, together with another such publication, and what comes then stays behind it."""
    bench = Harness(MAPPING.replace("THEN", "hold"), queues())
    device, other = bench.device(4, "d").connect(), bench.device(4, "other").connect()
    bench.queues.refusing["SECOND.Q"] = FULL
    device.publish("both/a", b"tied", 1, 1)
    bench.queues.automatic = False
    bench.queues.refusing.clear()
    bench.clock.advance(1)  # the next attempt is under way
    device.publish("first", b"one", 1, 2)
    device.publish("both/a", b"two", 1, 3)
    for number in range(1, 50):
        other.publish("second", b"other", 1, number)
    bench.queues.commit()
    device.publish("first", b"three", 1, 4)
    bench.queues.refusing[refusing] = FULL
    while bench.queues.commit():
        pass
    bench.queues.automatic = True
    bench.queues.refusing.clear()
    bench.advance(20)
    assert bodies(bench, "FIRST.Q") == [b"tied", b"one", b"two", b"three"]
    assert [body for body in bodies(bench, "SECOND.Q") if body != b"other"] == [b"tied", b"two"]
    assert acks(device) == [(PUBACK, number) for number in range(1, 5)]
    assert not bench.engine.parking.linked


def test_what_a_device_sends_behind_it_stays_behind_it(bench: Harness) -> None:
    """A topic whose messages have one destination or two keeps its order on the queue they share."""
    device, other = bench.device(4, "dev").connect(), bench.device(4, "other").connect()
    device.take(), other.take()
    bench.queues.refusing["FIRST.Q"] = FULL
    for number, alarm in enumerate(["false", "true", "false", "true", "false"], 1):
        device.publish("mixed", b'{"alarm": %s, "n": %d}' % (alarm.encode(), number), 1, number)
    device.publish("second", b"also behind", 1, 6)
    other.publish("second", b"not behind", 1, 1)
    assert acks(device) == [(PUBACK, 1)]
    assert acks(other) == [(PUBACK, 1)]
    balance(bench)
    del bench.queues.refusing["FIRST.Q"]
    bench.advance(5)
    assert acks(device) == [(PUBACK, number) for number in range(2, 7)]
    own = [body for body in bodies(bench, "SECOND.Q") if body != b"not behind"]
    assert [body[-2:-1] for body in own] == [b"1", b"2", b"3", b"4", b"5", b"n"] or own[-1] == b"also behind"
    assert [body[-2:-1] for body in own[:5]] == [b"1", b"2", b"3", b"4", b"5"]
    assert [body[-2:-1] for body in bodies(bench, "FIRST.Q")] == [b"2", b"4"]
    balance(bench)
    device.publish("second", b"fast again", 1, 7)
    assert acks(device) == [(PUBACK, 7)]
    assert device.connection.caches[2][b"second"].fast_path


PLACES = {"first": ["FIRST.Q"], "second": ["SECOND.Q"], "both/a": ["FIRST.Q", "SECOND.Q"]}


@settings(max_examples=50)
@example(["first", "first", "slow", "second", "second", "both/a", "commit", "commit", "second"])
@given(
    st.lists(
        st.sampled_from([*PLACES, *PLACES, "FIRST.Q", "SECOND.Q", "wait", "slow", "commit"]), min_size=6, max_size=60
    )
)
def test_nothing_is_acknowledged_before_it_is_on_all_its_queues(steps: list[str]) -> None:
    """What had one destination and waited for two queues was acknowledged with what it had lined up behind."""
    hold = "on_failure: {retry: {times: 2, from: 1s, to: 4s}, then: hold}"
    rules = {"first": "FIRST.Q", "second": "SECOND.Q", "both/a": "FIRST.Q, continue: true", "both/+": "SECOND.Q"}
    lines = [f'  - {{name: "{topic}", topic: "{topic}", queue: {queue}, {hold}}}' for topic, queue in rules.items()]
    bench = Harness("\n".join(["version: 1", "to_mq:", *lines]))
    device = bench.device(4, "dev").connect()
    device.take()
    bench.queues.room |= {"FIRST.Q": 2, "SECOND.Q": 2}
    sent, told = list[str](), list[int]()
    put: dict[str, list[bytes]] = {"FIRST.Q": [], "SECOND.Q": []}
    for step in [*steps, "fast", *["FIRST.Q", "SECOND.Q", "wait"] * 50]:
        if step in PLACES:
            sent.append(step)
            device.publish(step, b"%d" % len(sent), 1, len(sent))
        elif step == "wait":
            bench.advance(4)
        elif step == "slow":
            bench.queues.automatic = False
        elif step == "fast":
            bench.queues.automatic = True
            while bench.queues.commit():
                pass
        elif step == "commit":
            bench.queues.commit()
        else:
            put[step] += bodies(bench, step)
            bench.queues.rows.get(step, {}).clear()
        told += [number for _, number in acks(device)]
        there = {queue: {*bodies(bench, queue), *bodies_before} for queue, bodies_before in put.items()}
        for number in told:
            assert all(b"%d" % number in there[queue] for queue in PLACES[sent[number - 1]])
    assert told == list(range(1, len(sent) + 1))


@pytest.mark.parametrize("qos", [1, 2])
def test_what_follows_while_an_attempt_runs_is_not_lost(bench: Harness, qos: int) -> None:
    device = bench.device(4, "dev").connect(clean=False)
    device.take()
    bench.queues.refusing["FIRST.Q"] = FULL
    for number in range(1, 4):
        device.publish("both/a", b"%d" % number, qos, number)
        if qos == 2:
            release(device, number)
    bench.queues.automatic = False
    bench.clock.advance(1.0)  # the attempt is under way
    device.publish("both/a", b"4", qos, 4)
    while bench.queues.commit():
        pass
    if qos == 2:
        release(device, 4)
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    balance(bench)
    bench.queues.refusing.clear()
    bench.advance(10)
    assert bodies(bench, "FIRST.Q") == bodies(bench, "SECOND.Q") == [b"1", b"2", b"3", b"4"]
    assert not bench.engine.parking.rows
    assert bench.queues.depth("MQGATE.STAGED") == 0
    done = PUBACK if qos == 1 else PUBCOMP
    assert [ack for ack in acks(device) if ack[0] == done] == [(done, number) for number in range(1, 5)]
    balance(bench)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_kill_while_it_waits_neither_loses_nor_doubles(bench: Harness, qos: int) -> None:
    device = bench.device(4, "dev").connect(clean=False)
    bench.queues.refusing["FIRST.Q"] = FULL
    device.publish("both/a", b"x", qos, 1)
    if qos == 2:
        release(device, 1)
    bench.kill()
    bench.queues.refusing.clear()
    device = bench.device(4, "dev").connect(clean=False)
    if qos == 2:
        release(device, 1)
    else:
        device.publish("both/a", b"x", qos, 1, dup=True)
    assert bodies(bench, "FIRST.Q") == bodies(bench, "SECOND.Q") == [b"x"]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("topic", ["first", "both/a"])
def test_nothing_is_acknowledged_while_the_dead_letter_queue_refuses_too(bench: Harness, qos: int, topic: str) -> None:
    """Held for as long as it takes, then dead-lettered once; a kill in between loses nothing."""
    device = bench.device(4, "dev").connect(clean=False)
    device.take()
    bench.queues.refusing.update({"FIRST.Q": FULL, "DEAD.Q": FULL})
    device.publish(topic, b"x", qos, 1)
    if qos == 2:
        release(device, 1)
    bench.advance(60)
    assert (PUBACK, 1) not in (found := acks(device))
    assert (PUBCOMP, 1) not in found
    assert bench.queues.depth("DEAD.Q") == bench.queues.depth("FIRST.Q") == 0
    balance(bench)
    device.publish("second", b"goes on", 1, 9)
    assert b"goes on" in bodies(bench, "SECOND.Q") or topic != "first"
    del bench.queues.refusing["DEAD.Q"]
    bench.advance(60)
    assert acks(device)[-1] == (PUBACK, 9)
    assert bodies(bench, "DEAD.Q") == [b"x"]
    assert bench.queues.depth("MQGATE.STAGED") == 0
    assert b"goes on" in bodies(bench, "SECOND.Q")
    balance(bench)


@pytest.mark.parametrize("reason", [2085, 2035, 2030])
def test_a_dead_letter_queue_that_cannot_be_used_holds_too(bench: Harness, reason: int) -> None:
    device, other = bench.device(4, "dev").connect(), bench.device(4, "other").connect()
    device.take(), other.take()
    bench.queues.refusing.update({"FIRST.Q": 2085, "DEAD.Q": reason})
    device.publish("first", b"x", 1, 1)
    other.publish("second", b"y", 1, 1)
    bench.advance(20)
    assert acks(device) == []
    assert acks(other) == [(PUBACK, 1)]
    bench.queues.refusing.clear()
    bench.advance(20)
    assert acks(device) == [(PUBACK, 1)]
    assert bodies(bench, "DEAD.Q") == [b"x"]
    balance(bench)


def test_acknowledgements_wait_for_every_destination_of_their_batch(bench: Harness) -> None:
    """Two refused queues in one batch of one device: the first one that recovers releases nothing of the other."""
    device = bench.device(4, "dev").connect()
    device.take()
    bench.queues.refusing.update({"FIRST.Q": FULL, "SECOND.Q": FULL})
    bench.queues.automatic = False
    device.publish("first", b"1", 1, 1)
    bench.queues.refusing.clear()
    bench.queues.commit()
    acks(device)
    bench.queues.refusing.update({"FIRST.Q": FULL, "SECOND.Q": FULL})
    from gateway.mqtt import writer

    raw = b"".join(
        writer.encode_publish(4, topic, b"x", 1, packet_id=number)
        for number, topic in enumerate([b"first", b"second"], 2)
    )
    device.send(raw)
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    del bench.queues.refusing["FIRST.Q"]
    bench.advance(1.5)
    assert bodies(bench, "FIRST.Q") == [b"1", b"x"]
    assert acks(device) == []
    bench.queues.refusing.clear()
    bench.advance(10)
    assert acks(device) == [(PUBACK, 2), (PUBACK, 3)]
    balance(bench)


@pytest.mark.parametrize("topic", ["first", "both/a"])
def test_disconnect_is_kept_after_the_retries_and_loses_nothing(topic: str) -> None:
    """QoS 1 is sent again by the device; a released QoS 2 publication is staged again and released once more."""
    bench = Harness(MAPPING.replace("THEN", "disconnect"))
    device = bench.device(5, "dev").connect(clean=False)
    device.take()
    bench.queues.refusing["FIRST.Q"] = FULL
    device.publish(topic, b"one", 1, 1)
    device.publish(topic, b"two", 2, 2)
    release(device, 2)
    bench.advance(20)
    assert device.wire.closed
    assert [packet for packet in device.take() if packet[0] >> 4 in {PUBACK, PUBCOMP}] == []
    assert bench.queues.depth("MQGATE.STAGED") == 1
    assert bodies(bench, "SECOND.Q") == []
    balance(bench)
    bench.queues.refusing.clear()
    device = bench.device(5, "dev").connect(clean=False)
    device.take()
    device.publish(topic, b"one", 1, 1, dup=True)
    release(device, 2)
    assert acks(device) == [(PUBACK, 1), (PUBCOMP, 2)]
    assert Counter(bodies(bench, "FIRST.Q")) == {b"one": 1, b"two": 1}
    assert bench.queues.depth("MQGATE.STAGED") == 0


def test_drop_after_the_retries_is_acknowledged_and_counted() -> None:
    bench = Harness(MAPPING.replace("THEN", "drop"))
    device = bench.device(4, "dev").connect()
    device.take()
    bench.queues.refusing["FIRST.Q"] = FULL
    device.publish("both/a", b"x", 1, 1)
    bench.advance(20)
    assert acks(device) == [(PUBACK, 1)]
    assert bodies(bench, "SECOND.Q") == [b"x"]
    assert bench.engine.counters.messages_dropped["both", "queue_full"] == 1
    balance(bench)


def test_too_long_for_one_of_two_queues(bench: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is too long is dead-lettered for that queue alone; its twin and its neighbours are put."""
    device = bench.device(4, "dev").connect()
    device.take()
    longest: dict[str, int] = {"FIRST.Q": 600}
    refuses = bench.queues.commit

    def max_length(queue: str) -> int:
        return longest.get(queue, 4_194_304)

    def commit() -> bool:
        if bench.queues.waiting:
            unit, _ = bench.queues.waiting[0]
            sizes = [
                len(head) + len(body) - 364
                for puts in unit.puts if puts.queue == "FIRST.Q"
                for head, body in zip(puts.heads, puts.bodies, strict=True)
            ]  # fmt: skip
            bench.queues.refusing = {"FIRST.Q": 2030} if sizes and max(sizes) > 600 else {}
        return refuses()

    monkeypatch.setattr(bench.queues, "max_length", max_length)
    monkeypatch.setattr(bench.queues, "commit", commit)
    device.publish("both/a", b"fits", 1, 1)
    device.publish("both/a", b"x" * 1000, 1, 2)
    device.publish("both/a", b"fits too", 1, 3)
    assert acks(device) == [(PUBACK, 1), (PUBACK, 2), (PUBACK, 3)]
    assert bodies(bench, "FIRST.Q") == [b"fits", b"fits too"]
    assert [len(body) for body in bodies(bench, "SECOND.Q")] == [4, 1000, 8]
    assert [len(body) for body in bodies(bench, "DEAD.Q")] == [1000]
    balance(bench)


def packets(device: Device) -> list[Any]:
    return device.take()


@pytest.mark.parametrize("earlier", [False, True])
def test_a_client_that_leaves_is_not_told_of_what_waits(bench: Harness, earlier: bool) -> None:
    """Its queue refuses before or after it said DISCONNECT: no acknowledgement of that, nor of what came behind."""
    device = bench.device(4, "one").connect()
    device.take()
    bench.queues.refusing["FIRST.Q"] = FULL
    bench.queues.automatic = earlier
    device.publish("first", b"waits", 1, 1)
    device.publish("second", b"goes", 1, 2)
    device.disconnect()
    while bench.queues.commit():
        pass
    assert acks(device) == []
    assert device.wire.closed
    assert bodies(bench, "SECOND.Q") == [b"goes"]
    bench.queues.automatic = True
    del bench.queues.refusing["FIRST.Q"]
    bench.advance(10)
    assert bodies(bench, "FIRST.Q") == [b"waits"]
    balance(bench)


@pytest.mark.parametrize("successor", [False, True])
def test_what_was_parked_is_freed_when_it_is_over(bench: Harness, successor: bool) -> None:
    """Without the collector of cycles: it holds messages, and the gateway asks the collector rarely."""
    device = bench.device(4, "dev").connect()
    gc.collect()
    of_others = {id(one) for one in gc.get_objects() if isinstance(one, Parked)}
    gc.disable()
    try:
        bench.queues.refusing["FIRST.Q"] = FULL
        device.publish("first", b"1", 1, 1)
        if successor:  # it came while an attempt was under way, and was joined to what waited when that had failed
            bench.queues.automatic = False
            bench.clock.advance(1.0)
            device.publish("first", b"2", 1, 2)
            bench.queues.commit()
            bench.queues.automatic = True
        bench.queues.refusing.clear()
        bench.advance(5)
        assert not bench.engine.parking.waiting
        device.publish("second", b"3", 1, 3)  # the last turn is known until the next has been committed
        assert {id(one) for one in gc.get_objects() if isinstance(one, Parked)} <= of_others
    finally:
        gc.enable()


@pytest.mark.parametrize("reason", [2110, 2111, 2115, 2119, 2120, 2190, 2141, 2425])
def test_a_message_that_can_never_be_put_holds_up_nothing(bench: Harness, reason: int) -> None:
    """Conversion, header, format: dead-lettered at once, and what follows it goes on."""
    device = bench.device(4, "dev").connect()
    device.take()
    bench.queues.refusing["FIRST.Q"] = reason
    device.publish("first", b"malformed", 1, 1)
    device.publish("second", b"next", 1, 2)
    assert acks(device) == [(PUBACK, 1), (PUBACK, 2)]
    assert bodies(bench, "SECOND.Q") == [b"next"]
    assert bodies(bench, "DEAD.Q") == [b"malformed"]
    assert not bench.engine.context.held_since
    balance(bench)


@pytest.mark.parametrize("reason", [2003, 2102, 2192, 2195, 2219])
def test_what_the_queue_manager_cannot_do_at_all_is_held(bench: Harness, reason: int) -> None:
    device = bench.device(4, "dev").connect()
    device.take()
    bench.queues.refusing["FIRST.Q"] = reason
    device.publish("first", b"held", 1, 1)
    bench.advance(60)
    assert bench.engine.context.held_since
    assert not acks(device)
    assert not bodies(bench, "DEAD.Q")
    bench.queues.refusing.clear()
    bench.advance(20)
    assert acks(device) == [(PUBACK, 1)]
    assert bodies(bench, "FIRST.Q") == [b"held"]


@pytest.mark.parametrize("reason", [2017, 2041, 2479, 9999])
def test_what_one_destination_cannot_take_now_waits_alone(bench: Harness, reason: int) -> None:
    """An unknown code is among them: it holds up nothing else, and loses nothing."""
    device = bench.device(4, "dev").connect()
    device.take()
    bench.queues.refusing["FIRST.Q"] = reason
    device.publish("first", b"parked", 1, 1)
    bench.device(4, "other").connect().publish("second", b"next", 1, 1)
    assert bodies(bench, "SECOND.Q") == [b"next"]
    assert bench.engine.parking.held() == {"first": 1}
    bench.queues.refusing.clear()
    bench.advance(5)
    assert bodies(bench, "FIRST.Q") == [b"parked"]
    assert acks(device) == [(PUBACK, 1)]


@pytest.mark.parametrize(
    ("reason", "label"), [(2053, "queue_full"), (2051, "put_inhibited"), (2110, "other"), (2190, "other")]
)
def test_a_dead_letter_is_counted_by_its_reason(bench: Harness, reason: int, label: str) -> None:
    """The buffer's part of this is in unit/backends/buffer/test_queue_manager.py, with the same codes and labels."""
    device = bench.device(4, "dev").connect()
    bench.queues.refusing["FIRST.Q"] = reason
    device.publish("first", b"refused", 1, 1)
    bench.advance(60)
    assert +Counter(bench.engine.counters.dlq_messages) == {("first", label): 1}


def test_of_dead_letters_one_is_named_with_client_topic_and_queue() -> None:
    bench = Harness(
        "version: 1\nto_mq: [{name: lost, topic: 'lost/#', queue: LOST.Q, on_failure: {then: dead_letter}}]\n"
    )
    bench.queues.refusing["LOST.Q"] = 2085
    device = bench.device(4, "line-7")
    device.connect()
    device.publish("lost/x", b"1", 1, 1)
    bench.advance(0)
    (series,) = [one for one, count in bench.engine.context.counters.dlq_messages.items() if count]
    assert bench.engine.context.counters.examples.take("dlq_messages", series) == [
        {"client_id": "line-7", "topic": "lost/x", "queue": "LOST.Q"}
    ]


@pytest.mark.parametrize(("qos", "room"), [(1, 1), (1, 4), (1, 7), (2, 1), (2, 5)])
def test_more_than_a_queue_may_hold_goes_as_room_comes(qos: int, room: int) -> None:
    """All of it in one unit of work would never fit: in order, once each, and acknowledged when all of a device is
    there."""
    bench = Harness(MAPPING.replace("times: 2, ", "").replace("THEN", "hold"))
    devices = [bench.device(4, f"d{number}").connect() for number in range(3)]
    bench.queues.refusing["FIRST.Q"] = FULL
    for number in range(1, 9):
        for device in devices:
            device.publish("first", b"%d of %s" % (number, device.client_id.encode()), qos, number)
            if qos == 2:
                release(device, number)
    for device in devices:
        device.take()
    del bench.queues.refusing["FIRST.Q"]
    bench.queues.room["FIRST.Q"] = room
    seen: list[bytes] = []
    for _ in range(200):
        bench.advance(5)
        found = bodies(bench, "FIRST.Q")
        assert len(found) <= room
        balance(bench)
        seen += found
        bench.queues.rows["FIRST.Q"].clear()
        if len(seen) == 24:
            break
        devices[0].publish("second", b"goes on", 0)
    assert len(seen) == 24
    for device in devices:
        own = [body for body in seen if body.endswith(device.client_id.encode())]
        assert own == sorted(own), "in order"
        kinds = [kind for kind, _ in acks(device)]
        assert kinds.count(PUBACK if qos == 1 else PUBCOMP) == 8
    assert not bench.engine.parking.waiting
    assert not bench.engine.parking.deferred
    assert (bench.engine.parking.rows, bench.engine.parking.unanswered) == (0, 0)


def test_what_comes_while_parts_wait_stays_behind_them() -> None:
    bench = Harness(MAPPING.replace("times: 2, ", "").replace("THEN", "hold"))
    device = bench.device(4, "d").connect()
    bench.queues.room["FIRST.Q"] = 2
    for number in range(1, 8):
        device.publish("first", b"%d" % number, 1, number)
    bench.advance(5)
    for number in range(8, 13):
        device.publish("first", b"%d" % number, 1, number)
    seen: list[bytes] = []
    for _ in range(40):
        seen += bodies(bench, "FIRST.Q")
        bench.queues.rows["FIRST.Q"].clear()
        bench.advance(5)
    assert seen == [b"%d" % number for number in range(1, 13)]
    assert sorted(acks(device)) == [(PUBACK, number) for number in range(1, 13)]
    balance(bench)


def test_patience_that_is_used_up_is_so_for_all_parts() -> None:
    bench = Harness(MAPPING.replace("THEN", "dead_letter"))
    device = bench.device(4, "d").connect()
    bench.queues.room["FIRST.Q"] = 2
    for number in range(1, 12):
        device.publish("first", b"%d" % number, 1, number)
    bench.advance(30)
    assert len(bodies(bench, "FIRST.Q")) == 2
    assert bench.engine.parking.held() == {}
    assert sorted(acks(device)) == [(PUBACK, number) for number in range(1, 12)]
    balance(bench)


ARCHIVED = """
version: 1
to_mq:
  - {name: each, topic: "device/{id}", queue: "DEVICE.{id}", continue: true, on_failure: {retry: RETRY, then: THEN}}
  - {name: all, topic: "device/+", queue: ARCHIVE}
"""


def _calls_of_two_batches(then: str, count: int) -> int:
    """In each every device has sent something, and all their queues refuse."""
    bench = Harness(ARCHIVED.replace("THEN", then).replace("RETRY", "{times: 0}"))
    devices = [bench.device(4, f"d{number}").connect() for number in range(count)]
    bench.queues.refusing = {f"DEVICE.D{number}": FULL for number in range(count)}
    made = 0
    for packet_id in (1, 2):
        for number, device in enumerate(devices):
            packet = writer.encode_publish(4, b"device/d%d" % number, b"x", 1, packet_id=packet_id)
            bench.engine.received_each([(device.connection, packet)])
        made += calls(bench.engine.flush)
    assert bench.engine.parking.rows == (4 * count if then == "hold" else 0)
    return made


@pytest.mark.parametrize("then", ["hold", "dead_letter"])
def test_many_queues_that_refuse_take_a_time_in_proportion_to_their_number(then: str) -> None:
    """What goes to each of them goes to a common queue, too."""
    assert _calls_of_two_batches(then, 200) < 6 * _calls_of_two_batches(then, 50)


class NotLookedThrough(dict[Any, Any]):
    """Each is asked for by its address."""

    def values(self) -> Any:
        raise AssertionError("there may be one for each of ten thousand devices")


def test_who_is_over_looks_through_none_of_the_others() -> None:
    rule = "{name: each, topic: 'device/{id}', queue: 'DEVICE.{id}', on_failure: {then: hold}}"
    bench = Harness(f"version: 1\nto_mq:\n  - {rule}\n")
    device = bench.device(4, "d").connect()
    bench.queues.refusing = {f"DEVICE.D{number}": FULL for number in range(20)}
    for packet_id in range(1, 21):
        device.publish(f"device/d{packet_id - 1}", b"x", 1, packet_id)
    parking = bench.engine.parking
    assert len(parking.waiting) == 20
    parking.waiting = NotLookedThrough(parking.waiting)
    bench.queues.refusing = {}
    bench.advance(600)
    assert parking.waiting == {}
    assert acks(device) == [(PUBACK, packet_id) for packet_id in range(1, 21)]


@pytest.mark.parametrize("behind", [(), (2,)], ids=["alone", "with another publication"])
def test_a_client_that_is_back_and_releases_again_is_told_once_it_is_over(bench: Harness, behind: tuple[int]) -> None:
    """Also where it has sent something for the same queue again, of which it is told behind that."""
    bench.queues.refusing["FIRST.Q"] = FULL
    device = bench.device(4, "one").connect(clean=False)
    device.publish("both/a", b"released", 2, 1)
    release(device, 1)
    device.drop()
    device = bench.device(4, "one").connect(clean=False)
    for packet_id in behind:
        device.publish("both/a", b"again", 1, packet_id)
    release(device, 1)
    assert acks(device) == []
    del bench.queues.refusing["FIRST.Q"]
    bench.advance(5)
    assert sorted(acks(device)) == [*((PUBACK, packet_id) for packet_id in behind), (PUBCOMP, 1)]
    assert bodies(bench, "FIRST.Q").count(b"released") == 1


def test_a_defect_in_answering_one_client_holds_up_neither_the_others_nor_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor what is lined up behind it, for another queue."""
    bench = Harness(MAPPING.replace("THEN", "hold"))
    bench.defects = []
    one, *others = [bench.device(4, f"d{number}").connect() for number in range(9)]
    bench.queues.refusing.update({"FIRST.Q": FULL, "SECOND.Q": FULL})
    for number, topic in enumerate(["first", "second", "both/a"], 1):
        one.publish(topic, topic.encode(), 1, number)
    for other in others:
        other.publish("first", b"other", 1, 1)
    del bench.queues.refusing["SECOND.Q"]
    bench.advance(5)
    assert bodies(bench, "SECOND.Q") == [b"second"], "what else goes there is behind the other queue"
    send = bench.engine.context.send

    def fails_for_one(connection: Any, data: bytes) -> None:
        if connection is one.connection:
            raise KeyError("a defect")
        send(connection, data)

    monkeypatch.setattr(bench.engine.context, "send", fails_for_one)
    bench.queues.refusing.clear()
    bench.advance(20)
    assert bodies(bench, "FIRST.Q") == [b"first", *[b"other"] * 8, b"both/a"]
    assert bodies(bench, "SECOND.Q") == [b"second", b"both/a"]
    assert [acks(other) for other in others] == [[(PUBACK, 1)]] * 8
    assert one.wire.closed, "it comes back, and sends what it was not told of"
    assert [(met.what, met.whom) for met in bench.defects] == [("connection", "d0")]
    parking = bench.engine.parking
    assert (parking.waiting, parking.deferred, parking.linked, parking.rows) == ({}, {}, {}, 0)
    balance(bench)
