"""Retained messages found by a filter are those a plain comparison of levels finds, whatever was kept or expired."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import pytest
from broker_harness import Harness
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import FORMS, lane

from gateway.broker.publish import retained
from gateway.mqtt import properties as prop
from gateway.mqtt import writer
from gateway.session.publication import Publication

levels = st.sampled_from(["", "a", "b", "$x"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = (
    st.lists(st.sampled_from(["", "a", "b", "$x", "+"]), min_size=1, max_size=4)
    .flatmap(lambda parts: st.sampled_from(["/".join(parts), "/".join([*parts, "#"]), "#"]))
    .filter(bool)
)


def matches(filter_: str, topic: str) -> bool:
    """Section 4.7, level by level."""
    wanted, given_ = filter_.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in {"+", "#"}:
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return len(given_) >= place
        if place >= len(given_) or level not in {"+", given_[place]}:
            return False
    return len(wanted) == len(given_)


@given(st.lists(st.tuples(topics, st.booleans(), st.sampled_from([0.0, 5.0])), max_size=25), filters, st.booleans())
def test_matching(changes, filter_, later):
    bench = Harness()
    kept: dict[str, float] = {}
    for topic, clear, expiry in changes:
        expires = bench.clock.time + expiry if expiry else 0.0
        payload = b"" if clear else b"x"
        bench.engine.retained.keep(Publication(topic.encode(), payload, 1, retain=True, expires=expires))
        kept.pop(topic, None)
        if not clear:
            kept[topic] = expires
    now = bench.clock.time + (10 if later else 0)
    if later:
        list(bench.engine.retained.sweep(now))
    alive = {topic for topic, expires in kept.items() if not expires or expires > now}
    found = [one.topic.decode() for one in bench.engine.retained.matching(filter_, now) if one]
    assert sorted(found) == sorted(topic for topic in alive if matches(filter_, topic))
    assert bench.engine.retained.count == (len(alive) if later else len(kept))
    bench.engine.flush()
    bench.kill()
    assert sorted(one.topic.decode() for one in bench.engine.retained.matching(filter_, now) if one) == sorted(found)


def test_topics_on_which_something_is_retained_once_displace_none_that_change(monkeypatch):
    monkeypatch.setattr(retained, "MOST_RECORDS", 4)
    bench = Harness()
    keep = bench.engine.retained.keep
    for topic in (b"warm", b"warm", *(b"once/%d" % number for number in range(20)), b"hot", b"hot"):
        keep(Publication(topic, b"x", 1, retain=True))
    assert bench.engine.retained.begin()[0].keys() == {b"warm", b"hot"}


class Sent(NamedTuple):
    """A publication with RETAIN."""

    client: int
    topic: int
    payload: bytes
    qos: int
    described: bool

    def packet(self, packet_id: int) -> bytes:
        block = prop.encode({prop.CONTENT_TYPE: "x"}) if self.described else b""
        topic = b"q/%d" % self.topic
        return writer.encode_publish(
            5, topic, self.payload, self.qos, retain=True, packet_id=packet_id, properties=block
        )


sent = st.builds(
    Sent, st.integers(0, 1), st.integers(0, 2), st.sampled_from([b"", b"a", b"bb", b"ccc"]), st.integers(0, 1),
    st.sampled_from([False, False, False, True]),
)  # fmt: skip
READ, SMALL, KILL = "somebody reads it", "few are remembered", "the process is killed"
rounds = st.lists(st.lists(sent, max_size=6) | st.sampled_from([READ, SMALL, KILL]), max_size=8)
SAME = [[Sent(0, 0, b"a", 1, False), Sent(1, 1, b"a", 1, False)], [Sent(0, 0, b"bb", 1, False)]]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=50)
@given(rounds)
@example([*SAME, [Sent(0, 0, b"ccc", 1, False)], READ, KILL])
@example([*SAME, [Sent(1, 0, b"ccc", 1, False)], [Sent(1, 0, b"a", 1, False)], KILL])
@example([*SAME, [Sent(0, 0, b"", 1, False)], [Sent(0, 0, b"a", 1, False)], [Sent(0, 0, b"bb", 1, False)], KILL])
@example([*SAME, [Sent(0, 0, b"ccc", 1, True)], [Sent(0, 0, b"a", 1, False)], KILL])
@example([*SAME, SMALL, [Sent(0, 2, b"a", 1, False)], [Sent(0, 0, b"ccc", 1, False)], READ, KILL])
def test_what_is_retained_by_several_again_and_again(form, steps):
    """The last of each topic, with what it came with: in memory, and after a kill."""
    with pytest.MonkeyPatch.context() as patch, lane(form):
        bench = Harness("version: 1\nto_mq:\n  - {name: all, topic: 'q/#', queue: Q}\n")
        devices = [bench.device(5, f"device {number}").connect() for number in range(2)]
        expected: dict[bytes, tuple[bytes, int, str, bytes]] = {}
        numbers = count(1)
        for step in steps:
            if step == SMALL:
                patch.setattr(retained, "MOST_RECORDS", 1)
            elif step == KILL:
                bench.kill()
                devices = [bench.device(5, f"device {number}").connect() for number in range(2)]
            elif step != READ:
                for client in (0, 1):  # one after the other: what comes first of two at once nobody can say
                    packets = [one.packet(next(numbers) if one.qos else 0) for one in step if one.client == client]
                    bench.engine.received_each([(devices[client].connection, b"".join(packets))])
                    bench.engine.flush()
                for one in sorted(step, key=lambda one: one.client):
                    topic = b"q/%d" % one.topic
                    expected.pop(topic, None)
                    if one.payload:
                        block = prop.encode({prop.CONTENT_TYPE: "x"}) if one.described else b""
                        expected[topic] = one.payload, one.qos, f"device {one.client}", block
                if not one_reads_after(step):
                    continue
            kept = list(bench.engine.retained)
            found = {one.topic: (one.payload, one.qos, one.client_id, one.properties) for one in kept}
            assert found == expected
            assert all(one.retain and not one.expires for one in kept)
            assert bench.engine.retained.count == len(kept)
            size = sum(len(one.topic) + len(one.payload) + len(one.properties) for one in kept)
            assert bench.engine.retained.bytes == size


def one_reads_after(step: list[Sent]) -> bool:
    """Whether what is retained is looked at after a round: else it is only replaced."""
    return len(step) % 2 == 0
