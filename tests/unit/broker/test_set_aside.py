"""What meets a defect is set aside, whole and once; everything else goes on."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device, Harness
from refused_queues import FULL

from gateway.bridge import payload, set_aside
from gateway.broker.refused.set_aside import NOTICE_SECONDS, SUSPECT_SECONDS, Defect
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.ports.state_queues import OUT, RETAINED, SESSIONS, SET_ASIDE, STAGED, WILLS
from gateway.session.record import encode_json, key_of

MAPPING = """version: 1
to_mq:
  - {name: both, topic: "both/#", queue: FIRST.Q, continue: true}
  - {name: poison, topic: "both/poison", queue: "SECOND.{client}", properties: {t: "{json.t}"}}
  - {name: rest, topic: "#", queue: REST.Q}
to_mqtt:
  - {name: out, queue: OUT.Q, topic: "out/{usr.to}", qos: 1}
  - {name: all, queue: ALL.Q, topic: "out/all", qos: 1}
"""


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """The payload `poison` is a defect: it raises where a rule reads the document, after the first row was appended."""
    parse = payload._parse

    def raising(raw: bytes) -> object:
        if raw == b"poison":
            raise KeyError("half\ud800")
        return parse(raw)

    monkeypatch.setattr(payload, "_parse", raising)


def aside(bench: Harness) -> list[set_aside.Undone]:
    """What is set aside, in order."""
    return [set_aside.strip(row[2], row[3]) for _, row in sorted(bench.queues.rows.get(SET_ASIDE, {}).items())]


def bodies(bench: Harness, queue: str) -> list[bytes]:
    rows = bench.queues.rows.get(queue, {})
    return [row[3][-6:] for _, row in sorted(rows.items())]


def answers(device: Device, kind: int) -> list[Any]:
    return [packet for packet in device.take() if packet[0] >> 4 == kind]


def counted(bench: Harness, what: str, result: str = "ok") -> int:
    return bench.engine.counters.set_aside[what, result]


@pytest.fixture
def bench() -> Harness:
    made = Harness(MAPPING)
    made.defects = []
    return made


# -- publications --


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publication_costs_the_connection_once_and_then_is_set_aside(bench: Harness, version: int, qos: int) -> None:
    kind = p.PUBACK if qos == 1 else p.PUBREC
    device = bench.device(version, "d").connect(clean=False)
    device.publish("both/poison", b"before", qos, 1)
    answered = [packet for packet in device.take() if packet[0] >> 4 == kind]
    assert len(answered) == 1
    if qos == 2:
        device.ack(p.PUBREL, 1)
        device.take()
    device.publish("both/poison", b"poison", qos, 2)
    if qos == 2 and not device.wire.closed:  # staged: the defect is met when it is released
        device.ack(p.PUBREL, 2)
    assert device.wire.closed
    assert not aside(bench) or aside(bench)[0].said["what"] == "connection"
    assert bodies(bench, "FIRST.Q") == [b"before"]  # nothing of it half done
    device = bench.device(version, "d").connect(clean=False)
    device.take()
    if qos == 1:
        device.publish("both/poison", b"poison", qos, 2, dup=True)
        (answer,) = answers(device, p.PUBACK)
        assert answer[2] == (0x83 if version == 5 else 0)
    else:
        device.ack(p.PUBREL, 2)
        assert len(answers(device, p.PUBCOMP)) == 1
        assert not bench.queues.rows[STAGED]
    assert not device.wire.closed
    (kept,) = [one for one in aside(bench) if one.said["what"] == "publication"]
    assert (kept.data, kept.said["topic"], kept.said["qos"], kept.said["client"]) == (
        b"poison",
        "both/poison",
        qos,
        "d",
    )
    assert "KeyError" in str(kept.said["reason"])
    assert "Traceback" in str(kept.said["traceback"])
    assert bodies(bench, "FIRST.Q") == [b"before"]
    device.publish("both/fine", b"after!", 1, 3)
    assert len(answers(device, p.PUBACK)) == 1
    assert bodies(bench, "FIRST.Q") == [b"before", b"after!"]
    assert counted(bench, "publication") == 1
    assert counted(bench, "connection") == 1


@pytest.mark.usefixtures("poison")
def test_others_of_the_same_chunk_and_batch_are_committed(bench: Harness) -> None:
    from gateway.mqtt import writer

    other, device = bench.device(4, "other").connect(), bench.device(4, "d").connect()
    device.take()
    other.take()
    bench.queues.automatic = False
    other.publish("plain", b"other!", 1, 1)
    chunk = b"".join(
        writer.encode_publish(4, topic, body, 1, packet_id=number)
        for number, (topic, body) in enumerate([(b"plain", b"first!"), (b"both/poison", b"poison")], 1)
    )
    device.send(chunk)
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    assert device.wire.closed
    assert bodies(bench, "REST.Q") == [b"other!", b"first!"]
    assert len(answers(other, p.PUBACK)) == 1
    assert not bodies(bench, "FIRST.Q")


@pytest.mark.usefixtures("poison")
def test_a_publication_is_not_acknowledged_when_the_queue_takes_no_more(bench: Harness) -> None:
    bench.queues.refusing[SET_ASIDE] = FULL
    for _ in range(3):
        device = bench.device(5, "d").connect(clean=False)
        device.take()
        device.publish("both/poison", b"poison", 1, 1)
        assert not answers(device, p.PUBACK)
        assert device.wire.closed
    assert counted(bench, "publication", "failed") == 2
    bench.queues.refusing.clear()
    device = bench.device(5, "d").connect(clean=False)
    device.take()
    device.publish("both/poison", b"poison", 1, 1)
    assert answers(device, p.PUBACK)[0][2] == reasons.IMPLEMENTATION_SPECIFIC_ERROR
    assert [one.data for one in aside(bench) if one.said["what"] == "publication"] == [b"poison"]


@pytest.mark.usefixtures("poison")
def test_properties_and_aliases_are_kept(bench: Harness) -> None:
    for _ in range(2):
        device = bench.device(5, "d").connect(clean=False)
        device.publish("both/poison", b"before", 0, properties=prop.encode({prop.TOPIC_ALIAS: 1}))
        device.publish("", b"poison", 1, 2, properties=prop.encode({prop.TOPIC_ALIAS: 1, prop.CONTENT_TYPE: "x"}))
    (kept,) = [one for one in aside(bench) if one.said["what"] == "publication"]
    assert kept.said["topic"] == "both/poison"
    assert prop.decode(kept.said["properties"], p.PUBLISH) == {prop.CONTENT_TYPE: "x"}


# -- wills and lost connections --


@pytest.mark.usefixtures("poison")
def test_a_will_is_set_aside_and_its_connection_ends_in_order(bench: Harness) -> None:
    device = bench.device(4, "d").connect(clean=False, will=p.Will("both/poison", b"poison", 1, retain=False))
    device.subscribe("news", 1)
    device.drop()
    (kept,) = aside(bench)
    assert (kept.said["what"], kept.said["whom"], kept.said["queue"]) == ("will", "d", WILLS)
    assert not bench.queues.rows[WILLS]
    assert not bodies(bench, "FIRST.Q")
    bench.kill()
    assert len(aside(bench)) == 1
    device = bench.device(4, "d").connect(clean=False)
    assert device.take()[0][1].session_present
    defect: Defect = bench.defects[0]
    assert (defect.what, defect.whom, defect.kept) == ("will", "d", True)


@pytest.mark.usefixtures("poison")
def test_a_will_stays_where_it_is_when_the_queue_takes_no_more(bench: Harness) -> None:
    bench.queues.refusing[SET_ASIDE] = FULL
    device = bench.device(4, "d").connect(clean=False, will=p.Will("both/poison", b"poison", 1, retain=False))
    device.drop()
    assert len(bench.queues.rows[WILLS]) == 1
    bench.kill()  # and a start does not fail either
    assert len(bench.queues.rows[WILLS]) == 1
    assert counted(bench, "will", "failed") == 1
    bench.queues.refusing.clear()
    bench.kill()
    assert [one.said["what"] for one in aside(bench)] == ["will"]
    assert not bench.queues.rows[WILLS]


# -- records at start --


def test_a_start_survives_every_record(bench: Harness) -> None:
    away = bench.device(5, "away").connect(clean=False, will=p.Will("rest/will", b"will", 1, retain=False))
    away.subscribe("news/#", 2)
    away.publish("rest", b"staged", 2, 9)
    away.drop()
    fine = bench.device(5, "fine").connect(clean=False)
    fine.subscribe("news/#", 2)
    fine.publish("kept", b"kept", 1, 1, retain=True)
    fine.publish("news/1", b"news", 2, 2)
    fine.ack(p.PUBREL, 2)
    fine.drop()
    rows = bench.queues.rows
    key = key_of("away")
    broken = {SESSIONS: key, RETAINED: key_of(b"no"), STAGED: key_of("fine"), WILLS: key_of("no"), OUT: key_of("fine")}
    for number, (queue, of) in enumerate(broken.items()):
        queue_rows = rows.setdefault(queue, {})
        for token in [token for token, row in queue_rows.items() if queue == SESSIONS and row[1] == of]:
            del queue_rows[token]
        queue_rows[9000 + number] = (0, of, bytes(364), b"\x00 no record")
        bench.queues._priorities[9000 + number] = 0
    bench.kill()
    whats = sorted(str(one.said["what"]) for one in aside(bench))
    assert whats == ["retained", "session", "staged", "staged", "stored", "stored", "will"]
    assert all(one.said["reason"] for one in aside(bench))
    fine = bench.device(5, "fine").connect(clean=False)
    packets = fine.take()
    assert packets[0][1].session_present
    assert [packet[4] for packet in packets if packet[0] >> 4 == p.PUBLISH] == [b"news"]
    away = bench.device(5, "away").connect(clean=False)
    assert not away.take()[0][1].session_present
    assert not [row for row in rows[OUT].values() if row[1] == key]
    before = len(aside(bench))
    bench.kill()
    assert len(aside(bench)) == before


def test_records_stay_when_the_queue_takes_no_more(bench: Harness) -> None:
    bench.queues.rows[SESSIONS] = {1: (0, key_of("x"), bytes(364), b"{")}
    bench.queues.rows[RETAINED] = {2: (0, key_of("y"), bytes(364), b"\x01")}
    bench.queues.rows[STAGED] = {3: (0, key_of("x"), bytes(364), b"staged")}
    bench.queues.refusing[SET_ASIDE] = FULL
    bench.kill()
    assert [len(bench.queues.rows[queue]) for queue in (SESSIONS, RETAINED, STAGED)] == [1, 1, 1]
    assert not bench.queues.rows.get(SET_ASIDE)
    device = bench.device(4, "d").connect()
    device.publish("plain", b"served", 1, 1)
    assert len(answers(device, p.PUBACK)) == 1


# -- consumed messages, sessions, timers --


def test_a_message_from_a_queue_is_set_aside_and_the_others_are_delivered(
    bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.bridge import outbound
    from gateway.mq import mqmd

    first = outbound.first_publication

    def raising(rules: Any, md: bytes, data: bytes) -> Any:
        if data == b"poison":
            raise RuntimeError("here")
        return first(rules, md, data)

    monkeypatch.setattr(outbound, "first_publication", raising)
    device = bench.device(4, "d").connect(clean=False)
    device.subscribe("out/#", 1)
    device.take()
    md = mqmd.build(persistence=1, correl_id=b"mine".ljust(24), priority=4)
    bench.queues.arrive("ALL.Q", *[(md, data) for data in (b"first", b"poison", b"last")])
    bench.clock.run()
    assert [packet[4] for packet in answers(device, p.PUBLISH)] == [b"first", b"last"]
    assert not bench.queues.rows["ALL.Q"]
    (kept,) = aside(bench)
    assert (kept.said["what"], kept.said["queue"], kept.data) == ("queue_message", "ALL.Q", b"poison")
    assert kept.md[mqmd.CORREL_ID] == b"mine".ljust(24)
    assert not counted(bench, "queue_message", "failed")


def test_a_timer_that_fails_is_noted_once_and_the_others_run(bench: Harness) -> None:
    ran: list[int] = []

    def failing() -> None:
        raise ValueError("timer")

    for number in range(3):
        bench.engine.context.scheduler.later(1.0, failing)
        bench.engine.context.scheduler.later(1.0, lambda number=number: ran.append(number))
    bench.advance(2)
    bench.engine.flush()
    assert ran == [0, 1, 2]
    assert counted(bench, "call") == 3
    assert [one.said["what"] for one in aside(bench)] == ["call"]
    assert bench.engine.context.set_aside.last.startswith("call ")


@pytest.mark.parametrize("jump", [-1e8, 1e8])
def test_a_client_is_looked_at_for_an_hour_whatever_the_time_of_day_does(
    bench: Harness, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    suspects, device = bench.engine.context.set_aside, bench.device(5, "d").connect()
    suspects.suspect(device.connection)
    clock, now = bench.clock, bench.clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + jump)
    bench.engine.context.now = clock.now()
    assert suspects.is_suspect(device.connection)
    clock.time += SUSPECT_SECONDS + 1
    bench.engine.context.now = clock.now()
    assert not suspects.is_suspect(device.connection)


@pytest.mark.parametrize("jump", [-1e8, 1e8])
def test_a_defect_is_noted_once_an_hour_whatever_the_time_of_day_does(
    bench: Harness, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    clock, now, context = bench.clock, bench.clock.now, bench.engine.context

    def noted() -> int:
        context.set_aside.keep("call", "a timer", KeyError("x"))
        bench.engine.flush()
        return len(aside(bench))

    assert noted() == 1
    monkeypatch.setattr(clock, "now", lambda: now() + jump)
    context.now = clock.now()
    assert noted() == 1
    clock.time += NOTICE_SECONDS + 1
    context.now = clock.now()
    assert noted() == 2


def test_an_item_that_cannot_be_sent_is_set_aside_and_the_next_goes_out(
    bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.session.publication import Publication

    wire = Publication.wire

    def raising(self: Publication, *args: Any) -> Any:
        if self.payload == b"poison":
            raise IndexError("wire")
        return wire(self, *args)

    monkeypatch.setattr(Publication, "wire", raising)
    device = bench.device(4, "d").connect(clean=False)
    device.subscribe("news", 1)
    device.take()
    other = bench.device(5, "other").connect()
    alone = prop.encode({prop.USER_PROPERTY: [("traceparent", "x")]})  # such ones are sent one by one
    for number, body in enumerate((b"first!", b"poison", b"after!"), 1):
        other.publish("news", body, 1, number, properties=alone)
    assert [packet[4] for packet in answers(device, p.PUBLISH)] == [b"first!", b"after!"]
    assert not device.wire.closed
    (kept,) = aside(bench)
    assert (kept.said["what"], kept.said["queue"]) == ("stored", OUT)
    assert bench.engine.sessions.get("d").stored == 2


@pytest.mark.parametrize("step", ["answers.acknowledge", "in_flight.deliver", "context.on_committed"])
def test_what_follows_a_commit_may_fail(bench: Harness, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Who waits for an answer comes back; nothing that is committed is lost, and the others are served."""
    device = bench.device(5, "d").connect(clean=False)
    device.subscribe("both/#", 1)
    device.take()
    part, _, name = step.partition(".")
    owner = getattr(bench.engine, part) if part != "context" else bench.engine.context

    def failing(*_args: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, failing)
        device.publish("both/a", b"first!", 1, 1)
    other = bench.device(4, "other").connect()
    other.publish("both/b", b"other!", 1, 1)
    assert len(answers(other, p.PUBACK)) == 1
    if device.wire.closed:
        device = bench.device(5, "d").connect(clean=False)
    assert {packet[4] for packet in answers(device, p.PUBLISH)} == {b"first!", b"other!"}
    bench.kill()
    assert bodies(bench, "FIRST.Q") == [b"first!", b"other!"]
    device = bench.device(5, "d").connect(clean=False)
    assert {packet[4] for packet in answers(device, p.PUBLISH)} == {b"first!", b"other!"}


