"""gateway.broker.publish.kept_routes: how many routes are remembered, and how those go that are not wanted any more."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest
from broker_harness import Device, Harness
from lanes import FORMS, lane

from gateway.broker.publish.kept_routes import ROUTE_BYTES, leaving
from gateway.broker.slices import SLICE_SECONDS
from gateway.mqtt import writer

MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: 'q/{x}', queue: Q}\n"
MANY = 2000


def publish(device: Device, topics: int) -> None:
    data = (writer.encode_publish(4, b"q/%d" % number, b"", 0) for number in range(topics))
    device.bench.engine.received_each([(device.connection, b"".join(data))])
    device.bench.engine.flush()


def slow(bench: Harness) -> list[Callable[[], object]]:
    """Each look at the clock takes a moment; what is planned is kept."""
    planned: list[Callable[[], object]] = []
    looks = itertools.count()
    bench.clock.monotonic = lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 4  # type: ignore[method-assign]
    bench.clock.later = lambda _seconds, call: planned.append(call)  # type: ignore[method-assign,assignment]
    return planned


def reload(device: Device) -> None:
    device.bench.engine.router.touch()
    publish(device, 1)


def disconnect(device: Device) -> None:
    device.send(b"\xe0\x00")


def break_down(device: Device) -> None:
    device.bench.engine.endings.forget(device.connection)


def exceed(device: Device) -> None:
    engine = device.bench.engine
    engine.limits.max_buffered_bytes = ROUTE_BYTES * MANY // 2
    engine.kept_routes.look()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("happens", [reload, disconnect, break_down, exceed])
def test_many_routes_are_freed_in_later_turns(form: str, happens: Callable[[Device], None]) -> None:
    """There may be a hundred clients with as many, for whom rules change in one turn."""
    bench = Harness(MAPPING)
    device = bench.device(4, "a").connect()
    with lane(form):
        for _ in range(2):
            publish(device, MANY)
        old: Any = device.connection.caches[0]
        route, planned = old[b"q/7"], slow(bench)
        happens(device)
        assert len(old) == MANY
        assert len(device.connection.caches[0]) <= 1
        turns = 0
        while planned:
            planned.pop(0)()
            turns += 1
    assert turns > 3
    assert not old
    assert sys.getrefcount(route) == 2, "this one, and what is asked here"


def test_few_are_freed_at_once() -> None:
    bench = Harness(MAPPING)
    device = bench.device(4, "a").connect()
    publish(device, 100)
    caches, planned = device.connection.caches, slow(bench)
    reload(device)
    assert device.connection.caches is caches
    assert list(caches[0]) == [b"q/0"]
    assert not planned


def test_shared_routes_are_among_those_that_are_kept() -> None:
    """As many clients as make the routes of one, each of one topic."""
    bench = Harness(MAPPING, max_buffered_bytes=100 * ROUTE_BYTES)
    engine = bench.engine
    for number in range(200):
        device = bench.device(4, "a").connect()
        device.publish(f"q/{number}", b"", 0)
        device.send(b"\xe0\x00")
        engine.kept_routes.look()
        assert len(engine.router.shared_routes) <= 100 + 25
    assert len(engine.router.shared_routes) > 0


def test_who_has_ended_is_not_kept_for_long() -> None:
    """A shared route knows its subscribers, also when nobody publishes there any more."""
    bench = Harness(MAPPING)
    router, subscriber = bench.engine.router, bench.device(4, "s").connect()
    subscriber.subscribe("q/1", 0)
    publish(bench.device(4, "a").connect(), 3)
    session = subscriber.connection.session

    def holds_it() -> list[bytes]:
        routes = router.shared_routes.items()
        return [key[0] for key, shared in routes if any(one.session is session for one in shared.pattern.receivers)]

    assert holds_it() == [b"q/1"]
    subscriber.send(b"\xe0\x00")
    bench.advance(61.0)
    assert holds_it() == []
    assert (b"q/2", 0, "bench", False) not in router.shared_routes, "the same first level"


def test_few_leave_at_a_time() -> None:
    """Everybody waits meanwhile. In turn, as many as are not kept are not found, and some more."""
    kept, missed, left = dict.fromkeys(range(30_000)), 0, []
    for number in [*range(30_000, 40_000), *range(40_000)]:
        if number in kept:
            continue
        missed += 1
        if len(kept) >= 30_000:
            left.append(leaving(kept))
            for one in left[-1]:
                del kept[one]
        kept[number] = None
    assert max(map(len, left)) == 64
    assert missed < 30_000
    assert leaving({1: None}) == [1]
