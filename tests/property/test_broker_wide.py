"""What is copied in slices reaches the same as what is copied in one step, whoever has subscribed to what."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_harness import Slow

from gateway.broker.deliver import wide
from gateway.broker.publish import router
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.mqtt.packets import Will
from gateway.ports.state_queues import FAN_OUT, OUT
from gateway.session.record import decode_publication

MAPPING = "version: 1\nto_mqtt: [{name: out, queue: OUT.Q, topic: a/b, qos: 1}]\n"
FILTERS = ("a/b", "a/+", "a/#", "#", "+/b", "other", "$share/g/a/b", "$share/h/a/#")
subscriptions = st.dictionaries(
    st.sampled_from(FILTERS), st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), min_size=1, max_size=4
)
readers = st.lists(st.tuples(st.booleans(), st.booleans(), subscriptions), min_size=1, max_size=8)
kinds = st.lists(st.sampled_from(["0", "1", "2", "will", "queue", "0000", "1111"]), min_size=1, max_size=4)


def heard(many: list[Any], published: list[str], *, kill: bool) -> list[Any]:
    """What each client has been told, and what waits for it."""
    bench, devices, found = Slow(MAPPING), [], list[Any]()
    for number, (durable, stays, wanted) in enumerate(many):
        device = bench.device(5, f"reader-{number}").connect(clean=not durable)
        for filter_, (qos, no_local, as_published) in wanted.items():
            options = {} if filter_[0] == "$" else {"no_local": no_local, "retain_as_published": as_published}
            device.subscribe(filter_, qos, **options)
        if not stays:
            device.drop()
        device.take()
        devices.append(device)
    sender = devices[0] if many[0][1] else bench.device(5, "sender").connect()
    for number, kind in enumerate(published, 1):
        payload, bench.engine.context.until = b"%d" % number, inf
        bench.engine.context.until_strangers = inf
        if kind == "queue":
            bench.queues.arrive("OUT.Q", (mqmd.build(), payload))
            bench.advance(0.25)
        elif kind == "will":
            bench.device(5, f"dying-{number}").connect(will=Will("a/b", payload, 2, retain=True)).drop()
        elif len(kind) > 1:  # those behind the first are one run
            sender.send(b"".join(
                writer.encode_publish(5, b"a/b", b"%d" % number + more, int(kind[0]), packet_id=place)
                for place, more in enumerate((b".a", b".b", b"", b".d"), 10 * number)
            ))  # fmt: skip
        else:
            sender.publish("a/b", payload, int(kind), number if kind != "0" else 0)
            if kind == "2":
                sender.ack(p.PUBREL, number)
        if kill and number == len(published):
            bench.later()
            bench.kill()
        while bench.later():
            pass
        bench.advance(0.5)
        while bench.later():
            pass
    for device in devices:
        told = [(packet[0], packet[4]) for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
        found.append(sorted(told, key=lambda one: one[0]))  # by QoS, and among these in order
    stored = Counter[Any]()
    for _, key, _, data in bench.queues.rows.get(OUT, {}).values():
        publication, _, identifiers, _ = decode_publication(data)
        stored[key, publication.payload, publication.qos, publication.retain, identifiers] += 1
    assert not bench.queues.rows.get(FAN_OUT)
    return [stored, *found]


@given(readers, kinds)
def test_slices_reach_whom_one_step_reaches(many: list[Any], published: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plain = heard(many, published, kill=False)
        patch.setattr(router, "WIDE", -1)
        patch.setattr(wide, "MOST_AT_ONCE", 2)
        assert heard(many, published, kill=False) == plain


@given(readers, st.sampled_from(["2", "will", "queue"]))
def test_a_kill_in_between_changes_nothing_of_what_is_stored(many: list[Any], kind: str) -> None:
    away = [(True, False, wanted) for _, _, wanted in many]
    with pytest.MonkeyPatch.context() as patch:
        plain = heard(away, [kind], kill=False)
        patch.setattr(router, "MOST_PLACES", -1)
        patch.setattr(wide, "MOST_AT_ONCE", 2)
        stored, *_ = heard(away, [kind], kill=True)
    shares = {filter_ for _, _, wanted in away for filter_ in wanted if filter_[0] == "$"}
    if shares:  # whose turn it is in a shared subscription is not stored
        stored, plain[0] = (Counter(stored.values()) for stored in (stored, plain[0]))
        return
    assert stored == plain[0]
