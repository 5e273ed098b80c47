"""Messages from queues: who gets them, which reports they bring about, and what happens to those that lead nowhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest
from broker_harness import Device, Harness, Queues

from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import PropertyValue, folder
from gateway.mqtt import properties as prop
from gateway.ports.batch import Stored
from gateway.ports.sources import Backout, Incomplete
from gateway.rules.feedback import Feedback

MAPPING = """
version: 1
to_mqtt:
  - {name: down, queue: DOWN.Q, topic: "down/{usr.site}", qos: from_persistence}
  - {name: one, queue: ONE.Q, topic: "cmd", client: "{usr.site}", qos: 1}
  - {name: now, queue: NOW.Q, topic: "cmd", client: "{usr.site}", qos: 0}
  - {name: alarms, mq_topic: "plant/+/alarm"}
  - {name: own, mq_topic: "plant/#", subscription: "all.{gateway}"}
  - {name: strict, queue: STRICT.Q, topic: t, backout: {threshold: 2, queue: STRICT.ASIDE}}
  - {name: lax, queue: LAX.Q, topic: t}
"""
COA, COD, EXCEPTION, EXPIRATION, PAN, NAN, DISCARD = 0x100, 0x800, 0x1000000, 0x200000, 1, 2, 0x8000000
ALL = EXCEPTION | EXPIRATION | PAN | NAN
EXCEPTION_WITH_FULL_DATA = 0x7000000
MQFB_EXPIRATION, MQFB_PAN, MQFB_NAN = 258, 275, 276
PUBACK, PUBREC, PUBCOMP = 4, 5, 7


def message(
    site: str = "lima", body: bytes = b"go", *, report: int = 0, persistence: int = 1, trace: str = "", **fields: Any
) -> tuple[bytes, bytes]:
    """Descriptor and data of what an application puts."""
    pairs: list[tuple[str, PropertyValue]] = [("site", site)]
    if trace:
        pairs.append(("traceparent", trace))
    header = rfh2.build([folder("usr", pairs)], encoding=546, coded_char_set_id=1208, format_name=b"MQSTR   ")
    reply = {"reply_to_q": "REPORTS.Q"} if report else {}
    md = mqmd.build(report=report, persistence=persistence, **reply | fields)
    return mqmd.with_described(md, 546, 1208, b"MQHRF2  "), header + body


def reports(bench: Harness) -> list[int]:
    """Feedback of each report, in order."""
    return [mqmd.unpack(stored.md).feedback for _, stored in bench.queues.load("REPORTS.Q")]


def dead(bench: Harness) -> list[int]:
    return [int.from_bytes(stored.data[8:12], "little") for _, stored in bench.queues.load("DEAD.Q")]


def published(device: Device) -> list[tuple[str, bytes]]:
    return [(packet[1].decode(), packet[4]) for packet in device.take() if packet[0] >> 4 == 3]


def balance(bench: Harness) -> None:
    """Got = handed over + dead-lettered + dropped + returned, for every rule."""
    counters = bench.engine.counters
    for rule in bench.engine.router.table.outbound:
        got = sum(n for (_, one), n in counters.mq_get_messages.items() if one == rule.name)
        sent = sum(n for (one, _), n in counters.mqtt_publish_sent.items() if one == rule.name)
        aside = sum(n for (one, _), n in counters.dlq_messages.items() if one == rule.name)
        dropped = sum(n for (one, _), n in counters.messages_dropped.items() if one == rule.name)
        returned = counters.messages_returned[rule.name]
        assert got == sent + aside + dropped + returned, (rule.name, got, sent, aside, dropped, returned)


@pytest.fixture
def bench() -> Harness:
    return Harness(MAPPING)


def arrive(bench: Harness, queue: str, *messages: tuple[bytes, bytes]) -> None:
    bench.queues.arrive(queue, *messages)
    bench.advance(0.5)


def subscribed(bench: Harness, filter_: str, qos: int, *, version: int = 5, clean: bool = False) -> Device:
    device = bench.device(version, "lima").connect(clean=clean)
    device.subscribe(filter_, qos)
    device.take()
    return device


@pytest.mark.parametrize("clean", [True, False])
def test_pan_is_put_when_the_device_has_acknowledged(bench: Harness, clean: bool) -> None:
    device = subscribed(bench, "down/#", 1, clean=clean)
    arrive(bench, "DOWN.Q", message(report=ALL))
    [packet] = [one for one in device.take() if one[0] >> 4 == 3]
    assert reports(bench) == []
    device.ack(PUBACK, packet[2])
    assert reports(bench) == [MQFB_PAN]
    [(_, report)] = bench.queues.load("REPORTS.Q")
    made = mqmd.unpack(report.md)
    assert (made.msg_type, made.correl_id) == (4, (1 if clean else 3).to_bytes(24, "big"))
    balance(bench)


def test_pan_of_qos_2_waits_for_pubcomp_and_outlives_a_kill(bench: Harness) -> None:
    device = subscribed(bench, "down/#", 2)
    arrive(bench, "DOWN.Q", message(report=PAN))
    [packet] = [one for one in device.take() if one[0] >> 4 == 3]
    device.ack(PUBREC, packet[2])
    bench.kill()
    assert reports(bench) == []
    device = bench.device(5, "lima").connect(clean=False)
    device.ack(PUBCOMP, packet[2])
    assert reports(bench) == [MQFB_PAN]
    device.ack(PUBCOMP, packet[2])
    assert reports(bench) == [MQFB_PAN]


def test_a_device_that_refuses_makes_nan_and_exception(bench: Harness) -> None:
    from gateway.mqtt import writer

    device = subscribed(bench, "down/#", 1)
    arrive(bench, "DOWN.Q", message(report=ALL))
    [packet] = [one for one in device.take() if one[0] >> 4 == 3]
    device.send(writer.encode_ack(5, PUBACK, packet[2], 0x83, {}))
    assert reports(bench) == [MQFB_NAN, Feedback.REJECTED]


def test_qos_0_is_reported_when_it_is_on_the_wire_or_cannot_be(bench: Harness) -> None:
    device = subscribed(bench, "down/#", 0)
    arrive(bench, "DOWN.Q", message(report=ALL, persistence=0))
    assert published(device) == [("down/lima", b"go")]
    assert reports(bench) == [MQFB_PAN]
    device.drop()
    arrive(bench, "DOWN.Q", message(report=ALL, persistence=0))
    assert reports(bench) == [MQFB_PAN, MQFB_NAN, Feedback.DEVICE_UNKNOWN]
    balance(bench)


def test_several_receivers_answer_for_none_so_it_is_reported_when_stored(bench: Harness) -> None:
    devices = [bench.device(5, name).connect(clean=False) for name in ("a", "b")]
    for device in devices:
        device.subscribe("down/#", 1)
    arrive(bench, "DOWN.Q", message(report=ALL))
    assert reports(bench) == [MQFB_PAN]
    assert [published(device) for device in devices] == [[("down/lima", b"go")]] * 2


def test_what_expires_while_the_device_is_away_goes_and_is_reported(bench: Harness) -> None:
    device = subscribed(bench, "nothing", 1)
    device.drop()
    arrive(bench, "ONE.Q", message(report=ALL, expiry=50), message(body=b"stays"), message(body=b"later", expiry=5000))
    assert bench.queues.depth("MQGATE.OUT") == 3
    bench.advance(3)
    assert reports(bench) == []
    bench.kill()
    bench.advance(3)
    assert reports(bench) == [MQFB_EXPIRATION]
    assert bench.queues.depth("MQGATE.OUT") == 2
    device = bench.device(5, "lima").connect(clean=False)
    assert [body for _, body in published(device)] == [b"stays", b"later"]
    balance(bench)


def test_qos_0_for_a_device_that_is_away_has_a_reason_of_its_own(bench: Harness) -> None:
    """Nobody is called at night for it, as for what is lost otherwise."""
    bench.device(5, "lima").connect(clean=False).drop()
    arrive(bench, "NOW.Q", message())
    dropped = {series: count for series, count in bench.engine.counters.messages_dropped.items() if count}
    assert dropped == {("_none", "away"): 1}


@pytest.mark.parametrize("killed", [False, True])
def test_a_session_that_ends_reports_what_it_never_took(bench: Harness, killed: bool) -> None:
    device = bench.device(5, "lima").connect(clean=False)
    arrive(bench, "ONE.Q", message(report=ALL), message())
    device.drop()
    if killed:
        bench.kill()
    bench.device(5, "lima").connect(clean=True)
    assert reports(bench) == [MQFB_NAN, Feedback.SESSION_ENDED]
    assert bench.queues.depth("MQGATE.OUT") == 0


@pytest.mark.parametrize(
    ("options", "made", "letters"),
    [
        (0, [], [Feedback.DEVICE_UNKNOWN]),
        (EXCEPTION, [Feedback.DEVICE_UNKNOWN], [Feedback.DEVICE_UNKNOWN]),
        (EXCEPTION | NAN | DISCARD, [Feedback.DEVICE_UNKNOWN, MQFB_NAN], []),
    ],
)
def test_an_unknown_device(bench: Harness, options: int, made: list[int], letters: list[int]) -> None:
    arrive(bench, "ONE.Q", message("nobody", report=options))
    assert reports(bench) == made
    assert dead(bench) == letters
    assert bench.queues.depth("ONE.Q") == 0
    balance(bench)


def test_a_report_whose_queue_refuses_is_dead_lettered(bench: Harness) -> None:
    bench.queues.refusing["REPORTS.Q"] = 2085
    arrive(bench, "ONE.Q", message("nobody", report=NAN))
    assert dead(bench) == [Feedback.DEVICE_UNKNOWN, 2085]


@pytest.mark.parametrize("queue", ["MQGATE.USERS", "MQGATE.OUT", "SYSTEM.ADMIN.COMMAND.QUEUE"])
def test_no_report_reaches_a_queue_that_only_the_gateway_may_put_on(bench: Harness, queue: str) -> None:
    """Whoever puts on a queue that is consumed chooses where a report goes and what it says, but is not the gateway."""
    forged = message("nobody", b'{"kind": "user"}', report=EXCEPTION_WITH_FULL_DATA, reply_to_q=queue)
    arrive(bench, "ONE.Q", forged)
    assert bench.queues.depth(queue) == 0
    assert dead(bench) == [2035, Feedback.DEVICE_UNKNOWN]
    balance(bench)


def test_a_message_that_cannot_be_dead_lettered_stays_on_its_queue(bench: Harness) -> None:
    """Others of its batch are delivered; it is looked at again, and nothing is counted twice."""
    device = subscribed(bench, "nothing", 1)
    bench.queues.refusing["DEAD.Q"] = 2053
    arrive(bench, "ONE.Q", message(body=b"1"), message("nobody"), message(body=b"2"))
    assert [body for _, body in published(device)] == [b"1", b"2"]
    bench.advance(5)
    assert bench.queues.depth("ONE.Q") == 1
    balance(bench)
    bench.kill()
    bench.queues.refusing.clear()
    bench.queues.consumed["ONE.Q"]()
    bench.advance(3)
    assert bench.queues.depth("ONE.Q") == 0
    assert dead(bench) == [Feedback.DEVICE_UNKNOWN]
    balance(bench)


def test_a_rule_that_cannot_be_built_is_counted(bench: Harness) -> None:
    """No `site` for the topic: the rule's fault; a device that is not known is not."""
    arrive(bench, "ONE.Q", (mqmd.build(persistence=1), b"bare"), message("nobody"))
    counters = bench.engine.counters
    assert dead(bench) == [Feedback.VALUE_MISSING, Feedback.DEVICE_UNKNOWN]
    assert +Counter(counters.transform_errors) == {("one", "template"): 1}
    assert +Counter(counters.dlq_messages) == {("one", "transform"): 1, ("one", "other"): 1}
    balance(bench)


