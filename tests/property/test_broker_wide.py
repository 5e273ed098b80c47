"""What is copied in slices reaches the same as what is copied in one step, whoever has subscribed to what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from math import inf
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from slow_harness import Slow

from gateway.broker.context import MOST_COPIED
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
kinds = st.lists(
    st.sampled_from(
        ["0", "1", "2", "will", "queue", "0000", "1111", "2222", "wills", "queues", "several 0", "several 1"]
    ),
    min_size=1,
    max_size=4,
)
denials = st.sets(st.tuples(st.integers(0, 3), st.sampled_from(["a/b", "a/c"])), max_size=3)


def heard(
    many: list[Any], published: list[str], *, kill: bool, denied: Collection[tuple[int, str]] = (),
    most_copied: int = MOST_COPIED,
) -> list[Any]:  # fmt: skip
    """What each client has been told, and what waits for it. `denied`: which of them may not have which topics."""
    bench, devices, found = Slow(MAPPING), [], list[Any]()
    not_for = {(f"reader-{number}", topic) for number, topic in denied}
    bench.engine.context.most_copied = most_copied
    bench.engine.router.access.may_receive = lambda _, client, __, topic: (client, topic) not in not_for
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
    others = [bench.device(5, f"other-{number}").connect() for number in range(2)]
    for number, kind in enumerate(published, 1):
        payload, bench.engine.context.until = b"%d" % number, inf
        bench.engine.context.until_strangers = inf
        if kind in {"queue", "queues"}:
            bench.queues.arrive("OUT.Q", *((mqmd.build(), payload + more) for more in (b".a", b".b")[: len(kind) - 4]))
            bench.advance(0.25)
        elif kind in {"will", "wills"}:
            wills = [("a/b", b"a", 2), ("a/c", b"b", 2), ("a/c", b"c", 2), ("a/b", b"d", 1)][
                : 1 + 3 * (kind == "wills")
            ]
            dying = [
                bench.device(5, f"dying-{number}-{at}").connect(will=Will(topic, payload + more, qos, retain=True))
                for at, (topic, more, qos) in enumerate(wills)
            ]
            for device in dying:
                device.drop()
        elif kind[:-1] == "several ":  # each of whom has more behind it; the last of them may be a reader
            for at, (one, topic) in enumerate(
                [(others[0], b"a/b"), (others[1], b"a/c"), (sender, b"a/b")], 10 * number
            ):
                one.send(b"".join(
                    writer.encode_publish(5, topic, b"%d%s" % (at, more), int(kind[-1]), packet_id=at + 100 * place)
                    for place, more in enumerate((b".a", b".b"), 1)
                ))  # fmt: skip
        elif kind == "2222":
            packets = {10 * number + at: payload + more for at, more in enumerate((b".a", b".b", b"longer", b""))}
            sender.send(b"".join(
                writer.encode_publish(5, b"a/b", one, 2, packet_id=at) for at, one in packets.items()
            ))  # fmt: skip
            sender.send(b"".join(b"\x62\x02" + at.to_bytes(2) for at in packets))
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
            bench.queues.consumed["OUT.Q"]()  # there may be something
        while bench.later():
            pass
        bench.advance(0.5)
        while bench.later():
            pass
    for device, (_, _, wanted) in zip(devices, many, strict=True):
        told = [(packet[0], packet[1], packet[4]) for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
        is_member = any(filter_[0] == "$" for filter_ in wanted)  # what comes more than once need not alternate
        found.append(sorted(told, key=None if is_member else itemgetter(0)))  # by QoS, and among these in order
    stored = Counter[Any]()
    for _, key, _, data in bench.queues.rows.get(OUT, {}).values():
        publication, _, identifiers, _ = decode_publication(data)
        who = publication.client_id, publication.topic
        stored[key, who, publication.payload, publication.qos, publication.retain, identifiers] += 1
    assert not bench.queues.rows.get(FAN_OUT)
    assert not bench.engine.fan_out.in_slices
    return [stored, *found]


@given(readers, kinds, denials)
@example([(False, True, {"a/#": (1, False, False)})], ["wills"], {(0, "a/b")})
@example([(False, True, {"a/#": (1, True, False)})] * 2, ["several 1", "several 0"], {(1, "a/c")})
@example([(False, False, {"a/b": (0, False, False)}), (False, True, {"a/+": (0, False, False)})], ["wills"], set())
def test_slices_reach_whom_one_step_reaches(
    many: list[Any], published: list[str], denied: set[tuple[int, str]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plain = heard(many, published, kill=False, denied=denied)
        patch.setattr(router, "WIDE", -1)
        patch.setattr(wide, "MOST_AT_ONCE", 2)
        assert heard(many, published, kill=False, denied=denied) == plain


@given(readers, kinds, denials, st.integers(0, 30))
def test_copies_of_few_bytes_at_once_reach_whom_all_together_reach(
    many: list[Any], published: list[str], denied: set[tuple[int, str]], most_copied: int
) -> None:
    at_once, in_slices = (
        heard(many, published, kill=False, denied=denied, most_copied=most) for most in (MOST_COPIED, most_copied)
    )
    for found in (at_once, in_slices):  # by QoS, topic and publisher, and among these in order
        found[1:] = [sorted(told, key=lambda one: (*one[:2], re.findall(rb"^\d*", one[2]))) for told in found[1:]]
    assert in_slices == at_once


@given(readers, st.sampled_from(["2", "will", "queue", "wills", "queues"]), st.sampled_from([0, 3, MOST_COPIED]))
def test_a_kill_in_between_changes_nothing_of_what_is_stored(many: list[Any], kind: str, most_copied: int) -> None:
    away = [(True, False, wanted) for _, _, wanted in many]
    with pytest.MonkeyPatch.context() as patch:
        plain = heard(away, [kind], kill=False)
        if most_copied == MOST_COPIED:
            patch.setattr(router, "MOST_PLACES", -1)
        patch.setattr(wide, "MOST_AT_ONCE", 2)
        stored, *_ = heard(away, [kind], kill=True, most_copied=most_copied)
    shares = {filter_ for _, _, wanted in away for filter_ in wanted if filter_[0] == "$"}
    if shares:  # whose turn it is in a shared subscription is not stored
        stored, plain[0] = (Counter(stored.values()) for stored in (stored, plain[0]))
        return
    assert stored == plain[0]
