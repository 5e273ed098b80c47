"""Publications with several destinations while some of these refuse: no queue gets them in another order than a client
sent them in, all of them come once, and their acknowledgements come in that order too."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from broker_harness import Device, Harness
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import FORMS, lane

from gateway.mqtt import packets as p
from gateway.mqtt import writer

SEVERAL = ["AB", "AC", "AD", "BC", "BD", "CD", "ABC", "BCD"]
"""Topics, each with a rule for each letter, which is its queue."""
SOME = ["aC", "bD", "aBC"]
"""Those in small letters are for publications that say so."""
ONE = ["A", "B", "C", "D"]
FAILURE = "on_failure: {retry: {times: 9, from: 1s, to: 4s}, then: hold}"


def _rule(topic: str, letter: str) -> str:
    goes_on = ", continue: true" if letter != topic[-1] else ""
    when = ", when: {json: {urgent: true}}" if letter.islower() else ""
    return f"  - {{name: {topic} {letter}, topic: {topic}, queue: {letter.upper()}{goes_on}{when}, {FAILURE}}}"


RULES = [_rule(topic, letter) for topic in (*SEVERAL, *SOME, *ONE) for letter in topic]
MAPPING = "\n".join(["version: 1", "to_mq:", *RULES])
Publication = tuple[int, str, bool]
Step = tuple[list[Publication], set[str], int]
STEP = st.tuples(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(SEVERAL + SOME * 2 + ONE), st.booleans()), max_size=6),
    st.sets(st.sampled_from("ABCD"), max_size=2),
    st.sampled_from([0, 0, 1, 5]),
)


def _wanted(sent: Sequence[tuple[str, bool]], queue: str) -> list[int]:
    """The numbers of the publications that a queue gets."""
    return [
        number
        for number, (topic, urgent) in enumerate(sent, 1)
        if queue in topic or (urgent and queue.lower() in topic)
    ]


def _emptied(bench: Harness, room: int) -> dict[str, list[bytes]]:
    """What is on the queues, which have room for so many at a time from now on, and are emptied again and again."""
    found: dict[str, list[bytes]] = {queue: [] for queue in "ABCD"}
    for _ in range(100):
        for queue, there in found.items():
            there += [data for _, (_, _, _, data) in sorted(bench.queues.rows.get(queue, {}).items())]
            bench.queues.rows.get(queue, {}).clear()
        if not bench.engine.parking.waiting:
            break
        bench.queues.room = dict.fromkeys("ABCD", room)
        bench.advance(5)
    return found


def _numbers(rows: Sequence[bytes], who: int) -> list[int]:
    numbers = [re.findall(rb'"of": %d, "number": (\d+)' % who, data) for data in rows]
    return [int(number) for found in numbers for number in found]


def _take(bench: Harness, form: str, devices: Sequence[Device], sent: list[list[tuple[str, bool]]], step: Step) -> None:
    publications, refusing, seconds = step
    chunks = [b""] * len(devices)
    for who, topic, urgent in publications:
        sent[who].append((topic, urgent))
        number = len(sent[who])
        body = b'{"urgent": %s, "of": %d, "number": %d}' % (str(urgent).lower().encode(), who, number)
        chunks[who] += writer.encode_publish(4, topic.encode(), body, 1, packet_id=number)
    with lane(form):
        bench.engine.received_each([(one.connection, chunk) for one, chunk in zip(devices, chunks, strict=True)])
    bench.queues.refusing = dict.fromkeys(refusing, 2053)
    bench.engine.flush()
    bench.advance(seconds)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=5), st.integers(1, 4))
@example([([(0, "ABC", True), (0, "AD", True)], {"B"}, 0)], 9)
@example([([(0, "AC", True), (0, "BC", True)], {"A", "B"}, 0)], 9)
@example([([(0, "aC", True), (0, "aC", False)], {"A"}, 0)], 9)
@example([([(0, "AB", True), (1, "BC", True), (0, "B", True), (0, "AC", True), (1, "AB", True)], {"A", "B"}, 0)], 1)
def test_each_queue_gets_them_in_order(form: str, steps: list[Step], room: int) -> None:
    bench = Harness(MAPPING)
    devices: list[Device] = [bench.device(4, f"device{number}").connect() for number in range(2)]
    sent: list[list[tuple[str, bool]]] = [[], []]
    for device in devices:
        device.take()
    for step in steps:
        _take(bench, form, devices, sent, step)
    bench.queues.refusing = {}
    on = _emptied(bench, room)
    for who, (device, all_sent) in enumerate(zip(devices, sent, strict=True)):
        told = [packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBACK]
        assert told == list(range(1, len(all_sent) + 1))
        for queue in "ABCD":
            found = _numbers(on[queue], who)
            assert sorted(found) == _wanted(all_sent, queue)
            for topics in (SEVERAL, *([topic] for topic in (*SOME, *ONE))):
                of_these = [number for number in found if all_sent[number - 1][0] in topics]
                assert of_these == sorted(of_these), (queue, topics)
    assert not bench.engine.parking.waiting
    assert not bench.engine.parking.linked