def test_what_a_full_session_refuses_is_dead_lettered_as_queue_full() -> None:
    bench = Harness(MAPPING, max_queued=2, max_inflight=1)
    subscribed(bench, "nothing", 1)
    arrive(bench, "ONE.Q", *(message(body=b"%d" % number) for number in range(5)))
    bench.advance(30)
    counters = bench.engine.counters
    assert set(dead(bench)) == {Feedback.QUEUE_LIMIT}
    assert set(+Counter(counters.dlq_messages)) == {("one", "queue_full")}
    assert not +Counter(counters.messages_dropped)
    balance(bench)


@pytest.mark.parametrize(
    ("queue", "count", "aside"), [("STRICT.Q", 2, "STRICT.ASIDE"), ("LAX.Q", 3, "LAX.ASIDE"), ("LAX.Q", 9, "DEAD.Q")]
)
def test_poison_goes_aside_by_rule_or_by_the_queue_itself(bench: Harness, queue: str, count: int, aside: str) -> None:
    """BOTHRESH and BOQNAME of the queue where the rule names none; without BOQNAME the dead letters."""
    bench.queues.backouts["LAX.Q"] = Backout(3, "LAX.ASIDE" if aside != "DEAD.Q" else "")
    bench.start()
    device = subscribed(bench, "t", 1)
    md, data = message()
    arrive(bench, queue, (mqmd.with_number(md, mqmd.AT_BACKOUT_COUNT, count), data), message(body=b"next"))
    assert [body for _, body in published(device)] == [b"next"]
    [(_, stored)] = bench.queues.load(aside)
    assert stored.data == data if aside != "DEAD.Q" else dead(bench) == [2362]
    assert bench.engine.counters.dlq_messages[queue.removesuffix(".Q").lower(), "backed_out"]


