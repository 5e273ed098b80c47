"""gateway.broker.sessions.session_counts: what is counted over many sessions keeps nobody waiting."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from broker_harness import Harness

from gateway.broker.sessions.connect import LOOKED_AT, SHORT
from gateway.broker.sessions.session_counts import SessionCounts
from gateway.broker.slices import SLICE_SECONDS
from gateway.session.publication import Publication
from gateway.session.session import Session


def test_sessions_are_counted_in_slices_and_before_the_answer() -> None:
    bench, planned, answers = Harness(), list[Any](), list[tuple[int, int]]()
    looks = itertools.count()
    bench.clock.monotonic = lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 4  # type: ignore[method-assign]
    bench.clock.later = lambda _seconds, call: planned.append(call)  # type: ignore[method-assign, assignment, return-value]
    for number in range(40 * LOOKED_AT):
        session = Session(f"s{number}", 5)
        session.inbound[1] = Publication(b"t", b"x", 2, retain=False)
        bench.engine.sessions.add(session)
    counts = SessionCounts(bench.engine.context)

    def scraped() -> Iterator[None]:
        yield from counts.steps()
        answers.append((counts.connected, counts.arriving))

    for number in range(2):  # two ask at the same time
        bench.engine.context.slices.run(f"scrape {number}", scraped)
    turns = 1
    while planned:
        assert len(answers) < 2
        planned.pop(0)()
        turns += 1
    assert answers == [(0, 40 * LOOKED_AT)] * 2
    assert turns > 40 / 5


def test_sys_looks_at_sessions_in_slices_but_before_anybody_can_subscribe() -> None:
    bench = Harness()
    for number in range(20 * LOOKED_AT):
        bench.engine.sessions.add(Session(f"s{number}", 5))
    tick = bench.engine.sys_topics.tick
    next(tick(bench.clock.now(), 0.0))
    assert bench.engine.retained.count == 1, "the first is published in the first step"
    steps = tick(bench.clock.now(), 1000.0)
    for _ in range(20):
        next(steps)
        assert bench.engine.retained.count == 1
    assert len(list(steps)) > 10


def test_all_connections_are_looked_at_in_slices() -> None:
    bench = Harness()
    for number in range(LOOKED_AT + 1):
        bench.device(4, f"d{number}").connect(keep_alive=SHORT)
    assert len(list(bench.engine.connect.tick(0.0))) == 1
    assert len(list(bench.engine.connect.keep_alive._checked(0.0))) == 1
    assert len(list(bench.engine.in_flight.tick(0.0))) == 1
