"""gateway.app.api.trace: many clients that are followed cost no more than a few."""

from __future__ import annotations

import fnmatch
import itertools

import pytest
from broker_harness import Harness

from gateway.app.api.trace import LOOKED_AT, Tracer
from gateway.broker.slices import SLICE_SECONDS


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The patterns that were compared with something."""
    found: list[str] = []
    compared = fnmatch.fnmatchcase

    def noted(name: str, pattern: str) -> bool:
        found.append(pattern)
        return compared(name, pattern)

    monkeypatch.setattr(fnmatch, "fnmatchcase", noted)
    return found


def test_names_are_looked_up_and_patterns_are_compared(asked: list[str]) -> None:
    bench = Harness()
    devices = [bench.device(4, f"d{number}") for number in range(20)]
    for device in devices:
        device.connect()
    tracer = Tracer(bench.engine, None)
    tracer.follow([f"d{number * 2}" for number in range(1000)])
    traced = {one.session.client_id for one in bench.engine.connections if one.traced}
    assert traced == {f"d{number * 2}" for number in range(10)}
    assert asked == []
    tracer.follow(["d1*", "d2"])
    traced = {one.session.client_id for one in bench.engine.connections if one.traced}
    assert traced == {"d1", "d2", *(f"d{number}" for number in range(10, 20))}
    assert set(asked) == {"d1*"}
    tracer.follow([])
    assert not any(one.traced for one in bench.engine.connections)


def test_connections_are_looked_at_in_slices() -> None:
    bench = Harness()
    for number in range(4 * LOOKED_AT):
        bench.device(4, f"d{number}").connect()
    looks = itertools.count()
    bench.clock.monotonic = lambda: bench.clock.time + next(looks) * SLICE_SECONDS  # type: ignore[method-assign]
    Tracer(bench.engine, None).follow(["*"])
    some = sum(one.traced for one in bench.engine.connections)
    assert 0 < some < 4 * LOOKED_AT
    bench.clock.advance(1)
    assert all(one.traced for one in bench.engine.connections)