def test_a_topic_is_a_source(bench: Harness) -> None:
    assert bench.queues.subscribed == {"mqgate.alarms": "plant/+/alarm", "all.bench-1": "plant/#"}
    device = subscribed(bench, "#", 1)
    header = rfh2.build(
        [folder("mqps", [("Top", "plant/a/alarm")])], encoding=546, coded_char_set_id=1208, format_name=b""
    )
    md = mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQHRF2  ")
    arrive(bench, "SUB.mqgate.alarms", *[(md, header + b"%d" % number) for number in range(300)])
    for _ in range(5):
        bench.advance(0.5)
    got = [body for _, body in published(device)]
    assert got[:100] == [b"%d" % number for number in range(100)]


def test_what_its_own_devices_published_is_not_published_again(bench: Harness) -> None:
    device = subscribed(bench, "#", 1)
    for gateway, topic in (("bench-1", "plant/a"), ("other", "plant/a"), ("bench-1", "moved")):
        header = rfh2.build(
            [folder("mqps", [("Top", topic)]), folder("mqtt", [("gateway", gateway)])],
            encoding=546, coded_char_set_id=1208, format_name=b"",
        )  # fmt: skip
        md = mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQHRF2  ")
        queue = "SUB.all.bench-1" if topic != "moved" else "LAX.Q"
        arrive(bench, queue, (md, header + gateway.encode()))
    assert published(device) == [("plant/a", b"other"), ("t", b"bench-1")]
    assert bench.engine.counters.messages_returned["own"] == 1
    assert not sum(bench.engine.counters.messages_dropped.values()), "its devices had it from the gateway itself"
    balance(bench)


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CHILD = "00-4bf92f3577b34da6a3ce929d0e0e4736-abababababababab-01"