def test_a_refused_commit_that_cannot_be_handled_comes_again(bench: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_args: Any) -> None:
        raise ZeroDivisionError

    device = bench.device(4, "d").connect()
    device.take()
    bench.queues.refusing["FIRST.Q"] = FULL
    with monkeypatch.context() as patched:
        patched.setattr(bench.engine.failures, "handle", failing)
        device.publish("both/a", b"first!", 1, 1)
        bench.advance(1)
        assert not device.take()
    bench.queues.refusing.clear()
    bench.advance(30)
    assert len(answers(device, p.PUBACK)) == 1
    assert bodies(bench, "FIRST.Q") == [b"first!"]


# -- the message --


def test_what_is_said_can_always_be_written() -> None:
    said = {"reason": "\ud800 \x00 <&'\">", "traceback": "x" * 10_000, "key": b"\xff\x00", "n": 3}
    from gateway.mq import mqmd

    md = mqmd.build(persistence=0, expiry=50)
    made = set_aside.build(md, b"data", said)
    back = set_aside.strip(made.head[:364], made.head[364:] + made.body)
    assert back.said["reason"] == "\\ud800 ? <&'\">"
    assert len(str(back.said["traceback"])) == set_aside.LONGEST_TEXT
    assert (back.said["key"], back.said["n"], back.data) == (b"\xff\x00", 3, b"data")
    assert mqmd.number(back.md, mqmd.AT_PERSISTENCE) == 1
    assert back.md[mqmd.FORMAT] == md[mqmd.FORMAT]


def test_a_replayed_will_is_published_under_its_own_key(bench: Harness) -> None:
    """The will of a connection of the same client is not touched."""
    subscriber = bench.device(4, "s").connect()
    subscriber.subscribe("both/#", 1)
    subscriber.take()
    bench.device(4, "d").connect(clean=False, will=p.Will("both/own", b"mine", 1, retain=False))
    record = {
        "client": "d", "topic": "both/again", "payload": b"again!".hex(), "qos": 1, "retain": False, "properties": "",
        "delay": 0, "version": 4, "user": None, "listener": "", "replayed": True,
    }  # fmt: skip
    key = key_of("replayed 1")
    bench.engine.context.batch.replace(WILLS, key, encode_json(record))
    bench.engine.flush()
    bench.engine.wills.republish(key, record)
    bench.engine.flush()
    assert bodies(bench, "FIRST.Q") == [b"again!"]
    assert [packet[4] for packet in answers(subscriber, p.PUBLISH)] == [b"again!"]
    assert [row[1] for row in bench.queues.rows[WILLS].values()] == [key_of("d")]
