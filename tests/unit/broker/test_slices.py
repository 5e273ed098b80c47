"""gateway.broker.slices: what comes due for many at once is done in slices, all of it, and nothing twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from broker_harness import Device, Harness

from gateway.bridge.request import Request
from gateway.broker.deliver import expiry
from gateway.broker.slices import SLICE_SECONDS, Slices
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.ports.state_queues import OUT, REQUESTS, SET_ASIDE
from gateway.session.session import Session


def slow(bench: Harness) -> list[Any]:
    """Each look at the clock takes a moment; what is planned is kept."""
    planned: list[Any] = []
    looks = itertools.count()
    bench.clock.monotonic = lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 4
    bench.clock.later = lambda _seconds, call: planned.append(call)
    return planned


def all_of(planned: list[Any]) -> int:
    turns = 0
    while planned:
        planned.pop(0)()
        turns += 1
    return turns


def test_work_goes_on_in_later_turns_until_it_is_done() -> None:
    bench = Harness()
    planned, done = slow(bench), list[int]()
    slices = Slices(bench.engine.context)

    def work() -> Iterator[None]:
        for number in range(20):
            done.append(number)
            yield

    slices.run("work", work)
    assert 0 < len(done) < 20
    slices.run("work", work)  # it goes on; it is not begun again
    slices.run("other", lambda: iter([None]))
    assert all_of(planned) > 2
    assert done == list(range(20))
    slices.run("work", work)
    all_of(planned)
    assert done == [*range(20), *range(20)]


def test_what_is_done_soon_does_not_wait_for_whole_turns_of_others() -> None:
    bench = Harness()
    planned, done, looks = slow(bench), list[int](), itertools.count()
    bench.clock.monotonic = lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 200
    slices = Slices(bench.engine.context)
    for number in range(4):
        slices.run(f"endless {number}", lambda: itertools.repeat(None))
    slices.run("short", lambda: (done.append(number) for number in range(5)), 0.0)
    assert len(done) < 5
    planned.pop(0)()
    assert len(done) == 5


def test_what_raises_ends_its_own_work_alone() -> None:
    bench = Harness()
    bench.defects = []
    planned, done = slow(bench), list[int]()
    slices = Slices(bench.engine.context)

    def broken() -> Iterator[None]:
        for _ in range(20):
            yield
        raise ZeroDivisionError

    def work() -> Iterator[None]:
        for number in range(20):
            done.append(number)
            yield

    slices.run("broken", broken)
    slices.run("work", work)
    all_of(planned)
    assert done == list(range(20))
    assert len(bench.defects) == 1


def test_many_sessions_that_expire_together_end_a_few_at_a_time() -> None:
    bench = Harness()
    for number in range(40):
        device = bench.device(5, f"gone-{number}").connect(clean=False)
        device.subscribe("a", 1)
        device.drop()
    assert len(bench.engine.sessions) == 40
    planned = slow(bench)
    bench.clock.time += 4000
    bench.engine.tick()
    assert 0 < len(bench.engine.sessions) < 40
    assert all_of(planned) > 2
    assert len(bench.engine.sessions) == 0
    assert len(bench.engine.router.subscriptions) == 0


def test_many_clients_that_fall_silent_together_are_ended_a_few_at_a_time() -> None:
    bench = Harness()
    devices = [bench.device(5, f"silent-{number}").connect(keep_alive=60) for number in range(40)]
    planned = slow(bench)
    bench.clock.time += 100
    bench.engine.tick()
    assert 0 < sum(device.wire.closed for device in devices) < 40
    all_of(planned)
    assert all(device.wire.closed for device in devices)
    assert all(device.take()[-1][0] >> 4 == p.DISCONNECT for device in devices)


def kept(bench: Harness) -> int:
    return sum(one is not None for one in bench.engine.retained.matching("kept/#", 0.0))


def test_retained_messages_that_expire_together_are_forgotten_a_few_at_a_time() -> None:
    bench = Harness()
    sender = bench.device(5, "sender").connect()
    for number in range(40):
        expiry = prop.encode({prop.MESSAGE_EXPIRY_INTERVAL: 10})
        sender.publish(f"kept/{number}", b"x", 1, number + 1, retain=True, properties=expiry)
    assert kept(bench) == 40
    planned = slow(bench)
    bench.clock.time += 20
    bench.engine.tick()
    assert 0 < kept(bench) < 40
    all_of(planned)
    assert kept(bench) == 0


def stored_until(bench: Harness, count: int, expiry: int) -> Device:
    """A device that is away, with so many messages stored for it that expire."""
    device = bench.device(5, "away")
    device.connect(clean=False, properties={prop.SESSION_EXPIRY_INTERVAL: 1000})
    device.subscribe("a", 1)
    device.disconnect()
    sender = bench.device(5, "s").connect()
    for number in range(1, count + 1):
        sender.publish("a", b"x", 1, number, properties=prop.encode({prop.MESSAGE_EXPIRY_INTERVAL: expiry}))
    sender.publish("a", b"stays", 1, count + 1)
    return device


def test_stored_messages_that_expire_go_a_few_at_a_time() -> None:
    bench = Harness()
    stored_until(bench, 60, 5)
    planned = slow(bench)
    bench.clock.time += 10
    bench.engine.tick()
    assert len(bench.queues.rows[OUT]) > 1
    bench.engine.tick()  # it is not begun again
    assert all_of(planned) > 3
    assert len(bench.queues.rows[OUT]) == 1
    assert bench.engine.counters.messages_dropped["_none", "expired"] == 60


def test_sessions_of_which_nothing_expires_now_are_passed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Harness()
    monkeypatch.setattr(expiry, "PASSED", 5)
    for number in range(40):
        bench.engine.expiry.until(Session(f"s{number}", 5), 100.0 if number == 33 else 1000.0)
    assert sum(1 for _ in bench.engine.expiry.tick(50.0)) == 8
    assert sum(1 for _ in bench.engine.expiry.tick(100.0)) == 9


def test_a_device_that_comes_back_meanwhile_gets_what_has_not_expired() -> None:
    bench = Harness()
    stored_until(bench, 60, 5)
    planned = slow(bench)
    bench.clock.time += 10
    bench.engine.tick()
    again = bench.device(5, "away").connect(clean=False, properties={prop.SESSION_EXPIRY_INTERVAL: 1000})
    all_of(planned)
    found = [packet for packet in again.take() if packet[0] >> 4 == p.PUBLISH]
    assert [packet[4] for packet in found] == [b"stays"]
    again.ack(p.PUBACK, found[0][2])
    all_of(planned)
    assert not bench.queues.rows[OUT]
    assert bench.engine.counters.messages_dropped["_none", "expired"] == 60


def test_requests_that_nobody_answered_go_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Harness()
    bench.clock.time += 1000
    date, _, time = datetime.fromtimestamp(bench.clock.now() - 200, UTC).strftime("%Y%m%d %H%M%S00").partition(" ")
    put = mqmd.build(put_date=date, put_time=time)
    rows = bench.queues.rows.setdefault(REQUESTS, {})
    for number in range(60):
        request, token = Request(f"d{number}", "answers", b"", 60), next(bench.queues._tokens)
        bench.queues._priorities[token] = 0
        rows[token] = (0, request.token, put, request.encode())
    bench.defects = []
    bad = next(bench.queues._tokens)
    bench.queues._priorities[bad], rows[bad] = 0, (0, b"?", put, b"[1")
    monkeypatch.setattr(expiry, "REQUESTS_AT_ONCE", 25)
    planned = slow(bench)
    bench.engine.tick()
    assert rows
    assert all_of(planned) > 3
    assert not bench.queues.rows[REQUESTS], "the others go whatever one is"
    assert len(bench.queues.rows[SET_ASIDE]) == 1
    assert len(bench.defects) == 1