def test_a_trace_goes_on_to_the_device_with_our_span(bench: Harness) -> None:
    device = subscribed(bench, "down/#", 1)
    arrive(bench, "DOWN.Q", message(trace=TRACE))
    [packet] = [one for one in device.take() if one[0] >> 4 == 3]
    assert prop.decode_publish(packet[3])[0x26] == [("site", "lima"), ("traceparent", CHILD)]


@pytest.mark.parametrize("back", ["defined", "after a reload"])
def test_a_queue_that_is_deleted_and_defined_again_is_consumed_again(back: str) -> None:
    bench = Harness(MAPPING)
    rule = next(one for one in bench.engine.router.table.outbound if one.spec.queue)
    queue = rule.spec.queue or ""
    bench.queues.delete(queue)
    bench.advance(1)
    assert "get: MQRC 2085" in bench.engine.context.problems[f"queue {queue}"]
    bench.advance(30)
    assert "it cannot be consumed: MQRC 2085" in bench.engine.context.problems[f"queue {queue}"]
    bench.queues.gone.clear()
    if back == "after a reload":
        bench.consumers.use(bench.engine.router.table)
    bench.advance(30)
    assert queue in bench.queues.consumed
    assert f"queue {queue}" not in bench.engine.context.problems
    bench.advance(30)
    assert len(bench.consumers._consumed[queue]) == 1


class Telling(Queues):
    """Which says when queues are defined."""

    def tell_defined(self, told: Callable[[Collection[str]], None]) -> None:
        self.told = told


def test_a_queue_that_is_said_to_be_defined_is_consumed_at_once() -> None:
    queues = Telling()
    queues.gone |= {"DOWN.Q", "ONE.Q"}
    bench = Harness(MAPPING, queues=queues)
    bench.advance(1)
    queues.gone.clear()
    queues.told(["DOWN.Q", "OTHER.Q"])
    bench.advance(0)
    assert "DOWN.Q" in queues.consumed
    assert "ONE.Q" not in queues.consumed
    assert "queue DOWN.Q" not in bench.engine.context.problems
    queues.delete("DOWN.Q")
    bench.advance(1)
    queues.gone.clear()
    queues.told(["DOWN.Q"])
    bench.advance(30)
    assert len(bench.consumers._consumed["DOWN.Q"]) == 1


class Gathering(Queues):
    """With parts of groups on its queues that nobody sees, and how often these are looked at."""

    parts = 1000

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def gather(self, queue: str, *, groups: bool) -> None:
        del queue, groups

    def incomplete(self, queue: str) -> Incomplete:
        del queue
        return Incomplete(1, messages=self.parts)

    def fetch(self, queue: str, key: bytes, limit: int, after: Any = None) -> list[Stored]:
        self.looks += queue == "DOWN.Q"
        return super().fetch(queue, key, limit, after)


def test_a_queue_with_much_that_is_incomplete_is_not_looked_at_for_each_arrival() -> None:
    """Each look reads all of it: a long group that is put message by message would have nothing else done here."""
    queues = Gathering()
    bench = Harness(MAPPING, queues)
    device = subscribed(bench, "down/#", 1)
    bench.advance(1)
    before = queues.looks
    for number in range(50):
        queues.arrive("DOWN.Q", message(body=b"%d" % number))
        bench.clock.advance(0.001)
    assert queues.looks - before == 1
    assert published(device) == [("down/lima", b"0")], "the first at once"
    bench.advance(1)
    assert published(device) == [("down/lima", b"%d" % number) for number in range(1, 50)]
    assert queues.looks - before <= 4, "one that finds nothing is the last"
    queues.arrive("DOWN.Q", *(message(body=b"%d" % number) for number in range(450)))
    bench.clock.advance(0.001)
    assert queues.depth("DOWN.Q") == 0, "what fills a unit of work is followed by the next"
    bench.advance(1)
    queues.parts, before = 100, queues.looks
    for number in range(10):
        queues.arrive("DOWN.Q", message(body=b"%d" % number))
        bench.clock.advance(0.001)
    assert queues.looks - before == 20, "little is looked at as ever"
    assert queues.depth("DOWN.Q") == 0
